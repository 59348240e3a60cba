# SPDX-License-Identifier: Apache-2.0
"""The evidence of a good run, and its parts, for tests to spoil."""

from __future__ import annotations

import dataclasses
from typing import Any

from experiments.verdict import Evidence, judge
from experiments.verdict.as_planned import InventorySeen
from experiments.verdict.cpu_load import CoreLoad, Load, ProcessLoad
from experiments.verdict.host_lag import HostLag
from experiments.verdict.in_flight import FlightSeen
from experiments.verdict.one_way import Way
from experiments.verdict.queue_watch import Queue
from parsers.read.counters import Counters
from parsers.read.ldm_log import ReceiverStats, Replayed
from parsers.read.products import ContentCheck
from parsers.read.sar_log import CpuSample
from topologies.watch.flights import Block
from topologies.watch.link_probes import LinkProbe

HOSTS = ("wsu1", "sl1")
PRODUCTS = 100


def counters(**changes: Any) -> Counters:
    return Counters.model_validate({"time": 0, **changes})


def stats(**changes: int) -> ReceiverStats:
    values = {f.name: 0 for f in dataclasses.fields(ReceiverStats)}
    return ReceiverStats(
        **{**values, "prog": "down7", "rcvbuf_granted_bytes": 1_200_000_000, **changes}  # type: ignore[arg-type]
    )


def cpu(idle: float, steal: float = 0.0, count: int = 10) -> list[CpuSample]:
    return [CpuSample(float(i), 1.0, "all", 100 - idle, 0, 0, 0, steal, idle) for i in range(count)]


def content(host: str, **changes: Any) -> ContentCheck:
    base = ContentCheck(host, PRODUCTS, PRODUCTS, (), (), ())
    return dataclasses.replace(base, **changes)


def replayed(**changes: Any) -> Replayed:
    base = Replayed(0, "pqinsert", 1, PRODUCTS, 1, 60.0, 0.1, 20.0)
    return dataclasses.replace(base, **changes)


def probe(
    least_ms: float | None, direction: str = "forward", received: int = 10, jitter_ms: float = 0.0
) -> LinkProbe:
    """Return a probe of a link of 18 ms; its median is 0.5 ms above its minimum."""
    median_ms = None if least_ms is None else least_ms + 0.5
    return LinkProbe(
        *("a:b", direction, 18.0, jitter_ms, 0.0, 10, received, least_ms, median_ms, median_ms)
    )


def probes(after: list[LinkProbe]) -> dict[str, list[LinkProbe]]:
    return {"before": [probe(18.1)], "after": after}


def lag(**changes: Any) -> HostLag:
    values: dict[str, Any] = {f.name: 0.0 for f in dataclasses.fields(HostLag)}
    sound = {"samples": 600, "p50_ms": 0.1, "p99_ms": 1.0, "max_ms": 3.0, "elapsed_s": 60.0}
    return HostLag(**{**values, **sound, "resolution_ns": 1, "look_ns": 20, **changes})


HALF = (CoreLoad("cpu0", 0.49, 0.0), CoreLoad("cpu1", 0.4, 0.0))


def load(*processes: ProcessLoad, **changes: Any) -> Load:
    found = (
        ProcessLoad("", "ovs-vswitchd", 7, 30.0, 0.5, 60_000),
        ProcessLoad("umass", "mldm", 8, 3.0, 0.2, 9_000),
        ProcessLoad("sl1", "down7", 9, 1.5, 0.1, 9_000),
    )
    cores = (CoreLoad("cpu0", 0.5, 0.01), CoreLoad("cpu1", 0.4, 0.0))
    values = Load(60.0, cores, (*found, *processes), 1.2, "tsc")
    return dataclasses.replace(values, **changes)


def queue(**changes: Any) -> Queue:
    """Return a queue of a link of 100 Mbit/s with a burst of 12,500 bytes: 100.1 Mbit/s over a
    second."""
    values = {
        **{"place": "wire/w0b/10:", "link": "a:b/forward", "kind": "tbf", "samples": 600},
        **{"limit_bytes": 500_000, "peak_backlog_bytes": 100_000, "peak_backlog_packets": 70},
        **{"rate_bps": 100e6, "burst_bytes": 12_500, "peak_rate_bps": 60e6, "peak_rate_s": 1.0},
    }
    return Queue(**{**values, **changes})


def flight(**changes: Any) -> FlightSeen:
    """Return what was seen of packets to sl1, over 20.5 ms, in two blocks of 10 s."""
    way = Way(20.5, 0.0, 0.0, 0, False, ("a:b",))
    blocks = [Block(at_s, 100, 20.5, 20.5001, 20.52, 20.6) for at_s in (0.0, 10.0)]
    values: dict[str, Any] = {f.name: 0 for f in dataclasses.fields(FlightSeen)}
    names = {"source": "umass", "target": "sl1", "network": "path", "packets": 200}
    return FlightSeen(**{**values, **names, "asked": way, "blocks": blocks, **changes})


def look(when: str = "start", **changes: Any) -> dict[str, Any]:
    return {"when": when, "at_s": 1.0, "things": 50, "unplanned": [], "changed": [], **changes}


def inventory(*looks: dict[str, Any], **changes: Any) -> InventorySeen:
    values: dict[str, Any] = {"changes": [], "changes_missed": 0, "throttled": 0}
    return InventorySeen(looks or (look(), look("meanwhile"), look("end")), **{**values, **changes})


SENT = {"umass/u-eth0": {"tx_packets": 10_000}}
SHAPED = {"umass/u-eth0/1:1": {"sent_packets": 10_000}}
GOOD = Evidence(
    protocol="ldm7",
    m=2,
    loss=0.01,
    shaped_bps=20_000_000,
    b_rcv_bytes=600_000_000,
    products=PRODUCTS,
    link_mismatches=(),
    links_checked=16,
    shaping_mismatches=(),
    shaping_checked=21,
    links_after=((), 16),
    shaping_after=((), 21),
    start=counters(),
    end=counters(interfaces=SENT, classes=SHAPED),
    publisher="umass",
    publisher_nic1="u-eth0",
    relay_delay_ms={"a:b/forward": 18.0},
    cpu=cpu(60),
    replayed=replayed(),
    receivers={h: stats(datagrams=9_900) for h in HOSTS},
    datagrams_sent=10_000,
    arrived=dict.fromkeys(HOSTS, (10000, 100)),
    contents=[content(h) for h in HOSTS],
    drained=True,
    tcp_asked=("ctcp", "bbr"),
    tcp_found="ctcp (cwnd 187)",
    rtt_asked_ms={"wsu1": 36.0, "sl1": 41.0},
    rtt_measured_ms={"wsu1": 36.4, "sl1": 41.3},
    rtt_after_ms={"sl1": 41.3},
    lags={"umass": lag(), "sl1": lag()},
    load=load(),
    queues=[queue()],
    sockets=dict.fromkeys(HOSTS, 1000000),
    inventory=inventory(),
    flights=[flight()],
    probes={when: [probe(18.1), probe(18.2, "backward")] for when in ("before", "after")},
)


def statuses(**changes: Any) -> dict[str, str]:
    verdict = judge(dataclasses.replace(GOOD, **changes))
    return {c.name: c.status for c in verdict.checks if c.status in ("warn", "fail")}


def end(**changes: Any) -> Counters:
    return counters(**{"interfaces": SENT, "classes": SHAPED, **changes})
