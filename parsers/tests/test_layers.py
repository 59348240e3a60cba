# SPDX-License-Identifier: Apache-2.0
"""The share of its own line that a receiver's file used, for layers and for other protocols."""

from __future__ import annotations

from typing import Any

import pytest

from parsers.measure.layers import LayersData, layers_values
from parsers.read.cell_files import Cell
from parsers.read.m2c_log import parse_receiver

COMPLETE = """\
bytes=1000000 time_s={time_s} gput_kbps=1 tput_kbps=1 loss=1 dup=0 sym=0 head=5 net=6 comp=0 \
received=700 lost=7 reordered=0 late=0 loss_events=4 joins=15 leaves=3 join_timeouts=0 slots=3 \
stray=0 malformed=0 forged=0 strange=0 socket_drops=0 result=complete
"""


def cell(protocol: str, **parameters: object) -> Cell:
    values: dict[str, Any] = {
        **{"cell": "x", "experiment": "x", "protocol": protocol, "m": 2, "r_bps": 1e7},
        **{"loss": 0, "duration_s": 60, "publisher": "p", "subscribers": ["a", "b"], "nic1": "e"},
        **{"insertion_started": 0, "insertion_ended": 0, "cores": 1},
        "parameters": {"file_bytes": 1_000_000, **parameters},
        "trace": {"source": "one file", "products": 1, "bytes": 1_000_000},
    }
    return Cell.model_validate(values)


def test_the_least_used_line_counts() -> None:
    """8 Mbit in 10 s on 1 Mbit/s are 80 %, in 8 s on 4 Mbit/s 25 %."""
    lines = cell("m2c", rate_i=[1_000_000, 4_000_000])
    receivers = {
        host: parse_receiver(COMPLETE.format(time_s=time_s))
        for host, time_s in (("a", "10.0"), ("b", "8.0"))
    }
    found = layers_values(lines, LayersData(None, receivers), {}, (None, None))["line_used"]
    assert found.unit == "%"
    assert found.value == pytest.approx(25)
    one = layers_values(lines, LayersData(None, {**receivers, "b": None}), {}, (None, None))
    assert one["line_used"].reason == "a receiver has no file"


def test_of_other_protocols() -> None:
    lines = cell("fmtp", rate_i=[1_000_000, 4_000_000])
    arrived_s = {"a": 9.0, "b": 9.0}
    found = layers_values(lines, None, arrived_s, (None, None))["line_used"]
    assert found.value == pytest.approx(100 * 8 / 9 / 4)
    none = layers_values(cell("fmtp"), None, arrived_s, (None, None))["line_used"]
    assert none.reason == "receivers have no lines of their own (rate_i_bps)"
