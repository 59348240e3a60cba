# SPDX-License-Identifier: Apache-2.0
"""A running cell is watched for 24 h, fed at speed: neither memory nor disk grows beyond a bound.

24 receivers, a product a second, 40 counters each second, and a viewer. Log files are replaced
every hour, as by logrotate, so that the files themselves do not fill the disk.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from common.places import ROOT
from monitor.growing import MOST
from monitor.news import News
from monitor.running import RunningRun
from parsers.synthetic_hour import START_S, Hour, _ingest, _products, _publisher, _receiver

HOURS, HOUR_S, COUNTERS = 24, 3600, 40
DAY = Hour(receivers=24, products=HOURS * HOUR_S, seconds=HOURS * HOUR_S)
FULL = MOST // DAY.receivers // HOUR_S + 1  # hours until the oldest deliveries are dropped
CELL = "cells/.day.partial"


def samples(hour: int) -> Iterator[str]:
    if hour == 0:
        for number in range(COUNTERS):
            labels = {"host": f"r{number + 1}"}
            line = {"series": number, "name": "acks", "kind": "counter", "labels": labels}
            yield json.dumps(line) + "\n"
    for second in range(hour * HOUR_S, (hour + 1) * HOUR_S):
        values = [[number, second * number] for number in range(COUNTERS)]
        yield json.dumps({"time_us": (START_S + second) * 1_000_000, "values": values}) + "\n"


def pages_mb() -> float:
    """Return the memory that this process now has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def watch(folder: Path) -> None:
    """Print after each hour: memory (MB), products known, values of counters kept."""
    products = _products(DAY)
    logs = {"pqinsert.log": (_ingest(products), 1), "umass.ldmd.log": (_publisher(products), 2)}
    for number, host in enumerate(DAY.hosts):
        logs[f"{host}.ldmd.log"] = (_receiver(products, number + 2), 1)
    shown = RunningRun(folder)
    news = News(shown)
    news._wanted["day"] += 1
    for hour in range(HOURS):
        for name, (lines, each) in logs.items():
            replace(folder / CELL / "logs" / name, islice(lines, each * HOUR_S))
        replace(folder / CELL / "logs/counters.jsonl", samples(hour))
        news._look()
        (cell,) = shown._cells.values()
        kept = sum(len(points.values) for points in cell.recording.points.values())
        print(f"{pages_mb():.1f} {cell.deliveries._products()} {kept}", flush=True)
    assert {s.name for s in cell.recording.points} == {"acks", "sampled"}


def replace(file: Path, lines: Iterator[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    with new.open("w") as out:
        out.writelines(lines)
    new.replace(file)


@pytest.mark.long
def test_a_day_does_not_grow(tmp_path: Path) -> None:
    folder = tmp_path / ".20261124T000000Z.partial"
    program = f"from {__name__} import watch, Path; watch(Path({str(folder)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=1500
    )
    assert done.returncode == 0, done.stderr
    rows = [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
    memory, products, kept = zip(*rows, strict=True)
    assert len(rows) == HOURS and products[2] == 3 * HOUR_S
    assert FULL < HOURS - 6 and max(products) <= MOST / DAY.receivers + HOUR_S
    assert set(kept) == {COUNTERS + 1}
    early = max(memory[: FULL + 4])  # until it was full and dropped products once
    assert max(memory[FULL + 4 :]) <= 1.05 * early, memory
    left = {path.name for path in folder.rglob("*") if path.is_file()}
    assert left == {"pqinsert.log", "umass.ldmd.log", "counters.jsonl"} | {
        f"{host}.ldmd.log" for host in DAY.hosts
    }
