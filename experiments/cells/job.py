# SPDX-License-Identifier: Apache-2.0
"""The runner's job for a cell's process: a file, JOB.json."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from experiments.cells.captures import NO_CAPTURES, Captures
from experiments.design.expansion import CellSpec
from experiments.design.join_leave_expansion import JoinLeaveCell
from experiments.design.trace_input import TraceInfo

# The phase that a cell reports when its products begin to flow.
REPLAYING: Final = "replaying the trace"
MONITORED: Final = ("counters", "minutes")  # samples of a cell with a monitor


@dataclass(frozen=True)
class Job:
    """What the parent passes in addition to the cell itself."""

    cell: CellSpec
    run_id: str
    network: Path  # network.json
    trace: Path  # the cut trace
    trace_info: TraceInfo  # cell.json's `trace`
    build: Path
    work: Path
    keep_work: bool
    digest: str
    captures: Captures = NO_CAPTURES
    hosts: Path | None = None  # of topologies/remote/inventory.py: hosts on other machines
    parts: Path | None = None  # of topologies/remote/part_plan.py: hosts in other guests

    @property
    def samples(self) -> frozenset[str]:
        """Return what the cell records besides the publisher's sar (sysstat.py)."""
        watched = MONITORED if self.cell.conditions.monitor == "on" else ()
        return frozenset((*self.captures.samples, *watched))

    def to_json(self) -> str:
        """Return the text of JOB.json."""
        raw = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        raw["cell"] = self.cell.to_dict()
        raw["captures"] = self.captures.to_dict()
        return json.dumps(raw, default=str, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Return the job that a text of `to_json` describes."""
        raw: dict[str, Any] = json.loads(text)
        for name in ("network", "trace", "build", "work"):
            raw[name] = Path(raw[name])
        for name in ("hosts", "parts"):
            raw[name] = Path(raw[name]) if raw[name] else None
        raw["captures"] = Captures.from_dict(raw["captures"])
        kind = JoinLeaveCell if "script" in raw["cell"] else CellSpec
        return cls(**{**raw, "cell": kind.from_dict(raw["cell"])})
