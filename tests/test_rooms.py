# SPDX-License-Identifier: Apache-2.0
"""Rooms that compute the same thing agree, and commands are those of the documentation."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from controller.paths.core import Endpoint, core_of
from controller.paths.multipoint_path import MultipointPath
from controller.paths.reservations import Reservations
from controller.paths.trees import hops_to
from parsers.read.cell_files import lossy_link_directions
from topologies.model import wire_plan
from topologies.model.handoff_loss import with_handoff_loss
from topologies.model.load import find, load
from topologies.model.network import ControlledBy
from topologies.model.paths import path_to

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize(
    ("name", "parameters"), [("geni5", {"receivers": 64}), ("drfsm8", {}), ("bottleneck", {})]
)
def test_controller_routes_as_the_topology_promises(name: str, parameters: dict[str, int]) -> None:
    """`topologies.model.paths` gives the switches from which a subscriber's RTT is computed. The
    controller must choose the same switches."""
    network = load(find(name), parameters)
    (domain,) = (d.name for d in network.domains if d.controlled_by is ControlledBy.CONTROLLER)
    core = core_of(network, domain)
    of_domain = {s.name for s in network.switches if s.domain == domain}
    segment = network.segment_of(network.publisher.name)
    root = segment.endpoint_switch
    reservations = Reservations(core)
    endpoint = Endpoint(root, segment.endpoint_port, segment.vlan)
    reservations.replace(None, MultipointPath("p", 1, endpoint, 0))
    for host in network.subscribers:
        leaf = network.segment_of(host.name).endpoint_switch
        chosen = [
            root,
            *(hop.target for hop in hops_to(reservations, reservations.tree("p"), leaf)),
        ]
        promised = [hop.target for hop in path_to(network, host.name)]
        inside = [node for node in promised if node in of_domain]
        assert chosen == inside


def test_parsers_know_where_netem_loses_what_the_topology_asks_for() -> None:
    """topologies.model.wire_plan numbers the interfaces of impaired links."""
    network = with_handoff_loss(load(find("drfsm8")), 0.01)
    planned = {
        f"{wire_plan.WIRE}/{d.egress}"
        for d in wire_plan.plan(network, "netem").directions
        if d.asked.loss > 0
    }
    found = lossy_link_directions(network.to_json(), "network.json")
    assert found == planned | {"sw-frgp:star/forward"}
    assert len(planned) == 1


def test_make_help_names_every_documented_command() -> None:
    text = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for command in ("experiment-NAME", "test", "doctor", "up", "shell", "status", "down", "report"):
        assert f"make {command} " in text


def test_make_shell_without_host_says_what_is_valid() -> None:
    done = subprocess.run(["make", "-s", "shell"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0
    assert "found no HOST; valid: make shell HOST=name" in done.stderr
