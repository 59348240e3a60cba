# SPDX-License-Identifier: Apache-2.0
"""Parse `iperf3 -J`, the report of one client or server, into goodput, retransmissions and
intervals.

With several parallel flows, the figures are iperf3's sums. A truncated report keeps its complete
intervals and has a `Problem`; the report of a failed test has iperf3's own `error`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parsers.base.jsonfiles import (
    BadFile,
    complete_elements,
    describe,
    is_cut_off,
    malformed,
)
from parsers.base.problems import Problem, cut_off_document

EXPECTED = "the JSON of iperf3 -J"


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)


class Interval(_Report):
    """All flows together, from `start_s` to `end_s` after the test's start. Receivers, and UDP,
    have no number of retransmissions."""

    start_s: float = Field(alias="start")
    end_s: float = Field(alias="end")
    size_bytes: int = Field(alias="bytes", ge=0)
    rate_bps: float = Field(alias="bits_per_second")
    retransmits: int | None = None
    omitted: bool = False  # in the warm-up that the option -O excludes


class _Total(_Report):
    seconds: float
    size_bytes: int = Field(alias="bytes", ge=0)
    rate_bps: float = Field(alias="bits_per_second")
    retransmits: int | None = None
    jitter_ms: float | None = None
    packets: int | None = None
    lost_packets: int | None = None


@dataclass(frozen=True, slots=True)
class IperfReport:
    """`goodput_bps`: what arrived; None if the other end did not report it. Rates are means over
    the test, without what -O excludes."""

    file: str
    protocol: str  # TCP or UDP; "" if it did not begin
    flows: int
    congestion_control: str  # of the sender; "": unknown
    started_s: float | None  # seconds since 1970
    seconds: float | None
    sent_bytes: int | None
    sent_bps: float | None
    received_bytes: int | None
    goodput_bps: float | None
    flow_bps: tuple[float, ...]  # goodput of each flow
    retransmits: int | None
    lost_packets: int | None  # UDP
    packets: int | None  # UDP
    intervals: tuple[Interval, ...]
    error: str  # iperf3's own words
    problems: tuple[Problem, ...]


def parse_iperf3(text: str, file: str) -> IperfReport:
    """Parse a report. Raises `BadFile` (file:line) if the text is not a report. A truncated report
    gives its complete intervals, and a problem."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        if not is_cut_off(text, error) or not text.lstrip().startswith("{"):
            raise BadFile(malformed(text, file, error, EXPECTED)) from None
        elements, _ = complete_elements(text, "intervals")
        return _report({"intervals": elements}, file, (cut_off_document(text, file),))
    if not isinstance(found, dict) or not {"start", "intervals", "end", "error"} & set(found):
        raise BadFile(f"{file}: expected {EXPECTED}: an object with start, intervals and end")
    return _report(found, file, ())


def _report(found: dict[str, Any], file: str, problems: tuple[Problem, ...]) -> IperfReport:
    start, end = found.get("start") or {}, found.get("end") or {}
    try:
        intervals = tuple(
            Interval.model_validate(entry["sum"])
            for entry in found.get("intervals") or ()
            if "sum" in entry
        )
        # UDP reports of old versions have the receiver's figures in one `sum`.
        sent = _total(end.get("sum_sent") or end.get("sum"))
        received = _total(end.get("sum_received"))
    except ValidationError as error:
        raise BadFile(describe(error, file)) from None
    except (TypeError, KeyError, AttributeError) as error:
        raise BadFile(f"{file}: expected {EXPECTED}: {error}") from None
    test = start.get("test_start") or {}
    seconds = received.seconds if received is not None else sent.seconds if sent else None
    udp = received if received is not None and received.packets is not None else sent
    return IperfReport(
        file=file,
        protocol=str(test.get("protocol", "")),
        flows=int(test.get("num_streams", 0)),
        congestion_control=str(end.get("sender_tcp_congestion", "")),
        started_s=_started(start),
        seconds=seconds,
        sent_bytes=sent.size_bytes if sent else None,
        sent_bps=sent.rate_bps if sent else None,
        received_bytes=received.size_bytes if received else None,
        goodput_bps=received.rate_bps if received else None,
        flow_bps=_flows(end.get("streams") or ()),
        retransmits=sent.retransmits if sent else None,
        lost_packets=udp.lost_packets if udp else None,
        packets=udp.packets if udp else None,
        intervals=intervals,
        error=str(found.get("error", "")),
        problems=problems,
    )


def _flows(streams: Any) -> tuple[float, ...]:
    """Return the goodput of each TCP flow; empty if an end did not report it."""
    try:
        return tuple(float(stream["receiver"]["bits_per_second"]) for stream in streams)
    except (KeyError, TypeError, ValueError):
        return ()


def _total(found: Any) -> _Total | None:
    return None if not found else _Total.model_validate(found)


def _started(start: dict[str, Any]) -> float | None:
    stamp = start.get("timestamp") or {}
    seconds = stamp.get("timemillisecs", stamp.get("timesecs"))
    if seconds is None:
        return None
    return seconds / 1000.0 if "timemillisecs" in stamp else float(seconds)
