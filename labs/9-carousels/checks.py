# SPDX-License-Identifier: Apache-2.0
"""Lab 9: listening times that a student predicts with Fcast's formula and then measures, a choice
of k, and a periodic loss that hurts a fixed order. Reads the logs of the student's own runs."""

from __future__ import annotations

import math
import statistics
from functools import partial
from typing import Final

from experiments.design.carousel import RS_SYMBOLS
from labs.checking import NOT_TOLD, Context, Ends, Outcome, Status, failed, nothing, passed
from labs.predictions import predicted, predicted_first
from labs.runs import CellOfRun, Missing, RunProblem, all_there, cells, newest, wrong_with
from parsers.measure.carousel import expected_files, source_symbols
from parsers.measure.run_files import load_cell

SWEEP: Final = "carousel"
CHOSEN: Final = "chosen"
PERIODIC: Final = "periodic"
FORETOLD: Final = (8, 32, 128)
WRAPS: Final = 200  # k for which blocks have too few repair symbols for the loss
SWEPT: Final = (*FORETOLD, WRAPS)
READ_K: Final = 32
SYMBOL_BYTES: Final = 1024
PERIODIC_K: Final = 32
ORDERS: Final = ("sequential", "shuffle")
REPEATS: Final = 2  # runs of each order, since a single one may be lucky
CLOSE: Final = 0.005  # tolerance between two computed values
# What a cell's carousel must have besides the factors: students edit chosen.yaml and periodic.yaml.
CAROUSEL: Final = {
    "symbol_bytes": SYMBOL_BYTES,
    "fec": "rs",
    "overhead_percent": 0,
    "tune_in_s": 0,
    "loss_burst_packets": 1,
}


def loss(context: Context) -> float:
    """Return the student's share of lost datagrams."""
    return context.integer("loss_percent") / 100


def symbols_of(size_bytes: int) -> int:
    """Return how many symbols a file has."""
    return math.ceil(size_bytes / SYMBOL_BYTES)


def by_formula(context: Context, k: int) -> float:
    """Return Fcast's mean listening time to the student's file, with groups of k at most."""
    symbols = symbols_of(context.integer("file_bytes"))
    groups = math.ceil(symbols / k)
    return expected_files(math.ceil(symbols / groups), groups, loss(context))


def wrong(context: Context, cell: CellOfRun, **wanted: object) -> list[str]:
    """Return in what a run differs from the one that the lab asked for; `wanted`: of its
    carousel."""
    seed = context.integer("seed") + cell.described.get("repeat", 0)
    problems = wrong_with(cell, seed=seed, protocol="fcast", clock="virtual")
    found = cell.described["parameters"]
    for name, value in {**CAROUSEL, **wanted}.items():
        if found.get(name) != value:
            problems.append(f"{cell.shown}: {name} is {found.get(name)}, not {value}")
    return problems


def wrong_of_file(context: Context, cell: CellOfRun) -> list[str]:
    """Return in what a run of the student's file differs from the one that the lab asked for."""
    asked = {"file_bytes": context.integer("file_bytes"), "order": "shuffle", "m": 8}
    return wrong(context, cell, p_i=loss(context), **asked)


def cells_with(
    context: Context, experiment: str, factor: str, levels: tuple[int, ...]
) -> dict[int, CellOfRun]:
    """Return the newest cell of each level. Raises Missing, RunProblem."""
    there = cells(context.work, experiment)
    found = {level: newest(there, {factor: level}) for level in levels}
    if missing := [f"{factor} = {level}" for level, cell in found.items() if cell is None]:
        raise Missing(f"no cell with {', '.join(missing)}")
    return {level: cell for level, cell in found.items() if cell is not None}


# -- prediction and measurement ----------------------------------------------------------------
def formula(context: Context) -> Outcome:
    """Check the predictions against the formula."""
    tried = "computing the formula for your file and your loss"
    yours = {k: predicted(context.work, f"listening_time_k_{k}") for k in FORETOLD}
    right = {k: by_formula(context, k) for k in FORETOLD}
    expected = ", ".join(f"k = {k}: {value:.3f}" for k, value in right.items())
    said = ", ".join(f"k = {k}: {value:g}" for k, value in yours.items())
    for k, value in right.items():
        if not math.isclose(yours[k], value, rel_tol=CLOSE):
            return failed(tried, NOT_TOLD, said, mistake(yours[k], k, value, loss(context)))
    return passed(tried, expected, said)


def mistake(answer: float, k: int, right: float, share_lost: float) -> str:
    """Return the hint for a value that is not the formula's."""
    # With a single group every k has the same mean: the bound.
    for hint, value in (("ideal", 1 / (1 - share_lost)), ("symbols", k * right)):
        if math.isclose(answer, value, rel_tol=CLOSE):
            return hint
    return "other"


def before(context: Context) -> Outcome:
    """Check that the predictions are older than the run."""
    names = [f"listening_time_k_{k}" for k in FORETOLD]
    return predicted_first(context, names, lambda: cells_with(context, SWEEP, "k", FORETOLD))


def runs(context: Context) -> Outcome:
    """Check that all cells exist, with the student's file, loss and seed."""
    expected = f"k = {', '.join(map(str, SWEPT))}, seed {context.integer('seed')}"
    find = partial(cells_with, context, SWEEP, "k", SWEPT)
    tried = "looking for your runs below runs/carousel"
    return all_there(context, SWEEP, tried, expected, find, wrong_of_file)


def at_one_receiver(cell: CellOfRun, host: str) -> tuple[float, float, float]:
    """Return for one receiver, in files: (datagrams that were sent past it, that arrived, symbols
    that it needed). Raises RunProblem."""
    data = load_cell(cell.path).carousel
    stats = data.receivers.get(host) if data is not None else None
    symbols = source_symbols(data, cell.described["parameters"]["file_bytes"]) if data else None
    if stats is None or stats.file_received is None or not symbols:
        raise RunProblem(f"{cell.shown}: {host} has no file")
    came, missing = stats.file_received, stats.file_lost or 0
    return (came + missing) / symbols, came / symbols, (stats.file_useful or 0) / symbols


def reading(context: Context) -> Outcome:
    """Check the listening time of one receiver, and how far k = 200 is from the formula."""
    host = context.word("receiver")
    tried = f"the log of {host} with k = {READ_K}, and all logs with k = {WRAPS}, read again"
    try:
        found = cells_with(context, SWEEP, "k", (READ_K, WRAPS))
        passing, came, needed = at_one_receiver(found[READ_K], host)
        mean = found[READ_K].metrics()["listening_time"]
        ratio = found[WRAPS].metrics()["listening_time"] / by_formula(context, WRAPS)
    except (Missing, RunProblem) as error:
        return nothing(tried, "a run of carousel.yaml", str(error))
    yours = context.number("listening_time_k_32")
    percent = context.number("k_200_over_formula_percent")
    right = 100 * (ratio - 1)
    tolerance = float(context.arguments["tolerance"])
    points = float(context.arguments["tolerance_points"])
    expected, said = f"{passing:.3f} files, {right:.1f} %", f"{yours:g} files, {percent:g} %"
    if not math.isclose(yours, passing, rel_tol=tolerance):
        others = {"received": came, "useful": needed, "mean": mean}
        near = (n for n, v in others.items() if math.isclose(yours, v, rel_tol=tolerance))
        return failed(tried, NOT_TOLD, said, next(near, "log"))
    if abs(percent - right) <= points:
        return passed(tried, expected, said)
    if math.isclose(percent, ratio, rel_tol=0.01) or abs(percent - 100 * ratio) <= points:
        return failed(tried, NOT_TOLD, said, "factor")
    base = abs(percent - 100 * (1 - 1 / ratio)) <= points
    return failed(tried, NOT_TOLD, said, "base" if base else "wrap")


# -- the choice of k ---------------------------------------------------------------------------
def choice_of(context: Context) -> int:
    """Return the student's k. Raises NoAnswer, AnswerError."""
    return round(context.number("chosen_k"))


def limit(context: Context) -> float:
    """Return the longest listening time that the lab accepts, in files."""
    return float(context.arguments["over_ideal"]) / (1 - loss(context))


def measured_with(context: Context, k: int, tried: str, expected: str) -> float:
    """Return the mean listening time of chosen.yaml with this k. Raises Ends if there is none."""
    try:
        cell = cells_with(context, CHOSEN, "k", (k,))[k]
        if problems := wrong_of_file(context, cell):
            raise Ends(failed(tried, expected, "; ".join(problems[:3]), "not-yours"))
        return cell.metrics()["listening_time"]
    except Missing as error:
        raise Ends(nothing(tried, expected, str(error), "missing")) from None
    except RunProblem as error:
        raise Ends(failed(tried, expected, str(error), "not-yours")) from None


def choice(context: Context) -> Outcome:
    """Check that receivers listen no longer than asked with the student's k."""
    k, most = choice_of(context), limit(context)
    tried = f"your run of chosen.yaml with k = {k}"
    expected = f"a mean listening time of {most:.3f} files at most"
    found = measured_with(context, k, tried, expected)
    if found <= most:
        return passed(tried, expected, f"{found:.3f} files")
    # Receivers need more symbols of a group than it has, so the carousel starts over before they
    # finish.
    begins_again = k * by_formula(context, k) > RS_SYMBOLS
    return failed(tried, expected, f"{found:.3f} files", "large" if begins_again else "small")


def thrift(context: Context) -> Outcome:
    """Check that receivers listen longer than asked with half of the student's k."""
    k, most = choice_of(context), limit(context)
    tried = f"your run of chosen.yaml with half your k, {k // 2}"
    expected = f"a mean listening time above {most:.3f} files"
    try:
        itself = choice(context)
    except Ends as end:
        itself = end.outcome
    if itself.status is not Status.PASSED:
        return nothing(tried, expected, f"k = {k}: {itself.found}", "choice")
    try:
        cell = cells_with(context, CHOSEN, "k", (k // 2,))[k // 2]
        problems = wrong_of_file(context, cell)
        found = cell.metrics()["listening_time"]
    except (Missing, RunProblem) as error:
        return nothing(tried, expected, str(error), "missing")
    if problems:
        return nothing(tried, expected, "; ".join(problems[:3]), "missing")
    if found > most:
        return passed(tried, expected, f"{found:.3f} files")
    return failed(tried, expected, f"{found:.3f} files", "wasteful")


# -- periodic loss -----------------------------------------------------------------------------
def groups_of(context: Context) -> int:
    """Return how many groups the file with periodic losses has."""
    return math.ceil(symbols_of(context.integer("periodic_bytes")) / PERIODIC_K)


def groups(context: Context) -> Outcome:
    """Check the answer: how many groups there are."""
    size_bytes = context.integer("periodic_bytes")
    tried = f"dividing a file of {size_bytes} bytes into groups of {PERIODIC_K} symbols"
    answer, right = context.number("periodic_groups"), groups_of(context)
    if answer == right:
        return passed(tried, f"{right}", f"{answer:g}")
    hints: dict[float, str] = {symbols_of(size_bytes): "symbols", PERIODIC_K: "k"}
    return failed(tried, NOT_TOLD, f"{answer:g}", hints.get(answer, "other"))


def with_order(context: Context, order: str, period: int) -> list[CellOfRun]:
    """Return the newest cell of each repeat with this order and period. Raises Missing,
    RunProblem."""
    there = cells(context.work, PERIODIC)
    found = []
    for repeat in range(REPEATS):
        same = [cell for cell in there if cell.described.get("repeat") == repeat]
        cell = newest(same, {"order": order, "loss_period": period})
        if cell is None:
            raise Missing(f"no cell with loss_period {period}, order {order}, repeat {repeat + 1}")
        found.append(cell)
    return found


def periodic(context: Context) -> Outcome:
    """Check that the student's period hurts the fixed order more than the random one."""
    period, least = round(context.number("periodic_loss")), float(context.arguments["at_least"])
    tried = f"your runs of periodic.yaml with loss_period {period}"
    expected = f"sequential listens at least {least:g} times as long as shuffle"
    if period < 1 / float(context.arguments["most_loss"]):
        return failed(tried, "a rarer loss", f"one datagram of {period}", "often")
    asked = {"file_bytes": context.integer("periodic_bytes"), "k": PERIODIC_K, "m": 2}
    try:
        found = [with_order(context, order, period) for order in ORDERS]
        problems = [
            text for own in found for cell in own for text in wrong(context, cell, p_i=0, **asked)
        ]
        fixed, random = (
            statistics.fmean(cell.metrics()["listening_time"] for cell in own) for own in found
        )
    except Missing as error:
        return nothing(tried, expected, str(error), "missing")
    except RunProblem as error:
        return failed(tried, expected, str(error), "not-yours")
    if problems:
        return failed(tried, expected, "; ".join(problems[:3]), "not-yours")
    said = f"{fixed:.3f} and {random:.3f} files: {fixed / random:.2f} times"
    if fixed / random >= least:
        return passed(tried, expected, said)
    return failed(tried, expected, said, harmless(period, groups_of(context)))


def harmless(period: int, count: int) -> str:
    """Return the hint for a period that does not hurt a carousel of `count` groups."""
    if period == PERIODIC_K:
        return "k"
    if abs(period - count) == 1:
        return "beside"
    return "multiple" if period > count and period % count == 0 else "harmless"
