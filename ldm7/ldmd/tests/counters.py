#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The counters pages of mldm, down7 and ldmd, read by ldmstats while they run.

Usage: counters.py LDMD TOOLS_DIRECTORY [CASE...], as integration.py.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from integration import (
    SUBSCRIBERS,
    Servers,
    await_receiving,
    cases_in,
    expect,
    lose_every,
    mixed_sizes,
    path_ip,
    publisher7,
    run_cases,
    start7,
    subscriber7,
    wait_for,
)
from integration7 import process_called, walls_of

SAMPLE = re.compile(r"(downpour_\w+)(?:\{(.*)\})? (\S+)")
Samples = dict[tuple[str, str], float]


def run_ldmstats(servers: Servers, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [str(servers.tools / "ldmstats"), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def samples(servers: Servers, host: str) -> Samples:
    """(name without `downpour_`, address of the label `receiver` or "") -> value."""
    done = run_ldmstats(servers, "-q", str(servers.queue(host)), "--prometheus")
    expect(done.returncode == 0, f"ldmstats: {done.returncode}: {done.stderr}")
    found: Samples = {}
    families: list[str] = []
    for line in done.stdout.splitlines():
        if line.startswith("# TYPE "):
            families.append(line.split()[2])
        if line.startswith("#"):
            continue
        match = SAMPLE.fullmatch(line)
        expect(match is not None, f"no sample: {line}")
        assert match is not None
        expect(match[1] == families[-1], f"{match[1]} stands under {families[-1]}")
        receiver = re.search(r'receiver="([^":]+):', match[2] or "")
        key = (match[1].removeprefix("downpour_"), receiver[1] if receiver else "")
        expect(key not in found, f"{key} twice")
        found[key] = float(match[3])
    expect(len(set(families)) == len(families), "a metric's samples stand apart")
    return found


def value(servers: Servers, host: str, name: str, receiver: str = "") -> float | None:
    return samples(servers, host).get((name, receiver))


def has(servers: Servers, host: str, want: float, name: str, receiver: str = "") -> bool:
    return value(servers, host, name, receiver) == want


def has_products(servers: Servers, host: str, want: int) -> bool:
    """First products come as backlog, too, if they are inserted while a subscriber asks for it."""
    there = samples(servers, host)
    return want == sum(there[(f"down7_{w}_products_total", "")] for w in ("multicast", "backlog"))


def pages(servers: Servers, host: str) -> list[str]:
    folder = Path(f"{servers.queue(host)}.stats")
    return sorted(p.name.partition(".")[0] for p in folder.glob("*.*"))


def case_who_pins_the_queue(servers: Servers) -> None:
    """What receivers lose, pin and lag, behind the walls; and what a hung one does, by itself."""
    start7(servers)
    walls = walls_of(servers, "s")
    if "Sandbox: seccomp" in servers.log("s"):
        expect(walls["mldm"][0] == "2", f"mldm is not behind its walls: {walls}")
    lose_every("r3", "-p", "udp", nth=10)
    servers.insert("a", mixed_sizes(12))
    servers.same_everywhere(12)
    for host in SUBSCRIBERS:
        wait_for(f"12 at {host}", partial(has_products, servers, host, 12))
        address = path_ip(host)
        wait_for("12 acks", partial(has, servers, "s", 12, "fmtp_peer_acks_total", address))
        expect(has(servers, "s", 0, "fmtp_peer_pinned_bytes", address), f"{host} pins")
        expect(has(servers, "s", 1, "fmtp_peer_extended", address), f"{host} is not extended")
    lost = [value(servers, "s", "fmtp_peer_lost_blocks_total", path_ip(h)) for h in SUBSCRIBERS]
    expect(lost[0] == lost[1] == 0 and (lost[2] or 0) > 0, f"lost blocks: {lost}")
    there = samples(servers, "r3")
    given = sum(there[(f"fmtp_receiver_{n}_total", "")]
                for n in ("repaired_blocks", "decoded_blocks", "retx_blocks"))  # fmt: skip
    expect(given > 0, "r3 shows no repair")
    here = samples(servers, "s")
    expect(here[("mldm_offered_products_total", "")] == 12, "offered")
    expect(here[("queue_products", "")] == 12, "in the queue")
    expect(here[("fmtp_sender_receivers", "")] == 3, "receivers")
    expect(here[("ldmd_connections", "")] == 3, "connections")
    hung = process_called(servers, "r2", "down7")
    os.kill(hung, signal.SIGSTOP)
    try:
        servers.insert("b", [10_000] * 4)
        r1, r2 = path_ip("r1"), path_ip("r2")
        wait_for("four at r2", partial(has, servers, "s", 4, "fmtp_peer_behind_products", r2))
        expect(has(servers, "s", 4, "fmtp_peer_pinned_products", r2), "r2 pins four")
        pinned = value(servers, "s", "fmtp_peer_pinned_bytes", r2) or 0
        expect(40_000 < pinned < 42_000, f"r2 pins {pinned} bytes")
        wait_for("r1", partial(has, servers, "s", 0, "fmtp_peer_pinned_products", r1))

        def lag() -> float:
            return value(servers, "s", "fmtp_peer_behind_seconds", r2) or 0

        wait_for("a lag of 3 s", lambda: lag() > 3, 6)
    finally:
        os.kill(hung, signal.SIGCONT)
    wait_for("nothing pinned", partial(has, servers, "s", 0, "fmtp_peer_pinned_products", r2))
    servers.stop("r2")
    wait_for("r2's place", lambda: value(servers, "s", "fmtp_peer_acks_total", r2) is None)
    servers.stop_all()
    expect(pages(servers, "s") == [], f"left behind: {pages(servers, 's')}")


def case_pages_of_the_dead(servers: Servers) -> None:
    """A killed process's page goes; of a killed ldmd no counter is shown, and no file stays."""
    servers.start("s", publisher7())
    servers.start("r1", subscriber7("r1"))
    await_receiving(servers, ("r1",))
    wait_for("pages", lambda: pages(servers, "s") == ["ldmd", "mldm"])
    os.kill(process_called(servers, "s", "mldm"), signal.SIGKILL)
    wait_for("the failure", partial(has, servers, "s", 1, "ldmd_failures_total"))
    await_receiving(servers, ("r1",), 2)
    wait_for("pages again", lambda: pages(servers, "s") == ["ldmd", "mldm"])
    sessions = partial(has, servers, "r1", 2, "down7_sessions_total")
    wait_for("the second session", sessions)
    top = servers.running["s"]
    os.kill(top.pid, signal.SIGSTOP)  # or it would clean up
    for pid in reversed(servers.descendants("s")):
        os.kill(pid, signal.SIGKILL)
    top.wait()
    expect(len(pages(servers, "s")) == 2, f"pages: {pages(servers, 's')}")

    def names() -> set[str]:
        return {name.partition("_")[0] for name, _ in samples(servers, "s")}

    wait_for("no counters of the dead", lambda: names() == {"queue"})
    del servers.running["s"]
    servers.start("s", publisher7())
    wait_for("new pages", lambda: "ldmd" in names())
    expect(pages(servers, "s").count("ldmd") == 1, f"not swept: {pages(servers, 's')}")
    servers.stop_all()


def case_hostile_files(servers: Servers) -> None:
    """A file that is no page costs one line and the exit status; the others are printed. Off is
    off."""
    servers.start("s", publisher7())
    servers.start("r1", subscriber7("r1", "SET ldmd.stats off\n"))
    await_receiving(servers, ("r1",))
    expect(not Path(f"{servers.queue('r1')}.stats").exists(), "off is not off")
    folder = Path(f"{servers.queue('s')}.stats")
    at_r1 = partial(has, servers, "s", 0, "fmtp_peer_acks_total", path_ip("r1"))
    wait_for("r1's counters", at_r1)
    good = next(folder.glob("mldm.*")).read_bytes()
    (folder / "cut.1").write_bytes(good[: len(good) // 2])
    (folder / "junk.2").write_bytes(os.urandom(5000))
    (folder / "link.3").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe.4")
    (folder / "empty.5").touch()
    done = run_ldmstats(servers, "-q", str(servers.queue("s")))
    expect(done.returncode == 1, f"exit status {done.returncode}")
    lines = sorted(done.stderr.splitlines())
    expect(len(lines) == 5, f"lines: {lines}")
    for line, name in zip(lines, ("cut.1", "empty.5", "junk.2", "link.3", "pipe.4"), strict=True):
        expect(f"/{name}: " in line, f"{line}: not of {name}")
    expect("fmtp_peer" in done.stdout and path_ip("r1") in done.stdout, done.stdout)
    servers.stop_all()


CASES = cases_in(globals())

if __name__ == "__main__":
    sys.exit(run_cases(CASES, __doc__))
