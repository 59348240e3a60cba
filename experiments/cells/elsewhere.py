# SPDX-License-Identifier: Apache-2.0
"""A cell's hosts on other machines (`remote --inventory`) or in other parts (`--parts`): their
files, clocks, tunnels and cut links.

What the cell starts at a host runs where the host is (`Emulation.popen`). This module keeps the
files that it reads and writes where the program is, and records in hosts.json how far each
machine's clock is off, and how many frames each tunnel took and gave.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Final

from common.shell import NetworkError
from common.virtual_time import LINKS
from experiments.cells.job import Job
from experiments.cells.run_directory import write_json
from topologies.emulate.elsewhere import Elsewhere
from topologies.emulate.emulation import Emulation
from topologies.remote import inventory
from topologies.remote.connection import Connection
from topologies.remote.host import Host
from topologies.remote.part_host import OtherPart, PartHost
from topologies.remote.part_plan import PartPlan
from topologies.watch import counters

FILE: Final = "hosts.json"
PARTS: Final = "parts.json"
ARRIVED_S: Final = 0.5  # longer than any cut link's delay


@contextmanager
def connected(job: Job, out: Path) -> Iterator[Mapping[str, Elsewhere]]:
    """Connect to where the job's other hosts are; end everything there at the end. This process
    must be in the namespace that reaches them. Raises NetworkError."""
    to = _parts if job.parts is not None else _machines
    with to(job, out) as hosts:
        yield hosts


@contextmanager
def _parts(job: Job, out: Path) -> Iterator[Mapping[str, Elsewhere]]:
    assert job.parts is not None
    plan = PartPlan.from_json(job.parts.read_text())
    links = Path(os.environ[LINKS])
    hosts: dict[str, PartHost] = {}
    with ExitStack() as stack:
        for number in range(1, len(plan.others) + 1):
            part = OtherPart(plan, number, links)
            stack.callback(part.close)
            for one in part.hosts:
                host = hosts[one.name] = PartHost(one.name, part)
                stack.callback(host.close)
                host.share(job.work, out, out / "logs", job.trace.parent)
        yield hosts


@contextmanager
def _machines(job: Job, out: Path) -> Iterator[Mapping[str, Elsewhere]]:
    listed = inventory.from_json(job.hosts.read_text()) if job.hosts else []
    hosts: dict[str, Host] = {}
    with ExitStack() as stack:
        for one in listed:
            connection = Connection(one, out / f"logs/{one.name}.ssh.stderr")
            stack.callback(connection.close)
            host = hosts[one.name] = Host(one, connection)
            stack.callback(host.close)
            host.built_in(job.build)
            host.share(job.work, out, out / "logs", job.trace.parent)
        yield hosts


class HostFiles:
    """The files of a cell's hosts, here or on the hosts' machines."""

    def __init__(self, elsewhere: Mapping[str, Elsewhere]) -> None:
        self._elsewhere = elsewhere

    def put(self, host: str, path: Path, *, text: bool = True) -> None:
        """Give the host a file that was written here. In a text, names of files become those
        there. Raises NetworkError."""
        if host in self._elsewhere:
            self._elsewhere[host].put(path, text=text)

    def mirror(self, host: str, path: Path) -> None:
        """Keep here what the host's programs append to a file. Raises NetworkError."""
        if host in self._elsewhere:
            self._elsewhere[host].mirror(path)

    def run(self, host: str, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a program that needs the host's files, not its network. Raises NetworkError."""
        if host in self._elsewhere:
            return self._elsewhere[host].run(argv)
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    def popen(
        self,
        host: str,
        argv: Sequence[str],
        stdout: IO[bytes],
        stderr: IO[bytes],
        env: Mapping[str, str],
    ) -> subprocess.Popen[bytes]:
        """Start a program that needs the host's files, not its network. Raises NetworkError."""
        if host in self._elsewhere:
            return self._elsewhere[host].popen(argv, stdout=stdout, stderr=stderr, env=env)
        return subprocess.Popen(argv, stdout=stdout, stderr=stderr, env={**os.environ, **env})


def watch(stack: ExitStack, emulation: Emulation, out: Path) -> None:
    """Look at the clocks and tunnels of hosts elsewhere now and when `stack` ends; write
    hosts.json."""
    hosts = {n: h for n, h in emulation.elsewhere.items() if isinstance(h, Host)}
    if not hosts:
        return
    before = {name: _look(host, emulation.pids[name]) for name, host in hosts.items()}

    def end() -> None:
        found = {}
        for name, host in hosts.items():
            found[name] = {
                **host.facts,
                "address": host.host.address,
                "chrony": host.chrony(),
                "before": before[name],
                "after": None,
            }
            with contextlib.suppress(NetworkError):
                found[name]["after"] = _look(host, emulation.pids[name])
        write_json(out / FILE, found)

    stack.callback(end)


def watch_parts(stack: ExitStack, emulation: Emulation, out: Path) -> None:
    """Count the frames of the cut links now and when `stack` ends; write parts.json."""
    hosts = {n: h for n, h in emulation.elsewhere.items() if isinstance(h, PartHost)}
    if not hosts:
        return

    first = {name: frames_before(host, emulation.pids[name]) for name, host in hosts.items()}

    def end() -> None:
        last = None
        with contextlib.suppress(NetworkError):
            sent = {name: _frames(host, emulation.pids[name]) for name, host in hosts.items()}
            time.sleep(ARRIVED_S)
            last = {n: frames_after(sent[n], h, emulation.pids[n]) for n, h in hosts.items()}
        found = {
            name: {
                "part": host.part.part,
                "before": first[name],
                "after": last[name] if last is not None else None,
            }
            for name, host in hosts.items()
        }
        write_json(out / PARTS, found)

    stack.callback(end)


Frames = dict[str, dict[str, int]]  # by NIC


def frames_before(host: PartHost, pid: int) -> Frames:
    """Return the frames before the replay: each receiving end is read before the sending one, as
    what is sent afterwards must arrive afterwards."""
    earlier = _here(pid)
    found = _frames(host, pid)
    for name, frames in found.items():
        frames["received_here"] = earlier[name]["tx_packets"]
    return found


def frames_after(sent: Frames, host: PartHost, pid: int) -> Frames:
    """Return the frames after the replay. `sent`: what was read before all had arrived."""
    return {
        name: {**arrived, **{end: sent[name][end] for end in ("sent_there", "sent_here")}}
        for name, arrived in _frames(host, pid).items()
    }


def _frames(host: PartHost, pid: int) -> Frames:
    """Return the frames of each NIC at both ends of its cut link, the end there first. The end here
    is the NIC of the host's place: what arrived from the host leaves by it."""
    there = host.call("carried")
    here = _here(pid)
    names = [nic.interface for nic in host.nics]
    return {
        name: _both_ends(there[name], here[name]["rx_packets"], here[name]["tx_packets"])
        for name in names
    }


def _here(pid: int) -> dict[str, dict[str, int]]:
    return counters.interfaces(Path(f"/proc/{pid}/net/dev").read_text())


def _look(host: Host, pid: int) -> dict[str, object]:
    """Return the offset of a host's clock, and the frames of each tunnel at both ends."""
    clock = asdict(host.clock())
    there = host.call("carried")
    here = _here(pid)
    peers = {tunnel.nic: here[tunnel.link] for tunnel in host.tunnels}
    frames = {
        nic: _both_ends(there[nic], peer["tx_packets"], peer["rx_packets"])
        for nic, peer in peers.items()
    }
    return {**clock, "tunnels": frames}


def _both_ends(there: Mapping[str, int], sent_here: int, received_here: int) -> dict[str, int]:
    """Return the frames of one NIC as hosts.json and parts.json have them. `there`: its counters
    on the host."""
    return {
        "sent_there": there["tx_packets"],
        "received_here": received_here,
        "sent_here": sent_here,
        "received_there": there["rx_packets"],
    }
