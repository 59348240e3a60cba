# SPDX-License-Identifier: Apache-2.0
"""Judge a cell from the files in its directory alone: the cell does so at its end, and `verify`
later. So a verdict rests on nothing that nobody can read again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from common.contracts import JOIN_LEAVE
from experiments.design.expansion import CellSpec
from experiments.design.join_leave_expansion import JoinLeaveCell
from experiments.verdict import Verdict, accounts, judge
from experiments.verdict.accounts import Account
from experiments.verdict.collect import collect, observed
from experiments.verdict.join_leave import judge_files
from parsers.base.jsonfiles import BadFile, load_object
from topologies.model.network import Network

ASKED: Final = "asked"  # in cell.json: the cell's specification, as manifest.json has it
NEEDED: Final = (ASKED, "tcp_others")  # in cell.json; in one of a join-leave cell the first


def described(out: Path) -> dict[str, object]:
    """Return cell.json. Raises BadFile or OSError."""
    file = out / "cell.json"
    return load_object(file.read_text(encoding="utf-8"), str(file), "a cell")


def lacking(cell_json: Mapping[str, object]) -> str:
    """Return the first key without which a cell cannot be judged from its files; "" if all are
    there."""
    needed = NEEDED[:1] if cell_json.get("kind") == JOIN_LEAVE else NEEDED
    return next((key for key in needed if key not in cell_json), "")


def judge_cell(out: Path) -> tuple[Verdict, dict[str, Account] | None]:
    """Return the verdict of the cell in the directory `out`, and its accounts of datagrams by host
    (None: subscribers join and leave). Raises BadFile or OSError."""
    known = described(out)
    if key := lacking(known):
        raise BadFile(f"{out / 'cell.json'}: found no '{key}'; valid: {' and '.join(NEEDED)}")
    cell = _specified(known[ASKED], out)
    network = Network.from_json((out / "network.json").read_text(encoding="utf-8"))
    if isinstance(cell, JoinLeaveCell):
        return judge_files(out, cell, network), None
    evidence = collect(out, cell, network, observed(out, known))
    return judge(evidence), accounts(evidence)


def _specified(raw: Any, out: Path) -> CellSpec:
    """Return the cell that `CellSpec.to_dict` described. Raises BadFile."""
    try:
        return (JoinLeaveCell if "script" in raw else CellSpec).from_dict(raw)
    except (TypeError, KeyError, AttributeError) as error:
        text = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise BadFile(
            f"{out / 'cell.json'}: {ASKED}: {text}; valid: a cell as this version specifies it"
        ) from None


def as_stored(verdict: Verdict) -> dict[str, Any]:
    """Return what verdict.json has once it is read again: tuples are lists there."""
    found: dict[str, Any] = json.loads(json.dumps(verdict.to_dict()))
    return found
