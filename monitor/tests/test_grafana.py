# SPDX-License-Identifier: Apache-2.0
"""Dashboards and alerts, with Prometheus and VictoriaMetrics filled from a real run."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from common.places import BUILD
from monitor import openmetrics, remote_write, samples
from monitor.push import PushError, import_url, push
from monitor.recording import GONE

HERE = Path(__file__).resolve().parent
GRAFANA = HERE.parent / "grafana"
DASHBOARDS = sorted(GRAFANA.glob("*.json"))
RECORDED = samples.read((HERE / "data/counters.jsonl").read_text())
TIMES = openmetrics.sampled_us(RECORDED)
UP_S = 30.0
LDMSTATS = BUILD / "ldm7/ldmstats"


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed (apt-get install prometheus victoria-metrics)")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def ask(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        data: bytes = answer.read()
        return data


@contextmanager
def served(argv: list[str], url: str) -> Iterator[None]:
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + UP_S
            while True:
                try:
                    ask(url)
                    break
                except OSError:
                    assert process.poll() is None and time.monotonic() < deadline, argv[0]
                    time.sleep(0.1)
            yield
        finally:
            process.terminate()


def expressions() -> list[str]:
    found = []
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            found += [target["expr"] for target in panel["targets"]]
    return found


def unanswered(base: str) -> list[str]:
    """Return the expressions whose answer over the recording is empty."""
    empty = []
    for expr in expressions():
        asked = expr.replace("$__rate_interval", "15s").replace("$host", ".*")
        query = urllib.parse.urlencode(
            {
                "query": asked.replace("$feed", ".*"),
                "start": TIMES[0] / 1e6,
                "end": TIMES[-1] / 1e6,
                "step": "1",
            }
        )
        answer: dict[str, Any] = json.loads(ask(f"{base}/api/v1/query_range?{query}"))
        values = [v for row in answer["data"]["result"] for _, v in row["values"] if v != "NaN"]
        if not values:
            empty.append(expr)
    return empty


def test_there_is_something_to_ask() -> None:
    assert len(DASHBOARDS) == 3 and len(expressions()) >= 25 and len(RECORDED.points) > 100


def test_prometheus_answers_every_panel(tmp_path: Path) -> None:
    need("prometheus", "promtool")
    text, data, port = tmp_path / "run.om", tmp_path / "data", free_port()
    text.write_text("".join(openmetrics.lines(RECORDED)))
    argv = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    (tmp_path / "none.yml").write_text("{}")
    argv = [
        "prometheus",
        f"--config.file={tmp_path / 'none.yml'}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with served(argv, f"http://127.0.0.1:{port}/-/ready"):
        assert unanswered(f"http://127.0.0.1:{port}") == []


def test_prometheus_takes_remote_write(tmp_path: Path) -> None:
    need("prometheus")
    port = free_port()
    (tmp_path / "none.yml").write_text("{}")
    argv = [
        "prometheus",
        f"--config.file={tmp_path / 'none.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        "--storage.tsdb.retention.time=100y",
        "--web.enable-remote-write-receiver",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    base = f"http://127.0.0.1:{port}"
    with served(argv, f"{base}/-/ready"):
        with pytest.raises(PushError, match="found status 404"):
            push(base, "x", RECORDED)
        recorded = samples.read((HERE / "data/counters.jsonl").read_text())
        end_us = TIMES[-1] + 1_000_000
        next(iter(recorded.points.values())).add(end_us, GONE)
        assert push(f"{base}{remote_write.PATH}", "a/b c", recorded) > 1000
        assert unanswered(base) == []
        runs = json.loads(ask(f"{base}/api/v1/label/run/values?start=0"))
        assert runs["data"] == ["a/b c"]
        query = urllib.parse.urlencode({"query": 'count({run!=""})', "time": end_us / 1e6})
        late = json.loads(ask(f"{base}/api/v1/query?{query}"))
        assert int(late["data"]["result"][0]["value"][1]) == len(RECORDED.points) - 1


@contextmanager
def victoria_metrics(directory: Path) -> Iterator[str]:
    """Run a server; yield its address."""
    need("victoria-metrics")
    port = free_port()
    argv = [
        "victoria-metrics",
        f"-storageDataPath={directory}",
        "-retentionPeriod=100y",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-search.latencyOffset=0s",
    ]
    base = f"http://127.0.0.1:{port}"
    with served(argv, f"{base}/health"):
        yield base


def test_victoria_metrics_takes_remote_write(tmp_path: Path) -> None:
    with victoria_metrics(tmp_path) as base:
        assert push(f"{base}{remote_write.PATH}", "a/b c", RECORDED) > 1000
        ask(f"{base}/internal/force_flush")
        assert unanswered(base) == []


@pytest.mark.parametrize("size", [0, 1, 60, 65_535, 65_536, 65_537, 200_000])
def test_snappy_of_literals(size: int) -> None:
    """By the format's description: a length, then tags of 61 with two bytes of length - 1."""
    data = bytes(i % 251 for i in range(size))
    packed = remote_write.snappy(data)
    length, at, shift = 0, 0, 0
    while True:
        length |= (packed[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not packed[at - 1] & 0x80:
            break
    out = b""
    while at < len(packed):
        assert packed[at] == 61 << 2
        count = int.from_bytes(packed[at + 1 : at + 3], "little") + 1
        out += packed[at + 3 : at + 3 + count]
        at += 3 + count
    assert length == size and out == data


def test_victoria_metrics_answers_every_panel(tmp_path: Path) -> None:
    with victoria_metrics(tmp_path) as base:
        assert push(base, "a/b c", RECORDED) > 1000
        ask(f"{base}/internal/force_flush")
        assert unanswered(base) == []
        runs = json.loads(ask(f"{base}/api/v1/label/run/values?start=0"))
        assert runs["data"] == ["a/b c"]


def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    need("promtool")
    rules, cases = GRAFANA / "alerts.yml", tmp_path / "cases.yml"
    cases.write_text((HERE / "data/alerts-test.yml").read_text().replace("RULES", str(rules)))
    done = subprocess.run(
        ["promtool", "test", "rules", str(cases)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not LDMSTATS.exists(), reason="SKIPPED: run `make build` first")
def test_a_server_of_ldm6_alone_has_what_its_alerts_read(tmp_path: Path) -> None:
    """It has the queue's counters, whichever processes fill the queue."""
    queue = tmp_path / "q"
    subprocess.run([LDMSTATS.parent / "pqcreate", "-s", "1m", queue], check=True, timeout=60)
    done = subprocess.run(
        [LDMSTATS, "-q", queue, "--prometheus"], capture_output=True, text=True, timeout=60
    )
    found = set(re.findall(r"^downpour_\w+", done.stdout, re.MULTILINE))
    rules = re.findall(r"alert: (\w+)\n +expr: (.*)", (GRAFANA / "alerts.yml").read_text())
    fed = {
        name for name, expression in rules if set(re.findall(r"downpour_\w+", expression)) <= found
    }
    assert {"QueueIdle", "QueueEmpty", "QueueTooSmall"} <= fed


def test_prometheus_accepts_the_configurations() -> None:
    """Including the rules that they name."""
    need("promtool")
    for name in ("prometheus-site.yml", "scrape.yml"):
        done = subprocess.run(
            ["promtool", "check", "config", str(GRAFANA / name)],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_server_that_is_none_is_one_line() -> None:
    for url in ("ftp://a", "localhost:8428", "http://", "http://a?b=c"):
        with pytest.raises(PushError, match="valid: http://HOST:PORT"):
            import_url(url, "x")
    with pytest.raises(PushError, match="refused"):
        push(f"http://127.0.0.1:{free_port()}", "x", RECORDED)
