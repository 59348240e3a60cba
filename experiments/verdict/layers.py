# SPDX-License-Identifier: Apache-2.0
"""The verdict of a cell of layered multicast: the sender kept its rates, and each receiver's
program got what reached its host.

Queues overflow here because the experiment asks for it, and channels come and go. So the verdict
judges only what happens between a receiver's NIC and its program.
"""

from __future__ import annotations

from common.counting import counted
from experiments.verdict.accounts import NAME as ACCOUNTS
from experiments.verdict.checks import Check
from experiments.verdict.evidence import Evidence
from parsers.measure.layers import LayersData
from parsers.read.m2c_log import LayersReceiver


def layers_checks(evidence: Evidence, data: LayersData) -> tuple[Check, ...]:
    """Make the checks that layered multicast has instead of those of a replay."""
    return (_accounts(evidence, data), _rate(data))


def _accounts(evidence: Evidence, data: LayersData) -> Check:
    silent = sorted(h for h, r in data.receivers.items() if r is None or h not in evidence.arrived)
    if silent or not data.receivers:
        text = f"a counter is missing for {', '.join(silent) or 'all receivers'}"
        return Check(ACCOUNTS, "fail", 0, None, text)
    wrong = []
    for host, stats in data.receivers.items():
        assert stats is not None
        arrived, dropped = evidence.arrived[host]
        if problem := _problem(stats, arrived - dropped):
            wrong.append(f"{host}: {problem}")
    if wrong:
        text = "; ".join(wrong[:8]) + ("; ..." if len(wrong) > 8 else "")
        return Check(ACCOUNTS, "fail", 0, len(wrong), text)
    received = sum(r.received + r.late for r in data.receivers.values() if r is not None)
    text = (
        f"{received} received by {counted(len(data.receivers), 'program')}, "
        "no more than reached their NICs"
    )
    return Check(ACCOUNTS, "pass", 0, 0, text)


def _problem(stats: LayersReceiver, arrived: int) -> str:
    """Return what does not add up at a receiver; empty if everything does."""
    if stats.stray or stats.malformed or stats.forged or stats.strange:
        return (
            f"{counted(stats.stray, 'datagram')} of strangers, "
            f"{stats.malformed} malformed, {stats.forged} "
            f"forged, {stats.strange} of no channel"
        )
    if stats.socket_drops:
        return f"{stats.socket_drops} dropped at its sockets"
    if stats.received + stats.late > arrived:
        return f"{stats.received + stats.late} received, {arrived} passed its NIC"
    return ""


def _rate(data: LayersData) -> Check:
    """Check that the sender was never late with its packets."""
    if data.sender is None:
        return Check("sender rate", "fail", None, None, "no statistics of the sender")
    late = data.sender.late
    text = (
        f"{counted(data.sender.datagrams, 'datagram')} of "
        f"{counted(data.sender.layers, 'layer')}, late {counted(late, 'time')}"
    )
    return Check("sender rate", "pass" if late == 0 else "fail", 0, late, text)
