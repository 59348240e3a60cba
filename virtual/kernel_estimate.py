# SPDX-License-Identifier: Apache-2.0
"""The time left of a kernel's build, from its own rate so far and from earlier builds here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from common.quantities import duration_text
from virtual.kernel_cache import Build, built_in, read_directories

# Compiler calls and the like in a build, measured with 7.2 and 7.3; used if there is no earlier
# build.
TYPICAL_FILES: Final = 1280
# Without an earlier build: the share of a build from which on its own rate is a guide.
EARLY: Final = 0.05
# From this share on only its own rate counts: the machine may be busier than it was then.
OWN_RATE_FROM: Final = 0.3


@dataclass(frozen=True)
class Estimate:
    """`total_files`: how many a build makes; `usual_s`: what an earlier build took here, None
    without one."""

    total_files: int = TYPICAL_FILES
    usual_s: float | None = None

    def left_s(self, done: int, elapsed_s: float) -> float | None:
        """Return the seconds that are left after `done` files in `elapsed_s`; None: not yet known;
        0: it takes longer than expected."""
        share = done / self.total_files
        if share >= 1:
            return 0.0
        own = elapsed_s / share * (1 - share) if done else None
        if self.usual_s is None:
            return own if share >= EARLY else None
        usual = self.usual_s * (1 - share)
        weight = min(1.0, share / OWN_RATE_FROM)
        left = usual if own is None else weight * own + (1 - weight) * usual
        # The earlier build's time is over, and this one has hardly begun.
        return 0.0 if share < EARLY and elapsed_s > self.usual_s else left

    def line(self, done: int, elapsed_s: float) -> str:
        """Return the progress of a build, in words."""
        total = max(self.total_files, done)
        text = f"compiled {done} of about {total} files, {duration_text(elapsed_s)} elapsed"
        left = self.left_s(done, elapsed_s)
        if left is None:
            return text
        return f"{text}, about {rounded(left)} left" if left >= 1 else f"{text}, longer than usual"


def rounded(seconds: float) -> str:
    """Round a time left: to 5 s below a minute, to 10 s above; never 0."""
    step = 5 if seconds < 60 else 10
    return duration_text(max(1, round(seconds / step)) * step)


def learn(builds: Iterable[Build]) -> Estimate:
    """Estimate from the slowest of this machine's earlier builds."""
    own = [b for b in builds if b.origin == "built" and b.files > 0 and b.compile_s > 0]
    if not own:
        return Estimate()
    slowest = max(own, key=lambda b: b.compile_s / b.files)
    return Estimate(slowest.files, slowest.compile_s)


def learnt() -> Estimate:
    """Estimate from the kernels in this machine's caches."""
    entries = (built_in(path) for place in read_directories() for path in place.glob("*-*"))
    return learn(entry[1] for entry in entries if entry is not None)
