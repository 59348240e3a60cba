# SPDX-License-Identifier: Apache-2.0
"""Lab 5: compare a student's table of bandwidths, plot, slope and prediction, which come from sar,
with the sender's counters in the student's own runs."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import statistics
from pathlib import Path
from typing import Final

from common.counting import counted
from labs.checking import NOT_TOLD, Context, Ends, Outcome, failed, nothing, passed
from labs.predictions import late_s, predicted
from labs.runs import CellOfRun, Missing, RunProblem, cells, newest, wrong_with

EXPERIMENT: Final = "scaling"
DURATION_S: Final = 10.0
FEW: Final = (2, 4, 8)
MANY: Final = 24
PROTOCOLS: Final = ("ldm6", "ldm7")
COLUMNS: Final = "a line for each protocol and each number of receivers"
LINK_MBIT_PER_S: Final = 1000.0
PLOT_KEY: Final = b"table-sha256\0"  # of the PNG's tEXt chunk that plot.py writes
PNG: Final = b"\x89PNG\r\n\x1a\n"

Bandwidths = dict[tuple[str, int], float]  # (protocol, receivers) -> Mbit/s


def measured(context: Context, receivers: tuple[int, ...]) -> dict[tuple[str, int], CellOfRun]:
    """Return the newest cell of each protocol and number of receivers. Raises Missing,
    RunProblem."""
    there = cells(context.work, EXPERIMENT)
    found = {
        (p, m): newest(there, {"protocol": p, "receivers": m}) for p in PROTOCOLS for m in receivers
    }
    missing = [f"{p} with {m}" for (p, m), cell in found.items() if cell is None]
    if missing:
        raise Missing(f"no run of {', '.join(missing)} receivers")
    return {key: cell for key, cell in found.items() if cell is not None}


def bandwidth_mbit_per_s(cell: CellOfRun) -> float:
    """Return what the sender's interface sent, by the kernel's counters before and after the
    replay, divided by the seconds of the trace."""
    start, end = (
        json.loads((cell.path / f"counters-{when}.json").read_text()) for when in ("start", "end")
    )
    name = f"{cell.described['publisher']}/{cell.described['nic1']}"
    sent = end["interfaces"][name]["tx_bytes"] - start["interfaces"][name]["tx_bytes"]
    return float(sent) * 8 / DURATION_S / 1e6


def by_counters(context: Context, tried: str) -> Bandwidths:
    """Return the values of the six runs with few receivers. Raises Ends if one is missing: then
    there is nothing to check."""
    try:
        return {key: bandwidth_mbit_per_s(cell) for key, cell in measured(context, FEW).items()}
    except (Missing, RunProblem) as error:
        raise Ends(nothing(tried, "six runs", str(error))) from None


def rate_mbit_per_s(context: Context) -> float:
    """Return r of the six runs, which must exist."""
    return float(next(iter(measured(context, FEW).values())).factors["rate_bps"]) / 1e6


def line_of(bandwidths: Bandwidths, protocol: str) -> tuple[float, float]:
    """Return (slope, intercept) of the straight line through a protocol's points."""
    points = sorted((m, value) for (p, m), value in bandwidths.items() if p == protocol)
    slope, intercept = statistics.linear_regression(*zip(*points, strict=True))
    return slope, intercept


def shown(bandwidths: Bandwidths) -> str:
    """Return bandwidths as text, in Mbit/s."""
    return ", ".join(f"{p} m={m}: {v:.2f}" for (p, m), v in sorted(bandwidths.items()))


# -- the checks --------------------------------------------------------------------------------
def runs(context: Context) -> Outcome:
    """Check that all runs exist, with the student's seed."""
    tried = "looking for your runs below runs/scaling"
    expected = f"ldm6 and ldm7 with 2, 4, 8 receivers, seed {context.integer('seed')}"
    try:
        found = measured(context, FEW)
    except Missing as error:
        if not cells(context.work, EXPERIMENT):
            return nothing(tried, expected, "no run", "missing")
        return failed(tried, expected, str(error), "missing")
    except RunProblem as error:
        return failed(tried, expected, str(error), "not-yours")
    problems = [text for cell in found.values() for text in wrong(context, cell)]
    if problems:
        return failed(tried, expected, "; ".join(problems[:3]), "not-yours")
    return passed(tried, expected, f"all six, in {len({c.run for c in found.values()})} run(s)")


def wrong(context: Context, cell: CellOfRun) -> list[str]:
    """Return in what a run differs from the one that the lab asked for."""
    return wrong_with(cell, seed=context.integer("seed"), duration_s=DURATION_S, loss=0.0)


def table(context: Context) -> Outcome:
    """Check bandwidth.csv against the counters of the sender's interface."""
    tried = "comparing bandwidth.csv with the counters of the sender's interface"
    counted = by_counters(context, tried)
    expected = f"{shown(counted)} Mbit/s, to 1 %"
    path = context.work / "bandwidth.csv"
    if not path.exists():
        return nothing(tried, COLUMNS, "no bandwidth.csv", "columns")
    try:
        yours = read_table(path)
    except ValueError as error:
        return failed(tried, COLUMNS, str(error), "columns")
    few = {key: yours[key] for key in counted if key in yours}
    if len(few) < len(counted):
        lacking = [f"{p} {m}" for p, m in counted if (p, m) not in yours]
        return failed(tried, COLUMNS, f"no line of {', '.join(lacking)}", "columns")
    tolerance = float(context.arguments["tolerance"])
    ratios = [few[key] / counted[key] for key in counted]
    if all(math.isclose(r, 1, abs_tol=tolerance) for r in ratios):
        return passed(tried, expected, shown(few))
    return failed(tried, NOT_TOLD, shown(few), hint_of(ratios, tolerance))


def hint_of(ratios: list[float], tolerance: float) -> str:
    """Return the mistake that explains the ratio of the table's values to the counters'."""
    known = {"twice": 2.0, "kilo": 1000 / 1024, "bits": 1 / 8}
    for hint, ratio in known.items():
        if all(math.isclose(r, ratio, rel_tol=tolerance) for r in ratios):
            return hint
    return "time" if max(ratios) < 1.05 * min(ratios) else "other"


def read_table(path: Path) -> Bandwidths:
    """Read the table. Raises ValueError, whose text says where."""
    found: Bandwidths = {}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        lacking = {"protocol", "receivers", "mbit_per_s"} - set(reader.fieldnames or ())
        if lacking:
            raise ValueError(f"bandwidth.csv:1: no column {', '.join(sorted(lacking))}")
        for number, row in enumerate(reader, start=2):
            try:
                key = (row["protocol"].strip().lower(), int(row["receivers"]))
                found[key] = float(row["mbit_per_s"])
            except (ValueError, AttributeError, TypeError):
                raise ValueError(f"bandwidth.csv:{number}: found {list(row.values())}") from None
    return found


def plot(context: Context) -> Outcome:
    """Check that bandwidth.png was drawn from bandwidth.csv."""
    tried = "checking which table bandwidth.png was drawn from"
    expected = "the bandwidth.csv beside it"
    picture, csv_file = context.work / "bandwidth.png", context.work / "bandwidth.csv"
    if not picture.exists():
        return nothing(tried, expected, "no bandwidth.png", "none")
    data = picture.read_bytes()
    if not data.startswith(PNG):
        return failed(tried, expected, "bandwidth.png is no PNG", "none")
    at = data.find(PLOT_KEY)
    drawn_from = data[at + len(PLOT_KEY) :][:64].decode("ascii", "replace") if at >= 0 else ""
    now = hashlib.sha256(csv_file.read_bytes()).hexdigest() if csv_file.exists() else "no table"
    if drawn_from != now:
        return failed(
            tried, expected, f"table {drawn_from[:8] or '(unknown)'}, not {now[:8]}", "old"
        )
    return passed(tried, expected, f"table {now[:8]}")


def slope(context: Context) -> Outcome:
    """Check the answer: LDM6's bandwidth for each receiver, in Mbit/s."""
    tried = "least squares through LDM6's three points"
    bandwidths = by_counters(context, tried)
    answer = context.number("ldm6_mbit_per_s_per_receiver")
    right, _ = line_of(bandwidths, "ldm6")
    tolerance = float(context.arguments["tolerance"])
    expected, found = f"{right:.2f} Mbit/s per receiver, to 2 %", f"{answer:g}"
    if math.isclose(answer, right, rel_tol=tolerance):
        return passed(tried, expected, found)
    rate = rate_mbit_per_s(context)
    if math.isclose(answer, rate, rel_tol=0.001):
        hint = "rate"
    elif any(math.isclose(answer, right * f, rel_tol=0.05) for f in (1e6, 1e3, 1 / 8, 1e-3)):
        hint = "unit"
    else:
        hint = "other"
    return failed(tried, NOT_TOLD, found, hint)


def flat(context: Context) -> Outcome:
    """Check the answer: how LDM7's bandwidth grows from 2 to 8 receivers, in percent."""
    tried = "LDM7's bandwidth with 8 receivers against that with 2"
    bandwidths = by_counters(context, tried)
    answer = context.number("ldm7_growth_percent")
    ratio = bandwidths["ldm7", 8] / bandwidths["ldm7", 2]
    right = 100 * (ratio - 1)
    tolerance = float(context.arguments["tolerance_points"])
    expected, found = f"{right:.2f} %, to {tolerance:g} percentage points", f"{answer:g}"
    if abs(answer - right) <= tolerance:
        return passed(tried, expected, found)
    factor = math.isclose(answer, ratio, abs_tol=0.02) or math.isclose(
        answer, 100 * ratio, abs_tol=2
    )
    return failed(tried, NOT_TOLD, found, "factor" if factor else "other")


def limit(context: Context) -> Outcome:
    """Check the answer: how many receivers LDM6 can serve at 1 Gbit/s."""
    tried = "your straight line at 1 Gbit/s"
    bandwidths = by_counters(context, tried)
    answer = context.number("ldm6_receivers_at_1_gbit_per_s")
    a, b = line_of(bandwidths, "ldm6")
    right = math.floor((LINK_MBIT_PER_S - b) / a)
    expected, found = f"{counted(right, 'receiver')} (one more or less)", f"{answer:g}"
    if answer == int(answer) and abs(answer - right) <= 1:
        return passed(tried, expected, found)
    rate = rate_mbit_per_s(context)
    if abs(answer - LINK_MBIT_PER_S / rate) <= 1:
        hint = "rate"
    elif any(math.isclose(answer, right * f, rel_tol=0.05) for f in (1e-3, 1e3, 1e6, 8, 1 / 8)):
        hint = "unit"
    else:
        hint = "other"
    return failed(tried, NOT_TOLD, found, hint)


def prediction(context: Context) -> Outcome:
    """Check the prediction for 24 receivers against the student's run."""
    tried = "your prediction against your run with 24 receivers"
    tolerance = float(context.arguments["tolerance"])
    yours = {p: predicted(context.work, f"{p}_24_receivers_mbit_per_s") for p in PROTOCOLS}
    said = ", ".join(f"{p}: {v:g}" for p, v in yours.items())
    try:
        found = measured(context, (MANY,))
    except Missing as error:
        return failed(tried, "a prediction, then a run", f"{said}; {error}", "run")
    except RunProblem as error:
        return failed(tried, "a prediction, then a run", str(error), "run")
    if problems := [text for cell in found.values() for text in wrong(context, cell)]:
        return failed(tried, "a run of yours", "; ".join(problems[:3]), "run")
    right = {p: bandwidth_mbit_per_s(found[p, MANY]) for p in PROTOCOLS}
    expected = ", ".join(f"{p}: {v:.2f}" for p, v in right.items()) + " Mbit/s, to 10 %"
    if late := late_s(context.work, min(cell.started for cell in found.values())):
        text = f"{said}; written {late:.0f} s after the run began"
        return failed(tried, NOT_TOLD, text, "after")
    for protocol in PROTOCOLS:
        if not math.isclose(yours[protocol], right[protocol], rel_tol=tolerance):
            return failed(tried, NOT_TOLD, said, protocol)
    return passed(tried, expected, said)
