# SPDX-License-Identifier: Apache-2.0
"""Compute all metrics and time series from one cell's records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from common.contracts import INVALID, MULTICAST_PROTOCOLS
from parsers.base.metric_units import Value, absent
from parsers.base.problems import Problem
from parsers.base.times import MICROSECONDS
from parsers.measure import bandwidth, carousel, fairness, latency_parts, metrics
from parsers.measure.carousel import CarouselData
from parsers.measure.delivered import delivered_of, encode
from parsers.measure.deliveries import (
    Receiver,
    Sent,
    ingested,
    last_insertion_s,
    receiver_of,
    sent_by,
)
from parsers.measure.fmtp_values import fmtp_values
from parsers.measure.latency_parts import LatencyParts
from parsers.measure.layers import LayersData, layers_values
from parsers.measure.metrics import (
    CpuSample,
    Delivery,
    FmtpMetrics,
    RateSample,
)
from parsers.measure.pieces import Pieces, pieces_of
from parsers.measure.repaired import Repaired, repaired_of
from parsers.measure.series import (
    Series,
    arrivals,
    cpu_series,
    input_series,
    per_minute,
)
from parsers.measure.set_throughput import (
    FileSetMetrics,
    counts,
    cutter,
    throughput,
)
from parsers.measure.taus import Tau, fmtp_of, interval_s, per_tau
from parsers.read.cell_files import (
    NO_CPU,
    Cell,
    ProtocolAbout,
    Verdict,
    VirtualRun,
)
from parsers.read.counters import (
    Counters,
    Drop,
    drops_between,
    injected_loss,
    rule_bursts,
)
from parsers.read.cpu_log import CpuLog
from parsers.read.iperf3 import IperfReport
from parsers.read.ldm_log import LdmLog, Notice, Replayed
from parsers.read.products import ContentCheck, ProductList, compare_products
from parsers.read.ps_log import PsLog
from parsers.read.sar_log import SarLog, shift_to

NOT_WRITTEN = {"written": False}  # for fields that metrics.json does not have


@dataclass(frozen=True)
class CellData:
    """A cell's directory as records. None or missing: there was no such file."""

    cell: Cell
    verdict: Verdict | None = None
    logs: Mapping[str, LdmLog] = field(default_factory=dict)  # per host
    ingest: LdmLog | None = None
    sar: SarLog | None = None
    ps: PsLog | None = None
    cpu: CpuLog | None = None
    products: Mapping[str, ProductList] = field(default_factory=dict)  # per host
    counters_start: Counters | None = None
    counters_end: Counters | None = None
    lossy_links: frozenset[str] = frozenset()
    virtual: VirtualRun | None = None
    background: Mapping[str, IperfReport] = field(default_factory=dict)  # per host that has flows
    about: ProtocolAbout | None = None  # of a cell whose protocol sends files
    missing: tuple[str, ...] = ()  # files that did not exist
    carousel: CarouselData | None = None  # of a cell of protocol fcast
    layers: LayersData | None = None  # of a cell of protocol m2c


@dataclass(frozen=True)
class ReceiverMetrics:
    host: str
    site: str
    rtt_ms: float | None
    throughput: Value
    by: Mapping[str, int]  # how products arrived -> count
    missed: int
    duplicates: int
    fmtp: FmtpMetrics | None
    latency_p50: Value
    latency_p99: Value
    loss_measured: Value
    content: ContentCheck | None
    repaired: Repaired = Repaired()
    parts: LatencyParts | None = None  # of the files that FMTP delivered


@dataclass(frozen=True)
class CellMetrics:
    cell: Cell
    verdict: Verdict | None
    active_s: tuple[float, float]  # first insertion, last arrival; s after the first insertion
    sent: int
    sent_source: str
    values: Mapping[str, Value]
    file_sets: tuple[FileSetMetrics, ...]
    file_sets_complete: bool  # False: the run is smaller than G, and everything is one set
    receivers: tuple[ReceiverMetrics, ...]
    identical: Value  # number of receivers whose products equal the publisher's
    drops: tuple[Drop, ...]
    drops_known: bool
    series: Series
    notices: tuple[Notice, ...]
    problems: tuple[Problem, ...]
    missing: tuple[str, ...]
    virtual: VirtualRun | None = None
    about: ProtocolAbout | None = None
    file_sets_by: Mapping[int, tuple[FileSetMetrics, ...]] = field(default_factory=dict)  # other G
    pieces: Pieces = field(default=Pieces(), compare=False, metadata=NOT_WRITTEN)
    delivered: bytes = field(default=b"", compare=False, metadata=NOT_WRITTEN)  # deliveries.bin

    @property
    def uninjected(self) -> tuple[Drop, ...]:
        """Return the losses that the experiment did not inject."""
        return tuple(d for d in self.drops if not d.injected)


def summarize(
    data: CellData,
    group_bytes: int = metrics.GROUP_BYTES,
    other_group_bytes: Sequence[int] = (),
) -> CellMetrics:
    """Return all metrics of a cell, including file-sets of other sizes G. Values that cannot be
    computed have a reason; nothing raises."""
    cell = data.cell
    sent = sent_by(cell.protocol, data.logs.get(cell.publisher), data.ingest)
    receivers = {
        host: receiver_of(data.logs[host]) for host in cell.subscribers if host in data.logs
    }
    begin, end = _active(cell, receivers, last_insertion_s(data.ingest))
    values: dict[str, Value] = {}
    cut = cutter(cell, sent, receivers)
    sets, complete = throughput(cell, sent, receivers, group_bytes, cut, values)
    values |= fmtp_values(cell, receivers)
    latencies = _latencies(cell, sent, receivers, values)
    parts = latency_parts.by_receiver(cell, sent, receivers)
    values |= latency_parts.values_of(parts)
    sar = shift_to(data.sar, cell.insertion_started) if data.sar is not None else None
    found, nic = _nic(data, sar, (begin, end), sent, receivers)
    values |= found
    _cpu(data, begin, end, values)
    loss = _loss(data, receivers, values)
    content = _content(data)
    identical = _identical(cell, data, content)
    _others(data, sent, receivers, identical, values)
    drops, drops_known = _drops(data)
    return CellMetrics(
        cell=cell,
        verdict=data.verdict,
        active_s=(0.0, end - begin),
        sent=len(sent.order),
        sent_source=sent.source,
        values=values,
        file_sets=tuple(sets),
        file_sets_complete=complete,
        receivers=tuple(
            dataclasses.replace(
                _receiver(cell, host, receivers.get(host), loss[host], content.get(host)),
                parts=None if isinstance(parts, str) else parts.get(host),
            )
            for host in cell.subscribers
        ),
        identical=identical,
        drops=drops,
        drops_known=drops_known,
        series=dataclasses.replace(
            _series(data, sar, nic, begin, end, latencies), per_tau=_per_tau(cell, receivers)
        ),
        notices=tuple(n for log in _all_logs(data) for n in log.of(Notice)),
        problems=_problems(data),
        missing=data.missing,
        virtual=data.virtual,
        about=data.about,
        file_sets_by={size: tuple(cut(size)) for size in other_group_bytes},
        pieces=pieces_of(cell, sent, receivers),
        delivered=encode(delivered_of(cell.insertion_started, sent, receivers)),
    )


def _others(
    data: CellData,
    sent: Sent,
    receivers: Mapping[str, Receiver],
    identical: Value,
    values: dict[str, Value],
) -> None:
    """Add the competing traffic, the cost of delivery, and the products' overall outcome."""
    cell = data.cell
    _bursts(data, values)
    _background(data, values)
    _carousel(data, values)
    _layers(data, receivers, values)
    values |= bandwidth.delivery_values(
        cell, sent, receivers, (data.counters_start, data.counters_end)
    )
    values |= fairness.others_values(cell, sent, receivers)
    values["jain_flows"] = fairness.jain_value(values["nic1_bandwidth"], data.background)
    values["products_identical"] = (
        Value(identical.value / cell.m, "") if identical.value is not None else identical
    )
    values["verdict_invalid"] = _invalid(data)


def _carousel(data: CellData, values: dict[str, Value]) -> None:
    """Add how long a carousel's receivers listened, and the cost of distributing the data."""
    cell, start, end = data.cell, data.counters_start, data.counters_end
    values |= carousel.carousel_values(cell, data.carousel)
    values["wire_per_file"] = carousel.wire_per_file(cell, start, end)
    values["feedback_packets"] = carousel.feedback_packets(cell, start, end)
    if data.carousel is not None:
        values |= carousel.download_values(cell, data.carousel)


def _layers(data: CellData, receivers: Mapping[str, Receiver], values: dict[str, Value]) -> None:
    """Add how long one file took, its cost, and the effect on competing traffic."""
    arrived_s = {
        host: arrival.latency_s(product)
        for host, receiver in receivers.items()
        for product, arrival in receiver.arrivals.items()
    }
    counters = (data.counters_start, data.counters_end)
    values |= layers_values(data.cell, data.layers, arrived_s, counters)


def _invalid(data: CellData) -> Value:
    if data.verdict is None:
        return absent("", "no verdict.json")
    return Value(float(data.verdict.verdict == INVALID), "")


def _all_logs(data: CellData) -> list[LdmLog]:
    return [*data.logs.values(), *([data.ingest] if data.ingest is not None else [])]


def _problems(data: CellData) -> tuple[Problem, ...]:
    found = [p for log in _all_logs(data) for p in log.problems]
    found += [p for listing in data.products.values() for p in listing.problems]
    found += data.sar.problems if data.sar is not None else ()
    found += data.ps.problems if data.ps is not None else ()
    found += data.cpu.problems if data.cpu is not None else ()
    return tuple(sorted(found))


def _active(
    cell: Cell, receivers: Mapping[str, Receiver], inserted_s: float | None
) -> tuple[float, float]:
    """Return the first insertion, and the last arrival at any receiver or, if later, the last
    insertion: by pqinsert's log if it says, as its end is noticed late."""
    ended = cell.insertion_ended if inserted_s is None else inserted_s
    arrivals = [a.time_us for r in receivers.values() for a in r.arrivals.values()]
    last = max(arrivals) / MICROSECONDS if arrivals else (cell.drained or ended)
    return cell.insertion_started, max(ended, last)


def _latencies(
    cell: Cell, sent: Sent, receivers: Mapping[str, Receiver], values: dict[str, Value]
) -> list[float]:
    """Return the latencies from creation to arrival by any route, over all receivers. Quantiles
    and `latency_mean` are of all arrivals together."""
    found = sorted(a.latency_s(p) for r in receivers.values() for p, a in r.arrivals.items())
    expected = len(sent.order) * cell.m
    note = ""
    if expected > len(found):
        note = f"{expected - len(found)} of {expected} arrivals are missing"
    if negative := sum(1 for latency in found if latency < 0):
        note += f"{'; ' if note else ''}{negative} negative: the clocks differ"
    quantiles = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    for name, probability in quantiles.items():
        value = metrics.quantile(found, probability, "s")
        values[f"latency_{name}"] = Value(value.value, value.unit, value.reason, note)
    value = metrics.mean(found, "s")
    values["latency_mean"] = Value(value.value, value.unit, value.reason, note)
    return found


def _nic(
    data: CellData,
    sar: SarLog | None,
    active_s: tuple[float, float],
    sent: Sent,
    receivers: Mapping[str, Receiver],
) -> tuple[dict[str, Value], list[RateSample]]:
    """Return what the sender's NICs sent, by the byte counters, by sar, and by kind."""
    cell, start, stop = data.cell, data.counters_start, data.counters_end
    values = bandwidth.bandwidth_values(cell, start, stop, active_s)
    values["nic_bandwidth_sar"], samples = bandwidth.by_sar(cell, sar, active_s)
    total = values["nic_bandwidth"]
    if total.value is None and (instead := values["nic_bandwidth_sar"]).value is not None:
        note = f"NIC1 by sar: {total.reason}"
        total = values["nic_bandwidth"] = Value(instead.value, "bit/s", note=note)
    values |= bandwidth.parts(cell, start, stop, active_s, sent, receivers, total)
    sizes = [p.size_bytes for p in ingested(data.ingest)]
    values |= bandwidth.over_offered(sizes, last_insertion_s(data.ingest), active_s, total)
    return values, samples


def _cpu(data: CellData, begin: float, end: float, values: dict[str, Value]) -> None:
    """Add Phi by cpu.log if it exists, else by ps, which the papers used."""
    cores = data.cell.cores
    if data.cell.clock == "virtual":
        values.update({name: absent("%", NO_CPU) for name in ("cpu", "cpu_one_core", "cpu_ps")})
        return
    if data.ps is None:
        values["cpu_ps"] = absent("%", "no ps.log")
    else:
        values["cpu_ps"] = metrics.cpu_use(data.ps.samples, begin, end, cores).utilization
    source, samples = _cpu_samples(data)
    if not source:
        values["cpu"] = values["cpu_one_core"] = absent("%", "neither cpu.log nor ps.log")
        return
    use = metrics.cpu_use(samples, begin, end, cores)
    values["cpu"] = use.utilization
    values["cpu_one_core"] = use.one_core


def _cpu_samples(data: CellData) -> tuple[str, Sequence[CpuSample]]:
    """Return (source, samples) of the sender's CPU; ignore a cpu.log without samples."""
    if data.cpu is not None and data.cpu.samples:
        return "cpu.log", data.cpu.samples
    if data.ps is not None:
        return "ps", data.ps.samples
    return "", ()


def _loss(
    data: CellData, receivers: Mapping[str, Receiver], values: dict[str, Value]
) -> dict[str, Value]:
    """Return the measured loss of each receiver: the share of arriving packets that the
    experiment's rules dropped."""
    cell = data.cell
    values["loss_injected"] = Value(100.0 * cell.loss, "%")
    found: dict[str, Value] = {}
    all_dropped = all_arrived = 0
    start, end = data.counters_start, data.counters_end
    for host in cell.subscribers:
        if start is None or end is None:
            found[host] = absent("%", "no counters of start and end")
            continue
        injected = injected_loss(host, start, end)
        arrived, dropped = injected.arrived, injected.dropped or 0
        key = f"{host}/{bandwidth.interface_name(injected.interface)}" if injected.interface else ""
        receiver = receivers.get(host)
        if arrived is not None:
            passed = arrived - dropped
        elif (
            cell.protocol in MULTICAST_PROTOCOLS
            and receiver is not None
            and receiver.stats is not None
        ):
            passed = receiver.stats.datagrams + receiver.stats.socket_drops
        elif cell.protocol == "ldm6" and key in end.interfaces:
            before = start.interfaces.get(key)
            packets = end.interfaces[key].rx_packets - (before.rx_packets if before else 0)
            passed = packets - dropped
        elif cell.loss == 0 and dropped == 0:
            found[host] = Value(0.0, "%", note="no DROP rule took a packet")
            continue
        else:
            found[host] = absent("%", "the number of packets that passed the rule is not known")
            continue
        if passed + dropped <= 0:
            found[host] = absent("%", "no packet arrived")
            continue
        found[host] = Value(100.0 * dropped / (passed + dropped), "%")
        all_dropped += dropped
        all_arrived += passed + dropped
    if all_arrived:
        values["loss_measured"] = Value(100.0 * all_dropped / all_arrived, "%")
    elif all(v.value == 0 for v in found.values()):
        values["loss_measured"] = Value(0.0, "%", note="no DROP rule took a packet")
    else:
        values["loss_measured"] = next(v for v in found.values() if v.value is None)
    return found


def _bursts(data: CellData, values: dict[str, Value]) -> None:
    """Add the mean length of bursts of lost packets, if losses come in bursts."""
    start, end = data.counters_start, data.counters_end
    if start is None or end is None:
        values["loss_burst"] = absent("packets", "no counters of start and end")
        return
    begun = [rule_bursts(host, start, end) for host in data.cell.subscribers]
    if all(b is None for b in begun):
        values["loss_burst"] = absent("packets", "losses do not come in bursts")
        return
    total = sum(b or 0 for b in begun)
    dropped = sum(injected_loss(host, start, end).dropped or 0 for host in data.cell.subscribers)
    values["loss_burst"] = (
        Value(dropped / total, "packets") if total else absent("packets", "no burst began")
    )


def _background(data: CellData, values: dict[str, Value]) -> None:
    """Add the goodput of all competing flows together, if there are any."""
    if not data.background:
        values["background_goodput"] = absent("bit/s", "no competing flows")
        return
    found = {host: report.goodput_bps for host, report in data.background.items()}
    without = sorted(host for host, goodput in found.items() if goodput is None)
    if without:
        reason = data.background[without[0]].error or "iperf3 does not say what arrived"
        values["background_goodput"] = absent("bit/s", f"{without[0]}: {reason}")
        return
    flows = sum(report.flows for report in data.background.values())
    values["background_goodput"] = Value(
        sum(g for g in found.values() if g is not None), "bit/s", note=f"{flows} flows"
    )


def _content(data: CellData) -> dict[str, ContentCheck]:
    published = data.products.get(data.cell.publisher)
    if published is None:
        return {}
    return {
        host: compare_products(host, published.products, data.products[host].products)
        for host in data.cell.subscribers
        if host in data.products
    }


def _identical(cell: Cell, data: CellData, content: Mapping[str, ContentCheck]) -> Value:
    published = data.products.get(cell.publisher)
    if published is None:
        return absent("", f"no products/{cell.publisher}.txt")
    if not published.products:
        return absent("", f"products/{cell.publisher}.txt lists no product")
    without = [h for h in cell.subscribers if h not in content]
    count = sum(1 for check in content.values() if check.identical)
    note = f"no list of {', '.join(without)}" if without else ""
    return Value(float(count), "", note=note)


def _drops(data: CellData) -> tuple[tuple[Drop, ...], bool]:
    if data.counters_start is None or data.counters_end is None:
        return (), False
    found = drops_between(data.counters_start, data.counters_end, data.lossy_links)
    return tuple(with_purpose(data.cell, drop) for drop in found), True


def with_purpose(cell: Cell, drop: Drop) -> Drop:
    """Return the drop as intended if a UDP buffer was meant to overflow: because its size varies,
    or because it belongs to the first receiver, which pauses in each second."""
    paused = cell.subscribers[0] if cell.parameters.get("pause_ms") else None
    on_purpose = "b_rcv" in cell.factors or drop.place == paused
    if drop.what == "UDP rcvbuf_errors" and on_purpose:
        return dataclasses.replace(drop, injected=True)
    return drop


def _receiver(
    cell: Cell,
    host: str,
    receiver: Receiver | None,
    loss: Value,
    content: ContentCheck | None,
) -> ReceiverMetrics:
    site = cell.site_of.get(host, "?")
    rtt = cell.rtt_ms.get(host)
    if receiver is None:
        reason = f"no log of {host}"
        none = absent("s", reason)
        return ReceiverMetrics(
            host, site, rtt, absent("bit/s", reason), {}, 0, 0, None, none, none, loss, content
        )
    by: dict[str, int] = {}
    for arrival in receiver.arrivals.values():
        by[arrival.how] = by.get(arrival.how, 0) + 1
    counted = sorted(
        (
            Delivery(p.size_bytes, a.latency_s(p))
            for p, a in receiver.arrivals.items()
            if counts(cell.protocol_of(host), a)
        ),
        key=attrgetter("latency_s", "size_bytes"),
    )
    latencies = [a.latency_s(p) for p, a in receiver.arrivals.items()]
    return ReceiverMetrics(
        host=host,
        site=site,
        rtt_ms=rtt,
        throughput=metrics.receiver_throughput(counted),
        by=by,
        missed=receiver.missed,
        duplicates=receiver.duplicates,
        fmtp=fmtp_of(receiver.arrivals.items()) if cell.protocol_of(host) == "ldm7" else None,
        latency_p50=metrics.quantile(latencies, 0.5, "s"),
        latency_p99=metrics.quantile(latencies, 0.99, "s"),
        loss_measured=loss,
        content=content,
        repaired=repaired_of(receiver.arrivals.values()),
    )


def _per_tau(cell: Cell, receivers: Mapping[str, Receiver]) -> dict[str, tuple[Tau, ...]]:
    """Return DRFSM21 3.2's metrics over time for each subscriber with multicast."""
    width = interval_s(cell.insertion_ended - cell.insertion_started)
    return {
        host: per_tau(receiver.arrivals, cell.insertion_started, width)
        for host, receiver in receivers.items()
        if cell.protocol_of(host) == "ldm7"
    }


def _series(
    data: CellData,
    sar: SarLog | None,
    nic: list[RateSample],
    begin: float,
    end: float,
    latencies: list[float],
) -> Series:
    machine: tuple[tuple[float, float], ...] = ()
    source, samples = _cpu_samples(data)
    if data.cell.clock == "virtual":
        source, samples = "", ()
    elif sar is not None:
        machine = tuple(
            (s.time_s - begin, s.user + s.nice + s.system) for s in sar.cpus if s.cpu == "all"
        )
    return Series(
        nic_bps=tuple((s.time_s - begin, s.rate) for s in nic),
        nic_bps_per_minute=per_minute(nic, begin, end),
        input_bps=input_series(ingested(data.ingest), begin, end),
        arrivals=arrivals(ingested(data.ingest), begin),
        machine_cpu=machine,
        sender_cpu=cpu_series(samples, data.cell.cores, begin),
        sender_cpu_source=source,
        latency_cdf=tuple(metrics.cdf(latencies)),
    )


def replayed(data: CellData) -> Replayed | None:
    """Return pqinsert's summary of the replay."""
    records = data.ingest.of(Replayed) if data.ingest is not None else []
    return max(records, key=lambda r: r.time_us) if records else None
