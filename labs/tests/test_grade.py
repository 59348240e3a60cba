# SPDX-License-Identifier: Apache-2.0
"""Result files, and what grading notices about them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from labs import grade
from labs.checking import CheckResult, Status
from labs.results import digest_of, read_key, write_result
from labs.spec import find_lab
from labs.workdir import LabError, Work

LAB = find_lab(1)
KEY = b"0123456789abcdef"


def results(passed: int) -> list[CheckResult]:
    return [
        CheckResult(
            c.name,
            c.title,
            c.points,
            Status.PASSED if n < passed else Status.FAILED,
            "t",
            "e",
            "f",
            "",
        )  # fmt: skip
        for n, c in enumerate(LAB.spec.checks)
    ]


def hand_in(
    folder: Path, student: str, identity: str, passed: int = 2, key: bytes | None = None
) -> Path:
    directory = folder / student
    directory.mkdir(parents=True)
    work = Work(directory, 1, student, identity, 1000.0)
    return write_result(LAB, work, results(passed), "virtual", key)


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def remarks(folder: Path, key: bytes | None = None) -> dict[str, str]:
    screen = io.StringIO()
    grade.grade(folder, None, key, screen)
    return {r["file"]: r["remarks"] for r in csv.DictReader(io.StringIO(screen.getvalue()))}


def test_the_digest_is_sha256_of_the_canonical_content(tmp_path: Path) -> None:
    values = json.loads(hand_in(tmp_path, "ann", "i1").read_text())
    digest = values.pop("digest")
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert digest == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert values["score"] == sum(c.points for c in LAB.spec.checks[:2])


def test_a_class_without_copies(tmp_path: Path) -> None:
    hand_in(tmp_path, "ann", "i1", 8)
    hand_in(tmp_path, "ben", "i2", 3)
    out = tmp_path / "out.csv"
    assert grade.grade(tmp_path, out, None, io.StringIO()) == 0
    rows = list(csv.DictReader(out.open()))
    assert [(r["student"], r["score"], r["points"], r["passed"], r["checks"], r["digest"],
             r["remarks"]) for r in rows] == [
        ("ann", "100", "100", "8", "8", "ok", ""),
        ("ben", "50", "100", "3", "8", "ok", ""),
    ]  # fmt: skip


def test_a_file_changed_by_hand(tmp_path: Path) -> None:
    change(hand_in(tmp_path, "ann", "i1"), score=100)
    (text,) = remarks(tmp_path).values()
    assert "digest does not fit" in text
    assert "score is 100, its checks give 30 of 100" in text


def test_a_copied_file_as_it_is(tmp_path: Path) -> None:
    """It is below another student's directory: the same student, twice."""
    path = hand_in(tmp_path, "ann", "i1")
    (tmp_path / "ben").mkdir()
    (tmp_path / "ben/result-1.json").write_bytes(path.read_bytes())
    found = remarks(tmp_path)
    assert found["ann/result-1.json"] == "also in ben/result-1.json"
    assert found["ben/result-1.json"] == "also in ann/result-1.json"


def test_a_copied_file_with_another_name_and_a_new_digest(tmp_path: Path) -> None:
    path = hand_in(tmp_path, "ann", "i1")
    (tmp_path / "ben").mkdir()
    values = {**json.loads(path.read_text()), "student": "ben"}
    copy = tmp_path / "ben/result-1.json"
    copy.write_text(json.dumps({**values, "digest": digest_of(values, None)}))
    text = remarks(tmp_path)["ben/result-1.json"]
    assert "digest" not in text
    assert "parameters are not those of 'ben'" in text
    assert "same work directory as ann/result-1.json" in text
    assert "same content as ann/result-1.json" in text


def test_another_students_work_directory_only(tmp_path: Path) -> None:
    hand_in(tmp_path, "ann", "shared", 8)
    hand_in(tmp_path, "ben", "shared", 4)
    assert remarks(tmp_path)["ben/result-1.json"] == "same work directory as ann/result-1.json"


def test_with_a_key(tmp_path: Path) -> None:
    good = hand_in(tmp_path, "ann", "i1", key=KEY)
    hand_in(tmp_path, "ben", "i2")
    forged = hand_in(tmp_path, "eve", "i3", key=KEY)
    change(forged, score=100)
    values = json.loads(forged.read_text())
    change(forged, digest="hmac-sha256:" + digest_of(values, None).removeprefix("sha256:"))
    found = remarks(tmp_path, KEY)
    assert found[str(good.relative_to(tmp_path))] == ""
    assert found["ben/result-1.json"] == "made without the key"
    assert "digest does not fit" in found["eve/result-1.json"]
    assert "give it with --key" in remarks(tmp_path)["ann/result-1.json"]


def test_keys_that_are_too_short_are_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("short\n")
    with pytest.raises(LabError, match="found 5 bytes; valid: 16 or more"):
        read_key(tmp_path / "key")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', "\udcff", "[" * 100_000, '{"format":1,"student":5}']
)
def test_files_that_are_none_of_ours_get_a_remark(tmp_path: Path, text: str) -> None:
    (tmp_path / "result-1.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert remarks(tmp_path)["result-1.json"].startswith("cannot be read")


def test_what_a_reset_put_aside_is_not_graded(tmp_path: Path) -> None:
    path = hand_in(tmp_path, "ann", "i1")
    aside = path.parent / "before-20260101-000000"
    aside.mkdir()
    path.rename(aside / path.name)
    with pytest.raises(LabError, match=r"found no result-N\.json"):
        grade.graded(tmp_path, None)


def test_a_name_that_a_spreadsheet_would_compute(tmp_path: Path) -> None:
    hand_in(tmp_path, "ann", "i1")
    path = tmp_path / "ann/result-1.json"
    change(path, student="=1+1")
    screen = io.StringIO()
    assert grade.grade(tmp_path, None, None, screen) == 1
    assert next(csv.DictReader(io.StringIO(screen.getvalue())))["student"] == "'=1+1"
