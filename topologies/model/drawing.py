# SPDX-License-Identifier: Apache-2.0
"""Draw a `Network`: DOT text with its domains, links, static segments and the path service's tree
for all subscribers. Pure; `common.graphviz` draws it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from common.graphviz import label, quoted
from common.quantities import format_rate
from topologies.model.network import ControlledBy, Domain, Host, Impairment, Link, Network
from topologies.model.paths import Hop, path_to

# Readable on a white and on a dark page: the drawing has its own background.
TREE: Final = "#4477AA"
QUIET: Final = "#8A8F98"
CONTROLLED: Final = "#E8F0F8"
STATIC: Final = "#F4F4F4"
NAMED_HOSTS: Final = 4  # a larger site shows its first and last host


def dot_of(network: Network) -> str:
    """Return the network as a graph from left (the publisher) to right.

    A cluster is a domain: blue if the controller programs its switches, grey if its segments are
    static. Bold edges are the multipoint path's tree, with the VLAN id of a static segment; grey
    edges carry none of its frames. Labels give each link's rate, one-way delay and loss, and each
    site's hosts and round trip to the publisher.
    """
    tree = _tree(network)
    lines = [
        "digraph network {",
        '  graph [rankdir=LR, bgcolor="white", fontname="sans-serif", nodesep=0.25, ranksep=0.9,',
        f"    fontsize=14, labelloc=t, label={label(f'{network.name}: {network.description}')}];",
        '  node [fontname="sans-serif", fontsize=11, shape=box, style="rounded,filled",',
        '    fillcolor="white", color="#333333"];',
        '  edge [fontname="sans-serif", fontsize=9, fontcolor="#333333", arrowsize=0.6];',
    ]
    for domain in network.domains:
        lines += _domain(network, domain)
    for link in _wide_links(network):
        lines += _link(network, link, tree.get(link.name))
    for site, hosts in _sites(network).items():
        lines += _access(network, site, hosts)
    return "\n".join([*lines, "}", ""])


def _tree(network: Network) -> dict[str, Hop]:
    """Return by link the direction in which the path's frames cross it."""
    return {hop.link.name: hop for s in network.subscribers for hop in path_to(network, s.name)}


def _sites(network: Network) -> dict[str, list[Host]]:
    """Group the hosts that share a site, an edge switch and a role."""
    found: dict[str, list[Host]] = {}
    for host in network.hosts:
        edge = network.segment_of(host.name).edge_switch
        found.setdefault(f"{host.site} {edge} {host.role}", []).append(host)
    return found


def _domain(network: Network, domain: Domain) -> Iterator[str]:
    controlled = domain.controlled_by is ControlledBy.CONTROLLER
    note = "OpenFlow controller" if controlled else "static"
    fill = CONTROLLED if controlled else STATIC
    yield f"  subgraph {quoted(f'cluster {domain.name}')} {{"
    yield f'    style="rounded,filled"; fillcolor="{fill}"; color="{QUIET}"; fontsize=11;'
    yield f"    label={label(f'{domain.name} ({note})')};"
    for switch in network.switches:
        if switch.domain == domain.name:
            yield f"    {_switch(switch.name)} [label={label(switch.name)}];"
    yield "  }"


def _wide_links(network: Network) -> list[Link]:
    """Return the links between switches."""
    switches = {switch.name for switch in network.switches}
    return [k for k in network.links if {k.a.node, k.b.node} <= switches]


def _link(network: Network, link: Link, hop: Hop | None) -> Iterator[str]:
    vlans = [
        f"VLAN {s.vlan}"
        for s in network.segments
        if {s.edge_switch, s.endpoint_switch} == {link.a.node, link.b.node}
    ]
    source, target = (hop.source, hop.target) if hop else (link.a.node, link.b.node)
    text = label(*_impairments(link), *dict.fromkeys(vlans))
    look = (
        f'color="{TREE}", penwidth=2.2'
        if hop
        else f'color="{QUIET}", dir=none, style=dashed, constraint=false'
    )
    yield f"  {_switch(source)} -> {_switch(target)} [{look}, label={text}];"


def _impairments(link: Link) -> list[str]:
    """Return one line if both directions are alike, else one for each."""
    if link.forward == link.backward:
        return _impairment("", link.forward)
    return _impairment("> ", link.forward) + _impairment("< ", link.backward)


def _impairment(direction: str, impairment: Impairment) -> list[str]:
    words = [
        format_rate(impairment.rate_bps) if impairment.rate_bps is not None else "",
        f"{impairment.delay_ms:g} ms" if impairment.delay_ms else "",
        f"{impairment.loss * 100:g}% loss" if impairment.loss else "",
    ]
    text = ", ".join(word for word in words if word)
    return [direction + text] if text else []


def _access(network: Network, site: str, hosts: list[Host]) -> Iterator[str]:
    names = [host.name for host in hosts]
    if len(names) > NAMED_HOSTS:
        names = [f"{names[0]} ... {names[-1]}", f"({len(names)} hosts)"]
    is_publisher = hosts[0] is network.publisher
    trip = network.round_trip_ms.get(hosts[0].name)
    note = "publisher" if is_publisher else "" if trip is None else f"RTT {trip:g} ms"
    text = label(" ".join(names), note)
    fill = "#DCE9F5" if is_publisher else "white"
    node = quoted(f"site {site}")
    switch = _switch(network.segment_of(hosts[0].name).edge_switch)
    yield f'  {node} [shape=box, style=filled, fillcolor="{fill}", label={text}];'
    ends = f"{node} -> {switch}" if is_publisher else f"{switch} -> {node}"
    yield f'  {ends} [color="{TREE}", penwidth=2.2];'


def _switch(name: str) -> str:
    return quoted(f"switch {name}")
