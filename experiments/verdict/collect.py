# SPDX-License-Identifier: Apache-2.0
"""Read a cell's files into the verdict's `Evidence`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypedDict

from pydantic import BaseModel, ConfigDict, ValidationError

from common.contracts import WITH_OWN_LOGS
from common.virtual_time import Clock
from experiments.design import burst_loss, loss_model, shaping
from experiments.design.expansion import CellSpec
from experiments.design.shaping import Setting
from experiments.verdict import Evidence, elsewhere, host_lag, in_flight, in_parts
from experiments.verdict.arrivals import earliest_ms
from experiments.verdict.as_planned import InventorySeen
from experiments.verdict.cpu_load import Load
from experiments.verdict.evidence import BurstCount, parse_shaper_log
from experiments.verdict.host_lag import HostLag
from experiments.verdict.in_flight import FlightSeen
from experiments.verdict.queue_watch import Queue
from parsers.base.jsonfiles import BadFile, describe
from parsers.measure.deliveries import receiver_stats
from parsers.measure.run_files import load_carousel, load_layers
from parsers.read.cell_files import Finite, lossy_link_directions
from parsers.read.counters import Counters, injected_loss, parse_counters, rule_bursts
from parsers.read.ldm_log import (
    LdmLog,
    ReceiverStats,
    Replayed,
    SenderStats,
    parse_ldm_log,
)
from parsers.read.products import (
    ContentCheck,
    ListedProduct,
    compare_products,
    parse_products,
)
from parsers.read.sar_log import CpuSample, parse_sar_log, shift_to
from topologies.model import wire_plan
from topologies.model.network import Network
from topologies.model.paths import behind_handoff
from topologies.model.wire_plan import WIRE
from topologies.watch.link_probes import LinkProbe


class _Of(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class _Trace(_Of):
    products: int


class _Parameters(_Of):
    tcp_congestion_control: str


class Observed(_Of):
    """What a cell learned while it ran and has no other file: the keys of cell.json."""

    nic1: str
    trace: _Trace
    insertion_started: Finite
    insertion_ended: Finite
    drained: Finite
    drained_all: bool
    parameters: _Parameters
    tcp_others: str  # connections that use another algorithm, by host
    loss_model: str
    rtt_measured_ms: dict[str, Finite]
    rtt_after_ms: dict[str, Finite]
    clock: Clock


def observed(out: Path, cell_json: Mapping[str, object]) -> Observed:
    """Return what the cell.json of the directory `out` says about the cell's run. Raises
    BadFile."""
    try:
        return Observed.model_validate(cell_json)
    except ValidationError as error:
        raise BadFile(describe(error, str(out / "cell.json"))) from None


def collect(out: Path, cell: CellSpec, network: Network, seen: Observed) -> Evidence:
    """Return the evidence of a cell: what its cell.json says, and the other files in its directory
    `out`."""
    everyone = cell.subscribing(h.name for h in network.subscribers)
    subscribers = cell.multicast_of(
        everyone
    )  # the others receive by TCP, which repairs losses itself
    wrong_links, links = link_mismatches(out / "links.json")
    wrong_settings, settings = shaping_mismatches(out / "shaping.json")
    start, end = (_counters(out / f"counters-{at}.json") for at in ("start", "end"))
    return Evidence(
        protocol=cell.protocol,
        m=len(subscribers),
        loss=cell.loss,
        without_multicast=len(everyone) - len(subscribers),
        varied=frozenset(cell.factors),
        loss_of=cell.by_receiver(subscribers, "p_i"),
        loss_model=seen.loss_model,
        shaped_bps=cell.shaped_bps,
        b_rcv_bytes=min(cell.b_rcv_of(everyone).values()),
        f_rcv=cell.f_rcv,
        repair=cell.repair,
        products=seen.trace.products,
        link_mismatches=wrong_links,
        links_checked=links,
        shaping_mismatches=wrong_settings,
        shaping_checked=settings,
        links_after=link_mismatches(out / "links-end.json"),
        shaping_after=shaping_mismatches(out / "shaping-end.json"),
        probes=link_probes(out / "link-probes.json"),
        **watched(out),
        start=start,
        end=end,
        publisher=network.publisher.name,
        publisher_nic1=seen.nic1,
        lossy_links=lossy_link_directions(network.to_json(), "network.json"),
        behind_cut=behind_handoff(network) if cell.cut != "none" else frozenset(),
        relay_delay_ms=delays(network),
        network=network,
        cpu=cpu_samples(out / "logs/sar.log", seen.insertion_started, seen.drained),
        replayed=_replayed(out / f"logs/{_feeder(cell)}.log"),
        receivers={h: _receiver_stats(out / f"logs/{h}.ldmd.log") for h in subscribers},
        datagrams_sent=_datagrams_sent(out / f"logs/{network.publisher.name}.ldmd.log"),
        arrived=arrivals(
            start,
            end,
            subscribers,
            cell.loss or cell.loss_period,
            cell.by_receiver(subscribers, "p_i"),
        ),
        loss_period=cell.loss_period,
        carousel=load_carousel(out, everyone) if cell.protocol == "fcast" else None,
        disk_iops=cell.carousel.disk_iops,
        layers=load_layers(out, everyone) if cell.protocol == "m2c" else None,
        branches_change=cell.protocol == "m2c",
        loss_burst_packets=cell.loss_burst_packets,
        bursts=_bursts(cell, start, end, subscribers) if cell.bursts else {},
        **_queues_to_be(cell, network),
        paused=everyone[0] if cell.pauses_first else None,
        contents=_contents(out / "products", network.publisher.name, everyone),
        drained=seen.drained_all,
        drain_s=seen.drained - seen.insertion_ended,
        shaper=parse_shaper_log(_text(out / "logs/shaper.log")),
        tcp_asked=cell.tcp_congestion_control,
        tcp_found=seen.parameters.tcp_congestion_control,
        tcp_others=seen.tcp_others,
        rtt_asked_ms={h: network.round_trip_ms[h] for h in subscribers},
        rtt_measured_ms=seen.rtt_measured_ms,
        rtt_after_ms=seen.rtt_after_ms,
        clock=seen.clock,
        earliest_ms=earliest(out, cell, everyone),
        clock_offsets_ms=cell.clock_offsets_ms(everyone),
        elsewhere=hosts_elsewhere(out / "hosts.json", network),
        cut_frames=in_parts.parse(json.loads(_text(out / "parts.json") or "{}")),
    )


def _feeder(cell: CellSpec) -> str:
    return "pqinsert" if cell.protocol in WITH_OWN_LOGS else "feed"


class QueuesToBe(TypedDict):
    """How queues are meant to behave."""

    congested: frozenset[str]
    marks_asked: bool


def _queues_to_be(cell: CellSpec, network: Network) -> QueuesToBe:
    """Return the queues that competing flows, or bottlenecks, fill."""
    slow = cell.rate_i_bps or cell.conditions.first.rate_bps
    full = cell.has_rivals or slow or cell.bottleneck.rate_bps
    return {
        "congested": congested(network) if full else frozenset(),
        "marks_asked": cell.conditions.ecn == "mark",
    }


def congested(network: Network) -> frozenset[str]:
    """Return where competing flows fill queues: "<node>/<interface>", at both ends of each part of
    a link with a rate."""
    found = set()
    for link in wire_plan.plan(network, "netem").links:
        for direction, source in zip(link.directions, (link.link.a, link.link.b), strict=True):
            if direction.asked.rate_bps is not None:
                found |= {f"{WIRE}/{direction.egress}", f"{source.node}/{source.interface}"}
    return frozenset(found)


def _bursts(
    cell: CellSpec, start: Counters, end: Counters, subscribers: Iterable[str]
) -> dict[str, BurstCount]:
    """Return the burst counts by receiver. Leave out receivers without counters, as `arrived`."""
    found = {}
    subscribers = list(subscribers)
    p_i = cell.by_receiver(subscribers, "p_i")
    for host in subscribers:
        loss = p_i.get(host, cell.loss)
        if loss == 0:
            continue
        begun = rule_bursts(host, start, end)
        counts = arrivals(start, end, [host], cell.loss)
        if begun is None or host not in counts:
            continue
        arrived, dropped = counts[host]
        seed = loss_model.loss_seed(cell.seed, host)
        bounds = burst_loss.pattern(loss, cell.loss_burst_packets, seed).bounds(arrived)
        slack = burst_loss.SLACK_PACKETS
        found[host] = BurstCount(
            dropped,
            begun,
            (bounds.lost[0] - slack, bounds.lost[1] + slack),
            (bounds.bursts[0] - slack, bounds.bursts[1] + slack),
        )
    return found


def link_mismatches(path: Path) -> tuple[list[str], int]:
    """Return a text for each direction of a link that differs from the request, and the number of
    directions read back."""
    links = json.loads(path.read_text())
    wrong = [
        f"{link['link']} {link['direction']}: asked {link['asked']}, found {link['found']} "
        f"({link['note']})"
        for link in links
        if not link["ok"]
    ]
    return wrong, len(links)


def shaping_mismatches(path: Path) -> tuple[list[str], int]:
    """Return a text for each setting of the experiment that differs from the request, and the
    number of settings read back."""
    settings = [
        Setting(s["name"], s["asked"], s["found"], s["tolerance"])
        for s in json.loads(path.read_text())["settings"]
    ]
    return shaping.mismatches(settings), len(settings)


def link_probes(path: Path) -> dict[str, list[LinkProbe]]:
    """Read the probes "before" and "after" the replay."""
    return {when: [LinkProbe(**p) for p in ps] for when, ps in json.loads(path.read_text()).items()}


class Watched(TypedDict):
    """The fields of Evidence that come from what was watched during the replay."""

    lags: dict[str, HostLag]
    load: Load | None
    queues: list[Queue]
    sockets: dict[str, int]
    inventory: InventorySeen | None
    flights: list[FlightSeen]
    flights_unseen: int


def watched(out: Path) -> Watched:
    """Read a cell's host-lag.json, load.json (missing in virtual time), queues.json, inventory.json
    and flights.json."""
    lags = json.loads((out / "host-lag.json").read_text())
    seen = json.loads((out / "queues.json").read_text())
    load = out / "load.json"
    flights = json.loads(_text(out / "flights.json") or "{}")
    return {
        "lags": {host: host_lag.parse(raw) for host, raw in lags.items()},
        "load": Load.from_dict(json.loads(load.read_text())) if load.exists() else None,
        "queues": [Queue(**queue) for queue in seen["queues"]],
        "sockets": seen["sockets"],
        "inventory": inventory_seen(out / "inventory.json"),
        "flights": in_flight.parse(flights) if flights else [],
        "flights_unseen": flights.get("unseen", 0),
    }


def inventory_seen(path: Path) -> InventorySeen | None:
    """Read inventory.json; None if there is none."""
    return InventorySeen(**json.loads(text)) if (text := _text(path)) else None


def hosts_elsewhere(path: Path, network: Network) -> dict[str, elsewhere.Elsewhere]:
    """Read hosts.json; {} if all hosts are on this machine."""
    nics = {host.name: host.nic1.interface for host in network.hosts}
    raw = json.loads(_text(path) or "{}")
    return {name: elsewhere.parse(host, nics) for name, host in raw.items()}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _counters(path: Path) -> Counters:
    return parse_counters(path.read_text(), path.name)


def delays(network: Network) -> dict[str, float]:
    """Return the one-way delay by "<link>/<direction>"."""
    found = {}
    for link in network.links:
        found[f"{link.name}/forward"] = link.forward.delay_ms
        found[f"{link.name}/backward"] = link.backward.delay_ms
    return found


def cpu_samples(path: Path, begin: float, end: float) -> list[CpuSample]:
    """Read the machine's CPU samples taken while products were in transit."""
    log = shift_to(parse_sar_log(_text(path), path.name), begin)
    return [s for s in log.cpus if s.time_s > begin and s.time_s - s.interval_s < end]


def _replayed(path: Path) -> Replayed | None:
    found = _statistics(path, "Replayed").of(Replayed)
    return found[-1] if found else None


def _statistics(path: Path, words: str) -> LdmLog:
    """Return the lines of a log that have these words: a few, at the end of a log of an hour."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return parse_ldm_log("".join(line for line in lines if words in line), path.name)
    except OSError:
        return parse_ldm_log("", path.name)


def earliest(out: Path, cell: CellSpec, hosts: Iterable[str]) -> dict[str, float]:
    """Return the least time from a product's creation to its arrival, ms, by receiver; {} for
    protocols whose logs name no products. Logs are read line by line."""
    if cell.protocol in ("fcast", "m2c"):
        return {}
    ending = "ldmd" if cell.protocol in WITH_OWN_LOGS else "inbox"
    found = {}
    for host in hosts:
        path = out / f"logs/{host}.{ending}.log"
        if not path.is_file():
            continue
        with path.open(encoding="utf-8", errors="replace", newline="\n") as lines:
            least = earliest_ms(parse_ldm_log(lines, path.name).records)
        if least is not None:
            found[host] = least
    return found


def _receiver_stats(path: Path) -> ReceiverStats | None:
    """Return what a subscriber's FMTP receivers counted; None if there are no counts (never any for
    LDM6)."""
    return receiver_stats(_statistics(path, "FMTP receiver:"))


def _datagrams_sent(path: Path) -> int | None:
    """Return the statistics of all multicast senders in the log; None if it has none."""
    last = {s.pid: s.datagrams for s in _statistics(path, "FMTP sender:").of(SenderStats)}
    return sum(last.values()) if last else None


def arrivals(
    start: Counters,
    end: Counters,
    subscribers: Iterable[str],
    loss: float,
    loss_of: Mapping[str, float] | None = None,
) -> dict[str, tuple[int, int]]:
    """Return for each subscriber (packets that reached the loss rule, packets it dropped). A
    receiver that is to lose nothing, by `loss_of` or `loss`, has no such rule."""
    found = {}
    for host in subscribers:
        injected = injected_loss(host, start, end)
        dropped = injected.dropped if (loss_of or {}).get(host, loss) > 0 else 0
        if injected.arrived is not None and dropped is not None:
            found[host] = (injected.arrived, dropped)
    return found


def _contents(directory: Path, publisher: str, subscribers: Iterable[str]) -> list[ContentCheck]:
    published = _listed(directory / f"{publisher}.txt")
    return [compare_products(h, published, _listed(directory / f"{h}.txt")) for h in subscribers]


def _listed(path: Path) -> tuple[ListedProduct, ...]:
    return parse_products(_text(path), path.name).products
