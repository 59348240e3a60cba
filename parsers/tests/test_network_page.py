# SPDX-License-Identifier: Apache-2.0
"""The network on the page of a SYNTHETIC run, as a map or in layers."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from parsers.base.jsonfiles import BadFile
from parsers.report.board_network import network_of
from parsers.report.publish import write_report
from parsers.tests.browser import Browser, axe_source
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run
from parsers.tests.test_board_browser import fragment, opened

CITIES = {"newy": (40.71, -74.01), "chic": (41.88, -87.63), "tor-a": (42.38, -72.52),
          "tor-b": (41.88, -87.63)}  # fmt: skip
LINKS = [("newy", "chic"), ("tor-a", "newy"), ("tor-b", "chic")]
RECEIVERS = 12
TEXTS = """
[...document.querySelectorAll('#tree svg text:not(.tick)')].map(t => {
  const box = t.getBoundingClientRect();
  return [t.textContent, box.left, box.top, box.right, box.bottom];
})
"""
SHAPES = "document.querySelectorAll('#tree .{}').length"


def network(*, with_places: bool = True) -> dict[str, Any]:
    """Return a publisher in one city, and the receivers in another."""
    hosts = [("umass", "publisher", "tor-a")]
    hosts += [(f"r{number + 1}", "subscriber", "tor-b") for number in range(RECEIVERS)]
    places = CITIES if with_places else dict.fromkeys(CITIES, (None, None))
    return {
        "hosts": [{"name": name, "role": role} for name, role, _ in hosts],
        "switches": [{"name": name, "lat": lat, "lon": lon} for name, (lat, lon) in places.items()],
        "links": [
            {
                "name": f"{a}:{b}",
                "a": {"node": a},
                "b": {"node": b},
                "forward": {"loss": 0},
                "backward": {"loss": 0},
            }
            for a, b in [*LINKS, *((name, switch) for name, _, switch in hosts)]
        ],
    }


def test_hosts_are_where_their_switch_is() -> None:
    found = network_of(json.dumps(network()), "network.json", None, None)
    nodes: Any = found["nodes"]
    places = {node["name"]: node["at"] for node in nodes}
    assert places == CITIES | {"umass": CITIES["tor-a"]} | {
        f"r{number + 1}": CITIES["tor-b"] for number in range(RECEIVERS)
    }


def test_without_coordinates_there_is_no_place() -> None:
    for raw in (network(with_places=False), network()):
        for switch in raw["switches"]:
            if switch["lat"] is None or switch["name"] == "tor-b":
                switch.pop("lat")
        nodes: Any = network_of(json.dumps(raw), "network.json", None, None)["nodes"]
        assert not any("at" in node for node in nodes if node["name"] in ("tor-b", "r1"))


@pytest.mark.parametrize("wrong", ["north", [], {}])
def test_a_place_that_is_none_is_one_message(wrong: object) -> None:
    raw = network()
    raw["switches"][0]["lat"] = wrong
    with pytest.raises(BadFile, match=r"network\.json: not a network"):
        network_of(json.dumps(raw), "network.json", None, None)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cell = SyntheticCell("ldm7", m=RECEIVERS)
    run = write_synthetic_run(tmp_path_factory.mktemp("run"), cell)
    (run / "cells" / cell.name / "network.json").write_text(json.dumps(network()))
    write_report(run)
    return run / "report/dashboard.html"


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_map_whose_names_do_not_cover_each_other(
    tab: Browser, page: Path, width: int, scheme: str
) -> None:
    tab.media(scheme)
    tab.resize(width)
    opened(tab, page)
    assert tab.complaints() == []
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.evaluate(SHAPES.format("grid")) > 3
    assert tab.evaluate(SHAPES.format("host")) == RECEIVERS + 1
    texts = tab.evaluate(TEXTS)
    assert {text for text, *_ in texts} >= {"r12", "umass", "chic", "publisher"}
    for i, (one, left, top, right, bottom) in enumerate(texts):
        for other, left2, top2, right2, bottom2 in texts[:i]:
            apart = right <= left2 or right2 <= left or bottom <= top2 + 3 or bottom2 <= top + 3
            assert apart, (one, other)
    axe = axe_source()
    assert axe is None or tab.axe(axe) == []


@pytest.mark.slow
def test_a_printed_map_is_whole(tab: Browser, page: Path) -> None:
    tab.media(medium="print")
    tab.resize(720)
    opened(tab, page)
    right = "document.querySelector('#tree svg').getBoundingClientRect().right"
    assert tab.evaluate(right) <= 720 and tab.evaluate("document.body.scrollWidth") <= 720


@pytest.mark.slow
def test_a_button_shows_the_layers_instead_and_the_fragment_keeps_it(
    tab: Browser, page: Path
) -> None:
    tab.media()
    tab.resize(1280)
    opened(tab, page)
    tab.evaluate("document.getElementById('layers').click()")
    assert tab.evaluate(SHAPES.format("grid")) == 0
    assert fragment(tab)["network"] == "layers"
    opened(tab, page, "#network=layers")
    assert tab.evaluate(SHAPES.format("grid")) == 0
    assert tab.evaluate(SHAPES.format("host")) == RECEIVERS + 1
    assert tab.evaluate("document.getElementById('layers').ariaPressed") == "true"


# geni5's, with all receivers of a rack at one place.
RACKS = {"tor-wsu": (42.33, -83.05), "tor-sl": (41.88, -87.63), "tor-uh": (29.76, -95.37),
         "tor-osf": (37.80, -122.27)}  # fmt: skip
CORE = {"newy": (40.71, -74.01), "chic": (41.88, -87.63), "hous": (29.76, -95.37),
        "salt": (40.76, -111.89), "tor-umass": (42.38, -72.52)}  # fmt: skip


def racks(receivers: int) -> list[dict[str, Any]]:
    """Return the nodes of geni5, as the page gets them."""
    nodes = [
        {"name": name, "kind": "switch", "publisher": False, "at": at}
        for name, at in (CORE | RACKS).items()
    ]
    nodes.append({"name": "umass", "kind": "host", "publisher": True, "at": CORE["tor-umass"]})
    for number in range(receivers):
        rack = list(RACKS)[number % len(RACKS)]
        name = f"{rack.removeprefix('tor-')}{number // len(RACKS) + 1}"
        nodes.append({"name": name, "kind": "host", "publisher": False, "at": RACKS[rack]})
    return nodes


@pytest.mark.slow
@pytest.mark.parametrize(("receivers", "near"), [(4, 65), (8, 70), (24, 115)])
def test_hosts_of_a_site_stay_together_and_near_it(
    tab: Browser, page: Path, receivers: int, near: float
) -> None:
    """`near`: the largest distance, in units of the map's width, 1040."""
    tab.resize(1280)
    opened(tab, page)
    nodes = racks(receivers)
    place = tab.evaluate(f"D.map({{ nodes: {json.dumps(nodes)} }}).place")
    hosts = [node for node in nodes if node["kind"] == "host" and not node["publisher"]]
    for host in hosts:
        (own,) = [rack for rack, there in RACKS.items() if there == host["at"]]
        far = {r: math.dist(place[host["name"]][:2], place[r][:2]) for r in RACKS}
        assert far[own] < near and far[own] == min(far.values()), (host["name"], far)
    for rack, there in RACKS.items():
        mates = sorted(place[host["name"]] for host in hosts if host["at"] == there)
        # One column without gaps.
        assert {round(x) for x, *_ in mates} == {round(mates[0][0])}, rack
        heights = sorted(y for _, y, _ in mates)
        assert [round(b - a) for a, b in pairwise(heights)] == [36] * (len(mates) - 1), rack
