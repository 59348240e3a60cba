# SPDX-License-Identifier: Apache-2.0
"""Write manifest.json: all that is needed to repeat a run, and the machine it ran on."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common import checkout, digests, places
from experiments.design.selection import Order
from experiments.design.spec import AnySpec
from experiments.runs.preparation import Planned
from experiments.runs.records import (
    FORMAT,
    Environment,
    GitState,
    Machine,
    Manifest,
    TraceRecord,
)

PACKAGES: Final = (
    "fastapi",
    "httpx",
    "matplotlib",
    "mininet",
    "networkx",
    "numpy",
    "os-ken",
    "pydantic",
    "rich",
    "ruamel.yaml",
    "scipy",
    "uvicorn",
)
PROGRAMS: Final = (
    ("ovs-vswitchd", ("ovs-vswitchd", "--version")),
    ("tc", ("tc", "-V")),
    ("iptables", ("iptables", "--version")),
    ("sar", ("sar", "-V")),
    ("ps", ("ps", "--version")),
)
SYSCTLS: Final = (
    "net/core/rmem_max",
    "net/core/rmem_default",
    "net/core/wmem_max",
    "net/core/wmem_default",
    "net/core/netdev_max_backlog",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_available_congestion_control",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/udp_mem",
    "kernel/sched_rt_runtime_us",
)


def _output(argv: Sequence[str], cwd: Path | None = None) -> str | None:
    """Return the first line that a program prints; None if it cannot run."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, cwd=cwd)
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = (done.stdout or done.stderr).strip()
    return text.splitlines()[0] if done.returncode == 0 and text else None


def git_state(root: Path) -> GitState:
    """Return the commit, and whether the checkout differs from it; None without a repository.

    A copy that Ansible made on another machine says so in .checkout-commit.
    """
    with contextlib.suppress(OSError):
        copied, *more = (root / ".checkout-commit").read_text(encoding="ascii").split()
        return {"commit": copied, "dirty": bool(more)}
    # Under sudo the checkout belongs to another user, which git refuses by default.
    git = ["git", "-c", f"safe.directory={root}"]
    commit = _output([*git, "rev-parse", "HEAD"], root)
    if commit is None:
        return {"commit": None, "dirty": None}
    dirty = _output([*git, "status", "--porcelain", "--untracked-files=no"], root)
    return {"commit": commit, "dirty": dirty is not None}


@functools.cache
def _package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _sysctl(name: str) -> str | None:
    try:
        return " ".join((Path("/proc/sys") / name).read_text().split())
    except OSError:
        return None


def cpu_model(cpuinfo: str) -> str:
    """Return the model name in the text of /proc/cpuinfo."""
    for line in cpuinfo.splitlines():
        if line.lower().startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def programs() -> dict[str, str | None]:
    """Return the versions of the system's programs that affect a run."""
    return {name: _output(argv) for name, argv in PROGRAMS}


def machine() -> Machine:
    """Describe this machine."""
    cpuinfo = Path("/proc/cpuinfo")
    return {
        "cpu": cpu_model(cpuinfo.read_text() if cpuinfo.exists() else ""),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    }


def code(build: Path) -> dict[str, str]:
    """Return the digests of the Python files and C programs that run cells."""
    return checkout.describe(places.ROOT, build, sorted(places.PROGRAMS))


def environment(build: Path) -> Environment:
    """Describe what else may change a digit: libraries, and Downpour's programs as built."""
    try:
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        distribution = ""
    found = {name: places.program(name, build) for name in sorted(places.PROGRAMS)}
    return {
        "distribution": distribution,
        "c_library": " ".join(platform.libc_ver()),
        "programs": {n: digests.digest_of(p).sha256 for n, p in found.items() if p.is_file()},
    }


def traces_of(planned: Sequence[Planned]) -> dict[str, TraceRecord]:
    """Return each trace, with its file in the run's directory and the file's digest."""
    found: dict[str, TraceRecord] = {}
    for item in planned:
        key = item.cell.trace_key
        if key not in found:
            found[key] = {
                **item.trace.to_dict(),
                "file": item.trace.file,
                "sha256": item.trace.sha256,
            }
    return found


def build(
    spec: AnySpec,
    planned: Sequence[Planned],
    *,
    root: Path,
    started: float,
    command: Sequence[str],
    order: Order,
    names_in_order: Sequence[str],
    programs_in: Path = places.BUILD,
) -> Manifest:
    """Build the manifest before the first cell runs."""
    cells = [item.cell for item in planned]
    return {
        "format": FORMAT,
        "experiment": spec.name,
        "description": spec.description,
        "level": cells[0].level,
        "command": list(command),
        "started": started,
        "spec": spec.model_dump(mode="json"),
        "cells": [cell.to_dict() for cell in cells],
        "order": order,
        "cells_in_order": list(names_in_order),
        "seeds": sorted({cell.seed for cell in cells}),
        "traces": traces_of(planned),
        "git": git_state(root),
        "code": code(programs_in),
        "python": {
            "version": sys.version.split()[0],
            "packages": {name: _package_version(name) for name in PACKAGES},
        },
        "programs": programs(),
        "kernel": platform.platform(),
        "sysctls": {name.replace("/", "."): _sysctl(name) for name in SYSCTLS},
        "machine": {**machine(), "load_before": list(os.getloadavg())},
        "environment": environment(programs_in),
    }
