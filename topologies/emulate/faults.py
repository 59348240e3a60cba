# SPDX-License-Identifier: Apache-2.0
"""Faults of a running network: break a link, and repair it.

How a link breaks depends on how it was made, and on what is to notice:

    made of            broken (the ports see it)         silent (only traffic shows it)
    wire (impaired)    both interfaces in `wire` down:   both drop what they are to send
                       both nodes lose the carrier
    veth pair          one end down                      both ends drop what they are to send
    patch ports        both ports removed                each port gets a peer that does not exist

Planning is pure; `Links` runs the commands and reads back what they did.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from common.shell import NetworkError, check, in_node
from topologies.model.network import Link, Network
from topologies.model.wire_plan import WIRE, WirePlan

# Matches any frame: classic BPF that returns TC_ACT_SHOT. Also works without act_gact.
DROP_ALL: Final = ("bpf", "da", "bytecode", "1,6 0 0 2")
DROP_PREFERENCE: Final = 7  # of the filter; the wires' own filters are at ingress
NOWHERE: Final = "cut"  # a peer that no patch port has


class Made(StrEnum):
    """The implementation of a link."""

    WIRE = "wire"
    VETH = "veth"
    PATCH = "patch"


@dataclass(frozen=True)
class End:
    """An interface that is set down or made to drop. `node` "": the run's own namespace."""

    node: str
    interface: str


@dataclass(frozen=True)
class Cuttable:
    """A link, for breaking it. `ends`: the interfaces that carry it (patch ports: none)."""

    link: Link
    made: Made
    ends: tuple[End, ...]


def cuttable(network: Network, wire: WirePlan, datapath: str, name: str) -> Cuttable:
    """Return the link called `name` ("a:b"). Raises NetworkError, which names all links."""
    link = next((k for k in network.links if k.name == name), None)
    if link is None:
        raise NetworkError(
            f"found link '{name}'; valid: {', '.join(k.name for k in network.links)}"
        )
    switches = {s.name for s in network.switches}
    wired = next((w for w in wire.links if w.link.name == name), None)
    if wired is not None:
        ends = (End(WIRE, wired.a_interface), End(WIRE, wired.b_interface))
        return Cuttable(link, Made.WIRE, ends)
    if link.a.node in switches and link.b.node in switches and datapath == "user":
        return Cuttable(link, Made.PATCH, ())
    # A switch's end first: a host whose interface goes down loses its routes.
    ports = sorted((link.a, link.b), key=lambda port: port.node not in switches)
    return Cuttable(
        link,
        Made.VETH,
        tuple(End("" if p.node in switches else p.node, p.interface) for p in ports),
    )


def patch_peers(link: Link, *, silent: bool) -> list[str]:
    """Return the arguments of ovs-vsctl that break a link of patch ports."""
    words: list[str] = []
    for port in (link.a, link.b):
        if silent:
            words += ["--", "set", "Interface", port.interface, f"options:peer={NOWHERE}"]
        else:
            words += ["--", "--if-exists", "del-port", port.node, port.interface]
    return words


def patch_restored(link: Link) -> list[str]:
    """Return the arguments of ovs-vsctl that repair the link, however it was broken."""
    words: list[str] = []
    for port, peer in ((link.a, link.b), (link.b, link.a)):
        words += ["--", "--may-exist", "add-port", port.node, port.interface]
        words += ["--", "set", "Interface", port.interface, "type=patch"]
        words += [f"options:peer={peer.interface}", f"ofport_request={port.number}"]
    return words


class Links:
    """Breaks and repairs the links of a running network."""

    def __init__(self, network: Network, wire: WirePlan, datapath: str) -> None:
        self._network = network
        self._wire = wire
        self._datapath = datapath
        self.pids: Mapping[str, int] = {}
        self._broken: dict[str, bool] = {}  # link -> silent

    @property
    def broken(self) -> tuple[str, ...]:
        """Return the links that are cut."""
        return tuple(self._broken)

    def break_again(self, switch: str) -> None:
        """Cut a recreated switch's patch ports again if their links are cut."""
        for name in self.links_of(switch):
            if name in self._broken and self.made(name) is Made.PATCH:
                silent = self._broken.pop(name)
                self.cut(name, silent=silent)

    def cut(self, name: str, *, silent: bool = False) -> None:
        """Break a link. Raises NetworkError: no such link, already broken, or the kernel
        refused."""
        found = self._found(name)
        if name in self._broken:
            raise NetworkError(f"link '{name}' is already cut")
        if found.made is Made.PATCH:
            check(["ovs-vsctl", *patch_peers(found.link, silent=silent)[1:]])
        elif silent:
            for end in found.ends:
                self._drop(end)
        else:
            for end in found.ends[: 2 if found.made is Made.WIRE else 1]:
                self._set(end, up=False)
        self._broken[name] = silent

    def mend(self, name: str) -> None:
        """Repair a link. Raises NetworkError: no such link, not cut, or the kernel refused."""
        found = self._found(name)
        if name not in self._broken:
            raise NetworkError(
                f"link '{name}' is not cut; cut: {', '.join(self._broken) or 'none'}"
            )
        if found.made is Made.PATCH:
            check(["ovs-vsctl", *patch_restored(found.link)[1:]])
        elif self._broken[name]:
            for end in found.ends:
                self._pass(end)
        else:
            for end in found.ends[: 2 if found.made is Made.WIRE else 1]:
                self._set(end, up=True)
        del self._broken[name]

    def links_of(self, switch: str) -> tuple[str, ...]:
        """Return the links at a switch."""
        return tuple(k.name for k in self._network.links if switch in (k.a.node, k.b.node))

    def made(self, name: str) -> Made:
        return self._found(name).made

    def _found(self, name: str) -> Cuttable:
        return cuttable(self._network, self._wire, self._datapath, name)

    def _run(self, end: End, argv: list[str]) -> str:
        return check(in_node(self.pids[end.node], argv) if end.node else argv)

    def _set(self, end: End, *, up: bool) -> None:
        wanted = "up" if up else "down"
        self._run(end, ["ip", "link", "set", "dev", end.interface, wanted])
        (found,) = json.loads(self._run(end, ["ip", "-j", "link", "show", "dev", end.interface]))
        if ("UP" in found["flags"]) is not up:
            raise NetworkError(
                f"{end.node} {end.interface}: asked {wanted}; found {found['flags']}"
            )

    def _drop(self, end: End) -> None:
        qdiscs = json.loads(
            self._run(end, ["tc", "-j", "qdisc", "show", "dev", end.interface]) or "[]"
        )
        if not any(q["kind"] == "clsact" for q in qdiscs):
            self._run(end, ["tc", "qdisc", "add", "dev", end.interface, "clsact"])
        argv = ["tc", "filter", "add", "dev", end.interface, "egress", "protocol", "all"]
        self._run(end, [*argv, "pref", str(DROP_PREFERENCE), *DROP_ALL])
        self._check_drop(end, dropping=True)

    def _pass(self, end: End) -> None:
        argv = ["tc", "filter", "del", "dev", end.interface, "egress"]
        self._run(end, [*argv, "pref", str(DROP_PREFERENCE)])
        self._check_drop(end, dropping=False)

    def _check_drop(self, end: End, *, dropping: bool) -> None:
        text = self._run(end, ["tc", "-j", "filter", "show", "dev", end.interface, "egress"])
        found = any(f.get("pref") == DROP_PREFERENCE for f in json.loads(text or "[]"))
        if found is not dropping:
            asked = "a filter that drops" if dropping else "none"
            raise NetworkError(f"{end.node} {end.interface}: asked {asked} at egress; found {text}")
