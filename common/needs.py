# SPDX-License-Identifier: Apache-2.0
"""Programs, libraries and Python packages that Downpour needs: what for, and in which package.

Uses only the standard library: this runs where nothing is installed yet.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from common.findings import ADVICE, MISSING, OK, Finding

# Directories of programs that may be missing in a user's PATH.
MORE_PATH: Final = ("/usr/sbin", "/usr/local/sbin", "/usr/lib/openvswitch-switch", "/sbin")
VERSION_TIMEOUT_S: Final = 10


class Use(Enum):
    """What something is needed for."""

    NETWORKS = "networks"  # native and virtual, since a guest runs its host's programs
    PYTHON = "Python"
    COMPILE = "C programs"
    KERNEL = "guest's kernel"
    DEVELOP = "development"


@dataclass(frozen=True)
class Need:
    """A program (`version`: arguments that print its version), a library (its `header`) or a Python
    module, and its Debian package. Not `necessary`: something works without it."""

    name: str
    package: str
    use: Use
    version: tuple[str, ...] = ()
    header: str = ""
    module: bool = False
    necessary: bool = True


def _program(name: str, package: str, use: Use, *version: str, necessary: bool = True) -> Need:
    return Need(name, package, use, version=version, necessary=necessary)


NEEDS: Final[tuple[Need, ...]] = (
    _program("ip", "iproute2", Use.NETWORKS, "-V"),
    _program("tc", "iproute2", Use.NETWORKS, "-V"),
    _program("ethtool", "ethtool", Use.NETWORKS, "--version"),
    _program("nsenter", "util-linux", Use.NETWORKS, "--version"),
    _program("chrt", "util-linux", Use.NETWORKS, "--version", necessary=False),
    _program("mnexec", "mininet", Use.NETWORKS, "-v"),
    _program("ifconfig", "net-tools", Use.NETWORKS),
    _program("ping", "iputils-ping", Use.NETWORKS, "-V"),
    _program("iptables-save", "iptables", Use.NETWORKS, "--version"),
    _program("ovs-vsctl", "openvswitch-switch", Use.NETWORKS, "--version"),
    _program("ovs-ofctl", "openvswitch-switch", Use.NETWORKS, "--version"),
    _program("ovs-vswitchd", "openvswitch-switch", Use.NETWORKS, "--version"),
    _program("ovsdb-server", "openvswitch-switch", Use.NETWORKS, "--version"),
    _program("sar", "sysstat", Use.NETWORKS, "-V"),
    _program("ps", "procps", Use.NETWORKS, "--version"),
    _program("socat", "socat", Use.NETWORKS, "-V", necessary=False),
    _program("tcpdump", "tcpdump", Use.NETWORKS, "--version", necessary=False),
    _program("iperf3", "iperf3", Use.NETWORKS, "--version", necessary=False),
    *(
        Need(name, "", Use.PYTHON, module=True)
        for name in (
            *("fastapi", "httpx", "jinja2", "matplotlib", "mininet", "networkx", "numpy"),
            *("os_ken", "pydantic", "rich", "ruamel.yaml", "scipy", "uvicorn"),
        )
    ),
    _program("meson", "meson", Use.COMPILE, "--version"),
    _program("ninja", "ninja-build", Use.COMPILE, "--version"),
    _program("cc", "gcc", Use.COMPILE, "--version"),
    _program("pkg-config", "pkg-config", Use.COMPILE, "--version"),
    Need("libcrypto", "libssl-dev", Use.COMPILE, header="openssl/evp.h"),
    Need("libcurl", "libcurl4-openssl-dev", Use.COMPILE, header="curl/curl.h"),
    Need("expat", "libexpat1-dev", Use.COMPILE, header="expat.h"),
    Need("zlib", "zlib1g-dev", Use.COMPILE, header="zlib.h"),
    Need("isa-l", "libisal-dev", Use.COMPILE, header="isa-l.h"),
    Need("ipsec-mb", "libipsec-mb-dev", Use.COMPILE, header="intel-ipsec-mb.h", necessary=False),
    Need("jansson", "libjansson-dev", Use.COMPILE, header="jansson.h"),
    Need("libseccomp", "libseccomp-dev", Use.COMPILE, header="seccomp.h"),
    Need("pcre2", "libpcre2-dev", Use.COMPILE, header="pcre2.h"),
    Need("cmocka", "libcmocka-dev", Use.COMPILE, header="cmocka.h"),
    Need("libbpf", "libbpf-dev", Use.COMPILE, header="bpf/libbpf.h", necessary=False),
    _program("clang", "clang", Use.COMPILE, "--version", necessary=False),
    _program("gcc", "gcc", Use.KERNEL, "--version"),
    _program("make", "make", Use.KERNEL, "--version"),
    _program("ld", "binutils", Use.KERNEL, "--version"),
    _program("flex", "flex", Use.KERNEL, "--version"),
    _program("bison", "bison", Use.KERNEL, "--version"),
    _program("bc", "bc", Use.KERNEL, "--version"),
    _program("xz", "xz-utils", Use.KERNEL, "--version"),
    _program("git", "git", Use.DEVELOP, "--version"),
    _program("clang-format", "clang-format", Use.DEVELOP, "--version"),
    _program("clang-tidy", "clang-tidy", Use.DEVELOP, "--version"),
    _program("mandoc", "mandoc", Use.DEVELOP),
    _program("dot", "graphviz", Use.DEVELOP, "-V"),
    _program("tshark", "tshark", Use.DEVELOP, "--version", necessary=False),
    *(
        Need(name, "", Use.DEVELOP, module=True)
        for name in ("hypothesis", "jsonschema", "mypy", "pytest", "ruff")
    ),
)


@dataclass(frozen=True)
class Looked:
    """What was found for a need. `version` None: nothing; "": it exists."""

    need: Need
    version: str | None

    @property
    def missing(self) -> bool:
        """Return whether it is necessary and was not found."""
        return self.version is None and self.need.necessary


def find_program(name: str, root: Path = Path("/")) -> str | None:
    """Return the path of a program, also from directories that may be missing in a user's PATH."""
    if root == Path("/"):
        return shutil.which(name, path=":".join((os.environ.get("PATH", ""), *MORE_PATH)))
    places = ("/usr/bin", "/bin", *MORE_PATH)
    return shutil.which(name, path=":".join(str(root / place[1:]) for place in places))


def _has_header(header: str, root: Path) -> bool:
    include = root / "usr/include"
    return any(
        path.is_file() for path in (include / header, root / "usr/local/include" / header)
    ) or any(include.glob(f"*-linux-gnu*/{header}"))


def _version(path: str, arguments: Sequence[str]) -> str:
    """Return the version that a program prints; "" if it prints none."""
    if not arguments:
        return ""
    try:
        result = subprocess.run(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    # Some programs print options first, and some print to stderr.
    found = re.search(r"\d+(\.\d+)+[\w.+-]*", result.stdout + result.stderr)
    return found[0] if found else ""


def missing_modules(python: str, names: Sequence[str]) -> set[str]:
    """Return those of `names` that the interpreter `python` cannot import, without importing
    any."""
    code = (
        "import importlib.util as u, sys\n"
        "def has(name):\n"
        "    try: return u.find_spec(name) is not None\n"
        "    except (ImportError, ValueError): return False\n"
        "print(*[n for n in sys.argv[1:] if not has(n)])\n"
    )
    try:
        result = subprocess.run(
            [python, "-B", "-c", code, *names],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=VERSION_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return set(names)
    return set(result.stdout.split()) if result.returncode == 0 else set(names)


def look(python: str, *, needs: Sequence[Need] = NEEDS, root: Path = Path("/")) -> list[Looked]:
    """Look for each need below `root`, and for Python modules in the interpreter `python`."""
    absent = missing_modules(python, [need.name for need in needs if need.module])

    def one(need: Need) -> Looked:
        if need.module:
            return Looked(need, None if need.name in absent else "")
        if need.header:
            return Looked(need, "" if _has_header(need.header, root) else None)
        path = find_program(need.name, root)
        return Looked(need, None if path is None else _version(path, need.version))

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(one, needs))


def packages_of(looked: Iterable[Looked]) -> list[str]:
    """Return the Debian packages of everything that is missing, each once."""
    names = (one.need.package for one in looked if one.missing)
    return list(dict.fromkeys(name for name in names if name))


def findings(looked: Sequence[Looked]) -> list[Finding]:
    """Return one finding for everything that was found, and one for each need that was not."""
    found = []
    if here := [
        f"{one.need.name} {one.version}".strip() for one in looked if one.version is not None
    ]:
        found.append(Finding(OK, "found", ", ".join(here)))
    modules = [one.need.name for one in looked if one.missing and one.need.module]
    if modules:
        found.append(Finding(MISSING, "modules", ", ".join(modules)))
    for one in looked:
        if one.version is None and not one.need.module:
            level = MISSING if one.need.necessary else ADVICE
            found.append(Finding(level, one.need.name, f"get it: apt install {one.need.package}"))
    return found
