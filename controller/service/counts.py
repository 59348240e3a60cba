# SPDX-License-Identifier: Apache-2.0
"""What a path carried, from the switches' counters: what entered, and what edges and leaves
received. Pure.

Counters are matched with the path's entries by the entries' own keys (forwarding.py). A switch may
restart a group's counters whenever the group changes (Open vSwitch does), that is, when a branch at
that switch comes or goes. `Ledger` adds up across restarts, but its sums may miss what was counted
between the last reading before the change and the change. So totals are "at least". The frames
missing at a leaf are exact, but only since its counters began (`since`).

At each place, a frame of a channel counts both as the path's multicast and as the channel's
(`ChannelCounts`). Missing frames are only reported for other multicast.

The counters of several switches are not read at the same instant: frames in transit count as
missing until the next reading.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce

from controller.paths.core import Core, Endpoint
from controller.paths.entries import (
    Flow,
    Group,
    Kind,
    Meter,
    ToGroup,
    channel_of,
    kind_of,
)
from controller.paths.multipoint_path import Edge, MultipointPath, edges_of
from controller.paths.plan import entries_of
from controller.paths.stats import Count, SwitchStats

NOTHING = Count()
CounterId = tuple[str | int | None, ...]
Readings = Mapping[CounterId, Count]


@dataclass(frozen=True)
class Comparison:
    """Frames that were sent into something and that came out of it.

    `since` (epoch seconds): both have been counted without a break from then on. Frames in transit
    at the first reading may make `missing` negative.
    """

    since: float
    sent: int
    missing: int


@dataclass(frozen=True)
class EndpointCounts:
    """`denied`: source is allowed, destination is not; `spoofed`: source is not allowed."""

    endpoint: Endpoint
    denied: Count
    spoofed: Count


@dataclass(frozen=True)
class LeafCounts(EndpointCounts):
    """Frames `multicast` and `unicast` to the leaf, and `sent` from it to the root.

    `compared`: multicast that passed the root, and what came here; None while no path leads to the
    leaf.
    """

    multicast: Count
    unicast: Count
    sent: Count
    compared: Comparison | None


@dataclass(frozen=True)
class EdgeCounts:
    """`sent` into the link, `arrived` at its end (multicast and broadcast)."""

    edge: Edge
    sent: Count
    arrived: Count
    compared: Comparison | None


@dataclass(frozen=True)
class ChannelCounts:
    """Frames of a group that `entered` at the root while some leaf had joined it, and what each
    leaf received of them. Leaves that neither joined nor received any are left out."""

    group: str
    entered: Count
    leaves: tuple[tuple[Endpoint, Count], ...]


@dataclass(frozen=True)
class PathCounts:
    """Frames that entered at the root, `dropped` of them by the meter, and `passed`, the rest.

    `channels`: those that were ever joined. `unjoined`: frames of channels that no leaf had joined,
    dropped at the root before the meter. `silent`: switches of the path that did not answer.
    """

    name: str
    root: EndpointCounts
    entered_multicast: Count
    entered_unicast: Count
    dropped: Count
    leaves: tuple[LeafCounts, ...]
    edges: tuple[EdgeCounts, ...]
    channels: tuple[ChannelCounts, ...]
    unjoined: Count
    silent: tuple[str, ...]

    @property
    def passed(self) -> Count:
        """Return what entered and was not dropped by the meter."""
        entered, dropped = self.entered_multicast, self.dropped
        return Count(
            entered.packets + self.entered_unicast.packets - dropped.packets,
            entered.size_bytes + self.entered_unicast.size_bytes - dropped.size_bytes,
        )


def readings_of(core: Core, path: MultipointPath, stats: Mapping[str, SwitchStats]) -> Readings:
    """Return the path's counters, by what they count. Switches not in `stats` have none."""
    result: dict[CounterId, Count] = {}

    def add(counter: CounterId, count: Count) -> None:
        result[counter] = _sum(result.get(counter, NOTHING), count)

    for switch, entries in entries_of(core, path).items():
        counted = stats.get(switch)
        if counted is None:
            continue
        for entry in entries:
            match entry:
                case Flow():
                    count = counted.flows.get(entry.key)
                    if count is not None:
                        for counter in _flow_counters(switch, entry):
                            add(counter, count)
                case Group():
                    group = counted.groups.get(entry.number)
                    if group is not None and len(group.buckets) == len(entry.buckets):
                        channel = channel_of(entry.number)
                        own = () if channel is None else (channel,)
                        add(("group", switch, *own), group.total)
                        for bucket, count in zip(entry.buckets, group.buckets, strict=True):
                            add(("branch", switch, *bucket.order, *own), count)
                case Meter() if entry.number == path.number:
                    meter = counted.meters.get(entry.number)
                    if meter is not None:
                        add(("dropped",), meter.dropped)
    return result


def _flow_counters(switch: str, flow: Flow) -> Iterator[CounterId]:
    kind = kind_of(flow.cookie)
    port, vlan = flow.match.in_port, flow.match.vlan
    if kind is Kind.CHANNEL:
        groups = (action.group for action in flow.actions if isinstance(action, ToGroup))
        yield from ((kind, switch, port, vlan, channel_of(group)) for group in groups)
        return
    yield kind, switch, port, vlan
    if kind is Kind.UNICAST_DOWN and flow.match.eth_dst is not None:
        yield kind, switch, flow.match.eth_dst.value


def _sum(a: Count, b: Count) -> Count:
    return Count(a.packets + b.packets, a.size_bytes + b.size_bytes)


@dataclass
class _Counter:
    total: Count = NOTHING
    last: Count = NOTHING
    epoch: int = 0  # how many times it started over


@dataclass
class _PathLedger:
    counters: dict[CounterId, _Counter] = field(default_factory=dict)
    # what is compared -> (epochs of both, values of both when the comparison began, since)
    bases: dict[tuple[CounterId, CounterId], tuple[tuple[int, int], tuple[int, int], float]] = (
        field(default_factory=dict)
    )


class Ledger:
    """Adds up readings over the life of each path (its name and number)."""

    def __init__(self) -> None:
        self._paths: dict[tuple[str, int], _PathLedger] = {}

    def forget_others(self, paths: Iterable[MultipointPath]) -> None:
        """Drop all paths except these."""
        alive = {(path.name, path.number) for path in paths}
        for key in self._paths.keys() - alive:
            del self._paths[key]

    def forget(self, name: str) -> None:
        """Drop a path that was deleted."""
        for key in [key for key in self._paths if key[0] == name]:
            del self._paths[key]

    def add(
        self,
        core: Core,
        path: MultipointPath,
        stats: Mapping[str, SwitchStats],
        now: float,
        regrouped: Container[str] = (),
        restarted: Container[str] = (),
    ) -> PathCounts:
        """Return the path's counts after one more reading; `now` in epoch seconds.

        `regrouped`: switches where the path's group may have changed since the last reading.
        `restarted`: switches that may have lost all counters, where new counters may already exceed
        the old ones.
        """
        ledger = self._paths.setdefault((path.name, path.number), _PathLedger())
        for counter, count in readings_of(core, path, stats).items():
            known = ledger.counters.setdefault(counter, _Counter())
            kind, switch = counter[0], counter[1] if len(counter) > 1 else path.root.switch
            if switch in restarted or (kind in ("group", "branch") and switch in regrouped):
                known.epoch += 1
            if count.packets < known.last.packets:
                known.epoch += 1
                known.last = NOTHING
            known.total = Count(
                known.total.packets + count.packets - known.last.packets,
                known.total.size_bytes + count.size_bytes - known.last.size_bytes,
            )
            known.last = count
        return _counts(core, path, ledger, stats, now)


@dataclass(frozen=True)
class _Reader:
    """Reads a path's ledger at one moment."""

    path: MultipointPath
    ledger: _PathLedger
    now: float

    @property
    def channels(self) -> range:
        """Return the numbers of the path's channels."""
        return range(0 if self.path.channels is None else self.path.channels.count)

    def total(self, *counter: str | int | None) -> Count:
        known = self.ledger.counters.get(counter)
        return NOTHING if known is None else known.total

    def multicast(self, kind: str | Kind, *place: str | int) -> Count:
        """Return the count of the path's own group, or its flow, plus that of all channels."""
        own = "branch" if kind == "branch" else Kind.DATA_DOWN
        counts = (self.total(kind, *place, number) for number in self.channels)
        return reduce(_sum, counts, self.total(own, *place))

    def of_channels(self) -> Iterator[ChannelCounts]:
        path, root = self.path, self.path.root
        for number in self.channels:
            entered = self.total(Kind.CHANNEL, root.switch, root.port, root.vlan, number)
            got = [(leaf, self.total("branch", *leaf.key, number)) for leaf in path.leaves]
            leaves = tuple(
                (leaf, count)
                for leaf, count in got
                if count != NOTHING or (number, leaf.key) in path.members
            )
            if leaves or entered != NOTHING:
                assert path.channels is not None
                yield ChannelCounts(str(path.channels.group(number)), entered, leaves)

    def dropped_at(self, endpoint: Endpoint) -> tuple[Count, Count]:
        place = (endpoint.switch, endpoint.port, endpoint.vlan)
        return self.total(Kind.DENIED, *place), self.total(Kind.SPOOFED, *place)

    def of_leaf(self, leaf: Endpoint) -> LeafCounts:
        received = (self.total(Kind.UNICAST_DOWN, leaf.switch, mac) for mac in leaf.macs)
        here = ("branch", *leaf.key)
        return LeafCounts(
            leaf,
            *self.dropped_at(leaf),
            multicast=self.multicast(*here),
            unicast=reduce(_sum, received, NOTHING),
            sent=_sum(self.total(Kind.UP, *leaf.key), self.total(Kind.ARP, *leaf.key)),
            compared=_compare(self.ledger, ("group", self.path.root.switch), here, self.now),
        )

    def of_edge(self, edge: Edge) -> EdgeCounts:
        into = ("branch", edge.source, edge.source_port, edge.vlan)
        out = (Kind.DATA_DOWN, edge.target, edge.target_port, edge.vlan)
        compared = _compare(self.ledger, into, out, self.now)
        arrived = self.multicast(Kind.CHANNEL, *out[1:])
        return EdgeCounts(edge, self.multicast(*into), arrived, compared)


def _counts(
    core: Core,
    path: MultipointPath,
    ledger: _PathLedger,
    stats: Mapping[str, SwitchStats],
    now: float,
) -> PathCounts:
    root, read = path.root, _Reader(path, ledger, now)
    edges = edges_of(core, path)
    switches = {root.switch, *(edge.target for edge in edges)}
    return PathCounts(
        path.name,
        EndpointCounts(root, *read.dropped_at(root)),
        entered_multicast=read.multicast(Kind.CHANNEL, root.switch, root.port, root.vlan),
        entered_unicast=read.total(Kind.UNICAST_DOWN, root.switch, root.port, root.vlan),
        dropped=read.total("dropped"),
        leaves=tuple(read.of_leaf(leaf) for leaf in path.leaves),
        edges=tuple(read.of_edge(edge) for edge in edges),
        channels=tuple(read.of_channels()),
        unjoined=read.total(Kind.UNJOINED, root.switch, root.port, root.vlan),
        silent=tuple(sorted(switches - stats.keys())),
    )


def _compare(ledger: _PathLedger, into: CounterId, out: CounterId, now: float) -> Comparison | None:
    sent, got = ledger.counters.get(into), ledger.counters.get(out)
    if sent is None or got is None:
        return None
    epochs = (sent.epoch, got.epoch)
    base = ledger.bases.get((into, out))
    if base is None or base[0] != epochs:
        base = (epochs, (sent.last.packets, got.last.packets), now)
        ledger.bases[into, out] = base
    _, (sent_before, got_before), since = base
    passed = sent.last.packets - sent_before
    return Comparison(since, passed, passed - (got.last.packets - got_before))
