# SPDX-License-Identifier: Apache-2.0
"""Planning costs as much as what changes, not as what exists. The cost is counted in bytecode
instructions of the controller's and networkx's functions (not the fake switches'), so that the
machine's load does not matter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

from controller.paths.core import Endpoint
from controller.paths.messages import messages_of
from controller.paths.plan import Step
from controller.tests.domains import mac, make_core
from controller.tests.planning import Desk
from controller.tests.rig import Rig
from controller.tests.sample import ROOT


def instructions(work: Callable[[], object]) -> int:
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if event == "call" and not frame.f_code.co_filename.endswith("fake_switch.py"):
            frame.f_trace_opcodes = True
        elif event == "opcode":
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def domain() -> Desk:
    """Return a ring of 40 switches with 3 chords."""
    ring = [(f"s{n}", f"s{n % 40 + 1}", 1.0) for n in range(1, 41)]
    chords = [("s1", "s20", 3.0), ("s10", "s30", 3.0), ("s5", "s35", 3.0)]
    return Desk(make_core([*ring, *chords]))


def add(desk: Desk, endpoint: Endpoint, steps: list[Step]) -> None:
    steps.append(desk.add("p", endpoint))


def leaf(number: int) -> Endpoint:
    """Return a leaf; they are spread over all switches but s15 and s16."""
    switches = [n for n in range(2, 41) if n not in (15, 16)]
    return Endpoint.of(f"s{switches[number % 37]}", 92, 1000 + number // 37, [mac(number)])


def test_the_thousandth_leaf_costs_as_much_as_the_eighth() -> None:
    """At each size one more leaf joins at s15, which the tree already reaches (by s14 from s10 or
    s20), and leaves; then one joins at s16, with a search and a new branch."""
    desk = domain()
    desk.create("p", Endpoint.of("s1", 91, 9, [mac(0xFFFF)]), 0)
    desk.add("p", Endpoint.of("s15", 92, 9, [mac(0xFFF0)]))
    near = Endpoint.of("s15", 92, 10, [mac(0xFFF1)])
    far = Endpoint.of("s16", 92, 10, [mac(0xFFF2)])
    costs: dict[str, list[int]] = {}
    sizes = (8, 100, 1000)
    there = 1
    for size in sizes:
        while there < size - 1:
            desk.add("p", leaf(there))
            there += 1
        assert len(desk["p"].leaves) == size - 1
        for what, endpoint in (("near", near), ("far", far)):
            added: list[Step] = []
            costs.setdefault(f"{what} added", []).append(
                instructions(partial(add, desk, endpoint, added))
            )
            messages = sum(len(messages_of(d)) for phase in added[0].phases for d in phase.values())
            costs.setdefault(f"{what} messages", []).append(messages)
            costs.setdefault(f"{what} removed", []).append(
                instructions(partial(desk.remove, "p", endpoint.key))
            )
    for what, (eighth, hundredth, thousandth) in costs.items():
        print(f"{what}: {eighth}, {hundredth}, {thousandth}")
    for what in ("near added", "near removed", "far removed"):
        eighth, _, thousandth = costs[what]
        assert thousandth <= 1.1 * eighth, costs[what]
    # The search covers the domain and the tree's switches, of which there are now more.
    _, hundredth, thousandth = costs["far added"]
    assert thousandth <= 1.1 * hundredth, costs["far added"]
    assert costs["near messages"][0] == costs["near messages"][2]


def test_planning_on_one_path_does_not_depend_on_the_others() -> None:
    costs = []
    for others in (1, 100):
        desk = domain()
        for number in range(others):
            desk.create(f"other{number}", Endpoint("s2", 91, 1000 + number), 0)
            if number < 20:
                desk.add(f"other{number}", Endpoint("s7", 91, 1000 + number))
        desk.create("p", Endpoint("s1", 91, 9), 0)
        desk.add("p", Endpoint("s15", 91, 9))
        costs.append(instructions(partial(desk.add, "p", Endpoint("s15", 92, 9))))
    assert costs[1] <= 1.1 * costs[0], costs


def test_the_whole_service_costs_the_same_for_the_8th_and_the_400th_leaf() -> None:
    """From the request to the confirmation: plan, books, store, queues, desired state, events. The
    leaf joins at s4, where there is no other, and leaves again."""
    rig = Rig()
    rig.service.create("p", ROOT, 20_000)
    leaf = Endpoint("s4", 9, 104)
    costs = []
    there = 0
    for size in (8, 400):
        while there < size - 1:
            switch, vlan = ("s2", "s3")[there % 2], 1000 + there // 2
            rig.service.add_leaf("p", Endpoint(switch, 9, vlan))
            there += 1
        rig.service.add_leaf("p", leaf)
        rig.service.remove_leaf("p", leaf.key)
        costs.append(
            (
                instructions(partial(rig.service.add_leaf, "p", leaf)),
                instructions(partial(rig.service.remove_leaf, "p", leaf.key)),
            )
        )
    for eighth, last in zip(*costs, strict=True):
        print(f"{eighth}, {last}")
        assert last <= 1.1 * eighth, costs
