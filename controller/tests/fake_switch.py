# SPDX-License-Identifier: Apache-2.0
"""OpenFlow 1.3 switches in pure Python: they take message descriptions and forward frames.

They are as strict as a switch: a flow that names a missing group or meter is refused, an id that
exists cannot be added again, deleting a group deletes the flows that use it, nothing leaves through
the port on which it came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from controller.paths.core import Core
from controller.paths.entries import (
    Action,
    Entries,
    EthMatch,
    Flow,
    Group,
    Match,
    Meter,
    Output,
    SetQueue,
    SetVlan,
    ToGroup,
)
from controller.paths.messages import (
    Barrier,
    Change,
    Command,
    DeleteOwnedFlows,
    Message,
)
from controller.paths.stats import (
    Count,
    GroupCount,
    MeterCount,
    SwitchStats,
)

FRAME_BYTES = 100


class Refused(Exception):
    """The switch would answer with an error message."""


@dataclass(frozen=True)
class Frame:
    dst: str
    src: str
    vlan: int | None
    eth_type: int = 0x0800
    ip_proto: int | None = None


def _number(mac: str) -> int:
    return int(mac.replace(":", ""), 16)


def _eth_matches(match: EthMatch, mac: str) -> bool:
    mask = _number(match.mask)
    return _number(mac) & mask == _number(match.value) & mask


def matches(match: Match, in_port: int, frame: Frame) -> bool:
    return (
        match.in_port in (None, in_port)
        and match.vlan in (None, frame.vlan)
        and match.eth_type in (None, frame.eth_type)
        and match.ip_proto in (None, frame.ip_proto)
        and (match.eth_src is None or _number(match.eth_src) == _number(frame.src))
        and (match.eth_dst is None or _eth_matches(match.eth_dst, frame.dst))
    )


@dataclass
class FakeSwitch:
    name: str
    flows: dict[tuple[int, Match], Flow] = field(default_factory=dict)
    groups: dict[int, Group] = field(default_factory=dict)
    meters: dict[int, Meter] = field(default_factory=dict)
    metered: Counter[int] = field(default_factory=Counter)
    dropping: int = 0  # how many more frames the meters drop
    hits: Counter[object] = field(default_factory=Counter)  # by key of a flow, group, meter, bucket

    def stats(self) -> SwitchStats:
        """Return the counters; every frame has FRAME_BYTES. As Open vSwitch counts: a flow's also
        include what its meter drops; a group's and its buckets' begin at its last change."""

        def count(key: object) -> Count:
            return Count(self.hits[key], self.hits[key] * FRAME_BYTES)

        return SwitchStats(
            flows={flow.key: count(flow.key) for flow in self.flows.values()},
            groups={
                number: GroupCount(
                    count(group.key), tuple(count((number, b.order)) for b in group.buckets)
                )
                for number, group in self.groups.items()
            },
            meters={
                number: MeterCount(count(meter.key), count(("dropped", number)))
                for number, meter in self.meters.items()
            },
        )

    def entries(self) -> Entries:
        return frozenset([*self.flows.values(), *self.groups.values(), *self.meters.values()])

    def handle(self, messages: Iterable[Message]) -> None:
        for message in messages:
            match message:
                case Change(command, Flow() as flow):
                    self._flow_mod(command, flow)
                case Change(command, Group() as group):
                    self._known(command, group.number in self.groups, group)
                    self._forget_group(group.number)
                    self.groups[group.number] = group
                    if command is Command.DELETE:
                        self._delete_group(group.number)
                case Change(command, Meter() as meter):
                    self._known(command, meter.number in self.meters, meter)
                    self.meters[meter.number] = meter
                    if command is Command.DELETE:
                        del self.meters[meter.number]
                        self.flows = {
                            k: f for k, f in self.flows.items() if f.meter != meter.number
                        }
                case DeleteOwnedFlows(cookie, mask):
                    self.flows = {
                        k: f for k, f in self.flows.items() if f.cookie & mask != cookie & mask
                    }
                case Barrier():
                    pass
                case _:
                    raise TypeError(f"unknown message {message!r}")

    def _known(self, command: Command, exists: bool, what: object) -> None:
        if exists == (command is Command.ADD):
            raise Refused(f"{self.name}: cannot {command} {what}: exists is {exists}")

    def _forget_group(self, number: int) -> None:
        old = self.groups.get(number)
        for bucket in old.buckets if old is not None else ():
            self.hits.pop((number, bucket.order), None)
        self.hits.pop(("group", number), None)

    def _delete_group(self, number: int) -> None:
        del self.groups[number]
        self.flows = {k: f for k, f in self.flows.items() if ToGroup(number) not in f.actions}

    def _flow_mod(self, command: Command, flow: Flow) -> None:
        key = (flow.priority, flow.match)
        old = self.flows.get(key)
        if command is not Command.ADD or old is None or old.cookie == flow.cookie:
            self._known(command, old is not None, flow)
        if command is Command.MODIFY and old is not None and old.cookie != flow.cookie:
            raise Refused(f"{self.name}: {flow} would keep the cookie of {old}")
        if command is not Command.MODIFY:
            self.hits.pop(flow.key, None)
        if command is Command.DELETE:
            del self.flows[key]
            return
        if flow.meter is not None and flow.meter not in self.meters:
            raise Refused(f"{self.name}: {flow} names a missing meter")
        for action in flow.actions:
            if isinstance(action, ToGroup) and action.group not in self.groups:
                raise Refused(f"{self.name}: {flow} names a missing group")
        self.flows[key] = flow

    def forward(self, in_port: int, frame: Frame) -> list[tuple[int, Frame]]:
        hits = [flow for flow in self.flows.values() if matches(flow.match, in_port, frame)]
        if not hits:
            return []
        best = max(flow.priority for flow in hits)
        chosen = [flow for flow in hits if flow.priority == best]
        assert len(chosen) == 1, f"{self.name}: ambiguous flows for {frame}: {chosen}"
        flow = chosen[0]
        self.hits[flow.key] += 1
        if flow.meter is not None:
            self.metered[flow.meter] += 1
            self.hits["meter", flow.meter] += 1
            if self.dropping:
                self.dropping -= 1
                self.hits["dropped", flow.meter] += 1
                return []
        return [(port, out) for port, out in self._execute(flow.actions, frame) if port != in_port]

    def _execute(self, actions: Iterable[Action], frame: Frame) -> Iterable[tuple[int, Frame]]:
        for action in actions:
            match action:
                case SetVlan(vlan):
                    assert frame.vlan is not None, "set_field vlan_vid on an untagged frame"
                    frame = replace(frame, vlan=vlan)
                case SetQueue():
                    pass
                case Output(port):
                    yield port, frame
                case ToGroup(number):
                    self.hits["group", number] += 1
                    for bucket in self.groups[number].buckets:
                        self.hits[number, bucket.order] += 1
                        yield bucket.port, replace(frame, vlan=bucket.vlan)


class FakeNetwork:
    """All switches of a domain, joined by its core links."""

    def __init__(self, core: Core) -> None:
        self.switches = {name: FakeSwitch(name) for name in core.dpids}
        self._peer = {(h.source, h.source_port): (h.target, h.target_port) for h in core.hops}
        self.on_links: list[tuple[str, int, int | None]] = []  # (switch, port out, VLAN id)

    def inject(self, switch: str, port: int, frame: Frame) -> list[tuple[str, int, Frame]]:
        """Return what leaves the domain: (switch, port, frame), sorted. `on_links` gets what core
        links carry."""
        self.on_links = []
        result: list[tuple[str, int, Frame]] = []
        todo = [(switch, port, frame)]
        for steps in range(1000):
            if not todo:
                return sorted(result, key=repr)
            assert steps < 999, "frames go round in circles"
            switch, port, frame = todo.pop()
            for out_port, out in self.switches[switch].forward(port, frame):
                peer = self._peer.get((switch, out_port))
                if peer is None:
                    result.append((switch, out_port, out))
                else:
                    self.on_links.append((switch, out_port, out.vlan))
                    todo.append((*peer, out))
        raise AssertionError("not reached")
