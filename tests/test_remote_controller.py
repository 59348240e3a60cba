# SPDX-License-Identifier: Apache-2.0
"""A network's controller may run in another network namespace, as in docker-compose.yml."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.places import ROOT
from common.shell import NetworkError, check
from controller.api.path_client import PathClient, PathClientError, endpoints_of
from controller.remote_controllers import RemoteControllers
from topologies.emulate import lifecycle, marks, remote_controllers
from topologies.emulate.emulation import open_emulation
from topologies.emulate.processes import relay_program
from topologies.emulate.remote_controllers import RemoteController
from topologies.model.load import find, load

WAIT_S = 60.0


def wait_until(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def attend(root: Path, namespace: str) -> subprocess.Popen[bytes]:
    inside = ["nsenter", f"--net=/run/netns/{namespace}", "--"]
    argv = [*inside, sys.executable, "-m", "controller", "attend", str(root)]
    # Without the mark of the run that this process entered: the attendant is not part of it.
    env = {name: value for name, value in os.environ.items() if name != marks.MARK}
    process = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.DEVNULL, env=env)
    wait_until("attendant", (root / ".attendant").exists)
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


@contextmanager
def namespace_with_loopback(name: str) -> Iterator[None]:
    check(["ip", "netns", "add", name])
    try:
        check(["ip", "-n", name, "link", "set", "lo", "up"])
        yield
    finally:
        check(["ip", "netns", "del", name])


@pytest.mark.emulated
def test_controller_elsewhere_may_be_restarted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    if not relay_program().exists():
        pytest.skip(f"{relay_program()} is not built (make build): NOTHING of this was tested")
    namespace = f"remote-{os.getpid()}"
    monkeypatch.setenv(remote_controllers.HOST_VARIABLE, "127.0.0.1")
    monkeypatch.setattr(remote_controllers, "HOME_NAMESPACE", Path("/run/netns") / namespace)
    marks.STATE_ROOT.mkdir(parents=True, exist_ok=True)
    network = load(find("geni5"), {"receivers": 4})
    root, leaves = endpoints_of(network)
    with namespace_with_loopback(namespace):
        attendant = attend(marks.STATE_ROOT, namespace)
        try:
            with (
                lifecycle.enter(lifecycle.new_run_id("test-remote")) as run,
                open_emulation(network, run.state_dir) as emulation,
                PathClient(emulation.controller_socket) as service,
            ):
                service.create_path("NGRID", root, 20_000_000)
                service.add_leaf("NGRID", leaves["wsu"])

                def flows() -> list[str]:
                    text = check(["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "chic"])
                    return sorted(re.sub(r"\w+=[\d.]+s?, ", "", x) for x in text.splitlines())

                def ready() -> bool:
                    try:
                        return all(service.health()["switches"].values())
                    except PathClientError:
                        return False

                before = flows()
                end(attendant)
                with pytest.raises(PathClientError):
                    service.health()
                assert flows() == before
                assert emulation.health() == []
                attendant = attend(marks.STATE_ROOT, namespace)
                wait_until("the switches are back", ready)
                assert [p["name"] for p in service.paths()] == ["NGRID"]
                assert flows() == before
                service.add_leaf("NGRID", leaves["osf"])
                assert len(service.get("NGRID")["leaves"]) == 2
                request = run.state_dir / "controller-al2s.request.json"
                assert request.exists()
            assert not request.exists()
        finally:
            end(attendant)
    assert not (marks.STATE_ROOT / ".attendant").exists()


def test_lab_says_when_nobody_attends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "STATE_ROOT", tmp_path)
    monkeypatch.setattr(remote_controllers, "CONTROLLER_START_TIMEOUT_S", 0.3)
    controller = RemoteController("controller", "al2s", 6653, tmp_path)
    valid = "no process attends .*; valid: run there `python -m controller"
    with pytest.raises(NetworkError, match=valid):
        controller.start(tmp_path / "network.json")


def test_a_domain_may_have_its_own_attendant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network addresses controller-west, and only west's attendant answers."""
    python = tmp_path / "python"
    starts = tmp_path / "starts"
    python.write_text(f'#!/bin/sh\necho "$*" >> {starts}\nexit 2\n')
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    monkeypatch.setattr(marks, "STATE_ROOT", tmp_path)
    monkeypatch.setattr(remote_controllers, "CONTROLLER_START_TIMEOUT_S", 0.3)
    monkeypatch.setattr(remote_controllers, "start_bridge", lambda *_: [])
    run = tmp_path / "run"
    run.mkdir()
    west = RemoteController("controller-{domain}", "west", 6653, run)
    east = RemoteController("controller", "east", 6654, run)
    assert (west.host, east.host) == ("controller-west", "controller")
    (tmp_path / ".attendant").touch()
    with pytest.raises(NetworkError, match=r"controller-west: .* attend .* --domain west"):
        west.start(run / "network.json")
    (tmp_path / ".attendant-west").touch()
    for controller in (west, east):
        controller.start(run / "network.json")
    for attendant, served in (
        (RemoteControllers(tmp_path, "west"), west),
        (RemoteControllers(tmp_path), east),
    ):
        deadline = time.monotonic() + WAIT_S
        while served.exit_code is None:
            attendant.look(0.0)
            time.sleep(0.02)
            assert time.monotonic() < deadline
        attendant.close()
        started = starts.read_text().splitlines()[-1]
        assert f"--domain {served.domain} " in started
    assert len(starts.read_text().splitlines()) == 2


@pytest.mark.parametrize("text", ["", "[]", '{"arguments": "x"}', '{"arguments": [1]}'])
def test_bad_request_is_answered_and_not_repeated(
    text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "run" / "controller-x"
    own.mkdir(parents=True)
    request = tmp_path / "run" / "controller-x.request.json"
    request.write_text(text)
    attendant = RemoteControllers(tmp_path)
    for now_s in (0.0, 5.0):
        attendant.look(now_s)
    assert json.loads((own / "controller-x.ended.json").read_text()) == {"code": 2}
    assert capfd.readouterr().err.count("valid: ") == 1
    attendant.close()


def test_what_ends_is_started_again_but_not_after_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller is a script that counts its starts and ends with 1, then with 2."""
    python = tmp_path / "python"
    starts = tmp_path / "starts"
    python.write_text(f"#!/bin/sh\necho >> {starts}\nexit $(wc -l < {starts})\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    own = tmp_path / "run" / "controller-x"
    own.mkdir(parents=True)
    (tmp_path / "run" / "controller-x.request.json").write_text('{"arguments": []}')
    attendant = RemoteControllers(tmp_path)
    ended = own / "controller-x.ended.json"
    now_s = 0.0
    deadline = time.monotonic() + WAIT_S
    while not ended.exists():
        attendant.look(now_s)
        now_s += 0.1
        time.sleep(0.02)
        assert time.monotonic() < deadline
    assert json.loads(ended.read_text()) == {"code": 2}
    assert starts.read_text().count("\n") == 2
    attendant.close()


def test_a_network_that_ends_meanwhile_ends_no_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A network's directory may disappear at any moment. Here the attendant cannot write to it."""
    own = tmp_path / "run" / "controller-x"
    (own / "controller-x.stderr").mkdir(parents=True)
    (own / "controller-x.ended.tmp").mkdir()
    request = tmp_path / "run" / "controller-x.request.json"
    attendant = RemoteControllers(tmp_path)
    for text, said in (('{"arguments": []}', "controller-x.stderr: Is a directory"), ("", "valid")):
        request.write_text(text)
        for now_s in (0.0, 0.5):
            attendant.look(now_s)
        assert capfd.readouterr().err.count(said) == 1
    attendant.close()
