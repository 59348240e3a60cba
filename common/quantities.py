# SPDX-License-Identifier: Apache-2.0
"""Quantities with units in topology files: `20Mbps`, `12MB`, `1%`. Anything else is refused.

Prefixes of rates and of kB, MB, GB are decimal (1 Mbps = 1 000 000 bit/s, 1 MB = 1 000 000 bytes),
as is usual for links and in the papers. KiB, MiB, GiB are powers of 1024.
"""

from __future__ import annotations

import re
from decimal import Decimal

RATE_VALID = (
    "a rate above 0: bits per second, or a number with bps, kbps, Mbps or Gbps, e.g. 20Mbps"
)
SIZE_VALID = "a size above 0: bytes, or a number with B, kB, MB, GB, KiB, MiB or GiB, e.g. 600MB"
LOSS_VALID = "a probability from 0 to 1, or a percentage, e.g. 0.01 or 1%"
DELAY_VALID = "milliseconds, 0 or more, e.g. 18 or 20.5"
TIME_VALID = "a time above 0: a number with s, min or h, e.g. 2h"

_RATE_UNITS = {"bps": 1, "kbps": 10**3, "Mbps": 10**6, "Gbps": 10**9}
_SIZE_UNITS = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z]+)", re.ASCII)
_PERCENTAGE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,9})?) ?%", re.ASCII)
_TIME = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) ?(s|min|h)", re.ASCII)
_TIME_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
MAX_QUANTITY = 10**15
MAX_DELAY_MS = 60_000
MOST_PORT = 65_535


def parse_rate_bps(value: object) -> int:
    """Return bits per second. Raises ValueError, which says what is valid."""
    return _parse_quantity(value, _RATE_UNITS, RATE_VALID)


def parse_size_bytes(value: object) -> int:
    """Return bytes. Raises ValueError, which says what is valid."""
    return _parse_quantity(value, _SIZE_UNITS, SIZE_VALID)


def parse_loss(value: object) -> float:
    """Return a probability from 0 to 1. Raises ValueError, which says what is valid."""
    loss: float | None = None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        loss = float(value)
    elif isinstance(value, str) and (match := _PERCENTAGE.fullmatch(value)):
        loss = float(Decimal(match[1]) / 100)
    if loss is None or not 0 <= loss <= 1:  # also refuses NaN
        raise ValueError(LOSS_VALID)
    return loss


def parse_time_s(text: str) -> float:
    """Return seconds from `90s`, `30min` or `2h`. Raises ValueError, which says what is valid."""
    match = _TIME.fullmatch(text.strip())
    value = float(match[1]) * _TIME_UNITS[match[2]] if match else 0.0
    if value <= 0:
        raise ValueError(TIME_VALID)
    return value


def parse_delay_ms(value: object) -> float:
    """Return milliseconds. Raises ValueError, which says what is valid."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(DELAY_VALID)
    if not 0 <= value <= MAX_DELAY_MS:  # also refuses NaN and infinity
        raise ValueError(DELAY_VALID + ("" if value < 0 else f"; at most {MAX_DELAY_MS}"))
    return float(value)


def _parse_quantity(value: object, units: dict[str, int], valid: str) -> int:
    quantity: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        quantity = value
    elif isinstance(value, str) and (match := _QUANTITY.fullmatch(value)):
        exact = Decimal(match[1]) * units.get(match[2], 0)
        quantity = int(exact) if exact == int(exact) else None
    if quantity is None or not 0 < quantity <= MAX_QUANTITY:
        raise ValueError(valid)
    return quantity


def format_rate(rate_bps: int) -> str:
    """Return the shortest exact text that parse_rate_bps reads: 1Gbps, 20Mbps, 1500kbps."""
    return _format_quantity(rate_bps, {"Gbps": 10**9, "Mbps": 10**6, "kbps": 10**3, "bps": 1})


def format_size(size_bytes: int) -> str:
    """Return the shortest exact text that parse_size_bytes reads: 12MB, 11250kB."""
    return _format_quantity(size_bytes, {"GB": 10**9, "MB": 10**6, "kB": 10**3, "B": 1})


def _format_quantity(quantity: int, units: dict[str, int]) -> str:
    unit = next(u for u, size in units.items() if quantity % size == 0)
    return f"{quantity // units[unit]}{unit}"


def minutes_text(seconds: float) -> str:
    """Return a duration as m:ss."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def duration_text(seconds: float) -> str:
    """Return a duration for readers: "45 s" below a minute, else "3:20 min"."""
    whole = max(0, round(seconds))
    return f"{whole} s" if whole < 60 else f"{minutes_text(whole)} min"
