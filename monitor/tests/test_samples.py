# SPDX-License-Identifier: Apache-2.0
"""Lines of counters.jsonl: those that a cell's log writes, junk, and lines that are cut off."""

from __future__ import annotations

import json
import random
from pathlib import Path

from experiments.cells.counters_log import CountersLog
from monitor.recording import GONE, Series, shown
from monitor.samples import Reader, read

PAGE = (Path(__file__).resolve().parents[2] / "common/c/fuzz/corpus/stats_page/two").read_bytes()


def announced(number: int, name: str = "x", **more: object) -> str:
    line = {"series": number, "name": name, "kind": "counter", "labels": {}}
    return json.dumps(line | more) + "\n"


def test_what_a_cell_writes(tmp_path: Path) -> None:
    folder = tmp_path / "uva.pq.stats"
    folder.mkdir()
    (folder / "mldm.1").write_bytes(PAGE)
    log = CountersLog(tmp_path)
    text = log.sample() + log.sample()
    (folder / "mldm.1").unlink()
    text += log.sample()
    recording = read(text)
    assert recording.bad == 0
    labels = {"host": "uva", "program": "mldm", "feed": "NGRID", "receiver": "10.0.0.1:5"}
    wait = Series("peer_wait_seconds", "gauge", 9, "Wait.", tuple(sorted(labels.items())))
    assert list(recording.points[wait].values) == [9, GONE]
    (sampled,) = (p for s, p in recording.points.items() if s.name == "sampled")
    assert len(sampled.times_us) == 3
    assert recording.points[wait].times_us[1] == sampled.times_us[2]


def test_a_cut_last_line_is_left_for_later() -> None:
    text = announced(0) + '{"time_us":5,"values":[[0,1]]}\n{"time_us":6,"val'
    recording = read(text)
    assert recording.bad == 0
    assert list(recording.points[Series("x", "counter")].values) == [1]


def test_junk_is_counted_and_left_out() -> None:
    lines = [
        announced(0),
        "\n",
        "[]\n",
        "{}\n",
        "[" * 100_000 + "\n",
        announced(1, name="a b"),
        announced(1, kind="sum"),
        announced(1, decimals=10),
        announced(1, labels={"a-b": "c"}),
        announced(1, labels={"__name__": "c"}),
        announced(1, labels={"\u00e9": "c"}),
        announced(1, name="\u00e9"),
        announced(1, name="a" * 300),
        announced(1, name=""),
        announced(-1),
        announced(10**9),
        '{"time_us":1,"values":[[1,2]]}\n',
        '{"time_us":1,"values":[[0,-2]]}\n',
        '{"time_us":1,"values":[[0,9223372036854775808]]}\n',
        '{"time_us":1,"values":[[0,true]]}\n',
        '{"time_us":1,"values":[[0,1,2]]}\n',
        '{"time_us":-1,"values":[]}\n',
        '{"time_us":1,"values":[],"gone":5}\n',
        '{"time_us":1,"values":[],"gone":[{}]}\n',
        '{"time_us":7,"values":[[0,3]]}\n',
    ]
    recording = read("".join(lines))
    assert recording.bad == len(lines) - 2
    assert recording.first_bad.startswith("found ''")
    assert list(recording.points[Series("x", "counter")]) == [(7, 3)]


def test_ten_thousand_lines_of_junk_are_bounded() -> None:
    rng = random.Random(5)
    reader = Reader()
    reader.take(rng.randbytes(rng.randrange(200)).decode("latin-1") for _ in range(10_000))
    assert (reader.recording.bad, len(reader.recording.points)) == (10_000, 0)
    assert len(reader.recording.first_bad) < 200


def test_numbers_are_shown_exactly() -> None:
    assert [shown(7, 0), shown(1_500_000, 6), shown(5, 3)] == ["7", "1.500000", "0.005"]
    assert shown(2**63 - 1, 9) == "9223372036.854775807"
