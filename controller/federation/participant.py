# SPDX-License-Identifier: Apache-2.0
"""A domain's half of the protocol: it holds, makes and gives up its segments of connections.

The coordinator's own domain takes part like any other, for the path's hand-offs. Calls may come
twice, late, or in another order: versions decide. The participant writes its `Notes` after the path
service has done its part. Every part can be repeated, so a controller may die between any two
steps. `audit` finds leftovers: it releases a segment that its coordinator does not know. It waits
for a coordinator that does not answer, since that domain's switches may still be forwarding.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from controller.federation.trees import Domains, HandOff, Refusal
from controller.federation.values import (
    Commit,
    Connection,
    Done,
    Problem,
    Query,
    Refused,
    Release,
    Reply,
    Reserve,
    Segment,
    Unknown,
)

TOMBSTONE_S = 3600.0  # how long a request may be in transit


class LocalPaths(Protocol):
    """The domain's path service, as far as segments need it. Each method raises Refusal."""

    def taken_vlans(self, switch: str, port: int, besides: str) -> frozenset[int]:
        """Return the VLAN ids of endpoints (of paths and holds) at that port, except those of
        path `besides`."""
        ...

    def hold(self, hold_id: str, path: str, segment: Segment, until: float) -> None:
        """Reserve what `path` needs to have (at least) the leaves of the segment.

        Repeating the hold changes nothing; the path must have no other open hold.
        """
        ...

    def commit(self, hold_id: str) -> None:
        """Install a hold. Raises Refusal, also if it has expired."""
        ...

    def release(self, path: str) -> None:
        """Release what `hold` reserved for the path and was not committed, if anything. This
        includes a hold that this controller made just before it died, without a note."""
        ...

    def reduce(self, path: str, segment: Segment | None, *, is_home: bool) -> None:
        """Remove everything that is not in the segment (None: the path). `is_home`: the path is a
        local user's, so only its leaves at hand-offs count."""
        ...

    def segment(self, path: str) -> Segment | None:
        """Return the path's present segment."""
        ...

    def down_links(self) -> Container[str]:
        """Return the links of this domain, hand-offs among them, that carry no frames now."""
        ...


@dataclass(frozen=True)
class Pending:
    version: int
    segment: Segment
    until: float  # epoch seconds

    def hold_id(self, connection: Connection) -> str:
        """Return the id of the hold for this version of the connection."""
        return f"{connection}:{self.version}"


@dataclass(frozen=True)
class Note:
    """What a domain knows about its segment of a connection.

    `seen`: requests with lower versions are stale; `released`: so are other requests with this
    version. `committed`: what the path service may have (`committed_version` 0: perhaps not all of
    it). Without segment and reservation, the note is a tombstone, which distinguishes late requests
    from new ones.
    """

    connection: Connection
    seen: int
    at: float  # when it was written, epoch seconds
    released: bool = False
    committed: Segment | None = None
    committed_version: int = 0
    pending: Pending | None = None

    @property
    def is_tombstone(self) -> bool:
        """Return whether the domain has nothing left of the connection."""
        return self.committed is None and self.pending is None


class Notes(Protocol):
    """A store of notes; each call is on disk when it returns."""

    def load(self) -> Iterable[Note]:
        """Return all notes."""

    def save(self, note: Note) -> None:
        """Keep a note."""

    def forget(self, connection: Connection) -> None:
        """Forget a note."""


class Participant:
    """Handles the coordinators' requests to this domain.

    One call at a time for each connection; calls for different connections may run side by side.
    """

    def __init__(self, domains: Domains, home: str, local: LocalPaths, notes: Notes) -> None:
        self._domains = domains
        self.home = home
        self._local = local
        self._notes = notes
        self._known: dict[Connection, Note] = {note.connection: note for note in notes.load()}

    @property
    def notes(self) -> Mapping[Connection, Note]:
        """Return what is known of all connections."""
        return self._known

    def path_name(self, connection: Connection) -> str:
        """Return the name of a peer's segment, which no user can choose (it contains a colon)."""
        return connection.path if connection.coordinator == self.home else str(connection)

    def handle(self, now: float, request: Reserve | Commit | Release) -> Reply:
        """Carry out a request of the connection's coordinator."""
        try:
            if isinstance(request, Reserve):
                return self._reserve(now, request)
            if isinstance(request, Commit):
                return self._commit(now, request)
            return self._release(now, request)
        except Refusal as refusal:
            return Refused(refusal.problem)

    def expire(self, now: float, connection: Connection) -> None:
        """End reservations that have expired, and tombstones that are no longer needed."""
        note = self._known.get(connection)
        if note is None:
            return
        if note.pending is not None and now >= note.pending.until:
            self._local.release(self.path_name(connection))
            self._save(replace(note, pending=None, at=now))
        elif note.is_tombstone and now >= note.at + TOMBSTONE_S:
            self._notes.forget(connection)
            del self._known[connection]

    def audits(self) -> list[Query]:
        """Return the queries to the coordinators of this domain's segments."""
        return [
            Query(connection, note.seen)
            for connection, note in list(self._known.items())
            if connection.coordinator != self.home and not note.is_tombstone
        ]

    def audited(self, now: float, query: Query, reply: Reply) -> bool:
        """Release a segment that its coordinator does not know; return whether that was so.

        An answer that a newer request has overtaken is ignored.
        """
        note = self._known.get(query.connection)
        if not isinstance(reply, Unknown) or note is None or note.seen != query.version:
            return False
        if note.is_tombstone:
            return False
        self._release(now, Release(query.connection, query.version, None))
        return True

    def query(self, query: Query) -> Reply:
        """Answer whether the domain has what it committed.

        Unknown: no, or not all of it. Refused: yes, but a hand-off on the way out is down.
        """
        note = self._known.get(query.connection)
        found = self._local.segment(self.path_name(query.connection))
        if note is None or note.committed is None or found is None:
            return Unknown()
        if not set(note.committed.leaves) <= set(found.leaves):
            return Unknown()
        down: dict[str, tuple[int, ...]] = {}
        for leaf in note.committed.leaves:
            hand_off = self._domains.hand_off_at(leaf.switch, leaf.port)
            if hand_off is not None and hand_off.link in self._local.down_links():
                down[hand_off.link] = ()
        if not down:
            return Done()
        detail = f"hand-off link {', '.join(map(repr, down))} is down"
        return Refused(Problem(503, "link-down", "A link is down", detail), down)

    def has_committed(self, connection: Connection) -> bool:
        """Return whether the connection's segment here was committed."""
        note = self._known.get(connection)
        return note is not None and note.committed is not None

    # -- internals

    def _reserve(self, now: float, request: Reserve) -> Reply:
        connection, version = request.connection, request.version
        note = self._known.get(connection)
        if note is not None:
            if note.pending is not None and note.pending.version == version:
                return Done()
            if version == note.committed_version and not note.released:
                return Done()
            if version <= note.seen:
                raise Refusal(stale(connection, version))
        name = self.path_name(connection)
        self.check(connection, request.segment)
        self._local.release(name)
        if note is not None and note.pending is not None:
            note = replace(note, pending=None)
            self._save(note)
        found = self._local.segment(name)
        is_peers = connection.coordinator != self.home
        if is_peers and found is not None and found.root.key != request.segment.root.key:
            # The coordinator gave up the old entry, since it requests another; its release is still
            # in transit.
            self._local.reduce(name, None, is_home=False)
        taken = self._taken(name, request.segment)
        if taken:
            links = ", ".join(f"'{link}'" for link in taken)
            problem = Problem(
                409,
                "vlan-in-use",
                "VLAN id in use",
                f"the VLAN id asked for on hand-off link {links} is in use",
            )
            return Refused(problem, taken)
        pending = Pending(version, request.segment, now + request.hold_s)
        self._local.hold(pending.hold_id(connection), name, request.segment, pending.until)
        if note is None:
            note = Note(connection, version, now)
        self._save(replace(note, seen=version, at=now, released=False, pending=pending))
        return Done()

    def _commit(self, now: float, request: Commit) -> Reply:
        connection, version = request.connection, request.version
        note = self._known.get(connection)
        if note is not None and note.committed_version == version and not note.released:
            return Done()
        if note is None or note.pending is None or note.pending.version != version:
            raise Refusal(stale(connection, version))
        pending = note.pending
        if now >= pending.until:
            self._local.release(self.path_name(connection))
            self._save(replace(note, pending=None, at=now))
            raise Refusal(stale(connection, version))
        # Write the note first: the segment is still audited if this controller dies now, or if the
        # path service refuses and leaves something that switches have not confirmed.
        note = replace(note, committed=pending.segment, committed_version=0, at=now)
        self._save(note)
        try:
            self._local.commit(pending.hold_id(connection))
        except Refusal:
            self._save(replace(note, pending=None))
            raise
        is_home = connection.coordinator == self.home
        self._local.reduce(self.path_name(connection), pending.segment, is_home=is_home)
        self._save(
            Note(connection, version, now, committed=pending.segment, committed_version=version)
        )
        return Done()

    def _release(self, now: float, request: Release) -> Reply:
        connection, version = request.connection, request.version
        note = self._known.get(connection)
        if note is not None and version < note.seen:
            return Done()  # a newer request has replaced it
        is_same = note is not None and version == note.seen and note.released
        if note is not None and is_same and note.committed == request.segment:
            return Done()
        self._local.release(self.path_name(connection))
        is_home = connection.coordinator == self.home
        self._local.reduce(self.path_name(connection), request.segment, is_home=is_home)
        self._save(Note(connection, version, now, released=True, committed=request.segment))
        return Done()

    def check(self, connection: Connection, segment: Segment) -> None:
        """Raise Refusal for a segment that does not begin at a hand-off of this domain."""
        for endpoint in segment.endpoints:
            domain = self._domains.domain_of.get(endpoint.switch)
            if domain != self.home:
                raise Refusal(
                    Problem(
                        422,
                        "invalid-endpoint",
                        "Invalid endpoint",
                        f"switch '{endpoint.switch}' is not in domain '{self.home}'",
                    )
                )
            hand_off = self._domains.hand_off_at(endpoint.switch, endpoint.port)
            is_entry = endpoint is segment.root and connection.coordinator != self.home
            if hand_off is None and is_entry:
                raise Refusal(
                    Problem(
                        422,
                        "invalid-endpoint",
                        "Invalid endpoint",
                        f"{endpoint} is not a hand-off to another domain; "
                        f"valid: {self._hand_offs()}",
                    )
                )
            if hand_off is not None:
                low, high = hand_off.vlan_range
                if not low <= endpoint.vlan <= high:
                    raise Refusal(
                        Problem(
                            422,
                            "invalid-endpoint",
                            "Invalid endpoint",
                            f"VLAN id {endpoint.vlan} on hand-off link '{hand_off.link}'; "
                            f"valid: {low}..{high}",
                        )
                    )

    def _hand_offs(self) -> str:
        ports = [
            f"{port.node}:{port.number} (link '{hand_off.link}')"
            for hand_off in self._domains.hand_offs.values()
            for domain, port in hand_off.ports.items()
            if domain == self.home
        ]
        return ", ".join(ports) or "none"

    def _taken(self, name: str, segment: Segment) -> dict[str, tuple[int, ...]]:
        """Return all VLAN ids in use here, by hand-off link of the segment, for links whose
        requested id is in use."""
        result: dict[str, tuple[int, ...]] = {}
        for endpoint in segment.endpoints:
            hand_off: HandOff | None = self._domains.hand_off_at(endpoint.switch, endpoint.port)
            if hand_off is not None:
                taken = self._local.taken_vlans(endpoint.switch, endpoint.port, name)
                if endpoint.vlan in taken:
                    result[hand_off.link] = tuple(sorted(taken))
        return result

    def _save(self, note: Note) -> None:
        self._notes.save(note)
        self._known[note.connection] = note


def stale(connection: Connection, version: int) -> Problem:
    return Problem(
        409,
        "stale",
        "Not reserved",
        f"version {version} of '{connection}' is not, or no longer, reserved",
    )
