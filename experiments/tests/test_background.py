# SPDX-License-Identifier: Apache-2.0
"""The flows of others: how they are dealt out, and where they cannot be."""

from __future__ import annotations

from typing import Any, cast

import pytest

from experiments import background
from topologies.load import find, load


def test_flows_are_dealt_out_in_turn() -> None:
    assert background.shares(1, ["a", "b", "c"]) == {"a": 1}
    assert background.shares(4, ["a", "b", "c"]) == {"a": 2, "b": 1, "c": 1}
    assert background.shares(0, ["a"]) == {}


def test_what_is_reported_begins_after_slow_start() -> None:
    words = " ".join(background.client_argv("10.10.2.2", 4, 30))
    assert "-c 10.10.2.2" in words
    assert "-P 4 -C cubic -O 3 -t 30" in words


def test_a_topology_without_a_second_lane_is_refused() -> None:
    network = load(find("geni5"))
    with pytest.raises(background.BackgroundError, match="valid with background_flows: a topology"):
        background.Background(cast(Any, None), network, ["wsu1"], 4)
