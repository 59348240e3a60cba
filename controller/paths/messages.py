# SPDX-License-Identifier: Apache-2.0
"""Descriptions of OpenFlow messages, and the order in which a switch gets them. Pure.

A message is described by a small value, which `openflow.py` turns into the framework's object.
`delta` compares what a switch has with what it should have; `messages_of` turns that into messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from controller.paths.entries import (
    COOKIE_BASE,
    COOKIE_MASK,
    Entry,
    Flow,
    Group,
    Meter,
)
from controller.paths.replies import Multipart


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
    """Delete all flows with a cookie of this controller's."""

    cookie: int = COOKIE_BASE
    mask: int = COOKIE_MASK


@dataclass(frozen=True)
class Barrier:
    """The switch answers when it has processed all earlier messages."""


@dataclass(frozen=True)
class Request:
    """A multipart request: all flows of this controller, all groups, meters, or ports."""

    kind: Multipart


class Role(StrEnum):
    """Roles of a controller at a switch (OpenFlow 1.3.5, 6.3.6)."""

    EQUAL = "equal"
    MASTER = "master"
    SLAVE = "slave"


@dataclass(frozen=True)
class RoleRequest:
    """A request for a role. `generation` orders the masters; a switch refuses an older
    generation."""

    role: Role
    generation: int


@dataclass(frozen=True)
class PacketOut:
    """Send a frame out of a port."""

    port: int
    frame: bytes


Message = Change | DeleteOwnedFlows | Barrier | Request | RoleRequest | PacketOut

# A flow's meter and group must exist before the flow, and are deleted after it: a switch refuses a
# flow_mod that names a missing one, and deleting a group would delete the flows that name it. A
# barrier separates the phases, since a switch may reorder messages (OpenFlow 1.3.5, 6.2).
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


@dataclass(frozen=True)
class Delta:
    """What changes on one switch.

    An entry whose key is in both is modified: what `added` holds replaces it.
    """

    removed: tuple[Entry, ...] = ()
    added: tuple[Entry, ...] = ()

    @property
    def inverse(self) -> Delta:
        """Return the reverse change."""
        return Delta(self.added, self.removed)


def delta(held: Iterable[Entry], desired: Iterable[Entry]) -> Delta:
    """Return the change from `held` to `desired`, without equal entries."""
    old, new = frozenset(held), frozenset(desired)
    return Delta(tuple(old - new), tuple(new - old))


def messages_of(change: Delta) -> tuple[Message, ...]:
    """Return the messages of a delta, in ORDER, with a barrier after each phase.

    Empty if nothing changes.
    """
    old = {entry.key: entry for entry in change.removed}
    new = {entry.key: entry for entry in change.added}
    todo = [Change(Command.DELETE, entry) for key, entry in old.items() if key not in new]
    for key, entry in new.items():
        if key not in old:
            todo.append(Change(Command.ADD, entry))
        elif entry != old[key]:
            todo.append(Change(_replacing(old[key], entry), entry))
    return _in_order(todo)


def _replacing(old: Entry, new: Entry) -> Command:
    """Return how to replace a flow. A flow_mod that modifies leaves the cookie as it is; one that
    adds replaces the whole flow with that match and priority (OpenFlow 1.3.5, 6.4), counters
    included."""
    if isinstance(old, Flow) and isinstance(new, Flow) and old.cookie != new.cookie:
        return Command.ADD
    return Command.MODIFY


def _place(change: Change) -> tuple[int, str]:
    """Return the sort key: add a flow after, and delete it before, flows that take its frames."""
    entry = change.entry
    priority = entry.priority if isinstance(entry, Flow) else 0
    return priority if change.command is Command.DELETE else -priority, repr(entry.key)


def _in_order(todo: Iterable[Change]) -> tuple[Message, ...]:
    todo = sorted(todo, key=_place)
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
