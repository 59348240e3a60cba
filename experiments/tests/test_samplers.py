# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest

from experiments.cells import samplers
from experiments.verdict import ShaperSample
from experiments.verdict.evidence import parse_shaper_log
from experiments.verdict.queue_watch import shaper_counts
from parsers.read.cpu_log import parse_cpu_log
from parsers.read.ps_log import parse_ps_log

LINK = "ip link add name v0 type veth peer name v1"
# Send 30 datagrams, then wait for the end of the input.
FLOOD = """ip link set v1 up && ip addr add 10.0.0.1/24 dev v0 && ip link set v0 up &&
ip neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev v0 && exec python3 -c '
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(30): one.sendto(bytes(1000), ("10.0.0.2", 9))
print("ready", flush=True)
sys.stdin.read()'"""


def test_descendants_are_read_from_the_children_of_every_thread(tmp_path: Path) -> None:
    # 10 has two threads; the second started 30, which started 40. 50 is of another family.
    for task, children in (("10/task/10", "20 "), ("10/task/11", "30 "), ("20/task/20", ""),
                           ("30/task/30", "40 "), ("50/task/50", "60 ")):  # fmt: skip
        (tmp_path / task).mkdir(parents=True)
        (tmp_path / task / "children").write_text(children)
    assert samplers.descendants(10, tmp_path) == [10, 20, 30, 40]  # 40 has ended in the meantime
    assert samplers.descendants(20, tmp_path) == [20]


def test_descendants_of_a_kernel_without_lists_of_children(tmp_path: Path) -> None:
    for pid, parent in ((10, 1), (20, 10), (30, 20), (40, 1), (50, 99)):
        (tmp_path / f"{pid}/task/{pid}").mkdir(parents=True)
        (tmp_path / f"{pid}/stat").write_text(f"{pid} (a) b) S {parent} 0")
    assert samplers.descendants(10, tmp_path) == [10, 20, 30]
    assert samplers.descendants(77, tmp_path) == [77]


def test_a_process_is_shown_as_ps_shows_it() -> None:
    argv = ["ps", "-o", "pid,ppid,pcpu,cputimes,etimes,rss,args", "--cols", "400", "-q"]
    with subprocess.Popen(["sleep", "60"]) as child, subprocess.Popen(["true"]) as ended:
        time.sleep(1.2)
        for pid in (child.pid, ended.pid):
            before = samplers.ps_line(pid)
            head, shown = subprocess.check_output([*argv, str(pid)], text=True).splitlines()
            after = samplers.ps_line(pid)
            assert head == samplers.PS_HEAD
            assert shown in (before, after)  # a second may pass between them
        child.kill()
    assert samplers.ps_line(child.pid) is None


def test_ps_block_is_what_the_parser_reads() -> None:
    log = parse_ps_log(samplers.process_blocks(os.getpid())[0], "ps.log")
    assert not log.problems
    assert len(log.times_s) == 1
    assert abs(log.times_s[0] - time.time()) < 5
    assert os.getpid() in {s.pid for s in log.samples}
    assert 1 not in {s.pid for s in log.samples}


def test_cpu_block_has_the_processes_of_the_ps_block() -> None:
    before = time.process_time_ns()
    ps_text, cpu_text = samplers.process_blocks(os.getpid())
    after = time.process_time_ns()
    ps, cpu = parse_ps_log(ps_text, "ps.log"), parse_cpu_log(cpu_text, "cpu.log")
    assert not cpu.problems
    assert 0 <= cpu.times_s[0] - ps.times_s[0] < 5
    used = {s.pid: s.run_ns for s in cpu.samples}
    assert set(used) == {s.pid for s in ps.samples}
    # The process's own clock also counts threads that have ended: an independent source.
    assert used[os.getpid()] <= after
    assert used[os.getpid()] > 0.5 * before


def test_run_time_counts_all_threads() -> None:
    """By /proc/PID/schedstat alone, the 50 ms of another thread would be missing."""
    computed, end = threading.Event(), threading.Event()

    def compute() -> None:
        begin = time.thread_time_ns()
        while time.thread_time_ns() - begin < 50_000_000:
            pass
        computed.set()
        end.wait(10)

    before = samplers.run_time_ns(os.getpid())
    thread = threading.Thread(target=compute)
    thread.start()
    assert computed.wait(10)
    after = samplers.run_time_ns(os.getpid())
    end.set()
    thread.join()
    assert before is not None
    assert after is not None
    # The kernel adds up a running thread's time at ticks, so not all of the 50 ms at once.
    assert after - before >= 30_000_000


def proc_entry(proc: Path, pid: int, state: str, threads: dict[int, str | None]) -> None:
    """Write a process with utime 150 and stime 50 ticks, named `a) b`."""
    for thread, schedstat in threads.items():
        home = proc / str(pid) / "task" / str(thread)
        home.mkdir(parents=True)
        if schedstat is not None:
            (home / "schedstat").write_text(schedstat)
    zeros = " 0" * 10
    (proc / str(pid) / "stat").write_text(f"{pid} (a) b) {state}{zeros} 150 50 7 8\n")


def test_run_time_from_proc(tmp_path: Path) -> None:
    proc_entry(tmp_path, 5, "S", {5: "1000 20 3\n", 6: "2500 9 1\n"})
    proc_entry(tmp_path, 7, "R", {7: None})
    proc_entry(tmp_path, 8, "Z", {8: "99 0 1\n"})
    assert samplers.run_time_ns(5, tmp_path) == 3500
    # 200 ticks of 1/SC_CLK_TCK s
    ticks_ns = 200 * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    assert samplers.run_time_ns(7, tmp_path) == ticks_ns
    assert samplers.run_time_ns(8, tmp_path) is None
    assert samplers.run_time_ns(9, tmp_path) is None
    lines = [
        "    5     1  0.1        0       1  3512 /a/build/ldmd -f -q /b/umass.pq",
        "    8     5  0.0        0       1     0 [up6] <defunct>",
        "    7     5  0.0        0       1  3512 up6 -f",
    ]
    block = samplers.cpu_block(lines, tmp_path).splitlines()
    assert block[0].startswith("@ ")
    assert block[1:] == ["5 ldmd 3500", f"7 up6 {ticks_ns}"]


@pytest.mark.root
@pytest.mark.parametrize("classid", ["1:2", ""])
def test_shaper_counters_are_those_of_tc(classid: str) -> None:
    """Frames wait in a slow shaper: tc shows how many bytes."""
    script = "tc qdisc add dev v0 root handle 1: " + (
        "htb default 2 && tc class add dev v0 parent 1: classid 1:2 htb rate 800bit burst 2k"
        if classid
        else "tbf rate 800bit burst 2k limit 1m"
    )
    shell = ["unshare", "-n", "sh", "-c", f"{LINK} && {script} && {FLOOD}"]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as made:
        assert made.stdin is not None and made.stdout is not None
        assert made.stdout.readline() == "ready\n"
        found = shaper_counts(made.pid, "v0", classid)
        assert shaper_counts(made.pid, "v0", "1:9") is None
        what = "class" if classid else "qdisc"
        argv = ["nsenter", f"--net=/proc/{made.pid}/ns/net", "tc", "-s", what, "show", "dev", "v0"]
        text = subprocess.check_output(argv, text=True)
        made.stdin.close()
    shown = re.search(r"Sent (\d+) bytes .*?backlog (\d+)b", text, re.DOTALL)
    assert shown is not None and found == (int(shown[1]), int(shown[2]))
    assert found[0] > 0 and found[1] > 10_000


def test_shaper_log_round_trip() -> None:
    sample = ShaperSample(1.25, 100, 7)
    text = samplers.shaper_line(sample) + "cut of"
    assert parse_shaper_log(text) == [sample]


def test_sampler_writes_until_stopped_and_survives_a_failing_sample(tmp_path: Path) -> None:
    calls = []

    def sample() -> str:
        calls.append(1)
        if len(calls) == 2:
            raise OSError("gone")
        return f"{len(calls)}\n"

    sampler = samplers.Sampler(tmp_path / "x.log", 0.01, sample)
    sampler.start()
    deadline = time.monotonic() + 5
    while len(calls) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    sampler.stop()
    lines = (tmp_path / "x.log").read_text().split()
    assert lines[:3] == ["1", "3", "4"]


def test_interval_is_a_minute_in_long_runs() -> None:
    assert (samplers.interval_s(60), samplers.interval_s(3600)) == (1, 60)
