# SPDX-License-Identifier: Apache-2.0
"""The runner of `make test`: what it runs, skips and counts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import run
from tests.frameworks import RETRY
from tests.run import Step, run_steps, skip_reason, steps


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LOGS", tmp_path)
    monkeypatch.setattr(run, "ROOT", tmp_path)


def ends_with(code: int, text: str = "") -> tuple[tuple[str, ...], ...]:
    return ((sys.executable, "-c", f"print({text!r}); raise SystemExit({code})"),)


def chain(code: int) -> list[Step]:
    return [
        Step("first", "the first", ends_with(code, "no network"), 1, skip_code=3),
        Step("second", "the second", ends_with(0), 1, needs="first"),
        Step("other", "in place of the second", ends_with(0), 1, instead_of="second"),
    ]


@pytest.mark.parametrize(
    ("code", "passed", "failed", "skipped"),
    [
        (0, 2, 0, []),
        (3, 1, 0, ["first (the first): no network", "second (the second): first: no network"]),
        (1, 1, 1, ["second (the second): step 'first' failed"]),
    ],
)
def test_what_is_skipped_is_counted_and_replaced(
    code: int, passed: int, failed: int, skipped: list[str]
) -> None:
    total, took = run_steps(chain(code), {})
    assert (total.passed, total.failed, total.skipped) == (passed, failed, skipped)
    assert set(took) == ({"first", "second"} if code == 0 else {"first", "other"})


def test_every_condition_names_a_step_that_comes_before() -> None:
    known: set[str] = set()
    for step in steps("python", quick=False):
        assert step.needs is None or step.needs in known
        assert step.instead_of is None or step.instead_of in known
        known.add(step.name)


def test_every_room_is_tested_in_one_of_the_python_steps() -> None:
    commands = {s.name: s.commands[0] for s in steps("python", quick=True)}
    rooms = run.rooms_with_tests()
    assert commands["controller"][-1] == "controller"
    assert [*commands["python"][-len(rooms) + 1 :], "controller"] == sorted(
        rooms, key=lambda r: r == "controller"
    )


def test_a_replacement_runs_only_where_the_other_was_skipped() -> None:
    other = chain(0)[2]
    assert skip_reason(other, {}, set()) == ""
    assert skip_reason(other, {"second": "why"}, set()) is None


def test_busy_steps_run_beside_the_next_and_are_counted(tmp_path: Path) -> None:
    """The waiting step ends only if the first of the others has begun; the second one fails."""
    seen = tmp_path / "seen"
    todo = [
        Step("busy", "busy", (("sh", "-c", f"touch {seen}"),), 1, beside_next=True),
        Step("fails", "fails", (("false",),), 1, beside_next=True),
        Step("waits", "waits", (("sh", "-c", f"until [ -e {seen} ]; do sleep 0.1; done"),), 1),
        Step("last", "last", (("true",),), 1, beside_next=True),
    ]
    total, took = run_steps(todo, {})
    assert (total.passed, total.failed) == (3, 1)
    assert total.failures == ["fails: false: exit status 1"]
    assert set(took) == {"busy", "fails", "waits", "last"}


FLAKY = """
import pathlib
def test_first_fails():
    seen = pathlib.Path("seen")
    before = seen.exists()
    seen.touch()
    assert before
def test_always_fails():
    assert False
def test_passes():
    pass
"""


def test_a_test_that_passes_at_the_second_try_is_named_and_no_failure(tmp_path: Path) -> None:
    tests = tmp_path / "test_flaky.py"
    tests.write_text(FLAKY)
    junit = tmp_path / "junit.xml"
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *RETRY)
    command = (*pytest_, f"--rootdir={tmp_path}", f"--junitxml={junit}", str(tests))
    total, _ = run_steps([Step("python", "Python tests", (command,), 1, junit)], {})
    assert (total.passed, total.failed) == (2, 1)
    assert total.failures == ["test_flaky.test_always_fails"]
    assert total.second_tries == ["test_flaky.test_first_fails"]
