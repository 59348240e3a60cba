# SPDX-License-Identifier: Apache-2.0
"""The agent of a host on another machine: it holds the host's namespace, and starts its programs.

It reads requests from standard input and answers on standard output, a JSON object a line:
{"call": NAME, "with": {...}} -> {"is": VALUE} or {"error": TEXT}. When its input ends, it ends
every program that it started; the namespace, its interfaces and its directory then vanish too.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from common import checkout
from common.shell import NetworkError, check, die_with_parent
from topologies.emulate import census, socket_options, sockets, strangers
from topologies.emulate.socket_options import SocketOptions
from topologies.watch import inventory

CLONE_NEWNET: Final = 0x40000000
CLONE_NEWNS: Final = 0x00020000
READ_BYTES: Final = 1 << 20  # of one file, in one answer
Function = Callable[..., Any]


class Agent:
    """The functions that can be called by name, and what they share."""

    def __init__(self, scratch_in: str = "/var/tmp") -> None:
        """Make the namespace, with its own /sys. Raises OSError."""
        self._home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET | CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "a namespace needs root")
        check(["mount", "--make-rslave", "/"])
        check(["mount", "-t", "sysfs", "sysfs", "/sys"])
        self.scratch = Path(tempfile.mkdtemp(prefix="downpour-", dir=scratch_in))
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._options = SocketOptions()

    def functions(self) -> dict[str, Function]:
        """Return what can be called."""
        named = (
            *(self.hello, self.tunnel, self.run, self.start, self.codes, self.signal),
            *(self.read, self.write, self.now, self.inventory, self.carried, self.at_home),
        )
        return {function.__name__: function for function in named}

    def hello(self) -> dict[str, object]:
        """Return what this machine is."""
        return {
            "scratch": str(self.scratch),
            "root": str(Path.cwd()),
            "machine": platform.node(),
            "kernel": platform.release(),
            "cores": os.cpu_count() or 1,
            "scheduling": census.scheduling(os.getpid()),
            "checkout": checkout.describe(Path.cwd(), Path.cwd() / "build"),
        }

    def tunnel(self, commands: Sequence[Sequence[str]], link: str, nic: str) -> None:
        """Run the commands that make `link` in the machine's own namespace; move it here as
        `nic`. Raises NetworkError."""
        move = ["ip", "link", "set", link, "netns", str(os.getpid()), "name", nic]
        for command in (*commands, move):
            self.at_home(command)

    def at_home(self, argv: Sequence[str]) -> str:
        """Run a program in the machine's own namespace; return what it prints. Raises
        NetworkError."""
        return check(["nsenter", f"--net=/proc/{os.getpid()}/fd/{self._home}", "--", *argv])

    def run(
        self, argv: Sequence[str], stdin: str = "", timeout_s: float = 30
    ) -> tuple[int, str, str]:
        """Run a program to its end; return its exit code and outputs."""
        done = subprocess.run(
            list(argv), input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], out: str | None, err: str | None
    ) -> int:
        """Start a program with its outputs in files (None: nowhere); return its process id."""
        with contextlib.ExitStack() as stack:
            opened = {
                path: stack.enter_context(Path(path).open("ab")) for path in {out, err} if path
            }
            child = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=opened[out] if out else subprocess.DEVNULL,
                stderr=opened[err] if err else subprocess.DEVNULL,
                env={**os.environ, **env},
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        self._children[child.pid] = child
        return child.pid

    def codes(self) -> dict[str, int]:
        """Return the exit codes of the programs that have ended."""
        ended = {pid: child.poll() for pid, child in self._children.items()}
        return {str(pid): code for pid, code in ended.items() if code is not None}

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a program that `start` started and that still runs."""
        child = self._children.get(pid)
        if child is not None and child.poll() is None:
            child.send_signal(number)

    def read(self, files: Mapping[str, int]) -> dict[str, str]:
        """Return what each file has beyond an offset, as `read_files`."""
        return read_files(files)

    def write(self, path: str, data: str) -> None:
        """Write a file (base 64) and the directories above it; a path that ends with "/" is a
        directory."""
        target = Path(path)
        (target if path.endswith("/") else target.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            target.write_bytes(base64.b64decode(data))

    def now(self) -> int:
        """Return this machine's time of day, in ns since 1970."""
        return time.time_ns()

    def inventory(self) -> dict[str, str]:
        """Return this namespace's settings, programs and their sockets. Raises NetworkError."""
        pids = {"": os.getpid()}

        def programs() -> list[census.Program]:
            return census.programs(pids, without=[os.getpid()])

        listed = programs()
        settings = inventory.read(None)
        used = {"": settings.get(socket_options.ALGORITHM, "")}
        found = {**census.summary(listed), **sockets.of_nodes(pids, listed, programs)}
        found |= strangers.of_nodes(pids, listed, programs, self._children)
        found |= self._options.look(pids, listed, used)
        return {**settings, **{k.strip(): v for k, v in found.items()}}

    def carried(self) -> dict[str, dict[str, int]]:
        """Return by interface how many frames it sent, received and dropped."""
        found = {}
        for interface in Path("/sys/class/net").iterdir():
            names = ("tx_packets", "rx_packets", "tx_dropped", "rx_dropped", "tx_errors")
            counts = interface / "statistics"
            found[interface.name] = {one: int((counts / one).read_text()) for one in names}
        return found

    def close(self) -> None:
        """End all programs, and remove their files."""
        for child in self._children.values():
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)


def read_files(files: Mapping[str, int]) -> dict[str, str]:
    """Return what each file has beyond an offset (path -> offset), in base 64; files without more
    are left out."""
    found = {}
    for path, offset in files.items():
        with contextlib.suppress(FileNotFoundError), Path(path).open("rb") as file:
            file.seek(offset)
            if data := file.read(READ_BYTES):
                found[path] = base64.b64encode(data).decode()
    return found


def answer(functions: Mapping[str, Function], line: str) -> dict[str, object]:
    """Return the answer to a request, as the agent's caller reads it."""
    try:
        asked = json.loads(line)
        return {"is": functions[asked["call"]](**asked["with"])}
    except (NetworkError, OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
        return {"error": str(error) or type(error).__name__}


def serve(
    more: Callable[[], Mapping[str, Function]] = dict, make: Callable[[], Agent] = Agent
) -> int:
    """Answer until the input ends. `more`: makes further functions, in the namespace."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anything prints must not mix with the answers
    try:
        agent = make()
    except (OSError, NetworkError) as error:
        print(json.dumps({"error": str(error)}), file=answers, flush=True)
        return 1
    try:
        functions = {**agent.functions(), **more()}
        for line in sys.stdin:
            print(json.dumps(answer(functions, line)), file=answers, flush=True)
    finally:
        with contextlib.suppress(KeyboardInterrupt):
            agent.close()
    return 0
