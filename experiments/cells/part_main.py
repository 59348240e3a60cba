# SPDX-License-Identifier: Apache-2.0
"""What another part of a cell's network runs: the agent of its hosts (`--parts`)."""

from __future__ import annotations

import os
from pathlib import Path

from common.virtual_time import LINKS
from experiments.cells.host_agent import functions
from topologies.remote import part_agent


def main(plan: Path, part: int) -> int:
    """Serve the part until its end; return the exit code."""
    return part_agent.main(plan, part, Path(os.environ[LINKS]), functions)
