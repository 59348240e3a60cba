# SPDX-License-Identifier: Apache-2.0
"""Return the verdict of a cell of any kind, and the worst of several."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from common.contracts import UNKNOWN, WORST_FIRST
from parsers.read.cell_files import Verdict


class Judged(Protocol):
    """A cell's metrics; `verdict` is None without a verdict.json."""

    @property
    def verdict(self) -> Verdict | None: ...


def verdict_of(cell: Judged) -> str:
    """Return faithful, degraded, invalid, or unknown."""
    return cell.verdict.verdict if cell.verdict is not None else UNKNOWN


def worst_verdict(cells: Iterable[Judged]) -> str:
    """Return the worst verdict of the cells; unknown if there are none."""
    found = {verdict_of(cell) for cell in cells}
    return next((word for word in WORST_FIRST if word in found), UNKNOWN)
