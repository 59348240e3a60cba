# SPDX-License-Identifier: Apache-2.0
"""Draw the rooms and wings from the rules for imports and includes, as Mermaid and Graphviz text.

An arrow that follows from others is left out: the drawing is the transitive reduction of the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import networkx as nx

from tests.c_house import MAY_INCLUDE
from tests.house import MAY_IMPORT, place_of

# Wings that ship nothing.
NOT_DRAWN: Final = re.compile(r"(^|/)(tests|fuzz)$")
PAGE: Final = Path(__file__).resolve().parents[2] / "docs/develop/architecture.md"


def python_house() -> nx.DiGraph[str]:
    """Return the Python places with the arrows of `MAY_IMPORT` that do not follow from others."""
    return reduced(
        (place, place_of(entry)) for place, entries in MAY_IMPORT.items() for entry in entries
    )


def c_house() -> nx.DiGraph[str]:
    """Return the C places with the arrows of `MAY_INCLUDE` that do not follow from others."""
    drawn = {place: below for place, below in MAY_INCLUDE.items() if not NOT_DRAWN.search(place)}
    return reduced(((place, entry) for place, entries in drawn.items() for entry in entries), drawn)


def reduced(arrows: Iterable[tuple[str, str]], places: Iterable[str] = ()) -> nx.DiGraph[str]:
    whole: nx.DiGraph[str] = nx.DiGraph()
    whole.add_nodes_from(places)
    whole.add_edges_from((above, below) for above, below in arrows if above != below)
    return nx.transitive_reduction(whole)


def _rooms(house: nx.DiGraph[str]) -> Mapping[str, list[str]]:
    rooms: dict[str, list[str]] = {}
    for place in sorted(house):
        rooms.setdefault(re.split(r"[./]", place)[0], []).append(place)
    return rooms


def _label(place: str, room: str, places: list[str]) -> str:
    return place[len(room) + 1 :] or ("top floor" if len(places) > 1 else room)


def mermaid(house: nx.DiGraph[str]) -> str:
    """Return the text of a Mermaid flowchart, rooms as boxes around their wings."""
    return "\n".join(["flowchart TD", *_mermaid_lines(house)])


def _mermaid_lines(house: nx.DiGraph[str]) -> Iterator[str]:
    def key(place: str) -> str:
        return re.sub(r"\W", "_", place)

    for room, places in _rooms(house).items():
        nodes = [f"{key(place)}[{_label(place, room, places)}]" for place in places]
        if places == [room]:
            yield f"  {nodes[0]}"
        else:
            yield f"  subgraph room_{room}[{room}/]"
            yield from (f"    {node}" for node in nodes)
            yield "  end"
    yield from (f"  {key(above)} --> {key(below)}" for above, below in sorted(house.edges))


def graphviz(house: nx.DiGraph[str]) -> str:
    """Return the same drawing as a Graphviz document."""
    return "\n".join(
        [
            "digraph house {",
            '  graph [rankdir=TB, fontname="sans-serif", nodesep=0.25, ranksep=0.5];',
            '  node [shape=box, style="rounded,filled", fillcolor=white, fontname="sans-serif"];',
            '  edge [color="#555555", arrowsize=0.7];',
            *_graphviz_lines(house),
            "}",
            "",
        ]
    )


def _graphviz_lines(house: nx.DiGraph[str]) -> Iterator[str]:
    for room, places in _rooms(house).items():
        nodes = [f'"{place}" [label="{_label(place, room, places)}"];' for place in places]
        if places == [room]:
            yield f"  {nodes[0]}"
        else:
            yield f'  subgraph "cluster_{room}" {{'
            yield f'    label="{room}/"; style="rounded,filled"; fillcolor="#eef3f8";'
            yield from (f"    {node}" for node in nodes)
            yield "  }"
    yield from (f'  "{above}" -> "{below}";' for above, below in sorted(house.edges))


def drawn(page: str) -> str:
    """Return a page with its drawings, the blocks between `<!-- house: … -->` marks, redrawn."""
    for name, house in (("python", python_house()), ("c", c_house())):
        start = page.index("\n", page.index(f"<!-- house: {name} -->")) + 1
        end = page.index("<!-- end -->", start)
        page = f"{page[:start]}```mermaid\n{mermaid(house)}\n```\n{page[end:]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
