# SPDX-License-Identifier: Apache-2.0
"""What a cell's process tells the runner: one JSON object per line of its standard output."""

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
    delivered: int  # at the receiver that has fewest
    subscriptions: int  # where subscribers join and leave
    draining: bool  # all is inserted
    # done
    verdict: str
    identical: bool
    lacking: bool  # a protocol that may miss products did


class Phase(TypedDict):
    """When a phase began, counted from the cell's start."""

    text: str
    real_s: float


class GuestPhase(Phase):
    """The same of a guest, which has its own clock."""

    virtual_s: float
