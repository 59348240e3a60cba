# SPDX-License-Identifier: Apache-2.0
"""The thread around liveness.py: probes go out, answers come in, and news become events."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping

from controller.paths import replies
from controller.paths.messages import Message, PacketOut
from controller.switches.board import Board
from controller.switches.liveness import End, Liveness, News
from controller.switches.switchboard import Event

LOG = logging.getLogger(__name__)
INBOX_MAX = 4096  # further packet-ins are dropped; the switches and the guard bound them before
NOT_READY_POLL_S = 0.05


class Prober:
    """The thread around `Liveness`.

    `is_ready` says which switches have what they should: before that, no flow sends probes to the
    controller. For a link that goes up or down, the board gets ("link", name, is up, why).
    """

    def __init__(
        self,
        liveness: Liveness,
        board: Board,
        is_ready: Callable[[], Mapping[str, bool]],
    ) -> None:
        self._liveness = liveness
        self._board = board
        self._is_ready = is_ready
        self._inbox: queue.Queue[Callable[[], list[News]]] = queue.Queue(INBOX_MAX)
        self._waiting: set[str] = set()  # connected, but not ready yet
        self._states: Mapping[str, tuple[bool, str]] = liveness.states()
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)
        self.dropped = 0

    def start(self) -> None:
        """Start probing."""
        self._board.on_packet_in = self._packet_in
        self._board.on_event = self._event
        self._thread.start()

    def states(self) -> Mapping[str, tuple[bool, str]]:
        """Return for each link whether it is up, and if not, why. Thread-safe."""
        return self._states

    @property
    def foreign_frames(self) -> int:
        """Return how many LLDP frames were not this controller's probes."""
        return self._liveness.foreign_frames

    # -- called by other threads

    def _packet_in(self, switch: str, packet: replies.PacketIn) -> None:
        now_s = time.monotonic()
        end = End(switch, packet.in_port)
        self._put(lambda: self._liveness.packet_in(end, packet.frame, now_s))

    def _event(self, event: Event) -> None:
        match event:
            case ("up" | "down" as what, str(switch)):
                self._put(lambda: self._switch(what, switch))
            case ("port", str(switch), int(port), bool(is_up)):
                self._put(lambda: self._liveness.port(End(switch, port), is_up))

    def _put(self, call: Callable[[], list[News]]) -> None:
        try:
            self._inbox.put_nowait(call)
        except queue.Full:
            self.dropped += 1

    # -- the thread

    def _switch(self, what: str, switch: str) -> list[News]:
        self._waiting.discard(switch)
        self._liveness.disconnected(switch, time.monotonic())
        if what == "up":
            self._waiting.add(switch)
        return []

    def _run(self) -> None:
        while True:
            try:
                self._turn()
            except Exception:
                LOG.exception("probing failed")
                time.sleep(1.0)

    def _turn(self) -> None:
        news: list[News] = []
        next_s = self._liveness.next_s()
        if self._waiting:
            soon_s = time.monotonic() + NOT_READY_POLL_S
            next_s = soon_s if next_s is None else min(next_s, soon_s)
        try:
            wait_s = None if next_s is None else max(0.0, next_s - time.monotonic())
            call = self._inbox.get(timeout=wait_s) if wait_s != 0.0 else self._inbox.get_nowait()
            for _ in range(INBOX_MAX):
                news += call()
                call = self._inbox.get_nowait()
        except queue.Empty:
            pass
        if self._waiting:
            ready = self._is_ready()
            for switch in [s for s in self._waiting if ready.get(s)]:
                self._waiting.discard(switch)
                self._liveness.connected(switch, time.monotonic())
        self._tick(news)

    def _tick(self, news: list[News]) -> None:
        todo = self._liveness.tick(time.monotonic())
        outs: dict[str, list[Message]] = {}
        for end, frame in todo.probes:
            outs.setdefault(end.switch, []).append(PacketOut(end.port, frame))
        for switch, messages in outs.items():
            self._board.post(switch, messages)
        for switch in todo.ask:
            self._ask(switch)
        self._tell([*news, *todo.news])

    def _ask(self, switch: str) -> None:
        asked_s = time.monotonic()

        def answered() -> None:
            self._put(lambda: self._awake(switch, asked_s))

        self._board.ask(switch, answered)

    def _awake(self, switch: str, asked_s: float) -> list[News]:
        self._liveness.awake(switch, asked_s, time.monotonic())
        return []

    def _tell(self, news: list[News]) -> None:
        if not news:
            return
        self._states = self._liveness.states()
        for item in news:
            if item.is_up:
                LOG.info("link '%s' is up: %s", item.link, item.why)
            else:
                LOG.warning("link '%s' is down: %s", item.link, item.why)
            self._board.emit(("link", item.link, item.is_up, item.why))
