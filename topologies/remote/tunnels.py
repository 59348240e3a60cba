# SPDX-License-Identifier: Apache-2.0
"""Commands that join an interface of a host on another machine to its place in the network here.

Each of the host's NICs is a VXLAN interface there, with the NIC's name and address. Its
peer here is in the namespace that has the host's place, and the kernel redirects each frame between
this peer and the NIC of that place. So switches, links and taps see the host's frames at its NIC.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PORT: Final = 4789  # UDP, by IANA
HEADERS_BYTES: Final = 50  # IPv4, UDP, VXLAN and the inner Ethernet header
MTU: Final = 1500
# With less below it, the kernel tells the host to send less.
NEEDED_MTU: Final = MTU + HEADERS_BYTES


@dataclass(frozen=True)
class Tunnel:
    """One NIC's tunnel. `here`, `there`: addresses of the machines."""

    nic: str
    mac: str
    number: int  # VXLAN network identifier
    here: str
    there: str

    @property
    def link(self) -> str:
        """Return the name of the interface until it gets the NIC's, and of the peer here."""
        return f"dpv{self.number}"

    def _make(self, local: str, remote: str) -> list[list[str]]:
        made = ["ip", "link", "add", self.link, "type", "vxlan", "id", str(self.number)]
        ends = ["local", local, "remote", remote, "dstport", str(PORT), "nolearning"]
        return [[*made, *ends], ["ip", "link", "set", self.link, "mtu", str(MTU)]]

    def make_there(self) -> list[list[str]]:
        """Return the commands that make the NIC on its machine."""
        own = ["ip", "link", "set", self.link, "address", self.mac]
        return [*self._make(self.there, self.here), own]

    def make_here(self, pid: int) -> list[list[str]]:
        """Return the commands that make the peer and move it into the namespace of `pid`."""
        move = ["ip", "link", "set", self.link, "netns", str(pid)]
        return [*self._make(self.here, self.there), move]

    def join(self) -> str:
        """Return the script that joins the peer to the NIC, in the namespace of both."""
        lines = [f"ip link set dev {self.link} up", f"ethtool -K {self.link} gro off >/dev/null"]
        for one, other in ((self.link, self.nic), (self.nic, self.link)):
            lines.append(f"tc qdisc add dev {one} clsact")
            lines.append(
                f"tc filter add dev {one} ingress protocol all prio 1 u32 match u32 0 0 "
                f"action mirred egress redirect dev {other}"
            )
        return "".join(f"{line} || exit 1\n" for line in lines)
