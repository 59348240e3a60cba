# SPDX-License-Identifier: Apache-2.0
"""A running network whose subscribers' interfaces on the path are made by a program: the plan has
those that exist, and none that are gone."""

from __future__ import annotations

import os

import pytest

from topologies.emulate import inventory_reading, lifecycle
from topologies.emulate.emulation import Emulation, open_emulation
from topologies.emulate.processes import relay_program
from topologies.model.load import find, load

pytestmark = [
    pytest.mark.root,
    pytest.mark.emulated,
    pytest.mark.skipif(not relay_program().exists(), reason="SKIPPED: run `make build` first"),
]
ADDRESS = "10.10.1.77/24"


def unplanned(emulation: Emulation) -> list[str]:
    return inventory_reading.unplanned(
        emulation.planned_inventory({}), emulation.inventory(), frozenset()
    )


def test_the_plan_follows_what_programs_make() -> None:
    network = load(find("bottleneck"), {"receivers": 2})
    makes, leaves_it = (host.name for host in network.subscribers)
    with (
        lifecycle.enter(lifecycle.new_run_id(f"test-own-{os.getpid()}")) as run,
        open_emulation(network, run.state_dir) as emulation,
    ):
        assert unplanned(emulation) == []
        emulation.leave_interfaces([makes, leaves_it])
        assert unplanned(emulation) == []
        assert emulation.path_address_of(makes) == ""

        nic, name = network.host(makes).nic1.interface, emulation.nic1_of(makes)
        kind = ["type", "vlan", "id", name.rpartition(".")[2]]
        if emulation.facts.edge_tags:
            kind = ["type", "macvlan", "mode", "passthru"]
        for command in (
            ["link", "add", "link", nic, "name", name, *kind],
            ["link", "set", "dev", name, "up"],
            ["address", "add", ADDRESS, "broadcast", "10.10.1.255", "dev", name],
        ):
            emulation.run(makes, ["ip", *command])
        (found, *_) = unplanned(emulation)
        assert found.startswith(f"{makes} interfaces: ")

        emulation.accept_interface(makes, ADDRESS)
        assert unplanned(emulation) == []
        assert emulation.path_address_of(makes) == "10.10.1.77"
        emulation.run(makes, ["ip", "address", "add", "10.10.1.78/24", "dev", name])
        assert {t.partition(":")[0] for t in unplanned(emulation)} == {
            f"{makes} routes",
            f"{makes}/{name} addresses",
        }
