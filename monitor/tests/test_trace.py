# SPDX-License-Identifier: Apache-2.0
"""Deliveries as trace events: each slice begins and ends once, at the right time."""

from __future__ import annotations

import json

import numpy as np

from monitor.trace import pieces
from parsers.measure.delivered import MULTICAST, NEVER, REPAIRED, Delivered


def test_a_slice_for_each_delivery() -> None:
    found = Delivered(
        1_000_000,
        ("uva", "<b>"),
        ("one", 'quo"te'),
        np.array([0, 2_000]),
        np.array([10, 3_000]),
        np.array([[MULTICAST, REPAIRED], [NEVER, MULTICAST]]),
        np.array([[500, 9_000], [0, 700]]),
        np.zeros((2, 2), np.int64),
        np.array([[0, 3], [0, 0]]),
    )
    events = json.loads("".join(pieces(found)))["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names == {1: "uva", 2: "<b>"}
    slices = [(e["ph"], e["pid"], e["id"], e["name"], e["ts"]) for e in events if e["ph"] != "M"]
    assert slices == [
        ("b", 1, 0, "one", 0),
        ("e", 1, 0, "one", 500),
        ("b", 1, 1, 'quo"te', 2_000),
        ("e", 1, 1, 'quo"te', 11_000),
        ("b", 2, 1, 'quo"te', 2_000),
        ("e", 2, 1, 'quo"te', 2_700),
    ]
    (repaired,) = (e["args"] for e in events if e.get("args", {}).get("blocks_again"))
    assert repaired["size_bytes"] == 3_000 and repaired["blocks_again"] == 3
