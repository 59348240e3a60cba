# SPDX-License-Identifier: Apache-2.0
"""What is watched during a replay: queues by netlink, sockets, processors, processes, lag."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from common.places import BUILD
from experiments.cells.fidelity import HOSTLAG
from experiments.cells.samplers import Repeater
from experiments.verdict import cpu_load, host_lag
from experiments.verdict.cpu_load import (
    CoreLoad,
    CoreTimes,
    Ended,
    Load,
    LoadReading,
    Process,
    ProcessLoad,
    Scheduled,
)
from experiments.verdict.queue_watch import (
    Queue,
    QueueWatch,
    Reading,
    SocketWatch,
    parse_limits,
    parse_queue,
    udp_receive_queues,
)
from topologies.watch import netlink


# -- netlink ----------------------------------------------------------------------------------
def attribute(kind: int, value: bytes) -> bytes:
    return (struct.pack("=HH", len(value) + 4, kind) + value).ljust(
        -(-len(value) // 4) * 4 + 4, b"\0"
    )


def message(kind: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", len(body) + 16, kind, 2, 1, 99) + body


def qdisc(index: int, handle: int, kind: bytes, sent: int, backlog: int, drops: int) -> bytes:
    """Return one in the kernel's form: struct tcmsg, TCA_KIND, TCA_STATS2 {basic, queue}."""
    basic = attribute(1, struct.pack("=QI4x", sent, sent // 1000))
    queue = attribute(3, struct.pack("=IIIII", backlog // 1000, backlog, drops, 0, 0))
    tcmsg = struct.pack("=BxxxiIII", 0, index, handle, 0xFFFFFFFF, 2)
    return message(36, tcmsg + attribute(1, kind + b"\0") + attribute(0x8007, basic + queue))


def queues(answer: bytes) -> list[Reading]:
    return [parse_queue(body) for _, body in netlink.messages(answer)]


def test_queues_are_read_from_the_kernels_answer() -> None:
    answer = qdisc(7, 0x100000, b"tbf", 123_456, 5000, 2) + qdisc(8, 0x10000, b"netem", 9, 0, 0)
    assert queues(answer) == [
        Reading("tbf", 123_456, 5, 5000, 2),
        Reading("netem", 9, 0, 0, 0),
    ]


@pytest.mark.parametrize("cut", [1, 20, 37, 60])
def test_a_cut_answer_is_refused(cut: int) -> None:
    whole = qdisc(7, 0x100000, b"tbf", 1, 2, 3)
    with pytest.raises((ValueError, struct.error)):
        queues(whole[:cut] + b"\0" * 16)


def test_an_error_of_the_kernel_is_one() -> None:
    with pytest.raises(PermissionError):
        queues(message(2, struct.pack("=i", -1) + bytes(16)))


def test_limits_are_those_of_tc() -> None:
    text = json.dumps(
        [
            {"kind": "tbf", "dev": "w0b", "handle": "10:",
             "options": {"rate": 12_500_000, "burst": 12_500, "limit": 500_000}},
            {"kind": "netem", "dev": "w0b", "handle": "1:", "options": {"limit": 100_000}},
            {"kind": "bfifo", "dev": "u-eth0", "handle": "11:", "options": {"limit": 600_000_000}},
            {"kind": "htb", "dev": "u-eth0", "handle": "1:", "options": {}},
        ]
    )  # fmt: skip
    found = parse_limits(text)
    assert found["w0b", "10:"].rate_bps == 100e6
    assert (found["w0b", "10:"].limit_bytes, found["w0b", "10:"].burst_bytes) == (500_000, 12_500)
    assert found["w0b", "1:"].limit_packets == 100_000
    assert found["u-eth0", "11:"].limit_bytes == 600_000_000
    assert len(found) == 3


def test_peaks_and_rates() -> None:
    """1,000 bytes in the first second, 3,000 in the next: 24 kbit/s is the largest rate."""
    watch, queue = QueueWatch({}, []), Queue("a/b/1:", "tbf")
    rows = ((0.0, 500, 0), (0.5, 900, 300), (1.0, 1500, 200), (1.6, 2000, 700), (2.0, 4500, 10))
    for now, sent, backlog in rows:
        watch.note(queue, Reading("tbf", sent, backlog // 100, backlog, 4), now)
    assert (queue.peak_backlog_bytes, queue.peak_backlog_packets, queue.peak_at_s) == (700, 7, 1.6)
    assert (queue.peak_rate_bps, queue.peak_rate_s) == (24_000, 1.0)
    assert (queue.sent_bytes, queue.drops, queue.samples) == (4000, 0, 5)


def test_sockets_that_cannot_all_be_watched_leave_no_file_open() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="/proc/0/net/udp"):
        SocketWatch({"a": os.getpid(), "b": 0}, ["a", "b"])
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_receive_queues_of_sockets() -> None:
    text = (
        b"   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
        b"  123: 010A0AEF:9790 00000000:0000 07 00000000:0000A8C0 00:00000000 00000000     0\n"
        b"  124: 00000000:0044 00000000:0000 07 00000000:00000000 00:00000000 00000000     0\n"
    )
    assert udp_receive_queues(text) == [0xA8C0, 0]


# -- processors and processes -----------------------------------------------------------------
def test_cores_of_proc_stat() -> None:
    ticks = cpu_load.TICKS_PER_S
    text = f"cpu  1 2 3 4 5 6 7 8 0 0\ncpu1 {ticks} 0 {ticks} {5 * ticks} 0 0 0 {3 * ticks} 0 0\n"
    assert cpu_load.parse_cores(text) == {"cpu1": CoreTimes(2.0, 5.0, 3.0)}


def test_the_difference_of_two_readings() -> None:
    """10 s; core 0 busy for 6, stolen for 1. What watches is not among the processes."""
    before = LoadReading(
        100.0,
        {"cpu0": CoreTimes(50, 40, 10)},
        {7: Process("sl1", "down7", Scheduled(10**9, 10**8, 50)),
         8: Process("sl1", "hostlag", Scheduled(0, 0, 0)),
         9: Process("sl1", "ended", Scheduled(0, 0, 0))},
        2.0,
    )  # fmt: skip
    after = LoadReading(
        110.0,
        {"cpu0": CoreTimes(56, 43, 11)},
        {7: Process("sl1", "down7", Scheduled(4 * 10**9, 7 * 10**8, 350)),
         8: Process("sl1", "hostlag", Scheduled(10**8, 0, 9)),
         11: Process("", "new", Scheduled(10**9, 0, 3))},
        2.5,
    )  # fmt: skip
    found = cpu_load.between(before, after, "tsc")
    assert (found.elapsed_s, found.clocksource) == (10.0, "tsc")
    assert found.cores == (CoreLoad("cpu0", 0.6, 0.1),)
    down7, new = found.processes
    assert down7 == ProcessLoad("sl1", "down7", 7, 3.0, pytest.approx(0.6), 300)  # type: ignore[arg-type]
    assert down7.mean_wait_ms == pytest.approx(2.0)
    assert new == ProcessLoad("", "new", 11, 1.0, 0.0, 3)
    assert found.sampling_cpu_s == pytest.approx(0.6)
    assert Load.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_programs_that_ended_are_the_cells_and_do_not_watch() -> None:
    """This process waited for 30 s of a program that had run for 1 s before, 5 s of one that began
    meanwhile, and 0.25 s of its own."""
    before = LoadReading(100.0, {}, {7: Process("sl1", "java", Scheduled(10**9, 0, 9))}, 2.0)
    after = LoadReading(110.0, {}, {}, 37.25)
    ended = [Ended("sl1", "java", 7, 30.0), Ended("umass", "uftp", 8, 5.0)]
    found = cpu_load.between(before, after, "tsc", ended)
    assert found.sampling_cpu_s == pytest.approx(0.25)
    assert found.processes == (
        ProcessLoad("sl1", "java", 7, 29.0, 0.0, 0),
        ProcessLoad("umass", "uftp", 8, 5.0, 0.0, 0),
    )
    assert cpu_load.between(before, after, "tsc").sampling_cpu_s == pytest.approx(35.25)


def test_this_process_is_read() -> None:
    own = cpu_load.scheduled(os.getpid())
    if own is None:
        pytest.skip("SKIPPED: this kernel has no schedstat: run queues were NOT read")
    assert own.run_ns > 0
    assert own.times > 0
    assert cpu_load.scheduled(2**22 + 1) is None


# -- lag --------------------------------------------------------------------------------------
def run_hostlag(interval_us: str, seconds: float) -> subprocess.CompletedProcess[str]:
    program = BUILD / HOSTLAG
    if not program.exists():
        pytest.skip("SKIPPED: run `make build` first")
    process = subprocess.Popen(
        [str(program), interval_us], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if seconds:
        time.sleep(seconds)
        process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess([], process.returncode, out, err)


def test_hostlag_samples_and_says_so() -> None:
    """A sample each 2 ms for 0.5 s, however late: samples and skipped ones are 250 or so."""
    raw = json.loads(run_hostlag("2000", 0.5).stdout)
    found = host_lag.parse(raw)
    assert found.elapsed_s > 0.3
    assert raw["samples"] + raw["skipped"] == pytest.approx(found.elapsed_s / 0.002, abs=15)
    assert sum(count for _, count in raw["histogram"]) == raw["samples"]
    assert 0 < found.p50_ms <= found.p99_ms <= found.max_ms
    assert found.resolution_ns >= 1
    assert abs(found.shift_ms) < 1
    assert found.cpu_s < 0.5


def stopped_hostlag(stopped_s: float) -> subprocess.Popen[str]:
    """Start hostlag with samples of 10 ms and stop it for a while; it continues."""
    program = BUILD / HOSTLAG
    if not program.exists():
        pytest.skip("SKIPPED: run `make build` first")
    process = subprocess.Popen([str(program), "10000"], stdout=subprocess.PIPE, text=True)
    time.sleep(0.2)
    process.send_signal(signal.SIGSTOP)
    time.sleep(stopped_s)
    process.send_signal(signal.SIGCONT)
    return process


def test_a_stopped_program_was_late() -> None:
    """SIGSTOP for 0.3 s is a lag of about 0.3 s: about 30 samples of 10 ms are skipped."""
    process = stopped_hostlag(0.3)
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    raw = json.loads(process.communicate(timeout=60)[0])
    assert host_lag.parse(raw).max_ms >= 250
    assert raw["skipped"] >= 25


def test_what_was_late_before_it_matters_is_forgotten() -> None:
    process = stopped_hostlag(1.0)
    time.sleep(0.2)
    process.send_signal(signal.SIGUSR1)
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    raw = json.loads(process.communicate(timeout=60)[0])
    found = host_lag.parse(raw)
    assert 0 < found.samples + raw["skipped"] < 80
    assert found.max_ms < 800
    assert found.elapsed_s > 1.5, "the clocks are watched from the beginning"


@pytest.mark.parametrize("interval", ["0", "-1", "x", "3600000001", ""])
def test_hostlag_refuses_what_is_no_interval(interval: str) -> None:
    done = run_hostlag(interval, 0)
    assert done.returncode == 2
    assert f"found '{interval}'; valid: 1 to 3600000000" in done.stderr


# -- threads ----------------------------------------------------------------------------------
def test_a_look_that_fails_is_counted_and_the_next_one_comes() -> None:
    looks: list[int] = []
    enough = threading.Event()

    def look() -> None:
        looks.append(1)
        if len(looks) == 4:
            enough.set()
        if len(looks) % 2:
            raise ValueError("no such answer")

    repeater = Repeater("looks", 0.001, look)
    repeater.start()
    assert enough.wait(30)
    repeater.stop()
    assert repeater.failed in (len(looks) // 2, (len(looks) + 1) // 2)
    assert len(looks) >= 4


def test_a_missing_kernel_file_has_no_clock_source(tmp_path: Path) -> None:
    assert cpu_load.clocksource(tmp_path / "none") == "unknown"
    (tmp_path / "current").write_text("tsc\n")
    assert cpu_load.clocksource(tmp_path / "current") == "tsc"
