# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses

from experiments.plan import (
    CellSpec,
    cell_name,
    congestion_window_bytes,
    congestion_window_packets,
    disk_needed_bytes,
    expand,
    holds_the_replay,
    queues_written_bytes,
    receiver_queue_bytes,
    tbf_limit_bytes,
)
from experiments.spec import ExperimentSpec, Factors, find, load_as


def test_tbf_limit_is_the_papers() -> None:
    """mpup-ldm7.txt V-B: 60 Mbit/s, m = 24, largest RTT 90 ms: 32.4 MB."""
    assert tbf_limit_bytes(24, 60_000_000, 90) == 32_400_000


def test_congestion_window() -> None:
    """1.2 x 20 Mbit/s x 90 ms = 2.16 Mbit; 186 segments of 1448 bytes are 672 bytes short of it."""
    assert congestion_window_bytes(1.2, 20_000_000, 90) == 270_000
    assert congestion_window_packets(270_000) == 187
    assert congestion_window_packets(1448) == 1


def test_the_window_fits_into_ldm6s_queue() -> None:
    """Else a fixed window would overflow it for good: m x f_cwnd <= limit (V-B)."""
    for m in (4, 24):
        packets = congestion_window_packets(congestion_window_bytes(1.2, 20_000_000, 90))
        assert m * packets * 1514 <= tbf_limit_bytes(m, 20_000_000, 90)


def test_virtual_network_rate_satisfies_table_ii(cells: dict[str, CellSpec]) -> None:
    assert cells["ldm7"].r_vn_bps == 48_000_000  # 1.2 x (20 + 20) Mbit/s
    assert cells["ldm6"].r_vn_bps == 192_000_000  # 1.2 x 8 x 20 Mbit/s


def test_names() -> None:
    assert cell_name("ldm7", 8, 20_000_000, 0.01, 0, 1) == "ldm7-m8-r20-p1"
    assert cell_name("ldm6", 24, 500_000, 0.005, 1, 3) == "ldm6-m24-r0.5-p0.5-n2"


def test_expansion_is_the_product_of_the_levels_and_repeats() -> None:
    spec = load_as(ExperimentSpec, find("lossy"))
    factors = Factors(
        protocol=("ldm7", "ldm6"), receivers=(4, 8), rate_bps=(10, 20), loss=(0.0, 0.01)
    )
    cells = expand(spec.model_copy(update={"factors": factors, "repeats": 3}))
    assert len(cells) == 2 * 2 * 2 * 2 * 3
    assert len({c.cell for c in cells}) == len(cells)
    # Protocols are compared on the same input: neighbours with the same seed.
    for first, second in zip(cells[::2], cells[1::2], strict=True):
        assert (first.protocol, second.protocol) == ("ldm7", "ldm6")
        assert first.seed == second.seed
    assert {c.seed for c in cells} == {spec.base_seed, spec.base_seed + 1, spec.base_seed + 2}


def test_disk() -> None:
    cell = expand(load_as(ExperimentSpec, find("lossy")))[0]
    # 5 GB + 8 x (1.5 x 100 MB + 64 MB) + 256 MB
    assert disk_needed_bytes(cell, 100_000_000) == 5_000_000_000 + 8 * 214_000_000 + 256_000_000


def test_an_hour_in_bounded_queues() -> None:
    """5.55 GB at 8 receivers with 400 MB each: 5 GB + 8 x 400 MB, and what the kernel keeps of
    600 MB that wait in traffic control."""
    spec = load_as(ExperimentSpec, find("lossy"))
    sizes = {"q_rcv": 400_000_000, "b_snd": 600_000_000}
    parameters = spec.parameters.model_copy(update=sizes)
    cell = expand(spec.model_copy(update={"parameters": parameters}))[0]
    hour = 5_550_000_000
    assert receiver_queue_bytes(hour, cell.q_rcv_bytes) == 400_000_000
    assert receiver_queue_bytes(1_000_000, cell.q_rcv_bytes) == 65_500_000  # it all fits
    assert disk_needed_bytes(cell, hour) == 5_000_000_000 + 8 * 400_000_000 + 256_000_000
    assert queues_written_bytes(cell, hour) == 5_000_000_000 + 8 * 400_000_000 + 1_200_000_000


def test_does_a_queue_hold_the_replay() -> None:
    assert holds_the_replay(receiver_queue_bytes(100_000_000), 100_000_000)
    assert not holds_the_replay(149_999_999, 100_000_000)


def test_the_digest_sees_every_parameter_and_the_trace(cells: dict[str, CellSpec]) -> None:
    cell = cells["ldm7"]
    digest = cell.digest("1 x\n")
    assert cell.digest("2 x\n") != digest
    for field in dataclasses.fields(cell):
        value = getattr(cell, field.name)
        other = (*value, "x") if isinstance(value, tuple) else value * 2
        changed = CellSpec.from_dict({**cell.to_dict(), field.name: other or 1})
        assert changed.digest("1 x\n") != digest
    assert CellSpec.from_dict(cell.to_dict()) == cell
