# SPDX-License-Identifier: Apache-2.0
"""Check how full queues and sockets became, and how fast links were, against their settings."""

from __future__ import annotations

from typing import Final

from common.counting import counted
from experiments.verdict.checks import Check, Limits
from experiments.verdict.evidence import Evidence, host_of
from experiments.verdict.queue_watch import Queue
from experiments.verdict.replay import RATE_ERROR
from protocols import registry

NEARLY_FULL: Final = Limits(
    0.9,
    float("inf"),
    "of the limit: a burst a tenth larger would have been cut, and between two looks one may have "
    "been; counters judge drops",
)
RMEM_PER_RCVBUF: Final = 2  # the kernel doubles the request, for the overhead of frames


def queue_checks(evidence: Evidence) -> list[Check]:
    """Check the peaks of queues and sockets."""
    return [_backlog(evidence), _rates(evidence), _sockets(evidence)]


def _fill(queue: Queue) -> float:
    """Return the largest observed share of a queue's limit, in bytes or packets."""
    fills = [0.0]
    if queue.limit_bytes:
        fills.append(queue.peak_backlog_bytes / queue.limit_bytes)
    if queue.limit_packets:
        fills.append(queue.peak_backlog_packets / queue.limit_packets)
    return max(fills)


def _name(queue: Queue) -> str:
    return f"{queue.link} ({queue.place})" if queue.link else queue.place


def _backlog(evidence: Evidence) -> Check:
    name = "queue backlog"
    own = f"{evidence.publisher}/{evidence.publisher_nic1}/"
    # TCP finds its rate by filling its shaper until it drops; competing flows do the same.
    judged = [
        q
        for q in evidence.queues
        if (registry.get(evidence.protocol).multicast or not q.place.startswith(own))
        and "/".join(q.place.split("/")[:2]) not in evidence.congested
        and not (evidence.varied & {"b_mc", "b_uc"} and q.place.startswith(own))
    ]
    if not judged or any(q.samples == 0 for q in judged):
        return Check(name, "warn", None, None, "not sampled")
    worst = max(judged, key=_fill)
    fill = _fill(worst)
    limit = (
        f"{worst.peak_backlog_packets} of {worst.limit_packets} packets"
        if worst.limit_packets
        else f"{worst.peak_backlog_bytes} of {worst.limit_bytes} bytes"
    )
    text = (
        f"fullest of {counted(len(judged), 'queue')}: {_name(worst)}, {limit} ({100 * fill:.1f} %)"
    )
    asked = f"at most {NEARLY_FULL.warn:.0%} of the limit"
    return Check(name, NEARLY_FULL.status(fill), asked, round(fill, 4), text)


def _rates(evidence: Evidence) -> Check:
    """Check that no shaping queue exceeds its rate by more than its burst."""
    name = "link rates"
    shaped = [q for q in evidence.queues if q.rate_bps and q.peak_rate_s > 0]
    if not shaped:
        return Check(name, "n/a", None, None, "no queue with a rate was busy for a second")
    worst = max(shaped, key=_excess)
    limit = RATE_ERROR[evidence.clock]
    excess = _excess(worst)
    busiest = max(shaped, key=lambda q: q.peak_rate_bps / (q.rate_bps or 1))
    text = (
        f"busiest of {len(shaped)}: {_name(busiest)}, {busiest.peak_rate_bps / 1e6:.3f} Mbit/s "
        f"over {busiest.peak_rate_s:.1f} s of {(busiest.rate_bps or 0) / 1e6:g} Mbit/s"
    )
    if excess > 0:
        text += f"; {_name(worst)} was {100 * excess:.2f} % above its rate and burst"
    return Check(name, limit.status(excess), worst.rate_bps, round(worst.peak_rate_bps), text)


def _excess(queue: Queue) -> float:
    assert queue.rate_bps
    allowed_bps = queue.rate_bps + 8 * queue.burst_bytes / queue.peak_rate_s
    return max(0.0, queue.peak_rate_bps / allowed_bps - 1)


def _sockets(evidence: Evidence) -> Check:
    name = "fill of the receivers' UDP buffers"
    granted: dict[str, int] = {}  # the smallest of a host's buffers
    for receiver, stats in evidence.receivers.items():
        if stats is not None and stats.rcvbuf_granted_bytes > 0:
            limit, host = RMEM_PER_RCVBUF * stats.rcvbuf_granted_bytes, host_of(receiver)
            granted[host] = min(limit, granted.get(host, limit))
    known = [h for h in granted if h in evidence.sockets and h != evidence.paused]
    if evidence.protocol != "ldm7" or not known:
        return Check(name, "n/a", None, None, "no FMTP receiver's buffer was sampled")
    worst = max(known, key=lambda host: evidence.sockets[host] / granted[host])
    fill = evidence.sockets[worst] / granted[worst]
    text = (
        f"fullest: {worst}, {evidence.sockets[worst]} of {granted[worst]} bytes "
        f"({100 * fill:.2f} %), frames with the kernel's overhead"
    )
    asked = f"at most {NEARLY_FULL.warn:.0%} of b_rcv"
    return Check(name, NEARLY_FULL.status(fill), asked, round(fill, 6), text)
