# SPDX-License-Identifier: Apache-2.0
"""A failure costs other receivers nothing, and affected ones a bounded gap. test_in_guest.py
repeats this in a guest, where times are exact."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.path_service import scenarios
from tests.path_service.networks import DOMAIN, endpoints, lab_of, make_path, mesh, tidy
from tests.path_service.scenarios import HOSTS, PATH, RATE_BPS, Figures
from topologies.emulate.emulation import Emulation
from topologies.emulate.facts import probe
from topologies.emulate.processes import relay_program

pytestmark = [pytest.mark.root, pytest.mark.alone]
STALE = "cookie=0x444f574e01000063,priority=1000,in_port=2,dl_vlan=2077,actions=drop"
FOREIGN = "cookie=0x1234,priority=7,in_port=2,dl_vlan=2078,actions=drop"


@contextmanager
def mesh_lab(*, lease_s: float = 0.0) -> Iterator[Emulation]:
    """Bring the network up. Natively its links have rates alone, as a relay would distort times."""
    if not relay_program().exists():
        pytest.skip(f"{relay_program()} is not built (make build): failures were NOT tested")
    facts = probe()
    with lab_of(mesh(delayed=facts.clock == "virtual"), facts, lease_s=lease_s) as found:
        yield found


@pytest.fixture(scope="module")
def running() -> Iterator[Emulation]:
    with mesh_lab() as found:
        yield found


@pytest.fixture
def emulation(running: Emulation) -> Iterator[Emulation]:
    yield running
    tidy(running)


def show(what: str, figures: Figures) -> None:
    times = ", ".join(f"{name} after {ms:.1f} ms" for name, ms in figures.times_ms.items())
    print(f"{what}: {times}")
    for host, account in figures.accounts.items():
        print(f"    {host}: {account}")


@pytest.mark.long
def test_standby_takes_over() -> None:
    """This test comes first: it has its own network, and a process can be in one only."""
    with mesh_lab(lease_s=scenarios.LEASE_S) as emulation:
        figures = scenarios.standby_takeover(emulation)
    show("active controller killed, with a standby", figures)
    figures.undisturbed(["qb", "qc"])
    assert figures.times_ms["taken over"] > 0


@pytest.mark.parametrize("silent", [False, True], ids=["seen by its ports", "silent"])
def test_link_breaks(emulation: Emulation, silent: bool) -> None:
    figures = scenarios.link_down(emulation, silent=silent)
    show("link down", figures)
    figures.undisturbed(["qb", "qd"])
    qc = figures.accounts["qc"]
    assert qc.doubled == 0
    assert qc.lost > 0, "the link did not break"
    if emulation.facts.clock == "virtual":
        # Probes are sent every 100 ms; three of them must be lost. In flight: 5 to 10 ms.
        assert qc.gap_ms < (450 if silent else 50)


@pytest.mark.long
def test_leaves_come_and_go(emulation: Emulation) -> None:
    figures = scenarios.joins_and_leaves(emulation, 50)
    show("50 joins and leaves", figures)
    figures.undisturbed(["qb", "qc"])


def test_controller_is_killed_and_comes_back(emulation: Emulation) -> None:
    figures, younger = scenarios.controller_restart(emulation)
    show("controller killed", figures)
    figures.undisturbed(HOSTS)
    assert younger == {"a": [], "b": [], "c": [], "d": []}, "flows were installed again"


@pytest.mark.long
def test_what_a_dead_controller_left_goes_and_what_others_have_stays(emulation: Emulation) -> None:
    make_path(emulation, PATH, RATE_BPS, ["qc"])
    before = scenarios.flow_table("c")
    emulation.kill_controller(DOMAIN)
    scenarios.add_flow("c", STALE)
    scenarios.add_flow("c", FOREIGN)
    lost = next(flow for flow in before if "priority=1000" in flow)
    scenarios.del_flow("c", lost)
    assert scenarios.flow_table("c") != before
    emulation.start_controller(DOMAIN)
    scenarios.wait_until("the switch is as before", lambda: scenarios.flow_table("c") == before)
    assert scenarios.has_flow("c", "cookie=0x1234"), "another controller's flow is gone"


def test_switch_loses_its_power(emulation: Emulation) -> None:
    figures = scenarios.switch_restart(emulation)
    show("switch without power for 500 ms", figures)
    figures.undisturbed(["qb", "qd"])
    qc = figures.accounts["qc"]
    assert qc.doubled == 0
    assert qc.lost > 400  # a datagram per millisecond


@pytest.mark.long
def test_leaf_of_a_path_joins_while_the_controller_is_new(emulation: Emulation) -> None:
    """The store keeps paths: one from before the kill takes a leaf after it."""
    make_path(emulation, PATH, RATE_BPS, ["qb"])
    emulation.kill_controller(DOMAIN)
    emulation.start_controller(DOMAIN)
    _, leaves = endpoints(emulation.network)
    scenarios.add_leaf(emulation, leaves["qc"])
    figures = scenarios.counted(emulation, ["qb", "qc"])
    figures.undisturbed(["qb", "qc"])
