# SPDX-License-Identifier: Apache-2.0
"""Which links carry frames, and whether they are wired as the network description says. No I/O:
events and their times go in, probes to send and news come out.

A probe is overdue when it has not arrived within `grace`. Then a quick burst follows, and both
switches are asked whether they are awake (by a barrier after the burst): a link is down only if it
loses the whole burst between two switches that answer. Switches that take long to answer are busy,
so they get twice as long again to report what arrived. So neither random loss nor a stalled or busy
switch or controller takes a link down. A port that goes down takes its link down at once. A link is
up again when several probes in a row have arrived in both directions.

A hand-off link has a switch of another controller at its far end. Probes over it show each side how
it is wired. If they stop, the other controller may have died while frames still flow, so only its
port's state takes it down.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.paths import lldp
from topologies.model.network import ControlledBy, Network

OUTSTANDING_MAX = 64
BUSY = 2  # how long to wait for a switch's probes, in multiples of its last time to answer


@dataclass(frozen=True, order=True)
class End:
    switch: str
    port: int

    def __str__(self) -> str:
        return f"port {self.port} of switch '{self.switch}'"


@dataclass(frozen=True)
class Watched:
    """A link between two switches with controllers. `delay_s`: the greater of both directions."""

    name: str
    a: End
    b: End
    delay_s: float = 0.0


@dataclass(frozen=True)
class Settings:
    """Limits and periods. Period 0: no probes; a link is up while its ports are up."""

    period_s: float = 0.1
    grace_s: float = 0.05  # added to one and a half times the latency seen
    burst: int = 5
    burst_gap_s: float = 0.01
    good: int = 5  # probes in a row before a link is up again


@dataclass(frozen=True)
class News:
    """A link went up or down."""

    link: str
    is_up: bool
    why: str


@dataclass
class Todo:
    """What the caller has to do now. `ask`: send a barrier, then call `awake`."""

    probes: list[tuple[End, bytes]] = field(default_factory=list)
    ask: set[str] = field(default_factory=set)
    news: list[News] = field(default_factory=list)


def watched_links(network: Network, domain: str) -> tuple[Watched, ...]:
    """Return the core links of the domain, and the hand-off links to other controllers' domains."""
    dynamic = {d.name for d in network.domains if d.controlled_by is ControlledBy.CONTROLLER}
    domain_of = {s.name: s.domain for s in network.switches if s.domain in dynamic}
    return tuple(
        Watched(
            link.name,
            End(link.a.node, link.a.number),
            End(link.b.node, link.b.number),
            max(link.forward.delay_ms, link.backward.delay_ms) / 1000,
        )
        for link in network.links
        if link.a.node in domain_of
        and link.b.node in domain_of
        and domain in (domain_of[link.a.node], domain_of[link.b.node])
    )


@dataclass
class _Direction:
    """Probes from `source` to `target`."""

    link: str
    source: End
    target: End
    latency_s: float
    sequence: int = 0
    outstanding: OrderedDict[int, float] = field(default_factory=OrderedDict)  # number -> sent
    next_s: float | None = None  # of the next probe
    good: int = 0
    is_up: bool = True
    burst_left: int = 0
    burst_next_s: float = 0.0
    suspected: bool = False
    asked_s: float = 0.0
    asleep: set[str] = field(default_factory=set)  # asked, but not answered yet
    judge_s: float = 0.0

    def trust(self) -> None:
        self.suspected = False
        self.burst_left = 0
        self.asleep.clear()


@dataclass
class _Link:
    watched: Watched
    ports_down: set[End] = field(default_factory=set)
    miswired: str = ""
    is_up: bool = True


class Liveness:
    def __init__(
        self,
        links: Iterable[Watched],
        dpids: Mapping[str, int],
        own: Iterable[str],
        key: bytes,
        settings: Settings = Settings(),  # noqa: B008 (immutable)
    ) -> None:
        """`dpids`: of all switches on the links; `own`: the switches of this controller."""
        self._dpids = dict(dpids)
        self._names = {dpid: name for name, dpid in dpids.items()}
        self._own = frozenset(own)
        self._key = key
        self._set = settings
        self._links = {watched.name: _Link(watched) for watched in links}
        self._ends: dict[End, _Link] = {}
        self._directions: dict[End, _Direction] = {}  # by source
        for link in self._links.values():
            w = link.watched
            for source, target in ((w.a, w.b), (w.b, w.a)):
                self._ends[source] = link
                self._directions[source] = _Direction(w.name, source, target, w.delay_s)
        self._awake: set[str] = set()  # connected
        self._ticked_s: float | None = None
        self.foreign_frames = 0

    @property
    def ports(self) -> dict[str, list[int]]:
        """Return the ports of this controller's switches where probes arrive."""
        found: dict[str, list[int]] = {switch: [] for switch in sorted(self._own)}
        for end in sorted(self._ends):
            if end.switch in self._own:
                found[end.switch].append(end.port)
        return found

    def states(self) -> dict[str, tuple[bool, str]]:
        """Return for each link whether it is up, and if not, why."""
        return {name: (link.is_up, self._why(link)) for name, link in self._links.items()}

    # -- what happened

    def connected(self, switch: str, now_s: float) -> None:
        """Note that a switch is ready for probes."""
        self._awake.add(switch)
        self._forget(switch, now_s)

    def disconnected(self, switch: str, now_s: float) -> None:
        """Note that a switch is gone: its links stay as they are until it returns."""
        self._awake.discard(switch)
        self._forget(switch, now_s)

    def _forget(self, switch: str, now_s: float) -> None:
        for direction in self._directions.values():
            if switch in (direction.source.switch, direction.target.switch):
                direction.outstanding.clear()
                direction.trust()
                direction.next_s = now_s

    def port(self, end: End, is_up: bool) -> list[News]:
        """Note that a port is up or down."""
        link = self._ends.get(end)
        if link is None:
            return []
        if is_up:
            link.ports_down.discard(end)
        elif end not in link.ports_down:
            link.ports_down.add(end)
            for direction in self._of(link):
                direction.good = 0
        return self._news(link)

    def awake(self, switch: str, asked_s: float, now_s: float) -> None:
        """Note that the switch answered the barrier that was sent at `asked_s`."""
        for direction in self._directions.values():
            if switch in direction.asleep and direction.asked_s <= asked_s:
                direction.asleep.discard(switch)
                wait_s = self._grace_s(direction) + BUSY * (now_s - asked_s)
                direction.judge_s = max(direction.judge_s, now_s + wait_s)

    def packet_in(self, end: End, frame: bytes, now_s: float) -> list[News]:
        """Handle a frame that arrived at `end`. Unless it is this controller's probe, count and
        drop it."""
        try:
            received = lldp.read(frame)
        except lldp.NotAProbe:
            self.foreign_frames += 1
            return []
        probe = received.probe
        link = self._ends.get(end)
        name = self._names.get(probe.dpid)
        if link is None or name is None:
            self.foreign_frames += 1
            return []
        source = End(name, probe.port)
        is_right = self._directions[end].target == source
        if name in self._own:
            if not received.is_ours(self._key):
                self.foreign_frames += 1
                return []
            if not is_right:
                return self._wired_otherwise(end, source)
            return self._arrived(self._directions[source], probe.sequence, now_s)
        if not is_right:
            return self._wired_otherwise(end, source)
        return self._good(self._directions[source])

    def _arrived(self, direction: _Direction, sequence: int, now_s: float) -> list[News]:
        sent_s = direction.outstanding.get(sequence)
        if sent_s is None:  # a replay, or much too late
            return []
        direction.latency_s += (now_s - sent_s - direction.latency_s) / 4
        gone = [number for number in direction.outstanding if number <= sequence]
        for number in gone:
            del direction.outstanding[number]
        if len(gone) > 1 and not self._links[direction.link].is_up:
            direction.good = 0
        direction.trust()
        return self._good(direction)

    def _good(self, direction: _Direction) -> list[News]:
        direction.good = min(direction.good + 1, self._set.good)
        link = self._links[direction.link]
        if direction.good == self._set.good:
            direction.is_up = True
            link.miswired = "" if self._all_good(link) else link.miswired
        return self._news(link)

    def _all_good(self, link: _Link) -> bool:
        """Return whether a link is good; probes that another controller sends or sees do not
        count."""
        return self._set.period_s == 0 or all(
            direction.good == self._set.good
            for direction in self._of(link)
            if {direction.source.switch, direction.target.switch} <= self._own
        )

    def _wired_otherwise(self, end: End, source: End) -> list[News]:
        news: list[News] = []
        expected = self._directions[end].target
        text = f"wired differently: {end} hears {source}, not {expected}"
        for link in {id(k): k for k in (self._ends[end], self._ends.get(source)) if k}.values():
            for direction in self._of(link):
                direction.good = 0
            if not link.miswired:
                link.miswired = text
            news += self._news(link)
        return news

    # -- time

    def tick(self, now_s: float) -> Todo:
        """Return what to do now. Call this at `next_s`, or a little later."""
        todo = Todo()
        late_s = 0.0 if self._ticked_s is None else now_s - self._ticked_s
        if late_s > 2 * self._set.period_s:
            # This controller slept: what arrived meanwhile has not been reported yet.
            for direction in self._directions.values():
                direction.outstanding.clear()
                direction.trust()
        self._ticked_s = now_s
        for direction in self._directions.values():
            if self._is_probed(direction):
                self._tick(direction, now_s, todo)
        return todo

    def next_s(self) -> float | None:
        """Return when to call `tick` next; None: nothing to do."""
        times = [
            time_s
            for d in self._directions.values()
            if self._is_probed(d) and d.next_s is not None
            for time_s in (
                d.next_s,
                *(
                    [self._overdue_s(d)]
                    if self._is_judged(d) and not d.suspected and d.outstanding
                    else []
                ),
                *([d.burst_next_s] if d.burst_left else []),
                *([d.judge_s] if d.suspected and not d.burst_left and not d.asleep else []),
            )
        ]
        return min(times, default=None)

    def _is_probed(self, direction: _Direction) -> bool:
        ends = (direction.source.switch, direction.target.switch)
        return (
            self._set.period_s > 0
            and direction.source.switch in self._own
            and all(switch in self._awake or switch not in self._own for switch in ends)
        )

    def _tick(self, direction: _Direction, now_s: float, todo: Todo) -> None:
        if direction.next_s is None or direction.next_s <= now_s:
            direction.next_s = (direction.next_s or now_s) + self._set.period_s
            if direction.next_s <= now_s:
                direction.next_s = now_s + self._set.period_s
            self._probe(direction, now_s, todo)
        while direction.burst_left and direction.burst_next_s <= now_s:
            direction.burst_left -= 1
            direction.burst_next_s += self._set.burst_gap_s
            self._probe(direction, now_s, todo)
            if not direction.burst_left:
                direction.asleep = {direction.source.switch, direction.target.switch}
                direction.asked_s = now_s
                direction.judge_s = now_s + self._grace_s(direction)
                todo.ask |= direction.asleep
        if not self._is_judged(direction):
            return
        if not direction.suspected:
            if direction.outstanding and now_s >= self._overdue_s(direction):
                direction.suspected = True
                direction.burst_left = self._set.burst
                direction.burst_next_s = now_s
                self._tick(direction, now_s, todo)
        elif not direction.burst_left and not direction.asleep and now_s >= direction.judge_s:
            self._lost(direction, todo)

    def _is_judged(self, direction: _Direction) -> bool:
        return direction.is_up and direction.target.switch in self._own

    def _probe(self, direction: _Direction, now_s: float, todo: Todo) -> None:
        direction.sequence += 1
        source = direction.source
        probe = lldp.Probe(self._dpids[source.switch], source.port, direction.sequence)
        direction.outstanding[direction.sequence] = now_s
        if len(direction.outstanding) > OUTSTANDING_MAX:
            direction.outstanding.popitem(last=False)
        todo.probes.append((source, lldp.frame_of(probe, self._key)))

    def _grace_s(self, direction: _Direction) -> float:
        return 1.5 * direction.latency_s + self._set.grace_s

    def _overdue_s(self, direction: _Direction) -> float:
        """Return when the oldest probe that has not arrived should have arrived."""
        return next(iter(direction.outstanding.values())) + self._grace_s(direction)

    def _lost(self, direction: _Direction, todo: Todo) -> None:
        direction.trust()
        direction.is_up = False
        direction.good = 0
        todo.news += self._news(self._links[direction.link])

    # -- links

    def _of(self, link: _Link) -> tuple[_Direction, _Direction]:
        return self._directions[link.watched.a], self._directions[link.watched.b]

    def _why(self, link: _Link) -> str:
        if link.miswired:
            return link.miswired
        if link.ports_down:
            return " and ".join(f"{end} is down" for end in sorted(link.ports_down))
        dead = [d for d in self._of(link) if not d.is_up]
        return " and ".join(f"nothing arrives from {d.source} at {d.target}" for d in dead)

    def _news(self, link: _Link) -> list[News]:
        why = self._why(link)
        if link.is_up and why:
            link.is_up = False
            for direction in self._of(link):
                direction.good = 0
            return [News(link.watched.name, False, why)]
        if not link.is_up and not why and self._all_good(link):
            link.is_up = True
            return [News(link.watched.name, True, "its ports are up and probes arrive")]
        return []
