# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/artifact.md, which `python -m tools.docs.artifact` writes.

Expected values come from files with measured values: the regression bands, and the reports of quick
levels below docs/results. Times are those in docs/results/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from common.places import ROOT
from experiments.bounds import bands
from experiments.design.expansion import virtual_seconds_estimated
from experiments.design.spec import at_level, find, load
from experiments.design.spec_options import override
from experiments.runs import preparation
from parsers.base.factors import FACTORS, Scalar
from parsers.base.metric_units import METRICS, two_digits
from parsers.measure.sweep import APART, WHOLE_RUN
from parsers.measure.undecided import NOT_DECIDABLE
from parsers.read.cell_files import NO_CPU
from parsers.read.published import Claim, meets
from tools.docs.command_tables import MADE

PAGE: Final = ROOT / "docs/artifact.md"
RESULTS: Final = ROOT / "docs/results"
# Repeats in these reports replayed different hours; today, repeats are windows of one hour.
OTHER_HOURS: Final = frozenset({"fileset", "ldm6-vs-ldm7", "loss-sweep", "vlan-rate"})
_EXPONENT: Final = re.compile(r"\b\d\.\de\+0\d\b")
VARIABLES: Final = {  # option of `downpour run` -> variable of make
    "--seed": "SEED",
    "--repeats": "REPEATS",
    "--until-decided": "UNTIL_DECIDED",
    "--budget": "BUDGET",
}
# As `parsers.measure.undecided` says it.
REPEATS: Final = re.compile(r"what would decide it: (about|more than) (\d+) repeats would")
MOST_LETTERS: Final = 170  # of the expected figures


def smoke() -> str:
    """Return a table of what the smoke test measures, with the accepted values."""
    file = bands.load(bands.path_of("regression"))
    rows = ["| metric | protocol | expected | because |", "|---|---|---|---|"]
    for band in file.bands:
        label = METRICS[band.name].label
        rows.append(f"| {label} | {band.protocol} | {band} | {_cell(band.reason)} |")
    return "\n".join(rows) + "\n"


def claims() -> str:
    """Return a table of every claim whose quick level has been run, numbered."""
    header = "| | claim | command | time | expected | read |"
    rows = [header, "|---|---|---|---|---|---|"]
    times = quick_times((RESULTS / "README.md").read_text(encoding="utf-8"))
    for name in sorted(path.parent.name for path in RESULTS.glob("*/report.md")):
        report = (RESULTS / name / "report.md").read_text(encoding="utf-8")
        found = judged(report)
        known = {_plain(claim.text): claim for claim in load(find(name)).claims}
        command = f"`{make_command(name, report)}`"
        if name in OTHER_HOURS:
            continue
        for text, verdict, figures, source in found:
            if _plain(text) not in known:
                continue
            read = read_by(known[_plain(text)], report)
            number = f"C{len(rows) - 1}"
            claim = f"{_cell(text)} ({_cell(source)})"
            expected = f"{verdict}: {_short(figures)}"
            if verdict == NOT_DECIDABLE:
                expected += more(name, known[_plain(text)], figures)
            row = (number, claim, command, times.get(name, ""), expected, read)
            rows.append(f"| {' | '.join(row)} |")
    return "\n".join(rows) + "\n"


def make_command(name: str, report: str) -> str:
    """Return the command of make with the repeats and the first seed of the report's run."""
    run = re.search(rf"^\S*downpour run {name}( .*)$", report, re.MULTILINE)
    words = run[1].split() if run is not None else []
    command = f"make experiment-{name} CLOCK=virtual"
    for option, variable in VARIABLES.items():
        if option in words:
            flag = option == "--until-decided"
            command += f" {variable}={1 if flag else words[words.index(option) + 1]}"
    return command


def judged(report: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield claim, verdict, figures and source of each row of a report's table of claims."""
    lines = iter(report.splitlines())
    for line in lines:
        if line.startswith("| Claim | verdict |"):
            next(lines)
            break
    for line in lines:
        if not line.startswith("| "):
            return
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        yield cells[0], cells[1], _EXPONENT.sub(_plain_number, cells[2]), cells[3]


def _plain_number(found: re.Match[str]) -> str:
    """Return 410 for 4.1e+02, as older reports have it."""
    return two_digits(float(found[0]))


def quick_times(page: str) -> dict[str, str]:
    """Return the times of quick levels by experiment, with their unit (min)."""
    found: dict[str, str] = {}
    for line in page.splitlines():
        if line.startswith("| ["):
            cells = [cell.strip() for cell in line.split("|")]
            time = re.sub(r"[\d.]+", r"\g<0> min", cells[5])
            found |= dict.fromkeys(re.findall(r"\[([a-z0-9-]+)\]", cells[1]), time)
    return found


def read_by(claim: Claim, report: str) -> str:
    """Return which figures decide a claim: of the whole run if the report has no others."""
    metric = METRICS[claim.metric].label
    instead = METRICS[WHOLE_RUN.get(claim.metric, claim.metric)].label
    headings = "".join(line for line in report.splitlines() if line.endswith(" | runs |"))
    if f"| {instead}" in headings and f"| {metric}" not in headings:
        metric = instead
    if claim.over is not None:
        return f"{metric}, {claim.kind} over {FACTORS[claim.over].label}"
    return f"{metric}, {claim.kind}"


def _short(figures: str) -> str:
    """Return the figures without reasons, as far as they fit into a cell."""
    text = figures.partition("; ")[0] if "e.g." not in figures else figures.split("e.g. ", 1)[1]
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS].rpartition(' ')[0]} …"


def more(name: str, claim: Claim, figures: str) -> str:
    """Return what would decide a claim that its quick level left open, and what that would cost."""
    if NO_CPU in figures:
        return "; a native run has processors to measure"
    found = REPEATS.search(figures)
    if found is None:
        return "; `UNTIL_DECIDED=1` adds repeats"
    hours = int(found[2]) * seconds_of(name, claim) / 3600
    return f"; {found[1]} {found[2]} repeats would: {two_digits(hours)} core hours"


def seconds_of(name: str, claim: Claim) -> float:
    """Return the core seconds of one repeat of a claim's cells at the quick level in virtual time,
    by the formula of --dry-run."""
    planned = preparation.plan(override(at_level(load(find(name)), "quick"), {"repeats": 1}))
    return sum(
        virtual_seconds_estimated(p.cell, p.trace.size_bytes)
        for p in planned
        if is_of(claim, p.cell.factors)
    )


def is_of(claim: Claim, factors: Mapping[str, Scalar]) -> bool:
    """Return whether a claim is about a cell with these levels, or compares with it."""
    instead = claim.against.levels if claim.against is not None else {}
    of = {n: v for n, v in claim.where.levels.items() if n not in APART}
    return any(
        all(name in factors and meets(factors[name], demand) for name, demand in levels.items())
        for levels in (of, {**of, **{n: v for n, v in instead.items() if n not in APART}})
    )


def _plain(text: str) -> str:
    return re.sub(r"[\\\s]+", " ", text.replace("\\", "")).strip()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def drawn(page: str) -> str:
    """Return the page with new tables."""
    tables = {"smoke": smoke, "claims": claims}
    return MADE.sub(lambda match: match[1] + tables[match[2]]() + match[3], page)


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
