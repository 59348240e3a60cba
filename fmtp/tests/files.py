#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fmtp-send and fmtp-recv when disks fill, sources cannot be read, and receivers fall behind.

Usage: files.py FMTP-SEND FMTP-RECV [CASE...]. Root: disks are small tmpfs in the test's mount
namespace; packets stay on the loopback of a network namespace. Exit status 77: skipped.
"""

from __future__ import annotations

import json
import operator
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.tool_cases import (
    Machine,
    Program,
    expect,
    names,
    resize,
    run_cases,
    small_disk,
    used_bytes,
    wait_for,
)

MB = 1_000_000


class Site(Machine):
    """The two programs and how they are called."""

    def group(self, number: int) -> str:
        return f"239.77.0.{number}:{20000 + number}"

    def send(self, files: list[Path], *more: str, groups: int = 1) -> Program:
        argv = [self.send_path, "--address", "127.0.0.1"]
        for number in range(groups):
            argv += ["--group", self.group(number + 1)]
        program = self.start("send", [*argv, *more, *map(str, files)])
        wait_for("TCP port", lambda: program.said().count("TCP port") == groups)
        return program

    def receive(self, sender: Program, directory: Path, *more: str, name: str = "recv") -> Program:
        argv = [self.recv_path, "--interface", "127.0.0.1", "--rate", "100M"]
        for number, port in enumerate(re.findall(r"TCP port (\d+)", sender.said())):
            argv += ["--server", f"127.0.0.1:{port}", "--group", self.group(number + 1)]
        return self.start(name, [*argv, *more, str(directory)])


def temporaries(directory: Path) -> list[Path]:
    return list(directory.glob(".fmtp-*"))


# ---------------------------------------------------------------- disks


def case_promises_are_added_up(m: Site) -> None:
    """Three files at once, room for two: the third is refused before any of them is there."""
    big = m.file("big", 12 * MB)
    with small_disk(m.directory("disk"), 30 * MB) as disk:
        sender = m.send([big], "--rate", "20M", "--receivers", "3", groups=3)
        receiver = m.receive(sender, disk)
        text = "'big', 12000000 bytes: No space left on device"
        wait_for("refusal", lambda: text in receiver.said())
        there = names(disk)
        expect(len(there) == 2 == len(temporaries(disk)), f"when it was refused: {there}")
        sender.ends(1)
        receiver.ends(1)
        expect(receiver.said().count(text) == 1, receiver.said())
        expect(names(disk) == ["big"], f"left: {names(disk)}")
        expect((disk / "big").read_bytes() == big.read_bytes(), "the file differs")
        counts, got = sender.counts(), receiver.counts()
        expect(counts["result"] == "incomplete" and counts["failed"] == "1", sender.told())
        expect(got["result"] == "incomplete" and got["failed"] == "1", receiver.told())
        expect(sender.told().count("why=all-done name=big") == 2, sender.told())
        expect(sender.told().count("why=failed name=big") == 1, sender.told())


def case_a_disk_fills_amid_a_file(m: Site) -> None:
    """The disk fills when half of a file is stored: it ends alone, and both sides report that."""
    big, small = m.work / "big", m.file("small", MB)
    with big.open("wb") as stream:
        stream.truncate(400 * MB)
    with small_disk(m.directory("disk"), 420 * MB) as disk:
        sender = m.send([big, small], "--rate", "80M")
        receiver = m.receive(sender, disk)
        wait_for("file", lambda: any(used_bytes(path) for path in temporaries(disk)), 0)
        sender.signal(signal.SIGSTOP)
        receiver.signal(signal.SIGSTOP)
        time.sleep(0.1)
        used = used_bytes(temporaries(disk)[0])
        expect(0 < used < 380 * MB, f"{used} bytes are written already: try again")
        resize(disk, used + 6 * MB)
        receiver.signal(signal.SIGCONT)
        sender.signal(signal.SIGCONT)
        wait_for("refusal", lambda: "No space left on device" in receiver.said())
        sender.ends(1)
        receiver.ends(1)
        expect(names(disk) == ["small"], f"left: {names(disk)}")
        expect((disk / "small").read_bytes() == small.read_bytes(), "the file behind it differs")
        expect(
            "'big', 400000000 bytes: No space left on device" in receiver.said(), receiver.said()
        )
        expect("why=failed name=big" in sender.told(), sender.told())
        expect("why=all-done name=small" in sender.told(), sender.told())
        expect(sender.counts()["result"] == "incomplete", sender.told())
        expect(receiver.counts()["failed"] == "1", receiver.told())


# ---------------------------------------------------------------- sources


def unreadable_source(m: Site, mac: str) -> None:
    """A file with holes on a full tmpfs: to read a hole by its mapping takes a page, and there is
    none. Its size and time stay; reading fails as on a broken disk."""
    good = m.file("good", 500_000)
    with small_disk(m.directory("source"), MB) as source:
        hole = source / "hole"
        with hole.open("wb") as stream:
            stream.write(os.urandom(200_000))
            stream.truncate(3 * MB)
        with (source / "filler").open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, os.statvfs(source).f_bavail * 4096)
        got = m.directory("got")
        sender = m.send([hole, good], "--rate", "50M", "--mac", mac)
        receiver = m.receive(sender, got)
        sender.ends(1)
        receiver.ends(1)
        text = sender.said() + sender.told()
        expect("hole': changed or unreadable while it was sent" in text, text)
        expect("why=changed name=hole" in sender.told(), sender.told())
        expect("why=all-done name=good" in sender.told(), sender.told())
        expect(names(got) == ["good"], f"there: {names(got)}")
        expect((got / "good").read_bytes() == good.read_bytes(), "the file behind it differs")
        m.end_all()


def case_a_source_cannot_be_read_without_macs(m: Site) -> None:
    """The kernel reads it: sendmsg says EFAULT."""
    unreadable_source(m, "0")


def case_a_source_cannot_be_read_with_macs(m: Site) -> None:
    """The program reads it: SIGBUS."""
    unreadable_source(m, "1")


# ---------------------------------------------------------------- receivers that fall behind


def laggard(m: Site, *bound: str) -> None:
    """One of two receivers stops: it is let go, and the other one has everything."""
    files = [m.file(f"f{number:02}", 60_000) for number in range(30)]
    one, two = m.directory("one"), m.directory("two")
    sender = m.send(files, "--rate", "10M", "--receivers", "2", *bound)
    stopped = m.receive(sender, one, name="stopped")
    honest = m.receive(sender, two, name="honest")
    wait_for("file", lambda: "name=f02" in honest.told())
    stopped.signal(signal.SIGSTOP)
    honest.ends(0)
    sender.ends(1)
    counts = sender.counts()
    expect(counts["laggards"] == "1" and counts["result"] == "incomplete", sender.told())
    line = r"receiver 127\.0\.0\.1:\d+ is too far behind and is disconnected: files=\d+ bytes="
    expect(len(re.findall(line, sender.said())) == 1, sender.said())
    expect(len(names(two)) == 30, f"{len(names(two))} of 30 files")
    for path in files:
        expect((two / path.name).read_bytes() == path.read_bytes(), f"{path.name} differs")
    stopped.signal(signal.SIGCONT)
    # 3: it finds the connection lost before it reads of files that it has missed.
    stopped.ends(1, 3)
    expect(not temporaries(one), "something half-written is left")


def case_held_products(m: Site) -> None:
    laggard(m, "--held-products", "4")


def case_held_bytes(m: Site) -> None:
    laggard(m, "--held-bytes", "300k")


def case_held_seconds(m: Site) -> None:
    laggard(m, "--held-seconds", "1")


# ---------------------------------------------------------------- events


def _events(directory: Path, name: str) -> list[dict[str, Any]]:
    """Return the data of the events `name`."""
    records = "".join(path.read_text() for path in directory.iterdir()).split("\x1e")[1:]
    whole = (json.loads(record) for record in records if record.endswith("\n"))
    return [event["data"] for event in whole if event.get("name") == f"fmtp:{name}"]


def _lossy(m: Site, repair: str) -> tuple[Program, Path, Path]:
    """A receiver with a small buffer stands still while a file is multicast. Returns it, and where
    its events and the sender's are."""
    big, events, sent = m.file("big", 8 * MB), m.directory("events"), m.directory("sent")
    sender = m.send([big], "--rate", "40M", "--receivers", "1", "--qlog", str(sent))
    more = ("--rcvbuf", "100k", "--repair", repair, "--qlog", str(events))
    receiver = m.receive(sender, m.directory("in"), *more)
    wait_for("start", lambda: any(events.iterdir()) and bool(_events(events, "product_started")))
    receiver.signal(signal.SIGSTOP)
    time.sleep(0.5)
    receiver.signal(signal.SIGCONT)
    receiver.ends(0)
    sender.ends(0)
    return receiver, events, sent


def _heard(asked: list[dict[str, Any]], sent: Path) -> None:
    """The sender heard each request, and says whose it is."""
    heard = _events(sent, "repair_requested")
    hosts = {event.get("host") for event in heard}
    expect(len(hosts) == 1, f"{len(hosts)} hosts")
    key = operator.itemgetter("index", "by", "blocks")
    expect(sorted(map(key, heard)) == sorted(map(key, asked)), f"{len(heard)} of {len(asked)}")


def _blocks(events: list[dict[str, Any]]) -> int:
    return sum(int(event["blocks"]) for event in events)


def _told_once(lost: list[dict[str, Any]]) -> None:
    """Each block, and many: at 40 Mbit/s, 1,700 pass in 0.5 s."""
    each = {n for event in lost for n in range(event["first"], event["first"] + event["blocks"])}
    expect(len(each) == _blocks(lost) > 500, f"{len(each)} of {_blocks(lost)} blocks")


def case_events_of_repair_by_tcp(m: Site) -> None:
    receiver, events, sent = _lossy(m, "unicast")
    lost, asked = _events(events, "block_lost"), _events(events, "repair_requested")
    _told_once(lost)
    counts = receiver.counts()
    _heard(asked, sent)
    expect({event["by"] for event in asked} == {"tcp"}, "by multicast")
    expect(len(asked) == int(counts["retx_requests"]), receiver.told())
    expect(_blocks(asked) == _blocks(lost) == int(counts["retx_blocks"]), receiver.told())
    repaired = _events(sent, "repair_sent")
    expect({event["by"] for event in repaired} == {"tcp"}, "repairs by multicast")
    expect({e["host"] for e in repaired} == {e["host"] for e in _events(sent, "repair_requested")},
           "repairs of another host")  # fmt: skip
    expect(_blocks(repaired) == _blocks(asked), f"{_blocks(repaired)} of {_blocks(asked)} blocks")


def case_events_of_repair_by_multicast(m: Site) -> None:
    receiver, events, sent = _lossy(m, "multicast")
    lost, asked = _events(events, "block_lost"), _events(events, "repair_requested")
    _told_once(lost)
    counts = receiver.counts()
    _heard(asked, sent)
    for way, requests in (("multicast", "repair_requests"), ("tcp", "retx_requests")):
        expect(sum(e["by"] == way for e in asked) == int(counts[requests]), receiver.told())
    back = sum(int(counts[f"{way}_blocks"]) for way in ("repaired", "decoded", "retx"))
    expect(_blocks(lost) <= back, receiver.told())
    by_multicast = [event for event in _events(sent, "repair_sent") if event["by"] == "multicast"]
    expect(by_multicast and all("host" not in e for e in by_multicast), "no repair by multicast")
    expect(_blocks(by_multicast) >= int(counts["repaired_blocks"]), receiver.told())


if __name__ == "__main__":
    found = {name[5:]: case for name, case in list(globals().items()) if name.startswith("case_")}
    sys.exit(run_cases(found, Site))
