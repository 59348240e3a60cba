# SPDX-License-Identifier: Apache-2.0
"""Work directories: made, found again, refused, and restored."""

from __future__ import annotations

from pathlib import Path

import pytest

from labs.spec import Lab, load_lab
from labs.workdir import LabError, open_work, read_work, reset_files

LAB = """\
lab: 9
title: A title
minutes: 90
aim: An aim
kind: measuring
parameters:
  seed: { text: a seed, integer: [7, 7] }
  two: { text: two words, choose: [a, b, c], number: 2 }
checks:
  - { name: one, title: One, points: 5, function: checks.one }
"""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    folder = tmp_path / "9-example"
    (folder / "start/sub").mkdir(parents=True)
    for name, text in (
        ("lab.yaml", LAB),
        ("handout.md", ""),
        ("checks.py", ""),
        ("start/answers.yaml", "one: ${seed}\n"),
        ("start/sub/setting.yaml.template", "seed: ${seed}  # $$5\n"),
    ):
        (folder / name).write_text(text)
    return load_lab(folder)


def test_the_start_state_with_the_students_values(lab: Lab, tmp_path: Path) -> None:
    work, new = open_work(lab, tmp_path / "w", "ann")
    assert new
    assert (tmp_path / "w/answers.yaml").read_text() == "one: ${seed}\n", "no template"
    assert (tmp_path / "w/sub/setting.yaml").read_text() == "seed: 7  # $5\n"
    values = (tmp_path / "w/parameters.yaml").read_text()
    assert 'student: "ann"\nseed: 7  # a seed\ntwo: [' in values
    assert len(work.identity) == 32


def test_it_is_found_again_with_its_student_and_identity(lab: Lab, tmp_path: Path) -> None:
    first, _ = open_work(lab, tmp_path / "w", "ann")
    (tmp_path / "w/answers.yaml").write_text("one: mine\n")
    again, new = open_work(lab, tmp_path / "w", None)
    assert not new and again == first == read_work(tmp_path / "w")
    assert (tmp_path / "w/answers.yaml").read_text() == "one: mine\n"
    other, _ = open_work(lab, tmp_path / "w2", "ann")
    assert other.identity != first.identity


def test_without_a_name_it_is_the_login(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setenv("USER", "login")
    assert open_work(lab, tmp_path / "w", None)[0].student == "login"


def test_what_is_refused(lab: Lab, tmp_path: Path) -> None:
    open_work(lab, tmp_path / "w", "ann")
    with pytest.raises(LabError, match="found STUDENT 'ben', but .* is of 'ann'"):
        open_work(lab, tmp_path / "w", "ben")
    with pytest.raises(LabError, match="found STUDENT '../x'; valid: 1 to 64"):
        open_work(lab, tmp_path / "w", "../x")
    with pytest.raises(LabError, match="valid: a path without white space"):
        open_work(lab, tmp_path / "my files", "ann")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.tex").write_text("")
    with pytest.raises(LabError, match="valid: an empty directory, or one of this lab"):
        open_work(lab, tmp_path / "full", "ann")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/.lab.json").write_text("{}")
    with pytest.raises(LabError, match="found no description of a lab's work directory"):
        open_work(lab, tmp_path / "bad", "ann")


def test_a_reset_keeps_everything(lab: Lab, tmp_path: Path) -> None:
    work, _ = open_work(lab, tmp_path / "w", "ann")
    for text in ("first", "second"):
        (tmp_path / "w/answers.yaml").write_text(text)
        (tmp_path / "w/notes.txt").write_text(text)
        aside = reset_files(lab, work)
        assert aside is not None
        assert (aside / "answers.yaml").read_text() == text
        assert (aside / "notes.txt").read_text() == text
        assert (tmp_path / "w/answers.yaml").read_text() == "one: ${seed}\n"
        assert not (tmp_path / "w/notes.txt").exists()
    assert len(list((tmp_path / "w").glob("before-*"))) == 2
    assert read_work(tmp_path / "w") == work


def test_a_template_with_an_unknown_name(lab: Lab, tmp_path: Path) -> None:
    (lab.folder / "start/x.template").write_text("${sead}")
    with pytest.raises(LabError, match=r"x.template: found 'sead'; valid: seed, two"):
        open_work(lab, tmp_path / "w", "ann")
