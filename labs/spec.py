# SPDX-License-Identifier: Apache-2.0
"""What `lab.yaml` may contain, and its reader, which reports every mistake at once (`file:line:
found ...`)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from common.nearest import did_you_mean
from topologies.model.document import (
    Document,
    Error,
    TopologyErrors,
    read_document,
)

__all__ = ["CheckSpec", "Lab", "LabErrors", "LabSpec", "Value", "all_labs", "find_lab", "load_lab"]

ROOM: Final = Path(__file__).resolve().parent
LabErrors = TopologyErrors  # one line per mistake: `file:line: found ...; valid: ...`

Value = int | str | list[str]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
Key = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
FunctionName = Annotated[str, Field(pattern=r"^checks\.[a-z][a-z0-9_]*$")]
FOLDER: Final = re.compile(r"^(\d+)-[a-z0-9-]+$")


class Block(BaseModel):
    """A block of the file: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Parameter(Block):
    """A value that each student gets: a whole number between two bounds (both included), one of a
    list, or `number` different ones of a list."""

    text: Text
    integer: tuple[int, int] | None = None
    step: Annotated[int, Field(ge=1)] = 1
    one_of: Annotated[list[int | str], Field(min_length=2)] | None = None
    choose: Annotated[list[str], Field(min_length=2)] | None = None
    number: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _one_kind(self) -> Parameter:
        kinds = [k for k in (self.integer, self.one_of, self.choose) if k is not None]
        if len(kinds) != 1:
            raise ValueError("a parameter has one of: integer, one_of, choose")
        if self.integer is not None and self.integer[0] > self.integer[1]:
            raise ValueError("integer: [least, most]")
        if self.choose is not None and self.number >= len(self.choose):
            raise ValueError("number is less than what there is to choose from")
        return self

    def value(self, seed: int) -> Value:
        """Return the value that follows from `seed` (a large number)."""
        if self.integer is not None:
            least, most = self.integer
            return least + self.step * (seed % ((most - least) // self.step + 1))
        if self.one_of is not None:
            return self.one_of[seed % len(self.one_of)]
        assert self.choose is not None
        left, chosen = list(self.choose), []
        for _ in range(self.number):
            seed, index = divmod(seed, len(left))
            chosen.append(left.pop(index))
        return sorted(chosen, key=self.choose.index)


class CheckSpec(Block):
    """`function`: a function `checks.NAME` of the lab's checks.py; `arguments`: passed to it;
    `hints`: by the key that it returns when it fails."""

    name: Key
    title: Text
    points: Annotated[int, Field(ge=1, le=100)]
    function: FunctionName
    arguments: dict[str, Any] = {}
    hints: dict[Key, Text] = {}


class LabSpec(Block):
    """A whole `lab.yaml`."""

    lab: Annotated[int, Field(ge=1, le=99)]
    title: Text
    minutes: Annotated[int, Field(ge=10, le=300)]
    aim: Text
    kind: Literal["network", "measuring"]
    # Network labs: a topology file in the lab's folder, in which ${parameter} is filled in, and
    # whether the controller runs when the student starts.
    topology: Annotated[str, Field(pattern=r"^[a-z0-9-]+\.yaml$")] | None = None
    controller: Literal["running", "none"] = "running"
    # Shell lines that run in the network before the student starts.
    prepare: Annotated[str, Field(pattern=r"^[a-z0-9-]+\.sh$")] | None = None
    # Whether the checks can run again from the work directory: from files, in a guest, or not at
    # all.
    rerun: Literal["no", "files", "guest"] = "no"
    memory_mb: Annotated[int, Field(ge=256, le=4000)] = 700
    parameters: dict[Name, Parameter] = {}
    checks: Annotated[list[CheckSpec], Field(min_length=1)]

    @model_validator(mode="after")
    def _whole(self) -> LabSpec:
        if (self.kind == "network") != (self.topology is not None):
            raise ValueError("a network lab has a topology, a measuring lab has none")
        if self.prepare is not None and self.topology is None:
            raise ValueError("only a network lab has something to prepare")
        if self.rerun != "no" and self.kind == "network":
            raise ValueError("the network of a network lab is gone: rerun: no")
        names = [c.name for c in self.checks]
        if len(set(names)) != len(names):
            raise ValueError("each check has a unique name")
        return self


@dataclass(frozen=True)
class Lab:
    """A lab and its folder."""

    spec: LabSpec
    folder: Path

    @property
    def number(self) -> int:
        """Return the lab's number."""
        return self.spec.lab

    @property
    def points(self) -> int:
        """Return the points of all checks together."""
        return sum(c.points for c in self.spec.checks)

    @property
    def handout(self) -> Path:
        """Return the path of the handout."""
        return self.folder / "handout.md"

    def parameters(self, student: str) -> dict[str, Value]:
        """Return the student's values, which follow from the names of student, lab and
        parameter."""
        return {
            name: parameter.value(_seed(student, self.number, name))
            for name, parameter in self.spec.parameters.items()
        }


def _seed(student: str, lab: int, name: str) -> int:
    """Return a large number that depends on all three arguments and on nothing else."""
    text = "\0".join((student, str(lab), name))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def as_words(parameters: Mapping[str, Value]) -> dict[str, str]:
    """Return the values as text: for templates and, under names in capitals, for the
    environment."""
    return {n: " ".join(v) if isinstance(v, list) else str(v) for n, v in parameters.items()}


def load_lab(folder: Path) -> Lab:
    """Read and check `folder`/lab.yaml. Raises LabErrors with all mistakes."""
    document = read_document(folder / "lab.yaml", "a lab")
    spec: LabSpec | None = None
    try:
        spec = LabSpec.model_validate(document.data)
    except ValidationError as error:
        for problem in error.errors():
            _report(document, problem)
    if spec is not None:
        _files(document, spec, folder)
    if document.errors or spec is None:
        raise LabErrors(document.errors)
    return Lab(spec, folder)


def _report(document: Document, problem: Any) -> None:
    place = tuple(problem["loc"])
    message = str(problem["msg"]).removeprefix("Value error, ")
    value = problem["input"]
    key = ".".join(str(p) for p in place) or "the file"
    if problem["type"] == "missing":
        document.report(place[:-1], f"no '{place[-1]}'", "lab.yaml as docs/develop/labs.md says")
    elif problem["type"] == "extra_forbidden":
        known = [*LabSpec.model_fields, *CheckSpec.model_fields, *Parameter.model_fields]
        hint = did_you_mean(str(place[-1]), known)
        document.report(place, f"key '{key}'", f"keys that docs/develop/labs.md names{hint}")
    else:
        shown = repr(value)[:60] if not isinstance(value, dict) else "this block"
        document.report(place, f"{key}: {shown}", message)


def _files(document: Document, spec: LabSpec, folder: Path) -> None:
    """Check that the files to which this one refers are beside it."""
    match = FOLDER.match(folder.name)
    if match is None or int(match[1]) != spec.lab:
        valid = f"the number in the folder's name, '{folder.name}' (N-name)"
        document.report(("lab",), f"lab: {spec.lab}", valid)
    if spec.topology is not None and not (folder / spec.topology).is_file():
        document.report(("topology",), f"topology: {spec.topology}", f"a file in {folder}")
    if spec.prepare is not None and not (folder / spec.prepare).is_file():
        document.report(("prepare",), f"prepare: {spec.prepare}", f"a file in {folder}")
    for name in ("handout.md", "checks.py"):
        if not (folder / name).is_file():
            document.report((), f"no {name} in {folder}", f"a file {name} beside lab.yaml")


def folders(room: Path = ROOM) -> dict[int, Path]:
    """Return the folders by number: all folders `N-name` with a lab.yaml."""
    found = {}
    for path in room.iterdir():
        if (match := FOLDER.match(path.name)) and (path / "lab.yaml").is_file():
            found[int(match[1])] = path
    return dict(sorted(found.items()))


def all_labs(room: Path = ROOM) -> list[Lab]:
    """Return all labs in the order of their numbers. Raises LabErrors."""
    return [load_lab(folder) for folder in folders(room).values()]


def find_lab(number: int, room: Path = ROOM) -> Lab:
    """Return the lab of that number. Raises LabErrors if there is none, or its files have
    mistakes."""
    known = folders(room)
    if number not in known:
        valid = ", ".join(map(str, known)) or "none: there are no labs"
        raise LabErrors([Error("lab", 0, f"'{number}'", valid)])
    return load_lab(known[number])
