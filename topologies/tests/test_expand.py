# SPDX-License-Identifier: Apache-2.0
"""Networks of the bundled files compared with the papers, and what must hold in every network."""

import dataclasses
import ipaddress
import itertools
import math
import re
from collections import Counter
from pathlib import Path

import pytest

from topologies.model.document import TopologyErrors
from topologies.model.expand import _Numbering
from topologies.model.load import bundled, find, load
from topologies.model.network import (
    ControlledBy,
    Impairment,
    Network,
    Role,
)
from topologies.model.paths import one_way_ms, path_to, reversed_path

GENI5_RTT_MS = {"wsu": 36, "sl": 41, "uh": 50, "osf": 90}  # MPUP16 V-A, Table II


def geni5(receivers: int = 8) -> Network:
    return load(find("geni5"), {"receivers": receivers})


def drfsm8(lanes: int) -> Network:
    return load(find("drfsm8"), {"lanes": lanes})


NETWORKS = [*(geni5(m) for m in (1, 2, 4, 8, 24, 64)), drfsm8(1), drfsm8(3)]
NETWORKS += [load(find("twocores")), load(find("bottleneck"), monitored=True)]
all_networks = pytest.mark.parametrize(
    "network",
    NETWORKS,
    ids=[f"{n.name}-{len(n.subscribers)}-{n.lane_count}" for n in NETWORKS],
)


@pytest.mark.parametrize("receivers", range(1, 25))
def test_geni5_round_trips_are_the_published(receivers: int) -> None:
    network = geni5(receivers)
    assert len(network.subscribers) == receivers
    assert network.round_trip_ms == {h.name: GENI5_RTT_MS[h.site] for h in network.subscribers}


@pytest.mark.parametrize(("receivers", "per_rack"), [(4, 1), (8, 2), (24, 6)])
def test_geni5_hosts_per_rack(receivers: int, per_rack: int) -> None:
    network = geni5(receivers)
    assert Counter(h.site for h in network.subscribers) == dict.fromkeys(GENI5_RTT_MS, per_rack)
    assert network.publisher.name == "umass"
    assert {s.name: len(s.hosts) for s in network.segments} == {
        "umass": 1,
        **dict.fromkeys(GENI5_RTT_MS, per_rack),
    }


def test_geni5_uneven_and_default_counts() -> None:
    assert [h.name for h in geni5(5).subscribers] == ["wsu1", "sl1", "uh1", "osf1", "wsu2"]
    assert [s.name for s in geni5(1).segments] == ["umass", "wsu"]  # empty racks have none
    assert load(find("geni5")) == geni5(8) == load(find("geni5"), {"receivers": "8"})


def test_geni5_frames_meet_one_delayed_link_of_1_gbps() -> None:
    network = geni5(24)
    for host in network.subscribers:
        (hop,) = [hop for hop in path_to(network, host.name) if not hop.link.is_plain]
        expected = Impairment(1_000_000_000, GENI5_RTT_MS[host.site] / 2, queue_bytes=12_000_000)
        assert hop.link.forward == hop.link.backward == expected


# City coordinates (degrees north, degrees east) to about a kilometre.
CITIES = {
    "Amsterdam": (52.37, 4.90),
    "Ashburn": (39.04, -77.49),
    "Bologna": (44.49, 11.34),
    "Boulder": (40.01, -105.27),
    "Charlottesville": (38.03, -78.48),
    "Chicago": (41.88, -87.63),
    "College Park": (38.98, -76.94),
    "Columbia": (38.95, -92.33),
    "De Bilt": (52.11, 5.18),
    "Frankfurt": (50.11, 8.68),
    "Kansas City": (39.10, -94.58),
    "La Jolla": (32.88, -117.23),
    "London": (51.51, -0.13),
    "Los Angeles": (34.05, -118.24),
    "Madison": (43.07, -89.40),
    "Milan": (45.46, 9.19),
    "New York": (40.71, -74.01),
    "Offenbach": (50.10, 8.77),
    "Paris": (48.86, 2.35),
    "Reading": (51.45, -0.97),
    "Salt Lake City": (40.76, -111.89),
    "Seattle": (47.61, -122.33),
}
DRFSM8_LINKS = {
    "star:ashb": ("Chicago", "Ashburn"),
    "star:kans": ("Chicago", "Kansas City"),
    "star:seat": ("Chicago", "Seattle"),
    "kans:salt": ("Kansas City", "Salt Lake City"),
    "salt:seat": ("Salt Lake City", "Seattle"),
    "salt:losa": ("Salt Lake City", "Los Angeles"),
    "seat:losa": ("Seattle", "Los Angeles"),
    "sw-frgp:star": ("Boulder", "Chicago"),
    "sw-maria:ashb": ("Charlottesville", "Ashburn"),
    "sw-max:ashb": ("College Park", "Ashburn"),
    "sw-boreas:star": ("Madison", "Chicago"),
    "sw-uen:salt": ("Salt Lake City", "Salt Lake City"),
    "sw-pnwgp:seat": ("Seattle", "Seattle"),
    "sw-cenic:losa": ("La Jolla", "Los Angeles"),
    "sw-morenet:kans": ("Columbia", "Kansas City"),
}

TWOCORES_LINKS = {
    "star:newy": ("Chicago", "New York"),
    "star:ashb": ("Chicago", "Ashburn"),
    "newy:ashb": ("New York", "Ashburn"),
    "lond:amst": ("London", "Amsterdam"),
    "lond:pari": ("London", "Paris"),
    "amst:fran": ("Amsterdam", "Frankfurt"),
    "pari:fran": ("Paris", "Frankfurt"),
    "fran:mila": ("Frankfurt", "Milan"),
    "pari:mila": ("Paris", "Milan"),
    "newy:lond": ("New York", "London"),
    "ashb:pari": ("Ashburn", "Paris"),
    "sw-frgp:star": ("Boulder", "Chicago"),
    "sw-maria:ashb": ("Charlottesville", "Ashburn"),
    "sw-boreas:star": ("Madison", "Chicago"),
    "sw-surf:amst": ("De Bilt", "Amsterdam"),
    "sw-dfn:fran": ("Offenbach", "Frankfurt"),
    "sw-janet:lond": ("Reading", "London"),
    "sw-garr:mila": ("Bologna", "Milan"),
}


def great_circle_km(a: str, b: str) -> float:
    """Compute it by the spherical law of cosines, on a sphere of 6371 km."""
    (lat1, lon1), (lat2, lon2) = (map(math.radians, CITIES[city]) for city in (a, b))
    cosine = math.sin(lat1) * math.sin(lat2) + math.cos(lat1) * math.cos(lat2) * math.cos(
        lon2 - lon1
    )
    return 6371 * math.acos(min(1.0, cosine))


def test_great_circle_of_a_known_pair() -> None:
    # 0 N 0 E to 0 N 90 E is a quarter of the equator; Chicago - Seattle is about 1733 miles.
    assert great_circle_km("Chicago", "Seattle") == pytest.approx(1733 * 1.609, rel=0.005)


@pytest.mark.parametrize(
    ("topology", "name", "cities"),
    [
        *(("drfsm8", *item) for item in DRFSM8_LINKS.items()),
        *(("twocores", *item) for item in TWOCORES_LINKS.items()),
    ],
)
def test_delays_are_those_of_the_distances(
    topology: str, name: str, cities: tuple[str, str]
) -> None:
    link = next(k for k in load(find(topology)).links if k.name == name)
    expected_ms = round(great_circle_km(*cities) * 1.5 / 200, 1)
    assert link.forward.delay_ms == link.backward.delay_ms == expected_ms


def test_drfsm8_is_the_trial_deployment() -> None:
    network = load(find("drfsm8"))
    switch_links = {k.name for k in network.links if not k.a.node.startswith("u")}
    assert {n for n in switch_links if not n.startswith("ctl")} == set(DRFSM8_LINKS)
    assert network.publisher.name == "ucar"
    assert network.segment_of("ucar").endpoint_switch == "star"  # FRGP meets Internet2 there
    assert network.segment_of("uva").endpoint_switch == "ashb"
    assert {h.name for h in network.subscribers} == {
        "uva", "uwisc", "umd", "uutah", "uwash", "ucsd", "umiss",
    }  # fmt: skip
    # By hand, 2 x (11.2 + 6.9 + 1.1): Boulder, Chicago, Ashburn, Charlottesville.
    assert network.round_trip_ms["uva"] == 38.4
    # 2 x (11.2 + 20.9): Seattle by the northern link, not over Salt Lake City (5 + 11.1 + 8.4).
    assert network.round_trip_ms["uwash"] == 64.2
    # 2 x (11.2 + 5.0 + 11.1 + 7.0 + 1.2)
    assert network.round_trip_ms["ucsd"] == 71.0
    # The order that the file's source text implies differs from the paper's for UMiss.
    assert sorted(network.round_trip_ms, key=network.round_trip_ms.__getitem__)[:4] == [
        "uwisc", "umiss", "umd", "uva",
    ]  # fmt: skip


@all_networks
def test_json_round_trip(network: Network) -> None:
    assert Network.from_json(network.to_json()) == network


@all_networks
def test_everything_is_unique(network: Network) -> None:
    ports = [port for link in network.links for port in (link.a, link.b)]
    nics = [nic for host in network.hosts for nic in (host.nic1, host.nic2, *host.lanes)]
    nics += [nic for router in network.routers for nic in router.nics]
    monitors = [network.monitor] if network.monitor is not None else []
    nics += [monitor.nic2 for monitor in monitors]
    nodes = [s.name for s in network.switches] + [h.name for h in network.hosts]
    nodes += [r.name for r in network.routers] + [m.name for m in monitors]
    for what in (
        nodes,
        [link.name for link in network.links],
        [port.interface for port in ports],
        [port.mac for port in ports],
        [(port.node, port.number) for port in ports],
        [nic.ip for nic in nics],
        [switch.dpid for switch in network.switches],
        [segment.vlan for segment in network.segments],
    ):
        assert [x for x, n in Counter(what).items() if n > 1] == []
    assert {nic.interface for nic in nics} <= {port.interface for port in ports}


@all_networks
def test_numbers_are_in_their_ranges(network: Network) -> None:
    for link in network.links:
        assert link.name.partition(".")[0] == f"{link.a.node}:{link.b.node}"
        for port in (link.a, link.b):
            assert len(port.interface) <= 15  # IFNAMSIZ less the zero byte
            assert port.number >= 1
            first = int(port.mac.split(":")[0], 16)
            assert first & 0b11 == 0b10  # locally administered, not a group
    assert all(len(switch.name) <= 10 and switch.dpid > 0 for switch in network.switches)
    assert ipaddress.IPv4Address(network.multicast_group).is_multicast


@all_networks
def test_addresses(network: Network) -> None:
    assert network.publisher.nic1.ip == "10.10.1.1"
    path = ipaddress.IPv4Network("10.10.1.0/24")
    router_nics = {nic.ip: nic for nic in network.routers[0].nics}
    for host in network.hosts:
        assert ipaddress.IPv4Address(host.nic1.ip) in path
        assert host.nic1.prefix_len == 24
        subnet = ipaddress.IPv4Interface(f"{host.nic2.ip}/{host.nic2.prefix_len}").network
        assert subnet.prefixlen == 30
        assert ipaddress.IPv4Address(host.gateway2) in subnet
        assert router_nics[host.gateway2].prefix_len == 30
    assert len(router_nics) == len(network.hosts) + (network.monitor is not None)


@all_networks
def test_control_path_has_the_round_trip_of_the_path(network: Network) -> None:
    control = {k.b.node: k for k in network.links if k.a.node == network.routers[0].name}
    if network.monitor is not None:
        del control[network.monitor.name]
    assert set(control) == {h.name for h in network.hosts}
    publisher = control[network.publisher.name]
    assert publisher.is_plain
    for host in network.subscribers:
        link = control[host.name]
        round_trip = link.forward.delay_ms + link.backward.delay_ms
        assert round_trip == pytest.approx(network.round_trip_ms[host.name])


@all_networks
def test_frames_can_travel(network: Network) -> None:
    """Walk from each subscriber towards the publisher along links alone, without paths.py."""
    neighbours: dict[str, set[str]] = {}
    for link in network.links:
        neighbours.setdefault(link.a.node, set()).add(link.b.node)
        neighbours.setdefault(link.b.node, set()).add(link.a.node)
    controlled = {d.name for d in network.domains if d.controlled_by is ControlledBy.CONTROLLER}
    core = {s.name for s in network.switches if s.domain in controlled}
    goal = network.segment_of(network.publisher.name)
    for host in network.hosts:
        segment = network.segment_of(host.name)
        assert segment.edge_switch in neighbours[host.name]
        assert segment.endpoint_switch in neighbours[segment.edge_switch]
        assert segment.endpoint_switch in core
        assert segment.edge_switch not in core
        reached = {segment.endpoint_switch}
        for _ in core:
            reached |= {n for r in reached for n in neighbours[r] & core}
        assert goal.endpoint_switch in reached


@all_networks
def test_segments_name_the_ports_of_their_link(network: Network) -> None:
    ports = {(p.node, p.number): k for k in network.links for p in (k.a, k.b)}
    for segment in network.segments:
        link = ports[segment.edge_switch, segment.edge_port]
        assert link is ports[segment.endpoint_switch, segment.endpoint_port]
        assert link.vlan_range[0] <= segment.vlan <= link.vlan_range[1]
    listed = list(itertools.chain.from_iterable(s.hosts for s in network.segments))
    assert sorted(listed) == sorted([h.name for h in network.hosts] * network.lane_count)


@all_networks
def test_paths_are_connected_and_sum_to_the_round_trip(network: Network) -> None:
    for host in network.subscribers:
        path = path_to(network, host.name)
        assert path[0].source == network.publisher.name
        assert path[-1].target == host.name
        assert all(a.target == b.source for a, b in itertools.pairwise(path))
        back = reversed_path(path)
        assert back[0].source == host.name
        total = one_way_ms(path) + one_way_ms(back)
        assert total == pytest.approx(network.round_trip_ms[host.name])


def test_lanes_are_more_nics_segments_and_subnets() -> None:
    network = drfsm8(3)
    assert [network.group_of(lane) for lane in (1, 2, 3)] == [
        "239.10.1.1", "239.10.1.2", "239.10.1.3",
    ]  # fmt: skip
    uva = network.host("uva")
    assert [(n.interface, n.ip, n.prefix_len) for n in (uva.path_nic(k) for k in (1, 2, 3))] == [
        ("uva-nic1", "10.10.1.2", 24), ("uva-nic3", "10.10.2.2", 24), ("uva-nic4", "10.10.3.2", 24),
    ]  # fmt: skip
    assert [network.segment_of("uva", lane).vlan for lane in (1, 2, 3)] == [303, 304, 305]
    for lane in (1, 2, 3):
        segment = network.segment_of("uva", lane)
        (nic,) = network.nics_of(segment)
        assert nic == uva.path_nic(lane)
        (link,) = [k for k in network.links if k.a.interface == nic.interface]
        assert (link.a.mac, link.b.node) == (nic.mac, segment.edge_switch)
    assert len({(s.endpoint_switch, s.endpoint_port, s.vlan) for s in network.segments}) == 24


def test_lanes_change_nothing_of_the_first() -> None:
    assert drfsm8(1) == load(find("drfsm8"))
    assert drfsm8(1).monitor == drfsm8(3).monitor
    one, three = drfsm8(1).without_monitor(), drfsm8(3).without_monitor()
    assert (
        dataclasses.replace(
            three,
            hosts=tuple(dataclasses.replace(h, lanes=()) for h in three.hosts),
            links=three.links[: len(one.links)],
            segments=three.segments[: len(one.segments)],
            lane_groups=(),
        )
        == one
    )


def test_the_monitor_is_on_the_control_network_alone() -> None:
    """It is at UVA, as in DRFSM21's Fig. 4: its control link has the delay of UVA's other host."""
    network = drfsm8(1)
    assert network.monitor is not None
    name, gateway = network.monitor.name, network.monitor.gateway2
    links = [k for k in network.links if name in (k.a.node, k.b.node)]
    assert [(k.a.node, k.b.interface) for k in links] == [("ctl", "monitor-nic1")]
    (uva,) = [k for k in network.links if k.name == "ctl:uva"]
    assert (links[0].forward, links[0].backward) == (uva.forward, uva.backward)
    assert links[0].forward.delay_ms == 19.2
    subnet = ipaddress.IPv4Interface(f"{network.monitor.nic2.ip}/30").network
    assert ipaddress.IPv4Address(gateway) in subnet
    assert gateway in {nic.ip for nic in network.routers[0].nics}
    assert name not in {h.name for h in network.hosts}


def test_a_monitor_changes_nothing_else(tmp_path: Path) -> None:
    text = find("drfsm8").read_text()
    (tmp_path / "without.yaml").write_text(
        "".join(line for line in text.splitlines(True) if "role: monitor" not in line)
    )
    without = load(tmp_path / "without.yaml")
    assert without.monitor is None
    assert without == drfsm8(1).without_monitor() == without.without_monitor()


def test_a_monitor_without_a_site_is_at_the_publishers(tmp_path: Path) -> None:
    text = find("drfsm8").read_text().replace("role: monitor, site: uva", "role: monitor")
    (tmp_path / "there.yaml").write_text(text)
    network = load(tmp_path / "there.yaml")
    assert network.monitor is not None and network.monitor.site == "ucar"
    assert network.links[-1].is_plain and network.links[-1].name == "ctl:monitor"


@pytest.mark.parametrize("name", bundled())
def test_every_topology_can_have_a_monitor(name: str) -> None:
    """It looks as if the file had one: at the publisher's site, with the delay of its control
    link."""
    path = find(name)
    without, monitored = load(path), load(path, monitored=True)
    if without.monitor is not None:
        assert monitored == without
        return
    assert monitored.without_monitor() == without and monitored.monitor is not None
    assert (monitored.monitor.name, monitored.monitor.site) == ("monitor", without.publisher.site)
    (link,) = [k for k in monitored.links if k.b.node == "monitor"]
    assert link.is_plain  # as the publisher's
    assert Network.from_json(monitored.to_json()) == monitored


def test_a_monitor_gets_a_name_that_no_node_has(tmp_path: Path) -> None:
    text = find("twocores").read_text()
    (tmp_path / "named.yaml").write_text(text.replace("uwisc: { kind", "monitor: { kind"))
    network = load(tmp_path / "named.yaml", monitored=True)
    assert network.monitor is not None and network.monitor.name == "monitor2"


def test_a_control_network_without_room_for_a_monitor(tmp_path: Path) -> None:
    full = tmp_path / "full.yaml"
    full.write_text(find("geni5").read_text().replace("10.20.0.0/16", "10.20.0.0/27"))
    assert len(load(full, {"receivers": 7}).hosts) == 8
    with pytest.raises(TopologyErrors, match=r"full\.yaml:\d+: found subnet: .* for 9 hosts"):
        load(full, {"receivers": 7}, monitored=True)


def test_macs_of_more_than_255_ports() -> None:
    numbering = _Numbering(["sw"])
    macs = [numbering.port("sw").mac for _ in range(1700)]
    assert len(set(macs)) == 1700
    assert all(re.fullmatch("02:64:7[0-9a-f](:[0-9a-f]{2}){3}", mac) for mac in macs)


def test_roles_and_sites() -> None:
    network = geni5(4)
    assert [h.role for h in network.hosts].count(Role.PUBLISHER) == 1
    assert {h.name: h.site for h in network.hosts} == {
        "umass": "umass", "wsu1": "wsu", "sl1": "sl", "uh1": "uh", "osf1": "osf",
    }  # fmt: skip
