# SPDX-License-Identifier: Apache-2.0
"""A receiver whose clock is off (DRFSM21 eq. 7): the environment that makes its programs read
another time of day, and how to read it back. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from common.places import program
from experiments.design.shaping import Setting

VARIABLE: Final = "DOWNPOUR_CLOCK_OFFSET_NS"  # of experiments/lag/clockoffset.c
DATE: Final = ("date", "+%s%N")
RESOLUTION_MS: Final = 1e-6


def environment(offset_ms: float, build: Path) -> dict[str, str]:
    """Return what a program's environment needs for a clock that is off."""
    return {
        "LD_PRELOAD": str(program("clockoffset.so", build)),
        VARIABLE: str(round(offset_ms * 1e6)),
    }


def arguments(variables: Mapping[str, str]) -> list[str]:
    """Return the beginning of a command that runs a program in this environment."""
    return ["env", *(f"{name}={value}" for name, value in variables.items())]


def read_back(shown: str, host: str, offset_ms: float, between_ns: tuple[int, int]) -> Setting:
    """Compare DATE's time of day at a host with the machine's, read before and after it."""
    name, before_ns, after_ns = f"{host} clock offset, ms", *between_ns
    if not shown.strip().isascii() or not shown.strip().isdigit():
        return Setting(name, offset_ms, None)
    # Whole numbers: a float has no nanoseconds of an epoch.
    found_ms = (2 * int(shown) - before_ns - after_ns) / 2e6
    return Setting(name, offset_ms, found_ms, (after_ns - before_ns) / 2e6 + RESOLUTION_MS)
