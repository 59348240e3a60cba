# SPDX-License-Identifier: Apache-2.0
"""Hosts in other parts, as part 0 sees them.

Part 0 asks a part over its own link, by TCP: what a part answers, and when, follows from the
clock alone. Never from a file of the host, whose changes would be seen sooner or later.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common.places import PROGRAMS
from common.shell import NetworkError, check, in_node
from topologies.emulate.build import nic1_interface
from topologies.emulate.cut_link import CutInterface, CutLink, hold_frames, tag_beside
from topologies.emulate.facts import KernelFacts
from topologies.model.network import Network
from topologies.model.parts import CutHost, CutNic
from topologies.remote import part_plan
from topologies.remote.channel import Channel
from topologies.remote.part_agent import asking_link
from topologies.remote.part_plan import PartPlan
from topologies.remote.there import Copy, HostThere, copy_all

CONNECT_S: Final = 60.0  # until the part's agent listens
AGAIN_S: Final = 0.25
COPY_S: Final = 1.0  # between copies of what programs have written


class PartChannel(Channel):
    """The way to the agent of a part, or of one of its hosts."""

    def __init__(self, name: str, part: int, link: CutLink) -> None:
        """Connect. Raises NetworkError."""
        super().__init__(name, f"part {part}")
        self._link = link
        self._socket: socket.socket | None = _connected(part, link)

    @property
    def alive(self) -> bool:
        """Return whether the connection still stands."""
        return self._socket is not None and self._link.alive

    def _send(self, data: bytes) -> None:
        if self._socket is None:
            raise OSError("closed")
        self._socket.sendall(data)

    def _fd(self) -> int:
        if self._socket is None:
            raise OSError("closed")
        return self._socket.fileno()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def complaint(self) -> str:
        """Return why the connection is lost."""
        said = "" if self._link.alive else f": {self._link.complaint()}"
        return f"lost the connection to {self.address}{said}"

    def close(self) -> None:
        """End the agent. Idempotent."""
        self._drop()


def _connected(part: int, link: CutLink) -> socket.socket:
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            address = (part_plan.addresses_of(part)[1], part_plan.PORT)
            found = socket.create_connection(address, timeout=AGAIN_S)
        except OSError as error:
            if not link.alive:
                raise NetworkError(f"part {part}: {link.complaint()}") from None
            if time.monotonic() > deadline:
                raise NetworkError(f"part {part}: no connection: {error}") from None
            time.sleep(AGAIN_S)
            continue
        found.settimeout(None)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found


class OtherPart:
    """Another part, as part 0 sees it."""

    def __init__(self, plan: PartPlan, part: int, links: Path) -> None:
        """Connect to its agent. Raises NetworkError."""
        self._plan, self.part, self._links = plan, part, links
        self._hosts_link: CutLink | None = None
        name = f"{part_plan.ASKING}{part}"
        self.asked = asking_link(
            name,
            part_plan.addresses_of(part)[0],
            lambda one: self._link("ask", "answer", [one]),
            plan.asking_ns,
        )
        self._agent = PartChannel(f"part {part}", part, self.asked)
        self.copying = threading.Lock()
        self.copies: list[Copy] = []
        self._places: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._copy_on, daemon=True)

    def _link(self, out: str, into: str, interfaces: Sequence[CutInterface]) -> CutLink:
        first, second = (self._links / part_plan.file_of(self.part, n) for n in (out, into))
        program = self._plan.build / PROGRAMS["cut-link"]
        return CutLink(program, self._plan.window_ns, first, second, interfaces)

    @property
    def hosts(self) -> tuple[CutHost, ...]:
        """Return the part's hosts."""
        return self._plan.others[self.part - 1]

    def channel_of(self, host: str) -> PartChannel:
        """Return a new way to a host's agent. Raises NetworkError."""
        return PartChannel(host, self.part, self.asked)

    def place(self, host: str, pid: int) -> bool:
        """Note a host's place here. Once all are known, start the cut links; return whether they
        run. Raises NetworkError."""
        self._places[host] = pid
        if len(self._places) < len(self.hosts):
            return False
        ends = [
            CutInterface(nic.interface, part_plan.ns(nic.from_ms), self._places[one.name])
            for one in self.hosts
            for nic in one.nics
        ]
        self._hosts_link = self._link("down", "up", ends)
        self._thread.start()  # not before: only a process with one thread can enter a run
        return True

    def _copy_on(self) -> None:
        while not self._stop.wait(COPY_S):
            with contextlib.suppress(NetworkError):
                copy_all(self.copies, self.copying, self._agent)

    @property
    def problem(self) -> str:
        """Return which of its links has ended; "" for none."""
        for link in (self._hosts_link, self.asked):
            if link is not None and link.failed:
                return link.complaint()
        return ""

    def leave(self) -> None:
        """End the hosts' links, before the network ends. Idempotent."""
        link, self._hosts_link = self._hosts_link, None
        if link is None:
            return
        with contextlib.suppress(NetworkError):
            self._agent.call("leave")
        with contextlib.suppress(NetworkError):
            link.end()

    def close(self) -> None:
        """End the part. Idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self.leave()
        with contextlib.suppress(NetworkError):
            copy_all(self.copies, self.copying, self._agent)
            self._agent.call("end")
        for copy in self.copies:
            os.close(copy.fd)
        self.copies.clear()
        self._agent.close()
        with contextlib.suppress(NetworkError):
            self.asked.end()


class PartHost(HostThere):
    """A host in another part. Paths there are the same as here."""

    def __init__(self, name: str, part: OtherPart) -> None:
        """Connect to the host's agent. Raises NetworkError."""
        super().__init__(name, f"part {part.part}", part.channel_of(name))
        self.part = part
        self._copies, self._copying = part.copies, part.copying

    def there(self, text: str) -> str:
        """Return the text."""
        return text

    def share(self, *directories: Path) -> None:
        """Make directories there. Raises NetworkError."""
        for directory in directories:
            self.call("write", path=f"{directory}/", data="")

    def ctcp_window(self, packets: int) -> str:
        """Set the window of the part's Circuit TCP; return "" or why that is not possible."""
        return str(self.call("ctcp_window", packets=packets))

    def forward(self, socket: Path) -> None:
        """Refuse. Raises NetworkError."""
        raise NetworkError(f"{self.name}: found {socket}; valid: sockets of its own part")

    @property
    def nics(self) -> tuple[CutNic, ...]:
        """Return its NICs at the cut."""
        return next(one.nics for one in self.part.hosts if one.name == self.name)

    @property
    def alive(self) -> bool:
        """Return whether the host can be reached."""
        return super().alive and not self.part.problem

    def join(self, network: Network, facts: KernelFacts, pid: int) -> None:
        """Join the host to its place. Its part's last host starts the links. Raises
        NetworkError."""
        host = network.host(self.name)
        names = [nic.interface for nic in (host.nic1, host.nic2)]
        first = sum(len(one.nics) for one in self._before())
        for number, name in enumerate(names):
            # The kernel here must not answer for the host.
            check(in_node(pid, ["ip", "address", "flush", "dev", name]))
            check(in_node(pid, hold_frames(name)))
            self.call("tunnel", commands=[], link=part_plan.inner_of(first + number), nic=name)
        path = nic1_interface(network, host, facts)
        if path != host.nic1.interface:
            check(in_node(pid, ["ip", "link", "delete", path]))
            tags = tag_beside(host.nic1.interface, network.segment_of(self.name).vlan)
            check(in_node(pid, ["sh", "-s"]), stdin=tags)
        self.configure(network, facts)
        if not self.part.place(self.name, pid):
            return
        if not self.answered(network.publisher.nic2.ip):
            raise NetworkError(f"{self.name}: no answer from the publisher over the cut links")

    def _before(self) -> Sequence[CutHost]:
        names = [one.name for one in self.part.hosts]
        return self.part.hosts[: names.index(self.name)]

    def leave(self) -> None:
        """Part the host from its place, before the network ends."""
        self.part.leave()

    def close(self) -> None:
        """Copy what is left and end the host's agent. Idempotent."""
        self._copies = []  # the part copies what is left, and closes them
        super().close()
