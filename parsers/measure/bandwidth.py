# SPDX-License-Identifier: Apache-2.0
"""Compute what the sender's interfaces sent (MPUP16 eq. 5), divided into multicast, repairs, pulls
and control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from common.contracts import MONITOR_COMMENT, MULTICAST_CLASS, WITH_OWN_LOGS
from parsers.base.metric_units import Value, absent
from parsers.measure import metrics
from parsers.measure.deliveries import Receiver, Sent
from parsers.measure.metrics import RateSample
from parsers.read.cell_files import Cell
from parsers.read.counters import Counters
from parsers.read.sar_log import SarLog

PARTS: Final = (
    "multicast_bandwidth",
    "repair_bandwidth",
    "pull_bandwidth",
    "control_bandwidth",
)
ETHERNET_HEADER_BYTES: Final = 14
BY_COUNTERS: Final = ("nic_bandwidth", "nic1_bandwidth", "nic2_bandwidth", *PARTS)


def interface_name(name: str) -> str:
    """Return an interface's name without its node."""
    return name.rsplit("/", 1)[-1]


def nics(cell: Cell) -> tuple[str, ...]:
    """Return the sender's NICs: NIC1 on the path, and NIC2."""
    return cell.nics or (interface_name(cell.nic1), f"{cell.publisher}-nic2")


def bandwidth_values(
    cell: Cell,
    start: Counters | None,
    end: Counters | None,
    active_s: tuple[float, float],
) -> dict[str, Value]:
    """Return Theta(t1, t2) of eq. 5: bytes by the counters over the time from the first insertion
    to the last arrival. The counters are read just before and just after, when only keepalives are
    sent. What the publisher sent to a monitor by NIC2 is left out."""
    begin, finish = active_s
    if start is None or end is None:
        return {n: absent("bit/s", "no counters of start and end") for n in BY_COUNTERS}
    names = nics(cell)
    found: dict[str, Value] = {}
    sums, to_monitor = 0, monitor_bytes(start, end)
    by_nic = zip(names, sent_by_nic(cell, start, end), strict=True)
    for number, (name, sent) in enumerate(by_nic, start=1):
        if sent is None and number == 1:
            reason = f"the counters have no interface {cell.publisher}/{name}"
            return {n: absent("bit/s", reason) for n in BY_COUNTERS}
        if sent is not None and sent < 0:
            reason = f"the byte counter of {cell.publisher}/{name} went back"
            return {n: absent("bit/s", reason) for n in BY_COUNTERS}
        sums += sent or 0
        found[f"nic{number}_bandwidth"] = metrics.bandwidth(0, begin, sent or 0, finish)
    note = (
        f"{' and '.join(names)}, over the {finish - begin:.1f} s from first insertion to last "
        "arrival"
    )
    if to_monitor:
        note += f", without {to_monitor} bytes to the monitor"
    total = metrics.bandwidth(0, begin, sums, finish)
    found["nic_bandwidth"] = Value(total.value, "bit/s", total.reason, "" if total.reason else note)
    none = absent("bit/s", "the sender has one NIC")
    return {n: found.get(n, none) for n in BY_COUNTERS[:3]}


def sent_by_nic(cell: Cell, start: Counters, end: Counters) -> list[int | None]:
    """Return the bytes that each of the sender's NICs sent between two readings, without what went
    to a monitor, which is on the last of several; None if a NIC is not in both."""
    found = [sent_bytes(f"{cell.publisher}/{name}", start, end) for name in nics(cell)]
    if len(found) > 1 and (last := found[-1]):
        found[-1] = last - monitor_bytes(start, end)
    return found


def sent_bytes(place: str, start: Counters, end: Counters) -> int | None:
    """Return what an interface sent between two readings; None if it is not in both."""
    if place not in start.interfaces or place not in end.interfaces:
        return None
    return end.interfaces[place].tx_bytes - start.interfaces[place].tx_bytes


def monitor_bytes(start: Counters, end: Counters) -> int:
    """Return the bytes of frames that the publisher sent to a monitor between two readings, by the
    monitor's rule, which counts IP packets."""

    def counted(one: Counters) -> int:
        rules = (r for host in one.iptables for r in one.rules(host) if MONITOR_COMMENT in r.rule)
        return sum(r.bytes + ETHERNET_HEADER_BYTES * r.packets for r in rules)

    return counted(end) - counted(start)


def parts(
    cell: Cell,
    start: Counters | None,
    end: Counters | None,
    active_s: tuple[float, float],
    sent: Sent,
    receivers: Mapping[str, Receiver],
    total: Value,
) -> dict[str, Value]:
    """Return the parts of the NICs' bytes; the four add up to all. Repairs and pulls are what FMTP
    and the backstop sent, without TCP's headers, which are in `control_bandwidth`."""
    begin, finish = active_s
    key = f"{cell.publisher}/{interface_name(cell.nic1)}/{MULTICAST_CLASS}"
    if cell.protocol in ("fcast", "m2c"):
        reason = "its sender multicasts everything: nothing is repaired or pulled"
    elif cell.protocol not in WITH_OWN_LOGS:
        reason = "only LDM7 reports what the sender's bytes were for"
    elif cell.protocol != "ldm7":
        reason = "LDM6 sends everything by TCP, a copy for each receiver"
    elif start is None or end is None or key not in end.classes:
        reason = "no counters of the sender's queues"
    elif sent.stats is None:
        reason = "no statistics of the FMTP sender"
    else:
        reason = total.reason
    if reason or start is None or end is None or sent.stats is None or total.value is None:
        return {name: absent("bit/s", reason) for name in PARTS}
    before = start.classes.get(key)
    multicast = end.classes[key].sent_bytes - (before.sent_bytes if before else 0)
    pulled = sum(
        product.size_bytes
        for receiver in receivers.values()
        for product, arrival in receiver.arrivals.items()
        if arrival.how == "backstop"
    )
    known = (multicast, sent.stats.retx_bytes, pulled)
    rates = [8.0 * count / (finish - begin) for count in known]
    rates.append(total.value - sum(rates))
    return {name: Value(rate, "bit/s") for name, rate in zip(PARTS, rates, strict=True)}


def by_sar(
    cell: Cell, sar: SarLog | None, active_s: tuple[float, float]
) -> tuple[Value, list[RateSample]]:
    """Return NIC1's mean rate by sar's samples, as the papers measured it, and the samples. The
    first and the last sample count in proportion, though their bytes are not spread evenly."""
    nic = interface_name(cell.nic1)
    samples = [
        RateSample(s.time_s, s.interval_s, 8.0 * s.tx_bytes_per_s)
        for s in (sar.interfaces if sar is not None else ())
        if s.interface == nic
    ]
    rate = metrics.mean_rate(samples, *active_s)
    if rate is not None:
        return Value(rate, "bit/s"), samples
    if sar is None:
        return absent("bit/s", "no sar.log"), samples
    if not samples:
        seen = ", ".join(sorted({s.interface for s in sar.interfaces})) or "none"
        return absent("bit/s", f"sar has no interface {nic}, only: {seen}"), samples
    return absent("bit/s", "sar covers less than 90 % of the run"), samples


def over_offered(
    sizes: Sequence[int],
    last_insertion_s: float | None,
    active_s: tuple[float, float],
    bandwidth: Value,
) -> dict[str, Value]:
    """Return the input rate from first to last insertion, and the bandwidth as a multiple of the
    offered load."""
    begin, finish = active_s
    size = sum(sizes)
    if not size or last_insertion_s is None or finish <= begin:
        reason = "no Inserted line in pqinsert.log"
        return {
            "input_rate": absent("bit/s", reason),
            "bandwidth_over_offered": absent("", reason),
        }
    took = last_insertion_s - begin
    ratio = (
        absent("", bandwidth.reason)
        if bandwidth.value is None
        else Value(
            bandwidth.value / (8.0 * size / (finish - begin)),
            "",
            note="both from first insertion to last arrival",
        )
    )
    rate = (
        Value(8.0 * size / took, "bit/s")
        if took > 0
        else absent("bit/s", "nothing was inserted after the start")
    )
    return {"input_rate": rate, "bandwidth_over_offered": ratio}


def delivery_values(
    cell: Cell,
    sent: Sent,
    receivers: Mapping[str, Receiver],
    counters: tuple[Counters | None, Counters | None],
) -> dict[str, Value]:
    """Return how many products are missing, over all receivers, and what the sender's NICs sent for
    each byte that reached a receiver, times m, without what went to a monitor."""
    arrived = [p.size_bytes for r in receivers.values() for p in r.arrivals]
    if not sent.order or not receivers:
        reason = sent.reason or "no receiver's log mentions products"
        names = ("wire_per_delivered", "products_missing")
        return {name: absent("products" * ("missing" in name), reason) for name in names}
    missing = Value(float(len(sent.order) * cell.m - len(arrived)), "products")
    start, end = counters
    found = {"wire_per_delivered": absent("", "no counters of start and end")}
    if start is not None and end is not None:
        total = sum(sent or 0 for sent in sent_by_nic(cell, start, end))
        found["wire_per_delivered"] = (
            Value(total * cell.m / sum(arrived), "") if sum(arrived) else absent("", "none arrived")
        )
    return {**found, "products_missing": missing}
