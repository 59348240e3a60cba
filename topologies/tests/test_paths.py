# SPDX-License-Identifier: Apache-2.0
"""Routes through several controller domains, compared with sums by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from topologies.model.load import find, load
from topologies.model.network import (
    Impairment,
    Link,
    Network,
    Port,
)
from topologies.model.paths import (
    NoPath,
    behind_handoff,
    cost_of,
    domain_tree,
    handoff_of,
    path_to,
    route,
)


def link(a: str, b: str, delay_ms: float = 0.0, cost: float | None = None) -> Link:
    impairment = Impairment(delay_ms=delay_ms)
    ends = (Port(a, 1, "", ""), Port(b, 1, "", ""))
    return Link(f"{a}:{b}", *ends, impairment, impairment, (1, 4094), cost)


def names(links: tuple[Link, ...], root: str, switch: str, **options: object) -> list[str]:
    domain_of = {node: node[0] for k in links for node in (k.a.node, k.b.node)}
    tree = domain_tree(links, domain_of, root, **options)  # type: ignore[arg-type]
    return [hop.link.name for hop in route(tree, root, switch)]


def test_twocores_spans_two_domains() -> None:
    network = load(find("twocores"))
    assert [hop.target for hop in path_to(network, "knmi")] == [
        "sw-frgp", "star", "newy", "lond", "amst", "sw-surf", "knmi",
    ]  # fmt: skip
    # By hand, twice the sum of one way: Boulder - Chicago - New York - London, then on.
    to_london_ms = 11.2 + 8.6 + 41.8
    assert network.round_trip_ms == {
        "uva": 38.4,  # 2 x (11.2 + 6.9 + 1.1)
        "uwisc": 25.4,  # 2 x (11.2 + 1.5)
        "knmi": pytest.approx(2 * (to_london_ms + 2.7 + 0.3)),
        "dwd": pytest.approx(2 * (to_london_ms + 2.7 + 2.7)),  # over Amsterdam; Paris: 2.6 + 3.6
        "reading": pytest.approx(2 * (to_london_ms + 0.4)),
        # Over Paris, not Amsterdam and Frankfurt (2.7 + 2.7 + 3.9).
        "bologna": pytest.approx(2 * (to_london_ms + 2.6 + 4.8 + 1.5)),
    }


def test_cost_of_a_link() -> None:
    assert cost_of(link("a1", "a2"), True) == 1
    assert cost_of(link("a1", "a2", 6.9), False) == 6901
    assert cost_of(link("a1", "a2", 6.9, cost=2.5), True) == 2.5


def test_cost_decides_and_not_the_delay() -> None:
    links = (link("a1", "a2", 10), link("a1", "a3", 1), link("a3", "a2", 1))
    assert names(links, "a1", "a2") == ["a1:a3", "a3:a2"]
    links = (link("a1", "a2", 10, cost=5), *links[1:])
    assert names(links, "a1", "a2") == ["a1:a2"]


TWO_HAND_OFFS = (
    link("a1", "a2", 5),
    link("a1", "b1", 10),  # b is nearest here
    link("a2", "b2", 6),
    link("b1", "b2", 30),
)


def test_a_domain_is_entered_where_it_is_nearest_for_all_its_switches() -> None:
    assert names(TWO_HAND_OFFS, "a1", "b1") == ["a1:b1"]
    # Over a2 it would be 11 ms instead of 40: but b has an entry already.
    assert names(TWO_HAND_OFFS, "a1", "b2") == ["a1:b1", "b1:b2"]


def test_a_given_entry_is_kept_and_a_link_avoided() -> None:
    kept = names(TWO_HAND_OFFS, "a1", "b1", entries={"b": "a2:b2"})
    assert kept == ["a1:a2", "a2:b2", "b1:b2"]
    assert names(TWO_HAND_OFFS, "a1", "b1", avoid={"a1:b1"}) == kept


def test_a_path_does_not_come_back_into_a_domain() -> None:
    links = (link("a1", "b1"), link("b1", "a2"), link("a1", "a2", 50))
    assert names(links, "a1", "a2") == ["a1:a2"]
    with pytest.raises(NoPath, match="no path from a1 to a2"):
        names(links[:2], "a1", "a2")


def test_three_domains_in_a_chain() -> None:
    links = (link("a1", "b1", 1), link("b1", "b2", 1), link("b2", "c1", 1), link("c1", "c2", 1))
    assert names(links, "a1", "c2") == ["a1:b1", "b1:b2", "b2:c1", "c1:c2"]
    assert names(links, "c2", "a1") == ["c1:c2", "b2:c1", "b1:b2", "a1:b1"]


def test_cost_of_a_file_reaches_the_network(tmp_path: Path) -> None:
    text = find("twocores").read_text()
    changed = text.replace("{ a: star, b: newy, ", "{ a: star, b: newy, cost: 20000, ")
    path = tmp_path / "twocores.yaml"
    path.write_text(changed)
    network = load(path)
    assert Network.from_json(network.to_json()) == network
    assert next(k.cost for k in network.links if k.name == "star:newy") == 20000
    # Now Ashburn - New York is the cheaper way (6901 + 2601): 2 x (11.2 + 6.9 + 2.6 + 41.8 + 0.4)
    assert network.round_trip_ms["reading"] == pytest.approx(125.8)


def test_the_handoff_that_most_subscribers_are_behind() -> None:
    """In twocores: New York - London, over which the path enters GEANT."""
    network = load(find("twocores"))
    link = handoff_of(network)
    assert link is not None and link.name == "newy:lond"
    assert behind_handoff(network) == {"knmi", "dwd", "reading", "bologna"}
    one_domain = load(find("geni5"))
    assert handoff_of(one_domain) is None and behind_handoff(one_domain) == frozenset()
