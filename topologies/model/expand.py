# SPDX-License-Identifier: Apache-2.0
"""Expand a valid topology file and its parameters to a `Network`, in which every address and number
is explicit.

Pure and deterministic: the same file and parameters give the same network on every machine. Numbers
follow the order of the file. Interfaces: `<switch>-p<port>`, `<host>-nic1`, `<host>-nic2`,
`<router>-p<n>`. MACs: 02:64:70 (locally administered), node number (16 bit), interface number.
Lanes get their numbers after everything else (`<host>-nic3` is on lane 2), and then the monitor, so
that they do not change the rest.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from topologies.model.document import Place
from topologies.model.network import (
    Domain,
    Host,
    Impairment,
    Link,
    Monitor,
    Network,
    Nic,
    Port,
    Role,
    Router,
    Segment,
    Switch,
)
from topologies.model.paths import (
    controlled_switches,
    frame_path,
    one_way_ms,
    reversed_path,
)
from topologies.model.spec import (
    VLAN_MAX,
    VLAN_MIN,
    AccessSpec,
    HostSpec,
    ImpairmentSpec,
    LinkSpec,
    RouterSpec,
    SwitchSpec,
    TopologySpec,
)

ANY_VLAN = (VLAN_MIN, VLAN_MAX)
MIN_QUEUE_BYTES = 1518  # one full frame with its tag, as tc counts it (without FCS)
DEFAULT_QUEUE_BYTES = 150_000  # about 100 full frames, where the link has (almost) no delay


@dataclass(frozen=True)
class PlannedHost:
    """A host of the file or of a host family, with its place in the file."""

    name: str
    role: Role
    site: str
    switch: str
    access: AccessSpec | None
    place: Place


def plan_hosts(spec: TopologySpec, counts: Mapping[str, int]) -> tuple[PlannedHost, ...]:
    """Return all hosts in order; `counts` gives the value of each parameter."""
    hosts = [
        PlannedHost(
            name,
            node.role,
            node.site or _domain_of(spec, node.attached_to),
            node.attached_to,
            node.access,
            ("nodes", name),
        )
        for name, node in spec.nodes.items()
        if isinstance(node, HostSpec) and node.attached_to is not None
    ]
    for family_name, family in spec.host_families.items():
        count = family.count if isinstance(family.count, int) else counts[family.count]
        at_site: Counter[str] = Counter()
        for i in range(count):
            switch = family.spread_over[i % len(family.spread_over)]
            site = _domain_of(spec, switch)
            at_site[site] += 1
            name = f"{site}{at_site[site]}"
            place: Place = ("host_families", family_name)
            hosts.append(PlannedHost(name, Role.SUBSCRIBER, site, switch, family.access, place))
    return tuple(hosts)


def monitor_of(spec: TopologySpec) -> tuple[str, HostSpec] | None:
    """Return the monitor's name and block; None: there is none."""
    monitors = (
        (name, node)
        for name, node in spec.nodes.items()
        if isinstance(node, HostSpec) and node.role is Role.MONITOR
    )
    return next(monitors, None)


def _domain_of(spec: TopologySpec, switch: str) -> str:
    node = spec.nodes.get(switch)
    return node.domain if isinstance(node, SwitchSpec) else switch


def bandwidth_delay_product(rate_bps: int, round_trip_ms: float) -> int:
    """Return the bytes in flight during one round trip, rounded up."""
    return -(-rate_bps * round(round_trip_ms * 1000) // 8_000_000)


def directions(spec: LinkSpec | AccessSpec) -> tuple[ImpairmentSpec, ImpairmentSpec]:
    """Return the values asked for a -> b (host -> switch) and b -> a, with overrides applied."""
    if isinstance(spec, LinkSpec):
        overrides = (spec.a_to_b, spec.b_to_a)
    else:
        overrides = (spec.from_host, spec.to_host)
    common = {k: getattr(spec, k) for k in ImpairmentSpec.model_fields}

    def merge(override: ImpairmentSpec | None) -> ImpairmentSpec:
        given = {} if override is None else {k: getattr(override, k) for k in common}
        values = {k: common[k] if given.get(k) is None else given[k] for k in common}
        return ImpairmentSpec.model_construct(**values)

    return merge(overrides[0]), merge(overrides[1])


def impairments(spec: LinkSpec | AccessSpec | None) -> tuple[Impairment, Impairment]:
    """Return both directions of a link, explicit. A rate without a queue gets a queue of the link's
    bandwidth-delay product, but at least DEFAULT_QUEUE_BYTES."""
    if spec is None:
        return Impairment(), Impairment()
    asked = directions(spec)
    round_trip_ms = sum(direction.delay_ms or 0.0 for direction in asked)

    def explicit(direction: ImpairmentSpec) -> Impairment:
        queue = direction.queue_bytes
        if direction.rate_bps is not None and queue is None:
            bdp = bandwidth_delay_product(direction.rate_bps, round_trip_ms)
            queue = max(bdp, DEFAULT_QUEUE_BYTES)
        return Impairment(
            rate_bps=direction.rate_bps,
            delay_ms=direction.delay_ms or 0.0,
            jitter_ms=direction.jitter_ms or 0.0,
            loss=direction.loss or 0.0,
            queue_bytes=queue,
        )

    return explicit(asked[0]), explicit(asked[1])


class _Numbering:
    """Assigns ports in order: numbers from 1 at each node."""

    def __init__(self, nodes: list[str]) -> None:
        self._node_number = {name: i for i, name in enumerate(nodes, start=1)}
        self._used: defaultdict[str, int] = defaultdict(int)

    def port(self, node: str, label: str = "p") -> Port:
        self._used[node] += 1
        number = self._used[node]
        return Port(node, number, f"{node}-{label}{number}", self._mac(node, number))

    def _mac(self, node: str, number: int) -> str:
        high, low = divmod(number, 256)
        octets = (0x02, 0x64, 0x70 + high, *self._node_number[node].to_bytes(2, "big"), low)
        return ":".join(f"{octet:02x}" for octet in octets)


def expand(spec: TopologySpec, counts: Mapping[str, int]) -> Network:
    """Return the network. `spec` must be valid (validate.py); `counts` gives the value of each
    parameter."""
    planned = plan_hosts(spec, counts)
    switches = tuple(
        Switch(name, node.domain, dpid, node.lat, node.lon)
        for dpid, (name, node) in enumerate(
            ((n, s) for n, s in spec.nodes.items() if isinstance(s, SwitchSpec)), start=1
        )
    )
    routers = [name for name, node in spec.nodes.items() if isinstance(node, RouterSpec)]
    found = monitor_of(spec)
    monitors = [found[0]] if found is not None else []
    numbering = _Numbering(
        [*(s.name for s in switches), *(h.name for h in planned), *routers, *monitors]
    )

    links: list[Link] = []
    for link in spec.links:
        forward, backward = impairments(link)
        a, b = numbering.port(link.a), numbering.port(link.b)
        name = f"{link.a}:{link.b}"
        links.append(Link(name, a, b, forward, backward, link.vlan_range, link.cost))
    for host in planned:
        forward, backward = impairments(host.access)
        a, b = numbering.port(host.name, "nic"), numbering.port(host.switch)
        name = f"{host.name}:{host.switch}"
        links.append(Link(name, a, b, forward, backward, ANY_VLAN))

    segments = _segments(spec, planned, links)
    domains = tuple(Domain(name, d.controlled_by) for name, d in spec.domains.items())
    controlled = controlled_switches(domains, switches)
    one_way = _one_way_delays(controlled, planned, links, segments)
    hosts, router, control_links = _control_network(spec, planned, links, numbering, one_way)
    lanes = range(2, lane_count(spec, counts) + 1)
    hosts, lane_links = _lane_nics(spec, planned, hosts, numbering, lanes)
    monitor, router, monitor_links = _monitor(spec, planned, router, numbering, one_way)
    return Network(
        name=spec.name,
        description=spec.description,
        domains=domains,
        switches=switches,
        hosts=hosts,
        routers=(router,),
        links=(*links, *control_links, *lane_links, *monitor_links),
        segments=(*segments, *(_of_lane(s, lane) for lane in lanes for s in segments)),
        multicast_group=str(spec.addresses.multicast_group),
        round_trip_ms={name: round(there + back, 3) for name, (there, back) in one_way.items()},
        lane_groups=tuple(str(lane_group(spec, lane)) for lane in lanes),
        monitor=monitor,
    )


def lane_count(spec: TopologySpec, counts: Mapping[str, int]) -> int:
    """Return the number of lanes: the parameter's value if it names one."""
    lanes = spec.addresses.lanes
    return lanes if isinstance(lanes, int) else counts[lanes]


def lane_subnet(spec: TopologySpec, lane: int) -> ipaddress.IPv4Network:
    """Return the lane's subnet, the (lane - 1)-th after path_subnet. Raises ValueError if there is
    none."""
    first = spec.addresses.path_subnet
    address = int(first.network_address) + (lane - 1) * first.num_addresses
    return ipaddress.IPv4Network((address, first.prefixlen))


def lane_group(spec: TopologySpec, lane: int) -> ipaddress.IPv4Address:
    """Return the multicast group of a lane, counted from 1. Raises ValueError."""
    return spec.addresses.multicast_group + (lane - 1)


def lane_vlan(vlan: int, lane: int) -> int:
    """Return the VLAN id of a segment on `lane`; `vlan` is lane 1's."""
    return vlan + lane - 1


def _of_lane(segment: Segment, lane: int) -> Segment:
    vlan = lane_vlan(segment.vlan, lane)
    return dataclasses.replace(segment, name=f"{segment.name}.{lane}", vlan=vlan, lane=lane)


def _lane_nics(
    spec: TopologySpec,
    planned: tuple[PlannedHost, ...],
    hosts: tuple[Host, ...],
    numbering: _Numbering,
    lanes: Iterable[int],
) -> tuple[tuple[Host, ...], tuple[Link, ...]]:
    """Return the hosts with their NICs of `lanes`, and the NICs' links. A host has the same
    position in the subnet of every lane."""
    nics: defaultdict[str, list[Nic]] = defaultdict(list)
    links: list[Link] = []
    first = spec.addresses.path_subnet.network_address
    for lane in lanes:
        subnet = lane_subnet(spec, lane)
        for plan, host in zip(planned, hosts, strict=True):
            forward, backward = impairments(plan.access)
            a, b = numbering.port(plan.name, "nic"), numbering.port(plan.switch)
            name = f"{plan.name}:{plan.switch}.{lane}"
            links.append(Link(name, a, b, forward, backward, ANY_VLAN))
            place = int(ipaddress.IPv4Address(host.nic1.ip)) - int(first)
            address = subnet.network_address + place
            nics[plan.name].append(Nic(a.interface, a.mac, str(address), subnet.prefixlen))
    with_lanes = tuple(dataclasses.replace(h, lanes=tuple(nics[h.name])) for h in hosts)
    return with_lanes, tuple(links)


def _segments(
    spec: TopologySpec, planned: tuple[PlannedHost, ...], links: list[Link]
) -> tuple[Segment, ...]:
    """Return the segments that have hosts; with few receivers some racks are empty."""
    segments: list[Segment] = []
    for name, segment in spec.segments.items():
        wanted = None if segment.hosts is None else set(segment.hosts)
        hosts = tuple(
            h.name
            for h in planned
            if h.switch == segment.through and (wanted is None or h.name in wanted)
        )
        if not hosts:
            continue
        link = next(k for k in links if {k.a.node, k.b.node} == {segment.through, segment.to})
        edge, endpoint = (link.a, link.b) if link.a.node == segment.through else (link.b, link.a)
        segments.append(
            Segment(
                name=name,
                domain=_domain_of(spec, segment.through),
                vlan=segment.vlan,
                edge_switch=edge.node,
                edge_port=edge.number,
                endpoint_switch=endpoint.node,
                endpoint_port=endpoint.number,
                hosts=hosts,
            )
        )
    return tuple(segments)


def _one_way_delays(
    controlled: dict[str, str],
    planned: tuple[PlannedHost, ...],
    links: list[Link],
    segments: tuple[Segment, ...],
) -> dict[str, tuple[float, float]]:
    """Return subscriber -> (ms from the publisher, ms to the publisher), over the path service."""
    segment_of = {host: segment for segment in segments for host in segment.hosts}
    publisher = next(h.name for h in planned if h.role is Role.PUBLISHER)
    delays: dict[str, tuple[float, float]] = {}
    for host in planned:
        if host.role is Role.SUBSCRIBER:
            path = frame_path(
                tuple(links),
                controlled,
                segment_of[publisher],
                publisher,
                segment_of[host.name],
                host.name,
            )
            delays[host.name] = one_way_ms(path), one_way_ms(reversed_path(path))
    return delays


def _control_network(
    spec: TopologySpec,
    planned: tuple[PlannedHost, ...],
    links: list[Link],
    numbering: _Numbering,
    one_way: dict[str, tuple[float, float]],
) -> tuple[tuple[Host, ...], Router, tuple[Link, ...]]:
    """Return the hosts with both NICs, the router with one NIC and one /30 per host, and the
    router's links."""
    control = spec.control_network
    access_port = {link.a.node: link.a for link in links}
    path_addresses = _path_addresses(spec, planned)
    subnets = control.subnet.subnets(new_prefix=30)
    hosts: list[Host] = []
    router_nics: list[Nic] = []
    control_links: list[Link] = []
    for host, subnet in zip(planned, subnets, strict=False):
        router_ip, host_ip = (str(address) for address in subnet.hosts())
        if isinstance(control.delay_ms, dict):
            there = back = control.delay_ms[host.site]
        else:
            there, back = one_way.get(host.name, (0.0, 0.0))
        a, b = numbering.port(control.router), numbering.port(host.name, "nic")
        control_links.append(
            Link(
                f"{control.router}:{host.name}",
                a,
                b,
                Impairment(delay_ms=there),
                Impairment(delay_ms=back),
                ANY_VLAN,
            )
        )
        router_nics.append(Nic(a.interface, a.mac, router_ip, subnet.prefixlen))
        port1 = access_port[host.name]
        prefix_len = spec.addresses.path_subnet.prefixlen
        hosts.append(
            Host(
                name=host.name,
                domain=_domain_of(spec, host.switch),
                site=host.site,
                role=host.role,
                nic1=Nic(port1.interface, port1.mac, path_addresses[host.name], prefix_len),
                nic2=Nic(b.interface, b.mac, host_ip, subnet.prefixlen),
                gateway2=router_ip,
            )
        )
    router = Router(control.router, tuple(router_nics))
    return tuple(hosts), router, tuple(control_links)


def _monitor(
    spec: TopologySpec,
    planned: tuple[PlannedHost, ...],
    router: Router,
    numbering: _Numbering,
    one_way: Mapping[str, tuple[float, float]],
) -> tuple[Monitor | None, Router, tuple[Link, ...]]:
    """Return the monitor, the router with a NIC for it, and the link between the two. The monitor
    has the /30 after the hosts' subnets, and the delay of the hosts at its site."""
    found = monitor_of(spec)
    if found is None:
        return None, router, ()
    name, node = found
    publisher = next(host for host in planned if host.role is Role.PUBLISHER)
    site = node.site or publisher.site
    if isinstance(spec.control_network.delay_ms, dict):
        there = back = spec.control_network.delay_ms[site]
    else:
        neighbours = [publisher, *(h for h in planned if h.role is Role.SUBSCRIBER)]
        neighbour = next(host.name for host in neighbours if host.site == site)
        there, back = one_way.get(neighbour, (0.0, 0.0))
    subnets = spec.control_network.subnet.subnets(new_prefix=30)
    subnet = next(itertools.islice(subnets, len(router.nics), None))
    router_ip, ip = (str(address) for address in subnet.hosts())
    a, b = numbering.port(router.name), numbering.port(name, "nic")
    ways = Impairment(delay_ms=there), Impairment(delay_ms=back)
    link = Link(f"{router.name}:{name}", a, b, *ways, ANY_VLAN)
    gateway = Nic(a.interface, a.mac, router_ip, subnet.prefixlen)
    monitor = Monitor(name, site, Nic(b.interface, b.mac, ip, subnet.prefixlen), router_ip)
    return monitor, Router(router.name, (*router.nics, gateway)), (link,)


def _path_addresses(spec: TopologySpec, planned: tuple[PlannedHost, ...]) -> dict[str, str]:
    """Return the addresses: the publisher has the subnet's first, and subscribers follow in
    order."""
    ordered = sorted(planned, key=lambda host: host.role is not Role.PUBLISHER)
    addresses: list[ipaddress.IPv4Address] = []
    for address in spec.addresses.path_subnet.hosts():
        if len(addresses) == len(ordered):
            break
        addresses.append(address)
    return {host.name: str(address) for host, address in zip(ordered, addresses, strict=True)}
