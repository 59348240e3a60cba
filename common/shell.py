# SPDX-License-Identifier: Apache-2.0
"""Run tools, in this namespace or in a node's, many at once. Errors say what failed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class NetworkError(Exception):
    """The network could not be made, or is not as requested. The text is for the user."""


class UnknownNameError(NetworkError):
    """The network has no host or link with the given name."""


def enter_network_namespace(fd: int) -> None:
    """Move the calling thread into the network namespace open at `fd`. Raises OSError."""
    clone_newnet = 0x40000000
    if _libc.setns(fd, clone_newnet) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def die_with_parent(number: signal.Signals = signal.SIGKILL) -> Callable[[], None] | None:
    """Return a preexec function for processes that must not outlive this one, whatever ends it.

    The kernel sends the signal when the *thread* that started the process ends, so only the main
    thread may request it. Other threads get None (and marks find the process instead).
    """
    if threading.current_thread() is not threading.main_thread():
        return None

    def ask() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)

    return ask


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt in the caller, as Ctrl-C does, so that it
    cleans up."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGTERM, signal.SIGHUP)
    old = {n: signal.signal(n, interrupt) for n in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Delay KeyboardInterrupt from Ctrl-C, SIGTERM and SIGHUP to the end of the block, so that its
    caller knows every process that the block started, and can end it. (Blocked signals would stay
    blocked in these processes.)"""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    old = {n: signal.signal(n, lambda number, _frame: pending.append(number)) for n in numbers}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    if pending:
        raise KeyboardInterrupt


class NodeCommand(list[str]):
    """A command for a node, made by `in_node`. As a list it begins with nsenter. `check` and
    `check_all` enter the namespace themselves, which saves a process."""

    def __init__(self, pid: int, argv: Sequence[str]) -> None:
        super().__init__(["nsenter", f"--net=/proc/{pid}/ns/net", "--", *argv])
        self.pid = pid
        self.argv = list(argv)


def in_node(pid: int, argv: Sequence[str]) -> NodeCommand:
    """Return the command that runs `argv` in the network namespace of process `pid`."""
    return NodeCommand(pid, argv)


@contextmanager
def namespace_of(pid: int) -> Iterator[None]:
    """Move this thread into the network namespace of process `pid`. Raises NetworkError."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            try:
                enter_network_namespace(there)
            finally:
                os.close(there)
        except OSError as error:
            raise NetworkError(f"namespace of process {pid}: {error.strerror}") from error
        try:
            yield
        finally:
            enter_network_namespace(here)
    finally:
        os.close(here)


@contextmanager
def _entered(argv: Sequence[str]) -> Iterator[list[str]]:
    """Move this thread into the command's namespace; yield the command without nsenter."""
    if not isinstance(argv, NodeCommand):
        yield list(argv)
        return
    with namespace_of(argv.pid):
        yield argv.argv


def check(argv: Sequence[str], *, stdin: str | None = None, timeout_s: float = 60) -> str:
    """Run a tool and return its output. Raises NetworkError, which quotes it, if it fails."""
    process = _start(argv)
    try:
        out, complaint = process.communicate(stdin or "", timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise NetworkError(f"{' '.join(argv)[:200]}: no answer within {timeout_s:g} s") from error
    finally:
        _end(process)
    if process.returncode != 0:
        text = (complaint or out).strip() or f"exit code {process.returncode}"
        raise NetworkError(f"{' '.join(argv)[:200]}: {text[-1000:]}")
    return out


def _start(argv: Sequence[str]) -> subprocess.Popen[str]:
    """Start a command with text pipes. Raises NetworkError if the program is missing."""
    with _entered(argv) as command:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        except FileNotFoundError as error:
            raise NetworkError(f"{command[0]}: not found on this machine (see: doctor)") from error


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def check_all(
    commands: Mapping[str, tuple[Sequence[str], str]], *, timeout_s: float = 60
) -> dict[str, str]:
    """Run all commands at once: name -> (argv, standard input). Return name -> output.

    Raises NetworkError, which names the first that failed. Each must read its input before it
    prints much.
    """
    running: dict[str, subprocess.Popen[str]] = {}
    outputs: dict[str, str] = {}
    try:
        for name, (argv, stdin) in commands.items():
            process = running[name] = _start(argv)
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(stdin)
                process.stdin.close()
            process.stdin = None
        for name, process in running.items():
            try:
                out, complaint = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired as error:
                raise NetworkError(f"{name}: no answer within {timeout_s:g} s") from error
            if process.returncode != 0:
                text = complaint.strip() or out.strip() or f"exit code {process.returncode}"
                raise NetworkError(f"{name}: {text[-1000:]}")
            outputs[name] = out
    finally:
        for process in running.values():
            _end(process)
    return outputs
