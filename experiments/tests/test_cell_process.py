# SPDX-License-Identifier: Apache-2.0
"""How a cell's process is started under either clock: the decisions before the start."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from common.places import ROOT
from experiments.cells.queue_place import MEMORY_RESERVE_BYTES
from experiments.design.expansion import (
    CellSpec,
    disk_needed_bytes,
    expand,
    virtual_seconds_estimated,
    virtual_seconds_limit,
)
from experiments.design.layers import transfer_s
from experiments.design.spec import ExperimentSpec, at_level, find, load_as
from experiments.runs.cell_process import (
    DISK_GUEST_BYTES,
    CellProblem,
    NativeClock,
    VirtualClock,
    guest_memory_bytes,
    host_memory_bytes,
    parse_events,
)
from protocols import registry
from virtual.guest import guest_path
from virtual.kernel_build import Kernel

KERNEL = Kernel(Path("/k/linux"), "7.2.11", "0123abcd", True)
MINUTE = 66_000_000  # bytes of a minute's trace
HOUR = 5_550_000_000  # of the papers' hour


def test_events_are_objects_with_a_kind_and_nothing_else() -> None:
    lines = ['{"event": "phase", "text": "x"}', "half a li", "[1]", '{"text": "no kind"}', ""]
    assert parse_events(lines) == [{"event": "phase", "text": "x"}]


def test_paths_of_the_checkout_are_the_same_for_everybody() -> None:
    assert guest_path(ROOT / "build") == Path("/guest/checkout/build")
    assert guest_path(Path("/usr/bin")) == Path("/usr/bin").resolve()


def test_a_guests_memory_holds_the_queues_that_the_cell_asks_for(
    cells: dict[str, CellSpec],
) -> None:
    cell = cells["ldm7"]
    size = guest_memory_bytes(cell, MINUTE)
    # Nine queues of 1.5 traces of 66 MB, and what queue_place leaves free.
    assert size > 9 * 1.5 * MINUTE + MEMORY_RESERVE_BYTES
    # A hundred such minutes, 24 receivers: the guest's kernel keeps a 64th of the guest's 250 GB
    # for itself.
    many = dataclasses.replace(cell, m=24, b_snd_bytes=100_000)
    asked = disk_needed_bytes(many, 100 * MINUTE)
    assert asked > 5_000_000_000 + 24 * 1.5 * 100 * MINUTE
    usable = guest_memory_bytes(many, 100 * MINUTE) * 63 // 64
    assert usable >= asked + MEMORY_RESERVE_BYTES + 500_000_000
    # Only what is written to them takes memory here.
    assert host_memory_bytes(cell, MINUTE) == 9 * MINUTE + 800_000_000


@pytest.mark.parametrize(
    ("free_gb", "asked", "jobs"), [(20, 2, 2), (20, 8, 2), (2, 2, 1), (3, 2, 2), (1.5, 4, 1)]
)
def test_no_more_guests_than_cells_and_memory(
    cells: dict[str, CellSpec], free_gb: float, asked: int, jobs: int
) -> None:
    clock = VirtualClock(KERNEL, jobs=asked)
    clock.fit([(cell, MINUTE) for cell in cells.values()], free=int(free_gb * 1e9))
    assert clock.jobs == jobs
    assert not clock.on_disk(cells["ldm7"], MINUTE)


def test_what_memory_does_not_hold_goes_to_disk(cells: dict[str, CellSpec]) -> None:
    clock = VirtualClock(KERNEL, jobs=2)
    clock.fit([(cells["ldm7"], HOUR)], free=20_000_000_000)  # 9 hours' traces are 50 GB
    assert clock.on_disk(cells["ldm7"], HOUR)
    assert not clock.on_disk(cells["ldm7"], MINUTE)
    assert guest_memory_bytes(cells["ldm7"], HOUR) > DISK_GUEST_BYTES
    with pytest.raises(CellProblem, match=r"found 1\.0 GB of free memory; valid: 3\.0 GB"):
        clock.fit([(cells["ldm7"], HOUR)], free=1_000_000_000)


def test_cells_of_this_machines_clock_run_alone() -> None:
    clock = NativeClock()
    assert (clock.name, clock.jobs) == ("native", 1)
    assert clock.describe() == {"clock": "native"}


def test_the_estimate_grows_with_packets_and_the_limit_is_far_above(
    cells: dict[str, CellSpec],
) -> None:
    small = virtual_seconds_estimated(cells["ldm7"], MINUTE)
    large = virtual_seconds_estimated(dataclasses.replace(cells["ldm7"], m=24), MINUTE)
    assert 10 < small < large
    assert virtual_seconds_limit(cells["ldm7"], MINUTE) > 10 * small


def test_a_file_through_a_slow_line_takes_as_long_as_the_line_needs() -> None:
    """103.8 MB at half of 1 Mbit/s: 1,660.8 s, in which the session sends 2 Mbit/s to the edge:
    286,740 packets of 1,448 bytes. The samplers take 0.06 s of each second, 100 s in all."""
    whole = at_level(load_as(ExperimentSpec, find("m2c-stream")), "paper")
    name = "m2c-m1-r2-p0-bg1-file103.8M-line1-rival0-n1"
    (cell,) = (cell for cell in expand(whole, "paper") if cell.cell == name)
    assert transfer_s(103_800_000, (2_000_000, 1_000_000, 0), 1) == 1660.8
    found = virtual_seconds_estimated(cell, 103_800_000)
    packets = 286_740 * registry.get("m2c").packet_s
    assert found == pytest.approx(6 + 2 * 0.6 + 0.06 * (cell.duration_s + 1660.8) + packets)


def test_copies_of_a_file_share_the_line() -> None:
    """Five times 49.3 MB by TCP at 1 Mbit/s: 1,972 s, and 170,235 packets of 1,448 bytes."""
    whole = at_level(load_as(ExperimentSpec, find("m2c-receivers")), "paper")
    name = "tcp-m5-r20-p0-file49.3M-line1-n1"
    (cell,) = (cell for cell in expand(whole, "paper") if cell.cell == name)
    found = virtual_seconds_estimated(cell, 49_300_000)
    packets = 170_235 * registry.get("tcp").packet_s
    assert found == pytest.approx(6 + 6 * 0.6 + 0.06 * (cell.duration_s + 1972) + packets)
