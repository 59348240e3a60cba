# SPDX-License-Identifier: Apache-2.0
"""Watch every interface's settings and how packets fare, from before the first product to after the
last: inventory.json and flights.json of the cell's directory."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from common import looking
from common.shell import NetworkError
from controller.paths.entries import Kind
from experiments.cells import path_entries
from experiments.cells.journals import Journals
from experiments.cells.run_directory import write_json
from experiments.cells.samplers import Repeater
from experiments.verdict.one_way import Way, stations, ways
from topologies.emulate import census, inventory_reading
from topologies.emulate.emulation import Emulation
from topologies.model.shared_nic import shares_nics
from topologies.watch.flights import BLOCK_S, LOOK_S, RUN, Flight, period_of, samples_most
from topologies.watch.inventory import Inventory
from topologies.watch.taps import Taps, frames_for

FEWEST_LOOKS, MOST_LOOKS = 2, 12  # at random moments
S_PER_LOOK: Final = 30.0
OPTIONS_S: Final = 1.0  # between two looks at sockets' options
PAUSE_S: Final = 0.02  # between the nodes of a look while products are in transit
PATIENCE_MS: Final = 1000.0  # beyond a packet's longest time in transit


def moments(seed: int | None, duration_s: float) -> list[float]:
    """Return random moments of a replay: 2 and one more per 30 s, at most 12. `seed`: of a cell in
    virtual time, whose events must repeat; else nobody can know them beforehand."""
    count = min(MOST_LOOKS, FEWEST_LOOKS + int(duration_s / S_PER_LOOK))
    dice = random.SystemRandom() if seed is None else random.Random(f"downpour looks {seed}")
    return sorted(dice.uniform(0.0, duration_s) for _ in range(count))


def _tapped(emulation: Emulation, host: str) -> str:
    """Return the interface behind which nothing delays or changes a frame. It is the NIC itself if
    VLANs share one HTB, or if hosts do not tag: a macvlan's frames get their checksum behind it."""
    elsewhere = host in emulation.elsewhere  # frames pass its interfaces here below the VLANs
    if shares_nics(emulation.network) or emulation.facts.edge_tags or elsewhere:
        return emulation.network.host(host).nic1.interface
    return emulation.nic1_of(host)


@dataclass
class Asked:
    """The experiment's own settings. `things`: what the inventory must find besides the network's
    own; `free`: places that others may change; `paths`: flows that the path service may."""

    things: dict[str, str] = field(default_factory=dict)
    free: set[str] = field(default_factory=set)
    paths: Collection[Kind] = ()
    rate_bps: float = 100e6  # the maximum that leaves the sender's NIC1
    size_bytes: float = math.inf  # of all that leaves it, if known
    groups: dict[str, Collection[str]] = field(default_factory=dict)  # address -> all its receivers


PART: Final = "flights.part"  # of flights.json, in a run of more than some minutes


class Surveillance:
    """Watches from its creation to `close`."""

    def __init__(
        self, emulation: Emulation, out: Path, asked: Asked, at_s: Sequence[float]
    ) -> None:
        """Start to watch. `at_s`: when to look, counted from now. Raises NetworkError."""
        self._emulation, self._out, self._asked = emulation, out, asked
        self._looks: list[dict[str, object]] = []
        self._begin = time.time()
        self._throttled = census.throttled()
        self._wrong_options: list[str] = []
        self._planned = emulation.planned_inventory(asked.things)
        self._before = self._look("start", None)
        self._journals = Journals(emulation)
        period = period_of(asked.rate_bps, asked.size_bytes)
        self._ways = ways(emulation.network, asked.rate_bps)
        tapped = partial(_tapped, emulation)
        found = stations(emulation.network, tapped, emulation.path_address_of)
        frames = frames_for(samples_most(asked.rate_bps, period))
        self._taps = Taps(found, emulation.pids, asked.groups, period, self._make_part, frames)
        self._reader = Repeater("taps", looking.every_s(LOOK_S), self._read)
        self._reader.start()
        self._options = Repeater(
            "socket options", looking.every_s(OPTIONS_S), self._look_at_options
        )
        self._options.start()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_at, args=(at_s,), daemon=True)
        self._thread.start()

    def _make_part(self) -> BinaryIO:
        return (self._out / PART).open("w+b")

    def _read(self) -> None:
        self._taps.look()
        self._journals.look()

    def _look_at(self, at_s: Sequence[float]) -> None:
        begin = time.monotonic()
        for moment in at_s:
            if self._stop.wait(max(0.0, begin + moment - time.monotonic())):
                return
            self._look("meanwhile", self._before)

    def _look(self, when: str, before: Inventory | None) -> Inventory:
        """Take the inventory; note differences from the plan and from `before`."""
        began = time.thread_time()
        at_s = time.time() - self._begin
        try:
            now = self._emulation.inventory(PAUSE_S if when == "meanwhile" else 0.0)
        except NetworkError as error:
            self._looks.append({"when": when, "at_s": at_s, "failed": str(error)})
            return before or {}
        free, paths = self._asked.free, self._asked.paths
        switches = self._emulation.switches_with_paths
        foreign = path_entries.foreign(now, switches)
        kept = path_entries.lasting(now, switches, paths)
        earlier = path_entries.lasting(before or {}, switches, paths)
        look: dict[str, object] = {
            "when": when,
            "at_s": round(at_s, 3),
            "things": len(now),
            "unplanned": [*inventory_reading.unplanned(self._planned, kept, free), *foreign],
            "changed": inventory_reading.changes(earlier, kept, free) if before else [],
            "cpu_s": round(time.thread_time() - began, 4),
        }
        self._looks.append(look)
        return now

    def _look_at_options(self) -> None:
        """Read the options of sockets again; note only what is wrong."""
        at_s = time.time() - self._begin
        now, free = self._emulation.socket_options(), self._asked.free
        wrong = inventory_reading.unplanned({t: self._planned[t] for t in now}, now, free)
        if wrong and wrong != self._wrong_options:
            before = {thing: text for thing, text in self._before.items() if thing in now}
            look = {"when": "between looks", "at_s": round(at_s, 3), "things": len(now)}
            changed = inventory_reading.changes(before, now, free)
            self._looks.append({**look, "unplanned": wrong, "changed": changed})
        self._wrong_options = wrong

    def close(self) -> None:
        """Look again and record what was seen."""
        self._stop.set()
        self._options.stop()
        self._thread.join(timeout=60)
        self._look("end", self._before)
        self._reader.stop()
        patience = {key: way.most_ms + PATIENCE_MS for key, way in self._ways.items()}
        flights, unseen = self._taps.close(patience)
        (self._out / PART).unlink(missing_ok=True)
        changes = self._journals.close()
        at_s = round(time.time() - self._begin, 3)
        for text in self._journals.failed:
            self._looks.append({"when": "journal", "at_s": at_s, "failed": text})
        write_json(
            self._out / "inventory.json",
            {
                "looks": self._looks,
                "changes": [
                    {**asdict(c), "at_s": round(c.at_s - self._begin, 3)}
                    for c in changes
                    if not inventory_reading.is_free(f"{c.place} {c.what}", self._asked.free)
                ],
                "changes_missed": self._journals.missed,
                "throttled": census.throttled() - self._throttled,
            },
        )
        self._write_flights(flights, unseen)

    def _write_flights(self, flights: Sequence[Flight], unseen: int) -> None:
        write_json(
            self._out / "flights.json",
            {
                "sample": [RUN, self._taps.period],
                "block_s": BLOCK_S,
                "begin_s": self._taps.begin_ns / 1e9,
                "unseen": unseen,
                "failed": self._reader.failed,
                "flights": [_described(f, self._ways) for f in flights],
            },
        )


def _described(flight: Flight, known: Mapping[tuple[str, str, str], Way]) -> dict[str, object]:
    counts = {k: v for k, v in vars(flight).items() if k not in ("delays_ms", "put_away")}
    way = known.get((flight.source, flight.target, flight.network))
    return {
        **counts,
        "asked": None if way is None else asdict(way),
        "blocks": [list(b) for b in flight.blocks(BLOCK_S)],
    }


def watch(
    stack: ExitStack, emulation: Emulation, out: Path, asked: Asked, at_s: Sequence[float]
) -> None:
    """Watch until `stack` ends."""
    stack.callback(Surveillance(emulation, out, asked, at_s).close)
