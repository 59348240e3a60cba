# SPDX-License-Identifier: Apache-2.0
"""JSON of the northbound REST interface (docs/reference/contracts.md, "Controller")."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

from controller.paths.calendar import Booking
from controller.paths.channels import LEAVE_LATENCY_MAX_MS
from controller.paths.core import MAX_MACS, Endpoint
from controller.paths.entries import CHANNELS_MAX
from controller.paths.multipoint_path import Algorithm, Channels, MultipointPath
from controller.service.service import HoldView, PathView, PathWish
from controller.service.workgroups import MAX_NAME_CHARS, NAME_PATTERN, Workgroup

MAX_LEAVES = 1024
MAX_HOLD_S = 3600.0
LAST_SECOND = 253402300799.0  # of the year 9999

_MAC = "02:00:00:00:00:01"
_ENDPOINT: JsonDict = {"switch": "newy", "port": 3, "vlan": 101, "macs": [_MAC]}
_LEAF: JsonDict = {"switch": "wash", "port": 3, "vlan": 102, "macs": ["02:00:00:00:00:02"]}
_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_CHANNELS: JsonDict = {"base": "232.10.1.0", "count": 46, "leave_latency_ms": 3000}
_PATH: JsonDict = {"name": "NGRID", "root": _ENDPOINT, "rate_bps": 20_000_000}


def _unicast(mac: str) -> str:
    if int(mac[:2], 16) & 1:
        raise ValueError(f"'{mac}' is a multicast address; valid: a host's unicast address")
    return mac.lower()


def _guaranteed_or_none(rate_bps: int) -> int:
    if 0 < rate_bps < 1000:
        raise ValueError("valid: 0 (best effort), or 1000 and more")
    return rate_bps


def _whole(value: object) -> object:
    """Return an integer: JSON has one kind of number, and 395.0 is one (JSON Schema, 4.2.3)."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


# The schema states what the validators check, with a better message.
Mac = Annotated[
    str,
    Field(
        pattern=r"^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$",
        json_schema_extra={"pattern": r"^[0-9A-Fa-f][02468ACEace](:[0-9A-Fa-f]{2}){5}$"},
    ),
    AfterValidator(_unicast),
]
SwitchName = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[!-~]+$")]
PortNumber = Annotated[int, Field(strict=True, ge=1, le=0xFFFFFF00 - 1), BeforeValidator(_whole)]
VlanId = Annotated[int, Field(strict=True, ge=1, le=4094), BeforeValidator(_whole)]
RateBps = Annotated[
    int,
    Field(
        strict=True,
        ge=0,
        le=1_000_000_000_000,
        json_schema_extra={"anyOf": [{"const": 0}, {"minimum": 1000}]},
    ),
    BeforeValidator(_whole),
    AfterValidator(_guaranteed_or_none),
]
Name = Annotated[str, Field(max_length=MAX_NAME_CHARS, pattern=rf"^{NAME_PATTERN}$")]
HoldId = Annotated[str, Field(max_length=128, pattern=r"^[.]*[A-Za-z0-9_:-][A-Za-z0-9._:-]*$")]
# In URLs. It also allows other domains' segments, DOMAIN:PATH, and paths made long ago.
AnyName = Annotated[str, Field(max_length=200, pattern=r"^[!-~]+$")]
EndTime = Annotated[
    float,
    Field(
        strict=True,
        gt=0,
        le=LAST_SECOND,
        allow_inf_nan=False,
        description="Epoch seconds, later than now when the request comes; 422 otherwise",
    ),
]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EndpointModel(_Model):
    """A VLAN at an access port of the domain.

    `macs`: addresses of the hosts behind it. Frames with other sources are dropped, and unicast
    reaches only these. If left out or empty: the MACs that the network description registers for
    the segment that ends there, or any MAC if it registers none.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"examples": [_ENDPOINT]}
    )

    switch: SwitchName
    port: PortNumber
    vlan: VlanId
    macs: Annotated[list[Mac], Field(max_length=MAX_MACS)] = []

    def to_endpoint(self) -> Endpoint:
        """Return the endpoint."""
        return Endpoint.of(self.switch, self.port, self.vlan, self.macs)

    @classmethod
    def of(cls, endpoint: Endpoint) -> EndpointModel:
        """Return the model of an endpoint."""
        return cls.model_construct(
            switch=endpoint.switch,
            port=endpoint.port,
            vlan=endpoint.vlan,
            macs=list(endpoint.macs),
        )


class LeafModel(EndpointModel):
    """`state`: "up": every switch on the way from the root has confirmed its entries. "down": a
    switch on the route has not, or there is no route."""

    state: Literal["up", "down"]


class ChannelsModel(_Model):
    """Multicast groups that each leaf joins and leaves by IGMP (versions 3 and 2): `base` and the
    `count` - 1 that follow. A leaf gets a group from its first host's report until
    `leave_latency_ms` after its last host has left (0: at once; a larger value imitates routers).
    The path's rate is reserved to all leaves, whatever they join. All leaves get other
    multicast."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"examples": [_CHANNELS]}
    )

    base: Annotated[str, Field(pattern=rf"^(22[4-9]|23[0-9])([.]{_OCTET}){{3}}$")]
    count: Annotated[int, Field(strict=True, ge=1, le=CHANNELS_MAX), BeforeValidator(_whole)]
    leave_latency_ms: Annotated[
        int, Field(strict=True, ge=0, le=LEAVE_LATENCY_MAX_MS), BeforeValidator(_whole)
    ] = 0

    def to_channels(self) -> Channels:
        """Return the channels."""
        return Channels(IPv4Address(self.base), self.count, self.leave_latency_ms)


class MemberModel(_Model):
    """A leaf that has joined a group."""

    group: str
    switch: str
    port: int
    vlan: int


class JoinedChannelsModel(ChannelsModel):
    """Channels, and which leaves get which."""

    members: list[MemberModel]

    @classmethod
    def of(cls, path: MultipointPath) -> JoinedChannelsModel | None:
        """Return the model of a path's channels; None: it has none."""
        channels = path.channels
        if channels is None:
            return None
        return cls.model_construct(
            base=str(channels.base),
            count=channels.count,
            leave_latency_ms=channels.leave_latency_ms,
            members=[
                MemberModel(group=str(channels.group(number)), switch=switch, port=port, vlan=vlan)
                for number, (switch, port, vlan) in sorted(path.members)
            ],
        )


class PathRequest(_Model):
    """`rate_bps`: guaranteed; 0: best effort. `workgroup`: the path's owner (admins: any that
    exists; others: their own). `end_time`: epoch seconds at which the path is deleted."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra={"examples": [_PATH]})

    name: Name
    root: EndpointModel
    rate_bps: RateBps
    workgroup: Name | None = None
    algorithm: Algorithm = Algorithm.SHORTEST
    leaf_to_leaf: Annotated[bool, Field(strict=True)] = False
    end_time: EndTime | None = None
    channels: ChannelsModel | None = None

    def to_wish(self, workgroup: str, leaves: tuple[Endpoint, ...] = ()) -> PathWish:
        """Return the request as a wish, owned by `workgroup`."""
        return PathWish(
            name=self.name,
            root=self.root.to_endpoint(),
            rate_bps=self.rate_bps,
            workgroup=workgroup,
            algorithm=self.algorithm,
            leaf_to_leaf=self.leaf_to_leaf,
            end_time=self.end_time,
            leaves=leaves,
            channels=None if self.channels is None else self.channels.to_channels(),
        )


class PathPatch(_Model):
    """`end_time` null: no end."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, json_schema_extra={"examples": [{"end_time": 1800000000}]}
    )

    end_time: EndTime | None


class HeldPath(PathRequest):
    """The path after the commit: with at least these leaves.

    Of leaves that it already has, only the MACs change, if the request names any.
    """

    leaves: Annotated[list[EndpointModel], Field(max_length=MAX_LEAVES)] = []


class ReservationRequest(HeldPath):
    """A path from `start_time` to `end_time`, both later than now, in epoch seconds."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {**_PATH, "leaves": [_LEAF], "start_time": 1900000000, "end_time": 1900003600}
            ]
        },
    )

    start_time: EndTime
    end_time: EndTime


class ReservationModel(_Model):
    """What is reserved for later. Its tree is chosen again when it begins."""

    name: str
    workgroup: str
    root: EndpointModel
    rate_bps: int
    algorithm: Algorithm
    leaf_to_leaf: bool
    leaves: list[EndpointModel]
    start_time: float
    end_time: float

    @classmethod
    def of(cls, booking: Booking) -> ReservationModel:
        """Return the model of a reservation."""
        path = booking.path
        return cls(
            name=path.name,
            workgroup=path.workgroup,
            root=EndpointModel.of(path.root),
            rate_bps=path.rate_bps,
            algorithm=path.algorithm,
            leaf_to_leaf=path.leaf_to_leaf,
            leaves=[EndpointModel.of(leaf) for leaf in path.leaves],
            start_time=booking.start_s,
            end_time=booking.end_s,
        )


class HoldRequest(_Model):
    """Reserve now, install at commit. With an `id`, chosen by the caller, the request can be
    repeated; without one, the service chooses."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={"examples": [{"hold_s": 30, "path": {**_PATH, "leaves": [_LEAF]}}]},
    )

    id: HoldId | None = None
    hold_s: Annotated[float, Field(strict=True, gt=0, le=MAX_HOLD_S, allow_inf_nan=False)] = 30.0
    path: HeldPath


class HoldModel(_Model):
    id: str
    state: Literal["held", "committed", "released", "expired"]
    until: float
    path: str

    @classmethod
    def of(cls, view: HoldView) -> HoldModel:
        """Return the model of a hold."""
        return cls(id=view.id, state=view.state.value, until=view.until, path=view.path)


class MeterModel(_Model):
    switch: str
    id: int


class GroupModel(_Model):
    switch: str
    id: int


class EdgeModel(_Model):
    """A core link of the tree, away from the root, and the path's VLAN id on it."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    source: Annotated[str, Field(alias="from")]
    source_port: Annotated[int, Field(alias="from_port")]
    target: Annotated[str, Field(alias="to")]
    target_port: Annotated[int, Field(alias="to_port")]
    vlan: int


class PathSummary(_Model):
    """The answer to a change that has the header `Prefer: return=minimal` (RFC 7240)."""

    name: str
    state: Literal["up", "degraded"]


class PathModel(_Model):
    """`state` "degraded": some leaf is down. `meter` null: best effort. `groups`: the switches
    that copy frames."""

    name: str
    state: Literal["up", "degraded"]
    workgroup: str
    root: EndpointModel
    rate_bps: int
    algorithm: Algorithm
    leaf_to_leaf: bool
    end_time: float | None
    leaves: list[LeafModel]
    meter: MeterModel | None
    edges: list[EdgeModel]
    groups: list[GroupModel]
    channels: JoinedChannelsModel | None

    @classmethod
    def of(cls, view: PathView) -> PathModel:
        """Return the model of a path, with its state now."""
        path = view.path
        down = view.down_leaves()
        return cls.model_construct(
            name=path.name,
            state="up" if view.up else "degraded",
            workgroup=path.workgroup,
            root=EndpointModel.of(path.root),
            rate_bps=path.rate_bps,
            algorithm=path.algorithm,
            leaf_to_leaf=path.leaf_to_leaf,
            end_time=path.end_time,
            leaves=[
                LeafModel.model_construct(
                    switch=leaf.switch,
                    port=leaf.port,
                    vlan=leaf.vlan,
                    macs=list(leaf.macs),
                    state="down" if leaf.key in down else "up",
                )
                for leaf in path.leaves
            ],
            meter=MeterModel(switch=path.root.switch, id=path.number) if path.rate_bps else None,
            edges=[
                EdgeModel(
                    source=edge.source,
                    source_port=edge.source_port,
                    target=edge.target,
                    target_port=edge.target_port,
                    vlan=edge.vlan,
                )
                for edge in view.edges
            ],
            groups=[GroupModel(switch=s, id=path.number) for s in view.group_switches],
            channels=JoinedChannelsModel.of(path),
        )


class Health(_Model):
    """The state of the controller.

    `switches`: by name, whether each is connected and has the entries it should. `role`: a standby
    takes over when the active controller is gone. Until then, it answers everything else with 503.
    """

    status: Literal["ok"] = "ok"
    role: Literal["active", "standby"] = "active"
    switches: dict[str, bool]


class GrantModel(_Model):
    switch: str
    port: int
    vlans: str


class WorkgroupModel(_Model):
    """`endpoints`: the VLAN ids it may use on each access port; an admin may use all."""

    name: str
    admin: bool
    peer: bool
    endpoints: list[GrantModel]

    @classmethod
    def of(cls, group: Workgroup) -> WorkgroupModel:
        """Return the model of a workgroup."""
        return cls(
            name=group.name,
            admin=group.is_admin,
            peer=group.is_peer,
            endpoints=[
                GrantModel(switch=g.switch, port=g.port, vlans=str(g.vlans)) for g in group.grants
            ],
        )


class Problem(_Model):
    """RFC 9457. `detail` says what is wrong and what would be valid."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:downpour:problem:no-capacity",
                    "title": "Not enough capacity",
                    "status": 409,
                    "detail": "link 'newy:wash' from 'newy' has 100000000 bit/s, 90000000 bit/s "
                    "are guaranteed to other paths, path 'NGRID' needs 20000000 bit/s",
                }
            ]
        },
    )

    type: str
    title: str
    status: int
    detail: str
