# SPDX-License-Identifier: Apache-2.0
"""Record every change of interfaces, queues, filters, routes, fixed neighbours, firewall rules and
IPsec while a network runs. The kernel notifies listeners, so the journal even has a change that is
undone a moment later."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from common.shell import NetworkError
from topologies.watch import netlink
from topologies.watch.host_settings import NETLINK_XFRM, NUD_PERMANENT
from topologies.watch.netlink import attributes, handle_text, text_of

# linux/rtnetlink.h, linux/netfilter/nfnetlink.h
GROUPS: Final = (1, 3, 4, 5, 7, 8)  # links, neighbours, traffic control, addresses, routes, rules
NFTABLES_GROUP: Final = 7
NFTABLES: Final = 10  # subsystem
NFT_WORDS: Final = {
    **{0: "table added", 2: "table removed", 3: "chain added", 5: "chain removed"},
    **{6: "rule added", 8: "rule removed", 9: "set added", 12: "set element added"},
}
ROUTE_WORDS: Final = {
    netlink.RTM_NEWADDR: "address added",
    netlink.RTM_DELADDR: "address removed",
    netlink.RTM_NEWROUTE: "route added",
    netlink.RTM_DELROUTE: "route removed",
    netlink.RTM_NEWRULE: "routing rule added",
    netlink.RTM_DELRULE: "routing rule removed",
}
TC_WORDS: Final = {
    netlink.RTM_NEWQDISC: "queueing discipline {} set",
    netlink.RTM_DELQDISC: "queueing discipline {} removed",
    netlink.RTM_NEWTCLASS: "class {} set",
    netlink.RTM_DELTCLASS: "class {} removed",
    netlink.RTM_NEWTFILTER: "filter {} set",
    netlink.RTM_DELTFILTER: "filter {} removed",
}
IPSEC_GROUPS: Final = (3, 4)  # associations, policies
IPSEC_WORDS: Final = {
    **{0x10: "association added", 0x11: "association removed", 0x13: "policy added"},
    **{0x14: "policy removed", 0x1C: "associations removed", 0x1D: "policies removed"},
}
KEPT: Final = 200  # changes that are kept; all are counted
IFLA_IFNAME, IFLA_MTU, TCA_KIND, RTA_OIF = 3, 4, 1, 4
FRAMES: Final = {1: "address", 13: "queue", 41: "gso_max_size", 58: "gro_max_size"}  # IFLA_*
IFF_UP: Final = 0x1


@dataclass(frozen=True)
class Change:
    """A change. `place` is "<node>/<interface>" or the node."""

    at_s: float  # CLOCK_REALTIME when it was read
    place: str
    what: str


Hear = Callable[[str, int, bytes], None]  # node, kind of message, its body


class Journal:
    """Listens in some namespaces."""

    def __init__(self, pids: Mapping[str, int | None]) -> None:
        """Listen from now on. `pids`: by node, a process in its namespace (None: this one). Raises
        NetworkError."""
        self.changes: list[Change] = []
        self.count = 0
        self.missed = 0  # how often the kernel had to drop changes
        self._open: list[tuple[str, socket.socket, Hear]] = []
        self._names: dict[str, dict[int, str]] = {}
        self._links: dict[tuple[str, int], tuple[int, bool, tuple[bytes, ...]]] = {}
        for node, pid in pids.items():
            one = netlink.open_socket(pid, netlink.NETLINK_ROUTE, GROUPS)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            self._open.append((node, one, self._hear))
            self._look_at_links(node, pid)
            self._listen(node, pid, (netlink.NETLINK_NETFILTER, (NFTABLES_GROUP,)), self._hear)
            self._listen(node, pid, (NETLINK_XFRM, IPSEC_GROUPS), self._hear_ipsec)

    def _listen(
        self, node: str, pid: int | None, to: tuple[int, tuple[int, ...]], hear: Hear
    ) -> None:
        """Listen to a subsystem that the kernel may lack: nf_tables, IPsec."""
        with contextlib.suppress(NetworkError):
            self._open.append((node, netlink.open_socket(pid, *to), hear))

    def _look_at_links(self, node: str, pid: int | None) -> None:
        self._names[node] = {}
        with netlink.open_socket(pid, netlink.NETLINK_ROUTE) as one:
            for body in netlink.dump(one, netlink.RTM_GETLINK, bytes(16)):
                self._link(node, body, heard=False)

    def look(self) -> None:
        """Read what the kernel reported since the last call."""
        for node, one, hear in self._open:
            while True:
                try:
                    data = one.recv(1 << 18, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno != errno.ENOBUFS:
                        raise
                    self.missed += 1
                    continue
                for kind, body in netlink.messages(data):
                    hear(node, kind, body)

    def _hear(self, node: str, kind: int, body: bytes) -> None:
        if kind >> 8 == NFTABLES:
            if (word := NFT_WORDS.get(kind & 0xFF)) is not None:
                self._note(node, f"firewall: {word}")
        elif kind in (netlink.RTM_NEWLINK, netlink.RTM_DELLINK):
            self._link(node, body, heard=True, gone=kind == netlink.RTM_DELLINK)
        elif kind in (netlink.RTM_NEWNEIGH, netlink.RTM_DELNEIGH):
            self._neighbour(node, kind, body)
        elif kind in TC_WORDS:
            _, index, handle, parent, _ = netlink.TC.unpack_from(body)
            values = dict(attributes(body[netlink.TC.size :]))
            name = text_of(values.get(TCA_KIND, b""))
            # The place is a qdisc's parent, or a class itself.
            where = handle_text(handle if "class" in TC_WORDS[kind] else parent)
            self._note(
                f"{node}/{self._name(node, index)}", TC_WORDS[kind].format(f"{name} {where}")
            )
        elif kind in ROUTE_WORDS:
            place = node
            if kind in (netlink.RTM_NEWROUTE, netlink.RTM_DELROUTE):
                value = dict(attributes(body[12:])).get(RTA_OIF)
                if value is not None:
                    place = f"{node}/{self._name(node, struct.unpack('=i', value)[0])}"
            self._note(place, ROUTE_WORDS[kind])

    def _hear_ipsec(self, node: str, kind: int, _body: bytes) -> None:
        if (word := IPSEC_WORDS.get(kind)) is not None:
            self._note(node, f"IPsec: {word}")

    def _neighbour(self, node: str, kind: int, body: bytes) -> None:
        """Ignore neighbours that are not fixed: they come and go."""
        index, state = struct.unpack_from("=4xiH", body)
        if body[0] == socket.AF_INET and state & NUD_PERMANENT:
            word = "added" if kind == netlink.RTM_NEWNEIGH else "removed"
            self._note(f"{node}/{self._name(node, index)}", f"fixed neighbour {word}")

    def _link(self, node: str, body: bytes, *, heard: bool, gone: bool = False) -> None:
        index, flags = struct.unpack_from("=4xiI", body)
        values = dict(attributes(body[16:]))
        name = text_of(values.get(IFLA_IFNAME, b""))
        mtu = struct.unpack("=I", values.get(IFLA_MTU, bytes(4)))[0]
        frames = tuple(values.get(number, b"") for number in FRAMES)
        now, before = (mtu, bool(flags & IFF_UP), frames), self._links.get((node, index))
        self._names[node][index] = name or self._name(node, index)
        place = f"{node}/{self._name(node, index)}"
        if gone:
            self._links.pop((node, index), None)
            self._note(place, "interface removed")
            return
        self._links[node, index] = now
        if not heard:
            return
        if before is None:
            self._note(place, "interface added")
        elif before[0] != mtu:
            self._note(place, f"MTU {before[0]} changed to {mtu}")
        elif before[1] != now[1]:
            self._note(place, "set up" if now[1] else "set down")
        else:
            changed = [
                name
                for name, one, other in zip(FRAMES.values(), before[2], frames, strict=True)
                if one != other
            ]
            if changed:
                self._note(place, f"{' and '.join(changed)} changed")

    def _name(self, node: str, index: int) -> str:
        return self._names[node].get(index, f"interface {index}")

    def _note(self, place: str, what: str) -> None:
        self.count += 1
        if len(self.changes) < KEPT:
            self.changes.append(Change(time.time(), place, what))

    def close(self) -> list[Change]:
        """Stop listening; return the first changes."""
        self.look()
        for _, one, _ in self._open:
            one.close()
        self._open.clear()
        return self.changes
