# SPDX-License-Identifier: Apache-2.0
"""Lab 8 as a student would do it: clean runs, three cases with hidden faults, the solution by
reading the evidence, and typical wrong answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from labs.cases import HIDDEN, cases_of
from labs.checking import Status
from labs.hidden_faults import (
    AMOUNTS,
    CASES,
    KINDS,
    mischief,
)
from labs.runs import cells
from labs.spec import Lab
from labs.tests.measuring import (
    IN_GUESTS_IF_ASKED,
    Wrong,
    assert_all,
    assert_graded,
    assert_none_passes,
    begin,
    judged,
    labs_verb,
    measure,
    right_answers,
    write_answers,
    wrong_answers,
)
from labs.workdir import Work

STUDENT = "heidi"  # this student's cases: filter, queue, clock
RECEIVERS = ("wsu1", "sl1", "uh1", "osf1")


def test_cases_are_different_and_all_kinds_come_up() -> None:
    seen = set()
    for seed in range(0, 10**9, 7_654_321):
        found = mischief(seed, RECEIVERS)
        assert list(found) == list(CASES)
        assert len({m.kind for m in found.values()}) == len(CASES)
        for m in found.values():
            assert m.amount in AMOUNTS[m.kind]
            assert (m.place in RECEIVERS) == (m.kind in ("delay", "rule", "filter"))
        seen |= {(m.kind, m.amount) for m in found.values()}
    assert seen == {(k, a) for k in KINDS for a in AMOUNTS[k]}


def read(cell: Path, name: str) -> Any:
    return json.loads((cell / name).read_text())


def detective(cell: Path) -> tuple[str, str, float]:
    """Return what a student concludes from a case's files alone: (kind, place, amount)."""
    steps = [h["clock"]["step_ns"] / 1e6 for h in read(cell, "host-lag.json").values()]
    if max(steps) > 1:
        return "clock", "everywhere", round(max(steps))
    probes = read(cell, "link-probes.json")
    for probe in probes["after"]:
        longer = probe["least_ms"] - probe["asked_ms"]
        if longer > 1:
            rack = probe["link"].split(":")[0].removeprefix("tor-")
            return "delay", f"{rack}1", round(longer)
    for setting in read(cell, "shaping-end.json")["settings"]:
        if not setting["ok"] and setting["name"] == "umass multicast rate":
            return "rate", "sender", setting["found"] / 1e6
        if not setting["ok"] and "limit" in setting["name"]:
            return "queue", "sender", setting["found"]
    for host, rules in read(cell, "counters-end.json")["iptables"].items():
        for rule in rules:
            if "--every" in rule["rule"]:
                return "rule", host, int(rule["rule"].split("--every")[1].split()[0])
    for host, account in read(cell, "losses.json").items():
        if account["losses"]:
            return "filter", host, sum(account["losses"].values())
    return "none", "everywhere", 0


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Work]:
    lab, work = begin(8, tmp_path_factory.mktemp("lab8") / "w", STUDENT)
    assert_none_passes(lab, work)
    assert judged(lab, work, "twice") == (Status.NOTHING, "once")
    assert judged(lab, work, "case-a") == (Status.NOTHING, "missing")
    other = str(lab.parameters(STUDENT)["other_seed"])
    where = ("--dir", str(work.directory))
    jobs: list[Callable[[], str]] = [
        partial(measure, work, "truth.yaml"),
        partial(measure, work, "truth.yaml"),
        partial(measure, work, "truth.yaml", "--seed", other),
        *(partial(labs_verb, "case", "8", "truth.yaml", case, *where) for case in CASES),
    ]
    with ThreadPoolExecutor(2) as pool:  # two guests at once
        for done in [pool.submit(job) for job in jobs]:
            done.result()
    by_seed = {c.described["seed"]: c for c in cells(work.directory, "truth")}
    mine, others = (by_seed[int(str(lab.parameters(STUDENT)[n]))] for n in ("seed", "other_seed"))
    statuses = [c["status"] for c in read(mine.path, "verdict.json")["checks"]]
    a, b = (c.metrics()["latency_p50"] for c in (mine, others))
    answers: dict[str, object] = {
        "checks_passed": statuses.count("pass"),
        "checks_not_applicable": statuses.count("n/a"),
        "latency_p50_other_seed_percent": round(100 * (b - a) / a, 1),
        "ldm6_throughput_difference_percent": 3.6,
        "of_it_by_the_longer_path_percent": 1.0,
        "overloaded_missing_percent": 0.87,
    }
    for case in CASES:
        (cell,) = work.directory.glob(f"runs/case-{case}/[0-9]*/cells/*")
        assert not any((cell / name).exists() for name in HIDDEN)
        kind, place, amount = detective(cell)
        answers |= {f"case_{case}_kind": kind, f"case_{case}_place": place}
        answers[f"case_{case}_amount"] = amount
    write_answers(work, answers)
    assert_all(lab, work, Status.PASSED)
    return lab, work


class TestInGuests:
    pytestmark = IN_GUESTS_IF_ASKED

    @pytest.mark.parametrize(
        ("check", "answer", "value", "hint"),
        [
            ("verdict", "checks_passed", 1, "other"),
            ("seeds", "latency_p50_other_seed_percent", 1234, "other"),
            ("clocks", "ldm6_throughput_difference_percent", 0.5, "total"),
            ("case-a", "case_a_kind", "gremlins", "kinds"),
        ],
    )
    def test_a_wrong_answer(
        self, copy: tuple[Lab, Work], check: str, answer: str, value: object, hint: str
    ) -> None:
        lab, work = copy
        write_answers(work, {answer: value})
        assert judged(lab, work, check) == (Status.FAILED, hint)

    def test_wrong_findings(self, copy: tuple[Lab, Work]) -> None:
        """Another kind, another place, another amount: each leads to its own hint."""
        lab, work = copy
        kept = (work.directory / "answers.yaml").read_text()
        leads = {"delay": "link", "rate": "sender", "queue": "sender", "rule": "lost"}
        leads |= {"filter": "lost", "clock": "clock", "none": "nothing-done"}
        for case, done in cases_of(lab, work.student, RECEIVERS).items():
            wrong_kind = "rule" if done.kind in ("filter", "none") else "filter"
            tries: list[tuple[dict[str, object], str]] = [
                ({f"case_{case}_kind": wrong_kind}, leads[done.kind])
            ]
            if done.kind != "none":
                tries += [
                    ({f"case_{case}_kind": "none"}, "clean"),
                    ({f"case_{case}_place": "ctl"}, "place"),
                    ({f"case_{case}_amount": 3}, "amount"),
                ]
            for wrong, hint in tries:
                write_answers(work, wrong)
                assert judged(lab, work, f"case-{case}") == (Status.FAILED, hint), (done, wrong)
                (work.directory / "answers.yaml").write_text(kept)

    def test_one_run_only_and_a_run_that_was_changed(self, copy: tuple[Lab, Work]) -> None:
        lab, work = copy
        seed = lab.parameters(work.student)["seed"]
        first, second = (c for c in cells(work.directory, "truth") if c.described["seed"] == seed)
        log = second.path / "logs/wsu1.ldmd.log"
        log.write_text(log.read_text().replace("delay: 0.0", "delay: 0.1", 1))
        assert judged(lab, work, "twice") == (Status.FAILED, "not-yours")
        shutil.rmtree(second.run)
        assert first.path.exists()
        assert judged(lab, work, "twice") == (Status.FAILED, "once")

    @pytest.mark.parametrize("wrong", wrong_answers(8), ids=lambda wrong: wrong.name)
    def test_the_wrong_answers(self, copy: tuple[Lab, Work], wrong: Wrong) -> None:
        lab, work = copy
        write_answers(work, wrong.values(right_answers(work)))
        assert judged(lab, work, wrong.check) == (Status.FAILED, wrong.hint)

    def test_graded_again(self, copy: tuple[Lab, Work], tmp_path: Path) -> None:
        lab, work = copy
        assert_graded(lab, work, tmp_path / "class")
