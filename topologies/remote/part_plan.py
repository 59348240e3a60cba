# SPDX-License-Identifier: Apache-2.0
"""What the guests of one network know of its parts: hosts, cuts, files and addresses. Pure.

Part 0 has the network; parts 1, 2, ... have hosts. Each of these is joined to part 0 by two links,
each with a file of batches for each direction: one carries the NICs of its hosts, the other what
part 0 asks of them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from topologies.model.parts import CutHost, CutNic

PORT: Final = 7077  # of the part's agent
ASKING: Final = "ask"  # the interface of what part 0 asks: ask1, ... in part 0, ask in the part
DIRECTIONS: Final = ("down", "up", "ask", "answer")
FROM_0: Final = ("down", "ask")


@dataclass(frozen=True)
class PartPlan:
    """`asking_ns`: the delay of what part 0 asks, and of the answers. `links`: the directory of
    the files, as guests see it."""

    window_ns: int
    asking_ns: int
    others: tuple[tuple[CutHost, ...], ...]
    build: Path

    def to_json(self) -> str:
        """Return the text for `from_json`."""
        return json.dumps(asdict(self), indent=1, default=str) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PartPlan:
        """Return the plan that a text of `to_json` describes."""
        raw: dict[str, Any] = json.loads(text)
        others = tuple(
            tuple(CutHost(h["name"], tuple(CutNic(**n) for n in h["nics"])) for h in hosts)
            for hosts in raw["others"]
        )
        return cls(raw["window_ns"], raw["asking_ns"], others, Path(raw["build"]))


def file_of(part: int, direction: str) -> str:
    """Return the name of a file of batches."""
    return f"{part}-{direction}"


def files_of(parts: int) -> list[tuple[str, int, int]]:
    """Return all files of batches: their names, and from which part to which they go."""
    ways = [
        (d, (0, part) if d in FROM_0 else (part, 0)) for part in range(1, parts) for d in DIRECTIONS
    ]
    return [(file_of(max(way), d), *way) for d, way in ways]


def addresses_of(part: int) -> tuple[str, str]:
    """Return the addresses of what part 0 asks a part: in part 0, and there."""
    return f"169.254.{part}.1", f"169.254.{part}.2"


def outer_of(number: int) -> str:
    """Return the interface in the part that cut-link serves, by the number of the NIC."""
    return f"cut{number}"


def inner_of(number: int) -> str:
    """Return the other end of its cable, until a host's namespace gets it as its NIC."""
    return f"nic{number}"


def ns(delay_ms: float) -> int:
    """Return a delay in nanoseconds."""
    return round(delay_ms * 1_000_000)
