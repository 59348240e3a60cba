# SPDX-License-Identifier: Apache-2.0
"""Capture links while a cell runs. The cell's directory gets `captures/<link>.pcapng`, and
`captures.json`, which says what each capture misses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from common.shell import NetworkError
from experiments.cells.run_directory import write_json
from topologies.model.network import Network
from topologies.watch.capture import (
    DEFAULT_LIMIT_BYTES,
    LEAST_LIMIT_BYTES,
    Capture,
    await_listening,
    links_of,
    tap_of,
)

if TYPE_CHECKING:  # it imports Mininet, which a plan does not need
    from topologies.emulate.emulation import Emulation


class CapturesJson(TypedDict):
    """`Captures` as JSON."""

    links: list[str]
    limit_bytes: int
    snap_bytes: int
    samples: list[str]


@dataclass(frozen=True)
class Captures:
    """`snap_bytes`: kept of each frame (0: all). `samples`: what sysstat records besides the
    publisher's sar (sysstat.py). They are no part of a cell's specification."""

    links: tuple[str, ...] = ()
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    snap_bytes: int = 0
    samples: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return what `from_dict` reads."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, raw: CapturesJson) -> Captures:
        """Return the captures that `to_dict` described."""
        return cls(
            tuple(raw["links"]),
            int(raw["limit_bytes"]),
            int(raw["snap_bytes"]),
            tuple(raw["samples"]),
        )


NO_CAPTURES = Captures()


def problems(captures: Captures, networks: Iterable[Network]) -> list[str]:
    """Return what is wrong with the request. A link must be in the network of at least one cell,
    since the number of receivers may be a factor."""
    if not captures.links:
        return []
    found = []
    if captures.limit_bytes < LEAST_LIMIT_BYTES:
        found.append(
            f"--capture-bytes: found {captures.limit_bytes}; valid: {LEAST_LIMIT_BYTES} or more"
        )
    largest = max(networks, key=lambda n: len(n.links))
    names = {name for link in largest.links for name in (link.name, _turned(link.name))}
    for name in captures.links:
        if name not in names:
            found.append(
                f"--capture: found '{name}'; valid (or with the ends the other way round, to "
                f"capture at the other end): {', '.join(links_of(largest))}"
            )
    return found


def _turned(name: str) -> str:
    a, _, b = name.partition(":")
    return f"{b}:{a}"


class Capturing:
    """The captures of one cell, from `start` to `stop`."""

    def __init__(self, captures: Captures, emulation: Emulation, out: Path) -> None:
        self._asked, self._emulation, self._out = captures, emulation, out
        self._running: list[Capture] = []
        self._absent: list[dict[str, str]] = []

    def start(self) -> None:
        """Start the captures, and return when all of them run. Raises NetworkError."""
        for name in dict.fromkeys(self._asked.links):
            try:
                tap_of(self._emulation.network, name)
            except NetworkError:
                problem = "this cell's network has no such link"
                self._absent.append({"link": name, "problem": problem})
                continue
            self._running.append(
                self._emulation.capture(
                    name,
                    self._out / "captures",
                    limit_bytes=self._asked.limit_bytes,
                    snap_bytes=self._asked.snap_bytes,
                )
            )
        await_listening(self._running)

    def stop(self) -> None:
        """End the captures and write captures.json; do nothing if nothing was requested.
        Idempotent."""
        running, self._running = self._running, []
        if not running and not self._absent:
            return
        for capture in running:
            capture.tell_to_stop()
        described = [capture.finish().to_dict() for capture in running]
        write_json(self._out / "captures.json", [*described, *self._absent])
        self._absent = []
