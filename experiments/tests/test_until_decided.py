# SPDX-License-Identifier: Apache-2.0
"""Which repeats are added, and when a run ends; the claims' verdicts are given, not measured."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from common.quantities import parse_time_s
from experiments import cli
from experiments.design.spec import ExperimentSpec, find, load_as
from experiments.design.spec_options import override
from experiments.runs import runner
from experiments.runs.sweep import CellResult, Outcome
from experiments.runs.until_decided import Until, UntilDecided, first_of, is_about
from parsers.base.intervals import at_confidence, over_repeats
from parsers.measure.claims import ClaimResult, Part
from parsers.measure.undecided import Decider
from parsers.read.published import Claim

CLAIM = Claim.model_validate(
    {
        **{"kind": "above", "metric": "throughput", "text": "so", "source": "x"},
        **{"where": {"protocol": "ldm7"}, "against": {"protocol": "ldm6"}},
    }
)


def planned(tmp_path: Path, repeats: int) -> tuple[runner.Planned, ...]:
    trace = tmp_path / "trace.txt"
    trace.write_text("100 20150615000000.009\n200 20150615000001.008\n")
    spec = load_as(ExperimentSpec, find("lossy"))
    return runner.plan(override(spec, {"trace": str(trace), "repeats": repeats}))


def found(protocol: str | None, *, by_repeats: bool = True, needed: int = 0) -> ClaimResult:
    """Return a claim that is open at a protocol's cells; None: a claim that is decided. `needed`:
    estimate of the repeats that decide it."""
    if protocol is None:
        return ClaimResult(CLAIM, "held", "")
    decider = Decider("repeats would", by_repeats, needed=needed)
    part = Part("x", "not decidable", "", "", "", decider, ({"protocol": protocol},))
    return ClaimResult(CLAIM, "not decidable", "", parts=(part,))


class Case:
    """A supply of cells whose claims are open until a number of cells have ended."""

    def __init__(self, tmp_path: Path, claim: ClaimResult, until_cells: int, most: int = 32):
        self.cells = planned(tmp_path, most)
        self.until = Until(100.0, 2)
        self.now_s = 0.0
        self.notes: list[str] = []
        self.outcome = Outcome()

        def judge(names: Collection[str]) -> Sequence[ClaimResult]:
            return [claim if len(names) < until_cells else found(None)]

        self.supply = UntilDecided(
            self.cells, self.until, judge,
            order=("file", 1), note=self.notes.append, now=lambda: self.now_s,
        )  # fmt: skip
        self.end(first_of(self.cells, self.until))

    def end(self, items: Sequence[runner.Planned]) -> None:
        for item in items:
            name = item.cell.cell
            self.outcome.results[name] = CellResult(name, "faithful", identical=True)

    def more(self) -> list[str]:
        items = self.supply.more(self.outcome)
        self.end(items)
        return [item.cell.cell for item in items]


def test_only_the_cells_of_open_claims_are_repeated_half_as_often_again(tmp_path: Path) -> None:
    """2 repeats of both protocols, then of LDM6 up to 3, 5, 8; at 10 cells the claim is decided."""
    case = Case(tmp_path, found("ldm6"), 10)
    assert len(case.outcome.results) == 4
    assert case.more() == ["ldm6-m8-r20-p1-n3"]
    assert case.more() == ["ldm6-m8-r20-p1-n4", "ldm6-m8-r20-p1-n5"]
    assert case.more() == [f"ldm6-m8-r20-p1-n{n}" for n in (6, 7, 8)]
    assert case.more() == []
    assert case.supply.stopped == "1 of 1 claims are decided"
    assert case.notes[0] == "0 of 1 claims are decided; 1 more cell, up to repeat 3"


def test_no_cell_begins_after_the_budget(tmp_path: Path) -> None:
    case = Case(tmp_path, found("ldm7"), 99)
    case.now_s = 99.0
    assert case.more()
    case.now_s = 100.0
    assert case.more() == []
    assert case.supply.is_over
    assert case.supply.stopped == "its budget of 1:40 min ended"


def test_there_are_no_more_repeats_than_were_asked_for(tmp_path: Path) -> None:
    case = Case(tmp_path, found("ldm7"), 99, most=3)
    assert case.more() == ["ldm7-m8-r20-p1-n3"]
    assert case.more() == []
    assert case.supply.stopped == "it has all 3 repeats allowed"


def test_what_repeats_do_not_decide_is_not_repeated(tmp_path: Path) -> None:
    case = Case(tmp_path, found("ldm7", by_repeats=False), 99)
    assert case.more() == []
    assert case.supply.stopped == "more repeats would not decide the rest"


def test_what_needs_far_more_repeats_than_allowed_is_not_repeated(tmp_path: Path) -> None:
    case = Case(tmp_path, found("ldm7", needed=17), 99, most=8)
    assert case.more() == []
    assert case.supply.stopped == "the rest needs over 2 times the 8 repeats allowed"
    assert Case(tmp_path, found("ldm7", needed=16), 99, most=8).more()


def test_levels_that_no_cell_has_do_not_count(tmp_path: Path) -> None:
    item = planned(tmp_path, 1)[0]
    assert is_about({"protocol": "ldm7", "receivers": 8, "duration_s": 3600.0}, item)
    assert not is_about({"protocol": "ldm7", "receivers": 16}, item)


def test_looks_use_wider_intervals() -> None:
    """t(2) is 4.303 at 95 % and 9.925 at 99 % (Student's table); s / sqrt(3) = 0.5774."""
    with at_confidence(0.99):
        wide = over_repeats([1.0, 2.0, 3.0])
    narrow = over_repeats([1.0, 2.0, 3.0])
    assert wide.high - 2 == pytest.approx(9.925 * 0.57735, abs=1e-3)
    assert narrow.high - 2 == pytest.approx(4.303 * 0.57735, abs=1e-3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["regression"], "--until-decided: found regression, which has no claims"),
        (["throughput", "--repeats", "1"], "--repeats: found '1'; valid: 2 or more with --until"),
        (["throughput", "--budget", "2"], "a number with s, min or h, e.g. 2h"),
    ],
)
def test_mistakes(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", *arguments, "--until-decided", "--dry-run"]) == 2
    assert said in capsys.readouterr().err


def test_a_budget_is_of_runs_that_add_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "throughput", "--budget", "2h", "--dry-run"]) == 2
    assert "--budget: found a time without --until-decided; valid: both" in capsys.readouterr().err


def test_times() -> None:
    assert [parse_time_s(text) for text in ("90s", "30 min", "2h")] == [90.0, 1800.0, 7200.0]
    for text in ("2", "0s", "-1h", "2 days", ""):
        with pytest.raises(ValueError, match="a time above 0"):
            parse_time_s(text)
