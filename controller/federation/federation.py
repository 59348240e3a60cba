# SPDX-License-Identifier: Apache-2.0
"""The shell around the two protocol cores: threads, clock, store, peers.

The coordinator is called under one lock. Its decisions are written to the store before the lock is
released and before anything is sent. Workers, several for each domain, send the messages, so that
a peer that does not answer delays no other peer. Messages to this domain reach the participant in
the same way. The participant handles one message of a connection at a time.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

from controller.federation.bookings import FederatedBookings, OwnBookings
from controller.federation.coordinator import Busy, Coordinator
from controller.federation.participant import LocalPaths, Note, Participant
from controller.federation.peers import NoReply
from controller.federation.records import Answer, Effect, Forget, Record, Save, Send, Timing
from controller.federation.store import FederationStore
from controller.federation.trees import Domains, Refusal, Tree
from controller.federation.values import (
    AskBooking,
    Book,
    Commit,
    Connection,
    Done,
    Members,
    Problem,
    Query,
    Refused,
    Reply,
    Request,
    Reserve,
    Unbook,
    Unknown,
)
from controller.paths.core import Endpoint, EndpointKey
from controller.service.problems import ServiceError

LOG = logging.getLogger(__name__)
WORKERS = 4  # for each domain
USER_TIMEOUT_S = 120.0  # longer than any attempt can take
LOOK_S = 1.0  # how often to look for paths that have ended
QUERY_TIMEOUT_S = 5.0
CONNECTION_LOCKS = 256
NOBODY = 0  # the client of changes that the controller makes by itself


class Exchange(Protocol):
    """A connection to a peer: see `peers.Peer`."""

    def exchange(self, request: Request, timeout_s: float) -> Reply:
        """Send a request to the domain and return its reply. Raises NoReply."""


class Federation:
    """A domain's part in paths over several domains.

    After `start`, any thread may call any method.
    """

    def __init__(
        self,
        domains: Domains,
        home: str,
        local: LocalPaths,
        own: OwnBookings,
        store: FederationStore,
        peers: Mapping[str, Exchange],
        *,
        timing: Timing | None = None,
        is_active: Callable[[], bool] = lambda: True,
    ) -> None:
        self.domains = domains
        self.home = home
        self._local = local
        self._store = store
        self._peers = peers
        self.bookings = FederatedBookings(domains, home, own, store, self._exchange)
        self._timing = timing or Timing()
        self._is_active = is_active
        self._changed = threading.Condition()  # the coordinator's lock
        self._coordinator: Coordinator | None = None
        self._participant: Participant | None = None
        # Connections share locks, since their number has no limit.
        self._locks = [threading.Lock() for _ in range(CONNECTION_LOCKS)]
        self._numbers = itertools.count(1)
        self._asked: set[int] = set()  # requests of users that wait for the answer
        self._answers: dict[int, Problem | None] = {}
        self._ending = False
        self._epoch = time.time() - time.monotonic()
        self._last_heard: dict[str, tuple[float, str]] = {}  # domain -> time, problem ("" if none)
        self._pools = {
            name: ThreadPoolExecutor(WORKERS, thread_name_prefix=f"peer-{name}")
            for name in domains.names
        }
        self._thread = threading.Thread(target=self._run, name="federation", daemon=True)
        # Gets what the leaves behind a hand-off have joined; returns whether there is such a leaf.
        self.on_members: Callable[[str, EndpointKey, frozenset[int]], bool] = lambda *_: False

    def start(self) -> None:
        """Take part from now on."""
        self._look_at_role()
        self._thread.start()

    def stop(self) -> None:
        """Stop taking part."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._thread.join()
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    # -- users of this domain

    def add_leaf(self, path: str, empty: Tree, leaf: Endpoint) -> None:
        """Add a leaf; return when all domains have confirmed. Raises ServiceError."""
        number = next(self._numbers)

        def add(coordinator: Coordinator, now: float) -> list[Effect]:
            return coordinator.add_leaf(now, number, path, empty, leaf)

        self._ask(number, path, add)

    def remove_leaves(self, path: str, keys: Iterable[EndpointKey] | None) -> None:
        """Remove leaves in other domains (None: all of them).

        Raises ServiceError 504 if a domain has not confirmed; the request to it is then repeated.
        """
        number = next(self._numbers)

        def remove(coordinator: Coordinator, now: float) -> list[Effect]:
            return coordinator.remove_leaves(now, number, path, keys)

        self._ask(number, path, remove)

    def begin_booking(self, name: str) -> None:
        """Adopt what was booked for a path that has begun, before it is shown or changes."""
        self._tend(partial(self.bookings.begin, name, self._adopt))

    def link_changed(self, link: str, is_up: bool) -> None:
        """Note that a link of this domain carries frames, or not."""
        with self._changed:
            if link in self.domains.hand_offs and self._coordinator is not None:
                self._carry_out(self._coordinator.link_changed(self._now(), link, is_up))

    @property
    def is_running(self) -> bool:
        """Return whether this controller acts. False for a standby, or if it must first read the
        store again after a failed write."""
        return self._coordinator is not None

    def record(self, path: str) -> Record | None:
        """Return the other domains' part of one of this domain's paths; None if there is none."""
        coordinator = self._coordinator
        return None if coordinator is None else coordinator.records.get(path)

    def lost(self, path: str) -> frozenset[str]:
        """Return the domains that do not have, or have not confirmed, their segment of the path."""
        coordinator, record = self._coordinator, self.record(path)
        if coordinator is None or record is None:
            return frozenset()
        return coordinator.lost(path) | {d for d in record.unsettled if d in record.tree.entries}

    def notes(self) -> list[Note]:
        """Return this domain's segments of other domains' paths."""
        participant = self._participant
        if participant is None:
            return []
        return [
            note
            for note in list(participant.notes.values())
            if note.connection.coordinator != self.home and not note.is_tombstone
        ]

    def peer_states(self) -> dict[str, str]:
        """Return by domain "" (it answered last time), what went wrong, or "not asked yet"."""
        return {
            name: self._last_heard.get(name, (0.0, "not asked yet"))[1]
            if name in self._peers
            else "not a peer: no address is known"
            for name in self.domains.names
            if name != self.home
        }

    # -- peers

    def handle(self, sender: str, request: Request) -> Reply:
        """Answer a peer's message. Raises ServiceError 403 if the sender may not ask that."""
        if isinstance(request, Query) and request.connection.coordinator == self.home:
            with self._changed:
                return self._running_coordinator().query(sender, request)
        if isinstance(request, AskBooking) and request.connection.coordinator == self.home:
            self._running_participant()
            return self.bookings.is_booked(sender, request)
        if isinstance(request, Members):
            return self._members(sender, request)
        if request.connection.coordinator != sender:
            detail = f"'{request.connection}' is not a connection of domain '{sender}'"
            raise ServiceError(403, "not-allowed", "Not allowed", detail)
        return self._take_part(request)

    def tell_members(self, path: str, root: Endpoint, channels: frozenset[int]) -> bool:
        """Tell the domain that sends a segment's frames which channels the segment's leaves have
        joined; return whether it now knows."""
        hand_off = self.domains.hand_off_at(root.switch, root.port)
        coordinator, colon, name = path.partition(":")
        if hand_off is None or not colon:
            return True
        connection = Connection(coordinator, name)
        members = Members(connection, hand_off.link, root.vlan, channels)
        try:
            return isinstance(self._exchange(hand_off.other(self.home), members), Done)
        except NoReply:
            return False

    def _members(self, sender: str, request: Members) -> Reply:
        participant = self._running_participant()
        hand_off = self.domains.hand_offs.get(request.link)
        if hand_off is None or set(hand_off.ports) != {sender, self.home}:
            detail = f"'{request.link}' is not a link between '{sender}' and '{self.home}'"
            raise ServiceError(403, "not-allowed", "Not allowed", detail)
        port = hand_off.ports[self.home]
        leaf = (port.node, port.number, request.vlan)
        name = participant.path_name(request.connection)
        return Done() if self.on_members(name, leaf, request.channels) else Unknown()

    def _take_part(self, request: Request) -> Reply:
        participant = self._running_participant()
        with self._lock_of(request.connection):
            started = time.monotonic()
            if isinstance(request, Query):
                return participant.query(request)
            if isinstance(request, (AskBooking, Members)):
                return Unknown()  # its sender coordinates it, so does not ask this
            if isinstance(request, (Book, Unbook)):
                reply = self.bookings.handle(
                    request, lambda asked: participant.check(asked.connection, asked.segment)
                )
            else:
                reply = participant.handle(self._now(), request)
            outcome = reply.problem.detail if isinstance(reply, Refused) else reply.kind
            LOG.info(
                "connection=%s version=%d action=%s ms=%.1f: %s",
                request.connection,
                request.version,
                request.kind,
                (time.monotonic() - started) * 1000,
                outcome,
            )
            return reply

    def _running_participant(self) -> Participant:
        if self._participant is None:
            raise ServiceError(503, "standby", "Standby", "this controller is a standby")
        return self._participant

    def _lock_of(self, connection: Connection) -> threading.Lock:
        return self._locks[hash(connection) % CONNECTION_LOCKS]

    # -- internals: the coordinator

    def _now(self) -> float:
        """Return epoch seconds that never go back while the process lives."""
        return self._epoch + time.monotonic()

    def _running_coordinator(self) -> Coordinator:
        if self._coordinator is None:
            raise ServiceError(503, "standby", "Standby", "this controller is a standby")
        return self._coordinator

    def _ask(
        self, number: int, path: str, ask: Callable[[Coordinator, float], list[Effect]]
    ) -> None:
        with self._changed:
            self._asked.add(number)
            try:
                problem = self._answer_to(number, path, ask)
            finally:
                self._asked.discard(number)
                self._answers.pop(number, None)
        if problem is not None:
            raise _error(problem)

    def _answer_to(
        self, number: int, path: str, ask: Callable[[Coordinator, float], list[Effect]]
    ) -> Problem | None:
        """Ask the coordinator and wait for its answer, holding the lock. Raises ServiceError."""
        until = time.monotonic() + USER_TIMEOUT_S
        while True:
            try:
                self._carry_out(ask(self._running_coordinator(), self._now()))
                break
            except Busy:
                self._wait(until, path)
            except Refusal as refusal:
                raise _error(refusal.problem) from None
        asked = self._coordinator
        while number not in self._answers:
            if self._coordinator is not asked:
                detail = f"path '{path}': this controller lost its store or its role meanwhile"
                raise ServiceError(503, "standby", "Standby", detail)
            self._wait(until, path)
        return self._answers[number]

    def _wait(self, until: float, path: str) -> None:
        """Wait for the answer. Raises ServiceError 504."""
        left_s = until - time.monotonic()
        if left_s <= 0 or not self._changed.wait(left_s):
            detail = f"path '{path}': an earlier change has not ended"
            raise ServiceError(504, "domain-timeout", "A domain did not answer in time", detail)

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        """Carry out effects, holding the lock.

        If they cannot be written, they are not done: the store's state is loaded again, and
        attempts under way are undone.
        """
        for effect in effects:
            if isinstance(effect, (Save, Forget)):
                try:
                    self._write(effect)
                except BaseException:
                    self._coordinator = self._participant = None
                    raise
            elif isinstance(effect, Send):
                if not self._ending:
                    self._pools[effect.domain].submit(self._send, effect.domain, effect.request)
            elif isinstance(effect, Answer) and effect.request_id in self._asked:
                self._answers[effect.request_id] = effect.problem
        self._changed.notify_all()

    def _write(self, effect: Save | Forget) -> None:
        if isinstance(effect, Save):
            self._store.save_record(effect.record)
        else:
            self._store.forget_record(effect.path)

    def _send(self, domain: str, request: Request) -> None:
        try:
            reply = self._exchange(domain, request)
        except NoReply as error:
            with self._changed:
                if self._coordinator is not None:
                    now = self._now()
                    self._carry_out(self._coordinator.no_reply(now, domain, request, str(error)))
            return
        except Exception:
            LOG.exception("connection=%s: %s to '%s'", request.connection, request.kind, domain)
            return  # the coordinator's deadline handles it
        with self._changed:
            if self._coordinator is not None:
                self._carry_out(self._coordinator.reply(self._now(), domain, request, reply))

    def _exchange(self, domain: str, request: Request) -> Reply:
        """Send a request. Raises NoReply."""
        if domain == self.home:
            return self._take_part(request)
        peer = self._peers.get(domain)
        if peer is None:
            raise NoReply(f"domain '{domain}' is not among the peers (--peers)")
        if isinstance(request, Query):
            timeout_s = QUERY_TIMEOUT_S
        elif isinstance(request, (Reserve, Book)):
            timeout_s = self._timing.reserve_s
        elif isinstance(request, Commit):
            timeout_s = self._timing.commit_s
        else:
            timeout_s = self._timing.release_s
        try:
            reply = peer.exchange(request, timeout_s)
        except NoReply as error:
            self._note_peer(domain, str(error))
            raise
        self._note_peer(domain, "")
        return reply

    def _note_peer(self, domain: str, problem: str) -> None:
        before = self._last_heard.get(domain, (0.0, ""))[1]
        self._last_heard[domain] = (self._now(), problem)
        if problem and not before:
            LOG.warning("peer=%s does not answer: %s", domain, problem)
        elif before and not problem:
            LOG.info("peer=%s answers", domain)

    # -- internals: periodic work

    def _run(self) -> None:
        audit_at = look_at = 0.0
        told = ""
        while True:
            try:
                now = self._now()
                with self._changed:
                    if self._ending:
                        return
                    deadline = None
                    if self._coordinator is not None:
                        self._carry_out(self._coordinator.tick(now))
                        deadline = self._coordinator.deadline()
                    wait_s = LOOK_S if deadline is None else min(LOOK_S, deadline - self._now())
                    self._changed.wait(max(wait_s, 0.005))
                if now >= look_at:
                    look_at = now + LOOK_S
                    self._look_at_role()
                    self._expire()
                    self._end_paths()
                    tend = partial(self.bookings.tend, self._adopt)
                    self._pools[self.home].submit(self._tend, tend)
                if now >= audit_at:
                    audit_at = now + self._timing.audit_s
                    self._audit()
                told = ""
            except ServiceError as error:  # of the store; logged once, however often it is tried
                if error.detail != told:
                    LOG.error("the federation cannot write: %s", error.detail)
                told = error.detail
                time.sleep(LOOK_S)
            except Exception:
                LOG.exception("the federation's clock")
                time.sleep(LOOK_S)

    def _look_at_role(self) -> None:
        """Load both halves from the store if active; drop them on a standby."""
        with self._changed:
            if self._is_active() == (self._coordinator is not None):
                return
            if not self._is_active():
                self._coordinator = self._participant = None
                return
            self._participant = Participant(self.domains, self.home, self._local, self._store)
            self._coordinator = Coordinator(
                self.domains, self.home, self._store.records(), self._timing
            )
            self.bookings.load()
            self._carry_out(self._coordinator.start(self._now()))

    def _expire(self) -> None:
        participant = self._participant
        for connection in list(participant.notes) if participant is not None else ():
            with self._lock_of(connection):
                assert participant is not None
                participant.expire(self._now(), connection)

    def _end_paths(self) -> None:
        """End segments in other domains of paths that ended here because their end time came."""
        coordinator = self._coordinator
        for name in list(coordinator.records) if coordinator is not None else ():
            found = self._local.segment(name)
            with self._changed:
                record = self.record(name)
                if coordinator is None or record is None or record.trying is not None:
                    continue
                tree = record.tree
                if found is not None and tree.is_of(
                    Tree(found.root, found.rate_bps, found.algorithm, channels=found.channels)
                ):
                    continue
                if record.tree.entries or record.wanted:
                    LOG.info("path=%s is gone: its segments are released", name)
                    now = self._now()
                    self._carry_out(coordinator.remove_leaves(now, NOBODY, name, None))

    def _adopt(self, path: str, tree: Tree) -> None:
        with self._changed:
            self._carry_out(self._running_coordinator().adopt(self._now(), path, tree))

    def _tend(self, work: Callable[[], None]) -> None:
        """Maintain reservations for later, if this controller acts."""
        if self._participant is None:
            return
        try:
            work()
        except ServiceError as error:  # of the store or the role; the next turn tries again
            LOG.warning("reservations for later: %s", error.detail)
        except Exception:
            LOG.exception("reservations for later")

    def _audit(self) -> None:
        participant = self._participant
        if participant is None:
            return
        audit = partial(self.bookings.audit, participant.has_committed, self._lock_of)
        self._pools[self.home].submit(self._tend, audit)
        for query in participant.audits():
            domain = query.connection.coordinator
            self._pools[domain].submit(self._audit_one, participant, query)
        with self._changed:
            if self._coordinator is not None:
                self._carry_out(self._coordinator.verify(self._now()))

    def _audit_one(self, participant: Participant, query: Query) -> None:
        try:
            reply = self._exchange(query.connection.coordinator, query)
        except NoReply:
            return  # keep waiting for it
        except Exception:
            LOG.exception("connection=%s: audit", query.connection)
            return
        with self._lock_of(query.connection):
            try:
                if participant.audited(self._now(), query, reply):
                    LOG.warning(
                        "connection=%s: released, as its coordinator does not know it",
                        query.connection,
                    )
            except Refusal as refusal:
                LOG.warning("connection=%s: %s", query.connection, refusal)


def _error(problem: Problem) -> ServiceError:
    return ServiceError(problem.status, problem.kind, problem.title, problem.detail)
