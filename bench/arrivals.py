# SPDX-License-Identifier: Apache-2.0
"""Streams of files: sizes and arrival times from a seed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.jobs import Job
from experiments.design.trace_model import QUANTILES

SIGMA: Final = 1.0  # of the logarithm of a log-normal size
SMALL_BYTES: Final = 100_000  # the largest "small" product: three quarters of NGRID's are smaller


@dataclass(frozen=True)
class Arrival:
    """A file that appears `time_s` after the stream's start."""

    name: str
    size_bytes: int
    time_s: float


def _sizes(job: Job, rng: np.random.Generator) -> list[int]:
    if job.sizes == "log-normal":
        # The mean of a log-normal is exp(mu + sigma^2 / 2).
        mu = np.log(job.size_bytes) - SIGMA**2 / 2
        drawn = rng.lognormal(mu, SIGMA, job.files)
    elif job.sizes == "ngrid":
        table = np.array([(p, size) for p, size, _ in QUANTILES if size <= SMALL_BYTES])
        at = rng.uniform(0.0, table[-1, 0], job.files)
        drawn = np.exp(np.interp(at, table[:, 0], np.log(table[:, 1])))
    else:
        raise ValueError(f"found sizes '{job.sizes}'; valid: log-normal, ngrid")
    return [max(1, round(float(size))) for size in drawn]


def arrivals(job: Job) -> list[Arrival]:
    """Return a Poisson process whose mean rate offers `offered_bps`."""
    rng = np.random.default_rng(job.seed)
    sizes = _sizes(job, rng)
    mean_gap_s = sum(sizes) * 8 / len(sizes) / job.offered_bps
    times = np.cumsum(rng.exponential(mean_gap_s, len(sizes)))
    return [
        Arrival(f"f{i:05d}", size, float(t))
        for i, (size, t) in enumerate(zip(sizes, times, strict=True))
    ]
