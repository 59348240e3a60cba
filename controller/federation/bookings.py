# SPDX-License-Identifier: Apache-2.0
"""Reservations for a later time over several domains: in every domain or in none.

The coordinator, in the root's domain, asks every other domain on the way to book its segment. When
all have done so, it writes its own booking, which is the decision. Before the decision, or after a
user cancels, the other bookings are void. The coordinator tells each domain so, and each domain
asks it from time to time whether the reservation exists (presumed abort, as for paths). The
coordinator asks a domain that lost its booking to book again.

At the start time, by its own clock, every domain installs what it has booked. The coordinator then
adopts the tree as decided. From then on its segments are like those of any path
(`Coordinator.verify`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from common.counting import counted
from controller.federation.coordinator import MAX_ATTEMPTS
from controller.federation.local import algorithm_of, is_at_hand_off, problem_of, segment_of
from controller.federation.participant import stale
from controller.federation.peers import NoReply
from controller.federation.trees import Domains, Refusal, Tree, grown, segments_of
from controller.federation.values import (
    AskBooking,
    Book,
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
from controller.paths.core import Endpoint, EndpointKey
from controller.service.booking_requests import check_same
from controller.service.problems import ServiceError
from controller.service.views import PathView, PathWish

LOG = logging.getLogger(__name__)
MOST_OF_A_DOMAIN = 250  # reservations of one coordinator here; all together have 1000


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
    """Keeps trees and notes. Each call is on disk when it returns, and raises ServiceError."""

    def booked_trees(self) -> list[BookedTree]:
        """Return the coordinator's trees."""

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
    """The part of the domain's own path service that this module needs."""

    def bookings(self) -> list[Booking]:
        """Return what is reserved for later."""

    def booking(self, name: str) -> Booking:
        """Return the reservation of a path. Raises ServiceError 404."""

    def book(self, wish: PathWish, start_s: float, most: int = ...) -> tuple[Booking, bool]:
        """Reserve a path for later; its workgroup may have `most`."""

    def cancel(self, name: str) -> None:
        """Cancel a reservation."""

    def path(self, name: str) -> PathView:
        """Return a path."""

    def delete(self, name: str) -> None:
        """Delete a path."""

    def owner_of(self, key: EndpointKey) -> str | None:
        """Return the path that has an endpoint."""


class FederatedBookings:
    """Both halves of a domain. Thread-safe.

    `exchange` raises NoReply. `check` raises Refusal for a segment that does not begin at a
    hand-off. `adopt` makes a tree the decided tree of a path that has begun. `is_adopted` says
    whether this domain's segment of the connection is now part of a path. `tend` and `audit` may
    wait for peers: a call while another one runs does nothing, so that they never take all threads.
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
        self._lock = threading.Lock()  # one user request at a time
        self._beginning = threading.Lock()  # never waits for a peer
        self._tending, self._auditing = threading.Lock(), threading.Lock()
        self._trees: dict[str, BookedTree] = {}
        self._here: dict[Connection, BookedHere] = {}
        self._version = 0
        self._trying: set[str] = set()
        self._told: set[tuple[str, str]] = set()

    def load(self) -> None:
        """Read the store; called when the controller becomes active."""
        self._trees = {booked.path: booked for booked in self._store.booked_trees()}
        self._here = {note.connection: note for note in self._store.booked_here()}
        self._version = max((booked.version for booked in self._trees.values()), default=0)

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

        Raises ServiceError, and then no domain keeps a booking.
        """
        with_macs = self._domains.with_macs
        leaves = tuple(with_macs(leaf) for leaf in wish.leaves)
        wish = replace(wish, root=with_macs(wish.root), leaves=leaves)
        with self._lock:
            known = self._find(wish.name)
            if known is not None:
                check_same(self.seen(known), wish, start_s)
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
                self._version = max(int(time.time() * 1000), self._version + 1)
                booked = BookedTree(
                    wish.name, self._version, tree, start_s, wish.end_time or start_s
                )
                refused = self._ask_all(booked, asked)
                if refused is None:
                    found = self._decide(booked, wish)
                    left = {d: v for d, v in asked.items() if d not in tree.entries}
                    self._unbook(wish.name, left)  # an earlier attempt may have asked there
                    return found
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
        algorithm = wish.algorithm.value
        tree = Tree(wish.root, wish.rate_bps, algorithm, channels=wish.channels)
        for leaf in wish.leaves:
            if not self._is_here(leaf):
                tree = grown(self._domains, tree, leaf, taken)
        return tree

    def _is_here(self, leaf: Endpoint) -> bool:
        """Return whether the leaf is in this domain, or in no domain: its path service reports
        that."""
        return self._domains.domain_of.get(leaf.switch, self._home) == self._home

    def _ask_all(self, booked: BookedTree, asked: dict[str, int]) -> Refused | None:
        """Ask every other domain; return the first refusal. `asked`: domains that may have
        booked."""
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
        """Write the tree, then this domain's own booking, which decides. Raises ServiceError."""
        hand_offs = segments_of(self._domains, booked.tree)[self._home].leaves
        near = filter(self._is_here, wish.leaves)
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
        """Cancel a reservation in all domains. Raises ServiceError 404, 503, 507."""
        with self._lock:
            self._own.cancel(name)
            booked = self._trees.get(name)
            if booked is not None:
                self._end(booked)

    def _end(self, booked: BookedTree) -> None:
        name = booked.path
        with self._beginning:
            if self._trees.get(name) is not booked:
                return
            self._store.forget_booked_tree(name)
            del self._trees[name]
        self._told -= {(name, domain) for domain in booked.tree.entries}
        self._unbook(name, dict.fromkeys(booked.tree.entries, booked.version))

    def _unbook(self, name: str, asked: Mapping[str, int]) -> None:
        """Tell the domains to unbook. A domain that does not answer will ask by itself."""
        for domain, version in asked.items():
            try:
                self._exchange(domain, Unbook(Connection(self._home, name), version))
            except NoReply as error:
                LOG.warning("path=%s domain=%s: not told to unbook: %s", name, domain, error)

    def begin(self, name: str, adopt: Callable[[str, Tree], None]) -> None:
        """Adopt a path's tree if the path has begun."""
        if not self._is_to_begin(name):
            return
        with self._beginning:
            if self._is_to_begin(name) and self._find(name) is None and self._path(name):
                booked = self._trees[name]
                adopt(name, booked.tree)
                self._trees[name] = booked = replace(booked, adopted=True)
                self._store.save_booked_tree(booked)

    def _is_to_begin(self, name: str) -> bool:
        booked = self._trees.get(name)
        return booked is not None and not booked.adopted and name not in self._trying

    def tend(self, adopt: Callable[[str, Tree], None]) -> None:
        """Adopt trees whose path has begun, and forget those whose path has ended."""
        with _alone(self._tending) as is_alone:
            for booked in list(self._trees.values()) if is_alone else ():
                name = booked.path
                if name in self._trying or self._find(name) is not None:
                    continue
                if self._path(name) is None:
                    self._end(booked)
                else:
                    self.begin(name, adopt)

    def is_booked(self, sender: str, asked: AskBooking) -> Reply:
        """Answer a domain that has booked. Unknown: it must unbook."""
        name = asked.connection.path
        booked = self._trees.get(name)
        if name in self._trying:
            return Done()
        is_so = booked is not None and booked.version == asked.version
        return Done() if booked and is_so and sender in booked.tree.entries else Unknown()

    # -- a domain on the way

    def handle(self, request: Book | Unbook, check: Callable[[Book], None]) -> Reply:
        """Answer a coordinator."""
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
        note = self._here.get(request.connection)
        if note is not None and note.version > request.version:
            raise Refusal(stale(request.connection, request.version))
        known = self._find(name)
        begun = self._path(name) if known is None else None
        if begun is not None and segment_of(begun.path) == segment:
            return Done()
        if known is not None:
            times = (known.start_s, known.end_s)
            if segment_of(known.path) == segment and times == (request.start_s, request.end_s):
                self._note(request)
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
            channels=segment.channels,
        )
        self._check_room(request.connection)
        # Write the note first: if this controller dies now, the domain still asks about the
        # booking.
        self._note(request)
        self._own.book(wish, request.start_s, MOST_OF_A_DOMAIN)
        return Done()

    def _check_room(self, connection: Connection) -> None:
        """Raise Refusal if the coordinator has as many other bookings here as it may have."""
        peer = connection.coordinator
        others = sum(c.coordinator == peer and c != connection for c in list(self._here))
        if others >= MOST_OF_A_DOMAIN:
            detail = (
                f"found {counted(others, 'reservation')} of "
                f"domain '{peer}'; valid: fewer, so end one first"
            )
            raise Refusal(Problem(409, "no-number-left", "Too many reservations", detail))

    def _note(self, request: Book) -> None:
        note = BookedHere(request.connection, request.version)
        if self._here.get(request.connection) != note:
            self._store.save_booked_here(note)
            self._here[request.connection] = note

    def _forget(self, connection: Connection) -> None:
        self._store.forget_booked_here(connection)
        self._here.pop(connection, None)

    def _give_up(self, connection: Connection, version: int) -> Reply:
        """Void a booking, and the path that began from it."""
        name = str(connection)
        note = self._here.get(connection)
        if note is None or note.version > version:
            return Done()
        if self._find(name) is not None:
            self._own.cancel(name)
        if self._path(name) is not None:
            self._own.delete(name)
        self._forget(connection)
        LOG.info("connection=%s action=unbooked", connection)
        return Done()

    def _taken(self, name: str, segment: Segment) -> dict[str, tuple[int, ...]]:
        """Return all VLAN ids in use here, by hand-off link, for links whose requested id is in
        use."""
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

    # -- periodic work

    def audit(
        self,
        is_adopted: Callable[[Connection], bool],
        lock_of: Callable[[Connection], threading.Lock],
    ) -> None:
        """Ask other domains again for what they should have booked, and coordinators for what is
        booked here. A domain that does not answer is not asked again in this call. `lock_of`: the
        lock that the caller of `handle` holds."""
        silent: set[str] = set()
        with _alone(self._auditing) as is_alone:
            for booked in list(self._trees.values()) if is_alone else ():
                if self._find(booked.path) is not None:
                    self._repair(booked, silent)
            for note in list(self._here.values()) if is_alone else ():
                self._look_after(note, silent, is_adopted, lock_of(note.connection))

    def _repair(self, booked: BookedTree, silent: set[str]) -> None:
        segments = segments_of(self._domains, booked.tree)
        for domain in booked.tree.entries:
            reply = self._ask(domain, self._request(booked, segments[domain]), silent)
            key = (booked.path, domain)
            if isinstance(reply, Refused) and key not in self._told:
                self._told.add(key)
                LOG.error("path=%s domain=%s: lost: %s", *key, reply.problem.detail)

    def _look_after(
        self,
        note: BookedHere,
        silent: set[str],
        is_adopted: Callable[[Connection], bool],
        lock: threading.Lock,
    ) -> None:
        name = str(note.connection)
        with lock:  # the note is written before the booking
            if self._here.get(note.connection) != note:
                return
            gone = self._find(name) is None and self._path(name) is None
            if gone or is_adopted(note.connection):
                self._forget(note.connection)
                return
        asked = AskBooking(note.connection, note.version)
        reply = self._ask(note.connection.coordinator, asked, silent)
        if isinstance(reply, Unknown):
            with lock:
                self._give_up(note.connection, note.version)

    def _ask(self, domain: str, request: Request, silent: set[str]) -> Reply | None:
        """Return the answer of a domain; None if it is silent, now or since earlier in this
        call."""
        if domain in silent:
            return None
        try:
            return self._exchange(domain, request)
        except NoReply:
            silent.add(domain)
            return None

    # -- internals

    def _find(self, name: str) -> Booking | None:
        try:
            return self._own.booking(name)
        except ServiceError as error:
            if error.kind != "unknown-reservation":
                raise
            return None

    def _path(self, name: str) -> PathView | None:
        try:
            return self._own.path(name)
        except ServiceError as error:
            if error.kind != "unknown-path":
                raise
            return None


@contextmanager
def _alone(lock: threading.Lock) -> Iterator[bool]:
    """Hold a lock if it is free; yield whether it was."""
    if not lock.acquire(blocking=False):
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _vlan_in_use(taken: Mapping[str, object]) -> Problem:
    links = ", ".join(f"'{link}'" for link in taken)
    detail = f"the VLAN id asked for on hand-off link {links} is in use"
    return Problem(409, "vlan-in-use", "VLAN id in use", detail)
