# SPDX-License-Identifier: Apache-2.0
"""Exact UTC times: integer microseconds since 1970, without floating point."""

from __future__ import annotations

import calendar
import datetime
import functools

MICROSECONDS = 1_000_000


@functools.lru_cache(maxsize=8192)
def utc_seconds(digits: str) -> int:
    """Return the seconds since 1970 of `YYYYMMDDhhmmss` (UTC). Raises ValueError if there is no
    such instant."""
    if len(digits) != 14 or not digits.isascii() or not digits.isdigit():
        raise ValueError(f"{digits!r} is not YYYYMMDDhhmmss")
    moment = datetime.datetime(
        int(digits[0:4]),
        int(digits[4:6]),
        int(digits[6:8]),
        int(digits[8:10]),
        int(digits[10:12]),
        int(digits[12:14]),
    )
    return calendar.timegm(moment.timetuple())


def utc_microseconds(digits: str, fraction: str) -> int:
    """Return the microseconds since 1970 of `YYYYMMDDhhmmss` and up to six digits of fraction."""
    if not 1 <= len(fraction) <= 6 or not fraction.isascii() or not fraction.isdigit():
        raise ValueError(f"{fraction!r} is not a fraction of 1 to 6 digits")
    return utc_seconds(digits) * MICROSECONDS + int(fraction.ljust(6, "0"))
