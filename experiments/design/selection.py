# SPDX-License-Identifier: Apache-2.0
"""Select an experiment's cells to run, and their order. Pure."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Final, Literal, TypeVar

from experiments.design.expansion import CellSpec
from experiments.design.spec import UsageError
from parsers.base.factors import FACTORS, Scalar, same

Order = Literal["random", "file"]
ORDERS: Final[tuple[Order, ...]] = ("random", "file")
REPEAT: Final = "repeat"  # counted from 1 here, as in names of cells
_LEVELS = re.compile(r"([a-z_]+)=(.*)")

T = TypeVar("T")
C = TypeVar("C", bound=CellSpec)


def select(cells: Sequence[C], expressions: Sequence[str]) -> list[C]:
    """Return the cells that meet every expression of --only: FACTOR=LEVEL[,LEVEL...],
    repeat=N[,N...], or a regular expression that is found in the cell's name. Raises UsageError."""
    found = list(cells)
    for expression in expressions:
        names = _matching(cells, expression)
        kept = [cell for cell in found if cell.cell in names]
        if not kept:
            others = ", ".join(cell.cell for cell in found[:8])
            more = f" and {len(found) - 8} more" if len(found) > 8 else ""
            raise UsageError(
                f"--only: found '{expression}', which no cell matches; valid: one that some of "
                f"{others}{more} meet"
            )
        found = kept
    return found


def _matching(cells: Sequence[CellSpec], expression: str) -> set[str]:
    if match := _LEVELS.fullmatch(expression):
        name, text = match[1], match[2]
        known = _levels(cells, name)
        wanted = [_read(name, part.strip(), known, expression) for part in text.split(",")]
        return {
            cell.cell
            for cell in cells
            if (level := _level(cell, name)) is not None and any(same(level, w) for w in wanted)
        }
    try:
        pattern = re.compile(expression)
    except re.error as error:
        raise UsageError(
            f"--only: found '{expression}' ({error}); valid: FACTOR=LEVEL, or a regular expression "
            "for names of cells"
        ) from None
    return {cell.cell for cell in cells if pattern.search(cell.cell)}


def _level(cell: CellSpec, name: str) -> Scalar | None:
    return cell.repeat + 1 if name == REPEAT else cell.factors.get(name)


def _levels(cells: Sequence[CellSpec], name: str) -> list[Scalar]:
    """Return all levels of a factor among the cells."""
    known = list(dict.fromkeys(v for c in cells if (v := _level(c, name)) is not None))
    if not known:
        names = [*dict.fromkeys(n for cell in cells for n in cell.factors), REPEAT]
        raise UsageError(f"--only: found '{name}='; valid: {', '.join(names)}")
    return known


def _read(name: str, text: str, known: Sequence[Scalar], expression: str) -> Scalar:
    """Return a level from its text in an experiment file; it must be a known one."""
    level: Scalar | None = None
    value: object = text
    try:
        value = int(text) if text.isascii() else text
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            value = text
    try:
        if name in FACTORS:
            level = FACTORS[name].read(value)
        elif isinstance(value, (int, float)):
            level = value
    except ValueError:
        level = None
    if level is None or not any(same(level, k) for k in known):
        shown = ", ".join(k if isinstance(k, str) else f"{k:.10g}" for k in known)
        raise UsageError(f"--only: found '{text}' in '{expression}'; valid: {name}={shown}")
    return level


def ordered(items: Sequence[T], order: Order, seed: int) -> list[T]:
    """Return the cells in the order to run. With `random`, drifts during a sweep (a machine that
    warms up, another user of it) do not coincide with a factor. The same seed gives the same
    order."""
    found = list(items)
    if order == "random":
        random.Random(f"downpour order of cells {seed}").shuffle(found)
    return found
