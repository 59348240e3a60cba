# SPDX-License-Identifier: Apache-2.0
"""Check the hosts that a topology file describes, once nothing else is wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from common.counting import counted
from common.nearest import did_you_mean
from topologies.model.checks import Checks, one_of
from topologies.model.document import Document, Place
from topologies.model.expand import (
    PlannedHost,
    impairments,
    lane_count,
    lane_group,
    lane_subnet,
    lane_vlan,
    monitor_of,
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
from topologies.model.spec import (
    NAME_VALID,
    SwitchSpec,
    TopologySpec,
    is_name,
)

MAX_HOSTS = 1000
MAX_LANES = 31
MAX_INTERFACE_NAME = 15  # characters; a host's NIC of its last lane is <host>-nic<lanes + 1>


class HostChecks(Checks):
    """Check the names, addresses, lanes, segments and sites of the planned hosts."""

    def hosts(self, counts: Mapping[str, int]) -> None:
        hosts = plan_hosts(self.spec, counts)
        used = {family.count for family in self.spec.host_families.values()}
        used.add(self.spec.addresses.lanes)
        for name in self.spec.parameters.keys() - used:
            valid = "a parameter that a host family has as count, or addresses as lanes"
            self.error(("parameters", name), f"parameter '{name}', which nothing uses", valid)
        self._host_names(hosts)
        self._host_addresses(hosts)
        self._lanes(lane_count(self.spec, counts), hosts)
        self._host_segments(hosts)
        self._host_sites(hosts)
        if not any(h.role is Role.SUBSCRIBER for h in hosts):
            self.error(
                ("nodes",), "no subscriber", "a host with role: subscriber, or host_families"
            )

    def _host_names(self, hosts: tuple[PlannedHost, ...]) -> None:
        taken = set(self.spec.nodes)
        for host in hosts:
            if host.place[0] != "host_families":
                continue
            if host.name in taken:
                found = f"host name '{host.name}' twice"
                self.error(host.place, found, "a name that no other node has")
            elif not is_name(host.name):
                found = f"host name '{host.name}' ({len(host.name)} characters)"
                self.error(host.place, found, NAME_VALID)
            taken.add(host.name)

    def _host_addresses(self, hosts: tuple[PlannedHost, ...]) -> None:
        path, control = self.spec.addresses.path_subnet, self.spec.control_network.subnet
        if len(hosts) > MAX_HOSTS:
            self.error(("host_families",), f"{len(hosts)} hosts", f"at most {MAX_HOSTS}")
        if len(hosts) > path.num_addresses - 2:
            found = f"path_subnet: {path} for {counted(len(hosts), 'host')}"
            self.error(("addresses", "path_subnet"), found, "a subnet with an address for each")
        ends = len(hosts) + (monitor_of(self.spec) is not None)
        if ends > control.num_addresses // 4:
            found = f"subnet: {control} for {counted(ends, 'host')}"
            self.error(("control_network", "subnet"), found, "a subnet with a /30 for each")

    def _lanes(self, lanes: int, hosts: tuple[PlannedHost, ...]) -> None:
        """Check that every lane has valid NIC names, a subnet, a group, and a VLAN id for each
        segment."""
        place: Place = ("addresses", "lanes")
        if not 1 <= lanes <= MAX_LANES:
            self.error(place, f"{lanes} lanes", f"1 to {MAX_LANES}")
            return
        control = self.spec.control_network.subnet
        for lane in range(2, lanes + 1):
            try:
                subnet = lane_subnet(self.spec, lane)
                group = lane_group(self.spec, lane)
            except ValueError:  # beyond 255.255.255.255
                self.error(place, f"{lanes} lanes", "as many as there are addresses")
                return
            if subnet.overlaps(control):
                found = f"{lanes} lanes: {subnet} of lane {lane} overlaps the control network's"
                self.error(place, found, f"a path_subnet with {lanes} free ones from it on")
            if not group.is_multicast:
                found = f"{lanes} lanes: {group} of lane {lane} is not a multicast group"
                self.error(place, found, "a multicast_group with free ones after it")
        longest = MAX_INTERFACE_NAME - len(f"-nic{lanes + 1}")
        for name in (host.name for host in hosts if lanes > 1 and len(host.name) > longest):
            found = f"{lanes} lanes with a host name of {len(name)} characters, '{name}'"
            self.error(place, found, f"names of at most {longest} characters, or fewer lanes")
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
                        f"an id with {lanes - 1} more below {last + 1}, as link {title} ends there"
                        if vlan > last
                        else f"{lanes} ids that segment '{other}' does not have"
                    )
                    self.error(("segments", name, "vlan"), found, why)
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
                    hint = did_you_mean(host_name, present)
                    self.error(place, found, one_of(present, "no host is") + hint)
            for host_name in present if segment.hosts is None else ():
                members[host_name].append(name)
        for host in hosts:
            segments = members[host.name]
            if not segments:
                found = f"host '{host.name}' in no segment, so it cannot reach the publisher"
                self.error(host.place, found, f"a segment through '{host.switch}'")
            elif len(segments) > 1:
                found = f"host '{host.name}' in segments {' and '.join(sorted(segments))}"
                self.error(host.place, found, "one segment for each host")

    def _host_sites(self, hosts: tuple[PlannedHost, ...]) -> None:
        delays = self.spec.control_network.delay_ms
        sites = {host.site for host in hosts}
        monitor = monitor_of(self.spec)
        if monitor is not None and monitor[1].site not in (None, *sites):
            name, node = monitor
            found = f"site: {node.site} of monitor '{name}', where no other host is"
            valid = one_of(sites, "none") + did_you_mean(str(node.site), sites)
            self.error(("nodes", name, "site"), found, valid)
        if isinstance(delays, str):
            return
        place: Place = ("control_network", "delay_ms")
        static = {n for n, d in self.spec.domains.items() if d.controlled_by is ControlledBy.STATIC}
        for site in sorted(sites - set(delays)):
            self.error(place, f"no delay for site '{site}'", f"{site}: milliseconds")
        for site in delays.keys() - sites - static:
            valid = one_of(sites, "none") + did_you_mean(site, sites)
            self.error((*place, site), f"site '{site}', without a host", valid)


def check_reachable(document: Document, spec: TopologySpec, hosts: tuple[PlannedHost, ...]) -> None:
    """Check that each subscriber has a path to the publisher through controller domains."""
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
    """A link's end, with the fields that reachability needs."""
    return Port(switch, 0, "", "")
