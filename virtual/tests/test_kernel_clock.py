# SPDX-License-Identifier: Apache-2.0
"""The clock that programs of a guest read without a system call (kernel/downpour_clock.h)."""

from __future__ import annotations

import io

import pytest

from virtual import status_page
from virtual.guest import Guest, GuestSpec, run_guest
from virtual.kernel_build import Kernel

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


def test_the_page_and_the_kernel_tell_one_time(kernel: Kernel) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    spec = GuestSpec(argv=(".venv/bin/python", "-c", CHECKS))
    code, _ = run_guest(kernel, spec, stdout=out, stderr=err)
    assert code == 0, err.getvalue().decode()
    found = dict(line.split(" ", 1) for line in out.getvalue().decode().splitlines())
    reads = int(found.pop("reads"))
    assert found == dict.fromkeys(("rises", "real", "boot", "slept"), "True")
    # A reading costs 256 ns: a loop that waits for 10 ms to pass ends after 39,063 of them, with
    # or without system calls between them.
    assert 39_000 <= reads <= 39_100


def test_readings_are_no_system_calls(kernel: Kernel) -> None:
    code = "import time\nfor _ in range(100_000): time.monotonic_ns()"
    with Guest(kernel, GuestSpec(argv=(".venv/bin/python", "-c", code))) as guest:
        path = guest.exchange / "status"
        assert guest.wait() == 0
        page = status_page.read(path)
    assert page is not None
    assert page.virtual_ns > 11e9 + 100_000 * 256  # their time has still passed
    assert page.syscalls < 50_000
