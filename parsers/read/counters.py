# SPDX-License-Identifier: Apache-2.0
"""Read `counters-start.json` and `counters-end.json` (docs/reference/contracts.md) as typed
counters, and compute what was lost between the two, injected or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, ValidationError

from common.contracts import ARRIVED_COMMENT, BURST_COMMENT, LOSS_COMMENT
from parsers.base.jsonfiles import BadFile, describe
from parsers.read.iptables_log import Rule


class _Counters(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class InterfaceCounters(_Counters):
    rx_bytes: int = 0
    rx_packets: int = 0
    rx_dropped: int = 0
    tx_bytes: int = 0
    tx_packets: int = 0
    tx_dropped: int = 0


class QueueCounters(_Counters):
    """A qdisc or a class."""

    kind: str = ""
    sent_bytes: int = 0
    sent_packets: int = 0
    drops: int = 0
    overlimits: int = 0
    backlog_bytes: int = 0
    backlog_packets: int = 0


class MeterCounters(_Counters):
    in_bytes: int = 0
    in_packets: int = 0
    drop_bytes: int = 0
    drop_packets: int = 0


class UdpCounters(_Counters):
    in_datagrams: int = 0
    in_errors: int = 0
    rcvbuf_errors: int = 0
    sndbuf_errors: int = 0


class RuleCounters(_Counters):
    chain: str
    packets: int
    bytes: int
    rule: str


class RelayCounters(_Counters):
    frames: int = 0
    bytes: int = 0
    dropped: int = 0
    lost: int = 0
    late_p50_us: float | None = None
    late_p99_us: float | None = None
    late_max_us: float | None = None


class SwitchPortCounters(_Counters):
    rx_packets: int = 0
    rx_dropped: int = 0
    tx_packets: int = 0
    tx_dropped: int = 0
    tx_errors: int = 0
    socket_drops: int = 0  # lost before the userspace datapath read them


class Counters(_Counters):
    """All counters of a network at one instant. docs/reference/contracts.md describes the keys."""

    time: float
    interfaces: dict[str, InterfaceCounters] = {}
    qdiscs: dict[str, QueueCounters] = {}
    classes: dict[str, QueueCounters] = {}
    meters: dict[str, MeterCounters] = {}
    udp: dict[str, UdpCounters] = {}
    iptables: dict[str, list[RuleCounters]] = {}
    relay: dict[str, RelayCounters] = {}
    openvswitch: dict[str, SwitchPortCounters] = {}

    def rules(self, host: str) -> tuple[Rule, ...]:
        """Return the iptables rules of a host with their counters."""
        return tuple(Rule(r.chain, r.packets, r.bytes, r.rule) for r in self.iptables.get(host, []))


def parse_counters(text: str, file: str) -> Counters:
    """Parse the counters. Raises `BadFile` if the text is not such a file."""
    try:
        return Counters.model_validate_json(text)
    except ValidationError as error:
        raise BadFile(describe(error, file)) from None


@dataclass(frozen=True, slots=True)
class Drop:
    """Packets lost at one place between two readings. `injected`: the experiment asked for it."""

    place: str
    what: str
    packets: int
    injected: bool


def _lost(
    what: str,
    start: Mapping[str, _Counters],
    end: Mapping[str, _Counters],
    names: tuple[str, ...],
) -> Iterator[Drop]:
    for place, after in end.items():
        before = start.get(place)
        for name in names:
            lost = getattr(after, name) - (getattr(before, name) if before else 0)
            if lost > 0:
                yield Drop(place, f"{what} {name}", lost, injected=False)


def _queue_drops(start: Counters, end: Counters) -> dict[str, Drop]:
    """Return, by interface, the qdisc that dropped most; on a tie the leaf, which has the longer
    handle."""
    found: dict[str, Drop] = {}
    for drop in _lost("qdisc", start.qdiscs, end.qdiscs, ("drops",)):
        interface = drop.place.rsplit("/", 1)[0]
        known = found.get(interface)
        if known is None or (drop.packets, len(drop.place)) > (known.packets, len(known.place)):
            found[interface] = drop
    return found


def _interface_drops(start: Counters, end: Counters, queues: Mapping[str, Drop]) -> Iterator[Drop]:
    for drop in _lost("interface", start.interfaces, end.interfaces, ("tx_dropped",)):
        queue = queues.get(drop.place)
        rest = drop.packets - (queue.packets if queue else 0)
        if rest > 0:
            yield Drop(drop.place, drop.what, rest, injected=False)


def _rule_drops(start: Counters, end: Counters) -> Iterator[Drop]:
    for host in end.iptables:
        if dropped := injected_loss(host, start, end).dropped:
            yield Drop(host, "iptables", dropped, injected=True)
        yield from foreign_drops(host, start, end)


def drops_between(
    start: Counters, end: Counters, lossy_link_directions: frozenset[str] = frozenset()
) -> tuple[Drop, ...]:
    """Return every loss that the counters show, largest first.

    `lossy_link_directions` ("<link>/forward", "wire/w0b", ...): directions whose loss the topology
    asks for; a netem's drops there count as injected. Counters that began after `start` count from
    0. A lost packet that several counters show is reported once: a class and a classful qdisc
    repeat their leaf's drops, and an interface repeats those of its qdiscs. UDP's sndbuf_errors are
    not losses: the send fails, and the program tries again.
    """
    queues = _queue_drops(start, end)
    found = [
        *(
            replace(
                drop,
                injected=interface in lossy_link_directions
                and end.qdiscs[drop.place].kind == "netem",
            )
            for interface, drop in queues.items()
        ),
        *_lost("meter", start.meters, end.meters, ("drop_packets",)),
        *_lost("UDP", start.udp, end.udp, ("rcvbuf_errors",)),
        *_lost("interface", start.interfaces, end.interfaces, ("rx_dropped",)),
        *_interface_drops(start, end, queues),
        *_lost(
            "switch port",
            start.openvswitch,
            end.openvswitch,
            ("rx_dropped", "tx_dropped", "tx_errors", "socket_drops"),
        ),
        *(
            Drop(d.place, d.what, d.packets, injected=d.place in lossy_link_directions)
            for d in _lost("relay", start.relay, end.relay, ("dropped",))
        ),
        *_rule_drops(start, end),
    ]
    return tuple(sorted(found, key=lambda d: (d.injected, -d.packets, d.place, d.what)))


def _growth(host: str, start: Counters, end: Counters) -> Iterator[tuple[Rule, int]]:
    """Yield each rule of a host with the packets that it counted between the two readings. A rule
    that was added after the first reading counts from 0."""
    before: dict[tuple[str, str], int] = {}
    for rule in start.rules(host):
        key = (rule.chain, rule.rule)
        before[key] = before.get(key, 0) + rule.packets
    for rule in end.rules(host):
        yield rule, rule.packets - min(before.pop((rule.chain, rule.rule), 0), rule.packets)


def _counted(host: str, start: Counters, end: Counters, comment: str) -> int | None:
    """Return the packets at the host's rules with this comment; None if there is no such rule."""
    found = [n for rule, n in _growth(host, start, end) if comment in rule.rule]
    return sum(found) if found else None


@dataclass(frozen=True, slots=True)
class InjectedLoss:
    """What the experiment's own rules did at one host; None if there is no such rule."""

    arrived: int | None  # packets that reached the dropping rule
    dropped: int | None
    interface: str | None  # the dropping rule's input interface


def injected_loss(host: str, start: Counters, end: Counters) -> InjectedLoss:
    """Return the loss that the experiment injected at a host: what the rules with its comment
    dropped. Other rules' drops are foreign (`foreign_drops`)."""
    ours = [rule for rule in end.rules(host) if LOSS_COMMENT in rule.rule]
    return InjectedLoss(
        _counted(host, start, end, ARRIVED_COMMENT),
        _counted(host, start, end, LOSS_COMMENT),
        next((rule.interface for rule in ours if rule.interface), None),
    )


def foreign_drops(host: str, start: Counters, end: Counters) -> Iterator[Drop]:
    """Yield the drops of the host's firewall rules that are not the experiment's."""
    for rule, packets in _growth(host, start, end):
        if rule.discards and LOSS_COMMENT not in rule.rule and packets > 0:
            yield Drop(host, f"iptables rule '{rule.rule}'", packets, injected=False)


def rule_bursts(host: str, start: Counters, end: Counters) -> int | None:
    """Return how many bursts of losses began between the two readings: packets at the host's rules
    that match the first packet of a burst. None if losses do not come in bursts."""
    return _counted(host, start, end, BURST_COMMENT)
