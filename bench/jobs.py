# SPDX-License-Identifier: Apache-2.0
"""The measurements: sections have cells, and cells have jobs. A job is one run of one tool.
Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from typing import Any, Final, Literal

Kind = Literal["file", "stream", "queue", "paths"]
Clock = Literal["native", "virtual"]
# What a host's card does: takes datagrams and segments of 64 kB; takes frames, which Linux cuts
# just before the card and joins again just after it (GSO and GRO, its defaults); or takes frames,
# and nothing cuts or joins.
Card = Literal["segmenting", "plain", "bare"]
CARD_WORDS: Final[Mapping[Card, str]] = {
    "segmenting": "",
    "plain": "a card without segmentation",
    "bare": "a datagram a frame",
}
STEERED: Final = "received on all processors"

SECTIONS: Final = (
    *("blast", "shaped", "stream", "small", "receivers", "interop", "queue", "paths"),
)
MBIT: Final = 1_000_000
MB: Final = 1_000_000


@dataclass(frozen=True)
class Job:
    """One tool, one set of conditions, one repeat. `rate_bps` 0: no limit at the sender's NIC."""

    section: str
    tool: str
    kind: Kind
    clock: Clock
    receivers: int
    rate_bps: int = 0
    loss: float = 0.0
    delay_ms: float = 0.0  # one way
    size_bytes: int = 0  # of a file; in a stream, the mean
    files: int = 1
    offered_bps: int = 0  # offered by a stream
    sizes: str = "log-normal"  # of a stream: log-normal, or ngrid (products of at most 100 kB)
    card: Card = "segmenting"
    steered: bool = False  # each host receives on all processors (RPS), not on the sender's
    repeat: int = 0

    @property
    def seed(self) -> int:
        """Return the seed of a file's bytes, sizes, arrivals and, in virtual time, losses. It is
        the same for all tools and conditions of a section."""
        text = f"downpour bench {self.section} {self.repeat}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

    @property
    def cell(self) -> str:
        """Return the conditions in words, which the rows of a table share."""
        if self.kind == "queue":
            return "in memory"
        if self.kind == "paths":
            return "100 switches"
        parts = []
        if self.section in ("blast", "shaped"):
            parts.append(f"{self.size_bytes // MB} MB")
        if self.rate_bps:
            parts.append(f"{self.rate_bps // MBIT} Mbit/s")
        parts += [f"N={self.receivers}", f"loss {100 * self.loss:g} %"]
        if self.section != "blast":
            parts.append(f"delay {self.delay_ms:g} ms")
        if words := CARD_WORDS[self.card]:
            parts.append(words)
        if self.steered:
            parts.append(STEERED)
        return ", ".join(parts)

    @property
    def key(self) -> str:
        """Return the key of a result, by which a resumed run finds it."""
        return json.dumps(asdict(self), sort_keys=True)

    def to_dict(self) -> dict[str, Any]:
        """Return the job as plain data."""
        return asdict(self)


def job_from(data: dict[str, Any]) -> Job:
    """Return the job that `to_dict` described. Raises ValueError for fields that jobs lack."""
    valid = [field.name for field in fields(Job)]
    if others := [name for name in data if name not in valid]:
        raise ValueError(f"found '{others[0]}' in a job; valid: {', '.join(valid)}")
    return Job(**data)


def cells_of(section: str, clock: Clock) -> list[Job]:
    """Return every cell of a section as a job without a tool. `clock`: of sections that may run in
    virtual time."""
    if section not in _CELLS:
        raise ValueError(f"found section '{section}'; valid: {', '.join(SECTIONS)}")
    return list(_CELLS[section](clock))


def _blast(_: Clock) -> Iterator[Job]:
    for size in (200 * MB, 1000 * MB):
        for loss in (0.0, 0.01):
            yield Job("blast", "", "file", "native", 8, loss=loss, size_bytes=size)
    cards: tuple[Card, ...] = ("plain", "bare")
    for card, loss in product(cards, (0.0, 0.01)):
        yield Job("blast", "", "file", "native", 8, loss=loss, size_bytes=200 * MB, card=card)


def _shaped(clock: Clock) -> Iterator[Job]:
    levels = product(
        (100 * MBIT, 20 * MBIT), (8, 24), (0.0, 25.0), (0.0, 0.01, 0.05)
    )  # rate, receivers, delay, loss
    for rate, receivers, delay, loss in levels:
        yield Job(
            "shaped", "", "file", clock, receivers,
            rate_bps=rate, loss=loss, delay_ms=delay, size_bytes=20 * MB,
        )  # fmt: skip


def _stream(clock: Clock) -> Iterator[Job]:
    for delay, loss in product((0.0, 25.0), (0.0, 0.01)):
        yield Job(
            "stream", "", "stream", clock, 8,
            rate_bps=20 * MBIT, loss=loss, delay_ms=delay, size_bytes=80_000,
            files=200, offered_bps=10 * MBIT,
        )  # fmt: skip


def _small(clock: Clock) -> Iterator[Job]:
    both: tuple[Clock, ...] = ("virtual", "native") if clock == "virtual" else ("native",)
    for which in both:
        yield Job(
            "small", "", "stream", which, 8,
            rate_bps=100 * MBIT, loss=0.01, files=10_000, offered_bps=60 * MBIT, sizes="ngrid",
        )  # fmt: skip


def _receivers(_: Clock) -> Iterator[Job]:
    for receivers in (1, 8, 64, 256):
        yield Job(
            "receivers", "", "file", "native", receivers, rate_bps=5 * MBIT, size_bytes=4 * MB
        )


def _interop(_: Clock) -> Iterator[Job]:
    yield Job("interop", "", "file", "native", 4, rate_bps=20 * MBIT, loss=0.05, size_bytes=2 * MB)


_CELLS: Final[dict[str, Callable[[Clock], Iterable[Job]]]] = {
    "blast": _blast,
    "shaped": _shaped,
    "stream": _stream,
    "small": _small,
    "receivers": _receivers,
    "interop": _interop,
    "queue": lambda _: (Job("queue", "", "queue", "native", 1),),
    "paths": lambda _: (Job("paths", "", "paths", "native", 0),),
}


def steered(cell: Job) -> Job:
    """Return the cell with packets received on all processors; virtual hosts have one."""
    network = cell.kind in ("file", "stream") and cell.clock == "native"
    return replace(cell, steered=network)


def jobs_of(
    cells: Sequence[Job], tools: Mapping[str, Sequence[str]], repeats: int
) -> Iterator[Job]:
    """Return all jobs, repeats outermost and tools innermost, so that jobs to compare run close in
    time. `tools`: names by section."""
    for repeat in range(repeats):
        for cell in cells:
            for tool in tools[cell.section]:
                yield replace(cell, tool=tool, repeat=repeat)
