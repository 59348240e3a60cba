# SPDX-License-Identifier: Apache-2.0
"""Reservations for a later time over several domains: in every domain or in none.

The coordinator, in the root's domain, asks every other domain on the way to book its segment; when
all have, it writes its own booking down: that decides. Before, or when its user cancels, a domain's
booking is void: each is told, and each asks the coordinator from time to time whether the
reservation exists (presumed abort, as for paths). A domain that has lost its booking is asked anew.

At the start every domain installs what it has booked by its own clock. The coordinator then adopts
the tree as decided, and the segments are those of any path (`Coordinator.verify`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from controller.federation.coordinator import MAX_ATTEMPTS
from controller.federation.local import algorithm_of, is_at_hand_off, problem_of
from controller.federation.peers import NoReply
from controller.federation.trees import Domains, Refusal, Tree, grown, segments_of
from controller.federation.values import (
    AskBooking,
    Book,
    BookingRequest,
    Connection,
    Done,
    Problem,
    Refused,
    Reply,
    Request,
    Segment,
    Unbook,
    Unknown,
)
from controller.paths.calendar import Booking
from controller.paths.core import EndpointKey
from controller.service.problems import ServiceError, name_in_use
from controller.service.views import PathView, PathWish

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class BookedTree:
    """What the coordinator has booked for a path, in all domains."""

    path: str
    version: int
    tree: Tree
    start_s: float
    end_s: float
    adopted: bool = False  # the path has begun, and its tree is the coordinator's


@dataclass(frozen=True)
class BookedHere:
    """A domain's note of what it has booked for a coordinator."""

    connection: Connection
    version: int


class BookingStore(Protocol):
    """Keeps both; each call is on disk when it returns, and raises ServiceError."""

    def booked_trees(self) -> list[BookedTree]:
        """Return the coordinator's."""

    def save_booked_tree(self, booked: BookedTree) -> None:
        """Keep a tree."""

    def forget_booked_tree(self, path: str) -> None:
        """Forget a path's tree."""

    def booked_here(self) -> list[BookedHere]:
        """Return the notes of this domain's part in others' reservations."""

    def save_booked_here(self, note: BookedHere) -> None:
        """Keep a note."""

    def forget_booked_here(self, connection: Connection) -> None:
        """Forget a note."""


class OwnBookings(Protocol):
    """The part of the domain's own path service that is needed here."""

    def bookings(self) -> list[Booking]:
        """Return what is reserved for later."""

    def book(self, wish: PathWish, start_s: float) -> tuple[Booking, bool]:
        """Reserve a path for later."""

    def cancel(self, name: str) -> None:
        """Give up a reservation."""

    def path(self, name: str) -> PathView:
        """Return a path."""

    def delete(self, name: str) -> None:
        """Delete a path."""

    def owner_of(self, key: EndpointKey) -> str | None:
        """Return the path that has an endpoint."""


class FederatedBookings:
    """Both halves of a domain. Thread-safe.

    `exchange` raises NoReply. `check` raises Refusal for a segment that does not begin at a
    hand-off. `adopt` makes a tree the decided one of a path that has begun. `is_adopted` tells
    whether this domain has the connection's segment as that of a path.
    """

    def __init__(
        self,
        domains: Domains,
        home: str,
        own: OwnBookings,
        store: BookingStore,
        exchange: Callable[[str, Request], Reply],
    ) -> None:
        self._domains = domains
        self._home = home
        self._own = own
        self._store = store
        self._exchange = exchange
        self._lock = threading.Lock()  # of the coordinator's half
        self._trees: dict[str, BookedTree] = {}
        self._trying: set[str] = set()
        self._told: set[tuple[str, str]] = set()

    def load(self) -> None:
        """Read the store; called when the controller becomes active."""
        self._trees = {booked.path: booked for booked in self._store.booked_trees()}

    def tree(self, name: str) -> BookedTree | None:
        """Return the tree that is, or was until it began, booked for a path."""
        return self._trees.get(name)

    # -- the coordinator

    def seen(self, booking: Booking) -> Booking:
        """Return a booking with its leaves in all domains."""
        booked = self._trees.get(booking.name)
        if booked is None:
            return booking
        near = (x for x in booking.path.leaves if not is_at_hand_off(self._domains, x))
        leaves = (*near, *booked.tree.all_leaves)
        return replace(booking, path=replace(booking.path, leaves=leaves))

    def book(self, wish: PathWish, start_s: float) -> tuple[Booking, bool]:
        """Book a path with leaves in other domains; return whether it is new.

        Raises ServiceError, and then no domain has booked anything that stays.
        """
        with_macs = self._domains.with_macs
        leaves = tuple(with_macs(leaf) for leaf in wish.leaves)
        wish = replace(wish, root=with_macs(wish.root), leaves=leaves)
        with self._lock:
            known = self._find(wish.name)
            if known is not None:
                _check_same(self.seen(known), wish, start_s)
                return self.seen(known), False
            self._trying.add(wish.name)
            try:
                return self.seen(self._book(wish, start_s)), True
            finally:
                self._trying.discard(wish.name)

    def _book(self, wish: PathWish, start_s: float) -> Booking:
        taken: dict[str, set[int]] = {}
        problem: Problem | None = None
        asked: dict[str, int] = {}
        try:
            for _ in range(MAX_ATTEMPTS):
                tree = self._tree_of(wish, taken)
                booked = BookedTree(
                    wish.name, int(time.time() * 1000), tree, start_s, wish.end_time or start_s
                )
                refused = self._ask_all(booked, asked)
                if refused is None:
                    return self._decide(booked, wish)
                problem = refused.problem
                if not refused.taken:
                    break
                for link, vlans in refused.taken.items():
                    taken.setdefault(link, set()).update(vlans)
        except Refusal as refusal:
            problem = refusal.problem
        except BaseException:
            self._unbook(wish.name, asked)
            raise
        self._unbook(wish.name, asked)
        assert problem is not None
        raise ServiceError(problem.status, problem.kind, problem.title, problem.detail)

    def _tree_of(self, wish: PathWish, taken: Mapping[str, set[int]]) -> Tree:
        """Return the tree of domains of a wish. Raises Refusal."""
        tree = Tree(wish.root, wish.rate_bps, wish.algorithm.value)
        for leaf in wish.leaves:
            if self._domains.domain_of[leaf.switch] != self._home:
                tree = grown(self._domains, tree, leaf, taken)
        return tree

    def _ask_all(self, booked: BookedTree, asked: dict[str, int]) -> Refused | None:
        """Ask every other domain; return the first refusal. `asked`: who may have booked."""
        segments = segments_of(self._domains, booked.tree)
        own = self._taken(booked.path, segments[self._home])
        if own:
            return Refused(_vlan_in_use(own), own)
        for domain in booked.tree.entries:
            asked[domain] = booked.version
            try:
                reply = self._exchange(domain, self._request(booked, segments[domain]))
            except NoReply as error:
                detail = f"domain '{domain}' did not answer: {error}; nothing is reserved"
                title = "A domain did not answer in time"
                return Refused(Problem(504, "domain-timeout", title, detail))
            if isinstance(reply, Refused):
                detail = f"domain '{domain}': {reply.problem.detail}"
                return replace(reply, problem=replace(reply.problem, detail=detail))
            if not isinstance(reply, Done):
                title = "A domain's answer makes no sense"
                return Refused(Problem(502, "bad-peer", title, f"domain '{domain}'"))
        return None

    def _request(self, booked: BookedTree, segment: Segment) -> Book:
        connection = Connection(self._home, booked.path)
        return Book(connection, booked.version, segment, booked.start_s, booked.end_s)

    def _decide(self, booked: BookedTree, wish: PathWish) -> Booking:
        """Write the tree, then the own booking, which decides. Raises ServiceError."""
        hand_offs = segments_of(self._domains, booked.tree)[self._home].leaves
        near = (x for x in wish.leaves if self._domains.domain_of[x.switch] == self._home)
        self._store.save_booked_tree(booked)
        self._trees[booked.path] = booked
        try:
            whole = replace(wish, leaves=(*near, *hand_offs))
            return self._own.book(whole, booked.start_s)[0]
        except BaseException:
            self._trees.pop(booked.path, None)
            self._store.forget_booked_tree(booked.path)
            raise

    def cancel(self, name: str) -> None:
        """Give up a reservation in all domains. Raises ServiceError 404, 503, 507."""
        with self._lock:
            self._own.cancel(name)
            self._end(name)

    def _end(self, name: str) -> None:
        booked = self._trees.pop(name, None)
        if booked is not None:
            self._store.forget_booked_tree(name)
            self._unbook(name, dict.fromkeys(booked.tree.entries, booked.version))

    def _unbook(self, name: str, asked: Mapping[str, int]) -> None:
        """Tell domains; one that does not answer asks by itself."""
        for domain, version in asked.items():
            try:
                self._exchange(domain, Unbook(Connection(self._home, name), version))
            except NoReply as error:
                LOG.warning("path=%s domain=%s: not told to unbook: %s", name, domain, error)

    def begin(self, adopt: Callable[[str, Tree], None]) -> None:
        """Adopt trees whose path has begun, and forget those whose path has ended."""
        if not self._trees or not self._lock.acquire(blocking=False):
            return
        try:
            for name, booked in list(self._trees.items()):
                if self._find(name) is not None:
                    continue
                if self._path(name) is None:
                    self._end(name)
                elif not booked.adopted:
                    adopt(name, booked.tree)
                    self._trees[name] = replace(booked, adopted=True)
                    self._store.save_booked_tree(self._trees[name])
        finally:
            self._lock.release()

    # -- a domain on the way

    def handle(self, request: BookingRequest, check: Callable[[Book], None]) -> Reply:
        """Answer a peer that may ask this."""
        if isinstance(request, AskBooking):
            name = request.connection.path
            return Done() if name in self._trees or name in self._trying else Unknown()
        try:
            if isinstance(request, Unbook):
                return self._give_up(request.connection, request.version)
            check(request)
            return self._book_here(request)
        except Refusal as refusal:
            return Refused(refusal.problem)
        except ServiceError as error:
            return Refused(problem_of(error))

    def _book_here(self, request: Book) -> Reply:
        name, segment = str(request.connection), request.segment
        known = self._find(name)
        if known is not None:
            path = known.path
            found = Segment(
                path.root, path.rate_bps, tuple(sorted(path.leaves)), path.algorithm.value
            )
            if (found, known.start_s, known.end_s) == (segment, request.start_s, request.end_s):
                return Done()
            self._own.cancel(name)
        taken = self._taken(name, segment)
        if taken:
            return Refused(_vlan_in_use(taken), taken)
        wish = PathWish(
            name=name,
            root=segment.root,
            rate_bps=segment.rate_bps,
            workgroup=request.connection.coordinator,
            algorithm=algorithm_of(segment.algorithm),
            end_time=request.end_s,
            leaves=segment.leaves,
        )
        # Noted before: should this controller die now, the booking is still asked about.
        self._store.save_booked_here(BookedHere(request.connection, request.version))
        self._own.book(wish, request.start_s)
        return Done()

    def _give_up(self, connection: Connection, version: int) -> Reply:
        """Void a booking, and what began by it."""
        name = str(connection)
        note = next((n for n in self._store.booked_here() if n.connection == connection), None)
        if note is None or note.version > version:
            return Done()
        if self._find(name) is not None:
            self._own.cancel(name)
        if self._path(name) is not None:
            self._own.delete(name)
        self._store.forget_booked_here(connection)
        LOG.info("connection=%s action=unbooked", connection)
        return Done()

    def _taken(self, name: str, segment: Segment) -> dict[str, tuple[int, ...]]:
        """Return, by hand-off link whose VLAN id is not free here, all ids that are not."""
        booked = {
            endpoint.key
            for booking in self._own.bookings()
            if booking.name != name
            for endpoint in booking.path.endpoints
        }
        result: dict[str, tuple[int, ...]] = {}
        for endpoint in segment.endpoints:
            hand_off = self._domains.hand_off_at(endpoint.switch, endpoint.port)
            if hand_off is None:
                continue
            low, high = hand_off.vlan_range
            keys = [(endpoint.switch, endpoint.port, vlan) for vlan in range(low, high + 1)]
            used = [
                key[2]
                for key in keys
                if key in booked or self._own.owner_of(key) not in (None, name)
            ]
            if endpoint.vlan in used:
                result[hand_off.link] = tuple(used)
        return result

    # -- from time to time

    def audit(self, is_adopted: Callable[[Connection], bool]) -> None:
        """Ask other domains anew for what they should have booked, and coordinators for what is
        booked here."""
        for booked in list(self._trees.values()):
            if self._find(booked.path) is not None:
                self._repair(booked)
        for note in self._store.booked_here():
            name = str(note.connection)
            gone = self._find(name) is None and self._path(name) is None
            if gone or is_adopted(note.connection):
                self._store.forget_booked_here(note.connection)
                continue
            asked = AskBooking(note.connection, note.version)
            try:
                reply = self._exchange(note.connection.coordinator, asked)
            except NoReply:
                continue  # it is waited for
            if isinstance(reply, Unknown):
                self._give_up(note.connection, note.version)

    def _repair(self, booked: BookedTree) -> None:
        segments = segments_of(self._domains, booked.tree)
        for domain in booked.tree.entries:
            try:
                reply = self._exchange(domain, self._request(booked, segments[domain]))
            except NoReply:
                continue
            key = (booked.path, domain)
            if isinstance(reply, Refused) and key not in self._told:
                self._told.add(key)
                LOG.error("path=%s domain=%s: lost: %s", *key, reply.problem.detail)

    # -- inside

    def _find(self, name: str) -> Booking | None:
        return next((b for b in self._own.bookings() if b.name == name), None)

    def _path(self, name: str) -> PathView | None:
        try:
            return self._own.path(name)
        except ServiceError:
            return None


def _vlan_in_use(taken: Mapping[str, object]) -> Problem:
    links = ", ".join(f"'{link}'" for link in taken)
    detail = f"the VLAN id asked for on hand-off link {links} is in use"
    return Problem(409, "vlan-in-use", "VLAN id in use", detail)


def _check_same(known: Booking, wish: PathWish, start_s: float) -> None:
    differences = wish.differences(known.path)
    if {leaf.key for leaf in wish.leaves} != {leaf.key for leaf in known.path.leaves}:
        differences += f"{', ' if differences else ''}other leaves"
    if start_s != known.start_s:
        differences += f"{', ' if differences else ''}start_time {known.start_s:.3f}"
    if differences:
        detail = f"path '{known.name}' is reserved with {differences}"
        raise ServiceError(409, "path-exists", "Path is reserved", detail).only_for(
            known.path.workgroup, name_in_use(known.name)
        )
