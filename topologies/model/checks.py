# SPDX-License-Identifier: Apache-2.0
"""The base of all checks of a topology file: report a mistake, list the known names."""

from __future__ import annotations

from collections.abc import Iterable

from common.nearest import did_you_mean
from topologies.model.document import Document, Place
from topologies.model.network import ControlledBy
from topologies.model.spec import SwitchSpec, TopologySpec


def one_of(names: Iterable[str], nothing: str) -> str:
    """Return the names as a list for an error text, or `nothing` if there are none."""
    listed = sorted(names)
    shown = ", ".join(listed[:12]) + (", ..." if len(listed) > 12 else "")
    return shown or nothing


class Checks:
    """One group of checks; the subclasses' methods report mistakes to `document`."""

    def __init__(self, document: Document, spec: TopologySpec) -> None:
        self.document = document
        self.spec = spec
        # Declared names, including those of blocks that were left out for a mistake.
        self.declared_nodes = self.declared("nodes")
        self.declared_domains = self.declared("domains")
        self.static = self._switches(ControlledBy.STATIC)
        self.controlled = self._switches(ControlledBy.CONTROLLER)

    def declared(self, section: str) -> set[str]:
        return {str(p[1]) for p in self.document.lines if len(p) == 2 and p[0] == section}

    def _switches(self, controlled_by: ControlledBy) -> set[str]:
        domains = {n for n, d in self.spec.domains.items() if d.controlled_by is controlled_by}
        return {
            name
            for name, node in self.spec.nodes.items()
            if isinstance(node, SwitchSpec) and node.domain in domains
        }

    def error(self, place: Place, found: str, valid: str) -> None:
        self.document.report(place, found, valid)

    def kind(self, name: str) -> str:
        """Return the node's kind for an error text; empty for a block with a mistake."""
        node = self.spec.nodes.get(name)
        if isinstance(node, SwitchSpec):
            domain = self.spec.domains.get(node.domain)
            return "" if domain is None else f"a switch of a {domain.controlled_by} domain"
        return "" if node is None else f"a {node.kind}"

    def is_switch(self, place: Place, key: str, name: str, wanted: set[str], what: str) -> bool:
        """Check that `name` is one of the switches `wanted` (`what` describes them); report a
        mistake."""
        if name in wanted:
            return True
        valid = f"{what}: {one_of(wanted, 'none declared')}"
        if name not in self.declared_nodes:
            found = f"{key}: {name}, which is not declared"
            self.error(place, found, valid + did_you_mean(name, wanted))
        elif kind := self.kind(name):
            hint = " (hosts are linked by attached_to)" if place[0] == "links" else ""
            self.error(place, f"{key}: {name}, which is {kind}", valid + hint)
        return False
