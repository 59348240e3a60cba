# SPDX-License-Identifier: Apache-2.0
"""Programs find the machine's clock, and how long to sleep until the next step of a second."""

from __future__ import annotations

import math

import pytest

from common.virtual_time import clock_of, rest_s


@pytest.mark.parametrize(
    ("command_line", "clock"),
    [
        ("root=/dev/root rw mem=2G init=/i time-travel=inf-cpu seccomp=on\n", "virtual"),
        ("BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet\n", "native"),
        ("", "native"),
        ("note=time-travel=inf-cpu\n", "native"),  # the value of another parameter
        ("time-travel=inf-cpux\n", "native"),
        ("root=/dev/root time-travel=ext:/tmp/x/calendar seccomp=on\n", "virtual"),
        ("note=time-travel=ext:/tmp/x\n", "native"),
        ("time-travel=ext\n", "native"),
        ("time-travel\n", "native"),  # a processor as fast as the host's: its time does pass
    ],
)
def test_clock(command_line: str, clock: str) -> None:
    assert clock_of(command_line) == clock


@pytest.mark.parametrize(
    ("now_ns", "step_ns", "rest_ns"),
    [
        (1_767_225_611_000_000_001, 10**9, 999_999_999),
        (1_767_225_611_999_999_999, 10**9, 1),
        (1_767_225_611_250_000_000, 10**9, 750_000_000),
        (1_767_225_611_000_000_000, 10**9, 10**9),  # never 0: the sleep itself takes time
        (1_767_225_611_250_000_001, 10**8, 49_999_999),
    ],
)
def test_the_rest_of_a_second(now_ns: int, step_ns: int, rest_ns: int) -> None:
    """It is exact, unlike a floating-point clock, which has steps of 0.2 us at today's dates."""
    assert math.ceil(rest_s(now_ns, step_ns) * 10**9) == rest_ns


@pytest.mark.parametrize("rest_ns", [249_326, 977_355, 1_007_274, 1_964_682])
def test_a_rest_is_no_nanosecond_too_long(rest_ns: int) -> None:
    """time.sleep rounds up."""
    assert math.ceil(rest_ns / 1e9 * 1e9) == rest_ns + 1  # what time.sleep makes of the plain rest
    assert math.ceil(rest_s(10**9 - rest_ns) * 1e9) == rest_ns
