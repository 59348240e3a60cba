# SPDX-License-Identifier: Apache-2.0
"""The check of hosts in other parts: the cut links carried every frame. Pure.

A frame that comes late, or finds no room, ends the link, and so the cell; this counts the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from experiments.verdict.checks import Check

NAME: Final = "links between the parts"


@dataclass(frozen=True)
class CutFrames:
    """Frames of one NIC's cut link, both ways; `lost` during the replay."""

    nic: str
    part: int
    sent: int
    lost: int


def parse(raw: Mapping[str, Any]) -> list[CutFrames] | None:
    """Read parts.json; None if a host did not answer after the replay. Raises KeyError or
    TypeError for anything else."""
    found = []
    for host in raw.values():
        if host["after"] is None:
            return None
        for nic, end in host["after"].items():
            lost = max(0, _missing(end) - _missing(host["before"][nic]))
            found.append(CutFrames(nic, host["part"], end["sent_there"] + end["sent_here"], lost))
    return found


def _missing(look: Mapping[str, int]) -> int:
    """Return the frames that were sent but never arrived. Others may have been sent after the
    sending end was read."""
    out = look["sent_there"] - look["received_here"]
    back = look["sent_here"] - look["received_there"]
    return max(0, out) + max(0, back)


def parts_checks(frames: list[CutFrames] | None) -> list[Check]:
    """Return the check; none without parts (an empty list)."""
    if frames is None:
        return [Check(NAME, "fail", 0, None, "a part did not answer after the replay")]
    if not frames:
        return []
    lost = sum(f.lost for f in frames)
    worst = max(frames, key=lambda f: f.lost)
    text = f"{lost} of {sum(f.sent for f in frames)} frames lost"
    if lost:
        text += f"; worst {worst.nic} (part {worst.part}): {worst.lost} of {worst.sent}"
    return [Check(NAME, "fail" if lost else "pass", 0, lost, text)]
