# SPDX-License-Identifier: Apache-2.0
"""Repeat a run from its manifest alone, and report whether the result is the same.

What determines the outcome must be the same: the cells with their parameters and seeds, the
networks, the traces, the system's programs and, in virtual time, the guest's kernel. Otherwise the
command refuses to run. It only reports other package versions, another kernel or changed code.

In virtual time, on the same software, the figures must be the same to the last digit; else they
must agree within their error bars (`parsers.measure.agreement`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from common.command_line import PROGRAM, given_arguments
from common.contracts import FAITHFUL, INVALID
from common.exit_codes import EXIT_FAILED, EXIT_OK
from common.places import RUNS
from experiments.cells.run_directory import no_run
from experiments.design.parameters import trace_label
from experiments.design.selection import Order
from experiments.design.spec import (
    GENERATED,
    AnySpec,
    ExperimentSpec,
    UsageError,
    is_topology_file,
)
from experiments.runs import asked_cells, manifest, runner
from experiments.runs.cell_process import Clock
from experiments.runs.clocks import clock_of
from experiments.runs.options import RepeatOptions
from experiments.runs.preparation import Planned
from experiments.runs.progress import make_reporter
from experiments.runs.records import GitState, Manifest, PythonRecord
from experiments.runs.runner import TOPOLOGY_COPY
from parsers.base.factors import Scalar
from parsers.base.jsonfiles import BadFile, describe, load_object
from parsers.base.metric_units import METRICS
from parsers.measure.agreement import (
    DECISIVE,
    Agreement,
    Identity,
    agreement,
    changed,
    identity,
)
from parsers.measure.evaluate import Subscriptions, Transports, evaluate
from parsers.measure.sweep import shown
from parsers.report.document import (
    Banner,
    Report,
    Section,
    Table,
    render_text,
)

LISTED: Final = 8


@dataclass(frozen=True)
class Original:
    """A run directory's manifest, read."""

    path: Path
    raw: Manifest
    spec: AnySpec
    level: str | None
    clock: str
    cells: Mapping[str, Mapping[str, object]]  # name -> its CellSpec


class _Block(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, defer_build=True)


class _NamedCell(_Block):
    cell: str


class _Trace(_Block):
    file: str
    sha256: str | None = None


class _Python(_Block):
    version: str
    packages: dict[str, str | None]


class _Environment(_Block):
    distribution: str
    c_library: str
    programs: dict[str, str]


class _Described(_Block):
    """What this command needs of a manifest. Older runs lack what has a default."""

    cells: list[_NamedCell]
    order: Order
    traces: dict[str, _Trace]
    programs: dict[str, str | None] | None
    level: str | None = None
    clock: str = "native"
    parts: int = 1
    kernel: str | None = None
    git: dict[str, str | bool | None] | None = None
    python: _Python | None = None
    machine: dict[str, object] = {}
    environment: _Environment | None = None
    virtual_kernel: dict[str, str | None] | None = None


def read(run: Path) -> Original:
    """Read the manifest. Raises UsageError, which says what it lacks, or OSError."""
    path = run / "manifest.json"
    valid = "the manifest of a run that can be repeated"
    try:
        raw = load_object(path.read_text(encoding="utf-8"), str(path), valid)
    except FileNotFoundError:
        raise UsageError(no_run(run)) from None
    except (BadFile, RecursionError, UnicodeDecodeError) as error:
        text = str(error) if isinstance(error, BadFile) else f"{path}: {error}"
        raise UsageError(f"{text}; valid: {valid}") from None
    if missing := [k for k in ("spec", "cells", "traces", "order", "programs") if k not in raw]:
        raise UsageError(f"{path}: found no '{missing[0]}'; valid: {valid}")
    try:
        _Described.model_validate(raw)
    except ValidationError as error:
        raise UsageError(f"{describe(error, str(path))}; valid: {valid}") from None
    try:
        found = asked_cells.spec_of(raw["spec"])
    except (ValidationError, TypeError) as error:
        first = str(error).splitlines()
        raise UsageError(
            f"{path}: spec: {' '.join(first[1:3])}; valid: an experiment as this version knows it"
        ) from None
    described = cast(Manifest, raw)
    cells = {str(cell["cell"]): cell for cell in described["cells"]}
    clock = described.get("clock", "native")
    return Original(run, described, found, described.get("level"), clock, cells)


def _topology_copy(original: Original) -> Path | None:
    """Return the run's copy of the experiment's own topology file if that file is gone."""
    name = original.spec.topology
    gone = is_topology_file(name) and not Path(name).is_file()
    return original.path / TOPOLOGY_COPY if gone else None


def _with_trace_copies(original: Original) -> AnySpec:
    """Return the experiment, with the run's copies of traces whose files are gone."""
    spec = original.spec
    copies = {str(t["file"]) for t in original.raw["traces"].values()}

    def there(trace: str) -> str:
        if trace in GENERATED or Path(trace).is_file():
            return trace
        if not copies:
            raise UsageError(f"trace: found no {trace}, nor a copy of it in {original.path}")
        own = f"trace-{trace_label(trace)}.txt"  # of a level of the factor `trace`
        return str(original.path / (own if own in copies else min(copies)))

    changes: dict[str, object] = {"trace": there(spec.trace)}
    if isinstance(spec, ExperimentSpec):
        changes["factors"] = tuple(
            block.model_copy(update={"trace": tuple(map(there, block.trace))})
            if block.trace is not None
            else block
            for block in spec.factors
        )
    return spec.model_copy(update=changes)


def plan(original: Original) -> list[Planned]:
    """Return the same cells, with the same traces and topology. The run's copy replaces a file that
    is gone. Raises UsageError as `read` does, and what planning raises."""
    spec = _with_trace_copies(original)
    copy = _topology_copy(original)
    if copy is not None:
        spec = spec.model_copy(update={"topology": str(copy)})
    planned = {p.cell.cell: p for p in runner.plan(spec, original.level)}
    if copy is not None:  # the network is the same, but the file had another name
        name = original.spec.topology
        planned = {n: replace(p, cell=replace(p.cell, topology=name)) for n, p in planned.items()}
    if absent := [name for name in original.cells if name not in planned]:
        raise UsageError(f"found no cell {', '.join(absent)} in the plan; valid: the run's cells")
    return [planned[name] for name in original.cells]


def refusals(original: Original, planned: Sequence[Planned]) -> list[str]:
    """Return what has changed since the run and would change the outcome. Raises BadFile."""
    found: list[str] = []
    traces: set[str] = set()
    for item in planned:
        name = item.cell.cell
        before = original.cells[name]
        now = json.loads(json.dumps(item.cell.to_dict()))
        for key, value in before.items():
            if now.get(key) != value:
                found.append(f"{name}: {key} was {value!r}, is {now.get(key)!r}")
        written = original.raw["traces"].get(item.cell.trace_key, {}).get("sha256")
        if written != item.trace.sha256 and str(written) not in traces:
            traces.add(str(written))
            found.append(
                f"trace of seed {item.cell.trace_key}: SHA-256 was {written}, "
                f"is {item.trace.sha256}"
            )
        network = original.path / "cells" / name / "network.json"
        if network.is_file() and load_object(
            network.read_text(encoding="utf-8", errors="replace"), str(network), "a network"
        ) != json.loads(item.network.to_json()):
            found.append(f"{name}: the topology '{item.cell.topology}' now makes another network")
    return found


def programs_of(raw: Manifest) -> dict[str, Scalar | None]:
    """Return the programs, and the guest's kernel, that must match for the outcome to match."""
    found: dict[str, Scalar | None] = dict(raw.get("programs") or {})
    kernel = raw.get("virtual_kernel")
    if isinstance(kernel, Mapping):
        found["guest kernel"] = f"{kernel.get('version')}, {kernel.get('digest')}"
    return found


def surroundings_of(raw: Manifest) -> dict[str, Scalar | None]:
    """Return what is reported if it differs: code, packages, kernel."""
    git = raw.get("git") or GitState(commit=None, dirty=None)
    python = raw.get("python") or PythonRecord(version="", packages={})
    found: dict[str, Scalar | None] = {
        "commit": git.get("commit"),
        "uncommitted changes": str(git.get("dirty")),
        "Python": python.get("version"),
        "kernel": raw.get("kernel"),
    }
    return found | {f"package {n}": v for n, v in (python.get("packages") or {}).items()}


def environment_of(raw: Manifest) -> dict[str, Scalar | None]:
    """Return what may explain a different digit, but need not change any; {} for an older run."""
    environment = raw.get("environment")
    if environment is None:
        return {}
    kernel = raw.get("virtual_kernel")
    return {
        "distribution": environment["distribution"],
        "C library": environment["c_library"],
        "processor": raw.get("machine", {}).get("cpu"),
        **{f"SHA-256 of {n}": v for n, v in environment["programs"].items()},
        **({"SHA-256 of the guest's kernel": kernel.get("sha256")} if kernel is not None else {}),
    }


def _changes(found: Mapping[str, tuple[Scalar | None, Scalar | None]]) -> list[str]:
    return [f"{name} was {then}, is {now}" for name, (then, now) in found.items()]


@dataclass(frozen=True)
class Outcome:
    """The outcome. `identities`: the comparison to the last digit; None if it does not apply."""

    identities: tuple[Identity, ...] | None
    agreement: Agreement

    @property
    def same(self) -> bool:
        """Return whether the run was reproduced."""
        if self.identities is not None:
            return all(i.identical for i in self.identities)
        return self.agreement.verdict == "agree"


Measured = Transports | Subscriptions


def compare(then: Measured, now: Measured, *, to_the_digit: bool) -> Outcome:
    """Compare two runs, to the last digit or by their error bars."""
    found = agreement(then.points, now.points)
    if not to_the_digit:
        return Outcome(None, found)
    documents = (json.loads(json.dumps(m.document["cells"])) for m in (then, now))
    return Outcome(identity(*documents), found)


def report(original: str, again: str, outcome: Outcome, notes: Sequence[str]) -> str:
    """Return the tables and the verdict as text."""
    rows = []
    for c in outcome.agreement.compared:
        if c.metric in DECISIVE:
            metric = METRICS[c.metric]
            covers = {True: "yes", False: "NO", None: "one run"}[c.covers]
            change = f"{c.difference.mean / metric.scale:+.{metric.digits + 1}f}"
            then, now = shown(c.metric, c.then), shown(c.metric, c.now)
            rows.append((c.label, metric.label, then, now, change, covers))
    header = ("At", "Metric", "then", "now", "difference", "includes 0")
    tables = [Table("", header, tuple(rows), frozenset({"At", "Metric"}), 28)] if rows else []
    sentences = list(notes)
    if outcome.identities is not None:
        different = [i for i in outcome.identities if not i.identical]
        values = sum(i.values for i in outcome.identities)
        for found in different:
            named = ", ".join(found.different[:LISTED])
            more = len(found.different) - LISTED
            sentences.append(f"{found.cell}: {named}" + (f" and {more} more" if more > 0 else ""))
        verdict = "REPRODUCED to the last digit" if outcome.same else "NOT REPRODUCED"
        line = f"{values} values of {len(outcome.identities)} cells, {len(different)} cells differ"
    else:
        found_verdict = outcome.agreement.verdict
        verdict = {
            "agree": "REPRODUCED within the error bars",
            "differ": "NOT REPRODUCED",
            "not decidable": "NOT DECIDABLE",
        }[found_verdict]
        line = outcome.agreement.reason
    banner = Banner(FAITHFUL if outcome.same else INVALID, f"{verdict}: {line}.", (), "Repeat")
    section = Section("Then and now", tuple(sentences), tuple(tables))
    return render_text(Report("Downpour: repeat", f"{original}, {again}", banner, (section,)))


def main(options: RepeatOptions) -> int:
    """Run the command. Raises BadFile, UsageError, SpecErrors, RunError, OSError, which `cli.told`
    reports."""
    original = read(options.run)
    then = evaluate(original.path)
    if options.against is not None:
        again = options.against
        known: Manifest = read(again).raw
    else:
        again = _run(original, options)
        known = read(again).raw
    notes = [f"Not as in the run: {text}." for text in
             _changes(changed(surroundings_of(original.raw), surroundings_of(known)))]  # fmt: skip
    programs = _changes(changed(programs_of(original.raw), programs_of(known)))
    notes += [f"Another program: {text}." for text in programs]
    both_virtual = original.clock == known.get("clock") == "virtual"
    outcome = compare(then, evaluate(again), to_the_digit=both_virtual and not notes)
    if both_virtual and notes:
        notes.append("So digits may differ: error bars decide.")
    before, after = environment_of(original.raw), environment_of(known)
    if before and after:
        notes += [f"Another environment: {text}." for text in _changes(changed(before, after))]
    print(report(_name(original.path), _name(again), outcome, notes), end="")
    return EXIT_OK if outcome.same else EXIT_FAILED


def _name(run: Path) -> str:
    target = run.resolve()
    return f"{target.parent.name}/{target.name}"


def _run(original: Original, options: RepeatOptions) -> Path:
    """Check that the run can be repeated, and run it."""
    asked = options.clock or original.clock
    planned = plan(original)
    wrong = refusals(original, planned)
    parts = options.parts or (original.raw.get("parts", 1) if asked == original.clock else 1)
    clock: Clock = clock_of(asked, options, planned, parts=parts)
    here: Manifest = {**Manifest(programs=manifest.programs()), **clock.describe()}
    programs = changed(programs_of(original.raw), programs_of(here))
    if asked != original.clock:
        programs.pop("guest kernel", None)
    if not options.other_programs:
        wrong += _changes(programs)
    if wrong:
        more = "; --other-programs continues anyway" if programs else ""
        listed = "\n".join(f"  {text}" for text in wrong)
        raise UsageError(f"found differences from {original.path}{more}:\n{listed}")
    runner.check_machine(planned, RUNS, options.build, clock.name)
    result = runner.run_experiment(
        original.spec,
        planned,
        make_reporter(),
        runner.RunOptions(
            order=original.raw["order"],
            topology=_topology_copy(original),
            build=options.build.resolve(),
            command=[PROGRAM, *given_arguments()],
            clock=clock,
            only=asked_cells.only_of(original.raw),
        ),
    )
    print(f"Repeated as {result.path}", file=sys.stderr)
    return result.path
