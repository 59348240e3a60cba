# SPDX-License-Identifier: Apache-2.0
"""The fidelity verdict of a cell: did the emulated network do what was asked, and nothing else?

Pure: `Evidence` in, checks out. A failed check makes the run invalid (its figures are not to be
trusted), a warning makes it degraded (read the warning before using them), one that does not apply
("n/a") says why and changes nothing.

In virtual time no computation takes time. So nothing is judged that a slow processor could spoil,
and what only a slow processor excuses is held to the timers' own precision.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any, Final, Literal

from parsers.counters import Counters, drops_between, rule_drops
from parsers.ldm_log import ReceiverStats, Replayed
from parsers.products import ContentCheck
from parsers.sar_log import CpuSample
from topologies.facts import Clock

Status = Literal["pass", "warn", "fail", "n/a"]


@dataclass(frozen=True)
class Limits:
    """Up to `warn` a check passes, up to `fail` it warns, above it fails."""

    warn: float
    fail: float
    reason: str

    def status(self, value: float) -> Status:
        return "pass" if value <= self.warn else "warn" if value <= self.fail else "fail"


# All thresholds, with their reasons.
DROP_SHARE: Final = Limits(
    0.0,
    1e-3,
    "the smallest loss the papers inject is 1 %; a tenth of it would shift what depends on loss "
    "by 10 %",
)
LATE_P50_MS: Final[Mapping[Clock, Limits]] = {
    "native": Limits(
        4.0, 40.0, "half of the products follow their predecessor within 8 ms (mpup-ldm7.txt data)"
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
RELAY_LATE_P50: Final = Limits(
    0.05, 0.25, "of the link's delay: 5 % of 18 ms is what the kernel's 250 Hz tick could add"
)
RELAY_LATE_P99: Final = 0.25  # of the link's delay: it moves the mean by less than 1 %
RELAY_LATE_P99_US: Final = 200_000.0  # TCP's least retransmission timeout: beyond, TCP acts on it
RELAY_FRAMES_MIN: Final = {"half": 10, "1 %": 1000}  # fewer frames have no such quantile
RELAY_LATE_FLOOR_US: Final = 1000.0  # below this, lateness never matters
RELAY_LATE_VIRTUAL_US: Final = Limits(
    100.0, 1000.0, "wire-relay sleeps until a frame is due; nothing but a timer's slack is left"
)
RTT_ERROR_MS: Final[Mapping[Clock, Limits]] = {
    "native": Limits(
        2.0, 10.0, "pings over the relay were measured 0.4 to 1.4 ms above the asked delay"
    ),
    "virtual": Limits(0.1, 1.0, "measured within 0.001 ms of the asked delay"),
}
BUSY_SHARE: Final = Limits(
    0.10, 0.50, "with less than 5 % idle time, processes wait for the CPU instead of the network"
)
BUSY_IDLE_PERCENT: Final = 5.0
STEAL_PERCENT: Final = Limits(
    2.0, 10.0, "time the hypervisor gave to others is missing in every timer"
)
LOSS_CONFIDENCE: Final = 0.999  # of the binomial interval around the asked loss
LOSS_CERTAIN: Final = 0.9999999  # outside this one the loss is not the one asked for
NO_CPU_IN_VIRTUAL_TIME: Final = (
    "does not apply: virtual time stands still while a process computes, "
    "so none ever waits for a processor"
)
RATE_DECIDABLE_S: Final = 3.0  # backlogged time below which a rate is not worth judging


@dataclass(frozen=True)
class Check:
    """One check, as verdict.json has it."""

    name: str
    status: Status
    asked: Any
    found: Any
    text: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "status": self.status,
            "asked": self.asked,
            "found": self.found,
            "text": self.text,
        }


@dataclass(frozen=True)
class ShaperSample:
    """State of the sender's shaper (multicast class, or TBF) at one instant."""

    time_s: float
    sent_bytes: int
    backlog_bytes: int


@dataclass(frozen=True)
class Evidence:
    """All a verdict needs of one cell."""

    protocol: str
    m: int
    loss: float
    shaped_bps: int  # rate of the multicast class (LDM7) or of the TBF (LDM6)
    b_rcv_bytes: int
    products: int  # of the trace
    link_mismatches: Sequence[str]  # one text per value that was read back otherwise
    links_checked: int
    shaping_mismatches: Sequence[str]
    shaping_checked: int
    start: Counters
    end: Counters
    nic1_prefixes: Mapping[str, str] = field(default_factory=dict)  # subscriber -> NIC1
    publisher: str = ""
    publisher_nic1: str = ""
    loss_model: str = "random"  # in force: hash, or random and why
    lossy_links: frozenset[str] = frozenset()
    relay_delay_ms: Mapping[str, float] = field(default_factory=dict)  # "<link>/<direction>"
    cpu: Sequence[CpuSample] = ()
    replayed: Replayed | None = None
    receivers: Mapping[str, ReceiverStats | None] = field(default_factory=dict)
    arrived: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # (arrived, dropped)
    contents: Sequence[ContentCheck] = ()
    drained: bool = True
    drain_s: float = 0.0
    shaper: Sequence[ShaperSample] = ()
    tcp_asked: Sequence[str] = ()
    tcp_found: str = ""
    rtt_asked_ms: Mapping[str, float] = field(default_factory=dict)
    rtt_measured_ms: Mapping[str, float] = field(default_factory=dict)
    clock: Clock = "native"


@dataclass(frozen=True)
class Verdict:
    verdict: str
    checks: tuple[Check, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"verdict": self.verdict, "checks": [c.to_dict() for c in self.checks]}


def judge(evidence: Evidence) -> Verdict:
    """All checks, and the worst of them as verdict."""
    checks = (
        *network_checks(evidence),
        *_injected_loss(evidence),
        *replay_checks(evidence.replayed, evidence.products, evidence.clock),
        rate_check(evidence.shaper, evidence.shaped_bps, evidence.clock),
        _congestion_control(evidence),
        drained_check(evidence.drained, evidence.drain_s),
        _identical(evidence.contents, evidence.m, evidence.products),
    )
    return Verdict(summary(checks), checks)


def network_checks(evidence: Evidence) -> tuple[Check, ...]:
    """Was the emulated network the one that was asked for, and did the machine keep up?"""
    return (
        _settings("link settings", evidence.link_mismatches, evidence.links_checked),
        _settings("sender shaping", evidence.shaping_mismatches, evidence.shaping_checked),
        *_drops(evidence),
        *_receive_buffers(evidence),
        _round_trips(evidence),
        *_relay(evidence),
        *_cpu(evidence),
    )


def summary(checks: Iterable[Check]) -> str:
    """invalid, degraded or faithful."""
    statuses = {c.status for c in checks}
    return "invalid" if "fail" in statuses else "degraded" if "warn" in statuses else "faithful"


def _settings(name: str, wrong: Sequence[str], checked: int) -> Check:
    if checked == 0:
        return Check(name, "fail", "read back", "nothing", "no value was read back")
    if wrong:
        text = "; ".join(wrong[:10]) + ("; ..." if len(wrong) > 10 else "")
        return Check(name, "fail", checked, checked - len(wrong), text)
    return Check(name, "pass", checked, checked, f"all {checked} values read back as asked")


def _drops(evidence: Evidence) -> list[Check]:
    """Losses that nobody injected, by where they happened."""
    drops = [
        d
        for d in drops_between(evidence.start, evidence.end, evidence.lossy_links)
        # A send buffer that is full makes the sender wait: nothing is lost.
        if not d.injected and d.what != "UDP sndbuf_errors"
    ]
    own = f"{evidence.publisher}/{evidence.publisher_nic1}"
    shaper = [d for d in drops if d.what == "qdisc drops" and d.place.startswith(own + "/")]
    # The interface counts what its qdisc drops once more.
    repeated = [d for d in drops if d.place == own and d.what == "interface tx_dropped"]
    elsewhere = [d for d in drops if d not in shaper and d not in repeated]
    socket = sum(s.socket_drops for s in evidence.receivers.values() if s is not None)
    packets = _expected_packets(evidence)
    checks = [
        _drop_check(
            "drops at the sender's shaper",
            [f"{d.place}: {d.packets} ({d.what})" for d in shaper],
            sum(d.packets for d in shaper),
            packets,
            # TCP sees its own drops and slows down; UDP loses the datagram for all receivers.
            worst="warn" if evidence.protocol == "ldm6" else "fail",
        ),
        _drop_check(
            "drops nobody injected",
            [f"{d.place}: {d.packets} ({d.what})" for d in elsewhere],
            sum(d.packets for d in elsewhere),
            packets,
        ),
    ]
    if evidence.protocol == "ldm7":
        checks.append(
            _drop_check(
                "drops of FMTP's UDP sockets",
                [
                    f"{host}: {s.socket_drops}"
                    for host, s in evidence.receivers.items()
                    if s is not None and s.socket_drops
                ],
                socket,
                packets,
            )
        )
    return checks


def _expected_packets(evidence: Evidence) -> int:
    """Packets that left the sender's NIC1, times the copies the network makes of them."""
    key = f"{evidence.publisher}/{evidence.publisher_nic1}"
    after = evidence.end.interfaces.get(key)
    before = evidence.start.interfaces.get(key)
    sent = (after.tx_packets if after else 0) - (before.tx_packets if before else 0)
    return max(0, sent) * (evidence.m if evidence.protocol == "ldm7" else 1)


def _drop_check(
    name: str, places: Sequence[str], dropped: int, packets: int, worst: Status = "fail"
) -> Check:
    if dropped == 0:
        return Check(name, "pass", 0, 0, "none")
    share = dropped / packets if packets else 1.0
    status = DROP_SHARE.status(share)
    if status == "fail":
        status = worst
    text = f"{dropped} packets ({share:.2e} of {packets}): " + "; ".join(places[:8])
    return Check(name, status, 0, dropped, text + ("; ..." if len(places) > 8 else ""))


def binomial_interval(trials: int, probability: float, confidence: float) -> tuple[float, float]:
    """Two-sided interval of the count, by the normal approximation with continuity correction;
    trials x probability should exceed 10."""
    if trials == 0:
        return (0.0, 0.0)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    spread = z * math.sqrt(trials * probability * (1 - probability)) + 0.5
    return (trials * probability - spread, trials * probability + spread)


def _replayable(loss_model: str) -> str:
    if loss_model == "hash":
        return "replayable: the seed and the packet decide"
    return loss_model if "not replayable" in loss_model else f"{loss_model}: not replayable"


def _injected_loss(evidence: Evidence) -> list[Check]:
    name = "injected loss"
    if evidence.loss == 0:
        dropped = {h: rule_drops(h, evidence.start, evidence.end)[0] for h in evidence.end.iptables}
        total = sum(dropped.values())
        status: Status = "fail" if total else "pass"
        return [Check(name, status, 0, total, f"{total} packets dropped by iptables rules")]
    missing = sorted(set(evidence.receivers) - set(evidence.arrived))
    if missing or not evidence.arrived:
        text = f"no counters of the loss rule at {', '.join(missing) or 'any receiver'}"
        return [Check(name, "fail", evidence.loss, None, text)]
    arrived = sum(a for a, _ in evidence.arrived.values())
    dropped_all = sum(d for _, d in evidence.arrived.values())
    if arrived * evidence.loss < 10:
        text = f"only {arrived} packets arrived at all receivers: nothing can be said"
        return [Check(name, "warn", evidence.loss, None, text)]
    found = dropped_all / arrived
    status = _within(dropped_all, arrived, evidence.loss)
    low, high = binomial_interval(arrived, evidence.loss, LOSS_CONFIDENCE)
    text = (
        f"{dropped_all} of {arrived} packets; {100 * LOSS_CONFIDENCE:g} % interval of a random "
        f"loss of {evidence.loss:g}: {low:.0f} to {high:.0f}; {_replayable(evidence.loss_model)}"
    )
    # Of m receivers, one outside its own interval is m times as likely by chance.
    odd = [
        host
        for host, (n, d) in evidence.arrived.items()
        if n * evidence.loss >= 10
        and not _inside(
            d, binomial_interval(n, evidence.loss, 1 - (1 - LOSS_CONFIDENCE) / evidence.m)
        )
    ]
    if odd:
        text += "; outside their own interval: " + ", ".join(
            f"{h} {evidence.arrived[h][1]} of {evidence.arrived[h][0]}" for h in odd
        )
        status = "warn" if status == "pass" else status
    return [Check(name, status, evidence.loss, round(found, 6), text)]


def _inside(count: int, interval: tuple[float, float]) -> bool:
    return interval[0] <= count <= interval[1]


def _within(count: int, trials: int, probability: float) -> Status:
    if _inside(count, binomial_interval(trials, probability, LOSS_CONFIDENCE)):
        return "pass"
    if _inside(count, binomial_interval(trials, probability, LOSS_CERTAIN)):
        return "warn"
    return "fail"


def _receive_buffers(evidence: Evidence) -> list[Check]:
    """b_rcv: what the kernel granted each FMTP receiver (it doubles what is asked)."""
    if evidence.protocol != "ldm7":
        return []
    silent = sorted(h for h, s in evidence.receivers.items() if s is None)
    granted = {h: s.rcvbuf_granted_bytes for h, s in evidence.receivers.items() if s is not None}
    name = "receivers' UDP buffers"
    if silent or not granted:
        text = f"no FMTP statistics from {', '.join(silent) or 'any receiver'}"
        return [Check(name, "warn", evidence.b_rcv_bytes, None, text)]
    least = min(granted.values())
    small = [h for h, g in granted.items() if g < evidence.b_rcv_bytes]
    if small:
        text = f"smaller than asked at {', '.join(sorted(small))}"
        return [Check(name, "warn", evidence.b_rcv_bytes, least, text)]
    return [Check(name, "pass", evidence.b_rcv_bytes, least, "granted at every receiver")]


def replay_checks(
    replayed: Replayed | None, products: int, clock: Clock, feed: str = ""
) -> list[Check]:
    """Did pqinsert insert every product (of `feed`), at the trace's times?"""
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
            f"{replayed.products} of {products} products inserted",
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
    """(bit/s, seconds, certain) over the intervals at whose both ends the shaper was backlogged.
    Certain: each began with more than the interval can send, so it cannot have run empty."""
    sent, seconds, certain = 0, 0.0, True
    for before, after in zip(samples, samples[1:], strict=False):
        if before.backlog_bytes > 0 and after.backlog_bytes > 0:
            span = after.time_s - before.time_s
            sent += after.sent_bytes - before.sent_bytes
            seconds += span
            certain = certain and before.backlog_bytes * 8 >= rate_bps * span
    return (8.0 * sent / seconds if seconds > 0 else 0.0, seconds, certain)


def rate_check(samples: Sequence[ShaperSample], asked: int, clock: Clock, feed: str = "") -> Check:
    """While the shaper has a backlog it must send at its rate, neither below nor above."""
    name = f"sender rate of {feed}" if feed else "sender rate"
    rate, seconds, certain = backlogged_rate(samples, asked)
    if seconds < RATE_DECIDABLE_S:
        text = f"not decidable: the shaper was seen backlogged for {seconds:.1f} s only"
        return Check(name, "pass", asked, None, text)
    error = rate / asked - 1
    text = f"{rate / 1e6:.3f} Mbit/s ({100 * error:+.2f} %) over {seconds:.0f} s of backlog"
    if error < 0 and not certain:
        # A socket's share of the queue is short: it may have run empty between two samples.
        text += "; it may have run empty in between"
        return Check(name, "pass", asked, round(rate), text)
    limit = RATE_ERROR[clock]
    return Check(name, limit.status(abs(error)), asked, round(rate), text)


def _round_trips(evidence: Evidence) -> Check:
    """Smallest ping of each subscriber over the path, before the replay, against the topology."""
    name = "round-trip times"
    asked, found = evidence.rtt_asked_ms, evidence.rtt_measured_ms
    if missing := sorted(set(asked) - set(found)):
        return Check(name, "fail", None, None, f"not measured: {', '.join(missing)}")
    errors = {host: found[host] - asked[host] for host in asked}
    if not errors:
        return Check(name, "fail", None, None, "not measured")
    worst = max(errors, key=lambda host: abs(errors[host]))
    digits = 3 if evidence.clock == "virtual" else 2
    text = f"worst: {worst}, {found[worst]:.{digits}f} ms instead of {asked[worst]:g} ms"
    # Ping prints microseconds; the difference of two such numbers must not exceed by its last bit.
    status = RTT_ERROR_MS[evidence.clock].status(round(abs(errors[worst]), 6))
    return Check(name, status, asked[worst], found[worst], text)


def _relay(evidence: Evidence) -> list[Check]:
    """Lateness of delayed frames, where wire-relay delays them: of half of them, and of 1 %.

    Stalls of some 20 ms now and then (a virtual machine's disk can cause them) make the worst
    hundredth late and leave the median alone: that is worth a warning, the figures stand.
    Virtual time knows no stalls: there, both are held to the same narrow limit.
    """
    checks = []
    for share, name in (("half", "delay lateness, median"), ("1 %", "delay lateness, 1 %")):
        warn = RELAY_LATE_P50.warn if share == "half" else RELAY_LATE_P99
        worst: tuple[float, str, float, float, float] | None = None
        for place, relay in evidence.end.relay.items():
            late_us = relay.late_p50_us if share == "half" else relay.late_p99_us
            if late_us is None or relay.frames < RELAY_FRAMES_MIN[share]:
                continue
            delay_ms = evidence.relay_delay_ms.get(place, 0.0)
            allowed_us = max(RELAY_LATE_FLOOR_US, warn * delay_ms * 1000)
            if evidence.clock == "virtual":
                allowed_us = RELAY_LATE_VIRTUAL_US.warn
            if worst is None or late_us / allowed_us > worst[0]:
                worst = (late_us / allowed_us, place, late_us, delay_ms, allowed_us)
        if worst is None:
            continue
        excess, place, late_us, delay_ms, allowed_us = worst
        if evidence.clock == "virtual":
            status = RELAY_LATE_VIRTUAL_US.status(late_us)
        elif share == "half":
            status = RELAY_LATE_P50.status(excess * RELAY_LATE_P50.warn)
        else:
            status = "pass" if excess <= 1 else "warn" if late_us <= RELAY_LATE_P99_US else "fail"
        text = f"worst: {place}, {share} of its frames more than {late_us:.0f} us late"
        checks.append(
            Check(
                name, status, f"at most {allowed_us:.0f} us", late_us, f"{text} on {delay_ms:g} ms"
            )
        )
    return checks


def _cpu(evidence: Evidence) -> list[Check]:
    if evidence.clock == "virtual":
        return [
            Check(name, "n/a", None, None, NO_CPU_IN_VIRTUAL_TIME) for name in ("CPU", "CPU steal")
        ]
    every = [s for s in evidence.cpu if s.cpu == "all"]
    if not every:
        text = "sar gave no CPU sample while products were on their way"
        return [Check("CPU", "warn", None, None, text)]
    busy = sum(s.idle < BUSY_IDLE_PERCENT for s in every) / len(every)
    steal = sum(s.steal for s in every) / len(every)
    idle = sum(s.idle for s in every) / len(every)
    return [
        Check(
            "CPU",
            BUSY_SHARE.status(busy),
            f"saturated in at most {100 * BUSY_SHARE.warn:g} % of the samples",
            f"{100 * busy:.0f} %",
            f"less than {BUSY_IDLE_PERCENT:g} % idle in {100 * busy:.0f} % of {len(every)} "
            f"samples; idle on average {idle:.0f} %",
        ),
        Check(
            "CPU steal",
            STEAL_PERCENT.status(steal),
            f"at most {STEAL_PERCENT.warn:g} %",
            round(steal, 2),
            f"{steal:.1f} % of the time was taken by the hypervisor",
        ),
    ]


def _congestion_control(evidence: Evidence) -> Check:
    """The first one asked for is the one that was meant: the papers' CTCP keeps its window whatever
    is lost, what stands in may send less, and not the same to all receivers."""
    asked = " or ".join(evidence.tcp_asked)
    name = evidence.tcp_found.partition(" ")[0]
    text = f"{evidence.tcp_found or 'unknown'} at every host"
    ok = name == evidence.tcp_asked[0] if evidence.tcp_asked else False
    if not ok and name in evidence.tcp_asked:
        text += f", in place of {evidence.tcp_asked[0]}: TCP's throughput under loss may be lower"
    elif not ok:
        text += f"; none of {asked} can be had: TCP's throughput under loss may collapse"
    return Check(
        "TCP congestion control", "pass" if ok else "warn", asked, evidence.tcp_found, text
    )


def drained_check(drained: bool, drain_s: float) -> Check:
    if drained:
        text = f"all receivers had all products {drain_s:.1f} s after the last insertion"
        return Check("drained", "pass", "all", "all", text)
    text = f"products were still missing {drain_s:.0f} s after the last insertion"
    return Check("drained", "fail", "all", "not all", text)


def _identical(contents: Sequence[ContentCheck], m: int, products: int) -> Check:
    name = "products identical"
    good = [c for c in contents if c.identical and c.found == products]
    if len(contents) == m and len(good) == m:
        text = f"all {products} products identical at all {m} receivers"
        return Check(name, "pass", m, m, text)
    wrong = [
        f"{c.receiver}: {c.found} of {products}, {len(c.missing)} missing, {len(c.extra)} extra, "
        f"{len(c.different)} different"
        for c in contents
        if c not in good
    ]
    wrong += [f"{m - len(contents)} receivers not compared"] if len(contents) != m else []
    return Check(name, "fail", m, len(good), "; ".join(wrong))
