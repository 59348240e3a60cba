# SPDX-License-Identifier: Apache-2.0
"""Split a file's latency into its components at each receiver (DRFSM21 eq. 7, and its repair).

Propagation is half of the requested round trip. Emission is the file and its headers at r_mc. The
clock offset is what the experiment injected. A queue that r_mc empties in sending order gives the
wait in the sender's buffers: of files (q_snd), of the socket (b_snd) and of traffic control (b_mc).
These four do not use the measured latency. If blocks were retransmitted, its excess over them is
repair. Otherwise it is a rest, which shows how well they explain the latency.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from common.contracts import BLOCK_BYTES
from parsers.base.metric_units import Value, absent
from parsers.base.times import MICROSECONDS
from parsers.measure.deliveries import Arrival, Receiver, Sent
from parsers.read.cell_files import Cell
from parsers.read.ldm_log import Product

UDP_HEADERS = 14 + 20 + 8  # Ethernet, IPv4, UDP: as tc counts a frame, without a VLAN tag
FMTP_HEADER = 12
# Bytes of BOP, EOP and LDM's description of a file, if the sender left no statistics.
FILE_BYTES = 200.0
NAMES = ("propagation", "emission", "buffer", "repair", "offset", "rest")
METRICS_OF = {name: f"latency_{name}" for name in NAMES}


@dataclass(frozen=True, slots=True)
class Parts:
    """A file's latency, or the mean of several, in seconds. `total_s` is the sum of the others."""

    propagation_s: float
    emission_s: float
    buffer_s: float
    repair_s: float
    offset_s: float
    rest_s: float

    @property
    def total_s(self) -> float:
        """Return the measured latency."""
        return sum(self.by_name().values())

    def by_name(self) -> dict[str, float]:
        """Return the components by their names in NAMES."""
        return {name: getattr(self, f"{name}_s") for name in NAMES}


@dataclass(frozen=True, slots=True)
class LatencyParts:
    """The components at one receiver, of the files that FMTP delivered."""

    files: int
    mean: Parts
    rest_most_s: float  # the largest rest of a file, positive or negative
    repair_least_s: float  # 0, or the lowest repair of a file whose other components are too large


def file_bytes(sent: Sent) -> float:
    """Return a file's bytes besides its blocks, frames and headers included: from the sender's own
    counters, if it left them."""
    stats = sent.stats
    if stats is None or not stats.products or stats.products != len(sent.order):
        return FILE_BYTES
    total = stats.datagram_bytes + UDP_HEADERS * stats.datagrams
    return (total - sum(block_bytes(p.size_bytes) for p in sent.order)) / stats.products


def block_bytes(size_bytes: int) -> int:
    """Return the bytes of a file's blocks, sent as frames."""
    blocks = -(-size_bytes // BLOCK_BYTES)
    return size_bytes + blocks * (UDP_HEADERS + FMTP_HEADER)


def waits(
    order: Sequence[Product], rate_bps: float, more_bytes: float
) -> dict[Product, tuple[float, float]]:
    """Return (wait, emission) of each file in seconds: one queue in sending order, emptied at
    `rate_bps`. `more_bytes`: sent for each file besides its blocks."""
    found: dict[Product, tuple[float, float]] = {}
    if not order:
        return found
    first_us = order[0].created_us
    free_s = float("-inf")
    for product in order:
        created_s = (product.created_us - first_us) / MICROSECONDS
        begin_s = max(free_s, created_s)
        emission_s = 8 * (block_bytes(product.size_bytes) + more_bytes) / rate_bps
        free_s = begin_s + emission_s
        found[product] = (begin_s - created_s, emission_s)
    return found


def parts_of(
    product: Product,
    arrival: Arrival,
    queued: tuple[float, float],
    propagation_s: float,
    offset_s: float,
) -> Parts:
    """Return the components of one file at one receiver. `queued`: its wait and emission."""
    wait_s, emission_s = queued
    left_s = arrival.latency_s(product) - wait_s - emission_s - propagation_s - offset_s
    repair_s, rest_s = (left_s, 0.0) if arrival.retrans else (0.0, left_s)
    return Parts(propagation_s, emission_s, wait_s, repair_s, offset_s, rest_s)


def at_receiver(found: Iterable[Parts]) -> LatencyParts | None:
    """Return the means over a receiver's files; None without files."""
    sums, files, rest_most_s, repair_least_s = dict.fromkeys(NAMES, 0.0), 0, 0.0, 0.0
    for parts in found:
        files += 1
        for name, seconds in parts.by_name().items():
            sums[name] += seconds
        rest_most_s = max(rest_most_s, parts.rest_s, key=abs)
        repair_least_s = min(repair_least_s, parts.repair_s)
    if not files:
        return None
    mean = Parts(**{f"{name}_s": seconds / files for name, seconds in sums.items()})
    return LatencyParts(files, mean, rest_most_s, repair_least_s)


def by_receiver(
    cell: Cell, sent: Sent, receivers: Mapping[str, Receiver]
) -> dict[str, LatencyParts] | str:
    """Return the components at each receiver that received files by FMTP, or the reason why they
    are unknown."""
    if cell.protocol != "ldm7":
        return "defined for LDM7 only"
    rate = cell.parameters.get("r_mc")
    if not isinstance(rate, int | float) or rate <= 0:
        return "cell.json does not say r_mc"
    if not sent.order:
        return sent.reason or "no file was sent"
    queued = waits(sent.order, float(rate), file_bytes(sent))
    found: dict[str, LatencyParts] = {}
    for host, receiver in receivers.items():
        if cell.protocol_of(host) != "ldm7" or host not in cell.rtt_ms:
            continue
        way_s = cell.rtt_ms[host] / 2000
        offset_s = cell.clock_offset_ms.get(host, 0.0) / 1000
        mean = at_receiver(
            parts_of(product, arrival, queued[product], way_s, offset_s)
            for product, arrival in sorted(receiver.arrivals.items(), key=_product)
            if arrival.how == "fmtp" and product in queued
        )
        if mean is not None:
            found[host] = mean
    return found or "no file came by FMTP"


def _product(item: tuple[Product, Arrival]) -> Product:
    return item[0]


def values_of(found: Mapping[str, LatencyParts] | str) -> dict[str, Value]:
    """Return the mean of each component over all receivers' files, as metrics of the cell."""
    if isinstance(found, str):
        return {metric: absent("s", found) for metric in METRICS_OF.values()}
    files = sum(parts.files for parts in found.values())
    return {
        METRICS_OF[name]: Value(
            sum(p.files * p.mean.by_name()[name] for p in found.values()) / files, "s"
        )
        for name in NAMES
    }
