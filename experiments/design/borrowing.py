# SPDX-License-Identifier: Apache-2.0
"""Put several feeds under one HTB on the NIC that they share (DRFSM21 4): the tree, its commands,
reading it back, and what a feed gets. Pure.

    1:       htb
    1:100      the NIC: rate = ceil = total
    1:11         feed of lane 1, multicast: rate r_mc, ceil
    1:12         feed of lane 1, everything else: rate r_uc, ceil
    1:21         feed of lane 2, multicast ...

A class always sends at up to its rate, whatever the others do. With a higher ceil, it also borrows
what the others leave of the total; `quantum` shares that out in proportion to the rates.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.contracts import TC_RATE_TOLERANCE
from experiments.design.expansion import Feed
from experiments.design.shaping import Setting, parse_classes

ROOT: Final = "1:"
TOTAL_CLASS: Final = "1:100"
TOTAL_LOG: Final = "shaper.total.log"
QUANTUM_BYTES: Final = 1514  # of the slowest class: a frame
MOST_QUANTUM_BYTES: Final = 200_000  # above it the kernel warns
U32_DESTINATION: Final = 16  # offset of the destination in an IPv4 header


@dataclass(frozen=True)
class Leaf:
    """A queue of a feed: its class, what it may send, and what goes into it."""

    name: str
    classid: str
    rate_bps: int
    ceil_bps: int
    quantum_bytes: int
    limit_bytes: int
    destination: ipaddress.IPv4Network

    @property
    def handle(self) -> str:
        """Return the handle of the class's bfifo: 11: below 1:11."""
        return self.classid.removeprefix(ROOT) + ":"


def multicast_class(lane: int) -> str:
    """Return the class of a lane's multicast."""
    return f"{ROOT}{lane}1"


def unicast_class(lane: int) -> str:
    """Return the class of everything else on a lane."""
    return f"{ROOT}{lane}2"


def total_bps(feeds: Sequence[Feed]) -> int:
    """Return the rate of the NIC: the sum of all feeds' guarantees."""
    return sum(feed.r_mc_bps + feed.r_uc_bps for feed in feeds)


def path_bps(feed: Feed, total: int) -> int:
    """Return the most that a feed can send, which its path must carry: both queues at their ceil,
    at most the NIC's total. Paths do not share reservations."""
    borrowed = 2 * feed.ceil_bps if feed.ceil_bps else 0
    return max(feed.r_mc_bps + feed.r_uc_bps, min(borrowed, total))


def leaves(
    feeds: Sequence[Feed],
    groups: Mapping[int, str],
    subnets: Mapping[int, str],
    b_mc_bytes: int,
    b_uc_bytes: int,
) -> tuple[Leaf, ...]:
    """Return two queues for each feed. `groups`, `subnets`: of the lanes, as IPv4 text."""
    least = min(rate for f in feeds for rate in (f.r_mc_bps, f.r_uc_bps))
    found = []
    for f in feeds:
        lane = f.lane
        for kind, classid, rate, limit, where in (
            ("multicast", multicast_class(lane), f.r_mc_bps, b_mc_bytes, groups[lane]),
            ("unicast", unicast_class(lane), f.r_uc_bps, b_uc_bytes, subnets[lane]),
        ):
            quantum = min(MOST_QUANTUM_BYTES, round(QUANTUM_BYTES * rate / least))
            ceil = max(rate, f.ceil_bps)
            to = ipaddress.IPv4Network(where, strict=False)
            found.append(Leaf(f"{f.name} {kind}", classid, rate, ceil, quantum, limit, to))
    return tuple(found)


def commands(interface: str, queues: Sequence[Leaf], total: int) -> list[list[str]]:
    """Return the commands that make the tree. Frames that match no filter (ARP) go to the last
    class of the first feed."""
    dev = ["dev", interface]
    default = queues[1].classid.removeprefix(ROOT)
    rates = ["rate", f"{total}bit", "ceil", f"{total}bit", "quantum", str(QUANTUM_BYTES)]
    made = [
        ["tc", "qdisc", "add", *dev, "root", "handle", ROOT, "htb", "default", default],
        ["tc", "class", "add", *dev, "parent", ROOT, "classid", TOTAL_CLASS, "htb", *rates],
    ]
    for q in queues:
        rates = ["rate", f"{q.rate_bps}bit", "ceil", f"{q.ceil_bps}bit"]
        rates += ["quantum", str(q.quantum_bytes)]
        place = ["parent", TOTAL_CLASS, "classid", q.classid]
        made.append(["tc", "class", "add", *dev, *place, "htb", *rates])
        leaf = ["parent", q.classid, "handle", q.handle, "bfifo", "limit", str(q.limit_bytes)]
        made.append(["tc", "qdisc", "add", *dev, *leaf])
    for q in queues:
        # The frames are tagged, so their protocol is 802.1Q; u32 counts from the IP header.
        match = ["protocol", "all", "prio", "1", "u32", "match", "ip", "dst", str(q.destination)]
        made.append(["tc", "filter", "add", *dev, "parent", ROOT, *match, "flowid", q.classid])
    return made


def things(place: str, queues: Sequence[Leaf]) -> dict[str, str]:
    """Return what an inventory shows at "<node>/<interface>" after `commands`: queueing disciplines
    by their text, classes by their number."""
    classes = sorted(
        [TOTAL_CLASS, *(q.classid for q in queues)], key=lambda c: int(c.removeprefix(ROOT), 16)
    )
    return {
        f"{place} qdiscs": ", ".join(sorted([*(f"{q.classid} bfifo" for q in queues), "root htb"])),
        f"{place} classes": ", ".join(f"{c} htb" for c in classes),
        f"{place} filters": f"{len(queues)} x root u32",
    }


def read_back(
    qdiscs: str, classes: str, filters: str, queues: Sequence[Leaf], total: int
) -> list[Setting]:
    """Compare what the kernel has with `commands`. The texts are those of `tc -j ... show`."""
    shown: list[dict[str, Any]] = json.loads(qdiscs or "[]")
    root: dict[str, Any] = next((q for q in shown if q.get("root")), {})
    limits = {q.get("parent"): q.get("options", {}).get("limit") for q in shown}
    found = parse_classes(classes)
    ways = _destinations(filters)
    settings = [Setting("root qdisc", "htb", root.get("kind"))]
    settings += _rates("total", total, total, found.get(TOTAL_CLASS, (None, None)))
    for q in queues:
        settings += _rates(q.name, q.rate_bps, q.ceil_bps, found.get(q.classid, (None, None)))
        settings.append(Setting(f"{q.name} bfifo limit", q.limit_bytes, limits.get(q.classid)))
        settings.append(Setting(f"{q.name} filter", str(q.destination), ways.get(q.classid)))
    return settings


def _rates(
    name: str, rate: int, ceil: int, found: tuple[float | None, float | None]
) -> list[Setting]:
    return [
        Setting(f"{name} rate", rate, found[0], rate * TC_RATE_TOLERANCE),
        Setting(f"{name} ceil", ceil, found[1], ceil * TC_RATE_TOLERANCE),
    ]


def _destinations(text: str) -> dict[str, str]:
    """Return by class the destinations that a u32 filter sends to it."""
    ways: dict[str, str] = {}
    for entry in json.loads(text or "[]"):
        options = entry.get("options", {})
        match = options.get("match", {})
        if match.get("off") == U32_DESTINATION:
            address = ipaddress.IPv4Address(int(str(match.get("value")), 16))
            mask = ipaddress.IPv4Address(int(str(match.get("mask")), 16))
            ways[str(options.get("flowid"))] = str(ipaddress.IPv4Network(f"{address}/{mask}"))
    return ways


def share_bps(queues: Sequence[Leaf], busy: Sequence[str], total: int) -> dict[str, float]:
    """Return what each of the `busy` classes gets when the others are idle: its rate, and a share
    of the rest of the total in proportion to its quantum, up to its ceil."""
    active = [q for q in queues if q.classid in busy]
    got = {q.classid: float(q.rate_bps) for q in active}
    left = total - sum(got.values())
    hungry = [q for q in active if q.ceil_bps > q.rate_bps]
    while hungry and left > 0.5:
        weight = sum(q.quantum_bytes for q in hungry)
        given = 0.0
        for q in hungry:
            more = min(left * q.quantum_bytes / weight, q.ceil_bps - got[q.classid])
            got[q.classid] += more
            given += more
        left -= given
        hungry = [q for q in hungry if q.ceil_bps - got[q.classid] > 0.5]
    return got
