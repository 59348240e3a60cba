# SPDX-License-Identifier: Apache-2.0
"""A recording as requests of Prometheus' remote write 1.0 (protobuf in Snappy's block format),
which Prometheus, VictoriaMetrics and others take.

A server may refuse samples older than its newest, so requests are in order of time, not by series.
The body is not compressed: Snappy's format allows a body of literals only.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from monitor.openmetrics import metric_name, repeated, sampled_us
from monitor.recording import GONE, Recording, Series

PATH: Final = "/api/v1/write"
HEADERS: Final = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}
WINDOW_US: Final = 60_000_000
MOST_SAMPLES: Final = 20_000  # of a request
STALE: Final = struct.pack("<Q", 0x7FF0000000000002)  # Prometheus' "is no longer there"
_LITERAL: Final = 1 << 16
_BYTES, _VARINT, _FIXED64 = 2, 0, 1  # protobuf's wire types


def varint(number: int) -> bytes:
    """Return a whole number in the encoding of protobuf and Snappy."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | _BYTES) + varint(len(data)) + data


def snappy(data: bytes) -> bytes:
    """Return `data` in Snappy's block format, as literals."""
    parts = [varint(len(data))]
    for at in range(0, len(data), _LITERAL):
        piece = data[at : at + _LITERAL]
        parts += [b"\xf4", struct.pack("<H", len(piece) - 1), piece]
    return b"".join(parts)


def _labels(series: Series, run: str) -> bytes:
    labels = {**dict(series.labels), "__name__": metric_name(series), "run": run}
    pairs = [_field(1, k.encode()) + _field(2, v.encode()) for k, v in sorted(labels.items()) if v]
    return b"".join(_field(1, pair) for pair in pairs)


def _sample(time_us: int, value: int, decimals: int) -> bytes:
    bits = STALE if value == GONE else struct.pack("<d", value / 10**decimals)
    return _field(
        2, varint(1 << 3 | _FIXED64) + bits + varint(2 << 3 | _VARINT) + varint(time_us // 1000)
    )


def _by_window(recording: Recording) -> dict[int, dict[Series, list[tuple[int, int]]]]:
    sampled = sampled_us(recording)
    windows: dict[int, dict[Series, list[tuple[int, int]]]] = {}
    for series, points in recording.points.items():
        gone = [(t, v) for t, v in points if v == GONE]
        for time_us, value in sorted([*repeated(points, sampled), *gone]):
            window = windows.setdefault(time_us // WINDOW_US, {})
            window.setdefault(series, []).append((time_us, value))
    return windows


def requests(recording: Recording, run: str) -> Iterator[bytes]:
    """Yield the bodies of requests. `run`: a label of every series."""
    for _, window in sorted(_by_window(recording).items()):
        body: list[bytes] = []
        count = 0
        for series, samples in window.items():
            data = b"".join(_sample(t, v, series.decimals) for t, v in samples)
            body.append(_field(1, _labels(series, run) + data))
            count += len(samples)
            if count >= MOST_SAMPLES:
                yield snappy(b"".join(body))
                body, count = [], 0
        if body:
            yield snappy(b"".join(body))
