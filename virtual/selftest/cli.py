# SPDX-License-Identifier: Apache-2.0
"""`downpour virtual selftest`: is virtual time true? Checks every timer and shaper against
theory."""

from __future__ import annotations

import io
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from common.counting import counted
from common.exit_codes import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from common.files import write_json
from common.places import PYTHON, ROOT
from common.shell import die_with_parent
from virtual.guest import GuestError, GuestSpec, guest_python, run_guest
from virtual.kernel_build import Kernel, KernelError, ensure_kernel
from virtual.selftest import parts
from virtual.selftest.inside import TIMERS
from virtual.selftest.pair import (
    UDP,
)
from virtual.selftest.rows import Reasons, Row, document, from_line, heading, table_line

LIMIT_S: Final = 600.0
ALONE: Final = (
    "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
)  # fmt: skip
INSIDE: Final = ("-m", "virtual.selftest.inside")


class SelftestError(Exception):
    """The self-test could not be carried out; the text says why."""


class Lines(io.BytesIO):
    """Takes bytes as they come and passes on whole lines."""

    def __init__(self, take: Callable[[str], None]) -> None:
        super().__init__()
        self._take = take
        self._rest = b""

    def write(self, data: Any) -> int:
        *lines, self._rest = (self._rest + bytes(data)).split(b"\n")
        for line in lines:
            self._take(line.decode("utf-8", "replace"))
        return len(data)


class Table:
    """Prints rows as they come, and at the end what the tolerances' letters mean."""

    def __init__(self, *, judged: bool) -> None:
        self.rows: list[Row] = []
        self._judged = judged
        self._reasons = Reasons()

    def take(self, line: str) -> None:
        """Add the row in a line. Raises SelftestError for a line that is not a row."""
        try:
            self.add(from_line(line))
        except ValueError as error:
            raise SelftestError(str(error)) from None

    def add(self, row: Row) -> None:
        """Print a row."""
        if not self.rows:
            print(heading())
        self.rows.append(row)
        letter = self._reasons.letter(row.reason)
        print(table_line(row, judged=self._judged, letter=letter), flush=True)

    def legend(self) -> None:
        print("\ntolerances:")
        for line in self._reasons.legend():
            print(f"  {line}")


def _virtual(table: Table, kernel: Kernel) -> dict[str, Any]:
    """Fill the table from a guest. Raises GuestError, SelftestError."""
    complaints: list[str] = []
    code, times = run_guest(
        kernel,
        GuestSpec((*ALONE, guest_python(), *INSIDE), limit_s=LIMIT_S),
        stdout=Lines(table.take),
        stderr=Lines(complaints.append),
    )
    if code != 0:
        raise SelftestError(f"in the guest, exit code {code}: {' '.join(complaints)[-500:]}")
    return {"kernel": kernel.version, "virtual_s": times.virtual_s, "real_s": times.real_s}


def _native(table: Table) -> dict[str, Any]:
    """Fill the table from this machine. Raises SelftestError."""
    began = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        (*ALONE, str(PYTHON), *INSIDE),
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        preexec_fn=die_with_parent(),
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                table.take(line.decode("utf-8", "replace").rstrip("\n"))
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise SelftestError(f"natively, exit code {process.returncode}: see above")
    return {"kernel": platform.release(), "real_s": time.monotonic() - began}


def _problem(json_file: Path | None, native: bool, parts: bool, machine: str) -> str:
    if json_file is not None and not json_file.parent.is_dir():
        return f"found --json '{json_file}'; valid: a file in a directory that exists"
    if native and parts:
        return "found --native and --parts; valid: one of them"
    if machine and not parts:
        return f"found --machine {machine} without --parts; valid: both"
    if native and os.geteuid() != 0:
        return "found --native as an ordinary user; valid: as root (it makes network namespaces)"
    return ""


def main(
    json_file: Path | None = None,
    *,
    native: bool = False,
    in_parts: bool = False,
    machine: str = "",
) -> int:
    """Measure and judge. Return the exit code. Raises GuestError and KernelError."""
    if problem := _problem(json_file, native, in_parts, machine):
        print(f"selftest: {problem}", file=sys.stderr)
        return EXIT_USAGE
    missing = next((path for path in (TIMERS, UDP) if not path.exists()), None)
    if missing is not None:
        print(f"selftest: {missing} is not built; valid: after `make build`", file=sys.stderr)
        return EXIT_FAILED
    judged = not native
    table = Table(judged=judged)
    try:
        if native:
            facts = _native(table)
        elif in_parts:
            facts = parts.fill(table.take, table.add, ensure_kernel(), machine)
        else:
            facts = _virtual(table, ensure_kernel())
    except SelftestError as error:
        print(f"selftest: {error}", file=sys.stderr)
        return EXIT_FAILED
    table.legend()
    found = document(table.rows, clock="virtual" if judged else "native", facts=facts)
    if json_file is not None:
        write_json(json_file, found)
    return _summary(table.rows, facts, judged=judged)


def _summary(rows: Sequence[Row], facts: dict[str, Any], *, judged: bool) -> int:
    measured = [row for row in rows if row.measured is not None]
    if not judged:
        print(
            f"\n{len(measured)} of {counted(len(rows), 'test')} measured natively "
            f"(kernel {facts['kernel']}) in {facts['real_s']:.0f} s; not judged"
        )
        return EXIT_OK
    off = [row.test for row in rows if not row.ok]
    print(
        f"\n{len(rows) - len(off)} of {counted(len(rows), 'test')} within tolerance "
        f"(kernel {facts['kernel']}); "
        f"{facts['virtual_s']:.1f} s of virtual time in {facts['real_s']:.1f} s"
    )
    if "longest_s" in facts:
        work_s = sum(facts["running_s"])
        print(
            f"guests at once: {work_s:.1f} s of work in {facts['longest_s']:.1f} s, "
            f"{facts['windows']} windows"
        )
        costs = [f"{ms:.2f} ms {name}" for name, ms in facts["window_ms"].items()]
        print(f"real time of a window: {', '.join(costs)}")
    for test in off:
        print(f"  OFF: {test}")
    return EXIT_FAILED if off or not rows else EXIT_OK


__all__ = ["GuestError", "KernelError", "main"]
