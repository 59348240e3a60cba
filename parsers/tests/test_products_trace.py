# SPDX-License-Identifier: Apache-2.0
"""Product lists and traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from parsers.read.products import ListedProduct, compare_products, parse_products
from parsers.read.trace import parse_trace, summarize

GOLDEN = Path(__file__).parent / "golden"
A = ListedProduct("a" * 32, 10, "NAME.000000")
B = ListedProduct("b" * 32, 20, "NAME.000001")
C = ListedProduct("c" * 32, 30, "name with spaces")


def test_list_is_parsed_and_bad_lines_told() -> None:
    text = "".join(f"{p.md5} {p.size_bytes} {p.ident}\n" for p in (A, B, C))
    listing = parse_products(text + "abc 1 short-digest\n" + "d" * 32 + " 5 cut", "r.txt")
    assert listing.products == (A, B, C)
    assert [p.line for p in listing.problems] == [4, 5]


def test_identical_in_any_order() -> None:
    assert compare_products("r", [A, B, C], [C, A, B]).identical


def test_missing_extra_different() -> None:
    changed = ListedProduct("0" * 32, 20, B.ident)
    other = ListedProduct("e" * 32, 1, "other")
    check = compare_products("r", [A, B, C], [changed, C, other])
    assert not check.identical
    assert (check.missing, check.extra, check.different) == ((A.ident,), ("other",), (B.ident,))
    assert (check.expected, check.found) == (3, 3)


@pytest.mark.parametrize(
    ("held", "kind"),
    [
        ([A, B], "missing"),
        ([A, B, C, C], "extra"),
        ([A, B, ListedProduct(C.md5, 31, C.ident)], "different"),
        ([], "missing"),
    ],
)
def test_every_single_difference_is_seen(held: list[ListedProduct], kind: str) -> None:
    check = compare_products("r", [A, B, C], held)
    assert not check.identical
    assert getattr(check, kind)


def test_trace() -> None:
    trace = parse_trace((GOLDEN / "trace.txt").read_text(encoding="utf-8"), "t")
    assert trace.problems == ()
    assert [p.size_bytes for p in trace.products] == [90654, 91495, 50421, 12725]
    # 0.009, 0.211, 0.225, 0.227 s after 2015-06-15T00:00:00Z = 1434326400
    start = 1_434_326_400_000_000
    offsets = [p.time_us - start for p in trace.products]
    assert offsets == [9_000, 211_000, 225_000, 227_000]
    summary = summarize(trace)
    assert (summary.count, summary.size_bytes) == (4, 245_295)
    assert summary.span_s == pytest.approx(0.218)
    assert summary.size_mean == 61323.75
    # gaps 0.202, 0.014, 0.002: median 0.014, mean 0.218/3; median size (50421 + 90654)/2
    assert dict(summary.gap_quantiles_s)[0.5] == pytest.approx(0.014)
    assert summary.gap_mean_s == pytest.approx(0.218 / 3)
    assert dict(summary.size_quantiles)[0.5] == pytest.approx(70537.5)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("90654", "expected 'SIZE"),
        ("0 20150615000000.009", "size must be"),
        ("4294967296 20150615000000.009", "size must be"),
        ("-5 20150615000000.009", "expected 'SIZE"),
        ("5 20150631000000.009", "day is out of range"),
        ("5 20150614000000.009", "must not go back"),
        ("5 2015-06-15 00:00:00", "expected 'SIZE"),
    ],
)
def test_trace_with_a_broken_line(line: str, reason: str) -> None:
    trace = parse_trace(f"7 20150615000000.000\n{line}\n8 20150615000001.000\n", "in.txt")
    assert [p.size_bytes for p in trace.products] == [7, 8]
    assert len(trace.problems) == 1
    assert str(trace.problems[0]).startswith("in.txt:2: ")
    assert reason in str(trace.problems[0])
    assert line in str(trace.problems[0])


def test_empty_trace_is_a_problem() -> None:
    assert parse_trace("\n\n", "in.txt").problems[0].reason == "no product in the trace"
    empty = summarize(parse_trace("", "in.txt"))
    assert (empty.count, empty.size_mean, empty.gap_quantiles_s) == (0, None, ())
