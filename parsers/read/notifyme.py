# SPDX-License-Identifier: Apache-2.0
"""Parse logs of `notifyme` (Downpour's, and LDM's in any version) into the products that a server
announced.

A line has a time, `notifyme[pid]`, possibly the place in the source and the level, and the product:
`size YYYYMMDDhhmmss.mmm FEED seqno  ident`. A signature before it (debug output) is skipped. Other
lines (about the connection) are counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from parsers.base.problems import (
    Lines,
    Problem,
    complete_lines,
    problem,
)
from parsers.base.times import utc_microseconds
from parsers.read.ldm_log import Product

_LINE = re.compile(r"(\d{8})T(\d{6})(?:\.(\d{1,6}))?Z?\s+\S*notifyme\S*\[\d+\]:?\s+(.*)", re.ASCII)
_PRODUCT = re.compile(
    r"(?:.*\s)?(?P<size>\d+)\s+(?P<when>\d{14})(?:\.(?P<fraction>\d{1,6}))?\s+(?P<feed>\S+)"
    r"\s+(?P<seqno>\d{3,}) {1,2}(?P<ident>\S.*)",
    re.ASCII,
)
_ANNOUNCES = re.compile(r"(?:\S+\s+){0,3}\d+\s+\d{8,}\S*\s", re.ASCII)
FIRST_LINE = re.compile(r"\d{8}T\d{6}(?:\.\d+)?Z?\s+\S*notifyme\S*\[\d+\]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Notification:
    """The server announced the product at `time_us` (microseconds since 1970, UTC)."""

    time_us: int
    product: Product


@dataclass(frozen=True, slots=True)
class NotifymeLog:
    file: str
    notifications: tuple[Notification, ...]
    problems: tuple[Problem, ...]
    other_lines: int


def parse_notifyme(text: Lines, file: str) -> NotifymeLog:
    """Parse a log. Never raises."""
    found: list[Notification] = []
    problems: list[Problem] = []
    other = 0
    for number, raw in complete_lines(text, file, problems):
        if not raw.strip():
            continue
        line = _LINE.fullmatch(raw)
        if line is None:
            expected = "expected YYYYMMDDThhmmss.ffffffZ notifyme[pid] ... PRODUCT"
            problems.append(problem(file, number, raw, expected))
            continue
        product = _PRODUCT.fullmatch(line[4])
        try:
            if product is not None:
                time_us = utc_microseconds(line[1] + line[2], line[3] or "0")
                found.append(Notification(time_us, _product(product)))
            elif _ANNOUNCES.match(line[4]):
                raise ValueError("expected SIZE YYYYMMDDhhmmss.uuuuuu FEED SEQNO  IDENT")
            else:
                other += 1
        except ValueError as error:
            problems.append(problem(file, number, raw, str(error)))
    return NotifymeLog(file, tuple(found), tuple(problems), other)


def _product(found: re.Match[str]) -> Product:
    created = utc_microseconds(found["when"], found["fraction"] or "0")
    ident = found["ident"].rstrip()
    return Product(int(found["size"]), created, found["feed"], int(found["seqno"]), ident)
