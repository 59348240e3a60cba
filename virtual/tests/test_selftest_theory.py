# SPDX-License-Identifier: Apache-2.0
"""What timers and shapers must do. Expected values were computed by hand, as the comments show."""

from __future__ import annotations

import pytest

from virtual.selftest import theory

HZ_100, HZ_250, HZ_1000 = 0.01, 0.004, 0.001


@pytest.mark.parametrize(
    ("ticks", "granularity"),
    # 64 slots per level, the last one spare: 63 ticks; each level is 8 times coarser.
    [(1, 1), (62, 1), (63, 8), (503, 8), (504, 64), (4031, 64), (4032, 512)],
)
def test_the_wheel_gets_coarser(ticks: int, granularity: int) -> None:
    assert theory.wheel_granularity_ticks(ticks) == granularity


def test_a_time_out_beyond_the_wheel_is_refused() -> None:
    # 63 * 8^7 ticks.
    with pytest.raises(ValueError, match="132120576"):
        theory.wheel_granularity_ticks(132120576)


def test_a_time_out_is_rounded_up_to_ticks() -> None:
    assert theory.ticks_of(0.2, HZ_100) == 20
    assert theory.ticks_of(0.201, HZ_100) == 21
    assert theory.ticks_of(0.3, HZ_250) == 75


@pytest.mark.parametrize(
    ("timeout_s", "tick_s", "late_ms"),
    [
        (0.040, HZ_100, 10.005),  # 4 ticks, 1 more, 5 us
        (0.040, HZ_1000, 1.005),
        (1.0, HZ_100, 80.005),  # 100 ticks: 8 more
        (1.0, HZ_1000, 64.005),  # 1000 ticks: 64 more
        (0.205, HZ_100, 15.005),  # 20.5 ticks are 21, and 1 more
    ],
)
def test_how_late_the_wheel_may_be(timeout_s: float, tick_s: float, late_ms: float) -> None:
    assert theory.wheel_late_s(timeout_s, tick_s) * 1e3 == pytest.approx(late_ms)


@pytest.mark.parametrize(
    ("timeout_s", "tick_s", "repeat_s"),
    [
        (1.0, HZ_100, 1.04),  # 100 ticks from a multiple of 8: 104 is the next after it
        (1.0, HZ_250, 1.024),  # 250 of 8: 256 ticks
        (1.0, HZ_1000, 1.024),  # 1000 of 64: 1024 ticks, which users of ping know
        (0.2, HZ_100, 0.21),  # 20 of 1: always the next
        (1.04, HZ_100, 1.12),  # a timer at a multiple fires one later: it may not be early
    ],
)
def test_a_time_out_that_repeats_is_aligned(
    timeout_s: float, tick_s: float, repeat_s: float
) -> None:
    assert theory.wheel_repeat_s(timeout_s, tick_s) == pytest.approx(repeat_s)


def test_select_is_a_thousandth_late() -> None:
    assert theory.select_slack_s(0.25, 50e-6) == pytest.approx(250e-6)
    assert theory.select_slack_s(0.01, 50e-6) == 50e-6
    assert theory.select_slack_s(1000, 50e-6) == 0.1


def test_syn_retransmissions() -> None:
    # RFC 6298: 1 s, doubled each time.
    assert theory.syn_intervals_s(5, 0) == [1, 2, 4, 8, 16]
    # Linux 6.5: four time-outs of 1 s come after the first.
    assert theory.syn_intervals_s(8, 4) == [1, 1, 1, 1, 1, 2, 4, 8]


def test_data_retransmissions_double() -> None:
    assert theory.rto_intervals_s(4, 0.2) == pytest.approx([0.2, 0.4, 0.8, 1.6])


def test_frames_count_their_headers() -> None:
    assert theory.frame_bytes(1000) == 1042
    assert theory.frame_bytes(1472) == 1514


def test_netem_rate_takes_each_frame_for_its_length() -> None:
    # 10 gaps of 1250 bytes at 1 Mbit/s: 10 ms each.
    assert theory.netem_rate_span_s(11, 1250, 1e6) == pytest.approx(0.100)


def test_htb_lets_a_frame_go_while_the_bucket_is_not_negative() -> None:
    # 2500 bytes of burst, frames of 1250 B at 1 Mbit/s. At once: the 1st (2500 left), 2nd (1250),
    # 3rd (0: not negative). The 4th waits until -1250 are repaid: 10 ms; the 13th 100 ms.
    assert theory.htb_span_s(3, 1250, 1e6, 2500) == 0
    assert theory.htb_span_s(4, 1250, 1e6, 2500) == pytest.approx(0.010)
    assert theory.htb_span_s(13, 1250, 1e6, 2500) == pytest.approx(0.100)


def test_tbf_wants_tokens_for_the_whole_frame() -> None:
    # The same, but the 3rd frame has no tokens: 10 ms.
    assert theory.tbf_span_s(2, 1250, 1e6, 2500) == 0
    assert theory.tbf_span_s(3, 1250, 1e6, 2500) == pytest.approx(0.010)
    assert theory.tbf_span_s(12, 1250, 1e6, 2500) == pytest.approx(0.100)


def test_a_meter_passes_its_burst_and_its_rate() -> None:
    # 1001 frames of 1250 B (10 kbit), one each ms: 10 Mbit/s for 1 s. 4 Mbit/s and 1 Mbit of burst
    # let 5 Mbit pass: 500 frames.
    offer = theory.Offer(1001, 1250, 0.001)
    assert offer.seconds == pytest.approx(1.0)
    assert theory.meter_frames(offer, 4e6, 1e6) == pytest.approx(500)


def test_a_meter_passes_no_more_than_came() -> None:
    assert theory.meter_frames(theory.Offer(100, 1250, 0.001), 1e9, 1e6) == 100
