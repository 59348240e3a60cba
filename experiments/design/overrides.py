# SPDX-License-Identifier: Apache-2.0
"""What the command line may change in an experiment, separate from the files' models, which take
long to import."""

from __future__ import annotations

from typing import TypedDict


class Overrides(TypedDict, total=False):
    """Values from the command line instead of the file; None: as in the file."""

    duration_s: float | None
    receivers: int | None
    repeats: int | None
    trace: str | None
    seed: int | None
    queue_bytes: int | None
    monitor: bool  # of every cell
