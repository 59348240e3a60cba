# SPDX-License-Identifier: Apache-2.0
"""The built kernel itself, in real guests: seeded randomness, status page, Circuit TCP."""

from __future__ import annotations

import io
import subprocess
import time

import pytest

from virtual import kernel_cache, status_page
from virtual.guest import Guest, GuestSpec, run_guest
from virtual.kernel_build import Kernel

pytestmark = pytest.mark.emulated

RANDOM = """
import ctypes, mmap, os, socket, sys, tempfile, uuid
libc = ctypes.CDLL(None); libc.getauxval.restype = ctypes.c_ulong
def show(name, value): print(name, value)
show("urandom", os.urandom(32).hex())
show("at_random", ctypes.string_at(libc.getauxval(25), 16).hex())
show("boot_id", open("/proc/sys/kernel/random/boot_id").read().strip())
show("uuid", uuid.uuid4())
area = mmap.mmap(-1, 4096)
show("mmap", hex(ctypes.addressof(ctypes.c_char.from_buffer(area))))
maps = [line.split() for line in open("/proc/self/maps")]
show("stack", [words[0] for words in maps if words[-1] == "[stack]"])
show("heap", [words[0] for words in maps if words[-1] == "[heap]"])
server = socket.create_server(("127.0.0.1", 0)); show("port", server.getsockname()[1])
os.system("ip link add name veth-a type veth peer name veth-b")
show("mac", open("/sys/class/net/veth-a/address").read().strip())
"""


def run(kernel: Kernel, *argv: str, seed: int = 1) -> dict[str, str]:
    """Return the values in the lines 'name value' that a command prints in a guest."""
    out, err = io.BytesIO(), io.BytesIO()
    code, _ = run_guest(kernel, GuestSpec(argv=argv, seed=seed), stdout=out, stderr=err)
    assert code == 0, err.getvalue().decode()
    return dict(line.split(" ", 1) for line in out.getvalue().decode().splitlines())


def test_the_seed_determines_all_randomness(kernel: Kernel) -> None:
    script = (".venv/bin/python", "-c", RANDOM)
    first, again, other = (run(kernel, *script, seed=s) for s in (11, 11, 12))
    assert len(first) == 9
    assert first == again
    same = {name for name in first if first[name] == other[name]}
    # User-Mode Linux does not randomise mappings and heap at all.
    assert same <= {"mmap", "heap"}, "another seed must give other bytes"


def test_the_seed_reaches_the_whole_range(kernel: Kernel) -> None:
    show = ("sh", "-c", "echo urandom $(od -An -tx8 -N16 /dev/urandom)")
    found = [run(kernel, *show, seed=s)["urandom"] for s in (0, 1, 2**64 - 1)]
    assert len(set(found)) == 3


def test_status_page_of_a_guest_that_sleeps_and_calls(kernel: Kernel) -> None:
    """Sleeping for 1000 s is a few jumps of the clock; 20,000 system calls are counted."""
    code = "import os, time; time.sleep(1000)\nfor _ in range(20000): os.getppid()"
    with Guest(kernel, GuestSpec(argv=(".venv/bin/python", "-c", code))) as guest:
        path = guest.exchange / "status"
        assert guest.wait() == 0
        page = status_page.read(path)
    assert page is not None
    # The guest's own start takes a little more than 11 s (guest_init.sh); a failing call takes 1
    # us.
    assert 1011e9 < page.virtual_ns < 1012e9
    assert 20_000 < page.syscalls < 60_000
    assert 2 < page.jumps < 200_000
    assert 10 < page.switches < page.syscalls


def test_status_page_names_who_spins_without_system_calls(kernel: Kernel) -> None:
    """While a task never enters the kernel, time stands still, but the page still names the
    task."""
    script = 'cp /bin/bash /tmp/spinner; exec /tmp/spinner -c "while :; do :; done"'
    with Guest(kernel, GuestSpec(argv=("sh", "-c", script), limit_s=60)) as guest:
        path = guest.exchange / "status"
        deadline = time.monotonic() + 30
        while True:
            time.sleep(0.5)
            page = status_page.read(path)
            time.sleep(0.5)
            later = status_page.read(path)
            if page is not None and page == later and page.comm == "spinner":
                break
            assert time.monotonic() < deadline, f"found {page}, then {later}"
        assert page.pid > 1


def test_bad_parameters_are_refused_at_once(kernel: Kernel) -> None:
    for word, valid in (
        ("downpour_seed=x", "valid: 0 to 18446744073709551615"),
        ("downpour_seed=-1", "valid: 0 to 18446744073709551615"),
        ("downpour_status=/nonexistent", "valid: a file of at least 4096 bytes"),
        ("downpour_status=/etc/hostname", "valid: a file of at least 4096 bytes"),
    ):
        result = subprocess.run(
            [kernel.path, word], capture_output=True, text=True, timeout=30, check=False
        )
        assert result.returncode == 1
        name, _, value = word.partition("=")
        assert f"found {name}='{value}'; {valid}" in result.stderr


def test_circuit_tcp_is_built_in(kernel: Kernel) -> None:
    script = (
        "cd /sys/module/tcp_ctcp/parameters; echo default $(cat cwnd); echo 187 > cwnd; "
        "echo set $(cat cwnd); for bad in 0 1000001 x; do echo $bad > cwnd; done 2>/dev/null; "
        "echo kept $(cat cwnd); "
        "echo available $(cat /proc/sys/net/ipv4/tcp_available_congestion_control)"
    )
    found = run(kernel, "sh", "-c", script)
    assert found == {
        "default": "10",
        "set": "187",
        "kept": "187",
        "available": found["available"],
    }
    assert {"ctcp", "bbr", "cubic"} <= set(found["available"].split())


def test_circuit_tcp_keeps_its_window_in_a_network(kernel: Kernel) -> None:
    """The test that the loadable module must pass natively, here in a guest with the built-in one:
    2 % loss, retransmission timeouts, throughput = window / round-trip time."""
    test = "topologies/tests/test_ctcp.py::test_window_stays_under_loss_and_timeouts"
    # A plug-in's server thread would prevent the test from entering a run's namespace.
    plain = ("-p", "no:cacheprovider", "-p", "no:rerunfailures")
    argv = (".venv/bin/python", "-m", "pytest", "-q", *plain, test)
    out = io.BytesIO()
    code, times = run_guest(kernel, GuestSpec(argv=argv), stdout=out, stderr=out)
    text = out.getvalue().decode()
    assert code == 0 and "1 passed" in text, text
    assert times.virtual_s > 11 + 5.5, "the test itself waits that long"


def test_the_kernel_is_of_what_is_put_in_now(kernel: Kernel) -> None:
    assert kernel.digest == kernel_cache.current_digest()
    release = run(kernel, "sh", "-c", "echo release $(uname -r)")["release"]
    assert release == f"{kernel.version}-downpour"
