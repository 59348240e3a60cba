#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The publisher's interface and queues, made and removed with mldm (DRFSM21 2.2.3): against an `ip`
and a `tc` that note what they are asked and remember the interfaces.

Usage: lane.py LDMD TOOLS_DIRECTORY. Over loopback; vlan.py has the real programs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from wire import Daemon, daemon, expect

# Links are files that hold their aliases; of tc only the root of `lo` is remembered.
FAKE = """#!/bin/sh
cd {work}
one() {{ [ -e "links/$1" ] && echo "7: $1@lo: <UP> mtu 1500\\\\ alias $(cat "links/$1")"; }}
case "$*" in
"-o link show type vlan") for l in links/*; do one "$(basename "$l")"; done; exit 0;;
*" link show dev "*) one "$5" || one "$6"; exit;;
"qdisc show dev "*) cat "root.$4" 2>/dev/null; exit 0;;
*" show "*) exit 0;;
esac
echo "$(basename "$0") $*" >> changes
[ ! -e fails ] || case "$*" in "$(cat fails)"*) echo "Error: no such luck." >&2; exit 2;; esac
case "$*" in
"link add "*) : > "links/$6";;
"link set dev "*" alias "*) echo "$6" > "links/$4";;
"link del dev "*) rm -f "links/$4" "root.$4";;
"qdisc add dev "*" root "*) echo "qdisc htb 1: root" > "root.$4";;
"qdisc del dev "*" root") rm "root.$4";;
esac
"""
# Its own path, whose service is nowhere, so that mldm starts at once.
CONF = """MULTICAST EXP 224.0.77.1:38800 127.0.0.1 8 {vlan} newy 3
MULTICAST NGRID 224.0.77.2:38800
SET path.service unix:{work}/nowhere
SET ldm7.nic lo EXP
SET ldm7.vlanutil {work}/vlanutil
SET fmtp.r_mc_bps 40000000 EXP
SET fmtp.r_uc_bps 5000000
"""
CREATED = [
    "ip link add link lo name lo.101 type vlan id 101",
    "ip link set dev lo.101 alias OWNER",
    "ip link set dev lo.101 up",
    "ip addr add 127.0.0.1/8 broadcast 127.255.255.255 dev lo.101",
    "ip route replace 224.0.77.1/32 dev lo.101",
]
REMOVED = ["tc qdisc del dev lo.101 root", "ip link del dev lo.101"]


def shaped(interface: str) -> list[str]:
    dev = f"dev {interface}"
    return [
        f"tc qdisc add {dev} root handle 1: htb default 2",
        f"tc class add {dev} parent 1: classid 1:1 htb rate 40000000bit ceil 40000000bit",
        f"tc qdisc add {dev} parent 1:1 handle 10: bfifo limit 600000000",
        f"tc class add {dev} parent 1: classid 1:2 htb rate 5000000bit ceil 5000000bit",
        f"tc qdisc add {dev} parent 1:2 handle 20: bfifo limit 600000000",
        f"tc filter add {dev} protocol ip parent 1:0 prio 1 u32 match ip dst 224.0.77.1/32 "
        "flowid 1:1",
    ]


class World:
    """What the fake programs pretend there is, and what they were asked to change."""

    def __init__(self, work: Path, tools: Path) -> None:
        self.work, self.tools = work, tools
        (work / "links").mkdir()
        (work / "changes").touch()
        for name in ("ip", "tc"):
            self._program(name, FAKE.format(work=work))
        path = f"{work}:/usr/bin:/bin"
        self._program("vlanutil", f'#!/bin/sh\nexec {tools}/vlanutil --path {path} "$@"\n')

    def _program(self, name: str, text: str) -> None:
        (self.work / name).write_text(text)
        (self.work / name).chmod(0o755)

    def conf(self, vlan: int = 101) -> str:
        return CONF.format(vlan=vlan, work=self.work)

    def changes(self) -> list[str]:
        """Return the changes since the last call; the owner's mark is OWNER."""
        lines = (self.work / "changes").read_text().splitlines()
        (self.work / "changes").write_text("")
        return [" ".join("OWNER" if x.startswith("ldmd-") else x for x in y.split()) for y in lines]

    def changed(self, *want: str) -> None:
        """Expect these changes since the last call."""
        found = self.changes()
        expect(found == list(want), "changes:\n" + "\n".join(found))

    def links(self) -> list[str]:
        return sorted(x.name for x in (self.work / "links").iterdir())


def wait_for(what: str, condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        expect(time.monotonic() < end, f"no {what}")
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(x) for x in path.read_text().split()] if path.exists() else []


def made(d: Daemon, times: int = 1) -> bool:
    return d.log().count("Starting up: feed=EXP") == times


def mldm_of(d: Daemon) -> int:
    """Return mldm that has a process which keeps its interface."""
    (pid,) = [pid for pid in children(d.process.pid) if children(pid)]
    return pid


def lives(world: World, ldmd: Path) -> None:
    """Interface and queues before FMTP, and none of them at the end."""
    with daemon(ldmd, world.tools, world.conf()) as d:
        wait_for("mldm", lambda: made(d))
        log = d.log()
        expect(log.index("lo.101 is made") < log.index("Starting up: feed=EXP"), "order")
    world.changed(*CREATED, *shaped("lo.101"), *REMOVED)
    expect(world.links() == [], "left")


def tagged_by_the_switch(world: World, ldmd: Path) -> None:
    """The interface is there, and gets its queues."""
    with daemon(ldmd, world.tools, world.conf() + "SET ldm7.nic_tags 0\n") as d:
        wait_for("mldm", lambda: made(d))
    world.changed(*shaped("lo"), "tc qdisc del dev lo root")


def killed(world: World, ldmd: Path) -> None:
    """mldm is killed: what it had goes, and comes again with the next mldm."""
    with daemon(ldmd, world.tools, world.conf()) as d:
        wait_for("mldm", lambda: made(d))
        world.changes()
        os.kill(mldm_of(d), signal.SIGKILL)
        wait_for("the next mldm", lambda: made(d, 2))
        world.changed(*REMOVED, *CREATED, *shaped("lo.101"))
    expect(world.links() == [], "left")


def all_killed(world: World, ldmd: Path) -> None:
    """All are killed at once, and the configuration changes: the next start removes what was left,
    and nothing that others made."""
    (world.work / "links/lo.77").write_text("somebody")
    d = Daemon(ldmd, world.tools, world.work, world.conf(), 3)
    wait_for("mldm", lambda: made(d))
    mldm = mldm_of(d)
    for pid in (*children(mldm), d.process.pid, mldm):
        with suppress(ProcessLookupError):  # mldm ends with ldmd
            os.kill(pid, signal.SIGKILL)
    d.process.wait()
    d.errors.close()
    world.changes()
    expect(world.links() == ["lo.101", "lo.77"], f"before: {world.links()}")
    (world.work / "conf").write_text(world.conf(102))
    with subprocess.Popen(d.process.args) as again:
        try:
            wait_for("mldm", lambda: made(d, 2))
        finally:
            again.terminate()
    expect(world.changes()[0] == "ip link del dev lo.101", "not removed")
    expect(world.links() == ["lo.77"], f"after: {world.links()}")


def refused(world: World, ldmd: Path) -> None:
    """What the kernel refuses is one line, and nothing is left."""
    for fails in ("link add", "filter add"):
        (world.work / "fails").write_text(fails)
        with daemon(ldmd, world.tools, world.conf()) as d:
            wait_for("an error", lambda log=d.log: " failed: " in log())
            (line, *_) = [x for x in d.log().splitlines() if " failed: " in x]
            expect("Error: no such luck." in line and fails in line, line)
            expect(not made(d), "FMTP without its interface")
        expect(world.links() == [], f"left after {fails}")


def foreign(world: World, ldmd: Path) -> None:
    """An interface of that name which somebody else made stays."""
    (world.work / "links/lo.101").write_text("somebody")
    with daemon(ldmd, world.tools, world.conf()) as d:
        wait_for("an error", lambda: " failed: " in d.log())
        expect("found an interface lo.101 that ldmd-" in d.log(), d.log())
    world.changed()
    expect(world.links() == ["lo.101"], "removed")


CASES = (lives, tagged_by_the_switch, killed, all_killed, refused, foreign)


def main() -> None:
    ldmd, tools = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    for case in CASES:
        with tempfile.TemporaryDirectory(prefix="lane") as work:
            case(World(Path(work), tools), ldmd)
        print(f"ok {case.__name__}", flush=True)


if __name__ == "__main__":
    main()
