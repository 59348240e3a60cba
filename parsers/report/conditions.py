# SPDX-License-Identifier: Apache-2.0
"""Report a run's conditions, how to repeat it, and what produced it, from manifest.json, any part
of which may be missing."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from parsers.read.cell_files import CellTrace
from parsers.report.document import Section, Table

PROGRAM = "downpour"


class Described(Protocol):
    """What cells of every kind say about themselves."""

    @property
    def clock(self) -> str:
        """Return native or virtual."""

    @property
    def duration_s(self) -> float:
        """Return the length of the trace that was replayed, seconds."""

    @property
    def topology(self) -> str:
        """Return the topology's name; empty if unknown."""

    @property
    def seed(self) -> int | str | None:
        """Return the seed of the cell."""

    @property
    def trace(self) -> CellTrace:
        """Return the trace that was replayed."""


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    """Return a value of the manifest in one line; "not told" for None."""
    if value is None or value == "":
        return "not told"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(v) for v in value)
    return " ".join(str(value).split())


def _distinct(values: Iterable[object]) -> str:
    found = dict.fromkeys(_text(v) for v in values)
    return ", ".join(found)


def _moment(seconds: object) -> str:
    if not isinstance(seconds, (int, float)):
        return "not told"
    return f"{datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"


def level_of(manifest: Mapping[str, object], cells: Sequence[object]) -> str:
    """Return quick or paper; "" if the experiment has no levels."""
    level = manifest.get("level") or next((getattr(c, "level", None) for c in cells), None)
    return str(level) if level else ""


def conditions_section(manifest: Mapping[str, object], cells: Sequence[Described]) -> Section:
    """Return the conditions of the run."""
    spec = _mapping(manifest.get("spec"))
    machine = _mapping(manifest.get("machine"))
    git = _mapping(manifest.get("git"))
    traces = {
        f"{c.trace.source}: {c.trace.products} products, {(c.trace.bytes or 0) / 1e6:.1f} MB"
        for c in cells
    }
    seeds = [c.seed for c in cells]
    rows = [
        ("Experiment", _text(spec.get("description") or manifest.get("description"))),
        ("Level", level_of(manifest, cells) or "the file has only one"),
        ("Topology", _distinct(c.topology or spec.get("topology") for c in cells)),
        ("Clock", _distinct(c.clock for c in cells)),
        ("Length of the trace replayed, s", _distinct(c.duration_s for c in cells)),
        ("Cells", str(len(cells))),
        ("Repeats", _text(spec.get("repeats"))),
        ("Seeds", _distinct(sorted(seeds, key=str))),
        ("Trace", "; ".join(sorted(traces))),
        ("Order of cells", _order(manifest)),
        ("Begun", _moment(manifest.get("started"))),
        ("Commit", _text(git.get("commit")) + (", with changes" if git.get("dirty") else "")),
        *_other_code(manifest),
        ("Kernel", _text(manifest.get("kernel"))),
        ("Processor", f"{_text(machine.get('cpu'))}, {_text(machine.get('cores'))} cores"),
    ]
    header = ("Condition", "value")
    return Section(
        "Run conditions", tables=(Table("", header, tuple(rows), frozenset(header), 40),)
    )


def _other_code(manifest: Mapping[str, object]) -> list[tuple[str, str]]:
    found = manifest.get("other_code")
    cells = [str(cell) for cell in found] if isinstance(found, list) else []
    return [("Ran other code", ", ".join(cells))] if cells else []


def _order(manifest: Mapping[str, object]) -> str:
    order = manifest.get("order")
    if isinstance(order, Mapping):
        return ", ".join(f"{k}: {_text(v)}" for k, v in order.items() if not isinstance(v, list))
    if isinstance(order, list):
        return "as manifest.json lists it"
    return _text(order) if order is not None else "as the experiment's file lists them"


def repeat_section(manifest: Mapping[str, object], run: str) -> Section:
    """Return the exact commands. `run`: EXPERIMENT/STAMP."""
    git = _mapping(manifest.get("git"))
    command = manifest.get("command")
    commands = []
    if git.get("commit"):
        commands.append(f"git checkout {git['commit']}")
    if isinstance(command, list) and command:
        words = [str(word) for word in command]
        rest = words[1:] if words[0] in ("experiments", PROGRAM) else words
        commands.append(f"{PROGRAM} {shlex.join(rest)}")
    commands += [
        f"{PROGRAM} repeat runs/{run}",
        f"{PROGRAM} verify runs/{run}",
        f"{PROGRAM} report runs/{run}",
    ]
    sentences = [
        "repeat runs the experiment again from manifest.json alone and compares within the error"
        " bars; verify checks every file's digest, judges every cell again and computes every"
        " metric again from the files; report writes this page again from them."
    ]
    if git.get("dirty"):
        sentences.append(
            "The checkout had uncommitted changes: its commit alone gives other programs."
        )
    return Section("How to repeat it", tuple(sentences), commands=tuple(commands))


def provenance_section(manifest: Mapping[str, object]) -> Section:
    """Return versions and settings of what produced the figures."""
    python = _mapping(manifest.get("python"))
    machine = _mapping(manifest.get("machine"))
    rows = [("Python", _text(python.get("version")))]
    rows += [
        (f"Python package {name}", _text(v)) for name, v in _mapping(python.get("packages")).items()
    ]
    rows += [(name, _text(v)) for name, v in _mapping(manifest.get("programs")).items()]
    rows += [
        (name.replace("_", " "), _text(v))
        for name, v in machine.items()
        if name not in ("cpu", "cores")
    ]
    rows += [(name, _text(v)) for name, v in _mapping(manifest.get("sysctls")).items()]
    header = ("What", "value")
    table = Table("", header, tuple(rows), frozenset(header), 40)
    return Section(
        "Provenance",
        ("manifest.json has these and everything else that is needed to repeat the run.",),
        (table,),
        collapsed=True,
        in_text=False,
    )
