# SPDX-License-Identifier: Apache-2.0
"""The names of levels: metrics, claims and names of cells have a text for a trace, a list by
receiver or settings. Pure."""

from __future__ import annotations

from typing import Any, Final

from experiments.design.parameters import trace_label
from parsers.base.factors import FACTORS, Scalar

# Factors and parameters with a value for each receiver.
LISTS: Final = ("p_i", "rtt_i_ms", "rate_i_bps", "b_rcv_i", "clock_offset_i_ms")
# Factors whose levels are lists or settings.
NAMED: Final = (*LISTS, "set")


def level_of(name: str, value: Any) -> Scalar:
    """Return a factor's value as a level: the name of a trace, a list or settings."""
    if name == "trace":
        return trace_label(str(value))
    level: Scalar = FACTORS[name].read(value) if name in NAMED and value is not None else value
    return level
