# SPDX-License-Identifier: Apache-2.0
"""Links over a simulated network in simulated time: which are found dead, and when."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import pytest

from controller.paths import lldp
from controller.southbound import probe_period_s
from controller.switches.liveness import (
    End,
    Liveness,
    News,
    Settings,
    Watched,
    watched_links,
)
from controller.tests.sample import network

KEY = b"k" * 16
DPIDS = {"s1": 1, "s2": 2, "s3": 3, "x": 0x99}
A, B = End("s1", 2), End("s2", 1)
C, D = End("s2", 2), End("s3", 1)
HAND_OFF, FOREIGN = End("s3", 5), End("x", 7)
DELAY_S = 0.020
LINKS = (
    Watched("s1:s2", A, B, DELAY_S),
    Watched("s2:s3", C, D, DELAY_S),
    Watched("s3:x", HAND_OFF, FOREIGN, DELAY_S),
)


@dataclass
class World:
    """Delivers probes after `delay_s` unless `loses` says otherwise; switches answer barriers
    after `answer_s` unless they sleep."""

    liveness: Liveness = field(
        default_factory=lambda: Liveness(LINKS, DPIDS, ("s1", "s2", "s3"), KEY)
    )
    now_s: float = 100.0
    delay_s: float = DELAY_S
    answer_s: float = 0.002
    loses: Callable[[End], bool] = lambda _source: False
    wires: dict[End, End] = field(default_factory=lambda: {A: B, B: A, C: D, D: C})
    sleeping: set[str] = field(default_factory=set)
    news: list[tuple[float, News]] = field(default_factory=list)
    probes: int = 0
    _order: count[int] = field(default_factory=count)
    _due: list[tuple[float, int, Callable[[], list[News]]]] = field(default_factory=list)

    def start(self) -> None:
        for switch in ("s1", "s2", "s3"):
            self.liveness.connected(switch, self.now_s)

    def later(self, after_s: float, call: Callable[[], list[News]]) -> None:
        heapq.heappush(self._due, (self.now_s + after_s, next(self._order), call))

    def deliver(self, end: End, frame: bytes) -> list[News]:
        if end.switch in self.sleeping:
            return []
        return self.liveness.packet_in(end, frame, self.now_s)

    def awake(self, switch: str, asked_s: float) -> list[News]:
        self.liveness.awake(switch, asked_s, self.now_s)
        return []

    def run(self, duration_s: float) -> list[News]:
        """Return the news of the next `duration_s`."""
        first = len(self.news)
        end_s = self.now_s + duration_s
        while True:
            tick_s = self.liveness.next_s()
            due_s = self._due[0][0] if self._due else None
            next_s = min((t for t in (tick_s, due_s) if t is not None), default=end_s)
            if next_s >= end_s:
                self.now_s = end_s
                return [news for _, news in self.news[first:]]
            self.now_s = max(self.now_s, next_s)
            if due_s is not None and due_s <= self.now_s:
                self._say(heapq.heappop(self._due)[2]())
            else:
                self._tick()

    def _tick(self) -> None:
        todo = self.liveness.tick(self.now_s)
        self._say(todo.news)
        for source, frame in todo.probes:
            self.probes += 1
            target = self.wires.get(source)
            if target is not None and source.switch not in self.sleeping and not self.loses(source):
                self.later(self.delay_s, lambda t=target, f=frame: self.deliver(t, f))  # type: ignore[misc]
        for switch in todo.ask:
            if switch not in self.sleeping:
                asked_s = self.now_s
                self.later(self.answer_s, lambda s=switch, a=asked_s: self.awake(s, a))  # type: ignore[misc]

    def _say(self, news: list[News]) -> None:
        self.news += [(self.now_s, item) for item in news]


@pytest.fixture
def world() -> World:
    world = World()
    world.start()
    assert world.run(2) == []
    return world


def test_what_is_watched() -> None:
    names = [w.name for w in watched_links(network(), "core")]
    assert names == ["s1:s2", "s2:s3", "s1:s3", "s2:s4", "s3:s4"]
    assert World().liveness.ports == {"s1": [2], "s2": [1, 2], "s3": [1, 5]}


def test_healthy_links_cost_ten_probes_a_second_each_way(world: World) -> None:
    before = world.probes
    assert world.run(10) == []
    assert world.probes - before == pytest.approx(500, abs=5)  # five directions
    assert all(is_up for is_up, _ in world.liveness.states().values())


def test_one_way_dead_behind_live_ports_is_found(world: World) -> None:
    """In the worst case the last probe arrived just before. The next leaves after 100 ms and is
    overdue 80 ms (1.5 * 20 + 50) later; the burst takes 40 ms, its last probe is overdue after
    another 80 ms, and the answers, which take 2 ms, have 6 ms."""
    world.loses = lambda source: source == A
    began_s = world.now_s
    (news,) = world.run(1)
    assert (news.link, news.is_up) == ("s1:s2", False)
    assert news.why == "nothing arrives from port 2 of switch 's1' at port 1 of switch 's2'"
    assert 0.15 < world.news[-1][0] - began_s < 0.31
    assert world.liveness.states()["s1:s2"] == (False, news.why)
    assert world.run(5) == []

    world.loses = lambda _source: False
    began_s = world.now_s
    assert world.run(2) == [News("s1:s2", True, "its ports are up and probes arrive")]
    assert 0.4 < world.news[-1][0] - began_s < 0.65  # five in a row


@pytest.mark.slow
def test_random_loss_does_not_take_links_down(world: World) -> None:
    seed = random.Random(5)
    world.loses = lambda _source: seed.random() < 0.2
    assert world.run(600) == []


def test_links_rise_only_when_probes_arrive_in_a_row(world: World) -> None:
    world.loses = lambda source: source == A
    world.run(1)
    turn = count()
    world.loses = lambda source: source == A and next(turn) % 3 == 0
    assert world.run(5) == []
    world.loses = lambda _source: False
    assert [n.is_up for n in world.run(1)] == [True]


def test_stalled_switch_takes_no_link_down(world: World) -> None:
    world.sleeping.add("s2")
    assert world.run(3) == []
    world.sleeping.clear()
    assert world.run(3) == []


@pytest.mark.parametrize("answer_s", [0.05, 0.3, 1.0])
def test_busy_switches_take_no_link_down(world: World, answer_s: float) -> None:
    """They answer barriers late, and deliver probes twice as late."""
    world.answer_s, world.delay_s = answer_s, 2 * answer_s
    assert world.run(3) == []


def test_dead_link_of_busy_switches_is_found(world: World) -> None:
    """300 ms for an answer, and twice as much for probes that they may still deliver."""
    world.answer_s, world.loses = 0.3, lambda source: source == A
    began_s = world.now_s
    assert [(n.link, n.is_up) for n in world.run(3)] == [("s1:s2", False)]
    assert 0.9 + 0.15 < world.news[-1][0] - began_s < 0.9 + 0.31


def test_link_that_dies_while_its_switch_stalls_is_found_afterwards(world: World) -> None:
    world.sleeping.add("s2")
    world.loses = lambda source: source == A
    assert world.run(3) == []
    world.sleeping.clear()
    world.liveness.disconnected("s2", world.now_s)
    world.liveness.connected("s2", world.now_s)
    assert [n.link for n in world.run(1)] == ["s1:s2"]


def test_controller_that_slept_judges_nothing_by_old_probes(world: World) -> None:
    """It falls asleep when a burst has left and both switches have answered, but no probe of the
    burst has come back yet. When it wakes, its timer runs before it reads what has arrived."""
    world.delay_s = 0.060  # longer than the burst and the answers take
    assert world.run(2) == []
    direction = world.liveness._directions[A]
    world.loses = lambda source: source == A and not direction.suspected
    latest_s = world.now_s + 1
    while not direction.suspected or direction.burst_left or direction.asleep:
        assert world.run(0.001) == []
        assert world.now_s < latest_s
    world.now_s += 5
    assert world.liveness.tick(world.now_s).news == []
    assert world.run(3) == []


def test_unconnected_switches_are_not_probed_and_not_judged(world: World) -> None:
    world.liveness.disconnected("s2", world.now_s)
    world.loses = lambda _source: True
    assert world.run(2) == []
    world.liveness.connected("s2", world.now_s)
    assert sorted(n.link for n in world.run(1)) == ["s1:s2", "s2:s3"]


def test_port_that_goes_down_takes_its_link_down_at_once(world: World) -> None:
    (news,) = world.liveness.port(C, False)
    assert news == News("s2:s3", False, "port 2 of switch 's2' is down")
    assert world.liveness.port(C, False) == []
    assert world.liveness.port(End("s2", 9), False) == []  # not watched
    assert world.liveness.port(C, True) == []  # probes must come first
    assert [n.is_up for n in world.run(1)] == [True]


def test_hand_off_link_depends_on_its_port_and_its_wiring(world: World) -> None:
    assert world.run(5) == []  # the other controller never sends anything
    assert [n.is_up for n in world.liveness.port(HAND_OFF, False)] == [False]
    assert [n.is_up for n in world.liveness.port(HAND_OFF, True)] == [True]
    theirs = lldp.frame_of(lldp.Probe(0x99, 7, 1), b"another key")
    assert world.liveness.packet_in(HAND_OFF, theirs, world.now_s) == []
    wrong = lldp.frame_of(lldp.Probe(0x99, 8, 1), b"another key")
    (news,) = world.liveness.packet_in(HAND_OFF, wrong, world.now_s)
    assert news.why == (
        "wired differently: port 5 of switch 's3' hears port 8 of switch 'x', "
        "not port 7 of switch 'x'"
    )
    assert [n for _ in range(5) for n in world.liveness.packet_in(HAND_OFF, theirs, world.now_s)]
    assert world.liveness.states()["s3:x"] == (True, "")


def test_links_that_are_wired_otherwise_are_reported_and_not_used() -> None:
    world = World(wires={A: D, D: A, C: B, B: C})  # the two cables are swapped at one end each
    world.start()
    found = world.run(2)
    assert {n.link: n.is_up for n in found} == {"s1:s2": False, "s2:s3": False}
    assert found[0].why.startswith("wired differently: port ")
    world.wires = {A: B, B: A, C: D, D: C}
    assert sorted((n.link, n.is_up) for n in world.run(2)) == [("s1:s2", True), ("s2:s3", True)]


def test_forged_and_foreign_frames_are_counted_and_change_nothing(world: World) -> None:
    forged = lldp.frame_of(lldp.Probe(2, 9, 5), b"another key")
    for frame in (forged, b"", bytes(60), lldp.frame_of(lldp.Probe(1234, 1, 1), KEY)):
        assert world.liveness.packet_in(B, frame, world.now_s) == []
    assert world.liveness.packet_in(End("s1", 99), forged, world.now_s) == []
    assert world.liveness.foreign_frames == 5
    old = lldp.frame_of(lldp.Probe(1, 2, 1), KEY)  # the controller's own, replayed into a dead link
    world.loses = lambda source: source == A
    world.later(0.3, lambda: world.deliver(B, old))
    assert [n.is_up for n in world.run(1)] == [False]


def test_without_probes_links_are_what_their_ports_are() -> None:
    world = World(Liveness(LINKS, DPIDS, ("s1", "s2", "s3"), KEY, Settings(period_s=0)))
    world.start()
    world.loses = lambda _source: True
    assert world.run(5) == []
    assert world.probes == 0
    assert [n.is_up for n in world.liveness.port(A, False)] == [False]
    assert [n.is_up for n in world.liveness.port(A, True)] == [True]


def test_many_links_are_probed_less_often() -> None:
    assert probe_period_s(0.1, 20) == 0.1
    assert probe_period_s(0.1, 100) == 0.5  # 200 ways, 400 probes a second
    assert probe_period_s(1.0, 100) == 1.0
    assert probe_period_s(0.0, 100) == 0.0
