# SPDX-License-Identifier: Apache-2.0
"""A network as text."""

from pathlib import Path

import pytest

from topologies.model.describe import describe, hosts_table, links_table
from topologies.model.load import find, load
from topologies.tests.test_validate import load_small

GENI5_HOSTS = """\
host   role       site   NIC1       NIC2        segment  VLAN  ends at  RTT ms
umass  publisher  umass  10.10.1.1  10.20.0.2   umass    1101  newy:3
wsu1              wsu    10.10.1.2  10.20.0.6   wsu      1202  chic:4       36
sl1               sl     10.10.1.3  10.20.0.10  sl       1303  chic:5       41
uh1               uh     10.10.1.4  10.20.0.14  uh       1404  hous:4       50
osf1              osf    10.10.1.5  10.20.0.18  osf      1505  salt:3       90
"""


def test_hosts() -> None:
    assert hosts_table(load(find("geni5"), {"receivers": 4})) == GENI5_HOSTS


def test_links_with_different_directions(tmp_path: Path) -> None:
    network = load_small(
        tmp_path, "rate_bps: 20Mbps, delay_ms: 10, loss: 1%, b_to_a: { delay_ms: 20.5 }"
    )
    table = links_table(network).splitlines()
    assert table[0].split() == ["link", "rate", "delay", "ms", "loss", "queue"]
    assert table[1].split() == ["sw-east", "<->", "hub"]
    assert table[2].split() == ["sw-west", "->", "hub", "20Mbps", "10", "1%", "150kB"]
    assert table[3].split() == ["hub", "->", "sw-west", "20Mbps", "20.5", "1%", "150kB"]


def test_all_of_it() -> None:
    text = describe(load(find("drfsm8")))
    assert text.startswith("drfsm8: LDM7 trial deployment")
    assert "\ninternet2  controller     star ashb kans salt seat losa\n" in text
    assert text.endswith("\n")


@pytest.mark.parametrize("name", ["geni5", "drfsm8", "twocores", "bottleneck"])
def test_it_fits_80_columns(name: str) -> None:
    wide = [line for line in describe(load(find(name))).splitlines() if len(line) > 80]
    assert wide == []
