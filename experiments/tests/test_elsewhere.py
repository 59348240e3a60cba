# SPDX-License-Identifier: Apache-2.0
"""What a verdict says about hosts on other machines, from hosts.json."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.verdict.elsewhere import elsewhere_checks, parse

NICS = {"p": "p-nic1", "q": "q-nic1"}


def look(offset_ms: float, name: str, frames: int, lost: int = 0) -> dict[str, Any]:
    tunnel = {
        "sent_there": frames,
        "received_here": frames - lost,
        "sent_here": frames,
        "received_there": frames,
    }
    return {
        "offset_ms": offset_ms,
        "error_ms": 0.1,
        "tunnels": {f"{name}-nic1": tunnel, f"{name}-nic2": {**tunnel, "received_there": 0}},
    }


def seen(name: str, before_ms: float, after_ms: float, lost: int = 0) -> dict[str, Any]:
    return {
        "machine": "there",
        "before": look(before_ms, name, 10),
        "after": look(after_ms, name, 10_010, lost),
    }


def statuses(*hosts: tuple[str, dict[str, Any]], publisher: str = "p") -> list[str]:
    found = {name: parse(raw, NICS) for name, raw in hosts}
    return [check.status for check in elsewhere_checks(found, publisher)]


def test_no_check_if_all_hosts_are_here() -> None:
    assert elsewhere_checks({}, "p") == []


@pytest.mark.parametrize(
    ("after_ms", "status"), [(0.3, "pass"), (1.2, "warn"), (-9.0, "warn"), (11.0, "fail")]
)
def test_the_offset_from_the_publisher_counts(after_ms: float, status: str) -> None:
    assert statuses(("q", seen("q", 0.0, after_ms)))[0] == status


def test_the_error_of_the_measurement_counts_as_offset() -> None:
    assert statuses(("q", seen("q", 0.0, 0.85)))[0] == "pass"
    assert statuses(("q", seen("q", 0.0, 0.95)))[0] == "warn"


def test_two_clocks_that_are_off_alike_still_differ_from_the_hosts_here() -> None:
    p, q = ("p", seen("p", 30.0, 30.0)), ("q", seen("q", 30.0, 30.0))
    (check, _) = elsewhere_checks({name: parse(raw, NICS) for name, raw in (p, q)}, "p")
    assert check.status == "fail" and "this machine" in check.text


def test_a_publisher_elsewhere_is_compared() -> None:
    assert statuses(("p", seen("p", 20.0, 20.0)))[0] == "fail"


def test_lost_frames_of_the_path_count() -> None:
    assert statuses(("q", seen("q", 0.0, 0.0, lost=1)))[1] == "warn"
    assert statuses(("q", seen("q", 0.0, 0.0, lost=500)))[1] == "fail"


def test_a_host_that_does_not_answer_fails() -> None:
    assert statuses(("q", {**seen("q", 0.0, 0.0), "after": None})) == ["fail", "fail"]
