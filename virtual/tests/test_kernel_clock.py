# SPDX-License-Identifier: Apache-2.0
"""The clock that programs of a guest read without a system call (kernel/downpour_clock.h)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from virtual import status_page
from virtual.guest import Guest, GuestSpec
from virtual.kernel_build import Kernel
from virtual.parts.calendar import window_of
from virtual.parts.together import Together

pytestmark = pytest.mark.emulated

CHECKS = """
import ctypes, time
libc = ctypes.CDLL(None)
class Timespec(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
def called(clock):
    t = Timespec(); libc.syscall(228, clock, ctypes.byref(t)); return t.s * 10**9 + t.ns
times = [called(1) if i % 3 else time.monotonic_ns() for i in range(5000)]
print("rises", all(a < b for a, b in zip(times, times[1:])))
for name, clock in (("real", 0), ("boot", 7)):
    read, true = time.clock_gettime_ns(clock), called(clock)
    print(name, 0 < true - read < 100_000)
begin = time.monotonic_ns()
reads = 1
while time.monotonic_ns() - begin < 10_000_000: reads += 1
print("reads", reads)
begin = time.monotonic_ns(); time.sleep(0.5)
print("slept", 0 <= time.monotonic_ns() - begin - 500_000_000 < 100_000)
"""


@pytest.fixture(params=["alone", "under a calendar"])
def finished(request: pytest.FixtureRequest, kernel: Kernel) -> Iterator[Callable[[str], Guest]]:
    """Run Python code in a guest; return the guest after its end."""
    with ExitStack() as stack:

        def run(code: str) -> Guest:
            spec = GuestSpec(argv=(".venv/bin/python", "-c", code))
            if request.param == "alone":
                guest = stack.enter_context(Guest(kernel, spec))
                assert guest.wait() == 0
                return guest
            window_ns = window_of([20_000_000])
            parts = stack.enter_context(Together(kernel, {0: spec}, [], window_ns))
            assert parts.wait() == [0]
            return parts.guests[0]

        yield run


def test_the_page_and_the_kernel_tell_one_time(finished: Callable[[str], Guest]) -> None:
    out = (finished(CHECKS).exchange / "stdout").read_text()
    found = dict(line.split(" ", 1) for line in out.splitlines())
    reads = int(found.pop("reads"))
    assert found == dict.fromkeys(("rises", "real", "boot", "slept"), "True")
    # A reading costs 256 ns: a loop that waits for 10 ms to pass ends after 39,063 of them, with
    # or without system calls between them.
    assert 39_000 <= reads <= 39_100


def test_readings_are_no_system_calls(finished: Callable[[str], Guest]) -> None:
    guest = finished("import time\nfor _ in range(100_000): time.monotonic_ns()")
    page = status_page.read(guest.exchange / "status")
    assert page is not None
    assert page.virtual_ns > 11e9 + 100_000 * 256  # their time has still passed
    assert page.syscalls < 50_000
