# SPDX-License-Identifier: Apache-2.0
"""Lab 3: measure what the student's meter and shaper let pass."""

from __future__ import annotations

import time
from typing import Final

from common.counting import counted
from labs.checking import Context, Outcome, failed, passed
from labs.live import Seen, Traffic

FRAME_BYTES: Final = 1000
SECONDS: Final = 3.0
SETTLED_S: Final = 1.5  # a bucket of a second's worth is used up at twice the rate after one
REFILL_S: Final = 5.0  # silence that fills a bucket and empties a queue at pub
TOLERANCE: Final = 0.05
TIMES: Final = 4
SHAPED_FRAMES: Final = 900  # half of them wait at pub: less than the 1000 that its queue holds
BURST_FRAMES: Final = 100  # for the question about the delay
LEAST_SHAPED: Final = 0.8  # of the meter's rate
DROPPED_TOLERANCE: Final = 5  # natively a burst takes milliseconds, during which the bucket refills
DELAY_TOLERANCE: Final = 0.05


def _offer(context: Context, *, past_queues: bool, frames: int | None = None) -> Seen:
    """Send at twice the meter's rate, for SECONDS or `frames`; return what became of it."""
    interval_s = FRAME_BYTES * 8 / (2000 * context.integer("meter_kbps"))
    time.sleep(REFILL_S)
    return context.live.stream(
        "pub",
        ("east",),
        Traffic(
            frames or int(SECONDS / interval_s),
            interval_s=interval_s,
            frame_bytes=FRAME_BYTES,
            settle_s=0.5 if past_queues else 4.0,
        ),
        past_queues=past_queues,
    )


def _burst(context: Context, frames: int, *, past_queues: bool) -> Seen:
    time.sleep(REFILL_S)
    return context.live.stream(
        "pub",
        ("east",),
        Traffic(frames, interval_s=0, frame_bytes=FRAME_BYTES, settle_s=3.0),
        past_queues=past_queues,
    )


def _is_metered(context: Context) -> bool:
    """Return whether some of a stream at twice the rate is lost when nothing shapes it."""
    return _offer(context, past_queues=True).lost("east") > 0


def path(context: Context) -> Outcome:
    """Check that the path carries frames at all."""
    seen = context.live.stream("pub", ("east",), Traffic(20, interval_s=0.05))
    tried, expected = "20 small datagrams from pub, one every 50 ms", "20 at east"
    found = f"{seen.received('east')} at east"
    if seen.received("east") == 20:
        return passed(tried, expected, found)
    return failed(tried, expected, found, "broken")


def meter_rate(context: Context) -> Outcome:
    """Check the meter's rate by sending twice as much."""
    asked = context.integer("meter_kbps") * 1000
    seen = _offer(context, past_queues=True)
    got = seen.rate_bps("east", FRAME_BYTES, SETTLED_S)
    tried = f"{2 * asked / 1e6:g} Mbit/s for {SECONDS:g} s, past all queues of pub"
    expected = f"{asked / 1e6:g} Mbit/s at east after {SETTLED_S:g} s, ±{TOLERANCE:.0%}"
    found = f"{got / 1e6:.3f} Mbit/s, {seen.lost('east')} of {seen.sent} frames lost"
    if abs(got / asked - 1) <= TOLERANCE:
        return passed(tried, expected, found)
    if not seen.lost("east"):
        return failed(tried, expected, found, "no-meter")
    if not seen.received("east"):
        return failed(tried, expected, found, "broken")
    return failed(tried, expected, found, "units" if got < asked / 5 else "other")


def burst_passes(context: Context) -> Outcome:
    """Check that the meter passes the requested burst."""
    frames = context.integer("burst_frames")
    tried = f"{frames} frames of {FRAME_BYTES} bytes at once, past all queues of pub"
    expected = f"all {frames} at east, and a meter that limits longer traffic"
    got = _burst(context, frames, past_queues=True).received("east")
    if got < frames:
        return failed(tried, expected, f"{got} at east", "small")
    if not _is_metered(context):
        return failed(tried, expected, f"{got} at east, and no limit", "no-meter")
    return passed(tried, expected, f"{got} at east")


def burst_bounded(context: Context) -> Outcome:
    """Check that the meter drops what exceeds its burst."""
    allowed = context.integer("burst_frames")
    tried = f"{TIMES * allowed} frames of {FRAME_BYTES} bytes at once, past all queues of pub"
    expected = f"at most {2 * allowed} at east"
    got = _burst(context, TIMES * allowed, past_queues=True).received("east")
    if got <= 2 * allowed:
        return passed(tried, expected, f"{got} at east")
    hint = "large" if _is_metered(context) else "no-meter"
    return failed(tried, expected, f"{got} at east", hint)


def shaped(context: Context) -> Outcome:
    """Check that the student's shaper saves frames that the meter would drop."""
    asked = context.integer("meter_kbps") * 1000
    tried = f"a program at pub sends {SHAPED_FRAMES} frames at {2 * asked / 1e6:g} Mbit/s"
    expected = "all frames at east, later, and fewer than that without HTB"
    seen = _offer(context, past_queues=False, frames=SHAPED_FRAMES)
    lost = seen.lost("east")
    found = f"{lost} of {seen.sent} frames lost"
    if not seen.received("east"):
        return failed(tried, expected, found, "broken")
    past = _offer(context, past_queues=True, frames=SHAPED_FRAMES)
    found += f"; {past.lost('east')} of {past.sent} past all queues"
    if not past.lost("east"):
        return failed(tried, expected, found, "no-meter")
    if lost:
        # Without a shaper, as many are lost as when they go past all queues.
        hint = "no-shaper" if lost > 0.9 * past.lost("east") else "dropped"
        return failed(tried, expected, found, hint)
    return passed(tried, expected, found)


def shaped_rate(context: Context) -> Outcome:
    """Check that the shaper uses the rate that the meter allows."""
    asked = context.integer("meter_kbps") * 1000
    tried = f"a program at pub sends {SHAPED_FRAMES} frames at {2 * asked / 1e6:g} Mbit/s"
    expected = f"{LEAST_SHAPED:.0%} to 100 % of {asked / 1e6:g} Mbit/s at east"
    seen = _offer(context, past_queues=False, frames=SHAPED_FRAMES)
    got = seen.rate_bps("east", FRAME_BYTES, 0.5)
    found = f"{got / 1e6:.3f} Mbit/s, {counted(seen.lost('east'), 'frame')} lost"
    if seen.lost("east") or got > 1.02 * asked:
        return failed(tried, expected, found, "no-shaper")
    if got < LEAST_SHAPED * asked:
        return failed(tried, expected, found, "slow")
    return passed(tried, expected, found)


def dropped(context: Context) -> Outcome:
    """Check the answer: how many frames of the burst the meter dropped."""
    answer = context.number("dropped_of_burst")
    frames = TIMES * context.integer("burst_frames")
    tried = f"{frames} frames of {FRAME_BYTES} bytes at once, past all queues of pub"
    expected = f"your answer: {answer:g} of them dropped, ±{DROPPED_TOLERANCE}"
    lost = _burst(context, frames, past_queues=True).lost("east")
    if not lost:
        return failed(tried, expected, "none dropped", "no-meter")
    if abs(lost - answer) <= DROPPED_TOLERANCE:
        return passed(tried, expected, f"{lost} dropped")
    return failed(tried, expected, "another number", "other")


def delay(context: Context) -> Outcome:
    """Check the answer: the greatest delay at the shaper, in ms."""
    answer = context.number("greatest_delay_ms")
    tried = f"a program at pub sends {BURST_FRAMES} frames of {FRAME_BYTES} bytes at once"
    expected = f"your answer: a greatest delay of {answer:g} ms, ±{DELAY_TOLERANCE:.0%}"
    seen = _burst(context, BURST_FRAMES, past_queues=False)
    delays = [(a.arrived_ns - a.sent_ns) / 1e6 for a in seen.arrivals["east"]]
    if seen.lost("east") or max(delays) < 20:
        found = f"{seen.lost('east')} lost, greatest delay {max(delays, default=0):.1f} ms"
        return failed(tried, expected, found, "no-shaper")
    if abs(answer / max(delays) - 1) <= DELAY_TOLERANCE:
        return passed(tried, expected, f"{max(delays):.1f} ms")
    return failed(tried, expected, "another time", "other")
