# SPDX-License-Identifier: Apache-2.0
"""Check parameters, names, nodes and host families of a topology file."""

from __future__ import annotations

from collections.abc import Mapping

from common.nearest import did_you_mean
from topologies.model.check_links import ImpairmentChecks
from topologies.model.checks import Checks, one_of
from topologies.model.document import Place
from topologies.model.expand import monitor_of
from topologies.model.network import (
    Role,
)
from topologies.model.spec import (
    NAME_VALID,
    HostSpec,
    ParameterSpec,
    SwitchSpec,
    is_name,
)

RESERVED_NAMES = frozenset({"wire", "lo"})  # the relay's namespace, the loopback interface


class ParameterChecks(Checks):
    """Check the section `parameters`, and the values given for a run."""

    def parameters(self, given: Mapping[str, int | str]) -> dict[str, int]:
        known = self.spec.parameters
        counts: dict[str, int] = {}
        for name, parameter in known.items():
            place: Place = ("parameters", name)
            if parameter.min > parameter.max:
                self.error(
                    (*place, "min"), f"min: {parameter.min}", f"at most max, {parameter.max}"
                )
            elif not parameter.min <= parameter.default <= parameter.max:
                span = f"{parameter.min} to {parameter.max}"
                self.error((*place, "default"), f"default: {parameter.default}", span)
            counts[name] = self._count(place, name, parameter, given)
        for name in given:
            if name not in self.declared("parameters"):
                valid = one_of(known, "no parameter") + did_you_mean(name, known)
                self.error(("parameters",), f"parameter '{name}'", valid)
        return counts

    def _count(
        self, place: Place, name: str, parameter: ParameterSpec, given: Mapping[str, int | str]
    ) -> int:
        value = given.get(name, parameter.default)
        span = f"{parameter.min} to {parameter.max}"
        if isinstance(value, str):
            if not (value.isascii() and value.isdigit() and len(value) <= 9):
                self.error(place, f"{name}={value}", f"a whole number, {span}")
                return parameter.default
            value = int(value)
        if name in given and not parameter.min <= value <= parameter.max:
            self.error(place, f"{name}={value}", span)
            return parameter.default
        return value


class NodeChecks(ImpairmentChecks):
    """Check the names of all sections, `nodes`, and `host_families`."""

    def names(self) -> None:
        if ("name",) not in self.document.left_out and not is_name(self.spec.name):
            self.error(("name",), f"name: {self.spec.name}", NAME_VALID)
        places: list[Place] = [
            (section, name)
            for section in ("domains", "nodes", "host_families", "segments", "parameters")
            for name in self.declared(section)
        ]
        for place in places:
            section, name = str(place[0]), str(place[1])
            what = {"domains": "domain", "nodes": "node", "segments": "segment"}.get(section)
            if what is None:
                continue
            if not is_name(name):
                found = f"{what} name '{name}' ({len(name)} characters)"
                self.error(place, found, NAME_VALID)
            elif section == "nodes" and name in RESERVED_NAMES:
                self.error(place, f"node name '{name}'", "a name that Downpour does not use itself")

    def nodes(self) -> None:
        publishers: list[str] = []
        for name, node in self.spec.nodes.items():
            place: Place = ("nodes", name)
            if isinstance(node, SwitchSpec):
                if node.domain not in self.declared_domains:
                    valid = one_of(self.declared_domains, "a declared domain")
                    hint = did_you_mean(node.domain, self.declared_domains)
                    self.error(
                        (*place, "domain"),
                        f"domain: {node.domain}, which is not declared",
                        valid + hint,
                    )
                self._coordinates(place, node)
            elif isinstance(node, HostSpec):
                if node.role is Role.PUBLISHER:
                    publishers.append(name)
                self._attachment(name, node)
                if node.site is not None and not is_name(node.site):
                    self.error((*place, "site"), f"site: {node.site}", NAME_VALID)
                self.impairment(node.access, (*place, "access"), f"access of {name}")
        for name in publishers[1:]:
            found = f"a second publisher '{name}' (the first is '{publishers[0]}')"
            self.error(("nodes", name), found, "one host with role: publisher")
        # The publisher may be a host whose block has a mistake.
        complete = self.declared_nodes == set(self.spec.nodes)
        if not publishers and complete:
            self.error(("nodes",), "no publisher", "one host with role: publisher")
        self._one_switch_per_static_domain()

    def _attachment(self, name: str, node: HostSpec) -> None:
        place: Place = ("nodes", name)
        if node.role is Role.MONITOR:
            for key in ("attached_to", "access"):
                if getattr(node, key) is not None:
                    found = f"{key} of a monitor"
                    self.error((*place, key), found, "a monitor on the control network alone")
            first = monitor_of(self.spec)
            if first is not None and first[0] != name:
                found = f"a second monitor '{name}' (the first is '{first[0]}')"
                self.error(place, found, "at most one host with role: monitor")
        elif node.attached_to is not None:
            self.is_switch(
                (*place, "attached_to"),
                "attached_to",
                node.attached_to,
                self.static,
                "a switch of a static domain",
            )
        elif (*place, "attached_to") not in self.document.left_out:
            valid = "attached_to: switch of a static domain; makes the link"
            self.error(place, f"no 'attached_to' in nodes.{name}", valid)

    def _coordinates(self, place: Place, node: SwitchSpec) -> None:
        for given, other in (("lat", "lon"), ("lon", "lat")):
            alone = getattr(node, given) is not None and getattr(node, other) is None
            if alone and (*place, other) not in self.document.left_out:
                self.error((*place, given), f"{given} without {other}", "both, or none")

    def _one_switch_per_static_domain(self) -> None:
        first: dict[str, str] = {}
        for name, node in self.spec.nodes.items():
            if name in self.static and isinstance(node, SwitchSpec):
                if node.domain in first:
                    found = f"a second switch '{name}' in static domain '{node.domain}'"
                    valid = f"one switch in a static domain, here '{first[node.domain]}'"
                    self.error(("nodes", name), found, valid)
                else:
                    first[node.domain] = name

    def families(self) -> None:
        lanes = self.spec.addresses.lanes
        if isinstance(lanes, str) and lanes not in self.declared("parameters"):
            known = self.declared("parameters")
            hint = did_you_mean(lanes, known)
            valid = f"a whole number or a parameter: {one_of(known, 'none declared')}{hint}"
            self.error(("addresses", "lanes"), f"lanes: {lanes}", valid)
        for name, family in self.spec.host_families.items():
            place: Place = ("host_families", name)
            if isinstance(family.count, str) and family.count not in self.declared("parameters"):
                known = self.declared("parameters")
                valid = "a whole number or a parameter: " + one_of(known, "none declared")
                hint = did_you_mean(family.count, known)
                self.error((*place, "count"), f"count: {family.count}", valid + hint)
            for i, switch in enumerate(family.spread_over):
                self.is_switch(
                    (*place, "spread_over", i),
                    "spread_over",
                    switch,
                    self.static,
                    "a switch of a static domain",
                )
                if switch in family.spread_over[:i]:
                    found = f"'{switch}' again in spread_over"
                    self.error((*place, "spread_over", i), found, "each switch once")
            self.impairment(family.access, (*place, "access"), f"access of {name}")
