# SPDX-License-Identifier: Apache-2.0
"""Judge a run's cells again from their files, and compare with verdict.json.

The cells of a version whose files do not say all that a verdict needs are not judged: that is
noted, and is no problem. But where the `format` in run.json or manifest.json says that the files
do, it is one, so that nobody makes a run older by removing keys of cell.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.contracts import FAITHFUL, INVALID
from common.files import os_error_text
from common.places import ROOT
from experiments.runs.manifest import git_state
from experiments.runs.records import JUDGED, LISTED
from experiments.runs.same_values import compare_values
from experiments.verdict import arrivals
from experiments.verdict.from_files import ASKED, as_stored, described, judge_cell, lacking
from parsers.base.jsonfiles import BadFile

LATER = {arrivals.NAME}  # checks that runs of a format before LISTED do not have
NOT_AGAIN = "verdict not judged again"


@dataclass(frozen=True)
class Judged:
    """What was found about one verdict. `note`: why it was not judged again."""

    checks: int = 0  # compared
    problems: tuple[str, ...] = ()
    note: str = ""


def object_in(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file; {} if it has none, which its digest tells."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class Again:
    """Judges the cells of one run."""

    def __init__(self, run: Path) -> None:
        self._manifest = object_in(run / "manifest.json")
        cells = self._manifest.get("cells")
        listed = [c for c in cells if isinstance(c, dict)] if isinstance(cells, list) else []
        self._asked = {str(cell.get("cell")): cell for cell in listed}

    def judge(self, cell: Path) -> Judged:
        """Judge the cell in a directory; its files may be damaged in any way."""
        try:
            return self._judge(cell)
        except OSError as error:
            text = os_error_text(error)
        except BadFile as error:
            text = str(error)
        except Exception as error:  # a file with other content than its reader expects
            text = f"{type(error).__name__}: {error}"
        return Judged(problems=tuple(f"the files give no verdict: {t}" for t in text.splitlines()))

    def _judge(self, cell: Path) -> Judged:
        known = described(cell)
        if key := lacking(known):
            text = f"{NOT_AGAIN}: cell.json has no '{key}'"
            if file := self._tells(cell):
                problem = f"{text}, which it must have by {file} (format {JUDGED})"
                return Judged(problems=(problem,))
            return Judged(note=f"{text} (made by an older version)")
        verdict, _ = judge_cell(cell)
        now = as_stored(verdict)
        if max(format_of(object_in(cell / "run.json")), format_of(self._manifest)) < LISTED:
            now["checks"] = [c for c in now["checks"] if not _is_later(c)]
        checks = len(now["checks"])
        differences = _differences(cell, now)
        versions = _versions(cell) if differences else []
        return Judged(checks, (*self._other_asked(known), *versions, *differences))

    def _tells(self, cell: Path) -> str:
        """Return the file which says that the cell can be judged from its files; else ""."""
        if format_of(object_in(cell / "run.json")) >= JUDGED:
            return "run.json"
        resumed = self._manifest.get("cells_resumed")
        of_this_run = cell.parent.name == "cells" and not (
            isinstance(resumed, list) and cell.name in resumed
        )
        return "manifest.json" if of_this_run and format_of(self._manifest) >= JUDGED else ""

    def _other_asked(self, known: Mapping[str, Any]) -> list[str]:
        """Return where the specification differs from the manifest's."""
        listed = self._asked.get(str(known.get("cell")))
        if listed is None:
            return [f"manifest.json: found no cell {known.get('cell')}; valid: the run's cells"]
        found = compare_values(listed, known[ASKED], "manifest.json has", "cell.json has")[1]
        return [f"{ASKED}.{problem}" for problem in found]


def _is_later(check: Mapping[str, Any]) -> bool:
    """Return whether a check is one that older verdicts lack, and changes nothing."""
    return check["name"] in LATER and check["status"] in ("pass", "n/a")


def _versions(cell: Path) -> list[str]:
    """Return that the cell is of another version, if it is: its checks may have been others."""
    git = object_in(cell / "run.json").get("git")
    then = git.get("commit") if isinstance(git, dict) else None
    now = git_state(ROOT)["commit"]
    if not isinstance(then, str) or now is None or then == now:
        return []
    return [f"judged by commit {then[:12]}, again by {now[:12]}: its checks may be others"]


def format_of(record: Mapping[str, Any]) -> int:
    """Return a record's `format`; 0 if it has none."""
    found = record.get("format")
    return found if isinstance(found, int) else 0


def _differences(cell: Path, now: dict[str, Any]) -> list[str]:
    """Return how verdict.json differs from what the files give."""
    word = now["verdict"]
    try:
        then = json.loads((cell / "verdict.json").read_text(encoding="utf-8"))
        before, checks = then["verdict"], _by_name(then["checks"])
    except OSError as error:
        return [f"verdict.json: {error.strerror}; valid: the cell's verdict, {word}"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return [f"verdict.json: not a verdict; valid: the cell's verdict, {word}"]
    found = compare_values(checks, _by_name(now["checks"]), "verdict.json has", "the files give")[1]
    if before == word:
        return found
    return [f"verdict.json has {before}, the files give {word}{_why(now)}", *found]


def _by_name(checks: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return checks by name, without it; further ones of a name get a number."""
    found: dict[str, dict[str, Any]] = {}
    for check in checks:
        rest = {**check}
        name = key = str(rest.pop("name"))
        number = 1
        while key in found:
            number += 1
            key = f"{name} {number}"
        found[key] = rest
    return found


def _why(verdict: dict[str, Any]) -> str:
    """Return the checks that decide a verdict, in parentheses."""
    if verdict["verdict"] == FAITHFUL:
        return ""
    decisive = "fail" if verdict["verdict"] == INVALID else "warn"
    names = [check["name"] for check in verdict["checks"] if check["status"] == decisive]
    return f" ({', '.join(names)})"
