# SPDX-License-Identifier: Apache-2.0
"""The protocol under everything that can go wrong, by seeds; and its normal course, step by
step."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from functools import partial

import pytest

from controller.federation.records import Answer, Timing
from controller.federation.tests.networks import chain, endpoint
from controller.federation.tests.simulation import Chaos, Node, World
from controller.federation.trees import Domains, Tree, segments_of
from controller.federation.values import Connection
from controller.paths.core import Endpoint

TWO, THREE = Domains(chain("ab")), Domains(chain("abc"))
RATE = 20_000_000
BYSTANDER = "bystander"  # a path of one domain that no request touches
SEEDS_PER_BLOCK = 100
BLOCKS = 10 if "DOWNPOUR_TEST_LONG" in os.environ else 1


@dataclass
class User:
    """Asks for one change of one path after another, and keeps what the answers promise."""

    world: World
    node: Node
    path: str
    root: Endpoint
    choice: list[Endpoint]
    changes: int
    joined: set[Endpoint] = field(default_factory=set)  # must be there
    unsure: set[Endpoint] = field(default_factory=set)  # without an answer
    waiting: tuple[int, str, Endpoint | None] | None = None
    is_over: bool = False

    def start(self) -> None:
        self.world.on_answer.append(self.answered)
        self.world.on_death.append(self.died)
        self.world.after(self.world.chaos.rng.uniform(0, 5), self.go_on)

    def go_on(self) -> None:
        rng = self.world.chaos.rng
        if self.changes == 0 or self.waiting is not None:
            self.is_over = self.changes == 0
            return
        if not self.node.is_up:
            self.world.after(5, self.go_on)
            return
        if self.path not in self.node.paths.paths:  # the first time, or after the disk was lost
            self.joined.clear()
            self.unsure.clear()
            self.node.paths.paths[self.path] = (self.root, RATE, {})
        self.changes -= 1
        request_id = rng.getrandbits(60)
        here = self.joined | self.unsure
        kind = rng.choice(["add", "add", "remove", "all"]) if here else "add"
        tree = Tree(self.root, RATE)
        if kind == "add" and (free := [leaf for leaf in self.choice if leaf not in here]):
            leaf = rng.choice(free)
            self.waiting = (request_id, kind, leaf)
            self.node.guarded(lambda: self.node.add(request_id, self.path, tree, leaf))
        elif kind == "all":
            self.waiting = (request_id, kind, None)
            self.node.guarded(lambda: self.node.remove(request_id, self.path, None))
        elif here:
            leaf = rng.choice(sorted(here))
            self.waiting = (request_id, "remove", leaf)
            self.node.guarded(lambda: self.node.remove(request_id, self.path, {leaf.key}))
        else:
            self.world.after(1, self.go_on)

    def answered(self, answer: Answer) -> None:
        if self.waiting is None or self.waiting[0] != answer.request_id:
            return
        _, kind, leaf = self.waiting
        if kind == "add":
            assert leaf is not None
            self.unsure.discard(leaf)
            if answer.problem is None:
                self.joined.add(leaf)
        elif leaf is None:
            self.joined.clear()
            self.unsure.clear()
        else:
            self.joined.discard(leaf)
            self.unsure.discard(leaf)
        self.next()

    def died(self, node: Node) -> None:
        if node is not self.node or self.waiting is None:
            return
        _, kind, leaf = self.waiting
        if kind == "add":
            assert leaf is not None
            self.unsure.add(leaf)
        else:
            gone = {leaf} if leaf is not None else set(self.joined)
            self.joined -= gone
            self.unsure |= gone
        self.next()

    def next(self) -> None:
        self.waiting = None
        self.world.after(self.world.chaos.rng.uniform(0.01, 20), self.go_on)


def check_end(world: World, users: list[User]) -> int:
    """Check that each request took effect everywhere or nowhere, and left nothing over. Return the
    number of leaves."""
    leaves = 0
    expected: dict[str, set[str]] = {name: {BYSTANDER} for name in world.nodes}
    for user in users:
        record = user.node.records.get(user.path)
        if user.path in user.node.paths.paths:
            expected[user.node.name].add(user.path)
        tree = Tree(user.root, RATE) if record is None else record.tree
        assert record is None or (record.trying is None and not record.unsettled), record
        present = set(tree.all_leaves) | set(record.wanted if record is not None else ())
        assert user.joined <= present <= user.joined | user.unsure
        leaves += len(present)
        for domain, segment in segments_of(world.domains, tree).items():
            found = world.found(user.node.name, user.path, domain)
            if found is None:
                assert domain == user.node.name and not segment.leaves
                continue
            assert found == segment, f"{user.path} in {domain}"
            name = user.path if domain == user.node.name else f"{user.node.name}:{user.path}"
            expected[domain].add(name)
    for name, node in world.nodes.items():
        assert set(node.paths.paths) == expected[name], f"segments left over in {name}"
        assert node.paths.open_holds() == []
        assert node.paths.segment(BYSTANDER) == bystander(node, name)
        for note in node.notes.notes.values():
            assert note.pending is None
    return leaves


def bystander(node: Node, name: str) -> object:
    root, leaf = endpoint(f"{name}1", 3), endpoint(f"{name}2", 3)
    node.paths.paths.setdefault(BYSTANDER, (root, RATE, {leaf.key: leaf}))
    return node.paths.segment(BYSTANDER)


def play(seed: int) -> dict[str, int]:
    rng = random.Random(seed)
    domains = TWO if seed % 3 == 0 else THREE
    chaos = Chaos(
        rng,
        loss=rng.choice([0, 0, 0.1, 0.4]),
        doubled=rng.choice([0, 0.3]),
        late=rng.choice([0, 0, 0.1]),
        crash=rng.choice([0, 0.01, 0.05]),
        refuse=rng.choice([0, 0, 0.1]),
    )
    timing = Timing(hold_s=rng.choice([8.0, 60.0]))
    # Two paths fill the hand-off in one direction: a third one is refused.
    world = World(domains, chaos, timing, capacity_bps=rng.choice([2 * RATE, 10**9]))
    names = domains.names
    users: list[User] = []
    for number, name in enumerate(rng.choice([names, names[:1] * 3, (*names, names[-1])]), 1):
        others = [n for n in names if n != name]
        choice = [endpoint(f"{n}{i}", k) for n in others for i in (1, 2) for k in (1, 2)]
        choice = [leaf for leaf in choice if leaf.key not in {u.root.key for u in users}]
        root = Endpoint(f"{name}1", 8, number, (f"02:11:00:00:00:{number:02x}",))
        users.append(User(world, world.nodes[name], f"p{number}", root, choice, rng.randint(1, 6)))
    for name, node in world.nodes.items():
        bystander(node, name)
        node.boot()
    for user in users:
        user.start()
    if seed % 10 == 9:
        # A disk is lost: what the others have of that domain's paths must be removed.
        victim = world.nodes[rng.choice(names)]

        def lose() -> None:
            victim.die()
            victim.lose_everything()
            world.disk_was_lost = True
            bystander(victim, victim.name)
            for user in users:  # no user may rely on paths that crossed it
                user.unsure |= user.joined
                user.joined.clear()

        if seed % 20 == 9:
            world.after(rng.uniform(10, 60), lose)
    if seed % 4 == 1:
        for link in world.domains.hand_offs:
            down_at = rng.uniform(0, 100)
            fail = partial(world.change_link, link, False)
            world.after(down_at, fail)
            world.after(down_at + rng.uniform(0.1, 60), partial(world.change_link, link, True))
    world.run(200, lambda: all(user.is_over for user in users))
    chaos.calm()
    world.run(400)
    assert all(user.is_over for user in users)
    assert all(node.is_up for node in world.nodes.values())
    leaves = check_end(world, users)
    refused = sum(problem is not None for problem in world.answers.values())
    return {
        "leaves": leaves,
        "crashes": world.crashes,
        "lost": world.lost,
        "refused": refused,
        "links": world.links_failed,
        "done": len(world.answers) - refused,
        "steps": chaos.steps,
    }


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_all_or_nothing(block: int) -> None:
    total: dict[str, int] = {}
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        try:
            result = play(seed)
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        for key, count in result.items():
            total[key] = total.get(key, 0) + count
    # The histories are only useful if much went wrong in them, and much went well.
    assert total["crashes"] > 30
    assert total["lost"] > 100
    assert total["refused"] > 30
    assert total["done"] > 100
    assert total["leaves"] > 50
    assert total["links"] > 30


def test_connection_names() -> None:
    assert str(Connection("a", "p")) == "a:p"
