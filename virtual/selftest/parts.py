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
from virtual.parts.links import LinkFile
from virtual.parts.machines import Work, hire, sameness
from virtual.parts.together import Together
from virtual.selftest.half import DELAY_NS, FILES, LOAD
from virtual.selftest.rows import Row

HALF: Final = ("-m", "virtual.selftest.half")
DIGEST: Final = "digest "
LIMIT_S: Final = 600.0
PROGRAMS: Final = ("cut-link", "selftest-udp")
ALONE: Final = "at once"
AWAY: Final = "on two machines"
# Whether the guests run at the same time, in the order of the runs.
RUNS: Final = {ALONE: True, "at once, again": True, "one after the other": False}
SAME: Final = "the same nanoseconds: nothing depends on which guest is faster"


@dataclass(frozen=True)
class Run:
    """One run. `lines`: the rows of both guests as they were printed; `digests`: of the arrivals at
    a and b; `virtual_s`: of one guest."""

    lines: tuple[str, ...]
    digests: tuple[str, ...]
    report: Report
    virtual_s: float


def run(kernel: Kernel, *, at_once: bool, machine: str = "") -> Run:
    """Run both halves, the second at `machine` if there is one. Raises GuestError."""
    window_ns = window_of([DELAY_NS])
    specs = {
        part: GuestSpec((guest_python(), *HALF, name, str(window_ns)), limit_s=LIMIT_S)
        for part, name in enumerate(FILES)
    }
    links = [LinkFile(FILES["a"], 0, 1), LinkFile(FILES["b"], 1, 0)]
    far = []
    if machine:
        same = sameness(kernel)
        far = hire(
            [machine], lambda share: Work(same, window_ns, links, share, {}), {1: specs.pop(1)}
        )
    with Together(kernel, specs, links, window_ns, at_once=at_once, far=far) as parts:
        codes = parts.wait()
        outputs = [parts.output(part) for part in range(len(codes))]
        for code, (_, said) in zip(codes, outputs, strict=True):
            if code != 0:
                raise GuestError(f"in a guest, exit code {code}: {said.strip()[-500:]}")
        lines = [line for text, _ in outputs for line in text.splitlines()]
        return Run(
            tuple(line for line in lines if not line.startswith(DIGEST)),
            tuple(line.removeprefix(DIGEST) for line in lines if line.startswith(DIGEST)),
            parts.report(),
            parts.guests[0].times.virtual_s,
        )


def fill(
    take: Callable[[str], None], add: Callable[[Row], None], kernel: Kernel, machine: str = ""
) -> dict[str, Any]:
    """Hand over rows, as lines of JSON or as they are; return facts. `machine`: compare with a run
    whose second guest is there. Raises GuestError."""
    if absent := absent_programs(PROGRAMS):
        raise GuestError(absent)
    first = None
    runs = {ALONE: True, AWAY: True} if machine else RUNS
    reports = {}
    for name, at_once in runs.items():
        found = run(kernel, at_once=at_once, machine=machine if name == AWAY else "")
        reports[name] = found.report
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
        "virtual_s": first.virtual_s * len(runs),
        "real_s": sum(report.real_s for report in reports.values()),
        "window_ms": {n: one.real_s / one.windows * 1e3 for n, one in reports.items()},
        "windows": first.report.windows,
        "running_s": first.report.running_s,
        "longest_s": first.report.longest_s,
    }
