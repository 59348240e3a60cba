# SPDX-License-Identifier: Apache-2.0
"""Where the parts of Downpour are on this machine. Only this module knows its own place.

In a checkout, everything is below the checkout. In an installation (a wheel, `make install`, a
Debian package), data are inside the packages, results go below the working directory, and the C
programs are in a directory of the installation.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

# The directory that holds the rooms: a checkout, or where Python packages are installed.
ROOT: Final = Path(__file__).resolve().parents[1]
IN_CHECKOUT: Final = (ROOT / "meson.build").is_file()
VARIABLE: Final = "DOWNPOUR_PROGRAMS"  # a directory of C programs that takes precedence
LIBEXEC: Final = "libexec/downpour"  # below a prefix: programs that only Downpour starts
OWN: Final = Path("lib/downpour")  # below a prefix: the Python environment of `make install`


def _prefixes() -> tuple[Path, ...]:
    """Return where programs may be installed, the nearest place first."""
    here = Path(sys.prefix)
    if here.parts[-2:] == OWN.parts:
        here = here.parents[1]
    return tuple(dict.fromkeys((here, Path("/usr/local"), Path("/usr"))))


PREFIXES: Final = _prefixes()


def _build() -> Path:
    if given := os.environ.get(VARIABLE):
        return Path(given).absolute()
    if IN_CHECKOUT:
        return ROOT / "build"
    found = (prefix / LIBEXEC for prefix in PREFIXES)
    return next((path for path in found if path.is_dir()), PREFIXES[0] / LIBEXEC)


BUILD: Final = _build()  # the C programs: of a Meson build, or installed
RUNS: Final = (ROOT if IN_CHECKOUT else Path.cwd()) / "runs"  # results of experiments
EXPERIMENTS: Final = ROOT / "experiments/catalogue"  # bundled experiments, their schema and bands
TOPOLOGIES: Final = ROOT / "topologies"  # bundled topologies and their schema
# The interpreter that has the required Python packages.
PYTHON: Final = next(
    path
    for path in (ROOT / ".venv/bin/python", Path(sys.executable))
    if path == Path(sys.executable) or (IN_CHECKOUT and path.exists())
)

# The C programs: name -> path below Meson's build directory.
PROGRAMS: Final[Mapping[str, str]] = {
    "clockoffset.so": "experiments/lag/clockoffset.so",
    "ctcp-load": "topologies/ctcp/ctcp-load",
    "ctcp.bpf.o": "topologies/ctcp/ctcp.bpf.o",
    "cut-link": "topologies/wire/cut-link",
    "fcast-recv": "fcast/fcast-recv",
    "fcast-send": "fcast/fcast-send",
    "fmtp-recv": "fmtp/fmtp-recv",
    "fmtp-send": "fmtp/fmtp-send",
    "hostlag": "experiments/lag/hostlag",
    "ldmd": "ldm7/ldmd/ldmd",
    "m2c-recv": "m2c/m2c-recv",
    "m2c-send": "m2c/m2c-send",
    "pqact": "ldm7/site/pqact/pqact",
    "pqcat": "ldm7/pqcat",
    "pqcreate": "ldm7/pqcreate",
    "pqinsert": "ldm7/pqinsert",
    "rtstats": "ldm7/site/rtstats/rtstats",
    "selftest-timers": "virtual/selftest/selftest-timers",
    "selftest-udp": "virtual/selftest/selftest-udp",
    "vlanutil": "ldm7/vlanutil",
    "wire-relay": "topologies/wire/wire-relay",
}


def _candidates(name: str, build: Path) -> Iterator[Path]:
    yield build / PROGRAMS[name]
    yield build / name
    if IN_CHECKOUT:
        return
    for prefix in PREFIXES:
        yield prefix / "bin" / name
        yield prefix / LIBEXEC / name


def program(name: str, build: Path = BUILD) -> Path:
    """Return where the C program `name` (a key of PROGRAMS) is; if it is nowhere, where it should
    be.

    `build`: a build directory, or a directory that contains the programs.
    """
    places = list(_candidates(name, build))
    return next((path for path in places if path.is_file()), places[0 if IN_CHECKOUT else 1])


def absent_programs(names: Iterable[str], build: Path = BUILD) -> str | None:
    """Return a line about those of `names` that are missing, and how to get them; None if none
    is."""
    lacking = [name for name in names if not os.access(program(name, build), os.X_OK)]
    if not lacking:
        return None
    if IN_CHECKOUT:
        text = ", ".join(PROGRAMS[name] for name in lacking)
        valid = "build them with `make build` in the checkout"
        return f"found no program {text} in {build}; valid: {valid}"
    return (
        f"found no program {', '.join(lacking)} in {build}; valid: install the C programs "
        f"(the package downpour, or `make install`), or name their directory by {VARIABLE}"
    )
