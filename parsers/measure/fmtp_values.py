# SPDX-License-Identifier: Apache-2.0
"""Compute DRFSM21 3.2's metrics of a cell from its subscribers'."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter

from parsers.base.metric_units import Value, absent
from parsers.measure import metrics
from parsers.measure.deliveries import Receiver
from parsers.measure.metrics import FmtpMetrics
from parsers.measure.taus import fmtp_of
from parsers.read.cell_files import Cell

MEANS = {
    **dict.fromkeys(("throughput_fmtp", "throughput_mc", "throughput_retx"), "bit/s"),
    **dict.fromkeys(("ffdr_count", "ffdr_size", "mplr", "repaired_files"), "%"),
}
OF_SOME_FILES = ("throughput_mc", "throughput_retx")
DELAYS = ("fmtp_delay_p50", "fmtp_delay_p99", "fmtp_wait_max")


def fmtp_values(cell: Cell, receivers: Mapping[str, Receiver]) -> dict[str, Value]:
    """Return eq. 1 to 6 as means over the subscribers with multicast, as in Fig. 13; the blocks
    that all of them needed again; and the delays from the BOP, of all files together."""
    found = {h: r for h, r in receivers.items() if cell.protocol_of(h) == "ldm7"}
    without = [h for h in cell.subscribers if h not in receivers]
    reason = "" if found else "no receiver's log"
    if cell.protocol != "ldm7":
        reason = "defined for LDM7 only"
    if reason:
        units = {**MEANS, **dict.fromkeys(DELAYS, "s"), "retransmitted_blocks": "blocks"}
        return {name: absent(unit, reason) for name, unit in units.items()}
    of = {host: fmtp_of(receiver.arrivals.items()) for host, receiver in sorted(found.items())}
    values = {
        name: absent(unit, f"no log of {', '.join(without)}") if without else mean_of(of, name)
        for name, unit in MEANS.items()
    }
    blocks = sum(measured.retx_blocks for measured in of.values())
    values["retransmitted_blocks"] = Value(float(blocks), "blocks")
    return values | _delays(found)


def mean_of(of: Mapping[str, FmtpMetrics], name: str) -> Value:
    """Return the mean of a metric over the subscribers; undefined if one's is, as in MPUP16 eq. 3.
    Eq. 2 and 3 are about some of the files: their mean is over the subscribers that have such."""
    found: dict[str, Value] = {host: getattr(measured, name) for host, measured in of.items()}
    terms = [term.value for term in found.values() if term.value is not None]
    lacking = [f"{host}: {term.reason}" for host, term in found.items() if term.value is None]
    if lacking and not (terms and name in OF_SOME_FILES):
        return absent(MEANS[name], lacking[0])
    note = f"without {'; '.join(lacking)}" if lacking else ""
    return Value(sum(terms) / len(terms), MEANS[name], note=note)


def _delays(receivers: Mapping[str, Receiver]) -> dict[str, Value]:
    arrivals = [a for r in receivers.values() for a in r.arrivals.values() if a.delay_s is not None]
    delays = sorted(map(attrgetter("delay_s"), arrivals))
    # L_sending-buffer is the queueing delay of files that needed no repair (DRFSM21 eq. 7).
    whole = [a.delay_s for a in arrivals if a.how == "fmtp" and not a.retrans]
    return {
        "fmtp_delay_p50": metrics.quantile(delays, 0.5, "s"),
        "fmtp_delay_p99": metrics.quantile(delays, 0.99, "s"),
        "fmtp_wait_max": metrics.quantile([d for d in whole if d is not None], 1.0, "s"),
    }
