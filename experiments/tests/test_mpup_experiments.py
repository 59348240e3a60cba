# SPDX-License-Identifier: Apache-2.0
"""The experiment files of MPUP16 V-C to V-F agree with the paper's text."""

from __future__ import annotations

import pytest

from experiments.design.expansion import expand
from experiments.tests.bundled import cells_of, spec_of

NAMES = ("fileset", "ffdr", "throughput", "resources")
MBPS = 1_000_000


@pytest.mark.parametrize("name", NAMES)
def test_table_ii(name: str) -> None:
    """The paper level is the hour; receivers' queues are bounded, as 24 x 5.55 GB fit nowhere."""
    for cell in cells_of(name, "paper"):
        assert cell.duration_s == 3600
        assert (cell.b_mc_bytes, cell.b_uc_bytes, cell.b_rcv_bytes) == (600 * MBPS,) * 3
        assert (cell.q_snd_bytes, cell.n_snd) == (5_000 * MBPS, 35_000)
        assert (cell.r_mc_bps, cell.r_uc_bps) == (cell.r_bps, cell.r_bps)
        assert cell.f_rcv == 20
        assert 0 < cell.q_rcv_bytes < 1_000 * MBPS
        assert name == "ffdr" or (cell.f_snd, cell.b_snd_bytes) == (5000, 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_quick_level_takes_minutes(name: str) -> None:
    """At most 30 minutes of virtual time."""
    cells = cells_of(name, "quick")
    assert sum(cell.duration_s for cell in cells) <= 1800
    assert all(cell.q_rcv_bytes == 0 for cell in cells)


def test_fileset_is_one_receiver_at_starlight() -> None:
    spec = spec_of("fileset", "paper")
    assert spec.parameters.subscribers == ("sl1",)
    assert {(c.protocol, c.m, c.r_bps, c.loss) for c in expand(spec)} == {
        ("ldm7", 1, 100 * MBPS, 0.0)
    }


def test_ffdr_has_the_papers_points_where_products_wait_behind_fmtp() -> None:
    for level in ("quick", "paper"):
        found = {(c.m, c.loss, c.b_snd_bytes, c.f_snd) for c in cells_of("ffdr", level)}
        assert {(m, 0.01, 600 * MBPS, 5000.0) for m in (8, 16)} <= found
        assert (8, 0.0, 100_000, 5000.0) in found
        assert {(8, 0.0), (8, 0.01), (16, 0.01)} <= {
            (m, p) for m, p, b_snd, f_snd in found if (b_snd, f_snd) == (600 * MBPS, 300.0)
        }


def test_throughput_is_48_runs() -> None:
    """V-E: 8 configurations with six base rates each."""
    cells = cells_of("throughput", "paper")
    assert len(cells) == 48
    assert {c.r_bps for c in cells} == {r * MBPS for r in (10, 20, 30, 40, 50, 60)}
    assert {(c.protocol, c.m, c.loss) for c in cells} == {
        (p, m, x) for p in ("ldm7", "ldm6") for m in (8, 16) for x in (0.0, 0.01)
    }


def test_resources_is_4_to_24_receivers_in_steps_of_4() -> None:
    cells = cells_of("resources", "paper")
    assert {c.m for c in cells} == {4, 8, 12, 16, 20, 24}
    assert len(cells) == 6 * 2 * 2
    assert {4, 8, 24} <= {c.m for c in cells_of("resources", "quick")}


def test_published_values() -> None:
    values = {
        (name, row.metric, row.protocol, row.value)
        for name in NAMES
        for row in spec_of(name, "paper").paper
        if not row.derived
    }
    assert {
        ("fileset", "throughput_iqr", "ldm7", 3.02),
        ("fileset", "throughput_iqr", "ldm7", 1.73),
        ("fileset", "file_sets", "ldm7", 17631),
        ("fileset", "file_sets", "ldm7", 150),
        ("ffdr", "ffdr", "ldm7", 88.7),
        ("ffdr", "ffdr", "ldm7", 75.9),
        ("throughput", "throughput_sets", "ldm7", 75),
        ("resources", "nic_bandwidth", "ldm7", 12.4),
        ("resources", "nic_bandwidth", "ldm7", 21.4),
        ("resources", "nic_bandwidth", "ldm6", 350),
    } <= values
