# SPDX-License-Identifier: Apache-2.0
"""The experiments that are in no paper: what they vary, what they can run on; and that the overview
of the documentation gives the right numbers of cells."""

from __future__ import annotations

import re

import pytest

from common.places import ROOT
from experiments.design import burst_loss
from experiments.design import join_leave_expansion as join_leave
from experiments.design.expansion import CellSpec, expand
from experiments.design.networks import Networks, with_rtt
from experiments.design.spec import (
    JoinLeaveSpec,
    UsageError,
    at_level,
    bundled,
    find,
    load,
)
from experiments.runs.preparation import plan
from topologies.model.load import find as find_topology
from topologies.model.load import load as load_topology

OURS = (
    "timeouts",
    "rtt",
    "burst-loss",
    "background",
    "churn",
    "scale",
    "multidomain",
    "buffers",
    "sweet-spot",
    "migration",
    "high-rate",
    "borrowing",
    "slow-receiver",
    "feed-types",
    "monitor-cost",
)
SUBSCRIBERS = [f"s{n}" for n in range(7)]  # of drfsm8, which has seven


def cells_of(name: str, level: str) -> tuple[CellSpec, ...]:
    spec = at_level(load(find(name)), level)
    if isinstance(spec, JoinLeaveSpec):
        return join_leave.expand(spec, SUBSCRIBERS, level)
    return expand(spec, level)


@pytest.mark.parametrize("level", ["quick", "paper"])
@pytest.mark.parametrize("name", OURS)
def test_the_overview_counts_their_cells(name: str, level: str) -> None:
    text = (ROOT / "docs/results/README.md").read_text()
    row = re.search(rf"^\| \[{name}\].*$", text, re.MULTILINE)
    assert row is not None
    quick, paper = (int(row[0].split("|")[column]) for column in (4, 6))
    cells = cells_of(name, level)
    assert len(cells) == (quick if level == "quick" else paper)
    assert len({cell.cell for cell in cells}) == len(cells)
    assert {cell.duration_s for cell in cells} == ({3600.0} if level == "paper" else
                                                   {cells[0].duration_s})  # fmt: skip
    assert (ROOT / f"docs/results/{name}.md").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["timeouts", "rtt", "burst-loss", "background", "scale", "multidomain"],
)
def test_there_is_a_network_for_each_cell(name: str) -> None:
    networks = Networks()
    cells = cells_of(name, "quick")
    burst_loss.check(cells)
    for cell in cells:
        network = networks.of(cell)
        assert len(network.subscribers) == cell.m
        assert network.lane_count == (2 if cell.background_flows else 1)
        if cell.rtt_ms is not None:
            assert set(network.round_trip_ms.values()) == {cell.rtt_ms}


@pytest.mark.slow
def test_receivers_of_the_sweet_spot_are_behind_slow_links() -> None:
    for cell in cells_of("sweet-spot", "paper"):
        network = Networks().of(cell)
        slow = [
            k for k in network.links if 600_000_000 in (k.forward.rate_bps, k.backward.rate_bps)
        ]
        nics = {network.host(h).nic1.interface for h in cell.subscribers or ()}
        assert {p.interface for k in slow for p in (k.a, k.b)} >= nics
        assert len(slow) == cell.m == 4


def test_ldm6_fits_onto_the_links_of_every_scale() -> None:
    """geni5's links have 1 Gbit/s; a path's rate is taken on each link of its tree."""
    assert max(cell.r_vn_bps for cell in cells_of("scale", "quick")) <= 1_000_000_000


def test_the_guaranteed_path_fits_beside_others() -> None:
    """Of 100 Mbit/s, for both protocols."""
    rates = {c.protocol: c.r_vn_bps for c in cells_of("background", "paper")}
    assert rates == {"ldm7": 48_000_000, "ldm6": 96_000_000}


def test_a_round_trip_for_feeds_on_lanes_of_their_own() -> None:
    network = load_topology(find_topology("drfsm8"), {"lanes": 3})
    assert set(with_rtt(network, 20.0).round_trip_ms.values()) == {20.0}
    assert with_rtt(network, None) == network


def test_a_cut_needs_a_second_controller_domain() -> None:
    spec = load(find("multidomain")).model_copy(update={"topology": "geni5"})
    with pytest.raises(UsageError, match="cut: found 'handoff' with topology geni5.*twocores"):
        plan(at_level(spec, "quick"), "quick")


def test_only_claims_whose_words_say_so_are_about_each_step() -> None:
    """Whatever a run shows: "each further flow" is about each step, "the longer, the fewer" is
    about the range."""
    claims = [c for name in bundled() for c in load(find(name)).claims]
    ordered = [c for c in claims if c.kind in ("increases", "decreases")]
    wrong = [
        c.text
        for c in ordered
        if (re.search("each (further|step|receiver without)", c.text) is None)
        is not (c.steps == "trend")
    ]
    assert not wrong
    assert {c.steps for c in ordered} == {"each", "trend"}
