# SPDX-License-Identifier: Apache-2.0
"""Result files: what a student hands in, with a digest that shows later changes.

`digest` is SHA-256 over the canonical JSON of all other values (sorted, no white space, UTF-8).
Anybody can recompute it, so it shows accidents and casual edits, but not a change by somebody who
has read this. With a key (`DOWNPOUR_LABS_KEY`: the instructor's file) it is HMAC-SHA-256, which
only holders of the key can make.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from common.files import write_json
from labs.checking import CheckResult
from labs.spec import Lab, Value
from labs.workdir import LabError, Work

FORMAT: Final = 1
KEY_VARIABLE: Final = "DOWNPOUR_LABS_KEY"
LEAST_KEY_BYTES: Final = 16


def canonical(values: Mapping[str, Any]) -> bytes:
    """Return what the digest covers: everything except `digest`."""
    kept = {k: v for k, v in values.items() if k != "digest"}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of(values: Mapping[str, Any], key: bytes | None) -> str:
    """Return the digest in hexadecimal, after the algorithm's name."""
    text = canonical(values)
    if key is None:
        return "sha256:" + hashlib.sha256(text).hexdigest()
    return "hmac-sha256:" + hmac.new(key, text, hashlib.sha256).hexdigest()


def parameters_digest(parameters: Mapping[str, Value]) -> str:
    """Return the SHA-256 of a lab's parameters, in hex."""
    text = json.dumps(parameters, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read_key(path: Path) -> bytes:
    """Return the instructor's key: the bytes of a file. Raises LabError."""
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise LabError(f"key {path}: {error.strerror}; valid: a file that you can read") from None
    if len(key) < LEAST_KEY_BYTES:
        raise LabError(f"key {path}: found {len(key)} bytes; valid: {LEAST_KEY_BYTES} or more")
    return key


def result_of(
    lab: Lab, work: Work, results: Sequence[CheckResult], clock: str, now: float
) -> dict[str, Any]:
    """Return a whole result file except the digest. `now`: epoch, seconds."""
    parameters = lab.parameters(work.student)
    checks = [r.to_dict() for r in results]
    return {
        "format": FORMAT,
        "lab": lab.number,
        "title": lab.spec.title,
        "student": work.student,
        "identity": work.identity,
        "work_made": round(work.made, 3),
        "checked": round(now, 3),
        "clock": clock,
        "parameters": dict(parameters),
        "parameters_digest": parameters_digest(parameters),
        "checks": checks,
        "score": sum(r.score for r in results),
        "points": lab.points,
    }


def write_result(
    lab: Lab, work: Work, results: Sequence[CheckResult], clock: str, key: bytes | None
) -> Path:
    """Write result-N.json in the work directory. Raises LabError."""
    values = result_of(lab, work, results, clock, time.time())
    values["digest"] = digest_of(values, key)
    path = work.directory / f"result-{lab.number}.json"
    try:
        write_json(path, values)
    except OSError as error:
        raise LabError(f"{path}: {error.strerror}") from None
    return path
