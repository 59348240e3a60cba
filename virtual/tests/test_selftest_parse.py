# SPDX-License-Identifier: Apache-2.0
"""Output of the measured programs. The samples are what they really printed."""

from __future__ import annotations

import pytest

from common.shell import NetworkError
from virtual.selftest import parse, shapers
from virtual.selftest.parse import Arrival, Ping, Probe

PING = """PING 127.0.0.1 (127.0.0.1) 56(84) bytes of data.

--- 127.0.0.1 ping statistics ---
20 packets transmitted, 20 received, 0% packet loss, time 19799ms
rtt min/avg/max/mdev = 0.000/0.000/0.000/0.000 ms
"""
PING_LOST = "3 packets transmitted, 2 received, +1 errors, 33.3333% packet loss, time 2080ms\n"
SAR = """Linux 7.2.11 (guest) \t2026-01-01 \t_x86_64_\t(1 CPU)

00:01:35        CPU     %user     %nice   %system   %iowait    %steal     %idle
00:01:36        all      0.00      0.00      0.00      0.00      0.00    100.00
00:01:37        all      0.00      0.00      0.00      0.00      0.00    100.00
00:01:38        all      0.00      0.00      0.00      0.00      0.00    100.00
Average:        all      0.00      0.00      0.00      0.00      0.00    100.00
"""
TCP = """\
1767225701.000000100 IP 10.9.0.1.40000 > 10.9.0.2.5002: Flags [S], seq 100, win 64240, length 0
1767225701.000000200 IP 10.9.0.2.5002 > 10.9.0.1.40000: Flags [S.], seq 900, ack 101, length 0
1767225701.000000300 IP 10.9.0.1.40000 > 10.9.0.2.5002: Flags [.], ack 901, win 502, length 0
1767225701.500000000 IP 10.9.0.1.40000 > 10.9.0.2.5002: Flags [P.], seq 101:201, ack 901, length 100
1767225701.540000000 IP 10.9.0.2.5002 > 10.9.0.1.40000: Flags [.], ack 201, win 509, length 0
1767225702.000000000 IP 10.9.0.1.40000 > 10.9.0.2.5002: Flags [P.], seq 201:301, ack 901, length 100
1767225702.210000000 IP 10.9.0.1.40000 > 10.9.0.2.5002: Flags [P.], seq 201:301, ack 901, length 100
1767225702.630000000 IP 10.9.0.1.40000 > 10.9.0.2.5002: Flags [P.], seq 201:301, ack 901, length 100
3 packets captured
"""


def test_probes() -> None:
    assert parse.probes("poll 250000000 250250496\ntick 0 10000000\n") == [
        Probe("poll", 250_000_000, 250_250_496),
        Probe("tick", 0, 10_000_000),
    ]


@pytest.mark.parametrize("line", ["poll 250", "poll 250 -1", "poll 250 2 3", "tick 0 1.5"])
def test_a_line_that_is_no_probe_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=f"found '{line}'"):
        parse.probes(line)


def test_arrivals() -> None:
    assert parse.arrivals("0 100 20000100\n") == [Arrival(0, 100, 20_000_100)]
    with pytest.raises(ValueError, match="found '0 100 -1'"):
        parse.arrivals("0 100 -1\n")


def test_delays_and_spans_want_all_datagrams() -> None:
    found = [Arrival(n, n * 1000, n * 1000 + 20_000_000 + n) for n in range(shapers.DELAYED)]
    shortest_s, longest_s = shapers.one_way_s(found)
    assert shortest_s == 0.020
    assert longest_s == pytest.approx(0.020000049)
    assert shapers.span_s(found, len(found)) == pytest.approx(49 * 1.001e-6)
    with pytest.raises(NetworkError, match="49 of 50"):
        shapers.one_way_s(found[1:])
    with pytest.raises(NetworkError, match="49 of 50"):
        shapers.span_s(found[1:], 50)


def test_ping() -> None:
    assert parse.ping(PING) == Ping(20, 20, 19799)
    assert parse.ping(PING_LOST) == Ping(3, 2, 2080)
    with pytest.raises(ValueError, match="connect: Network is unreachable"):
        parse.ping("ping: connect: Network is unreachable\n")


def test_sar_lines_have_times() -> None:
    assert parse.sar_times_s(SAR) == [96, 97, 98]


def test_transmissions_of_the_segment_nobody_acknowledges() -> None:
    found = parse.segments(TCP)
    assert len(found) == 8
    again = parse.transmissions(found, "10.9.0.1.40000")
    assert [(b.ns - a.ns) / 1e6 for a, b in zip(again, again[1:], strict=False)] == [210, 420]
    assert parse.transmissions(found[:3], "10.9.0.1.40000")[0].flags == "S"
    assert parse.transmissions([], "10.9.0.1.40000") == []


def test_acknowledgements_cover_the_data() -> None:
    # The second segment is never acknowledged: "ack 201" covers only the first.
    assert parse.ack_delays_s(parse.segments(TCP), "10.9.0.2.5002") == [0.040]
