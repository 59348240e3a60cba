# SPDX-License-Identifier: Apache-2.0
"""Output of sar, ps, iptables and tc: captured and hand-written samples."""

from __future__ import annotations

import calendar
from pathlib import Path

import pytest

from parsers.base.jsonfiles import BadFile
from parsers.measure.metrics import cumulative_cpu
from parsers.read.cpu_log import RunTimeSample, parse_cpu_log
from parsers.read.iptables_log import Rule, parse_iptables
from parsers.read.ps_log import parse_ps_log
from parsers.read.sar_log import (
    CpuSample,
    InterfaceSample,
    parse_sar_log,
    shift_to,
)
from parsers.read.tc_qdisc import parse_qdiscs

GOLDEN = Path(__file__).parent / "golden"


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


def test_sar_iso_capture() -> None:
    log = parse_sar_log(golden("sar_iso.log"), "sar.log")
    assert log.problems == ()
    lo = [s for s in log.interfaces if s.interface == "lo"]
    first = float(calendar.timegm((2026, 11, 21, 1, 56, 53, 0, 0, 0)))
    assert [s.time_s for s in lo] == [first, first + 1, first + 2, first + 3]
    assert [s.interval_s for s in lo] == [1.0] * 4
    # txkB/s 1018.54, 3295.94, 3524.82, 1919.19; 1 kB = 1024 bytes
    assert lo[0].tx_bytes_per_s == pytest.approx(1018.54 * 1024)
    total = sum(s.tx_bytes_per_s * s.interval_s for s in lo)
    # The kernel counted 10 026 156 bytes. With kB = 1000 the sum would be 2.7 % low.
    assert total == pytest.approx(10_026_156, rel=0.005)
    assert {s.cpu for s in log.cpus} == {"all"}
    assert len(log.cpus) == 4
    for sample in log.cpus:
        parts = (sample.user, sample.nice, sample.system, sample.iowait, sample.steal, sample.idle)
        assert sum(parts) == pytest.approx(100, abs=0.05)


def test_sar_twelve_hour_clock_midnight_and_repeated_headers() -> None:
    log = parse_sar_log(golden("sar_ampm.log"), "sar.log")
    assert log.problems == ()
    midnight = float(calendar.timegm((2026, 11, 22, 0, 0, 0, 0, 0, 0)))
    # (end, interval, kB/s): 11:59:59 PM, then 12:00:00, 12:00:01 and 12:00:03 AM of the next day
    expected = [(-1, 1, 2500), (0, 1, 2600), (1, 1, 2700), (3, 2, 2800)]
    assert list(log.interfaces) == [
        InterfaceSample(midnight + t, float(d), "n1", (rx) * 1024.0, tx * 1024.0)
        for (t, d, tx), rx in zip(expected, (150, 160, 170, 180), strict=True)
    ]
    assert log.cpus[0] == CpuSample(midnight - 1, 1.0, "all", 10.0, 0.5, 5.0, 1.0, 2.0, 81.5)
    assert [c.time_s for c in log.cpus] == [midnight - 1, midnight]


def test_sar_local_time_is_moved_to_the_runs_clock() -> None:
    log = parse_sar_log(golden("sar_ampm.log"), "sar.log")
    first = log.interfaces[0].time_s
    # Local clock 5 h 45 min ahead of UTC (Nepal), the run began 7 s before the first sample.
    shifted = shift_to(log, first - 5.75 * 3600 - 7)
    assert shifted.interfaces[0].time_s == first - 5.75 * 3600
    assert shifted.cpus[0].time_s == log.cpus[0].time_s - 5.75 * 3600
    assert shift_to(log, first + 12) == log


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("lo     57.00", "lo     57.00   oops", "expected 9 columns, found 10"),
        ("lo     57.00", "lo     fast", "could not convert"),
        ("01:56:53           lo", "25:56:53           lo", "not a time of day"),
        ("txkB/s", "txkb/s", "no column 'txkB/s'"),
    ],
)
def test_sar_malformed(old: str, new: str, reason: str) -> None:
    text = golden("sar_iso.log")
    assert old in text
    log = parse_sar_log(text.replace(old, new, 1), "sar.log")
    assert log.problems
    assert all(reason in str(p) for p in log.problems)
    assert str(log.problems[0]).startswith("sar.log:")


def test_sar_cut_off() -> None:
    text = golden("sar_iso.log")
    log = parse_sar_log(text[: text.index("Average") - 30], "sar.log")
    assert [p.reason for p in log.problems] == ["the last line is cut off (no newline)"]


def test_ps_capture() -> None:
    log = parse_ps_log(golden("ps.log"), "ps.log")
    assert log.problems == ()
    assert len(log.times_s) == 4
    assert log.times_s[0] == pytest.approx(1795227385.614819, abs=1e-6)
    assert len(log.samples) == 12
    last = [s for s in log.samples if s.pid == 26508][-1]
    # "26508 26506 59.0 2 4 1752 sleep 2" (the shell replaced itself by sleep)
    assert (last.ppid, last.pcpu, last.cputimes_s, last.etimes_s, last.rss_kib) == (
        26506,
        59.0,
        2,
        4,
        1752,
    )
    assert last.args == "sleep 2"
    # 59.0 % of 4 s: 2.36 s; the process computed for about 2.3 s. By cputimes alone it would be 2.
    assert last.cpu_s == pytest.approx(2.36)


def test_ps_estimate_stays_within_the_whole_seconds() -> None:
    log = parse_ps_log(
        "@ 10.5\n  PID  PPID %CPU     TIME ELAPSED   RSS COMMAND\n"
        "1 0 95.1 2 2 10 low\n"  # 1.902 s, but cputimes says at least 2
        "2 0 99.9 1 3 10 high\n",  # 2.997 s, but cputimes says less than 2
        "ps.log",
    )
    assert log.samples[0].cpu_s == 2.0
    assert log.samples[1].cpu_s == pytest.approx(2.0, abs=1e-9)
    assert log.samples[1].cpu_s < 2.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 0 1.0 0 1 10 x\n", "before the first"),
        ("@ soon\n", "could not convert"),
        ("@ nan\n", "SECONDS-SINCE-1970"),
        ("@\n", "SECONDS-SINCE-1970"),
        ("@ 1\n1 0 1.0 0 1 10\n", "expected PID"),
        ("@ 1\n1 0 -1.0 0 1 10 x\n", "negative"),
        ("@ 1\n1 0 1.0 0 1 10 x", "cut off"),
    ],
)
def test_ps_malformed(text: str, reason: str) -> None:
    log = parse_ps_log(text, "ps.log")
    assert log.samples == ()
    assert len(log.problems) == 1
    assert reason in str(log.problems[0])


def test_cpu_log_capture() -> None:
    log = parse_cpu_log(golden("cpu.log"), "cpu.log")
    assert log.problems == ()
    assert log.times_s == (1795230773.418, 1795230774.328, 1795230775.240, 1795230776.152)
    assert log.samples[:2] == (
        RunTimeSample(1795230773.418, 11343, "ldmd", 2_763_670),
        RunTimeSample(1795230773.418, 11344, "python3", 428_275_238),
    )
    assert len(log.samples) == 6
    # 2 763 670 + 428 275 238 ns; then + 1 200 029 006, which the ended process keeps. It was to
    # compute for 1.2 s.
    assert [cpu_s for _, cpu_s in cumulative_cpu(log.samples)] == pytest.approx(
        [0.431038908, 1.202792676, 1.202792676, 1.202792676], abs=1e-12
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("7 up6 100\n", "cpu.log:1: a process before the first"),
        ("@ soon\n", "could not convert"),
        ("@ inf\n", "SECONDS-SINCE-1970"),
        ("@ 1 2\n", "SECONDS-SINCE-1970"),
        ("@ 1\n7 100\n", "cpu.log:2: expected PID NAME NANOSECONDS"),
        ("@ 1\n7 up6 100 x\n", "expected PID NAME NANOSECONDS"),
        ("@ 1\n7 up6 -100\n", "expected PID NAME NANOSECONDS"),
        ("@ 1\n7 up6 1.5\n", "expected PID NAME NANOSECONDS"),
        ("@ 1\n\n7 up6 100", "cpu.log:3: the last line is cut off"),
    ],
)
def test_cpu_log_malformed(text: str, reason: str) -> None:
    log = parse_cpu_log(text, "cpu.log")
    assert log.samples == ()
    assert len(log.problems) == 1
    assert reason in str(log.problems[0])


def test_iptables_captures() -> None:
    listed = parse_iptables(golden("iptables_list.log"), "i")
    saved = parse_iptables(golden("iptables_save.log"), "i")
    assert listed.problems == saved.problems == ()
    for rules in (listed.rules, saved.rules):
        assert [(r.chain, r.packets, r.bytes) for r in rules] == [
            ("INPUT", 2, 2856),
            ("INPUT", 558, 796824),
        ]
        assert [r.discards for r in rules] == [True, False]
        assert rules[0].probability == pytest.approx(0.01, rel=1e-6)
        assert rules[1].probability is None
        assert rules[0].interface == "lo"
        assert rules[1].interface is None


@pytest.mark.parametrize(
    ("end", "p"),
    [
        ("53 1 0 214748365,6 0 0 65535,6 0 0 0", 0.05),  # 0.05 x 2^32 = 214748364.8
        ("21 1 0 214748365,6 0 0 65535,6 0 0 0", None),  # compares for equality
    ],
)
def test_probability_of_a_hash_rule(end: str, p: float | None) -> None:
    """A bpf match whose program drops what hashes below p x 2^32."""
    program = f"5,32 0 0 4,36 0 0 2654435761,{end}"
    text = f'[9:900] -A INPUT -i e0 -p udp -m bpf --bytecode "{program}" -j DROP\n'
    (rule,) = parse_iptables(text, "i").rules
    assert rule.probability == (None if p is None else pytest.approx(p, abs=2**-32))
    assert rule.discards
    assert rule.interface == "e0"


def test_iptables_malformed() -> None:
    listing = parse_iptables("Chain INPUT (policy ACCEPT)\nmany 3 DROP\n 1 2 DROP all", "i")
    assert listing.rules == ()
    assert [p.line for p in listing.problems] == [2, 3]
    assert Rule("INPUT", 1, 2, "DROP 17").interface is None


def test_tc_capture() -> None:
    qdiscs = parse_qdiscs(golden("tc_qdisc.json"), "tc.json")
    by_handle = {(q.device, q.handle): q for q in qdiscs}
    root = by_handle[("n1", "1:")]
    assert (root.kind, root.root, root.sent_bytes, root.sent_packets) == ("htb", True, 86610, 61)
    assert root.overlimits == 57
    fifo = by_handle[("n1", "12:")]
    assert (fifo.kind, fifo.parent, fifo.options) == ("bfifo", "1:2", {"limit": 600_000_000})
    assert fifo.drops == 0


def test_tc_malformed() -> None:
    with pytest.raises(BadFile, match=r"tc.json: 0.handle: .*"):
        parse_qdiscs('[{"kind": "htb"}]', "tc.json")
    with pytest.raises(BadFile, match="tc.json"):
        parse_qdiscs("not JSON", "tc.json")
