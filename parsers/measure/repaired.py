# SPDX-License-Identifier: Apache-2.0
"""List, by index, the files that FMTP delivered only with retransmitted blocks: DRFSM21 Table 5.

Files that needed retransmission at all subscribers were lost before the multicast tree branches.
This is how DRFSM21 5.2 locates loss in the publisher's regional network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from parsers.measure.deliveries import Arrival

LISTED = 50  # files listed for each receiver; in a lossy hour nearly all are repaired


@dataclass(frozen=True, slots=True)
class RepairedFile:
    """`index`: FMTP's, which counts files in sending order; `blocks`: those retransmitted."""

    index: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Repaired:
    """The repaired files of one receiver. `files`: the first LISTED by index."""

    count: int = 0
    files: tuple[RepairedFile, ...] = ()

    @property
    def complete(self) -> bool:
        """Return whether all repaired files are listed."""
        return len(self.files) == self.count


def repaired_of(arrivals: Iterable[Arrival]) -> Repaired:
    """Return the files of one receiver that needed retransmitted blocks."""
    found = sorted(
        (a.index, a.retrans)
        for a in arrivals
        if a.how == "fmtp" and a.index is not None and a.retrans > 0
    )
    return Repaired(len(found), tuple(RepairedFile(*f) for f in found[:LISTED]))


@dataclass(frozen=True)
class Sharing:
    """Repaired files, by how many receivers needed blocks of them."""

    everywhere: tuple[int, ...]  # indexes
    somewhere: tuple[int, ...]  # at two or more receivers, but not at all
    alone: tuple[int, ...]  # at one


def sharing(repaired: Mapping[str, Repaired]) -> Sharing | None:
    """Return the files by receivers; None unless the index of every file is known."""
    if not all(r.complete for r in repaired.values()):
        return None
    at: dict[int, int] = {}
    for one in repaired.values():
        for file in one.files:
            at[file.index] = at.get(file.index, 0) + 1
    m = len(repaired)

    def with_count(low: int, high: int) -> tuple[int, ...]:
        return tuple(sorted(i for i, n in at.items() if low <= n <= high))

    return Sharing(with_count(max(2, m), m), with_count(2, m - 1), with_count(1, 1))


def matrix(
    repaired: Mapping[str, Repaired],
) -> tuple[tuple[str, ...], Sequence[tuple[str, ...]]] | None:
    """Return (header, rows): a row per file, with the blocks retransmitted to each receiver. None
    unless all files are known and there are at most LISTED."""
    if not all(r.complete for r in repaired.values()):
        return None
    blocks = {(f.index, h): f.blocks for h, r in repaired.items() for f in r.files}
    indexes = sorted({index for index, _ in blocks})
    if not 0 < len(indexes) <= LISTED:
        return None
    rows = [
        (str(index), *(str(blocks.get((index, host), 0)) for host in repaired)) for index in indexes
    ]
    return ("File index", *repaired), rows
