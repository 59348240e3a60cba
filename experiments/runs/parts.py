# SPDX-License-Identifier: Apache-2.0
"""A cell in several guests (`--parts`): who runs where, and the guests' specifications."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from common.places import BUILD
from experiments.cells.run_directory import write_text
from topologies.model.parts import Parts
from topologies.remote import part_plan
from topologies.remote.part_plan import PartPlan
from virtual.guest import EXCHANGE, GuestError, GuestSpec, guest_path, guest_python
from virtual.kernel_build import Kernel
from virtual.parts.calendar import window_of
from virtual.parts.links import LinkFile
from virtual.parts.machines import Work, hire, sameness
from virtual.parts.together import Together

FILE: Final = "parts.json"
SEEDS: Final = 1 << 32  # between the seeds of two parts of a cell


def plan_of(parts: Parts, build: Path) -> PartPlan:
    """Return what the guests know of a plan with several parts. `build`: as guests see it."""
    delays_ns = [part_plan.ns(delay_ms) for delay_ms in parts.delays_ms]
    return PartPlan(window_of(delays_ns), min(delays_ns), parts.others, build)


def start(
    kernel: Kernel,
    spec: GuestSpec,
    plan: PartPlan,
    prepare: Callable[[Path], None],
    machines: Sequence[str] = (),
) -> Together:
    """Start part 0, of `spec`, and the others, at `machines` if there are any. `prepare`: puts the
    cell's files into a guest's exchange directory. Raises GuestError."""

    def put(exchange: Path) -> None:
        prepare(exchange)
        write_text(exchange / FILE, plan.to_json())

    def other(part: int) -> GuestSpec:
        argv = (guest_python(), "-m", "experiments", "part", str(EXCHANGE / FILE), str(part))
        seed = spec.seed + part * SEEDS
        return dataclasses.replace(spec, argv=argv, shares=(), seed=seed)

    others = {part: other(part) for part in range(1, len(plan.others) + 1)}
    links = [LinkFile(*file) for file in part_plan.files_of(1 + len(others))]
    if not machines:
        return Together(kernel, {0: spec, **others}, links, plan.window_ns, prepare=put)
    if plan.build != guest_path(BUILD):
        raise GuestError(f"found programs in {plan.build}; valid with --machine: {BUILD}")
    same, files = sameness(kernel), {FILE: plan.to_json()}

    def work(share: Mapping[int, GuestSpec]) -> Work:
        return Work(same, plan.window_ns, links, share, files)

    far = hire(machines, work, others)
    return Together(kernel, {0: spec}, links, plan.window_ns, prepare=put, far=far)


def poll(guests: Together) -> int | None:
    """Return part 0's exit code once all parts have ended, or it has failed. Raises GuestError."""
    codes = guests.poll()
    if failed := guests.codes.get(0):
        return failed
    for part, code in guests.codes.items():
        if part > 0 and code != 0:
            said = guests.output(part)[1].strip()[-500:] or "it said nothing"
            raise GuestError(f"part {part} ended with {code}: {said}")
    return None if codes is None else codes[0]
