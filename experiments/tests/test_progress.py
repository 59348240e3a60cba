# SPDX-License-Identifier: Apache-2.0
"""Times shown while cells run."""

from __future__ import annotations

import pytest

from experiments.runs.progress import (
    CellTimes,
    PlainReporter,
    RunTimes,
    left_text,
    virtual_text,
)
from virtual.guest import Times


class Now:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    found = Now()
    monkeypatch.setattr("experiments.runs.progress.time.monotonic", found.monotonic)
    return found


def test_a_cells_own_pace_replaces_its_estimate() -> None:
    cell = CellTimes(1, estimate_s=100.0, begin=0.0)
    assert cell.remaining_s(30.0) == 70.0
    cell.replay_begin, cell.part = 20.0, 0.25  # a quarter of it in 10 s: 30 s more, and the end
    assert cell.remaining_s(30.0) == 35.0
    assert CellTimes(1, 10.0, 0.0).remaining_s(50.0) == 0.0


REST = {"links": 0.8, "replaying": 0.5, "comparing": 0.1}


def test_earlier_cells_tell_what_is_left_of_each_phase() -> None:
    """100 s: links from 20 s on, the replay from 50 s on, comparing from 90 s on."""
    cell = CellTimes(1, estimate_s=100.0, begin=0.0, rest=REST)
    cell.phase("links", 20.0)
    assert cell.remaining_s(20.0) == pytest.approx(80.0)
    assert cell.remaining_s(30.0) == pytest.approx(70.0)
    cell.phase("replaying", 100.0)  # twice as late as usual: the rest also takes twice as long
    assert cell.remaining_s(100.0) == pytest.approx(100.0)
    cell.replayed(0.5, 100.0)
    assert cell.remaining_s(140.0) == pytest.approx(40.0 + 10.0)  # its own pace, and comparing
    cell.replayed(1.2, 180.0)  # draining
    assert cell.remaining_s(184.0) == pytest.approx(6.0)
    assert cell.remaining_s(200.0) == 0.0
    cell.phase("comparing", 200.0)
    assert cell.remaining_s(205.0) == pytest.approx(
        10 * 200 / 90 - 5
    )  # begun at 200 s instead of 90 s


def test_without_earlier_cells_the_end_is_counted_down() -> None:
    cell = CellTimes(1, estimate_s=100.0, begin=0.0)
    cell.phase("replaying", 50.0)
    cell.replayed(0.5, 50.0)
    cell.phase("comparing", 90.0)
    assert cell.remaining_s(92.0) == 3.0
    assert cell.remaining_s(96.0) == 0.0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "longer than usual"), (14.2, "about 14 s left"), (125.0, "about 2:05 min left")],
)
def test_what_is_left_in_words(seconds: float, text: str) -> None:
    assert left_text(seconds) == text


def test_what_takes_longer_than_usual_is_told(now: Now, capsys: pytest.CaptureFixture[str]) -> None:
    reporter = PlainReporter()
    reporter.total(1, 30.0, 1)
    reporter.cell("a", 1, 30.0)
    now.now += 31
    reporter.event("a", {"event": "phase", "text": "links"}, None, None)
    assert "[0:31, longer than usual, 0 of 1 done]" in capsys.readouterr().out


def test_what_waits_is_shared_out_over_the_jobs(now: Now) -> None:
    times = RunTimes()
    times.start(4, 80.0, jobs=2)
    assert times.total_s == 40.0
    times.cell("a", 1, 20.0)
    times.cell("b", 2, 20.0)
    now.now += 10
    assert times.remaining_s() == (40 + 10 + 10) / 2
    times.done("a")
    times.cell("c", 3, 20.0)
    times.done("b")
    times.cell("d", 4, 20.0)
    now.now += 5
    assert times.remaining_s() == 15.0
    times.done("c")
    assert times.remaining_s() == 15.0  # the last one must still end


def test_a_cell_that_is_run_again_does_not_count_twice(now: Now) -> None:
    del now
    times = RunTimes()
    times.start(2, 40.0, jobs=1)
    times.cell("a", 1, 20.0)
    times.done("a")
    times.cell("a", 1, 20.0)
    assert times.remaining_s() == 40.0


def test_plain_lines_tell_virtual_and_real_time(
    now: Now, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = PlainReporter()
    reporter.total(2, 60.0, 2)
    reporter.cell("a", 1, 30.0)
    now.now += 12
    reporter.event("a", {"event": "phase", "text": "replaying"}, None, Times(30.0, 12.0))
    reporter.tick("a", Times(31.0, 13.0))  # too soon for another line
    assert capsys.readouterr().out.splitlines() == [
        "2 cells, 2 at once, about 30 s",
        "[0:12, about 24 s left, 0 of 2 done] a (1/2): replaying; virtual 0:30, 2.50 of real time",
    ]
    assert virtual_text(None) == ""
