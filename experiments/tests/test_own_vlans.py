# SPDX-License-Identifier: Apache-2.0
"""Subscribers whose ldmd makes their interfaces on the path (`vlans_by: ldmd`)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.places import EXPERIMENTS
from controller.api.path_client import endpoints_of
from experiments.cells import surveillance
from experiments.cells.cell_base import CellError
from experiments.cells.own_vlans import OwnVlans, address_assigned, made, removals
from experiments.design import configs
from experiments.design.expansion import CellSpec, expand
from experiments.design.shaping import Setting
from experiments.design.spec import ExperimentSpec, SpecErrors, at_level, load, load_as
from topologies.model.load import find as find_topology
from topologies.model.load import load as load_topology

GOOD = (EXPERIMENTS / "lossless.yaml").read_text()
VLANUTIL = "/b/ldm7/vlanutil"
NIC = "wsu1-nic1.1202"
MADE = (
    f"20261122T010203.5Z down7 NOTE  Interface {NIC} made: {VLANUTIL} create 10.1.0.7/24 10.1.0.1\n"
)
REPLY = "20261122T010203.4Z down7 NOTE  Subscription reply: {feed=X}, ifaceCidrAddr=10.1.0.7/24\n"
OTHER = MADE.replace("10.1.0.7", "10.1.0.8")
GONE = f"20261122T010209.5Z down7 NOTE  Interface {NIC} removed\n"


def written(folder: Path, old: str, new: str) -> Path:
    assert old in GOOD
    path = folder / "x.yaml"
    path.write_text(GOOD.replace(old, new, 1))
    return path


def cells_of(folder: Path, parameter: str) -> dict[str, CellSpec]:
    path = written(folder, "parameters:\n", f"parameters:\n{parameter}")
    cells = expand(at_level(load_as(ExperimentSpec, path), "quick"))
    return {cell.protocol: cell for cell in cells}


def test_the_network_makes_them_unless_ldmd_is_asked_to(tmp_path: Path) -> None:
    assert not cells_of(tmp_path, "")["ldm7"].ldmd_makes_vlans
    asked = cells_of(tmp_path, "  vlans_by: ldmd\n")
    assert asked["ldm7"].ldmd_makes_vlans
    assert not asked["ldm6"].ldmd_makes_vlans  # it has no path


def test_feasibility_has_them() -> None:
    """As in the trial (DRFSM21 2.2.2)."""
    spec = at_level(load_as(ExperimentSpec, EXPERIMENTS / "feasibility.yaml"), "quick")
    assert all(cell.ldmd_makes_vlans and cell.ldmd_shapes for cell in expand(spec))


def refusal(path: Path) -> str:
    with pytest.raises(SpecErrors) as caught:
        load(path)
    (found,) = str(caught.value).splitlines()
    return found


def test_another_maker_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "parameters:\n", "parameters:\n  vlans_by: host\n")
    number = path.read_text().splitlines().index("  vlans_by: host") + 1
    line = f"x.yaml:{number}: found vlans_by 'host' in parameters; valid: 'network' or 'ldmd'"
    assert refusal(path).endswith(line)


def test_subscribing_over_the_path_needs_the_networks(tmp_path: Path) -> None:
    changed = "protocol: [ldm7]\n  pull_path: [nic1]"
    path = written(tmp_path, "protocol: [ldm7, ldm6]", changed)
    asked = "parameters:\n  vlans_by: ldmd\n"
    path.write_text(path.read_text().replace("parameters:\n", asked, 1))
    number = path.read_text().splitlines().index("  vlans_by: ldmd") + 1
    line = f"x.yaml:{number}: found pull_path nic1 with vlans_by: ldmd; valid: vlans_by: network"
    assert refusal(path).endswith(line)


def test_join_leave_refuses_it(tmp_path: Path) -> None:
    text = (EXPERIMENTS / "join-leave.yaml").read_text()
    path = tmp_path / "x.yaml"
    path.write_text(text.replace("\nparameters:\n", "\nparameters:\n  vlans_by: ldmd\n", 1))
    line = "found vlans_by: ldmd; valid: network with kind join-leave"
    assert line in refusal(path)


def test_the_subscriber_names_its_nic_and_vlanutil(tmp_path: Path) -> None:
    cell = cells_of(tmp_path, "  vlans_by: ldmd\n")["ldm7"]
    network = load_topology(find_topology("geni5"))
    host = network.subscribers[1]
    root, leaves = endpoints_of(network)
    leaf = leaves[network.segment_of(host.name).name]
    text = configs.subscriber_conf(network, cell, host, cell.feeds[0], leaf)
    upstream = f"{network.publisher.nic2.ip}:388"
    end = f"{leaf.switch} {leaf.port} {leaf.vlan}"
    assert f"RECEIVE NGRID {upstream} {host.nic1.interface} {end}" in text.splitlines()
    build = Path("/b")
    assert configs.vlan_settings(cell, False, build) == f"SET ldm7.vlanutil {VLANUTIL}\n"
    lines = configs.vlan_settings(cell, True, build).splitlines()
    assert lines == [f"SET ldm7.vlanutil {VLANUTIL}", "SET ldm7.nic_tags 0"]
    given = dataclasses.replace(cell, settings={"ldm7.vlanutil": "mine"})
    assert configs.vlan_settings(given, False, build) == "SET ldm7.vlanutil mine\n"
    plain = dataclasses.replace(cell, vlans_by="network")
    assert configs.vlan_settings(plain, True, build) == ""
    # FMTP is let in only from assigned addresses.
    publisher = configs.publisher_conf(network, cell, {"NGRID": root}, Path("/s"))
    allowed = [line for line in publisher.splitlines() if line.startswith("ALLOW")]
    assert len(allowed) == cell.m
    assert not any(host.nic1.ip.replace(".", "[.]") in line for line in allowed)


def test_what_a_log_says() -> None:
    assert address_assigned("") == "none"
    assert address_assigned(REPLY) == "10.1.0.7/24"
    assert made(REPLY, NIC) == "none"
    assert made(MADE + MADE, NIC) == "10.1.0.7/24"
    assert made(MADE, NIC[:-1]) == "none"
    assert removals(MADE, NIC) == "0 times"
    assert removals(MADE + GONE, NIC) == "1 time"


class Fake:
    """A cell; an interface of its host `wsu1` comes and goes."""

    def __init__(self, folder: Path) -> None:
        self.network = load_topology(find_topology("geni5"))
        self.settings: list[Setting] = []
        self.saved: list[str] = []
        self.accepted: dict[str, str] = {}
        self.text = ""
        self.shown = ""
        self._log = folder / "wsu1.log"
        facts = SimpleNamespace(edge_tags=False)
        self.emulation = SimpleNamespace(
            facts=facts,
            elsewhere={},
            leave_interfaces=len,
            nic1_of=lambda _host: NIC,
            run=lambda *_argv, **_options: SimpleNamespace(stdout=self.shown),
            accept_interface=self.accepted.__setitem__,
        )
        self.fidelity = SimpleNamespace(read=lambda reader: list(reader()))

    def log(self, _host: str) -> Path:
        self._log.write_text(self.text)
        return self._log

    def save_settings(self) -> None:
        self.saved = [s.name for s in self.settings]

    def appears(self, kind: str = "vlan", key: str = "id", detail: object = 1202) -> None:
        value = f'"{detail}"' if isinstance(detail, str) else detail
        self.shown = (
            f'[{{"linkinfo": {{"info_kind": "{kind}", "info_data": {{"{key}": {value}}}}},'
            '"addr_info": [{"local": "10.1.0.7", "prefixlen": 24}]}]'
        )


@pytest.fixture
def fake(tmp_path: Path) -> Any:
    return Fake(tmp_path)


def names(fake: Any) -> list[str]:
    return [f"{s.name}: {s.asked}, {s.found}" for s in fake.settings if not s.ok]


def test_an_interface_that_came_and_went(fake: Any) -> None:
    vlans = OwnVlans(fake, ["wsu1"])
    vlans.leave()
    fake.text = REPLY + MADE
    fake.appears()
    vlans.check_made()
    assert fake.accepted == {"wsu1": "10.1.0.7/24"}
    fake.text, fake.shown = REPLY + MADE + GONE, ""
    vlans.check_gone()
    assert names(fake) == []
    assert len(fake.settings) == len(fake.saved) == 5


@pytest.mark.parametrize(
    ("text", "kind", "wrong"),
    [
        (REPLY, ("vlan", "id", 1202), "by vlanutil: asked 10.1.0.7/24, the kernel has none"),
        (
            REPLY + MADE,
            ("vlan", "id", 1203),
            "asked vlan 1202 10.1.0.7/24, the kernel has vlan 1203",
        ),
        (
            REPLY + MADE,
            ("macvlan", "mode", "passthru"),
            "the kernel has macvlan passthru 10.1.0.7/24",
        ),
        (REPLY + MADE + OTHER, ("vlan", "id", 1202), "has 10.1.0.7/24 10.1.0.8/24"),
    ],
)
def test_one_that_is_not_as_asked(
    fake: Any, text: str, kind: tuple[str, str, object], wrong: str
) -> None:
    fake.text = text
    fake.appears(*kind)
    with pytest.raises(CellError) as caught:
        OwnVlans(fake, ["wsu1"]).check_made()
    assert wrong in str(caught.value)


def test_one_that_was_there_or_stays(fake: Any) -> None:
    fake.appears()
    fake.text = REPLY + MADE
    OwnVlans(fake, ["wsu1"]).leave()
    OwnVlans(fake, ["wsu1"]).check_gone()
    assert names(fake) == [
        "wsu1 interface before its subscription: none, vlan 1202",
        "wsu1 interface removed by vlanutil: 1 time, 0 times",
        "wsu1 interface after its end: none, vlan 1202",
    ]


@pytest.mark.parametrize(
    ("edge_tags", "interface"), [(True, "wsu1-nic1"), (False, "wsu1-nic1.1202")]
)
def test_packets_are_watched_where_they_have_their_checksum(
    fake: Any, edge_tags: bool, interface: str
) -> None:
    fake.emulation.network = fake.network
    fake.emulation.facts.edge_tags = edge_tags
    assert surveillance._tapped(fake.emulation, "wsu1") == interface
