# SPDX-License-Identifier: Apache-2.0
"""OpenFlow 1.3 entries that replace the path service where no controller runs: one multipoint path
over all sites, as entries of the controller domains' switches.

The tree is the path service's: least cost from the publisher's segment (`model.paths`). At each of
its switches, an attachment is a port with the VLAN id that the path has there: a segment's id, or
the first id that a link allows. Frames to a host's MAC take the only route in the tree. Broadcast
and multicast frames go to all other attachments. Each frame leaves with its attachment's VLAN id.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from topologies.model.network import Network, Segment
from topologies.model.paths import Hop, controlled_switches, domain_tree, route
from topologies.model.static_flows import (
    GROUP_BIT,
    PRIORITY_DROP,
    PRIORITY_GROUP,
    PRIORITY_TO_HOST,
    FlowEntry,
    Match,
    Output,
    SetTag,
    SwitchEntries,
    ToInPort,
    static_flows,
)


@dataclass(frozen=True)
class _Attachment:
    """Where the path enters and leaves a switch, and the MACs of the hosts behind it."""

    port: int
    vlan: int
    macs: frozenset[str]


def tree_flows(network: Network) -> tuple[SwitchEntries, ...]:
    """Return the entries of each controlled switch, in the network's order. A switch outside the
    tree drops everything. Raises paths.NoPath."""
    attached = _attachments(network)
    controlled = controlled_switches(network.domains, network.switches)
    return tuple(
        SwitchEntries(s.name, (), _flows(attached[s.name]))
        for s in network.switches
        if s.name in controlled
    )


def all_flows(network: Network) -> tuple[SwitchEntries, ...]:
    """Return the entries of all switches: the tree's, and those of static domains, which tag for
    the hosts. Raises paths.NoPath."""
    return (*static_flows(network, edge_tags=True), *tree_flows(network))


def _attachments(network: Network) -> dict[str, list[_Attachment]]:
    controlled = controlled_switches(network.domains, network.switches)
    root = network.segment_of(network.publisher.name).endpoint_switch
    last = domain_tree(network.links, controlled, root)
    segments = [s for s in network.segments if s.lane == 1]
    everywhere = frozenset(mac for s in segments for mac in _macs(network, s))
    beyond: dict[str, set[str]] = defaultdict(set)  # link of the tree -> MACs away from the root
    hops: dict[str, Hop] = {}
    found: dict[str, list[_Attachment]] = defaultdict(list)
    for segment in segments:
        macs = _macs(network, segment)
        attachment = _Attachment(segment.endpoint_port, segment.vlan, macs)
        found[segment.endpoint_switch].append(attachment)
        for hop in route(last, root, segment.endpoint_switch):
            hops[hop.link.name] = hop
            beyond[hop.link.name] |= macs
    for name, hop in hops.items():
        vlan = hop.link.vlan_range[0]
        near, far = (hop.link.a, hop.link.b) if hop.forward else (hop.link.b, hop.link.a)
        away = frozenset(beyond[name])
        found[near.node].append(_Attachment(near.number, vlan, away))
        found[far.node].append(_Attachment(far.number, vlan, everywhere - away))
    return found


def _macs(network: Network, segment: Segment) -> frozenset[str]:
    return frozenset(nic.mac for nic in network.nics_of(segment))


def _flows(attached: list[_Attachment]) -> tuple[FlowEntry, ...]:
    flows: list[FlowEntry] = []
    for entry in attached:
        others = [other for other in attached if other != entry]
        for other in others:
            flows += [
                FlowEntry(
                    PRIORITY_TO_HOST, Match(entry.port, entry.vlan, mac), _leave(entry, other)
                )
                for mac in sorted(other.macs)
            ]
        copies = tuple(action for other in others for action in _leave(entry, other))
        flows.append(FlowEntry(PRIORITY_GROUP, Match(entry.port, entry.vlan, GROUP_BIT), copies))
    return (*flows, FlowEntry(PRIORITY_DROP, None, ()))


def _leave(entry: _Attachment, other: _Attachment) -> tuple[SetTag, Output | ToInPort]:
    # OpenFlow 1.3.5, 5.6: `output` never sends a frame back to the port that it came from.
    out = ToInPort() if other.port == entry.port else Output(other.port)
    return (SetTag(other.vlan), out)
