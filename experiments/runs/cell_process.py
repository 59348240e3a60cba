# SPDX-License-Identifier: Apache-2.0
"""The process of a cell, by its clock: on this kernel, or in a guest whose clock is virtual. Both
run the same program, and the runner starts, polls and stops them alike."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, Protocol, cast

from common.files import Tail
from common.machine import memory_free_bytes
from common.places import ROOT
from common.shell import die_with_parent
from experiments.cells.events import Event, GuestPhase
from experiments.cells.job import REPLAYING, Job
from experiments.cells.queue_place import MEMORY_RESERVE_BYTES
from experiments.cells.run_directory import write_json, write_text
from experiments.design.expansion import (
    PACKET_MEMORY_FACTOR,
    CellSpec,
    disk_needed_bytes,
    queues_written_bytes,
    seconds_estimated,
    seconds_limit,
    virtual_seconds_estimated,
    virtual_seconds_limit,
)
from experiments.runs import parts as in_parts
from experiments.runs.records import ClockRecord
from topologies.emulate.lifecycle import new_run_id, purge
from topologies.model.network import Network
from topologies.model.parts import plan as plan_parts
from virtual.cores import available_cores
from virtual.guest import (
    EXCHANGE,
    STALL_S,
    Guest,
    GuestError,
    GuestSpec,
    Share,
    Times,
    guest_path,
    guest_python,
)
from virtual.kernel_build import Kernel
from virtual.parts.together import Together
from virtual.turns import Turns

STOP_S: Final = 20.0  # for a cell's process to take its network down
GUEST_OUT: Final = Path("/guest/cell")
GUEST_WORK: Final = Path("/guest/work")  # on disk with `keep_work`, or if memory is too small
PART_BYTES: Final = 400_000_000  # of this machine, of each further guest of a cell
PAGE_BYTES, PAGE_RECORD_BYTES = 4096, 64  # the kernel's own record of each page of memory
GUEST_MEMORY_BYTES: Final = 500_000_000  # kernel, programs, their files
# A guest with queues on disk: it is too small for queues in memory, and caches their files.
DISK_GUEST_BYTES: Final = MEMORY_RESERVE_BYTES + 2 * GUEST_MEMORY_BYTES


class CellProblem(Exception):
    """The cell's process failed; the text says why."""


class CellProcess(Protocol):
    """A started cell. `poll` returns its new events (dictionaries with `event`) and raises
    CellProblem; `code` is its exit code once it has ended and all events were given."""

    def poll(self) -> list[Event]:
        """Return the events that are new. Raises CellProblem."""

    @property
    def code(self) -> int | None:
        """Return the exit code once the cell has ended and all events were given; else None."""

    @property
    def times(self) -> Times | None:
        """Return the guest's times; None for a cell that runs natively."""

    def stop(self) -> None:
        """End the cell and remove everything it made. Idempotent."""


class Clock(Protocol):
    """How cells run. `jobs`: how many at once."""

    name: str
    jobs: int

    def turns(self) -> Turns | None:
        """Return the turns that cells wait for; None: they start at once."""

    def start(self, job: Job, out: Path) -> CellProcess:
        """Start a cell that writes to `out`. Raises CellProblem."""

    def estimate_s(self, cell: CellSpec, trace_bytes: int) -> float:
        """Return the seconds of real time that a cell takes, by formula."""

    def describe(self) -> ClockRecord:
        """Return what the manifest says about the clock."""


def parse_events(lines: Sequence[str]) -> list[Event]:
    """Return the events among lines of a cell's output."""
    events: list[Event] = []
    for line in lines:
        with contextlib.suppress(json.JSONDecodeError):
            event = json.loads(line)
            if isinstance(event, dict) and "event" in event:
                events.append(cast(Event, event))
    return events


# -- native -----------------------------------------------------------------------------------
class NativeProcess:
    """The cell as a process of this machine; `stop` ends it and removes everything it made."""

    times = None

    def __init__(self, job: Job, out: Path) -> None:
        self._run_id = job.run_id
        path = job.work / "job.json"
        write_text(path, job.to_json())
        self._errors = (out / "logs/cell.stderr").open("wb")
        argv = [sys.executable, "-m", "experiments", "cell", str(path), str(out)]
        # In its own session: Ctrl-C reaches only this process, which then ends the cell.
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            start_new_session=True,
            # If this process is killed, the cell still takes its network down.
            preexec_fn=die_with_parent(signal.SIGTERM),
        )
        self._limit_s = seconds_limit(job.cell)
        self._deadline = time.monotonic() + self._limit_s
        self._lines: SimpleQueue[str | None] = SimpleQueue()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.decode("utf-8", "replace"))
        self._lines.put(None)

    def poll(self) -> list[Event]:
        """Return the events that are new. Raises CellProblem."""
        lines = []
        with contextlib.suppress(Empty):
            while (line := self._lines.get_nowait()) is not None:
                lines.append(line)
            self._ended = True
        if not self._ended and time.monotonic() > self._deadline:
            raise CellProblem(f"no end within {self._limit_s:.0f} s")
        return parse_events(lines)

    @property
    def code(self) -> int | None:
        """Return the exit code once the cell has ended and all events were given; else None."""
        return self._process.wait(timeout=STOP_S) if self._ended else None

    def stop(self) -> None:
        """End the cell. Idempotent. A second Ctrl-C, or another signal that ends programs, does not
        interrupt this."""
        held = threading.current_thread() is threading.main_thread()
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if held else ()
        old = {n: signal.signal(n, lambda _number, _frame: None) for n in numbers}
        try:
            if self._process.poll() is None:
                self._process.terminate()
                try:
                    self._process.wait(timeout=STOP_S)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
            self._reader.join(timeout=STOP_S)
            self._errors.close()
            purge(self._run_id)
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)


class NativeClock:
    """This machine's clock and kernel: one cell at a time, as cells would disturb each other."""

    name = "native"
    jobs = 1

    def turns(self) -> None:
        """Return the turns that cells wait for: none."""

    def start(self, job: Job, out: Path) -> NativeProcess:
        """Start a cell that writes to `out`. Raises CellProblem."""
        named = dataclasses.replace(job, run_id=new_run_id(job.run_id))
        return NativeProcess(named, out)

    def estimate_s(self, cell: CellSpec, trace_bytes: int) -> float:
        """Return the seconds of real time that a cell takes, by formula."""
        del trace_bytes
        return seconds_estimated(cell)

    def describe(self) -> ClockRecord:
        """Return what the manifest says about the clock."""
        return {"clock": self.name}


# -- virtual ----------------------------------------------------------------------------------
def guest_memory_bytes(cell: CellSpec, trace_bytes: int) -> int:
    """Return the memory of a cell's guest: its queues as `queue_place` asks for them, what waits in
    the sender's traffic control, and its programs. Pages take memory of the machine only once
    they are written."""
    waiting = PACKET_MEMORY_FACTOR * cell.b_snd_bytes
    needed = disk_needed_bytes(cell, trace_bytes) + waiting
    usable = needed + MEMORY_RESERVE_BYTES + GUEST_MEMORY_BYTES
    return usable * PAGE_BYTES // (PAGE_BYTES - PAGE_RECORD_BYTES)


def host_memory_bytes(cell: CellSpec, trace_bytes: int) -> int:
    """Return the most that a cell's guest takes of this machine's memory: what is written to its
    queues, and what a guest without queues takes."""
    return queues_written_bytes(cell, trace_bytes) + 800_000_000


class VirtualProcess:
    """The cell in its own guest. Its paths are the same on every machine, since logs contain
    them."""

    def __init__(
        self,
        kernel: Kernel,
        job: Job,
        out: Path,
        *,
        on_disk: bool,
        limit_s: float | None,
        stall_s: float,
        beside: Sequence[str] = (),
        parts: int = 1,
        machines: Sequence[str] = (),
    ) -> None:
        self._out = out
        shares = [Share(out.resolve(), GUEST_OUT, writable=True)]
        if job.keep_work or on_disk:
            shares.append(Share(job.work.resolve(), GUEST_WORK, writable=True))
        cell = job.cell
        other = f"{shlex.join(beside)} >/dev/null 2>&1 & " if beside else ""
        argv = [
            *("sh", "-c", f'{other}exec "$@" 2>/guest/cell/logs/cell.stderr', "cell"),
            *(guest_python(), "-m", "experiments", "cell"),
            *(str(EXCHANGE / "job.json"), str(GUEST_OUT)),
        ]
        spec = GuestSpec(
            argv=tuple(argv),
            shares=tuple(shares),
            reads=(job.build,),
            memory_bytes=DISK_GUEST_BYTES
            if on_disk
            else guest_memory_bytes(cell, int(job.trace_info["bytes"])),
            seed=cell.seed,
            limit_s=limit_s or virtual_seconds_limit(cell, int(job.trace_info["bytes"])),
            stall_s=stall_s,
        )
        inside = dataclasses.replace(
            job,
            network=EXCHANGE / "network.json",
            trace=EXCHANGE / "trace.txt",
            build=guest_path(job.build),
            work=GUEST_WORK,
        )
        network, trace = job.network.read_text(), job.trace.read_text()
        plan = plan_parts(Network.from_json(network), parts)
        if plan.count > 1:
            network = plan.network.to_json()
            inside = dataclasses.replace(inside, parts=EXCHANGE / in_parts.FILE)

        def prepare(exchange: Path) -> None:
            write_text(exchange / "job.json", inside.to_json())
            write_text(exchange / "network.json", network)
            write_text(exchange / "trace.txt", trace)

        self._together: Together | None = None
        self._others = plan.others
        try:
            if plan.count > 1:
                known = in_parts.plan_of(plan, inside.build)
                self._together = in_parts.start(kernel, spec, known, prepare, machines)
                self._guest = self._together.guests[0]
            else:
                self._guest = Guest(kernel, spec, prepare=prepare)
        except GuestError as error:
            raise CellProblem(str(error)) from None
        self._tail = Tail(self._guest.exchange / "stdout")
        self._code: int | None = None
        self._phases: list[GuestPhase] = []
        self._described = False

    @property
    def times(self) -> Times:
        """Return the guest's times."""
        return self._guest.times

    def poll(self) -> list[Event]:
        """Return the events that are new. Raises CellProblem."""
        try:
            if self._together is not None:
                code = in_parts.poll(self._together)
            else:
                code = self._guest.poll()
        except GuestError as error:
            raise CellProblem(f"{error}{self._complaint()}") from None
        events = parse_events([line.decode("utf-8", "replace") for line in self._tail.lines()])
        times = self.times
        for event in events:
            if event["event"] == "phase":
                self._phases.append(
                    {
                        "text": event["text"],
                        "real_s": round(times.real_s, 3),
                        "virtual_s": round(times.virtual_s, 6),
                    }
                )
        if code is not None and self._code is None:
            self._code = code
            self._describe(times)
        return events

    def _complaint(self) -> str:
        text = (self._guest.exchange / "stderr").read_text(errors="replace").strip()
        return "\n" + "\n".join(text.splitlines()[-5:]) if text else ""

    def _describe(self, times: Times) -> None:
        """Write virtual.json: what the launcher knows and the cell does not."""
        kernel, spec = self._guest.kernel, self._guest.spec
        started = self._phases[0]["real_s"] if self._phases else None
        replay = [p["real_s"] for p in self._phases if p["text"] == REPLAYING]
        write_json(
            self._out / "virtual.json",
            {
                "kernel": kernel.version,
                "kernel_digest": kernel.digest,
                "mode": "seccomp" if kernel.seccomp else "ptrace",
                "seed": spec.seed,
                "real_s": round(times.real_s, 3),
                "virtual_s": round(times.virtual_s, 6),
                "boot_real_s": started,
                "ready_real_s": replay[0] if replay else None,
                "phases": self._phases,
                **({"parts": self._parts()} if self._together is not None else {}),
            },
        )

    def _parts(self) -> dict[str, object]:
        """Return who ran where, and what the calendar measured."""
        assert self._together is not None
        hosts = [[host.name for host in part] for part in self._others]
        with contextlib.suppress(GuestError):
            measured = dataclasses.asdict(self._together.report())
            return {"hosts": hosts, **{n: v for n, v in measured.items() if n != "ended"}}
        return {"hosts": hosts}

    @property
    def code(self) -> int | None:
        """Return the exit code once the cell has ended and all events were given; else None."""
        return self._code

    def stop(self) -> None:
        """End the cell and remove all it made. Idempotent."""
        (self._together or self._guest).stop()


def sample_of(clock: Clock) -> str:
    """Return what makes a clock's figures another sample, for digests of cells."""
    if isinstance(clock, VirtualClock) and clock.parts > 1:
        return f"{clock.name}, {clock.parts} parts"
    return clock.name


class VirtualClock:
    """Guests in virtual time: one per core, of this user, without root. `beside`: a program that
    runs in each guest beside the cell, for tests that disturb it. `machines`: where the parts of a
    cell after the first run, if not here."""

    name = "virtual"

    def __init__(
        self,
        kernel: Kernel,
        *,
        jobs: int | None = None,
        limit_s: float | None = None,
        stall_s: float = STALL_S,
        beside: Sequence[str] = (),
        parts: int = 1,
        machines: Sequence[str] = (),
    ) -> None:
        self.kernel, self.parts, self._machines = kernel, parts, tuple(machines)
        self._beside = tuple(beside)
        self._limit_s, self._stall_s = limit_s, stall_s
        at_once = 1 if machines else max(1, len(available_cores()) // parts)
        self.jobs = jobs if jobs is not None else at_once
        self._share_bytes: int | None = None

    def turns(self) -> Turns:
        """Return the turns that cells wait for, with the guests of other users."""
        return Turns()

    def fit(self, cells: Sequence[tuple[CellSpec, int]], free: int | None = None) -> None:
        """Lower `jobs` to the number of guests that fit into memory at once, with the queues of the
        largest cells on disk. `free`: bytes, by default what is free; `cells`: with the bytes of
        their traces. Raises CellProblem if not even one fits."""
        if free is None:
            free = memory_free_bytes()
        most = max(host_memory_bytes(cell, size) for cell, size in cells)
        most = min(most, DISK_GUEST_BYTES) if self.parts == 1 else most
        most += (self.parts - 1) * PART_BYTES
        if free < most:
            raise CellProblem(
                f"found {free / 1e9:.1f} GB of free memory; valid: {most / 1e9:.1f} GB for the "
                "guest of the largest cell"
            )
        self.jobs = max(1, min(self.jobs, len(cells), free // most))
        self._share_bytes = free // self.jobs

    def on_disk(self, cell: CellSpec, trace_bytes: int) -> bool:
        """Return whether its queues do not fit into this guest's share of the memory."""
        needed = host_memory_bytes(cell, trace_bytes)
        return self._share_bytes is not None and needed > self._share_bytes

    def start(self, job: Job, out: Path) -> VirtualProcess:
        """Start a cell that writes to `out`. Raises CellProblem."""
        return VirtualProcess(
            self.kernel,
            job,
            out,
            on_disk=self.on_disk(job.cell, int(job.trace_info["bytes"])),
            limit_s=self._limit_s,
            stall_s=self._stall_s,
            beside=self._beside,
            parts=self.parts,
            machines=self._machines,
        )

    def estimate_s(self, cell: CellSpec, trace_bytes: int) -> float:
        """Return the seconds of real time that a cell takes, by formula."""
        return virtual_seconds_estimated(cell, trace_bytes)

    def describe(self) -> ClockRecord:
        """Return what the manifest says about the clock."""
        return {
            "clock": self.name,
            **({"parts": self.parts} if self.parts > 1 else {}),
            **({"machines": list(self._machines)} if self._machines else {}),
            "virtual_kernel": {
                "version": self.kernel.version,
                "digest": self.kernel.digest,
                "mode": "seccomp" if self.kernel.seccomp else "ptrace",
                "source_sha256": self.kernel.source_sha256,
                "sha256": self.kernel.sha256,
            },
        }
