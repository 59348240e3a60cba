# SPDX-License-Identifier: Apache-2.0
"""A worker's environment. A guest runs its host's programs, so different packages make a different
machine, whose figures may differ. Cells of one run go to workers with the same environment."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from common.places import BUILD, ROOT
from experiments.runs import manifest
from virtual.kernel_build import KernelError, find_kernel

Environment = Mapping[str, str]  # what -> its version or digest

PACKAGES: Final = (
    "iproute2",
    "iptables",
    "libc6",
    "openvswitch-common",
    "openvswitch-switch",
    "procps",
    "python3",
    "sysstat",
)
SHOWN: Final = 3  # differences in a message
NO_KERNEL: Final = "none"


def describe(build: Path = BUILD) -> dict[str, str]:
    """Describe this machine's checkout, kernel for guests, programs and packages."""
    git = manifest.git_state(ROOT)
    found = {"commit": git["commit"] or "unknown"}
    if git["dirty"]:
        found["changes"] = _digest(_printed("git", "-C", str(ROOT), "diff", "HEAD"))
    try:
        kernel = find_kernel()
    except KernelError:
        kernel = None
    found["kernel"] = NO_KERNEL if kernel is None else f"{kernel.version} {kernel.digest}"
    found["python"] = platform.python_version()
    found["Python packages"] = _digest("\n".join(_python_packages()))
    programs = manifest.environment(build)["programs"]
    found["programs"] = _digest(json.dumps(programs, sort_keys=True))
    return found | _system_packages()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _printed(*argv: str) -> str:
    with contextlib.suppress(OSError):
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
        return done.stdout
    return ""


def _python_packages() -> list[str]:
    found = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions()}
    return sorted(f"{name} {version}" for name, version in found.items())


def _system_packages() -> dict[str, str]:
    shown = _printed("dpkg-query", "--show", "--showformat=${Package} ${Version}\n", *PACKAGES)
    return dict(line.split(" ", 1) for line in shown.splitlines() if " " in line)


def digest(environment: Environment) -> str:
    """Return the digest of an environment. Workers are compared by it."""
    return _digest(json.dumps(dict(environment), sort_keys=True))


def difference(one: Environment, other: Environment) -> str:
    """Return how two environments differ; "" if they do not."""
    names = [name for name in {**one, **other} if one.get(name) != other.get(name)]
    if not names:
        return ""
    shown = [
        f"{name}: {one.get(name, 'none')} and {other.get(name, 'none')}" for name in names[:SHOWN]
    ]
    more = [f"{len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return "; ".join([*shown, *more])
