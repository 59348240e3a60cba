# SPDX-License-Identifier: Apache-2.0
"""Check that the replay followed the trace at the requested rate, and that everything arrived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Backlogged:
    """What a shaper sent in the intervals at whose ends it had a backlog. `full_*`: in those that
    began with more than it can send, so that the queue cannot have run empty in between: a socket's
    share of the queue is short."""

    bits: float = 0.0
    seconds: float = 0.0
    full_bits: float = 0.0
    full_s: float = 0.0

    @property
    def rate_bps(self) -> float:
        return self.bits / self.seconds if self.seconds > 0 else 0.0

    def above(self, rate_bps: float) -> float:
        """Return by which share of the rate it sent more."""
        return max(0.0, self.rate_bps / rate_bps - 1)

    def below(self, rate_bps: float) -> float:
        """Return by which share of the rate it sent less where the queue was full, if long enough
        to judge."""
        known = self.full_s >= RATE_DECIDABLE_S
        return max(0.0, 1 - self.full_bits / self.full_s / rate_bps) if known else 0.0


def backlogged(samples: Sequence[ShaperSample], rate_bps: float) -> Backlogged:
    """Return what a shaper of at most `rate_bps` sent while it had a backlog."""
    bits, seconds, full_bits, full_s = 0.0, 0.0, 0.0, 0.0
    for before, after in zip(samples, samples[1:], strict=False):
        if before.backlog_bytes > 0 and after.backlog_bytes > 0:
            span, sent = after.time_s - before.time_s, 8.0 * (after.sent_bytes - before.sent_bytes)
            bits, seconds = bits + sent, seconds + span
            if before.backlog_bytes * 8 >= rate_bps * span:
                full_bits, full_s = full_bits + sent, full_s + span
    return Backlogged(bits, seconds, full_bits, full_s)


def rate_check(samples: Sequence[ShaperSample], asked: int, clock: Clock, feed: str = "") -> Check:
    """Check that the shaper sends at its rate, neither below nor above, while it has a backlog."""
    name = f"sender rate of {feed}" if feed else "sender rate"
    found = backlogged(samples, asked)
    if found.seconds < RATE_DECIDABLE_S:
        text = f"not decidable: the shaper had a backlog for only {found.seconds:.1f} s"
        return Check(name, "pass", asked, None, text)
    error, below = found.rate_bps / asked - 1, found.below(asked)
    text = (
        f"{found.rate_bps / 1e6:.3f} Mbit/s ({100 * error:+.2f} %) over {found.seconds:.0f} s of "
        "backlog"
    )
    if below > 0:
        text += f"; {-100 * below:+.2f} % over the {found.full_s:.0f} s that began with enough"
    elif error < 0:
        text += "; it may have run empty in between"
    outside = max(found.above(asked), below)
    return Check(name, RATE_ERROR[clock].status(outside), asked, round(found.rate_bps), text)


def borrowed_rate_check(
    samples: Sequence[ShaperSample], rate_bps: int, ceil_bps: int, clock: Clock, feed: str
) -> Check:
    """Check that a shaper that may borrow sends at its rate or more, up to its ceil, while it has a
    backlog. Its rate depends on what the others leave."""
    name = f"sender rate of {feed}"
    asked = f"{rate_bps / 1e6:g} to {ceil_bps / 1e6:g} Mbit/s"
    found = backlogged(samples, ceil_bps)
    if found.seconds < RATE_DECIDABLE_S:
        text = f"not decidable: the shaper had a backlog for only {found.seconds:.1f} s"
        return Check(name, "pass", asked, None, text)
    rate = found.rate_bps
    text = f"{rate / 1e6:.3f} Mbit/s over {found.seconds:.0f} s of backlog, of which it may borrow"
    outside = max(found.above(ceil_bps), found.below(rate_bps))
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
    if evidence.tcp_others:
        text = f"{text}, but connections use: {evidence.tcp_others}"
        return Check("TCP congestion control", "fail", asked, evidence.tcp_others, text)
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
