# SPDX-License-Identifier: Apache-2.0
"""Check that a run is unchanged, and that its files give its verdicts and the figures in
metrics.json.

Every file is checked against the digests that were written when its cell was complete, and the
cells against those that the manifest's experiment asks for. Then every cell is judged again, and
every metric computed from the raw logs again. Counts and texts must be equal, and other numbers
within a relative 1e-9 (another version of a library may sum in another order).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from common.counting import counted
from common.exit_codes import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from common.files import os_error_text
from experiments.cells.run_directory import no_run
from experiments.runs import asked_cells, digests
from experiments.runs.judged_again import Again, Judged, format_of, object_in
from experiments.runs.options import VerifyOptions
from experiments.runs.records import LISTED as WITH_LISTS
from experiments.runs.same_values import compare_values, shown
from parsers.base.jsonfiles import BadFile
from parsers.measure.evaluate import evaluate
from parsers.measure.metrics import GROUP_BYTES
from parsers.measure.run_files import check_files_end

LISTED: Final = 10  # differences of a cell, then how many more
THE_RUN: Final = "the run as a whole"


@dataclass(frozen=True)
class Checked:
    """The findings about one cell, or about the run as a whole. `notes`: what could not be checked,
    `skipped` of them verdicts that were not judged again."""

    name: str
    files: int
    values: int
    problems: tuple[str, ...]
    checks: int = 0
    notes: tuple[str, ...] = ()
    skipped: int = 0

    @property
    def line(self) -> str:
        """Return the finding as one line."""
        found = counted(len(self.problems), "PROBLEM", "PROBLEMS")
        state = "ok" if not self.problems else found
        checks = f", {counted(self.checks, 'check')}" if self.checks else ""
        files, values = counted(self.files, "file"), counted(self.values, "value")
        return f"{self.name}: {files}, {values}{checks}: {state}"


def check_files(directory: Path, files: list[Path]) -> list[str]:
    """Return the differences from the directory's digests.json."""
    try:
        expected = digests.read(directory)
    except digests.NoDigests as error:
        return [f"{error}: cannot check whether its files were changed"]
    return digests.compare(directory, files, expected)


def check_report(run: Path, is_new: bool) -> tuple[list[str], str]:
    """Return how report/ differs from its digests.json, and a note if it cannot be told. `is_new`:
    whether the run's version writes that file. A run without results has no report."""
    report = run / "report"
    if not report.is_dir():
        return (
            ([f"report: found {report}, which is no directory"], "")
            if report.exists()
            else ([], "")
        )
    if not is_new and not (report / digests.NAME).exists():
        return [], f"report/ not checked: it was written before reports had a {digests.NAME}"
    problems = check_files(report, digests.report_files(report))
    return [f"report/: {problem}" for problem in problems], ""


def _metrics(run: Path) -> dict[str, Any]:
    """Return metrics.json. Raises BadFile or OSError."""
    file = run / "metrics.json"
    try:
        written = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(written, dict) or not isinstance(written.get("cells"), dict):
            raise ValueError("no cells in it")
        size = written.get("file_set_bytes", GROUP_BYTES)
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"file_set_bytes is {shown(size)}; valid: a whole number from 1 on")
    except FileNotFoundError:
        raise BadFile(f"{file}: found nothing; valid: a complete run directory") from None
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{file}: not the metrics of a run: {error}") from None
    return written


def verify(run: Path, progress: Callable[[str], None] | None = None) -> tuple[Checked, ...]:
    """Check a run directory: its cells by name, then the whole. Calls `progress(text)` for each
    step. Raises BadFile or OSError if there is nothing to compare."""
    tell = progress if progress is not None else lambda _: None
    check_files_end(run)
    written = _metrics(run)
    names = sorted(p.name for p in (run / "cells").iterdir() if p.is_dir())
    aside = sorted(p for p in (run / "set-aside").glob("*") if p.is_dir())
    again = Again(run)
    wrong_files: dict[str, list[str]] = {}
    judged: dict[str, Judged] = {}
    for number, name in enumerate(names, start=1):
        tell(f"[{number}/{len(names)}] files and verdict of {name}")
        cell = run / "cells" / name
        wrong_files[name] = check_files(cell, digests.cell_files(cell))
        judged[name] = again.judge(cell)
    whole = check_files(run, digests.run_files(run))
    described = object_in(run / "manifest.json")
    # Nobody makes a run older by removing a key of manifest.json alone.
    records = (object_in(run / "cells" / name / "run.json") for name in names)
    is_new = any(format_of(record) >= WITH_LISTS for record in (described, *records))
    wrong, not_checked = check_report(run, is_new)
    asked = asked_cells.check(run, described, names, is_new=is_new)
    whole += [*wrong, *asked.problems]
    notes = [text for text in (not_checked, asked.note) if text]
    others = len(notes)
    for cell in aside:
        verdict = again.judge(cell)
        problems = (*check_files(cell, digests.cell_files(cell)), *verdict.problems)
        whole += [f"set-aside/{cell.name}: {problem}" for problem in problems]
        if verdict.note:
            notes.append(f"set-aside/{cell.name}: {verdict.note}")
    document: dict[str, Any] | None = None
    try:
        document = _computed(run, written, len(names), tell)
    except (BadFile, OSError) as error:  # a file that was damaged; the digests say more
        text = os_error_text(error) if isinstance(error, OSError) else str(error)
        whole += [f"the logs give no metrics: {line}" for line in text.splitlines()]
    *cells, rest = _checked(run, wrong_files, whole, written, document)
    found = (_with(c, judged.get(c.name, Judged())) for c in cells)
    return (*found, replace(rest, notes=tuple(notes), skipped=len(notes) - others))


def _with(checked: Checked, judged: Judged) -> Checked:
    """Add what was found about a cell's verdict to the rest."""
    return replace(
        checked,
        checks=judged.checks,
        problems=(*judged.problems, *checked.problems),
        notes=(judged.note,) if judged.note else (),
        skipped=1 if judged.note else 0,
    )


def _computed(
    run: Path, written: Mapping[str, Any], cells: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Compute metrics.json again. Raises BadFile or OSError."""
    count = iter(range(1, cells + 1))
    found = evaluate(
        run,
        written.get("file_set_bytes", GROUP_BYTES),
        include_invalid=bool(written.get("include_invalid", False)),
        on_cell=lambda name: tell(f"[{next(count)}/{cells}] metrics of {name}"),
    ).document
    document: dict[str, Any] = json.loads(json.dumps(found))
    if "file_set_bytes" not in written:  # older metrics, or a cell's whose products form no sets
        document.pop("file_set_bytes", None)
    return document


def _checked(
    run: Path,
    wrong_files: Mapping[str, Sequence[str]],
    whole: Sequence[str],
    written: dict[str, Any],
    document: dict[str, Any] | None,
) -> tuple[Checked, ...]:
    """Return the findings: wrong files by cell, and what metrics.json and the logs (None: they give
    nothing) disagree about."""
    then = written.pop("cells")
    now = {} if document is None else document.pop("cells")

    def compared(before: object, after: object) -> tuple[int, list[str]]:
        return (0, []) if document is None else compare_values(before, after)

    checked = []
    for name in dict.fromkeys([*wrong_files, *then]):
        values, differences = compared(then.get(name), now.get(name))
        files = len(digests.cell_files(run / "cells" / name)) if name in wrong_files else 0
        checked.append(Checked(name, files, values, (*wrong_files.get(name, ()), *differences)))
    values, differences = compared(written, document)
    own = len(digests.run_files(run))
    return (*checked, Checked(THE_RUN, own, values, (*whole, *differences)))


def report(checked: Sequence[Checked]) -> str:
    """Return one line per cell, with its problems below, and the verdict."""
    lines = []
    for found in checked:
        lines.append(found.line)
        lines += [f"  {text}" for text in (*found.notes, *found.problems[:LISTED])]
        if len(found.problems) > LISTED:
            lines.append(f"  ... and {len(found.problems) - LISTED} more")
    files, values = (sum(getattr(c, n) for c in checked) for n in ("files", "values"))
    wrong = [c.name for c in checked if c.problems]
    text = (
        f"{counted(len(checked) - 1, 'cell')}, {counted(files, 'file')}, {counted(values, 'value')}"
    )
    skipped = sum(c.skipped for c in checked)
    more = f"; {counted(skipped, 'verdict')} not judged again" if skipped else ""
    if wrong:
        lines.append(f"NOT VERIFIED: {text}; problems: {', '.join(wrong)}{more}")
    else:
        lines.append(f"Verified: {text} are unchanged and follow from the logs{more}")
    return "\n".join(lines) + "\n"


def main(options: VerifyOptions) -> int:
    """Run the command. Return 0 verified, 1 something differs, 2 bad usage or input."""

    def progress(text: str) -> None:
        if not options.quiet:
            print(text, file=sys.stderr, flush=True)

    try:
        if not (options.run / "cells").is_dir():
            raise BadFile(no_run(options.run))
        checked = verify(options.run, progress)
    except BadFile as error:
        print(f"verify: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(f"verify: {os_error_text(error)}", file=sys.stderr)
        return EXIT_USAGE
    print(report(checked), end="")
    return EXIT_FAILED if any(c.problems for c in checked) else EXIT_OK
