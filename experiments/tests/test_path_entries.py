# SPDX-License-Identifier: Apache-2.0
"""Which entries of a switch the path service may change during a cell."""

from __future__ import annotations

import pytest

from controller.paths.entries import Kind, channel_group, cookie_of
from experiments.cells import path_entries
from experiments.cells.path_entries import BRANCHES, CHANNELS


def flow(kind: Kind, priority: int, match: str = "in_port=1", table: int = 0) -> str:
    return f"hub flow cookie={cookie_of(kind, 1):#x}, table={table}, priority={priority},{match}"


UP = flow(Kind.UP, 1000)
CHANNEL = flow(Kind.CHANNEL, 1020)
DENIED = flow(Kind.DENIED, 300)


@pytest.mark.parametrize(
    ("thing", "value", "branch", "channel"),
    [
        (UP, "output:2", True, False),
        (UP, "drop", False, False),
        (DENIED, "drop", True, False),
        (DENIED, "output:2", False, False),
        (CHANNEL, "group:65537", False, True),
        (flow(Kind.UP, 32000), "output:2", False, False),
        (flow(Kind.UP, 1000, table=1), "output:2", False, False),
        (flow(Kind.UP, 1000, "hard_timeout=5,in_port=1"), "output:2", False, False),
        ("hub flow cookie=0x0, table=0, priority=1000,in_port=1", "output:2", False, False),
        ("hub flow cookie=0x444f574e03000001, table=0, ip", "output:2", False, False),
        ("hub flow cookie=0x444f574eff000001, table=0, priority=1000", "drop", False, False),
        ("hub group 1", "type=all,bucket=actions=output:2", True, False),
        ("hub group 1", "type=all", False, False),
        (f"hub group {channel_group(1, 0)}", "type=all,bucket=actions=output:2", False, True),
        ("hub group 16777217", "type=all,bucket=actions=output:2", False, False),
        ("hub meter 1", "kbps bands=", False, False),
        ("p/p-nic1 flow", "x", False, False),
    ],
)
def test_what_may_change(thing: str, value: str, branch: bool, channel: bool) -> None:
    one = {thing: value}
    assert (path_entries.lasting(one, {"hub"}, BRANCHES) == {}) == branch
    assert (path_entries.lasting(one, {"hub"}, CHANNELS) == {}) == channel
    assert path_entries.lasting(one, {"hub"}, ()) == path_entries.lasting(one, (), BRANCHES) == one


def test_foreign_flows_are_named() -> None:
    other = "hub flow cookie=0x0, table=0, priority=32000,in_port=1"
    found = {UP: "output:2", other: "drop", other.replace("hub", "sw-east"): "drop"}
    assert path_entries.foreign(found, {"hub"}) == [
        f"{other}: the path service has none, found drop"
    ]
