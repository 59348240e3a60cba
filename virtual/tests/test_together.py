# SPDX-License-Identifier: Apache-2.0
"""Real guests under one calendar."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from virtual import status_page
from virtual.guest import GuestError, GuestSpec, processes_of
from virtual.kernel_build import Kernel
from virtual.parts.calendar import window_of
from virtual.parts.links import LinkFile
from virtual.parts.together import LINKS, Together

pytestmark = pytest.mark.emulated

SECOND_NS = 1_000_000_000
WINDOW_NS = window_of([20_000_000])
END_S = 3.0  # within 1 s on an idle machine


def specs(*scripts: str) -> dict[int, GuestSpec]:
    return {n: GuestSpec(("sh", "-c", one), limit_s=120) for n, one in enumerate(scripts)}


def virtual_ns(parts: Together, part: int) -> int:
    page = status_page.read(parts.guests[part].exchange / "status")
    return 0 if page is None else page.virtual_ns


def wait_for(parts: Together, part: int, second: float) -> None:
    deadline = time.monotonic() + 60
    while virtual_ns(parts, part) < second * SECOND_NS:
        assert parts.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_guests_end_with_their_own_codes_and_leave_nothing(kernel: Kernel) -> None:
    scripts = ("sleep 1; exit 3", "sleep 5; echo done >$DOWNPOUR_LINKS/from-b; exit 0")
    with Together(kernel, specs(*scripts), [LinkFile("a-to-b", 0, 1)], WINDOW_NS) as parts:
        exchanges = [guest.exchange for guest in parts.guests.values()]
        assert parts.wait() == [3, 0]
        assert (exchanges[0] / LINKS / "from-b").read_text() == "done\n"
        report = parts.report()
    # Of the 1,600 windows of 10 ms in 16 s: those in which a guest had work.
    assert 10 < report.windows < 1600
    assert report.windows <= report.grants <= 2 * report.windows
    assert report.longest_s <= sum(report.running_s) + 1e-6
    assert not any(exchange.exists() for exchange in exchanges)


def test_a_guest_is_never_two_windows_ahead(kernel: Kernel) -> None:
    """Both read the clock every 5 ms; one starts programs all the time. Seen from outside, the
    other's time lies between the first one's before and after the reading."""
    idle = "while :; do sleep 0.005; done"
    busy = "while :; do sleep 0.005; /bin/true; /bin/true; /bin/true; done"
    with Together(kernel, specs(busy, idle), [], WINDOW_NS) as parts:
        for part in (0, 1):
            wait_for(parts, part, 12)
        for _ in range(200):
            before_ns = virtual_ns(parts, 0)
            idle_ns = virtual_ns(parts, 1)
            after_ns = virtual_ns(parts, 0)
            assert before_ns - 2 * WINDOW_NS < idle_ns < after_ns + 2 * WINDOW_NS
            time.sleep(0.005)
        assert parts.poll() is None


@pytest.mark.parametrize("victim", ["calendar", "guest"])
def test_all_end_within_a_second_with_the_reason(kernel: Kernel, victim: str) -> None:
    with Together(kernel, specs(*["sleep 1000000"] * 3), [], WINDOW_NS) as parts:
        wait_for(parts, 0, 12)
        exchanges = [guest.exchange for guest in parts.guests.values()]
        if victim == "calendar":
            parts.calendar.send_signal(signal.SIGKILL)
            expected = r"^the calendar of the parts ended \(killed by SIGKILL\)$"
        else:
            for pid in processes_of(exchanges[1]):
                with contextlib.suppress(ProcessLookupError):  # it ended with another
                    os.kill(pid, signal.SIGKILL)
            expected = r"^part 1: its kernel ended without a result$"
        killed = time.monotonic()
        with pytest.raises(GuestError, match=expected):
            parts.wait()
        assert time.monotonic() - killed < END_S
        assert not any(processes_of(exchange) for exchange in exchanges)
    assert not any(Path(exchange).exists() for exchange in exchanges)
