# SPDX-License-Identifier: Apache-2.0
"""Loss on one hand-off link, for frames from the publisher, and nowhere else."""

from __future__ import annotations

import dataclasses

import pytest

from topologies.model import wire_plan
from topologies.model.handoff_loss import with_handoff_loss
from topologies.model.load import find, load


@pytest.mark.parametrize(
    ("name", "link"),
    [("drfsm8", "sw-frgp:star"), ("geni5", "tor-umass:newy")],
)
def test_one_direction_of_one_link(name: str, link: str) -> None:
    before = load(find(name))
    after = with_handoff_loss(before, 0.001)
    (changed,) = [k for k, old in zip(after.links, before.links, strict=True) if k != old]
    assert changed.name == link
    assert (changed.forward.loss, changed.backward.loss) == (0.001, 0.0)
    assert with_handoff_loss(after, 0.0) == before


def test_whichever_end_the_file_names_first() -> None:
    before = load(find("drfsm8"))
    links = tuple(
        dataclasses.replace(k, a=k.b, b=k.a) if k.name == "sw-frgp:star" else k
        for k in before.links
    )
    after = with_handoff_loss(dataclasses.replace(before, links=links), 0.001)
    (link,) = [k for k in after.links if k.name == "sw-frgp:star"]
    assert (link.forward.loss, link.backward.loss) == (0.0, 0.001)


def test_it_reaches_the_kernel() -> None:
    plan = wire_plan.plan(with_handoff_loss(load(find("drfsm8")), 0.001), "netem")
    lines = wire_plan.tc_batch(plan).splitlines()
    assert [line.count("loss") for line in lines if "netem" in line].count(1) == 1


@pytest.mark.parametrize(
    ("host", "link", "losses"),
    [
        ("uva", "sw-maria:ashb", (0.0, 0.02)),  # the file names the campus's end first
        ("uutah", "sw-uen:salt", (0.0, 0.02)),
        ("ucar", "sw-frgp:star", (0.02, 0.0)),
    ],
)
def test_a_subscribers_link_loses_frames_towards_it(
    host: str, link: str, losses: tuple[float, float]
) -> None:
    before = load(find("drfsm8"))
    after = with_handoff_loss(before, 0.02, host)
    (changed,) = [k for k, old in zip(after.links, before.links, strict=True) if k != old]
    assert changed.name == link
    assert (changed.forward.loss, changed.backward.loss) == losses


@pytest.mark.parametrize("loss", [-0.1, 1.0, float("nan")])
def test_no_probability(loss: float) -> None:
    with pytest.raises(ValueError, match="valid: a probability below 1"):
        with_handoff_loss(load(find("drfsm8")), loss)
