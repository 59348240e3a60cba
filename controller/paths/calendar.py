# SPDX-License-Identifier: Apache-2.0
"""Reservations for a later time (advance reservation, DRFSM21 6.2): what is booked when. No I/O.

A booking is a whole path, planned with its tree, for its own time. It is admitted as if every path
and booking that overlaps it lasted for its whole time. So no link is ever overbooked, but sometimes
a booking is refused that would fit. VLAN ids and numbers are chosen when it begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from controller.paths.core import (
    NOTHING_DOWN,
    Bottleneck,
    Core,
    DownSet,
    Endpoint,
    EndpointInUse,
    NoCapacity,
    NoVlanLeft,
)
from controller.paths.multipoint_path import MultipointPath, TreeHop
from controller.paths.plan import add_leaf, create_path
from controller.paths.reservations import Direction, Reservations


@dataclass(frozen=True)
class Booking:
    """A path that begins at `start_s` and ends at `end_s` (epoch seconds)."""

    path: MultipointPath
    start_s: float
    end_s: float

    @property
    def name(self) -> str:
        """Return the name of the path."""
        return self.path.name

    def overlaps(self, start_s: float, end_s: float | None) -> bool:
        """Return whether it overlaps [start_s, end_s); None: no end."""
        return self.start_s < (float("inf") if end_s is None else end_s) and start_s < self.end_s


def loads_of(core: Core, path: MultipointPath) -> Counter[Direction]:
    """Return what a path needs of each direction of a link, in bit/s: in its tree, and on the links
    to its root and leaves."""
    found: Counter[Direction] = Counter()
    if not path.rate_bps:
        return found
    root = core.access[path.root.switch, path.root.port]
    found[root.link, root.neighbour] += path.rate_bps
    for leaf in path.leaves:
        found[core.access[leaf.switch, leaf.port].link, leaf.switch] += path.rate_bps
    for hop in path.hops:
        found[hop.link, hop.source] += path.rate_bps
    return found


def capacities_of(core: Core) -> dict[Direction, int]:
    """Return the rate of each direction of a link, for the links that have one."""
    found = {(hop.link, hop.source): hop.rate_bps for hop in core.hops}
    for (switch, _), access in core.access.items():
        found[access.link, access.neighbour] = access.rate_in_bps
        found[access.link, switch] = access.rate_out_bps
    return {direction: rate for direction, rate in found.items() if rate is not None}


class Calendar:
    """The bookings of a domain. Not thread-safe."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._capacities = capacities_of(core)
        self._bookings: dict[str, Booking] = {}

    def __iter__(self) -> Iterator[Booking]:
        return iter(sorted(self._bookings.values(), key=lambda b: (b.start_s, b.name)))

    def __len__(self) -> int:
        return len(self._bookings)

    def find(self, name: str) -> Booking | None:
        """Return the booking of a path, if there is one."""
        return self._bookings.get(name)

    def put(self, booking: Booking) -> None:
        """Add a booking that was planned, or loaded."""
        self._bookings[booking.name] = booking

    def drop(self, name: str) -> None:
        """Remove a booking. Raises KeyError."""
        del self._bookings[name]

    def due(self, now_s: float) -> list[Booking]:
        """Return the bookings whose start is at or before `now_s`, in order."""
        return [booking for booking in self if booking.start_s <= now_s]

    def plan(
        self,
        wish: MultipointPath,
        start_s: float,
        end_s: float,
        live: Iterable[MultipointPath],
        down: DownSet = NOTHING_DOWN,
    ) -> Booking:
        """Return the booking of a path with these leaves; add nothing.

        `live`: the paths that exist now. Raises PlanError.
        """
        books = Reservations(self._core)
        for path in live:
            if path.end_time is None or path.end_time > start_s:
                books.replace(None, path)
        for booking in self:
            if booking.name != wish.name and booking.overlaps(start_s, end_s):
                books.replace(None, self._as_new(books, booking.path))
        # The number is only used in the calendar.
        bare = replace(wish, number=books.next_number(), leaves=(), hops=(), end_time=end_s)
        create_path(self._core, books, bare).apply(books)
        for leaf in wish.leaves:
            path = books.tree(wish.name).now
            add_leaf(self._core, books, path, leaf, down).apply(books)
        return Booking(books.tree(wish.name).now, start_s, end_s)

    def _as_new(self, books: Reservations, path: MultipointPath) -> MultipointPath:
        """Return a booked path with its tree, and with a number and VLAN ids that are free.

        Raises EndpointInUse, NoVlanLeft.
        """
        for endpoint in path.endpoints:
            if (owner := books.owner_of(endpoint.key)) is not None:
                found = books.path(owner)
                raise EndpointInUse(str(endpoint), owner, found.workgroup if found else "")
        taken: dict[str, set[int]] = {}
        hops = []
        for hop in path.hops:
            low, high = self._core.hop[hop.link, hop.source].vlan_range
            mine = taken.setdefault(hop.link, set())
            free = (
                vlan
                for vlan in range(low, high + 1)
                if vlan not in mine and not books.vlan_taken(hop.link, vlan)
            )
            vlan = next(free, None)
            if vlan is None:
                raise NoVlanLeft(f"link '{hop.link}' has no VLAN id left besides the booked ones")
            mine.add(vlan)
            hops.append(TreeHop(hop.link, hop.source, vlan))
        return replace(path, number=books.next_number(), hops=tuple(hops))

    def check(
        self,
        old: MultipointPath | None,
        new: MultipointPath,
        now_s: float,
        reservations: Reservations,
        *,
        entered: bool = False,
    ) -> None:
        """Raise PlanError if a change takes what is booked for a time when the path exists.

        `reservations`: without the change, or with it (`entered`). The present paths count as if
        they never ended.
        """
        overlapping = [b for b in self if b.name != new.name and b.overlaps(now_s, new.end_time)]
        if not overlapping:
            return
        if old is not None and old.end_time != new.end_time:
            old, entered = None, True  # the path may keep all it has for longer
        known = set() if old is None else {endpoint.key for endpoint in old.endpoints}
        self._check_endpoints([e for e in new.endpoints if e.key not in known], overlapping)
        more = loads_of(self._core, new)
        if old is not None:
            more.subtract(loads_of(self._core, old))
        booked = Counter[Direction]()
        for booking in overlapping:
            booked.update(loads_of(self._core, booking.path))
        for direction, extra_bps in more.items():
            capacity_bps = self._capacities.get(direction)
            if extra_bps <= 0 or capacity_bps is None or not booked[direction]:
                continue
            taken_bps = reservations.reserved_bps(*direction) + booked[direction]
            taken_bps -= extra_bps if entered else 0
            if taken_bps + extra_bps > capacity_bps:
                link, source = direction
                raise NoCapacity(
                    new.name, Bottleneck(link, source, capacity_bps, taken_bps, extra_bps)
                )

    @staticmethod
    def _check_endpoints(added: Iterable[Endpoint], overlapping: Iterable[Booking]) -> None:
        wanted = {endpoint.key for endpoint in added}
        for booking in overlapping:
            for endpoint in booking.path.endpoints:
                if endpoint.key in wanted:
                    raise EndpointInUse(str(endpoint), booking.name, booking.path.workgroup)
