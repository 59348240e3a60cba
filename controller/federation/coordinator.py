# SPDX-License-Identifier: Apache-2.0
"""The coordinator's half of the protocol: it runs in the domain of a path's root. Sans-I/O.

A leaf in another domain joins in three steps (`add_leaf`):

  reserve   every domain whose segment changes, beginning with the root's own, reserves what it
  needs commit    from the far end back to the root: switches are programmed, this domain's last, so
  that           frames enter the other domains only when all is ready
  decide    the new tree is written to the store: from now on the leaf exists

If anything fails before the decision is written (a refusal, no answer in time, a restart of this
controller), the coordinator undoes it: it sends the remaining segment to each domain that may know
of the attempt, until the domain confirms. So no domain stays in doubt, since the decision in the
store counts (presumed abort). When leaves leave (`remove_leaves`), the coordinator decides first
and then releases. From time to time it asks every domain whether it still has its segment
(`verify`), and asks a domain that lost it to reserve and commit it again. When a hand-off link
fails, the coordinator releases the leaves behind it, and they rejoin by another route. Until there
is one, they are `wanted`.

Methods return effects, which the caller carries out in order: saves must be on disk before later
messages leave. `now` is in epoch seconds and must not go back.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from controller.federation.records import (
    Answer,
    Effect,
    Forget,
    Record,
    Save,
    Send,
    Timing,
    Trying,
)
from controller.federation.trees import (
    Domains,
    Refusal,
    Tree,
    grown,
    parent_of,
    segments_of,
    shrunk,
)
from controller.federation.values import (
    Commit,
    Connection,
    Done,
    Problem,
    Query,
    Refused,
    Release,
    Reply,
    Request,
    Reserve,
    Unknown,
)
from controller.paths.core import Endpoint

REPORTED_DOWN_S = 60.0  # how long to avoid a link that another domain reports as down
MAX_ATTEMPTS = 8  # attempts with other VLAN ids before a hand-off counts as contended


@dataclass
class _Attempt:
    """The part of an attempt (`Trying`) that is not stored."""

    request_id: int | None  # None: no client asked; a domain gets back what it lost
    leaf: Endpoint | None
    todo: list[Request]  # still to be sent, in order, each with its domain
    to: list[str]
    taken: dict[str, set[int]]
    count: int = 1
    waiting: tuple[str, Request] | None = None
    deadline: float = 0.0


@dataclass
class _Retry:
    """A release that is not yet confirmed."""

    request: Release
    delay_s: float
    at: float  # when it counts as lost, or is sent again
    in_flight: bool = True


@dataclass
class _Waiting:
    """A user's request that waits until domains have settled."""

    request_id: int
    problem: Problem | None
    domains: frozenset[str]
    until: float


class Busy(Exception):
    """A change of the path is under way."""


class Coordinator:
    def __init__(
        self, domains: Domains, home: str, records: Iterable[Record], timing: Timing | None = None
    ) -> None:
        self._domains = domains
        self.home = home
        self._timing = timing or Timing()
        self.records: dict[str, Record] = {record.path: record for record in records}
        self._version = max((r.version for r in self.records.values()), default=0)
        self._attempts: dict[str, _Attempt] = {}
        self._retries: dict[tuple[str, str], _Retry] = {}  # by path and domain
        self._waiting: dict[str, list[_Waiting]] = {}
        self._lost: dict[str, set[str]] = {}
        self._not_found: set[str] = set()  # paths; until the next `verify`
        self._down: dict[str, float] = {}  # hand-off links out of use -> until when

    def lost(self, path: str) -> frozenset[str]:
        """Return the domains that have lost their segment of the path and do not have it back
        yet."""
        return frozenset(self._lost.get(path, ()))

    # -- events

    def start(self, now: float) -> list[Effect]:
        """Undo attempts, and repeat unsettled releases, after a restart."""
        effects: list[Effect] = []
        for record in list(self.records.values()):
            if record.trying is not None:
                record = self._gave_up(record)
                effects.append(self._save(record))
            effects += self._release(now, record, record.unsettled)
        return effects

    def add_leaf(
        self, now: float, request_id: int, path: str, empty: Tree, leaf: Endpoint
    ) -> list[Effect]:
        """Add a leaf in another controller domain.

        `empty` is the path's tree while the path is only in its own domain. Raises Refusal (nothing
        was done), Busy.
        """
        record = self.records.get(path) or Record(path, 0, empty)
        if record.trying is not None or not record.tree.is_of(empty):
            raise Busy(path)  # or until an older path with that name has ended
        attempt = _Attempt(request_id, leaf, [], [], {})
        return self._try(now, record, attempt)

    def remove_leaves(
        self, now: float, request_id: int, path: str, keys: Iterable[tuple[str, int, int]] | None
    ) -> list[Effect]:
        """Remove the leaves of those keys (None: all; the path ends).

        Never refused: a domain that does not confirm is asked again and again. Raises Busy.
        """
        record = self.records.get(path)
        if record is None:
            return [Answer(request_id, None)]
        if record.trying is not None:
            raise Busy(path)
        gone = {leaf.key for leaf in record.tree.all_leaves} if keys is None else set(keys)
        wanted = tuple(w for w in record.wanted if keys is not None and w.key not in gone)
        effects, changed = self._shrink(now, replace(record, wanted=wanted), gone)
        return effects + self._answer_when_settled(now, path, request_id, None, changed)

    def adopt(self, now: float, path: str, tree: Tree) -> list[Effect]:
        """Adopt, as decided, a tree that the domains have booked and install by themselves.

        Its domains count as lost until `verify` finds that they have their segments.
        """
        if path in self.records:
            return []
        self._lost[path] = set(tree.entries)
        return [self._save(Record(path, self._next_version(now), tree))]

    def link_changed(self, now: float, link: str, is_up: bool) -> list[Effect]:
        """Note that a hand-off link of this domain carries frames, or not."""
        if is_up:
            self._down.pop(link, None)
            self._not_found.clear()
        else:
            self._down[link] = math.inf
        return self._rescue(now)

    def reply(self, now: float, domain: str, request: Request, reply: Reply) -> list[Effect]:
        """Handle what `domain` answered; late answers and duplicates are ignored."""
        path = _path_of(request)
        if isinstance(request, Query):
            return self._verified(now, domain, request, reply)
        if isinstance(request, Release):
            return self._release_answered(now, path, domain, request, reply)
        attempt = self._attempts.get(path)
        if attempt is None or attempt.waiting != (domain, request):
            return []
        if isinstance(reply, Done):
            return self._advance(now, self.records[path], attempt)
        problem = _of_domain(domain, reply)
        can_retry = attempt.leaf is not None and attempt.count < MAX_ATTEMPTS
        if isinstance(reply, Refused) and reply.taken and can_retry:
            for link, vlans in reply.taken.items():
                attempt.taken.setdefault(link, set()).update(vlans)
            return self._try_again(now, self.records[path], attempt, problem)
        return self._abort(now, self.records[path], attempt, problem)

    def no_reply(self, now: float, domain: str, request: Request, why: str) -> list[Effect]:
        """Note that `domain` did not answer: it may or may not have done what was asked."""
        path = _path_of(request)
        retry = self._retries.get((path, domain))
        if retry is not None and retry.request == request and retry.in_flight:
            return self._back_off(now, retry)
        attempt = self._attempts.get(path)
        if attempt is None or attempt.waiting != (domain, request):
            return []
        return self._abort(now, self.records[path], attempt, _no_answer(domain, request, why))

    def tick(self, now: float) -> list[Effect]:
        """Do what is due. Call when `deadline` has passed; earlier calls do nothing."""
        effects: list[Effect] = []
        for path, attempt in list(self._attempts.items()):
            if attempt.waiting is not None and now >= attempt.deadline:
                domain, request = attempt.waiting
                problem = _no_answer(domain, request, "no answer in time")
                effects += self._abort(now, self.records[path], attempt, problem)
        for (_, domain), retry in list(self._retries.items()):
            if now < retry.at:
                continue
            if retry.in_flight:
                self._back_off(now, retry)
            else:
                retry.in_flight = True
                retry.at = now + self._timing.release_s
                effects.append(Send(domain, retry.request))
        for path in list(self._waiting):
            effects += self._answer_waiting(now, path)
        return effects

    def deadline(self) -> float | None:
        """Return when `tick` is due next (monotonic seconds); None: not before an event."""
        times = [a.deadline for a in self._attempts.values() if a.waiting is not None]
        times += [retry.at for retry in self._retries.values()]
        times += [w.until for waiting in self._waiting.values() for w in waiting]
        return min(times, default=None)

    def verify(self, now: float) -> list[Effect]:
        """Let wanted leaves join if they can, and check the segments of paths at rest.

        Call from time to time.
        """
        self._down = {link: until for link, until in self._down.items() if now < until}
        self._not_found.clear()
        effects = self._rescue(now)
        for record in list(self.records.values()):
            effects += self._seek(now, record.path)
        return effects + [
            Send(domain, Query(Connection(self.home, record.path), record.version))
            for record in self.records.values()
            if record.is_at_rest and record.tree.entries
            for domain in (self.home, *record.tree.entries)
        ]

    def query(self, domain: str, query: Query) -> Reply:
        """Answer whether the connection has a segment in `domain`. Unknown: the domain must release
        it."""
        record = self.records.get(query.connection.path)
        if record is None or query.connection.coordinator != self.home:
            return Unknown()
        trying = record.trying.participants if record.trying is not None else ()
        known = domain in record.tree.entries or domain in trying or domain in record.unsettled
        return Done() if known else Unknown()

    # -- an attempt

    def _try(self, now: float, record: Record, attempt: _Attempt) -> list[Effect]:
        """Start an attempt. Raises Refusal if there is no such tree."""
        assert attempt.leaf is not None
        tree = grown(self._domains, record.tree, attempt.leaf, attempt.taken, self._down)
        old = segments_of(self._domains, record.tree)
        new = segments_of(self._domains, tree)
        changed = [d for d in new if new[d] != old.get(d)]
        return self._begin(now, record, attempt, tree, changed)

    def _begin(
        self, now: float, record: Record, attempt: _Attempt, tree: Tree, changed: list[str]
    ) -> list[Effect]:
        new = segments_of(self._domains, tree)
        version = self._next_version(now)
        connection = Connection(self.home, record.path)
        hold_s = self._timing.hold_s
        attempt.todo = [
            *(Reserve(connection, version, new[d], hold_s) for d in changed),
            *(Commit(connection, version) for _ in changed),
        ]
        attempt.to = [*changed, *reversed(changed)]
        before = record.trying.participants if record.trying is not None else ()
        left = {d: record.trying.version for d in before if d not in changed and record.trying}
        record = replace(
            record,
            version=version,
            trying=Trying(version, tree, tuple(changed)),
            unsettled={**record.unsettled, **left},
        )
        self._attempts[record.path] = attempt
        for domain in changed:  # a reservation replaces a release
            self._retries.pop((record.path, domain), None)
        effects: list[Effect] = [self._save(record), *self._release(now, record, left)]
        return effects + self._advance(now, record, attempt)

    def _try_again(
        self, now: float, record: Record, attempt: _Attempt, problem: Problem
    ) -> list[Effect]:
        attempt.count += 1
        try:
            return self._try(now, record, attempt)
        except Refusal as refusal:
            detail = f"{refusal.problem.detail} ({problem.detail})"
            problem = dataclasses.replace(refusal.problem, detail=detail)
            return self._abort(now, record, attempt, problem)

    def _advance(self, now: float, record: Record, attempt: _Attempt) -> list[Effect]:
        if attempt.todo:
            domain, request = attempt.to.pop(0), attempt.todo.pop(0)
            limit_s = (
                self._timing.reserve_s if isinstance(request, Reserve) else self._timing.commit_s
            )
            attempt.waiting = (domain, request)
            attempt.deadline = now + limit_s
            return [Send(domain, request)]
        trying = record.trying
        assert trying is not None
        del self._attempts[record.path]
        unsettled = {d: v for d, v in record.unsettled.items() if d not in trying.participants}
        placed = {leaf.key for leaf in trying.tree.all_leaves}
        record = replace(
            record,
            tree=trying.tree,
            trying=None,
            unsettled=unsettled,
            wanted=tuple(leaf for leaf in record.wanted if leaf.key not in placed),
        )
        self._lost.get(record.path, set()).difference_update(trying.participants)
        effects: list[Effect] = [self._save(record)]
        if attempt.request_id is not None:
            effects.append(Answer(attempt.request_id, None))
        # A link of the new tree may have failed meanwhile.
        return effects + self._rescue(now) + self._seek(now, record.path)

    def _abort(
        self, now: float, record: Record, attempt: _Attempt, problem: Problem
    ) -> list[Effect]:
        del self._attempts[record.path]
        assert record.trying is not None
        participants = record.trying.participants
        record = self._gave_up(record)
        effects: list[Effect] = [self._save(record)]
        effects += self._release(now, record, {d: record.unsettled[d] for d in participants})
        if attempt.request_id is None:
            self._not_found.add(record.path)
            return effects
        return effects + self._answer_when_settled(
            now, record.path, attempt.request_id, problem, participants
        )

    def _gave_up(self, record: Record) -> Record:
        trying = record.trying
        assert trying is not None
        told = dict.fromkeys(trying.participants, trying.version)
        return replace(record, trying=None, unsettled={**record.unsettled, **told})

    def _verified(self, now: float, domain: str, query: Query, reply: Reply) -> list[Effect]:
        record = self.records.get(query.connection.path)
        if record is None or record.version != query.version:
            return []
        lost = self._lost.setdefault(record.path, set())
        lost.discard(domain)
        if isinstance(reply, Done) or not record.is_at_rest:
            return []
        if isinstance(reply, Refused):  # a hand-off of its segment is down
            self._down.update(dict.fromkeys(reply.taken, now + REPORTED_DOWN_S))
            return self._rescue(now)
        lost.add(domain)
        return self._begin(now, record, _Attempt(None, None, [], [], {}), record.tree, [domain])

    # -- hand-off links that fail

    def _rescue(self, now: float) -> list[Effect]:
        """Release leaves behind hand-offs that are down, so that they can join by another way."""
        effects: list[Effect] = []
        for record in list(self.records.values()):
            cut: list[str] = []
            for domain, entry in record.tree.entries.items():  # parents before children
                if entry.link in self._down or parent_of(self._domains, record.tree, domain) in cut:
                    cut.append(domain)
            if cut and record.trying is None:
                leaves = [leaf for domain in cut for leaf in record.tree.leaves.get(domain, ())]
                wanted = (*record.wanted, *leaves)
                keys = {leaf.key for leaf in leaves}
                effects += self._shrink(now, replace(record, wanted=wanted), keys)[0]
        return effects

    def _seek(self, now: float, path: str) -> list[Effect]:
        """Let the first wanted leaf join, if no change of the path is under way; the next one
        follows."""
        record = self.records.get(path)
        if record is None or not record.is_at_rest or not record.wanted:
            return []
        if path in self._not_found:
            return []
        leaf, *others = record.wanted
        record = replace(record, wanted=(*others, leaf))  # the next leaf's turn
        try:
            return self._try(now, record, _Attempt(None, leaf, [], [], {}))
        except Refusal:
            return [self._save(record)]

    # -- releases

    def _shrink(
        self, now: float, record: Record, gone: Container[tuple[str, int, int]]
    ) -> tuple[list[Effect], dict[str, int]]:
        """Decide the tree without those leaves; also return the domains to inform."""
        old = segments_of(self._domains, record.tree)
        tree = shrunk(self._domains, record.tree, gone)
        new = segments_of(self._domains, tree)
        version = self._next_version(now)
        changed = {d: version for d in old if old[d] != new.get(d)}
        unsettled = {**record.unsettled, **changed}
        record = replace(record, version=version, tree=tree, unsettled=unsettled)
        if record.is_over:
            del self.records[record.path]
            return [Forget(record.path)], {}
        return [self._save(record), *self._release(now, record, changed)], changed

    def _release(self, now: float, record: Record, versions: Mapping[str, int]) -> list[Effect]:
        segments = segments_of(self._domains, record.tree)
        effects: list[Effect] = []
        for domain, version in versions.items():
            segment = segments.get(domain)
            request = Release(Connection(self.home, record.path), version, segment)
            timing = self._timing
            self._retries[record.path, domain] = _Retry(
                request, timing.retry_first_s, now + timing.release_s
            )
            effects.append(Send(domain, request))
        return effects

    def _release_answered(
        self, now: float, path: str, domain: str, request: Release, reply: Reply
    ) -> list[Effect]:
        retry = self._retries.get((path, domain))
        if retry is None or retry.request != request:
            return []
        if not isinstance(reply, Done):
            return self._back_off(now, retry)
        del self._retries[path, domain]
        record = self.records[path]
        unsettled = {d: v for d, v in record.unsettled.items() if d != domain}
        record = replace(record, unsettled=unsettled)
        effects: list[Effect]
        if record.is_over:
            del self.records[path]
            self._lost.pop(path, None)
            effects = [Forget(path)]
        else:
            effects = [self._save(record)]
        return effects + self._answer_waiting(now, path) + self._seek(now, path)

    def _back_off(self, now: float, retry: _Retry) -> list[Effect]:
        retry.in_flight = False
        retry.at = now + retry.delay_s
        retry.delay_s = min(2 * retry.delay_s, self._timing.retry_last_s)
        return []

    # -- answers to users

    def _answer_when_settled(
        self,
        now: float,
        path: str,
        request_id: int,
        problem: Problem | None,
        domains: Iterable[str],
    ) -> list[Effect]:
        until = now + self._timing.settle_s
        waiting = _Waiting(request_id, problem, frozenset(domains), until)
        self._waiting.setdefault(path, []).append(waiting)
        return self._answer_waiting(now, path)

    def _answer_waiting(self, now: float, path: str) -> list[Effect]:
        record = self.records.get(path)
        unsettled = record.unsettled.keys() if record is not None else set()
        effects: list[Effect] = []
        left: list[_Waiting] = []
        for waiting in self._waiting.pop(path, []):
            missing = sorted(waiting.domains & unsettled)
            if not missing:
                effects.append(Answer(waiting.request_id, waiting.problem))
            elif now >= waiting.until:
                problem = waiting.problem or _unconfirmed(path, missing)
                effects.append(Answer(waiting.request_id, problem))
            else:
                left.append(waiting)
        if left:
            self._waiting[path] = left
        return effects

    # -- internals

    def _save(self, record: Record) -> Save:
        self.records[record.path] = record
        return Save(record)

    def _next_version(self, now: float) -> int:
        """Return a version above all earlier ones, even if the store was lost (unless the clock
        went back)."""
        self._version = max(self._version + 1, int(now * 1000))
        return self._version


def _path_of(request: Request) -> str:
    return request.connection.path


def _of_domain(domain: str, reply: Reply) -> Problem:
    if isinstance(reply, Refused):
        problem = reply.problem
        return dataclasses.replace(problem, detail=f"domain '{domain}': {problem.detail}")
    return Problem(502, "bad-peer", "A domain's answer makes no sense", f"domain '{domain}'")


def _no_answer(domain: str, request: Request, why: str) -> Problem:
    return Problem(
        504,
        "domain-timeout",
        "A domain did not answer in time",
        f"domain '{domain}' did not answer {request.kind} of '{request.connection}': {why}; "
        "the change is undone",
    )


def _unconfirmed(path: str, unsettled: list[str]) -> Problem:
    return Problem(
        504,
        "unconfirmed",
        "Not confirmed in time",
        f"path '{path}': not confirmed by domain {', '.join(map(repr, unsettled))}; "
        "repeated until it confirms",
    )
