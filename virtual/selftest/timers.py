# SPDX-License-Identifier: Apache-2.0
"""Timers of the kernel and of programs against theory."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from virtual.selftest import parse, theory
from virtual.selftest.rows import Row

PAST_BOOT_S: Final = 10.0
YEAR_2020_S: Final = 1_577_836_800
A_LONG_TIME_S: Final = 1e10
SHELL_LOOPS: Final = 200
LOOPS: Final = 1000

NEVER_EARLY: Final = (
    "high-resolution timer: never early; as late as the task's timer slack (the kernel expires "
    "timers together), and 5 us: clock readings (256 ns each), the shortest timer (500 ns)"
)
NO_SLACK: Final = "high-resolution timer without slack: never early, 5 us for clock readings"
SELECT: Final = (
    "poll, select and epoll_wait may be 0.1 % late (fs/select.c), and 5 us for clock readings"
)
WHEEL: Final = (
    "timer wheel: never early; rounded up to a tick, then as late as its granularity (1 tick below "
    "63 ticks, 8 below 504, 64 below 4032, kernel/time/timer.c), and 5 us"
)
FAILED: Final = "a failed system call takes 1 us, in some kernels (6.1) no time"
CHARGE: Final = (
    "exact: the clock advances by 256 ns when it is read, by 1 us at a failed system call, else not"
)
SAME_CLOCK: Final = "each clock is read once more: 1 us"
PYTHON: Final = (
    "the timer's slack, and 1 ms for failed system calls (1 us each) and clock readings of the "
    "program"
)


@dataclass(frozen=True)
class Timing:
    """How this kernel keeps time: the length of a tick and the slack of a task's timers."""

    tick_s: float
    slack_s: float


def timing(found: list[parse.Probe]) -> Timing:
    """Read the kernel's timing from the probes. Raises KeyError if selftest-timers did not report
    it."""
    said = {probe.name: probe.measured_ns / 1e9 for probe in found}
    return Timing(said["tick"], said["slack"])


def late(test: str, asked_s: float, measured_s: float, above_s: float, reason: str) -> Row:
    """Return the row of a wait that must not be early."""
    return Row(test, "ms", asked_s * 1e3, measured_s * 1e3, 0.0, above_s * 1e3, reason)


def probe_rows(found: list[parse.Probe], kernel: Timing) -> list[Row]:
    """Return the rows of selftest-timers' output. Raises ValueError for a name it does not know."""
    rows = []
    for probe in found:
        if probe.name not in ("tick", "slack"):
            row = _wait_row(probe, kernel)
            rows.append(_clock_row(probe) if row is None else row)
    return rows


def _wait_row(probe: parse.Probe, kernel: Timing) -> Row | None:
    """Return the row of a wait; None for a probe of another kind."""
    asked_s, measured_s = probe.asked_ns / 1e9, probe.measured_ns / 1e9
    handling_s, slack_s = theory.HANDLING_S, kernel.slack_s
    text = f"{asked_s * 1e3:g} ms"
    match probe.name:
        case "nanosleep" | "clock_nanosleep":
            form = " (absolute)" if probe.name == "clock_nanosleep" else ""
            name = f"{probe.name} {text}{form}"
            return late(name, asked_s, measured_s, slack_s + handling_s, NEVER_EARLY)
        case "nanosleep-1000":
            above_s = LOOPS * (slack_s + theory.CLOCK_READ_S)
            return late(
                "nanosleep 1 ms, 1000 times (slack adds up)", asked_s, measured_s, above_s,
                "1000 times the slack, and a reading of the clock each",
            )  # fmt: skip
        case "clock_nanosleep-1000":
            name = "clock_nanosleep every 1 ms, 1000 times"
            return late(name, asked_s, measured_s, slack_s + handling_s, NEVER_EARLY)
        case "poll" | "select" | "epoll_wait":
            above_s = theory.select_slack_s(asked_s, slack_s) + handling_s
            return late(f"{probe.name} {text}", asked_s, measured_s, above_s, SELECT)
        case "SO_RCVTIMEO":
            above_s = theory.wheel_late_s(asked_s, kernel.tick_s)
            return late(f"SO_RCVTIMEO {text}", asked_s, measured_s, above_s, WHEEL)
        case "timerfd" | "setitimer" | "timer_create":
            return late(f"{probe.name} {text}", asked_s, measured_s, handling_s, NO_SLACK)
        case "timerfd-100" | "setitimer-100":
            name = f"{probe.name.split('-')[0]} every 10 ms, 100 times"
            return late(name, asked_s, measured_s, handling_s, NO_SLACK)
        case "spin":
            return late(
                "a program that reads the clock until 5 ms", asked_s, measured_s, handling_s, CHARGE
            )
        case "signal-in-spin":
            name = "setitimer 2 ms, signal while it does so"
            return late(name, asked_s, measured_s, handling_s, NO_SLACK)
        case _:
            return None


def _clock_row(probe: parse.Probe) -> Row:
    """Return the row of a probe that reads clocks. Raises ValueError for an unknown name."""
    measured_s = probe.measured_ns / 1e9
    match probe.name:
        case "clock-read":
            return Row(
                "1000 readings of the clock, each",
                "ns",
                theory.CLOCK_READ_S * 1e9,
                probe.measured_ns,
                1,
                1,
                CHARGE,
            )
        case "failed-call":
            charge_ns = theory.FAILED_CALL_S * 1e9
            return Row(
                "1000 failed system calls, each", "ns",
                charge_ns, probe.measured_ns, charge_ns, 1, FAILED,
            )  # fmt: skip
        case "good-call":
            return Row("1000 good system calls, each", "ns", 0, probe.measured_ns, 0, 1, CHARGE)
        case "computing":
            return Row(
                "20 million multiplications", "ns", 0, probe.measured_ns, 0, 1000, SAME_CLOCK
            )
        case "raw-beside-monotonic" | "real-beside-monotonic":
            clock = "RAW" if probe.name.startswith("raw") else "REALTIME"
            name = f"CLOCK_{clock} beside MONOTONIC, 10 s"
            return Row(name, "ns", probe.asked_ns, probe.measured_ns, 1000, 1000, SAME_CLOCK)
        case "raw-at-start":
            return Row(
                f"clock since boot when programs start: past {PAST_BOOT_S:g} s", "s",
                PAST_BOOT_S, measured_s, 0, A_LONG_TIME_S,
                "at least: ping (before 20231222) does not wait while the clock is below 1 s; "
                "Open vSwitch counts processors by a value that it keeps for 10 s",
            )  # fmt: skip
        case "real-at-start":
            return Row(
                "wall clock: past 2020-01-01", "s", YEAR_2020_S, measured_s, 0, A_LONG_TIME_S,
                "at least: names and time stamps of products hold dates",
            )  # fmt: skip
        case name:
            raise ValueError(
                f"found probe '{name}'; valid: one that virtual/selftest/timers.py knows"
            )


def _timed(action: Callable[[], object]) -> float:
    began = time.monotonic_ns()
    action()
    return (time.monotonic_ns() - began) / 1e9


def _expires(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    try:
        process.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return
    raise ValueError("the process ended before its time")


def python_rows(kernel: Timing) -> Iterator[Row]:
    """Measure Python's own waits."""
    above_s = kernel.slack_s + 1e-3
    sleep_s, event_s, wait_s = 0.020, 0.250, 0.700
    yield late(
        "Python time.sleep 20 ms", sleep_s, _timed(lambda: time.sleep(sleep_s)), above_s, PYTHON
    )
    event = threading.Event()
    yield late(
        "Python threading.Event.wait 250 ms",
        event_s,
        _timed(lambda: event.wait(event_s)),
        above_s,
        PYTHON,
    )
    with subprocess.Popen(["sleep", "30"]) as process:
        measured_s = _timed(lambda: _expires(process, wait_s))
        process.kill()
    yield late("Python subprocess wait, timeout 700 ms", wait_s, measured_s, above_s, PYTHON)
    with subprocess.Popen(["sleep", "1.5"]) as process:
        measured_s = _timed(process.wait)
    yield late("Python subprocess wait for `sleep 1.5`", 1.5, measured_s, above_s + 1e-3, PYTHON)


def program_rows(kernel: Timing) -> Iterator[Row]:
    """Measure programs of the system that wait: sleep, sar, timeout."""
    loops = SHELL_LOOPS
    script = f"i=0; while [ $i -lt {loops} ]; do sleep 0.001; i=$((i+1)); done"
    measured_s = _timed(lambda: subprocess.run(["sh", "-c", script], check=True))
    yield late(
        f"`sleep 0.001` in a shell, {loops} times", loops * 1e-3, measured_s,
        loops * (kernel.slack_s + 150e-6),
        "each: the slack, and 150 us for failed system calls of a program's start (1 us each)",
    )  # fmt: skip
    measured_s = _timed(lambda: subprocess.run(["timeout", "2", "sleep", "30"], check=False))
    yield late("`timeout 2 sleep 30`", 2.0, measured_s, 2e-3, PYTHON)
    yield from _sar_rows()


def _sar_rows() -> Iterator[Row]:
    lines = 5
    reason = "sar's alarm every second: its start (failed system calls, 1 us each) within 10 ms"
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "S_TIME_FORMAT": "ISO"}
    texts: list[str] = []

    def sar() -> None:
        argv = ["sar", "-u", "1", str(lines)]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, env=env)
        texts.append(done.stdout)

    try:
        measured_s = _timed(sar)
    except (OSError, subprocess.CalledProcessError) as error:
        yield Row(f"`sar 1 {lines}`", "ms", lines * 1e3, None, 0, 0, reason, f"sar: {error}")
        return
    yield late(f"`sar 1 {lines}`, to its end", float(lines), measured_s, 10e-3, reason)
    times = parse.sar_times_s(texts[0])
    steps = [(b - a) % 86400 for a, b in zip(times, times[1:], strict=False)]
    yield Row(
        f"`sar 1 {lines}`: steps of 1 s in its lines", "steps", lines - 1, steps.count(1), 0, 0,
        "counted",
    )  # fmt: skip


def probe(program: str) -> list[parse.Probe]:
    """Run selftest-timers. Raises CalledProcessError, OSError, ValueError."""
    done = subprocess.run(
        [program], check=True, stdout=subprocess.PIPE, stderr=sys.stderr, text=True
    )
    return parse.probes(done.stdout)
