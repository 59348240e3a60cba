# SPDX-License-Identifier: Apache-2.0
"""Compute throughput and FFDR of a cell's file-sets, for any aggregate size G, and over all
file-sets (MPUP16 III-B, V-C)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from parsers.base.metric_units import Value, absent
from parsers.measure import metrics
from parsers.measure.deliveries import Arrival, Receiver, Sent
from parsers.measure.metrics import Delivery, FileSet
from parsers.read.cell_files import Cell


@dataclass(frozen=True)
class FileSetMetrics:
    files: FileSet
    throughput: Value
    ffdr: Value


def counts(protocol: str, arrival: Arrival) -> bool:
    """Return whether the file is in Z_i: with LDM7 only if FMTP delivered it (MPUP16 III-B)."""
    return arrival.how == {"ldm7": "fmtp", "ldm6": "ldm6"}.get(protocol, "file")


Cutter = Callable[[int | None], list[FileSetMetrics]]


def cutter(cell: Cell, sent: Sent, receivers: Mapping[str, Receiver]) -> Cutter:
    """Return a function that measures the file-sets of size G or, with None, everything as one set.
    Return None if the list of sent files or a receiver's log is missing."""
    no_ffdr = absent("%", "defined for LDM7 only")
    if not sent.order or len(receivers) < cell.m:
        return lambda _: []
    position = {product: i for i, product in enumerate(sent.order)}
    received = {
        host: {
            place: Delivery(product.size_bytes, arrival.latency_s(product))
            for product, arrival in receiver.arrivals.items()
            if (place := position.get(product)) is not None
            and counts(cell.protocol_of(host), arrival)
        }
        for host, receiver in receivers.items()
    }
    sizes = [p.size_bytes for p in sent.order]
    order = range(len(sizes))
    multicast = {h: found for h, found in received.items() if cell.protocol_of(h) == "ldm7"}

    def measure(files: FileSet) -> FileSetMetrics:
        return FileSetMetrics(
            files,
            metrics.throughput(order, received, files),
            metrics.ffdr(order, multicast, files) if multicast else no_ffdr,
        )

    def cut(group_bytes: int | None) -> list[FileSetMetrics]:
        if group_bytes is None:
            return [measure(FileSet(0, len(sizes) - 1, sum(sizes)))]
        return [measure(files) for files in metrics.file_sets(sizes, group_bytes)]

    return cut


def file_set_values(sets: Sequence[FileSetMetrics]) -> dict[str, Value]:
    """Return the distribution of the throughput over file-sets (MPUP16 V-C, Fig. 2)."""
    defined = [s.throughput.value for s in sets if s.throughput.value is not None]
    values = {"file_sets": Value(float(len(sets)), "")}
    if not defined:
        reason = sets[0].throughput.reason if sets else "less than one file-set was sent"
        names = ("throughput_sets", "throughput_median", "throughput_iqr")
        return values | {name: absent("bit/s", reason) for name in names}
    quartiles = [metrics.quantile(defined, q, "bit/s").value or 0.0 for q in (0.25, 0.5, 0.75)]
    return values | {
        "throughput_sets": Value(sum(defined) / len(defined), "bit/s"),
        "throughput_median": Value(quartiles[1], "bit/s"),
        "throughput_iqr": Value(quartiles[2] - quartiles[0], "bit/s"),
    }


def throughput(
    cell: Cell,
    sent: Sent,
    receivers: Mapping[str, Receiver],
    group_bytes: int,
    cut: Cutter,
    values: dict[str, Value],
) -> tuple[list[FileSetMetrics], bool]:
    """Return eq. 3 and 4 for each file-set, their means, and their values over the whole run."""
    found = cut(None)
    if not found:
        without = [h for h in cell.subscribers if h not in receivers]
        reason = sent.reason or f"no log of {', '.join(without)}"
        names = ("throughput", "throughput_sets", "throughput_median", "throughput_iqr")
        values |= {name: absent("bit/s", reason) for name in names}
        values["file_sets"] = absent("", reason)
        no_ffdr = absent("%", "defined for LDM7 only")
        values["ffdr"] = absent("%", reason) if cell.protocol == "ldm7" else no_ffdr
        return [], False
    (everything,) = found
    whole = everything.throughput
    note = "" if whole.reason else "of all files together"
    values["throughput"] = Value(whole.value, whole.unit, whole.reason, note)
    values["ffdr"] = everything.ffdr
    sets = cut(group_bytes)
    values |= file_set_values(sets)
    if not sets:
        reason = (
            f"no file-set: {everything.files.size_bytes / 1e6:.1f} MB were sent,"
            f" less than G = {group_bytes / 1e6:.0f} MB"
        )
        for name in ("throughput_sets", "throughput_median", "throughput_iqr"):
            values[name] = absent("bit/s", reason)
        return [everything], False
    value = values["throughput_sets"]
    if value.value is not None:
        undefined = sum(1 for s in sets if s.throughput.value is None)
        note = f"mean of {len(sets) - undefined} file-sets of G = {group_bytes / 1e6:.0f} MB"
        if undefined:
            note += f"; {undefined} more undefined"
        values["throughput_sets"] = Value(value.value, "bit/s", note=note)
    return sets, True
