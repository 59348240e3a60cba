# SPDX-License-Identifier: Apache-2.0
"""Small files: directions of links, overrides, access links, control delays."""

from pathlib import Path

import pytest

from topologies.model.load import load
from topologies.model.network import Impairment, Network
from topologies.tests.networks import TWO_SITES, two_sites
from topologies.tests.test_validate import load_small


def load_text(tmp_path: Path, text: str) -> Network:
    path = tmp_path / "small.yaml"
    path.write_text(text)
    return load(path)


def test_values_hold_for_both_directions(tmp_path: Path) -> None:
    link = load_small(tmp_path, "delay_ms: 7, jitter_ms: 2, loss: 1%").links[1]
    expected = Impairment(rate_bps=None, delay_ms=7, jitter_ms=2, loss=0.01, queue_bytes=None)
    assert link.forward == link.backward == expected


@pytest.mark.slow
def test_overrides_replace_single_values(tmp_path: Path) -> None:
    network = load_small(
        tmp_path,
        "delay_ms: 7, loss: 1%, a_to_b: { loss: 0 }, b_to_a: { delay_ms: 3, rate_bps: 1Mbps }",
    )
    link = network.links[1]  # sw-west:hub, so forward is away from the subscriber
    assert link.forward == Impairment(delay_ms=7, loss=0)
    assert link.backward == Impairment(1_000_000, delay_ms=3, loss=0.01, queue_bytes=150_000)
    assert network.round_trip_ms == {"sub": 10}
    control = network.links[-1]  # ctl:sub
    assert (control.forward.delay_ms, control.backward.delay_ms) == (3, 7)


def test_control_delay_by_site(tmp_path: Path) -> None:
    text = two_sites("delay_ms: 7").replace(
        "10.20.0.0/16", "10.20.0.0/16, delay_ms: { east: 1, west: 2.5 }"
    )
    network = load_text(tmp_path, text)
    delays = {k.b.node: (k.forward.delay_ms, k.backward.delay_ms) for k in network.links[-2:]}
    assert delays == {"pub": (1, 1), "sub": (2.5, 2.5)}


def test_access_links_may_be_impaired(tmp_path: Path) -> None:
    text = two_sites("delay_ms: 7").replace(
        "attached_to: sw-west",
        "attached_to: sw-west, access: { delay_ms: 1, to_host: { loss: 2% } }",
    )
    network = load_text(tmp_path, text)
    link = next(k for k in network.links if k.name == "sub:sw-west")
    assert link.forward == Impairment(delay_ms=1)
    assert link.backward == Impairment(delay_ms=1, loss=0.02)
    assert network.round_trip_ms == {"sub": 16}


def two_segments(tmp_path: Path) -> Network:
    """Return the small network with a second subscriber in its own segment."""
    second = "{ through: sw-west, to: hub, vlan: 203, hosts: [sub2] }"
    host = "  sub2: { kind: host, role: subscriber, attached_to: sw-west }\n"
    text = two_sites("delay_ms: 7").replace("  ctl:", f"{host}  ctl:")
    text = text.replace("vlan: 202 }", "vlan: 202, hosts: [sub] }")
    return load_text(tmp_path, text.replace("control_n", f"  w2: {second}\ncontrol_n"))


def test_a_rack_with_two_segments(tmp_path: Path) -> None:
    network = two_segments(tmp_path)
    vlans = {h.name: network.segment_of(h.name).vlan for h in network.hosts}
    assert vlans == {"pub": 101, "sub": 202, "sub2": 203}


def test_the_path_of_least_delay_wins(tmp_path: Path) -> None:
    """hub - far takes 9 ms directly and 4 + 4 over mid; with mid at 5 + 5 the direct link wins."""
    base = TWO_SITES.replace("{ a: sw-west, b: hub", "{ a: sw-west, b: far")
    base = base.replace("through: sw-west, to: hub", "through: sw-west, to: far")
    base = base.replace(
        "  sw-east:",
        "  mid: { kind: switch, domain: core }\n  far: { kind: switch, domain: core }\n  sw-east:",
        1,
    )
    links = (
        "links:\n  - { a: hub, b: far, delay_ms: 9 }\n"
        "  - { a: mid, b: hub, delay_ms: MID }\n  - { a: far, b: mid, delay_ms: MID }\n"
    )
    base = base.replace("links:\n", links)
    assert load_text(tmp_path, base.replace("MID", "4")).round_trip_ms == {"sub": 16}
    assert load_text(tmp_path, base.replace("MID", "5")).round_trip_ms == {"sub": 18}


@pytest.mark.parametrize("name", ["a", "a-very", "abcdefghij", "x1"])
def test_names_up_to_ten_characters(tmp_path: Path, name: str) -> None:
    text = two_sites("delay_ms: 1").replace("sub:", f"{name}:")
    network = load_text(tmp_path, text)
    assert network.subscribers[0].nic1.interface == f"{name}-nic1"
