# SPDX-License-Identifier: Apache-2.0
"""Read the options of the sockets that programs of nodes have open: another process can change
them (pidfd_getfd(2)), and so slow a connection, or drop what arrives.

The experiment's own programs leave most options as the kernel sets them. Of all programs, options
must stay as they were at the first look at a socket.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from topologies.emulate.census import PASSING, Program
from topologies.emulate.packet_sockets import sockets_of
from topologies.emulate.sockets import MAY_CARRY

AS_SET: Final = "as its programs set them"
ALGORITHM: Final = "sysctl ipv4/tcp_congestion_control"  # of a host, in an inventory
SILENT: Final = PASSING - MAY_CARRY  # programs that only observe
OWN: Final = frozenset(
    {
        *("ldmd", "mldm", "up7", "down7", "up6", "down6", "fmtp-send", "fmtp-recv"),
        *("fcast-send", "fcast-recv", "m2c-send", "m2c-recv"),
    }
)
LOOKS: Final = 3  # a program may be setting options
PAUSE_S: Final = 0.05
ADMISSION_BYTES: Final = 44  # of ldm7/ldmd/admission.h: so much of a connection's first message
ESTABLISHED, LISTENS = 1, 10  # linux/tcp_states.h
UNLIMITED: Final = 2**64 - 1
# A connection's window never exceeds what its buffer holds, and is lowered to that when packets
# fill their memory badly.
LEAST_WINDOW: Final = 0.15
LEAST_OF_FIRST: Final = 0.3  # of the window at the first look, for the same reason
_libc: Final = ctypes.CDLL(None, use_errno=True)

Value = int | str
Values = dict[str, Value]
Kind = tuple[int, int]  # socket.AF_*, socket.SOCK_*

# Numbers of asm-generic/socket.h, linux/in.h, linux/in6.h, linux/tcp.h, linux/udp.h. The planned
# value: None if programs set their own.
_SOCKET: Final = {
    "SO_DONTROUTE": (1, 5, 0),
    "SO_NO_CHECK": (1, 11, 0),
    "SO_PRIORITY": (1, 12, 0),
    "SO_MARK": (1, 36, 0),
    "SO_BINDTOIFINDEX": (1, 62, None),
}
_IP: Final = {
    "IP_TOS": (0, 1, 0),
    "IP_TTL": (0, 2, None),
    "IP_MTU_DISCOVER": (0, 10, None),
    "IP_MINTTL": (0, 21, 0),
}
_IP6: Final = {
    "IPV6_UNICAST_HOPS": (41, 16, None),
    "IPV6_MTU_DISCOVER": (41, 23, None),
    "IPV6_TCLASS": (41, 67, 0),
}
_TCP: Final = {
    "SO_BUF_LOCK": (1, 72, 0),
    "TCP_CORK": (6, 3, 0),
    "TCP_REPAIR": (6, 19, 0),
    "TCP_NOTSENT_LOWAT": (6, 25, None),
    "TCP_TX_DELAY": (6, 37, 0),
    "TCP_RTO_MAX_MS": (6, 44, None),
    "TCP_RTO_MIN_US": (6, 45, None),
    "TCP_DELACK_MAX_US": (6, 46, None),
}
_UDP: Final = {
    "SO_SNDBUF": (1, 7, None),
    "SO_RCVBUF": (1, 8, None),
    "UDP_CORK": (17, 1, 0),
    "UDP_ENCAP": (17, 100, 0),
    "UDP_SEGMENT": (17, 103, None),
    "UDP_GRO": (17, 104, None),
}
_GROUPS: Final = {  # of an IPv4 UDP socket
    "IP_MULTICAST_IF": (0, 32, None),
    "IP_MULTICAST_TTL": (0, 33, None),
    "IP_MULTICAST_LOOP": (0, 34, None),
    "IP_MULTICAST_ALL": (0, 49, None),
    "IP_UNICAST_IF": (0, 50, None),
}
_GROUPS6: Final = {"IPV6_MULTICAST_IF": (41, 17, None), "IPV6_MULTICAST_HOPS": (41, 18, None)}
_SO_MAX_PACING_RATE, _SO_GET_FILTER = 47, 26
_TCP_WINDOW_CLAMP: Final = 10
_NAME_BYTES: Final = 16  # TCP_CA_NAME_MAX of linux/tcp.h
# Beyond what the tables plan; of a listener, a connection inherits them.
_PLANNED: Final[Values] = {
    "SO_MAX_PACING_RATE": UNLIMITED,
    "filter": "none",
    **{
        name: value
        for table in (_SOCKET, _IP, _IP6, _TCP, _UDP)
        for name, (_, _, value) in table.items()
        if value is not None
    },
}
_CHANGING: Final = ("window", "receive buffer", "state", "SO_RCVLOWAT")  # compared otherwise


@dataclass(frozen=True)
class Seen:
    """A socket's options at one look. `name`: of its program."""

    node: str
    name: str
    kind: Kind
    values: Values

    @property
    def own(self) -> bool:
        """Return whether the plan says what its program sets."""
        return self.name.partition(" ")[0] in OWN

    def text(self, what: str) -> str:
        """Return what an inventory says of this socket."""
        return f"{self.name} {'TCP' if self.kind[1] == socket.SOCK_STREAM else 'UDP'}: {what}"


def unplanned(seen: Seen, algorithm: str) -> set[str]:
    """Return what is not as the experiment's programs set it. `algorithm`: the host's congestion
    control; "" if it is not known."""
    found = {
        f"{name} {seen.values[name]}, not {wanted}"
        for name, wanted in _PLANNED.items()
        if seen.values.get(name, wanted) != wanted
    }
    waits = seen.values.get("SO_RCVLOWAT", 1)
    if waits not in (1, ADMISSION_BYTES):
        found.add(f"SO_RCVLOWAT {waits}, not 1")
    if seen.kind[1] == socket.SOCK_STREAM:
        found |= _window(seen.values)
        used = seen.values.get("TCP_CONGESTION", algorithm)
        if algorithm and used != algorithm:
            found.add(f"TCP_CONGESTION {used}, not {algorithm}")
    return found


def _window(values: Mapping[str, Value]) -> set[str]:
    state, window = values.get("state"), int(values.get("window", 0))
    least = int(values.get("receive buffer", 0)) * LEAST_WINDOW
    if state == LISTENS and window:
        return {f"TCP_WINDOW_CLAMP {window}, not 0"}
    if state == ESTABLISHED and window < least:
        return {f"TCP_WINDOW_CLAMP {window}, not {least:.0f} or more"}
    return set()


def changed(first: Mapping[str, Value], now: Mapping[str, Value]) -> set[str]:
    """Return what is not as at the first look. TCP itself only enlarges a receive buffer, and
    leaves most of the window that it allows."""
    found = {
        f"{name} {now.get(name)}, was {first.get(name)}"
        for name in {*first, *now}
        if name not in _CHANGING and first.get(name) != now.get(name)
    }
    if now.get("SO_RCVLOWAT", 1) not in (1, ADMISSION_BYTES, first.get("SO_RCVLOWAT", 1)):
        found.add(f"SO_RCVLOWAT {now['SO_RCVLOWAT']}, was {first.get('SO_RCVLOWAT')}")
    for name, share in (("receive buffer", 1.0), ("window", LEAST_OF_FIRST)):
        if first.get("state") == now.get("state") and int(now.get(name, 0)) < share * int(
            first.get(name, 0)
        ):
            found.add(f"{name} {now.get(name, 0)}, was {first[name]}")
    return found


def values_of(one: socket.socket) -> Values | None:
    """Return the options of a TCP or UDP socket, without those that this kernel does not know; None
    for another socket. Raises OSError."""
    tables: list[Mapping[str, tuple[int, int, int | None]]] = [_SOCKET]
    if one.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    is_tcp = one.type == socket.SOCK_STREAM
    if not is_tcp and one.type != socket.SOCK_DGRAM:
        return None
    tables += [_IP if one.family == socket.AF_INET else _IP6, _TCP if is_tcp else _UDP]
    if not is_tcp:
        tables.append(_GROUPS if one.family == socket.AF_INET else _GROUPS6)
    found: Values = {"filter": _filter(one)}
    for table in tables:
        for name, (level, number, _) in table.items():
            with contextlib.suppress(OSError):
                found[name] = one.getsockopt(level, number)
    pace = one.getsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, 8)
    found["SO_MAX_PACING_RATE"] = struct.unpack("=Q", pace)[0] if len(pace) == 8 else UNLIMITED
    found["SO_RCVLOWAT"] = one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)
    if is_tcp:
        used = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES)
        found["TCP_CONGESTION"] = used.split(b"\0")[0].decode("ascii", "replace")
        found["window"] = one.getsockopt(socket.IPPROTO_TCP, _TCP_WINDOW_CLAMP)
        found["receive buffer"] = one.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        found["state"] = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return found


def _filter(one: socket.socket) -> str:
    """Return how many instructions the filter of a socket has. Python would read them into too
    small a buffer."""
    size = ctypes.c_uint32(0)
    arguments = (socket.SOL_SOCKET, _SO_GET_FILTER, None, ctypes.byref(size))
    if _libc.getsockopt(one.fileno(), *arguments) == 0:
        return f"{size.value} instructions" if size.value else "none"
    return "eBPF" if ctypes.get_errno() == errno.EACCES else "none"


Read = Callable[[Iterable[Program]], dict[int, Seen]]


def read(programs: Iterable[Program]) -> dict[int, Seen]:
    """Return the sockets of the programs by inode, without those that close meanwhile."""
    found: dict[int, Seen] = {}
    for program in programs:
        if program.name.partition(" ")[0] in SILENT:
            continue
        with contextlib.suppress(OSError):  # it has ended
            for one in sockets_of(program.pid):
                with contextlib.suppress(OSError):
                    values = values_of(one)
                    if values is not None:
                        inode = os.fstat(one.fileno()).st_ino
                        kind = (int(one.family), int(one.type))
                        found[inode] = Seen(program.node, program.name, kind, values)
    return found


class SocketOptions:
    """The options of the sockets of a network's programs, look by look. Several threads may
    look."""

    def __init__(self, reader: Read = read, pause_s: float = PAUSE_S) -> None:
        self._read, self._pause_s = reader, pause_s
        self._lock = threading.Lock()
        self._first: dict[int, Seen] = {}
        self._programs: list[Program] = []
        self._algorithms: dict[str, str] = {}  # by node

    def look(
        self,
        nodes: Iterable[str],
        programs: Iterable[Program],
        algorithms: Mapping[str, str],
    ) -> dict[str, str]:
        """Return by "<node> socket options" `AS_SET`, or what is not as planned or has changed.
        `algorithms`: the nodes' congestion controls."""
        with self._lock:
            self._programs, self._algorithms = list(programs), dict(algorithms)
            return self._summary(nodes)

    def again(self, nodes: Iterable[str]) -> dict[str, str]:
        """Look at the programs of the last look again, as `look`."""
        with self._lock:
            return self._summary(nodes)

    def _summary(self, nodes: Iterable[str]) -> dict[str, str]:
        wrong: dict[int, set[str]] | None = None
        now: dict[int, Seen] = {}
        for look in range(LOOKS):
            if look:
                time.sleep(self._pause_s)
            now = self._read(self._programs)
            here = {inode: self._wrong(inode, seen) for inode, seen in now.items()}
            earlier = here if wrong is None else wrong
            wrong = {i: texts & earlier.get(i, texts) for i, texts in here.items()}
            new = {i for i in now if i not in self._first}
            if look == 0 and new:
                continue  # its program may be setting options
            self._first |= {i: now[i] for i in new}
            if not any(wrong.values()):
                break
        self._first = {i: seen for i, seen in self._first.items() if i in now}
        found: dict[str, set[str]] = {node: set() for node in nodes}
        for inode, texts in (wrong or {}).items():
            seen = now[inode]
            found.setdefault(seen.node, set()).update(seen.text(text) for text in texts)
        return {f"{n} socket options": ", ".join(sorted(t)) or AS_SET for n, t in found.items()}

    def _wrong(self, inode: int, seen: Seen) -> set[str]:
        first = self._first.get(inode)
        found = set() if first is None else changed(first.values, seen.values)
        return found | (unplanned(seen, self._algorithms.get(seen.node, "")) if seen.own else set())
