# SPDX-License-Identifier: Apache-2.0
"""Check injected losses against the requested ones, and the receivers' buffers."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

from common.contracts import LOSS_COMMENT
from common.counting import counted
from experiments.verdict.checks import Check, Limits, Status
from experiments.verdict.evidence import Evidence

LOSS_CONFIDENCE: Final = 0.999  # of the binomial interval around the asked loss
TWICE: Final = Limits(
    0.0,
    1e-2,
    "a receiver asks once for what it misses; packets that overtake others make it ask for what is "
    "on its way, and MPLR counts only the blocks that were of use",
)
LOSS_CERTAIN: Final = 0.9999999  # outside this interval, the loss is not the loss asked for


def binomial_interval(trials: int, probability: float, confidence: float) -> tuple[float, float]:
    """Return the two-sided interval of the count, by the normal approximation with continuity
    correction; trials x probability should exceed 10."""
    if trials == 0:
        return (0.0, 0.0)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    spread = z * math.sqrt(trials * probability * (1 - probability)) + 0.5
    return (trials * probability - spread, trials * probability + spread)


def _replayable(loss_model: str) -> str:
    if loss_model == "hash":
        return "replayable: the seed and the packet decide"
    if loss_model == "bursts":
        return "replayable: the seed and the packet's identification decide"
    return loss_model if "not replayable" in loss_model else f"{loss_model}: not replayable"


def injected_loss(evidence: Evidence) -> list[Check]:
    """Check the injected loss against the loss asked for."""
    name = "injected loss"
    if evidence.loss_period:
        return [_periodic(evidence)]
    if evidence.loss == 0:
        rules = [rule for host in evidence.end.iptables for rule in evidence.end.rules(host)]
        total = sum(rule.packets for rule in rules if LOSS_COMMENT in rule.rule)
        status: Status = "fail" if total else "pass"
        return [
            Check(
                name,
                status,
                0,
                total,
                f"{counted(total, 'packet')} taken by rules that inject loss",
            )
        ]
    missing = sorted(set(evidence.receivers) - set(evidence.arrived))
    if missing or not evidence.arrived:
        text = f"no counters of the loss rule at {', '.join(missing) or 'any receiver'}"
        return [Check(name, "fail", evidence.loss, None, text)]
    arrived = sum(a for a, _ in evidence.arrived.values())
    dropped_all = sum(d for _, d in evidence.arrived.values())
    if evidence.bursts:
        return _burst_loss(evidence, arrived)
    if evidence.loss_of:
        return [_loss_of_each(evidence)]
    if arrived * evidence.loss < 10:
        text = f"only {counted(arrived, 'packet')} arrived at all receivers: too few to judge"
        return [Check(name, "warn", evidence.loss, None, text)]
    found = dropped_all / arrived
    status = _within(dropped_all, arrived, evidence.loss)
    low, high = binomial_interval(arrived, evidence.loss, LOSS_CONFIDENCE)
    text = (
        f"{dropped_all} of {counted(arrived, 'packet')}; "
        f"{100 * LOSS_CONFIDENCE:g} % interval of a random "
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


def _periodic(evidence: Evidence) -> Check:
    """Check that each receiver's rule dropped exactly every nth datagram that arrived."""
    name, period = "injected loss", evidence.loss_period
    wrong = [
        f"{host} {dropped} of {arrived}"
        for host, (arrived, dropped) in evidence.arrived.items()
        if dropped not in (arrived // period, arrived // period + 1)
    ]
    wrong += sorted(set(evidence.receivers) - set(evidence.arrived))
    dropped = sum(d for _, d in evidence.arrived.values())
    if wrong or not evidence.arrived:
        text = f"not every {period}th: {'; '.join(wrong) or 'no receiver has counters'}"
        return Check(name, "fail", f"every {period}th", dropped, text)
    text = f"{counted(dropped, 'datagram')}, every {period}th at each receiver"
    return Check(name, "pass", f"every {period}th", dropped, text)


def _loss_of_each(evidence: Evidence) -> Check:
    """Check each receiver's loss against its own p_i. Of m receivers, one outside its own interval
    is m times as likely by chance."""
    statuses: list[Status] = []
    texts = []
    for host, p in evidence.loss_of.items():
        arrived, dropped = evidence.arrived[host]
        low, high = binomial_interval(arrived, p, 1 - (1 - LOSS_CONFIDENCE) / evidence.m)
        if p == 0:
            status: Status = "fail" if dropped else "pass"
        elif arrived * p < 10:
            status = "warn"
        elif _inside(dropped, (low, high)):
            status = "pass"
        else:
            certain = 1 - (1 - LOSS_CERTAIN) / evidence.m
            inside = _inside(dropped, binomial_interval(arrived, p, certain))
            status = "warn" if inside else "fail"
        statuses.append(status)
        texts.append(f"{host} {dropped} of {arrived} (p = {p:g}: {low:.0f} to {high:.0f})")
    worst: Status = next((s for s in ("fail", "warn") if s in statuses), "pass")
    total = sum(d for _, d in evidence.arrived.values())
    share = total / max(1, sum(a for a, _ in evidence.arrived.values()))
    text = f"{'; '.join(texts)}; {_replayable(evidence.loss_model)}"
    return Check("injected loss", worst, round(evidence.loss, 6), round(share, 6), text)


def _burst_loss(evidence: Evidence, arrived: int) -> list[Check]:
    """Check losses in bursts. They follow a known pattern, so each receiver's counts have exact
    bounds. Counts beyond them mean that packets of another flow were among those that arrived."""
    counts = evidence.bursts
    dropped = sum(c.dropped for c in counts.values())
    begun = sum(c.begun for c in counts.values())
    share = dropped / arrived if arrived else 0.0
    beyond = {
        host: (
            f"{host} lost {c.dropped} (possible: {c.may_drop[0]} to {c.may_drop[1]}) in {c.begun} "
            f"bursts (possible: {c.may_begin[0]} to {c.may_begin[1]})"
        )
        for host, c in counts.items()
        if not (_inside(c.dropped, c.may_drop) and _inside(c.begun, c.may_begin))
    }
    # The count in a chain whose states last: losses are correlated over 2 b - 1 packets.
    z = NormalDist().inv_cdf(0.5 + LOSS_CERTAIN / 2)
    correlated = arrived * evidence.loss * (1 - evidence.loss) * (2 * evidence.loss_burst_packets)
    far = abs(dropped - arrived * evidence.loss) > z * math.sqrt(correlated) + 1
    status: Status = "fail" if far or len(beyond) == len(counts) else "warn" if beyond else "pass"
    text = f"{dropped} of {counted(arrived, 'packet')}; {_replayable(evidence.loss_model)}"
    if beyond:
        text += "; not as the pattern allows: " + "; ".join(beyond.values())
    mean = dropped / begun if begun else None
    if mean is None:
        length = Check(
            "bursts of losses", "warn", evidence.loss_burst_packets, None, "no burst began"
        )
    else:
        length = Check(
            "bursts of losses",
            status,
            evidence.loss_burst_packets,
            round(mean, 3),
            f"{counted(begun, 'burst')} of {mean:.2f} packets on "
            f"average at {counted(len(counts), 'receiver')}, each "
            "within what its packets can meet of its pattern",
        )
    return [Check("injected loss", status, evidence.loss, round(share, 6), text), length]


def _inside(count: int, interval: tuple[float, float]) -> bool:
    return interval[0] <= count <= interval[1]


def _within(count: int, trials: int, probability: float) -> Status:
    if _inside(count, binomial_interval(trials, probability, LOSS_CONFIDENCE)):
        return "pass"
    if _inside(count, binomial_interval(trials, probability, LOSS_CERTAIN)):
        return "warn"
    return "fail"


def duplicate_blocks(evidence: Evidence) -> list[Check]:
    """Check the blocks that FMTP receivers received twice: they were in transit when the receiver
    asked for them again."""
    known = {h: s for h, s in evidence.receivers.items() if s is not None}
    if evidence.protocol != "ldm7" or not known:
        return []
    name = "blocks received twice"
    twice = {h: s.duplicate_blocks for h, s in known.items() if s.duplicate_blocks}
    # A receiver that resumes may ask for blocks that are in its buffer.
    on_purpose = twice.pop(evidence.paused, 0) if evidence.paused else 0
    # FMTP counts here what comes of a file after it gave the file up.
    sent = evidence.datagrams_sent or 0
    late = sum(twice.pop(h, 0) for h, s in known.items() if s.missed and s.datagrams <= sent)
    blocks = sum(s.blocks for s in known.values())
    total = sum(twice.values())
    share = total / max(1, blocks)
    text = f"{total} of {blocks}" + "".join(f"; {h} {n}" for h, n in list(twice.items())[:8])
    if on_purpose:
        text += f"; {evidence.paused}, which is paused on purpose, {on_purpose}"
    if late:
        text += f"; {late} came after their file was given up"
    if evidence.repair in ("blocks", "multicast"):  # also with parity, if blocks cost less
        text += "; a block that one receiver lacks may be sent to all again"
        return [Check(name, "pass", None, total, text)]
    if evidence.f_rcv < 1:  # equation 2: tau_rcv ends before the product does
        text += f"; f_rcv {evidence.f_rcv:g} asks for blocks that are on their way"
        return [Check(name, "pass", None, total, text)]
    if evidence.congested:
        text += "; full queues hold blocks back until after their repair"
        return [Check(name, "pass", None, total, text)]
    return [Check(name, TWICE.status(share), 0, total, text)]


def receive_buffers(evidence: Evidence) -> list[Check]:
    """Check b_rcv: what the kernel granted each FMTP receiver (it doubles the request)."""
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
