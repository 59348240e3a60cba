# SPDX-License-Identifier: Apache-2.0
"""The path service: which paths exist, and what each switch is known to hold.

No framework, no socket: messages leave through the injected `apply`. Requests are idempotent.
Desired state is kept whatever the switches say; a switch whose content is not confirmed makes
its paths "degraded" and is brought to the desired state when it (re)connects or on the next
retry.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from controller.books import Books
from controller.core import (
    Conflict,
    Core,
    Endpoint,
    EndpointKey,
    InvalidEndpoint,
    NoCapacity,
    NoVlanLeft,
    PlanError,
    Unreachable,
    core_of,
)
from controller.entries import Entries, Entry
from controller.forwarding import base_entries
from controller.messages import Delta, Message, changes, resync
from controller.paths import Edge, Path, edges_of
from controller.plan import Step, add_leaf, create_path, delete_path, remove_leaf
from topologies.model import Network

LOG = logging.getLogger(__name__)


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


# Sends each switch its messages, waits until all confirmed (or a time limit), and returns the
# failures; a switch that is not in the result has confirmed everything.
Apply = Callable[[Mapping[str, Sequence[Message]]], Mapping[str, Failure]]


class ServiceError(Exception):
    """A request that was not done, as RFC 9457 describes problems."""

    def __init__(self, status: int, kind: str, title: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.title = title
        self.detail = detail


# Most specific first.
_PLAN_ERRORS: tuple[tuple[type[PlanError], int, str, str], ...] = (
    (NoCapacity, 409, "no-capacity", "Not enough capacity"),
    (NoVlanLeft, 409, "no-vlan-left", "No VLAN id left"),
    (Conflict, 409, "endpoint-in-use", "Endpoint in use"),
    (Unreachable, 422, "unreachable", "Endpoint cannot be reached"),
    (InvalidEndpoint, 422, "invalid-endpoint", "Invalid endpoint"),
)


def _problem(error: PlanError) -> ServiceError:
    for kind_of_error, status, kind, title in _PLAN_ERRORS:
        if isinstance(error, kind_of_error):
            return ServiceError(status, kind, title, str(error))
    return ServiceError(422, "invalid", "Invalid request", str(error))


@dataclass(frozen=True)
class PathView:
    """A path as the REST interface shows it."""

    path: Path
    up: bool
    edges: tuple[Edge, ...]
    group_switches: tuple[str, ...]


class PathService:
    """Thread-safe. Changes run one after the other; reads never wait for switches."""

    def __init__(self, network: Network, domain: str, apply: Apply) -> None:
        """Raises UnknownDomain."""
        self.core: Core = core_of(network, domain)
        self._apply = apply
        self._lock = threading.Lock()  # one change at a time
        self._books = Books(self.core)
        self._paths: dict[str, Path] = {}  # replaced, never modified: read without the lock
        self._desired: dict[str, dict[object, Entry]] = {
            switch: {entry.key: entry for entry in entries}
            for switch, entries in base_entries(self.core).items()
        }
        # What each switch confirmed; None = unknown (never connected, gone, or not confirmed).
        self._installed: dict[str, Entries | None] = dict.fromkeys(self.core.dpids)
        self._refusing: set[str] = set()  # not tried again until they reconnect or a change

    # -- reading

    def switches(self) -> dict[str, bool]:
        """Switch -> connected and holding what it shall."""
        return {switch: self._installed[switch] is not None for switch in sorted(self._installed)}

    def paths(self) -> list[PathView]:
        return [self._view(path) for path in self._paths.values()]

    def path(self, name: str) -> PathView:
        return self._view(self._existing(name))

    # -- changing

    def create(self, name: str, root: Endpoint, rate_bps: int) -> tuple[PathView, bool]:
        """Returns the path and whether it is new. Raises ServiceError 409, 422, 502, 504."""
        with self._lock:
            root = self.core.with_registered_macs(root)
            old = self._paths.get(name)
            if old is not None:
                if (old.root, old.rate_bps) != (root, rate_bps):
                    raise ServiceError(
                        409,
                        "path-exists",
                        "Path exists",
                        f"path '{name}' exists with root {old.root} (MACs "
                        f"{', '.join(old.root.macs) or 'any'}) and {old.rate_bps} bit/s",
                    )
                self._repair(old)
                return self._view(old), False
            try:
                path = Path(name, self._books.next_number(), root, rate_bps)
                step = create_path(self.core, self._books, path)
            except PlanError as error:
                raise _problem(error) from error
            self._commit(step)
            return self._view(path), True

    def add_leaf(self, name: str, leaf: Endpoint) -> tuple[PathView, bool]:
        """Returns the path and whether the leaf is new. Raises ServiceError 404, 409, 422, 502,
        504."""
        with self._lock:
            old = self._existing(name)
            leaf = self.core.with_registered_macs(leaf)
            for known in old.leaves:
                if known.key == leaf.key:
                    if known.macs != leaf.macs:
                        raise ServiceError(
                            409,
                            "leaf-exists",
                            "Leaf exists",
                            f"leaf {known} of path '{name}' exists with MACs "
                            f"{', '.join(known.macs) or 'any'}",
                        )
                    self._repair(old)
                    return self._view(old), False
            try:
                step = add_leaf(self.core, self._books, old, leaf)
            except PlanError as error:
                raise _problem(error) from error
            self._commit(step)
            return self._view(self._paths[name]), True

    def remove_leaf(self, name: str, key: EndpointKey) -> PathView:
        """Raises ServiceError 404, 502, 504."""
        with self._lock:
            old = self._existing(name)
            if all(leaf.key != key for leaf in old.leaves):
                raise ServiceError(
                    404,
                    "unknown-leaf",
                    "Unknown leaf",
                    f"path '{name}' has no leaf {key[0]}:{key[1]}:{key[2]}; its leaves: "
                    f"{', '.join(map(str, old.leaves)) or 'none'}",
                )
            self._commit(remove_leaf(self.core, self._books, old, key))
            return self._view(self._paths[name])

    def delete(self, name: str) -> None:
        """Raises ServiceError 404; 502, 504 if a switch did not confirm (the path is forgotten
        all the same, and the switch is cleaned when it is back)."""
        with self._lock:
            self._commit(delete_path(self.core, self._books, self._existing(name)))

    # -- switches come and go

    def switch_up(self, switch: str) -> None:
        """A switch connected: whatever it holds of ours goes, what it shall hold is installed."""
        with self._lock:
            self._installed[switch] = None
            failures = self._sync([switch])
        if switch in failures:
            LOG.warning("switch '%s' connected: %s", switch, failures[switch])
        else:
            LOG.info("switch '%s' is ready", switch)

    def switch_down(self, switch: str) -> None:
        with self._lock:
            self._installed[switch] = None
        LOG.warning("switch '%s' disconnected", switch)

    def retry(self, connected: Iterable[str]) -> None:
        """Brings connected switches to the desired state whose content is unknown."""
        with self._lock:
            todo = [s for s in connected if self._installed[s] is None and s not in self._refusing]
            for switch, failure in self._sync(todo).items():
                LOG.warning("switch '%s' still not in the desired state: %s", switch, failure)

    # -- inside

    def _existing(self, name: str) -> Path:
        path = self._paths.get(name)
        if path is None:
            known = ", ".join(f"'{known}'" for known in self._paths)
            raise ServiceError(
                404,
                "unknown-path",
                "Unknown path",
                f"there is no path '{name}'; existing: {known or 'none'}",
            )
        return path

    def _view(self, path: Path) -> PathView:
        edges = edges_of(self.core, path)
        switches = {path.root.switch, *(edge.target for edge in edges)}
        groups = {edge.source for edge in edges}
        groups |= {leaf.switch for leaf in path.leaves if leaf.switch in switches}
        up = all(self._installed[switch] is not None for switch in switches)
        return PathView(path, up, edges, tuple(sorted(groups)))

    def _commit(self, step: Step) -> None:
        """Makes the step's outcome the desired state and brings the switches there.

        What a switch refuses is undone; what a switch does not answer to stays desired.
        """
        step.apply(self._books)
        self._publish(step.old, step.new)
        started = time.monotonic()
        failures = self._run(step.phases)
        LOG.info(
            "%s: %s after %.1f ms",
            step.what,
            "confirmed" if not failures else "NOT confirmed",
            (time.monotonic() - started) * 1000,
        )
        if step.new is not None and _refused(failures):
            self._books.replace(step.new, step.old)
            if step.old is None:
                self._books.release_number(step.new.number)
            self._publish(step.new, step.old)
            undone = self._run(step.undoing)
            LOG.info("%s: undone%s", step.what, "" if not undone else ", NOT confirmed")
        elif step.new is None and step.old is not None and not failures:
            self._books.release_number(step.old.number)
        self._raise_unconfirmed(step.what, failures)

    def _publish(self, old: Path | None, new: Path | None) -> None:
        if new is not None:
            self._paths = {**self._paths, new.name: new}
        elif old is not None:
            self._paths = {name: p for name, p in self._paths.items() if name != old.name}

    def _run(self, phases: Sequence[Mapping[str, Delta]]) -> Mapping[str, Failure]:
        failures: dict[str, Failure] = {}
        for phase in phases:
            for switch, delta in phase.items():
                entries = self._desired[switch]
                for entry in delta.removed:
                    del entries[entry.key]
                for entry in delta.added:
                    entries[entry.key] = entry
            failures.update(self._sync(sorted(phase)))
        return failures

    def _repair(self, path: Path) -> None:
        """For a repeated request: switches of the path that are in an unknown state, once more."""
        switches = {path.root.switch, *(edge.target for edge in edges_of(self.core, path))}
        todo = [s for s in sorted(switches) if self._installed[s] is None]
        self._raise_unconfirmed(f"path '{path.name}' exists", self._sync(todo))

    def _sync(self, switches: Iterable[str]) -> Mapping[str, Failure]:
        todo: dict[str, Sequence[Message]] = {}
        target: dict[str, Entries] = {}
        for switch in switches:
            installed = self._installed[switch]
            desired = frozenset(self._desired[switch].values())
            if installed != desired:
                target[switch] = desired
                todo[switch] = resync(desired) if installed is None else changes(installed, desired)
        failures = self._apply(todo) if todo else {}
        for switch, desired in target.items():
            self._installed[switch] = None if switch in failures else desired
            self._refusing.discard(switch)
        self._refusing.update(s for s, f in failures.items() if f.why is Why.REFUSED)
        return failures

    def _raise_unconfirmed(self, what: str, failures: Mapping[str, Failure]) -> None:
        if not failures:
            return
        text = "; ".join(f"switch '{s}' {failure}" for s, failure in sorted(failures.items()))
        if _refused(failures):
            detail = f"not done: {what}: {text}"
            LOG.error("%s", detail)
            raise ServiceError(502, "refused", "A switch refused the change", detail)
        detail = f"{what}, but not confirmed: {text}"
        LOG.error("%s", detail)
        raise ServiceError(504, "unconfirmed", "The switches did not confirm in time", detail)


def _refused(failures: Mapping[str, Failure]) -> bool:
    return any(failure.why is Why.REFUSED for failure in failures.values())
