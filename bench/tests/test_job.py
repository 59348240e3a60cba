# SPDX-License-Identifier: Apache-2.0
"""Whole small jobs over real namespaces."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.job_process import JobProcess
from bench.jobs import Card, Job
from bench.network import STEERING
from bench.tools import BY_NAME, missing
from common.places import ROOT
from topologies.emulate.lifecycle import live_runs

JOB = Job(
    "blast", "fmtp", "file", "native", 2, rate_bps=50_000_000, loss=0.01, size_bytes=1_000_000
)
BUILD = ROOT / "build"

pytestmark = [
    pytest.mark.alone,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, makes network namespaces"),
    pytest.mark.skipif(not (BUILD / "bench/peers").exists(), reason="C programs are not built"),
]


def benches() -> set[str]:
    """Return runs of this kind alone: others may begin and end at the same time."""
    return {run for run in live_runs() if run.startswith("bench-")}


def result_of(job: Job) -> dict[str, Any]:
    absent = missing(BY_NAME[job.tool], BUILD)
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}")
    process = JobProcess(job)
    try:
        end = time.monotonic() + 120
        while (result := process.poll()) is None:
            assert time.monotonic() < end
            time.sleep(0.05)
        return result
    finally:
        process.stop()


OTHERS = ("uftp", "udpcast", "norm", "flute-rs", "flute-rq")


@pytest.mark.parametrize(
    "tool", ["fmtp", "tcp", *(pytest.param(name, marks=pytest.mark.long) for name in OTHERS)]
)
def test_file_is_timed_and_counted(tool: str) -> None:
    """A megabyte at 50 Mbit/s takes at least 0.16 s, with any sender; 1 % of what arrives is lost
    at each receiver; headers and repairs cross the wire besides the file."""
    before = benches()
    result = result_of(replace(JOB, tool=tool))
    if tool != "fmtp" and result["status"] != "ok":
        # UDPcast occasionally gives up when its handshake is lost.
        result = result_of(replace(JOB, tool=tool))
    assert result["status"] == "ok", result
    assert 0.16 < result["seconds"] < 30
    assert result["goodput_bps"] == pytest.approx(8e6 / result["seconds"])
    assert 1.03 < result["wire_ratio"] < 4
    assert result["cpu_sender_s"] > 0
    assert result["cpu_receivers_s"] > 0
    assert benches() <= before


def test_stream_is_delivered() -> None:
    stream = Job(
        "stream", "fmtp", "stream", "native", 2,
        rate_bps=20_000_000, size_bytes=20_000, files=20, offered_bps=10_000_000,
    )  # fmt: skip
    result = result_of(stream)
    assert result["status"] == "ok", result
    assert (result["delivered"], result["missing"]) == (40, 0)
    assert 0 < result["p50_s"] <= result["p99_s"] <= result["max_s"] < 10


def test_ceiling_counts_what_arrives() -> None:
    """5 % of the super-packets or datagrams are lost, and nothing repairs them."""
    job = replace(JOB, tool="bare", size_bytes=20_000_000, rate_bps=0, loss=0.05)
    result = result_of(job)
    assert result["status"] == "ok", result
    assert 0.92 < result["delivered_fraction"] < 0.98


@pytest.mark.parametrize(
    ("card", "least", "most"),
    [("segmenting", 1.0, 1.045), ("plain", 1.05, 1.07), ("bare", 1.05, 1.07)],
)
def test_cards(card: Card, least: float, most: float) -> None:
    """In frames of their own, 1,420 bytes of a file have 82 bytes of headers: Ethernet 14, IPv4 20,
    UDP 8, FMTP 12, MAC 28. In segments of 64 kB the first three count once."""
    result = result_of(replace(JOB, rate_bps=0, loss=0.0, size_bytes=20_000_000, card=card))
    assert result["status"] == "ok", result
    assert least < result["wire_ratio"] < most


def test_hosts_receive_on_all_processors() -> None:
    """The network reads the setting of a device back; that of the machine stays."""
    if not STEERING.exists():
        pytest.skip(f"this kernel has no {STEERING}")
    before = STEERING.read_text()
    result = result_of(replace(JOB, steered=True))
    assert result["status"] == "ok", result
    assert STEERING.read_text() == before


def test_interrupted_job_leaves_nothing() -> None:
    before, files = benches(), set(Path("/dev/shm").glob("downpour-bench-*"))
    process = JobProcess(replace(JOB, size_bytes=500_000_000))
    end = time.monotonic() + 20
    while benches() <= before and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(1)
    process.stop()
    assert benches() <= before
    assert set(Path("/dev/shm").glob("downpour-bench-*")) <= files
