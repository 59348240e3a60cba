# SPDX-License-Identifier: Apache-2.0
"""The experiments that come with Downpour, at a level."""

from __future__ import annotations

from experiments.design.expansion import CellSpec, expand
from experiments.design.spec import (
    ExperimentSpec,
    at_level,
    find,
    load_as,
)


def spec_of(name: str, level: str) -> ExperimentSpec:
    return at_level(load_as(ExperimentSpec, find(name)), level)


def cells_of(name: str, level: str) -> tuple[CellSpec, ...]:
    return expand(spec_of(name, level))
