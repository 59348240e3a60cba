# SPDX-License-Identifier: Apache-2.0
"""Grading with the checks run again: lab 5 from files, hostile work directories, and receipts that
the instructor's key signs.

The six runs are invented: they contain only what the checks read.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.places import ROOT
from experiments.runs import digests
from labs import grade, rerun
from labs.checking import run_checks
from labs.results import digest_of, write_result
from labs.spec import Lab, find_lab
from labs.submissions import find_files, read
from labs.tests.bundled import LABS
from labs.tests.measuring import claim_everything, graded_again, write_answers
from labs.workdir import Work, open_work

LAB = find_lab(5)
KEY = b"the instructor's own key"
MBIT_PER_S = {"ldm6": 20.0, "ldm7": 21.0}
OWN_CHECKS = ("runs", "table", "slope", "flat", "limit")  # checks that the invented files pass


def cell(work: Work, protocol: str, receivers: int) -> Path:
    """Make a cell of lab 5 whose sender's interface sent in proportion (LDM6), or the same
    (LDM7)."""
    place = work.directory / f"runs/scaling/20260101T000000Z/cells/{protocol}-m{receivers}"
    place.mkdir(parents=True)
    mbit_per_s = MBIT_PER_S[protocol] * (receivers if protocol == "ldm6" else 1)
    sent = round(mbit_per_s * 1e6 * 10 / 8)
    described = {
        "factors": {"protocol": protocol, "receivers": receivers, "rate_bps": 20_000_000},
        "seed": LAB.parameters(work.student)["seed"],
        "duration_s": 10.0,
        "loss": 0.0,
        "publisher": "umass",
        "nic1": "eth1",
    }
    for name, value in {
        "cell": described,
        "verdict": {"verdict": "faithful"},
        "run": {"started": 2_000_000_000.0},
        "counters-start": {"interfaces": {"umass/eth1": {"tx_bytes": 1000}}},
        "counters-end": {"interfaces": {"umass/eth1": {"tx_bytes": 1000 + sent}}},
    }.items():
        (place / f"{name}.json").write_text(json.dumps(value))
    digests.write_cell(place)
    return place


def hand_in(folder: Path, student: str) -> Work:
    """Make a work directory of lab 5 with the right answers and its result file."""
    work, _ = open_work(LAB, folder / student, student)
    rows = ["protocol,receivers,mbit_per_s"]
    for protocol in ("ldm6", "ldm7"):
        for receivers in (2, 4, 8):
            cell(work, protocol, receivers)
            value = MBIT_PER_S[protocol] * (receivers if protocol == "ldm6" else 1)
            rows.append(f"{protocol},{receivers},{value}")
    (work.directory / "bandwidth.csv").write_text("\n".join(rows) + "\n")
    write_answers(
        work,
        {
            "ldm6_mbit_per_s_per_receiver": 20.0,
            "ldm7_growth_percent": 0.0,
            "ldm6_receivers_at_1_gbit_per_s": 50,
        },
    )
    write_result(LAB, work, run_checks(LAB, work.directory, student), "none", None)
    return work


def table(folder: Path, receipts: Path | None = None) -> dict[str, dict[str, str]]:
    return graded_again(folder, KEY, receipts)


def own_points() -> int:
    return sum(c.points for c in LAB.spec.checks if c.name in OWN_CHECKS)


@pytest.mark.slow
def test_honest_and_forged(tmp_path: Path) -> None:
    hand_in(tmp_path / "class", "ann")
    forged = hand_in(tmp_path / "class", "ben")
    claim_everything(LAB, forged)
    rows = table(tmp_path / "class")
    ann, ben = rows["ann/result-5.json"], rows["ben/result-5.json"]
    assert (ann["score"], ann["rerun"]) == (str(own_points()),) * 2
    assert "checked again" not in ann["remarks"]
    assert (ben["score"], ben["rerun"]) == ("100", str(own_points()))
    assert f"checked again: {own_points()} of 100, not 100" in ben["remarks"]


@pytest.mark.slow
def test_answers_that_were_changed_after_the_check(tmp_path: Path) -> None:
    work = hand_in(tmp_path / "class", "ann")
    write_answers(work, {"ldm7_growth_percent": 300})
    row = table(tmp_path / "class")["ann/result-5.json"]
    flat = next(c.points for c in LAB.spec.checks if c.name == "flat")
    assert row["rerun"] == str(own_points() - flat)


@pytest.mark.slow
def test_receipts_are_signed_and_nobody_else_makes_them(tmp_path: Path) -> None:
    claim_everything(LAB, hand_in(tmp_path / "class", "ann"))
    table(tmp_path / "class", tmp_path / "receipts")
    (path,) = (tmp_path / "receipts").rglob("result-5.json")
    receipt = json.loads(path.read_text())
    assert (receipt["student"], receipt["score"], receipt["rerun"]) == ("ann", own_points(), True)
    assert len(receipt["files_sha256"]) == 64

    def judged() -> dict[str, str]:
        screen = io.StringIO()
        grade.grade(tmp_path / "receipts", None, KEY, screen)
        (row,) = csv.DictReader(io.StringIO(screen.getvalue()))
        return row

    assert (judged()["digest"], judged()["score"]) == ("ok with key", str(own_points()))
    for change in ({"score": 100}, {"student": "ben"}, {"files_sha256": "0" * 64}):
        changed = {**receipt, **change}
        path.write_text(json.dumps(changed))
        assert judged()["digest"] == "wrong"
        for key in (None, b"a key that a student chose"):
            path.write_text(json.dumps({**changed, "digest": digest_of(changed, key)}))
            assert judged()["digest"] in ("wrong", "no key")


@pytest.mark.slow
def test_the_same_files_give_the_same_digest(tmp_path: Path) -> None:
    def digest(folder: Path) -> str:
        (found,) = find_files(folder)
        return rerun.rerun(read(found), LAB).files_sha256

    work = hand_in(tmp_path / "one", "ann")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    before = digest(tmp_path / "one")
    assert digest(tmp_path / "two") == before
    (work.directory / "bandwidth.csv").rename(work.directory / "bandwidth2.csv")
    assert digest(tmp_path / "one") != before


def only_file(work: Work) -> None:
    for path in list(work.directory.iterdir()):
        if path.name != "result-5.json":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def another_student(work: Work) -> None:
    state = work.directory / ".lab.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "student": "zoe"}))


def broken_state(work: Work) -> None:
    (work.directory / ".lab.json").write_text("[" * 5000)


def deep(work: Work) -> None:
    place = work.directory.joinpath(*["d"] * 60)
    place.mkdir(parents=True)
    (place / "f").write_text("")


def many(work: Work) -> None:
    place = work.directory / "many"
    place.mkdir()
    for number in range(300):
        (place / str(number)).write_text("")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "remark"),
    [
        (only_file, "not checked again: no work directory"),
        (another_student, "not checked again: the work directory is of lab 5 of 'zoe'"),
        (broken_state, "not checked again: .lab.json is not as the lab made it"),
        (deep, "not checked again: directories more than 20 deep"),
        (many, "not checked again: more than 200 files"),
    ],
)
def test_work_directories_that_cannot_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Work], None], remark: str
) -> None:
    monkeypatch.setattr(rerun, "MAX_FILES", 200)
    hand_in(tmp_path / "class", "ann")
    spoil(hand_in(tmp_path / "class", "ben"))
    rows = table(tmp_path / "class")
    assert remark in rows["ben/result-5.json"]["remarks"]
    assert rows["ben/result-5.json"]["rerun"] == "no"
    assert rows["ann/result-5.json"]["rerun"] == str(own_points())


def link_away(work: Work) -> None:
    """With the link, the check would read another student's file."""
    secret = work.directory.parent.parent / "secret.csv"
    secret.write_text((work.directory / "bandwidth.csv").read_text())
    (work.directory / "bandwidth.csv").unlink()
    (work.directory / "bandwidth.csv").symlink_to(secret)


def fifo(work: Work) -> None:
    (work.directory / "bandwidth.csv").unlink()
    os.mkfifo(work.directory / "bandwidth.csv")


def unix_socket(work: Work) -> None:
    (work.directory / "bandwidth.csv").unlink()
    here = Path.cwd()
    os.chdir(work.directory)
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind("bandwidth.csv")
    finally:
        os.chdir(here)


def not_text(work: Work) -> None:
    (work.directory / "bandwidth.csv").write_bytes(b"\xff\xfe\x00" * 1000)


def surrogates(work: Work) -> None:
    (work.directory / "bandwidth.csv").write_text('protocol,receivers,mbit_per_s\n"\\ud800",2,x\n')


def huge_numbers(work: Work) -> None:
    text = f"protocol,receivers,mbit_per_s\nldm6,2,{'9' * 400}\nldm6,{'9' * 5000},1\n"
    (work.directory / "bandwidth.csv").write_text(text)


def nested_cell(work: Work) -> None:
    path = next(work.directory.rglob("verdict.json"))
    path.write_text('{"verdict":' + "[" * 100_000)


def numbers_that_are_none(work: Work) -> None:
    path = next(work.directory.rglob("counters-end.json"))
    path.write_text('{"interfaces": {"umass/eth1": {"tx_bytes": 1e999}}}')


def yaml_bomb(work: Work) -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    (work.directory / "answers.yaml").write_text("\n".join(lines) + "\n")


def yaml_objects(work: Work) -> None:
    text = '!!python/object/apply:os.system ["touch pwned"]\n'
    (work.directory / "answers.yaml").write_text(f"ldm7_growth_percent: {text}")


def names_that_are_not_utf8(work: Work) -> None:
    for name in (b"\xff\xfe.json", b"a\nb", b"=cmd|x!A0", b"\x1b[2J"):
        (work.directory / os.fsdecode(name)).write_text("")


SPOILERS = (
    link_away, fifo, unix_socket, not_text, surrogates, huge_numbers, nested_cell,
    numbers_that_are_none, yaml_bomb, yaml_objects, names_that_are_not_utf8,
)  # fmt: skip


@pytest.mark.slow
def test_hostile_files_cost_their_student_alone(tmp_path: Path) -> None:
    """One class has every kind of them: the honest student among them gets all points."""
    for spoil in SPOILERS:
        work = hand_in(tmp_path / "class", spoil.__name__.replace("_", "-"))
        spoil(work)
    hand_in(tmp_path / "class", "honest")
    began = time.monotonic()
    rows = table(tmp_path / "class", tmp_path / "receipts")
    assert time.monotonic() - began < 240
    assert len(rows) == len(SPOILERS) + 1
    assert rows["honest/result-5.json"]["rerun"] == str(own_points())
    for name, row in rows.items():
        assert row["rerun"], name
        whole = "honest" in name or "utf8" in name
        assert row["rerun"] == "no" or (int(row["rerun"]) == own_points()) is whole, (name, row)
    assert not list(tmp_path.rglob("pwned"))
    assert not (ROOT / "pwned").exists()


def test_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hand_in(tmp_path / "class", "ann")
    monkeypatch.setattr(rerun, "LIMIT_S", {"files": 0, "guest": 0})
    row = table(tmp_path / "class")["ann/result-5.json"]
    assert row["rerun"] == "no" and "no end within 0 s" in row["remarks"]


@pytest.mark.slow
def test_a_guests_memory_is_no_file_too_large(tmp_path: Path) -> None:
    """It is sparse, and has the size of all queues. What checks of files write stays bounded."""
    program = (
        "import os, sys; from labs import rerun; from labs.spec import find_lab\n"
        "rerun._limit(find_lab(int(sys.argv[1])))\n"
        "os.truncate(os.open(sys.argv[2], os.O_RDWR | os.O_CREAT), 8 << 30)\n"
    )
    ended = [
        subprocess.run(
            [sys.executable, "-c", program, str(number), str(tmp_path / f"of-{number}")],
            cwd=ROOT, stderr=subprocess.DEVNULL,
        ).returncode
        for number in (6, 5)
    ]  # fmt: skip
    assert ended == [0, 1]


def test_which_labs() -> None:
    """The lab's file, the table of docs/guide/class.md, and what is done agree."""
    text = (ROOT / "docs/guide/class.md").read_text()
    rows = text.partition("| lab | `--rerun` |")[2].partition("\n\n")[0].splitlines()[2:]
    says = {"no": "no", "yes, seconds": "files", "yes, minutes": "guest"}
    documented: dict[int, str] = {}
    for row in rows:
        labs, answer = (cell.strip() for cell in row.strip("|").split("|")[:2])
        documented |= {int(number): says[answer] for number in labs.split(",")}
    assert documented == {lab.number: lab.spec.rerun for lab in LABS}
    for lab in LABS:
        assert (lab.spec.rerun == "no") == (lab.spec.kind == "network")


@pytest.mark.slow
@pytest.mark.parametrize("lab", LABS, ids=lambda lab: f"lab-{lab.number}")
def test_who_claims_everything_and_did_nothing(tmp_path: Path, lab: Lab) -> None:
    """With a result file with all points over the start state: no points where the checks run
    again."""
    work, _ = open_work(lab, tmp_path / "class/ben", "ben")
    claim_everything(lab, work)
    row = table(tmp_path / "class")[f"ben/result-{lab.number}.json"]
    assert row["score"] == str(lab.points)
    if lab.spec.rerun == "no":
        assert row["rerun"] == "no"
        assert f"lab {lab.number} cannot be checked again" in row["remarks"]
    else:
        assert row["rerun"] == "0", row["remarks"]
        assert f"checked again: 0 of {lab.points}, not {lab.points}" in row["remarks"]


def command(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "downpour", "lab", "grade", *words]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_command(tmp_path: Path) -> None:
    hand_in(tmp_path / "class", "ann")
    (tmp_path / "key").write_bytes(KEY)
    folder, key = str(tmp_path / "class"), str(tmp_path / "key")
    done = command(folder, "--rerun", "--key", key, "--receipts", str(tmp_path / "receipts"))
    assert done.returncode == 1, done.stderr  # made without the key: a remark
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert row["rerun"] == str(own_points())
    assert list((tmp_path / "receipts").rglob("result-5.json"))
    mistakes: list[tuple[Any, ...]] = [
        (("--receipts", "x"), "found --receipts alone; valid: with --rerun and --key FILE"),
        (
            ("--rerun", "--key", key, "--receipts", f"{folder}/r"),
            f"valid: outside of {folder}",
        ),
    ]
    for words, said in mistakes:
        done = command(folder, *words)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
