# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from experiments.design.spec import SpecErrors
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
