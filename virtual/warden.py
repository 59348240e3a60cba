# SPDX-License-Identifier: Apache-2.0
"""The process above a guest's kernel: puts it behind walls, waits for it, and cleans up after it
when its launcher is gone, however the launcher ended.

    python3 -S -m virtual.warden < ORDER
    python3 -S -m virtual.warden --probe    (which walls this machine has)

Only the standard library. The order comes from `virtual.walls`, which also reads the report.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from virtual import syscalls
from virtual.call_filter import filter_program

NAMESPACES, LANDLOCK = "namespaces", "landlock"
PROBE: Final = "--probe"
KERNEL: Final = "/kernel"  # where its program is within the namespaces
OWN_NAMESPACES: Final = (
    syscalls.CLONE_NEWNS | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWUTS
)
EXIT_NOT_STARTED: Final = 127


@dataclass(frozen=True)
class Order:
    """The launcher's order. `temporary`: removed if the launcher is gone. `walls`: of NAMESPACES
    and LANDLOCK. `user_namespace`: the other namespaces need one. `connects`: to sockets in its
    view. `life_fd`: closes when the launcher ends; `calendar_fd`: if not None, closes when the
    guest's calendar ends; `report_fd`: takes one line of JSON, with `pid` or `error`."""

    argv: list[str]
    environment: dict[str, str]
    view: dict[str, Any]
    writable: list[str]
    temporary: list[str]
    walls: list[str]
    user_namespace: bool
    connects: bool
    life_fd: int
    calendar_fd: int | None
    report_fd: int

    @property
    def kept_fds(self) -> list[int]:
        """Return the descriptors that the warden keeps open, and the kernel does not."""
        fds = (self.life_fd, self.calendar_fd, self.report_fd)
        return [fd for fd in fds if fd is not None]


def main(arguments: list[str]) -> int:
    """Start the kernel and wait for its end; return its exit code."""
    if arguments == [PROBE]:
        print(json.dumps(_probe()))
        return 0
    order = Order(**json.load(sys.stdin))
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    for fd in order.kept_fds:
        os.set_inheritable(fd, False)
    complaint_fd, kernel_fd = os.pipe()  # closed when the kernel runs
    try:
        pid = _fork(order, kernel_fd)
    except OSError as error:
        _report(order, {"error": f"namespaces: {error.strerror}"})
        return EXIT_NOT_STARTED
    os.close(kernel_fd)
    with os.fdopen(complaint_fd, encoding="utf-8", errors="replace") as stream:
        complaint = stream.read()
    if complaint:
        os.waitpid(pid, 0)
        _report(order, {"error": complaint})
        return EXIT_NOT_STARTED
    _report(order, {"pid": pid})
    return _wait(order, pid)


def _probe() -> dict[str, object]:
    """Return what `walls.Walls` says of this machine and user."""
    found = [_can_make_namespaces(flags) for flags in (0, syscalls.CLONE_NEWUSER)]
    return {
        "namespaces": any(found),
        "user_namespace": not found[0],
        "landlock": syscalls.landlock_version(),
    }


def _can_make_namespaces(flags: int) -> bool:
    """Return whether a process may have its own mounts and process ids."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(Exception):
            syscalls.unshare(flags | syscalls.CLONE_NEWPID | OWN_NAMESPACES)
            syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
            syscalls.set_mount_attributes(syscalls.open_tree("/usr"), syscalls.ATTR_RDONLY)
            syscalls.mount("none", "/usr", "tmpfs", 0)
            os._exit(0)
        os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def _report(order: Order, value: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        os.write(order.report_fd, (json.dumps(value) + "\n").encode())
    os.close(order.report_fd)


def _wait(order: Order, pid: int) -> int:
    """Wait until the kernel ends; if the launcher or the calendar is gone, end it. If the launcher
    is, also remove its files."""
    needed = [fd for fd in (order.life_fd, order.calendar_fd) if fd is not None]
    ready, _, _ = select.select([*needed, os.pidfd_open(pid)], [], [])
    if any(fd in ready for fd in needed):
        os.kill(pid, signal.SIGKILL)  # not yet waited for, so the number is still its own
    _, status = os.waitpid(pid, 0)
    # Also if the launcher ended at the same moment.
    if select.select([order.life_fd], [], [], 0)[0]:
        for path in order.temporary:
            shutil.rmtree(path, ignore_errors=True)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _fork(order: Order, complaint_fd: int) -> int:
    """Return the process id of the kernel, which is starting: first of a namespace of process ids,
    so that none of its processes outlives it."""
    if NAMESPACES in order.walls:
        if order.user_namespace:
            _enter_user_namespace()
        syscalls.unshare(syscalls.CLONE_NEWPID)
    pid = os.fork()
    if pid:
        return pid
    try:
        syscalls.die_with_parent(signal.SIGKILL)
        parent = select.poll()
        parent.register(complaint_fd, 0)
        if parent.poll(0):  # nobody reads: the parent is already gone
            os._exit(EXIT_NOT_STARTED)
        syscalls.fix_addresses()
        program = order.argv[0]
        if NAMESPACES in order.walls:
            _enter_view(order)
            program = KERNEL
        _confine(order)
        os.execve(program, order.argv, order.environment)
    except Exception as error:  # whatever it is, the launcher reports it
        text = getattr(error, "strerror", None) or str(error)
        os.write(complaint_fd, f"{_place(error)}: {text}".encode(errors="replace"))
    os._exit(EXIT_NOT_STARTED)


def _place(error: BaseException) -> str:
    """Return the function of this module or of `syscalls` in which the error occurred."""
    trace, name = error.__traceback__, ""
    while trace is not None:
        name, trace = trace.tb_frame.f_code.co_name.strip("_"), trace.tb_next
    return f"{name} {getattr(error, 'filename', None) or ''}".strip()


def _enter_user_namespace() -> None:
    uid, gid = os.getuid(), os.getgid()
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1")):
        Path(f"/proc/self/{name}").write_text(text)
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


# -- the file system --------------------------------------------------------------------------


def _enter_view(order: Order) -> None:
    """Give it its own root, which contains only the view."""
    syscalls.unshare(OWN_NAMESPACES)
    syscalls.mount("none", "/", "", syscalls.MS_REC | syscalls.MS_PRIVATE)
    read_only = syscalls.ATTR_RDONLY | syscalls.ATTR_NOSUID | syscalls.ATTR_NODEV
    places = {path: (path, read_only) for path in order.view["read"]}
    places |= {path: (path, read_only & ~syscalls.ATTR_RDONLY) for path in order.writable}
    places[KERNEL] = (order.argv[0], read_only)
    places["/dev/null"] = ("/dev/null", syscalls.ATTR_NOSUID)
    trees = {place: syscalls.open_tree(source) for place, (source, _) in places.items()}
    for place, fd in trees.items():
        syscalls.set_mount_attributes(fd, places[place][1])
    # The copies above are not affected by what is mounted over their sources.
    root = order.temporary[0]
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount("none", root, "tmpfs", flags, "mode=755,size=16m")
    empty = _fill(root, trees, order)
    syscalls.change_root(root)
    for path in ("/", *empty):
        fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        syscalls.set_mount_attributes(fd, syscalls.ATTR_RDONLY, recursive=False)
        os.close(fd)


def _fill(root: str, trees: dict[str, int], order: Order) -> list[str]:
    """Put the whole view below `root`, outer places first; return the places of mounted empty
    directories, which are still writable."""
    view = order.view
    for path in view["empty"]:
        if not any(_below(path, tree) for tree in trees):
            Path(root + path).mkdir(mode=0o755, parents=True, exist_ok=True)
    for path, text in view["texts"].items():
        Path(root + path).parent.mkdir(parents=True, exist_ok=True)
        Path(root + path).write_text(text, encoding="utf-8", errors="surrogateescape")
    for path, target in view["links"].items():
        Path(root + path).symlink_to(target)
    mounted = []
    hidden = [path for path in view["empty"] if any(_below(path, tree) for tree in trees)]
    for path in sorted({*trees, *hidden}, key=lambda p: p.count("/")):
        if path in hidden:
            syscalls.mount("none", root + path, "tmpfs", 0, "mode=755,size=1m")
            mounted.append(path)
            continue
        target = Path(root + path)
        if not target.exists():
            target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if _is_directory(trees[path]):
                target.mkdir(mode=0o755)
            else:
                target.touch()
        syscalls.attach(trees[path], str(target))
        os.close(trees[path])
    return mounted


def _below(path: str, other: str) -> bool:
    return path.startswith(other + "/")


def _is_directory(fd: int) -> bool:
    return (os.fstat(fd).st_mode & 0o170000) == 0o040000


# -- rights -----------------------------------------------------------------------------------


def _confine(order: Order) -> None:
    """Give up all ways to gain privileges by executing a program."""
    if not order.walls:
        return
    syscalls.no_new_privileges()
    if LANDLOCK in order.walls:
        syscalls.landlock(_rules(order))
    # Root reads and writes what is shared with it, regardless of the owner.
    syscalls.keep_capabilities([syscalls.CAP_DAC_OVERRIDE] if os.getuid() == 0 else [])
    # Landlock ignores modes and times; read-only mounts protect them.
    program = filter_program(metadata=NAMESPACES in order.walls, connects=order.connects)
    syscalls.install_filter(program)


def _rules(order: Order) -> list[tuple[str, int]]:
    view = order.view
    seen = ["/"] if NAMESPACES in order.walls else [*view["read"], *view["texts"], order.argv[0]]
    rules = [(path, _read_rights(path)) for path in seen]
    rules += [(path, syscalls.LANDLOCK_WRITE) for path in order.writable]
    return [*rules, ("/dev/null", syscalls.LANDLOCK_WRITE_FILE)]


def _read_rights(path: str) -> int:
    return syscalls.LANDLOCK_READ if Path(path).is_dir() else syscalls.LANDLOCK_READ_FILE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
