# SPDX-License-Identifier: Apache-2.0
"""A guest: a User-Mode Linux kernel in virtual time that runs one command.

The guest sees the host's programs read-only beneath an overlay that is discarded with it; the
checkout at /guest/checkout; what is shared by name; and /guest/exchange, through which its output
comes out. It is one process tree of the calling user: no root, no capability, no module, no device.
Walls (`virtual.walls`) keep the guest's root from all other files, processes and networks of the
host.
"""

from __future__ import annotations

import compileall
import contextlib
import dataclasses
import functools
import os
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from common.files import Tail
from common.places import BUILD, PYTHON, ROOT
from common.shell import interrupts_deferred
from common.virtual_time import EXTERNAL_TIME, TIME_TRAVEL
from virtual import status_page
from virtual.cores import one_core
from virtual.kernel_build import Kernel
from virtual.stall import Awake, Stall, processor_waits
from virtual.view import view_of
from virtual.walls import WalledProcess, WallError

INIT: Final = ROOT / "virtual/guest_init.sh"
ROOMS: Final = (
    "common", "topologies", "controller", "experiments", "parsers", "protocols", "virtual", "bench",
    "labs",
)  # fmt: skip
# The same for all users, because paths reach logs; a directory that no host has, because it hides
# any directory of the host with that name.
CHECKOUT: Final = Path("/guest/checkout")
EXCHANGE: Final = Path("/guest/exchange")
# The guest's own directories (guest_init.sh): they hide the host's.
OWN_DIRECTORIES: Final = tuple(map(Path, ("/tmp", "/run", "/dev", "/proc", "/sys")))
CALENDAR: Final = "calendar"
RESULT: Final = "exit"  # the file with the command's exit code (guest_init.sh)
MARK: Final = "DOWNPOUR_GUEST"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
EPOCH_S: Final = 1_767_225_600  # 2026-01-01 00:00 UTC: the guest's wall clock at its boot
MEMORY_BYTES: Final = 2_000_000_000
LEAST_MEMORY_BYTES: Final = 800_000_000
STALL_S: Final = 120.0
STOP_S: Final = 10.0
POLL_S: Final = 0.1


class GuestError(Exception):
    """The guest could not do its work; the text says why."""


class NoResultError(GuestError):
    """The guest ended, but its command did not."""


@dataclass(frozen=True)
class Share:
    """A host directory at its own place in the guest. A relative `source` is below the guest's
    exchange directory."""

    source: Path
    target: Path
    writable: bool = False


@dataclass(frozen=True)
class GuestSpec:
    """What runs in a guest. `limit_s` and `stall_s` are real time; None: no limit."""

    argv: tuple[str, ...]
    shares: tuple[Share, ...] = ()
    reads: tuple[
        Path, ...
    ] = ()  # files of the host at the same places; this installation's are always among them
    env: Mapping[str, str] = field(default_factory=dict)
    memory_bytes: int = MEMORY_BYTES
    seed: int = 1
    limit_s: float | None = None
    stall_s: float = STALL_S
    # Time passes as a calendar allows, whose socket is CALENDAR in the exchange directory. It is a
    # descriptor that closes when the calendar ends; the guest then ends too.
    calendar_fd: int | None = None


@dataclass(frozen=True)
class Times:
    """A guest's progress."""

    virtual_s: float
    real_s: float

    @property
    def ratio(self) -> float:
        """Return virtual seconds per real second."""
        return self.virtual_s / self.real_s if self.real_s > 0 else 0.0


def guest_python() -> str:
    """Return the path of this installation's Python in a guest, which sees the host's files."""
    inside = PYTHON.is_relative_to(ROOT)
    return str(CHECKOUT / PYTHON.relative_to(ROOT) if inside else PYTHON)


def guest_path(path: Path) -> Path:
    """Return where the guest sees a file of the checkout; other files keep their paths."""
    absolute = path.resolve()
    return CHECKOUT / absolute.relative_to(ROOT) if absolute.is_relative_to(ROOT) else absolute


def job_script(spec: GuestSpec) -> str:
    """Return /guest/exchange/job, which takes nothing from the host's environment.

    Programs of packages that are installed beside this one (protocols may be) come last.
    """
    variables = {
        "PATH": f"{PATH}:{Path(guest_python()).parent}",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONPATH": str(CHECKOUT),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Otherwise the order of sets of strings would differ from run to run.
        "PYTHONHASHSEED": "0",
        **spec.env,
    }
    lines = [f"export {name}={shlex.quote(value)}" for name, value in sorted(variables.items())]
    return "\n".join([*lines, f"cd {CHECKOUT}", f"exec {shlex.join(spec.argv)}"]) + "\n"


def mounts_text(shares: Sequence[Share]) -> str:
    """Return the lines for `virtual/guest_init.sh`. Raises GuestError for a path that it cannot
    read."""
    lines = []
    for number, share in enumerate(shares):
        target = str(share.target)
        if "\n" in target or target != target.strip():
            raise GuestError(
                f"found '{target}'; valid: a path without line ends, and blanks only inside"
            )
        lines.append(f"{'rw' if share.writable else 'ro'} {number} {target}\n")
    return "".join(lines)


def hidden_shares(paths: Iterable[Path]) -> list[Share]:
    """Return shares, at the same places, for those `paths` that the guest's own directories would
    hide."""
    own = (path.resolve() for path in paths if path.exists())
    hidden = (p for p in own if any(p.is_relative_to(place) for place in OWN_DIRECTORIES))
    return [Share(path, path) for path in dict.fromkeys(hidden)]


def mount_program() -> str:
    """Return the path of the host's mount(8). Raises GuestError if there is none."""
    if found := shutil.which("mount", path=PATH):
        return found
    raise GuestError(f"found no program mount in {PATH}; valid: apt install mount")


def _exchange_parent() -> str | None:
    """Return the parent of exchange directories. Kernel parameters cannot hold blanks."""
    return "/tmp" if any(c.isspace() for c in tempfile.gettempdir()) else None


def command_line(kernel: Kernel, spec: GuestSpec, exchange: Path) -> list[str]:
    """Return the kernel and its parameters. The kernel passes unknown ones to init's
    environment."""
    return [
        str(kernel.path),
        *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"),
        f"mem={max(256, spec.memory_bytes // 2**20)}M",
        *("quiet", "con=null", "con0=null,fd:1", "ssl=null"),
        f"{EXTERNAL_TIME}{exchange}/{CALENDAR}" if spec.calendar_fd is not None else TIME_TRAVEL,
        f"time-travel-start={EPOCH_S * 10**9}",
        f"seccomp={'on' if kernel.seccomp else 'off'}",
        f"uml_dir={exchange}/uml/",
        "umid=guest",
        f"downpour_status={exchange}/status",
        f"downpour_seed={spec.seed}",
        f"init={exchange}/init",
        f"DOWNPOUR_EXCHANGE={exchange}",
    ]


@functools.cache  # once for all guests of a run
def compile_rooms() -> None:
    """Compile this project's own modules to byte code. The guest cannot write it: without it each
    guest compiles them again, and programs start some microseconds later than in a checkout that
    has it."""
    for room in ROOMS:
        compileall.compile_dir(ROOT / room, quiet=2)


def memory_directory(size_bytes: int, candidates: Sequence[Path] | None = None) -> Path:
    """Return the directory for the guest's memory: the kernel maps a file there, and executes code
    in it. By default TMPDIR if it is set, /dev/shm or /tmp: containers' /dev/shm is small and
    mounted noexec. A guest's memory is a sparse file, and most of it is never written: room for
    LEAST_MEMORY_BYTES is enough. Raises GuestError."""
    needed_bytes = min(size_bytes, LEAST_MEMORY_BYTES)
    if candidates is None:
        given = os.environ.get("TMPDIR")
        candidates = [*([Path(given)] if given else []), Path("/dev/shm"), Path("/tmp")]
    refused = []
    for place in candidates:
        try:
            found = os.statvfs(place)
        except OSError as error:
            refused.append(f"{place}: {error.strerror}")
            continue
        free_bytes = found.f_bavail * found.f_frsize
        if found.f_flag & os.ST_NOEXEC:
            refused.append(f"{place}: mounted noexec")
        elif not os.access(place, os.W_OK | os.X_OK):
            refused.append(f"{place}: not writable")
        elif free_bytes < needed_bytes:
            refused.append(f"{place}: {free_bytes // 10**6} MB free")
        else:
            return place
    raise GuestError(
        f"found no place for {needed_bytes // 10**6} MB of a guest's memory "
        f"({'; '.join(refused)}); valid: a directory with that much room that is not mounted "
        "noexec, named by TMPDIR"
    )


class Guest:
    """A running guest, made by its constructor, ended by `stop` (idempotent; a context manager)."""

    def __init__(
        self,
        kernel: Kernel,
        spec: GuestSpec,
        *,
        prepare: Callable[[Path], None] | None = None,  # puts files into the exchange directory
    ) -> None:
        self.kernel, self.spec = kernel, spec
        self._stack = ExitStack()
        self._killed = False
        self._paused = False
        compile_rooms()
        try:
            # Short: paths of the kernel's own sockets below it are limited to 108 characters.
            name = tempfile.mkdtemp(prefix="downpour-guest-", dir=_exchange_parent())
            self.exchange = Path(name)
            self._stack.callback(shutil.rmtree, self.exchange, ignore_errors=True)
            installation = hidden_shares((ROOT / ".venv", PYTHON.parents[1], BUILD, *spec.reads))
            shares = [
                dataclasses.replace(share, source=self.exchange / share.source)
                for share in (Share(ROOT, CHECKOUT), *installation, *spec.shares)
            ]
            self._write("mounts", mounts_text(shares))
            (self.exchange / "shares").mkdir()
            for number, share in enumerate(shares):
                (self.exchange / "shares" / str(number)).symlink_to(share.source)
            shutil.copy(INIT, self.exchange / "init")
            (self.exchange / "init").chmod(0o755)
            shutil.copyfile(mount_program(), self.exchange / "mount")
            (self.exchange / "mount").chmod(0o755)
            self._write("job", job_script(spec))
            for empty in ("stdout", "stderr"):
                self._write(empty, "")
            status_page.create(self.exchange / "status")
            (self.exchange / "uml").mkdir()
            if prepare is not None:
                prepare(self.exchange)
            core = self._stack.enter_context(one_core())
            self._process = self._start(core, shares)
            self.started = time.monotonic()
            self._awake = Awake(self.started)
            self._stall = self._new_stall()
        except BaseException:
            self._stack.close()
            raise

    def _write(self, name: str, text: str) -> None:
        (self.exchange / name).write_text(text, encoding="utf-8")

    def _start(self, core: int, shares: Sequence[Share]) -> WalledProcess:
        place = memory_directory(self.spec.memory_bytes)
        memory = Path(tempfile.mkdtemp(prefix="downpour-memory-", dir=place))
        self._stack.callback(shutil.rmtree, memory, ignore_errors=True)
        environment = {
            "PATH": PATH,
            "HOME": str(self.exchange),
            "TMPDIR": str(memory),
            MARK: str(self.exchange),
        }
        view = view_of(
            [*(s.source for s in shares if not s.writable), *self.spec.reads],
            [s.source for s in shares if s.writable],
        )
        with (self.exchange / "console").open("wb") as console:
            try:
                return WalledProcess(
                    command_line(self.kernel, self.spec, self.exchange),
                    environment,
                    view,
                    [self.exchange, memory],
                    console,
                    prepare=lambda: os.sched_setaffinity(0, {core}),
                    calendar_fd=self.spec.calendar_fd,
                )
            except (OSError, WallError) as error:
                raise GuestError(f"{self.kernel.path}: {error}") from None

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _new_stall(self) -> Stall:
        session = self._process.warden.pid
        return Stall(self.spec.stall_s, self._awake.so_far_s, lambda: processor_waits(session))

    @property
    def times(self) -> Times:
        """Return virtual and real time since the start. Raises GuestError."""
        page = self._page()
        virtual_s = page.virtual_ns / 1e9 if page is not None else 0.0
        return Times(virtual_s, time.monotonic() - self.started)

    def _page(self) -> status_page.StatusPage | None:
        try:
            return status_page.read(self.exchange / "status")
        except (OSError, status_page.StatusPageError) as error:
            raise GuestError(f"status page of the guest: {error}") from None

    def on_the_processor(self) -> str:
        """Return the running task, in words."""
        page = self._page()
        if page is None:
            return "it has not begun to run programs"
        return f"'{page.comm}' (process {page.pid} of the guest) holds the processor"

    def poll(self) -> int | None:
        """Return the command's exit code once the guest has ended, None while it runs. Raises
        GuestError when it stalls, exceeds its limit or ends without a result; the guest is then
        stopped."""
        code = self._process.poll()
        now = self._awake.at(time.monotonic())
        if code is not None:
            return self._result()
        if self._paused:
            return None
        times = self.times
        if self._stall.stalled(times.virtual_s, now):
            holder = self.on_the_processor()
            self.kill()
            raise GuestError(
                f"no virtual time passed for {self.spec.stall_s:g} s of real time "
                f"(at {times.virtual_s:.6f} s): {holder}"
            )
        if self.spec.limit_s is not None and now > self.spec.limit_s:
            holder = self.on_the_processor()
            self.kill()
            raise GuestError(
                f"no end within {self.spec.limit_s:.0f} s of real time "
                f"({times.virtual_s:.1f} s of virtual time have passed): {holder}"
            )
        return None

    def _result(self) -> int:
        """Return the exit code that init wrote."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.exchange / RESULT).read_text())
        console = (self.exchange / "console").read_text(errors="replace").strip()
        last = "\n".join(console.splitlines()[-8:])
        raise NoResultError(f"the guest ended without a result. Its console says:\n{last}")

    def wait(self) -> int:
        """Wait for the end; return the exit code. Raises GuestError, see `poll`."""
        while (code := self.poll()) is None:
            time.sleep(POLL_S)
        return code

    def pause(self) -> None:
        """Stop the guest's time; it then uses no processor. Its stubs run only when the kernel lets
        them, so stopping the kernel is enough. During the pause `poll` reports no stall; `resume`
        ends the pause."""
        self._paused = True
        self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """End a `pause`."""
        self._paused = False
        self._awake.at(time.monotonic())
        self._stall = self._new_stall()
        self._process.signal(signal.SIGCONT)

    def tell_to_stop(self) -> None:
        """End the kernel without waiting for it; `kill` or `stop` must follow."""
        self._process.signal(signal.SIGKILL)

    def kill(self) -> None:
        """End the kernel and its stubs without asking the guest."""
        if self._killed:
            return
        self._killed = True
        self._process.kill(STOP_S)

    def stop(self) -> None:
        """End the guest and remove its directory. Signals to this process are held back until
        then."""
        with interrupts_deferred():
            self.kill()
            self._stack.close()


def processes_of(exchange: Path) -> list[int]:
    """Return the processes of the host that belong to the guest with this directory: its warden and
    kernel, which carry the mark, and all others of their session: the stubs that hold the guest's
    programs."""
    mark = f"{MARK}={exchange}".encode()
    sessions: dict[int, int] = {}
    kernels: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                pid = int(entry.name)
                sessions[pid] = os.getsid(pid)
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    kernels.add(sessions[pid])
    return [pid for pid, session in sessions.items() if session in kernels]


def run_guest(
    kernel: Kernel,
    spec: GuestSpec,
    *,
    stdout: IO[bytes] | None = None,
    stderr: IO[bytes] | None = None,
) -> tuple[int, Times]:
    """Run a command to its end, copying its output as it comes. Return (exit code, times)."""
    with Guest(kernel, spec) as guest:
        tails = [
            (Tail(guest.exchange / "stdout"), stdout),
            (Tail(guest.exchange / "stderr"), stderr),
        ]

        def copy() -> None:
            for tail, target in tails:
                data = tail.read()
                if target is not None and data:
                    target.write(data)
                    target.flush()

        try:
            while (code := guest.poll()) is None:
                copy()
                time.sleep(POLL_S)
            return code, guest.times
        finally:
            copy()
