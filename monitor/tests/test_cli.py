# SPDX-License-Identifier: Apache-2.0
"""`downpour monitor`: a run into the store, out of it as text, and what is refused."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from common.command_line import run
from monitor.cli import app
from monitor.sources import MOST_BYTES

LINES = (
    '{"series":0,"name":"queue_products","kind":"gauge","decimals":0,"labels":{"host":"uva"},'
    '"help":"Products."}\n'
    '{"time_us":1000000,"values":[[0,5]]}\n'
    '{"time_us":2000000,"values":[[0,6]]}\n'
)
Called = Callable[..., tuple[int, str, str]]


@pytest.fixture
def called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Called:
    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(app, [*arguments, "--store", str(tmp_path / "m.db")])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def make_run(tmp_path: Path, lines: str = LINES) -> Path:
    """Write a run of two cells, one of them virtual, and a third one without samples."""
    top = tmp_path / "runs/lossy/20261123T1600"
    for name, clock in (("a", "native"), ("b", "virtual")):
        (top / "cells" / name / "logs").mkdir(parents=True)
        (top / "cells" / name / "logs/counters.jsonl").write_text(lines)
        (top / "cells" / name / "cell.json").write_text(json.dumps({"clock": clock}))
    (top / "cells/c").mkdir()
    return top


def test_a_run_in_and_out(tmp_path: Path, called: Called) -> None:
    top = make_run(tmp_path)
    shown = (
        "lossy/20261123T1600/a (native): 2 series, 4 values\n"
        "lossy/20261123T1600/b (virtual): 2 series, 4 values\n"
    )
    for _ in range(2):  # again: nothing counts twice
        assert called("import", str(top)) == (0, shown, "")
    code, _, error = called("export")
    assert code == 2
    assert error == (
        "--source: found nothing; valid: lossy/20261123T1600/a, lossy/20261123T1600/b\n"
    )
    code, text, _ = called("export", "--source", "lossy/20261123T1600/b")
    assert code == 0
    assert text.splitlines()[:4] == [
        "# TYPE downpour_queue_products gauge",
        "# HELP downpour_queue_products Products.",
        'downpour_queue_products{host="uva"} 5 1.000000',
        'downpour_queue_products{host="uva"} 6 2.000000',
    ]
    code, text, _ = called("export", "--source", "lossy/20261123T1600/a", "--format", "csv")
    assert text.splitlines()[:3] == [
        "time_s,metric,host,value",
        "1.000000,queue_products,uva,5",
        "2.000000,queue_products,uva,6",
    ]


def test_an_export_of_steps(tmp_path: Path, called: Called) -> None:
    called("import", str(make_run(tmp_path) / "cells/a"))
    code, text, _ = called("export", "--format", "csv", "--step", "1min")
    assert code == 0 and "60.000000,queue_products,uva,6" in text.splitlines()
    assert "queue_products,uva,5" not in text
    for wrong in ("15s", "10.5s"):
        code, _, error = called("export", "--step", wrong)
        assert (code, "valid: 10s, 20s, 1min" in error) == (2, True)


def test_exports_are_imported(tmp_path: Path, called: Called) -> None:
    called("import", str(make_run(tmp_path) / "cells/a"))
    for name, form in (("x.csv", "csv"), ("x.om", "openmetrics")):
        code, text, _ = called("export", "--source", "a", "--format", form)
        assert code == 0
        (tmp_path / name).write_text(text)
        code, out, error = called("import", str(tmp_path / name))
        assert (code, out, error) == (0, "x (native): 2 series, 4 values\n", "")
        (tmp_path / name).rename(tmp_path / f"{name}.done")


def test_old_points_are_forgotten(tmp_path: Path, called: Called) -> None:
    line = "20150615T{:02}0100Z,here,NGRID,9,9,1,1,1.0,1,1.0,1,1.0,1.0,0\n"
    file = tmp_path / "minutes.txt"
    for hour in range(5):
        file.write_text(line.format(hour))
        assert called("import", str(file), "--keep", "2h")[0] == 0
    _, out, _ = called("minutes", "--step", "1h")
    assert [row.split()[3] for row in out.splitlines()[1:]] == ["02:00", "03:00", "04:00"]
    code, _, error = called("import", str(file), "--keep", "soon")
    assert (code, error.count("found 'soon'; valid: ")) == (2, 1)


def test_lines_left_out_are_told(tmp_path: Path, called: Called) -> None:
    top = make_run(tmp_path, LINES + "junk\n")
    code, _, error = called("import", str(top / "cells/a"))
    assert code == 1
    assert error.startswith(f"{top}/cells/a: left out 1 line: found 'junk': ")


def test_what_is_refused(tmp_path: Path, called: Called) -> None:
    (tmp_path / "bytes.om").write_bytes(b"\xff\xfe")
    (tmp_path / "wrong.csv").write_text("a,b\n")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "fifo.csv")
    with (tmp_path / "endless.om").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    for name, said in (
        ("bytes.om", "found bytes that are not text"),
        ("wrong.csv", "line 1: found no column time_s"),
        ("empty", "found no logs/counters.jsonl; valid: a run made with --monitor"),
        ("nowhere", "No such file"),
        ("fifo.csv", "found no regular file; valid: "),
        ("endless.om", f"found {MOST_BYTES + 1} bytes; valid: at most {MOST_BYTES}"),
        ("/dev/zero", "found no regular file"),
    ):
        code, _, error = called("import", str(tmp_path / name))
        assert code in (1, 2)
        assert said in error
        assert error.count("\n") == 1
    (tmp_path / "m.db").unlink()
    code, _, error = called("export")
    assert (code, error.count("\n")) == (2, 1)


def test_a_hostile_cell_is_imported_or_refused(tmp_path: Path, called: Called) -> None:
    cell = make_run(tmp_path) / "cells/a"
    (cell / "cell.json").write_text("[" * 100_000)
    assert called("import", str(cell)) == (0, "a (native): 2 series, 4 values\n", "")
    (cell / "logs/counters.jsonl").unlink()
    os.mkfifo(cell / "logs/counters.jsonl")
    code, _, error = called("import", str(cell))
    assert code == 2
    assert "found no logs/counters.jsonl" in error


def test_minutes_that_are_not_there(tmp_path: Path, called: Called) -> None:
    file = tmp_path / "minutes.txt"
    file.write_text("20150615T000100Z,here,NGRID,9,9,1,1,1.0,1,1.0,1,1.0,1.0,0\n")
    called("import", str(file))
    assert called("minutes", "--host", "here")[0] == 0
    assert called("minutes", "--host", "there") == (
        2, "", "--host: found there; valid: here\n",
    )  # fmt: skip
    for wrong in ("30s", "90s", "1.5min"):
        code, _, error = called("minutes", "--step", wrong)
        assert code == 2 and error.endswith("valid: whole minutes\n"), error
    called("import", str(make_run(tmp_path) / "cells/a"))
    code, _, error = called("minutes", "--source", "a", "--host", "uva")
    assert (code, error) == (2, "--host: found uva; valid: none: no minute records\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--port", "65536"), "--port: found '65536'; valid: 0 to 65535"),
        (("--port", "-1"), "--port: found '-1'; valid: 0 to 65535"),
        (("--listen", "localhost", "--port", "{taken}"), "port {taken}: Address already in use"),
        (("--listen", "0.0.0.0"), "found 0.0.0.0 without --token-file"),
        (("--listen", "192.0.2.1", "--token-file", "{folder}/good"), "found 192.0.2.1 port 8750"),
        (("--listen", "no..name", "--token-file", "{folder}/good"), "found no..name port 8750"),
        (("--token-file", "{folder}/short"), "found a token of 3 characters; valid: at least 16"),
        (("--token-file", "{folder}/bytes"), "found bytes that are not text; valid: a token"),
        (("--token-file", "{folder}/none"), "No such file"),
        (("--token-file", "{folder}"), "found no regular file; valid: a file"),
        (("{folder}",), "not a run directory"),
        (("{folder}/none",), "not a run directory"),
        (("{folder}/short",), "not a run directory"),
    ],
)
def test_what_serve_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "good").write_text("0123456789abcdef\n")
    (tmp_path / "short").write_text("abc")
    (tmp_path / "bytes").write_bytes(b"\xff" * 20)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        about = {"taken": taken.getsockname()[1], "folder": tmp_path}
        code = run(app, ["serve", *(word.format(**about) for word in arguments)])
        error = capsys.readouterr().err
        assert said.format(**about) in error
    assert code in (1, 2)
    assert error.count("\n") == 1
