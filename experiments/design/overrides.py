# SPDX-License-Identifier: Apache-2.0
"""What the command line may change in an experiment. Separate from the models of the files, whose
import takes long."""

from __future__ import annotations

from typing import TypedDict


class Overrides(TypedDict, total=False):
    """Values from the command line that replace the file's; None: keep the file's."""

    duration_s: float | None
    receivers: int | None
    repeats: int | None
    trace: str | None
    seed: int | None
    queue_bytes: int | None
    monitor: bool  # of every cell
