# SPDX-License-Identifier: Apache-2.0
"""Account for each multicast datagram, from the sender's program to the receivers', counted at each
station. A difference between two stations was lost there, whether a counter saw it or not."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from common.contracts import MULTICAST_CLASS, WITH_OWN_LOGS
from common.counting import counted
from experiments.verdict.checks import Check
from experiments.verdict.evidence import Evidence
from experiments.verdict.network import DROP_SHARE

NAME: Final = "datagrams accounted for"
BEFORE_THE_QUEUE: Final = "before the sender's queue had sent them"
MULTICAST_LEAF: Final = "11:"  # the queue of the multicast class
ON_THE_WAY: Final = "on the way to the receiver's NIC"


@dataclass(frozen=True)
class Account:
    """Datagrams of one receiver. None: the station's counter is missing."""

    sent: int | None  # by the sender's program
    shaped: int | None  # left the sender's multicast queue
    arrived: int | None  # at the receiver's NIC1, counted by a rule that drops nothing
    injected: int | None  # dropped by the rule that injects loss
    received: int | None  # by the receiver's program, or dropped by its socket

    @property
    def losses(self) -> dict[str, int]:
        """Return by place how many datagrams are missing, or (negative) too many."""
        after_rule = (
            None if self.arrived is None or self.injected is None else self.arrived - self.injected
        )
        stations = (
            (BEFORE_THE_QUEUE, self.sent, self.shaped),
            (ON_THE_WAY, self.shaped, self.arrived),
            ("between NIC and program, beyond the injected loss", after_rule, self.received),
        )
        return {
            where: before - after
            for where, before, after in stations
            if before is not None and after is not None and before != after
        }

    def to_dict(self) -> dict[str, object]:
        """Return the account as losses.json has it."""
        return {**asdict(self), "losses": self.losses}


def accounts(evidence: Evidence) -> dict[str, Account]:
    """Return each receiver's account; none for LDM6, whose TCP repairs its own losses."""
    if evidence.protocol != "ldm7":
        return {}
    key = f"{evidence.publisher}/{evidence.publisher_nic1}/{MULTICAST_CLASS}"
    after, before = evidence.end.classes.get(key), evidence.start.classes.get(key)
    shaped = None
    if after is not None:
        shaped = after.sent_packets - (before.sent_packets if before else 0)
    found = {}
    for host, stats in evidence.receivers.items():
        arrived, injected = evidence.arrived.get(host, (None, None))
        received = None if stats is None else stats.datagrams + stats.socket_drops
        found[host] = Account(evidence.datagrams_sent, shaped, arrived, injected, received)
    return found


def accounting(evidence: Evidence) -> Check:
    """Check the accounts: any difference is a loss (or a copy) that nobody asked for."""
    if evidence.protocol not in WITH_OWN_LOGS:
        text = "does not apply: its programs do not report how many datagrams they sent"
        return Check(NAME, "n/a", None, None, text)
    if evidence.protocol != "ldm7":
        text = "does not apply: TCP repairs what is lost on the way, and counts no datagrams"
        return Check(NAME, "n/a", None, None, text)
    if evidence.lossy_links:
        text = "does not apply: links lose frames on purpose, and their counters know no receiver"
        return Check(NAME, "n/a", None, None, text)
    if evidence.congested:
        text = "does not apply: competing flows fill queues that datagrams are lost in"
        return Check(NAME, "n/a", None, None, text)
    found = accounts(evidence)
    if not evidence.drained:
        text = "does not apply: datagrams were still in transit at the end"
        return Check(NAME, "n/a", None, None, text)
    unknown = sorted(
        h for h, a in found.items() if None in (a.sent, a.shaped, a.arrived, a.received)
    )
    if unknown or not found:
        text = f"a counter is missing for {', '.join(unknown) or 'all receivers'}"
        return Check(NAME, "warn", 0, None, text)
    return _judge(found, evidence.behind_cut, _dropped_on_purpose(evidence))


def _dropped_on_purpose(evidence: Evidence) -> int:
    """Return the datagrams that the sender's multicast queue dropped, if the experiment varies its
    size."""
    if "b_mc" not in evidence.varied:
        return 0
    key = f"{evidence.publisher}/{evidence.publisher_nic1}/{MULTICAST_LEAF}"
    after, before = evidence.end.qdiscs.get(key), evidence.start.qdiscs.get(key)
    return (after.drops if after else 0) - (before.drops if before else 0)


def _cut_off(account: Account) -> int:
    """Return the datagrams that a receiver behind the broken link lost on the way."""
    return max(0, account.losses.get(ON_THE_WAY, 0))


def _judge(
    found: Mapping[str, Account], behind_cut: Container[str] = frozenset(), on_purpose: int = 0
) -> Check:
    """`on_purpose`: datagrams that the sender's queue dropped, for all receivers."""
    sent = sum(a.sent or 0 for a in found.values())
    cut = {host: n for host, a in found.items() if host in behind_cut and (n := _cut_off(a))}
    wrong = {
        host: losses
        for host, a in found.items()
        if (
            losses := {
                w: n
                for w, n in a.losses.items()
                if not (host in cut and w == ON_THE_WAY)
                and not (n == on_purpose and w == BEFORE_THE_QUEUE)
            }
        )
    }
    # All receivers lose what the sender's queue drops; it is in each account.
    total = sum(abs(n) for losses in wrong.values() for n in losses.values())
    injected = sum(a.injected or 0 for a in found.values())
    if not wrong:
        dropped = on_purpose * len(found)
        text = (
            f"{sent} sent to {counted(len(found), 'receiver')}: "
            f"{injected} taken by the injected loss, "
            f"{sent - injected - dropped - sum(cut.values())} received by the programs, "
            "none missing"
        )
        if dropped:
            text += f"; {dropped} dropped by the sender's queue, whose size b_mc varies"
        if cut:
            text += f"; {sum(cut.values())} to {', '.join(sorted(cut))} lost with the broken link"
        return Check(NAME, "pass", 0, 0, text)
    share = total / sent if sent else 1.0
    places = [f"{h}: {n} {where}" for h, losses in wrong.items() for where, n in losses.items()]
    text = (
        f"{total} of {sent} ({100 * share:.3g} %) lost where no loss was asked for: "
        + "; ".join(places[:8])
    )
    return Check(
        NAME, DROP_SHARE.status(share), 0, total, text + ("; ..." if len(places) > 8 else "")
    )
