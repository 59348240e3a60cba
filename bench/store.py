# SPDX-License-Identifier: Apache-2.0
"""A bench run's directory: manifest.json, results.jsonl (a line per job, as they end), tables."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.jobs import Job, job_from
from bench.tools import TOOLS, missing
from protocols import flute

Result = tuple[Job, dict[str, Any]]


class ResultsError(Exception):
    """A file of results cannot be read; the text says where."""


def parse_results(text: str, name: str) -> list[Result]:
    """Return the lines of results.jsonl (`name`), without an unfinished last line (of a killed
    run). If a job ran twice, the later result counts. Raises ResultsError."""
    found: dict[str, Result] = {}
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            continue
        try:
            data = json.loads(line)
            job, result = job_from(data["job"]), data["result"]
        except (ValueError, KeyError, TypeError) as error:
            raise ResultsError(f"{name}:{number}: {error}; another version wrote it?") from error
        found[job.key] = (job, result)
    return list(found.values())


class Store:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lines = directory / "results.jsonl"

    @property
    def results(self) -> list[Result]:
        """Return the results so far."""
        if not self._lines.exists():
            return []
        return parse_results(self._lines.read_text(encoding="utf-8"), str(self._lines))

    def add(self, job: Job, result: dict[str, Any]) -> None:
        """Append a result."""
        line = json.dumps({"job": job.to_dict(), "result": result}, sort_keys=True)
        with self._lines.open("a", encoding="utf-8") as out:
            out.write(line + "\n")

    def write(self, name: str, text: str) -> None:
        """Write a file completely, or not at all."""
        temporary = self.directory / f".{name}.partial"
        temporary.write_text(text, encoding="utf-8")
        temporary.rename(self.directory / name)


def new_directory(runs: Path) -> Path:
    """Make a directory named after the time, and point `latest` to it."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    directory = runs / stamp
    directory.mkdir(parents=True)
    link = runs / ".latest"
    link.unlink(missing_ok=True)
    link.symlink_to(stamp)
    link.rename(runs / "latest")
    return directory


def _said(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return ""
    return (done.stdout or done.stderr).strip()


def not_installed(build: Path) -> dict[str, list[str]]:
    """Return each tool with what it needs and this machine lacks."""
    return {tool.name: needs for tool in TOOLS if (needs := missing(tool, build))}


def manifest(root: Path, build: Path) -> dict[str, Any]:
    """Return where and with what the figures were measured."""
    packages = sorted({tool.adapter.package for tool in TOOLS} - {"", flute.CRATE})
    show = ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *packages]
    return {
        "git": _said(["git", "-C", str(root), "describe", "--always", "--dirty"]),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg(),
        "packages": _said(show).splitlines(),
        "not_installed": not_installed(build),
    }
