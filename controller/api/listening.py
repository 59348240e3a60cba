# SPDX-License-Identifier: Apache-2.0
"""The sockets of the REST interface, and its TLS."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

BACKLOG = 128


class ListenError(Exception):
    """An address cannot be used; the text says which and why."""


@dataclass(frozen=True)
class Tls:
    """PEM files. `ca`: clients must show a certificate that it signed."""

    key: Path
    certificate: Path
    ca: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return the TLS context. Raises ListenError naming the file that cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        for option, path in (("key", self.key), ("cert", self.certificate), ("ca", self.ca)):
            if path is not None and not os.access(path, os.R_OK):
                raise ListenError(f"--rest-tls-{option} {path}: no readable file")
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.ca is not None:
                context.load_verify_locations(self.ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            raise ListenError(
                f"--rest-tls-key {self.key}, --rest-tls-cert {self.certificate}: "
                f"{error.strerror or error}; valid: a PEM key and its certificate "
                "(python -m controller keys DIR makes both)"
            ) from error
        return context


def listen_unix(path: Path) -> socket.socket:
    """Return a listening Unix socket for the owner only. It replaces a stale socket.

    Raises ListenError.
    """
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with probe, contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ListenError(f"--rest-socket {path}: exists and is not a socket")
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        except OSError as error:
            raise ListenError(f"--rest-socket {path}: {error.strerror or error}") from error
        else:
            raise ListenError(f"--rest-socket {path}: a server is already listening there")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Not by umask, which would affect other threads.
        os.fchmod(listener.fileno(), 0o600)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(f"--rest-socket {path}: {error.strerror or error}") from error
    return listener


def listen_tcp(option: str, host: str, port: int) -> socket.socket:
    """Listen on the TCP address that `option` gave. Raises ListenError, which names the option."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        why = "port in use" if error.errno == errno.EADDRINUSE else error.strerror or error
        raise ListenError(f"{option} {host}:{port}: {why}") from error
    return listener
