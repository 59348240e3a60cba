# SPDX-License-Identifier: Apache-2.0
"""Run one tier of the tests: `python -m tests.run check|test|all`, or some steps of it with
`--only STEP...`.

check  lint and types, C tests under sanitizers, Python tests: the quick ones; no root
test   check and its slow tests, those that need root, and the 8-receiver regression in virtual
       time and, shortened, on this machine's clock
all    test, and what takes longer: end-to-end tests over the emulated network, labs in guests,
       other OpenFlow frameworks, installations and packages, ThreadSanitizer, other architectures,
       analyzers, coverage

Ruff, mypy, Meson and pytest do the work. This module runs them, shows how far they are, and adds up
what they count. Three tracks run side by side: Python tests; lint, then C tests; the kernel's
build, then the regression in virtual time. What watches this machine's clock or all of its
processes follows alone, step by step. Each step writes to build/test-logs/NAME.log; a failed step
prints the end of it. No test is tried twice. The last line is `N passed, N failed, N skipped`;
every skipped test is named with its reason above it.

The tier `all` sets DOWNPOUR_TEST_LONG=1 for the C tests under sanitizers and for the Python tests:
those that repeat something many times (kills at random moments or at single instructions, seeds,
requests, mutations of fuzz corpora) then do so more often.
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
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from common.exit_codes import EXIT_INVALID
from tests import cross
from tests.frameworks import EXIT_NO_PACKAGE, FRAMEWORKS

ROOT: Final = Path(__file__).resolve().parent.parent
LOGS: Final = ROOT / "build" / "test-logs"
DURATIONS: Final = LOGS / "durations.json"
TIERS: Final = ("check", "test", "all")
EXIT_NO_SOURCE: Final = 3  # of the kernel's build: this machine cannot have the source
END_S: Final = 10.0  # for each signal that ends a command
FUZZ_REST_S: Final = 240
CORES: Final = os.cpu_count() or 1
LONG: Final = "DOWNPOUR_TEST_LONG"
PYTHON_TRACK: Final = "python"  # the tracks run side by side
C_TRACK: Final = "c"
VIRTUAL_TRACK: Final = "virtual"
GAPS_NICE: Final = 15  # tests that wait for each other leave both cores idle


@dataclass
class Count:
    """What a step, or all of them, counted."""

    passed: int = 0
    failed: int = 0
    skipped: list[str] = field(default_factory=list)  # "name: reason"
    failures: list[str] = field(default_factory=list)

    def add(self, other: Count) -> None:
        """Add `other` to this count."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures


@dataclass(frozen=True)
class Step:
    """Commands that run one after the other; each counts as a test unless there is a `junit`."""

    name: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    typical_s: float  # an estimate, until this machine has measured it
    junit: Path | None = None
    skip_code: int | None = None  # exit code that says: cannot be had here
    needs: str | None = None  # the step without which this one is skipped
    root: bool = False  # skipped without root
    long: bool = False  # with DOWNPOUR_TEST_LONG
    in_gaps: bool = False  # takes what the other tracks leave of the cores
    track: str | None = None  # beside the steps of other tracks; None: alone, after all of them


def count_junit(text: str) -> Count:
    """Return the counts of a JUnit XML report (pytest's or Meson's). Raises ET.ParseError."""
    count = Count()
    for case in ET.fromstring(text).iter("testcase"):
        name = ".".join(filter(None, (case.get("classname"), case.get("name"))))
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            count.failed += 1
            count.failures.append(name)
        elif skipped is not None:
            reason = skipped.get("message") or (skipped.text or "").strip()
            output = (case.findtext("system-out") or "").strip().splitlines()
            count.skipped.append(f"{name}: {reason or (output[-1] if output else 'no reason')}")
        else:
            count.passed += 1
    return count


def _python(python: str, name: str, marks: str, *more: str) -> tuple[str, ...]:
    """Return a pytest command: more workers than cores, as many tests wait for processes, but a
    worker for each file, as tests of a file share what they set up."""
    workers = ("-n", str(CORES + 3), "--dist", "loadfile", "--no-loadscope-reorder")
    return (
        *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers),
        *("-m", marks, f"--junitxml={LOGS / name}.xml", *more),
    )


def files_with(mark: str, root: Path = ROOT) -> list[Path]:
    """Return the files with tests of a mark: to collect from all others takes a quarter minute."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    rooms = settings["tool"]["pytest"]["ini_options"]["testpaths"]
    found = (path for room in rooms for path in sorted((root / room).rglob("*.py")))
    return [path for path in found if f"mark.{mark}" in path.read_text()]


def _c(python: str, tier: str) -> list[Step]:
    asan = ROOT / "build-asan"
    setup = ("meson", "setup", str(asan), str(ROOT))
    sanitizers = ("-Db_sanitize=address,undefined", "-Db_lundef=false")
    configure = () if (asan / "build.ninja").exists() else ((*setup, *sanitizers),)
    suites = ("--no-suite", "slow") if tier == "check" else ()
    # What benchmarks compare with is no part of `make build`.
    peers = () if tier == "check" else (("ninja", "-C", str(ROOT / "build"), "peers"),)
    longer = ("--timeout-multiplier", "5") if tier == "all" else ()
    tests = ("meson", "test", "-C", str(asan), "--no-rebuild", "--print-errorlogs", *longer)
    return [
        Step(
            "lint",
            "lint and types",
            (
                (python, "-m", "ruff", "check", "."),
                (python, "-m", "ruff", "format", "--check", "."),
                (python, "-m", "mypy"),
                # A lab's folder is no package: each by itself.
                *((python, "-m", "mypy", str(f)) for f in sorted(ROOT.glob("labs/*/checks.py"))),
            ),
            30,
            track=C_TRACK,
        ),
        Step(
            "c-build",
            "C programs and tests, with address and undefined-behaviour sanitizers",
            (*configure, ("ninja", "-C", str(asan)), *peers),
            60,
            track=C_TRACK,
        ),
        Step(
            "c",
            "C tests",
            # most of the time processes of a test wait for each other
            ((*tests, "--num-processes", str(CORES + 1), *suites),),
            60,
            asan / "meson-logs" / "testlog.junit.xml",
            long=tier == "all",
            track=C_TRACK,
        ),
    ]


def _regressions(python: str) -> list[Step]:
    regression = (python, "-m", "downpour", "regression")

    def junit(name: str) -> tuple[str, str]:
        return ("--junit", str(LOGS / f"{name}.xml"))

    return [
        Step(
            "kernel",
            "kernel for virtual time",
            ((python, "-m", "downpour", "virtual", "kernel"),),
            300,
            skip_code=EXIT_NO_SOURCE,
            in_gaps=True,
            track=VIRTUAL_TRACK,
        ),
        Step(
            "regression",
            "8-receiver regression in virtual time",
            ((*regression, "--clock", "virtual", *junit("regression")),),
            40,
            LOGS / "regression.xml",
            needs="kernel",
            track=VIRTUAL_TRACK,
        ),
        Step(
            "smoke",
            "8-receiver regression on this machine's clock, shortened",
            ((*regression, "--clock", "native", "--duration", "10", *junit("smoke")),),
            60,
            LOGS / "smoke.xml",
            skip_code=EXIT_INVALID,
            root=True,
        ),
    ]


def _rest(python: str) -> list[Step]:
    """Return what only the last tier runs."""
    frameworks = [
        Step(
            f"framework-{f.name}",
            f"controller over Open vSwitch with {f.name}",
            (
                (
                    *(python, "-m", "tests.frameworks", f.name),
                    *("--junit", str(LOGS / f"framework-{f.name}.xml")),
                ),
            ),
            30,
            LOGS / f"framework-{f.name}.xml",
            skip_code=EXIT_NO_PACKAGE,
            root=True,
        )
        for f in FRAMEWORKS
    ]
    # One test at a time: these watch a network on the machine's own clock.
    pytest = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    leave = ("downpour", "regression", "join-leave", "--clock", "virtual", "--duration", "40")
    return [
        *frameworks,
        Step(
            "emulated",
            "end-to-end tests over the emulated network, labs in guests",
            ((*pytest, "-m", "emulated", f"--junitxml={LOGS / 'emulated.xml'}"),),
            900,
            LOGS / "emulated.xml",
        ),
        Step(
            "join-leave",
            "subscribers join and leave three feeds in virtual time",
            ((python, "-m", *leave, "--junit", str(LOGS / "join-leave.xml")),),
            60,
            LOGS / "join-leave.xml",
            needs="kernel",
        ),
        Step(
            "rest-fuzz",
            "requests made up from the OpenAPI document, for longer",
            ((python, "-m", "controller.tests.rest_fuzz", str(FUZZ_REST_S)),),
            FUZZ_REST_S + 20,
        ),
        Step(
            "install",
            "the lock, the wheel and make install, each from scratch",
            ((*pytest, "-m", "install", f"--junitxml={LOGS / 'install.xml'}"),),
            400,
            LOGS / "install.xml",
        ),
        Step(
            "deb",
            "Debian packages in a fresh Debian",
            (("tests/deb.sh",),),
            500,
            root=True,
        ),
        Step(
            "offline",
            "a set-up from the bundle, without network",
            (("tests/offline.sh",),),
            500,
            root=True,
        ),
        Step(
            "threads",
            "C tests with threads under ThreadSanitizer",
            ((python, "-m", "tests.quality", "threads"),),
            60,
        ),
        *(
            Step(
                f"cross-{a}",
                f"C unit tests on {a}: {what}",
                ((python, "-m", "tests.cross", a),),
                400,
                cross.WHERE / a / "build" / "meson-logs" / "testlog.junit.xml",
                skip_code=cross.EXIT_MISSING,
            )
            for a, what in (("s390x", "big-endian"), ("armhf", "32-bit words"))
        ),
        Step(
            "analyze",
            "C programs under gcc -fanalyzer and clang-tidy",
            ((python, "-m", "tests.quality", "analyze"),),
            180,
        ),
        Step(
            "coverage",
            "line coverage of the protocol cores and the product queue",
            ((python, "-m", "tests.quality", "coverage"),),
            180,
        ),
    ]


def steps(python: str, tier: str) -> list[Step]:
    """Return the steps of a tier, in their order."""
    marks = "not emulated and not install and not alone"
    if tier == "check":
        marks += " and not slow and not root"
    command = _python(python, "python", marks)
    found = _c(python, tier)
    found.append(
        Step(
            "python",
            "Python tests",
            (command,),
            150,
            LOGS / "python.xml",
            long=tier == "all",
            track=PYTHON_TRACK,
        )
    )
    if tier != "check":
        alone = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "alone")
        files = (str(path) for path in files_with("alone"))
        found.append(
            Step(
                "alone",
                "Python tests beside which nothing may run",
                ((*alone, f"--junitxml={LOGS / 'alone.xml'}", *files),),
                60,
                LOGS / "alone.xml",
                root=True,
            )
        )
        found += _regressions(python)
    if tier == "all":
        found += _rest(python)
    return found


def log_of(step: Step) -> Path:
    """Return where a step's output goes."""
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
    """Return the exit code; Ctrl-C ends the command with everything that it started."""
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
    """Let a session have the cores when no other wants them. Where the kernel shares them by
    session (sched(7), autogroup), a process's nice value counts within its session alone."""
    with contextlib.suppress(OSError):  # it has ended
        os.setpriority(os.PRIO_PGRP, session, GAPS_NICE)
        Path(f"/proc/{session}/autogroup").write_text(f"{GAPS_NICE}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and what it started. Meson takes one SIGINT to mean one of its tests."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(timeout=END_S)
            return
        except subprocess.TimeoutExpired:
            continue


def result(step: Step, codes: Sequence[int]) -> Count:
    """Return what a step counted, from its exit codes and its JUnit report."""
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
    """Return why a step cannot run; None: it can. `missing`: steps that failed or were skipped."""
    if step.root and os.geteuid() != 0:
        return "needs root"
    return f"step '{step.needs}' did not pass" if step.needs in missing else None


class Progress:
    """One line that says how far the steps are; a line every 20 s where there is no terminal.
    Tracks share it."""

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
        """Show what is running. Raises KeyboardInterrupt once the tracks are to end."""
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
    """Return the tracks that run at the same time, then each step without a track by itself."""
    tracks: dict[str, list[Step]] = {}
    for step in todo:
        if step.track is not None:
            tracks.setdefault(step.track, []).append(step)
    together = [list(tracks.values())] if tracks else []
    return together + [[[step]] for step in todo if step.track is None]


class SoFar:
    """What the steps counted, how long each took in seconds, and which did not pass. Tracks share
    it."""

    def __init__(self, learned: dict[str, float]) -> None:
        self.total = Count()
        self.took_s = dict(learned)
        self.missing: set[str] = set()
        self._lock = threading.Lock()

    def add(self, step: Step, count: Count, seconds: float | None) -> None:
        """Add what a step counted; no `seconds`: it did not run."""
        with self._lock:
            self.total.add(count)
            if count.failed or not count.passed or seconds is None:
                self.missing.add(step.name)
            else:
                self.took_s[step.name] = seconds


def run_step(step: Step, so_far: SoFar, progress: Progress) -> None:
    """Run a step and add what it counted, or why it cannot run, to what there is `so_far`."""
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
