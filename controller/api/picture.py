# SPDX-License-Identifier: Apache-2.0
"""Draw paths in DOT, from what REST returns about them (docs/reference/contracts.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from common.graphviz import label, quoted
from controller.api.answers import CountersAnswer, EndpointCountsAnswer, PathAnswer
from controller.paths.multipoint_path import EndpointDocument

# Dark enough on white, and distinct for colour-blind readers (P. Tol's "bright").
COLOURS = ("#4477AA", "#EE6677", "#228833", "#AA3377", "#66CCEE", "#CCBB44")


def dot_of(
    paths: Iterable[PathAnswer], counters: Mapping[str, CountersAnswer] | None = None
) -> str:
    """Return a directed graph in DOT.

    Switches are boxes, roots houses, leaves ellipses (dashed: down); each edge has its VLAN id.
    With `counters`, by path, edges and leaves also say how many of the multicast frames arrived.
    """
    lines = [
        "digraph paths {",
        "  rankdir=LR;",
        '  node [fontname="sans-serif", fontsize=11, shape=box];',
        '  edge [fontname="sans-serif", fontsize=10];',
    ]
    switches: dict[str, None] = {}
    body: list[str] = []
    for number, path in enumerate(paths):
        body += _path(path, (counters or {}).get(path["name"]), COLOURS[number % len(COLOURS)])
        for endpoint in (path["root"], *(e for e in path["leaves"] if e.get("state") != "down")):
            switches[endpoint["switch"]] = None
        for edge in path["edges"]:
            switches |= {edge["from"]: None, edge["to"]: None}
    lines += [f"  {quoted('switch ' + name)} [label={quoted(name)}];" for name in switches]
    return "\n".join([*lines, *body, "}", ""])


def _path(path: PathAnswer, counted: CountersAnswer | None, colour: str) -> Iterator[str]:
    name = path["name"]
    leaves = {_key(leaf): leaf for leaf in (counted["leaves"] if counted else ())}
    edges = {(e["from"], e["to"]): e for e in (counted["edges"] if counted else ())}
    rate_bps = path["rate_bps"]
    rate = f"{rate_bps / 1e6:g} Mbit/s" if rate_bps else "best effort"
    root = quoted(f"root {name}")
    text = label(name, rate, _place(path["root"]))
    yield f"  {root} [shape=house, color={quoted(colour)}, label={text}];"
    yield _edge(root, _switch(path["root"]["switch"]), colour, [f"VLAN {path['root']['vlan']}"])
    for edge in path["edges"]:
        texts = [f"VLAN {edge['vlan']}"]
        found = edges.get((edge["from"], edge["to"]))
        if found is not None:
            texts.append(f"{found['arrived']['packets']} of {found['sent']['packets']}")
        yield _edge(_switch(edge["from"]), _switch(edge["to"]), colour, texts)
    for leaf in path["leaves"]:
        node = quoted(f"leaf {name} {_place(leaf)}")
        is_down = leaf.get("state") == "down"
        style = ", style=dashed" if is_down else ""
        text = label(_place(leaf), *(["down"] if is_down else []))
        yield f"  {node} [shape=ellipse, color={quoted(colour)}{style}, label={text}];"
        if is_down:
            continue
        texts = [f"VLAN {leaf['vlan']}"]
        got = leaves.get(_key(leaf))
        if got is not None:
            texts.append(f"{got['multicast']['packets']} frames")
        yield _edge(_switch(leaf["switch"]), node, colour, texts)


def _edge(source: str, target: str, colour: str, texts: Iterable[str]) -> str:
    return f"  {source} -> {target} [color={quoted(colour)}, label={label(*texts)}];"


def _switch(name: str) -> str:
    return quoted(f"switch {name}")


def _key(endpoint: EndpointDocument | EndpointCountsAnswer) -> tuple[str, int, int]:
    return endpoint["switch"], endpoint["port"], endpoint["vlan"]


def _place(endpoint: EndpointDocument | EndpointCountsAnswer) -> str:
    return f"{endpoint['switch']}:{endpoint['port']}:{endpoint['vlan']}"
