# SPDX-License-Identifier: Apache-2.0
"""The calendar's process, with fake kernels at its sockets."""

from __future__ import annotations

import dataclasses
import json
import mmap
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from common.places import ROOT
from virtual.parts.desk import ACK, RUN, START, WAIT, Order, Place
from virtual.parts.together import own_panics

MESSAGE = struct.Struct("=IIQ")
MS = 1_000_000
WINDOW = 10 * MS
REQUEST = 2


class PlayedKernel:
    """Behaves like arch/um/kernel/time.c: starts, maps the page, wishes and waits."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(20)
        self.socket.connect(str(path))
        self.send(START, 1)

    def start(self) -> None:
        """Take the answer, which comes when all have connected."""
        data, fds, _, _ = socket.recv_fds(self.socket, MESSAGE.size, 2)
        operation, sequence, number = MESSAGE.unpack(data)
        assert (operation, sequence, len(fds)) == (ACK, 1, 2)
        header = mmap.mmap(fds[0], 4096)
        self.version, length = struct.unpack_from("=II", header, 0)
        self.page = mmap.mmap(fds[0], length)
        for fd in fds:
            os.close(fd)
        runner, clients = struct.unpack_from("=HH", self.page, 24)
        assert runner == number < clients
        assert length >= 4096 + 128 * clients
        self.own = 4096 + 128 * number
        struct.pack_into("=I", self.page, self.own, 1)  # it shares its time

    def send(self, operation: int, sequence: int = 7) -> None:
        self.socket.sendall(MESSAGE.pack(operation, sequence, 0))

    def wait(self, wish_ns: int | None) -> None:
        flags = 0 if wish_ns is None else 1
        struct.pack_into("=IQ", self.page, self.own + 4, flags, wish_ns or 0)
        self.send(WAIT)

    def runs(self) -> tuple[int, int]:
        """Return when it runs, and until when it may run without asking."""
        operation, _, time_ns = MESSAGE.unpack(self.socket.recv(MESSAGE.size, socket.MSG_WAITALL))
        assert operation == RUN
        free_until, now = struct.unpack_from("=QQ", self.page, 8)
        assert now == time_ns
        return time_ns, free_until

    def is_held(self) -> bool:
        self.socket.settimeout(0.2)
        try:
            self.socket.recv(1)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(20)
        return False


@contextmanager
def desk(
    directory: Path, parts: int, *, together: bool = True
) -> Iterator[tuple[subprocess.Popen[str], list[PlayedKernel]]]:
    with ExitStack() as stack:
        listeners = []
        for part in range(parts):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(directory / f"calendar-{part}"))
            listener.listen(1)
            listeners.append(listener)
        fds = [listener.fileno() for listener in listeners]
        places = [Place(part, fd, str(directory / f"exit-{part}")) for part, fd in enumerate(fds)]
        order = json.dumps(dataclasses.asdict(Order(WINDOW, together, places)))
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-S", "-m", "virtual.parts.desk", order],
                cwd=ROOT,
                pass_fds=fds,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(process.kill)
        kernels = [PlayedKernel(directory / f"calendar-{part}") for part in range(parts)]
        for kernel in kernels:
            kernel.start()
        yield process, kernels


def test_two_kernels_share_windows(tmp_path: Path) -> None:
    with desk(tmp_path, 2) as (process, (a, b)):
        assert a.version == 2
        a.wait(3 * MS)
        assert a.is_held()  # b is still starting
        b.wait(4 * MS)
        assert a.runs() == (3 * MS, WINDOW)
        assert b.runs() == (4 * MS, WINDOW)  # at the same time
        a.wait(12 * MS)
        assert a.is_held()
        b.wait(None)
        assert a.runs() == (12 * MS, 2 * WINDOW)
        (tmp_path / "exit-1").write_text("0\n")
        b.socket.close()
        a.wait(100 * MS)
        assert a.runs() == (100 * MS, 110 * MS)
        (tmp_path / "exit-0").write_text("3\n")
        a.socket.close()
        out, said = process.communicate(timeout=20)
    assert process.returncode == 0, said
    report = json.loads(out)
    assert (report["windows"], report["grants"]) == (3, 4)
    assert len(report["running_s"]) == 2
    assert 0 < report["longest_s"] <= sum(report["running_s"]) + 1e-6


def test_in_turn_only_one_runs(tmp_path: Path) -> None:
    with desk(tmp_path, 2, together=False) as (_, (a, b)):
        a.wait(3 * MS)
        b.wait(4 * MS)
        assert a.runs() == (3 * MS, WINDOW)
        assert b.is_held()
        a.wait(11 * MS)
        assert b.runs() == (4 * MS, WINDOW)


@pytest.mark.parametrize("fault", ["message", "past", "forever", "old kernel"])
def test_a_kernel_that_breaks_the_protocol_ends_the_calendar(tmp_path: Path, fault: str) -> None:
    with desk(tmp_path, 1) as (process, (kernel,)):
        match fault:
            case "message":
                kernel.send(REQUEST)
                expected = "part 0: found message 2; valid: 1 (start), 3 (wait)"
            case "past":
                kernel.wait(5 * MS)
                kernel.runs()
                kernel.wait(6 * MS)
                expected = "part 0 wants to run at 6000000 ns; valid: from 10000000 ns on"
            case "forever":
                kernel.wait(None)
                expected = "all parts wait, and none says until when"
            case _:
                struct.pack_into("=I", kernel.page, kernel.own, 0)
                kernel.wait(5 * MS)
                expected = "part 0: its kernel does not share its time"
        _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (1, f"{expected}\n")


@pytest.mark.parametrize("runs", [True, False])
def test_a_kernel_that_ends_without_a_result_ends_the_calendar(tmp_path: Path, runs: bool) -> None:
    with desk(tmp_path, 2) as (process, (a, b)):
        if runs:
            a.wait(3 * MS)
            b.wait(4 * MS)
            b.runs()
        b.socket.close()
        _, said = process.communicate(timeout=20)

    assert (process.returncode, said) == (1, "part 1: its kernel ended without a result\n")


def test_a_kernel_that_loses_the_calendar_did_not_end_by_itself() -> None:
    own = "Kernel panic - not syncing: Out of memory"
    broken = "Kernel panic - not syncing: time-travel external link is broken"
    reset = "Kernel panic - not syncing: invalid time-travel message - -104 bytes"
    assert own_panics([f"booting\n{broken}\n", reset, f"{own}\nhalted"]) == [own]
