# SPDX-License-Identifier: Apache-2.0
"""The tree of domains and its segments; expected values were worked out by hand from
networks.py."""

from __future__ import annotations

import pytest

from controller.federation.tests.networks import chain, endpoint, mac
from controller.federation.trees import Domains, Entry, Refusal, Tree, grown, segments_of, shrunk
from controller.paths.core import Endpoint

DOMAINS = Domains(chain())
EMPTY = Tree(endpoint("a1"), 20_000_000)
IN_B, IN_C, IN_C_TOO = endpoint("b2"), endpoint("c2"), endpoint("c1", 2)


def test_hand_offs_are_the_links_between_controller_domains() -> None:
    assert set(DOMAINS.hand_offs) == {"a2:b1", "b2:c1", "a1:b2", "b1:c1"}
    hand_off = DOMAINS.hand_off_at("b1", 2)
    assert hand_off is not None
    assert (hand_off.link, hand_off.other("b"), hand_off.first) == ("a2:b1", "a", "a")
    assert DOMAINS.hand_off_at("b1", 9) is None


def test_a_leaf_two_domains_away() -> None:
    tree = grown(DOMAINS, EMPTY, IN_C, {})
    # The lowest id comes first; the second hand-off gets another one.
    assert tree.entries == {"b": Entry("a2:b1", 200), "c": Entry("b2:c1", 201)}
    segments = segments_of(DOMAINS, tree)
    behind = (mac("c2", 1),)
    assert list(segments) == ["a", "b", "c"]
    assert segments["a"].root == endpoint("a1")
    assert segments["a"].leaves == (Endpoint("a2", 2, 200, behind),)
    assert segments["b"].root == Endpoint("b1", 2, 200, (mac("a1", 1),))
    assert segments["b"].leaves == (Endpoint("b2", 2, 201, behind),)
    assert segments["c"].root == Endpoint("c1", 2, 201, (mac("a1", 1),))
    assert segments["c"].leaves == (IN_C,)


def test_leaves_share_a_hand_off() -> None:
    tree = grown(DOMAINS, EMPTY, IN_C, {})
    for leaf in (IN_B, IN_C_TOO):
        tree = grown(DOMAINS, tree, leaf, {})
    assert len(tree.entries) == 2
    segments = segments_of(DOMAINS, tree)
    assert segments["a"].leaves[0].macs == (mac("b2", 1), mac("c1", 2), mac("c2", 1))
    assert segments["b"].leaves[0].macs == (mac("c1", 2), mac("c2", 1))
    assert segments["b"].leaves[1] == IN_B
    assert segments["c"].leaves == (IN_C_TOO, IN_C)


def test_leaving_in_any_order_undoes_joining() -> None:
    full = EMPTY
    for leaf in (IN_C, IN_B, IN_C_TOO):
        full = grown(DOMAINS, full, leaf, {})
    without_c = shrunk(DOMAINS, full, {IN_C.key, IN_C_TOO.key})
    assert list(without_c.entries) == ["b"]
    assert segments_of(DOMAINS, without_c)["a"].leaves[0].macs == IN_B.macs
    only_c = shrunk(DOMAINS, full, {IN_B.key})
    assert list(only_c.entries) == ["b", "c"]  # b is still on the way
    assert shrunk(DOMAINS, without_c, {IN_B.key}) == EMPTY


def test_vlan_ids() -> None:
    tree = grown(DOMAINS, EMPTY, IN_B, {"a2:b1": [200, 201]})
    assert tree.entries["b"].vlan == 202
    with pytest.raises(Refusal, match=r"all VLAN ids 200\.\.205 of hand-off link 'a2:b1'"):
        grown(DOMAINS, EMPTY, IN_B, {"a2:b1": range(200, 206)})
    # Against the link's direction the choice begins at the other end of the range.
    back = grown(DOMAINS, Tree(endpoint("c1"), 1000), IN_B, {})
    assert back.entries["b"] == Entry("b2:c1", 205)


def test_another_entry_when_a_hand_off_is_out_of_use() -> None:
    tree = grown(DOMAINS, EMPTY, IN_B, {}, avoid={"a2:b1"})
    assert tree.entries["b"].link == "a1:b2"
    with pytest.raises(Refusal, match="no links lead from switch 'a1' to switch 'b2' of domain"):
        grown(DOMAINS, EMPTY, IN_B, {}, avoid={"a2:b1", "a1:b2"})


def test_macs() -> None:
    assert DOMAINS.with_macs(Endpoint("c2", 9, 102)).macs == (mac("c2", 2),)
    with pytest.raises(Refusal, match="has no MACs"):
        grown(DOMAINS, EMPTY, Endpoint("c2", 9, 150), {})
    tree = grown(DOMAINS, EMPTY, IN_C, {})
    with pytest.raises(
        Refusal, match=f"MAC {mac('c2', 1)} of leaf b2:9:150 is already at c2:9:101"
    ):
        grown(DOMAINS, tree, Endpoint("b2", 9, 150, IN_C.macs), {})
    many = tuple(f"02:00:00:01:{n >> 8:02x}:{n & 255:02x}" for n in range(1024))
    with pytest.raises(Refusal, match="would have 1025 MACs in other domains"):
        grown(DOMAINS, tree, Endpoint("b2", 9, 150, many), {})
