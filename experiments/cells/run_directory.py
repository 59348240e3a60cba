# SPDX-License-Identifier: Apache-2.0
"""Run directories, which appear only when they are complete. A run is written as `.<stamp>.partial`
and renamed last; so is each of its cells. Only `--resume` reads a partial one: it takes over
complete cells once the process that made it is gone. `.<stamp>.lock` is locked until then."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import shutil
from pathlib import Path
from typing import Final

from common.files import PARTIAL, write_json, write_text
from common.places import RUNS

__all__ = ["RunDirectory", "write_json", "write_text"]

LOCK: Final = ".lock"
FAILED: Final = "failed"
SET_ASIDE: Final = "set-aside"


class RunDirectory:
    """A run in progress: `path` is the partial directory until `complete()`."""

    def __init__(self, root: Path, experiment: str, now: datetime.datetime) -> None:
        self.parent = root / experiment
        self.stamp = now.strftime("%Y%m%dT%H%M%SZ")
        number = 1
        while self._exists(self.stamp):
            number += 1
            self.stamp = now.strftime("%Y%m%dT%H%M%SZ") + f"-{number}"
        self.path = self.parent / f".{self.stamp}{PARTIAL}"
        self.cells.mkdir(parents=True)
        self._lock = _lock_of(self.path).open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    @property
    def final(self) -> Path:
        """Return the run's final directory, which messages name."""
        return self.parent / self.stamp

    def _exists(self, stamp: str) -> bool:
        return (self.parent / stamp).exists() or (self.parent / f".{stamp}{PARTIAL}").exists()

    @property
    def cells(self) -> Path:
        """Return the directory of the run's cells."""
        return self.path / "cells"

    @property
    def work(self) -> Path:
        """Return the directory of the running cell's queues and configuration files, removed with
        it."""
        return self.path / "work"

    def partial_cell(self, cell: str) -> Path:
        """Return the empty directory in which the cell's process writes."""
        path = self.cells / f".{cell}{PARTIAL}"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path

    def complete_cell(self, cell: str) -> Path:
        """Give a cell its final name; return its directory."""
        target = self.cells / cell
        (self.cells / f".{cell}{PARTIAL}").rename(target)
        return target

    def keep_failed(self, cell: str) -> Path:
        """Move what a failed cell left to failed/<cell>/attempt-<number>."""
        folder = self.path / FAILED / cell
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"attempt-{1 + sum(1 for _ in folder.iterdir())}"
        (self.cells / f".{cell}{PARTIAL}").rename(target)
        return target

    def set_aside(self, cell: str) -> Path:
        """Move a complete cell out of the results, to set-aside/<cell>.<number>."""
        folder = self.path / SET_ASIDE
        folder.mkdir(exist_ok=True)
        number = 1
        while (target := folder / f"{cell}.{number}").exists():
            number += 1
        (self.cells / cell).rename(target)
        return target

    def take_back(self, cell: str) -> Path:
        """Move the cell that was set aside last back among the results."""
        number = 1
        while (self.path / SET_ASIDE / f"{cell}.{number + 1}").exists():
            number += 1
        target = self.cells / cell
        (self.path / SET_ASIDE / f"{cell}.{number}").rename(target)
        return target

    def complete_cells(self) -> list[str]:
        """Return the names of the cells that are complete."""
        return sorted(p.name for p in self.cells.iterdir() if not p.name.startswith("."))

    def remove_work(self) -> None:
        """Remove queues and configuration files."""
        shutil.rmtree(self.work, ignore_errors=True)

    def complete(self) -> Path:
        """Rename the run to its final name and point `latest` to it, with or without results."""
        target = self.final
        self.path.rename(target)
        self._unlock()
        self.path = target
        latest = self.parent / "latest"
        temporary = self.parent / f".latest.{os.getpid()}"
        with contextlib.suppress(PermissionError):  # a guest cannot make links on its host
            temporary.symlink_to(self.stamp)
            temporary.replace(latest)
        return target

    def abandon(self) -> bool:
        """Clean up after an interruption: keep complete cells for --resume and what failed ones
        left, else remove everything. Return whether complete cells were kept."""
        self.remove_work()
        for path in self.cells.glob(f".*{PARTIAL}"):
            shutil.rmtree(path, ignore_errors=True)
        kept = bool(self.complete_cells())
        if not kept and not (self.path / FAILED).is_dir():
            shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()
        return kept

    def _unlock(self) -> None:
        _lock_of(self.parent / f".{self.stamp}{PARTIAL}").unlink(missing_ok=True)
        self._lock.close()


def _lock_of(partial: Path) -> Path:
    return partial.with_name(f"{partial.name.removesuffix(PARTIAL)}{LOCK}")


def is_being_made(partial: Path) -> bool:
    """Return whether the process that makes this run still exists."""
    try:
        with _lock_of(partial).open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def partial_runs(root: Path, experiment: str) -> list[Path]:
    """Return partial run directories whose process has ended, the newest first."""
    found = sorted((root / experiment).glob(f".*{PARTIAL}"), reverse=True)
    return [path for path in found if not is_being_made(path)]


def remove_partial(partial: Path) -> None:
    """Remove a partial run and its lock."""
    shutil.rmtree(partial, ignore_errors=True)
    _lock_of(partial).unlink(missing_ok=True)


def no_run(path: Path, runs: Path = RUNS) -> str:
    """Return the message that `path` is not a run directory: where it would be, what is valid."""
    meant = runs.parent / path  # as from the directory above runs/
    valid = meant if (meant / "cells").is_dir() else f"a run directory, {runs}/EXPERIMENT/STAMP"
    return f"found no run in {path.absolute()}; valid: {valid}"


def latest_run(root: Path, experiment: str | None = None) -> Path | None:
    """Return the newest complete run that has results, of one experiment or of all. The link
    `latest` of an experiment points to its newest run, which may have none."""
    runs = {
        p.parents[2]
        for p in root.glob(f"{experiment or '*'}/*/cells/*/cell.json")
        if not p.parents[2].name.startswith(".") and not p.parents[2].is_symlink()
    }
    return max(runs, key=lambda p: p.name, default=None)
