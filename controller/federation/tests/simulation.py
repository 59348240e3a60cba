# SPDX-License-Identifier: Apache-2.0
"""Domains in virtual time. A controller may die between any two writes; messages are lost, doubled,
delayed and overtake each other; domains refuse. Each seed gives one history."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from controller.federation.coordinator import Busy, Coordinator
from controller.federation.participant import Note, Participant
from controller.federation.records import Answer, Effect, Forget, Record, Save, Send, Timing
from controller.federation.trees import Domains, Refusal, Tree, segments_of
from controller.federation.values import (
    Commit,
    Connection,
    Problem,
    Query,
    Release,
    Reply,
    Request,
    Reserve,
    Segment,
    read_reply,
    read_request,
    reply_json,
    request_json,
)
from controller.paths.core import Endpoint


class Crash(Exception):
    """The controller dies here."""


def refusal(kind: str, detail: str) -> Refusal:
    return Refusal(Problem(409, kind, kind, detail))


@dataclass
class Hold:
    path: str
    segment: Segment
    until: float
    is_committed: bool = False


class Paths:
    """A domain's path service and its store. An endpoint belongs to one path only, and every port
    has a capacity for what leaves it."""

    def __init__(self, chaos: Chaos, capacity_bps: int) -> None:
        self._chaos = chaos
        self._capacity_bps = capacity_bps
        self.paths: dict[str, tuple[Endpoint, int, dict[tuple[str, int, int], Endpoint]]] = {}
        self.holds: dict[str, Hold] = {}

    def segment(self, path: str) -> Segment | None:
        if path not in self.paths:
            return None
        root, rate_bps, leaves = self.paths[path]
        return Segment(root, rate_bps, tuple(sorted(leaves.values())))

    # -- what the participant uses

    def taken_vlans(self, switch: str, port: int, besides: str) -> frozenset[int]:
        return frozenset(
            key[2]
            for path, keys in self._used()
            for key in keys
            if path != besides and key[:2] == (switch, port)
        )

    def hold(self, hold_id: str, path: str, segment: Segment, until: float) -> None:
        if hold_id in self.holds:
            return
        self._chaos.maybe_refuse("hold")
        assert all(h.path != path or h.is_committed for h in self.holds.values()), "a second hold"
        if path in self.paths and self.paths[path][0] != segment.root:
            raise refusal("path-exists", f"{path} has root {self.paths[path][0]}")
        for other, keys in self._used():
            mine = {endpoint.key for endpoint in segment.endpoints}
            if other != path and mine & keys:
                raise refusal("endpoint-in-use", f"{sorted(mine & keys)[0]} is used by {other}")
        self._chaos.step()
        self.holds[hold_id] = Hold(path, segment, until)
        self._chaos.step()
        for (switch, port), load_bps in self.loads().items():
            if load_bps > self._capacity_bps:
                del self.holds[hold_id]
                raise refusal("no-capacity", f"port {port} of {switch} is full")

    def commit(self, hold_id: str) -> None:
        hold = self.holds.get(hold_id)
        if hold is None:
            raise refusal("unknown-hold", hold_id)
        if hold.is_committed:
            return
        self._chaos.step()
        if self._chaos.refuses():
            del self.holds[hold_id]
            raise refusal("refused", "a switch refused")
        segment = hold.segment
        root, rate_bps, leaves = self.paths.get(hold.path, (segment.root, segment.rate_bps, {}))
        self.paths[hold.path] = (
            root, rate_bps, {**leaves, **{leaf.key: leaf for leaf in segment.leaves}}
        )  # fmt: skip
        hold.is_committed = True
        self._chaos.step()
        if self._chaos.refuses():
            raise refusal("unconfirmed", "made, but a switch did not confirm")

    def release(self, path: str) -> None:
        for hold_id, hold in list(self.holds.items()):
            if hold.path == path and not hold.is_committed:
                self._chaos.step()
                del self.holds[hold_id]
                self._chaos.step()

    def reduce(self, path: str, segment: Segment | None, *, is_home: bool) -> None:
        if path not in self.paths:
            return
        self._chaos.step()
        if segment is None and not is_home:
            del self.paths[path]
        else:
            root, rate_bps, leaves = self.paths[path]
            kept = {} if segment is None else {leaf.key: leaf for leaf in segment.leaves}
            self.paths[path] = (
                root,
                rate_bps,
                {
                    key: kept.get(key, leaf)
                    for key, leaf in leaves.items()
                    if key in kept or (is_home and leaf.port == 9)
                },
            )
        self._chaos.step()

    def down_links(self) -> frozenset[str]:
        return frozenset(self._chaos.down)

    # -- for the checks

    def expire(self, now: float) -> None:
        for hold_id, hold in list(self.holds.items()):
            if not hold.is_committed and now >= hold.until:
                del self.holds[hold_id]

    def open_holds(self) -> list[str]:
        return [hold_id for hold_id, hold in self.holds.items() if not hold.is_committed]

    def _used(self) -> list[tuple[str, set[tuple[str, int, int]]]]:
        used = [(name, {root.key, *leaves}) for name, (root, _, leaves) in self.paths.items()]
        return used + [
            (h.path, {e.key for e in h.segment.endpoints})
            for h in self.holds.values()
            if not h.is_committed
        ]

    def loads(self) -> dict[tuple[str, int], int]:
        """Return the bits per second that leave each port, including what is held."""
        rates: dict[str, int] = {name: rate for name, (_, rate, _) in self.paths.items()}
        keys: dict[str, set[tuple[str, int, int]]] = {
            name: set(leaves) for name, (_, _, leaves) in self.paths.items()
        }
        for hold in self.holds.values():
            if not hold.is_committed:
                rates[hold.path] = hold.segment.rate_bps
                keys.setdefault(hold.path, set()).update(e.key for e in hold.segment.leaves)
        loads: dict[tuple[str, int], int] = {}
        for name, used in keys.items():
            for switch, port, _ in used:
                loads[switch, port] = loads.get((switch, port), 0) + rates[name]
        return loads


class NotesOnDisk:
    def __init__(self, chaos: Chaos) -> None:
        self._chaos = chaos
        self.notes: dict[Connection, Note] = {}

    def load(self) -> Iterable[Note]:
        return list(self.notes.values())

    def save(self, note: Note) -> None:
        self._chaos.step()
        self.notes[note.connection] = note
        self._chaos.step()

    def forget(self, connection: Connection) -> None:
        self._chaos.step()
        self.notes.pop(connection, None)


@dataclass
class Chaos:
    """How much goes wrong; `calm` ends it."""

    rng: random.Random
    loss: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    crash: float = 0.0
    refuse: float = 0.0
    steps: int = 0
    down: set[str] = field(default_factory=set)  # hand-off links

    def step(self) -> None:
        self.steps += 1
        if self.crash and self.rng.random() < self.crash:
            raise Crash

    def refuses(self) -> bool:
        return bool(self.refuse) and self.rng.random() < self.refuse

    def maybe_refuse(self, what: str) -> None:
        if self.refuses():
            raise refusal("no-capacity", f"{what} refused by chance")

    def delay_s(self) -> float:
        delay_s = self.rng.uniform(0.001, 0.1)
        return delay_s + (self.rng.uniform(0, 90) if self.rng.random() < self.late else 0.0)

    def copies(self) -> int:
        if self.rng.random() < self.loss:
            return 0
        return 2 if self.rng.random() < self.doubled else 1

    def calm(self) -> None:
        self.down.clear()
        self.loss = self.doubled = self.late = self.crash = self.refuse = 0.0


class Node:
    """A domain's controller: its disk and, while it lives, its two cores."""

    def __init__(self, world: World, name: str, capacity_bps: int) -> None:
        self.world = world
        self.name = name
        self.paths = Paths(world.chaos, capacity_bps)
        self.notes = NotesOnDisk(world.chaos)
        self.records: dict[str, Record] = {}
        self.coordinator: Coordinator | None = None
        self.participant: Participant | None = None
        self.life = 0

    @property
    def is_up(self) -> bool:
        return self.coordinator is not None

    def boot(self) -> None:
        world = self.world
        self.life += 1
        self.participant = Participant(world.domains, self.name, self.paths, self.notes)
        self.coordinator = Coordinator(
            world.domains, self.name, self.records.values(), world.timing
        )
        self.guarded(lambda: self.carry_out(self._coordinator.start(world.now)))
        for link in list(world.chaos.down):
            if self.name in world.domains.hand_offs[link].ports:
                self.guarded(lambda link=link: self.link_changed(link, False))  # type: ignore[misc]
        self.guarded(self._audit)

    def lose_everything(self) -> None:
        """Replace the disk: nothing is known any more, and there are no paths."""
        self.paths.paths.clear()
        self.paths.holds.clear()
        self.notes.notes.clear()
        self.records.clear()

    def guarded(self, action: Callable[[], None]) -> None:
        if not self.is_up:
            return
        try:
            action()
        except Crash:
            self.die()

    def die(self) -> None:
        self.world.crashes += 1
        self.coordinator = self.participant = None
        self.life += 1
        self.world.died(self)
        self.world.after(self.world.chaos.rng.uniform(0.1, 40), self._reboot)

    def _reboot(self) -> None:
        if not self.is_up:
            self.boot()

    @property
    def _coordinator(self) -> Coordinator:
        assert self.coordinator is not None
        return self.coordinator

    @property
    def _participant(self) -> Participant:
        assert self.participant is not None
        return self.participant

    def carry_out(self, effects: list[Effect]) -> None:
        chaos = self.world.chaos
        for effect in effects:
            chaos.step()
            if isinstance(effect, Save):
                self.records[effect.record.path] = effect.record
            elif isinstance(effect, Forget):
                self.records.pop(effect.path, None)
            elif isinstance(effect, Send):
                self.world.send(self, effect.domain, effect.request)
            else:
                self.world.answered(effect)
        self._arm()

    def _arm(self) -> None:
        deadline = self._coordinator.deadline()
        if deadline is not None:
            self.world.at(deadline, self._tick, self)

    def _tick(self) -> None:
        self.carry_out(self._coordinator.tick(self.world.now))

    def _audit(self) -> None:
        for connection in list(self._participant.notes):
            self._participant.expire(self.world.now, connection)
        self.paths.expire(self.world.now)
        for query in self._participant.audits():
            self.world.send(self, query.connection.coordinator, query)
        self.carry_out(self._coordinator.verify(self.world.now))
        self.world.at(self.world.now + 20, self._audit, self)

    def receive(self, source: str, request: Request) -> Reply:
        if isinstance(request, Query):
            if request.connection.coordinator == self.name and source != self.name:
                return self._coordinator.query(source, request)
            return self._participant.query(request)
        assert isinstance(request, (Reserve, Commit, Release)), request.kind
        return self._participant.handle(self.world.now, request)

    def replied(self, domain: str, request: Request, reply: Reply) -> None:
        now = self.world.now
        if isinstance(request, Query) and request.connection.coordinator != self.name:
            self._participant.audited(now, request, reply)
        else:
            self.carry_out(self._coordinator.reply(now, domain, request, reply))

    def add(self, request_id: int, path: str, empty: Tree, leaf: Endpoint) -> None:
        coordinator = self._coordinator
        try:
            effects = coordinator.add_leaf(self.world.now, request_id, path, empty, leaf)
        except Busy:
            retry = lambda: self.add(request_id, path, empty, leaf)  # noqa: E731
            self.world.at(self.world.now + 1, retry, self)
            return
        except Refusal as error:
            effects = [Answer(request_id, error.problem)]
        self.carry_out(effects)

    def link_changed(self, link: str, is_up: bool) -> None:
        self.carry_out(self._coordinator.link_changed(self.world.now, link, is_up))

    def remove(self, request_id: int, path: str, keys: set[tuple[str, int, int]] | None) -> None:
        coordinator = self._coordinator
        try:
            effects = coordinator.remove_leaves(self.world.now, request_id, path, keys)
        except Busy:
            retry = lambda: self.remove(request_id, path, keys)  # noqa: E731
            self.world.at(self.world.now + 1, retry, self)
            return
        self.carry_out(effects)


@dataclass(order=True)
class _Event:
    at: float
    number: int
    action: Callable[[], None] = field(compare=False)


class World:
    def __init__(
        self, domains: Domains, chaos: Chaos, timing: Timing, capacity_bps: int = 10**9
    ) -> None:
        self.domains = domains
        self.chaos = chaos
        self.timing = timing
        self.now = 1_800_000_000.0
        self.crashes = 0
        self.lost = 0
        self.disk_was_lost = False
        self.links_failed = 0
        self.answers: dict[int, Problem | None] = {}
        self.on_death: list[Callable[[Node], None]] = []
        self.on_answer: list[Callable[[Answer], None]] = []
        self._events: list[_Event] = []
        self._count = 0
        self.nodes = {name: Node(self, name, capacity_bps) for name in domains.names}

    def change_link(self, link: str, is_up: bool) -> None:
        """Change a link's state; its two domains notice."""
        self.links_failed += not is_up
        (self.chaos.down.discard if is_up else self.chaos.down.add)(link)
        for domain in self.domains.hand_offs[link].ports:
            node = self.nodes[domain]
            node.guarded(lambda node=node: node.link_changed(link, is_up))  # type: ignore[misc]

    # -- time

    def at(self, time: float, action: Callable[[], None], node: Node | None = None) -> None:
        """Call `action` at a time; if it is for a node, only if the node has not restarted by
        then."""
        self._count += 1
        if node is not None:
            life, plain = node.life, action

            def action() -> None:
                if node.life == life:
                    node.guarded(plain)

        heapq.heappush(self._events, _Event(time, self._count, action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay_s, action)

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> None:
        end = self.now + seconds
        while self._events and self._events[0].at <= end:
            event = heapq.heappop(self._events)
            self.now = max(self.now, event.at)
            event.action()
            self.check_decided()
            if until is not None and until():
                return
        self.now = end

    # -- messages

    def send(self, source: Node, domain: str, request: Request) -> None:
        target = self.nodes[domain]
        life = source.life
        is_own = target is source
        answered = [False]

        def reply_arrives(reply: Reply) -> None:
            if source.life == life:
                answered[0] = True
                source.guarded(lambda: source.replied(domain, request, reply))

        def request_arrives() -> None:
            if not target.is_up or (is_own and source.life != life):
                return

            def handle() -> None:
                received = read_request(request_json(request))
                reply = read_reply(reply_json(target.receive(source.name, received)))
                copies = 1 if is_own else self.chaos.copies()
                self.lost += copies == 0
                for _ in range(copies):
                    self.after(self.chaos.delay_s(), lambda: reply_arrives(reply))

            target.guarded(handle)

        copies = 1 if is_own else self.chaos.copies()
        self.lost += copies == 0
        for _ in range(copies):
            self.after(self.chaos.delay_s(), request_arrives)
        if isinstance(request, Release) and not is_own and self.chaos.rng.random() < 0.3:
            # Sometimes the transport says that no domain answered, whether that is true or not.
            self.at(
                self.now + 3,
                lambda: source.carry_out(
                    source._coordinator.no_reply(self.now, domain, request, "connection lost")
                ),
                source,
            )

    def answered(self, answer: Answer) -> None:
        self.answers[answer.request_id] = answer.problem
        for callback in self.on_answer:
            callback(answer)

    def died(self, node: Node) -> None:
        for callback in self.on_death:
            callback(node)

    # -- what must hold

    def check_decided(self) -> None:
        """Check what must hold at any moment: what a store has decided exists in every domain."""
        for node in self.nodes.values() if not self.disk_was_lost else ():
            for record in node.records.values():
                for domain, segment in segments_of(self.domains, record.tree).items():
                    if not record.tree.entries:
                        continue
                    found = self.found(node.name, record.path, domain)
                    assert found is not None, f"{record.path}: nothing in {domain}"
                    macs = {leaf.key: set(leaf.macs) for leaf in found.leaves}
                    for leaf in segment.leaves:
                        assert set(leaf.macs) <= macs.get(leaf.key, set()), (
                            f"{record.path} in {domain}: {leaf} is decided, found {found.leaves}"
                        )

    def found(self, coordinator: str, path: str, domain: str) -> Segment | None:
        name = path if coordinator == domain else str(Connection(coordinator, path))
        return self.nodes[domain].paths.segment(name)


__all__ = ["Busy", "Chaos", "Node", "World"]
