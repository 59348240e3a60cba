# SPDX-License-Identifier: Apache-2.0
"""Lab 11: minute records read by hand, FFDR and MPLR of a minute and of a run, the regional network
that loses packets, and a PromQL query.

The right answers come from the student's own run: those for a minute from its records, those for
the whole run from the receivers' logs, and the query's from the counters. The network follows from
the student's loss_seed.
"""

from __future__ import annotations

import json
import math
import operator
import statistics
from calendar import timegm
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from time import strptime
from typing import Any, Final

from labs.checking import NOT_TOLD, Context, Ends, Outcome, failed, nothing, passed
from labs.promql import PROMTOOL, NoEngine, QueryError, Result, evaluate
from labs.regional_loss import LOSS_SEED, RegionalLoss, regional_loss, with_regional_loss
from labs.runs import CellOfRun, Missing, RunProblem, all_there, cells, wrong_with
from parsers.base.jsonfiles import BadFile
from parsers.measure.run_files import load_cell
from parsers.measure.summary import summarize
from topologies.model.handoff_loss import with_handoff_loss
from topologies.model.load import find, load
from topologies.model.network import Network

RUN: Final = "case-a"
TOPOLOGY: Final = "drfsm8"
SUBSCRIBERS: Final = ("uva", "uwisc", "umd", "uutah", "uwash")
PUBLISHERS: Final = "frgp"
# What a cell must have, since students can edit watched.yaml.
SETTINGS: Final = {"f_snd": 5, "f_rcv": 2, "monitor": "on"}
SHARED_LOSS: Final = 0.005  # of the publisher's regional network
DURATION_S: Final = 150
BLOCK_BYTES: Final = 1448
FIELDS: Final = 19
COUNTED: Final = "downpour_fmtp_receiver_retx_blocks_total"
MICROSECONDS: Final = 1_000_000


# -- the run -----------------------------------------------------------------------------------
def lossy(context: Context) -> RegionalLoss:
    """Return the student's lossy network."""
    return regional_loss(context.integer(LOSS_SEED), load(find(TOPOLOGY)), SUBSCRIBERS)


def newest(context: Context) -> dict[str, CellOfRun]:
    """Return the newest run. Raises Missing, RunProblem."""
    found = cells(context.work, RUN)
    if not found:
        raise Missing("no run")
    return {RUN: found[0]}


def network_of(context: Context) -> Network:
    """Return the network of the student's run."""
    return with_regional_loss(with_handoff_loss(load(find(TOPOLOGY)), SHARED_LOSS), lossy(context))


def found_in(cell: CellOfRun) -> Network:
    """Return the network of a run. Raises RunProblem."""
    try:
        return Network.from_json((cell.path / "network.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunProblem(f"{cell.shown}: network.json: {error}") from None


def wrong(context: Context, cell: CellOfRun) -> list[str]:
    """Return in what a run differs from the one that the lab asked for. Raises RunProblem."""
    problems = wrong_with(
        cell, seed=context.integer("seed"), protocol="ldm7", clock="virtual",
        duration_s=DURATION_S, subscribers=list(SUBSCRIBERS),
    )  # fmt: skip
    found = cell.described["parameters"]
    for name, value in SETTINGS.items():
        if found.get(name) != value:
            problems.append(f"{cell.shown}: {name} is {found.get(name)}, not {value}")
    if found_in(cell).links != network_of(context).links:
        problems.append(f"{cell.shown}: its links are not those of your network")
    return problems


def run(context: Context) -> Outcome:
    """Check that there is a run, and that it is the student's."""
    expected = f"a monitored run of seed {context.integer('seed')}, with your loss_seed"
    tried = "looking for your run below runs/case-a"
    return all_there(context, RUN, tried, expected, lambda: newest(context), wrong)


def watched(context: Context, tried: str) -> CellOfRun:
    """Return the student's run. Raises Ends if there is none."""
    try:
        cell = newest(context)[RUN]
        problems = wrong(context, cell)
    except Missing as error:
        raise Ends(nothing(tried, "your run", str(error), "missing")) from None
    except RunProblem as error:
        raise Ends(failed(tried, "your run", str(error), "not-yours")) from None
    if problems:
        raise Ends(failed(tried, "your run", "; ".join(problems[:3]), "not-yours"))
    return cell


# -- minute records ----------------------------------------------------------------------------
@dataclass(frozen=True)
class Sums:
    """The sums of one or several minute records of 19 fields (rtstats(1))."""

    files: int = 0
    size_bytes: int = 0
    by_fmtp: int = 0
    bytes_by_fmtp: int = 0
    blocks: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(*map(operator.add, astuple(self), astuple(other)))

    @property
    def ffdr(self) -> float:
        """Return DRFSM21 eq. 4, in percent."""
        return 100 * self.by_fmtp / self.files if self.files else math.nan

    @property
    def mplr(self) -> float:
        """Return DRFSM21 eq. 6, in percent."""
        if not self.bytes_by_fmtp:
            return math.nan
        return 100 * self.blocks * BLOCK_BYTES / self.bytes_by_fmtp


def minutes_of(cell: CellOfRun) -> dict[str, dict[str, Sums]]:
    """Return the records by host and by the end of the minute, in order. A record that was sent
    again, whole or in part, counts once. Raises Ends if there are none."""
    found: dict[str, dict[str, Sums]] = {}
    try:
        lines = (cell.path / "monitor/minutes.txt").read_text(encoding="utf-8").splitlines()
        for words in sorted(line.split(",") for line in lines if line.count(",") == FIELDS - 1):
            size, fmtp_size, files, by_fmtp, blocks = (int(words[i]) for i in (3, 4, 5, 6, 17))
            sums = Sums(files, size, by_fmtp, fmtp_size, blocks)
            own = found.setdefault(words[1], {})
            if words[0] not in own or sums.files >= own[words[0]].files:
                own[words[0]] = sums
    except (OSError, ValueError) as error:
        text = f"{cell.shown}: monitor/minutes.txt: {error}"
        raise Ends(failed("reading the minute records", "records", text, "not-yours")) from None
    return found


def yours(context: Context, cell: CellOfRun) -> tuple[str, Sums]:
    """Return the end and the sums of the minute that the student is to read. Raises Ends."""
    own = list(minutes_of(cell).get(context.word("receiver"), {}).items())
    number = context.integer("minute")
    if len(own) < number:
        text = f"{cell.shown}: {len(own)} minutes of {context.word('receiver')}"
        raise Ends(failed("reading the minute records", f"minute {number}", text, "not-yours"))
    return own[number - 1]


def record(context: Context) -> Outcome:
    """Check the four numbers that the student read."""
    host, number = context.word("receiver"), context.integer("minute")
    tried = f"minute {number} of {host} in monitor/minutes.txt"
    cell = watched(context, tried)
    end, right = yours(context, cell)
    names = ("files", "files_by_fmtp", "bytes_by_fmtp", "blocks_again")
    said = tuple(context.number(name) for name in names)
    expected, shown = as_line(read_of(right)), as_line(said)
    if said == read_of(right):
        return passed(tried, expected, shown)
    every = minutes_of(cell)
    hint = "other"
    if said in [read_of(sums) for sums in every[host].values()]:
        hint = "minute"
    elif said in [read_of(own[end]) for own in every.values() if end in own]:
        hint = "host"
    elif said[2] == right.size_bytes or said[:2] == (right.by_fmtp, right.files):
        hint = "complete"
    return failed(tried, NOT_TOLD, shown, hint)


def read_of(sums: Sums) -> tuple[float, ...]:
    """Return what the student should read in a record."""
    return (sums.files, sums.by_fmtp, sums.bytes_by_fmtp, sums.blocks)


def as_line(values: Sequence[float]) -> str:
    """Return numbers as a report shows them."""
    return ", ".join(f"{value:.10g}" for value in values)


# -- metrics -----------------------------------------------------------------------------------
def judged(
    context: Context,
    tried: str,
    prefix: str,
    right: Mapping[str, float],
    mistakes: Mapping[str, Mapping[str, float]],
) -> Outcome:
    """Check the answers `prefix`_NAME_percent. `mistakes`: values by name and hint."""
    tolerance = float(context.arguments["tolerance_points"])
    said = {name: context.number(f"{prefix}_{name}_percent") for name in right}
    expected = ", ".join(f"{name.upper()} {value:.2f} %" for name, value in right.items())
    shown = ", ".join(f"{name.upper()} {value:g} %" for name, value in said.items())
    for name, value in right.items():
        if abs(said[name] - value) <= tolerance:
            continue
        usual = {"share": value / 100, **mistakes[name]}
        near = (h for h, v in usual.items() if math.isclose(said[name], v, abs_tol=tolerance / 2))
        return failed(tried, NOT_TOLD, shown, next(near, "other"))
    return passed(tried, expected, shown)


def usual_mistakes(sums: Sums) -> dict[str, dict[str, float]]:
    """Return wrong values of FFDR and MPLR."""
    return {
        "ffdr": {
            "size": 100 * sums.bytes_by_fmtp / (sums.size_bytes or 1),
            "lost": 100 - sums.ffdr,
        },
        "mplr": {
            "complete": 100 * sums.blocks * BLOCK_BYTES / (sums.size_bytes or 1),
            "files": 100 * sums.blocks / (sums.by_fmtp or 1),
        },
    }


def minute(context: Context) -> Outcome:
    """Check FFDR and MPLR of the student's minute."""
    tried = f"computing them from minute {context.integer('minute')} of {context.word('receiver')}"
    _, sums = yours(context, watched(context, tried))
    right = {"ffdr": sums.ffdr, "mplr": sums.mplr}
    return judged(context, tried, "minute", right, usual_mistakes(sums))


def from_logs(cell: CellOfRun, host: str) -> dict[str, float]:
    """Return FFDR and MPLR of a run, from the receiver's log. Raises Ends."""
    tried = f"reading the log of {host}"
    try:
        receivers = summarize(load_cell(cell.path)).receivers
    except (BadFile, OSError) as error:
        raise Ends(failed(tried, "a log", f"{cell.shown}: {error}", "not-yours")) from None
    fmtp = next((r.fmtp for r in receivers if r.host == host), None)
    if fmtp is None or fmtp.ffdr_count.value is None or fmtp.mplr.value is None:
        raise Ends(failed(tried, "a log", f"{cell.shown}: nothing of {host}", "not-yours"))
    return {"ffdr": fmtp.ffdr_count.value, "mplr": fmtp.mplr.value}


def whole(context: Context) -> Outcome:
    """Check FFDR and MPLR of the run: the sums of the records agree with the log."""
    host = context.word("receiver")
    tried = f"computing them from the log of {host}, all minutes together"
    cell = watched(context, tried)
    own = list(minutes_of(cell).get(host, {}).values())
    _, one = yours(context, cell)
    mistakes = usual_mistakes(sum(own, Sums()))
    for name, of_each in mistakes.items():
        values = [getattr(sums, name) for sums in own]
        of_each |= {"mean": statistics.fmean(values), "minute": getattr(one, name)}
    return judged(context, tried, "run", from_logs(cell, host), mistakes)


# -- the network -------------------------------------------------------------------------------
def network(context: Context) -> Outcome:
    """Check which regional network the student names."""
    tried = "looking for the network in which your run lost packets"
    watched(context, tried)
    right, topology = lossy(context), load(find(TOPOLOGY))
    answer = str(context.answer("lossy_network")).strip().lower()
    if answer == right.network:
        return passed(tried, right.network.upper(), answer)
    known = {topology.segment_of(host).domain for host in SUBSCRIBERS}
    if answer in SUBSCRIBERS:
        hint = "university"
    elif answer == PUBLISHERS:
        hint = "all"
    else:
        hint = "other" if answer in known else "names"
    return failed(tried, NOT_TOLD, answer, hint)


# -- the query ---------------------------------------------------------------------------------
Counters = dict[str, list[float | None]]


def counters_of(cell: CellOfRun, end_s: int) -> Counters:
    """Return each series with a value for every second until `end_s` (since 1970), by its name in
    Prometheus; a value holds until the next one. Raises Ends if the file is not as a run leaves
    it."""
    names: dict[int, tuple[str, int]] = {}
    values: Counters = {}
    begin_s = 0
    try:
        with (cell.path / "logs/counters.jsonl").open(encoding="utf-8") as lines:
            for line in map(json.loads, lines):
                if "series" in line:
                    names[line["series"]] = prometheus_name(line), line.get("decimals", 0)
                    continue
                at_s = math.ceil(line["time_us"] / MICROSECONDS)
                begin_s = begin_s or at_s
                if at_s > end_s:
                    break
                told: list[tuple[int, int | None]] = [*map(tuple, line["values"])]
                told += [(number, None) for number in line.get("gone", [])]
                for number, value in told:
                    name, decimals = names[number]
                    own = values.setdefault(name, [])
                    hold(own, at_s - begin_s)
                    own.append(None if value is None else value / 10**decimals)
    except (OSError, ValueError, KeyError, TypeError) as error:
        text = f"{cell.shown}: logs/counters.jsonl: {error}"
        raise Ends(failed("reading the counters", "counters", text, "not-yours")) from None
    if not any(name.startswith(f"{COUNTED}{{") for name in values):
        text = f"{cell.shown}: logs/counters.jsonl: no {COUNTED}"
        raise Ends(failed("reading the counters", "counters", text, "not-yours"))
    for own in values.values():
        hold(own, end_s - begin_s + 1)
    return values


def hold(values: list[float | None], length: int) -> None:
    """Extend a series to that length with its last value, or with None if it has none."""
    del values[length:]
    values += [values[-1] if values else None] * (length - len(values))


def prometheus_name(line: Mapping[str, Any]) -> str:
    """Return the name of a series in PromQL."""
    labels = ",".join(f"{key}={json.dumps(text)}" for key, text in sorted(line["labels"].items()))
    return f"downpour_{line['name']}{'_total' if line['kind'] == 'counter' else ''}{{{labels}}}"


def again(values: Counters, window_s: int) -> dict[str, float]:
    """Return how many blocks were sent again to each host in the last `window_s`."""
    found: dict[str, float] = {}
    for name, own in values.items():
        if name.startswith(f"{COUNTED}{{"):
            host = name.partition('host="')[2].partition('"')[0]
            before = own[-1 - window_s] if len(own) > window_s else None
            found[host] = found.get(host, 0.0) + (own[-1] or 0.0) - (before or 0.0)
    return found


def query(context: Context) -> Outcome:
    """Check the answer of the student's query."""
    window_s = context.integer("window_s")
    tried = f"your query at the end of minute {context.integer('minute')}, by {PROMTOOL}"
    cell = watched(context, tried)
    text = str(context.answer("query"))
    end, _ = yours(context, cell)
    values = counters_of(cell, timegm(strptime(end, "%Y%m%dT%H%M%SZ")))
    right = again(values, window_s)
    worst = max(right, key=right.__getitem__)
    expected = f'{{host="{worst}"}} {right[worst]:.0f}'
    try:
        found = evaluate(text, values)
    except NoEngine:
        return nothing(tried, "an engine for PromQL", f"NOT CHECKED: no {PROMTOOL}", "engine")
    except QueryError as error:
        return failed(tried, NOT_TOLD, str(error), "refused")
    shown = ", ".join(f"{dict(one.labels)} {one.value:g}" for one in found[:3])
    if len(found) != 1:
        return failed(tried, NOT_TOLD, shown or "nothing", "several" if found else "nothing")
    hint = mistake(context, found[0], values)
    return failed(tried, NOT_TOLD, shown, hint) if hint else passed(tried, expected, shown)


def mistake(context: Context, found: Result, values: Counters) -> str:
    """Return the hint for an answer; empty if it is right."""
    window_s, tolerance = context.integer("window_s"), float(context.arguments["tolerance"])
    right = again(values, window_s)
    worst = max(right, key=right.__getitem__)
    if "host" not in found.labels:
        return "host"
    if found.labels["host"] != worst:
        return "who"
    if math.isclose(found.value, right[worst], rel_tol=tolerance):
        return ""
    others = {
        "total": again(values, 1 << 30)[worst],
        "rate": right[worst] / window_s,
    }
    near = [h for h, v in others.items() if math.isclose(found.value, v, rel_tol=tolerance)]
    other = any(
        math.isclose(found.value, again(values, s)[worst], rel_tol=0.01) for s in range(10, 121, 5)
    )
    return near[0] if near else "window" if other else "other"
