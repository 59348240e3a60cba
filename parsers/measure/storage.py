# SPDX-License-Identifier: Apache-2.0
"""Compute what the storage schemes of MSR-TR-99-14 cost a carousel's receivers: disk and memory,
measured and by the report's formulas."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from parsers.base.metric_units import Value, absent
from parsers.read.fcast_log import CarouselReceiver, DiskUse

NAMES: Final = ("disk_rate", "disk_seeks", "scheme_memory", "scheme_formula", "rss")
LEAST_WRITE_S: Final = 0.01  # below this, the time in writes says nothing about the disk
_UNITS: Final = {"disk_rate": "bit/s", "disk_seeks": ""}


def pool_blocks(blocks: int, k: int, b: int) -> int:
    """Return the memory of Crowd-Pool, in blocks, for a file of that many blocks: of the two
    numbers of groups around the crossing of S/c and b c + b - c + 1, take the one that needs less
    (6)."""
    if b == 1:
        crowds = blocks / 2
    else:
        crowds = (math.sqrt((b + 1) ** 2 + 4 * (b - 1) * blocks) - (b + 1)) / (2 * (b - 1))
    groups = blocks / (max(crowds, 1.0) * k)

    def memory(g: int) -> int:
        c = math.ceil(blocks / (g * k))
        return max(g * k, b * c - c + b + 1)

    return min(memory(max(1, math.floor(groups))), memory(max(1, math.ceil(groups))))


def scheme_blocks(storage: str, blocks: int, k: int, b: int) -> int | None:
    """Return the memory that Table 1 of the report gives a scheme, in blocks; None if it has
    none."""
    table = {
        "memory": blocks,
        "receive-order": 1,
        "group-area": 1,
        "crowd-bucket": k * b,
        "crowd-pool": pool_blocks(blocks, k, b),
    }
    return table.get(storage)


def storage_values(
    parameters: Mapping[str, object], receivers: Sequence[CarouselReceiver], blocks: int
) -> dict[str, Value]:
    """Return disk activity while symbols arrived, and memory: means over the receivers that have
    the file of that many blocks."""
    uses = [r.disk for r in receivers if r.disk is not None]
    if not uses:
        return {n: absent(_UNITS.get(n, "B"), "the logs do not say") for n in NAMES}
    scheme = str(parameters.get("storage", "in-place"))
    return {
        "disk_rate": _rate(uses, blocks * int(str(parameters.get("symbol_bytes") or 1024))),
        "disk_seeks": Value(statistics.fmean(u.seeks for u in uses) / blocks, ""),
        "scheme_memory": (
            absent("B", "in place, no scheme keeps symbols in memory")
            if scheme == "in-place"
            else Value(statistics.fmean(u.memory_bytes for u in uses), "B")
        ),
        "scheme_formula": _formula(parameters, scheme, blocks),
        "rss": Value(statistics.fmean(u.rss_bytes for u in uses), "B"),
    }


def _rate(uses: Sequence[DiskUse], file_bytes: int) -> Value:
    if min(u.write_s for u in uses) < LEAST_WRITE_S:
        return absent("bit/s", f"less than {LEAST_WRITE_S} s in writes")
    rate = statistics.fmean(8 * file_bytes / u.write_s for u in uses)
    return Value(rate, "bit/s", note="the file over the time in writes")


def _formula(parameters: Mapping[str, object], scheme: str, blocks: int) -> Value:
    k = int(str(parameters.get("k") or 200))
    found = scheme_blocks(scheme, blocks, k, int(str(parameters.get("crowd") or 4)))
    if found is None:
        return absent("B", "the report has no such scheme")
    return Value(float(found * int(str(parameters.get("symbol_bytes") or 1024))), "B")
