# SPDX-License-Identifier: Apache-2.0
"""A cell in several guests (`--parts`): who runs where, and the guests' specifications."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Final

from experiments.cells.run_directory import write_text
from topologies.model.parts import Parts
from topologies.remote import part_plan
from topologies.remote.part_plan import PartPlan
from virtual.guest import EXCHANGE, GuestError, GuestSpec, guest_python
from virtual.kernel_build import Kernel
from virtual.parts.calendar import window_of
from virtual.parts.together import Together

FILE: Final = "parts.json"
SEEDS: Final = 1 << 32  # between the seeds of two parts of a cell


def plan_of(parts: Parts, build: Path) -> PartPlan:
    """Return what the guests know of a plan with several parts. `build`: as guests see it."""
    delays_ns = [part_plan.ns(delay_ms) for delay_ms in parts.delays_ms]
    return PartPlan(window_of(delays_ns), min(delays_ns), parts.others, build)


def start(
    kernel: Kernel, spec: GuestSpec, plan: PartPlan, prepare: Callable[[Path], None]
) -> Together:
    """Start part 0, of `spec`, and the others. `prepare`: puts the cell's files into a guest's
    exchange directory. Raises GuestError."""

    def put(exchange: Path) -> None:
        prepare(exchange)
        write_text(exchange / FILE, plan.to_json())

    def other(part: int) -> GuestSpec:
        argv = (guest_python(), "-m", "experiments", "part", str(EXCHANGE / FILE), str(part))
        seed = spec.seed + part * SEEDS
        return dataclasses.replace(spec, argv=argv, shares=(), seed=seed)

    specs = [spec, *(other(part) for part in range(1, len(plan.others) + 1))]
    return Together(kernel, specs, part_plan.files_of(len(specs)), plan.window_ns, prepare=put)


def poll(guests: Together) -> int | None:
    """Return part 0's exit code once all parts have ended, or it has failed. Raises GuestError."""
    codes = guests.poll()
    if failed := guests.codes.get(0):
        return failed
    for part, code in guests.codes.items():
        if part > 0 and code != 0:
            said = (guests.guests[part].exchange / "stderr").read_text(errors="replace").strip()
            raise GuestError(f"part {part} ended with {code}: {said[-500:] or 'it said nothing'}")
    return None if codes is None else codes[0]
