# SPDX-License-Identifier: Apache-2.0
"""Take over cells from interrupted runs."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path

from experiments.cells.run_directory import (
    FAILED,
    SET_ASIDE,
    RunDirectory,
    locked,
    partial_runs,
    remove_partial,
)
from experiments.runs import digests
from experiments.runs.preparation import RunError
from experiments.runs.records import RunRecord


def is_sound(cell: Path) -> bool:
    """Return whether every file of a complete cell is unchanged."""
    try:
        return not digests.compare(cell, digests.cell_files(cell), digests.read(cell))
    except digests.NoDigests:
        return False


def _digest_of(cell: Path) -> str | None:
    """Return the digest in a complete cell's cell.json."""
    try:
        found = json.loads((cell / "cell.json").read_text()).get("digest")
    except (OSError, json.JSONDecodeError, AttributeError):
        return None
    return found if isinstance(found, str) else None


def run_of(cell: Path) -> RunRecord:
    """Read a cell's run.json: when it ran, and which version ran it. Empty if it has none."""
    try:
        found: RunRecord = json.loads((cell / "run.json").read_text())
    except (OSError, json.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def take_over(
    run: RunDirectory, root: Path, experiment: str, wanted: Mapping[str, str]
) -> list[str]:
    """Move sound cells that have the wanted digests (by cell) from partial runs into `run`,
    together with what failed attempts at wanted cells left and attempts that were set aside. Remove
    the partial runs that have no cell left. Return the cells that were moved. Raises RunError if
    another process does the same."""
    taken: list[str] = []
    with locked(root / experiment / ".resume.lock") as mine:
        if not mine:
            raise RunError(
                f"--resume: found another --resume of {experiment}, which takes cells over at "
                "this moment; valid: --resume once that run has ended"
            )
        for partial in partial_runs(root, experiment):
            for cell, digest in wanted.items():
                source = partial / "cells" / cell
                if cell not in taken and _digest_of(source) == digest and is_sound(source):
                    source.rename(run.cells / cell)
                    taken.append(cell)
            _take_failed(partial, run, wanted)
            _take_aside(partial, run, wanted)
            if not any(any((partial / name).glob("[!.]*")) for name in ("cells", SET_ASIDE)):
                remove_partial(partial)
    return taken


def _take_failed(partial: Path, run: RunDirectory, wanted: Mapping[str, str]) -> None:
    for cell in wanted:
        source = partial / FAILED / cell
        if not source.is_dir():
            continue
        target = run.path / FAILED / cell
        target.mkdir(parents=True, exist_ok=True)
        for attempt in sorted(source.iterdir()):
            number = 1 + sum(1 for _ in target.iterdir())
            attempt.rename(target / f"attempt-{number}")


def _take_aside(partial: Path, run: RunDirectory, wanted: Mapping[str, str]) -> None:
    """Take what was set aside for wanted cells, except where the cell itself was left."""
    for cell, digest in wanted.items():
        if (partial / "cells" / cell).exists():
            continue
        for number in itertools.count(1):
            source = partial / SET_ASIDE / f"{cell}.{number}"
            if not source.is_dir():
                break
            if _digest_of(source) == digest:
                source.rename(run.next_aside(cell))
