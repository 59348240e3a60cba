# SPDX-License-Identifier: Apache-2.0
"""Collect a class's result files in one CSV, with remarks on everything that looks wrong."""

from __future__ import annotations

import csv
import hashlib
import hmac
import io
import os
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final, TextIO

from common.counting import counted
from common.files import write_json
from labs.checking import Status
from labs.rerun import CannotRerun, Rerun, rerun
from labs.results import canonical, digest_of, parameters_digest
from labs.spec import CheckSpec, Lab, LabErrors, find_lab
from labs.submissions import Submission, find_files, read, shown
from labs.workdir import STUDENT, LabError

COLUMNS: Final = (
    "file", "student", "lab", "score", "points", "passed", "checks", "checked_utc", "clock",
    "digest", "remarks",
)  # fmt: skip
CLOCKS: Final = ("native", "virtual", "none")
MOST_NAMED: Final = 5  # files or checks named in a remark
# A spreadsheet evaluates a cell that begins like this, some even after white space, quotes or
# full-width signs. If it takes semicolons as separators, a cell also begins after one.
_BEGINS: Final = r"[\s\u200b\ufeff\"']*[=+\-@\uff1d\uff0b\uff0d\uff20]"
_COMPUTED: Final = re.compile(rf"[\x00-\x1f\x7f]|\\x[01]|{_BEGINS}")
_AFTER_SEPARATOR: Final = re.compile(rf"([;,|])({_BEGINS})")


# -- one file ---------------------------------------------------------------------------------
def judge(submission: Submission, key: bytes | None, labs: Mapping[int, Lab]) -> None:
    """Judge digest, names, parameters and points of a file that was read."""
    values, remarks = submission.values, submission.remarks
    _judge_digest(submission, key)
    if not STUDENT.fullmatch(submission.student):
        valid = "1 to 64 letters, digits, ' ._@+-'"
        remarks.append(f"found student '{shown(submission.student)}'; valid: {valid}")
    if values["clock"] not in CLOCKS:
        remarks.append(f"found clock '{shown(values['clock'])}'; valid: {', '.join(CLOCKS)}")
    if not _moment(values["checked"]):
        remarks.append(f"found checked {shown(values['checked'])}; valid: seconds since 1970")
    lab = labs.get(values["lab"])
    if lab is None:
        remarks.append(f"there is no lab {values['lab']}")
        return
    own = lab.parameters(submission.student)
    if values["parameters"] != own or values["parameters_digest"] != parameters_digest(own):
        remarks.append(f"parameters are not those of '{shown(submission.student)}'")
    _judge_checks(submission, lab)


def _judge_digest(submission: Submission, key: bytes | None) -> None:
    values, remarks = submission.values, submission.remarks
    found = values.get("digest")
    if not isinstance(found, str):
        remarks.append("no digest: not as a check wrote it")
        return
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


def _judge_checks(submission: Submission, lab: Lab) -> None:
    """Count those checks that belong to the lab, once each, with the lab's points."""
    values, remarks = submission.values, submission.remarks
    specs = {c.name: c for c in lab.spec.checks}
    submission.points = lab.points
    passed: dict[str, bool] = {}
    problems: list[str] = []
    listed: Counter[str] = Counter()
    for number, check in enumerate(values["checks"], start=1):
        name = check.get("name") if isinstance(check, dict) else None
        if not isinstance(name, str) or name not in specs:
            problems.append(f"entry {number} is not a check of lab {lab.number}")
            continue
        listed[name] += 1
        problem = _problem_of(check, specs[name])
        if problem:
            problems.append(f"check '{name}' does not count: {problem}")
        counts = not problem and check["status"] == Status.PASSED
        passed[name] = passed.get(name, True) and counts
    problems += [f"check '{n}' occurs {times} times" for n, times in listed.items() if times > 1]
    if absent := [name for name in specs if name not in listed]:
        problems.append(f"without the checks {_some(absent)}")
    remarks += problems[:MOST_NAMED]
    if len(problems) > MOST_NAMED:
        remarks.append(f"{len(problems) - MOST_NAMED} more of its checks are wrong")
    submission.passed = sum(passed.values())
    submission.score = sum(specs[name].points for name, counts in passed.items() if counts)
    if (values["score"], values["points"]) != (submission.score, lab.points):
        given = f"score is {values['score']}"
        if values["points"] != lab.points:
            given += f" of {values['points']}"
        remarks.append(f"{given}, its checks give {submission.score} of {lab.points}")


def _problem_of(check: Mapping[str, Any], spec: CheckSpec) -> str:
    """Return what is wrong with the check's status, points and score; "" if nothing is."""
    status, points, score = check.get("status"), check.get("points"), check.get("score")
    if not isinstance(status, str) or status not in {str(s) for s in Status}:
        return f"found status '{shown(status)}'; valid: {', '.join(Status)}"
    if not _is_whole(points) or points != spec.points:
        return f"found points {shown(points)}; valid: {spec.points}"
    right = spec.points if status == Status.PASSED else 0
    if not _is_whole(score) or score != right:
        return f"found score {shown(score)} with status {status}; valid: {right}"
    return ""


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _moment(seconds: float) -> str:
    """Return when the checks ran; "" for an invalid time."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%F %T") if seconds >= 0 else ""
    except (ValueError, OverflowError, OSError):
        return ""


# -- all files --------------------------------------------------------------------------------
def compare(submissions: Sequence[Submission]) -> None:
    """Find copies among the files of one lab: the same work directory or the same content under
    different names, and several files of one student."""
    by_identity: dict[Hashable, list[Submission]] = defaultdict(list)
    by_content: dict[Hashable, list[Submission]] = defaultdict(list)
    by_student: dict[Hashable, list[Submission]] = defaultdict(list)
    for one in submissions:
        values = one.values
        by_identity[values["lab"], values["identity"]].append(one)
        by_student[values["lab"], one.student].append(one)
        without = {k: v for k, v in values.items() if k not in ("student", "digest", "identity")}
        by_content[hashlib.sha256(canonical(without)).digest()].append(one)
    for groups, what in ((by_identity, "same work directory as"), (by_content, "same content as")):
        for group in groups.values():
            students = Counter(s.student for s in group)
            if len(students) > 1:
                for one in group:
                    others = (s.file for s in group if s.student != one.student)
                    named = _some(others, len(group) - students[one.student])
                    one.remarks.append(f"{what} {named}")
    for group in by_student.values():
        if len(group) > 1:
            for one in group:
                others = (s.file for s in group if s is not one)
                one.remarks.append(f"also in {_some(others, len(group) - 1)}")


def _some(names: Iterable[str], number: int | None = None) -> str:
    """Return the first few of `number` names: remarks on a class full of copies must not fill a
    disk."""
    kept = list(names) if number is None else list(islice(names, MOST_NAMED))
    number = len(kept) if number is None else number
    more = f" and {number - MOST_NAMED} more" if number > MOST_NAMED else ""
    return f"{', '.join(kept[:MOST_NAMED])}{more}"


@dataclass(frozen=True)
class Again:
    """Runs the checks again. `receipts`: the directory for their signed findings."""

    receipts: Path | None = None

    def judge(self, submission: Submission, lab: Lab, key: bytes | None) -> None:
        """Check one submission again, and add a remark if the result differs. Raises LabError."""
        print(f"checking {submission.file} again", file=sys.stderr, flush=True)
        submission.rerun = "no"
        try:
            found = rerun(submission, lab)
        except CannotRerun as problem:
            submission.remarks.append(str(problem))
            return
        submission.rerun = str(found.score)
        if found.score != submission.score:
            text = f"checked again: {found.score} of {lab.points}, not {submission.score}"
            submission.remarks.append(text)
        if self.receipts is not None:
            assert key is not None, "checked with the options"
            write_receipt(self.receipts, submission, lab, found, key)


def write_receipt(
    directory: Path, submission: Submission, lab: Lab, found: Rerun, key: bytes
) -> Path:
    """Write a signed result file of what the instructor's checks found. Raises LabError."""
    values = {
        **submission.values,
        "title": lab.spec.title,
        "checked": round(time.time(), 3),
        "clock": "none",
        "parameters": dict(lab.parameters(submission.student)),
        "checks": [result.to_dict() for result in found.results],
        "score": found.score,
        "points": lab.points,
        "rerun": True,
        "files_sha256": found.files_sha256,
    }
    values["digest"] = digest_of(values, key)
    # Named after the file's place, not after the student: two files may claim the same name.
    name = hashlib.sha256(submission.path).hexdigest()[:16]
    path = directory / name / f"result-{lab.number}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, values)
    except OSError as error:
        raise LabError(f"{shown(path)}: {error.strerror}") from None
    return path


def graded(folder: Path, key: bytes | None, again: Again | None = None) -> list[Submission]:
    """Return all result files below `folder`, judged. Raises LabError if there is none."""
    submissions = [read(found) for found in find_files(folder)]
    if not submissions:
        valid = "a folder with some, which lab check writes"
        raise LabError(f"{shown(folder)}: found no result-N.json; valid: {valid}")
    readable = [s for s in submissions if s.values]
    labs: dict[int, Lab] = {}
    for number in {s.values["lab"] for s in readable}:
        try:
            labs[number] = find_lab(number)
        except LabErrors:
            continue
    for one in readable:
        judge(one, key, labs)
        if again is not None and one.values["lab"] in labs:
            again.judge(one, labs[one.values["lab"]], key)
    compare(readable)
    return submissions


# -- the table --------------------------------------------------------------------------------
def row(submission: Submission) -> dict[str, object]:
    """Return the submission's row of the CSV file."""
    values = submission.values
    return {
        "file": plain(submission.file),
        "student": plain(shown(submission.student)),
        "lab": values.get("lab", ""),
        "score": submission.score if values else "",
        "points": submission.points if values else "",
        "passed": submission.passed if values else "",
        "checks": len(values["checks"]) if values else "",
        "checked_utc": _moment(values["checked"]) if values else "",
        "clock": plain(shown(values.get("clock", ""))),
        "digest": submission.digest,
        "rerun": submission.rerun,
        "remarks": plain("; ".join(submission.remarks)),
    }


def plain(text: str) -> str:
    """Return `text` so that no spreadsheet evaluates it, or what follows a separator in it."""
    inside = _AFTER_SEPARATOR.sub(r"\1'\2", text)
    return f"'{inside}" if _COMPUTED.match(text) else inside


def grade(
    folder: Path,
    output: Path | None,
    key: bytes | None,
    screen: TextIO,
    again: Again | None = None,
) -> int:
    """Write the CSV (to `screen` without `output`). Return 0, or 1 if a file has a remark. Raises
    LabError."""
    submissions = graded(folder, key, again)
    text = io.StringIO()
    columns = COLUMNS if again is None else (*COLUMNS[:-1], "rerun", COLUMNS[-1])
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(row(s) for s in submissions)
    if output is None:
        screen.write(text.getvalue())
    else:
        _write(output, text.getvalue())
    noted = sum(bool(s.remarks) for s in submissions)
    print(f"{counted(len(submissions), 'result file')}, {noted} with a remark", file=sys.stderr)
    return 1 if noted else 0


def _write(output: Path, text: str) -> None:
    """Write a file that only the instructor can read, by way of a file whose name no student can
    guess."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{output.name[:100]}.", dir=output.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(text)
            temporary.replace(output)
        except BaseException:
            temporary.unlink()
            raise
    except OSError as error:
        raise LabError(f"{shown(output)}: {error.strerror}") from None
