# SPDX-License-Identifier: Apache-2.0
"""Lab 6: run a student's timers in virtual time beside the timers they are compared with, and check
what the student read from the sweep."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from common.places import ROOT
from experiments.design.spec import ExperimentSpec, SpecErrors, load
from labs.checking import NOT_TOLD, Context, Ends, Outcome, failed, nothing, passed
from labs.runs import CellOfRun, Missing, RunProblem, all_there, cells, newest, wrong_with
from labs.workdir import filled

SWEEP: Final = "sweep"
SWEPT: Final = (
    *((5000.0, f_rcv) for f_rcv in (0.5, 2.0, 20.0)),
    *((f_snd, 2.0) for f_snd in (3.0, 6.0, 12.0, 24.0)),
)
PAPER_F_RCV: Final = 20.0
PAPER_F_SND: Final = 5000.0
R_BPS: Final = 20e6
LARGEST_RTT_S: Final = 0.090
OWN_RUNS: Final = ".check"  # in the work directory: the check's own measurements
LIMIT_S: Final = 900.0

Timers = tuple[float, float]  # f_snd, f_rcv


def shown(timers: Timers) -> str:
    """Return the two timers as text."""
    return f"f_snd {timers[0]:g}, f_rcv {timers[1]:g}"


def cells_of(work: Path, name: str, wanted: Sequence[Timers]) -> dict[Timers, CellOfRun]:
    """Return the newest cell of each pair of timers. Raises Missing, RunProblem."""
    there = cells(work, name)
    found = {t: newest(there, {"f_snd": t[0], "f_rcv": t[1]}) for t in wanted}
    if missing := [shown(t) for t, cell in found.items() if cell is None]:
        raise Missing(f"no cell with {'; '.join(missing)}")
    return {t: cell for t, cell in found.items() if cell is not None}


def wrong(context: Context, cell: CellOfRun) -> list[str]:
    """Return in what a run differs from the one that the lab asked for."""
    loss = context.integer("loss_percent") / 100
    problems = wrong_with(cell, seed=context.integer("seed"), m=4, loss=loss)
    burst = cell.described["parameters"]["loss_burst_packets"]
    if burst != context.integer("burst_packets"):
        problems.append(f"{cell.shown}: bursts of {burst:g} packets")
    return problems


# -- the student's sweep -----------------------------------------------------------------------
def sweep(context: Context) -> Outcome:
    """Check that the sweep is complete, with the student's parameters."""
    tried, expected = "looking for your sweep below runs/sweep", f"{len(SWEPT)} cells of yours"
    find = partial(cells_of, context.work, SWEEP, SWEPT)
    return all_there(context, SWEEP, tried, expected, find, wrong)


def reading(context: Context) -> Outcome:
    """Check the three values that the student read from the sweep."""
    tried = "computing the three values again from your sweep's logs"
    try:
        found = {t: c.metrics() for t, c in cells_of(context.work, SWEEP, SWEPT).items()}
    except (Missing, RunProblem) as error:
        return nothing(tried, "a sweep", str(error))
    ffdr = context.number("ffdr_percent_f_snd_3_f_rcv_2")
    p99_ms = context.number("latency_p99_ms_f_snd_5000_f_rcv_20")
    factor = context.number("bandwidth_factor_f_rcv_half")
    bandwidth = {t: v["nic_bandwidth"] for t, v in found.items()}
    right_ffdr = found[3.0, 2.0]["ffdr"]
    right_p99_ms = 1000 * found[5000.0, 20.0]["latency_p99"]
    right_factor = bandwidth[5000.0, 0.5] / bandwidth[5000.0, 20.0]
    expected = f"{right_ffdr:.2f} %, {right_p99_ms:.1f} ms, factor {right_factor:.2f}"
    said = f"{ffdr:g} %, {p99_ms:g} ms, factor {factor:g}"
    good = (
        abs(ffdr - right_ffdr) <= 0.02,
        abs(p99_ms - right_p99_ms) <= 1,
        math.isclose(factor, right_factor, rel_tol=0.05),
    )
    if all(good):
        return passed(tried, expected, said)
    others = [v["ffdr"] for v in found.values()], [1000 * v["latency_p99"] for v in found.values()]
    if not good[0]:
        unit, column = abs(100 * ffdr - right_ffdr) <= 0.02, near(ffdr, others[0], 0.02)
    elif not good[1]:
        unit, column = abs(1000 * p99_ms - right_p99_ms) <= 1, near(p99_ms, others[1], 1)
    else:
        return failed(tried, NOT_TOLD, said, "factor")
    return failed(tried, NOT_TOLD, said, "unit" if unit else "column" if column else "other")


def near(value: float, others: Sequence[float], tolerance: float) -> bool:
    """Return whether `value` is within `tolerance` of one of the others."""
    return any(abs(value - other) <= tolerance for other in others)


def sizes_bytes(context: Context) -> list[int]:
    """Return the sizes of files of the stream for which the lab asks tau_snd."""
    text = (context.lab.folder / "start/stream.txt").read_text()
    return [int(line.split()[0]) for line in text.splitlines()]


def tau(context: Context) -> Outcome:
    """Check the answers: tau_snd of the smallest and the largest file, in ms."""
    tried = "equation (1) with f_snd = 5, for the smallest and the largest file of stream.txt"
    sizes = sizes_bytes(context)
    pairs = [
        (context.number(f"tau_snd_{which}_ms"), 1000 * 5 * 8 * size / R_BPS)
        for which, size in (("smallest", min(sizes)), ("largest", max(sizes)))
    ]
    floor_ms = 1000 * LARGEST_RTT_S
    right = [max(scaled, floor_ms) for _, scaled in pairs]
    expected = f"{right[0]:.1f} and {right[1]:.1f} ms"
    said = f"{pairs[0][0]:g} and {pairs[1][0]:g} ms"
    off = [
        (yours, scaled, value)
        for (yours, scaled), value in zip(pairs, right, strict=True)
        if not math.isclose(yours, value, rel_tol=0.01)
    ]
    if not off:
        return passed(tried, expected, said)
    yours, scaled, value = off[0]
    if math.isclose(yours, scaled, rel_tol=0.01):
        hint = "rtt"
    elif math.isclose(yours, scaled / 8, rel_tol=0.01):
        hint = "bits"
    elif any(math.isclose(yours, value * f, rel_tol=0.01) for f in (1e-3, 1e3)):
        hint = "unit"
    else:
        hint = "other"
    return failed(tried, NOT_TOLD, said, hint)


# -- the student's choice ----------------------------------------------------------------------
def chosen(context: Context) -> tuple[ExperimentSpec, ExperimentSpec]:
    """Return (the student's experiment, the given one). Raises SpecErrors, RunProblem."""
    start = context.lab.folder / "start/chosen.yaml.template"
    place = context.work / OWN_RUNS
    place.mkdir(exist_ok=True)
    given = place / "given.yaml"
    text = filled(start.read_text(), dict(context.parameters), str(start))
    # Both name the same stream: names in a file are relative to the file.
    stream = context.work.absolute() / "stream.txt"
    given.write_text(text.replace("stream.txt", str(stream)))
    found = load(context.work / "chosen.yaml"), load(given)
    if not all(isinstance(spec, ExperimentSpec) for spec in found):
        raise RunProblem("chosen.yaml: found an experiment of another kind; valid: the given kind")
    return found  # type: ignore[return-value]


def without_timers(spec: ExperimentSpec) -> dict[str, Any]:
    """Return an experiment as plain data, without f_snd and f_rcv."""
    raw = spec.model_dump()
    for name in ("f_snd", "f_rcv"):
        del raw["parameters"][name]
    return raw


def timers_of(spec: ExperimentSpec) -> Timers:
    """Return an experiment's f_snd and f_rcv."""
    return float(spec.parameters.f_snd), float(spec.parameters.f_rcv)


def own_choice(context: Context) -> Timers:
    """Return the student's timers. Raises Ends, which says why they cannot be judged."""
    tried, expected = "reading chosen.yaml", "the given conditions, with your own timers"
    try:
        yours, given = chosen(context)
    except (SpecErrors, RunProblem) as error:
        raise Ends(failed(tried, expected, str(error), "file")) from None
    if without_timers(yours) != without_timers(given):
        theirs = without_timers(given)
        changed = [k for k, v in without_timers(yours).items() if v != theirs[k]]
        raise Ends(failed(tried, expected, f"changed: {', '.join(changed)}", "changed"))
    timers = timers_of(yours)
    if timers == timers_of(given):
        raise Ends(nothing(tried, expected, f"{shown(timers)}, as given", "start"))
    return timers


def conditions(context: Context) -> Outcome:
    """Check that chosen.yaml differs from the lab's network in the two timers only."""
    timers = own_choice(context)
    return passed("reading chosen.yaml", "only f_snd and f_rcv changed", shown(timers))


def compared(timers: Timers) -> dict[str, Timers]:
    """Return what to measure: the choice, the same f_snd with the paper's f_rcv, and half the f_snd
    (if that stays above f_rcv)."""
    f_snd, f_rcv = timers
    found = {"yours": timers}
    # The paper's f_rcv needs a larger f_snd; its effect on latency does not depend on f_snd.
    found["paper"] = (PAPER_F_SND, PAPER_F_RCV)
    if f_snd / 2 > f_rcv:
        found["half"] = (f_snd / 2, f_rcv)
    return found


def measured(context: Context, timers: Timers) -> dict[str, Mapping[str, float]]:
    """Return the metrics of all pairs to compare; measure those that have not been measured yet.
    Raises RunProblem."""
    wanted = compared(timers)

    def there(pair: Timers) -> CellOfRun | None:
        levels = {"f_snd": pair[0], "f_rcv": pair[1]}
        cell = newest(cells(context.work / OWN_RUNS, "chosen"), levels)
        return cell if cell is not None and not wrong(context, cell) else None

    if lacking := [pair for pair in dict.fromkeys(wanted.values()) if there(pair) is None]:
        measure(context, lacking)
    found: dict[str, Mapping[str, float]] = {}
    for name, pair in wanted.items():
        cell = there(pair)
        if cell is None:
            raise RunProblem(f"the check's own run: no faithful cell with {shown(pair)}")
        found[name] = cell.metrics()
    return found


def measure(context: Context, pairs: Sequence[Timers]) -> None:
    """Run these pairs under the student's conditions, in virtual time. Raises RunProblem."""
    start = context.lab.folder / "start/chosen.yaml.template"
    text = filled(start.read_text(), dict(context.parameters), str(start))
    factors = re.search(r"^factors:\n((?:  .*\n)+)", text, re.M)
    assert factors is not None, start
    block = "    ".join(["", *(line.strip() + "\n" for line in factors[1].splitlines())])
    blocks = "".join(
        f"  -\n{block}    f_snd: [{f_snd:g}]\n    f_rcv: [{f_rcv:g}]\n" for f_snd, f_rcv in pairs
    )
    stream = context.lab.folder / "start/stream.txt"
    text = re.sub(r"(?m)^  f_(?:snd|rcv): .*\n", "", text)  # the factors take their place
    text = text.replace(factors[0], f"factors:\n{blocks}").replace("stream.txt", str(stream))
    file = context.work / OWN_RUNS / "chosen.yaml"
    file.write_text(text)
    context.progress(f"measuring {'; '.join(shown(p) for p in pairs)} (half a minute)")
    argv = [sys.executable, "-m", "downpour", "run", str(file), "--clock", "virtual"]
    try:
        done = subprocess.run(
            [*argv, "--runs", str(context.work / OWN_RUNS / "runs")],
            cwd=ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise RunProblem(f"the check's own run did not end within {LIMIT_S:g} s") from None
    if done.returncode not in (0, 3):
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise RunProblem(f"the check's own run: {' '.join(said)}")


def judged(context: Context) -> tuple[Timers, dict[str, Mapping[str, float]]]:
    """Return the student's timers and the metrics of all pairs to compare. Raises Ends if there is
    nothing to judge."""
    try:
        timers = own_choice(context)
    except Ends as end:
        tried, found = end.outcome.tried, end.outcome.found
        raise Ends(nothing(tried, "a choice (check 'chosen.yaml')", found)) from None
    try:
        return timers, measured(context, timers)
    except RunProblem as error:
        tried = "running your timers in virtual time"
        raise Ends(nothing(tried, "a run", str(error))) from None


def ffdr(context: Context) -> Outcome:
    """Check that the chosen timers reach the target FFDR."""
    timers, values = judged(context)
    target = float(context.arguments["target_percent"])
    tried = f"running your network with {shown(timers)}"
    expected, said = f"FFDR of {target:g} % or more", f"{values['yours']['ffdr']:.2f} %"
    if values["yours"]["ffdr"] >= target:
        return passed(tried, expected, said)
    return failed(tried, expected, said, "short")


def latency(context: Context) -> Outcome:
    """Check that the chosen timers beat the paper's in latency or bandwidth."""
    timers, values = judged(context)
    yours, paper = values["yours"], values["paper"]
    name = "nic_bandwidth"
    most_s = (1 - float(context.arguments["gain"])) * paper["latency_p99"]
    most_bps = float(context.arguments["bandwidth"]) * paper[name]
    tried = f"running your network with {shown(timers)}, and with the paper's timers"
    expected = (
        f"p99 of the latency at most {1000 * most_s:.1f} ms (paper's timers: "
        f"{1000 * paper['latency_p99']:.1f}), bandwidth at most {most_bps / 1e6:.2f} Mbit/s"
    )
    said = f"{1000 * yours['latency_p99']:.1f} ms, {yours[name] / 1e6:.2f} Mbit/s"
    if yours[name] > most_bps:
        return failed(tried, expected, said, "premature")
    if yours["latency_p99"] > most_s:
        return failed(tried, expected, said, "late")
    return passed(tried, expected, said)


def thrift(context: Context) -> Outcome:
    """Check that half of the chosen f_snd would miss the target."""
    timers, values = judged(context)
    target = float(context.arguments["target_percent"])
    tried = f"running your network with half your f_snd, {timers[0] / 2:g}"
    expected = f"FFDR below {target:g} %"
    if values["yours"]["ffdr"] < target:
        text = f"your own f_snd gives {values['yours']['ffdr']:.2f} %"
        return failed(tried, expected, text, "short")
    if "half" not in values:
        return passed(tried, expected, "half of it is not above f_rcv")
    said = f"{values['half']['ffdr']:.2f} %"
    if values["half"]["ffdr"] >= target:
        return failed(tried, expected, said, "wasteful")
    return passed(tried, expected, said)
