# SPDX-License-Identifier: Apache-2.0
"""`downpour remote` refuses by name what needs all hosts on this machine, before it starts or
installs anything."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from experiments import cli
from experiments.design import join_leave_expansion, trace_input
from experiments.design.conditions import Conditions
from experiments.design.expansion import CellSpec
from experiments.design.layers import Rivals
from experiments.design.spec import JoinLeaveSpec, UsageError, find, load_as
from experiments.runs import real_hosts
from experiments.runs.options import RemoteOptions
from experiments.runs.preparation import Planned
from topologies.model.load import find as find_topology
from topologies.model.load import load as load_topology
from topologies.model.network import Network
from topologies.remote.inventory import RemoteHost

HOSTS = [RemoteHost("umass", "192.0.2.1", "192.0.2.1")]


def planned(cell: CellSpec, network: Network) -> Planned:
    return Planned(cell, network, trace_input.of_file(1))


def asked(one: Planned, hosts: list[RemoteHost] = HOSTS, **given: Any) -> real_hosts.HostsClock:
    """Return the clock of a plan that is only shown."""
    options = RemoteOptions(name="lossy", inventory=Path("hosts.ini"), dry_run=True, **given)
    return real_hosts.clock_of(hosts, options, [one])


@pytest.mark.parametrize("protocol", ["ldm7", "ldm6"])
def test_cells_of_ldm_suit(protocol: str, cells: dict[str, CellSpec], geni5: Network) -> None:
    clock = asked(planned(cells[protocol], geni5), sample=["hosts", "events"])
    assert clock.describe() == {"clock": "hosts", "hosts": {"umass": "192.0.2.1"}}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"protocol": "norm"}, "protocol norm; valid: ldm7, ldm6"),
        ({"protocol": "fcast"}, "protocol fcast; valid: ldm7, ldm6"),
        ({"protocol": "m2c"}, "protocol m2c; valid: ldm7, ldm6"),
        ({"vlans_by": "ldmd"}, "interfaces that ldmd makes; valid: the network's own"),
        ({"pause_ms": 5.0}, "a receiver that pauses; valid: receivers that do not"),
        ({"conditions": Conditions(first_receiver="stop-10")}, "a receiver that pauses; valid: "),
        ({"background_flows": 1}, "competing flows; valid: none"),
        ({"rivals": Rivals(sessions=1)}, "competing flows; valid: none"),
        ({"rivals": Rivals(short_flows_per_min=1)}, "competing flows; valid: none"),
        ({"conditions": Conditions(tcp="ctcp")}, "TCP ctcp; valid: cubic, bbr, reno"),
        ({"conditions": Conditions(monitor="on")}, "a monitor; valid: none"),
    ],
)
def test_cells_that_need_all_hosts_here(
    changes: dict[str, Any], found: str, cells: dict[str, CellSpec], geni5: Network
) -> None:
    cell = dataclasses.replace(cells["ldm7"], **changes)
    with pytest.raises(UsageError, match=f"^--inventory: found {found}"):
        asked(planned(cell, geni5))


def test_subscribers_that_come_and_go_are_refused() -> None:
    spec = load_as(JoinLeaveSpec, find("join-leave"))
    network = load_topology(find_topology("drfsm8"), {"lanes": 3})
    cell = join_leave_expansion.expand(spec, [h.name for h in network.subscribers])[0]
    hosts = [RemoteHost(network.publisher.name, "192.0.2.1", "192.0.2.1")]
    with pytest.raises(UsageError, match="found subscribers that join and leave; valid: "):
        asked(planned(cell, network), hosts)


def test_several_lanes_are_refused(cells: dict[str, CellSpec]) -> None:
    network = load_topology(find_topology("drfsm8"), {"lanes": 2})
    hosts = [RemoteHost(network.publisher.name, "192.0.2.1", "192.0.2.1")]
    with pytest.raises(UsageError, match="found 2 lanes; valid: one"):
        asked(planned(cells["ldm7"], network), hosts)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"monitor": True}, "--monitor; valid: none"),
        ({"sample": ["pidstat"]}, "--sample pidstat; valid: events, hosts"),
        ({"capture": ["a:b"]}, "--capture a:b; valid: none"),
        ({"keep_work": True}, "--keep-work; valid: without it"),
    ],
)
def test_options_that_need_all_hosts_here(
    given: dict[str, Any], found: str, cells: dict[str, CellSpec], geni5: Network
) -> None:
    with pytest.raises(UsageError, match=f"^--inventory: found {found}"):
        asked(planned(cells["ldm7"], geni5), **given)


def test_nothing_is_installed_for_what_is_refused(
    cells: dict[str, CellSpec], geni5: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed: list[Path] = []
    monkeypatch.setattr(real_hosts, "install", installed.append)
    monkeypatch.setattr(real_hosts, "needs_root", lambda: "")
    monkeypatch.setattr(real_hosts, "check_machine", lambda *_: None)
    options = RemoteOptions(name="lossy", inventory=Path("hosts.ini"), install=True)
    ldm = planned(cells["ldm7"], geni5)
    flows = planned(dataclasses.replace(cells["ldm7"], background_flows=1), geni5)
    with pytest.raises(UsageError):
        real_hosts.clock_of(HOSTS, options, [ldm, flows])
    with pytest.raises(UsageError, match="^--inventory: hosts.ini: found host 'nobody'"):
        real_hosts.clock_of([RemoteHost("nobody", "a", "a")], options, [ldm])
    assert installed == []
    real_hosts.clock_of(HOSTS, options, [ldm])
    assert installed == [Path("hosts.ini")]


@pytest.mark.parametrize("text", [None, "[a\n", "a ansible_port=x\n", "[group]\n"])
def test_a_bad_inventory_is_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    path = tmp_path / "hosts.ini"
    if text is not None:
        path.write_text(text)
    assert cli.main(["remote", "lossy", "--inventory", str(path), "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("--inventory: ")
    assert "; valid: " in said
    assert said.count("\n") == 1
