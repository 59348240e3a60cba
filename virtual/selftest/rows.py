# SPDX-License-Identifier: Apache-2.0
"""A row of the self-test: theory, what was measured, and whether that is close enough."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

WIDTHS: Final = (47, 9, 16, 16, 14, 24, 4)
HEADINGS: Final = ("test", "unit", "theory", "measured", "difference", "tolerance", "ok")


@dataclass(frozen=True)
class Row:
    """`theory` and `measured` in `unit`. Values in [theory - below, theory + above] are right;
    `reason` says where the tolerance comes from. `measured` is None exactly if `missing` says
    why."""

    test: str
    unit: str
    theory: float
    measured: float | None
    below: float
    above: float
    reason: str
    missing: str = ""

    @property
    def difference(self) -> float | None:
        """Return measured less expected."""
        return None if self.measured is None else self.measured - self.theory

    @property
    def ok(self) -> bool:
        """Return whether it passed; a test that could not be made has not passed."""
        difference = self.difference
        return difference is not None and -self.below <= difference <= self.above


def to_line(row: Row) -> str:
    """Return one line of JSON, which `from_line` reads."""
    return json.dumps(asdict(row), sort_keys=True)


def from_line(line: str) -> Row:
    """Return the row in a line. Raises ValueError for a line that `to_line` did not write."""
    try:
        found = json.loads(line)
        row = Row(**found)
    except (json.JSONDecodeError, TypeError) as error:
        raise ValueError(f"found '{line}'; valid: a row of the self-test ({error})") from None
    numbers = (row.theory, row.below, row.above, 0.0 if row.measured is None else row.measured)
    if not all(isinstance(n, int | float) for n in numbers):
        raise ValueError(f"found '{line}'; valid: numbers")
    if (row.measured is None) != bool(row.missing):
        raise ValueError(f"found '{line}'; valid: either a measured value or why there is none")
    return row


def number(value: float) -> str:
    """Return at most six decimals, without trailing zeros: '10.050304', '2519', '-0.0005'."""
    text = f"{value:.6f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _columns(cells: tuple[str, ...]) -> str:
    parts = [cells[0].ljust(WIDTHS[0]), cells[1].ljust(WIDTHS[1])]
    parts += [c.rjust(w) for c, w in zip(cells[2:6], WIDTHS[2:6], strict=True)]
    return "  ".join([*parts, *cells[6:]]).rstrip()


def heading() -> str:
    """Return the first line of the table."""
    return _columns(HEADINGS) + "\n" + _columns(tuple("-" * w for w in WIDTHS))


def table_line(row: Row, *, judged: bool, letter: str) -> str:
    """Return one line of the table; `letter` stands for the reason of the tolerance."""
    if row.measured is None or row.difference is None:
        verdict = "OFF" if judged else ""
        cells = (row.test, row.unit, number(row.theory), "-", "-", "-", verdict)
        return f"{_columns(cells)}  not measured: {row.missing}"
    tolerance = f"-{number(row.below)} +{number(row.above)} {letter}"
    verdict = ("yes" if row.ok else "OFF") if judged else ""
    return _columns(
        (
            row.test,
            row.unit,
            number(row.theory),
            number(row.measured),
            number(row.difference),
            tolerance,
            verdict,
        )
    )


class Reasons:
    """Letters for reasons, in the order of their first use."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}

    def letter(self, reason: str) -> str:
        """Return the letter of a reason, a new one at its first use."""
        return self._letters.setdefault(reason, _letter(len(self._letters)))

    def legend(self) -> list[str]:
        """Return a line for each letter."""
        return [f"{letter}: {reason}" for reason, letter in self._letters.items()]


def _letter(index: int) -> str:
    first, last = divmod(index, 26)
    return ("" if first == 0 else chr(ord("a") + first - 1)) + chr(ord("a") + last)


def document(rows: list[Row], *, clock: str, facts: Mapping[str, object]) -> dict[str, Any]:
    """Return what `--json` writes. Natively nothing is judged: `ok` is null."""
    judged = clock == "virtual"
    return {
        "clock": clock,
        **facts,
        "ok": all(row.ok for row in rows) if judged else None,
        "rows": [
            {**asdict(row), "difference": row.difference, "ok": row.ok if judged else None}
            for row in rows
        ],
    }
