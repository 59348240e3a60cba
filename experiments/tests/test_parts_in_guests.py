# SPDX-License-Identifier: Apache-2.0
"""A cell in two guests, end to end: the datagrams lost in one guest are lost, and figures agree."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from common.exit_codes import EXIT_INVALID
from common.places import ROOT
from experiments import cli
from experiments.cells.job import REPLAYING
from experiments.runs import parts as in_parts
from experiments.tests.built import IN_GUESTS
from virtual.guest import GuestSpec
from virtual.kernel_build import Kernel
from virtual.parts.together import Together
from virtual.tests.busy_cores import busy_cores
from virtual.tests.two_machines import PORT, two_machines

pytestmark = [*IN_GUESTS, pytest.mark.slow]

CHOSEN = (
    *("--clock", "virtual", "--only", "protocol=ldm7", "--duration", "5"),
    *("--queue-bytes", "200MB"),
)
RECEIVERS = 4
COMPARED = ("throughput", "mplr", "latency_p50", "latency_p99", "loss_measured", "ffdr")
SHARE = 0.001
END_S = 1.0  # on a machine that is not busy with something else
LIMIT_S = 30.0
# Waits for the replay; changes a receiver's NIC for 20 ms meanwhile.
FOR_A_MOMENT = """
(
    until pid=$(pgrep -o -x hostlag); do sleep 0.5; done
    sleep 3
    nsenter -t $pid -n sh -c '
        nic=$(ip -br link | grep -o "^[^ @]*-nic1" | head -n 1)
        ip link set dev $nic txqueuelen 900
        sleep 0.02
        ip link set dev $nic txqueuelen 1000'
) &
exec "$@"
"""


@contextmanager
def place() -> Iterator[Path]:
    (ROOT / "runs").mkdir(exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="parts-", dir=ROOT / "runs"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def runs() -> Iterator[Path]:
    with place() as made:
        yield made


def words(runs: Path, parts: int, receivers: int = RECEIVERS) -> list[str]:
    argv = ["run", "lossy", "--runs", str(runs), *CHOSEN]
    return [*argv, "--receivers", str(receivers), "--parts", str(parts)]


def start(runs: Path, parts: int, receivers: int = RECEIVERS) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "downpour", *words(runs, parts, receivers)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def run(runs: Path, parts: int) -> Path:
    process = start(runs, parts)
    said, _ = process.communicate(timeout=1800)
    assert process.returncode == 0, said
    return only_run(runs)


def only_run(runs: Path) -> Path:
    (found,) = (runs / "lossy").glob("2*")
    return found


def metrics(path: Path) -> dict[str, Any]:
    (cell,) = json.loads((path / "metrics.json").read_text())["cells"].values()
    assert cell["verdict"] == "faithful"
    return {name: one["value"] for name, one in cell["values"].items() if one is not None}


def losses(path: Path) -> Any:
    (file,) = path.glob("cells/*/losses.json")
    found = json.loads(file.read_text())
    assert found
    return found


@pytest.mark.parametrize("at_once", [True, False])
def test_what_else_runs_and_the_order_of_parts_change_nothing(
    runs: Path, two: Path, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside busy loops on all cores, with the parts at once and one after the other."""
    monkeypatch.setattr(in_parts, "Together", partial(Together, at_once=at_once))
    with busy_cores():
        assert cli.main(words(runs, 2)) == 0
    beside = only_run(runs)
    assert losses(beside) == losses(two)
    assert metrics(beside) == metrics(two)


def test_a_setting_changed_for_20_ms_in_another_part(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disturbed(
        kernel: Kernel, guests: Mapping[int, GuestSpec], *rest: Any, **named: Any
    ) -> Together:
        argv = ("sh", "-c", FOR_A_MOMENT, "part", *guests[1].argv)
        one = dataclasses.replace(guests[1], argv=argv)
        return Together(kernel, {**guests, 1: one}, *rest, **named)

    monkeypatch.setattr(in_parts, "Together", disturbed)
    assert cli.main(words(runs, 2, receivers=2)) == EXIT_INVALID
    (file,) = only_run(runs).glob("cells/*/verdict.json")
    checks = json.loads(file.read_text())["checks"]
    failed = {c["name"]: c["text"] for c in checks if c["status"] == "fail"}
    assert list(failed) == ["nothing changed meanwhile"]
    place, at_s = re.findall(r"(\S+): queue changed \(at (\S+) s\)", failed.popitem()[1])[0]
    assert place.endswith("-nic1")
    assert 2 < float(at_s) < 5


@pytest.fixture(scope="module")
def two() -> Iterator[Path]:
    """A cell in two parts, with no more beside it than this machine has anyway."""
    with place() as runs:
        yield run(runs, 2)


def test_two_parts_agree_with_one(runs: Path, two: Path) -> None:
    one = run(runs, 1)
    assert losses(two) == losses(one)
    alone, cut = metrics(one), metrics(two)
    for name in [n for n in COMPARED if n in alone]:
        assert cut[name] == pytest.approx(alone[name], rel=SHARE), name
    assert json.loads((two / "manifest.json").read_text())["parts"] == 2
    (described,) = two.glob("cells/*/virtual.json")
    assert json.loads(described.read_text())["parts"]["hosts"]


@pytest.mark.root
def test_a_cell_on_two_machines_is_the_one_of_one(runs: Path, two: Path) -> None:
    """Two network namespaces, whose guests share no directory."""
    with two_machines() as (a, b), b.popen("virtual", "parts", f"{b.address}:{PORT}") as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("waiting for parts")
            with a.popen(*words(runs, 2), "--machine", f"{b.address}:{PORT}") as process:
                said, _ = process.communicate(timeout=1800)
            assert process.returncode == 0, said
            assert server.stdout.readline() == f"{a.address}: ended: exit codes [0]\n"
        finally:
            server.kill()
    away = only_run(runs)
    assert losses(away) == losses(two)
    assert metrics(away) == metrics(two)
    assert json.loads((away / "manifest.json").read_text())["machines"] == [f"{b.address}:{PORT}"]


@pytest.mark.parametrize("victim", ["part 0", "part 1", "calendar"])
def test_a_kill_during_the_replay_ends_all_within_a_second(
    runs: Path, victim: str, record_property: Callable[[str, object], None]
) -> None:
    """The launcher is stopped meanwhile: nothing waits for its next look. What remains is the work
    of ending guests of about 100 MB, which takes longer on a busy machine."""
    process = start(runs, 2, receivers=2)
    try:
        kernels = replaying(process)
        calendar = calendar_of(process.pid)
        is_quiet = os.getloadavg()[0] < 1.5 * (os.cpu_count() or 1)
        process.send_signal(signal.SIGSTOP)
        pids = {"calendar": calendar, "part 0": kernels[0], "part 1": kernels[1]}
        watched = {os.pidfd_open(pid): name for name, pid in pids.items()}
        os.kill(pids[victim], signal.SIGKILL)
        killed = time.monotonic()
        ended_s: dict[str, float] = {}
        while watched:
            ready, _, _ = select.select(list(watched), [], [], LIMIT_S)
            assert ready, f"still running: {watched.values()}"
            ended_s |= {watched.pop(fd): time.monotonic() - killed for fd in ready}
        process.send_signal(signal.SIGCONT)
        said = failed(process)
        record_property("ended_s", {**ended_s, "told": time.monotonic() - killed})
    finally:
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    if is_quiet:
        assert max(ended_s.values()) < END_S, ended_s
    expected = {
        "calendar": r"the calendar of the parts ended \(killed by SIGKILL\)",
    }
    reason = expected.get(victim, f"{victim}: its kernel ended without a result")
    assert re.search(rf"FAILED: {reason}\n.*run once more\n$", said), said


def replaying(process: subprocess.Popen[str]) -> list[int]:
    """Return the kernels of a cell, part 0 first, shortly after the beginning of its replay."""
    deadline = time.monotonic() + 600
    while True:
        assert process.poll() is None and time.monotonic() < deadline
        kernels = kernels_of(process.pid)
        if kernels and REPLAYING in (exchange_of(kernels[0]) / "stdout").read_text():
            time.sleep(0.5)
            return kernels
        time.sleep(0.05)


def failed(process: subprocess.Popen[str]) -> str:
    """Return what a run says until its cell is run once more."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if "run once more" in line:
            return said
    return said


def parents() -> dict[int, int]:
    """Return all processes and their parents."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text()
                found[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    return found


def command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def kernels_of(launcher: int) -> list[int]:
    """Return the kernels of the launcher's guests, below their wardens, in the order of parts."""
    above = parents()
    found = [pid for pid in above if above.get(above[pid]) == launcher]
    return sorted(pid for pid in found if b"time-travel=ext" in command_of(pid))


def calendar_of(launcher: int) -> int:
    children = [pid for pid, parent in parents().items() if parent == launcher]
    (found,) = (pid for pid in children if b"virtual.parts.desk" in command_of(pid))
    return found


def exchange_of(kernel: int) -> Path:
    variables = Path(f"/proc/{kernel}/environ").read_text().split("\0")
    (found,) = (v.partition("=")[2] for v in variables if v.startswith("DOWNPOUR_GUEST="))
    return Path(found)
