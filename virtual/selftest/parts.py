# SPDX-License-Identifier: Apache-2.0
"""`downpour virtual selftest --parts`: is a link between two guests as exact as one within a guest,
and is every run the same, whether the guests run at once or one after the other?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from common.places import absent_programs
from virtual.guest import GuestError, GuestSpec, guest_python
from virtual.kernel_build import Kernel
from virtual.parts.calendar import window_of
from virtual.parts.desk import Report
from virtual.parts.together import Together
from virtual.selftest.half import DELAY_NS, FILES, LOAD
from virtual.selftest.rows import Row

HALF: Final = ("-m", "virtual.selftest.half")
DIGEST: Final = "digest "
LIMIT_S: Final = 600.0
PROGRAMS: Final = ("cut-link", "selftest-udp")
# Whether the guests run at the same time, in the order of the runs.
RUNS: Final = (("at once", True), ("at once, again", True), ("one after the other", False))
SAME: Final = "the same nanoseconds: nothing depends on which guest is faster"


@dataclass(frozen=True)
class Run:
    """One run. `lines`: the rows of both guests as they were printed; `digests`: of the arrivals at
    a and b; `virtual_s`: of one guest."""

    lines: tuple[str, ...]
    digests: tuple[str, ...]
    report: Report
    virtual_s: float


def run(kernel: Kernel, *, at_once: bool) -> Run:
    """Run both halves. Raises GuestError."""
    window_ns = window_of([DELAY_NS])
    specs = [
        GuestSpec((guest_python(), *HALF, name, str(window_ns)), limit_s=LIMIT_S)
        for name in sorted(FILES)
    ]
    with Together(kernel, specs, sorted(FILES.values()), window_ns, at_once=at_once) as parts:
        codes = parts.wait()
        texts = [(one.exchange / "stdout").read_text() for one in parts.guests]
        for code, one in zip(codes, parts.guests, strict=True):
            if code != 0:
                said = (one.exchange / "stderr").read_text(errors="replace").strip()
                raise GuestError(f"in a guest, exit code {code}: {said[-500:]}")
        lines = [line for text in texts for line in text.splitlines()]
        return Run(
            tuple(line for line in lines if not line.startswith(DIGEST)),
            tuple(line.removeprefix(DIGEST) for line in lines if line.startswith(DIGEST)),
            parts.report(),
            parts.guests[0].times.virtual_s,
        )


def fill(take: Callable[[str], None], add: Callable[[Row], None], kernel: Kernel) -> dict[str, Any]:
    """Hand over rows, as lines of JSON or as they are; return facts. Raises GuestError."""
    if absent := absent_programs(PROGRAMS):
        raise GuestError(absent)
    first = None
    real_s = 0.0
    for name, at_once in RUNS:
        found = run(kernel, at_once=at_once)
        real_s += found.report.real_s
        if first is None:
            first = found
            for line in found.lines:
                take(line)
            continue
        differ = sum(a != b for a, b in zip(first.digests, found.digests, strict=True))
        differ += first.lines != found.lines
        test = f"guests {name}: other arrivals of {LOAD.frames}"
        add(Row(test, "results", 0, differ, 0, 0, SAME))
    assert first is not None
    return {
        "kernel": kernel.version,
        "virtual_s": first.virtual_s * len(RUNS),
        "real_s": real_s,
        "windows": first.report.windows,
        "running_s": first.report.running_s,
        "longest_s": first.report.longest_s,
    }
