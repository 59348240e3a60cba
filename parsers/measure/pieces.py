# SPDX-License-Identifier: Apache-2.0
"""Compute a cell's metrics in pieces of equal length, by the files' creation times, for intervals
within a run and for curves over its length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from parsers.base.moving_block import OverTime
from parsers.base.times import MICROSECONDS
from parsers.measure.deliveries import Arrival, Receiver, Sent
from parsers.measure.set_throughput import FileSetMetrics, counts
from parsers.read.cell_files import Cell
from parsers.read.ldm_log import Product

MOST_PIECES = 360  # of a run; 10 s each in an hour
LEAST_PIECE_S = 1.0
LONG_ENOUGH_S = 300.0  # shorter runs do not sample a stream with bursts of minutes

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Pieces:
    """Metrics over time, by name: the cell's in `whole`, each subscriber's in `at`. `piece_s`: the
    length of a piece; 0 if there are none."""

    piece_s: float = 0.0
    whole: Mapping[str, OverTime] = field(default_factory=dict)
    at: Mapping[str, Mapping[str, OverTime]] = field(default_factory=dict)


def piece_seconds(duration_s: float) -> float:
    """Return the length of a run's pieces."""
    return max(LEAST_PIECE_S, math.ceil(duration_s / MOST_PIECES))


def pieces_of(cell: Cell, sent: Sent, receivers: Mapping[str, Receiver]) -> Pieces:
    """Return throughput, FFDR, latency and FMTP's throughput in pieces. Return nothing if the list
    of sent files or a receiver's log is missing."""
    piece_s = piece_seconds(cell.duration_s)
    count = math.ceil(cell.duration_s / piece_s)
    if not sent.order or len(receivers) < cell.m or count < 2:
        return Pieces()
    place = {
        product: min(
            max(0, int((product.created_us / MICROSECONDS - cell.insertion_started) / piece_s)),
            count - 1,
        )
        for product in sent.order
    }
    per_piece = np.bincount(list(place.values()), minlength=count).astype(np.float64)
    long_enough = cell.duration_s >= LONG_ENOUGH_S
    columns = {
        host: _columns(cell.protocol_of(host), receiver, place, count, per_piece)
        for host, receiver in receivers.items()
    }

    def joined(name: str) -> OverTime | None:
        found = [c[name] for c in columns.values() if name in c]
        if not found:
            return None
        top, bottom = (np.column_stack(list(x)) for x in zip(*found, strict=True))
        if name in POOLED:
            top, bottom = top.sum(axis=1, keepdims=True), bottom.sum(axis=1, keepdims=True)
        return OverTime(top, bottom, long_enough)

    whole = {name: data for name in NAMES if (data := joined(name)) is not None}
    at = {
        host: {n: OverTime(a[:, None], b[:, None], long_enough) for n, (a, b) in found.items()}
        for host, found in columns.items()
    }
    return Pieces(piece_s, whole, at)


NAMES = ("throughput", "ffdr", "latency_mean", "throughput_fmtp")
POOLED = ("latency_mean",)  # over all receivers' arrivals together, as the cell's


def _columns(
    protocol: str,
    receiver: Receiver,
    place: Mapping[Product, int],
    count: int,
    per_piece: Floats,
) -> dict[str, tuple[Floats, Floats]]:
    """Return (top, bottom) for one receiver's metrics."""
    # Sums must not depend on the order of the log's lines.
    known = sorted(
        ((place[p], p, a) for p, a in receiver.arrivals.items() if p in place),
        key=lambda item: item[:2],
    )
    counted = [item for item in known if counts(protocol, item[2])]

    def total(items: Sequence[tuple[int, Product, Arrival]], weights: Sequence[float]) -> Floats:
        at = [position for position, _, _ in items]
        return np.bincount(at, weights=weights, minlength=count).astype(np.float64)

    found = {
        "throughput": (
            total(counted, [8.0 * p.size_bytes for _, p, _ in counted]),
            total(counted, [a.latency_s(p) for _, p, a in counted]),
        ),
        "latency_mean": (
            total(known, [a.latency_s(p) for _, p, a in known]),
            total(known, [1.0] * len(known)),
        ),
    }
    if protocol == "ldm7":
        timed = [item for item in counted if item[2].delay_s is not None]
        found["ffdr"] = (100.0 * total(counted, [1.0] * len(counted)), per_piece)
        found["throughput_fmtp"] = (
            total(timed, [8.0 * p.size_bytes for _, p, _ in timed]),
            total(timed, [a.delay_s or 0.0 for _, _, a in timed]),
        )
    return found


def of_file_sets(sets: Sequence[FileSetMetrics]) -> OverTime | None:
    """Return the throughputs of a run's file-sets, in order of time; None if one is undefined."""
    values = [s.throughput.value for s in sets if s.throughput.value is not None]
    if not values or len(values) < len(sets):
        return None
    top = np.array(values)[:, None]
    return OverTime(top, np.ones_like(top))
