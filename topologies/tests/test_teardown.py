# SPDX-License-Identifier: Apache-2.0
"""The machine is left as it was: after down, after kill -9, after Ctrl-C, with two runs."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from common.places import ROOT
from tests.machine_snapshot import Before, differences, watch
from topologies.emulate import lifecycle, marks
from topologies.emulate.processes import relay_program

pytestmark = [pytest.mark.root, pytest.mark.alone]

CLI = [sys.executable, "-m", "downpour"]
TIMEOUT_S = 60.0

# Holds a network as an experiment does, until a line on its standard input tells it to end.
HOLDER = """
import sys
from topologies.emulate import lifecycle
from topologies.emulate.emulation import open_emulation
from topologies.model.network import Impairment
from topologies.tests.networks import two_hosts
network = two_hosts(Impairment(delay_ms=5.0))
say = lambda text: print(text, flush=True)
with (
    lifecycle.enter(sys.argv[1]) as run,
    open_emulation(network, run.state_dir, progress=say) as emulation,
):
    say("ready")
    sys.stdin.readline()
    ping = ["ping", "-n", "-q", "-c", "2", "-i", "0.1", network.publisher.nic1.ip]
    say(emulation.run("q", ping).returncode)
"""


@pytest.fixture
def before() -> Iterator[Before]:
    if not relay_program().exists():
        pytest.skip(f"{relay_program()} is not built (make build): teardown was NOT tested")
    os.environ["DOWNPOUR_OWNER"] = f"test-{secrets.token_hex(4)}"  # spare this checkout's networks
    try:
        with watch() as found:
            yield found
    finally:
        del os.environ["DOWNPOUR_OWNER"]


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=TIMEOUT_S,
        check=False,
    )


def start(argv: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"'{text}' was never said; exit code {process.wait()}")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def own_run() -> str:
    owner = os.environ["DOWNPOUR_OWNER"]
    for run_id in lifecycle.live_runs():
        state = lifecycle.read_state(run_id)
        if state is not None and state.owner == owner:
            return run_id
    raise AssertionError("no run of this test")


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


@pytest.mark.slow
def test_up_status_shell_down_and_down_again(before: Before) -> None:
    up = cli("up", "geni5", "--receivers", "4")
    assert up.returncode == 0, up.stderr
    run_id = own_run()
    assert "downpour shell wsu1" in up.stdout and "curl" in up.stdout
    again = cli("up", "geni5")
    assert again.returncode == 1 and f"'{run_id}' is already up" in again.stderr
    status = cli("status").stdout
    assert run_id in status and "4 of 4 switches connected" in status
    shell = cli("shell", "wsu1", "--", "ping", "-c", "1", "10.20.0.2")
    assert shell.returncode == 0 and "1 received" in shell.stdout
    named = cli("shell", "wsu1", "--", "sh", "-c", "ping -c 1 umass && getent hosts umass.path")
    assert named.returncode == 0 and "(10.20.0.2)" in named.stdout, named.stderr
    assert named.stdout.split()[-2:] == ["10.10.1.1", "umass.path"]
    assert "umass" not in Path("/etc/hosts").read_text()
    nobody = cli("shell", "nobody")
    assert nobody.returncode == 2 and "found host 'nobody'; valid: umass, wsu1" in nobody.stderr
    nothing = cli("capture", "wsu1:nobody")
    assert nothing.returncode == 2 and "found link 'wsu1:nobody'; valid" in nothing.stderr
    assert f"namespaces: left behind: downpour-{run_id}" in differences(before, settle_s=0), (
        "the snapshot does not see a live run: the checks below would prove nothing"
    )
    down = cli("down")
    assert (down.returncode, down.stderr) == (0, "")
    assert f"removing {run_id}: network" in down.stdout
    assert differences(before) == []
    assert cli("down").returncode == 0
    assert differences(before) == []


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["namespaces", "switches", "links with", "control network"])
def test_keeper_killed_half_way(before: Before, moment: str) -> None:
    up = start([*CLI, "up", "geni5", "--receivers", "4"])
    wait_for_line(up, moment)
    run_id = own_run()
    state = lifecycle.read_state(run_id)
    assert state is not None
    kill(up)
    os.kill(state.owner_pid, signal.SIGKILL)
    wait_until(lambda: marks.start_time_ticks(state.owner_pid) is None)
    assert "leftovers of a run that ended" in cli("status").stdout
    down = cli("down")
    assert (down.returncode, down.stderr) == (0, "")
    assert differences(before) == []


def test_up_interrupted(before: Before) -> None:
    up = start([*CLI, "up", "geni5", "--receivers", "4"])
    wait_for_line(up, "switches")
    up.send_signal(signal.SIGINT)
    assert up.wait(timeout=30) == 130
    kill(up)
    assert differences(before) == []


def test_network_interrupted_and_killed(before: Before) -> None:
    for number, at in ((signal.SIGINT, "interfaces"), (signal.SIGINT, "ready")):
        run_id = lifecycle.new_run_id("test-holder")
        holder = start([sys.executable, "-c", HOLDER, run_id])
        wait_for_line(holder, at)
        holder.send_signal(number)
        assert holder.wait(timeout=30) != 0
        kill(holder)
        assert differences(before) == []
    run_id = lifecycle.new_run_id("test-holder")
    holder = start([sys.executable, "-c", HOLDER, run_id])
    wait_for_line(holder, "ready")
    kill(holder)
    lifecycle.purge(run_id)
    assert differences(before) == []


def test_two_runs_at_once_and_down_spares_them(before: Before) -> None:
    ids = [lifecycle.new_run_id("test-holder") for _ in range(2)]
    first, second = (start([sys.executable, "-c", HOLDER, run_id]) for run_id in ids)
    for holder in (first, second):
        wait_for_line(holder, "ready")
    down = cli("down")
    assert down.returncode == 0 and not any(run_id in down.stdout for run_id in ids)
    for holder in (first, second):  # the second still works after the first has ended
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        wait_for_line(holder, "0")
        assert holder.wait(timeout=20) == 0
        kill(holder)
    assert differences(before) == []


def test_state_directory_alone_is_removed(before: Before) -> None:
    """A run ended directly after its first step."""
    run_id = lifecycle.new_run_id("test-stub")
    directory = marks.state_directory(run_id)
    directory.mkdir(parents=True)
    (directory / lifecycle.STATE_FILE).write_text(json.dumps({"run_id": run_id}))
    assert run_id in lifecycle.live_runs()
    assert cli("down").returncode == 0
    assert not directory.exists()
    assert not Path("/run/downpour", run_id).exists()
    assert differences(before) == []
