# SPDX-License-Identifier: Apache-2.0
"""Run one tier of the tests: `python -m tests.run check|test|all`, or some steps of it with
`--only STEP...`.

check  lint and types, C tests under sanitizers, Python tests: the quick ones; no root
test   check and its slow tests, those that need root, the 8-receiver regression in virtual time,
       and a shorter one of 4 receivers on this machine's clock
all    test, and longer ones: end-to-end tests over the emulated network and in guests, labs, other
       OpenFlow frameworks, installations and packages, ThreadSanitizer, other architectures,
       analyzers, coverage

Ruff, mypy, Meson and pytest do the work. This module runs them, shows their progress, and adds up
their counts. Three tracks run side by side: Python tests; lint, then C tests; the kernel's build,
then the regression in virtual time. Steps that watch this machine's clock or all of its processes
follow, one at a time. Each step writes to build/test-logs/NAME.log; a failed step prints the end of
it. No test runs twice. The last line is `N passed, N failed, N skipped`; the lines above it name
every skipped test with its reason.

The tier `all` sets DOWNPOUR_TEST_LONG=1 for the C tests under sanitizers and for the Python tests.
Tests that repeat something many times (kills at random moments or at single instructions, seeds,
requests, mutations of fuzz corpora) then repeat it more often.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.tiers import LOGS, ROOT, TIERS, Step, steps

DURATIONS: Final = LOGS / "durations.json"
END_S: Final = 10.0  # time for a command to end, after each signal
LONG: Final = "DOWNPOUR_TEST_LONG"
REASON_CHARACTERS: Final = 200  # length of the reason why a test failed
GAPS_NICE: Final = 15  # tests that wait for each other leave both cores idle


@dataclass
class Count:
    """The counts of a step, or of all steps."""

    passed: int = 0
    failed: int = 0
    skipped: list[str] = field(default_factory=list)  # "name: reason"
    failures: list[str] = field(default_factory=list)  # "name: reason"

    def add(self, other: Count) -> None:
        """Add `other` to this count."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures


def _lines(text: str | None) -> list[str]:
    return [line.strip() for line in (text or "").splitlines() if line.strip()]


def _why_it_failed(case: ET.Element, failure: ET.Element) -> str:
    """Return one line: pytest's message, else what a C test printed when it failed."""
    if message := _lines(failure.get("message")):
        return message[0][:REASON_CHARACTERS]
    said = _lines(case.findtext("system-out")) + _lines(case.findtext("system-err"))
    told = [line for line in said if line.startswith("not ok")] or said
    return told[-1][:REASON_CHARACTERS] if told else "no reason"


def count_junit(text: str) -> Count:
    """Return the counts of a JUnit XML report (pytest's or Meson's). Raises ET.ParseError."""
    count = Count()
    for case in ET.fromstring(text).iter("testcase"):
        name = ".".join(filter(None, (case.get("classname"), case.get("name"))))
        skipped = case.find("skipped")
        failed = [case.find(kind) for kind in ("failure", "error")]
        if found := [failure for failure in failed if failure is not None]:
            count.failed += 1
            count.failures.append(f"{name}: {_why_it_failed(case, found[0])}")
        elif skipped is not None:
            reason = skipped.get("message") or (skipped.text or "").strip()
            output = (case.findtext("system-out") or "").strip().splitlines()
            count.skipped.append(f"{name}: {reason or (output[-1] if output else 'no reason')}")
        else:
            count.passed += 1
    return count


def log_of(step: Step) -> Path:
    """Return the file for a step's output."""
    return LOGS / f"{step.name}.log"


def tail(log: Path, lines: int) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def run_command(
    argv: Sequence[str],
    log: Path,
    on_tick: Callable[[], None],
    *,
    long: bool = False,
    in_gaps: bool = False,
) -> int:
    """Run a command; return its exit code. Ctrl-C ends it with everything that it started."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    env |= {LONG: "1"} if long else {}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # each worker would compile all tests, twice as long
    with log.open("ab") as out:
        out.write(f"$ {' '.join(argv)}\n".encode())
        out.flush()
        process = subprocess.Popen(
            list(argv), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            env=env, start_new_session=True,
        )  # fmt: skip
    if in_gaps:
        _give_way(process.pid)
    try:
        while True:
            try:
                return process.wait(timeout=1)
            except subprocess.TimeoutExpired:
                on_tick()
    except KeyboardInterrupt:
        _end(process)
        raise


def _give_way(session: int) -> None:
    """Give a session the cores only while no other wants them. If the kernel shares cores by
    session (sched(7), autogroup), a process's nice value counts within its session alone."""
    with contextlib.suppress(OSError):  # it has ended
        os.setpriority(os.PRIO_PGRP, session, GAPS_NICE)
        Path(f"/proc/{session}/autogroup").write_text(f"{GAPS_NICE}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and what it started. One SIGINT makes Meson end one test only."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(timeout=END_S)
            return
        except subprocess.TimeoutExpired:
            continue


def result(step: Step, codes: Sequence[int]) -> Count:
    """Return a step's counts, from its exit codes and its JUnit report."""
    count = Count()
    if step.skip_code is not None and codes[-1] == step.skip_code:
        why = " ".join(tail(log_of(step), 1).split())
        count.skipped.append(f"{step.name} ({step.title}): {why}")
    elif step.junit is not None and step.junit.exists():
        count = count_junit(step.junit.read_text())
        if codes[-1] != 0 and count.failed == 0:
            count.failed = 1
            count.failures.append(f"{step.name}: exit status {codes[-1]}")
    else:
        for argv, code in zip(step.commands, codes, strict=True):
            count.passed += code == 0
            count.failed += code != 0
            if code != 0:
                count.failures.append(f"{step.name}: {' '.join(argv)}: exit status {code}")
    return count


def why_not(step: Step, missing: set[str]) -> str | None:
    """Return why a step cannot run, or None. `missing`: steps that failed or were skipped."""
    if step.root and os.geteuid() != 0:
        return "needs root"
    return f"step '{step.needs}' did not pass" if step.needs in missing else None


class Progress:
    """One line with the progress of the steps; without a terminal, a line every 20 s. Tracks share
    it."""

    def __init__(self, todo: Sequence[Step], learned: dict[str, float]) -> None:
        self._todo = todo
        self._expected = {step.name: learned.get(step.name, step.typical_s) for step in todo}
        self._began: dict[str, float] = {}
        self._ended: set[str] = set()
        self._start = self._shown = time.monotonic()
        self._tty = sys.stdout.isatty()
        self._lock = threading.Lock()
        self.interrupted = threading.Event()

    def head(self, step: Step) -> str:
        """Return a step's number and title."""
        return f"[{self._todo.index(step) + 1}/{len(self._todo)}] {step.title}"

    def begin(self, step: Step) -> None:
        """Note that a step begins now."""
        with self._lock:
            self._began[step.name] = time.monotonic()

    def _left_s(self, step: Step, now: float) -> float:
        if step.name in self._ended:
            return 0.0
        elapsed = now - self._began.get(step.name, now)
        return max(0.0, self._expected[step.name] - elapsed)

    def tick(self) -> None:
        """Show what is running. Raises KeyboardInterrupt when the tracks must end."""
        if self.interrupted.is_set():
            raise KeyboardInterrupt
        with self._lock:
            now = time.monotonic()
            if now - self._shown < (0.5 if self._tty else 20):
                return
            self._shown = now
            running = [s for s in self._todo if s.name in self._began.keys() - self._ended]
            left = sum(
                max(sum(self._left_s(step, now) for step in track) for track in stage)
                for stage in stages(self._todo)
            )
            late = any(self._left_s(step, now) == 0.0 for step in running)
            text = (
                f"{', '.join(self.head(step) for step in running)}: {now - self._start:.0f} s "
                f"elapsed, about {left:.0f} s{' or more' if late else ''} left"
            )
            start, end = ("\r\x1b[K", "") if self._tty else ("", "\n")
            print(f"{start}{text}", end=end, flush=True)

    def done(self, step: Step, text: str) -> None:
        """Print lines that stay."""
        with self._lock:
            self._ended.add(step.name)
            start = "\r\x1b[K" if self._tty else ""
            print(f"{start}{self.head(step)}: {text}", flush=True)


def stages(todo: Sequence[Step]) -> list[list[list[Step]]]:
    """Return the tracks that run at the same time, then each step without a track alone."""
    tracks: dict[str, list[Step]] = {}
    for step in todo:
        if step.track is not None:
            tracks.setdefault(step.track, []).append(step)
    together = [list(tracks.values())] if tracks else []
    return together + [[[step]] for step in todo if step.track is None]


class SoFar:
    """The steps' counts, how long each took in seconds, and which did not pass. Tracks share it."""

    def __init__(self, learned: dict[str, float]) -> None:
        self.total = Count()
        self.took_s = dict(learned)
        self.missing: set[str] = set()
        self._lock = threading.Lock()

    def add(self, step: Step, count: Count, seconds: float | None) -> None:
        """Add a step's counts. `seconds` is None if it did not run."""
        with self._lock:
            self.total.add(count)
            if count.failed or not count.passed or seconds is None:
                self.missing.add(step.name)
            else:
                self.took_s[step.name] = seconds


def run_step(step: Step, so_far: SoFar, progress: Progress) -> None:
    """Run a step and add its counts, or why it cannot run, to `so_far`."""
    reason = why_not(step, so_far.missing)
    if reason is not None:
        skipped = Count(skipped=[f"{step.name} ({step.title}): {reason}"])
        so_far.add(step, skipped, None)
        progress.done(step, f"SKIPPED: {reason}")
        return
    log_of(step).write_bytes(b"")
    if step.junit is not None:
        step.junit.unlink(missing_ok=True)
    progress.begin(step)
    began = time.monotonic()
    codes = [
        run_command(argv, log_of(step), progress.tick, long=step.long, in_gaps=step.in_gaps)
        for argv in step.commands
    ]
    seconds = round(time.monotonic() - began, 1)
    count = result(step, codes)
    so_far.add(step, count, seconds)
    counted = f"{count.passed} passed, {count.failed} failed, {len(count.skipped)} skipped"
    text = f"{'FAILED' if count.failed else 'ok'} ({counted}, {seconds} s)"
    if count.failed:
        text += f"\n{tail(log_of(step), 60)}\n    (all of it: {log_of(step).relative_to(ROOT)})"
    progress.done(step, text)


def run_steps(todo: Sequence[Step], learned: dict[str, float]) -> tuple[Count, dict[str, float]]:
    """Return the counts of all steps, and how long each took in seconds."""
    so_far = SoFar(learned)
    progress = Progress(todo, learned)

    def run_track(track: Sequence[Step]) -> None:
        for step in track:
            run_step(step, so_far, progress)

    for stage in stages(todo):
        with ThreadPoolExecutor(len(stage)) as pool:
            running = [pool.submit(run_track, track) for track in stage]
            try:
                wait(running)
            except KeyboardInterrupt:
                progress.interrupted.set()
                raise
        for track_ended in running:
            track_ended.result()
    return so_far.total, so_far.took_s


def main(argv: Sequence[str] | None = None) -> int:
    """Run a tier; 0 if nothing failed, 1 if something did, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__)
    parser.add_argument("tier", choices=TIERS)
    parser.add_argument("--only", nargs="+", metavar="STEP", default=[], help="these steps only")
    arguments = parser.parse_args(argv)
    chosen = steps(sys.executable, arguments.tier)
    names = [step.name for step in chosen]
    if unknown := [name for name in arguments.only if name not in names]:
        parser.error(f"--only: found '{unknown[0]}'; valid: {', '.join(names)}")
    chosen = [step for step in chosen if not arguments.only or step.name in arguments.only]
    # A shell's background job inherits an ignored SIGINT, and so would every test that sends one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    LOGS.mkdir(parents=True, exist_ok=True)
    learned = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    try:
        total, took = run_steps(chosen, learned)
    except KeyboardInterrupt:
        print("\ntests: interrupted", file=sys.stderr)
        return 130
    DURATIONS.write_text(json.dumps(learned | took))
    for line in total.skipped:
        print(f"SKIPPED {line}")
    for line in total.failures:
        print(f"FAILED {line}")
    print(f"{total.passed} passed, {total.failed} failed, {len(total.skipped)} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
