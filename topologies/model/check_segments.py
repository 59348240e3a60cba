# SPDX-License-Identifier: Apache-2.0
"""Check the segments and the control network of a topology file."""

from __future__ import annotations

from common.nearest import did_you_mean
from topologies.model.checks import Checks, one_of
from topologies.model.document import Place
from topologies.model.spec import (
    RouterSpec,
)


class SegmentChecks(Checks):
    """Check the section `segments`: a VLAN over one link."""

    def segments(self) -> None:
        vlans: dict[tuple[frozenset[str], int], str] = {}
        link_of = {frozenset({link.a, link.b}): link for link in self.spec.links}
        linked_pairs = self._linked_pairs()
        for name, segment in self.spec.segments.items():
            place: Place = ("segments", name)
            through_ok = self.is_switch(
                (*place, "through"),
                "through",
                segment.through,
                self.static,
                "a switch of a static domain",
            )
            to_ok = self.is_switch(
                (*place, "to"),
                "to",
                segment.to,
                self.controlled,
                "a switch of a controller domain",
            )
            pair = frozenset({segment.through, segment.to})
            link = link_of.get(pair)
            title = f"{segment.through}:{segment.to}"
            if through_ok and to_ok and pair not in linked_pairs:
                others = {s for p in linked_pairs if segment.through in p for s in p}
                others &= self.controlled
                valid = f"a linked switch: {one_of(others, 'none')}"
                found = f"to: {segment.to}, which has no link with '{segment.through}'"
                self.error((*place, "to"), found, valid)
            if link is not None and not link.vlan_range[0] <= segment.vlan <= link.vlan_range[1]:
                valid = f"the range of link {title}, {link.vlan_range[0]} to {link.vlan_range[1]}"
                self.error((*place, "vlan"), f"vlan: {segment.vlan}", valid)
            if (pair, segment.vlan) in vlans:
                found = f"vlan: {segment.vlan} twice on link {title}"
                valid = f"another id than segment '{vlans[pair, segment.vlan]}' has"
                self.error((*place, "vlan"), found, valid)
            vlans.setdefault((pair, segment.vlan), name)

    def _linked_pairs(self) -> set[frozenset[str]]:
        links = self.document.data.get("links", [])
        return {frozenset({str(k.get("a")), str(k.get("b"))}) for k in links if isinstance(k, dict)}


class ControlNetworkChecks(Checks):
    """Check the section `control_network`: its router and its subnet."""

    def control_network(self) -> None:
        if ("control_network",) in self.document.left_out:
            return
        control = self.spec.control_network
        place: Place = ("control_network",)
        routers = {n for n, node in self.spec.nodes.items() if isinstance(node, RouterSpec)}
        if control.router not in routers:
            valid = "a router: " + one_of(routers, "a node with kind: router")
            if control.router not in self.declared_nodes:
                found = f"router: {control.router}, which is not declared"
                self.error((*place, "router"), found, valid + did_you_mean(control.router, routers))
            elif kind := self.kind(control.router):
                found = f"router: {control.router}, which is {kind}"
                self.error((*place, "router"), found, valid)
        for name in routers - {control.router} if control.router in routers else ():
            found = f"router '{name}', which control_network does not use"
            self.error(("nodes", name), found, "one router, named in control_network")
        if control.subnet.overlaps(self.spec.addresses.path_subnet):
            found = f"subnet: {control.subnet}, which overlaps path_subnet"
            valid = f"a subnet apart from {self.spec.addresses.path_subnet}"
            self.error((*place, "subnet"), found, valid)
