# SPDX-License-Identifier: Apache-2.0
"""What a check and a verdict are, and limits that have a reason."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypedDict

from common.contracts import DEGRADED, FAITHFUL, INVALID, VerdictWord

Status = Literal["pass", "warn", "fail", "n/a"]


@dataclass(frozen=True)
class Limits:
    """Up to `warn` a check passes, up to `fail` it warns, and above it fails."""

    warn: float
    fail: float
    reason: str

    def status(self, value: float) -> Status:
        """Return the status of a measured value."""
        return "pass" if value <= self.warn else "warn" if value <= self.fail else "fail"


class CheckJson(TypedDict):
    """A check as verdict.json has it."""

    name: str
    status: Status
    asked: object
    found: object
    text: str


class VerdictJson(TypedDict):
    """verdict.json."""

    verdict: VerdictWord
    checks: list[CheckJson]


@dataclass(frozen=True)
class Check:
    """One check, as verdict.json has it."""

    name: str
    status: Status
    asked: object
    found: object
    text: str

    def to_dict(self) -> CheckJson:
        """Return the check as verdict.json has it."""
        return {
            "name": self.name,
            "status": self.status,
            "asked": self.asked,
            "found": self.found,
            "text": self.text,
        }


@dataclass(frozen=True)
class Verdict:
    verdict: VerdictWord
    checks: tuple[Check, ...]

    def to_dict(self) -> VerdictJson:
        """Return the content of verdict.json."""
        return {"verdict": self.verdict, "checks": [c.to_dict() for c in self.checks]}


def worst(statuses: Iterable[Status]) -> Status:
    """Return the status of a check that covers several things."""
    found = set(statuses)
    return "fail" if "fail" in found else "warn" if "warn" in found else "pass"


def summary(checks: Iterable[Check]) -> VerdictWord:
    """Return the verdict that results from these checks."""
    statuses = {c.status for c in checks}
    return INVALID if "fail" in statuses else DEGRADED if "warn" in statuses else FAITHFUL
