# SPDX-License-Identifier: Apache-2.0
"""Lab 11 as a student would do it: a monitored run in which a regional network loses packets, its
records read by the solution's program, and typical wrong answers."""

from __future__ import annotations

import dataclasses
import json
import shutil
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from ruamel.yaml import YAML

from labs.checking import Status, load_checks
from labs.regional_loss import PERCENT, regional_loss, with_regional_loss
from labs.runs import CellOfRun, cells
from labs.spec import Lab, find_lab
from labs.tests.measuring import (
    IN_GUESTS_IF_ASKED,
    Wrong,
    assert_all,
    assert_graded,
    assert_none_passes,
    begin,
    judged,
    labs_verb,
    right_answers,
    write_answers,
    wrong_answers,
)
from labs.tests.test_promql import NEEDS_ENGINE
from labs.workdir import Work
from monitor.records import Records
from monitor.store import Store
from parsers.measure.metrics import of_sums
from parsers.measure.run_files import load_cell
from parsers.measure.summary import summarize
from topologies.model.load import find, load

SUBSCRIBERS = ("uva", "uwisc", "umd", "uutah", "uwash")
SOLUTION = Path(__file__).resolve().parents[1] / "solutions/11-watching-a-network/solution.py"
RETX = "downpour_fmtp_receiver_retx_blocks_total"


def test_every_network_and_every_loss_come_up() -> None:
    drfsm8 = load(find("drfsm8"))
    seen = Counter(regional_loss(seed, drfsm8, SUBSCRIBERS) for seed in range(0, 10**9, 1_234_567))
    assert {(f.host, f.network) for f in seen} == {
        *(("uva", "maria"), ("uwisc", "boreas"), ("umd", "max"), ("uutah", "uen")),
        ("uwash", "pnwgp"),
    }
    assert {f.percent for f in seen} == set(PERCENT) and len(seen) == 5 * len(PERCENT)
    for found in seen:
        changed = with_regional_loss(drfsm8, found)
        (link,) = [k for k in changed.links if not k.is_plain and k not in drfsm8.links]
        assert found.network in link.name


def checks_of_lab() -> ModuleType:
    return load_checks(find_lab(11).folder)


def recorded(folder: Path, *lines: object) -> CellOfRun:
    (folder / "logs").mkdir(parents=True)
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "logs/counters.jsonl").write_text(text)
    return CellOfRun(folder, folder, {}, "faithful", 0.0)


def test_counters_hold_until_they_change(tmp_path: Path) -> None:
    """By hand: from 100 s on, until 106 s, at the times of the samples."""
    retx = {"name": "fmtp_receiver_retx_blocks", "kind": "counter", "labels": {"host": "uva"}}
    rtt = {"name": "rtt_seconds", "kind": "gauge", "decimals": 3, "labels": {}}
    one: dict[str, Any] = {
        "cell": recorded(
            tmp_path,
            {"series": 0, **retx}, {"series": 1, **rtt},
            {"time_us": 99_700_000, "values": [[0, 5]]},
            {"time_us": 101_000_000, "values": [[1, 65]]},
            {"time_us": 103_000_100, "values": [[0, 7]]},
            {"time_us": 104_000_000, "values": [[0, 9]], "gone": [1]},
            {"time_us": 107_000_000, "values": [[0, 99]]},
        ),
        "end_s": 106,
    }  # fmt: skip
    checks = checks_of_lab()
    found = checks.counters_of(**one)
    assert found == {
        f'{RETX}{{host="uva"}}': [5, 5, 5, 5, 9, 9, 9],
        "downpour_rtt_seconds{}": [None, 0.065, 0.065, 0.065, None, None, None],
    }
    assert checks.again(found, 3) == {"uva": 4}
    assert checks.again(found, 10**6) == {"uva": 9}


# -- with a run --------------------------------------------------------------------------------
def records_of(cell: CellOfRun) -> Records:
    found = Records()
    found.take((cell.path / "monitor/minutes.txt").read_text().splitlines(keepends=True))
    assert found.bad == 0
    return found


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Work]:
    lab, work = begin(11, tmp_path_factory.mktemp("lab11") / "w")
    assert_none_passes(lab, work)
    assert judged(lab, work, "run") == (Status.NOTHING, "missing")
    assert judged(lab, work, "record") == (Status.NOTHING, "missing")
    labs_verb("case", "11", "watched.yaml", "a", "--dir", str(work.directory))
    assert judged(lab, work, "run")[0] is Status.PASSED
    assert judged(lab, work, "network") == (Status.NOTHING, "")
    done = subprocess.run(
        [sys.executable, SOLUTION, work.directory],
        check=True, timeout=60, capture_output=True, text=True,
    )  # fmt: skip
    write_answers(work, YAML(typ="safe").load(done.stdout))
    return lab, work


class TestInGuests:
    pytestmark = IN_GUESTS_IF_ASKED

    @NEEDS_ENGINE
    def test_the_solution_passes(self, solved: tuple[Lab, Work]) -> None:
        assert_all(*solved, Status.PASSED)

    def test_without_an_engine_the_rest_is_graded(
        self, solved: tuple[Lab, Work], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lab, work = solved
        monkeypatch.setenv("PATH", str(tmp_path))
        assert judged(lab, work, "query") == (Status.NOTHING, "engine")
        for name in ("run", "record", "minute", "whole", "network"):
            assert judged(lab, work, name)[0] is Status.PASSED

    def test_table_4_of_records_is_that_of_the_logs(self, solved: tuple[Lab, Work]) -> None:
        """It is the same to the last digit, at all hosts, with losses and files of the backstop."""
        (cell,) = cells(solved[1].directory, "case-a")
        store = Store(None)
        store.put_records("run", "virtual", records_of(cell))
        rows = {row.host: of_sums(row.sums) for row in store.minutes(1, 10**11)}
        store.close()
        measured = summarize(load_cell(cell.path))
        assert rows == {r.host: r.fmtp for r in measured.receivers}
        assert set(rows) == set(SUBSCRIBERS)
        assert sum(r.by.get("backstop", 0) for r in measured.receivers) > 0
        assert all(fmtp.retx_blocks > 0 for fmtp in rows.values())

    def test_the_mean_of_the_minutes_is_wrong(self, copy: tuple[Lab, Work]) -> None:
        lab, work = copy
        (cell,) = cells(work.directory, "case-a")
        host = lab.parameters(work.student)["receiver"]
        own = [
            of_sums(m.sums) for m in records_of(cell).minutes.values() if m.host == host and m.sums
        ]
        means = {
            "run_ffdr_percent": statistics.fmean(m.ffdr_count.value or 0.0 for m in own),
            "run_mplr_percent": statistics.fmean(m.mplr.value or 0.0 for m in own),
        }
        write_answers(work, {name: round(mean, 2) for name, mean in means.items()})
        assert judged(lab, work, "whole") == (Status.FAILED, "mean")

    def test_a_wrong_reading(self, copy: tuple[Lab, Work]) -> None:
        lab, work = copy
        (cell,) = cells(work.directory, "case-a")
        own = lab.parameters(work.student)
        every = records_of(cell).minutes.values()
        minutes = sorted({m.minute for m in every if m.host == own["receiver"]})
        mine = minutes[int(str(own["minute"])) - 1]
        for record in every:
            is_mine = record.host == own["receiver"]
            if is_mine == (record.minute == mine) or record.sums is None:
                continue
            read = (record.products, record.fmtp, record.fmtp_bytes, record.sums.blocks)
            names = ("files", "files_by_fmtp", "bytes_by_fmtp", "blocks_again")
            write_answers(work, dict(zip(names, read, strict=True)))
            assert judged(lab, work, "record") == (Status.FAILED, "minute" if is_mine else "host")
        right = next(m for m in every if m.host == own["receiver"] and m.minute == mine)
        for wrong, hint in (({"bytes_by_fmtp": right.bytes}, "complete"), ({"files": 1}, "other")):
            write_answers(work, {"bytes_by_fmtp": right.fmtp_bytes, **wrong})
            assert judged(lab, work, "record") == (Status.FAILED, hint)

    @pytest.mark.parametrize(
        ("answer", "hint"), [("uva", "university"), ("another", "other"), ("ESnet", "names")]
    )
    def test_a_wrong_network(self, copy: tuple[Lab, Work], answer: str, hint: str) -> None:
        lab, work = copy
        right = str(right_answers(work)["lossy_network"])
        other = "MAX" if right == "UEN" else "UEN"
        write_answers(work, {"lossy_network": other if answer == "another" else answer})
        assert judged(lab, work, "network") == (Status.FAILED, hint)

    @NEEDS_ENGINE
    @pytest.mark.parametrize(
        ("query", "hint"),
        [
            (f"sum by (host) (increase({RETX}[TIME]))", "several"),
            (f"sum(increase({RETX}[TIME]))", "host"),
            (f"topk(1, sum by (host) (rate({RETX}[TIME])))", "rate"),
            (f"topk(1, sum by (host) (increase({RETX}[10s])))", "window"),
            (f"bottomk(1, sum by (host) (increase({RETX}[TIME])))", "who"),
            (f"topk(1, 7 * sum by (host) (increase({RETX}[TIME])))", "other"),
            (f"topk(1, sum by (host) (increase({RETX}s[TIME])))", "nothing"),
            (f"topk(1, {RETX}[TIME])", "refused"),
        ],
    )
    def test_a_wrong_query(self, copy: tuple[Lab, Work], query: str, hint: str) -> None:
        lab, work = copy
        window = f"{lab.parameters(work.student)['window_s']}s"
        write_answers(work, {"query": query.replace("TIME", window)})
        assert judged(lab, work, "query") == (Status.FAILED, hint)

    def test_somebody_elses_run(self, copy: tuple[Lab, Work]) -> None:
        """Answers and files of another student give no points."""
        lab, work = copy
        theirs = dataclasses.replace(work, student="bob")
        assert judged(lab, theirs, "run") == (Status.FAILED, "not-yours")
        assert_none_passes(lab, theirs)

    def test_another_loss(self, copy: tuple[Lab, Work]) -> None:
        """A run whose network loses nothing, with digests that fit."""
        from experiments.runs import digests

        lab, work = copy
        (cell,) = cells(work.directory, "case-a")
        file = cell.path / "network.json"
        raw = json.loads(file.read_text())
        for link in raw["links"]:
            link["forward"]["loss"] = link["backward"]["loss"] = 0.0
        file.write_text(json.dumps(raw))
        digests.write_cell(cell.path)
        assert judged(lab, work, "run") == (Status.FAILED, "not-yours")
        assert_none_passes(lab, work)

    def test_no_records(self, copy: tuple[Lab, Work]) -> None:
        from experiments.runs import digests

        lab, work = copy
        (cell,) = cells(work.directory, "case-a")
        shutil.rmtree(cell.path / "monitor")
        digests.write_cell(cell.path)
        assert judged(lab, work, "record") == (Status.FAILED, "not-yours")

    @NEEDS_ENGINE
    @pytest.mark.parametrize("wrong", wrong_answers(11), ids=lambda wrong: wrong.name)
    def test_the_wrong_answers(self, copy: tuple[Lab, Work], wrong: Wrong) -> None:
        lab, work = copy
        write_answers(work, wrong.values(right_answers(work)))
        assert judged(lab, work, wrong.check) == (Status.FAILED, wrong.hint)

    @NEEDS_ENGINE
    def test_graded_again(self, copy: tuple[Lab, Work], tmp_path: Path) -> None:
        lab, work = copy
        assert_graded(lab, work, tmp_path / "class")
