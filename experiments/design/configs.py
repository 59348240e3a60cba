# SPDX-License-Identifier: Apache-2.0
"""Configuration files of ldmd for one cell. Pure. `protocols/ldm.py` has the command lines.

LDM's own connections (subscription, backstop) run over NIC2, the routed control network; FMTP and
LDM6's data run over NIC1, the path: the papers ran both protocols over the same VLAN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from common.places import program
from controller.api.path_client import Endpoint
from experiments.design.expansion import CellSpec, Feed
from topologies.model.network import Host, Network

LDM_PORT: Final = 388
GROUP_PORT: Final = 38800  # the papers' multicast port
TTL: Final = 16


def ldm_address(host: Host, cell: CellSpec) -> str:
    """Return the address at which the host's ldmd listens: NIC1 if the cell makes the path, else
    NIC2."""
    return host.nic1.ip if cell.makes_path else host.nic2.ip


def _settings(cell: CellSpec, service: Path | None, b_rcv_bytes: int | None = None) -> list[str]:
    if cell.protocol == "ldm6":
        # Skip nothing as too old: at the end of a replay, products are as old as it is long.
        latency = max(3600, round(2 * cell.duration_s + cell.drain_timeout_s))
        return _with([f"SET ldm6.max_latency_s {latency}"], cell.settings)
    settings = [
        "SET fmtp.layout 2021",  # its time stamp in the BOP gives the FMTP delay
        f"SET fmtp.f_snd {cell.f_snd:g}",
        f"SET fmtp.f_rcv {cell.f_rcv:g}",
        *(f"SET fmtp.r_mc_bps {f.r_mc_bps} {f.label}".rstrip() for f in cell.feeds),
        f"SET fmtp.b_rcv_bytes {b_rcv_bytes or cell.b_rcv_bytes}",
        *([f"SET fmtp.b_snd_bytes {cell.b_snd_bytes}"] if cell.b_snd_bytes else []),
        f"SET fmtp.ttl {TTL}",
        "SET ldm7.fallback 0",  # measured products arrive over LDM7 or not at all
        f"SET fmtp.repair {cell.repair}",
        f"SET fmtp.mac_level {cell.mac_level}",
        "SET ldm7.verify_md5 0",  # as the papers' subscribers
    ]
    if cell.backlog_s is not None:
        settings.append(f"SET ldm6.time_offset_s {cell.backlog_s:g}")
    if service is not None:
        settings.append(f"SET path.service unix:{service}")
        settings += [f"SET path.rate_bps {f.r_vn_bps} {f.label}".rstrip() for f in cell.feeds]
    return _with(settings, cell.settings)


def relay_lines(network: Network, cell: CellSpec, host: str, feed: Feed) -> list[str]:
    """Return the entries that admit the hosts that ask `host` over LDM6."""
    hosts = cell.subscribing(h.name for h in network.subscribers)
    clients = [h for h, upstream in cell.upstreams(hosts).items() if upstream == host]
    return [_allow([feed], network.host(h).nic2.ip) for h in clients]


def unicast_conf(cell: CellSpec, feed: Feed, upstream: Host) -> str:
    """Return ldmd's file at a subscriber without multicast: LDM6 over the routed network."""
    latency = max(3600, round(2 * cell.duration_s + cell.drain_timeout_s))
    request = f'REQUEST {feed.name} ".*" {upstream.nic2.ip}:{LDM_PORT}'
    return _text(cell, [f"SET ldm6.max_latency_s {latency}", request])


def _with(lines: Sequence[str], more: Mapping[str, str]) -> list[str]:
    """Return the lines, with further settings replacing those of the same name."""
    kept = [line for line in lines if line.split()[1] not in more]
    return [*kept, *(f"SET {name} {value}" for name, value in more.items())]


def _allow(feeds: Iterable[Feed], address: str) -> str:
    """Return an entry that admits this address and no other (expressions have at most 255
    bytes)."""
    names = "|".join(feed.name for feed in feeds)
    return f'ALLOW {names} "^{address.replace(".", "[.]")}$"'


def _text(
    cell: CellSpec,
    entries: Sequence[str],
    service: Path | None = None,
    b_rcv_bytes: int | None = None,
) -> str:
    head = f"# {cell.experiment}/{cell.cell}, written by experiments/design/configs.py"
    return "\n".join([head, *_settings(cell, service, b_rcv_bytes), *entries]) + "\n"


def publisher_conf(
    network: Network,
    cell: CellSpec,
    roots: Mapping[str, Endpoint],
    service: Path,
) -> str:
    """Return ldmd's file at the publisher. `roots`: its endpoint at the path service by feed;
    `service`: the socket of the path service, which ldmd asks for the paths of its feeds."""
    publisher, feeds = network.publisher, cell.feeds
    subscribers = [
        network.host(name) for name in cell.subscribing(h.name for h in network.subscribers)
    ]
    allowed = [_allow(feeds, ldm_address(h, cell)) for h in subscribers]
    if cell.protocol == "ldm6":
        return _text(cell, allowed)
    multicast = []
    for feed in feeds:
        nic, root = publisher.path_nic(feed.lane), roots[feed.name]
        group = network.group_of(feed.lane)
        multicast.append(
            f"MULTICAST {feed.name} {group}:{GROUP_PORT} {nic.ip} {nic.prefix_len} "
            f"{root.vlan} {root.switch} {root.port}"
        )
        # FMTP comes from the path; addresses that the publisher assigns need no entry.
        if not cell.ldmd_makes_vlans:
            allowed += [_allow([feed], h.path_nic(feed.lane).ip) for h in subscribers]
    return _text(cell, [*multicast, *allowed], None if cell.makes_path else service)


def queue_settings(cell: CellSpec, nic: str, build: Path) -> str:
    """Return the lines that make the publisher's ldmd set the queues of its interface; none if the
    cell sets them. The interface already exists: the network's, with or without a tag."""
    if not cell.ldmd_shapes:
        return ""
    settings = {
        "ldm7.nic": nic,
        "ldm7.nic_tags": "0",
        "ldm7.nic_buffer_bytes": str(cell.b_mc_bytes),
        "ldm7.vlanutil": str(program("vlanutil", build)),
    }
    return "".join(f"SET {name} {value}\n" for name, value in settings.items())


def vlan_settings(cell: CellSpec, edge_tags: bool, build: Path) -> str:
    """Return the lines by which a subscriber's ldmd makes its interface; none if the network makes
    it. `edge_tags`: edge switches tag for the hosts."""
    if not cell.ldmd_makes_vlans:
        return ""
    own = str(program("vlanutil", build))
    settings = {"ldm7.vlanutil": cell.settings.get("ldm7.vlanutil", own)}
    settings |= {"ldm7.nic_tags": "0"} if edge_tags else {}
    return "".join(f"SET {name} {value}\n" for name, value in settings.items())


def subscriber_conf(
    network: Network, cell: CellSpec, host: Host, feed: Feed, leaf: Endpoint
) -> str:
    """Return ldmd's file at a subscriber of `feed`. `leaf`: its segment's endpoint at the path
    service."""
    upstream = f"{ldm_address(network.publisher, cell)}:{LDM_PORT}"
    if cell.protocol == "ldm6":
        return _text(cell, [f'REQUEST {feed.name} ".*" {upstream}'])
    nic = host.path_nic(feed.lane)
    interface = nic.interface if cell.ldmd_makes_vlans else nic.ip
    entry = f"RECEIVE {feed.name} {upstream} {interface} {leaf.switch} {leaf.port} {leaf.vlan}"
    entries = [entry, *relay_lines(network, cell, host.name, feed)]
    buffers = cell.b_rcv_of(cell.subscribing(h.name for h in network.subscribers))
    return _text(cell, entries, b_rcv_bytes=buffers.get(host.name))
