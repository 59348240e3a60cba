# SPDX-License-Identifier: Apache-2.0
"""What a topology file may contain: one pydantic model per block of the YAML file.

These models check each block by itself (keys, types, ranges); `validate.py` checks what must hold
between blocks. `schema.json` is generated from them (`python -m topologies.model.spec`).
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from common.places import TOPOLOGIES
from common.quantities import (
    parse_delay_ms,
    parse_loss,
    parse_rate_bps,
    parse_size_bytes,
)
from topologies.model.network import ControlledBy, Role

NAME_PATTERN = "^[a-z]([a-z0-9-]{0,8}[a-z0-9])?$"
NAME_VALID = "at most 10 lower-case letters, digits and '-', from a letter to a letter or digit"
VLAN_MIN, VLAN_MAX = 1, 4094  # IEEE 802.1Q: 0 and 4095 are reserved
VLAN_VALID = f"a VLAN id from {VLAN_MIN} to {VLAN_MAX}"
VLAN_RANGE_VALID = f"[first, last], {VLAN_MIN} to {VLAN_MAX}, e.g. [1100, 1199]"
SAME_AS_PATH = "same_as_path"


def _checked(parse: Callable[[object], object]) -> PlainValidator:
    """Return a validator that reports the ValueError's text as what would be valid."""

    def run(value: object) -> object:
        try:
            return parse(value)
        except ValueError as error:
            # Otherwise braces would become template fields.
            raise PydanticCustomError("topology", "{valid}", {"valid": str(error)}) from None

    return PlainValidator(run)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a string that is not empty")
    return " ".join(value.split())


def _name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"a name: {NAME_VALID}")
    return value


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**6:
        raise ValueError("a whole number from 0 to 1000000")
    return value


def _count(value: object) -> int | str:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("a whole number above 0 or the name of a parameter")
    return value


def _vlan(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not VLAN_MIN <= value <= VLAN_MAX:
        raise ValueError(VLAN_VALID)
    return value


def _vlan_range(value: object) -> tuple[int, int]:
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(VLAN_RANGE_VALID)
    try:
        first, last = (_vlan(v) for v in value)
    except ValueError:
        raise ValueError(VLAN_RANGE_VALID) from None
    if first > last:
        raise ValueError(VLAN_RANGE_VALID + " (the first not above the last)")
    return first, last


def _subnet(value: object) -> ipaddress.IPv4Network:
    try:
        if not isinstance(value, str):
            raise ValueError
        network = ipaddress.IPv4Network(value)
    except ValueError:
        raise ValueError("an IPv4 subnet without host bits, e.g. 10.10.1.0/24") from None
    if not 8 <= network.prefixlen <= 29:
        raise ValueError("an IPv4 subnet with a prefix length from 8 to 29, e.g. 10.10.1.0/24")
    return network


def _group(value: object) -> ipaddress.IPv4Address:
    valid = "an IPv4 multicast address, 224.0.1.0 to 239.255.255.255, e.g. 239.10.1.1"
    try:
        if not isinstance(value, str):
            raise ValueError(valid)
        address = ipaddress.IPv4Address(value)
    except ValueError:
        raise ValueError(valid) from None
    # 224.0.0.0/24 is reserved for protocols of the local link (RFC 5771, section 4).
    if not address.is_multicast or address in ipaddress.IPv4Network("224.0.0.0/24"):
        raise ValueError(valid)
    return address


def _control_delay(value: object) -> str | dict[str, float]:
    valid = f"{SAME_AS_PATH}, or one-way milliseconds per site, e.g. {{umass: 0, wsu: 18}}"
    if value == SAME_AS_PATH:
        return SAME_AS_PATH
    if not isinstance(value, dict) or not all(isinstance(site, str) for site in value):
        raise ValueError(valid)
    try:
        return {site: parse_delay_ms(delay) for site, delay in value.items()}
    except ValueError:
        raise ValueError(valid) from None


def _cost(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1e9:
        raise ValueError("a number above 0, at most 1000000000")
    return value


def _degrees(most: int) -> Callable[[object], object]:
    def degrees(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > most:
            raise ValueError(f"degrees from -{most} to {most}")
        return float(value)

    return degrees


def is_name(text: str) -> bool:
    """Return whether `text` may name a node, a domain, a site or a segment."""
    return re.fullmatch(NAME_PATTERN, text) is not None


def _json(schema: dict[str, object]) -> WithJsonSchema:
    return WithJsonSchema(schema)


Text = Annotated[str, _checked(_text), _json({"type": "string", "minLength": 1})]
NodeName = Annotated[str, _checked(_name), _json({"type": "string", "pattern": NAME_PATTERN})]
Count = Annotated[
    int | str,
    _checked(_count),
    _json({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]}),
]
Whole = Annotated[
    int, _checked(_integer), _json({"type": "integer", "minimum": 0, "maximum": 10**6})
]
Vlan = Annotated[
    int, _checked(_vlan), _json({"type": "integer", "minimum": VLAN_MIN, "maximum": VLAN_MAX})
]
VlanRange = Annotated[
    tuple[int, int],
    _checked(_vlan_range),
    _json(
        {
            "type": "array",
            "items": {"type": "integer", "minimum": VLAN_MIN, "maximum": VLAN_MAX},
            "minItems": 2,
            "maxItems": 2,
        }
    ),
]
RateBps = Annotated[
    int,
    _checked(parse_rate_bps),
    _json(
        {
            "anyOf": [
                {"type": "integer", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?(bps|kbps|Mbps|Gbps)$"},
            ]
        }
    ),
]
SizeBytes = Annotated[
    int,
    _checked(parse_size_bytes),
    _json(
        {
            "anyOf": [
                {"type": "integer", "exclusiveMinimum": 0},
                {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?(B|kB|MB|GB|KiB|MiB|GiB)$"},
            ]
        }
    ),
]
DelayMs = Annotated[
    float, _checked(parse_delay_ms), _json({"type": "number", "minimum": 0, "maximum": 60000})
]
Cost = Annotated[
    float,
    _checked(_cost),
    _json({"type": "number", "exclusiveMinimum": 0, "maximum": 10**9}),
]
Latitude = Annotated[
    float, _checked(_degrees(90)), _json({"type": "number", "minimum": -90, "maximum": 90})
]
Longitude = Annotated[
    float, _checked(_degrees(180)), _json({"type": "number", "minimum": -180, "maximum": 180})
]
Loss = Annotated[
    float,
    _checked(parse_loss),
    _json(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 1},
                {"type": "string", "pattern": r"^[0-9]{1,3}(\.[0-9]+)? ?%$"},
            ]
        }
    ),
]
Subnet = Annotated[
    ipaddress.IPv4Network,
    _checked(_subnet),
    _json({"type": "string", "pattern": r"^[0-9.]+/[0-9]+$"}),
]
Group = Annotated[
    ipaddress.IPv4Address, _checked(_group), _json({"type": "string", "format": "ipv4"})
]
ControlDelay = Annotated[
    str | dict[str, float],
    _checked(_control_delay),
    _json(
        {
            "anyOf": [
                {"const": SAME_AS_PATH},
                {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}},
            ]
        }
    ),
]


class Block(BaseModel):
    """A block of the file. Unknown keys are errors, and values are not converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class ParameterSpec(Block):
    """A number the user may choose when the network is brought up."""

    description: Text = Field(description="what the number means")
    default: Whole = Field(description="a whole number from min to max")
    min: Whole = Field(description="a whole number")
    max: Whole = Field(description="a whole number")


class AddressesSpec(Block):
    """Addresses on the paths (DRFSM21 2.1.3)."""

    path_subnet: Subnet = Field(
        description="private unicast addresses of NIC1; the publisher has the first"
    )
    multicast_group: Group = Field(description="destination address of the multicast datagrams")
    lanes: Count = Field(
        1,
        description="paths (file-streams) that a host may be on at once: for each a NIC, a VLAN id "
        "of every segment (counted from `vlan` on), a subnet and a group (the next ones); a number "
        "or the name of a parameter",
    )


class DomainSpec(Block):
    """A network under one administration."""

    controlled_by: ControlledBy = Field(
        description="controller: dynamic multipoint paths; static: fixed segments"
    )


class ImpairmentSpec(Block):
    """One direction of a link; a key that is missing sets no limit."""

    rate_bps: RateBps | None = None
    delay_ms: DelayMs | None = Field(None, description="one-way delay")
    jitter_ms: DelayMs | None = Field(None, description="at most the delay")
    loss: Loss | None = Field(None, description="probability that a frame is lost, independently")
    queue_bytes: SizeBytes | None = Field(
        None,
        description="at least rate x round trip of the link; default: that, or 150 kB if larger",
    )


class AccessSpec(ImpairmentSpec):
    """A link by its two directions; keys outside to_/from_ apply to both."""

    from_host: ImpairmentSpec | None = Field(None, description="overrides host -> switch")
    to_host: ImpairmentSpec | None = Field(None, description="overrides switch -> host")


class SwitchSpec(Block):
    kind: Literal["switch"]
    domain: NodeName = Field(description="a declared domain")
    lat: Latitude | None = Field(
        None, description="degrees north; if every switch has lat and lon, a run's page has a map"
    )
    lon: Longitude | None = Field(None, description="degrees east; hosts are where their switch is")


class HostSpec(Block):
    """A host with NIC1 on an edge switch and NIC2 on the control network; a monitor has only
    NIC2."""

    kind: Literal["host"]
    role: Role = Field(description="publisher, subscriber or monitor (at most one)")
    attached_to: NodeName | None = Field(
        None, description="switch of a static domain; makes the link; not of a monitor"
    )
    site: NodeName | None = Field(
        None, description="its site; default: its domain, of a monitor the publisher's site"
    )
    access: AccessSpec | None = Field(None, description="impairments of its link")


class RouterSpec(Block):
    kind: Literal["router"]


NodeSpec = Annotated[SwitchSpec | HostSpec | RouterSpec, Field(discriminator="kind")]


class HostFamilySpec(Block):
    """Subscribers spread round-robin over edge switches; each is called <domain><1, 2, ...>."""

    count: Count = Field(description="a number, or the name of a parameter")
    spread_over: tuple[NodeName, ...] = Field(min_length=1, description="edge switches, in turn")
    access: AccessSpec | None = Field(None, description="impairments of each one's link")


class LinkSpec(ImpairmentSpec):
    """A link between two switches; keys outside a_to_b/b_to_a apply to both directions."""

    a: NodeName = Field(description="a switch")
    b: NodeName = Field(description="a switch")
    vlan_range: VlanRange = Field(
        (VLAN_MIN, VLAN_MAX), description="VLAN ids for paths and segments on it, first and last"
    )
    cost: Cost | None = Field(
        None, description="cost of the link for a path; default: delay in us, plus 1"
    )
    a_to_b: ImpairmentSpec | None = Field(None, description="overrides a -> b")
    b_to_a: ImpairmentSpec | None = Field(None, description="overrides b -> a")


class SegmentSpec(Block):
    """A static path segment (SPS): VLAN `vlan` from hosts through `through` to `to`."""

    through: NodeName = Field(description="the switch of a static domain")
    to: NodeName = Field(description="the controlled switch where the segment ends")
    vlan: Vlan = Field(description="VLAN id on the link between the two")
    hosts: tuple[NodeName, ...] | None = Field(
        None, description="default: all hosts attached to `through`"
    )


class ControlNetworkSpec(Block):
    """The routed network of NIC2: one router, a /30 for each host."""

    router: NodeName = Field(description="a node with kind: router")
    subnet: Subnet = Field(description="each host gets a /30 of it")
    delay_ms: ControlDelay = Field(
        SAME_AS_PATH,
        description="same_as_path: as the path to the publisher; or one way per site",
    )


class TopologySpec(Block):
    """A topology file of Downpour."""

    name: NodeName = Field(description="the topology's name")
    description: Text = Field(description="the network in one line")
    source: Text = Field(description="source of the delays and rates")
    parameters: dict[str, ParameterSpec] = {}
    addresses: AddressesSpec = Field(description="{path_subnet, multicast_group}")
    domains: dict[str, DomainSpec] = Field(description="{name: {controlled_by}, ...}")
    nodes: dict[str, NodeSpec] = Field(description="{name: {kind, ...}, ...}")
    host_families: dict[str, HostFamilySpec] = {}
    links: tuple[LinkSpec, ...] = Field(description="[{a, b, ...}, ...]")
    segments: dict[str, SegmentSpec] = Field(description="{name: {through, to, vlan}, ...}")
    control_network: ControlNetworkSpec = Field(description="{router, subnet}")


def json_schema() -> str:
    """Return the text of schema.json."""
    schema = TopologySpec.model_json_schema()
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    (TOPOLOGIES / "schema.json").write_text(json_schema())
