# SPDX-License-Identifier: Apache-2.0
"""Cut and restore switches' power, and take down the links of a switch without power."""

from __future__ import annotations

from collections.abc import Callable, Collection

from common.shell import NetworkError, check
from topologies.emulate.faults import Links
from topologies.model.network import Network


class SwitchPower:
    """Knows which switches are off, and which links each of them keeps down."""

    def __init__(self, network: Network, links: Links) -> None:
        self._network = network
        self._links = links
        self._dark: dict[str, list[str]] = {}  # switch -> its links that went down with it

    @property
    def off(self) -> Collection[str]:
        """Return the switches without power."""
        return self._dark.keys()

    def stop(self, name: str) -> None:
        """Cut the switch's power: its links go down, and all its state is lost. Raises
        NetworkError."""
        if name not in {s.name for s in self._network.switches}:
            valid = ", ".join(s.name for s in self._network.switches)
            raise NetworkError(f"found switch '{name}'; valid: {valid}")
        if name in self._dark:
            raise NetworkError(f"switch '{name}' is already off")
        dark = [k for k in self._links.links_of(name) if k not in self._links.broken]
        for link in dark:
            self._links.cut(link)
        check(["ovs-vsctl", "del-br", name])
        self._dark[name] = dark

    def start(self, name: str, power_up: Callable[[], None]) -> None:
        """Restore the switch's power: `power_up` recreates the switch, then its links come up,
        except those whose other switch is off. Raises NetworkError."""
        if name not in self._dark:
            raise NetworkError(
                f"switch '{name}' is not off; off: {', '.join(self._dark) or 'none'}"
            )
        dark = self._dark.pop(name)
        power_up()
        for link in dark:
            if not self._held_dark(link):
                self._links.mend(link)

    def _held_dark(self, link: str) -> bool:
        """Return whether a switch at one of the link's ends is off; that switch then keeps the link
        down."""
        ends = next({k.a.node, k.b.node} for k in self._network.links if k.name == link)
        off = next((switch for switch in self._dark if switch in ends), None)
        if off is not None and link not in self._dark[off]:
            self._dark[off].append(link)
        return off is not None
