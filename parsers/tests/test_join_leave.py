# SPDX-License-Identifier: Apache-2.0
"""The report of a run whose subscribers come and go. Its directory is written here by hand: one
feed of nine products, one subscriber who stays and one who comes, is killed, and comes back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from parsers.__main__ import main
from parsers.base.jsonfiles import BadFile
from parsers.base.metric_units import SUBSCRIPTION_METRICS
from parsers.measure import join_leave
from parsers.measure.join_leave import JoinLeaveMetrics, summarize
from parsers.measure.run_files import load_cell, load_join_leave
from parsers.report.document import render_text
from parsers.report.publish import write_report
from parsers.tests.test_subscriptions import LEAF, NUMBERS, ZERO_S, info, line, received

STAYS_AT = "star:5:404"
CELL = {
    "kind": "join-leave",
    "cell": "join-leave-m2-f1",
    "experiment": "join-leave",
    "protocol": "ldm7",
    "m": 2,
    "duration_s": 10.0,
    "publisher": "ucar",
    "subscribers": ["uwisc", "uva"],
    "feeds": [
        {
            "name": "NGRID", "lane": 1, "r_mc_bps": 20_000_000, "r_vn_bps": 48_000_000,
            "products": 9, "nic1": "ucar-nic1", "stays": ["uwisc"],
        }
    ],
    "endpoints": {"uwisc.NGRID": STAYS_AT, "uva.NGRID": LEAF},
    "trace": {"source": "made up"},
    "insertion_started": ZERO_S + 1.0,
    "insertion_ended": ZERO_S + 10.0,
    "drained": ZERO_S + 10.5,
    "drained_all": True,
}  # fmt: skip
EVENTS = [
    {"time_s": ZERO_S + 0.0, "what": "join", "subscriber": "uwisc", "feed": "NGRID"},
    {"time_s": ZERO_S + 2.0, "what": "join", "subscriber": "uva", "feed": "NGRID"},
    {"time_s": ZERO_S + 5.5, "what": "kill", "subscriber": "uva", "feed": "NGRID"},
    {"time_s": ZERO_S + 7.0, "what": "join", "subscriber": "uva", "feed": "NGRID"},
]
NONE = {"packets": 0, "bytes": 0}
COUNTERS = {
    "name": "NGRID",
    "entered": {"multicast": {"packets": 70, "bytes": 7000}, "unicast": NONE},
    "meter_dropped": {"packets": 4, "bytes": 400},
    "root": {"switch": "star", "port": 4, "vlan": 101, "denied": NONE, "spoofed": NONE},
    "leaves": [
        {
            "switch": "star", "port": 5, "vlan": 404, "denied": {"packets": 2}, "spoofed": NONE,
            "multicast": NONE, "compared": {"since": 1.0, "sent": 50, "missing": 1},
        },
        {
            "switch": "ashb", "port": 2, "vlan": 303, "denied": NONE, "spoofed": {"packets": 3},
            "multicast": NONE, "compared": None,
        },
    ],
}  # fmt: skip
VERDICT = {"verdict": "faithful", "checks": [{"name": "all", "status": "pass", "text": "well"}]}


def path_line(at_s: float, what: str, endpoint: str, ms: float, leaves: int) -> str:
    text = f"Path service: {what}: path=NGRID, endpoint={endpoint}, ms={ms}, leaves={leaves}"
    return line(at_s, text, "mldm")


def listing(numbers: Iterable[int]) -> str:
    return "".join(f"{n:032x} 10000 NGRID.{n:06d}\n" for n in numbers)


def endpoint(text: str) -> dict[str, Any]:
    switch, port, vlan = text.split(":")
    return {"switch": switch, "port": int(port), "vlan": int(vlan), "macs": []}


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return write_run(tmp_path)


def write_run(tmp_path: Path) -> Path:
    """Write the run of one feed and two subscribers; return its directory."""
    cell = tmp_path / "join-leave/20261121T014600Z/cells/join-leave-m2-f1"
    (cell / "logs").mkdir(parents=True)
    (cell / "products").mkdir()
    files = {
        "cell.json": json.dumps(CELL),
        "events.json": json.dumps(EVENTS),
        "verdict.json": json.dumps(VERDICT),
        "network.json": '{"links": []}',
        "counters-start.json": '{"time": 1}',
        "counters-end.json": '{"time": 2}',
        "paths-end.json": json.dumps(
            [{"name": "NGRID", "state": "up", "leaves": [endpoint(STAYS_AT), endpoint(LEAF)]}]
        ),
        "path-counters.json": json.dumps([COUNTERS]),
        "logs/ucar.ldmd.log": line(-1, "Path service: path ready: path=NGRID, root=r, ms=40", "m")
        + path_line(0.1, "leaf added", STAYS_AT, 10, 1)
        + path_line(2.2, "leaf added", LEAF, 20, 2)
        + path_line(5.6, "leaf removed", LEAF, 5, 1)
        + path_line(7.2, "leaf added", LEAF, 30, 2),
        "logs/pqinsert.NGRID.log": "".join(
            line(n, f"Inserted: {info(n)}", "pqinsert") for n in NUMBERS
        ),
        "logs/uwisc.NGRID.ldmd.log": line(0.2, "Receiving")
        + "".join(received(n + 0.1, n) for n in NUMBERS),
        "logs/uva.NGRID.ldmd.log": line(2.5, "Receiving")
        + "".join(received(n + 0.1, n) for n in (3, 4, 5))
        + line(7.4, "Receiving")
        + "".join(line(7.6, f"Backlog: {info(n)}") for n in (6, 7))
        + "".join(received(n + 0.1, n) for n in (8, 9)),
        "products/ucar.NGRID.txt": listing(NUMBERS),
        "products/uwisc.NGRID.txt": listing(NUMBERS),
        "products/uva.NGRID.txt": listing(n for n in NUMBERS if n > 2),
    }
    for name, text in files.items():
        (cell / name).write_text(text)
    (cell.parents[1] / "manifest.json").write_text('{"experiment": "join-leave", "paper": []}')
    return cell.parents[1]


def cell_of(run_dir: Path) -> Path:
    return run_dir / "cells/join-leave-m2-f1"


def found(run_dir: Path) -> JoinLeaveMetrics:
    return summarize(load_join_leave(cell_of(run_dir)))


def value(run_dir: Path, name: str) -> float | None:
    return found(run_dir).values[name].value


def test_metrics(run_dir: Path) -> None:
    values = {name: v.value for name, v in found(run_dir).values.items()}
    assert set(values) == set(SUBSCRIPTION_METRICS)
    assert values == {
        "lost_products": 0,
        "lost_products_stayed": 0,
        "not_recovered_products": 0,
        "duplicate_products": 0,
        "damaged_products": 0,
        # uwisc: nine products of 10,000 bytes after 1.1, 2.1, ... 9.1 s, 45.9 s in all.
        "throughput_stayed": pytest.approx(720_000 / 45.9),
        "ffdr_stayed": 100,
        "latency_p50_stayed": pytest.approx(5.1),
        "latency_p99_stayed": pytest.approx(9.02),  # 0.92 of the way from 8.1 to 9.1
        "joins": 3,
        "ends": 1,
        "path_setup": 0.04,
        "leaf_setup_p50": 0.02,  # of 10, 20, 30 ms
        "leaf_setup_max": 0.03,
        "join_ready_p50": pytest.approx(0.4),  # of 0.2, 0.5, 0.4 s
        "join_ready_max": pytest.approx(0.5),
        "join_product_p50": pytest.approx(0.85),  # of 1.1 and 0.6 s: who stays was there before
        "join_product_max": pytest.approx(1.1),
        "prune_p50": pytest.approx(0.1),
        "prune_max": pytest.approx(0.1),
        "verdict_invalid": 0,
    }
    (feed,) = found(run_dir).feeds
    assert (feed.sessions, feed.leaves_added, feed.leaves_removed) == (3, 3, 1)
    assert feed.input_bps.value == pytest.approx(9 * 10_000 * 8 / 9)
    assert feed.branches == feed.subscribed == {STAYS_AT, LEAF}


def test_the_report_says_all(run_dir: Path) -> None:
    assert main(["report", "--quiet", str(run_dir)]) == 0
    stored = (run_dir / "report/report.txt").read_text(encoding="utf-8")
    again = write_report(run_dir)
    assert again.text == stored
    text = render_text(again.report, 100)
    assert "FAITHFUL" in text
    assert "Products lost                         0" in text
    assert "1 session ended by kill -9" in text
    assert "At the end each tree has exactly the branches of the subscriptions." in text
    assert "No packet was lost anywhere." in text
    (row,) = [r.split() for r in text.splitlines() if r.split()[:2] == ["uva", "NGRID"]][:1]
    # Two sessions, one killed; 3, 4, 5, 8, 9 sent, 6 and 7 while away.
    assert row[2:] == ["2", "(1", "killed)", "5", "5", "0", "0", "2", "2", "0", "0"]
    counted = [r.split() for r in text.splitlines() if r.split()[:1] == ["NGRID"]]
    assert ["NGRID", "70", "4", "5"] in counted  # refused: 2 denied, 3 spoofed
    html = (run_dir / "report/index.html").read_text()
    assert "Subscriptions" in html
    metrics = json.loads((run_dir / "metrics.json").read_text())
    (point,) = metrics["points"]
    assert point["fixed"]["protocol"] == "ldm7"
    assert point["estimates"]["joins"]["method"] == "one run: no interval"
    cell = metrics["cells"]["join-leave-m2-f1"]
    assert (metrics["verdict"], metrics["clock"]) == ("faithful", "native")
    assert cell["cell"]["protocol"] == "ldm7"  # bands are found by it
    assert cell["values"]["lost_products"] == {
        "value": 0.0, "unit": "products", "reason": "", "note": "",
    }  # fmt: skip
    assert [s["how"] for s in cell["subscriptions"][1]["sessions"]] == ["killed", "stayed"]


def test_a_lost_product_is_told_everywhere(run_dir: Path) -> None:
    products = cell_of(run_dir) / "products"
    (products / "uwisc.NGRID.txt").write_text(listing(n for n in NUMBERS if n != 4))
    assert value(run_dir, "lost_products") == value(run_dir, "lost_products_stayed") == 1
    text = write_report(run_dir).text
    assert "PRODUCTS LOST: 1" in text
    assert "uwisc lost of NGRID: NGRID.000004." in text


def test_a_tree_that_is_not_that_of_the_subscriptions_is_told(run_dir: Path) -> None:
    paths = [{"name": "NGRID", "state": "up", "leaves": [endpoint(LEAF), endpoint("losa:3:707")]}]
    (cell_of(run_dir) / "paths-end.json").write_text(json.dumps(paths))
    text = " ".join(write_report(run_dir).text.split())
    assert f"without subscriber: losa:3:707; without branch: {STAYS_AT}." in text


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("products/uva.NGRID.txt", "uva never got NGRID, or its files are missing"),
        ("logs/uva.NGRID.ldmd.log", "uva never got NGRID, or its files are missing"),
    ],
)
def test_without_a_file_nothing_is_claimed(run_dir: Path, name: str, reason: str) -> None:
    (cell_of(run_dir) / name).unlink()
    lost = found(run_dir).values["lost_products"]
    assert (lost.value, lost.reason) == (None, reason)
    assert f"{name} is missing." in write_report(run_dir).text


def test_never_connected_is_no_success(run_dir: Path) -> None:
    log = cell_of(run_dir) / "logs/uva.NGRID.ldmd.log"
    log.write_text(line(2.5, "trying"))
    assert value(run_dir, "lost_products") is None


def test_bad_files_are_told(run_dir: Path) -> None:
    (cell_of(run_dir) / "paths-end.json").write_text('[{"name": 1}]')
    with pytest.raises(BadFile, match="paths-end.json: name: Input should be a valid string"):
        write_report(run_dir)
    (cell_of(run_dir) / "events.json").unlink()
    with pytest.raises(BadFile, match="events.json is missing: it says who joined what"):
        write_report(run_dir)


def test_it_is_not_taken_for_a_cell_of_another_kind(run_dir: Path) -> None:
    with pytest.raises(BadFile, match="found a cell of kind 'join-leave'; valid: LDM7 or LDM6"):
        load_cell(cell_of(run_dir))


def test_which_cells_are_of_this_kind() -> None:
    assert join_leave.is_join_leave(json.dumps(CELL))
    for text in ("{}", "[]", "{", '{"kind": "other"}'):
        assert not join_leave.is_join_leave(text)
