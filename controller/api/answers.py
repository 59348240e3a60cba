# SPDX-License-Identifier: Apache-2.0
"""The JSON objects of the REST interface's answers, as its Python clients see them.

`schemas.py` and `counters.py` have the same objects as pydantic models;
docs/reference/contracts.md describes both. Times are epoch seconds.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from controller.paths.multipoint_path import EndpointDocument

LeafState = Literal["up", "down"]
PathState = Literal["up", "degraded"]


class Place(TypedDict):
    switch: str
    port: int
    vlan: int


class LeafAnswer(EndpointDocument):
    """A leaf. "down": a switch on its route has not confirmed, or no route is left."""

    state: NotRequired[LeafState]


EdgeAnswer = TypedDict(
    "EdgeAnswer", {"from": str, "from_port": int, "to": str, "to_port": int, "vlan": int}
)


class SwitchId(TypedDict):
    """The number of a meter or group at a switch."""

    switch: str
    id: int


class ChannelMemberAnswer(Place):
    """A leaf that has joined a group."""

    group: str


class ChannelsAnswer(TypedDict):
    """The groups that leaves join by IGMP, and who has joined."""

    base: str
    count: int
    leave_latency_ms: int
    members: list[ChannelMemberAnswer]


class ChannelsBody(TypedDict):
    """A request for channels."""

    base: str
    count: int
    leave_latency_ms: int


class PathAnswer(TypedDict):
    """A path; "degraded": a leaf is down."""

    name: str
    state: PathState
    workgroup: str
    root: EndpointDocument
    rate_bps: int
    algorithm: str
    leaf_to_leaf: bool
    end_time: float | None
    leaves: list[LeafAnswer]
    meter: SwitchId | None
    edges: list[EdgeAnswer]
    groups: list[SwitchId]
    channels: ChannelsAnswer | None


class ReservationAnswer(TypedDict):
    """A reservation for later; times in epoch seconds."""

    name: str
    workgroup: str
    root: EndpointDocument
    rate_bps: int
    algorithm: str
    leaf_to_leaf: bool
    leaves: list[EndpointDocument]
    start_time: float
    end_time: float


class HoldAnswer(TypedDict):
    """A hold. `until`: when it expires or, once it is over, is forgotten."""

    id: str
    state: Literal["held", "committed", "released", "expired"]
    until: float
    path: str


class HealthAnswer(TypedDict):
    """`switches`: by name, whether each is connected and has the entries it should."""

    status: Literal["ok"]
    role: Literal["active", "standby"]
    switches: dict[str, bool]


class GrantAnswer(TypedDict):
    """VLAN ids that may be used on an access port, e.g. "100-199"."""

    switch: str
    port: int
    vlans: str


class WorkgroupAnswer(TypedDict):
    """A workgroup and what it may use."""

    name: str
    admin: bool
    peer: bool
    endpoints: list[GrantAnswer]


class CountAnswer(TypedDict):
    """Ethernet frames without FCS, with their tag."""

    packets: int
    bytes: int


class ComparisonAnswer(TypedDict):
    """Of the `sent` frames since `since`, `missing` did not arrive."""

    since: float
    sent: int
    missing: int


class EndpointCountsAnswer(Place):
    """Frames that were dropped at an endpoint."""

    denied: CountAnswer
    spoofed: CountAnswer


class LeafCountsAnswer(EndpointCountsAnswer):
    """What a leaf received and sent."""

    multicast: CountAnswer
    unicast: CountAnswer
    sent: CountAnswer
    compared: ComparisonAnswer | None


EdgeCountsAnswer = TypedDict(
    "EdgeCountsAnswer",
    {
        "from": str,
        "to": str,
        "vlan": int,
        "sent": CountAnswer,
        "arrived": CountAnswer,
        "compared": ComparisonAnswer | None,
    },
)


class EnteredAnswer(TypedDict):
    """What entered a path at its root."""

    multicast: CountAnswer
    unicast: CountAnswer


class MemberCountsAnswer(Place):
    """What a leaf received of a channel."""

    got: CountAnswer


class ChannelCountsAnswer(TypedDict):
    """How much of a channel entered, and how much the leaves received."""

    group: str
    entered: CountAnswer
    leaves: list[MemberCountsAnswer]


class CountersAnswer(TypedDict):
    """What a path carried, by leaf and by edge."""

    name: str
    time: float
    entered: EnteredAnswer
    meter_dropped: CountAnswer
    passed: CountAnswer
    root: EndpointCountsAnswer
    leaves: list[LeafCountsAnswer]
    edges: list[EdgeCountsAnswer]
    channels: list[ChannelCountsAnswer]
    unjoined: CountAnswer
    silent: list[str]


class PathBody(TypedDict):
    """A request for a path, or for a hold on one. It leaves out fields with default values, so that
    older services understand it."""

    name: str
    root: EndpointDocument
    rate_bps: int
    workgroup: NotRequired[str]
    algorithm: NotRequired[str]
    leaf_to_leaf: NotRequired[bool]
    end_time: NotRequired[float]
    leaves: NotRequired[list[EndpointDocument]]
    channels: NotRequired[ChannelsBody]
    start_time: NotRequired[float]
