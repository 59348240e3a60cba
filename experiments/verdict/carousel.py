# SPDX-License-Identifier: Apache-2.0
"""The verdict of a carousel's cell: where each datagram went, and whether it turned at its rate.

Receivers leave while datagrams still come. So each has its own account: what its NIC passed on
while it listened, and the sequence numbers that it missed.
"""

from __future__ import annotations

from typing import Final

from common.contracts import MULTICAST_CLASS
from common.counting import counted
from experiments.verdict.accounts import NAME as ACCOUNTS
from experiments.verdict.checks import Check, Limits, Status
from experiments.verdict.evidence import Evidence
from experiments.verdict.queues import RMEM_PER_RCVBUF
from parsers.measure.carousel import CarouselData
from parsers.read.fcast_log import CarouselReceiver

EDGE: Final = 64  # datagrams lost before the first or after the last that came, or left unread
RATE_ERROR: Final = Limits(0.02, 0.05, "starting and ending take a few hundredths of a second")
RATE_DECIDABLE_S: Final = 0.5  # below this, a datagram more or less is 1 % of the rate
GOODBYE_S: Final = 0.06  # the sender's last three datagrams, 20 ms each


def carousel_checks(evidence: Evidence, data: CarouselData) -> tuple[Check, ...]:
    """Make the checks that a carousel has instead of those of a replay."""
    return (_accounts(evidence, data), _rate(evidence, data))


def _accounts(evidence: Evidence, data: CarouselData) -> Check:
    if evidence.lossy_links or evidence.congested:
        text = "does not apply: links lose frames on purpose"
        return Check(ACCOUNTS, "n/a", None, None, text)
    silent = sorted(h for h, r in data.receivers.items() if r is None or h not in evidence.arrived)
    if silent or not data.receivers:
        text = f"a counter is missing for {', '.join(silent) or 'all receivers'}"
        return Check(ACCOUNTS, "fail", 0, None, text)
    most = EDGE + _held(evidence, data)
    wrong = []
    received = injected = 0
    for host, stats in data.receivers.items():
        assert stats is not None
        arrived, dropped = evidence.arrived[host]
        received += stats.received
        injected += dropped
        if problem := _problem(stats, arrived, dropped, most):
            wrong.append(f"{host}: {problem}")
    if wrong:
        text = "; ".join(wrong[:8]) + ("; ..." if len(wrong) > 8 else "")
        return Check(ACCOUNTS, "fail", 0, len(wrong), text)
    text = (
        f"{received} received by {counted(len(data.receivers), 'program')}, "
        f"{injected} taken by the injected "
        "loss; no other sequence number is missing"
    )
    return Check(ACCOUNTS, "pass", 0, 0, text)


def _held(evidence: Evidence, data: CarouselData) -> int:
    """Return how many datagrams a receiver whose disk is slow on purpose may leave unread in its
    socket's buffer, which the kernel fills by more than their symbols."""
    if not evidence.disk_iops or data.sender is None:
        return 0
    return RMEM_PER_RCVBUF * evidence.b_rcv_bytes // data.sender.symbol_bytes


def _problem(stats: CarouselReceiver, arrived: int, dropped: int, most_unread: int) -> str:
    """Return what does not add up at a receiver; empty if everything does."""
    if stats.malformed or stats.forged or stats.stray:
        return (
            f"{counted(stats.stray, 'datagram')} of strangers, {stats.malformed} malformed, "
            f"{stats.forged} forged"
        )
    unread = arrived - dropped - stats.received - stats.socket_drops
    if not 0 <= unread <= most_unread:
        return f"{unread} between NIC and program, beyond the injected loss"
    beyond = stats.lost - dropped - stats.socket_drops
    if not -most_unread <= beyond <= 0:  # an unread datagram's number does not count as missing yet
        return f"{stats.lost} sequence numbers missing, {dropped} taken by the injected loss"
    return ""


def _rate(evidence: Evidence, data: CarouselData) -> Check:
    """Check the rate of what left the sender's queue while the carousel turned."""
    name, asked = "sender rate", evidence.shaped_bps
    key = f"{evidence.publisher}/{evidence.publisher_nic1}/{MULTICAST_CLASS}"
    after, before = evidence.end.classes.get(key), evidence.start.classes.get(key)
    if after is None or data.sender is None or data.sender.seconds <= GOODBYE_S:
        return Check(name, "fail", asked, None, "no counters or no statistics of the sender")
    packets = after.sent_packets - (before.sent_packets if before else 0)
    sent = after.sent_bytes - (before.sent_bytes if before else 0)
    rate = 8 * sent / (data.sender.seconds - GOODBYE_S)
    error = rate / asked - 1
    status: Status = RATE_ERROR.status(abs(error))
    text = f"{rate / 1e6:.3f} Mbit/s ({100 * error:+.2f} %) over {data.sender.seconds:.1f} s"
    if data.sender.seconds < RATE_DECIDABLE_S:
        status, text = "pass", f"not decidable: the carousel turned for {data.sender.seconds:.1f} s"
    if packets < data.sender.datagrams:
        status = "fail"
        text += f"; only {packets} of {data.sender.datagrams} datagrams left the queue"
    return Check(name, status, asked, round(rate), text)
