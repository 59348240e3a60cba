# SPDX-License-Identifier: Apache-2.0
"""The logs of a cell whose products are files, in the format of all programs' logs
(docs/reference/contracts.md): what was sent, and what each receiver got."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from experiments.design.peer_products import PeerProduct

MICROSECONDS: Final = 1_000_000


def _stamp(time_s: float, form: str) -> str:
    """Return a time with microseconds, UTC."""
    whole, micro = divmod(round(time_s * MICROSECONDS), MICROSECONDS)
    return f"{time.strftime(form, time.gmtime(whole))}.{micro:06d}"


class ProductLog:
    """One log. `program`: feed at the sender, inbox at a receiver."""

    def __init__(self, path: Path, program: str) -> None:
        self._path, self._program = path, program
        path.touch()

    def inserted(self, product: PeerProduct, feed: str, created_s: float, now_s: float) -> None:
        """Note that a product was handed to the sender, or has arrived, at `now_s`."""
        made = _stamp(created_s, "%Y%m%d%H%M%S")
        text = f"{product.size_bytes:10d} {made} {feed} {product.number:03d}  {product.name}"
        self._write(now_s, "inserted", f"Inserted: {text}")

    def replayed(
        self, products: int, size_bytes: int, spent_s: float, lateness_ms: Sequence[float]
    ) -> None:
        """Write the summary. `lateness_ms`: by how much each product was handed over late."""
        self._write(
            time.time(),
            "replayed",
            f"Replayed: products={products} bytes={size_bytes} elapsed_s={spent_s:.3f} "
            f"late_p50_ms={statistics.median(lateness_ms):.3f} late_max_ms={max(lateness_ms):.3f}",
        )

    def _write(self, now_s: float, function: str, message: str) -> None:
        head = f"{_stamp(now_s, '%Y%m%dT%H%M%S')}Z {self._program}[{os.getpid()}]"
        with self._path.open("a", encoding="utf-8") as log:
            log.write(f"{head} {self._program}.py:{function}:1 NOTE {message}\n")
