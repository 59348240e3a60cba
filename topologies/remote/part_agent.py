# SPDX-License-Identifier: Apache-2.0
"""The agent of a part: it holds the cut links of its hosts, and forks an agent for each host.

The first connection asks the part itself (`Part`), each further one a host. When the first
connection says `end`, the part ends; when it is lost, or a cut link ends, with exit code 1.
"""

from __future__ import annotations

import json
import os
import platform
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from common.places import PROGRAMS
from common.shell import NetworkError, check
from topologies.emulate import census, ctcp_host
from topologies.emulate.cut_link import CutInterface, CutLink, make_pair
from topologies.remote import agent, part_plan
from topologies.remote.part_plan import PartPlan

MEMORY: Final = "/dev/shm"  # queues, too, are in memory


class HostAgent(agent.Agent):
    """The agent of one host."""

    def __init__(self) -> None:
        super().__init__(MEMORY)

    def hello(self) -> dict[str, object]:
        """Return what this part is: the same programs, kernel and clock as part 0."""
        return {
            "scratch": str(self.scratch),
            "machine": "another part",
            "kernel": platform.release(),
            "cores": os.cpu_count() or 1,
            "scheduling": census.scheduling(os.getpid()),
        }

    def functions(self) -> dict[str, agent.Function]:
        """Return what can be called."""
        return {**super().functions(), "ctcp_window": self.ctcp_window}

    def ctcp_window(self, packets: int) -> str:
        """Set the window of the kernel's own Circuit TCP; return "" or why that is not possible."""
        if not ctcp_host.is_built_in():
            return "its kernel has no ctcp"
        ctcp_host.set_window(packets)
        return ""


class Part:
    """The cut links of a part, and what part 0 asks of it as a whole."""

    def __init__(self, plan: PartPlan, part: int, links: Path) -> None:
        """Make the interfaces and start the links. Raises NetworkError."""
        self.ended = False

        def link(out: str, into: str, interfaces: list[CutInterface]) -> CutLink:
            first, second = (links / part_plan.file_of(part, name) for name in (out, into))
            program = plan.build / PROGRAMS["cut-link"]
            return CutLink(program, plan.window_ns, first, second, interfaces)

        nics = [nic for host in plan.others[part - 1] for nic in host.nics]
        cuts = []
        for number, nic in enumerate(nics):
            outer = part_plan.outer_of(number)
            make_pair(part_plan.inner_of(number), outer, nic.mac)
            cuts.append(CutInterface(outer, part_plan.ns(nic.to_ms)))
        here = part_plan.addresses_of(part)[1]
        self.hosts = link("up", "down", cuts)
        self.asked = asking_link(
            part_plan.ASKING, here, lambda one: link("answer", "ask", [one]), plan.asking_ns
        )

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return what can be called."""
        return {"read": agent.read_files, "leave": self.leave, "end": self.end}

    def leave(self) -> None:
        """End the hosts' links. Raises NetworkError if a frame was lost or late."""
        self.hosts.end()

    def end(self) -> None:
        """End the part."""
        self.ended = True

    def problem(self) -> str:
        """Return what has ended though it should not; "" for nothing."""
        ended = [one for one in (self.hosts, self.asked) if one.failed]
        return ended[0].complaint() if ended else ""


def asking_link(
    name: str, address: str, link: Callable[[CutInterface], CutLink], delay_ns: int
) -> CutLink:
    """Make the interface of what part 0 asks, with its address, and start its link. Raises
    NetworkError."""
    outer = f"{name}x"
    make_pair(name, outer)
    check(["ethtool", "-K", name, "tx", "off", "tso", "off"])
    check(["ip", "address", "add", f"{address}/30", "dev", name])
    check(["ip", "link", "set", name, "up"])
    return link(CutInterface(outer, delay_ns))


def _serve_host(connection: socket.socket, more: Callable[[], Mapping[str, agent.Function]]) -> int:
    os.dup2(connection.fileno(), 0)
    os.dup2(connection.fileno(), 1)
    return agent.serve(more, HostAgent)


def _serve(
    part: Part, listener: socket.socket, more: Callable[[], Mapping[str, agent.Function]]
) -> int:
    keeper, _ = listener.accept()
    keeper.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    lines = keeper.makefile("r", encoding="utf-8")
    answers = keeper.makefile("w", encoding="utf-8")
    poll = select.poll()
    watched = [os.pidfd_open(one.pid) for one in (part.hosts, part.asked)]
    for fd in (keeper.fileno(), listener.fileno(), *watched):
        poll.register(fd, select.POLLIN)
    while not part.ended:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if os.fork() == 0:
                    os._exit(_serve_host(connection, more))
                connection.close()
            elif fd == keeper.fileno():
                line = lines.readline()
                if not line:
                    raise NetworkError("part 0 is gone")
                answer = agent.answer(part.functions(), line)
                print(json.dumps(answer), file=answers, flush=True)
            else:
                poll.unregister(fd)
                if problem := part.problem():
                    raise NetworkError(problem)
    part.asked.end()
    return 0


def main(
    plan_path: Path, part: int, links: Path, more: Callable[[], Mapping[str, agent.Function]]
) -> int:
    """Serve part `part` until its end; return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        held = Part(PartPlan.from_json(plan_path.read_text()), part, links)
        with socket.create_server((part_plan.addresses_of(part)[1], part_plan.PORT)) as listener:
            return _serve(held, listener, more)
    except (NetworkError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
