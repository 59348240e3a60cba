# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.path_service.stream import account, rate_bps
from virtual.selftest.pair import UDP
from virtual.selftest.parse import Arrival, arrivals


def arrival(sequence: int, ms: float, sent_ms: float | None = None) -> Arrival:
    sent = sequence if sent_ms is None else sent_ms
    return Arrival(sequence, round(sent * 1e6), round(ms * 1e6))


def test_nothing_lost() -> None:
    found = account([arrival(n, n + 5) for n in range(10)], 0, 9)
    assert (found.sent, found.received, found.lost, found.doubled) == (10, 10, 0, 0)
    assert (found.reordered, found.gap_ms, found.late_ms) == (0, 1.0, 0.0)


def test_lost_doubled_reordered_late() -> None:
    # 0 1 1 4 3 5, sent every ms, 5 ms on the way; 2 is lost, 1 arrives twice, 3 after 4, 2 ms late.
    times = [(0, 5), (1, 6), (1, 6.5), (4, 9), (3, 10), (5, 10)]
    found = account([arrival(n, ms) for n, ms in times], 0, 5)
    assert (found.sent, found.received, found.lost) == (6, 5, 1)
    assert (found.doubled, found.reordered) == (1, 1)
    assert found.gap_ms == 2.5  # from 6.5 to 9
    assert found.late_ms == 2.0
    assert str(found) == "6 sent, 1 lost, 1 doubled, 1 reordered, gap 2.5 ms"


def test_only_what_was_asked_for_counts() -> None:
    found = account([arrival(n, n) for n in range(100)], 90, 109)
    assert (found.sent, found.received, found.lost) == (20, 10, 10)


def test_nothing_arrived() -> None:
    found = account([], 0, 9)
    assert (found.lost, found.gap_ms, found.late_ms) == (10, 0.0, 0.0)


def test_rate_counts_headers() -> None:
    # 1458 + 42 bytes every ms: 12 Mbit/s.
    assert rate_bps([arrival(n, n) for n in range(101)], 1458) == 12_000_000
    assert rate_bps([arrival(1, 1)], 1458) == 0.0


def sends(sender: subprocess.Popen[bytes], datagrams: int) -> None:
    """Wait until it has slept `datagrams` times more; it sleeps before each datagram."""

    def slept() -> int:
        text = Path(f"/proc/{sender.pid}/status").read_text()
        return int(re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.MULTILINE)[0])

    first = slept()
    while slept() < first + datagrams:
        assert sender.poll() is None
        time.sleep(0.01)


@pytest.mark.skipif(not UDP.exists(), reason=f"{UDP} is not built (make build)")
def test_a_sender_that_was_held_up_sends_no_burst(tmp_path: Path) -> None:
    """The test stops it for the time of 500 datagrams. A meter would drop a burst."""
    with (tmp_path / "out").open("w+") as out:
        argv = [str(UDP), "receive", "7799", "60000"]
        receiver = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT)
        while "ready" not in (tmp_path / "out").read_text():
            assert receiver.poll() is None, (tmp_path / "out").read_text()
            time.sleep(0.01)
        argv = [str(UDP), "send", "127.0.0.1", "7799", "1000000", "200", "1000000"]
        sender = subprocess.Popen(argv, stdout=subprocess.PIPE)
        sends(sender, 50)
        sender.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        sender.send_signal(signal.SIGCONT)
        sends(sender, 50)
        sender.terminate()
        sender.wait()
        receiver.terminate()
        receiver.wait()
    found = arrivals((tmp_path / "out").read_text().removeprefix("ready\n"))
    sent_ns = [a.sent_ns for a in found]
    gap, at = max((b - a, i) for i, (a, b) in enumerate(zip(sent_ns, sent_ns[1:], strict=False)))
    assert gap >= 450e6
    # It makes up for 20 ms.
    assert sum(t - sent_ns[at + 1] < 5e6 for t in sent_ns[at + 1 :]) <= 5 + 20 + 1
