# SPDX-License-Identifier: Apache-2.0
"""What is measured of the emulation itself, before, during and after a cell's replay: evidence for
the verdict, in files of the cell's directory (docs/contracts.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from experiments.rundir import write_json
from experiments.shaping import Setting
from topologies.lab import Lab


class Fidelity:
    """Evidence about the network `lab`, left in the directory `out`."""

    def __init__(self, lab: Lab, out: Path) -> None:
        self._lab, self._out = lab, out
        self._readers: list[Callable[[], Iterable[Setting]]] = []
        self._probes: dict[str, list[dict[str, Any]]] = {}

    def read(self, reader: Callable[[], Iterable[Setting]]) -> list[Setting]:
        """What `reader` finds of the experiment's settings; it is asked once more by `after`."""
        self._readers.append(reader)
        return list(reader())

    def probe_links(self, when: str) -> None:
        """link-probes.json: the delays of all impaired links `when` ("before" or "after" the
        replay), while nothing else is sent."""
        self._probes[when] = [p.to_dict() for p in self._lab.probe_links()]
        write_json(self._out / "link-probes.json", self._probes)

    def read_again(self) -> None:
        """links-end.json, shaping-end.json: the settings after the replay."""
        links = [dataclasses.asdict(r) for r in self._lab.read_links()]
        write_json(self._out / "links-end.json", links)
        settings = [s.to_dict() for reader in self._readers for s in reader()]
        write_json(self._out / "shaping-end.json", {"settings": settings})
