# SPDX-License-Identifier: Apache-2.0
"""The conditions of a run, as its report shows them."""

from __future__ import annotations

from typing import Any

from parsers.report.conditions import conditions_section


def shown(manifest: dict[str, Any]) -> dict[str, str]:
    (table,) = conditions_section(manifest, []).tables
    return {str(row[0]): str(row[1]) for row in table.rows}


def test_which_code_ran() -> None:
    commit = {"commit": "0123abcd", "dirty": True}
    assert shown({"git": commit})["Commit"] == "0123abcd, with changes"
    assert "Ran other code" not in shown({"git": commit})
    other = {"git": commit, "other_code": ["ldm7-m2-r20-p1", "ldm6-m2-r20-p1"]}
    assert shown(other)["Ran other code"] == "ldm7-m2-r20-p1, ldm6-m2-r20-p1"
