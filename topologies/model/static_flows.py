# SPDX-License-Identifier: Apache-2.0
"""Make the OpenFlow 1.3 entries of static domains, which their administrators would have
provisioned.

Pure: Network -> entries, and entries -> lines for `ovs-ofctl -O OpenFlow13` (`add-groups` and
`add-flows` read files of such lines; groups go first, since flows refer to them).

A segment with VLAN id v, uplink u and hosts h1..hn on one edge switch behaves like a small VLAN:

    in          frame                        out
    u, tag v    to a host's MAC              that host
    u, tag v    broadcast, multicast         all hosts (group ALL, one bucket for each)
    host        to another host's MAC        that host
    host        broadcast, multicast         the segment's other hosts, and u
    host        any other MAC                u
    anything else, any other tag             dropped

With `edge_tags`, hosts send and receive untagged frames, and the switch tags towards u. Without it,
the hosts tag (802.1Q interfaces), and frames keep their tag.
"""

from __future__ import annotations

from dataclasses import dataclass

from topologies.model.network import ControlledBy, Network, Segment

ETHERTYPE_8021Q = 0x8100
OFPVID_PRESENT = 0x1000  # OpenFlow 1.3.5, 7.2.3.7: set in vlan_vid where a tag is present
GROUP_BIT = "01:00:00:00:00:00/01:00:00:00:00:00"  # multicast and broadcast destinations
UNTAGGED = None  # as Match.vlan

PRIORITY_TO_HOST = 300
PRIORITY_GROUP = 200
PRIORITY_TO_UPLINK = 100
PRIORITY_DROP = 0


@dataclass(frozen=True)
class PushTag:
    """Add an 802.1Q tag with this VLAN id."""

    vlan: int

    def __str__(self) -> str:
        tci = OFPVID_PRESENT | self.vlan
        return f"push_vlan:{ETHERTYPE_8021Q:#x},set_field:{tci}->vlan_vid"


@dataclass(frozen=True)
class PopTag:
    """Remove the 802.1Q tag."""

    def __str__(self) -> str:
        return "pop_vlan"


@dataclass(frozen=True)
class SetTag:
    """Change a frame's 802.1Q tag to this VLAN id."""

    vlan: int

    def __str__(self) -> str:
        return f"set_field:{OFPVID_PRESENT | self.vlan}->vlan_vid"


@dataclass(frozen=True)
class Output:
    port: int

    def __str__(self) -> str:
        return f"output:{self.port}"


@dataclass(frozen=True)
class ToInPort:
    """Send a frame back out of the port where it came in."""

    def __str__(self) -> str:
        return "in_port"


@dataclass(frozen=True)
class ToGroup:
    group_id: int

    def __str__(self) -> str:
        return f"group:{self.group_id}"


Action = PushTag | PopTag | SetTag | Output | ToInPort | ToGroup


@dataclass(frozen=True)
class Match:
    """Frames that enter at `in_port` with tag `vlan` (None: untagged); `destination` is a MAC
    address, with a mask after a slash, or None for any."""

    in_port: int
    vlan: int | None
    destination: str | None = None

    def __str__(self) -> str:
        tag = "0xffff" if self.vlan is None else str(self.vlan)
        destination = "" if self.destination is None else f",dl_dst={self.destination}"
        return f"in_port={self.in_port},dl_vlan={tag}{destination}"


@dataclass(frozen=True)
class FlowEntry:
    """`match` None: all frames. No actions: drop."""

    priority: int
    match: Match | None
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        match = "" if self.match is None else f",{self.match}"
        actions = ",".join(map(str, self.actions)) or "drop"
        return f"table=0,priority={self.priority}{match},actions={actions}"


@dataclass(frozen=True)
class GroupEntry:
    """A group of type ALL: each bucket gets its own copy of the frame."""

    group_id: int
    buckets: tuple[tuple[Action, ...], ...]

    def __str__(self) -> str:
        buckets = ",".join(f"bucket=actions={','.join(map(str, b))}" for b in self.buckets)
        return f"group_id={self.group_id},type=all,{buckets}"


@dataclass(frozen=True)
class SwitchEntries:
    """All entries of one switch of a static domain."""

    switch: str
    groups: tuple[GroupEntry, ...]
    flows: tuple[FlowEntry, ...]

    def group_lines(self) -> str:
        """Return the input of `ovs-ofctl -O OpenFlow13 add-groups SWITCH -`."""
        return "".join(f"{group}\n" for group in self.groups)

    def flow_lines(self) -> str:
        """Return the input of `ovs-ofctl -O OpenFlow13 add-flows SWITCH -`."""
        return "".join(f"{flow}\n" for flow in self.flows)


@dataclass(frozen=True)
class _Attached:
    """A host of a segment, at its edge switch."""

    port: int
    mac: str


def static_flows(network: Network, *, edge_tags: bool) -> tuple[SwitchEntries, ...]:
    """Return the entries of each switch of each static domain, in the network's order."""
    static = {d.name for d in network.domains if d.controlled_by is ControlledBy.STATIC}
    return tuple(
        _switch_entries(network, switch.name, edge_tags)
        for switch in network.switches
        if switch.domain in static
    )


def _switch_entries(network: Network, switch: str, edge_tags: bool) -> SwitchEntries:
    groups: list[GroupEntry] = []
    flows: list[FlowEntry] = []
    segments = [s for s in network.segments if s.edge_switch == switch]
    for group_id, segment in enumerate(segments, start=1):
        hosts = _attached(network, segment)
        to_host: tuple[Action, ...] = (PopTag(),) if edge_tags else ()
        groups.append(GroupEntry(group_id, tuple((*to_host, Output(h.port)) for h in hosts)))
        flows += _from_uplink(segment, hosts, to_host, group_id)
        for host in hosts:
            others = [other for other in hosts if other is not host]
            flows += _from_host(segment, host, others, edge_tags)
    flows.append(FlowEntry(PRIORITY_DROP, None, ()))
    return SwitchEntries(switch, tuple(groups), tuple(flows))


def _from_uplink(
    segment: Segment, hosts: list[_Attached], to_host: tuple[Action, ...], group_id: int
) -> list[FlowEntry]:
    uplink, vlan = segment.edge_port, segment.vlan
    return [
        *(
            FlowEntry(PRIORITY_TO_HOST, Match(uplink, vlan, h.mac), (*to_host, Output(h.port)))
            for h in hosts
        ),
        FlowEntry(PRIORITY_GROUP, Match(uplink, vlan, GROUP_BIT), (ToGroup(group_id),)),
    ]


def _from_host(
    segment: Segment, host: _Attached, others: list[_Attached], edge_tags: bool
) -> list[FlowEntry]:
    vlan = UNTAGGED if edge_tags else segment.vlan
    tag: tuple[Action, ...] = (PushTag(segment.vlan),) if edge_tags else ()
    to_uplink = (*tag, Output(segment.edge_port))
    # The other hosts come first: their copies must not carry the uplink's tag.
    to_all = (*(Output(other.port) for other in others), *to_uplink)
    return [
        *(
            FlowEntry(PRIORITY_TO_HOST, Match(host.port, vlan, other.mac), (Output(other.port),))
            for other in others
        ),
        FlowEntry(PRIORITY_GROUP, Match(host.port, vlan, GROUP_BIT), to_all),
        FlowEntry(PRIORITY_TO_UPLINK, Match(host.port, vlan), to_uplink),
    ]


def _attached(network: Network, segment: Segment) -> list[_Attached]:
    """Return the segment's hosts, each with its port on the edge switch."""
    port_of: dict[str, int] = {}
    for link in network.links:
        for near, far in ((link.a, link.b), (link.b, link.a)):
            if near.node == segment.edge_switch:
                port_of[far.interface] = near.number
    return [_Attached(port_of[nic.interface], nic.mac) for nic in network.nics_of(segment)]
