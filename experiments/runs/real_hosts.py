# SPDX-License-Identifier: Apache-2.0
"""Cells whose hosts are on other machines (`remote --inventory`): the clock that starts them, and
what they cannot do."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from common.places import IN_CHECKOUT, ROOT
from experiments.cells.job import Job
from experiments.cells.run_directory import write_text
from experiments.design.spec import UsageError
from experiments.runs.cell_process import NativeClock, NativeProcess
from experiments.runs.clocks import needs_root
from experiments.runs.options import RemoteOptions
from experiments.runs.preparation import Planned, RunError, check_machine
from experiments.runs.records import ClockRecord
from experiments.runs.together import unsuitable, unsuitable_options
from topologies.remote import inventory
from topologies.remote.inventory import InventoryError, RemoteHost

FILE: Final = "hosts.json"  # in a cell's work directory
PLAYBOOKS: Final = ("install", "build")


def hosts_of(options: RemoteOptions) -> list[RemoteHost]:
    """Return the hosts of the inventory. Raises UsageError, NetworkError."""
    with _as_usage():
        return inventory.read(options.inventory)


@contextmanager
def _as_usage() -> Iterator[None]:
    try:
        yield
    except InventoryError as error:
        raise UsageError(f"--inventory: {error}") from None


def install(path: Path) -> None:
    """Install Downpour on the machines, and build it there. Raises RunError."""
    if not IN_CHECKOUT:
        raise RunError("--install: found no checkout to copy; valid: run it in a checkout")
    for name in PLAYBOOKS:
        argv = [str(ROOT / "ansible/play"), name, "-i", str(path.resolve())]
        if subprocess.run(argv, check=False).returncode != 0:
            raise RunError(f"ansible/play {name} failed on a machine of {path} (see above)")


class HostsClock(NativeClock):
    """The machines' own clocks."""

    name = "hosts"

    def __init__(self, hosts: Sequence[RemoteHost]) -> None:
        self._hosts = hosts

    def start(self, job: Job, out: Path) -> NativeProcess:
        """Start a cell that writes to `out`. Raises CellProblem."""
        path = job.work / FILE
        write_text(path, inventory.to_json(self._hosts))
        return super().start(dataclasses.replace(job, hosts=path), out)

    def describe(self) -> ClockRecord:
        """Return what the manifest says about the clock."""
        return {"clock": self.name, "hosts": {h.name: h.address for h in self._hosts}}


def clock_of(
    hosts: Sequence[RemoteHost], options: RemoteOptions, planned: Sequence[Planned]
) -> HostsClock:
    """Return the clock, if all that is planned suits hosts elsewhere. Raises UsageError,
    RunError."""
    if not options.dry_run and (problem := needs_root().partition(", or virtual")[0]):
        raise UsageError(problem)
    for one in planned:
        known = [host.name for host in one.network.hosts]
        with _as_usage():
            inventory.check_names(hosts, known, options.inventory)
        for found, valid in (*unsuitable(one), *unsuitable_options(options)):
            raise UsageError(f"--inventory: found {found}; valid: {valid}")
    if not options.dry_run:
        check_machine(planned, options.runs.resolve(), options.build)
        if options.install:
            install(options.inventory)
    return HostsClock(hosts)
