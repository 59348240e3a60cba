# SPDX-License-Identifier: Apache-2.0
"""TCP's congestion control: the hosts' setting, and what the connections really use."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from experiments.design.expansion import congestion_window_packets
from topologies.emulate import census
from topologies.emulate.emulation import Emulation
from topologies.emulate.packet_sockets import sockets_of

# ldmd's processes by their names.
PROGRAMS: Final = frozenset({"ldmd", "mldm", "up7", "down7", "up6", "down6"})
NAME_BYTES: Final = 16  # TCP_CA_NAME_MAX of linux/tcp.h


@dataclass(frozen=True)
class Chosen:
    """An algorithm as people read it, with CTCP's window or the reason that it is not CTCP; and its
    name in the kernel, where each run registers its own CTCP."""

    text: str = ""
    name: str = ""


def choose(
    emulation: Emulation, hosts: Sequence[str], asked: Sequence[str], window_bytes: int
) -> Chosen:
    """Set the first requested algorithm that every host's namespace accepts, and return it. Raises
    NetworkError."""
    show = ["sysctl", "-n", "net.ipv4.tcp_congestion_control"]
    note = ""
    for name in asked:
        if name == "ctcp":
            packets = congestion_window_packets(window_bytes)
            if (own := emulation.use_ctcp(packets)) is not None:
                return Chosen(f"ctcp (cwnd {packets})", own)
            note = f" (kernel cannot load ctcp: {emulation.ctcp_problem})"
            continue
        change = ["sysctl", "-q", "-w", f"net.ipv4.tcp_congestion_control={name}"]
        for host in hosts:
            emulation.run(host, change, check=False)
        if all(emulation.run(host, show).stdout.strip() == name for host in hosts):
            return Chosen(name + note, name)
    found = sorted({emulation.run(host, show).stdout.strip() for host in hosts})
    return Chosen(" and ".join(found) + note, found[0])


def in_use(pid: int) -> Iterator[str]:
    """Yield the algorithm of each TCP connection of a process. Raises OSError."""
    for found in sockets_of(pid):
        if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
            with contextlib.suppress(OSError):
                found.getpeername()  # else it listens
                name = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, NAME_BYTES)
                yield name.rstrip(b"\0").decode("ascii", "replace")


def others(emulation: Emulation, hosts: Sequence[str], name: str) -> str:
    """Return which connections of ldmd on this machine use another algorithm than that of this
    name: a connection keeps the one that was set when it was made."""
    here = {host: emulation.pids[host] for host in hosts if host not in emulation.elsewhere}
    used: dict[str, set[str]] = {host: set() for host in here}
    for program in census.programs(here):
        if program.name.partition(" ")[0] in PROGRAMS:
            with contextlib.suppress(OSError):  # it has ended
                used[program.node].update(in_use(program.pid))
    wrong = [f"{h} {other}" for h, names in used.items() for other in sorted(names - {name})]
    return ", ".join(wrong)
