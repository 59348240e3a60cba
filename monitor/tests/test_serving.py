# SPDX-License-Identifier: Apache-2.0
"""A run while it is running: growing logs, and which client gets which answers."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from common.files import Tail
from common.http.server import BUSY_MAX, MAX_CONNECTIONS_PER_ADDRESS, bounded
from common.places import ROOT
from monitor.api import HEADERS, make_app
from monitor.running import FinishedRun, RunningRun, Waiting
from parsers.measure.delivered import decode
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run

CELL = SyntheticCell("ldm7", m=2, duration_s=20)


def test_a_tail_follows_growth_cuts_and_rotation(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    assert tail.lines() == []
    path.write_text("one\ntw")
    assert tail.lines() == [b"one"]
    with path.open("a") as file:
        file.write("o\nthree\n")
    assert tail.lines() == [b"two", b"three"]
    path.write_text("x\n")  # cut
    assert tail.lines() == [b"x"]
    path.rename(tmp_path / "log.1")
    path.write_text("rotated, and longer than before\n")
    assert tail.lines() == [b"rotated, and longer than before"]
    assert tail.lines() == []


@pytest.fixture
def partial(tmp_path: Path) -> Path:
    """Make a run that has half of each log."""
    whole = write_synthetic_run(tmp_path / "whole", CELL)
    found = tmp_path / "runs/synthetic/.20261124T000000Z.partial"
    cell = found / f"cells/.{CELL.name}.partial"
    (cell / "logs").mkdir(parents=True)
    for log in (whole / "cells" / CELL.name / "logs").glob("*.log"):
        text = log.read_text()
        (cell / "logs" / log.name).write_text(text[: len(text) // 2])
    return found


@pytest.mark.slow
def test_what_runs_grows_into_what_was(partial: Path, tmp_path: Path) -> None:
    run = RunningRun(partial)
    run.look()
    half = decode(run.deliveries(CELL.name) or b"")
    assert 0 < (half.way > 0).sum() < 2 * CELL.products
    before = run.version
    run.look()
    assert run.version == before  # nothing new
    logs = tmp_path / "whole/cells" / CELL.name / "logs"
    for log in logs.glob("*.log"):
        text = log.read_text()
        with (partial / f"cells/.{CELL.name}.partial/logs" / log.name).open("a") as file:
            file.write(text[len(text) // 2 :])
    run.look()
    assert run.version > before
    now = decode(run.deliveries(CELL.name) or b"")
    finished = FinishedRun(tmp_path / "whole")
    then = decode(finished.deliveries(CELL.name) or b"")
    assert now.idents == then.idents
    assert (now.way == then.way).all() and (now.latency_us == then.latency_us).all()
    assert (now.delay_us == then.delay_us).all()


@pytest.mark.slow
def test_waiting_shows_what_begins_and_then_the_finished_run(partial: Path) -> None:
    waiting = Waiting(partial.parent.parent)
    empty = Waiting(partial / "nothing")
    empty.look()
    assert "Nothing runs" in str(empty.board()["headline"])
    waiting.look()
    assert waiting.board()["verdict"] == "running"
    final = partial.parent / "20261124T000000Z"
    (partial / f"cells/.{CELL.name}.partial").rename(partial / f"cells/{CELL.name}")
    whole = partial.parents[2] / "whole"
    for file in [whole / "manifest.json", *(whole / "cells" / CELL.name).rglob("*")]:
        if file.is_file():
            target = partial / file.relative_to(whole)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    partial.rename(final)
    waiting.look()
    assert waiting.board()["verdict"] == "faithful"
    assert waiting.board()["run"] == "synthetic/20261124T000000Z"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    return FinishedRun(write_synthetic_run(tmp_path_factory.mktemp("finished"), CELL))


@pytest.fixture
def client(finished: FinishedRun) -> TestClient:
    return TestClient(make_app(finished), base_url="http://127.0.0.1:8750")


@pytest.mark.slow
def test_the_pages_parts(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200 and "<script>" not in page.text
    for name, value in HEADERS.items():
        assert page.headers[name] == value
    assert "unsafe" not in page.headers["Content-Security-Policy"]
    assert client.get("/static/board.js").headers["content-type"].startswith("text/javascript")
    board = client.get("/v1/board").json()
    assert board["verdict"] == "faithful" and board["cells"][0]["blob"]
    data = client.get(f"/v1/cells/{CELL.name}/deliveries.bin").content
    assert decode(data).shape == (2, CELL.products)


@pytest.mark.parametrize("cell", ["none", "..%2f..%2fetc", "%00", "<b>"])
def test_a_cell_that_is_not_there(client: TestClient, cell: str) -> None:
    assert client.get(f"/v1/cells/{cell}/deliveries.bin").status_code == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8750", "127.0.0.1.evil.example", ""]
)
def test_a_foreign_name_is_refused(client: TestClient, host: str) -> None:
    answer = client.get("/v1/board", headers={"Host": host})
    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/problem+json"
    assert "valid: 127.0.0.1" in answer.json()["detail"]


def test_elsewhere_needs_the_token(finished: FinishedRun) -> None:
    token = "0123456789abcdef"
    client = TestClient(make_app(finished, token), base_url="http://site.example")
    assert client.get("/v1/board").status_code == 401
    assert client.get("/v1/board", headers={"Authorization": "Bearer no"}).status_code == 401
    good = {"Authorization": f"Bearer {token}"}
    assert client.get("/v1/board", headers=good).status_code == 200
    assert client.get(f"/?token={token}").status_code == 200
    assert client.get("/v1/board").status_code == 200  # with its cookie


def test_names_in_a_run_cannot_end_the_pages_data() -> None:
    from parsers.report.board import render_board

    evil = "</script><script>alert(1)</script>"
    page = render_board({"run": evil, "cells": []}, {evil: b"x"})
    assert evil not in page
    assert json.loads(
        page.split('id="board">')[1].split("</script>")[0]
    )["run"] == evil  # fmt: skip


@pytest.fixture
def port(finished: FinishedRun) -> Iterator[int]:
    """Serve the page as `monitor serve` does; yield the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = bounded(make_app(finished), None, BUSY_MAX, has_lifespan=True)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(10)


def is_ended(connection: socket.socket) -> bool:
    """Return whether the server has ended a connection that asks nothing."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_a_silent_address_keeps_nobody_out(port: int) -> None:
    """It gets so many connections and no more; a client at another address is served."""
    silent = [
        socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0))
        for _ in range(MAX_CONNECTIONS_PER_ADDRESS + 6)
    ]
    end = time.monotonic() + 10
    while sum(map(is_ended, silent)) < 6 and time.monotonic() < end:
        time.sleep(0.05)
    assert sum(map(is_ended, silent)) == 6
    with socket.create_connection(("127.0.0.1", port), 10) as viewer:
        viewer.sendall(b"GET /v1/board HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert viewer.recv(15) == b"HTTP/1.1 200 OK"
    for connection in silent:
        connection.close()


def test_a_burst_of_viewers_leaves_room_for_others(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ask before the first one gets anything, and none reads."""
    monkeypatch.setattr("monitor.api.MOST_STREAMS", 20)
    request = b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    viewers = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(60)]
    for viewer in viewers:
        viewer.sendall(request)
    answers = [viewer.recv(12) for viewer in viewers]
    assert (answers.count(b"HTTP/1.1 200"), answers.count(b"HTTP/1.1 503")) == (20, 40)
    for viewer in viewers:
        viewer.close()
    end = time.monotonic() + 20
    while True:  # who has left makes room
        with socket.create_connection(("127.0.0.1", port), 10) as viewer:
            viewer.sendall(request)
            if viewer.recv(12) == b"HTTP/1.1 200":
                break
        assert time.monotonic() < end
        time.sleep(0.05)


def test_names_that_viewers_invent_are_not_kept(partial: Path) -> None:
    waiting = Waiting(partial.parent.parent)
    waiting.look()
    for number in range(100):
        assert waiting.added(f"invented {number}", whole=False) is None
    assert waiting.added(CELL.name, whole=False) is not None
    assert waiting._told_cells == {CELL.name}
    assert waiting.added(CELL.name, whole=False) is None  # nothing is new


def test_a_waiting_server_imports_nothing_that_evaluates() -> None:
    """What evaluates a finished run takes two seconds of the processor to import."""
    heavy = {"scipy", "matplotlib", "parsers.measure.evaluate", "parsers.report.board"}
    code = f"import sys, monitor.running, monitor.api\nprint(*sorted({heavy} & set(sys.modules)))"
    said = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
    assert said.split() == []
