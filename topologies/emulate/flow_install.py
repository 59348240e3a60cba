# SPDX-License-Identifier: Apache-2.0
"""Install the entries of `static_flows` in the switches."""

from __future__ import annotations

from collections.abc import Sequence

from common.shell import check_all
from topologies.emulate.facts import KernelFacts
from topologies.model.network import Network
from topologies.model.static_flows import static_flows


def install_static_flows(
    network: Network, facts: KernelFacts, switches: Sequence[str] | None = None
) -> None:
    """Install the static flows in all switches, or in `switches`. Raises NetworkError."""
    entries = [
        e
        for e in static_flows(network, edge_tags=facts.edge_tags)
        if switches is None or e.switch in switches
    ]
    ofctl = ["ovs-ofctl", "-O", "OpenFlow13"]
    # Groups first: flows refer to them.
    for what, lines in (
        ("add-groups", {e.switch: e.group_lines() for e in entries}),
        ("add-flows", {e.switch: e.flow_lines() for e in entries}),
    ):
        check_all(
            {f"{what} {s}": ([*ofctl, what, s, "-"], text) for s, text in lines.items() if text}
        )
