# SPDX-License-Identifier: Apache-2.0
"""Evaluate a file's transfer by layered multicast, or by TCP for comparison: the criteria of M2C10,
7.2, and the effect on traffic that shares the bottleneck."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from parsers.base.metric_units import Value, absent
from parsers.read.cell_files import Cell
from parsers.read.counters import Counters, InterfaceCounters
from parsers.read.m2c_log import LayersReceiver, LayersSender, Slot

TIMES: Final = ("transfer_time", "gput", "tput", "transfer_loss", "net")
OVERHEADS: Final = ("dup", "sym", "head", "comp")
LINES: Final = "line_used"
RIVALS: Final = ("rival_rate", "rival_loss", "share_of_rival", "jain")
UNITS: Final = {
    "transfer_time": "s",
    "gput": "bit/s",
    "tput": "bit/s",
    "rival_rate": "bit/s",
    "share_of_rival": "",
    "jain": "",
}  # of all others %
CONVERGED: Final = 10  # slots before two sessions are compared
NO_FILE: Final = "defined for a single file"


@dataclass(frozen=True)
class LayersData:
    """What the programs of a cell reported. None: the log has no such line."""

    sender: LayersSender | None = None
    receivers: Mapping[str, LayersReceiver | None] = field(default_factory=dict)
    rival: LayersReceiver | None = None  # of the competing session


def _absent(name: str, reason: str) -> Value:
    return absent(UNITS.get(name, "%"), reason)


def _mean(name: str, values: Sequence[float]) -> Value:
    return Value(statistics.fmean(values), UNITS.get(name, "%"))


def layers_values(
    cell: Cell,
    data: LayersData | None,
    arrived_s: Mapping[str, float],
    counters: tuple[Counters | None, Counters | None],
) -> dict[str, Value]:
    """Return all metrics of this module. `arrived_s`: each receiver's time until the file arrived,
    if no m2c-recv reports it."""
    values = {n: _absent(n, NO_FILE) for n in (*TIMES, *OVERHEADS, LINES, *RIVALS)}
    if not cell.parameters.get("file_bytes"):
        return values
    if data is not None:
        values |= _by_layers(data)
    else:
        none = "defined for layered multicast only"
        values |= {n: _absent(n, none) for n in OVERHEADS}
        values |= _by_others(cell, arrived_s, *counters)
    values |= _beside(cell, *counters)
    rate, tput = values["rival_rate"].value, values["tput"].value
    if rate and tput is not None:
        values["share_of_rival"] = Value(tput / rate, "")
    else:
        values["share_of_rival"] = absent("", values["rival_rate"].reason or "no throughput")
    values["jain"] = _jain(data)
    values[LINES] = _line_used(cell, data, arrived_s)
    return values


def _line_used(cell: Cell, data: LayersData | None, arrived_s: Mapping[str, float]) -> Value:
    """Return the share of its own line's rate that the file used, at the receiver with the
    least."""
    rates = cell.parameters.get("rate_i")
    if not isinstance(rates, list) or len(rates) != len(cell.subscribers):
        return _absent(LINES, "receivers have no lines of their own (rate_i_bps)")
    times = dict(arrived_s)
    if data is not None:
        done = {h: r for h, r in data.receivers.items() if r is not None and r.overheads}
        times = {host: receiver.time_s for host, receiver in done.items()}
    if any(times.get(host, 0) <= 0 for host in cell.subscribers):
        return _absent(LINES, "a receiver has no file")
    bits = 8 * float(cell.trace.bytes or 0)
    lines = zip(cell.subscribers, rates, strict=True)
    return Value(100 * min(bits / times[host] / rate for host, rate in lines), "%")


def _by_layers(data: LayersData) -> dict[str, Value]:
    """Return what the receivers report, as means over all that have the file."""
    done = [r for r in data.receivers.values() if r is not None and r.overheads is not None]
    if not done:
        reason = "no receiver has the file"
        return {n: _absent(n, reason) for n in (*TIMES, *OVERHEADS)}
    read: dict[str, Callable[[LayersReceiver], float]] = {
        "transfer_time": lambda r: r.time_s,
        "gput": lambda r: r.gput_bps,
        "tput": lambda r: r.tput_bps,
        "transfer_loss": lambda r: r.loss,
    }
    found = {n: _mean(n, [of(r) for r in done]) for n, of in read.items()}
    overheads = [r.overheads for r in done if r.overheads is not None]
    for name in ("net", *OVERHEADS):
        found[name] = _mean(name, [getattr(o, name) for o in overheads])
    left_out = len(data.receivers) - len(done)
    if left_out:
        note = f"without {left_out} receivers that have no file"
        found = {n: Value(v.value, v.unit, note=note) for n, v in found.items()}
    return found


def _interfaces(
    places: Sequence[str], start: Counters | None, end: Counters | None
) -> list[tuple[InterfaceCounters, InterfaceCounters]] | None:
    """Return (before, after) of each interface; None if a counter is missing."""
    if start is None or end is None or not places:
        return None
    if any(p not in start.interfaces or p not in end.interfaces for p in places):
        return None
    return [(start.interfaces[p], end.interfaces[p]) for p in places]


def _by_others(
    cell: Cell, arrived_s: Mapping[str, float], start: Counters | None, end: Counters | None
) -> dict[str, Value]:
    """Return the same for another protocol, by the counters of NIC1 at both ends."""
    times = [t for t in arrived_s.values() if t > 0]
    if not times:
        return {n: _absent(n, "no receiver has the file") for n in TIMES}
    size = float(cell.trace.bytes or 0)
    found = {
        "transfer_time": _mean("transfer_time", times),
        "gput": _mean("gput", [8 * size / t for t in times]),
    }
    nics = cell.path_interfaces
    receivers = _interfaces([p[0] for h, p in nics.items() if h != cell.publisher], start, end)
    sender = _interfaces([nics[cell.publisher][0]] if cell.publisher in nics else [], start, end)
    if receivers is None or sender is None or not size:
        reason = "no counters of NIC1 at both ends"
        return found | {n: _absent(n, reason) for n in ("tput", "transfer_loss", "net")}
    got = sum(after.rx_bytes - before.rx_bytes for before, after in receivers)
    packets = sum(after.rx_packets - before.rx_packets for before, after in receivers)
    sent = sum(after.tx_packets - before.tx_packets for before, after in sender)
    each = got / len(receivers)
    found["tput"] = Value(8 * each / statistics.fmean(times), "bit/s")
    found["transfer_loss"] = Value(max(0.0, 100 * (1 - packets / sent)) if sent else 0.0, "%")
    found["net"] = Value(100 * (each / size - 1), "%")
    return found


def _beside(cell: Cell, start: Counters | None, end: Counters | None) -> dict[str, Value]:
    """Return the metrics of competing traffic, by the counters of the second lane's NICs."""
    names = ("rival_rate", "rival_loss")
    if not any(cell.parameters.get(n) for n in ("background_flows", "rival_sessions")):
        return {n: _absent(n, "no long flow competes") for n in names}
    nics = {h: p[1] for h, p in cell.path_interfaces.items() if len(p) > 1}
    receivers = _interfaces([p for h, p in nics.items() if h != cell.publisher], start, end)
    sender = _interfaces([nics[cell.publisher]] if cell.publisher in nics else [], start, end)
    if receivers is None or sender is None or start is None or end is None:
        return {n: _absent(n, "no counters of the second lane") for n in names}
    got = sum(after.rx_bytes - before.rx_bytes for before, after in receivers)
    packets = sum(after.rx_packets - before.rx_packets for before, after in receivers)
    sent = sum(after.tx_packets - before.tx_packets for before, after in sender)
    found = {"rival_rate": Value(8 * got / (end.time - start.time), "bit/s")}
    if cell.parameters.get("rival_sessions"):
        found["rival_loss"] = absent("%", "the sender's packets are those of all layers")
    else:
        found["rival_loss"] = Value(max(0.0, 100 * (1 - packets / sent)) if sent else 0.0, "%")
    return found


def _rate(slots: Sequence[Slot]) -> float:
    return statistics.fmean(slot.packets_per_s for slot in slots)


def _jain(data: LayersData | None) -> Value:
    """Return Jain's index of a receiver and the competing session, from the tenth slot on."""
    if data is None or data.rival is None:
        return absent("", "no session competes")
    told = [r.by_slot[CONVERGED:] for r in data.receivers.values() if r is not None]
    own = next(iter(told), ())
    if not own:
        return absent("", f"the transfer took less than {CONVERGED} slots")
    rates = (_rate(own), _rate(data.rival.by_slot[-len(own) :]))
    return Value(sum(rates) ** 2 / (2 * sum(r * r for r in rates)), "")
