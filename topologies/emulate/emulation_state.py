# SPDX-License-Identifier: Apache-2.0
"""What a running network tells other processes (status, shell, capture) about itself, in
lab.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypedDict, cast

from topologies.emulate import marks


class EmulationState(TypedDict):
    """`pids`: node -> a process of its namespace; `facts`: `KernelFacts.to_dict`; `relay_fifo`:
    wire-relay has real-time priority, or None without a relay; `controllers`: domain -> REST
    socket."""

    pids: dict[str, int]
    facts: dict[str, object]
    relay_fifo: bool | None
    controllers: dict[str, str]


def state_file(directory: Path) -> Path:
    """Return where a network with this state directory writes its state."""
    return directory / "lab.json"


def emulation_state(run_id: str) -> EmulationState | None:
    """Return the state of a run's network; None before it is ready."""
    try:
        text = state_file(marks.state_directory(run_id)).read_text(encoding="utf-8")
        return cast(EmulationState, json.loads(text))
    except (OSError, ValueError):
        return None


def pids_of(run_id: str) -> dict[str, int]:
    """Return by node a process of its namespace; {} before the network is ready."""
    state = emulation_state(run_id)
    return {} if state is None else state["pids"]


def controllers_of(run_id: str) -> dict[str, str]:
    """Return the REST socket by controller domain; {} before the network is ready."""
    state = emulation_state(run_id)
    return {} if state is None else state["controllers"]
