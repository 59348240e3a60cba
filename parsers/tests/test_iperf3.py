# SPDX-License-Identifier: Apache-2.0
"""iperf3's reports: two captured ones, one of a failed test, cut-off and malformed ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsers.base.jsonfiles import BadFile
from parsers.read.iperf3 import parse_iperf3

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


def test_tcp() -> None:
    """Two flows of 20 Mbit/s each for 2 s over the loopback interface."""
    report = parse_iperf3(golden("iperf3_tcp.json"), "bg.json")
    assert (report.protocol, report.flows, report.retransmits) == ("TCP", 2, 0)
    assert report.received_bytes == 10_223_616
    assert report.seconds == 2.000621
    assert report.goodput_bps == pytest.approx(8 * 10_223_616 / 2.000621)
    assert [i.size_bytes for i in report.intervals] == [5_242_880, 4_980_736]
    assert [i.retransmits for i in report.intervals] == [0, 0]
    assert report.intervals[1].start_s == 1.000077
    assert report.congestion_control == "bbr"
    assert report.started_s == 1_795_307_955.0
    assert (report.error, report.problems) == ("", ())


def test_udp() -> None:
    report = parse_iperf3(golden("iperf3_udp.json"), "bg.json")
    assert (report.protocol, report.packets, report.lost_packets) == ("UDP", 8, 0)
    assert report.retransmits is None
    assert report.received_bytes == 262_144


def test_a_failed_test_says_why() -> None:
    report = parse_iperf3(golden("iperf3_refused.json"), "bg.json")
    assert report.error == "unable to connect to server: Connection refused"
    assert report.goodput_bps is None
    assert report.intervals == ()


def test_a_report_cut_off_keeps_its_complete_intervals() -> None:
    text = golden("iperf3_tcp.json")
    middle = text.index("4980736", text.index("intervals"))  # in the second interval
    report = parse_iperf3(text[:middle], "bg.json")
    assert [i.size_bytes for i in report.intervals] == [5_242_880]
    assert report.goodput_bps is None
    (problem,) = report.problems
    assert problem.is_cut_off
    assert problem.line == text[:middle].rstrip().count("\n") + 1


@pytest.mark.parametrize("share", [k / 40 for k in range(1, 40)])
def test_a_report_cut_off_anywhere_is_one_problem(share: float) -> None:
    text = golden("iperf3_tcp.json").rstrip()
    report = parse_iperf3(text[: int(len(text) * share)], "bg.json")
    assert [p.is_cut_off for p in report.problems] == [True]


def test_malformed_text_is_refused_with_its_place() -> None:
    text = golden("iperf3_tcp.json").replace('"intervals":', '"intervals" oops:')
    line = text[: text.index("oops")].count("\n") + 1
    with pytest.raises(BadFile, match=rf"bg\.json:{line}: .*iperf3 -J.*oops"):
        parse_iperf3(text, "bg.json")
    with pytest.raises(BadFile, match=r"bg\.json: expected the JSON of iperf3 -J"):
        parse_iperf3("[1, 2]", "bg.json")
    with pytest.raises(BadFile, match="bits_per_second"):
        parse_iperf3(golden("iperf3_tcp.json").replace("bits_per_second", "bps"), "bg.json")
