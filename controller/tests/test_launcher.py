# SPDX-License-Identifier: Apache-2.0
"""The controller process: mistakes, start, end."""

from __future__ import annotations

import hashlib
import http.client
import json
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.http.server import IDLE_TIMEOUT_S
from controller import launcher
from controller.api.path_client import PathClient, PathClientError, PathOptions, endpoints_of
from controller.options import UsageError, host_and_port
from controller.service.store import Store
from controller.tests import process
from controller.tests.sample import LEAF_2, LEAF_3, LEAF_4, ROOT, network


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def network_file(tmp_path: Path) -> Path:
    path = tmp_path / "network.json"
    path.write_text(network().to_json())
    return path


def options(network_file: Path, **changes: str | Path | None) -> list[str]:
    values: dict[str, str | Path | None] = {
        "network": network_file,
        "domain": "core",
        "of-listen": f"127.0.0.1:{free_port()}",
        "rest-socket": network_file.parent / "rest.sock",
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    return [t for k, v in values.items() if v is not None for t in (f"--{k}", str(v))]


def test_a_bad_period_of_observers_is_a_mistake(
    network_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DOWNPOUR_LOOK_S", "often")
    assert launcher.main(options(network_file)) == 2
    said = "controller: DOWNPOUR_LOOK_S: found 'often'; valid: 0 to 600 (seconds)\n"
    assert capsys.readouterr().err == said


TOKEN = "secret-of-the-tests-0123456789"


def workgroups(network_file: Path) -> Path:
    """Write a file with one workgroup, whose token is TOKEN."""
    path = network_file.parent / "workgroups.yaml"
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    path.write_text(f'workgroups:\n  - {{name: unidata, token_sha256: "{digest}"}}\n')
    return path


def test_host_and_port() -> None:
    assert host_and_port("--x", "127.0.0.1:6653") == ("127.0.0.1", 6653)
    assert host_and_port("--x", "[::1]:1") == ("::1", 1)
    for text in ("", "6653", ":6653", "host:", "host:x", "host:0", "host:65536", "host:-1"):
        with pytest.raises(UsageError, match="--x"):
            host_and_port("--x", text)


def assert_refused(capsys: pytest.CaptureFixture[str], arguments: list[str], *texts: str) -> None:
    """Do the same as `assert_one_line` in this process: for mistakes found before the log is set
    up."""
    assert launcher.main(arguments) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert len(errors.splitlines()) == 1, errors
    for text in texts:
        assert text in errors


def assert_one_line(arguments: list[str], *texts: str) -> None:
    done = process.start(arguments)
    try:
        output, errors = done.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.end(done)
        raise
    assert done.returncode == 2, errors
    assert output == ""
    assert len(errors.splitlines()) == 1, errors
    for text in texts:
        assert text in errors


def test_bad_network_files(
    tmp_path: Path, network_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(capsys, options(network_file, network=tmp_path / "none"), "none: No such file")
    bad = tmp_path / "bad.json"
    raw = json.loads(network().to_json())
    del raw["links"]
    for text, expected in (
        ("{", "Expecting property name"),
        ("[]", "not a network description"),
        (json.dumps(raw), "key 'links' is missing"),
    ):
        bad.write_text(text)
        assert_refused(capsys, options(network_file, network=bad), str(bad), expected)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.json", "network.json"]


@pytest.mark.slow
def test_unknown_domain(network_file: Path) -> None:
    assert_one_line(
        options(network_file, domain="nowhere"), "'nowhere'", "does not exist; valid: core"
    )


def test_ports_in_use(network_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert_refused(
            capsys, options(network_file, of_listen=address), f"--of-listen {address}: port in use"
        )
        assert_refused(
            capsys,
            options(network_file, rest_listen=address, workgroups=workgroups(network_file)),
            f"--rest-listen {address}: port in use",
        )
    assert not (network_file.parent / "rest.sock").exists()


@pytest.mark.slow
def test_rest_socket_in_use(network_file: Path) -> None:
    path = network_file.parent / "rest.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        assert_one_line(options(network_file), f"{path}: a server is already listening there")
    path.unlink()
    path.write_text("precious")
    assert_one_line(options(network_file), f"{path}: exists and is not a socket")
    assert path.read_text() == "precious"


@pytest.mark.slow
def test_log_cannot_be_written(network_file: Path) -> None:
    log = network_file.parent / "none" / "log"
    assert_one_line(options(network_file, log=log), f"--log {log}: No such file or directory")


@pytest.fixture
def running(network_file: Path) -> Iterator[subprocess.Popen[str]]:
    socket_path = network_file.parent / "rest.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(socket_path))  # left behind by a process that was killed
    started = process.start(
        options(
            network_file,
            log=network_file.parent / "log",
            rest_listen=f"127.0.0.1:{free_port()}",
            workgroups=workgroups(network_file),
        )
    )
    try:
        with PathClient(socket_path) as service:

            def answers() -> bool:
                assert started.poll() is None
                try:
                    return bool(service.health()["status"] == "ok")
                except PathClientError:
                    return False

            process.wait_until("health", answers)
        yield started
    finally:
        log = network_file.parent / "log"
        print(log.read_text() if log.exists() else "no log")  # shown if the test fails
        process.end(started)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it(
    running: subprocess.Popen[str], tmp_path: Path, number: signal.Signals
) -> None:
    assert stat.S_IMODE((tmp_path / "rest.sock").stat().st_mode) == 0o600
    running.send_signal(number)
    output, errors = running.communicate(timeout=10)
    assert running.returncode == 0
    assert (output, errors) == ("", "")
    assert not (tmp_path / "rest.sock").exists()
    assert f"ending: {number.name}" in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_client_over_the_socket_without_switches(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    with PathClient(tmp_path / "rest.sock") as service:
        assert service.health()["switches"] == dict.fromkeys(("s1", "s2", "s3", "s4"), False)
        with pytest.raises(PathClientError, match="switch 's1' not connected") as caught:
            service.create_path("p", ROOT, 1_000_000)
        assert caught.value.status == 504
        assert service.get("p")["state"] == "degraded"
        with pytest.raises(PathClientError, match="there is no path 'q'") as caught:
            service.get("q")
        assert (caught.value.status, caught.value.title) == (404, "Unknown path")
    assert running.poll() is None


@pytest.mark.slow
def test_the_owners_connection_outlives_the_clients_patience(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    """A client that gets no processor may be idle for long; it then uses the same connection
    again."""
    request = b"GET /v1/health HTTP/1.1\r\nHost: owner\r\n\r\n"
    with socket.socket(socket.AF_UNIX) as owner:
        owner.settimeout(process.HANG_S)
        owner.connect(str(tmp_path / "rest.sock"))
        for idle_s in (0.0, IDLE_TIMEOUT_S + 0.5):
            time.sleep(idle_s)
            owner.sendall(request)
            answer = http.client.HTTPResponse(owner)
            answer.begin()
            assert answer.status == 200 and b"switches" in answer.read()
    assert running.poll() is None


def test_client_without_a_service(tmp_path: Path) -> None:
    with (
        PathClient(tmp_path / "none.sock") as service,
        pytest.raises(PathClientError, match=r"does not answer at .*none\.sock") as caught,
    ):
        service.health()
    assert caught.value.status == 0


def test_endpoints_of_segments() -> None:
    root, leaves = endpoints_of(network())
    assert root == ROOT
    assert leaves == {"seg2": LEAF_2, "seg3": LEAF_3, "seg4": LEAF_4}


def start_with_store(network_file: Path, *more: str) -> subprocess.Popen[str]:
    """Start a controller that keeps its paths; return when it answers."""
    store, log = network_file.parent / "store", network_file.parent / "log"
    started = process.start([*options(network_file, store=store, log=log), *more])

    def answers() -> bool:
        assert started.poll() is None, log.read_text() if log.exists() else "no log"
        try:
            with PathClient(network_file.parent / "rest.sock") as service:
                return bool(service.health())
        except PathClientError:
            return False

    try:
        process.wait_until("health", answers)
    except BaseException:
        process.end(started)
        raise
    return started


@pytest.mark.slow
def test_paths_and_holds_survive_a_kill(network_file: Path) -> None:
    """No switch is connected: the test is what the next process knows."""
    first = start_with_store(network_file)
    try:
        with PathClient(network_file.parent / "rest.sock") as service:
            with pytest.raises(PathClientError, match="not connected"):
                service.create_path("a", ROOT, 1_000_000, end_time=4e9)
            for leaf in (LEAF_2, LEAF_4):
                with pytest.raises(PathClientError, match="not connected"):
                    service.add_leaf("a", leaf)
            with pytest.raises(PathClientError, match="not connected"):
                service.remove_leaf("a", LEAF_2)
            shown = service.get("a")
            held = service.hold(
                "a",
                ROOT,
                1_000_000,
                [LEAF_3],
                hold_id="h",
                hold_s=3000,
                options=PathOptions(end_time=4e9),
            )
    finally:
        process.end(first)  # kill -9
    second = start_with_store(network_file)
    try:
        with PathClient(network_file.parent / "rest.sock") as service:
            assert service.get("a") == shown
            assert service.hold_state("h") == held
            with pytest.raises(PathClientError, match="hold 'h' of path 'a' is open"):
                service.delete_path("a")
    finally:
        process.end(second)
    text = (network_file.parent / "log").read_text()
    assert "recovered from the store: 1 path, 1 leaf, 1 hold" in text


def test_stores_that_cannot_be_used(network_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = network_file.parent / "store"
    store.write_bytes(b"precious, and no SQLite " * 100)
    assert_refused(
        capsys, options(network_file, store=store), f"--store {store}: file is not a database"
    )
    assert store.read_bytes().startswith(b"precious")
    store.unlink()
    Store(store, "another", "core").close()
    assert_refused(
        capsys, options(network_file, store=store), "is of network 'another'; valid: of 'sample'"
    )
    assert_refused(
        capsys, options(network_file, store=network_file.parent / "no" / "store"), "No such file"
    )


@pytest.mark.slow
def test_workgroups_are_read_again_at_sighup(network_file: Path) -> None:
    path, port = workgroups(network_file), free_port()
    more = ("--workgroups", str(path), "--rest-listen", f"127.0.0.1:{port}")
    running = start_with_store(network_file, *more)
    log = network_file.parent / "log"
    try:
        with PathClient(f"http://127.0.0.1:{port}", token=TOKEN) as service:
            assert service.workgroup()["name"] == "unidata"
            good = path.read_text()
            path.write_text("workgroups: 7")
            running.send_signal(signal.SIGHUP)
            process.wait_until("it says so", lambda: "stay as they were" in log.read_text())
            assert service.workgroup()["name"] == "unidata"
            path.write_text(good.replace("unidata", "unidata-2"))
            running.send_signal(signal.SIGHUP)
            process.wait_until("it is read", lambda: "1 workgroup read" in log.read_text())
            assert service.workgroup()["name"] == "unidata-2"
    finally:
        process.end(running)
    assert TOKEN not in log.read_text()


def test_options_that_do_not_fit(network_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, expected in (
        (["--rest-listen", "127.0.0.1:1"], "--rest-listen without --workgroups"),
        (["--rest-tls-key", "k"], "--rest-tls-key and --rest-tls-cert together"),
        (["--rate-limit", "0"], "--rate-limit 0"),
    ):
        with pytest.raises(SystemExit) as caught:
            launcher.main([*options(network_file), *wrong])
        assert caught.value.code == 2
        assert expected in capsys.readouterr().err.splitlines()[-1]
