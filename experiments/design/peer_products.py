# SPDX-License-Identifier: Apache-2.0
"""A trace's products as files, for protocols that send files. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

from parsers.read.trace import parse_any_trace


@dataclass(frozen=True)
class PeerProduct:
    """A product of the trace."""

    name: str  # FEED.000000 and so on, as pqinsert names them; a plain file name
    number: int
    size_bytes: int
    time_us: int  # of the trace


def products_of(trace: str, feed: str) -> tuple[PeerProduct, ...]:
    """Return the products of a cut trace, in its order."""
    return tuple(
        PeerProduct(f"{feed}.{number:06d}", number, product.size_bytes, product.time_us)
        for number, product in enumerate(parse_any_trace(trace, "trace").products)
    )


def content(seed: int, product: PeerProduct) -> bytes:
    """Return the product's bytes: the same for all protocols with this seed."""
    dice = random.Random(f"downpour product {seed} {product.number}")
    return dice.randbytes(product.size_bytes)
