# SPDX-License-Identifier: Apache-2.0
"""Let checks use a live network: send numbered datagrams from a host, and see at which hosts they
arrive, and with which VLAN tags they cross the links.

Everything runs in the process that made the network; it opens sockets in the hosts' namespaces.
"""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from common.counting import counted
from common.shell import NetworkError, check, namespace_of
from topologies.emulate.emulation import Emulation
from topologies.model.network import (
    Link,
    Network,
    Nic,
    Port,
)

UDP_PORT: Final = 7070
MAGIC: Final = b"DPLAB\0"
_PAYLOAD: Final = struct.Struct("!6sHIq")  # magic, stream, number, time sent in ns
HEADER_BYTES: Final = 14 + 20 + 8  # Ethernet, IPv4, UDP; without tag and FCS
LEAST_PAYLOAD_BYTES: Final = _PAYLOAD.size
ETH_P_ALL, ETHERTYPE_IPV4, ETHERTYPE_VLAN = 0x0003, 0x0800, 0x8100
PACKET_OUTGOING: Final = 4
SOL_PACKET, PACKET_AUXDATA, PACKET_QDISC_BYPASS = 263, 8, 20
SO_SNDBUFFORCE, SO_RCVBUFFORCE, SO_TIMESTAMPNS = 32, 33, 35
BUFFER_BYTES: Final = 16_000_000
TP_STATUS_VLAN_VALID: Final = 1 << 4
_AUXDATA: Final = struct.Struct("=IIIHHHH")
SETTLE_S: Final = 0.5  # beyond the paths' delays
UNTAGGED: Final = -1
PINGS: Final = 3


@dataclass(frozen=True)
class Arrival:
    """A datagram at a receiver. Times in ns of CLOCK_REALTIME."""

    number: int
    sent_ns: int
    arrived_ns: int


@dataclass(frozen=True)
class Seen:
    """The results of a stream. `tags`: (from, to) of a link's direction -> VLAN id (UNTAGGED: none)
    -> frames, counted where they left the link."""

    sent: int
    began_ns: int
    arrivals: Mapping[str, Sequence[Arrival]]  # by receiver, in order of arrival
    tags: Mapping[tuple[str, str], Counter[int]] = field(default_factory=dict)

    def received(self, host: str) -> int:
        """Return how many different datagrams a host received."""
        return len({a.number for a in self.arrivals[host]})

    def doubled(self, host: str) -> int:
        """Return how many of the arrivals at a host were copies."""
        return len(self.arrivals[host]) - self.received(host)

    def lost(self, host: str) -> int:
        """Return how many of the datagrams sent did not reach a host."""
        return self.sent - self.received(host)

    def frames(self, a: str, b: str) -> int:
        """Return how many frames left the link from a to b."""
        return sum(self.tags[a, b].values())

    def gap_ms(self, host: str) -> float:
        """Return the longest time between two arrivals (each datagram counted once); without
        arrivals, the whole time."""
        times = [a.arrived_ns for a in self.arrivals[host]]
        return max((b - a for a, b in zip(times, times[1:], strict=False)), default=0) / 1e6

    def rate_bps(self, host: str, frame_bytes: int, after_s: float = 0.0) -> float:
        """Return the rate of frames of `frame_bytes`, from the first to the last arrival later than
        `after_s` after the beginning."""
        times = [
            a.arrived_ns
            for a in self.arrivals[host]
            if a.arrived_ns >= self.began_ns + after_s * 1e9
        ]
        if len(times) < 2 or times[-1] == times[0]:
            return 0.0
        return (len(times) - 1) * frame_bytes * 8e9 / (times[-1] - times[0])


def payload(stream: int, number: int, size: int) -> bytes:
    """Return the bytes of a datagram: stream, number, time sent, padding."""
    return _PAYLOAD.pack(MAGIC, stream, number, time.time_ns()).ljust(size, b"\0")


def parse(data: bytes) -> tuple[int, int, int] | None:
    """Return (stream, number, time sent) of a datagram or frame; None if this module did not send
    it."""
    at = data.find(MAGIC)
    if at < 0 or len(data) < at + _PAYLOAD.size:
        return None
    _, stream, number, sent_ns = _PAYLOAD.unpack_from(data, at)
    return stream, number, sent_ns


def ipv4_checksum(header: bytes) -> int:
    """Return the checksum of RFC 791."""
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~int(total + (total >> 16)) & 0xFFFF


def multicast_frame(nic: Nic, group: str, vlan: int | None, data: bytes) -> bytes:
    """Return an Ethernet frame from `nic` (tagged with `vlan`; None: untagged) that carries a
    datagram to `group`."""
    to = ipaddress.IPv4Address(group)
    low = (int(to) & 0x7FFFFF).to_bytes(3, "big")
    macs = bytes.fromhex("01005e") + low + bytes.fromhex(nic.mac.replace(":", ""))
    tag = b"" if vlan is None else struct.pack("!HH", ETHERTYPE_VLAN, vlan)
    udp = struct.pack("!HHHH", UDP_PORT, UDP_PORT, 8 + len(data), 0)
    words = (0x45, 0, 28 + len(data), 0, 0x4000, 1, 17)
    addresses = ipaddress.IPv4Address(nic.ip).packed + to.packed
    header = struct.pack("!BBHHHBBH", *words, 0) + addresses
    header = struct.pack("!BBHHHBBH", *words, ipv4_checksum(header)) + addresses
    return macs + tag + struct.pack("!H", ETHERTYPE_IPV4) + header + udp + data


@dataclass(frozen=True)
class Traffic:
    """A stream to send: `count` datagrams, one every `interval_s` (0: a burst), in frames of
    `frame_bytes` (without tag and FCS).

    `watch`: directions of links in which frames are counted; `events`: functions to call, each with
    its time in seconds after the first datagram; `settle_s`: how long to wait for frames in
    transit, beyond the links' delays.
    """

    count: int
    interval_s: float = 0.005
    frame_bytes: int = 200
    lane: int = 1
    watch: Sequence[tuple[str, str]] = ()
    events: Sequence[tuple[float, Callable[[], None]]] = ()
    settle_s: float = SETTLE_S


class LiveNetwork:
    """The network of a running lab. `emulation`: gives access to everything in topologies."""

    def __init__(self, emulation: Emulation) -> None:
        self.emulation = emulation
        self._streams = 0

    @property
    def network(self) -> Network:
        """Return the network's description."""
        return self.emulation.network

    # -- observation

    def link(self, a: str, b: str) -> tuple[Link, Port, Port]:
        """Return the link between two nodes, its port at `a` and its port at `b`. Raises
        NetworkError."""
        for link in self.network.links:
            for here, there in ((link.a, link.b), (link.b, link.a)):
                if (here.node, there.node) == (a, b):
                    return link, here, there
        raise NetworkError(f"no link between {a} and {b}")

    def delay_ms(self) -> float:
        """Return a time longer than any path takes."""
        return sum(k.forward.delay_ms for k in self.network.links)

    def ofctl(self, *words: str) -> str:
        """Run `ovs-ofctl` and return its output. Raises NetworkError."""
        return check(["ovs-ofctl", "-O", "OpenFlow13", "--no-names", *words])

    def counters(self) -> dict[str, Any]:
        """Return the counters of the running network."""
        return self.emulation.counters()

    def ping(self, source: str, address: str, count: int = PINGS) -> int:
        """Return the number of answers received."""
        argv = ["ping", "-n", "-q", "-c", str(count), "-i", "0.2", "-W", "2", address]
        done = self.emulation.run(source, argv, timeout_s=60, check=False)
        for line in done.stdout.splitlines():
            if " received" in line:
                return int(line.split(" received")[0].split()[-1])
        return 0

    def all_answer(self, source: str, hosts: Sequence[str]) -> tuple[bool, str]:
        """Send PINGS pings from `source` to each host; return whether all were answered, and the
        result in words."""
        answers = {h: self.ping(source, self.network.host(h).nic1.ip) for h in hosts}
        found = ", ".join(f"{counted(n, 'answer')} from {h}" for h, n in answers.items())
        return all(n == PINGS for n in answers.values()), found

    # -- streams

    def stream(
        self, sender: str, receivers: Sequence[str], traffic: Traffic, *, past_queues: bool = False
    ) -> Seen:
        """Send numbered datagrams to the lane's multicast group, and return what arrived.

        They pass the sender's stack and its queues; with `past_queues` they are frames sent at its
        NIC.
        Raises NetworkError.
        """
        lane = traffic.lane
        source = self._nic_sender(sender, lane) if past_queues else self._udp_sender(sender, lane)
        return self._stream(source, receivers, traffic)

    def inject(
        self,
        at: str,
        neighbour: str,
        vlan: int,
        receivers: Sequence[str],
        traffic: Traffic,
    ) -> Seen:
        """Like `stream`, but with frames of VLAN id `vlan` that enter switch `at` from the link to
        the switch `neighbour`. Raises NetworkError."""
        source = self._link_sender(neighbour, at, vlan)
        return self._stream(source, receivers, traffic)

    def _stream(
        self,
        source: contextlib.AbstractContextManager[Callable[[bytes], None]],
        receivers: Sequence[str],
        traffic: Traffic,
    ) -> Seen:
        self._streams = number = self._streams % 0xFFFF + 1
        size = max(traffic.frame_bytes - HEADER_BYTES, LEAST_PAYLOAD_BYTES)
        with ExitStack() as stack:
            loop = _Loop(number)
            for host in receivers:
                loop.add_receiver(host, stack.enter_context(self._receiver(host, traffic.lane)))
            for a, b in traffic.watch:
                _, _, port = self.link(a, b)
                loop.add_tap((a, b), stack.enter_context(self._tap(port)))
            send = stack.enter_context(source)
            timers = [threading.Timer(at, self._guarded(call, loop)) for at, call in traffic.events]
            began_ns, start = time.time_ns(), time.monotonic()
            for timer in timers:
                timer.start()
            for index in range(traffic.count):
                if traffic.interval_s:
                    loop.until(start + index * traffic.interval_s)
                send(payload(number, index, size))
            for timer in timers:
                while timer.is_alive():
                    loop.until(time.monotonic() + 0.05)
                timer.join()
            loop.until(time.monotonic() + self.delay_ms() / 1000 + traffic.settle_s)
            if loop.problem is not None:
                raise loop.problem
            return Seen(traffic.count, began_ns, loop.arrivals, loop.tags)

    @staticmethod
    def _guarded(call: Callable[[], None], loop: _Loop) -> Callable[[], None]:
        def guarded() -> None:
            try:
                call()
            except NetworkError as error:
                loop.problem = error

        return guarded

    @contextmanager
    def _receiver(self, host: str, lane: int) -> Iterator[socket.socket]:
        address = self.network.host(host).path_nic(lane).ip
        group = self.network.group_of(lane)
        with namespace_of(self.emulation.pids[host]):
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            with contextlib.ExitStack() as failed:
                failed.callback(one.close)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
                one.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                one.bind((group, UDP_PORT))
                member = socket.inet_aton(group) + socket.inet_aton(address)
                one.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
                failed.pop_all()
        with one:
            yield one

    @contextmanager
    def _tap(self, port: Port) -> Iterator[socket.socket]:
        pid = self.emulation.pids.get(port.node)
        with namespace_of(pid) if pid is not None else contextlib.nullcontext():
            one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        with one:
            one.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
            one.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
            try:
                one.bind((port.interface, ETH_P_ALL))
            except OSError as error:
                raise NetworkError(f"interface {port.interface}: {error.strerror}") from error
            yield one

    @contextmanager
    def _udp_sender(self, host: str, lane: int) -> Iterator[Callable[[bytes], None]]:
        address = self.network.host(host).path_nic(lane).ip
        to = (self.network.group_of(lane), UDP_PORT)
        with namespace_of(self.emulation.pids[host]):
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with one:
            # Frames that wait in the host's queues count against the buffer of the socket that sent
            # them.
            one.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
            one.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
            yield lambda data: _ignoring_full(lambda: one.sendto(data, to))

    @contextmanager
    def _nic_sender(self, host: str, lane: int) -> Iterator[Callable[[bytes], None]]:
        """Yield a function that sends frames at the NIC itself, with the segment's tag where hosts
        tag."""
        source = self.network.host(host)
        tag = None if self.emulation.facts.edge_tags else self.network.segment_of(host, lane).vlan
        group = self.network.group_of(lane)
        nic = source.path_nic(lane)
        with self._frames_at(self.emulation.pids[host], nic.interface) as send:
            yield lambda data: send(multicast_frame(nic, group, tag, data))

    @contextmanager
    def _link_sender(self, a: str, b: str, vlan: int) -> Iterator[Callable[[bytes], None]]:
        """Yield a function that sends frames like the publisher's into the link from switch a to
        b."""
        _, port, _ = self.link(a, b)
        nic, group = self.network.publisher.nic1, self.network.multicast_group
        with self._frames_at(self.emulation.pids.get(a), port.interface) as send:
            yield lambda data: send(multicast_frame(nic, group, vlan, data))

    @contextmanager
    def _frames_at(self, pid: int | None, interface: str) -> Iterator[Callable[[bytes], None]]:
        with namespace_of(pid) if pid is not None else contextlib.nullcontext():
            one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        with one:
            one.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
            one.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
            one.bind((interface, 0))
            yield lambda data: _ignoring_full(lambda: one.send(data))


def _ignoring_full(send: Callable[[], object]) -> None:
    """Send a datagram. If a queue is full the datagram is lost, which the receivers' counts
    show."""
    with contextlib.suppress(BlockingIOError, OSError):
        send()


class _Loop:
    """Collect what arrives at sockets, until a given time."""

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._poll = select.poll()
        self._by_fd: dict[int, tuple[socket.socket, str | tuple[str, str]]] = {}
        self.arrivals: dict[str, list[Arrival]] = {}
        self.tags: dict[tuple[str, str], Counter[int]] = {}
        self.problem: NetworkError | None = None

    def add_receiver(self, host: str, one: socket.socket) -> None:
        self.arrivals[host] = []
        self._add(one, host)

    def add_tap(self, direction: tuple[str, str], one: socket.socket) -> None:
        self.tags[direction] = Counter()
        self._add(one, direction)

    def _add(self, one: socket.socket, where: str | tuple[str, str]) -> None:
        self._poll.register(one, select.POLLIN)
        self._by_fd[one.fileno()] = (one, where)

    def until(self, deadline: float) -> None:
        """Collect until `deadline` (of time.monotonic())."""
        while True:
            left = deadline - time.monotonic()
            if left > 0.002:
                ready = self._poll.poll((left - 0.001) * 1000)
            else:  # poll counts milliseconds
                if left > 0:
                    time.sleep(left)
                ready = self._poll.poll(0)
            for fd, _ in ready:
                self._take(*self._by_fd[fd])
            if left <= 0:
                return

    def _take(self, one: socket.socket, where: str | tuple[str, str]) -> None:
        while True:
            try:
                data, ancillary, _, address = one.recvmsg(65536, 256, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                return  # its interface went down
            found = parse(data)
            if found is None or found[0] != self._stream:
                continue
            if isinstance(where, str):
                arrived = _arrival_ns(ancillary)
                self.arrivals[where].append(Arrival(found[1], found[2], arrived))
            elif address[2] != PACKET_OUTGOING:
                self.tags[where][tag_of(data, ancillary)] += 1


def _arrival_ns(ancillary: Sequence[tuple[int, int, bytes]]) -> int:
    for level, kind, value in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(value) >= 16:
            seconds, nanoseconds = struct.unpack("@qq", value[:16])
            return int(seconds * 1_000_000_000 + nanoseconds)
    return time.time_ns()


def tag_of(frame: bytes, ancillary: Sequence[tuple[int, int, bytes]]) -> int:
    """Return the VLAN id of a frame from a packet socket. The kernel may have moved the tag from
    the frame into `ancillary`."""
    for level, kind, value in ancillary:
        if level == SOL_PACKET and kind == PACKET_AUXDATA and len(value) >= _AUXDATA.size:
            status, _, _, _, _, tci, _ = _AUXDATA.unpack_from(value)
            if status & TP_STATUS_VLAN_VALID:
                return int(tci & 0x0FFF)
    if len(frame) >= 16 and frame[12:14] == b"\x81\x00":
        return int.from_bytes(frame[14:16], "big") & 0x0FFF
    return UNTAGGED
