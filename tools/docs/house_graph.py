# SPDX-License-Identifier: Apache-2.0
"""Draw the rooms and wings from the rules for imports and includes, as Mermaid and Graphviz text.

An arrow that follows from others is left out: the drawing is the transitive reduction of the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

import networkx as nx

from tests.c_house import MAY_INCLUDE
from tests.house import MAY_IMPORT, place_of

# Wings that ship nothing.
NOT_DRAWN: Final = re.compile(r"(^|/)(tests|fuzz)$")
FONT: Final = 'fontname="sans-serif", fontsize=18'
TIGHT: Final = 'margin="0.06,0.03", width=0.1, height=0.4'
MEET: Final = "contracts"  # what C programs and Python share
MARK: Final = "<!-- house -->"
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


def both_houses() -> dict[str, nx.DiGraph[str]]:
    """Return the places by language, in the drawing's order."""
    return {"Python": python_house(), "C": c_house()}


def _rooms(house: nx.DiGraph[str]) -> Mapping[str, list[str]]:
    rooms: dict[str, list[str]] = {}
    for place in sorted(house):
        rooms.setdefault(re.split(r"[./]", place)[0], []).append(place)
    return rooms


def _label(place: str, room: str, places: list[str]) -> str:
    return place[len(room) + 1 :] or ("top floor" if len(places) > 1 else room)


def mermaid(houses: Mapping[str, nx.DiGraph[str]]) -> str:
    """Return the text of a Mermaid flowchart: a box for each language, in it rooms as boxes around
    their wings."""
    lines = ["flowchart TD"]
    for language, house in houses.items():
        lines += [f"  subgraph {language}", *_mermaid_lines(language, house), "  end"]
    lines += [f"  {above} -. {MEET} .-> {below}" for above, below in pairwise(houses)]
    return "\n".join(lines)


def _mermaid_lines(language: str, house: nx.DiGraph[str]) -> Iterator[str]:
    def key(place: str) -> str:
        return re.sub(r"\W", "_", f"{language}_{place}")

    for room, places in _rooms(house).items():
        nodes = [f"{key(place)}[{_label(place, room, places)}]" for place in places]
        if places == [room]:
            yield f"    {nodes[0]}"
        else:
            yield f"    subgraph {key(room)}_room[{room}/]"
            yield from (f"      {node}" for node in nodes)
            yield "    end"
    yield from (f"    {key(above)} --> {key(below)}" for above, below in sorted(house.edges))


def graphviz(houses: Mapping[str, nx.DiGraph[str]]) -> str:
    """Return the same drawing as a Graphviz document."""
    parts = [_graphviz_lines(language, house) for language, house in houses.items()]
    meet = [_below(one, houses[one], two, houses[two]) for one, two in pairwise(houses)]
    return "\n".join(
        [
            "digraph house {",
            f"  graph [rankdir=TB, compound=true, {FONT}, nodesep=0.1, ranksep=0.35];",
            f'  node [shape=box, style="rounded,filled", fillcolor=white, {FONT}, {TIGHT}];',
            f'  edge [color="#555555", arrowsize=0.7, {FONT}];',
            *chain.from_iterable([*parts, *meet]),
            "}",
            "",
        ]
    )


def _graphviz_lines(language: str, house: nx.DiGraph[str]) -> Iterator[str]:
    def key(place: str) -> str:
        return f'"{language} {place}"'

    yield f'  subgraph "cluster_{language}" {{'
    yield f'    label="{language}"; style="rounded,filled"; fillcolor="#f7f7f7";'
    for room, places in _rooms(house).items():
        nodes = [f'{key(place)} [label="{_label(place, room, places)}"];' for place in places]
        if places == [room]:
            yield f"    {nodes[0]}"
        else:
            yield f'    subgraph "cluster_{language}_{room}" {{'
            yield f'      label="{room}/"; style="rounded,filled"; fillcolor="#e3ecf5";'
            yield from (f"      {node}" for node in nodes)
            yield "    }"
    yield "  }"
    yield from (f"  {key(above)} -> {key(below)};" for above, below in sorted(house.edges))


def _below(one: str, house: nx.DiGraph[str], two: str, other: nx.DiGraph[str]) -> Iterator[str]:
    """Yield arrows, of which one is seen, that put a language's box below another's."""
    last = min(place for place in house if not house.succ[place])
    seen = f'ltail="cluster_{one}", lhead="cluster_{two}", style=dashed, label="  {MEET}"'
    tops = [place for place in other if not other.pred[place]]
    for first in sorted(tops, key=lambda place: (-len(nx.descendants(other, place)), place)):
        yield f'  "{one} {last}" -> "{two} {first}" [{seen}];'
        seen = "style=invis"


def drawn(page: str) -> str:
    """Return a page with the block after `<!-- house -->` redrawn."""
    start = page.index("\n", page.index(MARK)) + 1
    end = page.index("<!-- end -->", start)
    return f"{page[:start]}```mermaid\n{mermaid(both_houses())}\n```\n{page[end:]}"


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
