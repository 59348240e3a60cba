# SPDX-License-Identifier: Apache-2.0
"""The drawing: its edges are those of the network, and its tree is the path service's."""

import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from common.command_line import run
from topologies.cli import topology
from topologies.model.drawing import dot_of
from topologies.model.load import bundled, find, load

needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")


def edges(dot: str, tree: bool) -> set[tuple[str, str]]:
    """Return the edges between switches: those of the path's tree, or the others."""
    found = re.findall(r'"switch (\S+)" -> "switch (\S+)" \[(.*)\]', dot)
    return {(a, b) for a, b, look in found if ("penwidth" in look) == tree}


def test_the_tree_of_geni5() -> None:
    """By hand: newy reaches chic and hous in one hop, and salt over chic, which comes before hous
    in the file; chic-hous and salt-hous carry nothing."""
    dot = dot_of(load(find("geni5"), {"receivers": 8}))
    assert edges(dot, tree=True) == {
        ("tor-umass", "newy"),
        ("newy", "chic"),
        ("newy", "hous"),
        ("chic", "salt"),
        ("chic", "tor-wsu"),
        ("chic", "tor-sl"),
        ("hous", "tor-uh"),
        ("salt", "tor-osf"),
    }
    assert {frozenset(e) for e in edges(dot, tree=False)} == {
        frozenset({"chic", "hous"}),
        frozenset({"salt", "hous"}),
    }
    assert '"switch chic" -> "switch tor-wsu"' in dot
    assert 'label="1Gbps, 18 ms\\nVLAN 1202"' in dot
    assert 'label="wsu1 wsu2\\nRTT 36 ms"' in dot and 'label="umass\\npublisher"' in dot
    assert 'label="al2s (OpenFlow controller)"' in dot and 'label="wsu (static)"' in dot


def test_many_hosts_of_a_site_take_one_box() -> None:
    dot = dot_of(load(find("geni5"), {"receivers": 24}))
    assert 'label="wsu1 ... wsu6 (6 hosts)\\nRTT 36 ms"' in dot


def test_the_path_crosses_one_hand_off_link_of_two() -> None:
    dot = dot_of(load(find("twocores")))
    assert ("newy", "lond") in edges(dot, tree=True)
    assert ("ashb", "pari") in edges(dot, tree=False)


@needs_dot
@pytest.mark.parametrize("name", bundled())
def test_each_bundled_topology_is_drawn(name: str, tmp_path: Path) -> None:
    file = tmp_path / "network.svg"
    assert run(topology, ["show", name, "--picture", str(file)]) == 0
    texts = {e.text for e in ElementTree.parse(file).iter() if e.tag.endswith("}text")}
    assert {switch.name for switch in load(find(name)).switches} <= texts


def test_a_picture_of_an_unknown_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(topology, ["show", "geni5", "--picture", str(tmp_path / "x.gif")]) == 2
    assert "valid: a name that ends with .svg, .png, .pdf, .dot" in capsys.readouterr().err
    assert run(topology, ["show", "geni5", "--picture", str(tmp_path / "no/x.dot")]) == 2
    assert "no/x.dot: No such file or directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
