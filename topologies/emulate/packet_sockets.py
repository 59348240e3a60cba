# SPDX-License-Identifier: Apache-2.0
"""The packet sockets through which Open vSwitch's userspace datapath receives frames.

Their default buffer holds about 90 frames: 7 ms at 160 Mbit/s. Frames that do not fit are dropped.
No counter of an interface or switch port shows that, only the socket's own. So this module enlarges
the buffers, without changing a sysctl, and reads the drops. It does both on copies of the daemon's
descriptors (pidfd_getfd(2), Linux >= 5.6).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

# 4 MB hold about 1,800 full frames: 45 ms of 480 Mbit/s (m = 24, r = 20 Mbit/s by unicast).
RECEIVE_BUFFER_BYTES = 4_000_000

_SYS_PIDFD_GETFD = 438  # the same number on every architecture
_SO_RCVBUFFORCE = 33
_SO_MEMINFO = 55
_MEMINFO = struct.Struct("=9I")  # <linux/sock_diag.h>: the last one is SK_MEMINFO_DROPS
_libc = ctypes.CDLL(None, use_errno=True)


def sockets_of(pid: int) -> Iterator[socket.socket]:
    """Yield a process's sockets, as copies in this process. Each closes when the next is requested.
    Raises OSError if the process may not be inspected."""
    pidfd = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if not str(entry.readlink()).startswith("socket:"):
                    continue
                copy = _libc.syscall(_SYS_PIDFD_GETFD, pidfd, int(entry.name), 0)
                if copy < 0:
                    error = ctypes.get_errno()
                    if error == errno.EBADF:  # closed since it was listed
                        continue
                    raise OSError(error, f"pidfd_getfd: {os.strerror(error)}")
                with socket.socket(fileno=copy) as found:
                    yield found
    finally:
        os.close(pidfd)


def packet_sockets(pid: int) -> Iterator[socket.socket]:
    """Yield a process's AF_PACKET sockets that are bound to an interface, as `sockets_of`."""
    for found in sockets_of(pid):
        if found.family == socket.AF_PACKET and found.getsockname()[0]:
            yield found


def enlarge(pid: int, size_bytes: int = RECEIVE_BUFFER_BYTES) -> dict[str, int]:
    """Give every packet socket of the process a receive buffer of `size_bytes`.

    Return by interface the size that the kernel granted (bytes; it keeps twice the requested size,
    for its bookkeeping).
    """
    granted: dict[str, int] = {}
    for found in packet_sockets(pid):
        found.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, size_bytes)
        size = found.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        interface = found.getsockname()[0]
        granted[interface] = min(size, granted.get(interface, size))
    return granted


def drops(pid: int) -> dict[str, int]:
    """Return by interface the frames that the process's packet sockets have dropped since they were
    opened."""
    total: dict[str, int] = {}
    for found in packet_sockets(pid):
        memory = found.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size)
        interface = found.getsockname()[0]
        total[interface] = total.get(interface, 0) + _MEMINFO.unpack(memory)[8]
    return total
