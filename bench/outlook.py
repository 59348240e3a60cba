# SPDX-License-Identifier: Apache-2.0
"""Predict what FMTP's sender sends for a thousand receivers and more. fmtp/tests/outlook.c measures
it on a simulated network; this module fits the results against m and p, and extrapolates. Pure
except `simulate`.

The fit is cost = a + b x by least squares of relative errors. For each way of repair, x is:
- by unicast, and by sending the lost blocks again: m p, what all receivers together lose;
- by parity: the expected largest of m binomial losses of a product's n blocks, divided by n, as one
  parity block repairs a lost block of every receiver.
An interval is the 95 % prediction interval (Student's t) of a further point.
"""

from __future__ import annotations

import functools
import math
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from scipy import stats

Repair = Literal["unicast", "blocks", "parity"]
REPAIRS: Final[tuple[Repair, ...]] = ("unicast", "blocks", "parity")
RECEIVERS: Final = (1, 4, 16, 64, 256, 1000)
LOSSES: Final = (0.001, 0.01, 0.05)
HELD_OUT: Final = 1000  # measured, but first predicted from the smaller groups
FAR: Final = 10_000
PRODUCTS: Final = 20
SIZE_BYTES: Final = 153_000  # the mean size in the papers' hour
BLOCK_BYTES: Final = 1448
STREAM_BPS: Final = 12.3e6  # the mean rate of that hour
REPAIR_BPS: Final = 20e6  # r_uc of most experiments
LINK_BPS: Final = 1e9
CONFIDENCE: Final = 0.95
PROGRAM: Final = "fmtp/outlook"


@dataclass(frozen=True)
class Sample:
    """One simulation."""

    repair: Repair
    receivers: int
    loss: float
    cost: float  # bytes that the sender sent, for each byte of the products
    messages_per_s: float  # messages that reach the sender


@dataclass(frozen=True)
class Fit:
    """A line cost = a + b x, and what its prediction intervals need."""

    a: float
    b: float
    inverse: np.ndarray  # of the weighted normal equations
    deviation: float  # of relative errors
    freedom: int

    def predict(self, x: float) -> tuple[float, float, float]:
        """Return the cost, and the ends of its prediction interval."""
        cost = self.a + self.b * x
        row = np.array([1.0, x]) / cost
        spread = self.deviation * math.sqrt(1 + float(row @ self.inverse @ row))
        half = cost * spread * float(stats.t.ppf(0.5 + CONFIDENCE / 2, self.freedom))
        return cost, cost - half, cost + half


@functools.cache
def largest_loss(receivers: int, loss: float, blocks: int) -> float:
    """Return the expected largest of `receivers` binomial losses of `blocks` blocks."""
    below = stats.binom.cdf(np.arange(blocks), blocks, loss)
    return float(np.sum(1 - below**receivers))


def term(repair: Repair, receivers: int, loss: float) -> float:
    """Return x of a way of repair."""
    if repair != "parity":
        return receivers * loss
    blocks = math.ceil(SIZE_BYTES / BLOCK_BYTES)
    return largest_loss(receivers, loss, blocks) / blocks


def fit(samples: Sequence[Sample]) -> Fit:
    """Fit the samples of one way of repair. Raises ValueError for fewer than 3."""
    if len(samples) < 3:
        raise ValueError(f"found {len(samples)} samples; valid: 3 or more")
    cost = np.array([s.cost for s in samples])
    rows = np.array([[1.0, term(s.repair, s.receivers, s.loss)] for s in samples]) / cost[:, None]
    inverse = np.linalg.inv(rows.T @ rows)
    a, b = inverse @ rows.T @ np.ones(len(samples))
    errors = 1 - rows @ np.array([a, b])
    freedom = len(samples) - 2
    return Fit(float(a), float(b), inverse, math.sqrt(float(errors @ errors) / freedom), freedom)


def command(build: Path, repair: Repair, receivers: int, loss: float) -> list[str]:
    """Return the command of one simulation."""
    words = (receivers, loss, repair, 1, PRODUCTS, SIZE_BYTES)
    return [str(build / PROGRAM), *map(str, words)]


def sample_of(repair: Repair, loss: float, printed: str) -> Sample:
    """Read what a simulation printed. Raises ValueError if something is missing."""
    try:
        words = {name: int(value) for name, value in (w.split("=") for w in printed.split())}
        lasts_s = 8 * words["product_bytes"] / STREAM_BPS
        cost = words["sent_bytes"] / words["product_bytes"]
        messages = (words["requests"] + words["acks"]) / lasts_s
        return Sample(repair, words["receivers"], loss, cost, messages)
    except (KeyError, ValueError, ZeroDivisionError) as error:
        raise ValueError(f"found {printed!r:.200}; valid: what outlook prints") from error


def simulate(build: Path) -> Iterator[Sample]:
    """Run all simulations, small groups first. Raises CalledProcessError."""
    for receivers in RECEIVERS:
        for loss in LOSSES:
            for repair in REPAIRS:
                argv = command(build, repair, receivers, loss)
                done = subprocess.run(argv, check=True, capture_output=True, text=True)
                yield sample_of(repair, loss, done.stdout)


def most_receivers(found: Fit, repair: Repair, loss: float, most_cost: float) -> int:
    """Return up to how many receivers the cost stays within a bound (0: not even for one)."""
    low, high = 0, 10_000_000
    while low < high:
        middle = (low + high + 1) // 2
        fits = found.a + found.b * term(repair, middle, loss) <= most_cost
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def _interval(found: tuple[float, float, float]) -> str:
    return f"{found[0]:,.4g} [{found[1]:,.4g}, {found[2]:,.4g}]"


def _many(receivers: int) -> str:
    return "beyond 1,000,000" if receivers > 1_000_000 else f"{receivers:,}"


def tables(samples: Sequence[Sample]) -> str:
    """Return the outlook as Markdown tables."""
    lines = [
        "Cost is bytes that the sender sends for each byte of the products.",
        "Predictions have 95 % intervals; the one for 1,000 receivers uses smaller groups only.",
        "",
        "| repair | p | cost, m = 64 | 1,000, predicted | 1,000, measured | 10,000, predicted |",
        "|---|---|---|---|---|---|",
    ]
    breaks = [
        "| repair | p | repairs fill 20 Mbit/s at m | the sender fills 1 Gbit/s at m |",
        "|---|---|---|---|",
    ]
    for repair in REPAIRS:
        own = [s for s in samples if s.repair == repair]
        near, whole = fit([s for s in own if s.receivers < HELD_OUT]), fit(own)
        for loss in LOSSES:
            cost = {s.receivers: s.cost for s in own if s.loss == loss}
            ends = (
                f"{cost[64]:.3f}",
                _interval(near.predict(term(repair, HELD_OUT, loss))),
                f"{cost[HELD_OUT]:,.4g}",
                _interval(whole.predict(term(repair, FAR, loss))),
            )
            lines.append(f"| {repair} | {100 * loss:g} % | {' | '.join(ends)} |")
            bounds = (
                most_receivers(whole, repair, loss, whole.a + REPAIR_BPS / STREAM_BPS),
                most_receivers(whole, repair, loss, LINK_BPS / STREAM_BPS),
            )
            breaks.append(f"| {repair} | {100 * loss:g} % | {' | '.join(map(_many, bounds))} |")
    messages = ["| repair | p | messages to the sender, m = 64 | 1,000 |", "|---|---|---|---|"]
    for repair in REPAIRS:
        for loss in LOSSES:
            at = {
                s.receivers: s.messages_per_s
                for s in samples
                if (s.repair, s.loss) == (repair, loss)
            }
            messages.append(
                f"| {repair} | {100 * loss:g} % | {at[64]:,.0f} /s | {at[HELD_OUT]:,.0f} /s |"
            )
    return "\n".join([*lines, "", *breaks, "", *messages]) + "\n"
