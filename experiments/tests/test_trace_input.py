# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest

from experiments.design import trace_model
from experiments.design.spec import SpecErrors, UsageError
from experiments.design.trace_input import prepare, read, window, window_count, window_order
from parsers.read.trace import parse_trace

LINES = """\
100 20150615000000.009
200 20150615000001.008
300 20150615000001.009
400 20150615000010.000
"""


def test_the_first_seconds_of_a_file_count_from_its_first_product(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(LINES)
    cut = prepare(str(path), 1.0, seed=1)
    assert (cut.products, cut.size_bytes, cut.largest_bytes) == (2, 300, 200)
    assert cut.text == "".join(LINES.splitlines(keepends=True)[:2])
    assert cut.to_dict() == {"source": "trace.txt", "products": 2, "bytes": 300}
    assert prepare(str(path), 1.001, seed=1).products == 3


def test_broken_lines_are_all_reported_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("100 20150615000000.009\n-5 20150615000000.010\nx\n1 20150614000000.000\n")
    with pytest.raises(SpecErrors) as caught:
        prepare(str(path), 60, seed=1)
    lines = str(caught.value).splitlines()
    assert [line.split(" found ")[0] for line in lines] == [f"{path}:{n}:" for n in (2, 3, 4)]
    assert "'-5 20150615000000.010'" in lines[0]
    assert all("valid: 'SIZE YYYYMMDDhhmmss.mmm' per line" in line for line in lines)


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_a_trace_without_products(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(text)
    with pytest.raises(SpecErrors, match="no product in the trace"):
        prepare(str(path), 60, seed=1)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(SpecErrors, match="no readable file"):
        prepare(str(tmp_path / "none"), 60, seed=1)
    with pytest.raises(SpecErrors, match="no readable file"):
        prepare(str(tmp_path), 60, seed=1)


def test_what_may_never_end_is_no_trace(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path in (tmp_path / "fifo", tmp_path / "link", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(SpecErrors) as caught:
            prepare(str(path), 60, seed=1)
        (line,) = str(caught.value).splitlines()
        assert line.startswith(f"{path}:1: found no regular file")
        assert "valid: model, paced, model:conduit, " in line
        assert ", or a regular file of at most 256000000 bytes: 'SIZE " in line


@pytest.mark.slow
def test_a_trace_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.touch()
    os.truncate(path, 256_000_001)
    with pytest.raises(SpecErrors, match="found more than 256000000 bytes; valid: .* at most 256"):
        prepare(str(path), 60, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("duration_s", [1e-9, 1e-300, 5e-324])
def test_a_duration_below_the_resolution_of_traces(tmp_path: Path, duration_s: float) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(LINES)
    for trace in (str(path), "model"):
        with pytest.raises(UsageError, match="duration: found .* s; valid: 0.001 s or more"):
            prepare(trace, duration_s, seed=1)
    assert prepare(str(path), 0.001, seed=1).products == 1


@pytest.mark.slow
def test_a_generated_hour_is_what_its_file_would_say() -> None:
    hour = trace_model.generate_hour(7)
    written = parse_trace(trace_model.format_trace(hour), "t")
    within = [
        p for p in written.products if p.time_us < written.products[0].time_us + 3_600_000_000
    ]
    assert prepare("model", 3600.0, seed=7).products == len(within)
    kept = "".join(
        f"{p.size_bytes} {trace_model.stamp(p.time_us)}\n" for p in written.products[:500]
    )
    assert prepare("model", 3600.0, seed=7).text.startswith(kept)


@pytest.mark.slow
@pytest.mark.parametrize("trace", ["model", "paced"])
def test_the_models_make_as_many_hours_as_asked(trace: str) -> None:
    """MPUP16 V-C replays seven hours; a shorter run gets the first one."""
    hour, longer = prepare(trace, 3600.0, seed=7), prepare(trace, 2.5 * 3600, seed=7)
    assert longer.text.startswith(hour.text)
    assert longer.source.endswith("seed 7, 3 hours")
    times = [p.time_us / 1e6 for p in parse_trace(longer.text, "t").products]
    assert times == sorted(times)
    assert 2.45 * 3600 < times[-1] - times[0] < 2.5 * 3600
    per_hour = longer.products / 2.5
    assert 0.7 < per_hour / hour.products < 1.3
    second = [int(line.split()[0]) for line in longer.text.splitlines()[hour.products :]]
    assert second[:100] != [int(line.split()[0]) for line in hour.text.splitlines()[:100]]


def test_a_duration_beyond_the_trace_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("".join(f"100 20150615000{m}00.000\n" for m in range(10)))  # 9 minutes
    assert prepare(str(path), 600.0, seed=1).products == 10
    with pytest.raises(UsageError) as caught:
        prepare(str(path), 3600.0, seed=1)
    (line,) = str(caught.value).splitlines()
    assert line == (
        f"duration: found 3600 s with {path}, whose products span 540 s; valid: at most that, "
        "e.g. --duration 540 (DURATION=540), or a longer trace"
    )


def test_the_model_is_cut_and_checked() -> None:
    cut = prepare("model", 60, seed=2053)
    parsed = parse_trace(cut.text, "t")
    assert not parsed.problems
    assert len(parsed.products) == cut.products == 584
    assert sum(p.size_bytes for p in parsed.products) == cut.size_bytes
    rows = cut.to_dict()["model_check"]
    assert isinstance(rows, list)
    assert rows[0]["statistic"] == "products (count)"
    assert cut.source == "NGRID model, seed 2053"


def test_repeats_are_spread_over_the_windows_of_an_hour() -> None:
    """Halves of 8 windows, then quarters; of 6: 0, 1/2, 1/4, 3/4 (4.5), 1/8 (0.75: taken), 5/8
    (3.75: taken), 3/8 (2.25), 7/8 (5.25) of them."""
    assert window_order(8, 8) == [0, 4, 2, 6, 1, 5, 3, 7]
    assert window_order(8, 3) == [0, 4, 2]
    assert window_order(6, 99) == [0, 3, 1, 4, 2, 5]
    assert window_order(1, 5) == [0]


def test_each_repeat_replays_a_window_of_its_own(tmp_path: Path) -> None:
    """10 s, one product each second: windows of 2.5 s begin at 0, 5, 2.5 and 7.5 s."""
    path = tmp_path / "trace.txt"
    path.write_text("".join(f"{100 + s} 201506150000{s:02}.000\n" for s in range(11)))
    hours = read(str(path), 2.5, 1)
    assert window_count(hours, 2.5) == 4
    sizes = [[int(x.split()[0]) for x in window(hours, 2.5, k).text.splitlines()] for k in range(5)]
    assert sizes == [[100, 101, 102], [105, 106, 107], [103, 104], [108, 109], [100, 101, 102]]
    assert window(hours, 2.5, 0).text == prepare(str(path), 2.5, 1).text
    assert window(hours, 2.5, 3).source == "trace.txt, from 7.5 s"
    assert window(hours, 2.5, 3).file == "trace-w3.txt"


def test_a_window_in_which_nothing_comes_begins_with_the_next_product(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("1 20150615000000.000\n2 20150615000009.000\n3 20150615000010.000\n")
    hours = read(str(path), 2.0, 1)
    assert window_order(window_count(hours, 2.0), 3) == [0, 2, 1]
    assert window(hours, 2.0, 1).products == 1
    assert window(hours, 2.0, 1).size_bytes == 2
