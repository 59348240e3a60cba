# SPDX-License-Identifier: Apache-2.0
"""Check a topology file and report every mistake at once.

First check each block by itself (`shape.py`, with the models of `spec.py`), then what must hold
between blocks. The second step leaves out blocks with a mistake, so that one mistake is not
reported twice. Reachability, which depends on everything, is only checked when nothing else is
wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from topologies.model.check_hosts import HostChecks, check_reachable
from topologies.model.check_links import LinkChecks
from topologies.model.check_nodes import NodeChecks, ParameterChecks
from topologies.model.check_segments import ControlNetworkChecks, SegmentChecks
from topologies.model.document import Document, TopologyErrors
from topologies.model.expand import monitor_of, plan_hosts
from topologies.model.network import Role
from topologies.model.shape import parse_shape
from topologies.model.spec import HostSpec, TopologySpec

MONITOR: Final = "monitor"  # the node's name, unless another node has it


def validate(
    document: Document, parameters: Mapping[str, int | str]
) -> tuple[TopologySpec, dict[str, int]]:
    """Return the checked file and the value of each parameter. Raises TopologyErrors."""
    spec = parse_shape(document)
    whole = not document.errors
    counts: dict[str, int] = {}
    if spec is not None:
        counts = ParameterChecks(document, spec).parameters(parameters)
        nodes = NodeChecks(document, spec)
        nodes.names()
        nodes.nodes()
        LinkChecks(document, spec).links()
        nodes.families()
        SegmentChecks(document, spec).segments()
        ControlNetworkChecks(document, spec).control_network()
        whole = whole and not document.errors
        if whole:
            HostChecks(document, spec).hosts(counts)
            if not document.errors:
                check_reachable(document, spec, plan_hosts(spec, counts))
    if document.errors or spec is None:
        raise TopologyErrors(document.errors)
    return spec, counts


def with_monitor(document: Document, spec: TopologySpec, counts: Mapping[str, int]) -> TopologySpec:
    """Return a checked file with a monitor at the publisher's site, unless it has one. Raises
    TopologyErrors if the control network has no room for it."""
    if monitor_of(spec) is not None:
        return spec
    taken = {*spec.nodes, *(host.name for host in plan_hosts(spec, counts))}
    names = (MONITOR, *(f"{MONITOR}{number}" for number in range(2, len(taken) + 3)))
    name = next(name for name in names if name not in taken)
    monitor = HostSpec(kind="host", role=Role.MONITOR, attached_to=None, site=None, access=None)
    spec = spec.model_copy(update={"nodes": {**spec.nodes, name: monitor}})
    HostChecks(document, spec).hosts(counts)
    if document.errors:
        raise TopologyErrors(document.errors)
    return spec
