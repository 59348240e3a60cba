# SPDX-License-Identifier: Apache-2.0
"""Attempts to fool the verdict at a host elsewhere, as in `test_fool`: the namespace and programs
of p are where an agent is, and two wires join p to its place."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from common.places import ROOT
from common.shell import NetworkError, check
from experiments.cells.journals import Journals
from experiments.tests import test_fool, test_fool_hidden
from experiments.tests.test_catch import CLEAN, LINK, ROOT_ONLY, not_passed, observe
from experiments.tests.test_fool import (
    CHANGED,
    PLANNED,
    RULES,
    Attempt,
    at,
    end_program,
    later,
    seen_and_undone,
)
from experiments.tests.test_fool_hidden import flow_from_outside
from topologies.emulate import lifecycle
from topologies.emulate.emulation import Emulation, open_emulation
from topologies.remote import connection
from topologies.remote.connection import Connection
from topologies.remote.host import Host
from topologies.remote.inventory import RemoteHost
from topologies.tests.networks import two_hosts
from topologies.watch.journal import Change


def wire(stack: ExitStack, space: str, name: str) -> tuple[str, str]:
    """Return the two ends of a wire between here and a namespace; `stack` ends it."""
    here, there = f"{name}{os.getpid()}", f"{name}0"
    pair = ["ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", space]
    check(pair)
    stack.callback(check, ["ip", "link", "delete", here])
    check(["ip", "link", "set", here, "up"])
    check(["ip", "-n", space, "link", "set", there, "up"])
    return here, there


@pytest.fixture(scope="module")
def emulation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    with ExitStack() as stack:
        space = f"downpour-test-{os.getpid()}"
        check(["ip", "netns", "add", space])
        stack.callback(check, ["ip", "netns", "delete", space])
        here, there = zip(*(wire(stack, space, name) for name in ("path", "ctrl")), strict=True)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        inside = ["ip", "netns", "exec", space, "sh", "-c"]
        patch.setattr(connection, "ssh_argv", lambda _host: inside)
        one = RemoteHost(
            "p", "127.0.0.1", "127.0.0.1", root=str(ROOT), circuit=there, hub_circuit=here
        )
        found = Connection(one, tmp_path_factory.mktemp("agent") / "log")
        stack.callback(found.close)
        host = Host(one, found)
        stack.callback(host.close)
        run = stack.enter_context(lifecycle.enter(lifecycle.new_run_id(f"test-{os.getpid()}")))
        network = two_hosts(LINK)
        yield stack.enter_context(open_emulation(network, run.state_dir, elsewhere={"p": host}))


def agent_of(emulation: Emulation) -> int:
    return int(emulation.run("p", ["sh", "-c", "echo $PPID"]).stdout)


def setting_for_a_moment(emulation: Emulation) -> None:
    def change() -> None:
        for length in ("900", "1000"):
            at(emulation, "p", "ip", "link", "set", "dev", "p-nic1", "txqueuelen", length)
            time.sleep(0.02)

    later(0.2, change)


def more_than_can_be_recorded(emulation: Emulation) -> None:
    """The agent reads nothing meanwhile."""
    agent = agent_of(emulation)
    lines = [f"link set dev p-nic1 txqueuelen {900 + i % 2}\n" for i in range(1500)]
    os.kill(agent, signal.SIGSTOP)
    try:
        flood = ["nsenter", f"--net=/proc/{agent}/ns/net", "ip", "-batch", "-"]
        subprocess.run(flood, input="".join(lines), text=True, check=True)
    finally:
        os.kill(agent, signal.SIGCONT)
    at(emulation, "p", "ip", "link", "set", "dev", "p-nic1", "txqueuelen", "1000")


OF_P: Final = (
    "a queue's limit changed and restored between two looks",
    "a program that calls itself ping and sends",
)
ATTEMPTS: Final = (
    *(a for a in (*test_fool.ATTEMPTS, *test_fool_hidden.ATTEMPTS) if a.name in OF_P),
    Attempt(
        "a setting changed for 20 ms",
        (CHANGED,),
        meanwhile=setting_for_a_moment,
        text="p/p-nic1: queue changed",
    ),
    Attempt(
        "more changes than could be recorded",
        (CHANGED,),
        meanwhile=more_than_can_be_recorded,
        text="the kernel reported more changes",
    ),
    Attempt(
        "a program outside, with a socket of a host",
        (PLANNED,),
        before=lambda e: flow_from_outside(e, agent_of(e)),
        undo=end_program,
        text="p sockets",
    ),
)


class TestFooledElsewhere:
    pytestmark = [*ROOT_ONLY, pytest.mark.emulated]

    def test_nothing_done(self, emulation: Emulation, tmp_path: Path) -> None:
        assert not_passed(observe(emulation, tmp_path), (*CLEAN, RULES)) == {}

    @pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda a: a.name)
    def test_seen(self, emulation: Emulation, tmp_path: Path, attempt: Attempt) -> None:
        seen_and_undone(emulation, tmp_path, attempt)


HERE: Final = Change(5.0, "q/q-nic1", "set down")


class Agent:
    """Answers as a host's agent, or not at all."""

    def __init__(self, missed: int = 0, problem: str = "") -> None:
        self.missed, self.problem = missed, problem
        self.asked: list[dict[str, object]] = []

    def call(self, name: str, **given: object) -> dict[str, Any] | None:
        if name == "record":
            self.asked.append(given)
            return None
        assert name == "recorded"
        if self.problem:
            raise NetworkError(self.problem)
        change = {"at_s": 4.0, "place": "p/p-nic1", "what": "queue changed"}
        return {"changes": [change], "missed": self.missed}


def journals(**agents: Agent) -> Journals:
    here = SimpleNamespace(look=lambda: None, close=lambda: [HERE], missed=1)
    known: Any = SimpleNamespace(elsewhere=agents, journal=lambda: here)
    return Journals(known)


def test_what_was_missed_anywhere_adds_up() -> None:
    p, r = Agent(missed=2), Agent(missed=4)
    found = journals(p=p, r=r)
    (asked,) = p.asked
    assert asked["node"] == "p"
    there = Change(4.0, "p/p-nic1", "queue changed")
    assert found.close() == [there, there, HERE]
    assert (found.missed, found.failed) == (7, [])


def test_an_agent_that_does_not_answer_is_named() -> None:
    found = journals(p=Agent(problem="p (part 1): no answer"), r=Agent())
    assert HERE in found.close()
    assert found.failed == ["p (part 1): no answer"]
