# SPDX-License-Identifier: Apache-2.0
"""Commands that join an interface of a host on another machine to its place in the network here.

Each of the host's NICs is an interface there, with the NIC's name and address: of a VXLAN tunnel,
or over an interface that the site has put into a VLAN with one here. Its peer here is in the
namespace that has the host's place, and the kernel redirects each frame between this peer and the
NIC of that place. So switches, links and taps see the host's frames at its NIC. Pure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

PORT: Final = 4789  # UDP, by IANA
HEADERS_BYTES: Final = 50  # IPv4, UDP, VXLAN and the inner Ethernet header
MTU: Final = 1500
# With less below it, the kernel tells the host to send less.
NEEDED_MTU: Final = MTU + HEADERS_BYTES


@dataclass(frozen=True)
class Way(ABC):
    """How one NIC's frames travel between the machines; `here`, `there`: its ends."""

    nic: str
    mac: str
    number: int
    here: str
    there: str

    @property
    def link(self) -> str:
        """Return the name of the interface until it gets the NIC's, and of the peer here."""
        return f"dpv{self.number}"

    @abstractmethod
    def _make(self, local: str) -> list[list[str]]:
        """Return the commands that make one end."""

    def make_there(self) -> list[list[str]]:
        """Return the commands that make the NIC on its machine."""
        own = ["ip", "link", "set", self.link, "address", self.mac]
        return [*self._make(self.there), own]

    def make_here(self, pid: int) -> list[list[str]]:
        """Return the commands that make the peer and move it into the namespace of `pid`."""
        move = ["ip", "link", "set", self.link, "netns", str(pid)]
        return [*self._make(self.here), move]

    @abstractmethod
    def unmake(self, local: str) -> list[list[str]]:
        """Return the commands that undo, at one end, what may outlive its namespace."""

    def join(self) -> str:
        """Return the script that joins the peer to the NIC, in the namespace of both."""
        return joined(self.link, self.nic)


def joined(one: str, other: str) -> str:
    """Return the script that redirects each frame between two interfaces of a namespace."""
    lines = [f"ip link set dev {one} up", f"ethtool -K {one} gro off >/dev/null"]
    for source, target in ((one, other), (other, one)):
        lines.append(f"tc qdisc add dev {source} clsact")
        lines.append(
            f"tc filter add dev {source} ingress protocol all prio 1 u32 match u32 0 0 "
            f"action mirred egress redirect dev {target}"
        )
    return "".join(f"{line} || exit 1\n" for line in lines)


class Tunnel(Way):
    """VXLAN between two addresses; `number`: its network identifier."""

    def _make(self, local: str) -> list[list[str]]:
        remote = self.here if local == self.there else self.there
        made = ["ip", "link", "add", self.link, "type", "vxlan", "id", str(self.number)]
        ends = ["local", local, "remote", remote, "dstport", str(PORT), "nolearning"]
        return [[*made, *ends], ["ip", "link", "set", self.link, "mtu", str(MTU)]]

    def unmake(self, local: str) -> list[list[str]]:  # noqa: ARG002 - a tunnel ends with its namespace
        return []


class Circuit(Way):
    """Two interfaces in one VLAN, given by the site. They stay where they are, and carry nothing
    else meanwhile: the kernel redirects their frames to and from a veth pair, as ours can be told
    to send single frames."""

    def _make(self, local: str) -> list[list[str]]:
        near = f"{self.link}p"
        pair = ["ip", "link", "add", self.link, "type", "veth", "peer", "name", near]
        # what a run that was killed may have left
        clean = f"tc qdisc delete dev {local} clsact 2>/dev/null\n"
        script = f"{clean}ip link set dev {near} up || exit 1\n{joined(local, near)}"
        own = ["ip", "link", "set", local, "promisc", "on"]  # the NICs have other addresses
        return [pair, own, ["sh", "-c", script]]

    def unmake(self, local: str) -> list[list[str]]:
        return [
            ["ip", "link", "delete", f"{self.link}p"],
            ["tc", "qdisc", "delete", "dev", local, "clsact"],
            ["ip", "link", "set", local, "promisc", "off"],
        ]
