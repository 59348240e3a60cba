# SPDX-License-Identifier: Apache-2.0
"""Measure fairness between receivers and flows: Jain's index, and how the others do beside a first
receiver with a handicap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from parsers.base.metric_units import Value, absent
from parsers.measure import metrics
from parsers.measure.deliveries import Receiver, Sent
from parsers.read.cell_files import Cell
from parsers.read.iperf3 import IperfReport

OTHERS: Final = ("latency_p50_others", "latency_p99_others", "missing_others")


def jain(rates: Sequence[float]) -> float:
    """Return Jain's index of some rates, one of them above 0: 1 if all are equal, 1/n if one has
    everything (Jain, Chiu and Hawe, DEC-TR-301)."""
    return sum(rates) ** 2 / (len(rates) * sum(rate * rate for rate in rates))


def jain_value(path: Value, reports: Mapping[str, IperfReport]) -> Value:
    """Return Jain's index of the path's rate and the goodput of each competing flow."""
    flows = [rate for report in reports.values() for rate in report.flow_bps]
    if not flows:
        return absent("", "no competing flows")
    if path.value is None:
        return absent("", path.reason)
    return Value(jain([path.value, *flows]), "", note=f"the path and {len(flows)} flows")


def others_values(cell: Cell, sent: Sent, receivers: Mapping[str, Receiver]) -> dict[str, Value]:
    """Return latency and missing products of all receivers except the first."""
    hosts = cell.subscribers[1:]
    if not hosts or not sent.order:
        reason = sent.reason or "there is one receiver"
        units = ("s", "s", "products")
        return {name: absent(unit, reason) for name, unit in zip(OTHERS, units, strict=True)}
    held = [receivers[host] for host in hosts if host in receivers]
    found = sorted(a.latency_s(p) for r in held for p, a in r.arrivals.items())
    return {
        "latency_p50_others": metrics.quantile(found, 0.5, "s"),
        "latency_p99_others": metrics.quantile(found, 0.99, "s"),
        "missing_others": Value(float(len(sent.order) * len(hosts) - len(found)), "products"),
    }
