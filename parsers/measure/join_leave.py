# SPDX-License-Identifier: Apache-2.0
"""Compute the metrics of a cell whose subscribers join and leave, from its files' values. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from common.contracts import INVALID, JOIN_LEAVE
from parsers.base.factors import Scalar
from parsers.base.jsonfiles import BadFile, describe
from parsers.base.metric_units import Value, absent
from parsers.base.problems import Problem
from parsers.measure import metrics
from parsers.measure.deliveries import receiver_of
from parsers.measure.subscriptions import (
    Feed,
    ScriptEvent,
    Session,
    Subscription,
    feed_of,
    reached_s,
    sessions_of,
    subscription_of,
)
from parsers.read.cell_files import (
    CellTrace,
    Clock,
    Finite,
    Verdict,
    VirtualRun,
)
from parsers.read.counters import Counters, Drop, drops_between
from parsers.read.ldm_log import (
    LdmLog,
    Notice,
    PathEvent,
    Received,
)
from parsers.read.products import ProductList


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class FeedInfo(_File):
    """A feed, and the subscriber that stays."""

    name: str
    lane: int = Field(ge=1)
    r_mc_bps: int
    r_vn_bps: int
    ceil_bps: int = 0  # 0: its rate, nothing is borrowed
    products: int
    nic1: str
    stays: tuple[str, ...] = Field(min_length=1)


class JoinLeaveCell(_File):
    """cell.json of a cell with `"kind": "join-leave"` (docs/reference/contracts.md)."""

    kind: Literal["join-leave"]
    cell: str
    experiment: str
    protocol: Literal["ldm7"]
    m: int = Field(ge=1)
    duration_s: Finite
    seed: int | str | None = None
    repeat: int = Field(0, ge=0)
    level: str | None = None
    factors: dict[str, Scalar] = {}
    parameters: dict[str, object] = {}
    publisher: str
    subscribers: tuple[str, ...] = Field(min_length=1)
    site_of: dict[str, str] = {}
    rtt_ms: dict[str, float] = {}
    rtt_measured_ms: dict[str, float] = {}
    feeds: tuple[FeedInfo, ...] = Field(min_length=1)
    endpoints: dict[str, str]  # "<subscriber>.<feed>" -> switch:port:VLAN
    trace: CellTrace
    insertion_started: Finite
    insertion_ended: Finite
    drained: Finite
    drained_all: bool
    clock: Clock = "native"
    topology: str = ""


def is_join_leave(text: str) -> bool:
    """Return whether this is the cell.json of such a cell."""
    try:
        raw = json.loads(text)
    except json.JSONDecodeError:
        return False
    return isinstance(raw, dict) and raw.get("kind") == JOIN_LEAVE


def parse_cell(text: str, file: str) -> JoinLeaveCell:
    """Parse cell.json. Raises BadFile."""
    try:
        return JoinLeaveCell.model_validate_json(text)
    except ValidationError as error:
        raise BadFile(describe(error, file)) from None


class _Endpoint(_File):
    switch: str
    port: int
    vlan: int

    def __str__(self) -> str:
        return f"{self.switch}:{self.port}:{self.vlan}"


class PathState(_File):
    """A path as the path service shows it."""

    name: str
    state: str
    leaves: tuple[_Endpoint, ...]

    @property
    def endpoints(self) -> frozenset[str]:
        """Return the leaves as switch:port:VLAN."""
        return frozenset(map(str, self.leaves))


def parse_paths(text: str, file: str) -> tuple[PathState, ...]:
    """Parse paths-start.json or paths-end.json. Raises `BadFile`."""
    try:
        return tuple(PathState.model_validate(row) for row in json.loads(text))
    except (json.JSONDecodeError, TypeError) as error:
        raise BadFile(f"{file}: not a list of paths: {error}") from None
    except ValidationError as error:
        raise BadFile(describe(error, file)) from None


class _Count(_File):
    packets: int
    bytes: int = 0


class _Counted(_Endpoint):
    """An endpoint: frames dropped for their source (spoofed) or their destination (denied)."""

    denied: _Count
    spoofed: _Count


class _Entered(_File):
    multicast: _Count


class PathCounters(_File):
    """What the switches counted of one path, as the path service shows it."""

    name: str
    entered: _Entered
    meter_dropped: _Count
    root: _Counted
    leaves: tuple[_Counted, ...]

    @property
    def refused(self) -> int:
        """Return the frames whose source or destination was not allowed at their endpoint."""
        return sum(e.denied.packets + e.spoofed.packets for e in (self.root, *self.leaves))


def parse_path_counters(text: str, file: str) -> tuple[PathCounters, ...]:
    """Parse path-counters.json. Raises `BadFile`."""
    try:
        return tuple(PathCounters.model_validate(row) for row in json.loads(text))
    except (json.JSONDecodeError, TypeError) as error:
        raise BadFile(f"{file}: not a list of paths' counters: {error}") from None
    except ValidationError as error:
        raise BadFile(describe(error, file)) from None


@dataclass(frozen=True)
class JoinLeaveData:
    """Everything read from one cell. `logs` and `products`: by "<subscriber>.<feed>", except the
    publisher's log (by its name) and products (by "<publisher>.<feed>"). `ingest`: by feed."""

    cell: JoinLeaveCell
    verdict: Verdict | None
    events: tuple[ScriptEvent, ...]
    logs: Mapping[str, LdmLog]
    ingest: Mapping[str, LdmLog]
    products: Mapping[str, ProductList]
    counters_start: Counters | None
    counters_end: Counters | None
    paths_end: tuple[PathState, ...]
    path_counters: tuple[PathCounters, ...]
    lossy_links: frozenset[str]
    virtual: VirtualRun | None
    missing: tuple[str, ...]


@dataclass(frozen=True)
class FeedMetrics:
    """A feed at its publisher, over all its subscriptions."""

    info: FeedInfo
    input_bps: Value
    path_setup_s: Value
    sessions: int
    leaves_added: int
    leaves_removed: int
    leaf_setup_p50: Value
    latency_p50: Value  # from BOP to the whole product, at all that received it by multicast
    latency_p99: Value
    whole_p50: Value  # from creation to the whole product, at those that stayed
    whole_p99: Value
    throughput: Value  # MPUP16 eq. 3, mean over those that stayed
    branches: frozenset[str]  # in the path service at the end
    subscribed: frozenset[str]  # endpoints that are subscribed at the end
    counters: PathCounters | None


@dataclass(frozen=True)
class JoinLeaveMetrics:
    """The results of a cell. `values`: by names of
    `parsers.base.metric_units.SUBSCRIPTION_METRICS`."""

    cell: JoinLeaveCell
    verdict: Verdict | None
    values: Mapping[str, Value]
    feeds: tuple[FeedMetrics, ...]
    subscriptions: tuple[Subscription, ...]
    drops: tuple[Drop, ...] | None  # None: there are no counters
    virtual: VirtualRun | None
    notices: Mapping[str, tuple[Notice, ...]]
    problems: tuple[Problem, ...]
    missing: tuple[str, ...]


def summarize(data: JoinLeaveData) -> JoinLeaveMetrics:
    """Return the metrics. Report and leave out a subscription whose log or list is missing."""
    cell, missing = data.cell, list(data.missing)
    feeds: list[FeedMetrics] = []
    subscriptions: list[Subscription] = []
    for info in cell.feeds:
        feed = _feed(data, info.name)
        own = _subscriptions(data, info, feed)
        subscriptions += own
        feeds.append(_feed_metrics(data, info, feed, own))
    drops = None
    if data.counters_start is not None and data.counters_end is not None:
        drops = drops_between(data.counters_start, data.counters_end, data.lossy_links)
    logs = [*data.logs.values(), *data.ingest.values()]
    return JoinLeaveMetrics(
        cell=cell,
        verdict=data.verdict,
        values=_values(data, feeds, subscriptions),
        feeds=tuple(feeds),
        subscriptions=tuple(subscriptions),
        drops=drops,
        virtual=data.virtual,
        notices={name: tuple(log.of(Notice)) for name, log in data.logs.items()},
        problems=(
            *(p for log in logs for p in log.problems),
            *(p for listing in data.products.values() for p in listing.problems),
        ),
        missing=tuple(missing),
    )


def _feed(data: JoinLeaveData, name: str) -> Feed:
    empty = LdmLog("", (), (), 0, 0)
    listed = data.products.get(f"{data.cell.publisher}.{name}")
    return feed_of(
        name,
        data.ingest.get(name, empty),
        () if listed is None else listed.products,
        data.logs.get(data.cell.publisher, empty),
    )


def _subscriptions(data: JoinLeaveData, info: FeedInfo, feed: Feed) -> list[Subscription]:
    stayed = [data.logs[n] for s in info.stays if (n := f"{s}.{info.name}") in data.logs]
    reached = reached_s(stayed)
    found = []
    for subscriber in data.cell.subscribers:
        name = f"{subscriber}.{info.name}"
        own = [e for e in data.events if (e.subscriber, e.feed) == (subscriber, info.name)]
        if not own or name not in data.logs or name not in data.products:
            continue
        log = data.logs[name]
        sessions = sessions_of(own, log, feed, data.cell.endpoints.get(name, ""))
        held = data.products[name].products
        found.append(subscription_of(subscriber, feed, sessions, log, held, reached))
    return found


def _feed_metrics(
    data: JoinLeaveData, info: FeedInfo, feed: Feed, subscriptions: Sequence[Subscription]
) -> FeedMetrics:
    cell = data.cell
    span_s = cell.insertion_ended - cell.insertion_started
    sent = sum(p.size_bytes for p in feed.published)
    delays = [
        r.delay_s for s in subscriptions for r in data.logs[f"{s.subscriber}.{s.feed}"].of(Received)
    ]
    added = _of(feed, "leaf added")
    ready = _of(feed, "path ready")
    path = next((p for p in data.paths_end if p.name == info.name), None)
    stayed = [_arrived(data, s) for s in subscriptions if s.stayed]
    whole = [delivery.latency_s for own in stayed for delivery in own]
    rates = [metrics.receiver_throughput(own).value for own in stayed]
    return FeedMetrics(
        info=info,
        input_bps=Value(8 * sent / span_s, "bit/s") if span_s > 0 else absent("bit/s", "no time"),
        path_setup_s=Value(ready[0].took_s, "s")
        if ready
        else absent("s", "no line of a path in the publisher's log"),
        sessions=sum(len(s.sessions) for s in subscriptions),
        leaves_added=len(added),
        leaves_removed=len(_of(feed, "leaf removed")),
        leaf_setup_p50=metrics.quantile([e.took_s for e in added], 0.5, "s"),
        latency_p50=metrics.quantile(delays, 0.5, "s"),
        latency_p99=metrics.quantile(delays, 0.99, "s"),
        whole_p50=metrics.quantile(whole, 0.5, "s"),
        whole_p99=metrics.quantile(whole, 0.99, "s"),
        throughput=metrics.mean([r for r in rates if r is not None], "bit/s"),
        branches=frozenset() if path is None else path.endpoints,
        subscribed=frozenset(
            cell.endpoints[f"{s.subscriber}.{s.feed}"] for s in subscriptions if s.at_end
        ),
        counters=next((c for c in data.path_counters if c.name == info.name), None),
    )


def _arrived(data: JoinLeaveData, own: Subscription) -> list[metrics.Delivery]:
    """Return every product of a subscription, with its age at arrival."""
    arrivals = receiver_of(data.logs[f"{own.subscriber}.{own.feed}"]).arrivals
    return [metrics.Delivery(p.size_bytes, a.latency_s(p)) for p, a in arrivals.items()]


def _of(feed: Feed, what: str) -> list[PathEvent]:
    return [e for e in feed.path_events if e.what == what]


def _values(
    data: JoinLeaveData, feeds: Sequence[FeedMetrics], subscriptions: Sequence[Subscription]
) -> dict[str, Value]:
    sessions = [s for subscription in subscriptions for s in subscription.sessions]
    ended = [s for s in sessions if s.end_s is not None]
    setups = [s.leaf_added_took_s for s in sessions]
    ready = [s.after_join(s.ready_s) for s in sessions]
    # Subscribers that stay join before anything is sent.
    begin = data.cell.insertion_started
    first = [s.after_join(s.first_product_s) for s in sessions if s.join_s >= begin]
    pruned = [s.prune_took_s for s in ended]

    def count(numbers: Iterable[int]) -> Value:
        return _count(numbers, data, subscriptions)

    paths = [f.path_setup_s.value for f in feeds]
    return {
        **_stayed(data, feeds, subscriptions),
        "lost_products": count(len(s.lost) for s in subscriptions),
        "lost_products_stayed": count(len(s.lost) for s in subscriptions if s.stayed),
        "not_recovered_products": count(len(s.not_recovered) for s in subscriptions),
        "duplicate_products": count(s.duplicates for s in subscriptions),
        "damaged_products": count(s.damaged for s in subscriptions),
        "joins": Value(float(len(sessions)), "sessions"),
        "ends": Value(float(len(ended)), "sessions"),
        "path_setup": metrics.mean([v for v in paths if v is not None], "s"),
        "leaf_setup_p50": _quantile(setups, 0.5),
        "leaf_setup_max": _quantile(setups, 1.0),
        "join_ready_p50": _quantile(ready, 0.5),
        "join_ready_max": _quantile(ready, 1.0),
        "join_product_p50": _quantile(first, 0.5),
        "join_product_max": _quantile(first, 1.0),
        "prune_p50": _quantile(pruned, 0.5),
        "prune_max": _quantile(pruned, 1.0),
        "verdict_invalid": absent("", "no verdict.json")
        if data.verdict is None
        else Value(float(data.verdict.verdict == INVALID), ""),
    }


def _stayed(
    data: JoinLeaveData, feeds: Sequence[FeedMetrics], subscriptions: Sequence[Subscription]
) -> dict[str, Value]:
    """Return the transport's metrics at the subscribers that stayed: throughput (MPUP16 eq. 3) and
    FFDR (eq. 4) of the whole run, as means over their subscriptions, and the latencies of all their
    products."""
    products = {feed.info.name: feed.info.products for feed in feeds}
    throughputs: list[float] = []
    shares: list[float] = []
    latencies: list[float] = []
    for own in subscriptions:
        if not own.stayed:
            continue
        arrivals = receiver_of(data.logs[f"{own.subscriber}.{own.feed}"]).arrivals
        by_fmtp = [
            metrics.Delivery(p.size_bytes, a.latency_s(p))
            for p, a in arrivals.items()
            if a.how == "fmtp"
        ]
        found = metrics.receiver_throughput(by_fmtp)
        if found.value is not None:
            throughputs.append(found.value)
        shares.append(100.0 * len(by_fmtp) / products[own.feed])
        latencies += [a.latency_s(p) for p, a in arrivals.items()]
    return {
        "throughput_stayed": metrics.mean(throughputs, "bit/s"),
        "ffdr_stayed": metrics.mean(shares, "%"),
        "latency_p50_stayed": metrics.quantile(latencies, 0.5, "s"),
        "latency_p99_stayed": metrics.quantile(latencies, 0.99, "s"),
    }


def _count(
    numbers: Iterable[int], data: JoinLeaveData, subscriptions: Sequence[Subscription]
) -> Value:
    """Return a number of products over all subscriptions; absent if one of them could not be
    checked."""
    joined = {(e.subscriber, e.feed) for e in data.events}
    seen = {(s.subscriber, s.feed) for s in subscriptions if s.sessions[0].ready_s is not None}
    if not joined:
        return absent("products", "no subscriber joined")
    if lacking := sorted(joined - seen):
        subscriber, feed = lacking[0]
        return absent("products", f"{subscriber} never got {feed}, or its files are missing")
    return Value(float(sum(numbers)), "products")


def _quantile(moments: Sequence[float | None], probability: float) -> Value:
    """Return the statistic over the moments that were seen; the note says how many were."""
    known = [m for m in moments if m is not None]
    value = metrics.quantile(known, probability, "s")
    if value.value is None or len(known) == len(moments):
        return value
    return Value(value.value, "s", note=f"{len(known)} of {len(moments)} were seen")


def to_json(found: Sequence[JoinLeaveMetrics]) -> dict[str, object]:
    """Return `cells` of metrics.json."""
    return {
        c.cell.cell: {
            "cell": c.cell.model_dump(mode="json"),
            "verdict": "unknown" if c.verdict is None else c.verdict.verdict,
            "checks": [] if c.verdict is None else [k.model_dump() for k in c.verdict.checks],
            "values": {name: _value(value) for name, value in c.values.items()},
            "subscriptions": [_subscription(s) for s in c.subscriptions],
            "problems": [str(p) for p in c.problems],
        }
        for c in found
    }


def _value(value: Value) -> dict[str, object]:
    return {"value": value.value, "unit": value.unit, "reason": value.reason, "note": value.note}


def _subscription(s: Subscription) -> dict[str, object]:
    counts = ("sent", "received", "in_flight", "away", "recovered", "duplicates", "damaged")
    return {
        "subscriber": s.subscriber,
        "feed": s.feed,
        "stayed": s.stayed,
        **{name: getattr(s, name) for name in counts},
        "arrived_twice": s.arrived_twice,
        "lost": list(s.lost),
        "not_recovered": list(s.not_recovered),
        "by": dict(s.by),
        "sessions": [_session(k) for k in s.sessions],
    }


def _session(s: Session) -> dict[str, object]:
    return {
        "join_s": s.join_s,
        "end_s": s.end_s,
        "how": s.how,
        "leaf_setup_s": s.leaf_added_took_s,
        "ready_after_s": s.after_join(s.ready_s),
        "first_product_after_s": s.after_join(s.first_product_s),
        "first_multicast_after_s": s.after_join(s.first_multicast_s),
        "pruned_after_s": s.prune_took_s,
    }
