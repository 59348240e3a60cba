# SPDX-License-Identifier: Apache-2.0
"""What each switch should have, and whether it is known to have it.

Deltas are sent phase by phase. A switch whose content is unknown is read and gets the difference.
Changes run side by side, even at the same switch: the planner makes sure that they do not touch the
same entries (changes.py). While a switch is read and repaired, other changes leave it alone. A
switch that does not answer delays only the changes that need it. After that it is left out until it
is read again, so that no later change waits for it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from controller.paths.entries import Entry
from controller.paths.messages import (
    Delta,
    Message,
    delta,
    messages_of,
)

Phase = Mapping[str, Delta]
RETRY_S = 2.0  # how soon a request may ask a switch again that did not answer


class Why(StrEnum):
    """Why a switch did not confirm."""

    NOT_CONNECTED = "not connected"
    TIMEOUT = "no answer to the barrier in time"
    REFUSED = "refused"


@dataclass(frozen=True)
class Failure:
    why: Why
    text: str = ""

    def __str__(self) -> str:
        return f"{self.why}: {self.text}" if self.text else str(self.why)


# Sends each switch its messages, waits until all have confirmed (or a time limit), and returns the
# failures. A switch that is not in the result has confirmed everything. Calls may overlap.
Apply = Callable[[Mapping[str, Sequence[Message]]], Mapping[str, Failure]]
# Waits until the switches have confirmed what `Apply` has sent, if that does not wait for them
# itself; returns the failures.
Settle = Callable[[Iterable[str]], Mapping[str, Failure]]
# Returns which of this controller's entries each switch has.
Read = Callable[[Iterable[str]], Mapping[str, "frozenset[Entry] | Failure"]]


@dataclass(eq=False)
class _Turn:
    alone: bool


def _may_go(turn: _Turn, queue: Sequence[_Turn]) -> bool:
    if turn.alone:
        return queue[0] is turn
    return not any(earlier.alone for earlier in queue[: queue.index(turn)])


@dataclass
class _Switch:
    desired: dict[object, Entry]
    known: bool = False
    refusing: bool = False  # not tried again until it reconnects or its desired state changes
    failure: Failure = field(default_factory=lambda: Failure(Why.NOT_CONNECTED))
    failed_at: float | None = None
    epoch: int = 0  # counts connections and their ends
    queue: list[_Turn] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """The result of a change.

    `failures`: switches that have not confirmed. `undone`: everything is as it was before, because
    a switch refused.
    """

    failures: Mapping[str, Failure]
    undone: bool = False


def settled(_switches: Iterable[str]) -> Mapping[str, Failure]:
    """Return no failure: the default, as switches have confirmed when `Apply` returns."""
    return {}


class Installer:
    """Thread-safe. `on_known(switch, known)` is called, without the lock, when it changes."""

    def __init__(
        self,
        switches: Iterable[str],
        apply: Apply,
        read: Read,
        on_known: Callable[[str, bool], None] = lambda _switch, _known: None,
        clock: Callable[[], float] = time.monotonic,
        settle: Settle = settled,
    ) -> None:
        self._apply = apply
        self._read = read
        self._settle = settle
        self._on_known = on_known
        self._clock = clock
        self._turns = threading.Condition()
        self._switches = {name: _Switch({}) for name in switches}

    # -- reading; never waits

    def known(self, switch: str) -> bool:
        """Return whether the switch is known to have what it should."""
        return self._switches[switch].known

    def all_known(self) -> dict[str, bool]:
        """Return, by switch, whether it is known to have what it should."""
        return {name: self._switches[name].known for name in sorted(self._switches)}

    def desired(self, switch: str) -> frozenset[Entry]:
        """Return the entries that a switch should have."""
        return frozenset(list(self._switches[switch].desired.values()))

    def failure_of(self, switch: str) -> Failure:
        """Return why the switch last failed to confirm."""
        return self._switches[switch].failure

    # -- turns

    @contextlib.contextmanager
    def _turn_at(self, switches: Iterable[str], *, alone: bool) -> Iterator[None]:
        """Wait for a turn at the switches, with others or `alone`; first come, first served."""
        turn = _Turn(alone)
        queues = [self._switches[name].queue for name in frozenset(switches)]
        with self._turns:
            for queue in queues:
                queue.append(turn)
            self._turns.wait_for(lambda: all(_may_go(turn, queue) for queue in queues))
        try:
            yield
        finally:
            with self._turns:
                for queue in queues:
                    queue.remove(turn)
                self._turns.notify_all()

    # -- switches come and go

    def connected(self, switch: str) -> Failure | None:
        """Read what the switch has and send the difference; return None once it has confirmed."""
        self._lost(switch, Failure(Why.TIMEOUT, "its content is not known yet"))
        self._switches[switch].refusing = False
        with self._turn_at([switch], alone=True):
            return self._reconcile([switch]).get(switch)

    def disconnected(self, switch: str) -> None:
        """Note that a switch is gone: its content is now unknown."""
        self._lost(switch, Failure(Why.NOT_CONNECTED))

    def _lost(self, switch: str, failure: Failure) -> None:
        with self._turns:
            state = self._switches[switch]
            state.epoch += 1
            was, state.known = state.known, False
            state.failure, state.failed_at = failure, None
        if was:
            self._on_known(switch, False)

    def retry(self, switches: Iterable[str], *, even_refusing: bool = False) -> dict[str, Failure]:
        """Reconcile the switches whose content is unknown and leave the rest alone; return the
        failures."""
        todo = [
            s
            for s in switches
            if not self._switches[s].known and (even_refusing or not self._switches[s].refusing)
        ]
        if not todo:
            return {}
        with self._turn_at(todo, alone=True):
            return self._reconcile([s for s in todo if not self._switches[s].known])

    # -- changing

    def reset(
        self, base: Mapping[str, Iterable[Entry]], more: Mapping[str, Iterable[Entry]]
    ) -> None:
        """Replace the desired state. The switches' content is now unknown.

        `on_known` is not called.
        """
        with self._turns:
            for name, state in self._switches.items():
                entries = (*base[name], *more.get(name, ()))
                state.desired = {entry.key: entry for entry in entries}
                state.known = state.refusing = False
                state.epoch += 1
                state.failure, state.failed_at = Failure(Why.NOT_CONNECTED), None

    def execute(self, phases: Sequence[Phase], *, may_undo: bool) -> Outcome:
        """Run the phases; all switches of one phase confirm before the next begins, or at the end
        if only `Settle` waits for them.

        If a switch does not answer, the change continues without it (its new desired state is
        kept). If one refuses and `may_undo`, everything is undone in reverse order.
        """
        concerned = {switch for phase in phases for switch in phase}
        done = 0
        try:
            self._reconcile_in_turn(s for s in concerned if self._worth_trying(s))
            for phase in phases:
                done += 1
                with self._turn_at(phase, alone=False):
                    failed = self._send(phase)
                if may_undo and _any_refused(failed):
                    self._undo(phases[:done])
                    return Outcome(failed, undone=True)
            failed = self._settle_known(concerned)
            if may_undo and _any_refused(failed):
                self._undo(phases)
                return Outcome(failed, undone=True)
        except BaseException:
            # Whatever failed, the new state is desired, and the switches' content is unknown.
            with self._turn_at(concerned, alone=False):
                for phase in phases[done:]:
                    for switch, change in phase.items():
                        _apply_to(self._switches[switch].desired, change)
                for switch in concerned:
                    self._set_unknown(switch, Failure(Why.TIMEOUT, "internal error"))
            raise
        return Outcome({s: self._switches[s].failure for s in concerned if not self.known(s)})

    def _worth_trying(self, switch: str) -> bool:
        state = self._switches[switch]
        if state.known:
            return False
        return state.failed_at is None or self._clock() - state.failed_at >= RETRY_S

    def _send(self, phase: Phase) -> dict[str, Failure]:
        messages: dict[str, Sequence[Message]] = {}
        for switch, change in phase.items():
            state = self._switches[switch]
            _apply_to(state.desired, change)
            state.refusing = False
            if state.known:
                todo = messages_of(change)
                if todo:
                    messages[switch] = todo
        return self._confirm(messages)

    def _undo(self, phases: Sequence[Phase]) -> None:
        for phase in reversed(phases):
            with self._turn_at(phase, alone=False):
                self._send({switch: change.inverse for switch, change in phase.items()})
        switches = {switch for phase in phases for switch in phase}
        self._settle_known(switches)
        self._reconcile_in_turn(s for s in switches if not self.known(s))

    def _reconcile_in_turn(self, switches: Iterable[str]) -> None:
        todo = list(switches)
        if todo:
            with self._turn_at(todo, alone=True):
                self._reconcile([s for s in todo if not self.known(s)])

    def _reconcile(self, switches: Iterable[str]) -> dict[str, Failure]:
        todo = list(switches)
        if not todo:
            return {}
        epochs = {switch: self._switches[switch].epoch for switch in todo}
        failures: dict[str, Failure] = {}
        messages: dict[str, Sequence[Message]] = {}
        for switch, held in self._read(todo).items():
            if isinstance(held, Failure):
                failures[switch] = held
                continue
            change = messages_of(delta(held, self._switches[switch].desired.values()))
            if change:
                messages[switch] = change
        failures.update(self._confirm(messages))
        failures.update(self._settle([s for s in todo if s not in failures]))
        for switch in todo:
            if switch in failures:
                self._set_unknown(switch, failures[switch])
            else:
                self._set_known(switch, epochs[switch])
        return failures

    def _confirm(self, messages: Mapping[str, Sequence[Message]]) -> dict[str, Failure]:
        failures = dict(self._apply(messages)) if messages else {}
        for switch, failure in failures.items():
            self._set_unknown(switch, failure)
        return failures

    def _settle_known(self, switches: Iterable[str]) -> dict[str, Failure]:
        failures = dict(self._settle([s for s in switches if self.known(s)]))
        for switch, failure in failures.items():
            self._set_unknown(switch, failure)
        return failures

    def _set_known(self, switch: str, epoch: int) -> None:
        with self._turns:
            state = self._switches[switch]
            if state.epoch != epoch:
                return  # it has disconnected, or reconnected, meanwhile
            was, state.known = state.known, True
            state.refusing = False
        if not was:
            self._on_known(switch, True)

    def _set_unknown(self, switch: str, failure: Failure) -> None:
        with self._turns:
            state = self._switches[switch]
            was, state.known = state.known, False
            state.failure = failure
            state.failed_at = None if failure.why is Why.NOT_CONNECTED else self._clock()
            state.refusing = failure.why is Why.REFUSED
        if was:
            self._on_known(switch, False)


def _any_refused(failures: Mapping[str, Failure]) -> bool:
    return any(failure.why is Why.REFUSED for failure in failures.values())


def _apply_to(desired: dict[object, Entry], change: Delta) -> None:
    for entry in change.removed:
        desired.pop(entry.key, None)
    for entry in change.added:
        desired[entry.key] = entry
