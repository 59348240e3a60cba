# SPDX-License-Identifier: Apache-2.0
"""Descriptions of OpenFlow messages, and the order in which a switch gets them. Pure.

A message is described by a small value; `openflow.py` turns it into the framework's object.
`changes` compares what a switch has with what it shall have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from controller.entries import COOKIE_BASE, COOKIE_MASK, Entries, Entry, Flow, Group, Meter


class Command(StrEnum):
    ADD = "add"
    MODIFY = "modify"
    DELETE = "delete"


@dataclass(frozen=True)
class Change:
    """One flow_mod (strict), group_mod or meter_mod."""

    command: Command
    entry: Entry


@dataclass(frozen=True)
class DeleteOwnedFlows:
    """All flows whose cookie is ours."""

    cookie: int = COOKIE_BASE
    mask: int = COOKIE_MASK


@dataclass(frozen=True)
class DeleteAllGroups:
    """The switches of the domain are the controller's alone, so are their groups and meters
    (which, unlike flows, have no cookie)."""


@dataclass(frozen=True)
class DeleteAllMeters:
    pass


@dataclass(frozen=True)
class Barrier:
    """The switch answers when it has processed all that came before."""


Message = Change | DeleteOwnedFlows | DeleteAllGroups | DeleteAllMeters | Barrier

# What a flow uses exists before the flow and is deleted after it: a flow_mod that names a missing
# meter or group is refused, and deleting a group would delete the flows that name it. A barrier
# stands between the phases because a switch may reorder messages otherwise (OpenFlow 1.3.5, 6.2).
ORDER: tuple[tuple[tuple[Command, type[Entry]], ...], ...] = (
    (
        (Command.ADD, Meter),
        (Command.MODIFY, Meter),
        (Command.ADD, Group),
        (Command.MODIFY, Group),
    ),
    (
        (Command.DELETE, Flow),
        (Command.ADD, Flow),
        (Command.MODIFY, Flow),
    ),
    (
        (Command.DELETE, Group),
        (Command.DELETE, Meter),
    ),
)


def changes(installed: Entries, desired: Entries) -> tuple[Message, ...]:
    """Messages that turn `installed` into `desired`, in ORDER, each phase closed by a barrier.

    Empty if nothing differs. Entries that are equal are not touched.
    """
    old = {entry.key: entry for entry in installed}
    new = {entry.key: entry for entry in desired}
    todo = [
        *(Change(Command.DELETE, old[key]) for key in old.keys() - new.keys()),
        *(Change(Command.ADD, new[key]) for key in new.keys() - old.keys()),
        *(
            Change(Command.MODIFY, new[key])
            for key in new.keys() & old.keys()
            if new[key] != old[key]
        ),
    ]
    return _in_order(todo)


def resync(desired: Entries) -> tuple[Message, ...]:
    """Messages that bring a switch of unknown content to `desired`."""
    return (
        DeleteOwnedFlows(),
        Barrier(),
        DeleteAllGroups(),
        DeleteAllMeters(),
        Barrier(),
        *changes(frozenset(), desired),
    )


def _in_order(todo: Iterable[Change]) -> tuple[Message, ...]:
    todo = sorted(todo, key=lambda change: repr(change.entry.key))
    result: list[Message] = []
    for phase in ORDER:
        messages = [
            change
            for command, kind in phase
            for change in todo
            if change.command is command and type(change.entry) is kind
        ]
        if messages:
            result += [*messages, Barrier()]
    return tuple(result)
