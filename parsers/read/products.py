# SPDX-License-Identifier: Apache-2.0
"""Parse `pqcat --list`: one line `md5-of-the-data size ident` per product, in insertion order."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from parsers.base.problems import (
    Lines,
    Problem,
    complete_lines,
    problem,
)

_LINE = re.compile(r"([0-9a-f]{32})\s+(\d+)\s+(\S.*)", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class ListedProduct:
    md5: str
    size_bytes: int
    ident: str


@dataclass(frozen=True, slots=True)
class ProductList:
    file: str
    products: tuple[ListedProduct, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class ContentCheck:
    """A receiver's products compared with the publisher's, by ident, digest and size."""

    receiver: str
    expected: int
    found: int
    missing: tuple[str, ...]  # idents that only the publisher has
    extra: tuple[str, ...]  # idents that only the receiver has
    different: tuple[str, ...]  # idents that both have, with other bytes or another size

    @property
    def identical(self) -> bool:
        """Return whether the queue holds exactly the publisher's products."""
        return not (self.missing or self.extra or self.different)


@functools.lru_cache(maxsize=1 << 17)  # the hosts' lists have the same lines
def _listed(md5: str, size: str, ident: str) -> ListedProduct:
    return ListedProduct(md5, int(size), ident)


def parse_products(text: Lines, file: str) -> ProductList:
    """Parse a product list. Never raises."""
    products: list[ListedProduct] = []
    problems: list[Problem] = []
    for number, raw in complete_lines(text, file, problems):
        if not raw.strip():
            continue
        match = _LINE.fullmatch(raw)
        if match is None:
            problems.append(problem(file, number, raw, "expected MD5 SIZE IDENT"))
            continue
        products.append(_listed(match[1], match[2], match[3]))
    return ProductList(file, tuple(products), tuple(problems))


def compare_products(
    receiver: str, published: Sequence[ListedProduct], held: Sequence[ListedProduct]
) -> ContentCheck:
    """Compare as multisets: order does not matter (retransmission reorders), but repetition
    does."""
    if list(published) == list(held):  # the usual case, if nothing was retransmitted
        return ContentCheck(receiver, len(published), len(held), (), (), ())
    balance = Counter(published)
    balance.subtract(Counter(held))
    only_published, only_held = +balance, -balance
    lacking = Counter(p.ident for p in only_published.elements())
    surplus = Counter(p.ident for p in only_held.elements())
    different = lacking & surplus
    return ContentCheck(
        receiver=receiver,
        expected=len(published),
        found=len(held),
        missing=tuple(sorted((lacking - different).elements())),
        extra=tuple(sorted((surplus - different).elements())),
        different=tuple(sorted(different.elements())),
    )
