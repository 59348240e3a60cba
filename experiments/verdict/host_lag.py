# SPDX-License-Identifier: Apache-2.0
"""host-lag.json: what `hostlag` (experiments/lag) printed in each host. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict


class LateJson(TypedDict):
    """Lateness in nanoseconds."""

    p50: int
    p99: int
    max: int


class ClockJson(TypedDict):
    """The host's clocks over the run."""

    elapsed_ns: int
    raw_elapsed_ns: int
    resolution_ns: int
    look_ns: int
    shift_ns: int
    step_ns: int
    step_at_s: float


class HostLagJson(TypedDict):
    """What hostlag prints."""

    samples: int
    max_at_s: float
    cpu_ns: int
    late_ns: LateJson
    clock: ClockJson


@dataclass(frozen=True)
class HostLag:
    """How late one host's program ran after its timer, and what its clocks did meanwhile."""

    samples: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    max_at_s: float  # CLOCK_REALTIME
    resolution_ns: int  # of CLOCK_MONOTONIC
    look_ns: int  # least difference between two readings of it
    elapsed_s: float
    drift_ppm: float  # CLOCK_MONOTONIC against CLOCK_MONOTONIC_RAW
    shift_ms: float  # CLOCK_REALTIME against CLOCK_MONOTONIC, beginning to end
    step_ms: float  # largest change of that between two samples
    step_at_s: float
    cpu_s: float


def parse(raw: HostLagJson) -> HostLag:
    """Read what hostlag prints. Raises KeyError or TypeError for anything else."""
    late, clock = raw["late_ns"], raw["clock"]
    elapsed_ns, raw_ns = clock["elapsed_ns"], clock["raw_elapsed_ns"]
    return HostLag(
        samples=raw["samples"],
        p50_ms=late["p50"] / 1e6,
        p99_ms=late["p99"] / 1e6,
        max_ms=late["max"] / 1e6,
        max_at_s=raw["max_at_s"],
        resolution_ns=clock["resolution_ns"],
        look_ns=clock["look_ns"],
        elapsed_s=elapsed_ns / 1e9,
        drift_ppm=1e6 * (elapsed_ns - raw_ns) / raw_ns if raw_ns else 0.0,
        shift_ms=clock["shift_ns"] / 1e6,
        step_ms=clock["step_ns"] / 1e6,
        step_at_s=clock["step_at_s"],
        cpu_s=raw["cpu_ns"] / 1e9,
    )
