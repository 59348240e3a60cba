# SPDX-License-Identifier: Apache-2.0
"""Run cases for hostile tests of command-line programs: their programs and small disks.

A case is a function that takes the test's machine. A disk is a small tmpfs in the test's mount
namespace; packets stay on the loopback of a network namespace. Exit status 77: skipped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import TypeVar

SKIPPED = 77
LIMIT_S = 60.0
M = TypeVar("M", bound="Machine")
IN_NAMESPACE = "DOWNPOUR_TEST_IN_NAMESPACE"


class Failure(Exception):
    """A case did not hold. The message says why."""


def expect(condition: bool, text: str) -> None:
    """Raise Failure with `text` unless the condition holds."""
    if not condition:
        raise Failure(text)


def wait_for(what: str, condition: Callable[[], bool], pause_s: float = 0.02) -> None:
    """Wait until the condition holds. Raises Failure after LIMIT_S."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        expect(time.monotonic() < deadline, f"no {what} within {LIMIT_S:.0f} s")
        time.sleep(pause_s)


class Program:
    """A program of the test, and its output."""

    def __init__(self, work: Path, name: str, argv: list[str]) -> None:
        self.name = name
        self.out, self.err = work / f"{name}.out", work / f"{name}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(argv, stdin=DEVNULL, stdout=out, stderr=err)

    def said(self) -> str:
        return self.err.read_text(errors="replace")

    def told(self) -> str:
        return self.out.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self, *codes: int) -> None:
        """Wait for its end. Raises Failure unless it ends on its own with one of `codes`."""
        try:
            got = self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} does not end") from None
        text = f"{self.name} ended with {got} instead of {codes}:\n{self.said()}{self.told()}"
        expect(got in codes, text)

    def counts(self) -> dict[str, str]:
        """Return the line at its end."""
        return dict(word.split("=", 1) for word in self.told().splitlines()[-1].split())


class Machine:
    """A directory, the two programs, and the processes that run."""

    def __init__(self, send: str, recv: str, work: Path) -> None:
        self.send_path, self.recv_path, self.work = send, recv, work
        self.running: list[Program] = []

    def start(self, name: str, argv: list[str]) -> Program:
        """Start a program, which ends with the case."""
        program = Program(self.work, name, argv)
        self.running.append(program)
        return program

    def end_all(self) -> None:
        for program in self.running:
            if program.process.poll() is None:
                program.process.kill()
            program.process.wait()
        self.running.clear()

    def directory(self, name: str) -> Path:
        path = self.work / name
        path.mkdir()
        return path

    def file(self, name: str, size: int) -> Path:
        path = self.work / name
        path.write_bytes(os.urandom(size))
        return path


@contextmanager
def small_disk(directory: Path, size_bytes: int) -> Iterator[Path]:
    """Mount a disk of this size on the directory."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(directory)]
    subprocess.run(mount, check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def resize(directory: Path, size_bytes: int) -> None:
    """Give the small disk another size."""
    mount = ["mount", "-o", f"remount,size={size_bytes}", str(directory)]
    subprocess.run(mount, check=True)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def used_bytes(path: Path) -> int:
    """Return the room that a file takes; 0 if it does not exist."""
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def _run(name: str, case: Callable[[M], None], kind: Callable[[str, str, Path], M]) -> bool:
    """Run a case; return whether it held."""
    send, recv = sys.argv[1:3]
    with tempfile.TemporaryDirectory(prefix="downpour-case-") as work:
        m = kind(send, recv, Path(work))
        began = time.monotonic()
        try:
            case(m)
        except Failure as failure:
            print(f"FAILED {name}: {failure}")
            return False
        finally:
            m.end_all()
    print(f"ok {name}: {time.monotonic() - began:.1f} s", flush=True)
    return True


def run_cases(
    cases: Mapping[str, Callable[[M], None]],
    kind: Callable[[str, str, Path], M],
    long: Collection[str] = (),
) -> int:
    """Run the cases that the command line names; return the exit status. The default is all, but
    those in `long` only with DOWNPOUR_TEST_LONG."""
    is_long = "DOWNPOUR_TEST_LONG" in os.environ
    chosen = sys.argv[3:] or [name for name in cases if is_long or name not in long]
    if os.geteuid() != 0:
        print("SKIPPED: small disks need root")
        return SKIPPED
    if IN_NAMESPACE not in os.environ:
        os.environ[IN_NAMESPACE] = "1"
        os.execvp("unshare", ["unshare", "-m", "-n", sys.executable, *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up", "multicast", "on"], check=True)
    subprocess.run(["ip", "route", "add", "239.0.0.0/8", "dev", "lo"], check=True)
    failed = [name for name in chosen if not _run(name, cases[name], kind)]
    return 1 if failed else 0
