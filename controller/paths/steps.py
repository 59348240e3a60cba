# SPDX-License-Identifier: Apache-2.0
"""A change of one path as values: what each switch gets, phase by phase. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from controller.paths.entries import Entry, Flow, Group, ToGroup
from controller.paths.messages import Delta
from controller.paths.multipoint_path import MultipointPath
from controller.paths.reservations import Ledger, Reservations


@dataclass(frozen=True)
class Step:
    """A change of one path. `old` None: the path is new; `new` None: it is deleted."""

    what: str
    old: MultipointPath | None
    new: MultipointPath | None
    phases: tuple[Mapping[str, Delta], ...]
    ledger: Ledger | None = field(default=None, repr=False, compare=False)
    version: int = field(default=-1, repr=False, compare=False)

    @property
    def switches(self) -> frozenset[str]:
        """Return the switches that get messages."""
        return frozenset(switch for phase in self.phases for switch in phase)

    @property
    def undoing(self) -> tuple[Mapping[str, Delta], ...]:
        """Return the phases that undo the step at the switches."""
        return tuple(
            {switch: delta.inverse for switch, delta in phase.items()}
            for phase in reversed(self.phases)
        )

    def apply(self, reservations: Reservations) -> None:
        """Reserve what the step needs.

        Raises ValueError if the reservations have changed since the step was planned.
        (`reservations.replace(step.new, step.old)` undoes it.)
        """
        if self.version != reservations.version:
            raise ValueError(f"the reservations have changed since this was planned: {self.what}")
        if self.ledger is not None:
            reservations.commit(self.ledger)
        else:
            reservations.replace(self.old, self.new)


class Draft:
    """Entries that are removed and added, by phase. An entry that is removed and added
    unchanged is no change."""

    def __init__(self, phases: int) -> None:
        self._phases: list[dict[str, dict[object, tuple[Entry | None, Entry | None]]]] = [
            {} for _ in range(phases)
        ]

    def remove(self, phase: int, switch: str, entries: Iterable[Entry]) -> None:
        """Remove entries in a phase."""
        slots = self._phases[phase].setdefault(switch, {})
        for entry in entries:
            slots[entry.key] = (slots.get(entry.key, (entry, None))[0], None)

    def add(self, phase: int, switch: str, entries: Iterable[Entry]) -> None:
        """Add entries in a phase."""
        slots = self._phases[phase].setdefault(switch, {})
        for entry in entries:
            slots[entry.key] = (slots.get(entry.key, (None, None))[0], entry)

    def _keep_with_groups(self) -> None:
        """Add flows that use a group in the group's phase or later, and remove them in its phase or
        earlier: a switch refuses a flow to a group that it does not have."""
        for switch in {switch for phase in self._phases for switch in phase}:
            for index, phase in enumerate(self._phases):
                for old, new in list(phase.get(switch, {}).values()):
                    if old is None and isinstance(new, Group):
                        for earlier in range(index):
                            self._move(switch, earlier, index, partial(_begins_use, new.number))
                    elif isinstance(old, Group) and new is None:
                        for later in range(index + 1, len(self._phases)):
                            self._move(switch, later, index, partial(_ends_use, old.number))

    def _move(
        self,
        switch: str,
        source: int,
        target: int,
        which: Callable[[Entry | None, Entry | None], bool],
    ) -> None:
        slots = self._phases[source].get(switch, {})
        into = self._phases[target].setdefault(switch, {})
        for key, (old, new) in list(slots.items()):
            if which(old, new):
                del slots[key]
                there = into.get(key)
                if there is not None:  # the earlier phase's old, the later one's new
                    old, new = (old, there[1]) if source < target else (there[0], new)
                into[key] = (old, new)

    def phases(self) -> tuple[Mapping[str, Delta], ...]:
        """Return the phases that change anything."""
        self._keep_with_groups()
        result = []
        for slots_of in self._phases:
            phase: dict[str, Delta] = {}
            for switch, slots in slots_of.items():
                changed = [(old, new) for old, new in slots.values() if old != new]
                if changed:
                    phase[switch] = Delta(
                        tuple(old for old, _ in changed if old is not None),
                        tuple(new for _, new in changed if new is not None),
                    )
            if phase:
                result.append(phase)
        return tuple(result)


def groups_of(entry: Entry | None) -> Iterator[int]:
    """Return the groups that a flow sends its frames to; none for other entries."""
    if isinstance(entry, Flow):
        yield from (action.group for action in entry.actions if isinstance(action, ToGroup))


def _begins_use(group: int, _old: Entry | None, new: Entry | None) -> bool:
    return group in groups_of(new)


def _ends_use(group: int, old: Entry | None, new: Entry | None) -> bool:
    return new is None and group in groups_of(old)
