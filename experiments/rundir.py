# SPDX-License-Identifier: Apache-2.0
"""Run directories: complete or absent. A run is written as `.<stamp>.partial` and renamed last;
so is each of its cells. Nothing reads a partial one except `--resume`, which takes over its
complete cells."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from pathlib import Path
from typing import Any, Final

PARTIAL: Final = ".partial"


def write_text(path: Path, text: str) -> None:
    """Writes through a temporary file: complete or absent."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


class RunDirectory:
    """One run being made: `path` is the partial directory until `complete()`."""

    def __init__(self, root: Path, experiment: str, now: datetime.datetime) -> None:
        self.parent = root / experiment
        self.stamp = now.strftime("%Y%m%dT%H%M%SZ")
        number = 1
        while self._exists(self.stamp):
            number += 1
            self.stamp = now.strftime("%Y%m%dT%H%M%SZ") + f"-{number}"
        self.path = self.parent / f".{self.stamp}{PARTIAL}"
        self.cells.mkdir(parents=True)

    def _exists(self, stamp: str) -> bool:
        return (self.parent / stamp).exists() or (self.parent / f".{stamp}{PARTIAL}").exists()

    @property
    def cells(self) -> Path:
        return self.path / "cells"

    @property
    def work(self) -> Path:
        """Queues and configuration files of the running cell; removed with it."""
        return self.path / "work"

    def partial_cell(self, cell: str) -> Path:
        """Empty directory in which the cell's process writes."""
        path = self.cells / f".{cell}{PARTIAL}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path

    def complete_cell(self, cell: str) -> Path:
        target = self.cells / cell
        (self.cells / f".{cell}{PARTIAL}").rename(target)
        return target

    def set_aside(self, cell: str) -> Path:
        """Moves a complete cell out of the results, to set-aside/<cell>.<number>."""
        folder = self.path / "set-aside"
        folder.mkdir(exist_ok=True)
        number = 1 + sum(p.name.startswith(f"{cell}.") for p in folder.iterdir())
        target = folder / f"{cell}.{number}"
        (self.cells / cell).rename(target)
        return target

    def complete_cells(self) -> list[str]:
        return sorted(p.name for p in self.cells.iterdir() if not p.name.startswith("."))

    def complete(self, *, keep_work: bool = False) -> Path:
        """Renames the run to its final name and points `latest` to it."""
        if not keep_work:
            shutil.rmtree(self.work, ignore_errors=True)
        target = self.parent / self.stamp
        self.path.rename(target)
        self.path = target
        latest = self.parent / "latest"
        temporary = self.parent / f".latest.{os.getpid()}"
        temporary.symlink_to(self.stamp)
        temporary.replace(latest)
        return target

    def abandon(self) -> bool:
        """After a failure: keeps complete cells for --resume, else removes everything. True if
        something was kept."""
        shutil.rmtree(self.work, ignore_errors=True)
        for path in self.cells.glob(f".*{PARTIAL}"):
            shutil.rmtree(path, ignore_errors=True)
        if self.complete_cells():
            return True
        shutil.rmtree(self.path, ignore_errors=True)
        return False


def digest_of(cell: Path) -> str | None:
    """The digest in a complete cell's cell.json."""
    try:
        found = json.loads((cell / "cell.json").read_text()).get("digest")
    except (OSError, json.JSONDecodeError, AttributeError):
        return None
    return found if isinstance(found, str) else None


def partial_runs(root: Path, experiment: str) -> list[Path]:
    """Partial run directories, the newest first."""
    return sorted((root / experiment).glob(f".*{PARTIAL}"), reverse=True)


def take_over(run: RunDirectory, root: Path, experiment: str, wanted: dict[str, str]) -> list[str]:
    """Moves complete cells with the wanted digests (cell -> digest) from partial runs into `run`
    and removes the partial runs that are then empty. Returns the cells taken."""
    taken: list[str] = []
    for partial in partial_runs(root, experiment):
        if partial == run.path:
            continue
        for cell, digest in wanted.items():
            source = partial / "cells" / cell
            if cell not in taken and source.is_dir() and digest_of(source) == digest:
                source.rename(run.cells / cell)
                taken.append(cell)
        if not any(p for p in (partial / "cells").glob("[!.]*")):
            shutil.rmtree(partial, ignore_errors=True)
    return taken


def latest_run(root: Path, experiment: str | None = None) -> Path | None:
    """The newest complete run, of one experiment or of all."""
    runs = [
        p
        for p in root.glob(f"{experiment or '*'}/*/manifest.json")
        if not p.parent.name.startswith(".") and not p.parent.is_symlink()
    ]
    return max((p.parent for p in runs), key=lambda p: p.name, default=None)
