# SPDX-License-Identifier: Apache-2.0
"""The path service: which paths exist, who waits for what, what happens when something fails.

No framework, no socket: messages leave through the injected `apply`, what switches hold comes
through `read`. Requests are idempotent. A change is planned under a lock (never while a switch is
waited for), written to the store, and only then sent: phase by phase, in the order of planning at
each switch (installer.py). Changes of one path follow each other; others run side by side.

Desired state is kept whatever the switches say: a switch whose content is not confirmed makes its
paths "degraded" and is brought to the desired state when it (re)connects or on the next retry.
Only what a switch refuses is undone, and only where nothing was freed that others may have by now.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from controller.paths.core import Endpoint, EndpointKey, PlanError
from controller.paths.entries import Entry
from controller.paths.multipoint_path import Algorithm, MultipointPath
from controller.paths.plan import (
    Step,
    add_leaf,
    create_path,
    delete_path,
    remove_leaf,
    set_macs,
)
from controller.paths.queues import QueueError
from controller.service.changes import Changes
from controller.service.events import EventKind
from controller.service.holds import Hold
from controller.service.problems import ServiceError, of_plan_error
from controller.service.views import (
    HoldState,
    HoldView,
    PathView,
    PathWish,
)
from controller.switches.installer import (
    Apply,
    Failure,
    Phase,
    Read,
    Why,
)

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


class PathService(Changes):
    """Thread-safe. Reads never wait for switches or for changes."""

    # -- reading

    def switches(self) -> dict[str, bool]:
        """Switch -> connected and holding what it shall."""
        return self._installer.all_known()

    def desired(self, switch: str) -> frozenset[Entry]:
        return self._installer.desired(switch)

    def paths(self) -> list[PathView]:
        return self.domain_paths()

    def domain_paths(self) -> list[PathView]:
        """As this domain's switches have them: hand-offs to other domains are leaves."""
        return [self._view(path) for path in list(self._paths.values())]

    def path(self, name: str) -> PathView:
        """Raises ServiceError 404."""
        return self._view(self._existing(name))

    def down_links(self) -> dict[str, str]:
        """Core links that carry nothing just now -> why."""
        return dict(self._down_links)

    def reserved_bps(self, link: str, node: str) -> int:
        """Guaranteed to paths and holds on the direction of the link that leaves `node`."""
        return self._reservations.reserved_bps(link, node)

    def owner_of(self, key: EndpointKey) -> str | None:
        """The path (or hold) that has the endpoint."""
        return self._reservations.owner_of(key)

    def hold_view(self, hold_id: str) -> HoldView:
        """Raises ServiceError 404."""
        return self._holds.existing(hold_id).view()

    def open_hold(self, name: str) -> HoldView | None:
        """The hold that is open on a path, if any."""
        with self._lock:
            hold = self._holds.open_of(name)
        return None if hold is None else hold.view()

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
    ) -> tuple[PathView, bool]:
        """Returns the path and whether it is new. Raises ServiceError 409, 422, 502, 503, 504."""
        root = self.core.with_registered_macs(root)
        wish = PathWish(name, root, rate_bps, workgroup, algorithm, leaf_to_leaf, end_time)

        def plan() -> Step | None:
            self._check_end_time(end_time)
            old = self._paths.get(name)
            if old is not None:
                _check_same(wish, old)
                return None
            self._check_not_held(name)
            return create_path(self.core, self._reservations, self._new_path(wish))

        return self._change(
            name,
            plan,
            EventKind.PATH_CREATED,
            {"root": str(root), "rate_bps": rate_bps},
            may_undo=True,
            endpoints=[root.key],
        )

    def add_leaf(self, name: str, leaf: Endpoint) -> tuple[PathView, bool]:
        """Returns the path and whether the leaf is new. Raises ServiceError 404, 409, 422, 502,
        503, 504."""
        leaf = self.core.with_registered_macs(leaf)

        def plan() -> Step | None:
            old = self._existing(name)
            known = self._leaf_of(old, leaf.key)
            if known is None:
                self._check_not_held(name)
                return add_leaf(self.core, self._reservations, old, leaf, self._down)
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
        return self._change(
            name, plan, EventKind.LEAF_ADDED, data, may_undo=True, endpoints=[leaf.key]
        )

    def remove_leaf(self, name: str, key: EndpointKey) -> PathView:
        """Raises ServiceError 404, 409, 503, 504."""
        text = f"{key[0]}:{key[1]}:{key[2]}"

        def plan() -> Step:
            old = self._existing(name)
            if self._leaf_of(old, key) is None:
                shown = ", ".join(map(str, old.leaves[:8])) or "none"
                more = f" and {len(old.leaves) - 8} more" if len(old.leaves) > 8 else ""
                raise ServiceError(
                    404,
                    "unknown-leaf",
                    "Unknown leaf",
                    f"path '{name}' has no leaf {text}; its leaves: {shown}{more}",
                )
            self._check_not_held(name)
            return remove_leaf(self.core, self._reservations, old, key)

        return self._change(name, plan, EventKind.LEAF_REMOVED, {"leaf": text}, may_undo=False)[0]

    def set_macs(self, name: str, key: EndpointKey, macs: Iterable[str]) -> PathView:
        """Other MACs behind a leaf. Raises ServiceError 404, 409, 422, 502, 503, 504."""
        wanted = Endpoint.of(*key, macs)

        def plan() -> Step | None:
            old = self._existing(name)
            known = self._leaf_of(old, key)
            if known is None:
                raise ServiceError(
                    404, "unknown-leaf", "Unknown leaf", f"path '{name}' has no leaf {wanted}"
                )
            if known.macs == wanted.macs:
                return None
            self._check_not_held(name)
            return set_macs(self.core, self._reservations, old, key, wanted.macs)

        data = {"leaf": str(wanted), "macs": len(wanted.macs)}
        return self._change(name, plan, EventKind.PATH_CHANGED, data, may_undo=False)[0]

    def set_end_time(self, name: str, end_time: float | None) -> PathView:
        """Raises ServiceError 404, 409, 422, 503."""

        def plan() -> Step | None:
            self._check_end_time(end_time)
            old = self._existing(name)
            if old.end_time == end_time:
                return None
            self._check_not_held(name)
            new = replace(old, end_time=end_time)
            what = f"path '{name}' ends at {end_time}"
            return Step(what, old, new, (), version=self._reservations.version)

        data = {"end_time": end_time}
        return self._change(name, plan, EventKind.PATH_CHANGED, data, may_undo=False)[0]

    def delete(self, name: str) -> None:
        """Raises ServiceError 404, 409, 503; 504 if a switch did not confirm (the path is
        forgotten all the same, and the switch is cleaned when it is back)."""
        self._delete(name, EventKind.PATH_DELETED)

    def _delete(self, name: str, kind: EventKind) -> None:
        def plan() -> Step:
            old = self._existing(name)
            self._check_not_held(name)
            return delete_path(self.core, self._reservations, old)

        self._change(name, plan, kind, {}, may_undo=False)

    # -- holds: reserved now, installed at commit

    def hold(self, hold_id: str, wish: PathWish, hold_until: float) -> HoldView:
        """Reserves what is missing so that the path exists with at least the wish's leaves. The
        same hold again changes nothing. Raises ServiceError 409, 422, 503."""
        self.check_active()
        wish = replace(
            wish,
            root=self.core.with_registered_macs(wish.root),
            leaves=tuple(self.core.with_registered_macs(leaf) for leaf in wish.leaves),
        )
        with self._lock:
            endpoints = [wish.root.key, *(leaf.key for leaf in wish.leaves)]
            self._wait_until_idle(wish.name, endpoints)
            known = self._holds.find(hold_id)
            if known is not None:
                known.check_same(wish)
                return known.view()
            self._check_not_held(wish.name)
            old = self._paths.get(wish.name)
            if old is not None:
                _check_same(wish, old)
            self._check_end_time(wish.end_time)
            try:
                new, phases = self._reserve(wish, old)
            except PlanError as error:
                raise of_plan_error(error) from error
            hold = Hold.of(hold_id, wish, old, new, hold_until, phases)
            try:
                with self._writing():
                    self._store.put_hold(hold.row())
            except BaseException:
                self._unreserve(old, new)
                raise
            self._holds.put(hold)
        LOG.info(
            "hold=%s path=%s action=held leaves=%d until=%.3f",
            hold_id,
            wish.name,
            len(wish.leaves),
            hold_until,
        )
        return hold.view()

    def commit(self, hold_id: str) -> PathView:
        """Installs what is held. Repeated: the path. Raises ServiceError 404, 409 (released,
        expired, dropped because the path was re-routed), 502 (undone and released), 503, 504."""
        self.check_active()
        with self._lock:
            self._wait_until_idle(self._holds.existing(hold_id).name)
            hold = self._holds.existing(hold_id)
            if hold.state is HoldState.COMMITTED:
                return self._view(self._existing(hold.name))
            hold.check_open()
            step = Step(f"hold '{hold_id}' of path '{hold.name}'", hold.old, hold.new, hold.phases)
            done = hold.finished(HoldState.COMMITTED, self._clock())
            work = self._begin([step], entered=True, hold=done)
            self._holds.put(done)
        kind = EventKind.PATH_CREATED if hold.old is None else EventKind.PATH_CHANGED
        try:
            self._run(work, kind, {"hold": hold_id}, may_undo=True)
        except ServiceError as error:
            if error.kind == "refused":
                with self._lock, self._writing():
                    undone = hold.finished(HoldState.RELEASED, self._clock())
                    self._store.put_hold(undone.row())
                    self._holds.put(undone)
            raise
        assert hold.new is not None
        return self._view(hold.new)

    def release(self, hold_id: str) -> None:
        """Gives back what is held. Nothing to do if it is over or not known. Raises ServiceError
        409 if it was committed, 503."""
        self.check_active()
        with self._lock:
            hold = self._holds.find(hold_id)
            if hold is None or hold.state in (HoldState.RELEASED, HoldState.EXPIRED):
                return
            if hold.state is HoldState.COMMITTED:
                raise ServiceError(
                    409, "hold-over", "Hold is over", f"hold '{hold_id}' was committed"
                )
            self._drop_hold(hold, HoldState.RELEASED, "released")

    def _reserve(
        self, wish: PathWish, old: MultipointPath | None
    ) -> tuple[MultipointPath, tuple[Phase, ...]]:
        """Puts the path as wished into the books. Raises PlanError, with the books as before."""
        now = old
        phases: list[Phase] = []
        try:
            if now is None:
                step = create_path(self.core, self._reservations, self._new_path(wish))
                step.apply(self._reservations)
                now, phases = step.new, [*step.phases]
            assert now is not None
            for leaf in wish.leaves:
                known = self._reservations.tree(now.name).leaves.get(leaf.key)
                if known is None:
                    step = add_leaf(self.core, self._reservations, now, leaf, self._down)
                elif leaf.macs and known.macs != leaf.macs:
                    step = set_macs(self.core, self._reservations, now, leaf.key, leaf.macs)
                else:
                    continue
                step.apply(self._reservations)
                assert step.new is not None
                now = step.new
                phases += step.phases
        except PlanError:
            self._unreserve(old, now)
            raise
        return now, tuple(phases)

    # -- links and switches come and go

    def link_changed(self, link: str, up: bool, why: str = "") -> None:
        """A core link carries frames again, or no more: the trees that it concerns change."""
        self.reroute(self.note_link(link, up, why), link)

    def note_link(self, link: str, up: bool, why: str = "") -> frozenset[str]:
        """What `link_changed` does at once: plans avoid the link from now on, or use it again.
        Returns the paths that `reroute` has to see to."""
        with self._lock:
            if up == (link not in self._down_links):
                return frozenset()
            if up:
                del self._down_links[link]
                concerned = frozenset(self._incomplete)
            else:
                self._down_links[link] = why
                concerned = frozenset(self._reservations.paths_over(link))
        LOG.warning("link=%s state=%s why=%s", link, "up" if up else "down", why or "-")
        kind = EventKind.LINK_UP if up else EventKind.LINK_DOWN
        self.events.add(kind, self._clock(), link=link, why=why)
        return concerned

    def reroute(self, names: Iterable[str], link: str) -> None:
        """Moves paths to where frames can go, as planned with all links that are down just now.
        A standby leaves that to the active controller."""
        if self.is_active:
            self._reroute(names, link)

    def reroute_all(self) -> None:
        """For a controller that has become active: which links are down it knew before."""
        for link in self.down_links():
            with self._lock:
                names = frozenset(self._reservations.paths_over(link))
            self.reroute(names, link)

    def switch_up(self, switch: str) -> None:
        """A switch connected: what it holds is read, and it gets the difference to what it shall
        hold."""
        if not self.is_active:
            return
        try:
            self._queues.refresh(switch)
        except QueueError as error:
            LOG.error("switch=%s queues: %s", switch, error)
        failure = self._installer.connected(switch)
        if failure is not None:
            LOG.warning("switch=%s connected, not ready: %s", switch, failure)
        else:
            LOG.info("switch=%s ready", switch)

    def switch_down(self, switch: str) -> None:
        self._installer.disconnected(switch)
        LOG.warning("switch=%s disconnected", switch)

    def retry(self, connected: Iterable[str]) -> None:
        """Brings connected switches to the desired state whose content is unknown."""
        if not self.is_active:
            return
        try:
            self._queues.repair()
        except QueueError as error:
            LOG.error("queues: %s", error)
        for switch, failure in self._installer.retry(connected).items():
            LOG.warning("switch=%s still not in the desired state: %s", switch, failure)

    def expire(self) -> None:
        """Deletes paths that have reached their end and holds that nobody committed in time."""
        if not self.is_active:
            return
        now = self._clock()
        with self._lock:
            for hold in self._holds.expired(now):
                self._drop_hold(hold, HoldState.EXPIRED, "expired")
            for hold_id in self._holds.forgotten(now):
                with self._writing():
                    self._store.delete_hold(hold_id)
                self._holds.forget(hold_id)
            over = [p.name for p in self._paths.values() if (p.end_time or now + 1) <= now]
        for name in over:
            try:
                self._delete(name, EventKind.PATH_EXPIRED)
            except ServiceError as error:
                LOG.warning("path=%s action=path-expired: %s", name, error.detail)

    # -- inside

    def _leaf_of(self, path: MultipointPath, key: EndpointKey) -> Endpoint | None:
        """The path's leaf, whether a hold has reserved more or not."""
        if self._holds.open_of(path.name) is None:
            return self._reservations.tree(path.name).leaves.get(key)
        return next((leaf for leaf in path.leaves if leaf.key == key), None)

    def _new_path(self, wish: PathWish) -> MultipointPath:
        return MultipointPath(
            name=wish.name,
            number=self._reservations.next_number(),
            root=wish.root,
            rate_bps=wish.rate_bps,
            workgroup=wish.workgroup,
            algorithm=wish.algorithm,
            leaf_to_leaf=wish.leaf_to_leaf,
            end_time=wish.end_time,
        )

    def _check_end_time(self, end_time: float | None) -> None:
        if end_time is not None and end_time <= self._clock():
            raise ServiceError(
                422,
                "invalid",
                "Invalid request",
                f"end_time {end_time:.3f} is over; valid: after now ({self._clock():.3f})",
            )


def _check_same(wish: PathWish, path: MultipointPath) -> None:
    """Raises ServiceError 409, which says what differs."""
    differences = wish.differences(path)
    if differences:
        raise ServiceError(
            409, "path-exists", "Path exists", f"path '{path.name}' exists with {differences}"
        )
