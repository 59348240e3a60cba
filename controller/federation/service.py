# SPDX-License-Identifier: Apache-2.0
"""The path service of a domain with peers: leaves may be in any controller domain.

Its users see an ordinary path service. To add a leaf on a switch of another domain, it works with
the domains on the way. The hand-offs that this needs are leaves of the path in its own domain, but
users do not see them as leaves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

from controller.federation.federation import Federation
from controller.federation.local import is_at_hand_off
from controller.federation.records import Record
from controller.federation.trees import Domains, Tree
from controller.paths.calendar import Booking
from controller.paths.core import Endpoint, EndpointKey
from controller.paths.multipoint_path import Algorithm, Channels, Edge
from controller.service.problems import ServiceError
from controller.service.service import PathService
from controller.service.views import HoldView, PathView, PathWish

PATIENCE_S = 20.0
T = TypeVar("T")


class FederatedView(PathView):
    """A path with its leaves in all domains, and with its channels' members in this domain."""

    def __init__(
        self, own: PathView, domains: Domains, record: Record, lost: Iterable[str]
    ) -> None:
        self._own = own
        self._domains = domains
        self._tree = record.tree
        self._wanted = record.wanted
        self._lost = frozenset(lost)
        self.path = replace(
            own.path,
            leaves=(
                *(leaf for leaf in own.path.leaves if not is_at_hand_off(domains, leaf)),
                *record.tree.all_leaves,
                *record.wanted,
            ),
            members=frozenset(
                member
                for member in own.path.members
                if domains.hand_off_at(*member.leaf[:2]) is None
            ),
        )

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Return the path's core links in this domain."""
        return self._own.edges

    @property
    def group_switches(self) -> tuple[str, ...]:
        """Return the switches of this domain that copy frames."""
        return self._own.group_switches

    @cached_property
    def _down(self) -> frozenset[EndpointKey]:
        """Return this domain's leaves that are down, and leaves behind a hand-off or domain that is
        down."""
        down = self._own.down_leaves()
        home = self._domains.domain_of[self.path.root.switch]
        away: set[str] = set()
        for domain, entry in self._tree.entries.items():  # parents before children
            hand_off = self._domains.hand_offs[entry.link]
            parent = hand_off.other(domain)
            port = hand_off.ports[parent]
            cut = parent == home and (port.node, port.number, entry.vlan) in down
            if cut or parent in away or domain in self._lost:
                away.add(domain)
        remote = {leaf.key for domain in away for leaf in self._tree.leaves.get(domain, ())}
        wanted = {leaf.key for leaf in self._wanted}
        own = {leaf.key for leaf in self.path.leaves}
        return frozenset((down & own) | remote | wanted)

    def down_leaves(self) -> frozenset[EndpointKey]:
        """Return the leaves, in all domains, that receive nothing now."""
        return self._down

    @property
    def up(self) -> bool:
        """Return whether every leaf in every domain is reached."""
        return self._own.up and not self._down


class FederatedService:
    """The path service of a domain with peers. `own` is the path service of the domain alone."""

    def __init__(self, own: PathService, federation: Federation) -> None:
        self._own = own
        self._federation = federation
        self.events = own.events

    @property
    def _domains(self) -> Domains:
        return self._federation.domains

    @property
    def is_active(self) -> bool:
        """Return whether this controller acts; a standby does not."""
        return self._own.is_active

    def check_active(self) -> None:
        """Raise ServiceError 503 on a standby."""
        self._own.check_active()

    # -- reading

    def switches(self) -> dict[str, bool]:
        """Return, by switch of this domain, whether it is connected and has the entries it
        should."""
        return self._own.switches()

    def path(self, name: str) -> PathView:
        """Return a path with its leaves in all domains. Raises ServiceError 404."""
        return self._seen(self._own.path(name))

    def paths(self) -> list[PathView]:
        """Return all paths with their leaves in all domains."""
        return [self._seen(view) for view in self._own.paths()]

    def _seen(self, view: PathView) -> PathView:
        name = view.path.name
        record = self._record(name)
        if record is None:
            return view
        lost = self._federation.lost(name)
        return FederatedView(view, self._domains, record, lost)

    # -- changing

    def create(
        self,
        name: str,
        root: Endpoint,
        rate_bps: int,
        *,
        workgroup: str = "",
        algorithm: Algorithm = Algorithm.SHORTEST,
        leaf_to_leaf: bool = False,
        end_time: float | None = None,
        channels: Channels | None = None,
    ) -> tuple[PathView, bool]:
        """Create a path without leaves; see PathService.create."""
        self._check_no_hand_off(root)
        view, is_new = self._own.create(
            name,
            root,
            rate_bps,
            workgroup=workgroup,
            algorithm=algorithm,
            leaf_to_leaf=leaf_to_leaf,
            end_time=end_time,
            channels=channels,
        )
        return self._seen(view), is_new

    def add_leaf(self, name: str, leaf: Endpoint) -> tuple[PathView, bool]:
        """Add a leaf in any domain; see PathService.add_leaf."""
        if self._is_here(leaf.switch):
            self._check_no_hand_off(leaf)
            view, is_new = self._patiently(name, lambda: self._own.add_leaf(name, leaf))
            return self._seen(view), is_new
        path = self._own.path(name).path
        leaf = self._domains.with_macs(leaf)
        record = self._record(name)
        known = {known.key: known for known in record.tree.all_leaves} if record else {}
        if leaf.key in known:
            if known[leaf.key].macs == leaf.macs:
                return self.path(name), False
            raise ServiceError(
                409,
                "leaf-exists",
                "Leaf exists",
                f"leaf {leaf} of path '{name}' exists with MACs "
                f"{', '.join(known[leaf.key].macs)} instead of {', '.join(leaf.macs) or 'any'}",
            )
        if path.leaf_to_leaf:
            raise ServiceError(
                422,
                "invalid-endpoint",
                "Invalid endpoint",
                f"path '{name}' has leaf_to_leaf, and leaf {leaf} is in domain "
                f"'{self._domains.domain_of[leaf.switch]}'; valid: leaves in domain "
                f"'{self._federation.home}'",
            )
        for near in path.leaves:
            at_hand_off = is_at_hand_off(self._domains, near)
            if not at_hand_off and (shared := sorted(set(near.macs) & set(leaf.macs))):
                detail = f"MAC {shared[0]} of leaf {leaf} is already at {near}"
                raise ServiceError(422, "invalid-endpoint", "Invalid endpoint", detail)
        algorithm = path.algorithm.value
        empty = Tree(path.root, path.rate_bps, algorithm, channels=path.channels)
        self._federation.add_leaf(name, empty, leaf)
        return self.path(name), True

    def remove_leaf(self, name: str, key: EndpointKey) -> PathView:
        """Remove a leaf in any domain; see PathService.remove_leaf."""
        if self._is_here(key[0]):
            if self._domains.hand_off_at(key[0], key[1]) is not None:
                raise self._no_leaf(name, key)
            return self._seen(self._patiently(name, lambda: self._own.remove_leaf(name, key)))
        self._own.path(name)
        record = self._record(name)
        leaves = (*record.tree.all_leaves, *record.wanted) if record is not None else ()
        if key not in {leaf.key for leaf in leaves}:
            raise self._no_leaf(name, key)
        self._federation.remove_leaves(name, {key})
        return self.path(name)

    def set_end_time(self, name: str, end_time: float | None) -> PathView:
        """Set when the path ends, in all domains; see PathService.set_end_time."""
        booked = self._federation.bookings.tree(name)
        if booked is not None and (end_time is None or end_time > booked.end_s):
            detail = (
                f"end_time {'none' if end_time is None else f'{end_time:.3f}'} of path '{name}', "
                f"which is reserved over several domains; valid: at most {booked.end_s:.3f}"
            )
            raise ServiceError(409, "reserved-until", "Reserved until then", detail)
        return self._seen(self._patiently(name, lambda: self._own.set_end_time(name, end_time)))

    def delete(self, name: str) -> None:
        """Delete a path in all domains; see PathService.delete."""
        self._own.path(name)
        if self._record(name) is not None:
            self._federation.remove_leaves(name, None)
        self._patiently(name, lambda: self._own.delete(name))

    # -- reservations for later; holds, of endpoints in this domain

    def bookings(self) -> list[Booking]:
        """Return what is reserved for later, ordered by start."""
        return [self._federation.bookings.seen(booking) for booking in self._own.bookings()]

    def booking(self, name: str) -> Booking:
        """Return the reservation of a path. Raises ServiceError 404."""
        return self._federation.bookings.seen(self._own.booking(name))

    def book(self, wish: PathWish, start_s: float) -> tuple[Booking, bool]:
        """Reserve a path for later, in all domains or in none; see PathService.book."""
        if all(self._is_here(leaf.switch) for leaf in wish.leaves):
            self._check_here(wish, "a reservation")
            return self._own.book(wish, start_s)
        if wish.leaf_to_leaf or not self._is_here(wish.root.switch):
            found = "leaf_to_leaf" if wish.leaf_to_leaf else f"root {wish.root}"
            valid = f"a root in domain '{self._federation.home}', without leaf_to_leaf"
            detail = f"{found} in a reservation over several domains; valid: {valid}"
            raise ServiceError(422, "invalid-endpoint", "Invalid endpoint", detail)
        for endpoint in (wish.root, *wish.leaves):
            if self._is_here(endpoint.switch):
                self._check_no_hand_off(endpoint)
        self.check_active()
        return self._federation.bookings.book(wish, start_s)

    def cancel(self, name: str) -> None:
        """Cancel a reservation; see PathService.cancel."""
        self._own.booking(name)
        self._federation.bookings.cancel(name)

    def _check_here(self, wish: PathWish, what: str) -> None:
        for endpoint in (wish.root, *wish.leaves):
            if not self._is_here(endpoint.switch):
                raise ServiceError(
                    422,
                    "invalid-endpoint",
                    "Invalid endpoint",
                    f"{endpoint} is in domain '{self._domains.domain_of[endpoint.switch]}'; valid "
                    f"in {what}: endpoints of domain '{self._federation.home}'",
                )
            self._check_no_hand_off(endpoint)

    def hold_view(self, hold_id: str) -> HoldView:
        """Return a hold, open or over. Raises ServiceError 404."""
        return self._own.hold_view(hold_id)

    def hold(self, hold_id: str, wish: PathWish, hold_until: float) -> HoldView:
        """Reserve what a wish needs; see PathService.hold."""
        self._check_here(wish, "a hold")
        return self._own.hold(hold_id, wish, hold_until)

    def commit(self, hold_id: str) -> PathView:
        """Install a hold; see PathService.commit."""
        return self._seen(self._own.commit(hold_id))

    def release(self, hold_id: str) -> None:
        """Release a hold; see PathService.release."""
        self._own.release(hold_id)

    # -- links

    def note_link(self, link: str, up: bool, why: str = "") -> frozenset[str]:
        """Avoid a link in plans from now on, or use it again; return the paths to re-route."""
        concerned = self._own.note_link(link, up, why)
        self._federation.link_changed(link, up)
        return concerned

    # -- internals

    def _record(self, name: str) -> Record | None:
        """Return the other domains' part of a path, even if it was reserved and has only just
        begun."""
        self._federation.begin_booking(name)
        return self._federation.record(name)

    def _patiently(self, name: str, change: Callable[[], T]) -> T:
        """Make a change in this domain. Wait while the path is held for leaves in other
        domains."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return change()
            except ServiceError as error:
                hold = self._own.open_hold(name)
                ours = hold is None or hold.id.startswith(f"{self._federation.home}:{name}:")
                if error.kind != "path-held" or not ours or time.monotonic() > until:
                    raise
            time.sleep(0.02)

    def _is_here(self, switch: str) -> bool:
        """Return whether the switch is in this domain, or in no domain: then this domain's path
        service raises the error."""
        return self._domains.domain_of.get(switch, self._federation.home) == self._federation.home

    def _check_no_hand_off(self, endpoint: Endpoint) -> None:
        hand_off = self._domains.hand_off_at(endpoint.switch, endpoint.port)
        if hand_off is not None:
            raise ServiceError(
                422,
                "invalid-endpoint",
                "Invalid endpoint",
                f"{endpoint} is at the hand-off to domain "
                f"'{hand_off.other(self._federation.home)}' (link '{hand_off.link}'); valid: the "
                "endpoint in that domain itself",
            )

    def _no_leaf(self, name: str, key: EndpointKey) -> ServiceError:
        leaves = self.path(name).path.leaves
        return ServiceError(
            404,
            "unknown-leaf",
            "Unknown leaf",
            f"path '{name}' has no leaf {key[0]}:{key[1]}:{key[2]}; its leaves: "
            f"{', '.join(map(str, leaves[:8])) or 'none'}",
        )
