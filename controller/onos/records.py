# SPDX-License-Identifier: Apache-2.0
"""Our entries as ONOS's JSON, and ONOS's JSON as our entries, counters and ports. Pure; what ONOS
answers may be anything.

ONOS chooses a flow's cookie (its flow id), so a flow is recognised by its application, priority and
match. A group is recognised by its key, a meter by its application and number: all meters that are
made by REST count as ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from common.onos import OnosError
from controller.paths.entries import (
    CONTROLLER,
    EXACT,
    GROUP_NUMBER_MAX,
    Action,
    Bucket,
    Entry,
    EthMatch,
    Flow,
    Group,
    Kind,
    Match,
    Meter,
    Output,
    SetVlan,
    ToGroup,
    cookie_of,
)
from controller.paths.stats import Count, GroupCount, MeterCount, PortCount, SwitchStats

Json = dict[str, Any]
APPLICATION: Final = "downpour"  # of our flows
REST_APPLICATION: Final = "org.onosproject.rest"  # of all meters made by REST
KEY_PREFIX: Final = "0x444f574e"  # "DOWN"; then the group's number in 8 digits
UNIT: Final = "KB_PER_SEC"
UNKNOWN: Final = cookie_of(Kind.MISS)  # of a flow that is not wanted: it is only deleted
ADDED: Final = "ADDED"
FAILED: Final = "FAILED"
# States in which ONOS keeps an entry in the switch, tries to, or has tried.
KEPT: Final = frozenset({ADDED, FAILED, "PENDING_ADD", "PENDING_ADD_RETRY", "PENDING_UPDATE"})


class Foreign(ValueError):
    """Something that this controller never writes."""


def device_of(dpid: int) -> str:
    """Return ONOS's name of a switch."""
    return f"of:{dpid:016x}"


# -- to ONOS


def flow_json(device: str, flow: Flow) -> Json:
    """Return the request that adds a flow, or replaces its instructions."""
    instructions: list[Json] = []
    if flow.meter is not None:
        instructions.append({"type": "METER", "meterId": str(flow.meter)})
    instructions += [_instruction(action) for action in flow.actions]
    return {
        "appId": APPLICATION,
        "deviceId": device,
        "tableId": "0",
        "priority": flow.priority,
        "isPermanent": True,
        "timeout": 0,
        "selector": {"criteria": list(_criteria(flow.match))},
        "treatment": {"instructions": instructions},
    }


def _criteria(match: Match) -> Iterator[Json]:
    if match.in_port is not None:
        yield {"type": "IN_PORT", "port": match.in_port}
    if match.vlan is not None:
        yield {"type": "VLAN_VID", "vlanId": match.vlan}
    if match.eth_dst is not None:
        if match.eth_dst.mask == EXACT:
            yield {"type": "ETH_DST", "mac": match.eth_dst.value}
        else:
            mask = match.eth_dst.mask
            yield {"type": "ETH_DST_MASKED", "mac": match.eth_dst.value, "macMask": mask}
    if match.eth_src is not None:
        yield {"type": "ETH_SRC", "mac": match.eth_src}
    if match.eth_type is not None:
        yield {"type": "ETH_TYPE", "ethType": f"{match.eth_type:#06x}"}
    if match.ip_proto is not None:
        yield {"type": "IP_PROTO", "protocol": match.ip_proto}


def _instruction(action: Action) -> Json:
    match action:
        case SetVlan(vlan):
            return {"type": "L2MODIFICATION", "subtype": "VLAN_ID", "vlanId": vlan}
        case Output(port):
            return {"type": "OUTPUT", "port": "CONTROLLER" if port == CONTROLLER else str(port)}
        case ToGroup(group):
            return {"type": "GROUP", "groupId": group}
    raise ValueError(f"no ONOS instruction for {action}")


def group_key(number: int) -> str:
    """Return the key ("appCookie") of a group."""
    return f"{KEY_PREFIX}{number:08x}"


def bucket_json(bucket: Bucket) -> Json:
    """Return a bucket of a request."""
    instructions = [_instruction(action) for action in bucket.actions]
    return {"type": "ALL", "treatment": {"instructions": instructions}}


def group_json(group: Group) -> Json:
    """Return the request that adds a group."""
    return {
        "type": "ALL",
        "appCookie": group_key(group.number),
        "groupId": str(group.number),
        "givenGroupId": str(group.number),
        "buckets": [bucket_json(bucket) for bucket in group.buckets],
    }


def meter_json(device: str, meter: Meter) -> Json:
    """Return the request that adds a meter."""
    band = {"type": "DROP", "rate": meter.rate_kbps, "burstSize": meter.burst_kbit}
    return {
        "deviceId": device,
        "unit": UNIT,
        "burst": True,
        "bands": [band],
        "scope": "global",
        "index": meter.number,
    }


# -- from ONOS


@dataclass(frozen=True)
class HeldFlow:
    """One of our flows that ONOS has for a switch. `id`: ONOS's; `stamp`: changes with each poll
    that finds it in the switch."""

    flow: Flow
    id: str
    state: str
    count: Count
    stamp: str


@dataclass(frozen=True)
class HeldBucket:
    """`id`: ONOS's; `bucket`: None if this controller did not write it."""

    bucket: Bucket | None
    id: str
    count: Count


@dataclass(frozen=True)
class HeldGroup:
    number: int
    buckets: tuple[HeldBucket, ...]
    state: str
    count: Count
    stamp: str

    @property
    def group(self) -> Group:
        """Return it as an entry; without buckets if this controller did not write one of them."""
        found = [held.bucket for held in self.buckets if held.bucket is not None]
        if len(found) < len(self.buckets):
            return Group(self.number, ())
        return Group(self.number, tuple(sorted(found, key=lambda bucket: bucket.order)))


@dataclass(frozen=True)
class HeldMeter:
    meter: Meter
    state: str
    count: MeterCount
    stamp: str


@dataclass(frozen=True)
class Held:
    """Our entries that ONOS has for a switch. `strange`: ids of flows that cannot be expressed."""

    flows: Mapping[tuple[str, int, Match], HeldFlow]
    groups: Mapping[int, HeldGroup]
    meters: Mapping[int, HeldMeter]
    strange: frozenset[str] = frozenset()

    def entries(self) -> Iterator[Entry]:
        """Return what ONOS keeps in the switch."""
        yield from (held.flow for held in self.flows.values() if held.state in KEPT)
        yield from (held.group for held in self.groups.values() if held.state in KEPT)
        yield from (held.meter for held in self.meters.values() if held.state in KEPT)

    def seen(self, entry: Entry) -> tuple[str, str]:
        """Return the state of exactly this entry, and the stamp of when ONOS last found it in the
        switch; ("", "") if ONOS does not have it."""
        found: HeldFlow | HeldGroup | HeldMeter | None
        match entry:
            case Flow():
                found = self.flows.get(entry.key)
                is_same = found is not None and (found.flow.actions, found.flow.meter) == (
                    entry.actions,
                    entry.meter,
                )
            case Group():
                found = self.groups.get(entry.number)
                is_same = found is not None and found.group == entry
            case Meter():
                found = self.meters.get(entry.number)
                is_same = found is not None and found.meter == entry
        return (found.state, found.stamp) if found is not None and is_same else ("", "")

    def all_keys(self) -> frozenset[tuple[object, ...]]:
        """Return the keys of everything that ONOS has, in any state."""
        return frozenset(
            [
                *self.flows,
                *(held.group.key for held in self.groups.values()),
                *(held.meter.key for held in self.meters.values()),
            ]
        )

    def stats(self, ports: Mapping[int, PortCount]) -> SwitchStats:
        """Return the counters, as old as ONOS's last poll."""
        return SwitchStats(
            {key: held.count for key, held in self.flows.items()},
            {
                number: GroupCount(held.count, _in_order(held.buckets))
                for number, held in self.groups.items()
            },
            {number: held.count for number, held in self.meters.items()},
            dict(ports),
        )


def _in_order(buckets: Iterable[HeldBucket]) -> tuple[Count, ...]:
    known = [held for held in buckets if held.bucket is not None]
    return tuple(held.count for held in sorted(known, key=lambda b: b.bucket.order))  # type: ignore[union-attr]


def held_of(
    flows: object, groups: object, meters: object, cookies: Mapping[tuple[str, int, Match], int]
) -> Held:
    """Parse ONOS's answers about a switch. `cookies`: of the flows that are wanted there. Raises
    OnosError."""
    found: dict[tuple[str, int, Match], HeldFlow] = {}
    strange: set[str] = set()
    for item in _items(flows, "flows"):
        if item.get("appId") != APPLICATION:
            continue
        try:
            held = _flow(item, cookies)
        except Foreign:
            strange.add(_text(item, "id"))
        else:
            found[held.flow.key] = held
    return Held(
        found,
        {held.number: held for item in _items(groups, "groups") for held in _group(item)},
        {held.meter.number: held for item in _items(meters, "meters") for held in _meter(item)},
        frozenset(strange),
    )


def _flow(item: Json, cookies: Mapping[tuple[str, int, Match], int]) -> HeldFlow:
    if item.get("isPermanent") is not True or str(item.get("tableId")) != "0":
        raise Foreign("flow with a timeout, or in another table")
    match = _match(_items(item.get("selector"), "criteria"))
    meter: int | None = None
    actions: list[Action] = []
    for instruction in _items(item.get("treatment"), "instructions"):
        if instruction.get("type") == "METER":
            meter = _number(instruction, "meterId", base=16)
        elif instruction.get("type") != "NOACTION":
            actions.append(_action(instruction))
    priority = _number(item, "priority")
    flow = Flow(match, priority, UNKNOWN, tuple(actions), meter)
    flow = Flow(match, priority, cookies.get(flow.key, UNKNOWN), flow.actions, meter)
    return HeldFlow(
        flow, _text(item, "id"), _text(item, "state"), _count(item), str(item.get("lastSeen"))
    )


def _match(criteria: Iterable[Json]) -> Match:
    """Return a match. Raises Foreign."""
    in_port = vlan = eth_type = ip_proto = None
    eth_dst: EthMatch | None = None
    eth_src: str | None = None
    for criterion in criteria:
        match criterion.get("type"):
            case "IN_PORT":
                in_port = _number(criterion, "port")
            case "VLAN_VID":
                vlan = _number(criterion, "vlanId")
            case "ETH_DST":
                eth_dst = EthMatch(_text(criterion, "mac").lower())
            case "ETH_DST_MASKED":
                mask = _text(criterion, "macMask").lower()
                eth_dst = EthMatch(_text(criterion, "mac").lower(), mask)
            case "ETH_SRC":
                eth_src = _text(criterion, "mac").lower()
            case "ETH_TYPE":
                eth_type = _number(criterion, "ethType")
            case "IP_PROTO":
                ip_proto = _number(criterion, "protocol")
            case other:
                raise Foreign(f"criterion {other}")
    return Match(in_port, vlan, eth_dst, eth_src, eth_type, ip_proto)


def _action(instruction: Json) -> Action:
    """Return an action. Raises Foreign."""
    match instruction.get("type"), instruction.get("subtype"):
        case ("L2MODIFICATION", "VLAN_ID"):
            return SetVlan(_number(instruction, "vlanId"))
        case ("OUTPUT", _):
            if instruction.get("port") == "CONTROLLER":
                return Output(CONTROLLER)
            return Output(_number(instruction, "port"))
        case ("GROUP", _):
            return ToGroup(_number(instruction, "groupId"))
    raise Foreign(f"instruction {instruction.get('type')}")


def _group(item: Json) -> Iterator[HeldGroup]:
    """Yield the group if it is ours."""
    number = _number(item, "id")
    if str(item.get("appCookie", "")).lower() != group_key(number) or number > GROUP_NUMBER_MAX:
        return
    buckets = tuple(
        HeldBucket(_bucket(bucket), str(_number(bucket, "bucketId")), _count(bucket))
        for bucket in _items(item, "buckets")
    )
    yield HeldGroup(number, buckets, _text(item, "state"), _count(item), str(item.get("life")))


def _bucket(item: Json) -> Bucket | None:
    try:
        actions = [_action(found) for found in _items(item.get("treatment"), "instructions")]
    except Foreign:
        return None
    match actions:
        case [SetVlan(vlan), Output(port)]:
            return Bucket(vlan, port)
    return None


def _meter(item: Json) -> Iterator[HeldMeter]:
    """Yield the meter if it was made by REST; with rate 0 if this controller did not write it."""
    if item.get("appId") != REST_APPLICATION:
        return
    number = _number(item, "id", base=16)
    bands = _items(item, "bands")
    meter = Meter(number, 0, 0)
    dropped = Count()
    if len(bands) == 1:
        dropped = _count(bands[0])
        if (item.get("unit"), item.get("burst"), bands[0].get("type")) == (UNIT, True, "DROP"):
            meter = Meter(number, _number(bands[0], "rate"), _number(bands[0], "burstSize"))
    count = MeterCount(_count(item), dropped)
    yield HeldMeter(meter, _text(item, "state"), count, str(item.get("life")))


@dataclass(frozen=True)
class Devices:
    """`available`: the devices that are connected; `ports`: which ports of each are up."""

    available: frozenset[str]
    ports: Mapping[str, Mapping[int, bool]]


def devices_of(devices: object, ports: object) -> Devices:
    """Parse the answers about devices and all ports. Raises OnosError."""
    available = frozenset(
        _text(item, "id") for item in _items(devices, "devices") if item.get("available") is True
    )
    found: dict[str, dict[int, bool]] = {}
    for item in _items(ports, "ports"):
        number = str(item.get("port"))
        if number.isascii() and number.isdigit():
            found.setdefault(_text(item, "element"), {})[int(number)] = (
                item.get("isEnabled") is True
            )
    return Devices(available, found)


def port_counts_of(answer: object) -> dict[str, dict[int, PortCount]]:
    """Parse the counters of ports, by device. Raises OnosError."""
    return {
        _text(device, "device"): {
            _number(port, "port"): PortCount(
                Count(_number(port, "packetsReceived"), _number(port, "bytesReceived")),
                Count(_number(port, "packetsSent"), _number(port, "bytesSent")),
                max(0, _number(port, "packetsRxDropped")),  # -1: not known
                max(0, _number(port, "packetsTxDropped")),
            )
            for port in _items(device, "ports")
        }
        for device in _items(answer, "statistics")
    }


def settings_of(answer: object, component: str) -> dict[str, str]:
    """Parse the properties of a component. Raises OnosError."""
    found = answer.get(component) if isinstance(answer, dict) else None
    if not isinstance(found, dict):
        raise OnosError(f"ONOS answers without the component {component}; is it active?")
    return {str(name): str(value) for name, value in found.items()}


def flow_ids_of(answer: object) -> list[str]:
    """Parse the answer to a request for flows: their ids, in the request's order. Raises
    OnosError."""
    return [_text(item, "flowId") for item in _items(answer, "flows")]


# -- JSON of strangers


def _items(value: object, key: str) -> list[Json]:
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise OnosError(f"ONOS answers without a list '{key}'")
    return found


def _text(item: Json, key: str) -> str:
    value = item.get(key)
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise OnosError(f"ONOS answers with {key}={value!r:.60}; valid: text")
    return str(value)


def _number(item: Json, key: str, base: int = 0) -> int:
    value = item.get(key)
    try:
        if isinstance(value, str):
            return int(value, base)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    except ValueError:
        pass
    raise OnosError(f"ONOS answers with {key}={value!r:.60}; valid: a number")


def _count(item: Json) -> Count:
    packets, size = item.get("packets", 0), item.get("bytes", 0)
    if not (isinstance(packets, int) and isinstance(size, int)):
        raise OnosError(f"ONOS answers with packets={packets!r:.60}; valid: a number")
    return Count(packets, size)
