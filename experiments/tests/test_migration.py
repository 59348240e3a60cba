# SPDX-License-Identifier: Apache-2.0
"""Receivers with multicast beside receivers by LDM6: which host asks which, and each ldmd's
configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.places import EXPERIMENTS
from controller.api.path_client import endpoints_of
from experiments.design import configs
from experiments.design.expansion import CellSpec
from experiments.design.networks import Networks
from experiments.design.spec import SpecErrors, load
from experiments.tests.bundled import cells_of
from parsers.measure.deliveries import Arrival
from parsers.measure.set_throughput import counts
from parsers.read.cell_files import Cell

MIGRATION = (EXPERIMENTS / "migration.yaml").read_text()


def cell_of(without: int, source: str) -> CellSpec:
    (cell,) = (
        c
        for c in cells_of("migration", "paper")
        if (c.without_multicast, c.ldm6_from, c.repeat) == (without, source, 0)
    )
    return cell


def test_the_last_receivers_have_no_multicast() -> None:
    cell = cell_of(6, "publisher")
    hosts = cell.subscribing(h.name for h in Networks().of(cell).subscribers)
    assert cell.multicast_of(hosts) == hosts[:2]
    assert cell.upstreams(hosts) == dict.fromkeys(hosts[2:])
    served = cell_of(6, "relays").upstreams(hosts)
    assert list(served) == hosts[2:]
    assert list(served.values()) == [hosts[0], hosts[1]] * 3


def test_a_cell_of_one_kind_is_as_before() -> None:
    cell = cell_of(0, "relays")
    hosts = cell.subscribing(h.name for h in Networks().of(cell).subscribers)
    assert cell.multicast_of(hosts) == hosts
    assert cell.upstreams(hosts) == {}


def test_relays_let_in_whom_they_serve_and_nobody_else() -> None:
    cell = cell_of(6, "relays")
    network = Networks().of(cell)
    hosts = cell.subscribing(h.name for h in network.subscribers)
    _, leaves = endpoints_of(network)
    leaf = next(iter(leaves.values()))
    for relay in hosts[:2]:
        text = configs.subscriber_conf(network, cell, network.host(relay), cell.feeds[0], leaf)
        clients = [h for h, upstream in cell.upstreams(hosts).items() if upstream == relay]
        allowed = [line for line in text.splitlines() if line.startswith("ALLOW")]
        addresses = [network.host(h).nic2.ip.replace(".", "[.]") for h in clients]
        assert allowed == [f'ALLOW NGRID "^{address}$"' for address in addresses]
    publisher = cell_of(6, "publisher")
    text = configs.subscriber_conf(network, publisher, network.host(hosts[0]), cell.feeds[0], leaf)
    assert "ALLOW" not in text


def test_a_receiver_without_multicast_asks_over_the_routed_network() -> None:
    cell = cell_of(6, "relays")
    network = Networks().of(cell)
    upstream = network.subscribers[0]
    lines = configs.unicast_conf(cell, cell.feeds[0], upstream).splitlines()
    assert f'REQUEST NGRID ".*" {upstream.nic2.ip}:388' in lines
    assert not [line for line in lines if line.startswith("RECEIVE")]


def test_each_receivers_files_are_counted_by_its_own_protocol() -> None:
    cell = Cell.model_construct(protocol="ldm7", ldm6_subscribers=("b",))
    by_fmtp, by_ldm6 = Arrival(1, "fmtp"), Arrival(1, "ldm6")
    found = {h: [counts(cell.protocol_of(h), a) for a in (by_fmtp, by_ldm6)] for h in "ab"}
    assert found == {"a": [True, False], "b": [False, True]}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[0, 2, 4, 6, 7]", "[0, 8]", "found without_multicast 8; valid: below 8"),
        ("protocol: [ldm7]", "protocol: [ldm7, ldm6]", "valid: 0 with protocol ldm6"),
        ("[publisher, relays]", "[publisher, relay]", "'publisher' or 'relays'"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, old: str, new: str, expected: str) -> None:
    path = tmp_path / "x.yaml"
    text = MIGRATION[: MIGRATION.index("levels:")] + MIGRATION[MIGRATION.index("claims:") :]
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(SpecErrors) as caught:
        load(path)
    assert expected in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
