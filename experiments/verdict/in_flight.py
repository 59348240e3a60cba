# SPDX-License-Identifier: Apache-2.0
"""Check that the network treated packets as asked, all the time: their delays and order, how often
they arrived, and whether they changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.counting import counted
from common.virtual_time import Clock
from experiments.verdict.checks import Check, Limits, Status, worst
from experiments.verdict.one_way import Way
from topologies.watch.flights import BLOCK_S, Block

LEAST_PACKETS: Final = 5  # to judge: fewer have no median worth judging
MEDIAN_MS: Final[Mapping[Clock, Limits]] = {
    "native": Limits(
        2.0, 10.0, "as a round trip's: userspace switches and the relay add tenths of milliseconds"
    ),
    "virtual": Limits(0.05, 0.5, "nothing but links takes time; measured within 0.001 ms"),
}
MEDIAN_SHARE: Final = Limits(
    0.2, 0.5, "of a short way's delay, as of a round trip's, where 2 and 10 ms would be more"
)
MEDIAN_FLOOR_MS: Final = Limits(1.0, 2.5, "twice and five times what native switches add")
LATE_MS: Final[Mapping[Clock, Limits]] = {
    "native": Limits(
        20.0, 100.0, "1 % of the packets of 10 s: TCP's least retransmission timeout is 200 ms"
    ),
    "virtual": Limits(0.2, 2.0, "as for the median; measured within 0.0015 ms"),
}
EARLY_MS: Final = Limits(0.05, 0.5, "nothing makes a link faster but another link")
DISORDER: Final[Mapping[Clock, Limits]] = {
    "native": Limits(
        0.0,
        1e-3,
        "of the packets: a switch may overtake the first of a flow, which its slow path forwards",
    ),
    "virtual": Limits(0.0, 1e-4, "as natively, where no time passes while a switch thinks"),
}
COPIES: Final = Limits(0.0, 1e-4, "no link and no switch repeats a packet")
LOST: Final = Limits(0.0, 1e-3, "as uninjected drops")
DELAYS: Final = "delays during the replay"
EARLY: Final = "the fastest"  # of a packet that came too early, which no load can cause
CERTAINTY: Final = 0.99  # so that one or two packets do not decide a sample's share


@dataclass(frozen=True)
class FlightSeen:
    """A flight as flights.json has it."""

    source: str
    target: str
    network: str
    packets: int
    lost: int
    out_of_order: int
    duplicates: int
    marked: int
    changed: int
    hops: int
    fragments: int
    strangers: int
    asked: Way | None
    blocks: Sequence[Block]
    congestion_marks: int = 0  # ECN-capable packets that a queue marked

    @property
    def name(self) -> str:
        """Return the flight in words."""
        return f"{self.source} to {self.target} ({self.network})"


def parse(raw: Mapping[str, Any]) -> list[FlightSeen]:
    """Read flights.json. Raises KeyError, TypeError."""
    found = []
    for one in raw["flights"]:
        way = one["asked"]
        asked = None if way is None else Way(**{**way, "links": tuple(way["links"])})
        blocks = [Block(*block) for block in one["blocks"]]
        found.append(FlightSeen(**{**one, "asked": asked, "blocks": blocks}))
    return found


@dataclass(frozen=True)
class _Delay:
    """One judged delay. `excess`: as a fraction of what makes a run invalid."""

    excess: float
    text: str
    status: Status


def median_limits(delay_ms: float, clock: Clock) -> Limits:
    """Return how late half of the packets of a way with this delay may be, in ms."""
    most, share, floor = MEDIAN_MS[clock], MEDIAN_SHARE, MEDIAN_FLOOR_MS
    return Limits(
        min(most.warn, max(floor.warn, share.warn * delay_ms)),
        min(most.fail, max(floor.fail, share.fail * delay_ms)),
        most.reason,
    )


@dataclass(frozen=True)
class InFlight:
    """What was seen of packets in transit, and what may excuse a finding."""

    flights: Sequence[FlightSeen]
    unseen: int  # packets of the sample that the watcher missed
    clock: Clock
    congested: bool  # competing flows fill queues
    marks_asked: bool = False  # queues are to mark ECN-capable packets
    branches_change: bool = False  # packets to a subscriber that left do not arrive

    def checks(self) -> list[Check]:
        """Make all checks."""
        if not self.flights:
            return [
                Check(name, "warn", None, None, "no packet was watched in transit")
                for name in NAMES
            ]
        return [
            self._delays(),
            self._share(NAMES[1], DISORDER[self.clock], lambda f: f.out_of_order, self._ordered()),
            self._share(NAMES[2], COPIES, lambda f: f.duplicates + f.strangers, self.flights),
            self._content(),
            self._lost(),
        ]

    def _ordered(self) -> list[FlightSeen]:
        return [f for f in self.flights if f.asked is not None and f.asked.jitter_ms == 0]

    def _delays(self) -> Check:
        """Check each receiver and each 10 s: no faster than the path, and not much slower."""
        found: list[_Delay] = []
        judged = 0
        for flight in self.flights:
            if flight.asked is None:
                continue
            for block, end_s in spans(flight.blocks):
                judged += 1
                found += self._judge(flight, flight.asked, block, end_s)
        if not judged:
            text = f"fewer than {LEAST_PACKETS} sampled packets over any one path"
            return Check(NAMES[0], "warn", None, None, text)
        bad = sorted((d for d in found if d.status != "pass"), key=lambda d: -d.excess)
        closest = max(found, key=lambda d: d.excess)
        text = f"{counted(judged, 'block')} of 10 s or more, "
        text += f"{counted(len(self.flights), 'flight')}: "
        if not bad:
            return Check(NAMES[0], "pass", judged, judged, f"{text}worst: {closest.text}")
        text += "; ".join(d.text for d in bad[:6]) + ("; ..." if len(bad) > 6 else "")
        return Check(NAMES[0], worst([d.status for d in bad]), judged, judged - len(bad), text)

    def _judge(self, flight: FlightSeen, way: Way, block: Block, end_s: float) -> list[_Delay]:
        where = f"{flight.name}, {block.begin_s:g} to {end_s:g} s"
        early = way.delay_ms - way.jitter_ms - block.least_ms
        text = f"{where}, {EARLY} {block.least_ms:.3f} ms instead of {way.delay_ms:g} ms"
        found = [_Delay(early / EARLY_MS.fail, text, EARLY_MS.status(round(early, 6)))]
        if self.congested:
            return found
        for value, limits, words in (
            (block.median_ms, median_limits(way.delay_ms, self.clock), "half"),
            (block.late_ms, LATE_MS[self.clock], "1 %"),
        ):
            late = round(value - way.most_ms, 6)
            text = f"{where}, {words} of the packets took {value:.3f} ms or more instead of "
            text += f"{way.delay_ms:g} ms"
            found.append(_Delay(late / limits.fail, text, limits.status(late)))
        return found

    def _share(
        self,
        name: str,
        limits: Limits,
        count: Callable[[FlightSeen], int],
        flights: Sequence[FlightSeen],
    ) -> Check:
        if not flights:
            return Check(name, "n/a", None, None, "does not apply: links jitter on purpose")
        packets = sum(f.packets for f in flights)
        wrong = {f.name: count(f) for f in flights if count(f)}
        total = sum(wrong.values())
        if not total:
            return Check(name, "pass", 0, 0, f"none of {counted(packets, 'sampled packet')}")
        share = total / max(1, packets)
        text = f"{total} of {counted(packets, 'sampled packet')} ({100 * share:.3g} %): " + _listed(
            wrong
        )
        status = limits.status(share)
        if (
            status == "fail"
            and limits is not COPIES
            and not is_certain(total, packets, limits.fail)
        ):
            status = "warn"
            text += f"; too few to be {100 * CERTAINTY:g} % sure of more than {limits.fail:g}"
        if self.unseen and limits in (COPIES, LOST):
            text += f"; the watcher itself missed {self.unseen}"
            # One that it missed explains one packet at each receiver.
            status = "warn" if max(wrong.values()) <= self.unseen else status
        return Check(name, status, 0, total, text)

    def _content(self) -> Check:
        wrong: dict[str, str] = {}
        for f in self.flights:
            routers = 0 if f.asked is None else f.asked.routers
            words = [
                f"{n} {what}"
                for n, what in (
                    (f.changed, "with other bytes"),
                    (f.marked, "with another ECN or traffic class field"),
                    (
                        0 if self.marks_asked else f.congestion_marks,
                        "marked as congested (ECN)",
                    ),
                    (f.fragments, "in fragments"),
                )
                if n
            ]
            if f.asked is not None and f.packets and f.hops != routers:
                words.append(f"over {counted(f.hops, 'router')} instead of {routers}")
            if words:
                wrong[f.name] = " and ".join(words)
        packets = sum(f.packets for f in self.flights)
        if not wrong:
            return Check(NAMES[3], "pass", 0, 0, f"none of {packets} sampled packets changed")
        return Check(
            NAMES[3],
            "fail",
            0,
            len(wrong),
            "; ".join(f"{name}: {what}" for name, what in list(wrong.items())[:8]),
        )

    def _lost(self) -> Check:
        flights = [f for f in self.flights if f.asked is not None and not f.asked.lossy]
        if self.congested or not flights:
            text = "does not apply: links or competing flows lose packets on purpose"
            return Check(NAMES[4], "n/a", None, None, text)
        if self.branches_change:
            text = "does not apply: packets in transit to a leaving subscriber do not arrive"
            return Check(NAMES[4], "n/a", None, None, text)
        return self._share(NAMES[4], LOST, lambda f: f.lost, flights)


def spans(blocks: Sequence[Block]) -> list[tuple[Block, float]]:
    """Return the blocks that can be judged, and their ends. Where no block of 10 s has enough
    packets (the sender sends little), neighbours are joined until they have enough."""
    if enough := [b for b in blocks if b.packets >= LEAST_PACKETS]:
        return [(block, block.begin_s + BLOCK_S) for block in enough]
    found: list[tuple[Block, float]] = []
    few: list[Block] = []
    for block in blocks:
        few.append(block)
        if sum(b.packets for b in few) >= LEAST_PACKETS:
            found.append((_joined(few), block.begin_s + BLOCK_S))
            few = []
    if few and found:
        found[-1] = (_joined([found[-1][0], *few]), few[-1].begin_s + BLOCK_S)
    return found


def _joined(blocks: Sequence[Block]) -> Block:
    """Return blocks as one. Half of all packets are no later than the latest of their medians."""
    return Block(
        blocks[0].begin_s,
        sum(b.packets for b in blocks),
        min(b.least_ms for b in blocks),
        max(b.median_ms for b in blocks),
        max(b.late_ms for b in blocks),
        max(b.most_ms for b in blocks),
    )


def is_certain(count: int, packets: int, share: float) -> bool:
    """Return whether `count` packets of a sample are more than 99 of 100 samples would show if the
    share were `share` (binomial distribution; `share` above 0 and below 1)."""
    if count > packets:  # `packets` are those that arrived; lost ones are extra
        packets += count

    def logarithm(n: int) -> float:
        ways = math.lgamma(packets + 1) - math.lgamma(n + 1) - math.lgamma(packets - n + 1)
        return ways + n * math.log(share) + (packets - n) * math.log1p(-share)

    return math.fsum(math.exp(logarithm(n)) for n in range(count)) > CERTAINTY


def _listed(wrong: Mapping[str, int]) -> str:
    items = sorted(wrong.items(), key=lambda item: -item[1])
    return "; ".join(f"{name} {n}" for name, n in items[:8]) + ("; ..." if len(items) > 8 else "")


NAMES: Final = (
    DELAYS,
    "order of packets",
    "copies of packets",
    "packets unchanged",
    "packets lost on the way",
)
