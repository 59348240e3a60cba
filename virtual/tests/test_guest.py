# SPDX-License-Identifier: Apache-2.0
"""The launcher: the texts that it writes, and guests that are really booted."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.files import Tail
from common.places import ROOT
from virtual.cores import available_cores, one_core
from virtual.guest import (
    EPOCH_S,
    Guest,
    GuestError,
    GuestSpec,
    Share,
    Times,
    command_line,
    guest_python,
    hidden_shares,
    job_script,
    memory_directory,
    mounts_text,
    processes_of,
    run_guest,
)
from virtual.kernel_build import Kernel
from virtual.stall import AWAY_S, Awake, Stall, processor_waits
from virtual.walls import WalledProcess

KERNEL = Kernel(Path("/k/linux"), "7.2.11", "0123abcd", True)


def test_the_job_gets_nothing_of_the_hosts_environment_but_what_is_asked() -> None:
    spec = GuestSpec(argv=("echo", "a b", "$HOME"), env={"X": "it's"})
    lines = job_script(spec).splitlines()
    assert "export PYTHONHASHSEED=0" in lines
    assert "export X='it'\"'\"'s'" in lines
    assert lines[-2:] == ["cd /guest/checkout", "exec echo 'a b' '$HOME'"]


def test_a_guest_finds_programs_installed_beside_this_one() -> None:
    """pip puts a protocol's programs there; the system's programs take precedence."""
    job = job_script(GuestSpec(argv=("true",)))
    path = re.search(r"^export PATH=(.*)$", job, re.MULTILINE)
    assert path is not None
    first, *_, last = path[1].split(":")
    assert (first, last) == ("/usr/local/sbin", str(Path(guest_python()).parent))


def test_mounts_are_one_line_each_and_refuse_what_the_shell_would_split() -> None:
    shares = [Share(Path("/a"), Path("/b")), Share(Path("/c, e"), Path("/d f"), writable=True)]
    assert mounts_text(shares) == "ro 0 /b\nrw 1 /d f\n"
    for bad in ("/two\nlines", "/blank "):
        with pytest.raises(GuestError, match="valid: a path without line ends"):
            mounts_text([Share(Path("/a"), Path(bad))])


def test_what_a_guests_own_directories_hide_is_shared(tmp_path: Path) -> None:
    """pytest's directories are below /tmp, which the guest replaces."""
    (tmp_path / "venv").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "venv")
    found = hidden_shares([tmp_path / "link", tmp_path / "venv", tmp_path / "none", Path("/usr")])
    assert found == [Share((tmp_path / "venv").resolve(), (tmp_path / "venv").resolve())]


def test_the_command_line_fixes_clock_seed_memory_and_mode() -> None:
    spec = GuestSpec(argv=("true",), memory_bytes=3_000_000_000, seed=7)
    words = command_line(KERNEL, spec, Path("/x"))
    assert words[0] == "/k/linux"
    assert "time-travel=inf-cpu" in words
    assert "time-travel-start=1767225600000000000" in words
    assert "mem=2861M" in words
    assert "seccomp=on" in words
    assert "downpour_seed=7" in words
    assert "ro" in words
    parts = command_line(KERNEL, GuestSpec(argv=("true",), calendar_fd=9), Path("/x"))
    assert "time-travel=ext:/x/calendar" in parts
    assert "time-travel=inf-cpu" not in parts
    older = Kernel(Path("/k/linux"), "6.1.190", "0123abcd", False)
    assert "seccomp=off" in command_line(older, spec, Path("/x"))


def test_a_guests_memory_goes_where_programs_may_lie_and_room_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, strict, good = (tmp_path / name for name in ("small", "strict", "good"))

    def statvfs(place: Path) -> SimpleNamespace:
        if place == tmp_path / "none":
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        flags = os.ST_NOEXEC if place == strict else 0
        blocks = 16_384 if place == small else 10**6  # of 4,096 bytes: 64 MiB, as Docker's /dev/shm
        return SimpleNamespace(f_flag=flags, f_bavail=blocks, f_frsize=4096)

    monkeypatch.setattr(os, "statvfs", statvfs)
    for place in (small, strict, good):
        place.mkdir()
    places = [tmp_path / "none", small, strict]
    assert memory_directory(2 * 10**9, [*places, good]) == good
    assert memory_directory(60 * 10**6, [*places, good]) == small
    with pytest.raises(GuestError) as raised:
        memory_directory(2 * 10**9, places)
    for text in ("none: No such file", "small: 67 MB free", "strict: mounted noexec", "TMPDIR"):
        assert text in str(raised.value)


def test_a_stall_is_no_virtual_progress_for_the_whole_limit() -> None:
    stall = Stall(10.0, now=0.0)
    assert not stall.stalled(0.0, 9.9)
    assert not stall.stalled(0.5, 10.0)
    assert not stall.stalled(0.509, 20.0)  # 9 ms in 10 s do not count ...
    assert stall.stalled(0.509, 20.1)
    creeping = Stall(10.0, now=0.0)
    assert not creeping.stalled(0.011, 9.0)  # ... 11 ms do
    assert not creeping.stalled(0.011, 18.9)


def test_time_in_which_everything_was_stopped_does_not_count() -> None:
    awake = Awake(100.0)
    stall = Stall(10.0, awake.so_far_s)
    assert awake.at(101.0) == 1.0
    assert not stall.stalled(0.0, awake.at(700.0)), "frozen for ten minutes"
    assert awake.at(701.0) == 1.0 + AWAY_S + 1.0
    for second in range(4):
        stalled = stall.stalled(0.0, awake.at(702.0 + second))
    assert stalled, "11 s of its own time"


def test_waiting_for_a_processor_is_no_stall() -> None:
    waits = {1: 5.0}  # what was before the standstill does not count
    stall = Stall(10.0, 0.0, lambda: dict(waits))
    assert not stall.stalled(0.0, 6.0)
    waits[1] += 3.0
    waits[2] = 0.5  # began after the first reading
    assert not stall.stalled(0.0, 10.0)
    assert not stall.stalled(0.0, 13.5)  # 3.5 s of it were spent waiting ...
    assert stall.stalled(0.0, 13.6)
    del waits[2]
    waits[1] += 100.0  # ... and never more than has passed since the last reading, 1.1 s ago
    assert not stall.stalled(0.0, 14.6)
    again = Stall(10.0, 0.0, lambda: dict(waits))
    assert not again.stalled(0.0, 9.0)
    assert again.stalled(0.0, 10.1)  # it had a processor


@pytest.mark.slow
def test_the_host_counts_waits_for_a_processor() -> None:
    """Two processes that spin on one processor wait half of the time."""
    core = min(os.sched_getaffinity(0))
    spin = [sys.executable, "-c", "while True: pass"]
    first = subprocess.Popen(
        spin, start_new_session=True, preexec_fn=lambda: os.sched_setaffinity(0, {core})
    )
    second = subprocess.Popen(spin, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    try:
        deadline = time.monotonic() + 30
        while processor_waits(first.pid).get(first.pid, 0.0) < 0.2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert set(processor_waits(first.pid)) == {first.pid}
    finally:
        for process in (first, second):
            process.kill()
            process.wait()


def test_the_ratio_is_virtual_by_real() -> None:
    assert Times(30.0, 20.0).ratio == 1.5
    assert Times(0.0, 0.0).ratio == 0.0


def test_tail_gives_each_byte_once(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "log")
    assert tail.read() == b""
    (tmp_path / "log").write_bytes(b"ab")
    assert tail.read() == b"ab"
    with (tmp_path / "log").open("ab") as stream:
        stream.write(b"c")
    assert tail.read() == b"c"
    assert tail.read() == b""


def test_guests_get_cores_of_their_own_while_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores = available_cores()
    monkeypatch.setattr(os, "getuid", lambda: 0)
    with one_core(tmp_path) as first:
        assert first == cores[-1]
        with one_core(tmp_path) as second:
            assert second in cores
            if len(cores) > 1:
                assert second != first
    with one_core(tmp_path) as again:
        assert again == cores[-1]


def test_guests_of_one_process_share_no_core_while_others_have_all(tmp_path: Path) -> None:
    cores = available_cores()
    with ExitStack() as stack:
        for core in cores[1:]:  # as a run in another process does
            stream = stack.enter_context((tmp_path / f"{core}.lock").open("ab"))
            fcntl.flock(stream, fcntl.LOCK_EX)
        found = [stack.enter_context(one_core(tmp_path)) for _ in range(2 * len(cores))]
    assert sorted(found) == sorted(2 * cores)


def test_users_begin_at_different_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cores = available_cores()
    found = []
    for uid in range(1000, 1000 + len(cores)):
        monkeypatch.setattr(os, "getuid", lambda uid=uid: uid)
        with one_core(tmp_path / str(uid)) as core:  # the user's own locks
            found.append(core)
    assert sorted(found) == cores


def test_without_a_place_for_locks_there_is_a_core_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    with one_core(tmp_path / "file") as core:
        assert core in available_cores()


# -- with a kernel ----------------------------------------------------------------------------


def run(kernel: Kernel, *argv: str, **options: object) -> tuple[int, str, str, Times]:
    out, err = io.BytesIO(), io.BytesIO()
    spec = GuestSpec(argv=argv, **options)  # type: ignore[arg-type]
    code, times = run_guest(kernel, spec, stdout=out, stderr=err)
    return code, out.getvalue().decode(), err.getvalue().decode(), times


@pytest.mark.emulated
def test_a_command_runs_as_root_in_virtual_time_and_its_results_come_out(kernel: Kernel) -> None:
    script = "id -u; date +%s; sleep 3600; date +%s; pwd; echo oh >&2; exit 7"
    code, out, err, times = run(kernel, "sh", "-c", script)
    uid, before, after, here = out.split()
    assert (code, uid, here, err) == (7, "0", "/guest/checkout", "oh\n")
    assert int(before) - EPOCH_S in range(11, 14)
    assert int(after) - int(before) in (3600, 3601)
    assert times.virtual_s > 3600
    assert times.real_s < 60


@pytest.mark.emulated
def test_hundreds_of_hosts_may_know_their_neighbours(kernel: Kernel) -> None:
    """By default all namespaces together have 1,024; with 256 receivers some got no answer."""
    script = """
        ip link add p type veth peer name q && ip link set p up && ip addr add 10.0.0.1/16 dev p
        for high in 1 2 3 4 5 6 7 8; do
          for low in $(seq 250); do
            echo "neigh add 10.0.$high.$low lladdr 02:00:00:00:00:01 dev p nud reachable"
          done
        done > /tmp/batch
        ip -batch /tmp/batch && ip neigh show dev p | wc -l
    """
    code, out, err, _ = run(kernel, "sh", "-c", script)
    assert (code, out.strip(), err) == (0, "2000", "")


@pytest.mark.emulated
def test_nothing_of_the_host_can_be_changed_but_what_is_shared(
    kernel: Kernel, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    other = tmp_path / "other"
    other.write_text("as it was")
    script = (
        f"echo changed > {other}; cat {other}; touch /guest/checkout/x /usr/x; ls /usr/x; "
        "echo out > /shared/result"
    )
    shares = (Share(mine, Path("/shared"), writable=True),)
    _code, out, err, _times = run(kernel, "sh", "-c", script, shares=shares)
    assert (mine / "result").read_text() == "out\n"
    # A file below /tmp is not even visible: the guest has its own /tmp.
    assert other.read_text() == "as it was"
    assert "/usr/x" in out.splitlines()  # in the overlay only
    assert not Path("/usr/x").exists()
    assert "/guest/checkout/x" in err
    assert not (ROOT / "x").exists()


@pytest.mark.emulated
def test_a_task_that_spins_is_named(kernel: Kernel) -> None:
    loop = "import os\nwhile True: pass"
    with pytest.raises(
        GuestError, match=r"no virtual time passed for 4 s .*'python3' \(process"
    ) as e:
        run(kernel, "python3", "-c", loop, stall_s=4.0)
    assert "holds the processor" in str(e.value)


@pytest.mark.emulated
def test_a_program_may_have_more_memory_than_the_host_allows_mappings(kernel: Kernel) -> None:
    """Each page touched in random order needs its own mapping by the host, which allows a process
    65,530 (vm.max_map_count; 256 MB). The guest once asked for the 65,531st forever. Here 288 MB
    are written, then read in another order, also by a child that shares them."""
    script = """
import mmap, os, random
pages = 288 << 8
memory = mmap.mmap(-1, pages * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
order = list(range(pages))
random.Random(1).shuffle(order)
for page in order:
    memory[page * 4096 : page * 4096 + 4] = page.to_bytes(4, "big")
def right():
    random.Random(2).shuffle(order)
    return all(memory[p * 4096 : p * 4096 + 4] == p.to_bytes(4, "big") for p in order)
child = os.fork()
if child == 0:
    memory[0:4] = b"mine"
    memory[0:4] = bytes(4)
    os._exit(0 if right() else 1)
print(right(), os.waitpid(child, 0)[1])
"""
    _code, out, err, times = run(
        kernel, "python3", "-c", script, memory_bytes=1_200_000_000, stall_s=60.0
    )
    assert out == "True 0\n", err
    assert times.virtual_s < 12  # a start, and no time for memory


@pytest.mark.emulated
def test_system_calls_do_not_age_a_program(kernel: Kernel) -> None:
    """The scheduler shares the processor by virtual time. 100,000 calls without a switch must take
    none; otherwise the number of modules that a program imports would decide which program runs."""
    script = """
import os
def ran_ns(): return int(open("/proc/self/schedstat").read().split()[0])
before = ran_ns()
for _ in range(100_000): os.getppid()
print(ran_ns() - before)
"""
    _code, out, err, _times = run(kernel, "python3", "-c", script)
    assert int(out) < 2_000, err  # its own readings of the clock


@pytest.mark.emulated
def test_system_calls_that_fail_take_no_time(kernel: Kernel) -> None:
    """A program that starts looks for files that do not exist, and all timers would wait for it.
    But a program that does nothing else moves the clock: after 10,000 calls without an idle moment,
    each takes 1 us, as in the source (arch/um/kernel/skas/syscall.c)."""
    script = """
import os, time
def taken_ns(calls):
    time.sleep(1)
    began = time.monotonic_ns()
    for _ in range(calls): os.access("/nothing", 0)
    return time.monotonic_ns() - began
print(taken_ns(5_000), taken_ns(30_000))
"""
    _code, out, err, _times = run(kernel, "python3", "-c", script)
    few, many = map(int, out.split())
    assert few <= 1000, err
    assert 20_000_000 <= many <= 20_200_000, err


@pytest.mark.emulated
def test_the_limit_of_real_time_holds(kernel: Kernel) -> None:
    script = "import time\nwhile True: time.time()"  # each reading of the clock moves it
    with pytest.raises(GuestError, match=r"no end within 4 s of real time"):
        run(kernel, "python3", "-c", script, limit_s=4.0, stall_s=1000.0)


@pytest.mark.emulated
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_however_the_launcher_ends(
    kernel: Kernel, tmp_path: Path, number: signal.Signals
) -> None:
    del kernel
    argv = [
        sys.executable,
        "-m",
        "downpour",
        "virtual",
        "run",
        "--",
        "sh",
        "-c",
        "while :; do sleep 1e-3; done",
    ]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 30
    exchange: Path | None = None
    before: list[int] = []
    while time.monotonic() < deadline and len(before) < 2:
        exchange = next(tmp_path.glob("downpour-guest-*"), None)
        before = processes_of(exchange) if exchange is not None else []
        time.sleep(0.1)
    assert exchange is not None
    assert len(before) > 1  # the kernel and a stub
    process.send_signal(number)
    _out, err = process.communicate(timeout=20)
    assert process.returncode == (-9 if number == signal.SIGKILL else 130)
    if number != signal.SIGKILL:
        assert "interrupted" in err.decode()
        assert list(tmp_path.iterdir()) == []
    deadline = time.monotonic() + 10
    while (left := [p for p in before if Path(f"/proc/{p}").exists()]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    assert left == []


@pytest.mark.emulated
def test_two_guests_run_at_once_and_do_not_meet(kernel: Kernel) -> None:
    spec = GuestSpec(argv=("sh", "-c", "ip link add name d0 type dummy && ip -o link show d0"))
    with Guest(kernel, spec) as one, Guest(kernel, spec) as two:
        assert one.wait() == two.wait() == 0
        for guest in (one, two):
            assert (guest.exchange / "stdout").read_text().count("\n") == 1


JUMPING_CLOCK = r"""
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Every look at the wall clock is a year before or after the one before it. */
static long jump(void)
{
	static int looks;

	if (looks == 0)
		(void)!write(2, "the host's clock jumps\n", 23);
	return (looks++ % 2 ? 1 : -1) * 31536000L;
}
int clock_gettime(clockid_t clock, struct timespec *now)
{
	int result = syscall(SYS_clock_gettime, clock, now);

	if (clock == CLOCK_REALTIME)
		now->tv_sec += jump();
	return result;
}
int gettimeofday(struct timeval *now, void *zone)
{
	int result = syscall(SYS_gettimeofday, now, zone);

	now->tv_sec += jump();
	return result;
}
time_t time(time_t *now)
{
	return syscall(SYS_time, now) + jump();
}
"""


@pytest.mark.emulated
def test_the_hosts_clock_may_jump(
    kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    source, library = tmp_path / "lib/jump.c", tmp_path / "lib/jump.so"
    source.write_text(JUMPING_CLOCK)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    script = "date +%s.%N; sleep 1000; date +%s.%N; head -c 8 /dev/urandom | od -An -tx8"
    spec = GuestSpec(("sh", "-c", script), reads=(tmp_path / "lib",), limit_s=60)
    wall_clock = time.time

    def jumping(argv: Any, environment: Any, *rest: Any, **more: Any) -> WalledProcess:
        return WalledProcess(argv, {**environment, "LD_PRELOAD": str(library)}, *rest, **more)

    found = []
    for jumps in (False, True):
        if jumps:
            monkeypatch.setattr("virtual.guest.WalledProcess", jumping)
            monkeypatch.setattr(time, "time", lambda: -wall_clock())
        with Guest(kernel, spec) as guest:
            assert guest.wait() == 0
            said = (guest.exchange / "stdout").read_text()
            found.append((said, guest.times.virtual_s))
            console = (guest.exchange / "console").read_text(errors="replace")
            assert ("the host's clock jumps" in console) == jumps, console
    assert found[0] == found[1]
