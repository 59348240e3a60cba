# SPDX-License-Identifier: Apache-2.0
"""Rows, their judgement and the table; and the self-test's messages when something goes wrong."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from virtual.cli import main
from virtual.guest import Times
from virtual.kernel_build import Kernel
from virtual.selftest import cli, timers
from virtual.selftest.parse import Probe
from virtual.selftest.protocols import intervals_s, within
from virtual.selftest.rows import Reasons, Row, document, from_line, number, table_line, to_line

ROW = Row("netem 20 ms", "ms", 20.0, 20.004, 0.0, 0.005, "no slack")
KERNEL = Kernel(Path("/nowhere"), "7.2.11", "digest", True)


@pytest.mark.parametrize(
    ("measured", "ok"),
    [(20.0, True), (20.005, True), (20.006, False), (19.9999, False), (None, False)],
)
def test_right_is_within_the_tolerance_and_measured(measured: float | None, ok: bool) -> None:
    missing = "" if measured is not None else "no netem"
    row = replace(ROW, measured=measured, missing=missing, above=0.005 + 1e-12)
    assert row.ok is ok


def test_a_row_survives_its_line() -> None:
    assert from_line(to_line(ROW)) == ROW


@pytest.mark.parametrize(
    "line",
    [
        "netem: cannot",
        "[]",
        '{"test": "x"}',
        to_line(replace(ROW, missing="why")),
        to_line(replace(ROW, measured=None)),
        to_line(ROW).replace("20.004", '"20"'),
    ],
)
def test_a_line_that_is_no_row_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="found '.*valid"):
        from_line(line)


@pytest.mark.parametrize(
    ("value", "text"),
    [(10.050304, "10.050304"), (2519, "2519"), (-0.0005, "-0.0005"), (-1e-9, "0"), (100, "100")],
)
def test_numbers_say_no_more_than_they_know(value: float, text: str) -> None:
    assert number(value) == text


def test_the_table_says_what_is_off() -> None:
    assert table_line(ROW, judged=True, letter="a").split()[-5:] == [
        "0.004", "-0", "+0.005", "a", "yes",
    ]  # fmt: skip
    off = table_line(replace(ROW, measured=21.0), judged=True, letter="a")
    assert off.split()[-1] == "OFF"
    native = table_line(replace(ROW, measured=21.0), judged=False, letter="a")
    assert native.split()[-1] == "a"
    none = replace(ROW, measured=None, missing="no netem")
    assert table_line(none, judged=True, letter="a").endswith("OFF  not measured: no netem")


def test_reasons_have_letters() -> None:
    reasons = Reasons()
    letters = [reasons.letter(f"reason {n}") for n in (0, 1, 0, *range(2, 28))]
    assert letters[:3] == ["a", "b", "a"]
    assert letters[-2:] == ["aa", "ab"]
    assert reasons.legend()[1] == "b: reason 1"


def test_natively_nothing_is_judged() -> None:
    bad = replace(ROW, measured=99.0)
    assert document([ROW, bad], clock="virtual", facts={})["ok"] is False
    native = document([ROW, bad], clock="native", facts={"kernel": "6"})
    assert native["ok"] is None
    assert native["rows"][1]["ok"] is None
    assert native["rows"][1]["difference"] == 79.0
    assert native["kernel"] == "6"


TIMING = timers.Timing(tick_s=0.01, slack_s=50e-6)


@pytest.mark.parametrize(
    ("probe", "ok"),
    [
        (Probe("nanosleep", 10_000_000, 10_050_304), True),
        (Probe("nanosleep", 10_000_000, 9_999_999), False),  # early
        (Probe("nanosleep", 10_000_000, 10_060_000), False),  # 50 us of slack and 5 us
        (Probe("poll", 250_000_000, 250_250_496), True),
        (Probe("poll", 250_000_000, 250_256_000), False),
        (Probe("SO_RCVTIMEO", 1_000_000_000, 1_080_000_000), True),
        (Probe("SO_RCVTIMEO", 1_000_000_000, 1_081_000_000), False),
        (Probe("timerfd", 50_000_000, 50_000_640), True),
        (Probe("timerfd", 50_000_000, 50_010_000), False),
        (Probe("clock-read", 1, 256), True),
        (Probe("clock-read", 1, 23), False),  # what a native kernel takes
        (Probe("failed-call", 1, 1000), True),
        (Probe("failed-call", 1, 0), True),  # Linux 6.1
        (Probe("failed-call", 1, 1100), False),
        (Probe("computing", 0, 50_419_897), False),
        (Probe("raw-beside-monotonic", 10_000_000_000, 10_000_002_000), False),
        (Probe("raw-at-start", 0, 11_000_000_000), True),
        (Probe("raw-at-start", 0, 300_000), False),  # where ping does not wait
        (Probe("real-at-start", 0, 1_767_225_611 * 10**9), True),
        (Probe("real-at-start", 0, 12 * 10**9), False),  # 1970
    ],
)
def test_a_probe_is_judged_by_its_own_theory(probe: Probe, ok: bool) -> None:
    (row,) = timers.probe_rows([probe], TIMING)
    assert row.ok is ok


def test_a_probe_without_theory_is_an_error() -> None:
    with pytest.raises(ValueError, match="found probe 'futex'"):
        timers.probe_rows([Probe("futex", 1, 1)], TIMING)


def test_the_kernels_own_timing_is_read() -> None:
    probes = [Probe("tick", 0, 4_000_000), Probe("slack", 0, 50_000)]
    assert timers.timing(probes) == timers.Timing(0.004, 50e-6)
    assert timers.probe_rows(probes, TIMING) == []


def test_only_retransmissions_that_fit_are_expected() -> None:
    # 1.15 * (1 + 2 + 4) = 8.05 s; with 8 more it is 17.25 s.
    assert within([1, 2, 4, 8, 16], 17.0) == 3
    assert within([1, 2, 4, 8, 16], 18.0) == 4
    assert intervals_s([]) == []


def guest_says(monkeypatch: pytest.MonkeyPatch, *lines: str, code: int = 0) -> None:
    """Replace the guest by its output, in pieces that end in the middle of lines."""

    def run(*_: object, stdout: cli.Lines, stderr: cli.Lines) -> tuple[int, Times]:
        text = "".join(f"{line}\n" for line in lines).encode()
        for start in range(0, len(text), 7):
            stdout.write(text[start : start + 7])
        if code:
            stderr.write(b"selftest: no veth\n")
        return code, Times(virtual_s=147.0, real_s=14.0)

    monkeypatch.setattr(cli, "run_guest", run)
    monkeypatch.setattr(cli, "ensure_kernel", lambda: KERNEL)
    here = Path(__file__)
    monkeypatch.setattr(cli, "TIMERS", here)
    monkeypatch.setattr(cli, "UDP", here)


def test_all_right_is_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    guest_says(monkeypatch, to_line(ROW))
    assert main(["selftest", "--json", str(tmp_path / "found.json")]) == 0
    assert "1 of 1 test within tolerance (kernel 7.2.11)" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["clock"], found["ok"], found["virtual_s"]) == ("virtual", True, 147.0)
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


def test_one_that_is_off_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guest_says(monkeypatch, to_line(ROW), to_line(replace(ROW, test="late", measured=30.0)))
    assert main(["selftest"]) == 1
    assert capsys.readouterr().out.endswith("\n  OFF: late\n")


def test_no_row_at_all_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    guest_says(monkeypatch)
    assert main(["selftest"]) == 1


def test_a_guest_that_fails_is_quoted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guest_says(monkeypatch, to_line(ROW), code=3)
    assert main(["selftest"]) == 1
    assert "in the guest, exit code 3: selftest: no veth" in capsys.readouterr().err


def test_noise_in_the_output_is_quoted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guest_says(monkeypatch, "Segmentation fault")
    assert main(["selftest"]) == 1
    assert "found 'Segmentation fault'" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--fast"], ["--json", "/nowhere/found.json"], ["surplus"]])
def test_bad_usage_is_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", *arguments]) == 2
    assert arguments[-1] in capsys.readouterr().err


def test_native_wants_root(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["selftest", "--native"]) == 2
    assert "as root" in capsys.readouterr().err


def test_programs_that_are_not_built_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(cli, "TIMERS", tmp_path / "selftest-timers")
    assert main(["selftest"]) == 1
    assert "make build" in capsys.readouterr().err
