# SPDX-License-Identifier: Apache-2.0
"""System calls of Linux on x86-64 that Python has no function for: namespaces, mounts by
descriptor, Landlock, seccomp, capabilities. Each raises OSError. Only the standard library."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable
from typing import Final

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 0x40000
MNT_DETACH: Final = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4  # of mount_setattr
CAP_DAC_OVERRIDE: Final = 1

_AT_FDCWD, _AT_EMPTY_PATH, _AT_RECURSIVE = -100, 0x1000, 0x8000
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
_MOVE_MOUNT_F_EMPTY_PATH: Final = 4
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_ADDR_NO_RANDOMIZE: Final = 0x0040000
_CAPABILITY_VERSION_3: Final = 0x20080522
_LANDLOCK_CREATE_RULESET_VERSION, _LANDLOCK_RULE_PATH_BENEATH = 1, 1
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_SPEC_ALLOW = 1, 4

Argument = int | bytes | ctypes.Array[ctypes.c_char] | ctypes.Structure | None


def _call(number: int, *arguments: Argument) -> int:
    words = [
        ctypes.byref(a)
        if isinstance(a, ctypes.Structure)
        else ctypes.c_long(a)
        if isinstance(a, int)
        else a
        for a in arguments
    ]
    result = int(_libc.syscall(ctypes.c_long(number), *words))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


# -- processes --------------------------------------------------------------------------------


def unshare(flags: int) -> None:
    """Put this process (with CLONE_NEWPID: its children) into new namespaces."""
    _call(272, flags)


def die_with_parent(number: int) -> None:
    """Have the kernel send this signal when the thread that made this process ends."""
    _call(157, _PR_SET_PDEATHSIG, number, 0, 0, 0)


def fix_addresses() -> None:
    """Switch off random addresses in what this process executes, unless a container forbids it."""
    with contextlib.suppress(OSError):
        _call(135, _call(135, 0xFFFFFFFF) | _ADDR_NO_RANDOMIZE)


def keep_capabilities(kept: Iterable[int]) -> None:
    """Give up all other capabilities for good; call `no_new_privileges` before."""
    mask = 0
    for number in kept:
        mask |= 1 << number
    # EINVAL: there are no more; EPERM: without new privileges, nothing that is executed gains any.
    with contextlib.suppress(OSError):
        for number in range(64):
            if not mask >> number & 1:
                _call(157, _PR_CAPBSET_DROP, number, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    found = ctypes.create_string_buffer(24)
    _call(125, header, found)
    low, high = (word & (mask >> 32 * i) for i, word in enumerate(_permitted(found.raw)))
    _call(126, header, struct.pack("=6I", low, low, 0, high, high, 0))


def _permitted(raw: bytes) -> tuple[int, int]:
    words = struct.unpack("=6I", raw)
    return words[1], words[4]


def no_new_privileges() -> None:
    """From now on, setuid bits and file capabilities of programs have no effect."""
    _call(157, _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


# -- mounts -----------------------------------------------------------------------------------


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Call mount(2)."""
    words = [text.encode(errors="surrogateescape") for text in (source, target, kind)]
    _call(165, *words, flags, options.encode())


def open_tree(path: str) -> int:
    """Return a descriptor of a copy of the mounts at and below `path`, attached nowhere."""
    flags = _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC | _AT_RECURSIVE
    return _call(428, _AT_FDCWD, os.fsencode(path), flags)


def set_mount_attributes(fd: int, attributes: int, *, recursive: bool = True) -> None:
    """Add ATTR_ constants to the mounts of an `open_tree` or of an open directory."""
    flags = _AT_EMPTY_PATH | (_AT_RECURSIVE if recursive else 0)
    wanted = _MountAttributes(attributes, 0, 0, 0)
    _call(442, fd, b"", flags, wanted, ctypes.sizeof(wanted))


def attach(fd: int, target: str) -> None:
    """Mount an `open_tree` at `target`."""
    _call(429, fd, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH)


def change_root(directory: str) -> None:
    """Make a mount point the root and release the old one."""
    os.chdir(directory)
    _call(155, b".", b".")
    _call(166, b".", MNT_DETACH)
    os.chdir("/")


# -- Landlock ---------------------------------------------------------------------------------

LANDLOCK_READ: Final = 0b1101  # execute, read files, list directories
LANDLOCK_READ_FILE: Final = 0b0101
# Also write, remove and make directories, files and sockets; no devices, pipes, symbolic links.
LANDLOCK_WRITE: Final = LANDLOCK_READ | 0b0011_1011_0010 | 1 << 13 | 1 << 14
LANDLOCK_WRITE_FILE: Final = LANDLOCK_READ_FILE | 0b10 | 1 << 14
_LANDLOCK_BITS: Final = {1: 13, 2: 14, 3: 15, 4: 15}  # version -> file rights it knows; later: 16
_LANDLOCK_SCOPES: Final = 0b11  # abstract Unix sockets, signals


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def landlock_version() -> int:
    """Return the version of Landlock that the kernel has; 0: none."""
    try:
        return _call(444, None, 0, _LANDLOCK_CREATE_RULESET_VERSION)
    except OSError:
        return 0


def landlock(rules: Iterable[tuple[str, int]]) -> None:
    """Restrict this process to `rules` (path, LANDLOCK_ rights), as far as the kernel can. Also
    forbids TCP, and signals and abstract sockets to processes outside. Absent paths are left
    out."""
    version = landlock_version()
    handled = (1 << _LANDLOCK_BITS.get(version, 16)) - 1
    ruleset = _Ruleset(handled, 0b11, _LANDLOCK_SCOPES)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset_fd = _call(444, ruleset, size, 0)
    try:
        for path, rights in rules:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                rule = _PathBeneath(rights & handled, fd)
                _call(445, ruleset_fd, _LANDLOCK_RULE_PATH_BENEATH, rule, 0)
            finally:
                os.close(fd)
        _call(446, ruleset_fd, 0)
    finally:
        os.close(ruleset_fd)


# -- seccomp ----------------------------------------------------------------------------------


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install_filter(instructions: bytes) -> None:
    """Put this process and all that it starts under a seccomp filter (BPF instructions)."""
    program = _Program(len(instructions) // 8, instructions)
    for flags in (_SECCOMP_FILTER_FLAG_SPEC_ALLOW, 0):
        try:
            _call(317, _SECCOMP_SET_MODE_FILTER, flags, program)
        except OSError:
            if flags == 0:
                raise
        else:
            return
