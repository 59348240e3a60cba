# SPDX-License-Identifier: Apache-2.0
"""Turn an experiment into cells with everything they need, checked before anything starts."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common import places
from common.places import BUILD
from experiments.cells import disk_throttle, queue_place
from experiments.design import burst_loss, trace_input
from experiments.design import join_leave_expansion as join_leave
from experiments.design.expansion import (
    CellSpec,
    disk_needed_bytes,
    expand,
    queue_bytes,
    traces_by_label,
)
from experiments.design.networks import Networks, with_rtt
from experiments.design.selection import select
from experiments.design.spec import (
    GENERATED,
    AnySpec,
    ExperimentSpec,
    JoinLeaveSpec,
    UsageError,
)
from experiments.design.trace_input import Hours, ReplayTrace
from protocols import registry
from protocols.adapter import lacking
from topologies.model.handoff_loss import with_handoff_loss
from topologies.model.load import find as find_topology
from topologies.model.load import load as load_topology
from topologies.model.network import Network
from topologies.model.paths import handoff_of
from topologies.model.shared_nic import with_shared_nics

NEEDED: Final = ("ldmd", "pqcreate", "pqinsert", "pqcat", "wire-relay", "hostlag", "clockoffset.so")
PROGRAMS: Final = tuple(places.PROGRAMS[name] for name in NEEDED)  # below the build directory


class RunError(Exception):
    """The run cannot start or continue; the text is one clear message."""


class DoesNotFit(RunError, UsageError):
    """What the command line or the file asks for does not fit on this machine."""


@dataclass(frozen=True)
class Planned:
    """A cell with everything it needs, checked. `borrowed`: the trace is another seed's, which is
    close enough for a plan that is only shown."""

    cell: CellSpec
    network: Network
    trace: ReplayTrace
    borrowed: bool = False

    def digest(self, clock: str) -> str:
        """Return the digest of everything that determines what the cell does, clock included."""
        return self.cell.digest(self.trace.sha256 + self.network.to_json() + clock)

    @property
    def disk_bytes(self) -> int:
        """Return the disk space that the cell needs."""
        return disk_needed_bytes(self.cell, self.trace.size_bytes)


def plan(
    spec: AnySpec,
    level: str | None = None,
    only: Sequence[str] = (),
    most_traces: int | None = None,
) -> tuple[Planned, ...]:
    """Expand the experiment at `level`, with its traces and networks, in the order of the file.
    `only`: expressions that cells must match. `most_traces`: how many traces to prepare; cells of
    further seeds borrow one of them. Raises SpecErrors, TopologyErrors or UsageError."""
    if isinstance(spec, JoinLeaveSpec):
        return _plan_join_leave(spec, level, only, most_traces)
    cells = select(expand(spec, level), only)
    burst_loss.check(cells)
    traces = Traces(spec, most_traces)
    networks = Networks()
    planned = []
    for cell in cells:
        check_cut(cell, networks.of(cell))
        planned.append(Planned(cell, networks.of(cell), *traces.of(cell)))
    return tuple(planned)


def cells_of(spec: AnySpec, level: str | None = None) -> Sequence[CellSpec]:
    """Return the cells of the experiment at `level`, in the order of the file, without their traces
    and networks. Raises SpecErrors, TopologyErrors or UsageError."""
    if not isinstance(spec, JoinLeaveSpec):
        return expand(spec, level)
    network = load_topology(find_topology(spec.topology), {"lanes": len(spec.feeds)})
    return join_leave.expand(spec, [host.name for host in network.subscribers], level)


class Traces:
    """Generates or reads each trace of an experiment once."""

    def __init__(self, spec: ExperimentSpec, most: int | None) -> None:
        self._spec, self._most = spec, most
        self._given = traces_by_label(spec)
        self._hours: dict[tuple[str, int], Hours] = {}
        self._made: dict[tuple[str, int, int], ReplayTrace] = {}
        self._seeds: dict[str, list[int]] = {name: [] for name in self._given}

    def of(self, cell: CellSpec) -> tuple[ReplayTrace, bool]:
        """Return the cell's trace, and whether it is another seed's (`Planned.borrowed`). Raises
        SpecErrors or UsageError."""
        if size := cell.carousel.file_bytes:
            return trace_input.of_file(size), False
        seed, borrowed = self._seed(cell)
        part = cell.repeat if self._spec.windows else 0
        if self._most is not None and part >= self._most:
            part, borrowed = part % self._most, True
        key = (cell.trace, seed, part)
        if key not in self._made:
            self._made[key] = self._make(cell, seed, part)
        return self._made[key], borrowed

    def _seed(self, cell: CellSpec) -> tuple[int, bool]:
        """Return the seed of a cell's trace (0 for a file), and whether another seed's trace is
        used instead."""
        spec = self._spec
        if self._given[cell.trace] not in GENERATED:  # a file is the same for all seeds
            return 0, False
        if spec.trace_seed is not None:
            return spec.trace_seed, False
        if spec.windows:
            return spec.base_seed, False
        made = self._seeds[cell.trace]
        seed = _seed_of_trace(made, cell.seed, self._most)
        if seed not in made:
            made.append(seed)
        return seed, seed != cell.seed

    def _make(self, cell: CellSpec, seed: int, part: int) -> ReplayTrace:
        given, duration_s = self._given[cell.trace], self._spec.duration_s
        if (cell.trace, seed) not in self._hours:
            hours = trace_input.read(given, duration_s, seed)
            if cell.trace:
                file = f"trace-{cell.trace}{f'-{seed}' if given in GENERATED else ''}.txt"
                hours = dataclasses.replace(hours, file=file)
            self._hours[cell.trace, seed] = hours
        return trace_input.window(self._hours[cell.trace, seed], duration_s, part)


def check_cut(cell: CellSpec, network: Network) -> None:
    """Check that a link to cut exists. Raises UsageError."""
    if cell.cut != "none" and handoff_of(network) is None:
        raise UsageError(
            f"cut: found '{cell.cut}' with topology {network.name}, whose paths stay in one "
            "controller domain; valid: none, or a topology such as twocores"
        )


def _seed_of_trace(made: Collection[int], seed: int, most: int | None) -> int:
    """Return the seed of a trace that is, or may be, generated."""
    if most is None or seed in made or len(made) < most:
        return seed
    return list(made)[seed % len(made)]


def _plan_join_leave(
    spec: JoinLeaveSpec, level: str | None, only: Sequence[str], most_traces: int | None
) -> tuple[Planned, ...]:
    network = load_topology(find_topology(spec.topology), {"lanes": len(spec.feeds)})
    subscribers = [host.name for host in network.subscribers]
    if spec.lanes == "vlan":
        network = with_shared_nics(network)
    network = with_rtt(network, spec.parameters.rtt_ms)
    cells = select(join_leave.expand(spec, subscribers, level), only)
    network = with_handoff_loss(network, spec.parameters.handoff_loss)
    if most_traces is not None:
        most_traces = max(1, most_traces // len(spec.feeds))  # a cell has one trace for each feed
    traces: dict[int, ReplayTrace] = {}
    planned = []
    for cell in cells:
        seed = _seed_of_trace(traces, cell.seed, most_traces)
        if seed not in traces:
            traces[seed] = join_leave.prepare(spec, cell)
        planned.append(Planned(cell, network, traces[seed], seed != cell.seed))
    return tuple(planned)


def check_machine(
    planned: Sequence[Planned], runs: Path, build: Path = BUILD, clock: str = "native"
) -> None:
    """Check for root (not needed in virtual time), programs and disk. Raises RunError."""
    if clock == "native" and os.geteuid() != 0:
        raise RunError(
            f"found user id {os.geteuid()}; valid: root (needed to make network namespaces: "
            "sudo make experiment-NAME), or virtual time, which needs no root (CLOCK=virtual)"
        )
    if (missing := places.absent_programs(NEEDED, build)) is not None:
        raise RunError(missing)
    for protocol in dict.fromkeys(item.cell.protocol for item in planned):
        if (text := lacking(registry.get(protocol), build)) is not None:
            raise RunError(text)
    check_queues(planned)
    check_slow_disk(planned, runs, clock)
    if clock == "native":
        check_disk(planned, runs)


def check_slow_disk(planned: Sequence[Planned], runs: Path, clock: str) -> None:
    """Raise RunError if a slow disk cannot be simulated here."""
    slow = [p.cell for p in planned if p.cell.carousel.disk_iops]
    if not slow:
        return
    if clock != "native":
        found = f"found disk_iops {slow[0].carousel.disk_iops} with the {clock} clock"
        raise RunError(f"{found}; valid: --clock native, guests have no disk")
    try:
        disk_throttle.find(nearest_directory(runs), "downpour")
    except disk_throttle.DiskError as error:
        raise RunError(str(error)) from None


def nearest_directory(place: Path) -> Path:
    """Return the path, or the nearest one above that exists."""
    while not place.exists():
        place = place.parent
    return place


def check_queues(planned: Sequence[Planned]) -> None:
    """Raise RunError if a queue cannot hold two of the largest product."""
    for item in planned:
        cell, largest = item.cell, item.trace.largest_bytes
        for whose, size in (("sender", cell.q_snd_bytes), ("receiver", cell.q_rcv_bytes)):
            if 0 < size < 2 * largest:
                raise DoesNotFit(
                    f"found a {whose} queue of {size} bytes; valid: at least "
                    f"{2 * largest}, twice the largest product of the trace ({largest} bytes)"
                )


def check_disk(planned: Sequence[Planned], runs: Path) -> None:
    """Check that the largest cell fits on the disk, unless its queues are in memory. Cells remove
    their queues. Raises RunError."""
    place = nearest_directory(runs)
    free = shutil.disk_usage(place).free
    largest = max(planned, key=lambda p: p.disk_bytes)
    needed = largest.disk_bytes
    if queue_place.memory_free_bytes() >= needed:
        return
    if needed > free:
        sender_gb = queue_bytes(largest.trace.size_bytes, largest.cell.q_snd_bytes) / 1e9
        raise DoesNotFit(
            f"found {free / 1e9:.2f} GB free in {place}; valid: {needed / 1e9:.2f} GB for the "
            f"product queues of {largest.cell.cell} (sender {sender_gb:.2f} "
            "GB). Lower it with QUEUE_BYTES= (--queue-bytes), DURATION= or RECEIVERS="
        )
