# SPDX-License-Identifier: Apache-2.0
"""The events that a cell's process reports to the runner: one JSON object per line of its standard
output."""

from __future__ import annotations

from typing import Literal, Required, TypedDict


class Event(TypedDict, total=False):
    """A phase begins, the replay progresses, the cell is done, or it fails."""

    event: Required[Literal["phase", "progress", "done", "error"]]
    text: str
    # progress
    elapsed_s: float  # of the replay
    products: int  # of the trace
    inserted: int
    delivered: int  # at the receiver with the fewest
    subscriptions: int  # where subscribers join and leave
    draining: bool  # all is inserted
    # done
    verdict: str
    identical: bool
    lacking: bool  # a protocol that may miss products has missed some


class Phase(TypedDict):
    """When a phase began, counted from the cell's start."""

    text: str
    real_s: float


class GuestPhase(Phase):
    """The same for a guest, which has its own clock."""

    virtual_s: float
