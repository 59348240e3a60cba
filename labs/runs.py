# SPDX-License-Identifier: Apache-2.0
"""Find a student's own runs in the work directory for checks; check that all exist, with the right
seed and with files as the run wrote them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from common.contracts import INVALID
from experiments.runs import digests
from labs.checking import Context, Outcome, failed, nothing, passed
from parsers.base.jsonfiles import BadFile
from parsers.measure.run_files import load_cell
from parsers.measure.summary import CellMetrics, summarize

RUNS: Final = "runs"  # in the work directory


class RunProblem(Exception):
    """A run cannot be used; the text says which and why."""


class Missing(Exception):
    """Runs do not exist yet; the text names them."""


@dataclass(frozen=True)
class CellOfRun:
    """A complete cell. `described`: cell.json; `verdict`: faithful, degraded or invalid."""

    run: Path
    path: Path
    described: Mapping[str, Any]
    verdict: str
    started: float  # epoch, seconds of the machine's clock

    @property
    def factors(self) -> Mapping[str, Any]:
        """Return the cell's factors and their levels."""
        factors: Mapping[str, Any] = self.described["factors"]
        return factors

    @property
    def shown(self) -> str:
        """Return the cell's place below the runs' directory."""
        return str(self.path.relative_to(self.run.parents[1]))

    def metrics(self) -> dict[str, float]:
        """Return what the parsers now compute from the cell's logs, without metrics that have no
        value. Raises RunProblem."""
        try:
            found: CellMetrics = summarize(load_cell(self.path))
        except (BadFile, OSError) as error:
            raise RunProblem(f"{self.path}: {error}") from None
        return {n: v.value for n, v in found.values.items() if v.value is not None}


def complete_runs(work: Path, experiment: str) -> list[Path]:
    """Return the runs of an experiment that have results, the newest first."""
    return sorted(
        {p.parents[2] for p in (work / RUNS / experiment).glob("[0-9]*/cells/*/cell.json")},
        reverse=True,
    )


def cells(work: Path, experiment: str) -> list[CellOfRun]:
    """Return all complete cells of the experiment, the newest run's first. Raises RunProblem."""
    found = []
    for run in complete_runs(work, experiment):
        for path in sorted(p.parent for p in run.glob("cells/[!.]*/cell.json")):
            try:
                described = json.loads((path / "cell.json").read_text(encoding="utf-8"))
                verdict = json.loads((path / "verdict.json").read_text(encoding="utf-8"))
                ran = json.loads((path / "run.json").read_text(encoding="utf-8"))
                found.append(
                    CellOfRun(run, path, described, verdict["verdict"], float(ran["started"]))
                )
            except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
                raise RunProblem(f"{path}: not as a run leaves it: {error}") from None
    return found


def newest(found: list[CellOfRun], factors: Mapping[str, Any]) -> CellOfRun | None:
    """Return the first of the cells that has all these levels; None if there is none."""
    for cell in found:
        if all(cell.factors.get(name) == level for name, level in factors.items()):
            return cell
    return None


def wrong_with(cell: CellOfRun, **wanted: Any) -> list[str]:
    """Return what is wrong with a cell: files that are not as the run wrote them, an invalid
    verdict, and keys of cell.json whose value differs from `wanted`."""
    problems = []
    try:
        expected = digests.read(cell.path)
        changed = digests.compare(cell.path, digests.cell_files(cell.path), expected)
        # Files that a student adds beside the evidence do no harm.
        changed = [text for text in changed if not text.startswith("extra: ")]
        problems += [f"{cell.shown}: {text}" for text in changed[:3]]
    except digests.NoDigests as error:
        problems.append(f"{cell.shown}: {error}")
    for name, value in wanted.items():
        if cell.described.get(name) != value:
            problems.append(f"{cell.shown}: {name} is {cell.described.get(name)}, not {value}")
    if cell.verdict == INVALID:
        problems.append(f"{cell.shown}: its verdict is invalid")
    return problems


def all_there(
    context: Context,
    experiment: str,
    tried: str,
    expected: str,
    find: Callable[[], Mapping[Any, CellOfRun]],
    wrong: Callable[[Context, CellOfRun], list[str]],
) -> Outcome:
    """Check that all cells of a lab exist and are the student's. `find` returns them, or raises
    Missing or RunProblem; `wrong` returns in what a cell differs from the one that the lab asked
    for."""
    try:
        found = find()
    except Missing as error:
        outcome = failed if cells(context.work, experiment) else nothing
        return outcome(tried, expected, str(error), "missing")
    except RunProblem as error:
        return failed(tried, expected, str(error), "not-yours")
    if problems := [text for cell in found.values() for text in wrong(context, cell)]:
        return failed(tried, expected, "; ".join(problems[:3]), "not-yours")
    return passed(tried, expected, f"all {len(found)}")
