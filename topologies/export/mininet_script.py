# SPDX-License-Identifier: Apache-2.0
"""A `Network` as a script for Mininet alone: nodes, links with TCLink's parameters, addresses and
static routes. The VLAN segments and the multipoint path are static OpenFlow entries. The script
runs without Downpour."""

from __future__ import annotations

import pprint
from typing import Final

from topologies.export.tree_flows import all_flows
from topologies.model.network import Impairment, Link, Network

TC_RATE_MAX_MBPS: Final = 1000  # Mininet's TCLink refuses a higher rate
PACKET_BYTES: Final = 1500  # Mininet counts a queue in packets
WIDTH: Final = 98


def mininet_script(network: Network) -> str:
    """Return the text of an executable Python file. It leaves out the monitor, whose programs
    Mininet does not start. Raises paths.NoPath."""
    network = network.without_monitor()
    entries = all_flows(network)
    values = {
        "NAME": network.name,
        "PUBLISHER": network.publisher.name,
        "GROUP": network.multicast_group,
        "SWITCHES": {s.name: f"{s.dpid:016x}" for s in network.switches},
        "HOSTS": {h.name: (h.nic1.ip, h.nic2.ip, h.gateway2) for h in network.hosts},
        "ROUTERS": [router.name for router in network.routers],
        "ADDRESSES": addresses(network),
        "LINKS": [_link(link) for link in network.links],
        "GROUPS": {e.switch: e.group_lines() for e in entries},
        "FLOWS": {e.switch: e.flow_lines() for e in entries},
    }
    lines = [f"{name} = {pprint.pformat(value, width=WIDTH)}" for name, value in values.items()]
    return HEAD.format(network.name, network.description) + "\n".join(lines) + BODY


def addresses(network: Network) -> dict[str, str]:
    """Return interface -> address/prefix length, for hosts and routers."""
    nics = [nic for h in network.hosts for nic in (h.nic1, h.nic2, *h.lanes)]
    nics += [nic for router in network.routers for nic in router.nics]
    return {nic.interface: f"{nic.ip}/{nic.prefix_len}" for nic in nics}


def _link(link: Link) -> tuple[object, ...]:
    """Return both ends, each with TCIntf's settings for the frames that leave it."""
    return tuple(
        (port.node, port.number, port.interface, port.mac, shaping(impairment))
        for port, impairment in ((link.a, link.forward), (link.b, link.backward))
    )


def shaping(impairment: Impairment) -> dict[str, object]:
    """Return one direction as parameters of Mininet's TCIntf: Mbit/s, percent, packets."""
    found: dict[str, object] = {}
    if impairment.rate_bps is not None:
        found["bw"] = min(impairment.rate_bps / 1e6, TC_RATE_MAX_MBPS)
    if impairment.delay_ms:
        found["delay"] = f"{impairment.delay_ms:g}ms"
    if impairment.jitter_ms:
        found["jitter"] = f"{impairment.jitter_ms:g}ms"
    if impairment.loss:
        found["loss"] = impairment.loss * 100
    if impairment.queue_bytes is not None:
        found["max_queue_size"] = max(1, impairment.queue_bytes // PACKET_BYTES)
    return found


HEAD: Final = '''#!/usr/bin/env python3
"""{0}: {1}

A network for Mininet alone. Root runs it: `./FILE` opens Mininet's prompt, `./FILE --ping` pings
every host from the publisher over the path and ends with 0 if all of them answer.

Rates, delays and losses need netem in the kernel; where there is none, the script says so and sets
none of them. Multicast to GROUP reaches every host from any host.
"""

import argparse
import os
import subprocess
import sys

from mininet.cli import CLI
from mininet.link import Link, TCLink
from mininet.net import Mininet
from mininet.node import Node, OVSSwitch

'''

BODY: Final = '''

KERNEL_SWITCH = os.path.isdir("/sys/module/openvswitch")


def has_netem():
    """Whether the kernel has netem, tried in a network namespace that ends with the try."""
    words = ["unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", "netem"]
    return subprocess.run(words, capture_output=True).returncode == 0


def end(number, node, port, interface, mac, shaping, shaped):
    """What addLink takes for one end."""
    parameters = dict(shaping) if shaped else {}
    if interface in ADDRESSES:
        parameters["ip"] = ADDRESSES[interface]
    return {
        "port%d" % number: port,
        "intfName%d" % number: interface,
        "addr%d" % number: mac,
        "params%d" % number: parameters,
    }


def network():
    """Nodes and links; every interface is named as in the topology."""
    shaped = has_netem()
    if not shaped:
        print("this kernel has no netem: rates, delays and losses are NOT set", file=sys.stderr)
    net = Mininet(link=TCLink if shaped else Link, controller=None, build=False)
    datapath = "kernel" if KERNEL_SWITCH else "user"
    for name, dpid in SWITCHES.items():
        net.addSwitch(
            name, cls=OVSSwitch, dpid=dpid, datapath=datapath, failMode="secure",
            protocols="OpenFlow13",
        )
    for name in HOSTS:
        net.addHost(name, ip=None)
    for name in ROUTERS:
        net.addHost(name, cls=Node, ip=None)
    for a, b in LINKS:
        net.addLink(a[0], b[0], **end(1, *a, shaped), **end(2, *b, shaped))
    return net


def routes(net):
    """The control network: hosts reach each other by its routers, the path by itself."""
    for name in ROUTERS:
        net[name].cmd("sysctl -q -w net.ipv4.ip_forward=1")
        for path_ip, control_ip, _ in HOSTS.values():
            net[name].cmd("ip route add %s via %s" % (path_ip, control_ip))
    for name, (_, _, gateway) in HOSTS.items():
        net[name].cmd("ip route add default via %s" % gateway)
        net[name].cmd("ip route add 224.0.0.0/4 dev %s" % net[name].intfNames()[0])
        if not KERNEL_SWITCH:  # a switch outside of the kernel gets frames without checksums
            for interface in net[name].intfNames():
                net[name].cmd("ethtool -K %s tx off" % interface)


def entries():
    """Segments and path, as static entries of all switches."""
    for name in SWITCHES:
        for command, lines in (("add-groups", GROUPS[name]), ("add-flows", FLOWS[name])):
            if lines:
                words = ["ovs-ofctl", "-O", "OpenFlow13", command, name, "-"]
                subprocess.run(words, input=lines, text=True, check=True)


def ping(net):
    """Ping every other host from the publisher; print the answers."""
    bad = 0
    for name, (address, _, _) in HOSTS.items():
        if name != PUBLISHER:
            said = net[PUBLISHER].cmd("ping -c 3 -i 0.2 -W 2 %s" % address)
            bad += " 0% packet loss" not in said
            print("%s: %s" % (name, said.strip().splitlines()[-1]))
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ping", action="store_true", help="ping every host, and end")
    options = parser.parse_args()
    net = network()
    try:
        net.build()
        net.start()
        routes(net)
        entries()
        return ping(net) if options.ping else CLI(net) and 0
    finally:
        net.stop()


if __name__ == "__main__":
    sys.exit(main())
'''
