# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest

from experiments.design import trace_model
from experiments.design.spec import SpecErrors, UsageError
from experiments.design.trace_input import prepare
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
        assert "valid: model, or a regular file of at most 256000000 bytes" in line


def test_a_trace_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.touch()
    os.truncate(path, 256_000_001)
    with pytest.raises(SpecErrors, match="found more than 256000000 bytes; valid: .* at most 256"):
        prepare(str(path), 60, seed=1)


@pytest.mark.parametrize("duration_s", [1e-9, 1e-300, 5e-324])
def test_a_duration_below_the_resolution_of_traces(tmp_path: Path, duration_s: float) -> None:
    path = tmp_path / "trace.txt"
    path.write_text(LINES)
    for trace in (str(path), "model"):
        with pytest.raises(UsageError, match="duration: found .* s; valid: 0.001 s or more"):
            prepare(trace, duration_s, seed=1)
    assert prepare(str(path), 0.001, seed=1).products == 1


def test_a_generated_hour_is_what_its_file_would_say() -> None:
    hour = trace_model.generate_hour(7)
    written = parse_trace(trace_model.format_trace(hour), "t")
    assert prepare("model", 4000.0, seed=7).products == len(written.products)
    kept = "".join(
        f"{p.size_bytes} {trace_model.stamp(p.time_us)}\n" for p in written.products[:500]
    )
    assert prepare("model", 4000.0, seed=7).text.startswith(kept)


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
