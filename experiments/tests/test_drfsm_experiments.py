# SPDX-License-Identifier: Apache-2.0
"""The experiment files of DRFSM21 5.2 to 5.4 agree with the paper's text."""

from __future__ import annotations

import pytest

from experiments.design.expansion import expand
from experiments.design.networks import Networks
from experiments.tests.bundled import cells_of, spec_of

NAMES = ("feasibility", "vlan-rate", "loss-sweep", "ldm6-vs-ldm7")
FOUR = ("uva", "uwisc", "uutah", "uwash")
MBPS = 1_000_000


@pytest.mark.parametrize("name", NAMES)
def test_the_deployment(name: str) -> None:
    """5.1: 600 MB at the sender, 100 MB at the receivers, the hour. The quick level differs only in
    length and number of points, and takes at most 30 minutes of virtual time."""
    for level, duration_s in (("paper", 3600), ("quick", 30)):
        cells = cells_of(name, level)
        assert {c.topology for c in cells} == {"drfsm8"}
        assert {c.duration_s for c in cells} == {duration_s}
        assert {(c.b_mc_bytes, c.b_rcv_bytes) for c in cells} == {(600 * MBPS, 100 * MBPS)}
        assert {c.repeat for c in cells} == {0, 1, 2}
    assert sum(c.duration_s for c in cells_of(name, "quick")) <= 1800
    assert {c.cell for c in cells_of(name, "quick")} <= {c.cell for c in cells_of(name, "paper")}


def test_set_1_is_six_subscribers_at_40() -> None:
    (cell, *_) = cells_of("feasibility", "paper")
    assert (cell.protocol, cell.r_bps, cell.loss) == ("ldm7", 40 * MBPS, 0.0)
    assert cell.subscribers == ("uva", "uwisc", "umd", "uutah", "uwash", "ucsd")


@pytest.mark.parametrize(("level", "loss"), [("quick", 1e-4), ("paper", 1e-6)])
def test_set_1_loses_in_the_publishers_regional_network(level: str, loss: float) -> None:
    """5.2 assumes this for the three files of Table 5."""
    (cell, *_) = cells_of("feasibility", level)
    network = Networks().of(cell)
    forward = {k.name: k.forward.loss for k in network.links if k.forward.loss > 0}
    assert forward == {"sw-frgp:star": pytest.approx(loss)}
    assert all(k.backward.loss == 0 for k in network.links)


def test_fig_11_and_fig_12() -> None:
    cells = cells_of("vlan-rate", "paper")
    assert sorted({c.r_bps // MBPS for c in cells}) == [20, 30, 40, 50, 100, 500]
    assert {c.subscribers for c in cells} == {FOUR}
    cells = cells_of("loss-sweep", "paper")
    assert sorted({c.loss for c in cells}) == [0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2]
    assert {(c.r_bps, c.subscribers) for c in cells} == {(100 * MBPS, FOUR)}


def test_set_3_is_two_sweeps_that_share_a_point() -> None:
    cells = cells_of("ldm6-vs-ldm7", "paper")
    both = ("ldm7", "ldm6")
    fig13 = {(p, 4, r) for p in both for r in (50, 100, 200, 300, 400, 500)} | {("ldm7", 4, 40)}
    fig14 = {(p, m, 100) for p in both for m in range(1, 7)}
    assert {(c.protocol, c.m, c.r_bps // MBPS) for c in cells} == fig13 | fig14
    assert len(cells) == 3 * len(fig13 | fig14)
    assert {c.subscribers[:4] for c in cells if c.subscribers and c.m >= 4} == {FOUR}


def test_ldm6s_copies_share_the_vlan_rate() -> None:
    """5.4: the same VLAN rate limits as LDM7; 5.1: 600 MB, so that nothing is dropped."""
    for cell in cells_of("ldm6-vs-ldm7", "paper"):
        if cell.protocol == "ldm6":
            assert cell.shaped_bps == cell.r_bps
            assert cell.tbf_limit_bytes(64.2) == 600 * MBPS


def test_published_values() -> None:
    found = {
        (name, row.protocol, row.subscriber, row.value)
        for name in NAMES
        for row in spec_of(name, "paper").paper
    }
    assert {
        ("vlan-rate", "ldm7", "uva", 11.64), ("vlan-rate", "ldm7", "uwash", 10.75),
        ("vlan-rate", "ldm7", "uva", 58.92), ("vlan-rate", "ldm7", "uwash", 36.22),
        ("loss-sweep", "ldm7", "uva", 36.4), ("loss-sweep", "ldm7", "uva", 16.1),
        ("loss-sweep", "ldm7", "uva", 12.4), ("loss-sweep", "ldm7", "uva", 10.3),
        ("ldm6-vs-ldm7", "ldm7", "uva", 40.12), ("ldm6-vs-ldm7", "ldm6", "uva", 1.79),
    } <= found  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_quick_levels_reach_every_claim_and_published_value(name: str) -> None:
    """Each has at least one cell."""
    spec = spec_of(name, "quick")
    factors = [dict(c.factors) for c in expand(spec)]
    demands = [claim.where for claim in spec.claims] + [row.at for row in spec.paper]
    for where in demands:
        levels = {n: v for n, v in where.levels.items() if n != "subscriber"}
        rest = type(where).model_validate(levels)
        assert any(rest.holds(f) for f in factors), levels
