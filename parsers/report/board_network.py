# SPDX-License-Identifier: Apache-2.0
"""Turn network.json and two readings of the counters into nodes, in layers or at their places on a
map, and links with load and loss."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.contracts import LOSS_COMMENT
from parsers.base.jsonfiles import BadFile
from parsers.read.counters import Counters


@dataclass(frozen=True)
class _Edge:
    a: str
    b: str
    link: str  # its name
    bytes: int | None = None  # both directions together; None: not counted
    packets: int = 0
    lost: int = 0


def network_of(
    text: str, file: str, start: Counters | None, end: Counters | None
) -> dict[str, object]:
    """Return {nodes, edges} for the page. Raises BadFile."""
    try:
        raw = json.loads(text)
        edges = _edges(raw, start, end)
        root = next(h["name"] for h in raw["hosts"] if h["role"] == "publisher")
        kinds = {s["name"]: "switch" for s in raw["switches"]} | {
            h["name"]: "host" for h in raw["hosts"]
        }
        layers = _layers(root, edges, kinds)
        places = _places(raw)
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise BadFile(f"{file}: not a network: {error!r}") from None
    seconds = end.time - start.time if start is not None and end is not None else 0.0
    return {
        "nodes": [
            {"name": name, "kind": kinds[name], "layer": layer, "publisher": name == root}
            | ({"at": places[name]} if name in places else {})
            for name, layer in layers.items()
        ],
        "edges": [_edge_json(e, seconds) for e in edges if {e.a, e.b} <= layers.keys()],
    }


def _places(raw: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return degrees north and east of the switches, and of each host (its switch's place)."""
    found = {
        s["name"]: (float(s["lat"]), float(s["lon"]))
        for s in raw["switches"]
        if s.get("lat") is not None and s.get("lon") is not None
    }
    switches, hosts = dict(found), {host["name"] for host in raw["hosts"]}
    for link in raw["links"]:
        a, b = link["a"]["node"], link["b"]["node"]
        for host, switch in ((a, b), (b, a)):
            if host in hosts and switch in switches:
                found[host] = switches[switch]
    return found


def _edge_json(edge: _Edge, seconds: float) -> dict[str, object]:
    known = edge.bytes is not None and seconds > 0
    whole = edge.packets + edge.lost
    return {
        "a": edge.a,
        "b": edge.b,
        "bps": 8 * (edge.bytes or 0) / seconds if known else None,
        "lost_share": edge.lost / whole if whole else 0.0,
    }


def _edges(raw: Mapping[str, Any], start: Counters | None, end: Counters | None) -> list[_Edge]:
    found = []
    hosts = {host["name"] for host in raw["hosts"]}
    for link in raw["links"]:
        a, b = link["a"], link["b"]
        counted = _counted(f"{b['node']}/{b.get('interface', '')}", start, end)
        counted = counted or _counted(f"{a['node']}/{a.get('interface', '')}", start, end)
        octets, packets = counted or (None, 0)
        lost = _relay_losses(link["name"], start, end)
        lost += sum(_injected(n, start, end) for n in (a["node"], b["node"]) if n in hosts)
        found.append(_Edge(a["node"], b["node"], link["name"], octets, packets, lost))
    return found


def _counted(
    interface: str, start: Counters | None, end: Counters | None
) -> tuple[int, int] | None:
    if start is None or end is None or interface not in end.interfaces:
        return None
    after, before = end.interfaces[interface], start.interfaces.get(interface)
    if before is None:
        return None
    return (
        after.rx_bytes + after.tx_bytes - before.rx_bytes - before.tx_bytes,
        after.rx_packets + after.tx_packets - before.rx_packets - before.tx_packets,
    )


def _relay_losses(link: str, start: Counters | None, end: Counters | None) -> int:
    lost = 0
    for direction in ("forward", "backward"):
        for sign, reading in ((1, end), (-1, start)):
            relay = reading.relay.get(f"{link}/{direction}") if reading is not None else None
            if relay is not None:
                lost += sign * (relay.lost + relay.dropped)
    return max(lost, 0)


def _injected(host: str, start: Counters | None, end: Counters | None) -> int:
    """Return how many packets the experiment's rules dropped at a host."""
    lost = 0
    for sign, reading in ((1, end), (-1, start)):
        rules = reading.iptables.get(host, []) if reading is not None else []
        lost += sign * sum(r.packets for r in rules if LOSS_COMMENT in r.rule)
    return max(lost, 0)


def _layers(root: str, edges: list[_Edge], kinds: Mapping[str, str]) -> dict[str, int]:
    """Return each node's steps from the publisher over links that carry frames; only for nodes that
    these do not reach, over other links. A layer's nodes are in the order of their predecessors."""
    busiest = max((e.bytes or 0 for e in edges), default=0)
    carrying = {id(e) for e in edges if (e.bytes or 0) > busiest / 100 or e.bytes is None}
    layers = {root: 0}
    for chosen in (carrying, {id(e) for e in edges}):
        beside: dict[str, list[str]] = {}
        for edge in edges:
            if id(edge) in chosen:
                beside.setdefault(edge.a, []).append(edge.b)
                beside.setdefault(edge.b, []).append(edge.a)
        queue = deque(layers)
        while queue:
            node = queue.popleft()
            for other in sorted(beside.get(node, ())):
                if other not in layers and other in kinds:
                    layers[other] = layers[node] + 1
                    queue.append(other)
    return layers
