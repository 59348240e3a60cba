# SPDX-License-Identifier: Apache-2.0
"""Run directories, which appear only when they are complete. A run is written as `.<stamp>.partial`
and renamed last; so is each of its cells. Only `--resume` reads a partial one: it takes over
complete cells once the process that made it is gone. `.<stamp>.lock` is locked until then, from
before the directory exists."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

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
        self.stamp, self._lock = self._free_stamp(now.strftime("%Y%m%dT%H%M%SZ"))
        self.path = self.parent / f".{self.stamp}{PARTIAL}"
        self.cells.mkdir(parents=True)

    @property
    def final(self) -> Path:
        """Return the run's final directory, which messages name."""
        return self.parent / self.stamp

    def _free_stamp(self, first: str) -> tuple[str, IO[bytes]]:
        """Return a stamp that no other run has, and its lock."""
        for number in itertools.count(1):
            stamp = first if number == 1 else f"{first}-{number}"
            if self._exists(stamp):
                continue
            self.parent.mkdir(parents=True, exist_ok=True)
            path = _lock_of(self.parent / f".{stamp}{PARTIAL}")
            lock = _lock(path)
            if lock is None:
                continue
            if not self._exists(stamp):
                return stamp, lock
            _unlock(path, lock)
        raise AssertionError  # the numbers never end

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
        target = self.next_aside(cell)
        (self.cells / cell).rename(target)
        return target

    def next_aside(self, cell: str) -> Path:
        """Return where the cell's next attempt that is set aside belongs."""
        folder = self.path / SET_ASIDE
        folder.mkdir(exist_ok=True)
        return folder / f"{cell}.{self.times_set_aside(cell) + 1}"

    def times_set_aside(self, cell: str) -> int:
        """Return how many attempts at a cell are set aside."""
        numbers = itertools.count(1)
        is_free = (n for n in numbers if not (self.path / SET_ASIDE / f"{cell}.{n}").exists())
        return next(is_free) - 1

    def take_back(self, cell: str) -> Path:
        """Move the cell that was set aside last back among the results."""
        number = self.times_set_aside(cell)
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
        """Clean up after an interruption: keep complete cells for --resume, what failed ones left
        and what was set aside, else remove everything. Return whether complete cells were kept."""
        self.remove_work()
        for path in self.cells.glob(f".*{PARTIAL}"):
            shutil.rmtree(path, ignore_errors=True)
        kept = bool(self.complete_cells())
        if not kept and not any((self.path / name).is_dir() for name in (FAILED, SET_ASIDE)):
            shutil.rmtree(self.path, ignore_errors=True)
        self._unlock()
        return kept

    def _unlock(self) -> None:
        _unlock(_lock_of(self.parent / f".{self.stamp}{PARTIAL}"), self._lock)


def _lock_of(partial: Path) -> Path:
    return partial.with_name(f"{partial.name.removesuffix(PARTIAL)}{LOCK}")


def _lock(path: Path) -> IO[bytes] | None:
    """Make and lock a file; None: another process has locked it. Raises OSError."""
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(path.open("ab"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                return None  # the process that held it has removed it
        except (BlockingIOError, FileNotFoundError):
            return None
        stack.pop_all()
        return lock


def _unlock(path: Path, lock: IO[bytes]) -> None:
    path.unlink(missing_ok=True)
    lock.close()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold a lock file, which is removed at the end. Yield False if another process holds it."""
    lock = _lock(path)
    try:
        yield lock is not None
    finally:
        if lock is not None:
            _unlock(path, lock)


def partial_runs(root: Path, experiment: str) -> Iterator[Path]:
    """Yield partial run directories whose process has ended, the newest first. Each is locked until
    the next one is asked for."""
    for path in sorted((root / experiment).glob(f".*{PARTIAL}"), reverse=True):
        with locked(_lock_of(path)) as mine:
            if mine and path.is_dir():
                yield path


def remove_partial(partial: Path) -> None:
    """Remove a partial run."""
    shutil.rmtree(partial, ignore_errors=True)


def remove_results(experiment: Path) -> bool:
    """Remove all results of an experiment. Return False if a run of it is being made: then all
    stay. A run that begins meanwhile is left alone."""
    entries = sorted(experiment.iterdir())
    if any(entry.name.endswith(PARTIAL) for entry in entries):
        return False
    for entry in entries:
        if entry.name.endswith(LOCK):
            with locked(entry):  # removes it if its process was killed
                pass
        elif entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        experiment.rmdir()
    return True


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
