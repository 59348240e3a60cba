# SPDX-License-Identifier: Apache-2.0
"""`downpour class status`: how far each student is; files and command lines may be hostile."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from downpour import cli
from labs import class_status
from labs.checking import CheckResult, Status
from labs.class_status import Process, activity, rows
from labs.results import result_of
from labs.spec import find_lab
from labs.workdir import DIRECTORY, LabError, open_work
from virtual.turns import Ticket

ROOT = 0  # the user of invented processes: /root
PYTHON = ("/x/.venv/bin/python", "-B", "-m")


def begun(homes: Path, student: str, number: int, points: int | None = None) -> Path:
    """Make a work directory; with `points`, checked 200 s after the epoch began."""
    lab = find_lab(number)
    work, _ = open_work(lab, homes / student / DIRECTORY / str(number), student)
    if points is not None:
        check = lab.spec.checks[0]
        passed = CheckResult(check.name, check.title, points, Status.PASSED, "t", "e", "f", "")
        values = {**result_of(lab, work, [passed], "none", 200.0), "digest": "none"}
        (work.directory / f"result-{number}.json").write_text(json.dumps(values))
    return work.directory


def process(*argv: str, age_s: float = 90) -> Process:
    return Process(ROOT, argv, age_s)


def test_a_class(tmp_path: Path) -> None:
    one = begun(tmp_path, "ann", 1)
    six = begun(tmp_path, "ann", 6, 10)
    begun(tmp_path, "ben", 4)
    (tmp_path / "eve").mkdir()
    found = rows(
        class_status.homes_in(tmp_path),
        [
            process(*PYTHON, "labs", "_hold", "1", "/run/x", str(one), "native", "5"),
            process(*PYTHON, "downpour", "lab", "measure", "6", "sweep.yaml", "--dir", str(six)),
            process("/x/bin/python", "/x/.venv/bin/downpour", "run", "lossy", age_s=7300),
            process("vi", "lab"),
        ],
        now=500.0,
    )
    assert found == [
        ("ann", "ann", "1", "", "", "network up (native time), 1 min"),
        ("ann", "ann", "6", "10/100", "5 min ago", "measure sweep.yaml, 1 min"),
        ("ben", "ben", "4", "", "", ""),
        ("root", "", "", "", "", "run lossy, 2 h"),
    ]
    table = class_status.text(found).splitlines()
    assert table[0] == "login  student  lab  score   checked    now"
    assert table[3] == "ben    ben      4"


@pytest.mark.parametrize(
    "argv",
    [
        ("labs",), (*PYTHON, "labs", "_hold"), (*PYTHON, "downpour", "lab"),
        (*PYTHON, "downpour", "lab", "check", "\u0663"), (*PYTHON, "downpour", "lab", "grade", "1"),
        (*PYTHON, "downpour", "run"), ("grep", "downpour", "lab", "check", "1"), (),
    ],
)  # fmt: skip
def test_what_is_no_activity(argv: tuple[str, ...]) -> None:
    assert activity(Process(ROOT, argv, 1)) is None


def test_a_directory_of_its_own_and_one_that_is_not_named() -> None:
    named = activity(process(*PYTHON, "downpour", "lab", "check", "3", "--dir", "/a/b"))
    usual = activity(process(*PYTHON, "downpour", "lab", "check", "3"))
    assert named is not None and named.directory == Path("/a/b")
    assert usual is not None and usual.directory == Path("/root") / DIRECTORY / "3"


def test_hostile_files_and_words(tmp_path: Path) -> None:
    for number, text in enumerate(("[" * 100_000, '{"student": 5, "lab": "x\\n"}', ""), start=1):
        (place := tmp_path / f"eve/{DIRECTORY}/{number}").mkdir(parents=True)
        (place / ".lab.json").write_text(text)
        (place / f"result-{number}.json").write_text(text)
    os.mkfifo(tmp_path / f"eve/{DIRECTORY}/3/result.json")
    (tmp_path / f"eve/{DIRECTORY}/4").symlink_to("/etc")
    (tmp_path / "link").symlink_to("/root")
    (tmp_path / "\x1b[31m").mkdir()
    (tmp_path / "\x1b[31m" / DIRECTORY / "7").mkdir(parents=True)
    os.mkfifo(tmp_path / "\x1b[31m" / DIRECTORY / "7/.lab.json")
    odd = process(*PYTHON, "downpour", "run", "a\nb\x1b[0m", age_s=float("nan"))
    found = rows(class_status.homes_in(tmp_path), [odd], now=500.0)
    assert [row[:3] for row in found] == [
        ("\\x1b[31m", "?", "7"), ("eve", "?", "1"), ("eve", "5", "2"), ("eve", "?", "3"),
        ("root", "", ""),
    ]  # fmt: skip
    assert found[-1][-1] == "run a\\x0ab\\x1b[0m, ?"
    assert class_status.text(found).isprintable() is False  # its line ends
    assert all(line.isprintable() for line in class_status.text(found).splitlines())


def test_processes_of_this_machine() -> None:
    mine = [p for p in class_status.processes() if p.argv[0] == sys.orig_argv[0]]
    assert any(p.uid == os.geteuid() and 0 <= p.age_s < 86400 * 365 for p in mine)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun(tmp_path, "ann", 2)
    assert cli.main(["class", "status", str(tmp_path)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].split() == ["ann", "ann", "2"]
    with pytest.raises(LabError, match="valid: the directory that has the students'"):
        class_status.homes_in(tmp_path / "none")
    assert cli.main(["class", "status", str(tmp_path / "none")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"lab: found '{tmp_path}") and "none" in line


def test_the_queue_of_a_machine() -> None:
    found = [
        Ticket("run-1-0", 0, True, 1),
        Ticket("wait-1-1", 0, False, 2),
        Ticket("wait-2-0", 4_000_000, False, 3),
        Ticket("wait-2-1", 4_000_000, False, 4),
    ]
    text = class_status.queue_text(8, found)
    assert text == "places for guests: 8, taken: 1; waiting: user-4000000 (2), root (1)\n"
    assert class_status.queue_text(2, []) == "places for guests: 2, taken: 0; waiting: none\n"


def test_a_class_of_thirty_fits_80_columns() -> None:
    """Thirty users wait; one has a long name and four commands."""
    waiting = [Ticket(f"wait-{n}-0", 4_000_000 + n, False, n) for n in range(30)]
    lines = class_status.queue_text(8, waiting).splitlines()
    assert len(lines) >= 6 and all(len(line) <= 80 for line in lines)
    assert " ".join(" ".join(lines).split()).count(" (1)") == 30
    doing = "; ".join(f"measure sweep-{n}.yaml, {n} min" for n in range(4))
    table = class_status.text([("x" * 32, "y" * 64, "11", "100/100", "59 min ago", doing)])
    assert all(len(line) <= 80 for line in table.splitlines()), table
    assert " ".join(line[-24:].strip() for line in table.splitlines()[1:]).count("measure") == 4
