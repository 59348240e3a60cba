# SPDX-License-Identifier: Apache-2.0
"""Check that every interface, switch and program of the network was set as planned, all the time,
and that neighbours' counters add up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.contracts import ARRIVED_COMMENT, BURST_COMMENT, LOSS_COMMENT, MONITOR_COMMENT
from common.counting import counted
from experiments.verdict.checks import Check, Limits
from parsers.read.counters import Counters
from topologies.model import wire_plan
from topologies.model.network import Network
from topologies.model.wire_plan import WIRE, WirePlan

OURS: Final = (ARRIVED_COMMENT, BURST_COMMENT, LOSS_COMMENT, MONITOR_COMMENT)
NAMES: Final = (
    "every interface as planned",
    "nothing changed meanwhile",
    "firewall rules",
    "neighbours' counters",
    "CPU quota",
)
UNEVEN_SHARE: Final = 1e-4  # of the frames: counters are not read at one instant
UNEVEN_FRAMES: Final = 30
THROTTLED: Final = Limits(0, 10, "times; each is a tenth of a second or less without a processor")


def not_taken() -> list[Check]:
    """Return the check for a cell without inventory.json."""
    return [Check(NAMES[0], "fail", "an inventory", None, "none was taken")]


def under_way() -> Check:
    """Return the check for counters that were read while frames crossed links."""
    text = "does not apply: frames were in transit when the counters were read"
    return Check(NAMES[3], "n/a", None, None, text)


@dataclass(frozen=True)
class InventorySeen:
    """inventory.json."""

    looks: Sequence[Mapping[str, Any]]
    changes: Sequence[Mapping[str, Any]]
    changes_missed: int
    throttled: int

    def checks(self) -> list[Check]:
        """Judge settings and changes."""
        return [self._planned(), self._unchanged(), self._quota()]

    def _planned(self) -> Check:
        looks = [look for look in self.looks if "failed" not in look]
        if not looks:
            return Check(NAMES[0], "fail", "an inventory", None, "none was taken")
        times = [look["when"] for look in self.looks]
        if missed := [when for when in ("start", "end") if when not in times]:
            return Check(NAMES[0], "fail", "an inventory", None, f"none at the {missed[0]}")
        things = max(int(look["things"]) for look in looks)
        wrong: dict[str, str] = {}
        for look in looks:
            for text in look["unplanned"]:
                wrong.setdefault(text, f"{text} ({look['when']}, {look['at_s']:.1f} s)")
        return _listed(
            NAMES[0],
            list(wrong.values()),
            f"{things} things, looked at {counted(len(looks), 'time')}",
        )

    def _unchanged(self) -> Check:
        wrong: dict[str, str] = {}
        for look in self.looks:
            if "failed" in look:
                wrong[str(look["failed"])] = f"{look['failed']} ({look['at_s']:.1f} s)"
            for text in look.get("changed", ()):
                wrong.setdefault(text, f"{text} (at {look['at_s']:.1f} s)")
        for change in self.changes:
            text = f"{change['place']}: {change['what']}"
            wrong.setdefault(text, f"{text} (at {change['at_s']:.1f} s)")
        if self.changes_missed:
            wrong["missed"] = "the kernel reported more changes than could be recorded"
        looks = sum(look["when"] == "meanwhile" for look in self.looks)
        if not looks and not wrong:
            return Check(NAMES[1], "warn", 0, None, "nothing was looked at meanwhile")
        return _listed(
            NAMES[1],
            list(wrong.values()),
            f"the kernel reported no change, and {looks} looks at random moments found none",
        )

    def _quota(self) -> Check:
        text = f"stopped {counted(self.throttled, 'time')} because a CPU quota was used up"
        return Check(NAMES[4], THROTTLED.status(self.throttled), 0, self.throttled, text)


def _listed(name: str, wrong: Sequence[str], good: str) -> Check:
    if not wrong:
        return Check(name, "pass", 0, 0, good)
    text = "; ".join(wrong[:8]) + (f"; and {len(wrong) - 8} more" if len(wrong) > 8 else "")
    return Check(name, "fail", 0, len(wrong), text)


def foreign_rules(counters: Sequence[Counters], bursts: bool) -> Check:
    """Check that hosts have the experiment's firewall rules and no others, even unused ones."""
    if bursts:
        text = "does not apply: the rules of losses in bursts are read back as a whole"
        return Check(NAMES[2], "n/a", None, None, text)
    found = {
        f"{host}: {rule.rule}"
        for one in counters
        for host in one.iptables
        for rule in one.rules(host)
        if not any(comment in rule.rule for comment in OURS)
    }
    return _listed(NAMES[2], sorted(found), "no rule but the experiment's")


@dataclass(frozen=True)
class _Sum:
    place: str
    entered: int
    left: int


def counters_add_up(network: Network, start: Counters, end: Counters) -> Check:
    """Check that each end of a link received what the other sent, and that the link's middle
    passed all frames except those that it dropped on purpose."""
    # A link has the same interfaces whatever delays its frames.
    wire = wire_plan.plan(network, "netem")
    wrong = []
    worst_text, worst_uneven = "", -1
    for one in _sums(network, wire, start, end):
        uneven = abs(one.entered - one.left)
        text = f"{one.place}: {one.entered} frames went in, {one.left} came out"
        if uneven > UNEVEN_FRAMES + UNEVEN_SHARE * max(one.entered, one.left):
            wrong.append(text)
        if uneven > worst_uneven:
            worst_text, worst_uneven = text, uneven
    return _listed(NAMES[3], wrong, f"worst: {worst_text}" if worst_text else "no link")


def _sums(network: Network, wire: WirePlan, start: Counters, end: Counters) -> Iterator[_Sum]:
    def grown(place: str, name: str) -> int | None:
        after = end.interfaces.get(place)
        if after is None:
            return None
        before = start.interfaces.get(place)
        return int(getattr(after, name) - (getattr(before, name) if before else 0))

    def joined(text: str, source: str, target: str) -> Iterator[_Sum]:
        sent, received = grown(source, "tx_packets"), grown(target, "rx_packets")
        if sent is not None and received is not None:
            yield _Sum(text, sent, received)

    impaired = {w.link.name: w for w in wire.links}
    for link in network.links:
        a, b = f"{link.a.node}/{link.a.interface}", f"{link.b.node}/{link.b.interface}"
        if link.name not in impaired:
            yield from joined(f"{a} to {b}", a, b)
            yield from joined(f"{b} to {a}", b, a)
            continue
        w = impaired[link.name]
        inner_a, inner_b = f"{WIRE}/{w.a_interface}", f"{WIRE}/{w.b_interface}"
        yield from joined(f"{a} to {inner_a}", a, inner_a)
        yield from joined(f"{inner_b} to {b}", inner_b, b)
        yield from joined(f"{b} to {inner_b}", b, inner_b)
        yield from joined(f"{inner_a} to {a}", inner_a, a)
        for d in w.directions:
            entered = grown(f"{WIRE}/{d.ingress}", "rx_packets")
            left = grown(f"{WIRE}/{d.egress}", "tx_packets")
            if entered is None or left is None:
                continue
            lost = _lost(f"{link.name}/{d.direction}", f"{WIRE}/{d.egress}", start, end)
            yield _Sum(f"link {link.name} {d.direction} in the middle", entered, left + lost)


def _lost(line: str, egress: str, start: Counters, end: Counters) -> int:
    """Return what a link's relay lost, and what its queue dropped or still holds."""
    total = 0
    if (relay := end.relay.get(line)) is not None:
        before = start.relay.get(line)
        total += relay.dropped - (before.dropped if before else 0)
        total += relay.lost - (before.lost if before else 0)
    drops = [0]
    for place, queue in end.qdiscs.items():
        if place.rpartition("/")[0] == egress:
            earlier = start.qdiscs.get(place)
            held = queue.backlog_packets - (earlier.backlog_packets if earlier else 0)
            drops.append(queue.drops - (earlier.drops if earlier else 0) + held)
    return total + max(drops)
