# SPDX-License-Identifier: Apache-2.0
"""Reads the switches' counters periodically, and keeps the results."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from controller.paths.entries import Flow, Kind, kind_of
from controller.paths.forwarding import base_entries
from controller.paths.stats import Count, SwitchStats
from controller.service.counts import Ledger, PathCounts
from controller.service.events import EventKind
from controller.service.service import PathService
from controller.switches.installer import Failure

LOG = logging.getLogger(__name__)
PERIOD_S = 5.0
FRESH_S = 1.0  # a reading at most this old is as good as a new one

Stats = Callable[[Iterable[str]], Mapping[str, SwitchStats | Failure]]


@dataclass(frozen=True)
class Reading:
    """The counters at one time.

    `unexpected`: frames that a switch dropped because they belong to no path, by port (wrong VLAN
    id) and, under port None, elsewhere.
    """

    time: float = 0.0
    paths: Mapping[str, PathCounts] = field(default_factory=dict)
    unexpected: Mapping[tuple[str, int | None], Count] = field(default_factory=dict)


class Monitor:
    """Reads the counters of all switches. Thread-safe."""

    def __init__(
        self, service: PathService, stats: Stats, clock: Callable[[], float] = time.time
    ) -> None:
        self._service = service
        self._stats = stats
        self._clock = clock
        self._lock = threading.Lock()
        self._ledger = Ledger()
        self._position = service.events.last
        self._changes = service.group_changes()
        self._reading = Reading()
        self._dropping = {
            switch: [entry for entry in entries if isinstance(entry, Flow)]
            for switch, entries in base_entries(service.core).items()
        }

    def read(self, max_age_s: float = FRESH_S) -> Reading:
        """Return the last reading, or a new one if that is too old."""
        with self._lock:
            if self._clock() - self._reading.time > max_age_s:
                self._reading = self._read()
            return self._reading

    def run(self, stop: threading.Event, period_s: float = PERIOD_S) -> None:
        """Read every `period_s` until `stop`. A change of a group may reset its counters: then at
        most one period is missed."""
        while not stop.wait(period_s):
            try:
                self.read()
            except Exception:
                LOG.exception("the switches' counters cannot be read")

    def _read(self) -> Reading:
        service = self._service
        connected = [switch for switch, known in service.switches().items() if known]
        paths = [view.path for view in service.paths()]
        changes = service.group_changes()
        answers = self._stats(connected)
        changes_then = service.group_changes()
        now = self._clock()
        stats = {s: answer for s, answer in answers.items() if isinstance(answer, SwitchStats)}
        for switch, answer in answers.items():
            if not isinstance(answer, SwitchStats):
                LOG.warning("switch '%s' does not report its counters: %s", switch, answer)
        restarted = self._follow_events()
        regrouped: dict[int, set[str]] = {}
        for (switch, number), times in changes_then.items():
            if self._changes.get((switch, number)) != times:
                regrouped.setdefault(number, set()).add(switch)
        # Groups that changed during the reading were read before or after the change. So the next
        # reading counts them as changed again.
        self._changes = changes
        self._ledger.forget_others(paths)
        counts = {
            path.name: self._ledger.add(
                service.core, path, stats, now, regrouped.get(path.number, ()), restarted
            )
            for path in paths
        }
        return Reading(now, counts, dict(self._unexpected(stats)))

    def _follow_events(self) -> set[str]:
        """Return the switches that came back since the last reading.

        A path that was deleted meanwhile starts from zero: it may exist again, with the same
        number.
        """
        restarted: set[str] = set()
        while True:
            events, _ = self._service.events.after(self._position)
            if not events:
                return restarted
            self._position = events[-1].sequence
            for event in events:
                if event.kind in (EventKind.PATH_DELETED, EventKind.PATH_EXPIRED):
                    self._ledger.forget(str(event.data["path"]))
                elif event.kind is EventKind.SWITCH_UP:
                    restarted.add(str(event.data["switch"]))

    def _unexpected(
        self, stats: Mapping[str, SwitchStats]
    ) -> Iterable[tuple[tuple[str, int | None], Count]]:
        for switch, counted in stats.items():
            for flow in self._dropping[switch]:
                if kind_of(flow.cookie) in (Kind.MISS, Kind.WRONG_VLAN):
                    count = counted.flows.get(flow.key, Count())
                    yield (switch, flow.match.in_port), count
