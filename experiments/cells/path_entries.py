# SPDX-License-Identifier: Apache-2.0
"""Tell a switch's entries of the path service from others, in an inventory: by cookie, table,
priority, timeouts and whether they drop (controller/paths/entries.py)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from controller.paths import entries
from controller.paths.entries import GROUP_NUMBER_MAX, PATH_NUMBER_MAX, Kind
from topologies.watch.inventory import Inventory

CHANNELS: Final = frozenset({Kind.CHANNEL})  # come and go with a channel's receivers
BRANCHES: Final = frozenset(  # come and go with a path's leaves
    {
        *(Kind.DATA_DOWN, Kind.UNICAST_DOWN, Kind.UP, Kind.ARP, Kind.CROSS),
        *(Kind.DENIED, Kind.SPOOFED),
    }
)
PRIORITIES: Final[Mapping[Kind, Collection[int]]] = {
    Kind.MISS: (entries.PRIORITY_MISS,),
    **dict.fromkeys(
        (Kind.DATA_DOWN, Kind.UNICAST_DOWN, Kind.UP, Kind.ARP), (entries.PRIORITY_PATH,)
    ),
    Kind.CROSS: (entries.PRIORITY_CROSS,),
    Kind.DENIED: (entries.PRIORITY_DENIED, entries.PRIORITY_SPOOFED),
    Kind.SPOOFED: (entries.PRIORITY_SPOOFED,),
    Kind.WRONG_VLAN: (entries.PRIORITY_WRONG_VLAN,),
    Kind.LLDP: (entries.PRIORITY_LLDP,),
    Kind.CHANNEL: (entries.PRIORITY_CHANNEL,),
    Kind.UNJOINED: (entries.PRIORITY_UNJOINED,),
    Kind.IGMP: (entries.PRIORITY_IGMP,),
}
DROPPED: Final = {Kind.MISS, Kind.DENIED, Kind.SPOOFED, Kind.WRONG_VLAN, Kind.UNJOINED}
# In `ovs-ofctl dump-flows`, 32768 is a flow's priority if none is shown.
_FLOW: Final = re.compile(r"cookie=(0x[0-9a-f]+), table=0, (?:send_flow_rem )?priority=(\d+)\b(.*)")
_GROUP: Final = re.compile(r"type=all,bucket=")


def kind_of(match: str, actions: str) -> Kind | None:
    """Return what a flow of the path service is for; None: the service does not install it."""
    found = _FLOW.fullmatch(match)
    if found is None or "_timeout=" in found[3]:
        return None
    try:
        kind = entries.kind_of(int(found[1], 16))
    except ValueError:
        return None
    fits = int(found[2]) in PRIORITIES[kind] and (actions == "drop") == (kind in DROPPED)
    return kind if fits else None


def lasting(
    found: Mapping[str, str], switches: Collection[str], kinds: Collection[Kind]
) -> Inventory:
    """Return an inventory without the path service's flows of these kinds at these switches, and
    without the groups to which they lead."""
    return {
        thing: value
        for thing, value in found.items()
        if thing.partition(" ")[0] not in switches or not _may_change(thing, value, kinds)
    }


def _may_change(thing: str, value: str, kinds: Collection[Kind]) -> bool:
    _, _, what = thing.partition(" ")
    what, _, which = what.partition(" ")
    if what == "flow":
        return kind_of(which, value) in kinds
    if what != "group" or not _GROUP.match(value) or not 1 <= int(which) <= GROUP_NUMBER_MAX:
        return False
    return (Kind.DATA_DOWN if int(which) <= PATH_NUMBER_MAX else Kind.CHANNEL) in kinds


def foreign(found: Mapping[str, str], switches: Collection[str]) -> list[str]:
    """Return a text for each flow of these switches that the path service does not install."""
    texts = []
    for thing, actions in found.items():
        switch, _, what = thing.partition(" ")
        what, _, match = what.partition(" ")
        if what == "flow" and switch in switches and kind_of(match, actions) is None:
            texts.append(f"{thing}: the path service has none, found {actions}")
    return texts
