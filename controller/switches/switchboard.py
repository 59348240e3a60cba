# SPDX-License-Identifier: Apache-2.0
"""Connections to the switches: sends messages, waits for confirmations and replies.

A list of changes is a transaction: its messages get consecutive transaction ids, and its last
message is a barrier. An error message with one of the ids marks the list as refused. The reply to
the last barrier ends it, since errors of earlier messages must come before that reply. Reading is
also an exchange: it ends with the last part of each reply.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Literal, Protocol, TypeVar

from controller.paths import replies
from controller.paths.entries import Entries
from controller.paths.messages import (
    Barrier,
    DeleteOwnedFlows,
    Message,
    Request,
    Role,
    RoleRequest,
)
from controller.paths.replies import Multipart
from controller.paths.stats import SwitchStats
from controller.switches import readback
from controller.switches.guard import Bucket
from controller.switches.installer import Failure, Why

LOG = logging.getLogger(__name__)
CONFIRM_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 10.0
PROOF_S = 2.0  # time for a switch to answer when another connection claims its identity
REPLY_MAX_BYTES = 64 << 20  # limit of one exchange, in case a switch never stops
# The framework's messages count up from a random id; this module's are in the upper half, which
# makes a clash improbable. A foreign id is ignored unless it falls into an open exchange.
XID_FIRST = 0x80000000
XID_LAST = 0xFFFFFFF0

HELD = (Multipart.FLOW, Multipart.GROUP_DESC, Multipart.METER_CONFIG)
COUNTERS = (Multipart.FLOW, Multipart.GROUP, Multipart.METER, Multipart.PORT_STATS)
EXACT_COOKIE = (1 << 64) - 1

SwitchEvent = tuple[Literal["up", "down"], str]  # switch
PortEvent = tuple[Literal["port"], str, int, bool]  # switch, port, is up
LinkEvent = tuple[Literal["link"], str, bool, str]  # link, is up, why
Event = SwitchEvent | PortEvent | LinkEvent
PacketIn = Callable[[str, replies.PacketIn], None]


@dataclass(eq=False)
class _Exchange:
    """Messages with the ids `first` to `last`, and the answers still awaited."""

    switch: str
    first: int
    last: int
    awaited: set[int]
    kinds: dict[int, Multipart] = field(default_factory=dict)
    parts: readback.Replies = field(default_factory=dict)
    size_bytes: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    failure: Failure | None = None
    on_success: Callable[[], None] | None = None  # must not block

    def end(self, failure: Failure | None = None) -> None:
        self.failure = self.failure or failure
        self.done.set()
        if self.on_success is not None and self.failure is None:
            self.on_success()


class Identified(Protocol):
    """A connection. `id` is None until the switch has sent it."""

    @property
    def id(self) -> int | None:
        """Return the datapath id."""


D = TypeVar("D", bound=Identified)


@dataclass(eq=False)
class _Claim(Generic[D]):
    """A connection that claims to be a switch which is already connected."""

    datapath: D
    ports: Mapping[int, bool]
    timer: threading.Timer


class Switchboard(Generic[D]):
    """`encode(datapath, message, xid)` returns a message's bytes, `send(datapath, bytes)` sends
    them from any thread, `close(datapath)` ends a connection. `events` reports to the owner, in
    order. While `role` is SLAVE, nothing is written and no switch is "up"."""

    def __init__(
        self,
        dpids: Mapping[str, int],
        encode: Callable[[D, Message, int], bytes],
        send: Callable[[D, bytes], None],
        close: Callable[[D], None],
        timeout_s: float = CONFIRM_TIMEOUT_S,
        role: Role = Role.EQUAL,
    ) -> None:
        self._names = {dpid: name for name, dpid in dpids.items()}
        self._encode = encode
        self._send = send
        self._close = close
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._datapaths: dict[str, D] = {}
        self._claims: dict[str, _Claim[D]] = {}
        self._log_lines = Bucket(1.0, 20.0)  # that strangers can cause
        self._open: list[_Exchange] = []
        self._next_xid = XID_FIRST
        self._role = role
        self._generation = 0
        self._role_xids: dict[int, str] = {}  # role requests that are not answered yet
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.on_packet_in: PacketIn | None = None  # called by the framework's threads
        self.on_report: PacketIn | None = None  # the same, for what leaves report by IGMP
        self.on_event: Callable[[Event], None] | None = None  # besides `events`; must not block
        self.on_duplicate: Callable[[], object] = lambda: None  # a claim was refused

    def emit(self, event: Event) -> None:
        """Report an event to the owner."""
        self.events.put(event)
        if self.on_event is not None:
            self.on_event(event)

    # -- called by the framework's threads; never blocks

    def connected(
        self, datapath: D, ports: Mapping[int, bool], certified: frozenset[str] = frozenset()
    ) -> bool:
        """Take a connection; return whether it is a switch of the domain.

        Other connections are closed. `ports` says which ports are up. `certified`: the names in its
        certificate; if some are switches of the domain, it can only be one of these. If that switch
        is already connected, its older connection is probed: if it does not answer in PROOF_S, the
        new connection replaces it; otherwise the new one is closed.
        """
        name = None if datapath.id is None else self._names.get(datapath.id)
        if name is None:
            self._warn("a switch with the unknown datapath id %016x was refused", datapath.id)
            self._close(datapath)
            return False
        speaks_for = certified & set(self._names.values())
        if speaks_for and name not in speaks_for:
            of = ", ".join(sorted(speaks_for))
            self._warn("a connection with the certificate of %s claims to be '%s'", of, name)
            self._close(datapath)
            return False
        with self._lock:
            old = self._datapaths.get(name)
            if old is None:
                self._datapaths[name] = datapath
                refused = False
            else:
                refused = name in self._claims
                if not refused:
                    self._claim(name, datapath, ports)
                    exchange = self._begin(name, (Barrier(),))
                    exchange.on_success = partial(self._refuse_claim, name, datapath)
        if old is None:
            self._enter(name, datapath, ports)
        elif refused:
            self._refuse(name, datapath)
        else:
            self._send(old, self._encode(old, Barrier(), exchange.first))
        return True

    def _claim(self, name: str, datapath: D, ports: Mapping[int, bool]) -> None:
        """Probe the older connection. Call with the lock."""
        timer = threading.Timer(PROOF_S, self._grant_claim, (name, datapath))
        timer.daemon = True
        self._claims[name] = _Claim(datapath, dict(ports), timer)
        timer.start()

    def _refuse_claim(self, name: str, datapath: D) -> None:
        """Close the new connection: the switch has answered. A successful exchange calls this, with
        the lock."""
        claim = self._claims.get(name)
        if claim is not None and claim.datapath is datapath:
            del self._claims[name]
            claim.timer.cancel()
            self._refuse(name, datapath)

    def _refuse(self, name: str, datapath: D) -> None:
        self._warn(
            "a second connection claims to be switch '%s', which is connected: refused", name
        )
        self.on_duplicate()
        self._close(datapath)

    def _grant_claim(self, name: str, datapath: D) -> None:
        """Let a claim replace the connection that did not answer, or that has ended."""
        with self._lock:
            claim = self._claims.get(name)
            if claim is None or claim.datapath is not datapath:
                return
            del self._claims[name]
            claim.timer.cancel()
            replaced = self._datapaths.get(name)
            self._datapaths[name] = datapath
            gone = self._take_exchanges(name)
        if replaced is not None:
            LOG.warning("switch '%s' connected again; its older connection is closed", name)
            self._close(replaced)
        for exchange in gone:
            exchange.end(Failure(Why.NOT_CONNECTED, "connection replaced meanwhile"))
        self._enter(name, datapath, claim.ports)

    def _enter(self, name: str, datapath: D, ports: Mapping[int, bool]) -> None:
        """Start to use a connection that belongs to a switch."""
        with self._lock:
            role = self._role
        if role is Role.EQUAL:
            self.emit(("up", name))
        else:
            self._ask_role(name, datapath)
        for number, is_up in sorted(ports.items()):
            self.emit(("port", name, number, is_up))

    def _warn(self, text: str, *arguments: object) -> None:
        if self._log_lines.take(time.monotonic()):
            LOG.warning(text, *arguments)

    def disconnected(self, datapath: D) -> None:
        """Note that a connection has ended."""
        with self._lock:
            name = self._name_of(datapath)
            # A switch may have a new connection before the end of the old one is noticed.
            if name is None:
                self._forget_claim(datapath)
                return
            del self._datapaths[name]
            gone = self._take_exchanges(name)
            claim = self._claims.get(name)
        for exchange in gone:
            exchange.end(Failure(Why.NOT_CONNECTED, "connection lost meanwhile"))
        self.emit(("down", name))
        if claim is not None:
            self._grant_claim(name, claim.datapath)

    def _forget_claim(self, datapath: D) -> None:
        """Drop the claim of a connection that ended. Call with the lock."""
        for name, claim in list(self._claims.items()):
            if claim.datapath is datapath:
                claim.timer.cancel()
                del self._claims[name]

    def barrier_reply(self, datapath: D, xid: int) -> None:
        """Note a confirmation."""
        with self._lock:
            exchange = self._exchange_of(datapath, xid)
            if exchange is not None and exchange.awaited == {xid} and not exchange.kinds:
                self._open.remove(exchange)
                exchange.end()

    def multipart_reply(self, datapath: D, message: bytes) -> None:
        """Add a part of a reply. Raises replies.Malformed."""
        part = replies.multipart(message)
        xid = replies.header(message).xid
        with self._lock:
            exchange = self._exchange_of(datapath, xid)
            if exchange is None or exchange.kinds.get(xid) != part.kind:
                return  # too late, or not requested
            exchange.size_bytes += len(part.body)
            exchange.parts.setdefault(exchange.kinds[xid], []).append(part.body)
            if not part.more:
                exchange.awaited.discard(xid)
            if exchange.size_bytes > REPLY_MAX_BYTES:
                exchange.failure = Failure(Why.REFUSED, f"reply above {REPLY_MAX_BYTES} bytes")
            if exchange.failure is not None or not exchange.awaited:
                self._open.remove(exchange)
                exchange.end()

    def role_reply(self, datapath: D, xid: int) -> None:
        """Note that a switch has taken a role."""
        with self._lock:
            name = self._name_of(datapath)
            if name is None or self._role_xids.pop(xid, None) != name:
                return
            role = self._role
        LOG.info("switch '%s' confirmed the role: %s", name, role)
        if role is Role.MASTER:
            self.emit(("up", name))

    def error(self, datapath: D, xid: int, text: str) -> None:
        """Note that a switch has refused a message."""
        with self._lock:
            name = self._name_of(datapath)
            is_role = self._role_xids.pop(xid, None) is not None
            exchange = self._exchange_of(datapath, xid)
            if exchange is not None:
                exchange.failure = exchange.failure or Failure(Why.REFUSED, text)
                if exchange.kinds:
                    self._open.remove(exchange)
                    exchange.end()
        if name is not None:
            what = "the role request" if is_role else f"message {xid:#x}"
            LOG.error("switch '%s' reports an error for %s: %s", name, what, text)

    def port_status(self, datapath: D, port: int, is_up: bool) -> None:
        """Note that a port is up or down."""
        with self._lock:
            name = self._name_of(datapath)
        if name is not None:
            self.emit(("port", name, port, is_up))

    def packet_in(self, datapath: D, message: bytes) -> None:
        """Pass a PACKET_IN on. Raises replies.Malformed."""
        packet = replies.packet_in(message)
        with self._lock:
            name = self._name_of(datapath)
        take = self.on_report if replies.is_report(message) else self.on_packet_in
        if name is not None and take is not None:
            take(name, packet)

    def _name_of(self, datapath: D) -> str | None:
        name = self._names.get(datapath.id) if datapath.id is not None else None
        return name if name is not None and self._datapaths.get(name) is datapath else None

    def _exchange_of(self, datapath: D, xid: int) -> _Exchange | None:
        name = self._name_of(datapath)
        for exchange in self._open:
            if exchange.switch == name and exchange.first <= xid <= exchange.last:
                return exchange
        return None

    def _take_exchanges(self, name: str) -> list[_Exchange]:
        taken = [exchange for exchange in self._open if exchange.switch == name]
        self._open = [exchange for exchange in self._open if exchange.switch != name]
        self._role_xids = {xid: s for xid, s in self._role_xids.items() if s != name}
        return taken

    # -- called by our own threads

    def connected_switches(self) -> list[str]:
        """Return the names of the switches that are connected."""
        with self._lock:
            return sorted(self._datapaths)

    def set_role(self, role: Role, generation: int) -> None:
        """Request the role from all switches, now and when they connect.

        With MASTER, each switch that confirms is reported as "up", and masters of older generations
        become slaves. With SLAVE, all are reported as "down", and nothing more is written.
        """
        with self._lock:
            self._role = role
            self._generation = generation
            datapaths = dict(self._datapaths)
        for name, datapath in sorted(datapaths.items()):
            if role is Role.SLAVE:
                self.emit(("down", name))
            self._ask_role(name, datapath)

    def _ask_role(self, name: str, datapath: D) -> None:
        with self._lock:
            xid = self._take_xids(1)
            self._role_xids[xid] = name
            request = RoleRequest(self._role, self._generation)
        self._send(datapath, self._encode(datapath, request, xid))

    def post(self, switch: str, messages: Sequence[Message]) -> None:
        """Send messages without an answer, if the switch is connected."""
        with self._lock:
            datapath = self._datapaths.get(switch)
            if datapath is None or self._role is Role.SLAVE:
                return
            first = self._take_xids(len(messages))
        self._send(datapath, self._encode_all(datapath, messages, first))

    def ask(self, switch: str, answered: Callable[[], None]) -> None:
        """Send a barrier, and call `answered` when the switch replies to it.

        The framework's thread calls it, but not if the connection ends first.
        """
        with self._lock:
            datapath = self._datapaths.get(switch)
            if datapath is None or self._role is Role.SLAVE:
                return
            exchange = self._begin(switch, (Barrier(),))
            exchange.on_success = answered
        self._send(datapath, self._encode(datapath, Barrier(), exchange.first))

    def apply(self, changes: Mapping[str, Sequence[Message]]) -> dict[str, Failure]:
        """Send all lists, then wait for all switches, at most the time limit.

        Only one call at a time may change a switch; different threads may change different
        switches.
        """
        for name, messages in changes.items():
            if not messages or not isinstance(messages[-1], Barrier):
                raise ValueError(f"the messages for switch '{name}' do not end with a barrier")
        failures, _ = self._exchange(changes, self._timeout_s, writes=True)
        return failures

    def settle(self, _switches: Iterable[str]) -> dict[str, Failure]:
        """Return no failure: `apply` has waited."""
        return {}

    def read(self, switches: Iterable[str]) -> dict[str, Entries | Failure]:
        """Return which of this controller's entries each switch has.

        Flows that cannot be expressed as entries, because something else changed them, are deleted.
        """
        failures, found = self._multipart(switches, HELD)
        result: dict[str, Entries | Failure] = dict(failures)
        for name, parts in found.items():
            try:
                held = readback.held(parts)
            except replies.Malformed as error:
                result[name] = Failure(Why.REFUSED, f"malformed reply: {error}")
                continue
            result[name] = held.entries
            if held.strange:
                LOG.warning(
                    "switch '%s' has flows that something else changed: those with the cookies "
                    "%s are deleted",
                    name,
                    ", ".join(f"{cookie:#x}" for cookie in sorted(held.strange)),
                )
                deletes = (DeleteOwnedFlows(c, EXACT_COOKIE) for c in sorted(held.strange))
                result.update(self.apply({name: (*deletes, Barrier())}))
        return result

    def stats(self, switches: Iterable[str]) -> dict[str, SwitchStats | Failure]:
        """Return the counters of each switch."""
        failures, found = self._multipart(switches, COUNTERS)
        result: dict[str, SwitchStats | Failure] = dict(failures)
        for name, parts in found.items():
            try:
                result[name] = readback.statistics(parts)
            except replies.Malformed as error:
                result[name] = Failure(Why.REFUSED, f"malformed reply: {error}")
        return result

    def _multipart(
        self, switches: Iterable[str], kinds: Sequence[Multipart]
    ) -> tuple[dict[str, Failure], dict[str, readback.Replies]]:
        requests = tuple(Request(kind) for kind in kinds)
        return self._exchange(dict.fromkeys(switches, requests), READ_TIMEOUT_S, writes=False)

    def _exchange(
        self, lists: Mapping[str, Sequence[Message]], timeout_s: float, *, writes: bool
    ) -> tuple[dict[str, Failure], dict[str, readback.Replies]]:
        deadline = time.monotonic() + timeout_s
        failures: dict[str, Failure] = {}
        waiting: list[_Exchange] = []
        for name, messages in lists.items():
            with self._lock:
                datapath = self._datapaths.get(name)
                if datapath is None:
                    failures[name] = Failure(Why.NOT_CONNECTED)
                    continue
                if writes and self._role is Role.SLAVE:
                    failures[name] = Failure(Why.NOT_CONNECTED, "this controller is standby")
                    continue
                exchange = self._begin(name, messages)
            waiting.append(exchange)
            self._send(datapath, self._encode_all(datapath, messages, exchange.first))
        found: dict[str, readback.Replies] = {}
        for exchange in waiting:
            exchange.done.wait(max(0.0, deadline - time.monotonic()))
            with self._lock:
                answered = exchange.done.is_set()
                if exchange in self._open:
                    self._open.remove(exchange)
            if exchange.failure is not None:
                failures[exchange.switch] = exchange.failure
            elif not answered:
                failures[exchange.switch] = Failure(Why.TIMEOUT, f"{timeout_s:g} s")
            else:
                found[exchange.switch] = exchange.parts
        return failures, found

    def _begin(self, name: str, messages: Sequence[Message]) -> _Exchange:
        first = self._take_xids(len(messages))
        last = first + len(messages) - 1
        kinds = {xid: m.kind for xid, m in enumerate(messages, first) if isinstance(m, Request)}
        exchange = _Exchange(name, first, last, set(kinds) or {last}, kinds)
        self._open.append(exchange)
        return exchange

    def _encode_all(self, datapath: D, messages: Sequence[Message], first_xid: int) -> bytes:
        return b"".join(self._encode(datapath, m, xid) for xid, m in enumerate(messages, first_xid))

    def _take_xids(self, count: int) -> int:
        if self._next_xid + count > XID_LAST:
            self._next_xid = XID_FIRST
        first = self._next_xid
        self._next_xid += count
        return first
