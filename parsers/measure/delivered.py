# SPDX-License-Identifier: Apache-2.0
"""Store every delivery of a cell in one block of bytes, deliveries.bin, which numpy and a browser
can read.

    DPDELIV1, u32 length of the header, the header (JSON), then zlib of the columns

The header names receivers and columns. A column has a whole number for each product, or for each
receiver and product: the sign is in the lowest bit, and the bytes are in planes (all lowest bytes
first). Numbers are little-endian. FMTP's delay (BOP to completion) is arrival - creation - `wait` -
`rest`. `wait` is the same for all receivers of a product, so `rest` is small and packs well.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from parsers.base.times import MICROSECONDS
from parsers.measure.deliveries import Arrival, Receiver, Sent
from parsers.measure.metrics import FmtpSums

Numbers = NDArray[np.int64]
MAGIC: Final = b"DPDELIV1"
VERSION: Final = 1
MOST_PRODUCTS: Final = 1 << 22
MOST_RECEIVERS: Final = 1 << 12
MOST_BODY: Final = 1 << 30
NEVER: Final = 0
MULTICAST, REPAIRED, BACKSTOP, BACKLOG, LDM6, FILE = range(1, 7)
WAYS: Final = ("never", "multicast", "FMTP repaired", "backstop", "backlog", "LDM6", "file")
_BY_HOW: Final = {"backstop": BACKSTOP, "backlog": BACKLOG, "ldm6": LDM6, "file": FILE}
_OF_PRODUCTS: Final = ("created", "size", "wait")
_OF_RECEIVERS: Final = ("way", "latency", "rest", "blocks")


class DeliveredError(Exception):
    """Bytes that are not a deliveries.bin. The message has one line."""


@dataclass(frozen=True)
class Delivered:
    """N products in the order of sending, M receivers. Times in µs."""

    begin_us: int  # the first insertion, since 1970
    receivers: tuple[str, ...]
    idents: tuple[str, ...]
    created_us: Numbers  # N, since begin_us
    size: Numbers  # N, bytes
    way: Numbers  # M x N: WAYS
    latency_us: Numbers  # M x N: arrival - creation; 0 if it never arrived
    delay_us: Numbers  # M x N: FMTP's; 0 if FMTP did not deliver it
    blocks: Numbers  # M x N: retransmitted

    @property
    def shape(self) -> tuple[int, int]:
        """Return (M, N)."""
        return len(self.receivers), len(self.idents)


def _way(arrival: Arrival) -> int:
    if arrival.how == "fmtp":
        return MULTICAST if arrival.retrans == 0 else REPAIRED
    return _BY_HOW[arrival.how]


def delivered_of(begin_s: float, sent: Sent, receivers: Mapping[str, Receiver]) -> Delivered:
    """Return which receiver got which product when. Products of unknown order come last."""
    order = dict.fromkeys(sent.order)
    others = {p for r in receivers.values() for p in r.arrivals if p not in order}
    products = [*order, *sorted(others, key=attrgetter("created_us", "ident"))]
    begin_us = round(begin_s * MICROSECONDS)
    shape = (len(receivers), len(products))
    columns = {name: np.zeros(shape, np.int64) for name in ("way", "latency", "delay", "blocks")}
    for row, receiver in enumerate(receivers.values()):
        for at, product in enumerate(products):
            if (arrival := receiver.arrivals.get(product)) is None:
                continue
            columns["way"][row, at] = _way(arrival)
            columns["latency"][row, at] = arrival.time_us - product.created_us
            columns["blocks"][row, at] = arrival.retrans
            if arrival.delay_s is not None:
                columns["delay"][row, at] = round(arrival.delay_s * MICROSECONDS)
    return Delivered(
        begin_us,
        tuple(receivers),
        tuple(p.ident for p in products),
        np.array([p.created_us - begin_us for p in products], np.int64),
        np.array([p.size_bytes for p in products], np.int64),
        columns["way"],
        columns["latency"],
        columns["delay"],
        columns["blocks"],
    )


# -- the block -------------------------------------------------------------------------------------
def _planes(numbers: Numbers) -> tuple[int, bytes]:
    folded = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64).reshape(-1)
    width = max(1, (int(folded.max(initial=0)).bit_length() + 7) // 8)
    octets = folded.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :width]
    return width, np.ascontiguousarray(octets.T).tobytes()


def _numbers(data: bytes, width: int, count: int) -> Numbers:
    planes = np.frombuffer(data, np.uint8).reshape(width, count)
    octets = np.zeros((count, 8), np.uint8)
    octets[:, :width] = planes.T
    folded = octets.reshape(-1).view("<u8").astype(np.uint64)
    signs = -((folded & np.uint64(1)).astype(np.int64))
    return (folded >> np.uint64(1)).astype(np.int64) ^ signs


def _fmtp(way: Numbers) -> NDArray[np.bool_]:
    return np.isin(way, (MULTICAST, REPAIRED))


def encode(found: Delivered, level: int = 6) -> bytes:
    """Return the bytes of a deliveries.bin. `level`: zlib's."""
    m, n = found.shape
    fmtp = _fmtp(found.way)
    over = np.where(fmtp, found.latency_us - found.delay_us, np.iinfo(np.int64).max)
    wait = over.min(axis=0, initial=np.iinfo(np.int64).max) if m else np.zeros(n, np.int64)
    wait = np.where(fmtp.any(axis=0), wait, 0) if m else wait
    rest = np.where(fmtp, found.latency_us - found.delay_us - wait, 0)
    created = np.diff(found.created_us, prepend=np.int64(0))
    body, widths = [], []
    for numbers in (created, found.size, wait, found.way, found.latency_us, rest, found.blocks):
        width, data = _planes(numbers)
        widths.append(width)
        body.append(data)
    idents = "\n".join(i.replace("\n", " ") for i in found.idents).encode()
    header = {
        "version": VERSION,
        "products": n,
        "receivers": list(found.receivers),
        "begin_us": found.begin_us,
        "columns": dict(zip((*_OF_PRODUCTS, *_OF_RECEIVERS), widths, strict=True)),
        "idents_bytes": len(idents),
        "ways": list(WAYS),
    }
    head = json.dumps(header, separators=(",", ":")).encode()
    packed = zlib.compress(b"".join(body) + idents, level)
    return MAGIC + struct.pack("<I", len(head)) + head + packed


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    if len(data) < 12 or data[:8] != MAGIC:
        raise DeliveredError(f"found {data[:8]!r}; valid: {MAGIC!r}, deliveries of version 1")
    (length,) = struct.unpack_from("<I", data, 8)
    try:
        header = json.loads(data[12 : 12 + length])
    except (ValueError, RecursionError):
        raise DeliveredError("found a header that is not JSON") from None
    if not isinstance(header, dict) or header.get("version") != VERSION:
        raise DeliveredError(f"found a header of another version; valid: version {VERSION}")
    return header, 12 + length


def _whole(header: dict[str, Any], name: str, most: int, least: int = 0) -> int:
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise DeliveredError(f"{name}: found {value!r}; valid: {least} to {most}")
    return value


def decode(data: bytes) -> Delivered:
    """Read the bytes of a deliveries.bin. Raises DeliveredError."""
    header, at = _header(data)
    n = _whole(header, "products", MOST_PRODUCTS)
    receivers, columns = header.get("receivers"), header.get("columns")
    if not isinstance(receivers, list) or len(receivers) > MOST_RECEIVERS:
        raise DeliveredError(f"receivers: valid: a list of at most {MOST_RECEIVERS} names")
    if not all(isinstance(name, str) for name in receivers) or not isinstance(columns, dict):
        raise DeliveredError("found receivers or columns without names")
    m = len(receivers)
    counts = dict.fromkeys(_OF_PRODUCTS, n) | dict.fromkeys(_OF_RECEIVERS, n * m)
    widths = {name: _whole(columns, name, 8, 1) for name in counts}
    idents_bytes = _whole(header, "idents_bytes", MOST_BODY)
    length = sum(widths[name] * counts[name] for name in counts) + idents_bytes
    begin_us = _whole(header, "begin_us", 2**62, -(2**62))
    if length > MOST_BODY:
        raise DeliveredError(f"found {length} bytes; valid: at most {MOST_BODY}")
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(data[at:], length + 1)
    except zlib.error as error:
        raise DeliveredError(str(error)) from None
    if len(body) != length or not unpacker.eof:
        raise DeliveredError(f"found {len(body)} bytes of columns; valid: {length}")
    found, place = {}, 0
    for name, count in counts.items():
        end = place + widths[name] * count
        found[name], place = _numbers(body[place:end], widths[name], count), end
    idents = body[place:].decode(errors="replace").split("\n") if n else []
    if len(idents) != n:
        raise DeliveredError(f"found {len(idents)} identifiers; valid: {n}")
    way, latency, rest, blocks = (found[name].reshape(m, n) for name in _OF_RECEIVERS)
    if way.size and not 0 <= int(way.min()) <= int(way.max()) < len(WAYS):
        raise DeliveredError("found an unknown way")
    delay = np.where(_fmtp(way), latency - found["wait"] - rest, 0)
    created = np.cumsum(found["created"])
    return Delivered(
        begin_us,
        tuple(receivers),
        tuple(idents),
        created,
        found["size"],
        way,
        latency,
        delay,
        blocks,
    )


# -- minutes ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class MinuteSums:
    """What one receiver received in one minute. `minute`: its first second, since 1970."""

    host: str
    minute: int
    sums: FmtpSums


def _sums(found: Delivered, row: int, chosen: NDArray[np.bool_]) -> FmtpSums:
    way = found.way[row]
    fmtp, alone = chosen & _fmtp(way), chosen & (way == MULTICAST)
    every = fmtp | (chosen & (way == BACKSTOP))

    def total(numbers: Numbers, where: NDArray[np.bool_]) -> int:
        return int(numbers[where].sum())

    return FmtpSums(
        int(every.sum()),
        total(found.size, every),
        int(fmtp.sum()),
        total(found.size, fmtp),
        int(alone.sum()),
        total(found.size, alone),
        total(found.delay_us[row], fmtp),
        total(found.delay_us[row], alone),
        total(found.blocks[row], fmtp),
    )


def minutes(found: Delivered, length_s: int = 60) -> Iterator[MinuteSums]:
    """Yield each receiver's minutes in which something arrived, by time of arrival."""
    for row, host in enumerate(found.receivers):
        there = found.way[row] != NEVER
        arrived_us = found.begin_us + found.created_us + found.latency_us[row]
        minute = arrived_us // (length_s * MICROSECONDS)
        for number in np.unique(minute[there]):
            sums = _sums(found, row, there & (minute == number))
            yield MinuteSums(host, int(number) * length_s, sums)


def totals(found: Delivered) -> dict[str, FmtpSums]:
    """Return each receiver's sums over all time."""
    return {
        host: _sums(found, row, found.way[row] != NEVER) for row, host in enumerate(found.receivers)
    }
