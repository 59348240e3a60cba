# SPDX-License-Identifier: Apache-2.0
"""Attempts to fool the verdict at switches whose entries may change: their path service's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from controller.api.path_client import PathClient, endpoints_of
from experiments.cells import surveillance
from experiments.cells.path_entries import BRANCHES
from experiments.cells.surveillance import Asked
from experiments.tests.test_catch import ROOT_ONLY
from experiments.tests.test_fool import tool
from experiments.verdict.as_planned import InventorySeen
from topologies.emulate.emulation import Emulation
from topologies.model.load import load
from topologies.tests.networks import TWO_SITES
from topologies.tests.test_emulation import network_up

pytestmark = [*ROOT_ONLY, pytest.mark.emulated]
STRANGE = "priority=32000,in_port=1,dl_vlan=7"


def ofctl(*argv: str) -> None:
    tool("ovs-ofctl", "-O", "OpenFlow13", *argv)


@pytest.fixture(scope="module")
def emulation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulation]:
    file = tmp_path_factory.mktemp("two-sites") / "two-sites.yaml"
    file.write_text(TWO_SITES)
    with network_up(load(file, {})) as found:
        root, _ = endpoints_of(found.network)
        with PathClient(found.controller_socket) as service:
            service.create_path("NGRID", root, 1_000_000)
        yield found


def failed(
    emulation: Emulation, out: Path, meanwhile: Callable[[], None] = lambda: None
) -> list[str]:
    """Watch while branches may come and go; return the texts of the checks that fail."""
    asked = Asked(paths=BRANCHES)
    with ExitStack() as stack:
        surveillance.watch(stack, emulation, out, asked, ())
        meanwhile()
    seen = InventorySeen(**json.loads((out / "inventory.json").read_text()))
    return [check.text for check in seen.checks() if check.status == "fail"]


def test_a_branch_may_come(emulation: Emulation, tmp_path: Path) -> None:
    def join() -> None:
        _, leaves = endpoints_of(emulation.network)
        with PathClient(emulation.controller_socket) as service:
            service.add_leaf("NGRID", leaves["west"])

    assert failed(emulation, tmp_path, join) == []


def test_a_strangers_flow_is_seen(emulation: Emulation, tmp_path: Path) -> None:
    try:
        texts = failed(
            emulation, tmp_path, lambda: ofctl("add-flow", "hub", f"{STRANGE},actions=drop")
        )
        assert len(texts) == 2 and all("priority=32000" in text for text in texts)
        (text,) = failed(emulation, tmp_path)
        assert "the path service has none" in text
    finally:
        ofctl("--strict", "del-flows", "hub", STRANGE)


def test_a_strangers_flow_with_the_services_cookie_is_seen(
    emulation: Emulation, tmp_path: Path
) -> None:
    match = f"cookie=0x444f574e03000001,{STRANGE}"
    try:
        texts = failed(
            emulation, tmp_path, lambda: ofctl("add-flow", "hub", f"{match},actions=drop")
        )
        assert len(texts) == 2
    finally:
        ofctl("--strict", "del-flows", "hub", STRANGE)


def test_another_rate_of_a_path_is_seen(emulation: Emulation, tmp_path: Path) -> None:
    meter = "meter=1,kbps,burst,stats,band=type=drop,rate={},burst_size=200"
    try:
        (text,) = failed(emulation, tmp_path, lambda: ofctl("mod-meter", "hub", meter.format(500)))
        assert "hub meter 1" in text
    finally:
        ofctl("mod-meter", "hub", meter.format(1000))
