# SPDX-License-Identifier: Apache-2.0
"""A `Network` as GraphML (graphml.graphdrawing.org), for NetworkX, igraph, Gephi and yEd."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from typing import Final

from topologies.model.network import Impairment, Link, Network

NAMESPACE: Final = "http://graphml.graphdrawing.org/xmlns"
NODE_KEYS: Final = {"kind": "string", "domain": "string", "site": "string", "dpid": "long"}
EDGE_KEYS: Final = {
    "port": "int",
    "rate_bps": "long",
    "delay_ms": "double",
    "jitter_ms": "double",
    "loss": "double",
    "queue_bytes": "long",
}


def graphml_of(network: Network) -> str:
    """Return the network as a directed graph: two edges for each link, as its two directions may
    differ. Unlimited quantities have no value."""
    root = ET.Element("graphml", xmlns=NAMESPACE)
    for of, keys in (("node", NODE_KEYS), ("edge", EDGE_KEYS)):
        for name, kind in keys.items():
            words = {"id": name, "for": of, "attr.name": name, "attr.type": kind}
            ET.SubElement(root, "key", words)
    graph = ET.SubElement(root, "graph", id=network.name, edgedefault="directed")
    for switch in network.switches:
        known: dict[str, object] = {"kind": "switch", "domain": switch.domain, "dpid": switch.dpid}
        _add(graph, "node", {"id": switch.name}, known)
    for host in network.hosts:
        known = {"kind": host.role.value, "domain": host.domain, "site": host.site}
        _add(graph, "node", {"id": host.name}, known)
    for router in network.routers:
        _add(graph, "node", {"id": router.name}, {"kind": "router"})
    if (monitor := network.monitor) is not None:
        _add(graph, "node", {"id": monitor.name}, {"kind": "monitor", "site": monitor.site})
    for link in network.links:
        _add_link(graph, link)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_link(graph: ET.Element, link: Link) -> None:
    for source, target, impairment in (
        (link.a, link.b, link.forward),
        (link.b, link.a, link.backward),
    ):
        known = {"port": source.number, **_asked(impairment)}
        _add(graph, "edge", {"source": source.node, "target": target.node}, known)


def _asked(impairment: Impairment) -> dict[str, object]:
    asked = {name: getattr(impairment, name) for name in EDGE_KEYS if name != "port"}
    return {name: value for name, value in asked.items() if value}


def _add(graph: ET.Element, kind: str, words: dict[str, str], known: Mapping[str, object]) -> None:
    element = ET.SubElement(graph, kind, words)
    for key, value in known.items():
        ET.SubElement(element, "data", key=key).text = str(value)
