# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import time
from pathlib import Path

from experiments import samplers
from experiments.verdict import ShaperSample
from parsers.ps_log import parse_ps_log

GOLDEN = Path(__file__).parent / "golden"


def test_family_is_the_process_and_its_descendants() -> None:
    lines = ["  10  1 a", "  20 10 b", "  30 20 c d", "  40  1 e", " 50 99 f", "bad"]
    assert samplers.family(lines, 10) == ["  10  1 a", "  20 10 b", "  30 20 c d"]
    assert samplers.family(lines, 77) == []
    assert samplers.family(["1 1 loop"], 1) == ["1 1 loop"]


def test_ps_block_is_what_the_parser_reads() -> None:
    log = parse_ps_log(samplers.ps_block(os.getpid()), "ps.log")
    assert not log.problems
    assert len(log.times_s) == 1
    assert abs(log.times_s[0] - time.time()) < 5
    assert os.getpid() in {s.pid for s in log.samples}
    assert 1 not in {s.pid for s in log.samples}


def test_shaper_counters() -> None:
    """Class 1:2 of the sample holds 1996 datagrams; class 1:1 none."""
    text = (GOLDEN / "htb-class-s.txt").read_text()
    assert samplers.parse_shaper(text, "1:2") == (145_380, 2_796_440)
    assert samplers.parse_shaper(text, "1:1") == (0, 0)
    assert samplers.parse_shaper(text, "1:3") is None
    assert samplers.parse_shaper((GOLDEN / "tbf-qdisc-s.txt").read_text(), None) == (90, 0)
    assert samplers.parse_shaper(text.replace("2796440b", "2731Kb"), "1:2") == (
        145_380,
        2731 * 1024,
    )


def test_shaper_log_round_trip() -> None:
    sample = ShaperSample(1.25, 100, 7)
    text = samplers.shaper_line(sample) + "cut of"
    assert samplers.parse_shaper_log(text) == [sample]


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
