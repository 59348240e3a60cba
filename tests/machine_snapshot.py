# SPDX-License-Identifier: Apache-2.0
"""Take a snapshot of what a run could leave behind on this machine: for teardown tests.

    with watch() as before:          # marks this process's environment
        ...                          # a run, killed or not
        assert differences(before) == []

`watch` puts a variable into this process's environment, which all descendants inherit. It tells
whose a process is: a leak shows even without the run's own mark, and other runs on the same machine
do not disturb the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

from topologies.emulate.ctcp_host import ctcp_name

VARIABLE = "DOWNPOUR_WATCHED_BY"
PREFIX = "downpour-"
SETTLE_S = 5.0
# Counters and tables that change by themselves.
VOLATILE = (
    *("/nf_conntrack", "/neigh/", "/conf/", "rt_cache", "tcp_fastopen_key", "/route/flush"),
    "/fs/quota/",
)
# Where a run mounts: its own directories and, in its hosts' mount namespaces, the system's. Mounts
# elsewhere are not a run's, e.g. those of a container engine beside the test.
MOUNTED = ("/dev", "/etc", "/proc", "/run/downpour", "/run/netns", "/run/openvswitch", "/sys")


@dataclass(frozen=True)
class Snapshot:
    """What exists on a machine: each field is a set of lines, a line for each thing."""

    processes: frozenset[str]
    namespaces: frozenset[str]
    links: frozenset[str]
    addresses: frozenset[str]
    routes: frozenset[str]
    qdiscs: frozenset[str]
    iptables: frozenset[str]
    listening: frozenset[str]
    sysctls: frozenset[str]
    mounts: frozenset[str]
    files: frozenset[str]


def _output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def _watched(token: str) -> dict[int, str]:
    """Return the processes that have the token in their environment, without this one."""
    found: dict[int, str] = {}
    needle = f"{VARIABLE}={token}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if needle in (entry / "environ").read_bytes().split(b"\0"):
                command = (
                    (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
                found[int(entry.name)] = command.strip()
    return found


def _owner_is_foreign(run_id: str, token: str) -> bool:
    """Return whether a run's owner lives and does not descend from us."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        state = json.loads(Path(f"/run/downpour/{run_id}/state.json").read_text())
        environ = Path(f"/proc/{state['owner_pid']}/environ").read_bytes()
        mine = f"{VARIABLE}={token}".encode() in environ or state["owner_pid"] == os.getpid()
        return not mine
    return False


def _sysctls(foreign: set[str]) -> frozenset[str]:
    foreign_names = {ctcp_name(run_id) for run_id in foreign}
    found = set()
    for root in ("/proc/sys/net/core", "/proc/sys/net/ipv4", "/proc/sys/net/ipv6", "/proc/sys/fs"):
        for path in Path(root).rglob("*"):
            name = str(path)
            if any(v in name for v in VOLATILE) or name.startswith("/proc/sys/fs/binfmt_misc"):
                continue
            if name.rpartition("/")[2] in ("dentry-state", "file-nr", "inode-nr", "inode-state"):
                continue
            with contextlib.suppress(OSError):
                if path.is_file():
                    text = path.read_text(errors="replace").strip()
                    if name.endswith("_congestion_control"):
                        text = " ".join(n for n in text.split() if n not in foreign_names)
                    found.add(f"{name}={text}")
    return frozenset(found)


def take(token: str) -> Snapshot:
    """Return the machine's state now. Call this in its root namespace."""
    watched = _watched(token)
    # Names of our namespaces begin like this (lifecycle.py); the others are not ours.
    names = {n["name"] for n in json.loads(_output("ip", "-j", "netns", "list") or "[]")}
    namespaces = {name for name in names if name.startswith(PREFIX)}
    files = {str(p) for p in Path("/run").glob("downpour*")}
    files |= {str(p) for p in Path("/run/downpour").glob("*")}
    files |= {str(p) for p in Path("/dev/shm/downpour").glob("*")}
    files |= {str(p) for p in Path("/run/openvswitch").glob("*")}
    foreign = {
        name.removeprefix(PREFIX)
        for name in namespaces
        if _owner_is_foreign(name.removeprefix(PREFIX), token)
    }
    files -= {f"/run/downpour/{run_id}" for run_id in foreign}
    files -= {f"/dev/shm/downpour/{run_id}" for run_id in foreign}
    if foreign:
        files.discard("/run/downpour")
    # Look twice: a socket whose process ended while ss looked for its owner is gone by then.
    sockets = own_sockets([_output("ss", "-H", "-ltunp") for _ in range(2)], watched)
    mountinfo = Path("/proc/self/mountinfo").read_text()
    return Snapshot(
        processes=frozenset(f"{pid} {command}" for pid, command in watched.items()),
        namespaces=frozenset(namespaces - {f"downpour-{r}" for r in foreign}),
        links=frozenset(
            f"{i['ifname']} {','.join(i['flags'])} mtu {i['mtu']}"
            for i in json.loads(_output("ip", "-j", "link") or "[]")
        ),
        addresses=frozenset(_output("ip", "-o", "address").splitlines()),
        routes=frozenset(_output("ip", "route", "show", "table", "all").splitlines()),
        qdiscs=frozenset(_output("tc", "qdisc").splitlines()),
        iptables=frozenset(
            line
            for line in _output("iptables-save").splitlines()
            if not line.startswith(("#", ":"))
        ),
        listening=sockets,
        sysctls=_sysctls(foreign),
        mounts=own_mounts(mountinfo, foreign),
        files=frozenset(files),
    )


def own_sockets(looks: Sequence[str], watched: Collection[int]) -> frozenset[str]:
    """Return the listening sockets that every one of the `looks` shows and that a process of
    `watched`, or no process, owns. A look is the output of `ss -H -ltunp`."""
    found = []
    for look in looks:
        own = set()
        for line in look.splitlines():
            columns = line.split()
            holders = line.partition("users:")[2]
            if not holders or any(f"pid={pid}," in holders for pid in watched):
                own.add(f"{columns[0]} {columns[4]}")
        found.append(own)
    return frozenset(set.intersection(*found))


def own_mounts(mountinfo: str, foreign: set[str]) -> frozenset[str]:
    """Return the mount points in /proc/self/mountinfo where a run may mount, except those of the
    runs `foreign`. A point's second mount is "POINT 2"."""
    points = Counter(line.split()[4] for line in mountinfo.splitlines())
    return frozenset(
        f"{point} {number}" if number > 1 else point
        for point, most in points.items()
        if f"{point}/".startswith(tuple(f"{place}/" for place in MOUNTED))
        and not _is_foreign_mount(point, foreign)
        for number in range(1, most + 1)
    )


def _is_foreign_mount(mount: str, foreign: set[str]) -> bool:
    """Return whether a mount is another's namespace, or iproute2's directory of namespaces, which
    is mounted once and stays."""
    name = mount.removeprefix("/run/netns").lstrip("/")
    if name == mount.lstrip("/"):
        return False
    return not name.startswith(PREFIX) or name.removeprefix(PREFIX) in foreign


@dataclass(frozen=True)
class Before:
    token: str
    snapshot: Snapshot


@contextmanager
def watch() -> Iterator[Before]:
    token = secrets.token_hex(8)
    old = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = token
    try:
        yield Before(token, take(token))
    finally:
        if old is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = old


def _swept(mount: str) -> bool:
    """Return whether this is the mount of a run's namespace: what a dead run left may be removed by
    any other (and a live run's is never in a snapshot)."""
    return mount.startswith(f"/run/netns/{PREFIX}")


def compare(before: Snapshot, after: Snapshot) -> list[str]:
    """Return lines like 'links: left behind: s1-eth1 ...' and '...: gone: ...'."""
    found = []
    for field in fields(Snapshot):
        old, new = getattr(before, field.name), getattr(after, field.name)
        found += [f"{field.name}: left behind: {x}" for x in sorted(new - old)]
        if field.name not in ("processes", "namespaces", "files"):  # these may end on their own
            found += [f"{field.name}: gone: {x}" for x in sorted(old - new) if not _swept(x)]
    return found


def differences(before: Before, *, settle_s: float = SETTLE_S) -> list[str]:
    """Return what differs from `before`, after `settle_s` at most: the kernel removes namespaces,
    and what is in them, a moment after their last process."""
    deadline = time.monotonic() + settle_s
    while True:
        found = compare(before.snapshot, take(before.token))
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)
