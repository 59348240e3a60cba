# SPDX-License-Identifier: Apache-2.0
"""Compute how long a carousel's receivers listen and what it costs, measured and by Fcast's
formula.

Listening time is counted in files: the datagrams that passed between tuning in and the complete
file, divided by the file's symbols.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from common.contracts import ARRIVED_COMMENT
from parsers.base.jsonfiles import BadFile
from parsers.base.metric_units import Value, absent
from parsers.measure import metrics, storage
from parsers.measure.bandwidth import interface_name, sent_bytes
from parsers.read.cell_files import Cell
from parsers.read.counters import Counters
from parsers.read.fcast_log import CarouselReceiver, CarouselSender

UNLIKELY: Final = 1e-12  # in the formula's distribution: less likely times are not counted
MOST_TERMS: Final = 1_000_000  # terms of its sum; if there are more, they are combined
NAMES: Final = (
    "listening_time",
    "listening_max",
    "listening_formula",
    "listening_over_formula",
    "symbols_received",
    "symbols_needed",
    *storage.NAMES,
)
NO_CAROUSEL: Final = "defined for carousels only"


@dataclass(frozen=True)
class CarouselData:
    """What the programs of a cell reported. None: the log has no such line."""

    sender: CarouselSender | None = None
    receivers: Mapping[str, CarouselReceiver | None] = field(default_factory=dict)
    waited_s: Mapping[str, float] = field(default_factory=dict)  # for the sender, by receiver


def expected_files(k: int, groups: int, loss: float) -> float:
    """Return the mean listening time in files, with groups of k symbols, any k of which restore the
    group (MSR-TR-99-14, 5); loss below 1. The formula counts whole rounds: a receiver that stops
    within one listens up to 1/k less."""
    if loss <= 0:
        return 1.0
    import numpy as np  # here: each cell's process loads this module, SciPy takes a second
    from scipy import stats

    # A group loses a number of symbols before its kth arrives; the slowest group decides.
    lost = stats.nbinom(k, 1 - loss)
    most = int(lost.isf(UNLIKELY / groups))
    step = 1 + most // MOST_TERMS
    seen = np.arange(step // 2, most + 1, step)
    with np.errstate(divide="ignore"):  # the logarithm of 0, if all groups need more
        mean = step * -np.expm1(groups * np.log1p(-lost.sf(seen))).sum()
    return float((k + mean) / k)


def source_symbols(data: CarouselData, file_bytes: int) -> int | None:
    """Return how many symbols the file has; None if the sender did not report their size."""
    return None if data.sender is None else math.ceil(file_bytes / data.sender.symbol_bytes)


def carousel_values(cell: Cell, data: CarouselData | None) -> dict[str, Value]:
    """Return the metrics of a carousel; for other protocols, none has a value."""
    if data is None:
        return {name: absent("", NO_CAROUSEL) for name in NAMES}
    symbols = source_symbols(data, cell.trace.bytes or 0)
    done = [r for r in data.receivers.values() if r is not None and r.file_s is not None]
    reason = "no receiver completed the file" if not done else ""
    if not symbols or reason:
        reason = reason or "no statistics of the sender"
        return {name: absent("", reason) for name in NAMES}
    times = [((r.file_received or 0) + (r.file_lost or 0)) / symbols for r in done]
    left_out = len(data.receivers) - len(done)
    note = f"without {left_out} receivers that have no file" if left_out else ""
    found = {
        "listening_time": Value(statistics.fmean(times), "", note=note),
        "listening_max": Value(max(times), "", note=note),
        "symbols_received": Value(
            statistics.fmean((r.file_received or 0) / symbols for r in done), "", note=note
        ),
        "symbols_needed": Value(
            statistics.fmean((r.file_useful or 0) / symbols for r in done), "", note=note
        ),
    }
    formula = _formula(cell, symbols)
    over = formula
    if formula.value:
        over = Value(statistics.fmean(times) / formula.value, "", note=note)
    found |= {"listening_formula": formula, "listening_over_formula": over}
    return {**found, **storage.storage_values(cell.parameters, done, symbols)}


def _formula(cell: Cell, symbols: int) -> Value:
    """Return the formula's value for the cell's code."""
    parameters = cell.parameters
    if parameters.get("fec") != "rs":
        return absent("", "the formula is for Reed-Solomon codes")
    if parameters.get("loss_burst_packets", 1.0) != 1.0 or parameters.get("loss_period"):
        return absent("", "the formula is for independent losses")
    k = int(str(parameters.get("k") or 200))
    groups = math.ceil(symbols / k)
    return Value(expected_files(math.ceil(symbols / groups), groups, cell.loss), "")


def latencies(data: CarouselData) -> list[float]:
    """Return each receiver's time from tuning in to the complete file, in seconds, without the time
    in which it waited for the sender."""
    return sorted(
        r.file_s - data.waited_s.get(host, 0.0)
        for host, r in data.receivers.items()
        if r is not None and r.file_s is not None
    )


def parse_tune_ins(text: str, file: str) -> dict[str, float]:
    """Parse tune-ins.json: how long each receiver waited for the sender. Raises BadFile."""
    try:
        return {str(h): float(one["waited_s"]) for h, one in json.loads(text).items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadFile(f"{file}: not a list of tune-ins: {error!r}") from None


def wire_per_file(cell: Cell, start: Counters | None, end: Counters | None) -> Value:
    """Return what the sender's NIC1 sent, divided by what it had to send, headers included."""
    size = cell.trace.bytes or 0
    if start is None or end is None or not size:
        return absent("", "no counters of start and end, or no size of the trace")
    sent = sent_bytes(f"{cell.publisher}/{interface_name(cell.nic1)}", start, end)
    if sent is None:
        return absent("", "the counters have no interface NIC1 of the sender")
    return Value(sent / size, "")


def feedback_packets(cell: Cell, start: Counters | None, end: Counters | None) -> Value:
    """Return how many packets all receivers together sent on the path."""
    if start is None or end is None:
        return absent("packets", "no counters of start and end")
    total = 0
    for host in cell.subscribers:
        rules = (r for r in end.rules(host) if ARRIVED_COMMENT in r.rule and r.interface)
        nic1 = next((rule.interface or "" for rule in rules), "")
        place = f"{host}/{interface_name(nic1)}"
        if place not in start.interfaces or place not in end.interfaces:
            return absent("packets", f"no counters of {host}'s NIC1")
        total += end.interfaces[place].tx_packets - start.interfaces[place].tx_packets
    return Value(float(total), "packets")


def download_values(cell: Cell, data: CarouselData) -> dict[str, Value]:
    """Return latency and throughput (MPUP16 eq. 3) of the file, from tuning in to its end."""
    found = latencies(data)
    note = "from tuning in"
    values = {
        f"latency_{name}": metrics.quantile(found, probability, "s")
        for name, probability in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
    }
    values["latency_mean"] = metrics.mean(found, "s")
    rates = [8 * (cell.trace.bytes or 0) / time_s for time_s in found if time_s > 0]
    values["throughput"] = metrics.mean(rates, "bit/s")
    return {
        n: v if v.value is None else Value(v.value, v.unit, note=note) for n, v in values.items()
    }
