# SPDX-License-Identifier: Apache-2.0
"""Subscribers' interfaces on the path that their ldmd makes with vlanutil, when the publisher has
assigned an address, and removes at its end (DRFSM21 2.2.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from common.counting import counted
from experiments.cells.cell_base import CellBase, CellError
from experiments.design import shaping
from experiments.design.shaping import Setting
from topologies.emulate import own_interfaces

NONE = "none"


def address_assigned(log: str) -> str:
    """Return the address with its prefix length from the last reply to a subscription; else
    "none"."""
    found: list[str] = re.findall(r" ifaceCidrAddr=(\S+)", log)
    return found[-1] if found else NONE


def made(log: str, interface: str) -> str:
    """Return the addresses, each once, with which ldmd's log says that vlanutil made an interface;
    else "none"."""
    lines = re.findall(rf" Interface {re.escape(interface)} made: (.*)", log)
    found = [word for line in lines for word in line.split() if re.fullmatch(r"[\d.]+/\d+", word)]
    return " ".join(dict.fromkeys(found)) or NONE


def removals(log: str, interface: str) -> str:
    """Return how often ldmd's log says that vlanutil removed an interface."""
    count = len(re.findall(rf" Interface {re.escape(interface)} removed", log))
    return counted(count, "time")


class OwnVlans:
    """The interfaces of a running cell."""

    def __init__(self, cell: CellBase, hosts: Sequence[str]) -> None:
        """`hosts`: the subscribers with multicast."""
        self._cell, self._hosts = cell, hosts

    def leave(self) -> None:
        """Remove the network's own interfaces, at all subscribers: an address that one of them
        still had could be assigned to another."""
        emulation = self._cell.emulation
        emulation.leave_interfaces([h.name for h in self._cell.network.subscribers])
        for host in self._hosts:
            kind, _ = self._found(host)
            self._note(Setting(f"{host} interface before its subscription", NONE, kind or NONE))

    def check_made(self) -> None:
        """Compare the interfaces with what the publisher assigned and what ldmd's log says it made.
        Raises CellError."""
        for host in self._hosts:
            address = address_assigned(self._log(host))
            by_ldmd = made(self._log(host), self._cell.emulation.nic1_of(host))
            self._note(Setting(f"{host} interface made by vlanutil", address, by_ldmd))
            self._cell.settings += self._cell.fidelity.read(partial(self._as_asked, host, address))
        self._cell.save_settings()
        if wrong := shaping.mismatches(self._cell.settings):
            raise CellError("the interfaces that ldmd made are not as asked: " + "; ".join(wrong))
        for host in self._hosts:
            self._cell.emulation.accept_interface(host, address_assigned(self._log(host)))

    def check_gone(self) -> None:
        """Note whether the interfaces were removed when their programs ended."""
        for host in self._hosts:
            removed = removals(self._log(host), self._cell.emulation.nic1_of(host))
            self._note(Setting(f"{host} interface removed by vlanutil", "1 time", removed))
            kind, _ = self._found(host)
            self._note(Setting(f"{host} interface after its end", NONE, kind or NONE))
        self._cell.save_settings()

    def _as_asked(self, host: str, address: str) -> list[Setting]:
        network = self._cell.network
        vlan = network.segment_of(host).vlan
        kind = own_interfaces.kind_of(self._cell.emulation.facts, vlan)
        found = " ".join(self._found(host))
        return [Setting(f"{host} interface", f"{kind} {address}", found)]

    def _found(self, host: str) -> tuple[str, str]:
        argv = ["ip", "-j", "-d", "-4", "address", "show", "dev"]
        argv.append(self._cell.emulation.nic1_of(host))
        return own_interfaces.found(self._cell.emulation.run(host, argv, check=False).stdout)

    def _log(self, host: str) -> str:
        return self._cell.log(host).read_text(errors="replace")

    def _note(self, setting: Setting) -> None:
        self._cell.settings.append(setting)
