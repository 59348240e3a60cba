# SPDX-License-Identifier: Apache-2.0
"""Build a network's nodes, links and switches with Mininet, in this process's network namespace.

Mininet makes the nodes (a namespace each), the switches and their ports. It does not make the veth
interfaces: one process per small command would take tens of seconds with 25 hosts, so a few batches
create and configure them. Mininet's global side effects are disabled: it may not set system limits
(`Mininet.inited`), and nothing calls its clean-up (`mn -c`).
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.counting import counted

if sys.version_info < (3, 12) and "_distutils_hack" in sys.modules:
    # Mininet 2.3 uses distutils. Python's own is loaded 0.1 s faster than that of setuptools.
    sys.modules["_distutils_hack"].remove_shim()
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    try:
        from mininet.link import Intf, Link, OVSLink
        from mininet.log import setLogLevel
        from mininet.net import Mininet
        from mininet.node import Node, OVSSwitch
    except ModuleNotFoundError:  # plans, reports and file checks work without it
        Intf = Link = OVSLink = Mininet = Node = OVSSwitch = object
        setLogLevel = None  # noqa: N816

from common.shell import (
    NetworkError,
    check,
    check_all,
    in_node,
)
from topologies.emulate.facts import KernelFacts
from topologies.emulate.openvswitch import OpenVSwitch
from topologies.model.network import Host, Monitor, Network
from topologies.model.shared_nic import shares_nics
from topologies.model.wire_plan import WIRE, WirePlan
from topologies.watch.counters import Record

__all__ = ["Built", "Intf", "Link", "Mininet", "Node", "build", "new_mininet"]

# Mininet makes its own class the class of all later loggers. That class drops messages.
logging.setLoggerClass(logging.Logger)

MULTICAST_PREFIX = "239.0.0.0/8"  # administratively scoped (RFC 2365)
DESCRIPTORS_OF_NODE = 6  # a Mininet node takes four of this process's descriptors
SPARE_DESCRIPTORS = 32
DESCRIPTORS_OF_RUN = 16  # of a node: also taps, programs' pipes and logs
# The kernel reports a lost carrier at once, but up to 1 s late if both ends of a veth pair happen
# to have the same index, each in its namespace (linkwatch). So this module sets both indices.
A_INDEX_FIRST, B_INDEX_FIRST = 10_000, 1_000_000
OFFLOADS_OFF = ("tx-checksumming", "tcp-segmentation-offload")


class ReadyIntf(Intf):  # type: ignore[misc]
    """An interface that this module's batches create and configure. Mininet only has to know it."""

    def ifconfig(self, *_arguments: str) -> str:
        return ""


class VethLink(Link):  # type: ignore[misc]
    """A veth pair that already exists."""

    def __init__(self, node1: Node, node2: Node, **parameters: object) -> None:
        parameters.update(cls1=ReadyIntf, cls2=ReadyIntf, fast=True)
        Link.__init__(self, node1, node2, **parameters)

    @classmethod
    def makeIntfPair(cls, *_arguments: object, **_parameters: object) -> None:  # noqa: N802
        return None


class Bridge(OVSSwitch):  # type: ignore[misc]
    """A switch without the shell that Mininet starts for each node: nothing is run in it."""

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802
        del mnopts


@dataclass(frozen=True)
class Built:
    """`pids`: node -> a process that holds its namespace (hosts, routers, wire)."""

    mininet: Mininet
    pids: dict[str, int]


@dataclass(frozen=True)
class Pair:
    """A veth pair to create: interface, MAC (None: any) and node of each end."""

    a: str
    a_mac: str | None
    a_node: str
    b: str
    b_mac: str | None
    b_node: str


def new_mininet() -> Mininet:
    """Return an empty Mininet network without controllers. Raises NetworkError without Mininet."""
    if setLogLevel is None:
        raise NetworkError("found no Python package mininet; valid: apt install mininet")
    setLogLevel("critical")
    Mininet.inited = True  # otherwise it would raise limits and write sysctls of the whole machine
    return Mininet(topo=None, build=False, controller=None, cleanup=False)


def build(
    network: Network,
    facts: KernelFacts,
    wire: WirePlan,
    ovs: OpenVSwitch,
    built: Callable[[Built], None],
    progress: Callable[[str], None],
) -> Built:
    """Build everything except shaping, flows and controllers. Call `built` as soon as there is
    something to tear down. Raises NetworkError if something cannot be built."""
    if shares_nics(network) and facts.edge_tags:
        raise NetworkError(
            "lanes: found vlan on a kernel without 802.1Q; valid: nics, a kernel with the module "
            "8021q, or virtual time (CLOCK=virtual)"
        )
    mininet = new_mininet()
    result = Built(mininet, {})
    built(result)
    _add_nodes(network, facts, wire, result, progress)
    enough_descriptors(len(result.pids))
    pairs = _add_links(network, facts, wire, mininet)
    _make_pairs(pairs, result.pids)
    progress("switches")
    _start_switches(mininet.switches, ovs)
    check_ports(network)
    progress("interfaces, addresses, routes")
    _configure_nodes(network, facts, wire, result.pids)
    return result


def _add_nodes(
    network: Network,
    facts: KernelFacts,
    wire: WirePlan,
    result: Built,
    progress: Callable[[str], None],
) -> None:
    names = [h.name for h in network.hosts] + [r.name for r in network.routers]
    names += [network.monitor.name] if network.monitor is not None else []
    if wire.links:
        if WIRE in names or WIRE in (s.name for s in network.switches):
            raise NetworkError(f"node '{WIRE}': this name is taken by the links' namespace")
        names.append(WIRE)
    progress(counted(len(names), "namespace"))
    with _few_descriptors(len(names)):
        for name in names:
            node = result.mininet.addHost(name, ip=None)
            result.pids[name] = node.pid
        for switch in network.switches:
            result.mininet.addSwitch(
                switch.name,
                cls=Bridge,
                dpid=f"{switch.dpid:016x}",
                datapath=facts.datapath,
                protocols="OpenFlow13",
                failMode="secure",
                batch=True,
            )


@contextmanager
def _few_descriptors(nodes: int) -> Iterator[None]:
    """Lower the limit of descriptors. Mininet starts its shells by a program that closes every
    descriptor below the limit, with one system call each: often 1024, sometimes a million."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    in_use = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
    needed = in_use + DESCRIPTORS_OF_NODE * nodes + SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft <= needed:
        yield
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def enough_descriptors(nodes: int) -> None:
    """Raise this process's limit of descriptors if a network of so many nodes needs more, as far as
    the system allows. No further than that: see `_few_descriptors`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = DESCRIPTORS_OF_RUN * nodes + 8 * SPARE_DESCRIPTORS
    if hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _add_links(
    network: Network, facts: KernelFacts, wire: WirePlan, mininet: Mininet
) -> list[Pair]:
    """Give Mininet all links. Return the veth pairs to create for them."""
    pairs: list[Pair] = []
    switches = {s.name for s in network.switches}
    impaired = {w.link.name: w for w in wire.links}
    for link in network.links:
        ends = {
            "port1": link.a.number,
            "port2": link.b.number,
            "intfName1": link.a.interface,
            "intfName2": link.b.interface,
        }
        between_switches = link.a.node in switches and link.b.node in switches
        if link.name in impaired:
            w = impaired[link.name]
            for port, inner in ((link.a, w.a_interface), (link.b, w.b_interface)):
                mininet.addLink(
                    mininet[port.node],
                    mininet[WIRE],
                    cls=VethLink,
                    port1=port.number,
                    intfName1=port.interface,
                    intfName2=inner,
                )
                pairs.append(Pair(port.interface, port.mac, port.node, inner, None, WIRE))
        elif between_switches and facts.datapath == "user":
            mininet.addLink(mininet[link.a.node], mininet[link.b.node], cls=OVSLink, **ends)
        else:
            mininet.addLink(mininet[link.a.node], mininet[link.b.node], cls=VethLink, **ends)
            a, b = link.a, link.b
            pairs.append(Pair(a.interface, a.mac, a.node, b.interface, b.mac, b.node))
    return pairs


def pair_commands(pairs: Iterable[Pair], pids: dict[str, int]) -> str:
    """Return the input of `ip -batch -`. Nodes without a process (switches) are in the calling
    namespace."""
    lines = []
    for number, p in enumerate(pairs):
        a = _end(p.a, p.a_mac, pids.get(p.a_node))
        b = _end(p.b, p.b_mac, pids.get(p.b_node))
        a += f" index {A_INDEX_FIRST + number}"
        b += f" index {B_INDEX_FIRST + number}"
        lines.append(f"link add {a} type veth peer {b}")
        for name, node in ((p.a, p.a_node), (p.b, p.b_node)):
            if node not in pids:
                lines.append(f"link set dev {name} up")
    return "".join(f"{line}\n" for line in lines)


def _end(name: str, mac: str | None, pid: int | None) -> str:
    text = f"name {name}"
    if mac is not None:
        text += f" address {mac}"
    if pid is not None:
        text += f" netns {pid}"
    return text


def _make_pairs(pairs: list[Pair], pids: dict[str, int]) -> None:
    # Neighbour discovery on switch ports would only be noise.
    check(["sh", "-s"], stdin=_IPV6_OFF)
    check(["ip", "-batch", "-"], stdin=pair_commands(pairs, pids))


def restart_switch(mininet: Mininet, name: str, ovs: OpenVSwitch) -> None:
    """Recreate a switch whose bridge was deleted, with the ports it had. Raises NetworkError if
    that fails."""
    switch = mininet[name]
    switch.commands, switch.batch = [], True
    _start_switches([switch], ovs)


def _start_switches(switches: list[OVSSwitch], ovs: OpenVSwitch) -> None:
    def run(command: str, **_: bool) -> tuple[str, str, int]:
        return ovs.configure(command), "", 0

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for switch in switches:
            switch.start([])
        OVSSwitch.batchStartup(switches, run=run)


def check_ports(network: Network, *, without: Iterable[str] = ()) -> None:
    """Check that OpenFlow port numbers are the network's: flows and the controller rely on them.
    Links in `without` are not checked. Raises NetworkError."""
    text = check(["ovs-vsctl", "--format=json", "--columns=name,ofport,error", "list", "Interface"])
    found = {row[0]: (row[1], row[2]) for row in json.loads(text)["data"]}
    switches = {s.name for s in network.switches}
    left_out = set(without)
    for link in network.links:
        for port in (link.a, link.b):
            if port.node not in switches or link.name in left_out:
                continue
            number, error = found.get(port.interface, (None, "not there"))
            if number != port.number:
                raise NetworkError(
                    f"switch {port.node}, interface {port.interface}: asked for port "
                    f"{port.number}, found {number} ({error})"
                )


_IPV6_OFF = """\
for n in all default; do
  f=/proc/sys/net/ipv6/conf/$n/disable_ipv6
  if [ -w $f ]; then echo 1 > $f; fi
done
"""
_SEPARATOR = "----"
# Neighbours of the control network are asked for once, so that its bandwidth does not depend on how
# many of the kernel's questions (every 15 to 45 s) fall into a run.
_NEIGHBOUR_KNOWN_MS = 86_400_000


def nic1_interface(network: Network, host: Host, facts: KernelFacts, lane: int = 1) -> str:
    """Return the interface with the path's address: an 802.1Q sub-interface where hosts tag."""
    if facts.edge_tags:
        return host.path_nic(lane).interface
    return f"vlan{network.segment_of(host.name, lane).vlan}"


def host_script(network: Network, host: Host, facts: KernelFacts) -> str:
    """Return a shell script that configures a host inside its namespace and prints the result."""
    ip, routes = ["link set dev lo up"], []
    interfaces = list(dict.fromkeys(nic.interface for nic in (host.nic1, host.nic2, *host.lanes)))
    ip += [f"link set dev {interface} gso_max_segs 1 up" for interface in interfaces]
    for lane in range(1, network.lane_count + 1):
        nic, path = host.path_nic(lane), nic1_interface(network, host, facts, lane)
        if path != nic.interface:
            vlan = network.segment_of(host.name, lane).vlan
            ip.append(f"link add link {nic.interface} name {path} type vlan id {vlan}")
            ip.append(f"link set dev {path} gso_max_segs 1 up")
        ip.append(f"address add {nic.ip}/{nic.prefix_len} dev {path}")
        groups = MULTICAST_PREFIX if lane == 1 else f"{network.group_of(lane)}/32"
        routes.append(f"route add {groups} dev {path}")
    ip.append(f"address add {host.nic2.ip}/{host.nic2.prefix_len} dev {host.nic2.interface}")
    ip += [*routes, f"route add default via {host.gateway2} dev {host.nic2.interface}"]
    control = f"echo {facts.congestion_control} > /proc/sys/net/ipv4/tcp_congestion_control"
    return _node_script(ip, interfaces, [control, _neighbours_stay(host.nic2.interface)])


def router_script(interfaces: list[tuple[str, str]]) -> str:
    """Return the same for a router: (interface, address/prefix)."""
    ip = ["link set dev lo up"]
    for interface, address in interfaces:
        ip.append(f"link set dev {interface} gso_max_segs 1 up")
        ip.append(f"address add {address} dev {interface}")
    names = [name for name, _ in interfaces]
    forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
    return _node_script(ip, names, [forward, *map(_neighbours_stay, names)])


def monitor_script(monitor: Monitor) -> str:
    """Return the same for the monitor, which has NIC2 alone."""
    nic = monitor.nic2
    ip = [
        "link set dev lo up",
        f"link set dev {nic.interface} gso_max_segs 1 up",
        f"address add {nic.ip}/{nic.prefix_len} dev {nic.interface}",
        f"route add default via {monitor.gateway2} dev {nic.interface}",
    ]
    return _node_script(ip, [nic.interface], [_neighbours_stay(nic.interface)])


def _neighbours_stay(interface: str) -> str:
    """Return a command for what is absent where an ordinary user owns the namespace."""
    file = f"/proc/sys/net/ipv4/neigh/{interface}/base_reachable_time_ms"
    return f"if [ -w {file} ]; then echo {_NEIGHBOUR_KNOWN_MS} > {file}; fi"


def wire_script(interfaces: Iterable[str]) -> str:
    return _IPV6_OFF + _batch(f"link set dev {name} up" for name in interfaces)


def _batch(lines: Iterable[str]) -> str:
    body = "".join(f"{line}\n" for line in lines)
    return f"ip -batch - <<'END' || exit 1\n{body}END\n"


def _node_script(ip: list[str], interfaces: list[str], more: list[str]) -> str:
    off = "".join(f"ethtool -K {name} tx off tso off >/dev/null || exit 1\n" for name in interfaces)
    show = "".join(f"echo {_SEPARATOR}\nethtool -k {name}\n" for name in interfaces)
    return (
        _IPV6_OFF
        + off
        + _batch(ip)
        + "".join(f"{line} || exit 1\n" for line in more)
        + "ip -j -d address show\n"
        + f"echo {_SEPARATOR}\n"
        + "cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/tcp_congestion_control\n"
        + show
    )


@dataclass(frozen=True)
class NodeReadback:
    """What a node printed: details of `ip -d address` by interface, sysctls, and the offloads that
    are on by interface."""

    interfaces: dict[str, Record]
    ip_forward: bool
    congestion_control: str
    offloads_on: dict[str, set[str]]


def parse_node_readback(text: str) -> NodeReadback:
    """Read what a node printed in answer to its readback script."""
    addresses, sysctls, *features = text.split(f"{_SEPARATOR}\n")
    forward, control = sysctls.split()
    on: dict[str, set[str]] = {}
    for block in features:
        head, *lines = block.splitlines()
        name = head.removeprefix("Features for ").rstrip(":")
        pairs = (line.strip().partition(":") for line in lines)
        on[name] = {key for key, _, value in pairs if value.strip().startswith("on")}
    return NodeReadback(
        interfaces={i["ifname"]: i for i in json.loads(addresses)},
        ip_forward=forward == "1",
        congestion_control=control,
        offloads_on=on,
    )


def node_problems(node: str, found: NodeReadback, expected: dict[str, str]) -> list[str]:
    """Return what is not as asked. `expected`: interface -> address/prefix ('' for none of its
    own)."""
    problems = []
    for name, address in expected.items():
        interface = found.interfaces.get(name)
        if interface is None:
            problems.append(f"{node}: interface {name} is missing")
            continue
        have = {
            f"{a['local']}/{a['prefixlen']}"
            for a in interface.get("addr_info", ())
            if a.get("family") == "inet"
        }
        if have != ({address} if address else set()):
            problems.append(
                f"{node}, {name}: address asked {address or 'none'}, found {sorted(have)}"
            )
        if "UP" not in interface["flags"]:
            problems.append(f"{node}, {name}: asked up, found {interface['flags']}")
        if interface.get("gso_max_segs") != 1:
            problems.append(
                f"{node}, {name}: gso_max_segs asked 1, found {interface.get('gso_max_segs')}"
            )
        for feature in OFFLOADS_OFF:
            if feature in found.offloads_on.get(name, set()):
                problems.append(f"{node}, {name}: {feature} asked off, found on")
    return problems


def _configure_nodes(
    network: Network, facts: KernelFacts, wire: WirePlan, pids: dict[str, int]
) -> None:
    scripts: dict[str, str] = {}
    expected: dict[str, dict[str, str]] = {}
    for host in network.hosts:
        scripts[host.name] = host_script(network, host, facts)
        expected[host.name] = {host.nic2.interface: f"{host.nic2.ip}/{host.nic2.prefix_len}"}
        for lane in range(1, network.lane_count + 1):
            nic, path = host.path_nic(lane), nic1_interface(network, host, facts, lane)
            expected[host.name] |= {nic.interface: "", path: f"{nic.ip}/{nic.prefix_len}"}
    for router in network.routers:
        addresses = [(n.interface, f"{n.ip}/{n.prefix_len}") for n in router.nics]
        scripts[router.name] = router_script(addresses)
        expected[router.name] = dict(addresses)
    if (monitor := network.monitor) is not None:
        nic = monitor.nic2
        scripts[monitor.name] = monitor_script(monitor)
        expected[monitor.name] = {nic.interface: f"{nic.ip}/{nic.prefix_len}"}
    wire_interfaces = [i for w in wire.links for i in (w.a_interface, w.b_interface)]
    if wire_interfaces:
        scripts[WIRE] = wire_script(wire_interfaces)
    outputs = check_all(
        {name: (in_node(pids[name], ["sh", "-s"]), text) for name, text in scripts.items()}
    )
    problems: list[str] = []
    for name, wanted in expected.items():
        found = parse_node_readback(outputs[name])
        problems += node_problems(name, found, wanted)
        if name in {r.name for r in network.routers} and not found.ip_forward:
            problems.append(f"{name}: ip_forward asked 1, found 0")
        if name in {h.name for h in network.hosts} and (
            found.congestion_control != facts.congestion_control
        ):
            problems.append(
                f"{name}: TCP congestion control asked {facts.congestion_control}, "
                f"found {found.congestion_control}"
            )
    if problems:
        raise NetworkError("; ".join(problems[:5]))
