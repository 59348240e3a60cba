# SPDX-License-Identifier: Apache-2.0
"""Which network a cell gets."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from experiments.design.expansion import CellSpec
from experiments.design.networks import Networks
from experiments.design.spec import UsageError
from topologies.model.load import find, load


@pytest.fixture
def cell(cells: dict[str, CellSpec]) -> CellSpec:
    return cells["ldm7"]


def names(cell: CellSpec) -> list[str]:
    return [host.name for host in Networks().of(cell).subscribers]


def test_receivers_are_generated(cell: CellSpec) -> None:
    assert names(dataclasses.replace(cell, m=2)) == ["wsu1", "sl1"]


def test_as_few_more_as_the_named_are_among(cell: CellSpec) -> None:
    """geni5 distributes receivers in turn: wsu1, sl1, uh1, osf1, wsu2."""
    found = names(dataclasses.replace(cell, m=1, subscribers=("sl1",)))
    assert found == ["wsu1", "sl1"]
    found = names(dataclasses.replace(cell, m=2, subscribers=("wsu2", "sl1")))
    assert found == ["wsu1", "sl1", "uh1", "osf1", "wsu2"]


@pytest.mark.slow
def test_a_topology_of_named_hosts_keeps_them_all(cell: CellSpec) -> None:
    drfsm = dataclasses.replace(cell, topology="drfsm8", m=2, subscribers=("umd", "uva"))
    assert set(names(drfsm)) == {"uva", "uwisc", "umd", "uutah", "uwash", "ucsd", "umiss"}
    assert drfsm.subscribing(names(drfsm)) == ["umd", "uva"]
    first = dataclasses.replace(drfsm, subscribers=None)
    assert first.subscribing(names(first)) == names(first)[:2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"subscribers": ("nobody",), "m": 1}, "found nobody; valid: the subscribers of geni5, "),
        (
            {"topology": "drfsm8", "subscribers": ("uva", "sl1"), "m": 2},
            "found sl1; valid: the subscribers of drfsm8, uva, ",
        ),
        (
            {"background_flows": 4},
            "background_flows: found 4 on geni5; valid: 0, or a topology with a parameter lanes",
        ),
        ({"topology": "drfsm8"}, "receivers: found 8; valid: at most 7, the subscribers of drfsm8"),
    ],
)
def test_who_is_not_there(cell: CellSpec, changes: dict[str, object], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        Networks().of(dataclasses.replace(cell, **changes))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["geni5", "bottleneck"])
def test_more_receivers_include_those_of_fewer(topology: str) -> None:
    """This is why the least number that includes a requested one can be found by bisection."""
    sets = [
        {host.name for host in load(find(topology), {"receivers": m}).subscribers}
        for m in range(1, 13)
    ]
    assert all(fewer < more for fewer, more in itertools.pairwise(sets))


@pytest.mark.slow
def test_as_few_receivers_as_have_the_wanted_one(cell: CellSpec) -> None:
    """The eleventh of geni5's generated receivers is named."""
    names = [host.name for host in load(find("geni5"), {"receivers": 11}).subscribers]
    (last,) = set(names) - {h.name for h in load(find("geni5"), {"receivers": 10}).subscribers}
    found = Networks().of(dataclasses.replace(cell, m=1, subscribers=(last,)))
    assert {host.name for host in found.subscribers} == set(names)


def test_loss_before_the_tree_branches_is_the_cells_own(cell: CellSpec) -> None:
    networks = Networks()
    plain = networks.of(dataclasses.replace(cell, topology="drfsm8", m=2))
    lossy = networks.of(dataclasses.replace(cell, topology="drfsm8", m=2, handoff_loss=0.01))
    assert [k.forward.loss for k in lossy.links if k.name == "sw-frgp:star"] == [0.01]
    assert all(k.forward.loss == 0 for k in plain.links)
    assert networks.of(dataclasses.replace(cell, topology="drfsm8", m=2)) == plain


def test_one_round_trip_for_all(cell: CellSpec) -> None:
    networks = Networks()
    asked = networks.of(dataclasses.replace(cell, m=4, rtt_ms=10.0))
    assert set(asked.round_trip_ms.values()) == {10.0}
    # The topology's own network, from the same file.
    own = networks.of(dataclasses.replace(cell, m=4))
    assert set(own.round_trip_ms.values()) == {36.0, 41.0, 50.0, 90.0}


def test_competing_flows_have_a_lane_of_their_own(cell: CellSpec) -> None:
    networks = Networks()
    beside = dataclasses.replace(cell, topology="bottleneck", m=4, background_flows=2)
    assert networks.of(beside).lane_count == 2
    assert networks.of(dataclasses.replace(beside, background_flows=0)).lane_count == 1


@pytest.mark.parametrize("topology", ["geni5", "drfsm8", "twocores", "bottleneck"])
def test_a_monitored_cell_has_a_monitor_in_every_topology(cell: CellSpec, topology: str) -> None:
    networks = Networks()
    cell = dataclasses.replace(cell, topology=topology, m=2)
    watched = dataclasses.replace(
        cell, conditions=dataclasses.replace(cell.conditions, monitor="on")
    )
    found = networks.of(watched)
    assert found.monitor is not None
    assert found.without_monitor() == networks.of(cell).without_monitor()
    assert (networks.of(cell).monitor is None) == (topology != "drfsm8")
