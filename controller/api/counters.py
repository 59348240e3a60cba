# SPDX-License-Identifier: Apache-2.0
"""REST routes for the paths' counters, as JSON and as Prometheus metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, Field

from common.http.refused import REFUSED
from controller.api import prometheus
from controller.api.auth import Caller, caller
from controller.api.schemas import AnyName
from controller.paths.stats import Count
from controller.service.counts import (
    ChannelCounts,
    Comparison,
    EdgeCounts,
    EndpointCounts,
    LeafCounts,
    PathCounts,
)
from controller.service.monitor import Monitor
from controller.service.problems import unknown_path
from controller.service.service import PathService

Who = Annotated[Caller, Depends(caller)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class CountModel(_Model):
    """Ethernet frames without FCS, with their tag."""

    packets: int
    bytes: int

    @classmethod
    def of(cls, count: Count) -> CountModel:
        """Return the model of a count."""
        return cls(packets=count.packets, bytes=count.size_bytes)


class ComparisonModel(_Model):
    """Of the `sent` frames since `since` (epoch seconds), `missing` did not arrive. Frames in
    transit count as missing until the next reading."""

    since: float
    sent: int
    missing: int

    @classmethod
    def of(cls, compared: Comparison | None) -> ComparisonModel | None:
        """Return the model of a comparison; None: nothing was compared."""
        if compared is None:
            return None
        return cls(since=compared.since, sent=compared.sent, missing=compared.missing)


class EndpointCountsModel(_Model):
    """Frames dropped at an endpoint.

    `spoofed`: with a source that the endpoint does not have; `denied`: with a destination that its
    hosts may not send to.
    """

    switch: str
    port: int
    vlan: int
    denied: CountModel
    spoofed: CountModel

    @classmethod
    def of(cls, counts: EndpointCounts) -> EndpointCountsModel:
        """Return the model of an endpoint's counts."""
        endpoint = counts.endpoint
        return cls(
            switch=endpoint.switch,
            port=endpoint.port,
            vlan=endpoint.vlan,
            denied=CountModel.of(counts.denied),
            spoofed=CountModel.of(counts.spoofed),
        )


class LeafCountsModel(EndpointCountsModel):
    """Frames `multicast` and `unicast` to the leaf, and `sent` from it to the root.

    `compared`: the multicast that passed the root, with what the leaf received; null: the tree does
    not reach the leaf now.
    """

    multicast: CountModel
    unicast: CountModel
    sent: CountModel
    compared: ComparisonModel | None

    @classmethod
    def of_leaf(cls, counts: LeafCounts) -> LeafCountsModel:
        """Return the model of a leaf's counts."""
        return cls(
            **EndpointCountsModel.of(counts).model_dump(),
            multicast=CountModel.of(counts.multicast),
            unicast=CountModel.of(counts.unicast),
            sent=CountModel.of(counts.sent),
            compared=ComparisonModel.of(counts.compared),
        )


class EdgeCountsModel(_Model):
    """Multicast and broadcast `sent` into a core link, and `arrived` at its end."""

    source: Annotated[str, Field(alias="from")]
    target: Annotated[str, Field(alias="to")]
    vlan: int
    sent: CountModel
    arrived: CountModel
    compared: ComparisonModel | None

    @classmethod
    def of(cls, counts: EdgeCounts) -> EdgeCountsModel:
        """Return the model of an edge's counts."""
        return cls(
            source=counts.edge.source,
            target=counts.edge.target,
            vlan=counts.edge.vlan,
            sent=CountModel.of(counts.sent),
            arrived=CountModel.of(counts.arrived),
            compared=ComparisonModel.of(counts.compared),
        )


class MemberCountsModel(_Model):
    """What a leaf received of a channel."""

    switch: str
    port: int
    vlan: int
    got: CountModel


class ChannelCountsModel(_Model):
    """Frames of a channel that `entered` at the root while some leaf had joined it, and what each
    leaf received."""

    group: str
    entered: CountModel
    leaves: list[MemberCountsModel]

    @classmethod
    def of(cls, counts: ChannelCounts) -> ChannelCountsModel:
        """Return the model of a channel's counts."""
        return cls(
            group=counts.group,
            entered=CountModel.of(counts.entered),
            leaves=[
                MemberCountsModel(
                    switch=leaf.switch, port=leaf.port, vlan=leaf.vlan, got=CountModel.of(count)
                )
                for leaf, count in counts.leaves
            ],
        )


class EnteredModel(_Model):
    multicast: CountModel
    unicast: CountModel


class PathCountersModel(_Model):
    """Frames that `entered` at the root; the meter dropped `meter_dropped` of them, and the rest
    `passed`.

    `unjoined`: frames of channels that no leaf had joined, dropped at the root. `silent`: switches
    of the path that did not answer. Sums continue when a branch comes or goes, but may miss what
    was counted in the seconds before.
    """

    name: str
    time: float
    entered: EnteredModel
    meter_dropped: CountModel
    passed: CountModel
    root: EndpointCountsModel
    leaves: list[LeafCountsModel]
    edges: list[EdgeCountsModel]
    channels: list[ChannelCountsModel]
    unjoined: CountModel
    silent: list[str]

    @classmethod
    def of(cls, counts: PathCounts, time: float) -> PathCountersModel:
        """Return the model of a path's counts, read at `time` (epoch seconds)."""
        return cls(
            name=counts.name,
            time=time,
            entered=EnteredModel(
                multicast=CountModel.of(counts.entered_multicast),
                unicast=CountModel.of(counts.entered_unicast),
            ),
            meter_dropped=CountModel.of(counts.dropped),
            passed=CountModel.of(counts.passed),
            root=EndpointCountsModel.of(counts.root),
            leaves=[LeafCountsModel.of_leaf(leaf) for leaf in counts.leaves],
            edges=[EdgeCountsModel.of(edge) for edge in counts.edges],
            channels=[ChannelCountsModel.of(channel) for channel in counts.channels],
            unjoined=CountModel.of(counts.unjoined),
            silent=list(counts.silent),
        )


def router_of(
    service: PathService,
    monitor: Monitor,
    connections: Callable[[], Mapping[str, int]] = dict,
) -> APIRouter:
    """Return the routes. `connections` returns the counters of the switches' connections."""
    router = APIRouter(prefix="/v1", tags=["counters"])

    @router.get("/paths/{name}/counters")
    def path_counters(name: AnyName, who: Who) -> PathCountersModel:
        """Return what entered the path and what each edge and leaf received. The counts are at most
        one second old."""
        view = service.path(name)
        reading = monitor.read()
        if name not in reading.paths:  # the path was created after that reading
            reading = monitor.read(max_age_s=-math.inf)
        counts = reading.paths.get(name)
        if counts is None:  # created since then
            reading = monitor.read(max_age_s=0.0)
            counts = reading.paths.get(name)
        if counts is None or not who.workgroup.may_see(view.path.workgroup):
            raise unknown_path(name)
        return PathCountersModel.of(counts, reading.time)

    @router.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}, "description": "Prometheus text"}},
    )
    def prometheus_text(who: Who) -> Response:
        """Return the workgroup's paths; for admins also all other paths, switches, ports and
        links, and what was refused."""
        reading = monitor.read()
        views = [v for v in service.paths() if who.workgroup.may_see(v.path.workgroup)]
        text = prometheus.text_of(
            service.core,
            [(view.path, view.up) for view in views],
            reading.paths,
            service.switches() if who.is_admin else {},
            reading.unexpected if who.is_admin else {},
            service.reserved_bps,
            service.down_links(),
            connections() if who.is_admin else {},
        )
        if who.is_admin:
            text += prometheus.refused_text(REFUSED.all())
        return Response(text, media_type=prometheus.CONTENT_TYPE)

    return router
