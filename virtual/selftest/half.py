# SPDX-License-Identifier: Apache-2.0
"""One of two guests with a link between them: `python -m virtual.selftest.half a|b WINDOW_NS`.

Host a is in one guest, host b in the other, and the delayed link between them is cut. Nothing else
joins the guests: what each does follows from its own clock. Prints rows (JSON) and `digest HEX`,
over every arrival of the two-way load, in nanoseconds.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from common.places import program
from common.shell import NetworkError, check
from common.virtual_time import LINKS as VARIABLE
from virtual.guest import EPOCH_S
from virtual.selftest import parse, shapers, theory
from virtual.selftest.pair import ADDRESS, IDLE_MS, MAC, PORT, QUIET, UDP, Host, ready
from virtual.selftest.rows import Row, to_line

CUT: Final = program("cut-link")
DELAY_NS: Final = 18_000_000
DELAY_MS: Final = DELAY_NS / 1e6
FILES: Final = {"a": "a-to-b", "b": "b-to-a"}  # each direction's file is named after its sender
OUTER: Final = "cut0"  # the end of the host's cable that cut-link serves
LOAD: Final = theory.Offer(8000, theory.frame_bytes(1400), 0.0005)
PINGS: Final = 5
_ROUND_TRIPS: Final = re.compile(r"^rtt min/avg/max/mdev = ([\d.]+)/[\d.]+/([\d.]+)/", re.MULTILINE)

ONE_WAY: Final = (
    "cut link: 5 us for clock readings (256 ns each) from the sender's stamp to the interface, "
    "in which frames' times are stamped and released"
)
ROUND_TRIP: Final = "ping shows microseconds"


def until(second: float) -> None:
    """Sleep until that many seconds have passed on the guest's clock since its start."""
    rest_s = EPOCH_S + second - time.time()
    if rest_s <= 0:
        raise NetworkError(f"the guest is {-rest_s:.3f} s late for second {second:g}")
    time.sleep(rest_s)


@contextmanager
def host(name: str) -> Iterator[Host]:
    """Set up the host `name` in its own namespace; the other end of its cable is OUTER."""
    one = Host(name)
    check(["ip", "netns", "add", name])
    one.sysctl(*QUIET)
    one.run("ip", "link", "set", "lo", "up")
    check([
        "ip", "link", "add", OUTER, "type", "veth",
        "peer", "name", one.interface, "address", MAC[name], "netns", name,
    ])  # fmt: skip
    check(["sysctl", "-qe", "-w", f"net.ipv6.conf.{OUTER}.disable_ipv6=1"])
    check(["ip", "link", "set", OUTER, "up"])
    one.run("ethtool", "-K", one.interface, "tx", "off")
    one.address(one.interface, ADDRESS[name])
    yield one


@contextmanager
def link(one: Host, window_ns: int) -> Iterator[None]:
    """Join the host to the other guest. Raises NetworkError if a frame was lost or late."""
    # One flow: frames of the same instant keep their order. cut-link says when each may leave.
    check([
        "tc", "qdisc", "replace", "dev", OUTER, "root", "fq", "nopacing", "orphan_mask", "0",
        "limit", "1000000", "flow_limit", "1000000", "timer_slack", "0", "horizon", "600s",
    ])  # fmt: skip
    links = Path(os.environ[VARIABLE])
    files = [str(links / FILES[one.name]), str(links / FILES[one.other])]
    with subprocess.Popen(
        [str(CUT), str(window_ns), *files, OUTER, str(DELAY_NS)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            ready(process, process.stdout, "ready")
            yield
            process.terminate()
            _, said = process.communicate()
        finally:
            process.kill()
    if process.returncode != 0:
        raise NetworkError(said.strip() or f"cut-link: exit code {process.returncode}")


def exchange(one: Host, second: float, offers: dict[str, theory.Offer]) -> list[parse.Arrival]:
    """From `second` on, send what the host offers and receive what the other sends; return the
    arrivals."""
    until(second)
    receiver = one.popen(str(UDP), "receive", str(PORT), str(IDLE_MS))
    with receiver:
        try:
            ready(receiver, receiver.stdout, "ready")
            until(second + 1)
            if (offer := offers.get(one.name)) is not None:
                payload = offer.size_bytes - theory.HEADERS_BYTES
                interval_ns = round(offer.interval_s * 1e9)
                words = (ADDRESS[one.other], PORT, offer.frames, payload, interval_ns)
                one.run(str(UDP), "send", *map(str, words))
            if one.other not in offers:
                return []
            out, err = receiver.communicate()
        finally:
            receiver.kill()
    if receiver.returncode != 0:
        raise NetworkError(f"selftest-udp receive: {err.strip()}")
    return parse.arrivals(out)


def delay_rows(one: Host, second: float) -> Iterator[Row]:
    """Send datagrams both ways at once: how long does each take?"""
    offer = theory.Offer(shapers.DELAYED, shapers.SIZE_BYTES, 0.010)
    found = exchange(one, second, {"a": offer, "b": offer})
    for which, value in zip(("shortest", "longest"), shapers.one_way_s(found), strict=True):
        test = f"cut link {one.other} to {one.name}, {which} of {shapers.DELAYED}"
        yield Row(test, "ms", DELAY_MS, value * 1e3, 0, 5e-3, ONE_WAY)


def rate_rows(one: Host, second: float) -> Iterator[Row]:
    """Send a burst through a rate at a's egress, measured at b."""
    if one.name == "a":
        one.run(
            "tc", "qdisc", "replace", "dev", one.interface, "root", "tbf", "rate",
            f"{shapers.RATE_BPS / 1e6:g}mbit", "burst", f"{shapers.BURST_BYTES}b",
            "limit", "10000000",
        )  # fmt: skip
    offer = theory.Offer(shapers.FRAMES, shapers.SIZE_BYTES, 0.0)
    found = exchange(one, second, {"a": offer})
    if one.name == "a":
        until(second + 5)  # the queue is empty
        one.run("tc", "qdisc", "replace", "dev", one.interface, "root", "pfifo")
        return
    expected_s = theory.tbf_span_s(
        shapers.FRAMES, shapers.SIZE_BYTES, shapers.RATE_BPS, shapers.BURST_BYTES
    )
    measured_ms = shapers.span_s(found, shapers.FRAMES) * 1e3
    test = f"TBF rate 10 Mbit/s, then a cut link, {shapers.FRAMES} frames"
    yield Row(test, "ms", expected_s * 1e3, measured_ms, 20e-3, 20e-3, shapers.SPAN)


def ping_rows(one: Host, second: float) -> Iterator[Row]:
    """Measure round trips."""
    until(second)
    if one.name != "a":
        return
    said = one.run("ping", "-q", "-i", "1", "-c", str(PINGS), ADDRESS["b"])
    match = _ROUND_TRIPS.search(said)
    if match is None:
        raise NetworkError(f"ping: found '{said.strip()[-200:]}'; valid: round-trip times")
    for which, text in zip(("shortest", "longest"), match.groups(), strict=True):
        test = f"ping over a cut link, {which} of {PINGS}"
        yield Row(test, "ms", 2 * DELAY_MS, float(text), 1e-3, 1e-2, ROUND_TRIP)


def load_rows(one: Host, second: float) -> Iterator[Row]:
    """Send a load both ways at once, and print its digest."""
    found = exchange(one, second, {"a": LOAD, "b": LOAD})
    text = "".join(f"{a.sequence} {a.sent_ns} {a.arrived_ns}\n" for a in found)
    print(f"digest {hashlib.sha256(text.encode()).hexdigest()}", flush=True)
    test = f"datagrams from {one.other}, {LOAD.frames} each way"
    yield Row(test, "datagrams", LOAD.frames, len(found), 0, 0, shapers.COUNTED)


def all_rows(one: Host) -> Iterator[Row]:
    """Run all tests of this host. Raises NetworkError, ValueError."""
    yield from delay_rows(one, 20)
    yield from rate_rows(one, 30)
    yield from ping_rows(one, 40)
    yield from load_rows(one, 50)
    until(60)


def main(arguments: list[str]) -> int:
    """Run in a guest; return the exit code."""
    name, window_ns = arguments
    try:
        with host(name) as one, link(one, int(window_ns)):
            for row in all_rows(one):
                print(to_line(row), flush=True)
    except (NetworkError, OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"selftest: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
