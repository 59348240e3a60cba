# SPDX-License-Identifier: Apache-2.0
"""Experiments in virtual time, end to end, as an ordinary user: faithful, the same each time, and
leaving nothing behind however they end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.places import BUILD, ROOT
from experiments.tests.built import IN_GUESTS
from virtual.kernel_build import Kernel

pytestmark = IN_GUESTS

USER = 12345  # no account has it


@pytest.fixture(scope="module")
def checkout(kernel: Kernel) -> Iterator[Path]:
    """Make a checkout of an ordinary user: the files as they are now, with this checkout's
    programs. It is not in pytest's directories, as each start of pytest closes them to other
    users."""
    with tempfile.TemporaryDirectory(prefix="downpour-user-") as place:
        yield _checkout_in(Path(place), kernel)


def _checkout_in(place: Path, kernel: Kernel) -> Path:
    folder = kernel.path.parent
    shutil.copytree(folder, place / "cache/kernels" / folder.name)
    copy = place / "downpour"
    copy.mkdir()
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        source = ROOT / name
        if source.is_file() and not source.is_symlink():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy / name)
    # Copies, not links: a guest does not see what is below the host's /tmp.
    for source, name in ((ROOT / ".venv", ".venv"), (BUILD, "build")):
        subprocess.run(["cp", "-a", f"{source.resolve()}/.", str(copy / name)], check=True)
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{USER}:{USER}", str(place)], check=True)
        as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        if subprocess.run([*as_user, "test", "-r", str(ROOT / "Makefile")]).returncode != 0:
            pytest.skip(f"SKIPPED: an ordinary user may not read {ROOT}")
    return copy


def start(checkout: Path, *arguments: str) -> subprocess.Popen[str]:
    python = str(checkout / ".venv/bin/python")
    drop = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    argv = [*(drop if os.geteuid() == 0 else []), python, "-m", "downpour", *arguments]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(checkout.parent),
        "PYTHONPATH": str(checkout),
        "DOWNPOUR_CACHE": str(checkout.parent / "cache"),
        "TMPDIR": str(checkout.parent),
    }
    return subprocess.Popen(
        argv, cwd=checkout, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


SMALL = ("regression", "--clock", "virtual", "--receivers", "2", "--duration", "4")


def test_an_ordinary_user_gets_a_faithful_run_and_the_same_one_again(checkout: Path) -> None:
    for _ in range(2):
        process = start(checkout, "run", *SMALL)
        said, _nothing = process.communicate(timeout=300)
        assert process.returncode == 0, said
        assert "FAITHFUL" in said
        time.sleep(1)  # a run is named after the second of its start
    first, second = sorted((checkout / "runs/regression").glob("2*"))[-2:]
    assert {p.name for p in (first / "cells").iterdir()} == {"ldm7-m2-r20-p1", "ldm6-m2-r20-p1"}
    for cell in (first / "cells").iterdir():
        assert json.loads((cell / "cell.json").read_text())["clock"] == "virtual"
        facts = json.loads((cell / "facts.json").read_text())
        assert facts["datapath"] == "kernel"
        assert facts["delay_mechanism"] == "netem"
        assert facts["edge_tags"] is False
        virtual = json.loads((cell / "virtual.json").read_text())
        assert virtual["virtual_s"] > 4
        values = json.loads((first / "metrics.json").read_text())["cells"][cell.name]["values"]
        assert values["cpu"]["value"] is None
        assert "infinitely fast" in values["cpu"]["reason"]
    process = start(checkout, "report", "--identical", str(first), str(second))
    said, _nothing = process.communicate(timeout=100)
    assert process.returncode == 0, said
    assert [p.name for p in checkout.parent.glob("downpour-guest-*")] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(checkout: Path, number: signal.Signals) -> None:
    before = (
        {p.name for p in (checkout / "runs").rglob("*")} if (checkout / "runs").exists() else set()
    )
    process = start(checkout, "run", *SMALL)
    deadline = time.monotonic() + 60
    assert process.stdout is not None
    for line in process.stdout:  # until a guest is at work
        if "switches" in line or time.monotonic() > deadline:
            break
    process.send_signal(number)
    said, _nothing = process.communicate(timeout=30)
    assert process.returncode == 130, said
    assert "interrupted" in said
    after = {p.name for p in (checkout / "runs").rglob("*")}
    assert after - before <= {"regression"}
    assert list(checkout.parent.glob("downpour-guest-*")) == []
    user = str(checkout.parent).encode()
    left = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if user in (entry / "cmdline").read_bytes():
                left.append(entry.name)
        except OSError:
            continue
    assert left == []


def test_what_is_missing_is_said_in_one_line(checkout: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "DOWNPOUR_CACHE": str(tmp_path), "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "downpour", "run", *SMALL]
    done = subprocess.run(
        argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert (
        "found no kernel for virtual time; valid: build it with `downpour virtual kernel` "
        in done.stderr
    )
    process = start(checkout, "run", "regression", "--jobs", "2")
    said, _nothing = process.communicate(timeout=60)
    assert process.returncode == 2, said
    assert "found --jobs 2; valid: 1 with the native clock" in said
