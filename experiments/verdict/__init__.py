# SPDX-License-Identifier: Apache-2.0
"""The fidelity verdict of a cell: did the emulated network do what was asked, and nothing else?

Pure: `Evidence` in, checks out. A failed check makes the run invalid (do not trust its figures). A
warning makes it degraded (read the warning before you use them). A check that does not apply
("n/a") says why and changes nothing. Each limit is beside its checks, with its reason.

In virtual time no computation takes time. So checks that only a slow processor could fail do not
apply, and limits that only a slow processor excuses are the timers' own precision.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from common.contracts import WITH_OWN_LOGS
from experiments.verdict.accounts import accounting, accounts
from experiments.verdict.arrivals import arrivals_checks
from experiments.verdict.as_planned import (
    counters_add_up,
    foreign_rules,
    not_taken,
    under_way,
)
from experiments.verdict.carousel import carousel_checks
from experiments.verdict.checks import Check, Limits, Status, Verdict, summary
from experiments.verdict.elsewhere import elsewhere_checks
from experiments.verdict.evidence import Evidence, ShaperSample
from experiments.verdict.in_flight import InFlight
from experiments.verdict.in_parts import parts_checks
from experiments.verdict.layers import layers_checks
from experiments.verdict.loss import duplicate_blocks, injected_loss, receive_buffers
from experiments.verdict.machine import clock_check, cpu, lag_check
from experiments.verdict.network import drops, link_delays, relay_lateness, round_trips, settings
from experiments.verdict.queues import queue_checks
from experiments.verdict.replay import (
    congestion_control,
    drained_check,
    identical,
    rate_check,
    replay_checks,
)

__all__ = [
    "Check",
    "Evidence",
    "Limits",
    "ShaperSample",
    "Status",
    "Verdict",
    "accounts",
    "drained_check",
    "judge",
    "network_checks",
    "rate_check",
    "replay_checks",
    "summary",
]


def judge(evidence: Evidence) -> Verdict:
    """Make all checks; the worst result is the verdict."""
    checks = (
        *network_checks(evidence),
        *injected_loss(evidence),
        *_of_the_protocol(evidence),
        *_deliveries(evidence),
    )
    if evidence.behind_cut:
        checks = tuple(_with_cut(check) for check in checks)
    return Verdict(summary(checks), checks)


def _deliveries(evidence: Evidence) -> tuple[Check, ...]:
    """Check that everything arrived. If another project's protocol does not deliver, that is a
    finding: the verdict judges the network, not the protocol."""
    checks = (
        drained_check(evidence.drained, evidence.drain_s),
        identical(evidence.contents, evidence.m + evidence.without_multicast, evidence.products),
    )
    wrong = any(c.extra or c.different for c in evidence.contents)
    if evidence.protocol in WITH_OWN_LOGS or wrong:
        return checks
    return tuple(c if c.status == "pass" else _as_a_finding(c) for c in checks)


def _as_a_finding(check: Check) -> Check:
    text = f"does not apply: a protocol may miss products (products_missing): {check.text}"
    return replace(check, status="n/a", text=text)


def _of_the_protocol(evidence: Evidence) -> tuple[Check, ...]:
    if evidence.carousel is not None:
        return carousel_checks(evidence, evidence.carousel)
    if evidence.layers is not None:
        return layers_checks(evidence, evidence.layers)
    return (
        accounting(evidence),
        *replay_checks(evidence.replayed, evidence.products, evidence.clock),
        rate_check(evidence.shaper, evidence.shaped_bps, evidence.clock),
        congestion_control(evidence),
    )


# A link that the cell breaks on purpose changes what these compare: interfaces go down and up, the
# path moves to longer links, and frames under way are lost.
CHANGED_BY_A_CUT: Final = frozenset(
    {
        "every interface as planned",
        "nothing changed meanwhile",
        "neighbours' counters",
        "delays during the replay",
        "packets lost on the way",
    }
)


def _with_cut(check: Check) -> Check:
    """Return how the check counts in a cell that breaks a link."""
    if check.name not in CHANGED_BY_A_CUT or check.status == "pass":
        return check
    text = f"does not apply: the cell breaks a link on purpose: {check.text}"
    return replace(check, status="n/a", text=text)


def network_checks(evidence: Evidence) -> tuple[Check, ...]:
    """Check that the emulated network was as asked, and that the machine kept up."""
    return (
        settings("link settings", evidence.link_mismatches, evidence.links_checked),
        settings("link settings after the replay", *evidence.links_after),
        settings("experiment's settings", evidence.shaping_mismatches, evidence.shaping_checked),
        settings("experiment's settings after the replay", *evidence.shaping_after),
        *drops(evidence),
        *receive_buffers(evidence),
        *duplicate_blocks(evidence),
        *link_delays(evidence),
        *round_trips(evidence),
        *relay_lateness(evidence),
        *queue_checks(evidence),
        *_as_planned(evidence),
        *InFlight(
            evidence.flights,
            evidence.flights_unseen,
            evidence.clock,
            congested=bool(evidence.congested),
            marks_asked=evidence.marks_asked,
            branches_change=evidence.branches_change,
        ).checks(),
        clock_check(evidence),
        *arrivals_checks(evidence),
        *elsewhere_checks(evidence.elsewhere, evidence.publisher),
        *parts_checks(evidence.cut_frames),
        lag_check(evidence),
        *cpu(evidence),
    )


def _as_planned(evidence: Evidence) -> list[Check]:
    """Check that everything was set as planned, all the time."""
    seen = evidence.inventory
    checks = not_taken() if seen is None else seen.checks()
    bursts = evidence.loss_burst_packets > 1
    checks.append(foreign_rules((evidence.start, evidence.end), bursts))
    if evidence.congested or not evidence.drained:
        checks.append(under_way())
    elif evidence.network is not None:
        checks.append(counters_add_up(evidence.network, evidence.start, evidence.end))
    return checks
