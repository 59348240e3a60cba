# SPDX-License-Identifier: Apache-2.0
"""Segments as paths of this domain's path service."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from controller.federation.trees import Domains, Refusal
from controller.federation.values import Problem, Segment
from controller.paths.core import Endpoint, EndpointKey
from controller.paths.multipoint_path import Algorithm, MultipointPath
from controller.service.problems import ServiceError
from controller.service.views import HoldView, PathView, PathWish

# A path service drops what it removed even if a switch has not confirmed: the switch gets the
# desired state when it reconnects.
_DONE_ALL_THE_SAME = frozenset({"unconfirmed", "unknown-path", "unknown-leaf"})


class Service(Protocol):
    """The part of `controller.service.service.PathService` that this module needs."""

    def path(self, name: str) -> PathView:
        """Return a path. Raises ServiceError 404."""

    def down_links(self) -> Mapping[str, str]:
        """Return the links that are down."""

    def owner_of(self, key: EndpointKey) -> str | None:
        """Return the path or hold that has an endpoint."""

    def open_hold(self, name: str) -> HoldView | None:
        """Return the hold that is open on a path."""

    def hold(self, hold_id: str, wish: PathWish, hold_until: float) -> HoldView:
        """Reserve what a wish needs."""

    def commit(self, hold_id: str) -> PathView:
        """Install a hold."""

    def release(self, hold_id: str) -> None:
        """Release a hold."""

    def remove_leaf(self, name: str, key: EndpointKey) -> PathView:
        """Remove a leaf."""

    def set_macs(self, name: str, key: EndpointKey, macs: Iterable[str]) -> PathView:
        """Replace a leaf's MACs."""

    def delete(self, name: str) -> None:
        """Delete a path."""


class ServicePaths:
    """`participant.LocalPaths` over a path service.

    `service` is the domain's own: requests to it concern only this domain.
    """

    def __init__(self, domains: Domains, home: str, service: Service) -> None:
        self._domains = domains
        self._home = home
        self._service = service

    def taken_vlans(self, switch: str, port: int, besides: str) -> frozenset[int]:
        """Return the VLAN ids at a hand-off that are in use by paths other than `besides`."""
        hand_off = self._domains.hand_off_at(switch, port)
        low, high = (1, 4094) if hand_off is None else hand_off.vlan_range
        owner_of = self._service.owner_of
        return frozenset(
            vlan
            for vlan in range(low, high + 1)
            if owner_of((switch, port, vlan)) not in (None, besides)
        )

    def hold(self, hold_id: str, path: str, segment: Segment, until: float) -> None:
        """Reserve a segment until `until` (epoch seconds). Raises Refusal."""
        peer, colon, _ = path.partition(":")
        with _refusals():
            if colon:
                wish = PathWish(
                    name=path,
                    root=segment.root,
                    rate_bps=segment.rate_bps,
                    workgroup=peer,
                    algorithm=algorithm_of(segment.algorithm),
                    leaves=segment.leaves,
                    channels=segment.channels,
                )
            else:
                own = self._service.path(path).path
                wish = PathWish(
                    name=path,
                    root=own.root,
                    rate_bps=own.rate_bps,
                    workgroup=own.workgroup,
                    algorithm=own.algorithm,
                    leaf_to_leaf=own.leaf_to_leaf,
                    leaves=segment.leaves,
                    channels=own.channels,
                )
            self._service.hold(hold_id, wish, until)

    def commit(self, hold_id: str) -> None:
        """Install a hold. Raises Refusal."""
        with _refusals():
            self._service.commit(hold_id)

    def release(self, path: str) -> None:
        """Release the hold that a federation opened on the path. Raises Refusal."""
        hold = self._service.open_hold(path)
        prefix = path if ":" in path else f"{self._home}:{path}"
        if hold is not None and hold.id.startswith(f"{prefix}:"):
            with _refusals():
                self._service.release(hold.id)

    def reduce(self, path: str, segment: Segment | None, *, is_home: bool) -> None:
        """Remove everything of the path that is not in `segment` (None: the path). Raises
        Refusal."""
        found = self.segment(path)
        if found is None:
            return
        if segment is None and not is_home:
            self._removal(partial(self._service.delete, path))
            return
        kept = {leaf.key: leaf for leaf in segment.leaves} if segment is not None else {}
        for leaf in found.leaves:
            if is_home and self._domains.hand_off_at(leaf.switch, leaf.port) is None:
                continue
            wanted = kept.get(leaf.key)
            if wanted is None:
                self._removal(partial(self._service.remove_leaf, path, leaf.key))
            elif wanted.macs != leaf.macs:
                self._removal(partial(self._service.set_macs, path, leaf.key, wanted.macs))

    def segment(self, path: str) -> Segment | None:
        """Return this domain's segment of the path; None if it has none."""
        try:
            found = self._service.path(path).path
        except ServiceError as error:
            if error.kind == "unknown-path":
                return None
            raise
        return segment_of(found)

    def down_links(self) -> Container[str]:
        """Return the links that are down."""
        return self._service.down_links()

    def _removal(self, call: Callable[[], object]) -> None:
        try:
            call()
        except ServiceError as error:
            if error.kind not in _DONE_ALL_THE_SAME:
                raise Refusal(problem_of(error)) from error


def segment_of(path: MultipointPath) -> Segment:
    """Return a path of this domain as a segment."""
    leaves = tuple(sorted(path.leaves))
    return Segment(path.root, path.rate_bps, leaves, path.algorithm.value, path.channels)


def problem_of(error: ServiceError) -> Problem:
    """Return the problem of a path service's error, in a form that any domain may read."""
    public = error.public
    return Problem(public.status, public.kind, public.title, public.detail)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ServiceError as error:
        raise Refusal(problem_of(error)) from error


def algorithm_of(name: str) -> Algorithm:
    """Return a segment's algorithm. Raises Refusal."""
    try:
        return Algorithm(name)
    except ValueError:
        detail = f"algorithm '{name}'; valid: {', '.join(Algorithm)}"
        raise Refusal(Problem(422, "invalid", "Invalid request", detail)) from None


def is_at_hand_off(domains: Domains, endpoint: Endpoint) -> bool:
    """Return whether an endpoint is on a port that leads to another domain."""
    return domains.hand_off_at(endpoint.switch, endpoint.port) is not None
