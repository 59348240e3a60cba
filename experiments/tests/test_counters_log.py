# SPDX-License-Identifier: Apache-2.0
"""The log of counters: each series is announced once, then only changes and ends are written."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from experiments.cells.counters_log import CountersLog

PAGE = (Path(__file__).resolve().parents[2] / "common/c/fuzz/corpus/stats_page/two").read_bytes()
PRODUCTS_AT = PAGE.index(struct.pack("=QQ", 8, 9))  # of the receiver's row


def lines(log: CountersLog) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    found = [json.loads(line) for line in log.sample().splitlines()]
    return found[:-1], found[-1]


def test_changes_alone(tmp_path: Path) -> None:
    folder = tmp_path / "uva.pq.stats"
    folder.mkdir()
    page = folder / "mldm.4711"
    page.write_bytes(PAGE)
    (folder / ".mldm.5").write_bytes(b"being made")
    (folder / "junk.6").write_bytes(b"junk")
    log = CountersLog(tmp_path)
    series, sample = lines(log)
    assert series[1] == {
        "series": 1,
        "name": "peer_products",
        "kind": "counter",
        "decimals": 0,
        "labels": {
            "host": "uva",
            "program": "mldm",
            "feed": "NGRID",
            "receiver": "10.0.0.1:5",
        },
        "help": "Products.",
    }
    assert [one["series"] for one in series] == [0, 1, 2]
    assert sample["values"] == [[0, 7], [1, 8], [2, 9]]
    assert sample["time_us"] > 1_500_000_000_000_000
    assert log.refused == 1
    data = bytearray(PAGE)
    data[PRODUCTS_AT : PRODUCTS_AT + 8] = struct.pack("=Q", 10)
    page.write_bytes(data)
    series, sample = lines(log)
    assert (series, sample["values"], "gone" in sample) == ([], [[1, 10]], False)
    page.unlink()
    series, sample = lines(log)
    assert (series, sample["values"], sample["gone"]) == ([], [], [0, 1, 2])
    page.write_bytes(PAGE)
    series, sample = lines(log)
    assert (series, sample["values"]) == ([], [[0, 7], [1, 8], [2, 9]])
