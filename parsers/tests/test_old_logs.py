# SPDX-License-Identifier: Apache-2.0
"""Logs of the original LDM6 and LDM7 from the papers' time, and of notifyme."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from parsers.base.jsonfiles import BadFile
from parsers.measure.file_sets import CSV_HEADER
from parsers.read.ldm_log import (
    Backlog,
    Duplicate,
    Inserted,
    Multicasted,
    Product,
    Received,
    Sending,
    parse_ldm_log,
)
from parsers.read.notifyme import parse_notifyme
from parsers.read.papers_log import parse_papers_log
from parsers.read.trace import TraceProduct, parse_any_trace
from parsers.reading import print_file_sets

GOLDEN = Path(__file__).parent / "golden"
T2356 = 1_795_218_960_000_000  # 2026-11-20T23:56:00Z in microseconds


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


def test_original_ldm7() -> None:
    """The original's processes are named after the host that they serve."""
    log = parse_ldm_log(golden("original_ldm7_receiver.log"), "r.log")
    first, second = log.of(Received)
    assert (first.index, first.retrans, first.delay_s) == (0, 6, 0.0017006)
    assert first.prog == "10.97.7.1(EXP)"
    assert second.delay_s == 0.25
    (inserted,) = log.of(Inserted)
    assert (inserted.via, inserted.product.size_bytes) == ("backstop", 240_000)
    assert len(log.of(Backlog)) == len(log.of(Duplicate)) == 1
    assert (log.problems, log.other_lines) == ((), 2)
    sender = parse_ldm_log(golden("original_ldm7_sender.log"), "s.log")
    assert [r.index for r in sender.of(Multicasted)] == [0, 1]
    assert sender.problems == ()


def test_original_ldm6() -> None:
    log = parse_ldm_log(golden("original_ldm6_receiver.log"), "r.log")
    assert [(i.via, i.product.ident) for i in log.of(Inserted)] == [
        ("ldm6", "t6.1"),
        ("ldm6", "t6.3"),
    ]
    sender = parse_ldm_log(golden("original_ldm6_sender.log"), "s.log")
    assert [s.product.ident for s in sender.of(Sending)] == ["t6.1", "t6.3"]
    assert log.problems == sender.problems == ()


def test_the_papers_columns() -> None:
    log = parse_papers_log(golden("papers_ldm7.log"), "p.log")
    assert [(d.how, d.index, d.size_bytes, d.latency_s) for d in log.deliveries] == [
        ("fmtp", 0, 1000, 0.5),
        ("fmtp", 1, 3000, 0.25),
        ("backstop", 2, 2000, 6.0),
        ("fmtp", 3, 4000, 0.5),
    ]
    assert (log.problems, log.other_lines) == ((), 1)
    ldm6 = parse_papers_log(golden("papers_ldm6.log"), "p.log")
    assert [(d.how, d.latency_s) for d in ldm6.deliveries] == [("ldm6", 0.5), ("ldm6", 0.25)]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("x mldm[1] I f Received p 10 20160115180001.000 N 0 0", "column 0"),
        ("20160115T180001.5Z mldm[1] I f Received p 1e3 20160115180001.000 N 0 0", "column 6"),
        ("20160115T180001.5Z mldm[1] I f Received p 10 2016 N 0 0", "column 7"),
        ("20160115T180001.5Z mldm[1] I f Received p 10 20160115180001.000 N 0 x", "last column"),
        ("20160115T180001.5Z mldm[1] I Received", "more than 8 columns"),
        ("20161315T180001.5Z mldm[1] I f Received p 10 20160115180001.000 N 0 0", "month"),
    ],
)
def test_a_wrong_column_is_named(wrong: str, said: str) -> None:
    (problem,) = parse_papers_log(wrong + "\n", "p.log").problems
    assert said in problem.reason
    assert problem.text == wrong


def csv(
    logs: list[Path], metadata: Path | None, group_bytes: int
) -> tuple[bool, list[str], list[str]]:
    out, errors = io.StringIO(), io.StringIO()
    sound = print_file_sets(logs, metadata, group_bytes, out, errors)
    return sound, out.getvalue().splitlines(), errors.getvalue().splitlines()


def test_the_papers_csv(tmp_path: Path) -> None:
    """File-sets of at least 3500 bytes: files 0 and 1 (4000 bytes in 0.75 s: 42,666.7 bit/s), and 2
    and 3 (only file 3 by FMTP: 4000 bytes in 0.5 s: 64,000 bit/s, one of two)."""
    metadata = tmp_path / "metadata.txt"
    sizes = (1000, 3000, 2000, 4000)
    metadata.write_text("".join(f"{s} 2015061500000{i}.000\n" for i, s in enumerate(sizes)))
    sound, out, errors = csv([GOLDEN / "papers_ldm7.log"], metadata, 3500)
    assert sound and not errors
    assert out == [CSV_HEADER, "0,1,4000,4000,42666.667,100.0", "2,3,6000,4000,64000.0,50.0"]


def test_ldm6_has_no_ffdr_and_a_small_run_is_one_file_set() -> None:
    sound, out, errors = csv([GOLDEN / "papers_ldm6.log"], None, 10**6)
    assert out == [CSV_HEADER, "0,1,4000,4000,42666.667,-1"]
    assert any("one file-set" in line for line in errors)


def test_the_mean_over_receivers_needs_all(tmp_path: Path) -> None:
    """The second receiver never got files 0 and 1, and got file 3 half as fast: 32,000 bit/s."""
    other = tmp_path / "other.log"
    lines = golden("papers_ldm7.log").splitlines(keepends=True)
    late = "".join([lines[0], *lines[3:]]).replace("T180004.500", "T180005.000")
    other.write_text(late)
    _, out, _ = csv([GOLDEN / "papers_ldm7.log", other], None, 3500)
    assert out[-4:] == [
        "# mean of 2 receivers",
        CSV_HEADER,
        "0,1,4000,2000,-1,-1",
        "2,3,6000,4000,48000.0,50.0",
    ]


def test_logs_of_now_give_the_same_table(tmp_path: Path) -> None:
    """Index 0: 120,000 bytes in 0.0017 s; index 1: 60,000 in 0.5 s; t7.4: 240,000 by the backstop;
    so 180,000 x 8 / 0.5017 s. The backlog is of an earlier session."""
    log = tmp_path / "r.log"
    log.write_text(golden("original_ldm7_receiver.log").replace("t7.", "t7-"))
    _, out, _ = csv([log], None, 10**9)
    assert out[1] == "0,4,420000,180000,2870241.18,66.6667"


def test_a_senders_log_is_refused() -> None:
    with pytest.raises(BadFile, match="no product was received"):
        csv([GOLDEN / "original_ldm7_sender.log"], None, 1000)
    with pytest.raises(BadFile, match="found the format 'ps'; valid: ldm-log, papers-log"):
        csv([GOLDEN / "ps.log"], None, 1000)


def test_notifyme() -> None:
    log = parse_notifyme(golden("notifyme.log"), "n.log")
    assert log.problems == ()
    assert log.other_lines == 1
    assert log.notifications[0].time_us == T2356 + 7_118_011
    assert log.notifications[0].product == Product(150_000, T2356 + 7_050_000, "NGRID", 0, "t6.1")
    assert [n.product.ident for n in log.notifications[1:]] == [
        "name with spaces",
        "t6.3 origin.host",
        "old",
    ]


def test_a_notifyme_log_is_a_trace_in_order_of_creation() -> None:
    trace = parse_any_trace("\n" + golden("notifyme.log"), "n.log")
    assert trace.problems == ()
    assert trace.products == (
        TraceProduct(90_654, T2356 + 7_041_000),
        TraceProduct(150_000, T2356 + 7_050_000),
        TraceProduct(40_000, T2356 + 7_900_000),
        TraceProduct(12_725, T2356 + 8_500_000),
    )


def test_what_no_trace_can_have_is_told() -> None:
    line = "20261120T235609.000000Z notifyme[749] INFO {} 20261120235608.500 NGRID 003  x\n"
    (problem,) = parse_any_trace(line.format(0), "n.log").problems
    assert "size must be 1 to 4294967295 bytes" in problem.reason
    assert parse_any_trace(line.format("12 x"), "n.log").products == ()
