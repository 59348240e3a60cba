# SPDX-License-Identifier: Apache-2.0
"""Check that the replay followed the trace at the requested rate, and that everything arrived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from common.counting import counted
from common.virtual_time import Clock
from experiments.verdict.checks import Check, Limits, Status
from experiments.verdict.evidence import Evidence, ShaperSample
from parsers.read.ldm_log import Replayed
from parsers.read.products import ContentCheck

LATE_P50_MS: Final[Mapping[Clock, Limits]] = {
    "native": Limits(
        4.0, 40.0, "half of the products follow their predecessor within 8 ms (MPUP16 data)"
    ),
    "virtual": Limits(0.2, 4.0, "a timer's slack of 0.05 ms is all that delays a process there"),
}
LATE_MAX_MS: Final[Mapping[Clock, Limits]] = {
    "native": Limits(
        250.0, 2000.0, "1 % of the gaps exceed 1.9 s: a longer stall would merge bursts"
    ),
    "virtual": Limits(1.0, 250.0, "measured 0.05 to 0.08 ms: more is a queue that was full"),
}
RATE_ERROR: Final[Mapping[Clock, Limits]] = {
    "native": Limits(
        0.02, 0.05, "HTB and TBF were measured within 0.1 % on an idle machine; 2 % is scheduling"
    ),
    "virtual": Limits(
        0.005, 0.02, "a frame more or less in each second is 0.1 % of 20 Mbit/s; no scheduling"
    ),
}
RATE_DECIDABLE_S: Final = 3.0  # with less time of backlog, a rate is not worth judging


def replay_checks(
    replayed: Replayed | None, products: int, clock: Clock, feed: str = ""
) -> list[Check]:
    """Check that pqinsert inserted every product (of `feed`) at the trace's times."""
    name = f"replay of {feed}" if feed else "replay"
    if replayed is None:
        text = "pqinsert wrote no summary: it did not finish"
        return [Check(name, "fail", products, None, text)]
    complete: Status = "pass" if replayed.products == products else "fail"
    p50, most = replayed.late_p50_ms, replayed.late_max_ms
    limit_p50, limit_max = LATE_P50_MS[clock], LATE_MAX_MS[clock]
    return [
        Check(
            name,
            complete,
            products,
            replayed.products,
            f"{replayed.products} of {counted(products, 'product')} inserted",
        ),
        Check(
            f"{name} lateness, median",
            limit_p50.status(p50),
            f"at most {limit_p50.warn:g} ms",
            p50,
            f"half of the products were inserted more than {p50:g} ms late",
        ),
        Check(
            f"{name} lateness, largest",
            limit_max.status(most),
            f"at most {limit_max.warn:g} ms",
            most,
            f"one product was inserted {most:g} ms late",
        ),
    ]


def backlogged_rate(samples: Sequence[ShaperSample], rate_bps: float) -> tuple[float, float, bool]:
    """Return (bit/s, seconds, certain) over the intervals at whose ends the shaper had a backlog.
    Certain: each began with more than it can send, so the queue cannot have run empty."""
    sent, seconds, certain = 0, 0.0, True
    for before, after in zip(samples, samples[1:], strict=False):
        if before.backlog_bytes > 0 and after.backlog_bytes > 0:
            span = after.time_s - before.time_s
            sent += after.sent_bytes - before.sent_bytes
            seconds += span
            certain = certain and before.backlog_bytes * 8 >= rate_bps * span
    return (8.0 * sent / seconds if seconds > 0 else 0.0, seconds, certain)


def rate_check(samples: Sequence[ShaperSample], asked: int, clock: Clock, feed: str = "") -> Check:
    """Check that the shaper sends at its rate, neither below nor above, while it has a backlog."""
    name = f"sender rate of {feed}" if feed else "sender rate"
    rate, seconds, certain = backlogged_rate(samples, asked)
    if seconds < RATE_DECIDABLE_S:
        text = f"not decidable: the shaper had a backlog for only {seconds:.1f} s"
        return Check(name, "pass", asked, None, text)
    error = rate / asked - 1
    text = f"{rate / 1e6:.3f} Mbit/s ({100 * error:+.2f} %) over {seconds:.0f} s of backlog"
    if error < 0 and not certain:
        # A socket's share of the queue is short and can run empty between two samples.
        text += "; it may have run empty in between"
        return Check(name, "pass", asked, round(rate), text)
    limit = RATE_ERROR[clock]
    return Check(name, limit.status(abs(error)), asked, round(rate), text)


def borrowed_rate_check(
    samples: Sequence[ShaperSample], rate_bps: int, ceil_bps: int, clock: Clock, feed: str
) -> Check:
    """Check that a shaper that may borrow sends at its rate or more, up to its ceil, while it has a
    backlog. Its rate depends on what the others leave."""
    name = f"sender rate of {feed}"
    asked = f"{rate_bps / 1e6:g} to {ceil_bps / 1e6:g} Mbit/s"
    rate, seconds, certain = backlogged_rate(samples, ceil_bps)
    if seconds < RATE_DECIDABLE_S:
        text = f"not decidable: the shaper had a backlog for only {seconds:.1f} s"
        return Check(name, "pass", asked, None, text)
    text = f"{rate / 1e6:.3f} Mbit/s over {seconds:.0f} s of backlog, of which it may borrow"
    outside = max(rate / ceil_bps - 1, 1 - rate / rate_bps if certain else 0.0, 0.0)
    return Check(name, RATE_ERROR[clock].status(outside), asked, round(rate), text)


def total_check(samples: Sequence[ShaperSample], total_bps: int, clock: Clock) -> Check:
    """Check that all queues of a NIC together never send above its total, in any interval."""
    name = "sum of the feeds' rates"
    rates = [
        8 * (after.sent_bytes - before.sent_bytes) / (after.time_s - before.time_s)
        for before, after in zip(samples, samples[1:], strict=False)
        if after.time_s > before.time_s
    ]
    if not rates:
        return Check(name, "warn", total_bps, None, "not sampled")
    most = max(rates)
    text = f"at most {most / 1e6:.3f} Mbit/s in one of {counted(len(rates), 'interval')}"
    status = RATE_ERROR[clock].status(max(0.0, most / total_bps - 1))
    return Check(name, status, f"at most {total_bps}", round(most), text)


def congestion_control(evidence: Evidence) -> Check:
    """Check that the first algorithm asked for is in use. The papers' CTCP keeps its window despite
    losses; a substitute may send less, and to each receiver at another rate."""
    asked = " or ".join(evidence.tcp_asked)
    name = evidence.tcp_found.partition(" ")[0]
    text = f"{evidence.tcp_found or 'unknown'} at every host"
    ok = name == evidence.tcp_asked[0] if evidence.tcp_asked else False
    if not ok and name in evidence.tcp_asked:
        text += f", instead of {evidence.tcp_asked[0]}: TCP's throughput under loss may be lower"
    elif not ok:
        text += (
            f"; hosts may use none of {asked} (sysctl net.ipv4.tcp_allowed_congestion_control): "
            "TCP's throughput under loss may collapse"
        )
    return Check(
        "TCP congestion control", "pass" if ok else "warn", asked, evidence.tcp_found, text
    )


def drained_check(drained: bool, drain_s: float) -> Check:
    """Check that every product arrived in time."""
    if drained:
        text = f"all receivers had all products {drain_s:.1f} s after the last insertion"
        return Check("drained", "pass", "all", "all", text)
    text = f"products were still missing {drain_s:.0f} s after the last insertion"
    return Check("drained", "fail", "all", "not all", text)


def identical(contents: Sequence[ContentCheck], m: int, products: int) -> Check:
    """Check that every subscriber holds the publisher's products, byte for byte."""
    name = "products identical"
    good = [c for c in contents if c.identical and c.found == products]
    if len(contents) == m and len(good) == m:
        text = f"all {counted(products, 'product')} identical at all {counted(m, 'receiver')}"
        return Check(name, "pass", m, m, text)
    wrong = [
        f"{c.receiver}: {c.found} of {products}, {len(c.missing)} missing, {len(c.extra)} extra, "
        f"{len(c.different)} different"
        for c in contents
        if c not in good
    ]
    wrong += [f"{m - len(contents)} receivers not compared"] if len(contents) != m else []
    return Check(name, "fail", m, len(good), "; ".join(wrong))
