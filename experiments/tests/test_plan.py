# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from experiments.design import burst_loss
from experiments.design.carousel import Carousel
from experiments.design.expansion import (
    CellSpec,
    cell_name,
    congestion_window_bytes,
    congestion_window_packets,
    disk_needed_bytes,
    expand,
    holds_the_replay,
    queue_bytes,
    queues_written_bytes,
    tbf_limit_bytes,
)
from experiments.design.parameters import Factors
from experiments.design.spec import (
    ExperimentSpec,
    UsageError,
    find,
    load_as,
)
from experiments.runs.preparation import plan
from parsers.base.factors import Scalar


def test_tbf_limit_is_the_papers() -> None:
    """MPUP16 V-B: 60 Mbit/s, m = 24, largest RTT 90 ms: 32.4 MB."""
    assert tbf_limit_bytes(24 * 60_000_000, 90, 24) == 32_400_000


def test_congestion_window() -> None:
    """1.2 x 20 Mbit/s x 90 ms = 2.16 Mbit; 186 segments of 1448 bytes are 672 bytes short of it."""
    assert congestion_window_bytes(1.2, 20_000_000, 90) == 270_000
    assert congestion_window_packets(270_000) == 187
    assert congestion_window_packets(1448) == 1


def test_the_window_fits_into_ldm6s_queue() -> None:
    """Otherwise a fixed window would overflow it permanently: m x f_cwnd <= limit (V-B)."""
    for m in (4, 24):
        packets = congestion_window_packets(congestion_window_bytes(1.2, 20_000_000, 90))
        assert m * packets * 1514 <= tbf_limit_bytes(m * 20_000_000, 90, m)


def test_a_short_round_trip_leaves_room_for_tcps_first_window() -> None:
    """1.2 x 20 Mbit/s x 0.1 ms are 300 bytes, and 2 x 80 Mbit/s x 0.1 ms are 2 kB: less than one
    segment and one burst. RFC 6928: 10 segments; of 1514 bytes for 4 receivers, twice: 121,120."""
    assert congestion_window_packets(congestion_window_bytes(1.2, 20_000_000, 0.1)) == 10
    assert tbf_limit_bytes(80_000_000, 0.1, 4) == 121_120


def test_virtual_network_rate_satisfies_table_ii(cells: dict[str, CellSpec]) -> None:
    assert cells["ldm7"].r_vn_bps == 48_000_000  # 1.2 x (20 + 20) Mbit/s
    assert cells["ldm6"].r_vn_bps == 192_000_000  # 1.2 x 8 x 20 Mbit/s


def test_names() -> None:
    base: dict[str, Scalar] = {"protocol": "ldm7", "receivers": 8}
    base |= {"rate_bps": 20_000_000, "loss": 0.01}
    assert cell_name(base, 0, 1) == "ldm7-m8-r20-p1"
    other: dict[str, Scalar] = {
        "protocol": "ldm6",
        "receivers": 24,
        "rate_bps": 500_000,
        "loss": 0.005,
    }
    assert cell_name(other, 1, 3) == "ldm6-m24-r0.5-p0.5-n2"
    more: dict[str, Scalar] = {"background_flows": 2, "rtt_ms": 0.1, "f_snd": 500.0, "f_rcv": 2.0}
    varied = {**base, **more, "loss_burst_packets": 4.0}
    assert cell_name({**base, "b_snd": 600_000_000}, 0, 1) == "ldm7-m8-r20-p1-bsnd600M"
    assert cell_name(varied, 1, 2) == "ldm7-m8-r20-p1-fsnd500-frcv2-rtt0.1-burst4-bg2-n2"


def factors(**changes: Any) -> Factors:
    base = {"protocol": ["ldm7", "ldm6"], "receivers": [8], "rate_bps": ["20Mbps"], "loss": ["1%"]}
    return Factors.model_validate({**base, **changes})


def lossy(**changes: Any) -> ExperimentSpec:
    return load_as(ExperimentSpec, find("lossy")).model_copy(update=changes)


def test_expansion_is_the_product_of_the_levels_and_repeats() -> None:
    block = factors(receivers=[4, 8], rate_bps=[10_000, 20_000], loss=[0, 0.01])
    spec = lossy(factors=(block,), repeats=3)
    cells = expand(spec, "quick")
    assert len(cells) == 2 * 2 * 2 * 2 * 3
    assert len({c.cell for c in cells}) == len(cells)
    # Protocols are compared on the same input: neighbours have the same seed.
    for first, second in zip(cells[::2], cells[1::2], strict=True):
        assert (first.protocol, second.protocol) == ("ldm7", "ldm6")
        assert first.seed == second.seed
    assert {(c.repeat, c.seed) for c in cells} == {(n, spec.base_seed + n) for n in range(3)}
    assert {c.level for c in cells} == {"quick"}


def test_repair_is_a_factor_of_ldm7_alone() -> None:
    """Others' cells are neither named after LDM7's repair nor doubled for it."""
    block = factors(protocol=["ldm7", "norm"], repair=["unicast", "multicast"])
    other = factors(protocol=["tcp"], tcp=["bbr"])
    cells = expand(lossy(factors=(block, other), repeats=1))
    assert [c.cell for c in cells] == [
        "ldm7-m8-r20-p1-unicast",
        "norm-m8-r20-p1",
        "ldm7-m8-r20-p1-multicast",
        "tcp-m8-r20-p1-bbr",
    ]
    assert [c.factors.get("repair") for c in cells] == ["unicast", None, "multicast", None]


@pytest.mark.slow
def test_windows_are_the_same_in_all_cells_and_losses_are_not() -> None:
    """Repeat 1 replays what it did before there were windows: the beginning of its seed's hour."""
    planned = plan(lossy(windows=True, repeats=3, duration_s=20.0))
    by_repeat = {p.cell.repeat: p for p in planned}
    assert all(p.trace == by_repeat[p.cell.repeat].trace for p in planned)
    assert [by_repeat[k].cell.seed for k in range(3)] == [2053, 2054, 2055]
    sources = [by_repeat[k].trace.source for k in range(3)]
    first = "NGRID model, seed 2053"
    assert sources == [first, f"{first}, from 1800 s", f"{first}, from 900 s"]
    alone = plan(lossy(repeats=1, duration_s=20.0))[0]
    assert by_repeat[0].trace.sha256 == alone.trace.sha256
    other = plan(lossy(windows=True, trace_seed=7, repeats=1, duration_s=20.0))
    assert other[0].trace.source == "NGRID model, seed 7"


def test_a_factor_takes_the_place_of_its_parameter() -> None:
    spec = lossy(factors=(factors(protocol=["ldm7"], f_snd=[10, 500], f_rcv=[2]),))
    cells = expand(spec)
    assert [(c.f_snd, c.f_rcv) for c in cells] == [(10, 2), (500, 2)]
    assert [c.cell for c in cells] == [
        "ldm7-m8-r20-p1-fsnd10-frcv2",
        "ldm7-m8-r20-p1-fsnd500-frcv2",
    ]
    assert cells[1].factors == {
        **{"protocol": "ldm7", "receivers": 8, "rate_bps": 20_000_000, "loss": 0.01},
        **{"f_snd": 500, "f_rcv": 2},
    }
    assert json.loads(json.dumps(cells[1].to_dict()))["factors"] == cells[1].factors


def test_blocks_of_factors_are_put_together() -> None:
    """A cell of two blocks exists once. What only one block varies has its parameter's level in the
    others, so that all points have the same factors."""
    rates = factors(rate_bps=["50Mbps", "100Mbps"], receivers=[4], loss=[0])
    receivers = factors(rate_bps=["100Mbps"], receivers=[1, 4], loss=[0], f_snd=[5000, 50])
    cells = expand(lossy(factors=(rates, receivers)))
    assert [c.cell for c in cells if c.protocol == "ldm7"] == [
        "ldm7-m4-r50-p0-fsnd5000",
        "ldm7-m4-r100-p0-fsnd5000",
        "ldm7-m1-r100-p0-fsnd5000",
        "ldm7-m1-r100-p0-fsnd50",
        "ldm7-m4-r100-p0-fsnd50",
    ]
    assert {tuple(c.factors) for c in cells} == {
        ("protocol", "receivers", "rate_bps", "loss", "f_snd")
    }


def test_ldm6_may_have_one_rate_for_all() -> None:
    """DRFSM21 5.4: the VLAN's rate; the queue is the path's 600 MB (5.1)."""
    fixed = lossy().parameters.model_copy(update={"ldm6_rate": "shared"})
    ldm7, ldm6 = expand(lossy(parameters=fixed))
    assert (ldm6.ldm6_bps, ldm6.shaped_bps, ldm6.r_vn_bps) == (20_000_000, 20_000_000, 24_000_000)
    assert ldm6.tbf_limit_bytes(90) == 600_000_000
    assert ldm7.shaped_bps == 20_000_000
    per_receiver = expand(lossy())[1]
    assert per_receiver.shaped_bps == 160_000_000
    assert per_receiver.tbf_limit_bytes(90) == 3_600_000  # 2 x 160 Mbit/s x 90 ms


@pytest.mark.slow
def test_who_subscribes() -> None:
    names = ("uva", "umd", "ucsd")
    fixed = lossy().parameters.model_copy(update={"subscribers": names})
    cell = expand(lossy(parameters=fixed, factors=(factors(receivers=[2]),)))[0]
    assert cell.subscribing(["ucsd", "umd", "uva"]) == ["uva", "umd"]
    cell = expand(lossy(factors=(factors(receivers=[2]),)))[0]
    assert cell.subscribing(iter(names)) == ["uva", "umd"]


def test_bursts_that_cannot_be_are_refused() -> None:
    """0.1 % of 65,536 packets in bursts of 50 would be one burst."""
    burst_loss.check(expand(lossy(factors=(factors(loss_burst_packets=[1, 50]),))))
    cells = expand(lossy(factors=(factors(loss=["0.1%"], loss_burst_packets=[50]),)))
    with pytest.raises(UsageError, match="loss_burst_packets: .*1 bursts.*valid: 4 to 4000"):
        burst_loss.check(cells)
    without = expand(lossy(factors=(factors(loss=[0], loss_burst_packets=[50]),)))
    burst_loss.check(without)


def test_disk() -> None:
    cell = expand(load_as(ExperimentSpec, find("lossy")))[0]
    # 9 x (1.5 x 100 MB + 64 MB) + 256 MB: the sender's 5 GB would hold more than the replay.
    assert disk_needed_bytes(cell, 100_000_000) == 9 * 214_000_000 + 256_000_000


def test_an_hour_in_bounded_queues() -> None:
    """5.55 GB at 8 receivers with 400 MB each: 5 GB + 8 x 400 MB, plus what the kernel keeps of the
    600 MB that wait in traffic control."""
    spec = load_as(ExperimentSpec, find("lossy"))
    sizes = {"q_rcv": 400_000_000, "b_snd": 600_000_000}
    parameters = spec.parameters.model_copy(update=sizes)
    cell = expand(spec.model_copy(update={"parameters": parameters}))[0]
    hour = 5_550_000_000
    assert queue_bytes(hour, cell.q_rcv_bytes) == 400_000_000
    assert queue_bytes(1_000_000, cell.q_rcv_bytes) == 65_500_000  # it all fits
    assert disk_needed_bytes(cell, hour) == 5_000_000_000 + 8 * 400_000_000 + 256_000_000
    assert queues_written_bytes(cell, hour) == 5_000_000_000 + 8 * 400_000_000 + 1_200_000_000


def test_does_a_queue_hold_the_replay() -> None:
    assert holds_the_replay(queue_bytes(100_000_000, 0), 100_000_000)
    assert not holds_the_replay(149_999_999, 100_000_000)


def test_the_digest_sees_every_parameter_and_the_trace(cells: dict[str, CellSpec]) -> None:
    cell = cells["ldm7"]
    digest = cell.digest("1 x\n")
    assert cell.digest("2 x\n") != digest
    for field in dataclasses.fields(cell):
        value = getattr(cell, field.name)
        other: Any
        if isinstance(value, tuple):
            other = (*value, "x")
        elif isinstance(value, dict):
            other = {**value, "x": 1}
        elif isinstance(value, Carousel):
            other = dataclasses.replace(value, k=value.k + 1)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            first = dataclasses.fields(value)[0].name
            other = dataclasses.replace(value, **{first: "another"})
        else:
            other = ("x",) if value is None else value * 2 or 1
        changed = CellSpec(**{**vars(cell), field.name: other})
        assert changed.digest("1 x\n") != digest
    assert CellSpec.from_dict(cell.to_dict()) == cell


@pytest.mark.parametrize(
    ("name", "factor", "shown"),
    [
        ("r_mc", 1e-12, "1e-12 x 20000000 bit/s = 0 bit/s"),
        ("r_uc", 1e-5, "1e-05 x 20000000 bit/s = 200 bit/s"),
        ("r_mc", 1e6, "1e+06 x 20000000 bit/s = 20000000000000 bit/s"),
    ],
)
def test_rates_that_traffic_control_cannot_have_are_refused(
    name: str, factor: float, shown: str
) -> None:
    spec = load_as(ExperimentSpec, find("lossy"))
    changed = spec.model_copy(
        update={"parameters": spec.parameters.model_copy(update={name: factor})}
    )
    with pytest.raises(UsageError) as caught:
        expand(changed)
    assert str(caught.value) == f"{name}: found {shown}; valid: 1000 bit/s to 1e12 bit/s"
