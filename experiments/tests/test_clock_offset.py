# SPDX-License-Identifier: Apache-2.0
"""Receivers whose clocks are off: what a program reads, what an experiment may say."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from common.places import BUILD, EXPERIMENTS
from experiments.design import clock_offset
from experiments.design.expansion import expand
from experiments.design.spec import ExperimentSpec, SpecErrors, at_level, load, load_as
from experiments.tests.built import NEEDS_PROGRAMS

LATENCY = (EXPERIMENTS / "latency.yaml").read_text()
CLOCKS = "import time; print(time.clock_gettime_ns(%s))"
RETURNS = "import ctypes; print(ctypes.CDLL(None).time(None))"


def shown(offset_ms: float, code: str) -> int:
    environment = {**os.environ, **clock_offset.environment(offset_ms, BUILD)}
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    return int(done.stdout)


@NEEDS_PROGRAMS
@pytest.mark.parametrize("offset_ms", [5.25, -86_400_000.5])
def test_the_time_of_day_is_off_by_as_much(offset_ms: float) -> None:
    before_ns = time.time_ns()
    found_ns = shown(offset_ms, CLOCKS % "time.CLOCK_REALTIME") - round(offset_ms * 1e6)
    assert before_ns <= found_ns <= time.time_ns()


@NEEDS_PROGRAMS
def test_seconds_of_the_day_are_off_and_durations_are_not() -> None:
    hour_ms = 3_600_000.0
    before_s = int(time.time())
    assert 3600 <= shown(hour_ms, RETURNS) - before_s < 3700
    before_ns = time.monotonic_ns()
    assert before_ns <= shown(hour_ms, CLOCKS % "time.CLOCK_MONOTONIC") <= time.monotonic_ns()


@NEEDS_PROGRAMS
def test_an_offset_that_is_none_ends_the_program() -> None:
    environment = {**os.environ, **clock_offset.environment(1, BUILD), clock_offset.VARIABLE: "5x"}
    done = subprocess.run(["true"], env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    expected = "clockoffset: found DOWNPOUR_CLOCK_OFFSET_NS='5x'; valid: nanoseconds\n"
    assert done.stderr == expected


def test_what_is_read_back_lies_between_two_readings() -> None:
    """A clock that is 5 ms ahead, read within 2 ms."""
    between = (1_000_000_000, 1_002_000_000)
    good = clock_offset.read_back("1005500000\n", "uva", 5.0, between)
    assert (good.ok, good.found) == (True, 4.5)
    assert not clock_offset.read_back("1000500000\n", "uva", 5.0, between).ok
    assert not clock_offset.read_back("date: no such option\n", "uva", 5.0, between).ok


def test_a_list_by_receiver_takes_the_place_of_one_offset(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    text = LATENCY.replace("  clock_offset_ms: [0, 5]\n", "", 1)
    text = text.replace("parameters:\n", "parameters:\n  clock_offset_i_ms: [0, 2.5, -1, 5]\n", 1)
    path.write_text(text[: text.index("claims:")])
    cell = expand(at_level(load_as(ExperimentSpec, path), "quick"))[0]
    assert cell.clock_offsets_ms(["a", "b", "c", "d"]) == {"b": 2.5, "c": -1.0, "d": 5.0}


def test_one_offset_is_every_receivers() -> None:
    cells = expand(at_level(load_as(ExperimentSpec, EXPERIMENTS / "latency.yaml"), "quick"))
    offsets = {c.factors["clock_offset_ms"]: c.clock_offsets_ms(["a", "b"]) for c in cells}
    assert offsets == {0: {}, 5: {"a": 5.0, "b": 5.0}}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[0, 5]", "[0, 10001]", "found 10001 in factors.clock_offset_ms"),
        ("[0, 5]", "[true]", "valid: a number"),
        ("[0, 5]", "[.nan]", "a finite number"),
        ("parameters:\n", "parameters:\n  clock_offset_i_ms: [1, 1, 1, 1]\n", "one of the two"),
        ("[ldm7]", "[fcast]", "found protocol fcast with a clock offset; valid: ldm7 or ldm6"),
        (
            "  clock_offset_ms: [0, 5]\n\n# As in vlan-rate.yaml.\nparameters:\n",
            "parameters:\n  clock_offset_i_ms: [1]\n",
            "found clock_offset_i_ms of 1 receiver; valid: 4",
        ),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, old: str, new: str, expected: str) -> None:
    path = tmp_path / "x.yaml"
    text = LATENCY[: LATENCY.index("levels:")]
    assert old in text
    text = text.replace(old, new, 1)
    path.write_text(text.replace("parameters:\n", "parameters:\n  file_bytes: 65000\n", 1))
    with pytest.raises(SpecErrors) as caught:
        load(path)
    assert expected in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_clocks_of_those_who_come_and_go_are_exact(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    churn = (EXPERIMENTS / "churn.yaml").read_text()
    text = churn.replace("parameters:\n", "parameters:\n  clock_offset_ms: 5\n", 1)
    path.write_text(text)
    with pytest.raises(SpecErrors, match="found clock_offset_ms 5; valid: 0: not with kind"):
        load(path)
