# SPDX-License-Identifier: Apache-2.0
"""Deliveries as Chrome's trace events, which Perfetto draws: a process for each receiver, with a
slice from each product's creation to its arrival. Slices overlap, so they are nestable async
events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from parsers.measure.delivered import NEVER, WAYS, Delivered

CATEGORY: Final = "product"


def _events(found: Delivered) -> Iterator[dict[str, object]]:
    for row, host in enumerate(found.receivers):
        pid = row + 1
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": host}}
        for i, ident in enumerate(found.idents):
            way = int(found.way[row, i])
            if way == NEVER:
                continue
            begin = int(found.created_us[i])
            same = {"cat": CATEGORY, "id": i, "pid": pid, "tid": pid, "name": ident}
            about = {
                "way": WAYS[way],
                "size_bytes": int(found.size[i]),
                "blocks_again": int(found.blocks[row, i]),
            }
            yield {**same, "ph": "b", "ts": begin, "args": about}
            yield {**same, "ph": "e", "ts": begin + int(found.latency_us[row, i])}


def pieces(found: Delivered) -> Iterator[str]:
    """Yield the JSON text of deliveries. Times are microseconds after the first insertion."""
    return lines(_events(found))


def lines(events: Iterable[dict[str, object]]) -> Iterator[str]:
    """Yield the JSON text, one event per line."""
    yield '{"displayTimeUnit":"ms","traceEvents":['
    comma = "\n"
    for event in events:
        yield comma + json.dumps(event, separators=(",", ":"))
        comma = ",\n"
    yield "\n]}\n"
