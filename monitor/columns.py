# SPDX-License-Identifier: Apache-2.0
"""Store times and values of a series as one block of bytes.

The block has the differences between neighbours: the sign is in the lowest bit, and each takes 1,
2, 4 or 8 bytes, the fewest that fit all. All times come first, then all values, compressed by zlib.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.counting import counted

Numbers = NDArray[np.int64]
MAGIC: Final = b"DPB1"
MOST: Final = 1 << 16  # numbers in a block
_HEAD: Final = struct.Struct("<4sBBxxIqq")  # magic, widths, count, first time, first value
_WIDTHS: Final = (1, 2, 4, 8)


class BlockError(Exception):
    """Bytes that are not a block."""


def _narrow(numbers: Numbers) -> tuple[int, bytes]:
    steps = np.diff(numbers)
    folded = ((steps << 1) ^ (steps >> 63)).view(np.uint64)
    most = int(folded.max(initial=0))
    width = next(w for w in _WIDTHS if most < 1 << (8 * w))
    return width, folded.astype(f"<u{width}").tobytes()


def _widen(data: bytes, width: int, first: int, count: int) -> Numbers:
    numbers = np.empty(count, np.int64)
    numbers[0] = first
    folded = np.frombuffer(data, f"<u{width}", count - 1).astype(np.uint64)
    steps = (folded >> np.uint64(1)).astype(np.int64)
    numbers[1:] = np.where(folded & np.uint64(1), ~steps, steps)
    with np.errstate(over="ignore"):
        return np.cumsum(numbers)


def encode(times: Numbers, values: Numbers) -> bytes:
    """Return the block of 1 to MOST points."""
    if not 1 <= len(times) == len(values) <= MOST:
        raise BlockError(
            f"found {counted(len(times), 'time')}, "
            f"{counted(len(values), 'value')}; valid: 1 to {MOST}"
        )
    with np.errstate(over="ignore"):
        (wide_t, t), (wide_v, v) = _narrow(times), _narrow(values)
    head = _HEAD.pack(MAGIC, wide_t, wide_v, len(times), int(times[0]), int(values[0]))
    return head + zlib.compress(t + v, 6)


def decode(block: bytes) -> tuple[Numbers, Numbers]:
    """Return times and values. Raises BlockError."""
    if len(block) < _HEAD.size:
        raise BlockError(f"found {len(block)} bytes; valid: at least {_HEAD.size}")
    magic, wide_t, wide_v, count, time, value = _HEAD.unpack_from(block)
    if magic != MAGIC or wide_t not in _WIDTHS or wide_v not in _WIDTHS or not 1 <= count <= MOST:
        raise BlockError("no block of this version")
    length = (count - 1) * (wide_t + wide_v)
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(block[_HEAD.size :], length + 1)
    except zlib.error as error:
        raise BlockError(str(error)) from None
    if len(data) != length:
        raise BlockError(f"found {len(data)} bytes; valid: {length}")
    cut = (count - 1) * wide_t
    return _widen(data[:cut], wide_t, time, count), _widen(data[cut:], wide_v, value, count)


def lasts(times: Numbers, values: Numbers, step: int) -> tuple[Numbers, Numbers]:
    """Return the numbers of the steps (`times // step`) that have points, and the last value in
    each. Times are in order; there is at least one."""
    steps = times // step
    last = np.flatnonzero(np.diff(steps, append=steps[-1] + 1))
    return steps[last], values[last]


def merge(
    parts: list[tuple[Numbers, Numbers]],
) -> tuple[Numbers, Numbers]:
    """Return the points of all parts in order of time; if times are equal, the first part's."""
    times = np.concatenate([part[0] for part in parts])
    values = np.concatenate([part[1] for part in parts])
    found, first = np.unique(times, return_index=True)
    return found, values[first]
