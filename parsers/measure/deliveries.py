# SPDX-License-Identifier: Apache-2.0
"""Find which receiver got which product when, and how, from the logs of one cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from parsers.base.times import MICROSECONDS
from parsers.read.ldm_log import (
    Backlog,
    Duplicate,
    How,
    Inserted,
    LdmLog,
    Missed,
    Multicasted,
    Product,
    Received,
    ReceiverStats,
    Released,
    SenderStats,
    Sending,
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A product's first arrival at one receiver."""

    time_us: int
    how: How
    delay_s: float | None = None  # FMTP only: since the BOP's time stamp
    retrans: int = 0  # FMTP only: retransmitted blocks
    index: int | None = None  # FMTP only: the file's index, in sending order

    def latency_s(self, product: Product) -> float:
        """Return the time from creation to arrival. Both clocks must agree."""
        return (self.time_us - product.created_us) / MICROSECONDS


@dataclass(frozen=True, slots=True)
class Receiver:
    """The content of one receiver's log."""

    arrivals: Mapping[Product, Arrival]
    missed: int
    duplicates: int
    stats: ReceiverStats | None  # the sum of the last reading of each process


def receiver_of(log: LdmLog) -> Receiver:
    """Return the receiver's deliveries; the order of the log's lines does not matter."""
    arrivals: dict[Product, Arrival] = {}

    def note(product: Product, arrival: Arrival) -> None:
        known = arrivals.get(product)
        if known is None or (arrival.time_us, arrival.how) < (known.time_us, known.how):
            arrivals[product] = arrival

    missed = duplicates = 0
    for record in log.records:
        match record:
            case Received():
                note(
                    record.product,
                    Arrival(record.time_us, "fmtp", record.delay_s, record.retrans, record.index),
                )
            case Inserted(via="backstop"):
                note(record.product, Arrival(record.time_us, "backstop"))
            case Inserted(via=("ldm6" | "file") as how):
                note(record.product, Arrival(record.time_us, how))
            case Backlog():
                note(record.product, Arrival(record.time_us, "backlog"))
            case Missed():
                missed += 1
            case Duplicate():
                duplicates += 1
            case _:
                pass
    return Receiver(arrivals, missed, duplicates, receiver_stats(log))


def receiver_stats(log: LdmLog) -> ReceiverStats | None:
    """Return the sum of each FMTP receiver's last counters in the log; None if there are none."""
    latest: dict[int, ReceiverStats] = {}
    for record in log.of(ReceiverStats):
        if record.pid not in latest or record.time_us >= latest[record.pid].time_us:
            latest[record.pid] = record
    if not latest:
        return None
    readings = list(latest.values())
    if len(readings) == 1:
        return readings[0]
    newest = max(readings, key=lambda r: r.time_us)
    return ReceiverStats(
        time_us=newest.time_us,
        prog=newest.prog,
        pid=newest.pid,
        datagrams=sum(r.datagrams for r in readings),
        blocks=sum(r.blocks for r in readings),
        duplicate_blocks=sum(r.duplicate_blocks for r in readings),
        products=sum(r.products for r in readings),
        missed=sum(r.missed for r in readings),
        retx_requests=sum(r.retx_requests for r in readings),
        retx_blocks=sum(r.retx_blocks for r in readings),
        bad_messages=sum(r.bad_messages for r in readings),
        socket_drops=sum(r.socket_drops for r in readings),
        rcvbuf_granted_bytes=newest.rcvbuf_granted_bytes,
    )


@dataclass(frozen=True, slots=True)
class Sent:
    """The products in sending order. `source` says which log line the order comes from."""

    order: tuple[Product, ...]
    source: str
    reason: str = ""  # why the order is empty
    released: Mapping[str, int] | None = None  # per reason, LDM7
    stats: SenderStats | None = None


def _first_times(pairs: Iterable[tuple[int, Product]]) -> tuple[Product, ...]:
    first: dict[Product, int] = {}
    for when, product in pairs:
        first[product] = min(when, first.get(product, when))
    return tuple(sorted(first, key=lambda p: (first[p], p.ident, p)))


def ingested(log: LdmLog | None) -> tuple[Product, ...]:
    """Return what pqinsert inserted into the queue, in order."""
    if log is None:
        return ()
    return _first_times((r.time_us, r.product) for r in log.of(Inserted) if r.via == "ingest")


def last_insertion_s(log: LdmLog | None) -> float | None:
    """Return when pqinsert inserted the last product (epoch); None if its log does not say."""
    found = [r.time_us for r in log.of(Inserted) if r.via == "ingest"] if log is not None else []
    return max(found) / MICROSECONDS if found else None


def sent_by(protocol: str, publisher: LdmLog | None, ingest: LdmLog | None) -> Sent:
    """Return what was sent. For LDM7, order by FMTP's product index (`Multicasted`). For LDM6, or
    without such lines, take the order of insertion.

    Without pqinsert's log, LDM6's order is that of the upstream's first `sending`.
    """
    released: dict[str, int] = {}
    stats: SenderStats | None = None
    if publisher is not None:
        for released_record in publisher.of(Released):
            released[released_record.why] = released.get(released_record.why, 0) + 1
        for reading in publisher.of(SenderStats):
            if stats is None or reading.time_us >= stats.time_us:
                stats = reading
        if protocol == "ldm7" and (multicast := publisher.of(Multicasted)):
            order = _first_times((r.index, r.product) for r in multicast)
            return Sent(order, "Multicasted (FMTP index)", "", released, stats)
    if order := ingested(ingest):
        return Sent(order, "Inserted (pqinsert)", "", released, stats)
    if publisher is not None and (sending := publisher.of(Sending)):
        order = _first_times((r.time_us, r.product) for r in sending)
        return Sent(order, "sending (LDM6 upstream)", "", released, stats)
    wanted = "Multicasted, " if protocol == "ldm7" else ""
    return Sent((), "", f"no {wanted}Inserted or sending line in the sender's logs")
