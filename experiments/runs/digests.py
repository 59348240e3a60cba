# SPDX-License-Identifier: Apache-2.0
"""Record the SHA-256 of every file of a run, so that `verify` can detect later changes.

A cell's directory gets its `digests.json` when the cell is complete, and a run's directory when the
run is. A run's file covers the top-level files and each cell's digests.json, and so everything.
metrics.json and report/ are left out because they can be recreated, and so is work/ (kept queues).
`parsers.report.publish` writes report/digests.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from common.digests import NAME, Digest, NoDigests, compare, described, digest_of, read
from experiments.cells.run_directory import write_json

__all__ = [
    "NAME",
    "Digest",
    "NoDigests",
    "cell_files",
    "compare",
    "digest_of",
    "read",
    "report_files",
    "run_files",
    "write_cell",
    "write_run",
]

LEFT_OUT: Final = frozenset({"metrics.json", "report", "work", NAME})
WITH_THEIR_OWN: Final = ("cells", "set-aside")  # directories of cells


def _files(directory: Path) -> Iterator[Path]:
    """Yield the files and links below a directory, by name; ignore those that vanish."""
    for path in sorted(directory.iterdir()):
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        else:
            yield path


def cell_files(cell: Path) -> list[Path]:
    """Return the files that a cell's digests.json covers."""
    return [p for p in _files(cell) if p != cell / NAME]


def run_files(run: Path) -> list[Path]:
    """Return the files that the run's digests.json covers (see the module)."""
    own = [run / name for name in WITH_THEIR_OWN]
    found = [
        p
        for top in sorted(run.iterdir())
        if top.name not in LEFT_OUT and top not in own
        for p in ([top] if not top.is_dir() else _files(top))
    ]
    return found + [
        p for folder in own if folder.is_dir() for p in sorted(folder.glob(f"*/{NAME}"))
    ]


def report_files(report: Path) -> list[Path]:
    """Return the files that a report's digests.json covers."""
    return cell_files(report)


def _write(directory: Path, files: list[Path]) -> None:
    found = {str(path.relative_to(directory)): digest_of(path) for path in files}
    write_json(directory / NAME, described(found))


def write_cell(cell: Path) -> None:
    """Write a complete cell's digests.json; nothing in the cell may change afterwards."""
    _write(cell, cell_files(cell))


def write_run(run: Path) -> None:
    """Write the run's digests.json, after those of its cells."""
    _write(run, run_files(run))
