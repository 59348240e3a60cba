# SPDX-License-Identifier: Apache-2.0
"""The runner of the test tiers runs, skips and counts the right steps."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from tests import run
from tests.run import count_junit, main, run_steps, stages, why_not
from tests.tiers import TIERS, Step, files_with, steps

JUNIT = """<testsuites><testsuite>
<testcase classname="a" name="passes"/>
<testcase classname="a" name="fails"><failure message="no&#10;why"/></testcase>
<testcase classname="c" name="program"><failure/><system-out>ok one
not ok two: no line within 40 s
more</system-out><system-err>late</system-err></testcase>
<testcase classname="a" name="breaks"><error message="no"/></testcase>
<testcase classname="a" name="waits"><skipped message="no root"/></testcase>
<testcase name="meson"><skipped/><system-out>one
needs a kernel</system-out></testcase>
</testsuite></testsuites>"""


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LOGS", tmp_path)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "DURATIONS", tmp_path / "durations.json")


def ends_with(code: int, text: str = "") -> tuple[tuple[str, ...], ...]:
    return ((sys.executable, "-c", f"print({text!r}); raise SystemExit({code})"),)


def test_junit_is_counted_with_every_reason() -> None:
    count = count_junit(JUNIT)
    assert (count.passed, count.failed) == (1, 3)
    assert count.failures == [
        "a.fails: no",
        "c.program: not ok two: no line within 40 s",
        "a.breaks: no",
    ]
    assert count.skipped == ["a.waits: no root", "meson: needs a kernel"]


@pytest.mark.parametrize(
    ("code", "passed", "failed", "skipped"),
    [
        (0, 2, 0, []),
        (3, 0, 0, ["first (the first): no network", "second (the second): step 'first' did not"]),
        (1, 0, 1, ["second (the second): step 'first' did not pass"]),
    ],
)
def test_what_is_skipped_is_counted(
    code: int, passed: int, failed: int, skipped: list[str]
) -> None:
    chain = [
        Step("first", "the first", ends_with(code, "no network"), 1, skip_code=3),
        Step("second", "the second", ends_with(0), 1, needs="first"),
    ]
    total, took = run_steps(chain, {})
    assert (total.passed, total.failed) == (passed, failed)
    assert [s.startswith(e) for s, e in zip(total.skipped, skipped, strict=True)] == [True] * len(
        skipped
    )
    assert set(took) == ({"first", "second"} if code == 0 else set())


def test_a_report_without_failures_does_not_hide_a_bad_exit(tmp_path: Path) -> None:
    """pytest may die after it wrote its report, or collect nothing (exit code 5)."""
    junit = tmp_path / "made.xml"
    text = '<testsuite><testcase name="x"/></testsuite>'
    write = (
        sys.executable,
        "-c",
        f"open({str(junit)!r}, 'w').write({text!r}); raise SystemExit(5)",
    )
    total, _ = run_steps([Step("python", "Python", (write,), 1, junit)], {})
    assert (total.passed, total.failed) == (1, 1)
    assert total.failures == ["python: exit status 5"]


def test_an_old_report_is_not_counted(tmp_path: Path) -> None:
    junit = tmp_path / "old.xml"
    junit.write_text(JUNIT)
    total, _ = run_steps([Step("python", "Python", ends_with(1), 1, junit)], {})
    assert (total.passed, total.failed) == (0, 1)


def test_root_is_asked_for_only_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Step("smoke", "smoke", (), 1, root=True)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert why_not(step, set()) == "needs root"
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert why_not(step, set()) is None


def test_each_tier_has_the_steps_of_the_one_before() -> None:
    names = [[step.name for step in steps("python", tier)] for tier in TIERS]
    assert names[0] == names[1][: len(names[0])]
    assert names[1] == names[2][: len(names[1])]
    assert len(names[0]) < len(names[1]) < len(names[2])


def test_the_quick_tier_needs_no_root_and_no_kernel() -> None:
    quick = steps("python", "check")
    assert not any(step.root or step.needs for step in quick)
    (marks,) = [a for s in quick for c in s.commands for a in c if "emulated" in a]
    left_out = ("emulated", "install", "alone", "long", "slow", "root")
    assert marks == " and ".join(f"not {mark}" for mark in left_out)


def test_every_condition_names_a_step_that_comes_before() -> None:
    known: set[str] = set()
    for step in steps("python", "all"):
        assert step.needs is None or step.needs in known
        known.add(step.name)


def test_what_a_step_needs_ends_before_it_begins() -> None:
    ended: set[str] = set()
    for stage in stages(steps("python", "all")):
        for track in stage:
            before = set(ended)
            for step in track:
                assert step.needs is None or step.needs in before
                before.add(step.name)
        ended |= {step.name for track in stage for step in track}


def test_what_watches_the_machine_runs_when_the_tracks_have_ended() -> None:
    tracks, *rest = stages(steps("python", "test"))
    names = [[step.name for step in track] for track in tracks]
    assert names == [["lint", "c-build", "c"], ["python"], ["kernel", "regression"]]
    assert [[s.name for s in track] for stage in rest for track in stage] == [["alone"], ["smoke"]]


@pytest.mark.parametrize("long", [False, True])
def test_what_repeats_is_told_to_repeat_more_often(
    long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOWNPOUR_TEST_LONG", raising=False)
    code = f"import os; raise SystemExit(('DOWNPOUR_TEST_LONG' in os.environ) is not {long})"
    total, _ = run_steps([Step("c", "C", ((sys.executable, "-c", code),), 1, long=long)], {})
    assert total.passed == 1
    assert [s.name for s in steps("python", "all") if s.long] == ["c", "python"]
    assert not any(step.long for step in steps("python", "test"))


def test_what_runs_in_the_gaps_gives_way(tmp_path: Path) -> None:
    """The command waits until its own nice value changes, or the test does not end."""
    code = (
        "import os, pathlib, time\n"
        "while os.nice(0) < 15: time.sleep(0.01)\n"
        "share = pathlib.Path('/proc/self/autogroup')\n"
        "while share.exists() and ' nice 15' not in share.read_text(): time.sleep(0.01)\n"
    )
    command = (sys.executable, "-c", code)
    assert run.run_command(command, tmp_path / "log", lambda: None, in_gaps=True) == 0
    assert [s.name for s in steps("python", "test") if s.in_gaps] == ["kernel"]


def test_tracks_run_beside_each_other(tmp_path: Path) -> None:
    """Each track waits for the other's file."""

    def command(mine: str, other: str) -> tuple[tuple[str, ...], ...]:
        code = (
            "import pathlib, sys, time\n"
            "pathlib.Path(sys.argv[1]).touch(); other = pathlib.Path(sys.argv[2])\n"
            "until = time.monotonic() + 60\n"
            "while not other.exists() and time.monotonic() < until: time.sleep(0.01)\n"
            "raise SystemExit(not other.exists())"
        )
        return ((sys.executable, "-c", code, str(tmp_path / mine), str(tmp_path / other)),)

    pair = [
        Step("left", "left", command("l", "r"), 1, track="one"),
        Step("after", "after", ends_with(0), 1),
        Step("right", "right", command("r", "l"), 1, track="two"),
        Step("fails", "fails", ends_with(1), 1, track="two"),
        Step("needs", "needs", ends_with(0), 1, needs="fails"),
    ]
    total, took = run_steps(pair, {})
    assert (total.passed, total.failed, len(total.skipped)) == (3, 1, 1)
    assert set(took) == {"left", "right", "after"}


def test_an_interruption_ends_both_tracks(tmp_path: Path) -> None:
    """Commands have their own sessions, which do not get Ctrl-C from the terminal."""
    write = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))"
    pids = [tmp_path / "one", tmp_path / "two"]
    chain = [
        Step(
            pid.name, pid.name,
            ((sys.executable, "-c", f"{write}; time.sleep(60)", str(pid)),), 1, track=pid.name,
        )
        for pid in pids
    ]  # fmt: skip

    def interrupt() -> None:
        while not all(pid.exists() and pid.read_text() for pid in pids):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            run_steps(chain, {})
    finally:
        signal.signal(signal.SIGINT, before)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


def test_files_of_a_mark_are_files_of_tests() -> None:
    """A helper that sets the mark would hide the files that use it."""
    found = files_with("alone")
    assert Path(run.__file__).parent.parent / "topologies/tests/test_teardown.py" in found
    assert all(path.name.startswith("test_") for path in found)


def test_a_misspelt_tier_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["al"])
    assert ended.value.code == 2
    assert "'al'" in capsys.readouterr().err


def test_only_some_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = [Step("a", "a", ends_with(1), 1), Step("b", "b", ends_with(0), 1)]
    monkeypatch.setattr(run, "steps", lambda *_: chain)
    assert main(["all", "--only", "b"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    with pytest.raises(SystemExit) as ended:
        main(["all", "--only", "c"])
    assert ended.value.code == 2
    assert "--only: found 'c'; valid: a, b" in capsys.readouterr().err


def test_what_ignores_the_first_signal_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "END_S", 0.5)
    deaf = "import os, signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    ready = tmp_path / "pid"
    code = f"{deaf}; open({str(ready)!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    def interrupt() -> None:
        if ready.exists() and ready.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.run_command((sys.executable, "-c", code), tmp_path / "log", interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(ready.read_text()), 0)


def test_the_last_line_is_the_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = [Step("a", "a", ends_with(0), 1), Step("b", "b", ends_with(1), 1)]
    monkeypatch.setattr(run, "steps", lambda *_: chain)
    assert main(["check"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"
