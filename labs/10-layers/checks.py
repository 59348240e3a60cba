# SPDX-License-Identifier: Apache-2.0
"""Lab 10: layers that fit a line, the effect of one layer too many where leaves take effect late,
the same with a wave, and a limit that leaves the rest to TCP. Reads the logs of the student's own
runs."""

from __future__ import annotations

import math
from typing import Final

from common.counting import counted
from labs.checking import NOT_TOLD, Context, Outcome, failed, nothing, passed
from labs.predictions import predicted, predicted_first
from labs.runs import CellOfRun, Missing, RunProblem, all_there, cells, newest, wrong_with
from parsers.measure.run_files import load_cell

LAYERS: Final = "layers"
CHOSEN: Final = "chosen"
KINDS: Final = ("static", "m2c")
LATENCIES_MS: Final = (0, 3000)
LATE_S: Final = 3
FACTOR: Final = 0.75  # the share of a rate that a slot leaves
SLOT_S: Final = 10
FRAME_BYTES: Final = 1518
FILE_BYTES: Final = 4_000_000
PREDICTIONS: Final = ("layers_that_fit", "excess_packets", "halved_after_s")
# What a cell must have besides the factors, since students can edit both files.
SETTINGS: Final = {
    "file_bytes": FILE_BYTES,
    "background_flows": 1,
    "background_tcp": "reno",
    "bottleneck_packets": 25,
    "slot_s": SLOT_S,
}


def line_packets_per_s(context: Context) -> float:
    """Return what the student's line carries."""
    return context.integer("line_kbps") * 1000 / 8 / FRAME_BYTES


def packets_per_s(layers: int) -> float:
    """Return the rate of the base and `layers` layers above it, each 4/3 of the one below."""
    return float(sum(FACTOR**-i for i in range(layers + 1)))


def fitting(context: Context) -> int:
    """Return how many layers above the base fit the student's line."""
    layers = 0
    while packets_per_s(layers + 1) <= line_packets_per_s(context):
        layers += 1
    return layers


# -- predictions -------------------------------------------------------------------------------
def fits(context: Context) -> Outcome:
    """Check how many layers fit."""
    yours, right = predicted(context.work, "layers_that_fit"), fitting(context)
    tried = f"adding layers up to a line of {context.integer('line_kbps')} kbit/s"
    if yours == right:
        return passed(tried, f"{right}", f"{yours:g}")
    return failed(tried, NOT_TOLD, f"{yours:g}", "above" if yours > right else "below")


def excess(context: Context) -> Outcome:
    """Check how much one layer too many sends beyond the line until it is pruned."""
    yours, tolerance = predicted(context.work, "excess_packets"), context.arguments["tolerance"]
    above, line = fitting(context) + 1, line_packets_per_s(context)
    right = LATE_S * (packets_per_s(above) - line)
    tried = f"{counted(above, 'layer')} on a line of {line:.1f} packets/s, for {LATE_S} s"
    if math.isclose(yours, right, rel_tol=tolerance, abs_tol=0.5):
        return passed(tried, f"{right:.1f}", f"{yours:g}")
    mistakes = {
        "second": right / LATE_S,
        "layer": LATE_S * FACTOR**-above,
        "all": LATE_S * packets_per_s(above),
    }
    near = (n for n, v in mistakes.items() if math.isclose(yours, v, rel_tol=tolerance))
    return failed(tried, NOT_TOLD, f"{yours:g}", next(near, "other"))


def halved(context: Context) -> Outcome:
    """Check how long a wave takes to fall to half."""
    yours, tolerance = predicted(context.work, "halved_after_s"), context.arguments["tolerance"]
    slots = math.log(0.5) / math.log(FACTOR)
    tried = f"a wave that keeps {FACTOR} of its rate in each slot of {SLOT_S} s"
    if math.isclose(yours, SLOT_S * slots, rel_tol=tolerance):
        return passed(tried, f"{SLOT_S * slots:.1f} s", f"{yours:g} s")
    mistakes = {"slots": slots, "linear": SLOT_S * 0.5 / (1 - FACTOR)}
    near = (n for n, v in mistakes.items() if math.isclose(yours, v, rel_tol=tolerance))
    return failed(tried, NOT_TOLD, f"{yours:g} s", next(near, "other"))


# -- runs --------------------------------------------------------------------------------------
def measured(context: Context) -> dict[tuple[str, int], CellOfRun]:
    """Return the newest cell of each kind and latency. Raises Missing, RunProblem."""
    there, found = cells(context.work, LAYERS), {}
    for kind in KINDS:
        for latency_ms in LATENCIES_MS:
            cell = newest(there, {"cc": kind, "leave_latency_ms": latency_ms})
            if cell is None:
                raise Missing(f"no cell with cc {kind}, leave_latency_ms {latency_ms}")
            found[kind, latency_ms] = cell
    return found


def wrong(context: Context, cell: CellOfRun, **wanted: object) -> list[str]:
    """Return in what a run differs from the one that the lab asked for."""
    asked = {"protocol": "m2c", "clock": "virtual", "m": 1, "seed": context.integer("seed")}
    problems = wrong_with(cell, **asked)
    found = cell.described["parameters"]
    line = {"bottleneck_bps": 1000 * context.integer("line_kbps")}
    for name, value in {**SETTINGS, **line, **wanted}.items():
        if found.get(name) != value:
            problems.append(f"{cell.shown}: {name} is {found.get(name)}, not {value}")
    return problems


def before(context: Context) -> Outcome:
    """Check that the predictions are older than the run."""
    return predicted_first(context, PREDICTIONS, lambda: measured(context))


def runs(context: Context) -> Outcome:
    """Check that all cells exist, with the student's line and seed."""
    expected = f"static and m2c, leaves after 0 and 3000 ms, seed {context.integer('seed')}"
    tried = "looking for your runs below runs/layers"
    return all_there(context, LAYERS, tried, expected, lambda: measured(context), wrong)


# -- reading -----------------------------------------------------------------------------------
def paid(context: Context) -> Outcome:
    """Check which share of its rate TCP kept beside static layers when leaves took effect late."""
    tried, tolerance = "the rates of the competing TCP", float(context.arguments["tolerance"])
    try:
        metrics = {key: cell.metrics() for key, cell in measured(context).items()}
        losses = {key: values["rival_loss"] for key, values in metrics.items()}
        rates = {key: values["rival_rate"] for key, values in metrics.items()}
    except (Missing, RunProblem) as error:
        return nothing(tried, "a run of layers.yaml", str(error))
    yours = context.number("tcp_rate_factor")
    right = rates["static", 3000] / rates["static", 0]
    if math.isclose(yours, right, rel_tol=tolerance):
        return passed(tried, f"{right:.2f}", f"{yours:g}")
    mistakes = {
        "percent": 100 * right,
        "turned": 1 / right,
        "wave": rates["m2c", 3000] / rates["m2c", 0],
        "loss": losses["static", 3000] / losses["static", 0],
    }
    near = (n for n, v in mistakes.items() if math.isclose(yours, v, rel_tol=tolerance))
    return failed(tried, NOT_TOLD, f"{yours:g}", next(near, "other"))


def joins_and_leaves(cell: CellOfRun) -> tuple[int, int]:
    """Return the joins and leaves that a cell's receiver counted. Raises RunProblem."""
    data = load_cell(cell.path).layers
    found = [r for r in data.receivers.values() if r is not None] if data else []
    if len(found) != 1:
        raise RunProblem(f"{cell.shown}: no account of the receiver")
    return found[0].joins, found[0].leaves


def leaves(context: Context) -> Outcome:
    """Check how often the receiver of static layers left one."""
    tried = "the receiver's log: static layers, leaves after 3 s"
    try:
        found = {key: joins_and_leaves(cell) for key, cell in measured(context).items()}
    except (Missing, RunProblem) as error:
        return nothing(tried, "a run of layers.yaml", str(error))
    yours = context.number("static_leaves")
    joins, right = found["static", 3000]
    if yours == right:
        return passed(tried, f"{right}", f"{yours:g}")
    mistakes = {joins: "joins", found["m2c", 3000][1]: "wave"}
    return failed(tried, NOT_TOLD, f"{yours:g}", mistakes.get(int(yours), "other"))


# -- the choice --------------------------------------------------------------------------------
def share(context: Context) -> Outcome:
    """Check that the session takes the student's share of the line."""
    limit_bps = round(context.number("chosen_max_rate_bps"))
    wanted, line_bps = context.integer("share_percent"), 1000 * context.integer("line_kbps")
    tolerance = float(context.arguments["tolerance"])
    tried = f"your run of chosen.yaml with max_rate_bps {limit_bps}"
    expected = f"{wanted} % of the line, give or take {100 * tolerance:g} % of that"
    try:
        cell = newest(cells(context.work, CHOSEN), {"max_rate_bps": limit_bps})
        if cell is None:
            return nothing(tried, expected, f"no cell with max_rate_bps {limit_bps}", "missing")
        if problems := wrong(context, cell, cc="m2c", leave_latency_ms=0):
            return failed(tried, expected, "; ".join(problems[:3]), "not-yours")
        found = 100 * cell.metrics()["tput"] / line_bps
    except RunProblem as error:
        return failed(tried, expected, str(error), "not-yours")
    said = f"{found:.1f} % of the line"
    if math.isclose(found, wanted, rel_tol=tolerance):
        return passed(tried, expected, said)
    if math.isclose(limit_bps, wanted / 100 * line_bps, rel_tol=0.03) and found < wanted:
        return failed(tried, expected, said, "limit")
    return failed(tried, expected, said, "low" if found < wanted else "high")
