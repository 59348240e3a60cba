# SPDX-License-Identifier: Apache-2.0
"""What timers and shapers must do, derived from their definitions (pure).

Times in seconds, rates in bit/s, sizes in bytes. Sources: the kernel's kernel/time/timer.c (timer
wheel), fs/select.c (slack), net/ipv4/tcp_timer.c, net/sched/sch_{netem,htb,tbf}.c and
net/openvswitch/meter.c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

HEADERS_BYTES: Final = (
    14 + 20 + 8
)  # Ethernet, IPv4, UDP: what a queueing discipline counts beside the payload
CLOCK_READ_S: Final = 256e-9  # what one reading of the clock costs a guest (TIMER_MULTIPLIER)
FAILED_CALL_S: Final = 1e-6  # what a system call that fails costs a guest
# Some readings of the clock before and after, and the shortest time of a guest's timer (500 ns).
HANDLING_S: Final = 5e-6

# Timer wheel: level n takes timers less than WHEEL_TICKS[n] ticks away, and looks every 8^n ticks.
WHEEL_TICKS: Final = tuple(63 * 8**level for level in range(8))


def ticks_of(timeout_s: float, tick_s: float) -> int:
    """Return a time-out in ticks of the kernel, rounded up."""
    return math.ceil(timeout_s / tick_s - 1e-9)


def wheel_granularity_ticks(ticks: int) -> int:
    """Return the timer wheel's granularity for a time-out of that many ticks."""
    for level, end in enumerate(WHEEL_TICKS):
        if ticks < end:
            return int(8**level)
    raise ValueError(f"found {ticks} ticks; valid: below {WHEEL_TICKS[-1]}")


def wheel_late_s(timeout_s: float, tick_s: float) -> float:
    """Return how late a timer of the wheel may be; it is never early. Its ticks are rounded up,
    then comes the next multiple of the level's granularity, and then its handling."""
    ticks = ticks_of(timeout_s, tick_s)
    return (ticks + wheel_granularity_ticks(ticks)) * tick_s - timeout_s + HANDLING_S


def wheel_repeat_s(timeout_s: float, tick_s: float) -> float:
    """Return the length of a time-out that is armed again as soon as it has expired: it begins at a
    multiple of the granularity and ends at the first multiple after its end."""
    ticks = ticks_of(timeout_s, tick_s)
    granularity = wheel_granularity_ticks(ticks)
    return (ticks // granularity + 1) * granularity * tick_s


def select_slack_s(timeout_s: float, timer_slack_s: float) -> float:
    """Return how late poll, select and epoll_wait may be: 0.1 % (at most 100 ms), or as much as any
    timer of the task."""
    return max(min(timeout_s * 0.001, 0.1), timer_slack_s)


def syn_intervals_s(count: int, linear: int) -> list[float]:
    """Return the times between a SYN and its retransmissions: `linear` time-outs of 1 s come after
    the first (net.ipv4.tcp_syn_linear_timeouts), then each is twice the one before."""
    return [1.0 * 2 ** max(0, n - linear) for n in range(count)]


def rto_intervals_s(count: int, first_s: float) -> list[float]:
    """Return the times between the transmissions of a segment that is never acknowledged."""
    return [first_s * 2**n for n in range(count)]


def frame_bytes(payload_bytes: int) -> int:
    """Return the bytes that a queueing discipline counts for a datagram."""
    return payload_bytes + HEADERS_BYTES


def netem_rate_span_s(frames: int, size_bytes: int, rate_bps: float) -> float:
    """Return the time from first to last arrival of frames that were queued together: each takes
    the time of its own length."""
    return (frames - 1) * size_bytes * 8 / rate_bps


def htb_span_s(frames: int, size_bytes: int, rate_bps: float, burst_bytes: int) -> float:
    """Return the time from first to last arrival through an HTB class (ceil = rate) with a full
    bucket: a frame may go while the bucket is not negative, whatever the frame's length."""
    return max(0.0, ((frames - 1) * size_bytes - burst_bytes) * 8 / rate_bps)


def tbf_span_s(frames: int, size_bytes: int, rate_bps: float, burst_bytes: int) -> float:
    """Return the time from first to last arrival through a TBF with a full bucket: a frame waits
    for all its tokens."""
    return max(0.0, (frames * size_bytes - burst_bytes) * 8 / rate_bps)


@dataclass(frozen=True)
class Offer:
    """Frames of one size at a constant pace, for `seconds`."""

    frames: int
    size_bytes: int
    interval_s: float

    @property
    def seconds(self) -> float:
        """Return the seconds that bytes take at the rate."""
        return (self.frames - 1) * self.interval_s


def meter_frames(offer: Offer, rate_bps: float, burst_bits: float) -> float:
    """Return how many frames an OpenFlow meter lets pass when more is offered than it allows: the
    full bucket, and what flows in until the last frame."""
    passed = (burst_bits + rate_bps * offer.seconds) / (offer.size_bytes * 8)
    return min(float(offer.frames), passed)
