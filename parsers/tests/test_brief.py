# SPDX-License-Identifier: Apache-2.0
"""What is printed at a run's end, for SYNTHETIC runs (synthetic.py) with known figures."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.terminal import columns, is_ascii_only, never_fail, to_ascii
from parsers.measure.evaluate import evaluate
from parsers.report import publish, result
from parsers.report.brief import Brief, BriefTable, keep_units, render_brief
from parsers.report.document import brief_of, render_text
from parsers.report.figures import Drawn
from parsers.report.wording import in_words
from parsers.tests.synthetic import SWEEP_MANIFEST, SyntheticCell, sweep_cells, write_synthetic_run
from parsers.tests.test_join_leave import write_run as write_join_leave

PAGE = "runs/lossy/20261121T020000Z/report/index.html"


@dataclass(frozen=True)
class Run:
    """A run's cells and its manifest (None: the usual one)."""

    cells: tuple[SyntheticCell, ...]
    manifest: dict[str, object] | None = None


BOTH = (SyntheticCell("ldm7"), SyntheticCell("ldm6"))
RUNS = {
    "both": Run(BOTH),
    "virtual": Run((SyntheticCell("ldm7", clock="virtual", real_s=25.0),)),
    "two clocks": Run(
        (SyntheticCell("ldm7", clock="native"), SyntheticCell("ldm6", clock="virtual"))
    ),
    "degraded": Run((BOTH[0], SyntheticCell("ldm6", verdict="degraded", qdisc_drops=12))),
    "damaged": Run((BOTH[0], SyntheticCell("ldm6", damaged=True))),
    "no verdict": Run((SyntheticCell("ldm7", verdict=None),)),
    "repeats": Run(tuple(SyntheticCell(p, repeat=n) for p in ("ldm7", "ldm6") for n in (0, 1))),
    "64 receivers": Run((SyntheticCell("ldm7", m=64), SyntheticCell("ldm6", m=64))),
    "no manifest": Run(BOTH, {}),
    "sweep": Run(tuple(sweep_cells()), SWEEP_MANIFEST),
    "sweep without claims": Run(tuple(sweep_cells()), {"experiment": "x", "failed": {"y": "z"}}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "render_plots", lambda *_: ())
    monkeypatch.setattr(publish, "draw", lambda *_: Drawn((), ()))


def brief_of_run(directory: Path) -> Brief:
    return brief_of(publish.make_report(evaluate(directory), "synthetic/s1"))


def made(tmp_path: Path, name: str) -> Brief:
    run = RUNS[name]
    return brief_of_run(write_synthetic_run(tmp_path, *run.cells, manifest=run.manifest))


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_at_most_40_lines_of_80_columns(tmp_path: Path, name: str) -> None:
    brief = made(tmp_path, name)
    for width in (60, 80, 120):
        for ascii_only in (False, True):
            text = render_brief(brief, PAGE, width=width, ascii_only=ascii_only, hint="More: x")
            lines = text.splitlines()
            assert len(lines) <= 40
            assert max(map(len, lines)) <= width, text
            assert text.isascii() or not ascii_only
            assert lines[-1] == f"Report: {PAGE}"


def test_the_result_of_a_comparison_of_protocols(tmp_path: Path) -> None:
    """Figures by synthetic.py's rules: 40 products; 500 and 1000 kB/s of 1024 bytes are 4.096 and
    8.192 Mbit/s; the slower receiver takes 0.2 and 0.4 s."""
    brief = made(tmp_path, "both")
    assert brief.verdict == "faithful"
    assert brief.result == (
        "LDM7 and LDM6 delivered all 40 products to 2 of 2 receivers.",
        "LDM7's sender sent 4.1 Mbit/s, LDM6's 8.19 Mbit/s (2.0 times as much); p99 latency was"
        " 200 ms for LDM7 and 400 ms for LDM6.",
        "LDM7's FFDR is 100 %, the paper's 88.7 %; ours, 20 s, had an input rate of 4.10 Mbit/s.",
    )
    text = render_brief(brief, PAGE)
    rows = [line.split() for line in text.splitlines()]
    assert ["Metric", "LDM7", "paper", "diff.", "LDM6"] in rows
    assert ["FFDR,", "%", "100.00", "88.7", "+13", "%", "n/a"] in rows
    assert ["Run", "throughput,", "Mbit/s", "15.00", "7.50"] in rows
    assert "Fidelity" not in text and "fail" not in text  # nothing is in doubt


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ({"above": "files do not wait"}, "the paper's 88.7 %, because files do not wait."),
        ({"below": "files wait"}, "the paper's 88.7 %; ours, 20 s,"),
    ],
)
def test_a_reason_is_given_for_its_direction_only(
    tmp_path: Path, why: dict[str, str], said: str
) -> None:
    row = {
        "metric": "ffdr", "protocol": "ldm7", "value": 88.7, "unit": "%", "source": "s", "at": {},
        "published_s": 3600.0, "why": why,
    }  # fmt: skip
    run = write_synthetic_run(tmp_path, *BOTH, manifest={"experiment": "x", "paper": [row]})
    assert said in brief_of_run(run).result[-1]


def test_doubts_are_told_with_the_verdict_word(tmp_path: Path) -> None:
    text = render_brief(made(tmp_path, "degraded"), PAGE)
    assert "DEGRADED" in text.splitlines()[0]
    assert "- ldm6-m2-r20-p1: warn: host CPU: the host was saturated" in text
    assert "UNINJECTED LOSS: 12 packets" in text
    assert "link delay" not in text  # it passed


def test_damaged_products_are_no_delivery(tmp_path: Path) -> None:
    assert made(tmp_path, "damaged").result[:2] == (
        "LDM7 delivered all 40 products to 2 of 2 receivers.",
        "LDM6 delivered all 40 products to only 1 of 2 receivers.",
    )


def test_nobody_having_all_is_told_without_a_zero() -> None:
    def cell(identical: float) -> Any:
        receivers = SimpleNamespace(value=identical, reason="")
        return SimpleNamespace(sent=175, identical=receivers, cell=SimpleNamespace(m=2))

    assert result._outcome([cell(0)]) == "delivered all 175 products to no receiver"
    runs = result._outcome([cell(2), cell(0)])
    assert runs == "delivered all 175 products to no receiver in the worst of 2 runs"
    assert result._outcome([cell(2)]) == "delivered all 175 products to 2 of 2 receivers"


@pytest.mark.slow
def test_a_sweep_counts_claims_and_published_values(tmp_path: Path) -> None:
    """See test_sweep_report.py: LDM6's 16.38 beside 16 Mbit/s, LDM7's 4.1 beside 5 at three m."""
    brief = made(tmp_path, "sweep")
    assert brief.result == (
        "In all 18 cells every receiver has exactly the products that were sent.",
        "Claims: 1 held, 1 not held.",
        "Published values: 3 of 4 differ by more than their tolerance.",
    )
    assert brief.tables[0].rows == (
        ("LDM6 is faster than LDM7", "not held"),
        ("LDM6 bandwidth grows linearly in m", "held"),
    )
    assert brief.tables[1].rows[0] == (
        "LDM7 Sender NIC bandwidth, Mbit/s, m = 2", "4.10", "5", "-18 %"
    )  # fmt: skip
    text = render_brief(brief, PAGE)
    assert "19 cells: 17 faithful, 1 invalid and excluded, 1 failed." in text


def test_a_run_of_subscriptions_tells_what_was_lost(tmp_path: Path) -> None:
    brief = brief_of_run(write_join_leave(tmp_path / "run"))
    assert brief.result == (
        "2 subscribers had 3 sessions with 1 feed; 1 session ended by kill -9.",
        "No subscriber lost a product that was sent while it was subscribed.",
        "Every product of a subscriber's break arrived after it came back.",
    )
    assert ("Products lost", "0") in brief.tables[0].rows
    assert len(render_brief(brief, PAGE).splitlines()) <= 40


@pytest.mark.slow
def test_a_stored_brief_is_the_same(tmp_path: Path) -> None:
    brief = made(tmp_path, "sweep")
    assert Brief.model_validate_json(brief.model_dump_json()) == brief


@pytest.mark.slow
@pytest.mark.parametrize("name", ["both", "degraded", "sweep"])
def test_the_whole_text_fits_too(tmp_path: Path, name: str) -> None:
    run = RUNS[name]
    directory = write_synthetic_run(tmp_path, *run.cells, manifest=run.manifest)
    report = publish.make_report(evaluate(directory), "synthetic/s1")
    for width in (60, 80, 100):
        for ascii_only in (False, True):
            text = render_text(report, width, ascii_only=ascii_only)
            lines = [line for line in text.splitlines() if "python -m" not in line]
            assert max(map(len, lines)) <= width
            assert text.isascii() == ascii_only


def test_many_doubts_and_rows_give_way() -> None:
    table = BriefTable(header=("Metric", "value"), rows=tuple((f"m{n}", "1") for n in range(60)))
    doubts = tuple(f"cell {n}: fail: check: {'long evidence ' * 30}" for n in range(60))
    brief = Brief(
        title="Downpour", verdict="invalid", headline="INVALID: do not use these figures.",
        result=tuple(f"Sentence {n} {'word ' * 20}." for n in range(30)),
        tables=(table,), doubts=doubts,
    )  # fmt: skip
    lines = render_brief(brief, PAGE).splitlines()
    assert len(lines) == 40
    assert "The page says more." in lines
    assert "More warnings: see the page." in lines
    assert "INVALID: do not use these figures." in lines
    assert any(line.endswith("more in the page)") for line in lines)


@pytest.mark.parametrize(
    ("metric", "value", "words"),
    [
        ("nic_bandwidth", 14.1e6, "14.1 Mbit/s"),
        ("nic_bandwidth", 1234e6, "1234 Mbit/s"),
        ("latency_p99", 2.137, "2.14 s"),
        ("latency_p99", 0.0871, "87.1 ms"),
        ("ffdr", 100.0, "100 %"),
        ("ffdr", 99.996, "99.996 %"),  # not all: never rounded to 100
        ("ffdr", 88.7, "88.7 %"),
        ("retransmitted_blocks", 12.0, "12"),
    ],
)
def test_values_in_sentences(metric: str, value: float, words: str) -> None:
    assert in_words(metric, value) == words


def test_numbers_keep_their_units() -> None:
    brief = Brief(title="x", verdict="faithful", result=("It is 100 % of 600 MB in 3600 s.",))
    for width in range(40, 46):
        assert "in 3600 s." in render_brief(brief, PAGE, width=width).replace("\n", "|")
    narrow = render_brief(brief, PAGE, width=12).splitlines()
    assert {"It is 100 %", "of 600 MB in", "3600 s."} <= set(narrow)
    assert keep_units("12 bits, 5 Mbit/s") == "12 bits, 5\u00a0Mbit/s"


def test_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "72")
    assert columns() == 72
    monkeypatch.setenv("COLUMNS", "3")
    assert columns() == 40
    assert to_ascii("12.0 ± 0.1 × 2 ─ … ≤ µs é 漢") == "12.0 +/- 0.1 x 2 - ... <= us e ?"
    for encoding, ascii_only in (("utf-8", False), ("UTF8", False), ("latin-1", True)):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        assert is_ascii_only(stream) == ascii_only
        never_fail(stream)
        print("─", file=stream, flush=True)
