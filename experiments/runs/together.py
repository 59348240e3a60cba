# SPDX-License-Identifier: Apache-2.0
"""What of an experiment needs all hosts in one place: not on other machines, nor in other parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from experiments.design.join_leave_expansion import JoinLeaveCell
from experiments.runs.options import RunChoices
from experiments.runs.preparation import Planned

SAMPLES: Final = frozenset({"hosts", "events"})  # that need no program beside the hosts'


def unsuitable(planned: Planned, *, ctcp: bool = False) -> Iterator[tuple[str, str]]:
    """Yield what of a cell needs all hosts in one place, and what does not. `ctcp`: whether each
    place has Circuit TCP."""
    cell, lanes = planned.cell, planned.network.lane_count
    if isinstance(cell, JoinLeaveCell):
        yield "subscribers that join and leave", "subscribers that stay"
    if cell.protocol not in ("ldm7", "ldm6"):
        yield f"protocol {cell.protocol}", "ldm7, ldm6"
    if cell.ldmd_makes_vlans:
        yield "interfaces that ldmd makes", "the network's own"
    if cell.pauses_first:
        yield "a receiver that pauses", "receivers that do not"
    if cell.has_rivals:
        yield "competing flows", "none"
    if lanes > 1:
        yield f"{lanes} lanes", "one"
    if cell.conditions.tcp == "ctcp" and not ctcp:
        yield "TCP ctcp", "cubic, bbr, reno"
    if cell.conditions.monitor == "on":
        yield "a monitor", "none"


def unsuitable_options(options: RunChoices) -> Iterator[tuple[str, str]]:
    """Yield which options need all hosts in one place, and what does not."""
    if options.monitor:
        yield "--monitor", "none"
    if others := sorted(set(options.sample) - SAMPLES):
        yield f"--sample {others[0]}", ", ".join(sorted(SAMPLES))
    if options.capture:
        yield f"--capture {options.capture[0]}", "none"
    if options.keep_work:
        yield "--keep-work", "without it, queues are where the hosts are"
