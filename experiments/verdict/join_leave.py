# SPDX-License-Identifier: Apache-2.0
"""The fidelity verdict of a cell whose subscribers join and leave: the network's checks of every
cell, and that no product is missing, twice or damaged at a subscription."""

from __future__ import annotations

from pathlib import Path

from common.counting import counted
from experiments.design import borrowing
from experiments.design.join_leave_expansion import JoinLeaveCell
from experiments.verdict import (
    Check,
    Evidence,
    Verdict,
    drained_check,
    network_checks,
    rate_check,
    replay_checks,
    summary,
)
from experiments.verdict.arrivals import earliest_ms
from experiments.verdict.collect import (
    cpu_samples,
    delays,
    link_mismatches,
    link_probes,
    shaping_mismatches,
    watched,
)
from experiments.verdict.evidence import ShaperSample, parse_shaper_log
from experiments.verdict.replay import borrowed_rate_check, total_check
from parsers.measure.join_leave import JoinLeaveData, JoinLeaveMetrics, summarize
from parsers.measure.run_files import load_join_leave
from parsers.read.ldm_log import ReceiverStats, Replayed
from topologies.model.network import Network


def judge_files(out: Path, cell: JoinLeaveCell, network: Network) -> Verdict:
    """Judge a cell from the files in the cell's directory `out`, cell.json included."""
    data = load_join_leave(out)
    checks = (
        *network_checks(_evidence(out, cell, network, data)),
        *_replays(out, cell, data),
        drained_check(data.cell.drained_all, data.cell.drained - data.cell.insertion_ended),
        *content_checks(summarize(data)),
    )
    return Verdict(summary(checks), checks)


def _evidence(out: Path, cell: JoinLeaveCell, network: Network, data: JoinLeaveData) -> Evidence:
    wrong, checked = link_mismatches(out / "links.json")
    wrong_settings, settings = shaping_mismatches(out / "shaping.json")
    assert data.counters_start is not None
    assert data.counters_end is not None
    return Evidence(
        protocol=cell.protocol,
        m=cell.m,
        loss=0.0,
        shaped_bps=cell.r_mc_bps,
        b_rcv_bytes=cell.b_rcv_bytes,
        products=sum(feed.products for feed in data.cell.feeds),
        link_mismatches=wrong,
        links_checked=checked,
        shaping_mismatches=wrong_settings,
        shaping_checked=settings,
        links_after=link_mismatches(out / "links-end.json"),
        shaping_after=shaping_mismatches(out / "shaping-end.json"),
        probes=link_probes(out / "link-probes.json"),
        **watched(out),
        start=data.counters_start,
        end=data.counters_end,
        publisher=data.cell.publisher,
        publisher_nic1=data.cell.feeds[0].nic1,
        lossy_links=data.lossy_links,
        relay_delay_ms=delays(network),
        network=network,
        branches_change=True,
        cpu=cpu_samples(out / "logs/sar.log", data.cell.insertion_started, data.cell.drained),
        # Subscribers that are killed or replaced at the end of a session write no statistics; those
        # that stay or leave do.
        receivers={
            name: found[-1] for name, log in data.logs.items() if (found := log.of(ReceiverStats))
        },
        rtt_asked_ms={h: network.round_trip_ms[h] for h in data.cell.rtt_measured_ms},
        rtt_measured_ms=data.cell.rtt_measured_ms,
        clock=data.cell.clock,
        earliest_ms={
            name: least
            for name, log in data.logs.items()
            if name in data.cell.endpoints and (least := earliest_ms(log.records)) is not None
        },
    )


def _replays(out: Path, cell: JoinLeaveCell, data: JoinLeaveData) -> list[Check]:
    checks: list[Check] = []
    for feed, info in zip(cell.feeds, data.cell.feeds, strict=True):
        log = data.ingest.get(feed.name)
        found = [] if log is None else log.of(Replayed)
        last = found[-1] if found else None
        checks += replay_checks(last, info.products, data.cell.clock, feed.name)
        samples = _samples(out / f"logs/shaper.{feed.name}.log")
        clock = data.cell.clock
        if feed.ceil_bps:
            bounds = feed.r_mc_bps, feed.ceil_bps
            checks.append(borrowed_rate_check(samples, *bounds, clock, feed.name))
        else:
            checks.append(rate_check(samples, feed.r_mc_bps, clock, feed.name))
    if cell.lanes == "vlan":
        samples = _samples(out / "logs" / borrowing.TOTAL_LOG)
        checks.append(total_check(samples, borrowing.total_bps(cell.feeds), data.cell.clock))
    return checks


def _samples(log: Path) -> list[ShaperSample]:
    return parse_shaper_log(log.read_text(encoding="utf-8") if log.exists() else "")


def content_checks(found: JoinLeaveMetrics) -> list[Check]:
    """Check subscribers' products, and the trees, against who was subscribed when."""
    return [_identical(found), _recovered(found), _trees(found)]


def _identical(found: JoinLeaveMetrics) -> Check:
    name = "products identical"
    lost = found.values["lost_products"]
    if lost.value is None:
        return Check(name, "fail", 0, None, lost.reason)
    if len(found.subscriptions) == 0 or not any(s.stayed for s in found.subscriptions):
        return Check(name, "fail", 0, None, "no subscriber stayed from the start to the end")
    sent = sum(s.sent for s in found.subscriptions)
    flying = sum(s.in_flight for s in found.subscriptions)
    bad = [
        f"{s.subscriber} {s.feed}: {len(s.lost)} lost, {s.duplicates} twice, {s.damaged} damaged"
        for s in found.subscriptions
        if s.lost or s.duplicates or s.damaged
    ]
    total = sum(len(s.lost) + s.duplicates + s.damaged for s in found.subscriptions)
    text = (
        f"{counted(sent, 'product')} sent to "
        f"{counted(len(found.subscriptions), 'subscription')} while they were "
        f"subscribed, {flying} of them in flight at a leave"
    )
    if bad:
        return Check(name, "fail", 0, total, f"{text}; {'; '.join(bad[:8])}")
    return Check(name, "pass", 0, 0, f"{text}: all there once, with the publisher's bytes")


def _recovered(found: JoinLeaveMetrics) -> Check:
    name = "products recovered after a break"
    back = [s for s in found.subscriptions if s.at_end and len(s.sessions) > 1]
    missing = sum(len(s.not_recovered) for s in back)
    away = sum(s.away for s in back)
    bad = [f"{s.subscriber} {s.feed}: {len(s.not_recovered)}" for s in back if s.not_recovered]
    text = (
        f"{away - missing} of {counted(away, 'product')} sent "
        f"during breaks of {counted(len(back), 'subscription')}"
    )
    if bad:
        return Check(name, "fail", away, away - missing, f"{text}; missing: {'; '.join(bad[:8])}")
    return Check(name, "pass", away, away, text)


def _trees(found: JoinLeaveMetrics) -> Check:
    name = "trees follow the subscriptions"
    wrong = [
        f"{feed.info.name}: branches {', '.join(sorted(feed.branches)) or 'none'}, "
        f"subscribed {', '.join(sorted(feed.subscribed)) or 'none'}"
        for feed in found.feeds
        if feed.branches != feed.subscribed
    ]
    unseen = sum(s.leaves_added for s in found.feeds) == 0
    joins = sum(s.sessions for s in found.feeds)
    if wrong or unseen:
        text = "; ".join(wrong) or "no leaf was added by a subscription"
        return Check(name, "fail", len(found.feeds), len(found.feeds) - len(wrong), text)
    leaves = sum(f.leaves_added for f in found.feeds)
    removed = sum(f.leaves_removed for f in found.feeds)
    text = (
        f"{counted(joins, 'join')}, {counted(leaves, 'leaf', 'leaves')} "
        f"added and {removed} removed; at the end each tree has "
        "the branches of its subscriptions"
    )
    return Check(name, "pass", len(found.feeds), len(found.feeds), text)
