# SPDX-License-Identifier: Apache-2.0
"""Report what works on this machine, what is missing for the rest, and the command that gets it.

python3 -B -m downpour.doctor

Needs only the standard library of Python 3.11, and no rights. Changes and installs nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from common.findings import ADVICE, MISSING, OK, ROOT_ONLY, Finding, Section, render, write
from common.machine import machine_findings
from common.needs import Looked, Use, find_program, findings, look, packages_of
from common.places import BUILD, ROOT, RUNS
from topologies.emulate.doctor import native_findings
from topologies.emulate.processes import relay_program
from virtual.doctor import guest_findings

EXIT_OK: Final = 0
EXIT_NOTHING_RUNS: Final = 1
SMALLEST: Final = "bottleneck"
SETUP: Final = ROOT / "ansible/setup"


@dataclass(frozen=True)
class Rights:
    """The user's rights: root, or a user with or without sudo."""

    root: bool
    sudo: bool

    def command(self, packages: Sequence[str], modules: bool) -> str:
        """Return the command that installs Debian `packages` and, with `modules`, Python's."""
        setup = "make setup" if find_program("make") else "ansible/setup"
        if SETUP.exists() and (self.root or self.sudo or not packages):
            return setup
        install = f"apt install {' '.join(packages)}" if packages else ""
        python = setup if SETUP.exists() else "pip install downpour"
        if not self.root and install:
            install = f"as root: {install}"
        return "; then: ".join(part for part in (install, python if modules else "") if part)


def _c_programs() -> Finding:
    program = relay_program()
    if program.exists():
        return Finding(OK, "built", str(BUILD))
    return Finding(ADVICE, "not built", "make experiment-NAME builds them, or: make build")


def _python() -> str:
    """Return the interpreter that commands use: the checkout's own, else this one."""
    own = ROOT / ".venv/bin/python"
    return str(own) if own.exists() else sys.executable


@dataclass(frozen=True)
class Look:
    """Everything that was found on a machine."""

    rights: Rights
    machine: list[Finding]
    needs: list[Looked]
    programs: Finding
    guest: list[Finding]
    native: list[Finding]

    def of(self, *uses: Use) -> list[Looked]:
        """Return the results for these uses."""
        return [one for one in self.needs if one.need.use in uses]

    @property
    def run_needs(self) -> list[Looked]:
        """Return what a run needs with either clock; compilers only if nothing is built yet."""
        uses = [Use.NETWORKS, Use.PYTHON]
        return self.of(*uses, *([Use.COMPILE] if self.programs.level != OK else []))

    def _verdict(self, name: str, needs: Sequence[Looked], found: Sequence[Finding]) -> Finding:
        missing = [one for one in needs if one.missing]
        if missing:
            modules = any(one.need.module for one in missing)
            text = self.rights.command(packages_of(missing), modules)
            return Finding(MISSING, name, f"get it: {text}")
        if broken := [f for f in found if f.level == MISSING]:
            return Finding(MISSING, name, f"{broken[0].subject}: {broken[0].text}")
        return Finding(OK, name, "")

    def verdicts(self) -> list[Finding]:
        """Return one finding for each use of Downpour: whether it works."""
        kernel = self.of(Use.KERNEL) if self.guest[0].level != OK else []
        virtual = self._verdict(
            "virtual time", [*self.run_needs, *kernel], [*self.machine, *self.guest]
        )
        if virtual.level == OK:
            text = "make experiment-lossy CLOCK=virtual (needs no root)"
            if self.guest[0].level != OK:
                text += "; the first run builds the guest's kernel, some minutes"
            virtual = Finding(OK, virtual.subject, text)
        native = self._verdict("native", self.run_needs, [*self.machine, *self.native])
        if native.level == OK:
            text = "make experiment-lossy"
            native = Finding(OK, native.subject, text)
        if not self.rights.root and native.level == OK:
            text = "needs root: sudo make experiment-lossy" if self.rights.sudo else "needs root"
            native = Finding(ROOT_ONLY, native.subject, text)
        labs = Finding(
            virtual.level, "labs", "make lab N=1" if virtual.level == OK else virtual.text
        )
        develop = self._verdict("development", self.of(*Use), [])
        if develop.level == OK:
            develop = Finding(OK, develop.subject, "make test")
        return [virtual, native, labs, develop]

    def sections(self) -> list[Section]:
        """Return the report, from the machine to what works on it."""

        def section(title: str, use: Use | None, *more: Finding) -> Section:
            return Section(title, (*more, *(findings(self.of(use)) if use else ())))

        return [
            section("This machine", None, *self.machine),
            section("Programs of the networks (native and virtual)", Use.NETWORKS),
            section("Python packages", Use.PYTHON),
            section("C programs", Use.COMPILE, self.programs),
            section("Virtual time: the guest's kernel", Use.KERNEL, *self.guest),
            section("Native clock: this machine's kernel", None, *self.native),
            section("Development", Use.DEVELOP),
            section("What works", None, *self.verdicts()),
        ]


def examine() -> Look:
    """Examine this machine, in a few seconds. Changes nothing."""
    root = os.geteuid() == 0
    needs = look(_python())
    kernel_needs = [one for one in needs if one.need.use is Use.KERNEL]
    return Look(
        rights=Rights(root=root, sudo=shutil.which("sudo") is not None),
        machine=machine_findings(RUNS),
        needs=needs,
        programs=_c_programs(),
        guest=guest_findings(packages_of(kernel_needs)),
        native=native_findings(is_root=root),
    )


def main() -> int:
    """Print the findings. Return 0 if experiments can run, with one clock at least; else 1."""
    found = examine()
    write(render(found.sections()), sys.stdout)
    virtual, native, *_ = found.verdicts()
    return EXIT_OK if OK in (virtual.level, native.level) else EXIT_NOTHING_RUNS


def measure() -> int:
    """Bring up the smallest bundled network, and print what it asks for beside what ping and iperf3
    measure: natively as root, else in virtual time. Return the exit code of `downpour verify`."""
    downpour = [_python(), "-m", "downpour"]
    verify = [*downpour, "verify", SMALLEST]
    argv = verify if os.geteuid() == 0 else [*downpour, "virtual", "run", "--", *verify]
    print(f"\nMeasured: {SMALLEST}, {'native' if argv is verify else 'virtual time'}", flush=True)
    return subprocess.run(argv, env={**os.environ, "PYTHONPATH": str(ROOT)}).returncode


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main())
