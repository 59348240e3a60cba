# SPDX-License-Identifier: Apache-2.0
"""The seccomp filter of a guest's kernel. It refuses system calls of the host that the kernel never
needs, and those by which a guest could leave traces among the host's files. x86-64; only the
standard library."""

from __future__ import annotations

import errno
import socket
import stat
import struct
from collections.abc import Iterator
from typing import Final

_LOAD, _AND, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_ARCHITECTURE: Final = 0xC000003E
_X32: Final = 0x40000000  # numbers from here on are of another ABI
_NUMBER, _ARCHITECTURE_AT, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

_SETUID_SETGID: Final = stat.S_ISUID | stat.S_ISGID
_MAKES_FILE: Final = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE
_CLONE_NAMESPACES: Final = 0x7E020080
_AF_UNIX: Final = 1
_SOCKET_KINDS: Final = 0xF  # without flags

# To the guest's kernel, these calls do not exist.
_UNKNOWN: Final = {
    **{"openat2": 437, "clone3": 435, "fchmodat2": 452, "io_uring_setup": 425},
    **{"io_uring_enter": 426, "io_uring_register": 427},
}
_REFUSED: Final = {
    # Mounts, namespaces, files by handle.
    **{"mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "setns": 308},
    **{"unshare": 272, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431},
    **{"fsmount": 432, "fspick": 433, "mount_setattr": 442, "open_tree_attr": 467},
    **{"name_to_handle_at": 303, "open_by_handle_at": 304},
    # The machine itself.
    **{"init_module": 175, "finit_module": 313, "delete_module": 176, "kexec_load": 246},
    **{"kexec_file_load": 320, "reboot": 169, "bpf": 321, "perf_event_open": 298, "acct": 163},
    **{"userfaultfd": 323, "swapon": 167, "swapoff": 168, "quotactl": 179, "quotactl_fd": 443},
    **{"sethostname": 170, "setdomainname": 171, "settimeofday": 164, "clock_settime": 227},
    **{"adjtimex": 159, "clock_adjtime": 305},
    # Keys and other processes.
    **{"keyctl": 250, "add_key": 248, "request_key": 249, "pidfd_getfd": 438},
    **{"process_vm_readv": 310, "process_vm_writev": 311},
    # Links that could mislead the host's own programs; owners; attributes such as capabilities.
    **{"symlink": 88, "symlinkat": 266, "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260},
    **{"setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "setxattrat": 463},
    **{"removexattr": 197, "lremovexattr": 198, "fremovexattr": 199, "removexattrat": 466},
}
_CONNECT: Final = 42
# What Landlock does not see: modes and times. Refused only where no mount is read-only.
_METADATA: Final = {
    **{"chmod": 90, "fchmod": 91, "fchmodat": 268, "utime": 132, "utimes": 235},
    **{"futimesat": 261, "utimensat": 280, "truncate": 76},
}
# Call -> which argument is a mode that must not hold setuid or setgid.
_MODES: Final = {
    **{("chmod", 90): 1, ("fchmod", 91): 1, ("fchmodat", 268): 2, ("creat", 85): 1},
    **{("mkdir", 83): 1, ("mkdirat", 258): 2},
}
_OPENS: Final = {("open", 2): 1, ("openat", 257): 2}  # -> the flags; the mode follows them
_NODES: Final = {("mknod", 133): 1, ("mknodat", 259): 2}
_NODE_KINDS: Final = (0, stat.S_IFREG, stat.S_IFSOCK)


def _instruction(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _argument(number: int) -> bytes:
    """Load the lower half of an argument."""
    return _instruction(_LOAD, _ARGUMENTS + 8 * number)


def _refusal(code: int = errno.EPERM) -> bytes:
    return _instruction(_RETURN, _ERROR | code)


_ALLOWED: Final = _instruction(_RETURN, _ALLOW)


def _of_call(number: int, *body: bytes) -> Iterator[bytes]:
    """Yield `body` for one system call; it ends with a return."""
    yield _instruction(_EQUAL, number, 0, len(body))
    yield from body


def _unless_bits(argument: int, bits: int) -> tuple[bytes, ...]:
    """Refuse the call if one of `bits` is in the argument."""
    return (_argument(argument), _instruction(_ANY_BIT, bits, 1, 0), _ALLOWED, _refusal())


def _rules(metadata: bool, connects: bool) -> Iterator[bytes]:
    for number in _UNKNOWN.values():
        yield from _of_call(number, _refusal(errno.ENOSYS))
    refused = (*_REFUSED.values(), *(() if connects else (_CONNECT,)))
    for number in (*refused, *(() if metadata else _METADATA.values())):
        yield from _of_call(number, _refusal())
    for (_name, number), argument in _MODES.items():
        yield from _of_call(number, *_unless_bits(argument, _SETUID_SETGID))
    for (_name, number), argument in _OPENS.items():
        makes = _instruction(_ANY_BIT, _MAKES_FILE, 1, 0)
        mode = _unless_bits(argument + 1, _SETUID_SETGID)
        yield from _of_call(number, _argument(argument), makes, _ALLOWED, *mode)
    for (_name, number), argument in _NODES.items():
        kinds = [
            _instruction(_EQUAL, kind, len(_NODE_KINDS) - i, 0)
            for i, kind in enumerate(_NODE_KINDS)
        ]
        mode = _unless_bits(argument, _SETUID_SETGID)
        body = (_argument(argument), _instruction(_AND, stat.S_IFMT(0xFFFFFFFF)), *kinds)
        yield from _of_call(number, *body, _refusal(), *mode)
    yield from _of_call(56, *_unless_bits(0, _CLONE_NAMESPACES))
    # A datagram to a named socket needs no connection.
    unix = _instruction(_EQUAL, _AF_UNIX, 1, 0)
    stream = _instruction(_EQUAL, socket.SOCK_STREAM, 0, 1)
    kind = (_argument(1), _instruction(_AND, _SOCKET_KINDS), stream, _ALLOWED, _refusal())
    for number in (41, 53):  # socket, socketpair
        yield from _of_call(number, _argument(0), unix, _refusal(errno.EAFNOSUPPORT), *kind)


def filter_program(*, metadata: bool, connects: bool = False) -> bytes:
    """Return the filter. `metadata`: modes and times of files may be changed; `connects`:
    connections to Unix sockets are allowed."""
    begin = (
        _instruction(_LOAD, _ARCHITECTURE_AT),
        _instruction(_EQUAL, _ARCHITECTURE, 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
        _instruction(_AT_LEAST, _X32, 0, 1),
        _refusal(errno.ENOSYS),
    )
    # A body changes the accumulator, but it always returns, so that no later rule reads it.
    return b"".join((*begin, *_rules(metadata, connects), _ALLOWED))
