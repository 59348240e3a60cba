# SPDX-License-Identifier: Apache-2.0
"""Read the inventory of a whole network: every node's interfaces and every switch's entries. Derive
from the plan what they must be."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from topologies.emulate import census, socket_options, sockets, strangers
from topologies.emulate.build import nic1_interface
from topologies.emulate.counter_reading import firewalls, switch_of_interface
from topologies.emulate.elsewhere import NOBODY, Elsewhere
from topologies.emulate.facts import KernelFacts
from topologies.emulate.socket_options import SocketOptions
from topologies.emulate.switch_reading import SWITCHES, SwitchReader, groups
from topologies.model.network import Network
from topologies.model.static_flows import static_flows
from topologies.model.wire_plan import SHAPER_HANDLE, WIRE, WirePlan, queue_bytes
from topologies.watch import inventory
from topologies.watch.inventory import Inventory

MTU: Final = 1500
RULES: Final = "0 32766 32767"  # in an untouched Linux: local, main, default
BEHIND_CLSACT: Final = "1 x ingress u32"  # a link's redirection
# At hosts. Read-back checks their content.
_EXPERIMENTS_RULES: Final = re.compile(r"\d+ x ip filter INPUT(?:, )?")


def read(
    network: Network,
    pids: Mapping[str, int],
    reader: SwitchReader,
    *,
    switches: Collection[str] | None = None,
    pause_s: float = 0.0,
    elsewhere: Mapping[str, Elsewhere] = NOBODY,
    started: Collection[int] = (),
    options: SocketOptions | None = None,
) -> Inventory:
    """Return "<node> <thing>" or "<node>/<interface> <thing>" -> value. `switches`: the switches
    whose entries are read (None: all). With `pause_s`, nodes are read one by one, this far apart:
    all at once would delay other processes. `started`: the run's processes in nodes here.
    `options`: what earlier looks found of sockets' options (None: they are not read). Raises
    NetworkError."""
    owner = switch_of_interface(network)
    with_rules = firewalls(network)
    found: Inventory = {}
    for node, pid in pids.items():
        here = elsewhere[node].call("inventory") if node in elsewhere else inventory.read(pid)
        if node in with_rules and "firewall" in here:
            others = _EXPERIMENTS_RULES.sub("", here.pop("firewall")).strip(", ")
            here |= {"firewall": others} if others else {}
        found |= _keyed(node, here)
        time.sleep(pause_s)
    for thing, value in inventory.read(None).items():
        name, _, rest = thing.partition(" ")
        if name in owner:
            found[f"{owner[name]}/{thing}"] = value
        elif thing == "interfaces":
            known = [n for n in value.split() if n in owner]
            found["switches interfaces"] = " ".join(known)
        elif thing in ("firewall", "rules"):
            found[f"switches {thing}"] = value
    asked = [s.name for s in network.switches if switches is None or s.name in switches]
    found |= reader.read(asked, owner, pause_s)
    here_only = {node: pid for node, pid in pids.items() if node not in elsewhere}
    programs = census.programs(here_only)
    found |= census.summary(programs)

    def again() -> list[census.Program]:
        return census.programs(here_only)

    found |= sockets.of_nodes(here_only, programs, again)
    found |= strangers.of_nodes(here_only, programs, again, started)
    if options is not None:
        found |= options.look(here_only, programs, algorithms(found))
    return found


def algorithms(found: Mapping[str, str]) -> dict[str, str]:
    """Return by node the congestion control that an inventory has."""
    end = f" {socket_options.ALGORITHM}"
    return {t.removesuffix(end): name for t, name in found.items() if t.endswith(end)}


def of_node(node: str, pid: int) -> Inventory:
    """Return the inventory of one node's interfaces. Raises NetworkError."""
    return _keyed(node, inventory.read(pid))


def _keyed(node: str, here: Mapping[str, str]) -> Inventory:
    return {_key(node, thing): value for thing, value in here.items()}


def _key(node: str, thing: str) -> str:
    name, _, rest = thing.partition(" ")
    of_node = not rest or name in ("sysctl", "socket")
    return f"{node} {thing}" if of_node else f"{node}/{thing}"


def plan(
    network: Network,
    facts: KernelFacts,
    wire: WirePlan,
    nodes: Iterable[str],
    elsewhere: Mapping[str, Elsewhere] = NOBODY,
) -> Inventory:
    """Return what an inventory must find of everything that follows from the plan, before an
    experiment sets anything. The values of links' queues are compared elsewhere; here, exactly
    these queues must exist."""
    hosts = {h.name for h in network.hosts}
    names: dict[str, set[str]] = {node: {"lo"} for node in nodes}
    asked: Inventory = {}
    owner = switch_of_interface(network)
    inner = {n for w in wire.links for n in (w.a_interface, w.b_interface)}
    for link in network.links:
        for port in (link.a, link.b):
            if port.node in names:
                names[port.node].add(port.interface)
    for host in network.hosts:
        for lane in range(1, network.lane_count + 1):
            names[host.name].add(nic1_interface(network, host, facts, lane))
    if inner:
        names[WIRE] = inner  # its loopback was never set up
    asked |= {f"{node} sockets": sockets.OWN for node in names}
    asked |= {f"{node} strangers": strangers.NONE for node in names}
    asked |= {f"{node} socket options": socket_options.AS_SET for node in names}
    for node, here in names.items():
        asked[f"{node} interfaces"] = " ".join(sorted(here))
        asked[f"{node} rules"] = RULES
        asked |= {f"{node}/{name} link": f"mtu {MTU}" for name in here - {"lo"}}
        if node in hosts:
            asked |= {f"{node}/{name} gso_max_segs": "1" for name in here - {"lo"}}
            there = elsewhere[node].facts if node in elsewhere else {}
            asked[f"{node} scheduling"] = there.get("scheduling") or census.scheduling(os.getpid())
    asked |= _wire(wire)
    patched = _patched(network, facts)
    asked["switches interfaces"] = " ".join(sorted(set(owner) - patched))
    asked["switches rules"] = RULES
    asked |= {f"{owner[n]}/{n} link": f"mtu {MTU}" for n in set(owner) - patched}
    asked |= {"switches policing": "none", "switches mirrors": "none"}
    for entries in static_flows(network, edge_tags=facts.edge_tags):
        for group in entries.groups:
            asked |= groups(entries.switch, str(group))
    return asked


def _patched(network: Network, facts: KernelFacts) -> set[str]:
    """Return the ports that are not interfaces: inside the userspace datapath, switches are joined
    internally."""
    if facts.datapath != "user":
        return set()
    switches = {s.name for s in network.switches}
    return {
        port.interface
        for link in network.links
        if link.is_plain and link.a.node in switches and link.b.node in switches
        for port in (link.a, link.b)
    }


def _wire(wire: WirePlan) -> Inventory:
    """Return the interfaces and queues that carry impaired links."""
    found: Inventory = {}
    lines: dict[str, list[str]] = {}
    for d in wire.directions:
        if d.mechanism != "relay":
            lines.setdefault(d.ingress, []).append("clsact clsact")
            found[f"{WIRE}/{d.ingress} filters"] = BEHIND_CLSACT
        parent = "root"
        if d.mechanism == "netem":
            lines.setdefault(d.egress, []).append("root netem")
            parent = "1:1"
        kind = "tbf" if d.asked.rate_bps is not None else "bfifo"
        if d.asked.rate_bps is not None or queue_bytes(d.asked) is not None:
            lines.setdefault(d.egress, []).append(f"{parent} {kind}")
        if d.asked.rate_bps is not None and d.asked.discipline:
            name = d.asked.discipline.partition(" ")[0]
            lines.setdefault(d.egress, []).append(f"{SHAPER_HANDLE}1 {name}")
    found |= {f"{WIRE}/{name} qdiscs": ", ".join(sorted(q)) for name, q in lines.items()}
    return found


def outlet_places(network: Network, wire: WirePlan) -> set[str]:
    """Return each "<node>/<interface>" where frames leave a switch or a link with a rate.
    Controllers that set queues may set them there."""
    switches = {s.name for s in network.switches}
    found = set()
    for w in wire.links:
        for d, source in zip(w.directions, (w.link.a, w.link.b), strict=True):
            if source.node in switches and d.asked.rate_bps is not None:
                found |= {f"{WIRE}/{d.egress}", f"{source.node}/{source.interface}"}
                found.add(f"{SWITCHES}/{source.interface}")
    return found


def flow_classes(wire: WirePlan) -> set[str]:
    """Return the classes of links' queues: fq_codel has one for each waiting flow."""
    places = {f"{WIRE}/{d.egress}" for d in wire.directions if d.asked.discipline}
    return {f"{place} {what}" for place in places for what in ("classes", "settings of classes")}


def as_built(found: Mapping[str, str], fixed: Collection[str]) -> Inventory:
    """Return the part of an early inventory that the builder left to the kernel. It must not
    change, except for settings that experiments make at hosts, and controllers make at switches
    other than the `fixed` ones."""
    return {
        thing: value
        for thing, value in found.items()
        if thing.partition(" ")[2] not in ("programs", "strangers", "scheduling", "firewall")
        and not thing.endswith(f" {socket_options.ALGORITHM}")
        and (
            thing.partition(" ")[0] in fixed
            or thing.partition(" ")[2].partition(" ")[0] not in ("flow", "group", "meter")
        )
    }


def fixed_switches(network: Network, facts: KernelFacts) -> set[str]:
    """Return the switches whose entries never change in a running network."""
    return {e.switch for e in static_flows(network, edge_tags=facts.edge_tags)}


def is_planned(thing: str, asked: Mapping[str, str]) -> bool:
    """Return whether the plan says what this thing must be, or that it must not be."""
    if thing in asked:
        return True
    node, _, what = thing.partition(" ")
    return what in ("qdiscs", "classes", "filters", "firewall", "interfaces", "rules") or any(
        what.startswith(f"{kind} ") and any(t.startswith(f"{node} {of} ") for t in asked)
        for kind, of in (("group", "group"), ("flow", "flow"), ("meter", "flow"))
    )


def unplanned(
    asked: Mapping[str, str], found: Mapping[str, str], free: Collection[str]
) -> list[str]:
    """Return a text for each thing that is not as planned. `free`: things, or
    "<node>/<interface>", that others may set."""
    relevant = {t: v for t, v in found.items() if is_planned(t, asked) and not is_free(t, free)}
    wanted = {t: v for t, v in asked.items() if not is_free(t, free)}
    return inventory.differences(wanted, relevant)


def changes(before: Mapping[str, str], now: Mapping[str, str], free: Collection[str]) -> list[str]:
    """Return a text for each thing that has changed."""
    kept = [{t: v for t, v in one.items() if not is_free(t, free)} for one in (before, now)]
    return [text.replace(": asked ", ": was ", 1) for text in inventory.differences(*kept)]


def is_free(thing: str, free: Collection[str]) -> bool:
    """Return whether others may set a thing, or anything at its place."""
    words = thing.split(" ")
    return thing in free or words[0] in free or words[1] in free
