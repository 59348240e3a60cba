# SPDX-License-Identifier: Apache-2.0
"""Minute records as a table: a row for each host and feed, or for each interval of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from monitor.minute_tables import Interval
from monitor.records import FeedPath
from parsers.base.metric_units import METRICS, Value
from parsers.measure.metrics import of_sums

ACTIVE_S: Final = 600  # DRFSM21 5.2: green, yellow, red
QUIET_S: Final = 3600
_VALUES: Final = (
    ("throughput_fmtp", "FMTP"),
    ("throughput_mc", "no retx"),
    ("throughput_retx", "with retx"),
    ("ffdr_count", "FFDR"),
    ("ffdr_size", "by size"),
    ("mplr", "MPLR"),
)


def state(last: int, now: int) -> str:
    """Return the word for a host's state, by its newest minute."""
    age = now - last
    return "active" if age < ACTIVE_S else "quiet" if age < QUIET_S else "unavailable"


def _shown(name: str, value: Value) -> str:
    return "n/a" if value.value is None else METRICS[name].show(value.value)


def _row(found: Interval, now: int, *, with_time: bool) -> list[str]:
    measured = of_sums(found.sums)
    cells = [found.host, found.feed]
    if with_time:
        cells.append(time.strftime("%Y-%m-%d %H:%M", time.gmtime(found.begin)))
    else:
        cells.append(state(found.last, now))
    cells += [str(found.sums.files_all), str(found.sums.blocks) if found.whole else "n/a"]
    for name, _ in _VALUES:
        of_v2 = name not in ("ffdr_count", "ffdr_size")
        cells.append("n/a" if of_v2 and not found.whole else _shown(name, getattr(measured, name)))
    return cells


def _path_row(found: FeedPath, now: int, *, with_time: bool) -> list[str]:
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(found.minute))
    return [
        *(found.host, found.feed, when if with_time else state(found.minute, now)),
        *(found.path, f"{found.rate_bps / 1e6:.6g} Mbit/s", str(found.leaves)),
    ]


def table(found: Sequence[Interval], paths: Sequence[FeedPath], *, with_time: bool) -> str:
    """Return lines of text: the hosts, then the publishers' paths. Hosts' states are relative to
    the newest minute of all."""
    newest = [interval.last for interval in found] + [path.minute for path in paths]
    now = max(newest, default=0) + 60
    place = ["host", "feed", "minute" if with_time else "state"]
    rows = [[*place, "files", "blocks again", *(title for _, title in _VALUES)]]
    rows += [_row(interval, now, with_time=with_time) for interval in found]
    text = _aligned(rows)
    if paths:
        rows = [["publisher", *place[1:], "path", "rate", "leaves"]]
        rows += [_path_row(path, now, with_time=with_time) for path in paths]
        text += "\n" + _aligned(rows)
    return text


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            c.ljust(w) if i < 3 else c.rjust(w)
            for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)
