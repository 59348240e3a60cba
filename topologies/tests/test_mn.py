# SPDX-License-Identifier: Apache-2.0
"""topologies/mn.py: the bundled topologies as Mininet's Topo, alone and under the program `mn`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from common.places import TOPOLOGIES
from topologies.model.load import find, load
from topologies.tests.own_openvswitch import beside_open_vswitch

MN_FILE = TOPOLOGIES / "mn.py"


def topos() -> dict[str, Any]:
    """Return what mn finds in the file, read as mn reads it."""
    pytest.importorskip("mininet.topo", reason="Mininet is not installed")
    names: dict[str, Any] = {}
    exec(compile(MN_FILE.read_text(), str(MN_FILE), "exec"), names, names)
    found: dict[str, Any] = names["topos"]
    return found


def test_every_bundled_topology_is_there() -> None:
    names = {path.stem for path in TOPOLOGIES.glob("*.yaml")}
    assert set(topos()) == {*names, "downpour"}


@pytest.mark.parametrize("name", sorted(path.stem for path in TOPOLOGIES.glob("*.yaml")))
def test_nodes_links_and_numbers_are_the_networks(name: str) -> None:
    network, topo = load(find(name), {}).without_monitor(), topos()[name]()
    assert set(topo.switches()) == {switch.name for switch in network.switches}
    assert {h.name for h in network.hosts} | {r.name for r in network.routers} == set(topo.hosts())
    made = {
        (info["node1"], info["port1"], info["node2"], info["port2"])
        for _, _, info in topo.links(withInfo=True)
    }
    assert made == {(k.a.node, k.a.number, k.b.node, k.b.number) for k in network.links}
    for switch in network.switches:
        assert int(topo.nodeInfo(switch.name)["dpid"], 16) == switch.dpid


def test_parameters_and_files(tmp_path: Path) -> None:
    assert len(topos()["geni5"](receivers=3).hosts()) == 5  # the publisher and the router too
    copy = tmp_path / "mine.yaml"
    shutil.copy(TOPOLOGIES / "geni5.yaml", copy)
    assert len(topos()["downpour"](str(copy), receivers=2).hosts()) == 4
    with pytest.raises(SystemExit, match="receivers"):
        topos()["geni5"](receivers=1000)


def test_shaping_is_told_in_mininets_words() -> None:
    network = load(find("geni5"), {})
    topo = topos()["geni5"]()
    (link,) = [k for k in network.links if k.a.node == "tor-osf" and k.b.node == "salt"]
    (info,) = [
        info for _, _, info in topo.links(withInfo=True) if info["intfName1"] == link.a.interface
    ]
    assert info["params1"] == {"bw": 1000, "delay": "45ms", "max_queue_size": 8000}
    assert info["params2"] == info["params1"]


PINGALL = """
mn --custom topologies/mn.py --topo {topo} --switch ovsbr,stp=1,datapath=user \\
   --controller none --wait --test pingall
"""
TOPOS = ("geni5,receivers=2", "bottleneck", "drfsm8", "twocores")


@pytest.mark.long
@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes namespaces")
@pytest.mark.parametrize("topo", TOPOS)
def test_mn_brings_a_topology_up(topo: str) -> None:
    """With the system's Python, in its own namespaces: mn cleans up, and may only do that to its
    own things."""
    if shutil.which("mn") is None:
        pytest.skip("Mininet's program mn is not installed: --custom was NOT tried")
    done = beside_open_vswitch(lambda _work: PINGALL.format(topo=topo))
    said = done.stdout + done.stderr
    assert "0% dropped" in said, said[-3000:]
