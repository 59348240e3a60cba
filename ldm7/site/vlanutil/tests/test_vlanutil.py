#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vlanutil's commands, against an `ip` and a `tc` that only note what they are asked.

Usage: test_vlanutil.py VLANUTIL. Where this process may make network namespaces and the kernel has
802.1Q, the real programs too. Expected commands: ip-link(8), ip-route(8), tc-htb(8).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

FAKE = """#!/bin/sh
echo "$(basename "$0") $*" >> {log}
case "$*" in
"-o link show dev eth1.1101" | "-d -o link show dev eth1.1101 up")
    [ -e {state}/link ] || exit 1
    echo "7: eth1.1101@eth1: <UP> mtu 1500 \\\\ vlan protocol 802.1Q id $(cat {state}/link) <REORDER_HDR>";;
"-o -4 addr show dev eth1.1101")
    echo "7: eth1.1101    inet $(cat {state}/addr) brd 10.10.1.255 scope global eth1.1101";;
"-o route show 10.10.1.1/32")
    [ ! -e {state}/route ] || echo "10.10.1.1 dev eth1.1101 scope link ";;
"qdisc show dev eth1") cat {state}/qdisc 2>/dev/null;;
"-o link show type vlan") cat {state}/links 2>/dev/null;;
*) [ ! -e {state}/fails ] || case "$*" in "$(cat {state}/fails)"*) exit 2;; esac;;
esac
exit 0
"""  # noqa: E501
READS = (" show ",)


class World:
    """What the fake programs pretend there is, and what they were asked to change."""

    def __init__(self, vlanutil: Path, work: Path, **state: str) -> None:
        self.vlanutil, self.work = vlanutil, work
        (work / "bin").mkdir()
        (work / "state").mkdir()
        self.log = work / "log"
        self.log.touch()
        for name, text in state.items():
            (work / "state" / name).write_text(text)
        for name in ("ip", "tc"):
            program = work / "bin" / name
            program.write_text(FAKE.format(log=self.log, state=work / "state"))
            program.chmod(0o755)

    def run(self, *args: str, status: int = 0) -> str:
        argv = [str(self.vlanutil), "--path", f"{self.work}/bin:/usr/bin:/bin", *args]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
        assert done.returncode == status, (args, done.returncode, done.stderr)
        return done.stdout + done.stderr

    def changes(self) -> list[str]:
        return [x for x in self.log.read_text().splitlines() if not any(r in x for r in READS)]


CREATE = ("create", "eth1.1101", "10.10.1.7/24", "10.10.1.1")
LINKS = """7: eth1.7@eth1: <UP> mtu 1500 qdisc noqueue \\    link/ether 02:00:00:00:00:01\\    alias me
8: eth1.8@eth1: <UP> mtu 1500 qdisc noqueue \\    link/ether 02:00:00:00:00:01\\    alias you
9: eth1.9@eth1: <UP> mtu 1500 qdisc noqueue \\    link/ether 02:00:00:00:00:01
"""  # noqa: E501
CREATED = [
    "ip link add link eth1 name eth1.1101 type vlan id 1101",
    "ip link set dev eth1.1101 up",
    "ip addr add 10.10.1.7/24 broadcast 10.10.1.255 dev eth1.1101",
    "ip route replace 10.10.1.1/32 dev eth1.1101",
]
RIGHT = {"link": "1101", "addr": "10.10.1.7/24", "route": ""}


def new_interface(world: World) -> None:
    world.run(*CREATE)
    assert world.changes() == CREATED, world.changes()


def without_server(world: World) -> None:
    world.run(*CREATE[:3])
    assert world.changes() == CREATED[:3], world.changes()


def all_is_right(world: World) -> None:
    world.run(*CREATE)
    assert world.changes() == [], world.changes()


def attached(world: World) -> None:
    world.run("attach", *CREATE[1:])
    first = "ip link add link eth1 name eth1.1101 type macvlan mode passthru"
    assert world.changes() == [first, *CREATED[1:]], world.changes()


def attached_already(world: World) -> None:
    world.run("attach", *CREATE[1:])
    assert world.changes() == [], world.changes()


def tagged_and_untagged_differ(world: World) -> None:
    world.run("attach", *CREATE[1:])
    assert world.changes()[0] == "ip link del dev eth1.1101", world.changes()


def replaced(world: World) -> None:
    world.run(*CREATE)
    assert world.changes() == ["ip link del dev eth1.1101", *CREATED], world.changes()


def all_or_nothing(world: World) -> None:
    text = world.run(*CREATE, status=1)
    assert "failed: ip addr add 10.10.1.7/24" in text, text
    assert world.changes() == [*CREATED[:3], "ip link del dev eth1.1101"], world.changes()


def destroyed(world: World) -> None:
    world.run("destroy", "eth1.1101", "10.10.1.1")
    want = ["ip route del 10.10.1.1/32 dev eth1.1101", "ip link del dev eth1.1101"]
    assert world.changes() == want, world.changes()


def nothing_to_destroy(world: World) -> None:
    world.run("destroy", "eth1.1101", "10.10.1.1")
    assert world.changes() == [], world.changes()


def shaped(world: World) -> None:
    world.run("shape", "eth1", "20000000", "600000000", "224.0.0.1/32")
    assert world.changes() == [
        "tc qdisc del dev eth1 root",
        "tc qdisc add dev eth1 root handle 1: htb default 2",
        "tc class add dev eth1 parent 1: classid 1:1 htb rate 20000000bit ceil 20000000bit",
        "tc qdisc add dev eth1 parent 1:1 handle 10: bfifo limit 600000000",
        "tc class add dev eth1 parent 1: classid 1:2 htb rate 20000000bit ceil 20000000bit",
        "tc qdisc add dev eth1 parent 1:2 handle 20: bfifo limit 600000000",
        "tc filter add dev eth1 protocol ip parent 1:0 prio 1 u32 match ip dst 224.0.0.1/32 "
        "flowid 1:1",
    ], world.changes()


def shaped_apart(world: World) -> None:
    world.run("shape", "eth1", "20000000", "600000000", "224.0.0.1/32", "5000000")
    rates = [x.split(" rate ")[1].split()[0] for x in world.changes() if " class " in x]
    assert rates == ["20000000bit", "5000000bit"], rates


def unshaped(world: World) -> None:
    world.run("unshape", "eth1")
    assert world.changes() == ["tc qdisc del dev eth1 root"], world.changes()


def nothing_to_unshape(world: World) -> None:
    world.run("unshape", "eth1")
    assert world.changes() == [], world.changes()


def marked(world: World) -> None:
    world.run(*CREATE, "--owner", "me")
    mark = "ip link set dev eth1.1101 alias me"
    assert world.changes() == [CREATED[0], mark, *CREATED[1:]], world.changes()


def of_another(world: World) -> None:
    """Neither replaced nor removed."""
    text = world.run(*CREATE, "--owner", "me", status=1)
    assert "found an interface eth1.1101 that me did not make; valid: none, or one with" in text
    world.run("destroy", "eth1.1101", "--owner", "me")
    assert world.changes() == [], world.changes()


def swept(world: World) -> None:
    world.run("sweep", "--owner", "me")
    assert world.changes() == ["ip link del dev eth1.7"], world.changes()


def dry_run(world: World) -> None:
    assert world.run("-n", *CREATE).splitlines() == CREATED
    assert world.changes() == [], world.changes()


def bad_arguments(world: World) -> None:
    for args in (
        ("create", "eth1", "10.10.1.7/24"),
        ("create", "eth1.0", "10.10.1.7/24"),
        ("create", "eth1.4095", "10.10.1.7/24"),
        ("create", "eth1;id.5", "10.10.1.7/24"),
        ("create", "-eth1.5", "10.10.1.7/24"),
        ("create", "averylongname.55", "10.10.1.7/24"),
        ("create", "eth1.5", "10.10.1.7"),
        ("create", "eth1.5", "10.10.1.7/33"),
        ("create", "eth1.5", "10.10.1/24"),
        ("create", "eth1.5", "10.10.1.7/24", "10.10.1.1 dev lo"),
        ("create", "eth1.5", "10.10.1.7/24", "10.10.1.1", "more"),
        ("attach", "eth1", "10.10.1.7/24"),
        ("attach", "eth1.5", "10.10.1.7/24", "10.10.1.1", "more"),
        ("destroy",),
        ("shape", "eth1", "999", "1", "224.0.0.1/32"),
        ("shape", "eth1", "1000", "1", "224.0.0.1/32", "999"),
        ("unshape", "eth1;id"),
        ("sweep",),
        ("frob",),
        (),
    ):
        text = world.run("--", *args, status=2)
        assert "found" in text and "valid" in text, (args, text)
    assert world.log.read_text() == ""


CASES: tuple[tuple[Callable[[World], None], dict[str, str]], ...] = (
    (new_interface, {}),
    (without_server, {}),
    (all_is_right, RIGHT),
    (attached, {}),
    (attached_already, {**RIGHT, "link": "0 macvlan mode passthru"}),
    (tagged_and_untagged_differ, RIGHT),
    (replaced, {**RIGHT, "link": "0 macvlan mode passthru"}),
    (replaced, {**RIGHT, "link": "1100"}),
    (replaced, {**RIGHT, "addr": "10.10.1.71/24"}),
    (all_or_nothing, {"fails": "addr add"}),
    (destroyed, RIGHT),
    (nothing_to_destroy, {}),
    (shaped, {"qdisc": "qdisc htb 1: root refcnt 2"}),
    (shaped_apart, {}),
    (unshaped, {"qdisc": "qdisc htb 1: root refcnt 2"}),
    (nothing_to_unshape, {"qdisc": "qdisc noqueue 0: root refcnt 2"}),
    (marked, {}),
    (of_another, {**RIGHT, "link": "1100"}),
    (swept, {"links": LINKS}),
    (dry_run, {}),
    (bad_arguments, {}),
)


def ip(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *args], capture_output=True, text=True, timeout=20)


def real_untagged(vlanutil: Path) -> str:
    """With the kernel's own macvlan, in its own namespace."""
    name = f"vlanutil{os.getpid()}"
    if ip("netns", "add", name).returncode != 0:
        return "SKIPPED real untagged: no network namespace"
    try:
        ip("-n", name, "link", "add", "eth1", "type", "veth", "peer", "name", "peer1")
        kind = ("type", "macvlan", "mode", "passthru")
        probe = ip("-n", name, "link", "add", "link", "eth1", "name", "q", *kind)
        if probe.returncode != 0:
            return f"SKIPPED real untagged: no macvlan: {probe.stderr.strip()}"
        ip("-n", name, "link", "del", "q")
        for nic in ("eth1", "peer1"):
            ip("-n", name, "link", "set", nic, "up")
        attach = ("attach", "eth1.1101", "10.10.1.7/24", "10.10.1.1")
        shown = []
        for args in (attach, attach, ("destroy", "eth1.1101")):
            argv = ["ip", "netns", "exec", name, str(vlanutil), *args]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
            assert done.returncode == 0, (args, done.stderr)
            shown.append(ip("-n", name, "-d", "-o", "link", "show", "dev", "eth1.1101").stdout)
        nic = ip("-n", name, "-o", "link", "show", "dev", "eth1").stdout
        address = nic.split("link/ether ")[1].split()[0]
        assert "macvlan mode passthru" in shown[0] and address in shown[0], shown
        assert shown[1] == shown[0], "recreated although it was correct"
        assert shown[2] == "", "still there"
        return "ok real untagged"
    finally:
        ip("netns", "del", name)


def real(vlanutil: Path) -> str:
    """With the kernel's own 802.1Q, in its own namespace."""
    name = f"vlanutil{os.getpid()}"
    if ip("netns", "add", name).returncode != 0:
        return "SKIPPED real: cannot make a network namespace"
    try:
        ip("-n", name, "link", "add", "eth1", "type", "veth", "peer", "name", "peer1")
        probe = ip(
            "-n", name, "link", "add", "link", "eth1", "name", "q", "type", "vlan", "id", "2"
        )
        if probe.returncode != 0:
            return f"SKIPPED real: no 802.1Q: {probe.stderr.strip()}"
        ip("-n", name, "link", "set", "eth1", "up")
        ip("-n", name, "link", "set", "peer1", "up")

        def run(*args: str) -> None:
            argv = ["ip", "netns", "exec", name, str(vlanutil), *args]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
            assert done.returncode == 0, (args, done.stderr)

        def index() -> str:
            return ip("-n", name, "-o", "link", "show", "dev", "eth1.1101").stdout.split(":")[0]

        run(*CREATE)
        made = index()
        link = ip("-n", name, "-d", "link", "show", "dev", "eth1.1101").stdout
        assert "vlan protocol 802.1Q id 1101" in link and "UP" in link, link
        assert "inet 10.10.1.7/24 brd 10.10.1.255 " in ip("-n", name, "addr").stdout
        assert "10.10.1.1 dev eth1.1101" in ip("-n", name, "route").stdout
        run(*CREATE)
        assert index() == made, "recreated although it was correct"
        run("create", "eth1.1101", "10.10.1.8/24", "10.10.1.1")
        assert "inet 10.10.1.8/24" in ip("-n", name, "addr").stdout
        run("shape", "eth1.1101", "20000000", "6000000", "224.0.0.1/32")
        run("shape", "eth1.1101", "10000000", "6000000", "224.0.0.1/32")
        tc = ["ip", "netns", "exec", name, "tc", "class", "show", "dev", "eth1.1101"]
        classes = subprocess.run(tc, capture_output=True, text=True).stdout
        assert classes.count("rate 10Mbit") == 2, classes
        run("destroy", "eth1.1101", "10.10.1.1")
        assert index() == "", "still there"
        return "ok real"
    finally:
        ip("netns", "del", name)


def main() -> int:
    vlanutil = Path(sys.argv[1]).resolve()
    for case, state in CASES:
        with tempfile.TemporaryDirectory(prefix="vlanutil") as work:
            case(World(vlanutil, Path(work), **state))
        print(f"ok {case.__name__}", flush=True)
    print(real(vlanutil), flush=True)
    print(real_untagged(vlanutil), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
