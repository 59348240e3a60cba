# SPDX-License-Identifier: Apache-2.0
"""What sysstat records: its own tools can read it, and other runs' programs are left out."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from experiments.cells import sysstat
from experiments.cells.cell_base import CellBase
from experiments.cells.sysstat import Sysstat
from parsers.read.sadf import parse_sadf
from parsers.read.sar_log import parse_sar_log
from topologies.emulate.emulation import Emulation

HEADER = "# Time        UID       PID    %usr %system  Command"


def test_only_the_cells_programs_are_kept() -> None:
    text = (
        f"Linux 6\n\n{HEADER}\n1795375400 0 20 1.00 0.00 ldmd\n1795375400 0 77 9.00 0.00 ldmd\n"
        f"\n{HEADER}\n1795375401 0 21 2.00 0.00 mldm\n"
    )
    assert sysstat.lines_of(text, {20, 21}).splitlines() == [
        HEADER, "1795375400 0 20 1.00 0.00 ldmd", "1795375401 0 21 2.00 0.00 mldm",
    ]  # fmt: skip
    assert sysstat.lines_of("", {20}) == ""


class Here:
    """Stands for an emulation in which every host is this machine."""

    elsewhere: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        self.started: list[tuple[str, str]] = []

    def popen(
        self, host: str, argv: Sequence[str], *, env: Mapping[str, str], **streams: Any
    ) -> subprocess.Popen[bytes]:
        self.started.append((host, argv[0]))
        return subprocess.Popen(argv, env={**os.environ, **env}, **streams)


def record(logs: Path, samples: tuple[str, ...], daemon: int) -> Here:
    here = Here()
    recording = Sysstat(cast(Emulation, here), logs, samples, lambda: {"pub": daemon}, CellBase.end)
    recording.start("pub", ["pub", "sub1", "sub2"], 1, 60)
    time.sleep(3.5)
    recording.stop()
    return here


needs_sysstat = pytest.mark.skipif(
    shutil.which("sar") is None, reason="sysstat is not installed: nothing was recorded"
)


@needs_sysstat
@pytest.mark.slow
def test_sar_writes_text_and_a_file_that_its_own_tools_read(tmp_path: Path) -> None:
    here = record(tmp_path, (), os.getpid())
    assert here.started == [("pub", "sar")]
    text = parse_sar_log((tmp_path / "sar.log").read_text(), "sar.log")
    assert len(text.cpus) >= 2 and {i.interface for i in text.interfaces} >= {"lo"}
    sadf = subprocess.run(
        ["sadf", "-j", tmp_path / "sar.sa", "--", "-u", "-n", "DEV"],
        capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    binary = parse_sadf(sadf.stdout, "sadf.json")
    assert [c.idle for c in binary.cpus][: len(text.cpus)] == [c.idle for c in text.cpus]
    shown = subprocess.run(["sar", "-f", tmp_path / "sar.sa", "-u"], capture_output=True, text=True)
    assert shown.returncode == 0 and "Average:" in shown.stdout
    picture = subprocess.run(["sadf", "-g", tmp_path / "sar.sa"], capture_output=True, text=True)
    assert "</svg>" in picture.stdout


@needs_sysstat
@pytest.mark.slow
def test_every_host_and_program_on_request(tmp_path: Path) -> None:
    program = tmp_path / "ldmd"  # pidstat knows a program by its command's name
    program.symlink_to("/bin/sleep")
    with (
        subprocess.Popen([program, "60"]) as mine,
        subprocess.Popen([program, "61"]) as of_another_run,
    ):
        here = record(tmp_path, ("hosts", "pidstat"), mine.pid)
        mine.send_signal(signal.SIGTERM)
        of_another_run.send_signal(signal.SIGTERM)
    assert sorted(here.started) == [
        ("pub", "pidstat"), ("pub", "sar"), ("sub1", "sar"), ("sub2", "sar"),
    ]  # fmt: skip
    assert (tmp_path / "sar.sub2.sa").stat().st_size > 0
    lines = (tmp_path / "pidstat.pub.log").read_text().splitlines()
    assert lines[0].startswith("#")
    assert {line.split()[2] for line in lines[1:]} <= {str(mine.pid)}
    assert not (tmp_path / "pidstat.all").exists()
