# SPDX-License-Identifier: Apache-2.0
"""Tables and targets from results; values read from tools and the kernel."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import cli
from bench.jobs import Job
from bench.markdown import markdown
from bench.network import parse_htb_bytes, parse_tx_bytes, receiver_ip, steering_mask
from bench.run import RunFailed, parse_bare, parse_iperf3, parse_rates
from bench.store import Result, ResultsError, Store, parse_results
from bench.table import absent_tools, cpu_per_gb, report, rows, targets
from bench.tools import BY_NAME, missing, setup_of
from protocols.files import same_bytes
from protocols.flute import parity as flute_parity
from protocols.program import parse_peak, parse_stat
from protocols.watch import parse_events

BLAST = Job("blast", "fmtp", "file", "native", 8, size_bytes=200_000_000)
SHAPED = Job("shaped", "fmtp", "file", "virtual", 8, rate_bps=20_000_000, size_bytes=20_000_000)


def blast(goodput_bps: float, cpu_s: float) -> dict[str, Any]:
    return {
        "status": "ok", "goodput_bps": goodput_bps, "cpu_sender_s": cpu_s, "cpu_receivers_s": 0.0,
        "wire_ratio": 1.05, "seconds": 1.0,
    }  # fmt: skip


def test_masks_of_processors_are_words_of_32_bits() -> None:
    """As in the kernel's documentation of bitmaps: comma-separated, the highest first."""
    assert [steering_mask(n) for n in (1, 2, 8)] == ["1", "3", "ff"]
    assert steering_mask(32) == "ffffffff"
    assert steering_mask(36) == "f,ffffffff"
    assert steering_mask(64) == "ffffffff,ffffffff"


def test_medians_of_the_runs_that_succeeded() -> None:
    results = [
        (replace(BLAST, repeat=i), blast(value, 1.0)) for i, value in enumerate((5e8, 1e8, 3e8))
    ]
    results.append((replace(BLAST, repeat=3), {"status": "failed", "reason": "no route"}))
    (row,) = rows(results)
    assert row.values["goodput_bps"] == 3e8
    assert (row.runs, row.failures, row.spread) == (3, ("no route",), (1e8, 5e8))
    text = report(results, {})
    assert "300.0" in text
    assert "3 of 4" in text
    assert "fmtp-send/recv failed: no route" in text


def test_cpu_is_per_delivered_gigabyte() -> None:
    """3.2 s for 8 receivers of 0.2 GB: 2 s per GB; twice that if half arrived."""
    values = {"cpu_sender_s": 1.2, "cpu_receivers_s": 2.0}
    assert cpu_per_gb(BLAST, values) == pytest.approx(2.0)
    assert cpu_per_gb(BLAST, {**values, "delivered_fraction": 0.5}) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("goodput_bps", "cpu_s", "shown", "met"),
    [
        (970e6, 1.04, "+4.0 % CPU, -3.0 % goodput", True),
        (970e6, 1.06, "+6.0 % CPU, -3.0 % goodput", False),
        (900e6, 1.00, "+0.0 % CPU, -10.0 % goodput", False),
    ],
)
def test_what_the_default_mac_costs(
    goodput_bps: float, cpu_s: float, shown: str, met: bool
) -> None:
    results = [
        (BLAST, blast(goodput_bps, cpu_s)),
        (replace(BLAST, tool="fmtp-mac0"), blast(1000e6, 1.0)),
    ]
    (target,) = targets(rows(results))
    assert (target.found, target.met) == (shown, met)


def test_ratio_and_blast_targets() -> None:
    results = [
        (BLAST, blast(600e6, 1.0)),
        (replace(BLAST, tool="uftp"), blast(200e6, 12.0)),
        (replace(BLAST, tool="tcp"), blast(700e6, 2.0)),
        (replace(BLAST, tool="bare-gso"), blast(1500e6, 0.5)),
        (replace(BLAST, tool="bare"), blast(250e6, 9.0)),
    ]
    line = next(x for x in report(results, {}).splitlines() if x.startswith("UFTP"))
    assert line.split()[-2] == "3.00"
    met = {t.text: t.met for t in targets(rows(results)) if t.text.startswith("blast")}
    cell = "blast, 200 MB, N=8, loss 0 %"
    assert met == {
        f"{cell}: ahead of UFTP at no more CPU": True,
        f"{cell}: ahead of TCP to each at no more CPU": False,
        f"{cell}: at least 60 % of ceiling: bare, GSO/GRO": False,
        f"{cell}: at least 60 % of ceiling: bare datagrams": True,
    }


def test_the_carousel_is_compared_with_fmtp_and_its_peers() -> None:
    results = [
        (replace(BLAST, tool="fcast"), blast(910e6, 1.0)),
        (replace(BLAST, tool="flute"), blast(200e6, 2.0)),
        (replace(BLAST, tool="uftp"), blast(950e6, 1.0)),
    ]
    cell = "blast, 200 MB, N=8, loss 0 %: fcast"
    met = {
        f"{cell} at least 90 % of fmtp-send/recv": True,
        f"{cell} ahead of FLUTE, no code": True,
        f"{cell} ahead of UFTP": False,
    }
    for goodput_bps, near in ((1000e6, True), (1020e6, False)):
        found = targets(rows([(BLAST, blast(goodput_bps, 1.0)), *results]))
        met[f"{cell} at least 90 % of fmtp-send/recv"] = near
        assert {t.text: t.met for t in found if ": fcast " in t.text} == met


def test_more_speed_for_more_cpu_misses() -> None:
    results = [(BLAST, blast(600e6, 3.0)), (replace(BLAST, tool="uftp"), blast(200e6, 2.0))]
    (target,) = [t for t in targets(rows(results)) if "UFTP" in t.text]
    assert target.met is False


@pytest.mark.parametrize(("goodput", "met"), [(19.3e6, True), (19.1e6, False)])
def test_shaped_target_is_the_worst_cell(goodput: float, met: bool) -> None:
    """96 % of 20 Mbit/s are 19.2; the other cell is at 19.4."""
    good = {"status": "ok", "wire_ratio": 1.04}
    results = [
        (SHAPED, {**good, "goodput_bps": 19.4e6}),
        (replace(SHAPED, delay_ms=25.0), {**good, "goodput_bps": goodput}),
    ]
    found = {t.text: t.met for t in targets(rows(results))}
    assert found["shaped, N=8, loss 0 %: at least 96 % of the rate"] is met
    assert found["shaped, N=8, loss 1 %: at least 93 % of the rate"] is None


def test_stream_targets() -> None:
    job = Job("stream", "fmtp", "stream", "virtual", 8, loss=0.01, delay_ms=25.0)
    values = {
        "status": "ok", "p50_s": 0.06, "p99_s": 0.95, "max_s": 1.0, "wire_ratio": 1.1, "missing": 0,
    }  # fmt: skip
    met = [t.met for t in targets(rows([(job, values)])) if t.text.startswith("stream")]
    assert met == [True, False, True, True]


def test_what_is_not_installed_is_told(tmp_path: Path) -> None:
    """By name, with what is missing and how to get it."""
    assert missing(BY_NAME["norm"], tmp_path) == ["bench/peers/bench-norm"]
    text = absent_tools("blast", {"norm": ["bench/peers/bench-norm"], "lmdb": ["x"]})
    assert text == [
        "NORM: bench/peers/bench-norm not found (make bench-setup installs libnorm-dev)"
    ]
    assert "NOT MEASURED: NORM" in report([(BLAST, blast(1e8, 1.0))], {"norm": ["x"]})


def test_markdown_has_medians_and_says_how_many_runs() -> None:
    """One run of NORM, five of fmtp-send (median 19.3 of 20 Mbit/s: 96.5 %), one that fails."""
    shaped = [
        (replace(SHAPED, repeat=i), {"status": "ok", "goodput_bps": g, "wire_ratio": 1.04})
        for i, g in enumerate((19.1e6, 19.2e6, 19.3e6, 19.4e6, 19.5e6))
    ]
    norm = replace(SHAPED, tool="norm", loss=0.05, delay_ms=25.0)
    failed = {"status": "failed", "reason": "x"}
    results: list[Result] = [*shaped, (norm, {**shaped[0][1], "goodput_bps": 10e6})]
    results += [(replace(SHAPED, tool="udpcast"), failed), (BLAST, blast(600e6, 3.2))]
    text = markdown(results)
    assert "| | no loss | 1 % | 5 % | 25 ms | 25 ms, 1 % | 25 ms, 5 % |\n|---|---" in text
    assert "| fmtp-send/recv | 96.5 (1.040) |  |  |  |  |  |" in text
    assert "| UDPcast | fails [0 of 1] |  |  |  |  |  |" in text
    assert "| NORM |  |  |  |  |  | 50.0 (1.040) [1] |" in text
    assert "| fmtp-send/recv | 600 |  | 2.00 |  | 1.05 |  | 1, 0 |" in text


def test_flute_is_told_when_it_could_not_be_built(tmp_path: Path) -> None:
    needs = missing(BY_NAME["flute-rq"], tmp_path)
    assert needs == ["bench/flute/bin/flute-sender", "bench/flute/bin/flute-receiver"]
    (text,) = absent_tools("shaped", {"flute-rq": needs})
    assert text.startswith("FLUTE, RaptorQ: bench/flute/bin/flute-sender, ")
    assert text.endswith("(make bench-setup installs flute 1.11.7 if it finds cargo 1.88 or later)")


@pytest.mark.parametrize(
    ("symbols", "loss", "parity"),
    # 0 + 2; 10 + 5 * 3.082 = 25.4, + 2; 20 + 5 * 4.450 = 42.2, + 2
    [(200, 0.0, 2), (200, 0.05, 28), (2000, 0.01, 45)],
)
def test_parity_of_flute(symbols: int, loss: float, parity: int) -> None:
    assert flute_parity(symbols, loss) == parity


def test_results_of_a_killed_run_and_of_a_repeated_job(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.add(BLAST, {"status": "failed", "reason": "x"})
    store.add(BLAST, blast(1e8, 1.0))
    text = (tmp_path / "results.jsonl").read_text() + '{"job": {"sec'
    assert parse_results(text, "r") == [(BLAST, blast(1e8, 1.0))]


def test_results_of_another_version_are_told() -> None:
    line = json.dumps({"job": BLAST.to_dict() | {"offload": True}, "result": {}})
    with pytest.raises(ResultsError, match=r"^r:1: found 'offload' in a job; valid: section, .*"):
        parse_results(f"{line}\n", "r")


def test_counters_of_kernel() -> None:
    text = '[{"kind":"bfifo","handle":"11:","bytes":7},{"kind":"htb","handle":"1:","bytes":1514}]'
    assert parse_htb_bytes(text) == 1514
    with pytest.raises(ValueError, match="no htb"):
        parse_htb_bytes("[]")
    dev = (
        "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed "
        "multicast|bytes packets\n  eth0: 1 2 3 4 5 6 7 8 4711 10 11 12 13 14 15 16\n"
    )
    assert parse_tx_bytes(dev, "eth0") == 4711
    stat = "17 (a (b) c) S 1 17 17 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 5 6 7"
    assert parse_stat(stat) == (2.5, 0.5)
    assert parse_peak("Name:\tx\nVmHWM:\t    2048 kB\n") == 2_097_152
    assert parse_peak("Name:\tx\nState:\tZ (zombie)\n") == 0


def test_inotify_records() -> None:
    record = struct.pack("iIII", 3, 0x80, 0, 16) + b"f00001".ljust(16, b"\0")
    assert list(parse_events(record + struct.pack("iIII", 4, 0x8, 0, 0))) == [
        (3, 0x80, "f00001"),
        (4, 0x8, ""),
    ]


def test_addresses_do_not_collide() -> None:
    assert receiver_ip(0) == "10.77.0.2"
    assert receiver_ip(254) == "10.77.1.0"
    assert len({receiver_ip(i) for i in range(1000)}) == 1000


def test_words_of_tools() -> None:
    assert parse_bare("seconds=2.500000 bytes=1000\n") == (2.5, 1000)
    with pytest.raises(RunFailed, match="'boo'"):
        parse_bare("boo")
    assert parse_rates("inserts_1000_per_s=12.5 reads_1000_per_s=3.0\n") == {
        "inserts_1000_per_s": 12.5,
        "reads_1000_per_s": 3.0,
    }


def test_report_of_an_iperf3_server() -> None:
    """Version 3.12 after 34,247 datagrams of 1460 bytes, of which 21,386 were lost: 12,861 came."""
    lost = {"lost_packets": 21386, "packets": 34247}
    end = {
        "sum": {"bytes": 0, "seconds": 1.192506, **lost},
        "sum_sent": {"bytes": 0, "seconds": 1.192506, "lost_packets": 0, "packets": 0},
        "sum_received": {"bytes": 18_777_060, "seconds": 1.192506, **lost},
    }
    assert parse_iperf3(json.dumps({"end": end})) == (1.192506, 12_861 * 1460)
    with pytest.raises(RunFailed, match="no report"):
        parse_iperf3("{}")


def test_bytes_are_compared(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"abc")
    assert not same_bytes(one, two)
    two.write_bytes(b"abd")
    assert not same_bytes(one, two)
    two.write_bytes(b"abc")
    assert same_bytes(one, two)


def test_command_lines_tell_the_rate(tmp_path: Path) -> None:
    shaped, free = (setup_of(job, tmp_path, tmp_path) for job in (SHAPED, BLAST))
    fmtp, uftp = BY_NAME["fmtp"].adapter, BY_NAME["uftp"].adapter
    assert "20000000" in fmtp.sender(shaped, [])
    assert "auto" in fmtp.sender(free, [])
    assert uftp.sender(shaped, [])[uftp.sender(shaped, []).index("-R") + 1] == "20000"
    assert uftp.sender(free, [])[uftp.sender(free, []).index("-R") + 1] == "-1"


def test_bad_usage_is_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--only", "blsat"]) == 2
    assert "found section 'blsat'; valid: blast, shaped" in capsys.readouterr().err
    assert cli.main(["run", "--only", "blast", "--tools", "ftp"]) == 2
    assert "found tool 'ftp'" in capsys.readouterr().err
    assert cli.main(["run", "--repeats", "0"]) == 2
    assert cli.main(["run", "--cells", "("]) == 2
    assert cli.main(["report", "/no/where"]) == 2
    assert "'/no/where'" in capsys.readouterr().err
