# SPDX-License-Identifier: Apache-2.0
"""Turn what a switch reports into entries and counters. Pure.

Only what this controller writes can be expressed. A flow with this controller's cookie that cannot
be expressed (something else changed it) is reported by its cookie. Such a group or meter becomes
one with the same number and no content: it differs from any desired one, so the comparison repairs
it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controller.paths import replies
from controller.paths.entries import (
    COOKIE_BASE,
    COOKIE_MASK,
    EXACT,
    GROUP_NUMBER_MAX,
    Action,
    Bucket,
    Entries,
    Entry,
    EthMatch,
    Flow,
    Group,
    Match,
    Meter,
    Output,
    SetQueue,
    SetVlan,
    ToGroup,
    mac_text,
)
from controller.paths.replies import Multipart, Oxm, Tlv
from controller.paths.stats import (
    Count,
    GroupCount,
    MeterCount,
    PortCount,
    SwitchStats,
)

METER_FLAGS = 1 | 4 | 8  # kbps, burst, stats
METER_BAND_DROP = 1
GROUP_ALL = 0
OUTPUT, SET_QUEUE, GROUP, SET_FIELD = 0, 21, 22, 25
APPLY_ACTIONS, METER = 4, 6
IN_PORT, ETH_DST, ETH_SRC, ETH_TYPE, VLAN_VID, IP_PROTO = 0, 3, 4, 5, 6, 10
VLAN_PRESENT = 0x1000
SET_VLAN = bytes.fromhex("80000c02")  # OXM of an exact VLAN_VID

# The parts of a reply, by multipart type.
Replies = dict[Multipart, list[bytes]]


class Foreign(ValueError):
    """Something that this controller never writes."""


@dataclass(frozen=True)
class Held:
    """What a switch has of this controller's entries.

    `strange`: the cookies of flows that cannot be expressed.
    """

    entries: Entries
    strange: frozenset[int] = frozenset()


def held(parts: Replies) -> Held:
    """Parse the replies to FLOW, GROUP_DESC and METER_CONFIG. Raises replies.Malformed."""
    entries: set[Entry] = set()
    strange: set[int] = set()
    for body in parts.get(Multipart.FLOW, ()):
        for stats in replies.flows(body):
            if stats.cookie & COOKIE_MASK != COOKIE_BASE:
                continue
            try:
                entries.add(flow_of(stats))
            except Foreign:
                strange.add(stats.cookie)
    for body in parts.get(Multipart.GROUP_DESC, ()):
        entries.update(
            group_of(group)
            for group in replies.group_descriptions(body)
            if group.number <= GROUP_NUMBER_MAX
        )
    for body in parts.get(Multipart.METER_CONFIG, ()):
        entries.update(meter_of(meter) for meter in replies.meter_configs(body))
    kept = (e for e in entries if not (isinstance(e, Flow) and e.cookie in strange))
    return Held(frozenset(kept), frozenset(strange))


def statistics(parts: Replies) -> SwitchStats:
    """Parse the replies to FLOW, GROUP, METER and PORT_STATS. Raises replies.Malformed."""
    flows = {}
    for body in parts.get(Multipart.FLOW, ()):
        for stats in replies.flows(body):
            if stats.cookie & COOKIE_MASK == COOKIE_BASE:
                try:
                    key = flow_of(stats).key
                except Foreign:
                    continue
                flows[key] = Count(stats.packets, stats.size_bytes)
    groups = {
        group.number: GroupCount(
            Count(group.packets, group.size_bytes), tuple(Count(*count) for count in group.buckets)
        )
        for body in parts.get(Multipart.GROUP, ())
        for group in replies.group_counts(body)
    }
    meters = {
        meter.number: MeterCount(
            Count(meter.packets_in, meter.bytes_in),
            Count(sum(p for p, _ in meter.bands), sum(size for _, size in meter.bands)),
        )
        for body in parts.get(Multipart.METER, ())
        for meter in replies.meter_counts(body)
    }
    ports = {
        port.number: PortCount(
            Count(port.rx_packets, port.rx_bytes),
            Count(port.tx_packets, port.tx_bytes),
            port.rx_dropped,
            port.tx_dropped,
        )
        for body in parts.get(Multipart.PORT_STATS, ())
        for port in replies.port_counts(body)
    }
    return SwitchStats(flows, groups, meters, ports)


def flow_of(stats: replies.FlowStats) -> Flow:
    """Return a flow. Raises Foreign."""
    if stats.table != 0 or stats.idle_timeout_s or stats.hard_timeout_s:
        raise Foreign(f"flow in table {stats.table} or with a timeout")
    meter: int | None = None
    actions: tuple[Action, ...] = ()
    for instruction in stats.instructions:
        if instruction.type == METER and len(instruction.data) == 8:
            meter = int.from_bytes(instruction.data[4:8], "big")
        elif instruction.type == APPLY_ACTIONS:
            actions = tuple(action_of(action) for action in replies.actions_of(instruction))
        else:
            raise Foreign(f"instruction {instruction.type}")
    return Flow(match_of(stats.match), stats.priority, stats.cookie, actions, meter)


def match_of(fields: Iterable[Oxm]) -> Match:
    """Return a match. Raises Foreign."""
    in_port = vlan = eth_type = ip_proto = None
    eth_dst: EthMatch | None = None
    eth_src: str | None = None
    for field in fields:
        number = int.from_bytes(field.value, "big")
        if field.field == ETH_DST:
            eth_dst = EthMatch(
                mac_text(field.value), EXACT if field.mask is None else mac_text(field.mask)
            )
        elif field.mask is not None:
            raise Foreign(f"mask of match field {field.field}")
        elif field.field == IN_PORT:
            in_port = number
        elif field.field == VLAN_VID and number & VLAN_PRESENT:
            vlan = number & 0xFFF
        elif field.field == ETH_SRC:
            eth_src = mac_text(field.value)
        elif field.field == ETH_TYPE:
            eth_type = number
        elif field.field == IP_PROTO:
            ip_proto = number
        else:
            raise Foreign(f"match field {field.field}")
    return Match(in_port, vlan, eth_dst, eth_src, eth_type, ip_proto)


def action_of(action: Tlv) -> Action:
    """Return an action. Raises Foreign."""
    first = int.from_bytes(action.data[4:8], "big")
    size = len(action.data)
    if action.type == OUTPUT and size == 16:
        return Output(first)
    if action.type == GROUP and size == 8:
        return ToGroup(first)
    if action.type == SET_QUEUE and size == 8:
        return SetQueue(first)
    if action.type == SET_FIELD and size == 16 and action.data[4:8] == SET_VLAN:
        value = int.from_bytes(action.data[8:10], "big")
        if value & VLAN_PRESENT:
            return SetVlan(value & 0xFFF)
    raise Foreign(f"action {action.type}")


def group_of(group: replies.GroupDescription) -> Group:
    """Return a group; without buckets if this controller did not write it."""
    buckets: list[Bucket] = []
    for tlvs in group.buckets:
        try:
            actions = tuple(action_of(action) for action in tlvs)
        except Foreign:
            return Group(group.number, ())
        match actions:
            case (SetVlan(vlan), Output(port)):
                buckets.append(Bucket(vlan, port))
            case (SetVlan(vlan), SetQueue(queue), Output(port)):
                buckets.append(Bucket(vlan, port, queue))
            case _:
                return Group(group.number, ())
    return Group(group.number, tuple(buckets) if group.type == GROUP_ALL else ())


def meter_of(meter: replies.MeterConfig) -> Meter:
    """Return a meter; with rate 0 if this controller did not write it."""
    if meter.flags == METER_FLAGS and len(meter.bands) == 1:
        band = meter.bands[0]
        if band.type == METER_BAND_DROP:
            rate_kbps = int.from_bytes(band.data[4:8], "big")
            return Meter(meter.number, rate_kbps, int.from_bytes(band.data[8:12], "big"))
    return Meter(meter.number, 0, 0)
