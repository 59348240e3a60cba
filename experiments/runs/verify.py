# SPDX-License-Identifier: Apache-2.0
"""Check that a run is unchanged, and that its logs give the figures in metrics.json.

Every file is checked against the digests that were written when its cell was complete; then every
metric is computed from the raw logs again. Counts and texts must be equal, and other numbers within
a relative 1e-9 (another version of a library may sum in another order).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from common.counting import counted
from common.exit_codes import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from common.files import os_error_text
from experiments.cells.run_directory import no_run
from experiments.runs import digests
from experiments.runs.options import VerifyOptions
from parsers.base.jsonfiles import BadFile
from parsers.measure.agreement import leaves
from parsers.measure.evaluate import evaluate
from parsers.measure.metrics import GROUP_BYTES

RELATIVE: Final = 1e-9
LISTED: Final = 10  # differences of a cell, then how many more
THE_RUN: Final = "the run as a whole"


@dataclass(frozen=True)
class Checked:
    """The findings about one cell, or about the run as a whole."""

    name: str
    files: int
    values: int
    problems: tuple[str, ...]

    @property
    def line(self) -> str:
        """Return the finding as one line."""
        found = counted(len(self.problems), "PROBLEM", "PROBLEMS")
        state = "ok" if not self.problems else found
        return (
            f"{self.name}: {counted(self.files, 'file')}, {counted(self.values, 'value')}: {state}"
        )


def check_files(directory: Path, files: list[Path]) -> list[str]:
    """Return the differences from the directory's digests.json."""
    try:
        expected = digests.read(directory)
    except digests.NoDigests as error:
        return [f"{error}: cannot check whether its files were changed"]
    return digests.compare(directory, files, expected)


def same_value(a: Any, b: Any) -> bool:
    """Compare numbers to RELATIVE, and whole numbers exactly; everything else must be equal and of
    the same type."""
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (a, b))
    if not numbers:
        return type(a) is type(b) and bool(a == b)
    if float(a).is_integer() and float(b).is_integer():
        return float(a) == float(b)
    return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=0.0)


def compare_values(written: object, computed: object) -> tuple[int, list[str]]:
    """Compare a part of metrics.json; return (number of values compared, differences)."""
    then, now = dict(leaves(written)), dict(leaves(computed))
    problems = []
    for place in dict.fromkeys([*then, *now]):
        if place not in now:
            problems.append(f"{place}: metrics.json has {_shown(then[place])}, the logs give none")
        elif place not in then:
            problems.append(f"{place}: the logs give {_shown(now[place])}, metrics.json has none")
        elif not same_value(then[place], now[place]):
            problems.append(
                f"{place}: metrics.json has {_shown(then[place])}, the logs give"
                f" {_shown(now[place])}"
            )
    return len(now), problems


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def _metrics(run: Path) -> dict[str, Any]:
    """Return metrics.json. Raises BadFile or OSError."""
    file = run / "metrics.json"
    try:
        written = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(written, dict) or not isinstance(written.get("cells"), dict):
            raise ValueError("no cells in it")
        size = written.setdefault("file_set_bytes", GROUP_BYTES)
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"file_set_bytes is {_shown(size)}; valid: a whole number from 1 on")
    except FileNotFoundError:
        raise BadFile(f"{file}: found nothing; valid: a complete run directory") from None
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{file}: not the metrics of a run: {error}") from None
    return written


def verify(run: Path, progress: Callable[[str], None] | None = None) -> tuple[Checked, ...]:
    """Check a run directory: its cells by name, then the whole. Calls `progress(text)` for each
    step. Raises BadFile or OSError if there is nothing to compare."""
    tell = progress if progress is not None else lambda _: None
    written = _metrics(run)
    names = sorted(p.name for p in (run / "cells").iterdir() if p.is_dir())
    aside = sorted(p for p in (run / "set-aside").glob("*") if p.is_dir())
    wrong_files: dict[str, list[str]] = {}
    for number, name in enumerate(names, start=1):
        tell(f"[{number}/{len(names)}] files of {name}")
        cell = run / "cells" / name
        wrong_files[name] = check_files(cell, digests.cell_files(cell))
    whole = check_files(run, digests.run_files(run))
    for cell in aside:
        found = check_files(cell, digests.cell_files(cell))
        whole += [f"set-aside/{cell.name}: {problem}" for problem in found]
    document: dict[str, Any] | None = None
    try:
        document = _computed(run, written, len(names), tell)
    except (BadFile, OSError) as error:  # a file that was damaged; the digests say more
        text = os_error_text(error) if isinstance(error, OSError) else str(error)
        whole += [f"the logs give no metrics: {line}" for line in text.splitlines()]
    return _checked(run, wrong_files, whole, written, document)


def _computed(
    run: Path, written: Mapping[str, Any], cells: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Compute metrics.json again. Raises BadFile or OSError."""
    count = iter(range(1, cells + 1))
    found = evaluate(
        run,
        written["file_set_bytes"],
        include_invalid=bool(written.get("include_invalid", False)),
        on_cell=lambda name: tell(f"[{next(count)}/{cells}] metrics of {name}"),
    ).document
    document: dict[str, Any] = json.loads(json.dumps(found))
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
        lines += [f"  {problem}" for problem in found.problems[:LISTED]]
        if len(found.problems) > LISTED:
            lines.append(f"  ... and {len(found.problems) - LISTED} more")
    files, values = (sum(getattr(c, n) for c in checked) for n in ("files", "values"))
    wrong = [c.name for c in checked if c.problems]
    text = (
        f"{counted(len(checked) - 1, 'cell')}, {counted(files, 'file')}, {counted(values, 'value')}"
    )
    if wrong:
        lines.append(f"NOT VERIFIED: {text}; problems: {', '.join(wrong)}")
    else:
        lines.append(f"Verified: {text} are unchanged and follow from the logs")
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
