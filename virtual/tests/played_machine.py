# SPDX-License-Identifier: Apache-2.0
"""A machine whose kernel source, compiler and archive are fakes: builds take no time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from common.places import ROOT
from virtual import kernel_fetch
from virtual.kernel_build import Kernel, ensure_kernel
from virtual.tests.test_kernel_source import fake_tree

MAKE = """#!{python}
import os, pathlib, sys, time
log = pathlib.Path({log!r})
with log.open("a") as stream:
    stream.write(" ".join(sys.argv[1:]) + "\\n")
if "allnoconfig" in sys.argv:
    text = pathlib.Path(os.environ["KCONFIG_ALLCONFIG"]).read_text()
    drop = os.environ.get("PATH", "").partition("drop=")[2].partition(":")[0]
    lines = [l for l in text.splitlines() if not drop or drop not in l]
    pathlib.Path(".config").write_text("\\n".join(lines))
else:
    assert pathlib.Path("include/linux/downpour.h").exists()
    print("  CC      a.o", flush=True)
    mode = pathlib.Path({mode!r}).read_text() if pathlib.Path({mode!r}).exists() else ""
    if mode == "fail":
        print("a.c:1:1: error: no such thing"); sys.exit(2)
    if mode == "slow":
        time.sleep(60)
    pathlib.Path("linux").write_text("#!/bin/sh\\n")
    pathlib.Path("linux").chmod(0o755)
"""


class Machine:
    """A machine on which only tar and the files are real."""

    def __init__(self, tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tmp = tmp
        self.cache = tmp / "cache"
        self.calls = tmp / "make.log"
        self.mode = tmp / "mode"
        self.monkeypatch = monkeypatch
        tools = tmp / "bin"
        tools.mkdir()
        make = tools / "make"
        make.write_text(
            MAKE.format(python=sys.executable, log=str(self.calls), mode=str(self.mode))
        )
        make.chmod(0o755)
        for tool in ("flex", "bison", "bc"):
            (tools / tool).symlink_to("/bin/true")
        self.path = f"{tools}:{os.environ['PATH']}"
        monkeypatch.setenv("PATH", self.path)
        monkeypatch.setenv("DOWNPOUR_CACHE", str(self.cache))
        monkeypatch.delenv("DOWNPOUR_KERNEL", raising=False)  # of the user who runs the tests
        monkeypatch.setattr(kernel_fetch, "USR_SRC", tmp / "src")
        monkeypatch.setattr(kernel_fetch, "KEYRING", tmp / "no-keyring")
        monkeypatch.setattr(kernel_fetch.installed, "__defaults__", (tmp / "src",))
        (tmp / "src").mkdir()
        self.said: list[str] = []

    def source(self, series: str, *, seccomp: bool, folder: Path | None = None) -> Path:
        top = self.tmp / f"linux-source-{series}"
        fake_tree(top)
        major, minor = series.split(".")
        makefile = f"VERSION = {major}\nPATCHLEVEL = {minor}\nSUBLEVEL = 4\n"
        (top / "Makefile").write_text(makefile)
        start = top / "arch/um/os-Linux/start_up.c"
        start.parent.mkdir(parents=True, exist_ok=True)
        start.write_text('__uml_setup("seccomp=", x,\n' if seccomp else "\n")
        path = (folder or self.tmp / "src") / f"linux-source-{series}.tar.gz"
        subprocess.run(["tar", "-caf", path, "-C", self.tmp, top.name], check=True)
        return path

    def ensure(self, *, source: Path | None = None, download: bool = True) -> Kernel:
        return ensure_kernel(self.said.append, source=source, download=download)

    def command_that_compiles(self) -> subprocess.Popen[str]:
        """Run `downpour virtual kernel`, slowly, until its make runs; its stderr is a pipe."""
        self.mode.write_text("slow")
        code = (
            "import pathlib, sys\n"
            "from virtual import cli, kernel_fetch\n"
            f"kernel_fetch.installed.__defaults__ = (pathlib.Path({str(self.tmp / 'src')!r}),)\n"
            "sys.exit(cli.main(['kernel']))\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True
        )
        deadline = time.monotonic() + 20
        while self.compiled() == 0:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        return process

    def compiled(self) -> int:
        return self.calls.read_text().count(" linux\n") if self.calls.exists() else 0

    def leftovers(self) -> list[str]:
        return [p.name for p in (self.cache / "kernels").glob(".build-*")]
