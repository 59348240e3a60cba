# SPDX-License-Identifier: Apache-2.0
"""Marks, states, and what `down` may end."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from common.shell import NetworkError, termination_as_interrupt
from topologies import cli
from topologies.emulate import lifecycle, marks, up_down
from topologies.emulate.emulation import open_emulation
from topologies.emulate.lifecycle import RunState
from topologies.model.network import Impairment, Network
from topologies.tests.networks import two_hosts


def state(kind: str = "up", *, alive: bool = True, owner: str = "") -> RunState:
    pid = os.getpid()
    start = marks.start_time_ticks(pid)
    assert start is not None
    return RunState(
        "x",
        kind,
        owner or lifecycle.this_owner(),
        pid,
        start if alive else start + 1,
        0.0,
        "geni5",
    )


def test_mark_of_environment() -> None:
    assert marks.run_of_environment(b"A=1\0DOWNPOUR_RUN=up-1\0B=2\0") == "up-1"
    assert marks.run_of_environment(b"A=1\0XDOWNPOUR_RUN=up-1\0") is None
    assert marks.run_of_environment(b"DOWNPOUR_RUN=../../etc\0") is None
    assert marks.run_of_environment(b"DOWNPOUR_RUN=\0") is None
    assert marks.run_of_environment(b"") is None


def test_owner_is_pid_and_start_time() -> None:
    assert state().owner_alive
    assert not state(alive=False).owner_alive, "a recycled process id would pass for the owner"


def test_ourselves_are_never_ended() -> None:
    assert {os.getpid(), os.getppid()} <= marks.ourselves()


def test_down_spares_living_runs_of_others() -> None:
    states = {
        "mine": state(),
        "mine-dead": state(alive=False),
        "experiment": state("experiment"),
        "experiment-dead": state("experiment", alive=False),
        "elsewhere": state(owner="/elsewhere"),
        "nameless": None,
    }
    assert up_down.to_end(states, everything=False) == {
        "mine": True,
        "mine-dead": False,
        "experiment-dead": False,
        "nameless": False,
    }
    assert set(up_down.to_end(states, everything=True)) == set(states)


def test_down_spares_a_network_that_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the keeper's start and its state; even if the process that started it was killed."""
    processes = {"starting", "orphan", "mine"}
    monkeypatch.setattr(marks, "has_processes", lambda run_id: run_id in processes)
    announced = {
        "starting": state(owner="/elsewhere"),
        "orphan": state(owner="/elsewhere", alive=False),
        "mine": state(alive=False),
        "dead": state(owner="/elsewhere", alive=False),
    }
    states = {name: dataclasses.replace(s, announced=True) for name, s in announced.items()}
    assert set(up_down.to_end(states, everything=False)) == {"mine", "dead"}


@pytest.mark.root
@pytest.mark.parametrize("namespaces", [("--mount",), ("--mount", "--pid", "--fork")])
def test_down_spares_the_runs_of_containers(namespaces: tuple[str, ...]) -> None:
    """Their processes are visible from outside, their /run is not."""
    run_id = f"t-{secrets.token_hex(4)}"
    holder = f"mount -t tmpfs none /run && echo ready && {marks.MARK}={run_id} sleep 60"
    with subprocess.Popen(
        ["unshare", *namespaces, "--kill-child", "sh", "-c", f"({holder})"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as container:
        try:
            assert container.stdout is not None
            assert container.stdout.readline() == b"ready\n"
            pids = _sleepers(run_id)
            assert run_id not in lifecycle.live_runs()
            lifecycle.purge(run_id)
            assert _sleepers(run_id) == pids
        finally:
            os.killpg(container.pid, signal.SIGKILL)


def _sleepers(run_id: str) -> set[str]:
    """Return the processes with the run's mark, once there are any."""
    mark = f"{marks.MARK}={run_id}".encode()
    for _ in range(500):
        found = set()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(entry.name)
        if found:
            return found
        time.sleep(0.01)
    return set()


def test_a_run_has_its_state_from_the_first_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(marks, "STATE_ROOT", tmp_path / "run")
    monkeypatch.setattr(marks, "MEMORY_ROOT", tmp_path / "shm")
    seen: list[RunState | None] = []
    rename = Path.rename

    def looked(self: Path, target: Path) -> Path:
        moved = rename(self, target)
        seen.extend(lifecycle.read_state(r) for r in lifecycle.live_runs() if r == "a-1")
        return moved

    monkeypatch.setattr(Path, "rename", looked)
    lifecycle.announce("a-1", kind="up", topology="t")
    assert seen and all(s is not None and s.announced and s.owner_alive for s in seen)
    with pytest.raises(NetworkError, match="already exists"):
        lifecycle.announce("a-1", kind="up", topology="t")
    lifecycle.purge("a-1")
    assert not (tmp_path / "run").exists()


def test_what_a_killed_starter_left_unnamed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "STATE_ROOT", tmp_path)
    for pid in (os.getpid(), 2**22 + 1):
        (tmp_path / f".{pid}.a-1").mkdir()
    lifecycle.remove_unfinished()
    assert [p.name for p in tmp_path.iterdir()] == [f".{os.getpid()}.a-1"]


def test_a_signal_does_not_cut_the_removal_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner is killed while its cell, which is complete, takes its network down."""
    monkeypatch.setattr(marks, "STATE_ROOT", tmp_path / "run")
    monkeypatch.setattr(marks, "MEMORY_ROOT", tmp_path / "shm")
    for directory in (marks.state_directory("a-1"), marks.memory_directory("a-1")):
        directory.mkdir(parents=True)
    monkeypatch.setattr(lifecycle, "_unmount_below", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with termination_as_interrupt(), pytest.raises(KeyboardInterrupt):
        lifecycle.purge("a-1")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_two_remove_is_gone_for_both(tmp_path: Path) -> None:
    assert lifecycle._remove_directory(tmp_path / "none") == ""
    (tmp_path / "d/e").mkdir(parents=True)
    assert lifecycle._remove_directory(tmp_path / "d") == ""
    assert not (tmp_path / "d").exists()


def test_mounts_below_innermost_first() -> None:
    text = (
        "1 0 8:1 / / rw - ext4 x rw\n"
        "2 1 0:5 / /run/downpour/a/m rw - tmpfs x rw\n"
        "3 1 0:5 / /run/downpour/a/m/n rw - tmpfs x rw\n"
        "4 1 0:5 / /run/downpour/ab rw - tmpfs x rw\n"
    )
    assert lifecycle.mounts_below(Path("/run/downpour/a"), text) == [
        "/run/downpour/a/m/n",
        "/run/downpour/a/m",
    ]


@pytest.mark.parametrize("run_id", ["", "..", "a/b", "-x", "a" * 41, "a b"])
def test_bad_run_ids_are_refused(run_id: str) -> None:
    with pytest.raises(NetworkError, match="valid: up to 40 letters"):
        lifecycle.purge(run_id)
    with pytest.raises(NetworkError, match="valid: up to 40 letters"):
        lifecycle.enter(run_id)


def test_only_single_threaded_processes_enter() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: enter() refuses earlier without")
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    try:
        with pytest.raises(NetworkError, match="single thread"):
            lifecycle.enter(lifecycle.new_run_id("t"))
    finally:
        release.set()
        thread.join()


def test_without_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for argv in (["up", "geni5"], ["down"], ["shell", "x"], ["purge", "x"]):
        assert cli.main(argv) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and "found user id 1000; valid: root" in error


@pytest.mark.parametrize(
    ("there", "said"),
    [
        (
            ("geni5-12ab34", "x-ldm6"),
            "found run 'geni5-12ab3'; valid: geni5-12ab34, x-ldm6 (nearest",
        ),
        ((), "found run 'geni5-12ab3'; valid: none: found nothing of a run"),
    ],
)
def test_purge_of_what_is_not_there(
    there: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    purged: list[str] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(lifecycle, "live_runs", lambda: there)
    monkeypatch.setattr(lifecycle, "purge", purged.append)
    assert cli.main(["purge", "geni5-12ab3"]) == 2
    assert said in capsys.readouterr().err and not purged
    if there:
        assert cli.main(["purge", there[0]]) == 0
        assert purged == [there[0]]


def test_unknown_topology_and_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: `up` refuses earlier without")
    assert cli.main(["up", "geni6"]) == 2
    assert "geni6" in capsys.readouterr().err
    assert cli.main(["up", "geni5", "--receivers", "0"]) == 2
    assert "receivers" in capsys.readouterr().err
    assert cli.main(["up", "geni5", "--set", "x"]) == 2
    assert "valid: NAME=VALUE" in capsys.readouterr().err


def test_hosts_table_of_a_network() -> None:
    network: Network = two_hosts(Impairment(delay_ms=18.0))
    lines = up_down.hosts_table(network, {"p": os.getpid(), "q": os.getpid()})
    assert lines[1].split() == ["p", "p", "10.9.1.1", "10.8.1.2", "publisher"]
    assert lines[2].split() == ["q", "q", "10.9.1.2", "10.8.2.2", "36", "ms"]


def test_open_emulation_wants_an_entered_run(tmp_path: Path) -> None:
    with (
        pytest.raises(NetworkError, match=r"lifecycle\.enter"),
        open_emulation(two_hosts(Impairment()), tmp_path),
    ):
        pass


@pytest.mark.root
def test_enter_leave_purge() -> None:
    home = Path("/proc/self/ns/net").stat().st_ino
    run_id = lifecycle.new_run_id("test")
    run = lifecycle.enter(run_id, topology="t")
    try:
        assert Path("/proc/self/ns/net").stat().st_ino == marks.namespace_path(run_id).stat().st_ino
        assert run_id in lifecycle.live_runs()
        found = lifecycle.read_state(run_id)
        assert found is not None and found.owner_alive and found.topology == "t"
        with pytest.raises(NetworkError, match="already exists"):
            lifecycle.enter(run_id)
        memory = marks.memory_directory(run_id)
        memory.mkdir(parents=True)
        (memory / "queue").write_bytes(b"x")
        child = subprocess.Popen(["sleep", "60"])
        unmarked = subprocess.Popen(["sleep", "60"], env={})
        assert {child.pid, unmarked.pid} <= marks.processes_of(run_id)
    finally:
        run.leave()
        lifecycle.purge(run_id)
    assert Path("/proc/self/ns/net").stat().st_ino == home
    assert (child.wait(), unmarked.wait()) == (-9, -9)
    assert run_id not in lifecycle.live_runs()
    assert not marks.namespace_path(run_id).exists() and not run.state_dir.exists()
    assert not memory.exists()
    lifecycle.purge(run_id)  # a second time: nothing to do, no error
