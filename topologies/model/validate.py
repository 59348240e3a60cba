# SPDX-License-Identifier: Apache-2.0
"""Checks a topology file and reports every mistake at once.

First each block by itself (`shape.py`, by the models of `spec.py`), then what must hold between
blocks. A block with a mistake is left out of the second step, so that one mistake is not reported
twice; what follows from the whole (reachability) is only checked when nothing else is wrong.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping

from common.quantities import format_rate, format_size
from topologies.model.document import Document, Place, TopologyErrors
from topologies.model.expand import (
    MIN_QUEUE_BYTES,
    PlannedHost,
    bandwidth_delay_product,
    directions,
    impairments,
    lane_count,
    lane_group,
    lane_subnet,
    lane_vlan,
    plan_hosts,
)
from topologies.model.network import (
    ControlledBy,
    Domain,
    Link,
    Port,
    Role,
    Switch,
)
from topologies.model.paths import controlled_switches, domain_tree
from topologies.model.shape import parse_shape
from topologies.model.spec import (
    NAME_VALID,
    AccessSpec,
    HostSpec,
    LinkSpec,
    ParameterSpec,
    RouterSpec,
    SwitchSpec,
    TopologySpec,
    is_name,
)

MAX_HOSTS = 200
MAX_LANES = 8  # the interface of the eighth is <host>-nic9, and interface names have 15 characters
RESERVED_NAMES = frozenset({"wire", "lo"})  # the relay's namespace, the loopback interface


def validate(
    document: Document, parameters: Mapping[str, int | str]
) -> tuple[TopologySpec, dict[str, int]]:
    """The checked file and the value of each parameter. Raises TopologyErrors."""
    spec = parse_shape(document)
    whole = not document.errors
    counts: dict[str, int] = {}
    if spec is not None:
        checks = _Checks(document, spec)
        counts = checks.parameters(parameters)
        checks.names()
        checks.nodes()
        checks.links()
        checks.families()
        checks.segments()
        checks.control_network()
        whole = whole and not document.errors
        if whole:
            checks.hosts(counts)
            if not document.errors:
                _check_reachable(document, spec, plan_hosts(spec, counts))
    if document.errors or spec is None:
        raise TopologyErrors(document.errors)
    return spec, counts


def suggest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def one_of(names: Iterable[str], nothing: str) -> str:
    """The names as a list for an error text, or `nothing` if there are none."""
    listed = sorted(names)
    shown = ", ".join(listed[:12]) + (", ..." if len(listed) > 12 else "")
    return shown or nothing


class _Checks:
    def __init__(self, document: Document, spec: TopologySpec) -> None:
        self.document = document
        self.spec = spec
        # Declared names, also of blocks that were left out because of a mistake.
        self.declared_nodes = self._declared("nodes")
        self.declared_domains = self._declared("domains")
        self.static = self._switches(ControlledBy.STATIC)
        self.controlled = self._switches(ControlledBy.CONTROLLER)

    def _declared(self, section: str) -> set[str]:
        return {str(p[1]) for p in self.document.lines if len(p) == 2 and p[0] == section}

    def _switches(self, controlled_by: ControlledBy) -> set[str]:
        domains = {n for n, d in self.spec.domains.items() if d.controlled_by is controlled_by}
        return {
            name
            for name, node in self.spec.nodes.items()
            if isinstance(node, SwitchSpec) and node.domain in domains
        }

    def _error(self, place: Place, found: str, valid: str) -> None:
        self.document.report(place, found, valid)

    def _kind(self, name: str) -> str:
        """What the node is, for an error text; empty for a block with a mistake."""
        node = self.spec.nodes.get(name)
        if isinstance(node, SwitchSpec):
            domain = self.spec.domains.get(node.domain)
            return "" if domain is None else f"a switch of a {domain.controlled_by} domain"
        return "" if node is None else f"a {node.kind}"

    def _is_switch(self, place: Place, key: str, name: str, wanted: set[str], what: str) -> bool:
        """Checks that `name` is one of the switches `wanted` (`what` they are); reports."""
        if name in wanted:
            return True
        valid = f"{what}: {one_of(wanted, 'none declared')}"
        if name not in self.declared_nodes:
            found = f"{key}: {name}, which is not declared"
            self._error(place, found, valid + suggest(name, wanted))
        elif kind := self._kind(name):
            hint = " (hosts are linked by attached_to)" if place[0] == "links" else ""
            self._error(place, f"{key}: {name}, which is {kind}", valid + hint)
        return False

    # -- parameters ---------------------------------------------------------------------------
    def parameters(self, given: Mapping[str, int | str]) -> dict[str, int]:
        known = self.spec.parameters
        counts: dict[str, int] = {}
        for name, parameter in known.items():
            place: Place = ("parameters", name)
            if parameter.min > parameter.max:
                self._error(
                    (*place, "min"), f"min: {parameter.min}", f"at most max, {parameter.max}"
                )
            elif not parameter.min <= parameter.default <= parameter.max:
                span = f"{parameter.min} to {parameter.max}"
                self._error((*place, "default"), f"default: {parameter.default}", span)
            counts[name] = self._count(place, name, parameter, given)
        for name in given:
            if name not in self._declared("parameters"):
                valid = one_of(known, "no parameter") + suggest(name, known)
                self._error(("parameters",), f"parameter '{name}'", valid)
        return counts

    def _count(
        self, place: Place, name: str, parameter: ParameterSpec, given: Mapping[str, int | str]
    ) -> int:
        value = given.get(name, parameter.default)
        span = f"{parameter.min} to {parameter.max}"
        if isinstance(value, str):
            if not (value.isascii() and value.isdigit() and len(value) <= 9):
                self._error(place, f"{name}={value}", f"a whole number, {span}")
                return parameter.default
            value = int(value)
        if name in given and not parameter.min <= value <= parameter.max:
            self._error(place, f"{name}={value}", span)
            return parameter.default
        return value

    # -- names --------------------------------------------------------------------------------
    def names(self) -> None:
        if ("name",) not in self.document.left_out and not is_name(self.spec.name):
            self._error(("name",), f"name: {self.spec.name}", NAME_VALID)
        places: list[Place] = [
            (section, name)
            for section in ("domains", "nodes", "host_families", "segments", "parameters")
            for name in self._declared(section)
        ]
        for place in places:
            section, name = str(place[0]), str(place[1])
            what = {"domains": "domain", "nodes": "node", "segments": "segment"}.get(section)
            if what is None:
                continue
            if not is_name(name):
                found = f"{what} name '{name}' ({len(name)} characters)"
                self._error(place, found, NAME_VALID)
            elif section == "nodes" and name in RESERVED_NAMES:
                self._error(
                    place, f"node name '{name}'", "a name that Downpour does not use itself"
                )

    # -- nodes --------------------------------------------------------------------------------
    def nodes(self) -> None:
        publishers: list[str] = []
        for name, node in self.spec.nodes.items():
            place: Place = ("nodes", name)
            if isinstance(node, SwitchSpec):
                if node.domain not in self.declared_domains:
                    valid = one_of(self.declared_domains, "a declared domain")
                    hint = suggest(node.domain, self.declared_domains)
                    self._error(
                        (*place, "domain"),
                        f"domain: {node.domain}, which is not declared",
                        valid + hint,
                    )
            elif isinstance(node, HostSpec):
                if node.role is Role.PUBLISHER:
                    publishers.append(name)
                self._is_switch(
                    (*place, "attached_to"),
                    "attached_to",
                    node.attached_to,
                    self.static,
                    "a switch of a static domain",
                )
                if node.site is not None and not is_name(node.site):
                    self._error((*place, "site"), f"site: {node.site}", NAME_VALID)
                self._impairment(node.access, (*place, "access"), f"access of {name}")
        for name in publishers[1:]:
            found = f"a second publisher '{name}' (the first is '{publishers[0]}')"
            self._error(("nodes", name), found, "one host with role: publisher")
        # A host whose block has a mistake may be the publisher.
        complete = self.declared_nodes == set(self.spec.nodes)
        if not publishers and complete:
            self._error(("nodes",), "no publisher", "one host with role: publisher")
        self._one_switch_per_static_domain()

    def _one_switch_per_static_domain(self) -> None:
        first: dict[str, str] = {}
        for name, node in self.spec.nodes.items():
            if name in self.static and isinstance(node, SwitchSpec):
                if node.domain in first:
                    found = f"a second switch '{name}' in static domain '{node.domain}'"
                    valid = f"one switch in a static domain, here '{first[node.domain]}'"
                    self._error(("nodes", name), found, valid)
                else:
                    first[node.domain] = name

    # -- links --------------------------------------------------------------------------------
    def links(self) -> None:
        linked = self._linked_names()
        for name, node in self.spec.nodes.items():
            if isinstance(node, SwitchSpec) and name not in linked:
                self._error(("nodes", name), f"switch '{name}' without a link", "a switch in links")
        seen: dict[frozenset[str], int] = {}
        for index, link in self._links():
            place: Place = ("links", index)
            ends_ok = all(
                self._is_switch(
                    (*place, key),
                    key,
                    getattr(link, key),
                    self.static | self.controlled,
                    "a switch",
                )
                for key in ("a", "b")
            )
            title = f"link {link.a}:{link.b}"
            pair = frozenset({link.a, link.b})
            if link.a == link.b:
                self._error(place, f"{title} from a switch to itself", "two switches")
            elif ends_ok and pair <= self.static:
                found = f"{title} between two static domains"
                self._error(place, found, "a link with an end in a controller domain")
            elif ends_ok and link.cost is not None and not pair <= self.controlled:
                found = f"cost: {link.cost:g} on {title}, an end of which is a static domain's"
                valid = "cost only between two controller switches, where paths have a choice"
                self._error((*place, "cost"), found, valid)
            if pair in seen:
                found = f"a second {title}"
                self._error(place, found, f"one link of two switches (line {seen[pair]})")
            seen.setdefault(pair, self.document.line(place))
            self._impairment(link, place, title)

    def _links(self) -> list[tuple[int, LinkSpec]]:
        """The links with their index in the file, which counts those left out."""
        given = self.document.data.get("links", [])
        kept = iter(self.spec.links)
        indices = [i for i in range(len(given)) if ("links", i) not in self.document.left_out]
        return list(zip(indices, kept, strict=True))

    def _linked_names(self) -> set[str]:
        names: set[str] = set()
        for link in self.document.data.get("links", []):
            if isinstance(link, dict):
                names.update(str(link.get(key)) for key in ("a", "b"))
        return names

    def _impairment(self, spec: LinkSpec | AccessSpec | None, place: Place, title: str) -> None:
        if spec is None:
            return
        asked = directions(spec)
        sides = ("a_to_b", "b_to_a") if isinstance(spec, LinkSpec) else ("from_host", "to_host")
        round_trip_ms = sum(direction.delay_ms or 0.0 for direction in asked)
        reported: set[tuple[str, str]] = set()
        for side, direction in zip(sides, asked, strict=True):

            def report(key: str, found: str, valid: str, side: str = side) -> None:
                if (key, found) not in reported:  # both directions of a symmetric link
                    reported.add((key, found))
                    own = (*place, side, key)
                    at = own if own in self.document.lines else (*place, key)
                    self._error(at, f"{found} on {title}", valid)

            delay, jitter = direction.delay_ms or 0.0, direction.jitter_ms or 0.0
            if jitter > delay:
                report("jitter_ms", f"jitter_ms: {jitter:g}", f"at most delay_ms, {delay:g}")
            rate, queue = direction.rate_bps, direction.queue_bytes
            if queue is not None and rate is None:
                found = f"queue_bytes: {format_size(queue)} without a rate"
                report("queue_bytes", found, "queue_bytes together with rate_bps")
            elif queue is not None and rate is not None:
                bdp = bandwidth_delay_product(rate, round_trip_ms)
                if queue < max(bdp, MIN_QUEUE_BYTES):
                    least = (
                        f"at least {bdp} (rate {format_rate(rate)} x round trip"
                        f" {round_trip_ms:g} ms)"
                        if bdp > MIN_QUEUE_BYTES
                        else f"at least {MIN_QUEUE_BYTES} (one full frame)"
                    )
                    report("queue_bytes", f"queue_bytes: {format_size(queue)}", least)

    # -- host families ------------------------------------------------------------------------
    def families(self) -> None:
        lanes = self.spec.addresses.lanes
        if isinstance(lanes, str) and lanes not in self._declared("parameters"):
            known = self._declared("parameters")
            valid = "a whole number or a parameter: " + one_of(known, "none declared")
            self._error(("addresses", "lanes"), f"lanes: {lanes}", valid + suggest(lanes, known))
        for name, family in self.spec.host_families.items():
            place: Place = ("host_families", name)
            if isinstance(family.count, str) and family.count not in self._declared("parameters"):
                known = self._declared("parameters")
                valid = "a whole number or a parameter: " + one_of(known, "none declared")
                hint = suggest(family.count, known)
                self._error((*place, "count"), f"count: {family.count}", valid + hint)
            for i, switch in enumerate(family.spread_over):
                self._is_switch(
                    (*place, "spread_over", i),
                    "spread_over",
                    switch,
                    self.static,
                    "a switch of a static domain",
                )
                if switch in family.spread_over[:i]:
                    found = f"'{switch}' again in spread_over"
                    self._error((*place, "spread_over", i), found, "each switch once")
            self._impairment(family.access, (*place, "access"), f"access of {name}")

    # -- segments -----------------------------------------------------------------------------
    def segments(self) -> None:
        vlans: dict[tuple[frozenset[str], int], str] = {}
        link_of = {frozenset({link.a, link.b}): link for link in self.spec.links}
        linked_pairs = self._linked_pairs()
        for name, segment in self.spec.segments.items():
            place: Place = ("segments", name)
            through_ok = self._is_switch(
                (*place, "through"),
                "through",
                segment.through,
                self.static,
                "a switch of a static domain",
            )
            to_ok = self._is_switch(
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
                self._error((*place, "to"), found, valid)
            if link is not None and not link.vlan_range[0] <= segment.vlan <= link.vlan_range[1]:
                valid = f"the range of link {title}, {link.vlan_range[0]} to {link.vlan_range[1]}"
                self._error((*place, "vlan"), f"vlan: {segment.vlan}", valid)
            if (pair, segment.vlan) in vlans:
                found = f"vlan: {segment.vlan} twice on link {title}"
                valid = f"another id than segment '{vlans[pair, segment.vlan]}' has"
                self._error((*place, "vlan"), found, valid)
            vlans.setdefault((pair, segment.vlan), name)

    def _linked_pairs(self) -> set[frozenset[str]]:
        links = self.document.data.get("links", [])
        return {frozenset({str(k.get("a")), str(k.get("b"))}) for k in links if isinstance(k, dict)}

    # -- control network ----------------------------------------------------------------------
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
                self._error((*place, "router"), found, valid + suggest(control.router, routers))
            elif kind := self._kind(control.router):
                found = f"router: {control.router}, which is {kind}"
                self._error((*place, "router"), found, valid)
        for name in routers - {control.router} if control.router in routers else ():
            found = f"router '{name}', which control_network does not use"
            self._error(("nodes", name), found, "one router, named in control_network")
        if control.subnet.overlaps(self.spec.addresses.path_subnet):
            found = f"subnet: {control.subnet}, which overlaps path_subnet"
            valid = f"a subnet apart from {self.spec.addresses.path_subnet}"
            self._error((*place, "subnet"), found, valid)

    # -- hosts (only with nothing else wrong) -------------------------------------------------
    def hosts(self, counts: Mapping[str, int]) -> None:
        hosts = plan_hosts(self.spec, counts)
        used = {family.count for family in self.spec.host_families.values()}
        used.add(self.spec.addresses.lanes)
        for name in self.spec.parameters.keys() - used:
            valid = "a parameter that a host family has as count, or addresses as lanes"
            self._error(("parameters", name), f"parameter '{name}', which nothing uses", valid)
        self._host_names(hosts)
        self._host_addresses(hosts)
        self._lanes(lane_count(self.spec, counts))
        self._host_segments(hosts)
        self._host_sites(hosts)
        if not any(h.role is Role.SUBSCRIBER for h in hosts):
            self._error(
                ("nodes",), "no subscriber", "a host with role: subscriber, or host_families"
            )

    def _host_names(self, hosts: tuple[PlannedHost, ...]) -> None:
        taken = set(self.spec.nodes)
        for host in hosts:
            if host.place[0] != "host_families":
                continue
            if host.name in taken:
                found = f"host name '{host.name}' twice"
                self._error(host.place, found, "a name that no other node has")
            elif not is_name(host.name):
                found = f"host name '{host.name}' ({len(host.name)} characters)"
                self._error(host.place, found, NAME_VALID)
            taken.add(host.name)

    def _host_addresses(self, hosts: tuple[PlannedHost, ...]) -> None:
        path, control = self.spec.addresses.path_subnet, self.spec.control_network.subnet
        if len(hosts) > MAX_HOSTS:
            self._error(("host_families",), f"{len(hosts)} hosts", f"at most {MAX_HOSTS}")
        if len(hosts) > path.num_addresses - 2:
            found = f"path_subnet: {path} for {len(hosts)} hosts"
            self._error(("addresses", "path_subnet"), found, "a subnet with an address for each")
        if len(hosts) > control.num_addresses // 4:
            found = f"subnet: {control} for {len(hosts)} hosts"
            self._error(("control_network", "subnet"), found, "a subnet with a /30 for each")

    def _lanes(self, lanes: int) -> None:
        """Every lane must have a subnet, a group, and a VLAN id of each segment."""
        place: Place = ("addresses", "lanes")
        if not 1 <= lanes <= MAX_LANES:
            self._error(place, f"{lanes} lanes", f"1 to {MAX_LANES}")
            return
        control = self.spec.control_network.subnet
        for lane in range(2, lanes + 1):
            try:
                subnet = lane_subnet(self.spec, lane)
                group = lane_group(self.spec, lane)
            except ValueError:  # beyond 255.255.255.255
                self._error(place, f"{lanes} lanes", "as many as there are addresses behind")
                return
            if subnet.overlaps(control):
                found = f"{lanes} lanes: {subnet} of lane {lane} overlaps the control network's"
                self._error(place, found, f"a path_subnet with {lanes} free ones from it on")
            if not group.is_multicast:
                found = f"{lanes} lanes: {group} of lane {lane} is no group"
                self._error(place, found, "a multicast_group with free ones behind it")
        self._lane_vlans(lanes)

    def _lane_vlans(self, lanes: int) -> None:
        link_of = {frozenset({link.a, link.b}): link for link in self.spec.links}
        taken = {
            (frozenset({s.through, s.to}), s.vlan): name for name, s in self.spec.segments.items()
        }
        for name, segment in self.spec.segments.items():
            pair = frozenset({segment.through, segment.to})
            last = link_of[pair].vlan_range[1]
            title = f"{segment.through}:{segment.to}"
            for lane in range(2, lanes + 1):
                vlan = lane_vlan(segment.vlan, lane)
                other = taken.setdefault((pair, vlan), name)
                if vlan > last or other != name:
                    found = f"vlan: {segment.vlan} with {lanes} lanes, which takes {vlan}"
                    why = (
                        f"an id with {lanes - 1} more up to {last}, the last of link {title}"
                        if vlan > last
                        else f"{lanes} ids that segment '{other}' does not have"
                    )
                    self._error(("segments", name, "vlan"), found, why)
                    break

    def _host_segments(self, hosts: tuple[PlannedHost, ...]) -> None:
        at_switch: dict[str, set[str]] = defaultdict(set)
        for host in hosts:
            at_switch[host.switch].add(host.name)
        members: dict[str, list[str]] = defaultdict(list)
        for name, segment in self.spec.segments.items():
            present = at_switch[segment.through]
            for i, host_name in enumerate(segment.hosts or ()):
                if host_name in present:
                    members[host_name].append(name)
                else:
                    found = f"host '{host_name}', which is not attached to '{segment.through}'"
                    place: Place = ("segments", name, "hosts", i)
                    hint = suggest(host_name, present)
                    self._error(place, found, one_of(present, "no host is") + hint)
            for host_name in present if segment.hosts is None else ():
                members[host_name].append(name)
        for host in hosts:
            segments = members[host.name]
            if not segments:
                found = f"host '{host.name}' in no segment, so it cannot reach the publisher"
                self._error(host.place, found, f"a segment through '{host.switch}'")
            elif len(segments) > 1:
                found = f"host '{host.name}' in segments {' and '.join(sorted(segments))}"
                self._error(host.place, found, "one segment for each host")

    def _host_sites(self, hosts: tuple[PlannedHost, ...]) -> None:
        delays = self.spec.control_network.delay_ms
        if isinstance(delays, str):
            return
        place: Place = ("control_network", "delay_ms")
        sites = {host.site for host in hosts}
        static = {n for n, d in self.spec.domains.items() if d.controlled_by is ControlledBy.STATIC}
        for site in sorted(sites - set(delays)):
            self._error(place, f"no delay for site '{site}'", f"{site}: milliseconds")
        for site in delays.keys() - sites - static:
            valid = one_of(sites, "none") + suggest(site, sites)
            self._error((*place, site), f"site '{site}', where no host stands", valid)


def _check_reachable(
    document: Document, spec: TopologySpec, hosts: tuple[PlannedHost, ...]
) -> None:
    """Each subscriber must have a path to the publisher through controller domains."""
    end_of_edge = {segment.through: segment.to for segment in spec.segments.values()}
    domains = tuple(Domain(name, d.controlled_by) for name, d in spec.domains.items())
    switches = [
        Switch(name, node.domain, 0)
        for name, node in spec.nodes.items()
        if isinstance(node, SwitchSpec)
    ]
    links = [
        Link(f"{k.a}:{k.b}", _end(k.a), _end(k.b), *impairments(k), k.vlan_range, k.cost)
        for k in spec.links
    ]
    publisher = next(h for h in hosts if h.role is Role.PUBLISHER)
    start = end_of_edge[publisher.switch]
    reached = {start, *domain_tree(links, controlled_switches(domains, switches), start)}
    for host in hosts:
        if end_of_edge[host.switch] not in reached:
            found = f"host '{host.name}', which cannot reach publisher '{publisher.name}'"
            valid = (
                f"links from '{start}' to '{end_of_edge[host.switch]}' through controller domains, "
                "each entered once"
            )
            document.report(host.place, found, valid)


def _end(switch: str) -> Port:
    """A link's end as far as reachability asks for it."""
    return Port(switch, 0, "", "")
