# SPDX-License-Identifier: Apache-2.0
"""`downpour up --cli` and `downpour cli`: Mininet's prompt, in a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.places import ROOT, TOPOLOGIES
from topologies.emulate import lifecycle
from topologies.emulate.processes import relay_program
from topologies.prompt import Prompt

PROMPT = "mininet> "
START_S, COMMAND_S = 120.0, 90.0
needs_network = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes network namespaces"),
    pytest.mark.skipif(not relay_program().exists(), reason="wire-relay is not built (make build)"),
]


class Terminal:
    """A program on a terminal, and its output so far."""

    def __init__(self, *argv: str, owner: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "downpour", *argv],
            cwd=ROOT,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "DOWNPOUR_OWNER": owner, "TERM": "dumb"},
        )
        os.close(slave)
        self.said = ""

    def until(self, text: str, timeout_s: float) -> str:
        """Return the output from now on until `text`."""
        deadline, found = time.monotonic() + timeout_s, ""
        while text not in found:
            assert time.monotonic() < deadline, f"no '{text}' in: {self.said[-3000:]}"
            ready, _, _ = select.select([self._master], [], [], 0.5)
            if ready:
                try:
                    more = os.read(self._master, 4096).decode(errors="replace")
                except OSError as error:
                    raise AssertionError(f"ended before '{text}': {self.said[-3000:]}") from error
                found += more
                self.said += more
        return found

    def ask(self, command: str) -> str:
        """Return what a command at the prompt prints."""
        os.write(self._master, f"{command}\n".encode())
        return self.until(PROMPT, COMMAND_S)

    def leave(self) -> int:
        os.write(self._master, b"exit\n")
        deadline = time.monotonic() + COMMAND_S
        while self.process.poll() is None:  # a full terminal would block it
            assert time.monotonic() < deadline, self.said[-3000:]
            ready, _, _ = select.select([self._master], [], [], 0.2)
            if ready:
                with contextlib.suppress(OSError):
                    self.said += os.read(self._master, 4096).decode(errors="replace")
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=60)
        os.close(self._master)


@contextlib.contextmanager
def terminal(*argv: str, owner: str) -> Iterator[Terminal]:
    opened = Terminal(*argv, owner=owner)
    try:
        yield opened
    finally:
        opened.close()
        subprocess.run(
            [sys.executable, "-m", "downpour", "down"],
            cwd=ROOT,
            env={**os.environ, "DOWNPOUR_OWNER": owner},
            capture_output=True,
            timeout=120,
        )


def runs_of(owner: str) -> list[str]:
    states = [lifecycle.read_state(run) for run in lifecycle.live_runs()]
    return [state.run_id for state in states if state is not None and state.owner == owner]


def small(directory: Path) -> str:
    """Write geni5 with delays that are long enough to be seen in a ping."""
    path = directory / "small.yaml"
    path.write_text((TOPOLOGIES / "geni5.yaml").read_text())
    return str(path)


@pytest.mark.long
@pytest.mark.usefixtures("tmp_path")
class TestPrompt:
    pytestmark = needs_network

    def test_the_network_of_mininets_users(self, tmp_path: Path) -> None:
        owner = str(tmp_path)
        up = ("up", small(tmp_path), "--receivers", "2", "--cli")
        with terminal(*up, owner=owner) as mininet:
            mininet.until(PROMPT, START_S)
            assert len(runs_of(owner)) == 1
            nodes = mininet.ask("nodes")
            assert "available nodes are:" in nodes
            for name in ("umass", "wsu1", "sl1", "chic", "tor-wsu", "ctl"):
                assert re.search(rf"\b{name}\b", nodes), nodes
            links = mininet.ask("links")
            assert "(OK OK)" in links and "MISSING" not in links
            assert "tor-umass" in links
            assert "0% dropped (12/12 received)" in mininet.ask("pingall")
            ping = mininet.ask("wsu1 ping -c 5 -i 0.2 umass")
            rtt_ms = min(float(ms) for ms in re.findall(r"time=([\d.]+) ms", ping))
            assert 36 <= rtt_ms < 60, ping
            iperf = mininet.ask("iperf wsu1 umass")
            rate = float(re.findall(r"received ([\d.]+) Mbit/s", iperf)[0])
            assert rate > 1, iperf
            dump = mininet.ask("dump")
            assert re.search(r"AttachedHost wsu1: .*10\.10\.1\.\d+", dump), dump
            assert "0x444f574e" not in dump
            assert "Interface" not in mininet.ask("link ctl wsu1 down")
            assert "X" in mininet.ask("pingall 1")
            mininet.ask("link ctl wsu1 up")
            assert "valid: link NODE NODE up|down" in mininet.ask("switch chic stop")
            assert "umass" in mininet.ask("py umass.name")
            assert "priority=0" in mininet.ask("dpctl dump-flows")
            assert mininet.leave() == 0
        assert runs_of(owner) == []

    def test_attaching_leaves_the_network_up(self, tmp_path: Path) -> None:
        owner = str(tmp_path)
        environment = {**os.environ, "DOWNPOUR_OWNER": owner}
        downpour = [sys.executable, "-m", "downpour"]
        up = [*downpour, "up", small(tmp_path), "--receivers", "1"]
        subprocess.run(up, cwd=ROOT, env=environment, check=True, capture_output=True)
        (run,) = runs_of(owner)
        with terminal("cli", owner=owner) as mininet:
            mininet.until(PROMPT, START_S)
            assert "0% dropped" in mininet.ask("pingall")
            assert mininet.leave() == 0
            assert runs_of(owner) == [run]
        assert runs_of(owner) == []


@pytest.mark.parametrize("rate", ["fast", "nan", "inf", "-5M", "0"])
def test_a_rate_that_no_stream_can_have_is_refused(rate: str) -> None:
    prompt = Prompt.__new__(Prompt)
    prompt.stdout = io.StringIO()
    prompt.do_iperfudp(f"{rate} ucar uva")
    assert prompt.stdout.getvalue() == f"found '{rate}'; valid: Mbit/s, e.g. 10M\n"


@pytest.mark.slow
def test_without_a_network_there_is_no_prompt(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    done = subprocess.run(
        [sys.executable, "-m", "downpour", "cli"],
        cwd=ROOT,
        env={**os.environ, "DOWNPOUR_OWNER": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.strip() == "no network is up (start one with: up)"
