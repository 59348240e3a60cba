# SPDX-License-Identifier: Apache-2.0
"""Watch how full the queues of a network become: every queueing discipline of a few namespaces,
read over netlink several times a second (starting `tc` that often would itself be a load)."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from common.shell import (
    check,
    in_node,
    namespace_of,
)
from topologies.model.wire_plan import tbf_limit_bytes
from topologies.watch import netlink
from topologies.watch.netlink import attributes, handle_text

INTERVAL_S: Final = 0.1
LONG_RUN_INTERVAL_S: Final = 1.0
RATE_WINDOW_S: Final = 1.0

# linux/rtnetlink.h, linux/gen_stats.h
TCA_KIND: Final = 1
TCA_STATS2: Final = 7
TCA_STATS_BASIC: Final = 1
TCA_STATS_QUEUE: Final = 3
_PIECE_BYTES: Final = 1 << 16
_BASIC: Final = struct.Struct("=QI")
_QUEUE: Final = struct.Struct("=IIIII")


class Reading(NamedTuple):
    """One queueing discipline at one instant."""

    kind: str
    sent_bytes: int
    backlog_packets: int
    backlog_bytes: int
    drops: int


@dataclass
class Queue:
    """The record of one queue. `place`: "<node>/<interface>/<handle>". Limits are the queue's own;
    None: it has no such limit, or (rate) does not shape."""

    place: str
    kind: str
    limit_bytes: int | None = None
    limit_packets: int | None = None
    rate_bps: float | None = None
    burst_bytes: int = 0
    peak_backlog_bytes: int = 0
    peak_backlog_packets: int = 0
    peak_at_s: float = 0.0  # CLOCK_REALTIME of the largest backlog
    sent_bytes: int = 0
    drops: int = 0
    peak_rate_bps: float = 0.0  # over a second
    peak_rate_s: float = 0.0  # how long that second was
    samples: int = 0
    link: str | None = None  # "<link>/<direction>" whose queue it is, None: no link's

    def to_dict(self) -> dict[str, object]:
        """Return the queue as queues.json has it."""
        return asdict(self)


def parse_queue(body: bytes) -> Reading:
    """Read one queue of the kernel's answer. Raises ValueError, struct.error if it is malformed."""
    kind, sent, packets, backlog, drops = "", 0, 0, 0, 0
    for number, value in attributes(body[netlink.TC.size :]):
        if number == TCA_KIND:
            kind = value.rstrip(b"\0").decode()
        elif number == TCA_STATS2:
            for inner, statistics in attributes(value):
                if inner == TCA_STATS_BASIC:
                    sent, _ = _BASIC.unpack_from(statistics)
                elif inner == TCA_STATS_QUEUE:
                    packets, backlog, drops, _, _ = _QUEUE.unpack_from(statistics)
    return Reading(kind, sent, packets, backlog, drops)


def parse_limits(text: str) -> dict[tuple[str, str], Queue]:
    """Read `tc -r -j qdisc show`: (interface, handle) -> queue, of the queues that have a limit."""
    found = {}
    for entry in json.loads(text or "[]"):
        kind, options = str(entry.get("kind")), entry.get("options", {})
        queue = Queue(f"{entry.get('dev')}/{entry.get('handle')}", kind)
        if kind == "tbf":
            queue.rate_bps = float(options["rate"]) * 8
            queue.burst_bytes = int(options["burst"])
            queue.limit_bytes = tbf_limit_bytes(options)
        elif kind == "bfifo":
            queue.limit_bytes = int(options["limit"])
        elif kind == "netem":
            queue.limit_packets = int(options["limit"])
        else:
            continue
        found[str(entry.get("dev")), str(entry.get("handle"))] = queue
    return found


def shaper_counts(pid: int | None, interface: str, classid: str) -> tuple[int, int] | None:
    """Return (sent bytes, waiting bytes) of a class, or of the root TBF (classid ""); None if there
    is none. `pid`: of a process in the interface's namespace (None: this process). Raises
    NetworkError, OSError, ValueError."""
    with netlink.open_socket(pid, netlink.NETLINK_ROUTE) as one:
        with namespace_of(os.getpid() if pid is None else pid):
            index = socket.if_nametoindex(interface)
        kind = netlink.RTM_GETTCLASS if classid else netlink.RTM_GETQDISC
        for body in netlink.dump(one, kind, netlink.TC.pack(0, index, 0, 0, 0)):
            _, at, handle, parent, _ = netlink.TC.unpack_from(body)
            reading = parse_queue(body)
            named = handle_text(handle) == classid if classid else handle_text(parent) == "root"
            if at == index and named and reading.kind == ("htb" if classid else "tbf"):
                return reading.sent_bytes, reading.backlog_bytes
    return None


class _NodeQueues:
    """The queues of one node, and the kernel's last answer about each: most queues of a sample are
    as they were, and parsing them again would cost most of its time."""

    def __init__(self, node: str, pid: int) -> None:
        """`pid`: of a process in the node's namespace. Raises NetworkError."""
        limits = parse_limits(check(in_node(pid, ["tc", "-r", "-j", "qdisc", "show"])))
        self.socket = netlink.open_socket(pid, netlink.NETLINK_ROUTE)
        with namespace_of(pid):
            indices = {name: index for index, name in socket.if_nameindex()}
        self.queues: dict[tuple[int, int], Queue] = {}  # by interface and handle
        for (name, handle), queue in limits.items():
            if name in indices:
                queue.place = f"{node}/{name}/{handle}"
                self.queues[indices[name], int(handle.rstrip(":"), 16) << 16] = queue
        self._last: dict[tuple[int, int], tuple[bytes, Reading]] = {}

    def readings(self) -> Iterator[tuple[Queue, Reading]]:
        """Read all queues. Raises OSError, ValueError if the kernel's answer is not as expected."""
        for body in netlink.dump(self.socket, netlink.RTM_GETQDISC, bytes(netlink.TC.size)):
            _, index, handle, _, _ = netlink.TC.unpack_from(body)
            place = index, handle
            if (queue := self.queues.get(place)) is None:
                continue
            if (known := self._last.get(place)) is None or known[0] != body:
                known = self._last[place] = body, parse_queue(body)
            yield queue, known[1]


class QueueWatch:
    """Watches the queues of some nodes."""

    def __init__(self, pids: Mapping[str, int], nodes: Sequence[str]) -> None:
        """`pids`: node -> a process in its namespace. Raises NetworkError."""
        self._windows: dict[str, tuple[float, int]] = {}  # where a rate's second began
        self._begun: dict[str, tuple[int, int]] = {}  # sent and dropped before
        self._nodes = [_NodeQueues(node, pids[node]) for node in nodes]

    def look(self) -> None:
        """Take a sample. Raises OSError, ValueError if the kernel's answer is not as expected."""
        for node in self._nodes:
            now = time.time()
            for queue, reading in node.readings():
                self.note(queue, reading, now)

    def note(self, queue: Queue, reading: Reading, now: float) -> None:
        """Record a sample."""
        sent, dropped = self._begun.setdefault(queue.place, (reading.sent_bytes, reading.drops))
        queue.sent_bytes, queue.drops = reading.sent_bytes - sent, reading.drops - dropped
        queue.samples += 1
        queue.peak_backlog_packets = max(queue.peak_backlog_packets, reading.backlog_packets)
        if reading.backlog_bytes > queue.peak_backlog_bytes:
            queue.peak_backlog_bytes, queue.peak_at_s = reading.backlog_bytes, now
        began, at = self._windows.setdefault(queue.place, (now, reading.sent_bytes))
        span = now - began
        if span >= RATE_WINDOW_S:
            rate_bps = 8 * (reading.sent_bytes - at) / span
            if rate_bps > queue.peak_rate_bps:
                queue.peak_rate_bps, queue.peak_rate_s = rate_bps, span
            self._windows[queue.place] = (now, reading.sent_bytes)

    def close(self) -> list[Queue]:
        """Stop watching; return the queues."""
        for node in self._nodes:
            node.socket.close()
        return [queue for node in self._nodes for queue in node.queues.values()]


class SocketWatch:
    """Watches how full the UDP sockets of some hosts are."""

    def __init__(self, pids: Mapping[str, int], hosts: Sequence[str]) -> None:
        """`pids`: host -> a process in its namespace. Raises OSError."""
        # Opening a file of /proc for each sample costs more than reading it.
        self._fds: dict[str, int] = {}
        try:
            for host in hosts:
                path = f"/proc/{pids[host]}/net/udp"
                self._fds[host] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except BaseException:
            self._close_all()
            raise
        # Of a socket's memory, including overhead per frame.
        self.peak_bytes = dict.fromkeys(hosts, 0)

    def look(self) -> None:
        """Take a sample of every socket. Raises OSError."""
        for host, fd in self._fds.items():
            text = b""
            while piece := os.pread(fd, _PIECE_BYTES, len(text)):
                text += piece
            self.peak_bytes[host] = max(self.peak_bytes[host], *udp_receive_queues(text), 0)

    def close(self) -> dict[str, int]:
        """Stop watching; return the largest number of bytes at each host."""
        self._close_all()
        return self.peak_bytes

    def _close_all(self) -> None:
        while self._fds:
            os.close(self._fds.popitem()[1])


def udp_receive_queues(text: bytes) -> list[int]:
    """Read /proc/PID/net/udp: bytes of memory that each socket's received datagrams take."""
    rows = (line.split() for line in text.splitlines()[1:])
    return [int(row[4].partition(b":")[2], 16) for row in rows if len(row) > 4]
