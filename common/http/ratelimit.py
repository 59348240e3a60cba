# SPDX-License-Identifier: Apache-2.0
"""Limit how many requests a client may make: a bounded number of token buckets by key. Pure."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

MAX_KEYS = 4096


@dataclass
class _Bucket:
    tokens: float
    filled: float  # when it was filled


REQUESTS_PER_S = 100.0  # of one token; the socket's owner is not limited


class RateLimit:
    """`rate_per_s` requests per second and key in the long run, `burst` at once.

    At most `max_keys` keys are remembered. The one whose last request is oldest is dropped first,
    which only favours a client that has been silent.
    """

    def __init__(self, rate_per_s: float, burst: float, max_keys: int = MAX_KEYS) -> None:
        if rate_per_s <= 0 or burst < 1:
            raise ValueError(
                f"rate {rate_per_s}/s with burst {burst}: no client could send a request"
            )
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._max_keys = max_keys
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, key: str, now: float) -> int:
        """Take a token and return 0; if there is none, return after how many whole seconds (at
        least 1) to try again."""
        bucket = self._bucket(key, now)
        if bucket.tokens >= 1.0:
            bucket.tokens -= 1.0
            return 0
        return self._wait_s(bucket)

    def look(self, key: str, now: float) -> int:
        """Return what `take` would return, without taking a token."""
        if key not in self._buckets:
            return 0
        bucket = self._bucket(key, now)
        return 0 if bucket.tokens >= 1.0 else self._wait_s(bucket)

    def _wait_s(self, bucket: _Bucket) -> int:
        return max(1, math.ceil((1.0 - bucket.tokens) / self._rate_per_s))

    def _bucket(self, key: str, now: float) -> _Bucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= self._max_keys:
                self._buckets.popitem(last=False)
            bucket = self._buckets[key] = _Bucket(self._burst, now)
        else:
            self._buckets.move_to_end(key)
            elapsed_s = max(0.0, now - bucket.filled)
            bucket.tokens = min(self._burst, bucket.tokens + elapsed_s * self._rate_per_s)
            bucket.filled = now
        return bucket
