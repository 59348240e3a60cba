# SPDX-License-Identifier: Apache-2.0
"""On a full disk every writer says so in one line, and leaves nothing half-written."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from common.files import write_json
from common.places import ROOT
from controller.service.store import Store
from experiments.tests.built import NEEDS_PROGRAMS
from labs.spec import find_lab
from labs.workdir import LabError, open_work
from tests.small_disk import command_until_full, fill, on_small_disk
from virtual import kernel_build
from virtual.kernel_source import KernelError
from virtual.tests.played_machine import Machine

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: a small disk needs root"),
]


def disk(tmp_path: Path) -> Path:
    directory = tmp_path / "disk"
    directory.mkdir()
    return directory


def test_the_disk_is_small(tmp_path: Path) -> None:
    """If it is not, the tests below prove nothing."""
    directory = disk(tmp_path)

    def use() -> str:
        fill(directory)
        return str(shutil.disk_usage(directory).free)

    assert on_small_disk(directory, 100_000, use) == "0"
    assert list(directory.iterdir()) == []


def test_json_is_complete_or_absent(tmp_path: Path) -> None:
    directory = disk(tmp_path)

    def use() -> str:
        path = directory / "a.json"
        write_json(path, "old")
        fill(directory)
        try:
            write_json(path, "x" * 200_000)
        except OSError as error:
            names = sorted(p.name for p in directory.iterdir())
            return f"{error.strerror}: {path.read_text()} {names}"
        return "written"

    found = on_small_disk(directory, 100_000, use)
    assert found == "No space left on device: \"old\"\n ['a.json', 'filler']"


@pytest.mark.parametrize("size_bytes", [4096, 40_000, 300_000])
def test_a_kernels_build_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    machine = Machine(tmp_path, monkeypatch)
    machine.source("7.2", seccomp=True)
    machine.cache.mkdir()
    monkeypatch.setattr(kernel_build, "NEEDED_BYTES", 0)

    def use() -> str:
        (machine.cache / "kernels").mkdir()
        (machine.cache / "kernels/ballast").write_bytes(bytes(size_bytes - 4096))
        try:
            machine.ensure()
        except KernelError as error:
            return f"refused {error}; {machine.leftovers()}"
        return "built"

    found = on_small_disk(machine.cache, size_bytes, use)
    assert found.startswith("refused ") and found.endswith("; []"), found
    assert "No space left on device" in found
    assert "\n" not in found


def test_the_controllers_store_keeps_what_it_had(tmp_path: Path) -> None:
    directory = disk(tmp_path)

    def use() -> str:
        store = Store(directory / "store", "n", "d")
        with store.transaction():
            store.put_document("kind", "kept", "body")
        fill(directory)
        refused = 0
        for number in range(50):
            try:
                with store.transaction():
                    store.put_document("kind", f"{number}", "x" * 10_000)
            except sqlite3.Error:
                refused += 1
        there = len(store.documents("kind"))
        (directory / "filler").unlink()
        with store.transaction():
            store.put_document("kind", "later", "body")
        store.close()
        again = Store(directory / "store", "n", "d")
        return f"{refused > 40} {there == 51 - refused} {len(again.documents('kind')) - there}"

    assert on_small_disk(directory, 400_000, use) == "True True 1"


def test_a_labs_work_directory_can_be_made_later(tmp_path: Path) -> None:
    directory = disk(tmp_path)

    def use() -> str:
        fill(directory)
        try:
            open_work(find_lab(1), directory / "work", "ann")
        except LabError as error:
            said = str(error)
        left = sorted(p.name for p in directory.iterdir())
        (directory / "filler").unlink()
        _, new = open_work(find_lab(1), directory / "work", "ann")
        return f"{said}|{left}|{new}"

    said, left, new = on_small_disk(directory, 400_000, use).split("|")
    assert "No space left on device; valid: room on the disk" in said
    assert "\n" not in said
    assert (left, new) == ("['filler']", "True")


@pytest.mark.emulated
@pytest.mark.slow
@pytest.mark.usefixtures("kernel")
@NEEDS_PROGRAMS
@pytest.mark.parametrize(
    ("clock", "sign"),
    [
        ("native", "regression/.*/cells/.*/logs"),
        ("virtual", "regression/.*/cells/.*/logs"),
        ("virtual", "regression/.*/cells/*/cell.json"),
    ],
)
def test_a_run_ends_with_one_line(tmp_path: Path, clock: str, sign: str) -> None:
    directory = disk(tmp_path)
    argv = [
        *(sys.executable, "-m", "downpour", "run", "regression", "--receivers", "2"),
        *("--duration", "3", "--only", "ldm7", "--clock", clock, "--runs", str(directory)),
    ]
    os.chdir(ROOT)
    said = on_small_disk(directory, 40_000_000, lambda: command_until_full(argv, directory, sign))
    assert said.startswith("exit 1\n"), said
    assert "Traceback" not in said
    assert "downpour: " in said and "No space left on device; valid: room on the disk" in said
    # No run is complete, and none claims to be.
    assert "'regression/latest'" not in said and "'regression/2" not in said
    done = subprocess.run(
        [sys.executable, "-m", "downpour", "status"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0
