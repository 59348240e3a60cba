# SPDX-License-Identifier: Apache-2.0
"""JSON of the northbound REST interface (docs/contracts.md, "Controller")."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from controller.core import Endpoint
from controller.service import PathView

MAX_MACS = 1024


def _unicast(mac: str) -> str:
    if int(mac[:2], 16) & 1:
        raise ValueError(f"'{mac}' is a multicast address; valid: a host's unicast address")
    return mac.lower()


Mac = Annotated[
    str, Field(pattern=r"^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$"), AfterValidator(_unicast)
]
SwitchName = Annotated[str, Field(min_length=1, max_length=64)]
PortNumber = Annotated[int, Field(strict=True, ge=1, le=0xFFFFFF00 - 1)]
VlanId = Annotated[int, Field(strict=True, ge=1, le=4094)]
RateBps = Annotated[int, Field(strict=True, ge=1000, le=1_000_000_000_000)]
PathName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EndpointModel(_Model):
    """A VLAN at an access port of the domain. `macs`: addresses of the hosts behind it; frames
    with other sources are dropped, unicast reaches only these."""

    switch: SwitchName
    port: PortNumber
    vlan: VlanId
    macs: Annotated[list[Mac], Field(max_length=MAX_MACS)] = []

    def to_endpoint(self) -> Endpoint:
        return Endpoint.of(self.switch, self.port, self.vlan, self.macs)

    @classmethod
    def of(cls, endpoint: Endpoint) -> EndpointModel:
        return cls(
            switch=endpoint.switch,
            port=endpoint.port,
            vlan=endpoint.vlan,
            macs=list(endpoint.macs),
        )


class PathRequest(_Model):
    name: PathName
    root: EndpointModel
    rate_bps: RateBps


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


class PathModel(_Model):
    name: str
    state: Literal["up", "degraded"]
    root: EndpointModel
    rate_bps: int
    leaves: list[EndpointModel]
    meter: MeterModel
    edges: list[EdgeModel]
    groups: list[GroupModel]

    @classmethod
    def of(cls, view: PathView) -> PathModel:
        path = view.path
        return cls(
            name=path.name,
            state="up" if view.up else "degraded",
            root=EndpointModel.of(path.root),
            rate_bps=path.rate_bps,
            leaves=[EndpointModel.of(leaf) for leaf in path.leaves],
            meter=MeterModel(switch=path.root.switch, id=path.number),
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
        )


class Health(_Model):
    """`switches`: name -> connected, and holding what it shall."""

    status: Literal["ok"] = "ok"
    switches: dict[str, bool]


class Problem(_Model):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
