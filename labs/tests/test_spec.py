# SPDX-License-Identifier: Apache-2.0
"""lab.yaml: what can be read, every mistake with its line, and students' own parameters."""

from __future__ import annotations

import hashlib
import inspect
from pathlib import Path

import pytest

from labs.checking import function_of, load_checks
from labs.handouts import SECTIONS
from labs.network import lab_network
from labs.predictions import predicted_first
from labs.runs import all_there
from labs.spec import ROOM, Lab, LabErrors, Parameter, as_words, find_lab, load_lab
from labs.tests.bundled import LABS, NETWORK

GOOD = """\
lab: 9
title: A title
minutes: 90
aim: An aim
kind: measuring
parameters:
  seed: { text: a seed, integer: [10, 19] }
checks:
  - { name: one, title: One, points: 5, function: checks.one, hints: { why: Because } }
"""


def write(tmp_path: Path, text: str, folder: str = "9-example") -> Path:
    path = tmp_path / folder
    path.mkdir()
    (path / "lab.yaml").write_text(text)
    (path / "handout.md").write_text("# Lab 9\n")
    (path / "checks.py").write_text("")
    return path


def test_a_lab_is_read(tmp_path: Path) -> None:
    lab = load_lab(write(tmp_path, GOOD))
    assert (lab.number, lab.points, lab.spec.checks[0].hints) == (9, 5, {"why": "Because"})


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("title: A title\n", "", 1, "no 'title'"),
        ("minutes: 90", "minuets: 90", 3, "did you mean 'minutes'?"),
        ("points: 5", "points: 0", 9, "checks.0.points: 0"),
        ("checks.one", "os.system", 9, "checks.0.function: 'os.system'"),
        ("integer: [10, 19]", "integer: [19, 10]", 7, "integer: [least, most]"),
        ("integer: [10, 19]", "one_of: [a, b], integer: [1, 2]", 7, "one of: integer, one_of"),
        ("lab: 9", "lab: 8", 1, "the number in the folder's name"),
        ("kind: measuring", "kind: network", 1, "a network lab has a topology"),
        (
            "kind: measuring",
            "kind: network\ntopology: missing.yaml",
            6,
            "topology: missing.yaml",
        ),
        ("lab: 9", "lab: 9\nlab: 9", 2, "key 'lab' again"),
    ],
)
def test_mistakes_are_named_with_their_line(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    folder = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(LabErrors) as caught:
        load_lab(folder)
    texts = [str(e) for e in caught.value.errors]
    assert any(f"lab.yaml:{line}:" in t and says in t for t in texts), texts


def test_what_a_lab_needs_lies_beside_it(tmp_path: Path) -> None:
    folder = write(tmp_path, GOOD)
    (folder / "handout.md").unlink()
    with pytest.raises(LabErrors, match="no handout.md"):
        load_lab(folder)


def test_an_unknown_number_names_those_there_are() -> None:
    with pytest.raises(LabErrors, match=r"found '77'; valid: 1, 2, 3"):
        find_lab(77)


def test_parameters_follow_from_student_lab_and_name_alone(tmp_path: Path) -> None:
    lab = load_lab(write(tmp_path, GOOD))
    # Computed here a second time: the first 16 bytes of SHA-256 over the three, with NUL between
    # them.
    digest = hashlib.sha256(b"ann\x009\x00seed").digest()
    assert lab.parameters("ann") == {"seed": 10 + int.from_bytes(digest[:16], "big") % 10}
    assert lab.parameters("ann") == lab.parameters("ann")
    assert len({str(lab.parameters(f"student {n}")) for n in range(200)}) == 10


def test_values_of_each_kind() -> None:
    steps = Parameter(text="t", integer=(100, 130), step=10)
    assert {steps.value(n) for n in range(50)} == {100, 110, 120, 130}
    assert Parameter(text="t", one_of=[5, "x"]).value(3) == "x"
    chosen = Parameter(text="t", choose=["a", "b", "c"], number=2)
    assert {tuple(chosen.value(n)) for n in range(20)} == {("a", "b"), ("a", "c"), ("b", "c")}  # type: ignore[arg-type]
    assert as_words({"n": 3, "l": ["a", "b"]}) == {"n": "3", "l": "a b"}


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: str(lab.number))
class TestEachLab:
    def test_its_functions_are_there(self, lab) -> None:  # type: ignore[no-untyped-def]
        module = load_checks(lab.folder)
        for check in lab.spec.checks:
            assert callable(function_of(lab, check, module))

    def test_each_hint_is_given_by_a_check(self, lab) -> None:  # type: ignore[no-untyped-def]
        """A hint that no check function names would never be seen."""
        source = (lab.folder / "checks.py").read_text()
        shared = (f for f in (all_there, predicted_first) if f"{f.__name__}(" in source)
        source += "".join(map(inspect.getsource, shared))
        for check in lab.spec.checks:
            for key in check.hints:
                assert f'"{key}"' in source, f"{check.name}: {key}"

    def test_its_handout_has_all_sections(self, lab) -> None:  # type: ignore[no-untyped-def]
        lines = lab.handout.read_text().splitlines()
        assert lines[0] == f"# Lab {lab.number}: {lab.spec.title}"
        found = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
        assert [s for s in found if s in SECTIONS] == list(SECTIONS)

    def test_its_points_are_a_hundred(self, lab) -> None:  # type: ignore[no-untyped-def]
        assert lab.points == 100

    def test_solution_and_wrong_answers_are_kept_apart(self, lab) -> None:  # type: ignore[no-untyped-def]
        solutions = ROOM / "solutions" / lab.folder.name
        assert (solutions / "notes.md").stat().st_size > 300
        assert len(list(solutions.glob("wrong-*"))) >= 2
        assert not list(lab.folder.rglob("solution*"))

    def test_students_differ(self, lab) -> None:  # type: ignore[no-untyped-def]
        values = {str(lab.parameters(f"student {n}")) for n in range(20)}
        assert len(values) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("lab", NETWORK, ids=lambda lab: str(lab.number))
def test_a_network_fits_every_student(lab: Lab) -> None:
    for n in range(20):
        student = f"student {n}"
        words = as_words(lab.parameters(student))
        network = lab_network(lab, student)
        vlans = {str(s.vlan) for s in network.segments if s.lane == 1}
        assert vlans == {
            w for name, w in words.items() if name.startswith("vlan_") and "c1" not in name
        }
