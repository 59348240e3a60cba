# SPDX-License-Identifier: Apache-2.0
"""What a run records about itself: manifest.json, and run.json of each cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

from experiments.cells.events import Phase
from experiments.design.selection import Order

# Of a run's files, in manifest.json and each run.json. From JUDGED on, a cell's files say all that
# its verdict needs. Raise both if that changes, such as by a new parameter of cells. From LISTED
# on, the manifest says which cells were asked for, and report/ has digests.json.
FORMAT: Final = 3
JUDGED: Final = 2
LISTED: Final = 3


class GitState(TypedDict):
    """The checkout. None if there is no repository."""

    commit: str | None
    dirty: bool | None


class Machine(TypedDict, total=False):
    """What this machine is."""

    cpu: str
    cores: int | None
    memory_bytes: int
    load_before: list[float]


class TraceRecord(TypedDict, total=False):
    """A trace of the run, with its file in the run's directory and the file's digest."""

    source: str
    products: int
    bytes: int
    model_check: Sequence[Mapping[str, object]]
    file: str
    sha256: str


class PythonRecord(TypedDict):
    """The interpreter and its packages."""

    version: str
    packages: dict[str, str | None]


class KernelRecord(TypedDict):
    """The guest's kernel."""

    version: str
    digest: str  # of what was built into it besides the source
    mode: str  # seccomp, ptrace
    source_sha256: str
    sha256: str  # of the kernel itself


class WorkersRecord(TypedDict):
    """Workers on other machines. `digest`: of their environment; `mixed`: they may differ."""

    at: str
    hosts: list[str]  # that ended a cell
    environment: dict[str, str]
    digest: str
    mixed: bool


class ClockRecord(TypedDict, total=False):
    """The clock of cells. `virtual_kernel`: of guests on this machine; `hosts`: the machines of the
    network's hosts that are not here, by host; `parts`: guests of a cell, at most;
    `machines`: where those after the first are, if not here."""

    clock: str
    virtual_kernel: KernelRecord
    workers: WorkersRecord
    hosts: dict[str, str]
    parts: int
    machines: list[str]


class Environment(TypedDict):
    """What else may change a digit. `programs`: SHA-256 of our own, by name."""

    distribution: str
    c_library: str
    programs: dict[str, str]


class UntilRecord(TypedDict):
    """For a run that added repeats until its claims were decided. `stopped`: why it ended;
    `over`: whether because of its budget; `repeats`: of each cell, at first."""

    budget_s: float
    stopped: str
    over: bool
    repeats: int


class FailedRecord(TypedDict):
    """A cell without a result."""

    reason: str
    artefacts: str  # relative to the run's directory


class Manifest(ClockRecord, total=False):
    """manifest.json. The last keys exist once all cells have ended."""

    format: int
    experiment: str
    description: str
    level: str | None
    command: list[str]
    started: float
    spec: dict[str, object]
    cells: list[dict[str, object]]
    only: list[str]  # the expressions that chose cells of `spec`; a repeated older run lacks it
    order: Order
    cells_in_order: list[str]
    seeds: list[int]
    traces: dict[str, TraceRecord]  # by seed
    git: GitState
    code: dict[str, str]  # digests
    python: PythonRecord
    programs: dict[str, str | None]
    kernel: str
    sysctls: dict[str, str | None]
    machine: Machine
    environment: Environment
    # At the end.
    ended: float
    cells_resumed: list[str]
    runs: dict[str, int]
    cell_seconds: dict[str, float]
    failed: dict[str, FailedRecord]
    problems: dict[str, list[str]]
    other_code: list[str]  # cells that ran other code than `code`, if any did
    tcp_congestion_control: dict[str, str]
    until_decided: UntilRecord


class RunRecord(TypedDict, total=False):
    """run.json of a cell: when and by what it ran."""

    format: int
    started: float
    ended: float
    real_s: float
    phases: list[Phase]
    attempt: int
    git: GitState
    code: dict[str, str]  # digests when it began
    code_after: dict[str, str]  # if it changed before it ended
    jobs: int
