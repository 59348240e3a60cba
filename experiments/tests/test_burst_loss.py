# SPDX-License-Identifier: Apache-2.0
"""Losses in bursts: the requested numbers, geometric lengths, and the kernel's own rules on real
datagrams."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import statistics
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.design import burst_loss, loss_model
from experiments.design.burst_loss import Burst, Pattern
from experiments.tests.judged import GOOD
from experiments.tests.test_loss_model import matches
from experiments.verdict import judge
from experiments.verdict.evidence import BurstCount

SEED = loss_model.loss_seed(2053, "wsu1")


@pytest.mark.parametrize(
    ("p", "burst", "lost", "bursts"),
    # 65,536 x 1 % = 655.36, 655 / 2 = 327.5, ... / 50 = 13.1; 65,536 x 5 % = 3276.8
    [(0.01, 2, 655, 328), (0.01, 10, 655, 66), (0.01, 50, 655, 13), (0.05, 5, 3277, 655)],
)
def test_asked_numbers(p: float, burst: float, lost: int, bursts: int) -> None:
    found = burst_loss.pattern(p, burst, SEED)
    assert (found.lost, len(found.bursts)) == (lost, bursts)
    assert found.mean_packets == pytest.approx(burst, rel=0.02)
    edges = [(b.first, b.first + b.packets) for b in found.bursts]
    assert edges[0][0] > 0
    assert edges[-1][1] <= 65_536
    assert all(a[1] < b[0] for a, b in itertools.pairwise(edges)), "bursts touch"


def test_lengths_and_gaps_are_geometric() -> None:
    """A geometric length with mean 10 has variance 10 x 9 = 90, P(1) = 10 %, P(> 10) = 0.9^10 =
    34.9 %; gaps have mean 65,536 x 0.99 / 66 = 983. 300 circles make 19,800 bursts: the standard
    error of the mean gap is 7, that of the shares below 0.4 %."""
    bursts: list[int] = []
    gaps: list[int] = []
    for seed in range(300):
        found = burst_loss.pattern(0.01, 10, seed)
        bursts += [b.packets for b in found.bursts]
        gaps += [b.first - a.first - a.packets for a, b in itertools.pairwise(found.bursts)]
    assert statistics.pvariance(bursts) == pytest.approx(90, rel=0.08)
    assert bursts.count(1) / len(bursts) == pytest.approx(0.10, abs=0.012)
    assert sum(b > 10 for b in bursts) / len(bursts) == pytest.approx(0.349, abs=0.02)
    assert statistics.mean(gaps) == pytest.approx(983, rel=0.03)
    assert statistics.pstdev(gaps) == pytest.approx(983, rel=0.05)


def test_a_pattern_is_its_seeds() -> None:
    first = burst_loss.pattern(0.01, 10, SEED)
    assert first == burst_loss.pattern(0.01, 10, SEED)
    assert first != burst_loss.pattern(0.01, 10, SEED + 1)


@pytest.mark.parametrize(
    ("p", "burst", "why"),
    [
        (0.01, 1, "more than 1 packet"),
        (0.0, 5, "above 0"),
        (0.001, 50, "1 bursts among 65536 packets; valid: 4 to 4000"),
        (0.5, 1.5, "valid: 4 to 4000"),
    ],
)
def test_what_cannot_be(p: float, burst: float, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        burst_loss.pattern(p, burst, SEED)


def packet(identification: int) -> bytes:
    return struct.pack("!BBHHHBBH8x", 0x45, 0, 28, identification, 0, 64, 17, 0)


@pytest.mark.slow
def test_programs_lose_the_pattern() -> None:
    """Check each edge and its neighbours with an interpreter of classic BPF."""
    found = burst_loss.pattern(0.02, 4, SEED)
    losing, beginning = burst_loss.loss_programs(found), burst_loss.begin_programs(found)
    assert len(found.bursts) == 328  # 1311 / 4
    assert (len(losing), len(beginning)) == (11, 6)  # 30 and 61 in 64 instructions
    firsts = {b.first for b in found.bursts}
    edges = {b.first for b in found.bursts} | {b.first + b.packets for b in found.bursts}
    for at in sorted({0, 65_535} | {edge + d for edge in edges for d in (-1, 0, 1)}):
        if at < 65_536:
            assert any(matches(t, packet(at)) for t in losing) == found.is_lost(at), at
            assert any(matches(t, packet(at)) for t in beginning) == (at in firsts), at


def test_bounds_of_consecutive_packets() -> None:
    """Bursts of 3 and 2 packets, 100 apart. Any 2 packets may lose 0 to 2; any 150 at least 0 and
    at most 5; a whole turn exactly 5; a turn and 2 packets 5 to 7."""
    two = Pattern((Burst(1000, 3), Burst(1100, 2)))
    assert two.bounds(2) == burst_loss.Bounds((0, 2), (0, 1))
    assert two.bounds(150) == burst_loss.Bounds((0, 5), (0, 2))
    assert two.bounds(65_536) == burst_loss.Bounds((5, 5), (2, 2))
    assert two.bounds(65_538) == burst_loss.Bounds((5, 7), (2, 3))
    # From identification 1001 on: 2 packets of the first burst, whose beginning is not among them.
    assert Pattern((Burst(1000, 3),)).bounds(65_535).bursts == (0, 1)


def test_read_back_sees_what_differs() -> None:
    found = burst_loss.pattern(0.01, 10, SEED)
    asked = burst_loss.rules(found, "wsu1-nic1", True)
    kernel = asked.replace("-A INPUT -i wsu1-nic1 -p udp", "-A INPUT -p udp -i wsu1-nic1")
    same = burst_loss.read_back(kernel, "wsu1", asked, 0.01, 10)
    assert [s.ok for s in same] == [True, True, True]
    first = found.bursts[0]
    other = kernel.replace(f" {first.first},", f" {first.first - 1},")
    assert [s.ok for s in burst_loss.read_back(other, "wsu1", asked, 0.01, 10)] == [
        False, False, True,
    ]  # fmt: skip
    assert [s.ok for s in burst_loss.read_back("", "wsu1", asked, 0.01, 10)] == [False] * 3


def test_the_inventory_expects_its_rules() -> None:
    text = "*filter\n-A INPUT -j a\n-A dp-burst 1\n-A dp-burst 2\n-A dp-lost 3\nCOMMIT\n"
    assert burst_loss.firewall(text) == "2 x ip filter dp-burst, 1 x ip filter dp-lost"


@pytest.mark.parametrize(
    ("wsu1", "sl1", "status"),
    [
        ((100, 10), (96, 9), "pass"),
        # One receiver lost more than its own packets can have: another flow was among them.
        ((100, 10), (131, 10), "warn"),
        ((100, 10), (100, 14), "warn"),
        # Neither lost what its pattern says, or nothing was lost at all.
        ((60, 10), (131, 10), "fail"),
        ((0, 0), (0, 0), "fail"),
    ],
)
def test_verdict(wsu1: tuple[int, int], sl1: tuple[int, int], status: str) -> None:
    """10,000 packets each: by their patterns they lose 80 to 130 of them in 8 to 13 bursts."""
    counts = {
        host: BurstCount(dropped, begun, (80, 130), (8, 13))
        for host, (dropped, begun) in (("wsu1", wsu1), ("sl1", sl1))
    }
    verdict = judge(
        dataclasses.replace(
            GOOD,
            loss_model="bursts",
            loss_burst_packets=10,
            bursts=counts,
            arrived={h: (10_000, c.dropped) for h, c in counts.items()},
        )
    )
    found = {c.name: c for c in verdict.checks}
    assert found["injected loss"].status == status
    if status == "pass":
        assert found["bursts of losses"].status == "pass"
        assert found["bursts of losses"].found == 10.316  # 196 / 19


SCRIPT = """
import socket, struct, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run([*sys.argv[2].split(), sys.argv[1]], check=True)
into = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
into.bind(("127.0.0.1", 0))
into.setblocking(False)
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.connect(into.getsockname())
came = []
for number in range(65_536):
    out.send(struct.pack("!I", number))
    try:
        came.append(struct.unpack("!I", into.recv(4))[0])
    except BlockingIOError:
        pass
print(*came)
print(subprocess.run(["iptables-save", "-c"], capture_output=True, text=True).stdout)
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: network namespaces need root")
@pytest.mark.skipif(shutil.which("iptables-restore") is None, reason="SKIPPED: no iptables")
def test_the_kernel_loses_bursts_of_the_asked_length(tmp_path: Path) -> None:
    """65,536 datagrams of one socket go once around the circle wherever the kernel begins: 655 are
    lost in 66 bursts (one more at most, if the beginning was inside a burst), which the receiver
    sees as gaps and the rules count."""
    found = burst_loss.pattern(0.01, 10, SEED)
    text = burst_loss.rules(found, "lo", True)
    (tmp_path / "rules").write_text(text)
    argv = ["unshare", "-n", sys.executable, "-c", SCRIPT, str(tmp_path / "rules")]
    done = subprocess.run(
        [*argv, " ".join(burst_loss.RESTORE)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    came, _, saved = done.stdout.partition("\n")
    numbers = [-1, *map(int, came.split()), 65_536]
    gaps = [b - a - 1 for a, b in itertools.pairwise(numbers) if b - a > 1]
    assert sum(gaps) == 655
    assert len(gaps) in (66, 67)
    assert sorted(gaps)[-60:] == sorted(b.packets for b in found.bursts)[-60:] or len(gaps) == 67
    settings = burst_loss.read_back(
        "\n".join(line.partition("] ")[2] for line in saved.splitlines() if "] -A" in line),
        "r", text, 0.01, 10,
    )  # fmt: skip
    assert [s.ok for s in settings] == [True] * 3, settings
    counted = {
        comment: sum(int(line[1:].split(":")[0]) for line in saved.splitlines() if comment in line)
        for comment in ("downpour-arrived", "downpour-loss", "downpour-burst")
    }
    assert counted == {"downpour-arrived": 65_536, "downpour-loss": 655, "downpour-burst": 66}
