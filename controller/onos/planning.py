# SPDX-License-Identifier: Apache-2.0
"""Which requests to ONOS carry out changes, and what its answers mean for the path service. Pure.

ONOS answers before a switch has confirmed; what it then has to show is an `Expected`. It sends each
request for a group or meter to the switch before it answers, so a flow that follows finds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.onos.records import (
    ADDED,
    FAILED,
    Devices,
    Held,
    HeldGroup,
    Json,
    bucket_json,
    flow_json,
    group_json,
    group_key,
    meter_json,
)
from controller.paths.entries import Entry, Flow, Group, Meter
from controller.paths.messages import Change, Command, Message
from controller.switches.installer import Failure, Why
from controller.switches.switchboard import Event

# What Downpour needs of ONOS's components. ONOS would remove others' flows and groups, and choose
# meter ids itself; it confirms what its next poll of the switch shows, after 5 or 10 s as it comes.
SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "org.onosproject.net.flow.impl.FlowRuleManager": {"allowExtraneousRules": "true"},
    "org.onosproject.store.group.impl.DistributedGroupStore": {"allowExtraneousGroups": "true"},
    "org.onosproject.net.meter.impl.MeterManager": {"userDefinedIndex": "true"},
    "org.onosproject.provider.of.flow.impl.OpenFlowRuleProvider": {"flowPollFrequency": "1"},
    "org.onosproject.provider.of.group.impl.OpenFlowGroupProvider": {"groupPollInterval": "1"},
    "org.onosproject.provider.of.meter.impl.OpenFlowMeterProvider": {"meterStatsPollInterval": "1"},
    "org.onosproject.provider.of.device.impl.OpenFlowDeviceProvider": {
        "portStatsPollFrequency": "1"
    },
}

Key = tuple[object, ...]


@dataclass(frozen=True)
class Wanted:
    """What ONOS has to show of an entry: that it is in the switch, since later than the stamp
    `after`. `entry` None: that it is gone."""

    entry: Entry | None
    after: str | None = None


Expected = Mapping[Key, Wanted]


@dataclass(frozen=True)
class Call:
    """A request."""

    method: str
    path: str
    body: Json | None = None


@dataclass
class Todo:
    """What changes at one device, in the order of the requests."""

    meters: list[Change] = field(default_factory=list)
    groups: list[Change] = field(default_factory=list)
    unwanted: list[Flow] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    last: list[Call] = field(default_factory=list)  # groups and meters that flows no longer name

    @property
    def gone(self) -> dict[Key, Wanted]:
        """Return what ONOS must show before it is asked to delete groups and meters."""
        return {flow.key: Wanted(None) for flow in self.unwanted}

    @property
    def expected(self) -> dict[Key, Wanted]:
        """Return what ONOS must show when all is done, without the groups and meters to delete."""
        wanted = [*(change.entry for change in (*self.meters, *self.groups)), *self.flows]
        return {**self.gone, **{entry.key: Wanted(entry) for entry in wanted}}


def todo_of(device: str, messages: Iterable[Message]) -> tuple[Todo, Expected]:
    """Sort a switch's changes by request; also return what ONOS must show in the end."""
    todo = Todo()
    gone: dict[Key, Wanted] = {}
    for message in messages:
        match message:
            case Change(Command.DELETE, Flow() as flow):
                todo.unwanted.append(flow)
            case Change(_, Flow() as flow):
                todo.flows.append(flow)
            case Change(Command.DELETE, Group(number) as group):
                todo.last.append(Call("DELETE", f"/groups/{device}/{group_key(number)}"))
                gone[group.key] = Wanted(None)
            case Change(_, Group()) as change:
                todo.groups.append(change)
            case Change(Command.DELETE, Meter(number) as meter):
                todo.last.append(Call("DELETE", f"/meters/{device}/global/{number}"))
                gone[meter.key] = Wanted(None)
            case Change(_, Meter()) as change:
                todo.meters.append(change)
    return todo, {**gone, **todo.expected}


def meter_calls(device: str, change: Change) -> list[Call]:
    """Return the requests that add a meter. ONOS cannot change one, so it is recreated."""
    assert isinstance(change.entry, Meter)
    add = Call("POST", f"/meters/{device}", meter_json(device, change.entry))
    if change.command is Command.ADD:
        return [add]
    return [Call("DELETE", f"/meters/{device}/global/{change.entry.number}"), add]


def group_calls(device: str, wanted: Group, held: HeldGroup | None) -> list[Call]:
    """Return the requests that turn the group that ONOS has (None: none) into the wanted one.

    Each is one message to the switch. Buckets are added before others are removed: a change that
    does both shortly sends both ways, and never neither.
    """
    if held is None:
        return [Call("POST", f"/groups/{device}", group_json(wanted))]
    path = f"/groups/{device}/{group_key(wanted.number)}/buckets"
    have = {item.bucket for item in held.buckets}
    calls = []
    new = [bucket for bucket in wanted.buckets if bucket not in have]
    if new:
        calls.append(Call("POST", path, {"buckets": [bucket_json(bucket) for bucket in new]}))
    old = [item.id for item in held.buckets if item.bucket not in wanted.buckets]
    if old:
        calls.append(Call("DELETE", f"{path}/{','.join(old)}"))
    return calls


def add_flows(flows: Mapping[str, Sequence[Flow]]) -> Call:
    """Return the request that adds flows, by device, or replaces their instructions."""
    items = [flow_json(device, flow) for device, some in flows.items() for flow in some]
    return Call("POST", "/flows", {"flows": items})


def delete_flows(ids: Mapping[str, Iterable[str]]) -> Call:
    """Return the request that deletes flows, by device, with these ids."""
    items = [{"deviceId": device, "flowId": id_} for device, some in ids.items() for id_ in some]
    return Call("DELETE", "/flows", {"flows": items})


def unmet(expected: Expected, held: Held) -> dict[Key, Wanted]:
    """Return what ONOS does not show yet."""
    keys = held.all_keys()

    def is_met(key: Key, wanted: Wanted) -> bool:
        if wanted.entry is None:
            return key not in keys
        state, stamp = held.seen(wanted.entry)
        return state == ADDED and stamp != wanted.after

    return {key: wanted for key, wanted in expected.items() if not is_met(key, wanted)}


def confirming(held: Held) -> dict[Key, Wanted]:
    """Return what ONOS must show to confirm what it says it has: the switch may have lost it since
    ONOS last looked."""
    return {entry.key: Wanted(entry, held.seen(entry)[1]) for entry in held.entries()}


def text_of(expected: Expected) -> str:
    """Return what ONOS does not show, the first by name."""
    key, wanted = next(iter(expected.items()))
    first = f"still shows {key}" if wanted.entry is None else f"does not show {wanted.entry}"
    return f"ONOS {first}" + (f" and {len(expected) - 1} more" if len(expected) > 1 else "")


def failure_of(expected: Expected, held: Held) -> Failure | None:
    """Return why something that is expected will never come; None if it may come."""
    for wanted in expected.values():
        if wanted.entry is not None and held.seen(wanted.entry)[0] == FAILED:
            return Failure(Why.REFUSED, f"ONOS says that the switch has refused {wanted.entry}")
    return None


def news_of(names: Mapping[str, str], before: Devices, now: Devices) -> list[Event]:
    """Return what has happened to the switches, given by device, between two looks."""
    news: list[Event] = []
    for device, name in sorted(names.items()):
        was, ports = device in before.available, now.ports.get(device, {})
        if device in now.available:
            if not was:
                news.append(("up", name))
            known = before.ports.get(device, {}) if was else {}
            news += [
                ("port", name, port, is_up)
                for port, is_up in sorted(ports.items())
                if known.get(port) is not is_up
            ]
        elif was:
            news.append(("down", name))
    return news
