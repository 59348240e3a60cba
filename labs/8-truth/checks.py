# SPDX-License-Identifier: Apache-2.0
"""Lab 8: runs repeated to the last digit, faults hidden in a student's cases, and clocks compared.

The right answers follow from the student's case_seed and, for amounts, from the evidence.
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from typing import Final

from labs.cases import cases_of
from labs.checking import NOT_TOLD, Context, Outcome, failed, nothing, passed
from labs.hidden_faults import (
    KINDS,
    SENDER,
    Kind,
    Mischief,
)
from labs.runs import CellOfRun, RunProblem, cells, wrong_with

EXPERIMENT: Final = "truth"
RECEIVERS: Final = 4
NIC_LOSS: Final = "on the way to the receiver's NIC"
EVIDENCE: Final[dict[Kind, str]] = {  # the hint that points to each kind's evidence
    "none": "nothing-done",
    "delay": "link",
    "rate": "sender",
    "queue": "sender",
    "rule": "lost",
    "filter": "lost",
    "clock": "clock",
}


def of_seed(context: Context, parameter: str) -> list[CellOfRun]:
    """Return the student's clean runs of this seed in virtual time, the newest first. Raises
    RunProblem."""
    wanted = {"seed": context.integer(parameter), "clock": "virtual"}
    found = cells(context.work, EXPERIMENT)
    return [c for c in found if all(c.described.get(k) == v for k, v in wanted.items())]


def clean(context: Context) -> CellOfRun | None:
    """Return the newest run of the student's seed; None: there is none."""
    return next(iter(of_seed(context, "seed")), None)


def twice(context: Context) -> Outcome:
    """Check that two runs of one seed are the same to the last digit."""
    tried = "comparing every metric of your two newest runs of truth.yaml, from their logs"
    expected = f"two runs of seed {context.integer('seed')}, faithful, the same to the last digit"
    try:
        found = of_seed(context, "seed")[:2]
        if not found:
            return nothing(tried, expected, "no run", "once")
        if problems := [p for c in found for p in wrong_with(c, m=RECEIVERS, duration_s=8.0)]:
            return failed(tried, expected, "; ".join(problems[:3]), "not-yours")
        if len(found) < 2:
            return failed(tried, expected, "one run", "once")
        first, second = (cell.metrics() for cell in found)
    except RunProblem as error:
        return failed(tried, expected, str(error), "not-yours")
    different = [name for name in first if first[name] != second.get(name)]
    if different:
        return failed(tried, expected, f"different: {', '.join(different[:5])}", "differs")
    return passed(tried, expected, f"{len(first)} metrics are the same")


def verdict(context: Context) -> Outcome:
    """Check the answer: how many checks the verdict makes."""
    tried = "counting the checks in verdict.json of your newest run"
    try:
        cell = clean(context)
    except RunProblem as error:
        return nothing(tried, "a run", str(error))
    if cell is None:
        return nothing(tried, "a run", "no run of truth.yaml")
    yours = context.number("checks_passed"), context.number("checks_not_applicable")
    document = json.loads((cell.path / "verdict.json").read_text())
    counted = Counter(c["status"] for c in document["checks"])
    right = counted["pass"], counted["n/a"]
    expected, said = (f"{a:g} passed, {b:g} not applicable" for a, b in (right, yours))
    if yours == right:
        return passed(tried, expected, said)
    return failed(tried, NOT_TOLD, said, "swapped" if yours == right[::-1] else "other")


def seeds(context: Context) -> Outcome:
    """Check the answer: by how much two seeds differ."""
    tried = "comparing the median latency of your two seeds"
    try:
        mine = clean(context)
        others = of_seed(context, "other_seed")
        if mine is None or not others:
            missing = "no run of your seed" if mine is None else "no run of other_seed"
            return nothing(tried, "a run of each seed", missing, "missing")
        a, b = mine.metrics()["latency_p50"], others[0].metrics()["latency_p50"]
    except RunProblem as error:
        return nothing(tried, "a run of each seed", str(error), "missing")
    answer, right = context.number("latency_p50_other_seed_percent"), 100 * (b - a) / a
    tolerance = float(context.arguments["tolerance_points"])
    expected, said = f"{right:+.2f} %", f"{answer:+g} %"
    if abs(answer - right) <= tolerance:
        return passed(tried, expected, said)
    if abs(answer + right) <= tolerance:
        hint = "sign"
    elif abs(answer - 100 * (b - a) / b) <= tolerance:
        hint = "base"
    elif math.isclose(answer, b / a, rel_tol=0.01) or math.isclose(
        answer, right / 100, rel_tol=0.1
    ):
        hint = "factor"
    else:
        hint = "other"
    return failed(tried, NOT_TOLD, said, hint)


# -- the cases ---------------------------------------------------------------------------------
def case_a(context: Context) -> Outcome:
    """Check the diagnosis of case a."""
    return case(context, "a")


def case_b(context: Context) -> Outcome:
    """Check the diagnosis of case b."""
    return case(context, "b")


def case_c(context: Context) -> Outcome:
    """Check the diagnosis of case c."""
    return case(context, "c")


def case(context: Context, name: str) -> Outcome:
    """Check the diagnosis of a case: where, what, and how much."""
    tried = f"your case {name}: its files, and what changed in it"
    found = sorted((context.work / f"runs/case-{name}").glob("[0-9]*/cells/*/cell.json"))
    if not found:
        return nothing(tried, "a run", "none", "missing")
    place = found[-1].parent
    described = json.loads((place / "cell.json").read_text())
    ran = CellOfRun(place.parents[1], place, described, "", 0.0)
    if problems := wrong_with(ran, seed=context.integer("seed"), m=RECEIVERS):
        return failed(tried, "your own run", "; ".join(problems[:3]), "not-yours")
    done = cases_of(context.lab, context.student, described["subscribers"])[name]
    kind = str(context.answer(f"case_{name}_kind")).strip().lower()
    if kind not in KINDS:
        return failed(tried, f"one of {', '.join(KINDS)}", kind, "kinds")
    where = str(context.answer(f"case_{name}_place")).strip().lower()
    amount = context.number(f"case_{name}_amount")
    right = amount_of(done, ran)
    said = f"{kind}, {where}, {amount:g}"
    if kind != done.kind:
        is_clean = kind == "none"
        return failed(tried, NOT_TOLD, said, "clean" if is_clean else EVIDENCE[done.kind])
    if done.kind == "none":
        return passed(tried, "none", said)
    if where != done.place and not (where == described["publisher"] and done.place == SENDER):
        return failed(tried, NOT_TOLD, said, "place")
    # Values read from files are exact; a delay or a step also includes what the measurement adds.
    close = math.isclose(amount, right, rel_tol=0.02)
    if not close:
        return failed(tried, NOT_TOLD, said, "amount")
    return passed(tried, f"{done.kind}, {done.place}, {right:g}", said)


def amount_of(done: Mischief, ran: CellOfRun) -> float:
    """Return the amount in the answer's unit: for a filter, the datagrams that it dropped."""
    if done.kind != "filter":
        return float(done.amount)
    losses = json.loads((ran.path / "losses.json").read_text())
    return float(losses[done.place]["losses"].get(NIC_LOSS, 0))


# -- the clocks --------------------------------------------------------------------------------
def clocks(context: Context) -> Outcome:
    """Check the answers about native and virtual-time figures."""
    tried = "the recorded figures of start/native.csv"
    path = context.lab.folder / "start/native.csv"
    with path.open(newline="") as file:
        figures = {r["figure"]: float(r["value"]) for r in csv.DictReader(file)}
    native, virtual = (figures[f"ldm6_throughput_mbit_per_s_{c}"] for c in ("native", "virtual"))
    rtt_native, rtt_virtual = (figures[f"ldm6_mean_rtt_ms_{c}"] for c in ("native", "virtual"))
    each = figures["overloaded_datagrams_to_all"] / figures["overloaded_receivers"]
    missing = 100 * figures["overloaded_missing_at_each"] / each
    wanted = {
        "ldm6_throughput_difference_percent": (100 * (virtual / native - 1), "total"),
        "of_it_by_the_longer_path_percent": (100 * (rtt_native / rtt_virtual - 1), "path"),
        "overloaded_missing_percent": (missing, "missing"),
    }
    tolerance = float(context.arguments["tolerance"])
    answers = {name: context.number(name) for name in wanted}
    expected = ", ".join(f"{right:.2f} %" for right, _ in wanted.values())
    said = ", ".join(f"{answer:g} %" for answer in answers.values())
    for name, (right, hint) in wanted.items():
        if abs(answers[name] - right) > tolerance:
            return failed(tried, NOT_TOLD, said, hint)
    return passed(tried, expected, said)
