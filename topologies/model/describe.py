# SPDX-License-Identifier: Apache-2.0
"""Show a `Network` as text, for `make status` and the documentation. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from common.counting import counted
from common.quantities import format_rate, format_size
from common.terminal import DEFAULT_COLUMNS
from topologies.model.network import Impairment, Network, Role


def describe(network: Network, width: int = DEFAULT_COLUMNS) -> str:
    """Return tables of domains, hosts with their segments and round trips, and links, ending with a
    newline. Sentences wrap at `width`."""
    return (
        f"{textwrap.fill(f'{network.name}: {network.description}', width)}\n"
        f"multicast group {network.multicast_group}, "
        f"{counted(len(network.switches), 'switch', 'switches')}, "
        f"{counted(len(network.subscribers), 'subscriber')}\n"
        f"\n{hosts_table(network)}\n{domains_table(network)}\n{links_table(network)}"
    )


def hosts_table(network: Network) -> str:
    """Return hosts, the ends of their segments, and their round trips to the publisher. If sites
    have the names of their hosts, there is no column of sites."""
    rows = []
    has_sites = any(host.site != host.name for host in network.hosts)
    lanes = range(1, network.lane_count + 1)
    for host, lane in ((h, k) for h in network.hosts for k in lanes):
        segment = network.segment_of(host.name, lane)
        rtt = network.round_trip_ms.get(host.name)
        rows.append(
            [
                host.name,
                host.role.value if host.role is Role.PUBLISHER else "",
                host.site if has_sites else "",
                str(lane) if network.lane_count > 1 else "",
                host.path_nic(lane).ip,
                host.nic2.ip,
                segment.name,
                str(segment.vlan),
                f"{segment.endpoint_switch}:{segment.endpoint_port}",
                "" if rtt is None else f"{rtt:g}",
            ]
        )
    if (monitor := network.monitor) is not None:
        rows.append(
            [
                monitor.name,
                Role.MONITOR.value,
                monitor.site if has_sites else "",
                "",
                "",
                monitor.nic2.ip,
                *[""] * 4,
            ]  # fmt: skip
        )
    headers = ["host", "role", "site", "lane"]
    headers += ["NIC1", "NIC2", "segment", "VLAN", "ends at", "RTT ms"]
    return _table(headers, rows, right=("VLAN", "RTT ms"))


def domains_table(network: Network) -> str:
    """Return domains and their switches."""
    rows = [
        [
            domain.name,
            domain.controlled_by.value,
            " ".join(s.name for s in network.switches if s.domain == domain.name),
        ]
        for domain in network.domains
    ]
    return _table(["domain", "controlled by", "switches"], rows)


def links_table(network: Network) -> str:
    """Return the links between switches and all impaired links. Directions that differ have a line
    each."""
    switches = {switch.name for switch in network.switches}
    rows = []
    for link in network.links:
        if link.is_plain and not {link.a.node, link.b.node} <= switches:
            continue
        ends = [link.a.node, "<->", link.b.node]
        if link.forward == link.backward:
            rows.append([*ends, *_impairment(link.forward)])
        else:
            rows.append([link.a.node, "->", link.b.node, *_impairment(link.forward)])
            rows.append([link.b.node, "->", link.a.node, *_impairment(link.backward)])
    headers = ["link", "", "", "rate", "delay ms", "jitter ms", "loss", "queue"]
    return _table(headers, rows, right=("rate", "delay ms", "jitter ms", "loss", "queue"))


def _impairment(impairment: Impairment) -> list[str]:
    return [
        "" if impairment.rate_bps is None else format_rate(impairment.rate_bps),
        f"{impairment.delay_ms:g}" if impairment.delay_ms else "",
        f"{impairment.jitter_ms:g}" if impairment.jitter_ms else "",
        f"{impairment.loss * 100:g}%" if impairment.loss else "",
        "" if impairment.queue_bytes is None else format_size(impairment.queue_bytes),
    ]


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """Return columns as wide as their widest cell, without empty columns."""
    columns = [
        (header, [row[i] for row in rows])
        for i, header in enumerate(headers)
        if any(row[i] for row in rows)
    ]
    lines = [""] * (len(rows) + 1)
    for header, cells in columns:
        width = max(len(cell) for cell in (header, *cells))
        for i, cell in enumerate((header, *cells)):
            padded = cell.rjust(width) if header in right else cell.ljust(width)
            lines[i] += ("  " if lines[i] else "") + padded
    return "".join(line.rstrip() + "\n" for line in lines)
