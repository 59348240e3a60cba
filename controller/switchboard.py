# SPDX-License-Identifier: Apache-2.0
"""Connections to the switches: sends message lists and waits until each switch confirmed.

A list is a transaction: its messages get consecutive transaction ids, its last message is a
barrier. An error message for one of the ids marks it refused; the reply to the last barrier
ends it, as errors of earlier messages must come before that reply.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from controller.messages import Barrier, Message
from controller.service import Failure, Why

LOG = logging.getLogger(__name__)
CONFIRM_TIMEOUT_S = 5.0
# Framework messages count up from a random id; ours live in the upper half, which merely makes a
# clash improbable: a foreign id is ignored unless it falls into the open transaction.
XID_FIRST = 0x80000000
XID_LAST = 0xFFFFFFF0


@dataclass
class _Transaction:
    first: int
    last: int  # of the closing barrier
    done: threading.Event = field(default_factory=threading.Event)
    failure: Failure | None = None


class Switchboard:
    """`build(datapath, message)` makes the framework's message, `in_hub` runs a function where
    datapaths may be used, `is_closed` and `release` are as in compat. `events` tells the owner of
    switches that came ("up") or went ("down"), in order."""

    def __init__(
        self,
        dpids: Mapping[str, int],
        build: Callable[[Any, Message], Any],
        in_hub: Callable[[Callable[[], None]], None],
        is_closed: Callable[[Any], bool],
        release: Callable[[Any], None],
        timeout_s: float = CONFIRM_TIMEOUT_S,
    ) -> None:
        self._names = {dpid: name for name, dpid in dpids.items()}
        self._build = build
        self._in_hub = in_hub
        self._is_closed = is_closed
        self._release = release
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._datapaths: dict[str, Any] = {}
        self._connections: list[Any] = []  # also replaced ones that have not ended yet
        self._open: dict[str, _Transaction] = {}
        self._next_xid = XID_FIRST
        self.events: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    # -- called by the framework's threads; never blocks

    def connected(self, datapath: Any) -> None:
        name = self._names.get(datapath.id)
        if name is None:
            LOG.warning(
                "a switch with the unknown datapath id %016x connected; it is left alone",
                datapath.id,
            )
            return
        with self._lock:
            self._datapaths[name] = datapath
            self._connections.append(datapath)
        self.events.put(("up", name))

    def disconnected(self, datapath: Any) -> None:
        name = self._names.get(datapath.id) if datapath.id is not None else None
        with self._lock:
            # A switch may be back on a new connection before the end of the old one is noticed.
            if name is None or self._datapaths.get(name) is not datapath:
                return
            del self._datapaths[name]
            transaction = self._open.pop(name, None)
        if transaction is not None:
            transaction.failure = Failure(Why.NOT_CONNECTED, "connection lost meanwhile")
            transaction.done.set()
        self.events.put(("down", name))

    def barrier_reply(self, datapath: Any, xid: int) -> None:
        with self._lock:
            name = self._name_of(datapath)
            transaction = self._open.get(name) if name is not None else None
            if name is None or transaction is None or xid != transaction.last:
                return
            del self._open[name]
        transaction.done.set()

    def error(self, datapath: Any, xid: int, text: str) -> None:
        with self._lock:
            name = self._name_of(datapath)
            transaction = self._open.get(name) if name is not None else None
            if transaction is not None and transaction.first <= xid <= transaction.last:
                transaction.failure = transaction.failure or Failure(Why.REFUSED, text)
        LOG.error("switch '%s' reports an error for message %#x: %s", name, xid, text)

    def _name_of(self, datapath: Any) -> str | None:
        name = self._names.get(datapath.id) if datapath.id is not None else None
        return name if name is not None and self._datapaths.get(name) is datapath else None

    # -- called by our own threads

    def connected_switches(self) -> list[str]:
        with self._lock:
            return sorted(self._datapaths)

    def sweep(self) -> None:
        """Finds connections that ended; call it now and then."""
        with self._lock:
            ended = [datapath for datapath in self._connections if self._is_closed(datapath)]
            self._connections = [d for d in self._connections if not any(d is e for e in ended)]
        for datapath in ended:
            self.disconnected(datapath)
            self._release(datapath)

    def apply(self, changes: Mapping[str, Sequence[Message]]) -> dict[str, Failure]:
        """Sends all lists, then waits at most the time limit for all. One call at a time."""
        deadline = time.monotonic() + self._timeout_s
        failures: dict[str, Failure] = {}
        waiting: dict[str, _Transaction] = {}
        for name, messages in changes.items():
            if not messages or not isinstance(messages[-1], Barrier):
                raise ValueError(f"the messages for switch '{name}' do not end with a barrier")
            with self._lock:
                datapath = self._datapaths.get(name)
                if datapath is None:
                    failures[name] = Failure(Why.NOT_CONNECTED)
                    continue
                first = self._take_xids(len(messages))
                transaction = _Transaction(first, first + len(messages) - 1)
                self._open[name] = waiting[name] = transaction
            self._in_hub(partial(self._send, datapath, tuple(messages), first))
        for name, transaction in waiting.items():
            transaction.done.wait(max(0.0, deadline - time.monotonic()))
            with self._lock:
                answered = transaction.done.is_set()
                if self._open.get(name) is transaction:
                    del self._open[name]
            if transaction.failure is not None:
                failures[name] = transaction.failure
            elif not answered:
                failures[name] = Failure(Why.TIMEOUT, f"{self._timeout_s:g} s")
        return failures

    def _take_xids(self, count: int) -> int:
        if self._next_xid + count > XID_LAST:
            self._next_xid = XID_FIRST
        first = self._next_xid
        self._next_xid += count
        return first

    def _send(self, datapath: Any, messages: tuple[Message, ...], first_xid: int) -> None:
        for xid, description in enumerate(messages, first_xid):
            message = self._build(datapath, description)
            message.set_xid(xid)
            datapath.send_msg(message)
