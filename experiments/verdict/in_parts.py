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
            begin = host["before"][nic]
            grown = {name: end[name] - begin[name] for name in end}
            out = grown["sent_there"] - grown["received_here"]
            back = grown["sent_here"] - grown["received_there"]
            # What was on the way at the first look, or sent after the last one, only arrives.
            lost = max(0, out) + max(0, back)
            found.append(CutFrames(nic, host["part"], end["sent_there"] + end["sent_here"], lost))
    return found


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
