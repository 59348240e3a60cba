# SPDX-License-Identifier: Apache-2.0
"""Find cells that a run's experiment asks for and its directory lacks, so that nobody leaves out
cells that spoil a result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from experiments.design.expansion import CellSpec
from experiments.design.selection import select
from experiments.design.spec import (
    AnySpec,
    ExperimentSpec,
    JoinLeaveSpec,
    UsageError,
    is_topology_file,
)
from experiments.runs.preparation import cells_of
from experiments.runs.runner import TOPOLOGY_COPY
from experiments.runs.until_decided import LEAST_REPEATS

OPTION: Final = "--only"
OLDER: Final = "cannot tell whether cells are missing"


@dataclass(frozen=True)
class Asked:
    """What was found. `problems`: missing or foreign cells; `note`: why they are not known."""

    problems: tuple[str, ...] = ()
    note: str = ""


def spec_of(raw: Any) -> AnySpec:
    """Return the experiment in a manifest's `spec`. Raises ValidationError or TypeError."""
    return (JoinLeaveSpec if "kind" in raw else ExperimentSpec).model_validate(raw)


def only_of(manifest: Mapping[str, Any]) -> list[str] | None:
    """Return the expressions of --only that chose a run's cells; None if they are not known. An
    older manifest has them in its command alone."""
    if isinstance(only := manifest.get("only"), list):
        return [str(text) for text in only]
    words = manifest.get("command")
    if not isinstance(words, list) or "run" not in words:
        return None
    found = [str(w).partition("=")[2] for w in words if str(w).startswith(f"{OPTION}=")]
    pairs = zip(words, words[1:], strict=False)
    return found + [str(after) for word, after in pairs if word == OPTION]


def check(run: Path, manifest: Mapping[str, Any], there: Collection[str], *, is_new: bool) -> Asked:
    """Compare the cells `there` of a run with those that its manifest's `spec` asks for. The
    manifest may be damaged in any way. `is_new`: the run's version records what it must."""
    try:
        planned = _planned(run, manifest)
    except (UsageError, ValidationError, TypeError, KeyError, ValueError, OSError) as error:
        text = f"manifest.json: its spec gives no cells: {' '.join(str(error).splitlines()[:2])}"
        return Asked((text,)) if is_new else Asked(note=f"{OLDER}: {text}")
    if planned is None:
        return Asked(note=f"{OLDER}: manifest.json has no 'only' (made by an older version)")
    failed = manifest.get("failed")
    known = {*there, *(failed if isinstance(failed, dict) else ())}
    names = {cell.cell for cell in planned}
    foreign = sorted(set(there) - names)
    if foreign and not is_new:
        return Asked(note=f"{OLDER}: this version gives cells other names than {foreign[0]}")
    needed = _needed(planned, manifest.get("until_decided"), known)
    return Asked(
        (
            *(
                f"missing: cell {n}, which the experiment asks for"
                for n in needed
                if n not in known
            ),
            *(f"extra: cell {name}, which the experiment does not ask for" for name in foreign),
        )
    )


def _planned(run: Path, manifest: Mapping[str, Any]) -> list[CellSpec] | None:
    """Return all cells that may run; None if what chose them is not known."""
    only = only_of(manifest)
    if only is None:
        return None
    spec = spec_of(manifest["spec"])
    if is_topology_file(spec.topology) and (run / TOPOLOGY_COPY).is_file():
        spec = spec.model_copy(update={"topology": str(run / TOPOLOGY_COPY)})
    level = manifest.get("level")
    return select(list(cells_of(spec, level if isinstance(level, str) else None)), only)


def _needed(planned: Sequence[CellSpec], until: Any, known: Collection[str]) -> list[str]:
    """Return the cells that must be there, by the order of the plan. A run that adds repeats
    (`until`) begins a cell's repeats in their order."""
    if not isinstance(until, dict):
        return [cell.cell for cell in planned]
    # Manifests without `over` say it in words.
    over = until.get("over", "budget" in str(until.get("stopped")))
    first = until.get("repeats", LEAST_REPEATS)
    least = 0 if over or not isinstance(first, int) else max(first, LEAST_REPEATS)
    last: dict[str, int] = {}
    for cell in planned:
        if cell.cell in known:
            point = _point(cell)
            last[point] = max(last.get(point, 0), cell.repeat)
    return [c.cell for c in planned if c.repeat < max(least, last.get(_point(c), -1))]


def _point(cell: CellSpec) -> str:
    """Return the levels of a cell as text, which its repeats share."""
    return repr(sorted(cell.factors.items()))
