# SPDX-License-Identifier: Apache-2.0
"""What the kernel process of a guest sees of the host's files: programs, a small /etc, this
installation, and what is shared. It sees nothing else, whatever the guest's root mounts."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from common.places import BUILD, IN_CHECKOUT, LIBEXEC, OWN, PREFIXES, PYTHON, ROOT

SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# The files in /etc by which programs and libraries are configured. No keys, passwords or user
# accounts.
ETC: Final = (
    *("alternatives", "bash.bashrc", "debian_version", "ethertypes", "gai.conf", "host.conf"),
    *("inputrc", "iproute2", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "magic"),
    "java-*-openjdk",  # without its security settings, Java does not start
    *("nsswitch.conf", "os-release", "protocols", "python3*", "rpc", "services"),
    *("ssl/openssl.cnf", "terminfo", "xattr.conf"),
)
HOSTS: Final = "127.0.0.1 localhost\n127.0.1.1 guest\n::1 localhost ip6-localhost\n"
ACCOUNTS: Final = ("passwd", "group")
PEOPLE_FROM, NOBODY = 1000, 65534  # user and group numbers
# A guest has its own in these places; the host's must not be visible beneath them.
EMPTY: Final = (
    *("/dev", "/proc", "/sys", "/tmp", "/run", "/root", "/home", "/mnt", "/opt", "/srv"),
    *("/var/cache", "/var/lib", "/var/log", "/var/spool", "/var/tmp", "/guest"),
)
LINKS: Final = {"/var/run": "/run", "/var/lock": "/run/lock", "/etc/mtab": "/proc/self/mounts"}
# In this checkout, but not for guests: other runs (other people's too), and the repository.
NOT_SHOWN: Final = ("runs", ".git")


@dataclass(frozen=True)
class View:
    """Files at the same places as on the host, and files that only the guest has. `empty`:
    directories that appear empty."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    empty: tuple[str, ...] = EMPTY
    links: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)


def installation() -> list[Path]:
    """Return where this installation's files are: its Python, packages and C programs."""
    prefixes = [prefix / part for prefix in PREFIXES for part in ("bin", LIBEXEC, OWN)]
    return [
        *(ROOT, BUILD, PYTHON.parents[1], PYTHON.resolve().parents[1]),
        *(Path(prefix) for prefix in dict.fromkeys((sys.prefix, sys.base_prefix))),
        *prefixes,
    ]


def without_nested(paths: Iterable[Path]) -> list[Path]:
    """Return those that exist, as named and with links resolved, without those below others. Never
    the whole file system or home directory: a Python may be installed there, but neither belongs to
    it."""
    named = dict.fromkeys(q for p in paths if p.exists() for q in (p.absolute(), p.resolve()))
    for whole in (Path("/"), Path.home()):
        named.pop(whole, None)
    return [p for p in named if not any(p != q and p.is_relative_to(q) for q in named)]


def accounts(text: str) -> str:
    """Return the lines of passwd or group that belong to programs, not to people."""
    lines = [line for line in text.splitlines() if line.count(":") >= 3]
    numbers = [line.split(":")[2] for line in lines]
    return "".join(
        f"{line}\n"
        for line, number in zip(lines, numbers, strict=True)
        if number.isdigit() and (int(number) < PEOPLE_FROM or int(number) == NOBODY)
    )


def view_of(read: Iterable[Path], write: Iterable[Path]) -> View:
    """Return the view of a guest that reads the system, this installation and `read`, and writes
    `write`."""
    system = [Path(name) for name in SYSTEM]
    links = {str(p): str(p.readlink()) for p in system if p.is_symlink()}
    real = [p for p in system if p.is_dir() and not p.is_symlink()]
    etc = [path for name in ETC for path in sorted(Path("/etc").glob(name))]
    shown = without_nested([*real, *installation(), *read])
    texts = {f"/etc/{name}": accounts(_text(Path("/etc") / name)) for name in ACCOUNTS}
    hidden = [str(ROOT / name) for name in NOT_SHOWN if IN_CHECKOUT and (ROOT / name).is_dir()]
    return View(
        read=(*map(str, shown), *map(str, etc), "/proc/cpuinfo"),
        write=tuple(str(path) for path in write),
        empty=(*EMPTY, *hidden),
        links={**LINKS, **links},
        texts={**texts, "/etc/hosts": HOSTS, "/etc/hostname": "guest\n", "/etc/resolv.conf": ""},
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
