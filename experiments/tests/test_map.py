# SPDX-License-Identifier: Apache-2.0
"""The map of the room names every module once, in its wing."""

from __future__ import annotations

import re

import experiments
from common.places import ROOT

WINGS = ("design", "verdict", "cells", "runs", "workers", "bounds")


def test_the_map_names_every_module() -> None:
    assert experiments.__doc__ is not None
    found: dict[str, list[str]] = {}
    wing = ""
    for line in experiments.__doc__.splitlines():
        if head := re.match(r"(\w+)/: ", line):
            wing = head[1]
        elif (row := re.match(r"\| ([a-z_, ]+) \| ", line)) and row[1] != "module":
            found.setdefault(wing, []).extend(row[1].split(", "))
    there = {
        wing: sorted(
            path.stem
            for path in (ROOT / "experiments" / wing).glob("*.py")
            if path.stem != "__init__"
        )
        for wing in WINGS
    }
    assert {wing: sorted(names) for wing, names in found.items()} == there
