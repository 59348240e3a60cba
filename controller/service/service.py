# SPDX-License-Identifier: Apache-2.0
"""The path service: which paths exist, what waits for what, and what happens after a failure.

No framework, no socket: messages leave through the injected `apply`, and `read` returns what
switches have. Requests are idempotent. A change is planned under a lock (which is never held while
waiting for a switch), written to the store, and only then sent: phase by phase, and at each switch
in the order of planning (installer.py). Changes of one path follow each other; others run side by
side.

The service keeps the desired state whatever the switches say. A switch whose content is not
confirmed makes its paths "degraded". It is brought to the desired state when it (re)connects, or at
the next retry. A change is undone only if a switch refused it and it freed nothing that other paths
may now have.

`PathState` (state.py) is what is wanted, `ChangeRunner` (changes.py) brings the switches to it,
`HoldRequests` (hold_requests.py) reserves now and installs later, and `BookingRequests`
(booking_requests.py) reserves for a later time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from controller.paths.calendar import Booking
from controller.paths.core import Core, Endpoint, EndpointKey, core_of
from controller.paths.entries import Entry
from controller.paths.multipoint_path import Algorithm, Channels, MultipointPath
from controller.paths.plan import (
    Step,
    add_leaf,
    create_path,
    delete_path,
    remove_leaf,
    set_channels,
    set_macs,
)
from controller.paths.queues import QueueDriver, QueueError
from controller.service.booking_requests import (
    MOST_OF_A_WORKGROUP,
    BookingRequests,
    Installer,
)
from controller.service.changes import ChangeRunner
from controller.service.events import EventKind, EventLog
from controller.service.hold_requests import HoldRequests
from controller.service.problems import ServiceError
from controller.service.state import PathState
from controller.service.store import Store
from controller.service.views import (
    HoldState,
    HoldView,
    PathView,
    PathWish,
)
from controller.switches.installer import (
    Apply,
    Failure,
    Read,
    Settle,
    Why,
    settled,
)
from topologies.model.network import Network

__all__ = [
    "Apply",
    "Failure",
    "HoldState",
    "HoldView",
    "PathService",
    "PathView",
    "PathWish",
    "Read",
    "ServiceError",
    "Why",
]

LOG = logging.getLogger(__name__)


class PathService:
    """The paths of one domain. Thread-safe. Reads never wait for switches or for changes."""

    def __init__(
        self,
        network: Network,
        domain: str,
        apply: Apply,
        read: Read,
        *,
        store: Store | None = None,
        events: EventLog | None = None,
        queue_driver: QueueDriver | None = None,
        clock: Callable[[], float] = time.time,
        settle: Settle = settled,
    ) -> None:
        """`queue_driver` sets the queues of switch ports; None: they stay as they are. `apply`,
        `settle`, `read`: see installer.py.

        Raises UnknownDomain, StoreError.
        """
        set_queue = queue_driver is not None and queue_driver.sets_queue
        self.core: Core = core_of(network, domain, set_queue=set_queue)
        self.events = events if events is not None else EventLog("0")
        self.state = PathState(
            self.core,
            store if store is not None else Store(None, network.name, domain),
            self.events,
            clock,
        )
        self._runner = ChangeRunner(self.state, apply, read, queue_driver, settle)
        self._bookings = BookingRequests(self.state)
        self._holds = HoldRequests(self.state, self._runner, self._bookings)
        self._load()

    def _load(self) -> None:
        self._runner.load()
        self._bookings.load()

    # -- active or standby

    def activate(self, generation: int | None) -> None:
        """Act from now on: first read the store again, which another controller has used.

        `generation`, of the lease, guards the store. `switch_up` must report the switches again.
        Raises StoreError.
        """
        state = self.state
        with state.lock:
            state.wait_until_quiet()
            state.store.fence(generation)
            self._load()
            state.become_active()
        LOG.info("active: generation=%s paths=%d", generation, len(state.paths))

    def deactivate(self, active: str) -> None:
        """Leave the domain to the controller at the address `active` ("": not known)."""
        with self.state.lock:
            self.state.become_standby(active)
        LOG.info("standby: the active controller is %s", active or "not known")

    @property
    def is_active(self) -> bool:
        """Return whether this controller acts; a standby does not."""
        return self.state.is_active

    def check_active(self) -> None:
        """Raise ServiceError 503 on a standby."""
        self.state.check_active()

    # -- reading

    def switches(self) -> dict[str, bool]:
        """Return, by switch, whether it is connected and has the entries it should."""
        return self._runner.installer.all_known()

    def desired(self, switch: str) -> frozenset[Entry]:
        """Return the entries that a switch should have."""
        return self._runner.installer.desired(switch)

    def paths(self) -> list[PathView]:
        """Return all paths as this domain's switches see them: a hand-off to another domain is a
        leaf."""
        return [self._runner.view(path) for path in list(self.state.paths.values())]

    def path(self, name: str) -> PathView:
        """Return a path. Raises ServiceError 404."""
        return self._runner.view(self.state.existing(name))

    def down_links(self) -> dict[str, str]:
        """Return the core links that carry no frames now, each with the reason."""
        return dict(self.state.down_links)

    def reserved_bps(self, link: str, node: str) -> int:
        """Return the rate guaranteed to paths and holds on the link, in the direction that leaves
        `node`."""
        return self.state.reservations.reserved_bps(link, node)

    def owner_of(self, key: EndpointKey) -> str | None:
        """Return the path (or hold) that has the endpoint."""
        return self.state.reservations.owner_of(key)

    def group_changes(self) -> dict[tuple[str, int], int]:
        """Return for each group, (switch, number), a number that changes whenever a change begins
        or ends."""
        return self._runner.group_changes()

    # -- changing paths

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
        """Create a path without leaves; return it and whether it is new.

        `end_time`: epoch seconds. Raises ServiceError 409, 422, 502, 503, 504.
        """
        root = self.core.with_registered_macs(root)
        wish = PathWish(
            name,
            root,
            rate_bps,
            workgroup,
            algorithm,
            leaf_to_leaf,
            end_time,
            channels=channels,
        )

        def plan() -> Step | None:
            self.state.check_end_time(end_time)
            old = self.state.paths.get(name)
            if old is not None:
                wish.check_same(old)
                return None
            self.state.check_not_held(name)
            step = create_path(self.core, self.state.reservations, self.state.new_path(wish))
            return self._bookings.checked(step)

        return self._runner.change(
            name,
            plan,
            EventKind.PATH_CREATED,
            {"root": str(root), "rate_bps": rate_bps},
            may_undo=True,
            endpoints=[root.key],
        )

    def add_leaf(self, name: str, leaf: Endpoint) -> tuple[PathView, bool]:
        """Add a leaf; return the path and whether the leaf is new.

        Raises ServiceError 404, 409, 422, 502, 503, 504.
        """
        leaf = self.core.with_registered_macs(leaf)

        def plan() -> Step | None:
            old = self.state.existing(name)
            known = self.state.leaf_of(old, leaf.key)
            if known is None:
                self.state.check_not_held(name)
                step = add_leaf(self.core, self.state.reservations, old, leaf, self.state.down)
                return self._bookings.checked(step)
            if known.macs != leaf.macs:
                raise ServiceError(
                    409,
                    "leaf-exists",
                    "Leaf exists",
                    f"leaf {known} of path '{name}' exists with MACs "
                    f"{', '.join(known.macs) or 'any'} instead of {', '.join(leaf.macs) or 'any'}",
                )
            return None

        data = {"leaf": str(leaf)}
        return self._runner.change(
            name, plan, EventKind.LEAF_ADDED, data, may_undo=True, endpoints=[leaf.key]
        )

    def remove_leaf(self, name: str, key: EndpointKey) -> PathView:
        """Remove a leaf and the branch that no other leaf needs.

        Raises ServiceError 404, 409, 503, 504.
        """
        text = f"{key[0]}:{key[1]}:{key[2]}"

        def plan() -> Step:
            old = self.state.existing(name)
            if self.state.leaf_of(old, key) is None:
                shown = ", ".join(map(str, old.leaves[:8])) or "none"
                more = f" and {len(old.leaves) - 8} more" if len(old.leaves) > 8 else ""
                raise ServiceError(
                    404,
                    "unknown-leaf",
                    "Unknown leaf",
                    f"path '{name}' has no leaf {text}; its leaves: {shown}{more}",
                )
            self.state.check_not_held(name)
            return remove_leaf(self.core, self.state.reservations, old, key)

        return self._runner.change(
            name, plan, EventKind.LEAF_REMOVED, {"leaf": text}, may_undo=False
        )[0]

    def set_macs(self, name: str, key: EndpointKey, macs: Iterable[str]) -> PathView:
        """Replace the MACs behind a leaf. Raises ServiceError 404, 409, 422, 502, 503, 504."""
        wanted = Endpoint.of(*key, macs)

        def plan() -> Step | None:
            old = self.state.existing(name)
            known = self.state.leaf_of(old, key)
            if known is None:
                raise ServiceError(
                    404, "unknown-leaf", "Unknown leaf", f"path '{name}' has no leaf {wanted}"
                )
            if known.macs == wanted.macs:
                return None
            self.state.check_not_held(name)
            return set_macs(self.core, self.state.reservations, old, key, wanted.macs)

        data = {"leaf": str(wanted), "macs": len(wanted.macs)}
        return self._runner.change(name, plan, EventKind.PATH_CHANGED, data, may_undo=False)[0]

    def channel_paths(self) -> dict[str, MultipointPath]:
        """Return the paths with channels, by name."""
        paths = list(self.state.paths.values())
        return {path.name: path for path in paths if path.channels is not None}

    def set_channels(self, name: str, wanted: Mapping[EndpointKey, frozenset[int]]) -> None:
        """Let leaves get these channels of the path and no others; skip leaves that are gone.

        Raises ServiceError 404, 409, 503, 504, 507.
        """

        def plan() -> Step | None:
            old = self.state.existing(name)
            self.state.check_not_held(name)
            there = {key: wanted[key] for key in wanted if self.state.leaf_of(old, key) is not None}
            step = set_channels(self.core, self.state.reservations, old, there)
            return None if step.new == old else step

        data = {"leaves": len(wanted), "channels": sum(map(len, wanted.values()))}
        self._runner.change(name, plan, EventKind.PATH_CHANGED, data, may_undo=False)

    def set_end_time(self, name: str, end_time: float | None) -> PathView:
        """Set when the path ends (epoch seconds; None: never). Raises ServiceError 404, 409, 422,
        503."""

        def plan() -> Step | None:
            self.state.check_end_time(end_time)
            old = self.state.existing(name)
            if old.end_time == end_time:
                return None
            self.state.check_not_held(name)
            new = replace(old, end_time=end_time)
            what = f"path '{name}' ends at {end_time}"
            step = Step(what, old, new, (), version=self.state.reservations.version)
            return self._bookings.checked(step)

        data = {"end_time": end_time}
        return self._runner.change(name, plan, EventKind.PATH_CHANGED, data, may_undo=False)[0]

    def delete(self, name: str) -> None:
        """Delete a path.

        Raises ServiceError 404, 409, 503; 504 if a switch did not confirm (even then, the path is
        gone, and the switch is cleaned up when it is back).
        """
        self._delete(name, EventKind.PATH_DELETED)

    def _delete(self, name: str, kind: EventKind) -> None:
        def plan() -> Step:
            old = self.state.existing(name)
            self.state.check_not_held(name)
            return delete_path(self.core, self.state.reservations, old)

        self._runner.change(name, plan, kind, {}, may_undo=False)

    # -- holds

    def hold_view(self, hold_id: str) -> HoldView:
        """Return a hold, open or over. Raises ServiceError 404."""
        return self._holds.view(hold_id)

    def open_hold(self, name: str) -> HoldView | None:
        """Return the hold that is open on a path, if any."""
        return self._holds.open_of(name)

    def hold(self, hold_id: str, wish: PathWish, hold_until: float) -> HoldView:
        """Reserve what a wish needs until `hold_until` (epoch seconds); see HoldRequests.hold."""
        return self._holds.hold(hold_id, wish, hold_until)

    def commit(self, hold_id: str) -> PathView:
        """Install a hold; see HoldRequests.commit."""
        return self._holds.commit(hold_id)

    def release(self, hold_id: str) -> None:
        """Release a hold; see HoldRequests.release."""
        self._holds.release(hold_id)

    # -- reservations for a later time

    def bookings(self) -> list[Booking]:
        """Return what is reserved for later, ordered by start."""
        return self._bookings.all()

    def booking(self, name: str) -> Booking:
        """Return the reservation of a path. Raises ServiceError 404."""
        return self._bookings.existing(name)

    def book(
        self, wish: PathWish, start_s: float, most: int = MOST_OF_A_WORKGROUP
    ) -> tuple[Booking, bool]:
        """Reserve a path for later; see BookingRequests.book."""
        return self._bookings.book(wish, start_s, most)

    def cancel(self, name: str) -> None:
        """Cancel a reservation; see BookingRequests.cancel."""
        self._bookings.cancel(name)

    def _begin(self, path: MultipointPath) -> None:
        self.create(
            path.name,
            path.root,
            path.rate_bps,
            workgroup=path.workgroup,
            algorithm=path.algorithm,
            leaf_to_leaf=path.leaf_to_leaf,
            end_time=path.end_time,
            channels=path.channels,
        )

    # -- links and switches come and go

    def link_changed(self, link: str, up: bool, why: str = "") -> None:
        """Note whether a core link carries frames, and move the paths that this affects."""
        self.reroute(self.note_link(link, up, why), link)

    def note_link(self, link: str, up: bool, why: str = "") -> frozenset[str]:
        """Avoid a link in plans from now on, or use it again; return the paths for `reroute`."""
        with self.state.lock:
            if up == (link not in self.state.down_links):
                return frozenset()
            if up:
                del self.state.down_links[link]
                concerned = frozenset(self.state.incomplete)
            else:
                self.state.down_links[link] = why
                concerned = frozenset(self.state.reservations.paths_over(link))
        LOG.warning("link=%s state=%s why=%s", link, "up" if up else "down", why or "-")
        kind = EventKind.LINK_UP if up else EventKind.LINK_DOWN
        self.events.add(kind, self.state.clock(), link=link, why=why)
        return concerned

    def reroute(self, names: Iterable[str], link: str) -> None:
        """Move paths to links that are up. A standby leaves this to the active controller."""
        if self.is_active:
            self._runner.reroute(names, link)

    def reroute_all(self) -> None:
        """Move paths off all links that are down, for a controller that has become active."""
        for link in self.down_links():
            with self.state.lock:
                names = frozenset(self.state.reservations.paths_over(link))
            self.reroute(names, link)

    def switch_up(self, switch: str) -> None:
        """Read what a switch that connected has, and send it the difference from what it should
        have."""
        if not self.is_active:
            return
        try:
            self._runner.queues.refresh(switch)
        except QueueError as error:
            LOG.error("switch=%s queues: %s", switch, error)
        failure = self._runner.installer.connected(switch)
        if failure is not None:
            LOG.warning("switch=%s connected, not ready: %s", switch, failure)
        else:
            LOG.info("switch=%s ready", switch)

    def switch_down(self, switch: str) -> None:
        """Note that a switch has disconnected."""
        self._runner.installer.disconnected(switch)
        LOG.warning("switch=%s disconnected", switch)

    def retry(self, connected: Iterable[str]) -> None:
        """Bring connected switches whose content is unknown to the desired state, and write what
        the store could not take before."""
        if not self.is_active:
            return
        with self.state.lock:
            self.state.pay()
        self._runner.retry_moves()
        try:
            self._runner.queues.repair()
        except QueueError as error:
            LOG.error("queues: %s", error)
        for switch, failure in self._runner.installer.retry(connected).items():
            LOG.warning("switch=%s still not in the desired state: %s", switch, failure)

    def expire(self) -> None:
        """Delete paths that have reached their end time, and holds that were not committed in time;
        then install the reservations that begin."""
        if not self.is_active:
            return
        now = self.state.clock()
        with self.state.lock:
            try:
                self.state.expire_holds(now)
            except ServiceError:  # logged; the next turn tries again
                return
            over = [p.name for p in self.state.paths.values() if (p.end_time or now + 1) <= now]
        for name in over:
            try:
                self._delete(name, EventKind.PATH_EXPIRED)
            except ServiceError as error:
                if error.kind == "store":
                    return
                LOG.warning("path=%s action=path-expired: %s", name, error.detail)
        self._bookings.begin_due(Installer(self._begin, self.add_leaf))
