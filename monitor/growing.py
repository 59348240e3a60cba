# SPDX-License-Identifier: Apache-2.0
"""Deliveries of a running cell, as its logs grow: all of them, or only the columns that changed.

Memory is bounded however long a cell runs: beyond MOST deliveries, the oldest quarter is dropped.
"""

from __future__ import annotations

import ctypes
from bisect import bisect
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from parsers.base.times import MICROSECONDS
from parsers.measure.delivered import delivered_of, encode
from parsers.measure.deliveries import Arrival, Receiver, Sent, receiver_of
from parsers.read.ldm_log import Inserted, LdmLog, Multicasted, Product, parse_product

QUICK: Final = 1  # zlib's level for data that is soon packed again
MOST: Final = 1_200_000  # deliveries: the DRFSM paper's hour (45,703 files) at 24 receivers


def _give_back() -> None:
    """Return freed memory to the system. glibc keeps free pieces between used ones."""
    if (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


class Deliveries:
    """Products in sending order; then those that are inserted but not sent yet, by time; then
    others that arrived. Each column is a product. `subscribers`: the receivers' order, if known.
    `most`: roughly how many deliveries are kept.
    """

    def __init__(self, subscribers: Iterable[str], most: int = MOST) -> None:
        self._subscribers = tuple(subscribers)
        self._most = most
        self._gone_us: int | None = None  # creation of the newest dropped product
        self._arrivals: dict[str, dict[Product, Arrival]] = {}
        self._inserted: dict[Product, int] = {}
        self._begin_us: int | None = None  # of the first insertion
        self._indices: list[int] = []  # of the products in `_order`
        self._order: list[Product] = []
        self._place: dict[Product, int] = {}  # in `_order`
        self._rest: set[Product] = set()  # not sent yet, as far as is known
        self._changed: int | None = None  # the first column that changed since `added`
        self._shape: tuple[object, ...] = ()  # what all columns depend on
        self._blob = b""
        self._is_stale = True

    def __bool__(self) -> bool:
        return bool(self._order or self._inserted)

    def take(self, host: str, log: LdmLog) -> None:
        """Add what new lines of a host's log say."""
        self._is_stale = True
        for record in log.of(Multicasted):
            if not self._is_gone(record.product):
                self._send(record.index, record.product)
        for inserted in log.of(Inserted):
            if self._is_gone(inserted.product):
                continue
            if inserted.via == "ingest" and inserted.product not in self._inserted:
                self._inserted[inserted.product] = at = inserted.time_us
                self._begin_us = at if self._begin_us is None else min(at, self._begin_us)
                self._touch(inserted.product)
        known = self._arrivals.setdefault(host, {})
        for product, arrival in receiver_of(log).arrivals.items():
            before = known.get(product)
            if self._is_gone(product):
                continue
            if before is None or arrival.time_us < before.time_us:
                known[product] = arrival
                self._touch(product)
        while self._products() * sum(map(bool, self._arrivals.values())) > self._most:
            self._forget()

    def _is_gone(self, product: Product) -> bool:
        return self._gone_us is not None and product.created_us <= self._gone_us

    def _products(self) -> int:
        return len(self._order) + len(self._rest)

    def _forget(self) -> None:
        """Drop the oldest quarter of the products."""
        created = sorted(product.created_us for product in (*self._order, *self._rest))
        self._gone_us = created[len(created) // 4]
        kept = [
            (index, product)
            for index, product in zip(self._indices, self._order, strict=True)
            if not self._is_gone(product)
        ]
        self._indices = [index for index, _ in kept]
        self._order = [product for _, product in kept]
        self._place = {product: place for place, product in enumerate(self._order)}
        self._rest = {product for product in self._rest if not self._is_gone(product)}
        self._inserted = {p: at for p, at in self._inserted.items() if not self._is_gone(p)}
        for host, known in self._arrivals.items():
            self._arrivals[host] = {p: a for p, a in known.items() if not self._is_gone(p)}
        parse_product.cache_clear()  # which also has the dropped products
        _give_back()
        self._change(0)

    def _send(self, index: int, product: Product) -> None:
        at = bisect(self._indices, index)
        if at > 0 and self._indices[at - 1] == index:
            return  # the first arrival counts
        earlier = self._place.get(product)
        if earlier is not None and earlier < at:
            return  # sent again
        if earlier is not None:
            del self._indices[earlier], self._order[earlier]
        self._indices.insert(at, index)
        self._order.insert(at, product)
        for place in range(at, len(self._order)):
            self._place[self._order[place]] = place
        self._rest.discard(product)
        self._change(at)

    def _touch(self, product: Product) -> None:
        place = self._place.get(product)
        if place is None:
            self._rest.add(product)
            place = len(self._order)
        self._change(place)

    def _change(self, column: int) -> None:
        self._changed = column if self._changed is None else min(self._changed, column)

    def added(self, *, whole: bool) -> tuple[int, bytes] | None:
        """Return the first column that changed since the last call, and a deliveries.bin of that
        column and those after it; None if none changed. `whole`: all columns."""
        shape = (self._first_us(), *self._hosts())
        if whole or (shape != self._shape and self._changed is not None):
            self._changed = 0
        if self._changed is None or not self:
            return None
        first, self._changed, self._shape = self._changed, None, shape
        return first, self.blob() if first == 0 else self._encoded(first)

    def blob(self) -> bytes:
        """Return deliveries.bin with all columns; empty without columns."""
        if self._is_stale and self:
            self._blob, self._is_stale = self._encoded(0), False
            _give_back()
        return self._blob

    def _hosts(self) -> list[str]:
        return [host for host in self._subscribers if host in self._arrivals] or sorted(
            host for host, known in self._arrivals.items() if known
        )

    def _first_us(self) -> int:
        if self._begin_us is not None:
            return self._begin_us
        return min((product.created_us for product in self._order), default=0)

    def _encoded(self, first: int) -> bytes:
        waiting = sorted(self._rest & self._inserted.keys(), key=self._inserted.__getitem__)
        others = sorted(self._rest - self._inserted.keys(), key=attrgetter("created_us", "ident"))
        order = (*self._order[first:], *waiting, *others)
        receivers = {}
        for host in self._hosts():
            known = self._arrivals[host]
            arrivals = {product: known[product] for product in order if product in known}
            receivers[host] = Receiver(arrivals, 0, 0, None)
        begin_s = self._first_us() / MICROSECONDS
        return encode(delivered_of(begin_s, Sent(order, "logs"), receivers), QUICK)
