# SPDX-License-Identifier: Apache-2.0
"""The rule of imports: which room, and which wing of a room, may import which others.

A room is a folder at the top (`controller`), a wing a package inside it (`controller.paths`). The
modules directly in a room are that room's top floor, written as the room's name. A place may import
from itself and from the places that the rule names for it. A room's name permits all of its wings,
a module's name that module alone. Arrows only point downward: a circle between places is an
error. `docs/develop/architecture.md` draws this rule.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

# Place -> what it may import, from the ground floor up.
MAY_IMPORT: Final[Mapping[str, tuple[str, ...]]] = {
    "common": (),
    "common.http": ("common.looking",),
    "topologies.model": ("common",),
    "topologies.watch": ("common", "topologies.model"),
    "topologies.emulate": ("common", "topologies.model", "topologies.watch"),
    "topologies.remote": (
        "common",
        "topologies.model",
        "topologies.watch",
        "topologies.emulate",
    ),
    "topologies.export": ("topologies.model",),
    "topologies.verify": (
        "common",
        "topologies.model",
        "topologies.emulate",
        "controller.api.path_client",
    ),
    "topologies": (
        "common",
        "topologies.model",
        "topologies.watch",
        "topologies.emulate",
        "topologies.export",
        "topologies.verify",
    ),
    "controller.paths": ("common.contracts", "common.counting", "topologies.model.network"),
    "controller.switches": (
        "common.contracts",
        "common.looking",
        "topologies.model.network",
        "controller.paths",
    ),
    "controller.onos": ("common.onos", "controller.paths", "controller.switches"),
    "controller.service": (
        "common.counting",
        "topologies.model.document",
        "topologies.model.network",
        "controller.paths",
        "controller.switches",
    ),
    "controller.api": (
        "common",
        "topologies.model.network",
        "controller.paths",
        "controller.service",
    ),
    "controller.federation": (
        "common.counting",
        "topologies.model.document",
        "topologies.model.network",
        "topologies.model.paths",
        "controller.paths",
        "controller.service",
        "controller.api",
    ),
    "controller": (
        "common.contracts",
        "common.counting",
        "common.exit_codes",
        "common.http",
        "common.looking",
        "common.onos",
        "common.shell",
        "common.starting",
        "common.virtual_time",
        "topologies.model.network",
        "controller.paths",
        "controller.switches",
        "controller.onos",
        "controller.service",
        "controller.api",
        "controller.federation",
    ),
    "protocols": ("common.nearest", "common.places"),
    "parsers.base": (),
    "parsers.read": ("common.contracts", "common.nearest", "parsers.base"),
    "parsers.measure": ("common.contracts", "common.files", "parsers.base", "parsers.read"),
    "parsers.report": ("common", "parsers.base", "parsers.read", "parsers.measure"),
    "parsers": ("common", "parsers.base", "parsers.read", "parsers.measure", "parsers.report"),
    "virtual": ("common", "topologies.emulate.openvswitch"),
    "experiments.design": (
        "common",
        "topologies.model",
        "controller.api.path_client",
        "protocols",
        "parsers.base",
        "parsers.read",
    ),
    "experiments.verdict": (
        "common",
        "protocols.registry",
        "topologies.model",
        "topologies.watch",
        "parsers.base.jsonfiles",
        "parsers.read",
        "parsers.measure",
        "experiments.design",
    ),
    "experiments.cells": (
        "common",
        "topologies.model",
        "topologies.watch",
        "topologies.emulate",
        "topologies.remote",
        "controller.api.path_client",
        "controller.paths.entries",  # the cookies of its flows
        "protocols",
        "parsers.base.factors",
        "experiments.design",
        "experiments.verdict",
    ),
    "experiments.runs": (
        "common",
        "topologies.model",
        "topologies.watch.capture",
        "topologies.emulate",
        "topologies.remote.inventory",
        "topologies.remote.part_plan",
        "protocols",
        "parsers",
        "virtual",
        "experiments.design",
        "experiments.cells",
        "experiments.verdict.arrivals",
        "experiments.verdict.from_files",
    ),
    "experiments.workers": (
        "common",
        "virtual",
        "experiments.design",
        "experiments.cells",
        "experiments.runs",
    ),
    "experiments.bounds": (
        "common",
        "topologies.model",
        "parsers.base",
        "virtual",
        "experiments.design",
        "experiments.cells",
        "experiments.verdict.cpu_load",
        "experiments.verdict.in_flight",
        "experiments.runs",
    ),
    "experiments": (
        "common",
        "parsers.base.jsonfiles",  # its error
        "parsers.report.brief",
        "experiments.design",
        "experiments.cells",
        "experiments.runs",
        "experiments.bounds",
        "experiments.workers",
    ),
    "bench": (
        "common",
        "topologies.model.network",
        "topologies.emulate",
        "controller",
        "experiments.design.trace_model",
        "protocols",
        "virtual",
    ),
    "labs": (
        "common",
        "topologies.model",
        "topologies.emulate",
        "topologies.verify",
        "controller.api.path_client",
        "experiments",
        "parsers.base",
        "parsers.measure",
        "virtual",
    ),
    "monitor": ("common", "parsers"),
    "downpour": (
        "common",
        "topologies",
        "virtual",
        "controller.api.ctl",
        "parsers",
        "experiments",
        "bench",
        "labs",
        "monitor",
    ),
}
ROOMS: Final = tuple(dict.fromkeys(place.split(".")[0] for place in MAY_IMPORT))


@cache
def imported(source: str) -> frozenset[str]:
    """Return the modules that a source file imports; `from package import name` as package.name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def place_of(module: str) -> str:
    """Return the place of a module: its wing if the rule has one, else its room."""
    wing = ".".join(module.split(".")[:2])
    return wing if wing in MAY_IMPORT else module.split(".")[0]


def _is_at(module: str, place: str) -> bool:
    return module == place or module.startswith(f"{place}.")


def arrow_for(module: str, place: str) -> str | None:
    """Return the entry of the rule that lets `place` import `module`; None: the rule forbids it."""
    return next((entry for entry in MAY_IMPORT[place] if _is_at(module, entry)), None)


def sources() -> Iterator[tuple[str, Path]]:
    """Yield (place, file) of every module of the rooms, tests left out."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if "tests" not in parts:
                yield place_of(".".join(parts)), path


def foreign_imports(place: str, source: str) -> Iterator[str]:
    """Yield what a source file at `place` imports from other places of the house."""
    for module in sorted(imported(source)):
        if module.split(".")[0] in ROOMS and place_of(module) != place:
            yield module


def violations(files: Iterable[tuple[str, Path]]) -> list[str]:
    """Return a line for every import that the rule forbids."""
    return [
        f"{path.relative_to(ROOT)} ({place}) imports {module}; "
        f"valid: {', '.join(MAY_IMPORT[place])}"
        for place, path in files
        for module in foreign_imports(place, path.read_text())
        if arrow_for(module, place) is None
    ]


def circles() -> list[str]:
    """Return the pairs of places whose modules import each other, directly."""
    arrows = {
        (place, place_of(module))
        for place, path in sources()
        for module in foreign_imports(place, path.read_text())
    }
    return sorted(f"{a} <-> {b}" for a, b in arrows if a < b and (b, a) in arrows)
