# SPDX-License-Identifier: Apache-2.0
"""Plan how a network runs in several parts, each on its own core: which hosts leave for another
part, and which delay their frames meet on the way. Pure.

Switches, routers and the publisher stay in part 0. A subscriber can leave if each of its NICs has a
delay to it that is its alone or its rack's alone: that of its own link, and of the link between its
rack and the rest if all hosts of the rack can leave. This delay moves to where the parts are cut.
A constant delay before or after a FIFO queue gives each frame the same time at the end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from topologies.model.network import Host, Impairment, Link, Network

LEAST_MS: Final = 4.0  # with shorter windows, parts mostly wait for each other
# Processor time in units of a receiver's in part 0, measured with LDM7 (lossy, m = 8, 60 s; 6 and 8
# receivers away). They only decide who leaves, not what is found.
BASE: Final = 3.3  # of part 0 without receivers
SWITCHED: Final = 0.22  # of part 0 for a receiver that left
AWAY: Final = 1.16  # of another part for a receiver


@dataclass(frozen=True)
class CutNic:
    """A NIC at a cut. `to_ms`: the delay of frames to the host; `from_ms`: of frames from it."""

    interface: str
    mac: str
    to_ms: float
    from_ms: float


@dataclass(frozen=True)
class CutHost:
    """A host in another part."""

    name: str
    nics: tuple[CutNic, ...]


@dataclass(frozen=True)
class Parts:
    """The plan. `network`: of part 0, without the delays that moved; `others`: the hosts of parts
    1, 2, ...; `stay`: why other subscribers stay in part 0."""

    network: Network
    others: tuple[tuple[CutHost, ...], ...]
    stay: Mapping[str, str]

    @property
    def count(self) -> int:
        """Return the number of parts."""
        return 1 + len(self.others)

    @property
    def delays_ms(self) -> tuple[float, ...]:
        """Return the delays of all cuts."""
        nics = [nic for hosts in self.others for host in hosts for nic in host.nics]
        return tuple(ms for nic in nics for ms in (nic.to_ms, nic.from_ms))


def plan(network: Network, most: int) -> Parts:
    """Return the plan with at most `most` parts. With one part, `stay` says why."""
    racks, stay = _racks(network)
    if most < 2 or not racks:
        return Parts(network, (), stay)
    away = _who_leaves([len(rack.hosts) for rack in racks], len(network.subscribers), most - 1)
    leaving = [racks[index] for index in away]
    hosts = [host for rack in leaving for host in rack.hosts]
    count = min(most - 1, len(hosts))
    dealt = tuple(tuple(hosts[index::count]) for index in range(count))
    moved = {name for rack in leaving for name in rack.moved}
    names = {host.name for host in hosts}
    balance = {h.name: "it balances the parts" for h in network.subscribers if h.name not in names}
    return Parts(_without(network, moved), dealt, {**balance, **stay})


@dataclass(frozen=True)
class _Rack:
    """Hosts that leave together, and the links whose delay moves."""

    hosts: tuple[CutHost, ...]
    moved: frozenset[str]


def _who_leaves(sizes: Sequence[int], receivers: int, others: int) -> list[int]:
    """Return which racks leave: as many as make the longest part shortest, at least one."""
    best: tuple[float, int] | None = None
    for count in range(1, len(sizes) + 1):
        left = sum(sizes[:count])
        here = BASE + receivers - left + SWITCHED * left
        longest = max(here, AWAY * -(-left // min(others, left)))
        if best is None or longest < best[0]:
            best = (longest, count)
    assert best is not None
    return list(range(best[1]))


def _racks(network: Network) -> tuple[list[_Rack], dict[str, str]]:
    """Return the racks whose hosts can leave, and why other subscribers cannot."""
    found: list[_Rack] = []
    stay: dict[str, str] = {}
    by_edge: dict[str, list[Host]] = {}
    for host in network.subscribers:
        by_edge.setdefault(network.segment_of(host.name).edge_switch, []).append(host)
    for edge, hosts in by_edge.items():
        shared, reason = _shared_link(network, edge, hosts)
        cut: list[CutHost] = []
        moved = {shared.name} if shared is not None else set()
        for host in hosts:
            nics, own, why = _nics(network, host, shared)
            if why:
                reason = f"{host.name}: {why}" + (f"; {reason}" if reason else "")
                break
            cut.append(CutHost(host.name, nics))
            moved |= own
        if len(cut) == len(hosts):
            found.append(_Rack(tuple(cut), frozenset(moved)))
        else:
            stay |= dict.fromkeys((host.name for host in hosts), reason)
    return found, stay


def _shared_link(network: Network, edge: str, hosts: Sequence[Host]) -> tuple[Link | None, str]:
    """Return the link that only these hosts' frames cross, the delayed one of their rack; None and
    why there is none."""
    names = {host.name for host in hosts}
    out = [k for k in network.links if edge in (k.a.node, k.b.node) and not _ends(k) & names]
    if len(out) != 1:
        return None, f"{edge} has {len(out)} links besides its receivers'"
    return out[0], ""


def _nics(
    network: Network, host: Host, shared: Link | None
) -> tuple[tuple[CutNic, ...], set[str], str]:
    """Return the host's cut NICs and the names of its own links, or why it stays."""
    if network.lane_count > 1:
        return (), set(), f"it has {network.lane_count} lanes; valid: one"
    links = [k for k in network.links if host.name in _ends(k)]
    found, own = [], set()
    for nic in (host.nic1, host.nic2):
        (link,) = [k for k in links if nic.interface in (k.a.interface, k.b.interface)]
        to, away = _ways(link, host.name)
        parts = [(to, away)]
        own.add(link.name)
        if nic is host.nic1 and shared is not None:
            parts.append(_ways(shared, network.segment_of(host.name).edge_switch))
        if any(way.jitter_ms for both in parts for way in both):
            return (), set(), f"a link of {nic.interface} has jitter"
        to_ms = round(sum(both[0].delay_ms for both in parts), 6)
        from_ms = round(sum(both[1].delay_ms for both in parts), 6)
        if min(to_ms, from_ms) < LEAST_MS:
            less = min(to_ms, from_ms)
            return (), set(), f"{nic.interface} has {less:g} ms; valid: {LEAST_MS:g} ms or more"
        found.append(CutNic(nic.interface, nic.mac, to_ms, from_ms))
    return tuple(found), own, ""


def _ends(link: Link) -> set[str]:
    return {link.a.node, link.b.node}


def _ways(link: Link, node: str) -> tuple[Impairment, Impairment]:
    """Return a link's direction to the node, and from it."""
    return (link.forward, link.backward) if link.b.node == node else (link.backward, link.forward)


def _without(network: Network, moved: set[str]) -> Network:
    """Return the network without the delays of these links."""
    links = tuple(
        dataclasses.replace(
            link,
            forward=dataclasses.replace(link.forward, delay_ms=0.0),
            backward=dataclasses.replace(link.backward, delay_ms=0.0),
        )
        if link.name in moved
        else link
        for link in network.links
    )
    return dataclasses.replace(network, links=links)
