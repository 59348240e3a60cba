# SPDX-License-Identifier: Apache-2.0
"""Compute the papers' metrics of one receiver's log by file-sets in sending order, as their scripts
write them to CSV files.

Throughput of a file-set: 8 x sum of sizes / sum of (arrival - creation) over the files that FMTP
delivered (with LDM6: that arrived); FFDR: the percentage of the arrived files that FMTP delivered
alone. Undefined values are -1, as in the scripts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from parsers.measure.deliveries import receiver_of
from parsers.measure.metrics import FileSet, file_sets
from parsers.read.ldm_log import LdmLog, Product, Received
from parsers.read.papers_log import PapersDelivery, PapersLog

CSV_HEADER = (
    "Sent first prodindex, Sent last prodindex, Sender aggregate size (B), "
    "Successfully received aggregate size (B), Throughput (bps), FFDR (%)"
)
_TRAILING_NUMBER = re.compile(r"(\d+)$", re.ASCII)


@dataclass(frozen=True, slots=True)
class FileSetRow:
    """A file-set's metrics. None: not defined (no file arrived; LDM6 has no FFDR)."""

    first_index: int
    last_index: int
    sent_bytes: int
    received_bytes: float
    throughput_bps: float | None
    ffdr_percent: float | None

    def csv(self) -> str:
        """Return a line of the papers' CSV files."""
        rate = -1 if self.throughput_bps is None else round(self.throughput_bps, 3)
        ffdr = -1 if self.ffdr_percent is None else round(self.ffdr_percent, 4)
        received = f"{self.received_bytes:.0f}"
        return f"{self.first_index},{self.last_index},{self.sent_bytes},{received},{rate},{ffdr}"


def deliveries_of(log: LdmLog | PapersLog) -> dict[int, PapersDelivery]:
    """Return each product's first arrival by its index: FMTP's, else the number at the end of its
    name. Leave out the backlog of an earlier session. Raises ValueError for a product without an
    index."""
    if isinstance(log, PapersLog):
        first: dict[int, PapersDelivery] = {}
        for delivery in log.deliveries:
            known = first.get(delivery.index)
            if known is None or delivery.time_us < known.time_us:
                first[delivery.index] = delivery
        return first
    index_of = {r.product: r.index for r in log.of(Received)}
    found = {}
    for product, arrival in receiver_of(log).arrivals.items():
        if arrival.how != "backlog":
            index = index_of.get(product)
            if index is None:
                index = numbered(product)
            found[index] = PapersDelivery(
                arrival.time_us, arrival.how, product.size_bytes, product.created_us, index
            )
    return found


def numbered(product: Product) -> int:
    """Return the number at the end of the product's name, which is its place in the trace."""
    match = _TRAILING_NUMBER.search(product.ident)
    if match is None:
        raise ValueError(f"product {product.ident!r}: its name ends with no number")
    return int(match[1])


def sent_sizes(receivers: Iterable[Mapping[int, PapersDelivery]]) -> dict[int, int]:
    """Return index -> size of everything that arrived anywhere. As far as the logs show, that is
    what was sent."""
    sizes = {index: d.size_bytes for found in receivers for index, d in found.items()}
    return dict(sorted(sizes.items()))


def rows(
    sent: Mapping[int, int], received: Mapping[int, PapersDelivery], group_bytes: int
) -> list[FileSetRow]:
    """Return one row for each file-set of at least `group_bytes` of what was `sent` (index -> size,
    in order). If the total is less, return one row for everything."""
    order = list(sent)
    if not order:
        return []
    sizes = list(sent.values())
    sets = file_sets(sizes, group_bytes) or [FileSet(0, len(order) - 1, sum(sizes))]
    found = []
    for chosen in sets:
        indices = order[chosen.first : chosen.last + 1]
        arrived = [received[i] for i in indices if i in received]
        counted = [d for d in arrived if d.how != "backstop"]
        size, latency = sum(d.size_bytes for d in counted), sum(d.latency_s for d in counted)
        is_ldm7 = any(d.how in ("fmtp", "backstop") for d in arrived)
        found.append(
            FileSetRow(
                indices[0],
                indices[-1],
                chosen.size_bytes,
                size,
                8 * size / latency if latency > 0 else None,
                100 * len(counted) / len(arrived) if is_ldm7 else None,
            )
        )
    return found


def mean_of(receivers: Sequence[Sequence[FileSetRow]]) -> list[FileSetRow]:
    """Return, row by row, the mean over all receivers (MPUP16 eq. 3, 4); undefined if it is
    undefined for one of them."""

    def mean(values: Sequence[float | None]) -> float | None:
        defined = [v for v in values if v is not None]
        return sum(defined) / len(values) if len(defined) == len(values) else None

    return [
        FileSetRow(
            same[0].first_index,
            same[0].last_index,
            same[0].sent_bytes,
            sum(r.received_bytes for r in same) / len(same),
            mean([r.throughput_bps for r in same]),
            mean([r.ffdr_percent for r in same]),
        )
        for same in zip(*receivers, strict=True)
    ]
