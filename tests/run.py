# SPDX-License-Identifier: Apache-2.0
"""`make test`: every check of the project, one after the other, with progress and one summary.

Each step writes its output to `build/test-logs/NAME.log`; a failed step prints the end of it.
The last line is `N passed, N failed, N skipped`, counted over lint checks, C tests and Python
tests; every skipped test is named with its reason above it.

Many Python tests watch processes and networks on the machine's own clock, which other work on the
machine can hold up. A failed one is tried once more; one that then passes is named, too, and more
than `SECOND_TRIES` of them are a failure.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from common.quantities import minutes_text
from tests.frameworks import EXIT_NO_PACKAGE, FRAMEWORKS, RETRY

ROOT = Path(__file__).resolve().parent.parent
CHECKOUT = ROOT
LOGS = ROOT / "build" / "test-logs"
DURATIONS = ROOT / "build" / "test-durations.json"
BESIDE = 2  # steps at once beside the one in front
SECOND_TRIES = 5  # of some 2,000 tests, in one run
EXIT_NO_SOURCE = 3  # of `python -m virtual kernel`: this machine cannot have the kernel's source


@dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: list[str] = field(default_factory=list)  # "name: reason"
    failures: list[str] = field(default_factory=list)
    second_tries: list[str] = field(default_factory=list)  # tests that failed once, then passed

    def add(self, other: Count) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.failures += other.failures
        self.second_tries += other.second_tries


@dataclass(frozen=True)
class Step:
    name: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    typical_s: float  # only for the estimate of what remains, replaced by the last measured time
    junit: Path | None = None  # counts come from here; else one test per command
    skip_code: int | None = None  # exit code that says: cannot be had here
    needs: str | None = None  # name of a step without whose success this one is skipped
    instead_of: str | None = None  # run only if that step was skipped
    beside_next: bool = False  # busy, while the next step that is not so mostly waits: beside it


def count_junit(text: str) -> Count:
    """Counts of a JUnit XML report (pytest's or meson's). Raises ET.ParseError. A test that was run
    once more is in it twice, one after the other; the second counts."""
    count = Count()
    cases = list(ET.fromstring(text).iter("testcase"))
    names = [".".join(filter(None, (c.get("classname"), c.get("name")))) for c in cases]
    for number, (case, name) in enumerate(zip(cases, names, strict=True)):
        if name in names[number + 1 : number + 2]:
            continue
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
            if number > 0 and names[number - 1] == name:
                count.second_tries.append(name)
    return count


def rooms_with_tests() -> list[str]:
    """pytest's `testpaths`: a path that is given there is not left out by `--ignore`."""
    found = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    paths: list[str] = found["tool"]["pytest"]["ini_options"]["testpaths"]
    return paths


def steps(python: str, quick: bool) -> list[Step]:
    asan = ROOT / "build-asan"
    configure = (
        (
            "meson", "setup", str(asan), str(ROOT),
            "-Db_sanitize=address,undefined", "-Db_lundef=false",
        ),
    )  # fmt: skip
    junit = {name: LOGS / f"{name}.xml" for name in ("python", "controller", "emulated", "labs")}
    pytest = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *RETRY)
    rooms = rooms_with_tests()
    others = [room for room in rooms if room != "controller"]
    no_labs = [room for room in rooms if room != "labs"]
    found = [
        Step(
            "lint",
            "lint and types",
            (
                (python, "-m", "ruff", "check", "."),
                (python, "-m", "ruff", "format", "--check", "."),
                (python, "-m", "mypy"),
                # Folders of labs are no packages: each by itself.
                *((python, "-m", "mypy", str(f)) for f in sorted(ROOT.glob("labs/*/checks.py"))),
            ),
            40,
        ),
        Step(
            "c-build",
            "C programs under address and undefined-behaviour sanitizers",
            (() if (asan / "build.ninja").exists() else configure) + (("ninja", "-C", str(asan)),),
            60,
        ),
        Step(
            "c",
            "C tests",
            # most of the time processes of a test wait for each other
            (
                (
                    *("meson", "test", "-C", str(asan), "--no-rebuild", "--print-errorlogs"),
                    *("--num-processes", str((os.cpu_count() or 1) + 1)),
                ),
            ),
            60,
            asan / "meson-logs" / "testlog.junit.xml",
        ),
        Step(
            "threads",
            "C tests with threads under ThreadSanitizer",
            ((python, "-m", "tests.quality", "threads"),),
            40,
        ),
        Step(
            "controller",
            "Python tests of the controller",
            ((*pytest, "-m", "not emulated", f"--junitxml={junit['controller']}", "controller"),),
            300,
            junit["controller"],
            beside_next=True,  # its tests mostly wait for each other's processes
        ),
        Step(
            "analyze",
            "C programs under gcc -fanalyzer and clang-tidy",
            ((python, "-m", "tests.quality", "analyze"),),
            90,
            beside_next=True,
        ),
        Step(
            "coverage",
            "line coverage of the protocol cores and the product queue",
            ((python, "-m", "tests.quality", "coverage"),),
            90,
            beside_next=True,
        ),
        Step(
            "python",
            "Python tests of the rest",
            ((*pytest, "-m", "not emulated", f"--junitxml={junit['python']}", *others),),
            300,
            junit["python"],
        ),
    ]
    if not quick:
        found += [
            Step(
                f"framework-{framework.name}",
                f"controller over Open vSwitch with {framework.name}",
                (
                    (
                        *(python, "-m", "tests.frameworks", framework.name),
                        *("--junit", str(LOGS / f"framework-{framework.name}.xml")),
                    ),
                ),
                30,
                LOGS / f"framework-{framework.name}.xml",
                skip_code=EXIT_NO_PACKAGE,
            )
            for framework in FRAMEWORKS
        ]
        regression = (python, "-m", "experiments", "regression")
        virtual, native = ("--clock", "virtual"), ("--clock", "native")
        for name in ("regression", "join-leave", "smoke"):
            junit[name] = LOGS / f"{name}.xml"
        found += [
            Step(
                "kernel",
                "kernel for virtual time",
                ((python, "-m", "virtual", "kernel"),),
                240,
                skip_code=EXIT_NO_SOURCE,
            ),
            Step(
                "emulated",
                "end-to-end tests over the emulated network, self-test of virtual time",
                ((*pytest, "-m", "emulated", f"--junitxml={junit['emulated']}", *no_labs),),
                400,
                junit["emulated"],
            ),
            # In virtual time, so nothing that runs beside changes what they find.
            Step(
                "labs",
                "labs: start state, solution and wrong answers",
                ((*pytest, "-m", "emulated", f"--junitxml={junit['labs']}", "labs"),),
                240,
                junit["labs"],
                beside_next=True,
            ),
            Step(
                "regression",
                "8-receiver regression in virtual time, with tight bands",
                ((*regression, *virtual, "--junit", str(junit["regression"])),),
                60,
                junit["regression"],
                needs="kernel",
                beside_next=True,
            ),
            Step(
                "join-leave",
                "subscribers join and leave three feeds in virtual time, nobody loses a product",
                (
                    (
                        *(*regression, "join-leave", *virtual, "--duration", "40"),
                        *("--junit", str(junit["join-leave"])),
                    ),
                ),
                60,
                junit["join-leave"],
                needs="kernel",
            ),
            Step(
                "smoke",
                "8-receiver regression on this machine's clock, shortened",
                (
                    (
                        *(*regression, *native, "--duration", "10"),
                        *("--junit", str(junit["smoke"])),
                    ),
                ),
                60,
                junit["smoke"],
                needs="kernel",
            ),
            Step(
                "regression-native",
                "8-receiver regression on this machine's clock",
                ((*regression, *native, "--junit", str(junit["regression"])),),
                80,
                junit["regression"],
                instead_of="regression",
            ),
        ]
    return found


def run_command(
    argv: Iterable[str], log: Path, on_tick: Callable[[], None], running: list[int]
) -> int:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with log.open("ab") as out:
        out.write(f"$ {' '.join(argv)}\n".encode())
        out.flush()
        process = subprocess.Popen(
            list(argv),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )
    running[:] = [process.pid]
    while True:
        try:
            code = process.wait(timeout=1)
            running.clear()
            return code
        except subprocess.TimeoutExpired:
            on_tick()


def tail(log: Path, lines: int) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def skip_reason(step: Step, skipped: dict[str, str], failed: set[str]) -> str | None:
    """Why a step is not run; None: it is. "": it is only for where another one cannot be run."""
    if step.instead_of is not None:
        return None if step.instead_of in skipped else ""
    if step.needs in skipped:
        return f"{step.needs}: {skipped[step.needs]}"
    return f"step '{step.needs}' failed" if step.needs in failed else None


def execute(step: Step, on_tick: Callable[[], None], running: list[int]) -> tuple[list[int], float]:
    """The exit codes of a step's commands, and how long they took."""
    began = time.monotonic()
    log_of(step).write_bytes(b"")
    if step.junit is not None:
        step.junit.unlink(missing_ok=True)
    codes = [run_command(argv, log_of(step), on_tick, running) for argv in step.commands]
    return codes, round(time.monotonic() - began, 1)


def log_of(step: Step) -> Path:
    return LOGS / f"{step.name}.log"


def result(step: Step, codes: list[int]) -> Count:
    count = Count()
    if step.junit is not None and step.junit.exists():
        count = count_junit(step.junit.read_text())
        if codes[-1] != 0 and count.failed == 0:
            count.failed = 1
            count.failures.append(f"{step.name}: exit status {codes[-1]}")
    elif step.skip_code is not None and codes[-1] == step.skip_code:
        why = " ".join(tail(log_of(step), 1).split())
        count.skipped.append(f"{step.name} ({step.title}): {why}")
    else:
        for argv, code in zip(step.commands, codes, strict=True):
            count.passed += code == 0
            count.failed += code != 0
            if code != 0:
                count.failures.append(f"{step.name}: {' '.join(argv)}: exit status {code}")
    return count


def run_steps(todo: list[Step], learned: dict[str, float]) -> tuple[Count, dict[str, float]]:
    total, took = Count(), dict(learned)
    skipped: dict[str, str] = {}
    failed: set[str] = set()
    tty, start = sys.stdout.isatty(), time.monotonic()
    expected = {step.name: learned.get(step.name, step.typical_s) for step in todo}
    running: list[int] = []
    running_beside: list[list[int]] = []
    pool = ThreadPoolExecutor(max_workers=BESIDE)
    beside: list[tuple[int, Step, Future[tuple[list[int], float]]]] = []

    def interrupted(signum: int, _frame: object) -> None:
        for pid in running:
            os.killpg(pid, signal.SIGINT)
        raise KeyboardInterrupt(signum)

    def report(number: int, step: Step, codes: list[int], seconds: float) -> None:
        count = result(step, codes)
        if step.skip_code is not None and codes[-1] == step.skip_code and count.skipped:
            skipped[step.name] = " ".join(tail(log_of(step), 1).split())
        took[step.name] = seconds
        verdict = "ok" if count.failed == 0 else "FAILED"
        summary = f"{count.passed} passed, {count.failed} failed, {len(count.skipped)} skipped"
        if tty:
            sys.stdout.write("\r\x1b[K")
        print(f"[{number}/{len(todo)}] {step.title}: {verdict} ({summary}, {seconds} s)")
        if count.failed:
            print(tail(log_of(step), 60))
            print(f"    (all of it: {log_of(step).relative_to(ROOT)})", flush=True)
            failed.add(step.name)
        total.add(count)

    signal.signal(signal.SIGTERM, interrupted)
    for number, step in enumerate(todo, 1):
        reason = skip_reason(step, skipped, failed)
        if reason is not None:
            if reason:
                skipped[step.name] = reason
                total.skipped.append(f"{step.name} ({step.title}): {reason}")
                print(f"[{number}/{len(todo)}] {step.title}: SKIPPED: {reason}", flush=True)
            continue
        if step.beside_next and not all(s.beside_next for s in todo[number:]):
            print(f"[{number}/{len(todo)}] {step.title}: beside what follows", flush=True)
            running_beside.append([])
            future = pool.submit(execute, step, lambda: None, running_beside[-1])
            beside.append((number, step, future))
            continue
        began = time.monotonic()
        last_plain = began

        def tick(number: int = number, step: Step = step, began: float = began) -> None:
            nonlocal last_plain
            now = time.monotonic()
            left = sum(expected[s.name] for s in todo[number:])
            left += max(0.0, expected[step.name] - (now - began))
            text = (
                f"[{number}/{len(todo)}] {step.title} ... "
                f"elapsed {minutes_text(now - start)}, about {minutes_text(left)} left"
            )
            if tty:
                sys.stdout.write("\r\x1b[K" + text)
                sys.stdout.flush()
            elif now - last_plain >= 20:
                last_plain = now
                print(text, flush=True)

        print(f"[{number}/{len(todo)}] {step.title}", end="" if tty else "\n", flush=True)
        try:
            codes, seconds = execute(step, tick, running)
            while wait([f for _, _, f in beside], timeout=1).not_done:
                tick()
        except KeyboardInterrupt:
            for _, _, future in beside:
                future.cancel()
            for pid in (*running, *itertools.chain(*running_beside)):
                os.killpg(pid, signal.SIGINT)
            for pid in running:
                os.waitpid(pid, 0)
            pool.shutdown()
            raise
        for its_number, its_step, future in beside:
            report(its_number, its_step, *future.result())
        beside.clear()
        report(number, step, codes, seconds)
    return total, took


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave the emulated network out")
    options = parser.parse_args(argv)
    if os.geteuid() != 0 and not options.quick:
        print("tests: no root; valid: run as root or with sudo, or --quick", file=sys.stderr)
        return 2
    # A shell's background job inherits an ignored SIGINT, and so would every test that sends one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    LOGS.mkdir(parents=True, exist_ok=True)
    learned = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    try:
        total, took = run_steps(steps(sys.executable, options.quick), learned)
    except KeyboardInterrupt:
        print("\ntests: interrupted", file=sys.stderr)
        return 130
    DURATIONS.write_text(json.dumps(took))
    for line in total.skipped:
        print(f"SKIPPED {line}")
    for line in total.second_tries:
        print(f"PASSED AT THE SECOND TRY {line}")
    if len(total.second_tries) > SECOND_TRIES:
        total.failed += 1
        found = len(total.second_tries)
        total.failures.append(f"{found} passed only at the second try; at most {SECOND_TRIES} may")
    for line in total.failures:
        print(f"FAILED {line}")
    print(f"{total.passed} passed, {total.failed} failed, {len(total.skipped)} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
