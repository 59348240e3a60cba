# SPDX-License-Identifier: Apache-2.0
"""Measure the emulation itself before, during and after a cell's replay: evidence for the verdict,
in files of the cell's directory (docs/reference/contracts.md)."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from common import looking
from common.places import PROGRAMS, program
from experiments.cells import samplers, surveillance
from experiments.cells.elsewhere import watch as watch_elsewhere
from experiments.cells.elsewhere import watch_parts
from experiments.cells.run_directory import write_json
from experiments.cells.surveillance import Asked
from experiments.design.shaping import Setting
from experiments.verdict import cpu_load, queue_watch
from experiments.verdict.queue_watch import Queue, QueueWatch, SocketWatch
from topologies.emulate import marks
from topologies.emulate.emulation import Emulation
from topologies.model import wire_plan
from topologies.model.wire_plan import WIRE

HOSTLAG: Final = PROGRAMS["hostlag"]  # below the build directory
# Time between a host's samples. Ten a second cost 24 hosts 1 % of a core. With fewer, one late
# timer would be the worst hundredth of a cell of 10 s.
LAG_INTERVAL_US: Final = 100_000
HOSTLAG_END_S: Final = 15.0


def host_queue(name: str, raw: dict[str, Any]) -> Queue:
    """Return a queue of a host elsewhere, whose agent does not know the host's name."""
    queue = Queue(**raw)
    queue.place = f"{name}/{queue.place.partition('/')[2]}"
    return queue


class Fidelity:
    """Evidence about a network, left in the directory `out`."""

    def __init__(self, emulation: Emulation, out: Path, build: Path) -> None:
        self._emulation, self._out, self._build = emulation, out, build
        self._readers: list[Callable[[], Iterable[Setting]]] = []
        self._probes: dict[str, list[dict[str, object]]] = {}
        self.asked = Asked()  # the experiment's own settings, for the inventory and flights

    def read(self, reader: Callable[[], Iterable[Setting]]) -> list[Setting]:
        """Return what `reader` finds of the experiment's settings; call it again after the
        replay."""
        self._readers.append(reader)
        return list(reader())

    def probe_links(self, when: str) -> None:
        """Write link-probes.json: the delays of all impaired links `when` ("before" or "after" the
        replay), while nothing else is sent."""
        self._probes[when] = [p.to_dict() for p in self._emulation.probe_links()]
        write_json(self._out / "link-probes.json", self._probes)

    def read_again(self) -> None:
        """Write links-end.json and shaping-end.json: the settings after the replay."""
        links = [dataclasses.asdict(r) for r in self._emulation.read_links()]
        write_json(self._out / "links-end.json", links)
        settings = [s.to_dict() for reader in self._readers for s in reader()]
        write_json(self._out / "shaping-end.json", {"settings": settings})

    # -- during the replay --------------------------------------------------------------------
    def watch(
        self,
        stack: ExitStack,
        *,
        long_run: bool,
        at_s: Sequence[float] = (),
        ended: Callable[[], Sequence[cpu_load.Ended]] = tuple,
    ) -> None:
        """Watch until `stack` ends: queues and sockets (queues.json), the scheduling lag in each
        host and its clocks (host-lag.json), processors and processes (load.json; not in virtual
        time, where computing takes no time), settings (inventory.json; also read `at_s` from now)
        and packets in transit (flights.json). `ended`: returns the cell's programs that have
        ended."""
        lags = self._start_lags()
        stack.callback(self._end_lags, lags)
        if self._emulation.facts.clock == "native":
            places = cpu_load.place_names(self._emulation.pids)
            start = cpu_load.read(self._processes(), places)
            earlier = {program.pid for program in ended()}
            stack.callback(
                lambda: self._write_load(
                    start, places, [p for p in ended() if p.pid not in earlier]
                )
            )
        self._watch_queues(stack, long_run=long_run)
        watch_elsewhere(stack, self._emulation, self._out)
        watch_parts(stack, self._emulation, self._out)
        surveillance.watch(stack, self._emulation, self._out, self.asked, at_s)
        # Make hostlag forget the lags of this start: among few timers, one would be the worst 1 %.
        for process in lags.values():
            process.send_signal(signal.SIGUSR1)

    def _processes(self) -> set[int]:
        return marks.processes_of(self._emulation.run_id)

    def _write_load(
        self,
        start: cpu_load.LoadReading,
        places: dict[int, str],
        ended: Sequence[cpu_load.Ended],
    ) -> None:
        end = cpu_load.read(self._processes(), places)
        found = cpu_load.between(start, end, cpu_load.clocksource(), ended)
        write_json(self._out / "load.json", found.to_dict())

    def _start_lags(self) -> dict[str, subprocess.Popen[bytes]]:
        interval_s = looking.every_s(LAG_INTERVAL_US / 1e6)
        argv = [str(program("hostlag", self._build)), f"{interval_s * 1e6:.0f}"]
        hosts = [host.name for host in self._emulation.network.hosts]
        return {h: self._emulation.popen(h, argv, stdout=subprocess.PIPE) for h in hosts}

    def _end_lags(self, running: dict[str, subprocess.Popen[bytes]]) -> None:
        found = {}
        for process in running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for host, process in running.items():
            try:
                text = process.communicate(timeout=HOSTLAG_END_S)[0]
                found[host] = json.loads(text)
            except (subprocess.TimeoutExpired, json.JSONDecodeError):
                process.kill()
                process.wait()
        write_json(self._out / "host-lag.json", found)

    def _watch_queues(self, stack: ExitStack, *, long_run: bool) -> None:
        emulation = self._emulation
        elsewhere = emulation.elsewhere
        nodes = [emulation.network.publisher.name, *([WIRE] if WIRE in emulation.pids else [])]
        hosts = [h.name for h in emulation.network.subscribers]
        queues = QueueWatch(emulation.pids, [n for n in nodes if n not in elsewhere])
        sockets = SocketWatch(emulation.pids, [h for h in hosts if h not in elsewhere])

        def look() -> None:
            queues.look()
            sockets.look()

        interval_s = looking.every_s(
            queue_watch.LONG_RUN_INTERVAL_S if long_run else queue_watch.INTERVAL_S
        )
        repeater = samplers.Repeater("queues", interval_s, look)
        repeater.start()
        for name, host in elsewhere.items():
            host.call("watch", interval_s=interval_s, sends=name in nodes)
        wire = wire_plan.plan(emulation.network, emulation.facts.delay_mechanism)
        links = {f"{WIRE}/{d.egress}": f"{d.link}/{d.direction}" for d in wire.directions}

        def end() -> None:
            repeater.stop()
            found, peak_bytes = queues.close(), sockets.close()
            for queue in found:
                queue.link = links.get(queue.place.rpartition("/")[0])
            for name, host in elsewhere.items():
                seen = host.call("watched")
                repeater.failed += seen["failed"]
                if name in nodes:
                    found += [host_queue(name, queue) for queue in seen["queues"]]
                else:
                    peak_bytes[name] = seen["peak_bytes"]
            write_json(
                self._out / "queues.json",
                {
                    "interval_s": interval_s,
                    "failed": repeater.failed,
                    "queues": [queue.to_dict() for queue in found],
                    "sockets": peak_bytes,
                },
            )

        stack.callback(end)
