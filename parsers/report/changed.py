# SPDX-License-Identifier: Apache-2.0
"""Find documents of a run that were changed since they were complete. Logs are not read for it:
they may be gigabytes, and `verify` reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from common import digests
from common.command_line import PROGRAM
from common.counting import counted
from parsers.measure.run_files import cell_directories

LISTED: Final = 3


def changed_documents(run: Path) -> list[str]:
    """Return what is changed, missing or extra: manifest.json, and the JSON files of each cell.
    Cells and runs without digests are skipped: they are not complete, or older."""
    found = _changed(run, run, lambda name: name == "manifest.json" or name.startswith("cells/"))
    for cell in cell_directories(run):
        found += _changed(run, cell, lambda name: "/" not in name and name.endswith(".json"))
    return found


def _changed(run: Path, directory: Path, is_document: Callable[[str], bool]) -> list[str]:
    place = "" if directory == run else f"{directory.relative_to(run)}/"
    if not (directory / digests.NAME).exists():
        return []
    try:
        listed = digests.read(directory)
    except digests.NoDigests as error:
        return [f"unreadable: {place}{error}"]
    there = ("manifest.json", f"cells/*/{digests.NAME}") if directory == run else ("*.json",)
    files = [file for names in there for file in sorted(directory.glob(names))]
    problems = digests.compare(
        directory,
        [file for file in files if file != directory / digests.NAME],
        {name: digest for name, digest in listed.items() if is_document(name)},
    )
    return [problem.replace(": ", f": {place}", 1) for problem in problems]


def warning_about(problems: list[str], run: str) -> str:
    """Return the sentence at the top of a report; "" if nothing was changed. `run`:
    EXPERIMENT/STAMP."""
    if not problems:
        return ""
    more = len(problems) - LISTED
    listed = [*problems[:LISTED], *([f"{more} more"] if more > 0 else [])]
    return (
        f"{counted(len(problems), 'file')} of this run changed since it was complete, so do not"
        f" trust this report: {'; '.join(listed)}. `{PROGRAM} verify runs/{run}` says what differs."
    )
