# SPDX-License-Identifier: Apache-2.0
"""A class's result files to one CSV, with remarks on those that are not what they should be."""

from __future__ import annotations

import csv
import hmac
import io
import json
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

from labs.results import FORMAT, digest_of, parameters_digest
from labs.spec import Lab, LabErrors, find_lab
from labs.workdir import LabError

NAME: Final = re.compile(r"result-\d+\.json")
MAX_BYTES: Final = 1_000_000
COLUMNS: Final = (
    "file", "student", "lab", "score", "points", "passed", "checks", "checked_utc", "clock",
    "digest", "remarks",
)  # fmt: skip


@dataclass
class Submission:
    """A result file. `remarks` is empty if nothing is wrong with it."""

    file: str
    values: dict[str, Any]
    digest: str = ""  # "ok", "ok with key", "wrong", "none"
    remarks: list[str] = field(default_factory=list)

    @property
    def student(self) -> str:
        """Return the student's name, as the file has it."""
        return str(self.values.get("student", ""))


def find_files(folder: Path) -> list[Path]:
    """All result-N.json below `folder`, and other .json files in it itself (submission systems
    rename files). LabError."""
    if not folder.is_dir():
        raise LabError(f"found '{folder}'; valid: a directory with result files")
    found = {p for p in folder.rglob("*.json") if NAME.fullmatch(p.name)} | set(
        folder.glob("*.json")
    )
    # What a reset has put aside is no submission.
    mine = [p for p in found if not any(part.startswith("before-") for part in p.parts)]
    return sorted(p for p in mine if p.is_file())


def read(path: Path, name: str) -> Submission:
    """A file that no check wrote gets a remark."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError("more than 1 MB")
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ValueError("no result file of this version")
        for key, kind in (("student", str), ("lab", int), ("score", int), ("identity", str),
                          ("checks", list), ("parameters", dict)):  # fmt: skip
            if not isinstance(values.get(key), kind) or isinstance(values.get(key), bool):
                raise ValueError(f"no proper '{key}'")
    except (OSError, ValueError, RecursionError) as error:
        return Submission(name, {}, "none", [f"cannot be read: {error}"])
    return Submission(name, values)


def judge(submission: Submission, key: bytes | None, labs: Mapping[int, Lab]) -> None:
    """Digest, parameters, points of one file."""
    values, remarks = submission.values, submission.remarks
    found = str(values.get("digest", ""))
    keyed = found.startswith("hmac-sha256:")
    if keyed and key is None:
        submission.digest = "not verified"
        remarks.append("made with a key: give it with --key")
    elif hmac.compare_digest(found.encode(), digest_of(values, key if keyed else None).encode()):
        submission.digest = "ok with key" if keyed else "ok"
        if key is not None and not keyed:
            submission.digest = "no key"
            remarks.append("made without the key")
    else:
        submission.digest = "wrong"
        remarks.append("digest does not fit: the file was changed after the check")
    lab = labs.get(values["lab"])
    if lab is None:
        remarks.append(f"there is no lab {values['lab']}")
        return
    own = lab.parameters(submission.student)
    if values["parameters"] != own or values.get("parameters_digest") != parameters_digest(own):
        remarks.append(f"parameters are not those of '{submission.student}'")
    names = {c.name: c.points for c in lab.spec.checks}
    total = 0
    for check in values["checks"]:
        passed = isinstance(check, dict) and check.get("status") == "passed"
        total += names.get(str(check.get("name")), 0) if passed else 0
    if total != values["score"] or values.get("points") != lab.points:
        remarks.append(f"score is {values['score']}, its checks give {total} of {lab.points}")


def compare(submissions: Sequence[Submission]) -> None:
    """Copies among files of one lab: the same work directory, or the same content, under different
    names; and several files of one student."""
    by_identity: dict[tuple[int, str], list[Submission]] = defaultdict(list)
    by_content: dict[str, list[Submission]] = defaultdict(list)
    by_student: dict[tuple[int, str], list[Submission]] = defaultdict(list)
    for one in submissions:
        values = one.values
        by_identity[values["lab"], values["identity"]].append(one)
        by_student[values["lab"], one.student].append(one)
        without = {k: v for k, v in values.items() if k not in ("student", "digest", "identity")}
        by_content[json.dumps(without, sort_keys=True)].append(one)
    for groups, what in (
        (by_identity.values(), "same work directory as"),
        (by_content.values(), "same content as"),
    ):
        for group in groups:
            if len({s.student for s in group}) > 1:
                for one in group:
                    others = sorted({s.file for s in group if s.student != one.student})
                    one.remarks.append(f"{what} {', '.join(others)}")
    for group in by_student.values():
        files = {s.file for s in group}
        if len(files) > 1:
            for one in group:
                one.remarks.append(f"also in {', '.join(sorted(files - {one.file}))}")


def row(submission: Submission) -> dict[str, object]:
    """Return the submission's row of the CSV file."""
    values = submission.values
    checks = values.get("checks", [])
    try:
        checked = datetime.fromtimestamp(float(values["checked"]), UTC).strftime("%F %T")
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        checked = ""
    passed = sum(isinstance(c, dict) and c.get("status") == "passed" for c in checks)
    return {
        "file": submission.file,
        "student": _plain(submission.student),
        "lab": values.get("lab", ""),
        "score": values.get("score", ""),
        "points": values.get("points", ""),
        "passed": passed if values else "",
        "checks": len(checks) if values else "",
        "checked_utc": checked,
        "clock": _plain(str(values.get("clock", ""))),
        "digest": submission.digest,
        "remarks": _plain("; ".join(submission.remarks)),
    }


def _plain(text: str) -> str:
    """A spreadsheet takes a text that begins so for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t") else text


def graded(folder: Path, key: bytes | None) -> list[Submission]:
    """All result files below `folder`, judged. LabError if there is none."""
    submissions = [read(path, str(path.relative_to(folder))) for path in find_files(folder)]
    if not submissions:
        raise LabError(f"{folder}: found no result-N.json")
    readable = [s for s in submissions if s.values]
    labs: dict[int, Lab] = {}
    for number in {s.values["lab"] for s in readable}:
        try:
            labs[number] = find_lab(number)
        except LabErrors:
            continue
    for one in readable:
        judge(one, key, labs)
    compare(readable)
    return submissions


def grade(folder: Path, output: Path | None, key: bytes | None, screen: TextIO) -> int:
    """Writes the CSV (to `screen` without `output`). 0; 1 if a file has a remark. LabError."""
    submissions = graded(folder, key)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(row(s) for s in submissions)
    if output is None:
        screen.write(text.getvalue())
    else:
        temporary = output.with_name(f".{output.name}.tmp")
        try:
            temporary.write_text(text.getvalue(), encoding="utf-8")
            temporary.replace(output)
        except OSError as error:
            raise LabError(f"{output}: {error.strerror}") from None
    noted = sum(bool(s.remarks) for s in submissions)
    print(f"{len(submissions)} result files, {noted} with a remark", file=sys.stderr)
    return 1 if noted else 0
