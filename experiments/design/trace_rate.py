# SPDX-License-Identifier: Apache-2.0
"""Compute the rate that a stream of files needs, from a first-come, first-served queue that is
emptied at one rate, and the share of the files that FMTP delivers from it.

Each file of S bytes enters at its time in the trace and takes 8 S x OVERHEAD / r to send, after all
files before it. Its latency is its wait plus its sending time. The buffer must hold what is in the
queue just after it entered (MPUP16 II: the Control Module selects a rate from the traffic). Loss,
retransmissions and propagation come on top of these latencies.

`delivery_ratio` adds loss where files wait in traffic control, as in the papers (b_snd). FMTP has
handed over a file as soon as it enters, so tau_snd (MPUP16 eq. 1) runs while the file waits. FMTP
does not deliver a file that loses a block sent too late to be requested in time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

BLOCK_BYTES: Final = 1448  # of FMTP
# Ethernet, IPv4, UDP and FMTP headers of a block, as tc counts a frame.
OVERHEAD: Final = (BLOCK_BYTES + 14 + 20 + 8 + 12) / BLOCK_BYTES
RATE_MOST_BPS: Final = 10**13
PRECISION: Final = 1e-4


@dataclass(frozen=True)
class Arrival:
    """A file that enters the queue; times count from the first file."""

    time_s: float
    size_bytes: int


@dataclass(frozen=True)
class Served:
    """What a rate achieves: latencies of all files in order of arrival, and the fullest queue."""

    rate_bps: float
    latencies_s: tuple[float, ...]
    buffer_bytes: float

    @property
    def latency_s(self) -> float:
        """Return the longest latency."""
        return max(self.latencies_s)

    def quantile_s(self, share: float) -> float:
        """Return the latency that `share` of the files do not exceed."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def serve(arrivals: Sequence[Arrival], rate_bps: float) -> Served:
    """Empty the queue at one rate. `arrivals`: in order of time, at least one."""
    free_s, latencies, fullest = 0.0, [], 0.0
    for arrival in arrivals:
        begin_s = max(free_s, arrival.time_s)
        free_s = begin_s + 8 * OVERHEAD * arrival.size_bytes / rate_bps
        latencies.append(free_s - arrival.time_s)
        # What is left of the files before, and this file.
        fullest = max(fullest, (free_s - arrival.time_s) * rate_bps / 8)
    return Served(rate_bps, tuple(latencies), fullest)


def rate_for(
    arrivals: Sequence[Arrival], latency_s: float | None, buffer_bytes: float | None
) -> Served | None:
    """Return the result of the least rate at which no file takes longer than `latency_s` and the
    queue never holds more than `buffer_bytes`. None if no rate does, as a file is larger."""

    def holds(served: Served) -> bool:
        return (latency_s is None or served.latency_s <= latency_s) and (
            buffer_bytes is None or served.buffer_bytes <= buffer_bytes
        )

    most = serve(arrivals, RATE_MOST_BPS)
    if not holds(most):
        return None
    low, found = 1.0, most
    while found.rate_bps > low * (1 + PRECISION):
        middle = serve(arrivals, (low * found.rate_bps) ** 0.5)
        if holds(middle):
            found = middle
        else:
            low = middle.rate_bps
    return found


@dataclass(frozen=True)
class Repairs:
    """What determines whether FMTP repairs a block. `loss`: of each packet, at each receiver."""

    loss: float
    f_snd: float
    round_trips_s: tuple[float, ...]  # of the receivers


def delivery_ratio(arrivals: Sequence[Arrival], rate_bps: float, repairs: Repairs) -> float:
    """Return the share of files that FMTP delivers, the mean over the receivers (MPUP16 eq. 4);
    `arrivals` in order of time, at least one."""
    return math.fsum(
        _delivered(arrivals, rate_bps, repairs, round_trip_s)
        for round_trip_s in repairs.round_trips_s
    ) / (len(repairs.round_trips_s) * len(arrivals))


def _delivered(
    arrivals: Sequence[Arrival], rate_bps: float, repairs: Repairs, round_trip_s: float
) -> float:
    """Return the expected number of files at a receiver whose blocks were all sent in time."""
    longest_s = max(repairs.round_trips_s)
    free_s, found = 0.0, []
    for arrival in arrivals:
        blocks = math.ceil(arrival.size_bytes / BLOCK_BYTES)
        block_s = 8 * OVERHEAD * arrival.size_bytes / blocks / rate_bps
        begin_s = max(free_s, arrival.time_s)
        free_s = begin_s + blocks * block_s
        tau_s = max(repairs.f_snd * 8 * arrival.size_bytes / rate_bps, longest_s)
        # The request for a block comes a round trip after it left.
        in_time_s = arrival.time_s + tau_s - round_trip_s - begin_s
        late = blocks - min(blocks, max(0, math.floor(in_time_s / block_s)))
        found.append((1 - repairs.loss) ** late)
    return math.fsum(found)
