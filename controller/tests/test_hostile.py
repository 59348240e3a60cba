# SPDX-License-Identifier: Apache-2.0
"""The controller process among strangers and hostile switches, over real sockets on loopback."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from controller.api.path_client import PathClient, PathClientError
from controller.tests import process
from controller.tests.sample import network
from controller.tests.test_launcher import free_port
from controller.tests.test_replies import packet_in_message
from controller.tests.wire_switch import (
    BARRIER_REPLY,
    BARRIER_REQUEST,
    FEATURES_REPLY,
    FEATURES_REQUEST,
    HELLO,
    MULTIPART_REPLY,
    WireSwitch,
    features,
    message,
)

pytestmark = pytest.mark.slow  # a controller process, and connections that wait for their end


class Running:
    def __init__(
        self, directory: Path, options: Sequence[str] = (), prefix: Sequence[str] = ()
    ) -> None:
        self.port = free_port()
        self.log = directory / "log"
        (directory / "network.json").write_text(network().to_json())
        self.process: subprocess.Popen[str] = process.start(
            [
                *("--network", str(directory / "network.json"), "--domain", "core"),
                *("--of-listen", f"127.0.0.1:{self.port}"),
                *("--rest-socket", str(directory / "rest.sock"), "--log", str(self.log)),
                *options,
            ],
            prefix,
        )
        self.client = PathClient(directory / "rest.sock")
        process.wait_until("health", self._answers)

    def close(self) -> None:
        self.client.close()
        process.end(self.process)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.process.communicate()
        with contextlib.suppress(PathClientError):
            return bool(self.client.health()["status"] == "ok")
        return False

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def switch(self, number: int) -> WireSwitch:
        switch = WireSwitch(self.connect(), number)
        # Not by the controller's health, which may still be about an earlier connection.
        process.wait_until(f"s{number}", lambda: switch.seen[BARRIER_REQUEST] > 0)
        return switch

    def status(self, name: str) -> int:
        """Return a figure of /proc/PID/status: VmRSS in kB, Threads."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
        raise AssertionError(name)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with contextlib.closing(Running(tmp_path_factory.mktemp("hostile"))) as running:
        yield running


def is_closed_by_peer(connection: socket.socket, timeout_s: float = 30.0) -> bool:
    connection.settimeout(timeout_s)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


SETUP = message(HELLO) + message(FEATURES_REPLY, features(2))
MALFORMED = [
    b"\0" * 64,
    b"\xff" * 64,
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    message(HELLO, struct.pack("!HH", 1, 0)),  # the framework would never end
    message(HELLO, struct.pack("!HHI", 9, 0, 0)),
    message(HELLO, version=0),
    message(HELLO) + message(FEATURES_REPLY, b"\0" * 3),
    message(HELLO) + message(FEATURES_REQUEST),
    message(HELLO) + b"\4\2\0\3\0\0\0\1",
    SETUP + message(MULTIPART_REPLY, struct.pack("!HH4x", 13, 0) + bytes(63)),
    message(HELLO) + message(1, struct.pack("!HH", 0, 0) + b"\xff\xfe"),  # HELLO_FAILED, not ASCII
    message(HELLO) + message(1, b"\0" * 20_000),
]


@pytest.mark.parametrize("data", MALFORMED, ids=range(len(MALFORMED)))
def test_malformed_bytes_close_that_connection_only(running: Running, data: bytes) -> None:
    good = running.switch(1)
    with running.connect() as bad:
        bad.sendall(data)
        assert is_closed_by_peer(bad)
    assert good.echo(4711)
    assert not good.ended.is_set()
    good.close()


def test_random_bytes_and_changed_messages(running: Running) -> None:
    """Each connection sends a correct beginning with some bytes changed, or noise."""
    seed = random.Random(11)
    good = running.switch(1)
    reply = message(MULTIPART_REPLY, struct.pack("!HH4x", 13, 0) + bytes(64), 2)
    for number in range(60):
        data = bytearray(SETUP + reply + message(BARRIER_REPLY) + packet_in_message(1, b"x"))
        for _ in range(seed.randint(1, 8)):
            data[seed.randrange(len(data))] = seed.randrange(256)
        if number % 4 == 0:
            data = bytearray(seed.randbytes(300))
        with running.connect() as bad, contextlib.suppress(OSError):
            bad.sendall(data)
    assert good.echo(4712)
    assert running.process.poll() is None
    good.close()


def test_silent_strangers_displace_each_other_and_no_switch(running: Running) -> None:
    good = running.switch(1)
    before = running.status("Threads")
    strangers = [running.connect() for _ in range(150)]
    try:
        other = running.switch(3)  # a new switch can still connect
        assert good.echo(4713) and other.echo(4714)
        # Two threads each for 32 strangers, and some that come and go.
        assert running.status("Threads") - before < 2 * 32 + 30
        assert is_closed_by_peer(strangers[0])
        other.close()
    finally:
        for stranger in strangers:
            stranger.close()
    good.close()


def test_flood_of_packet_ins_takes_neither_memory_nor_the_others_turn(running: Running) -> None:
    good, flooding = running.switch(1), running.switch(2)
    memory_kb = running.status("VmRSS")
    flood = packet_in_message(1, b"f" * 200) * 200
    slowest_s = 0.0
    flooding.connection.settimeout(30)
    for number in range(100):
        flooding.connection.sendall(flood)
        if number % 10 == 0:
            began_s = time.monotonic()
            assert good.echo(5000 + number)
            slowest_s = max(slowest_s, time.monotonic() - began_s)
    assert flooding.echo(6000)
    grown_kb = running.status("VmRSS") - memory_kb
    print(f"20,000 packet-ins: slowest echo {slowest_s * 1000:.0f} ms, memory +{grown_kb} kB")
    assert grown_kb < 30_000
    good.close()
    flooding.close()


def test_switch_that_trickles_a_huge_message_costs_one_connection(running: Running) -> None:
    with running.connect() as bad:
        bad.sendall(message(HELLO) + struct.pack("!BBHI", 4, 2, 65535, 1) + bytes(30_000))
        good = running.switch(1)
        assert good.echo(4715)
        good.close()


def test_unknown_switch_is_refused(running: Running) -> None:
    with running.connect() as connection:
        stranger = WireSwitch(connection, 0xBAD)
        assert stranger.ended.wait(30)
    assert "unknown datapath id 0000000000000bad" in running.log.read_text()


def test_log_stays_small_and_without_tracebacks(running: Running) -> None:
    text = running.log.read_text()
    assert "Traceback" not in text
    assert "malformed OpenFlow: " in text
    assert len(text) < 200_000


def test_what_strangers_did_is_in_the_metrics(running: Running) -> None:
    transport = httpx.HTTPTransport(uds=str(running.log.parent / "rest.sock"))
    with httpx.Client(transport=transport, base_url="http://controller") as client:
        text = client.get("/v1/metrics").text
    found = dict(re.findall(r"^downpour_openflow_(\w+)_total (\S+)$", text, re.MULTILINE))
    assert float(found["malformed_messages"]) >= len(MALFORMED) - 2
    assert float(found["displaced"]) > 100
    assert "packet_ins_dropped" in found  # how many depends on the machine's speed
    assert float(found["unknown_switches"]) >= 1
    # Up or down: that depends on when a probe was last sent to these tests' silent switches.
    assert re.search(r'^downpour_link_up\{link="s1:s2"\} [01]\.0$', text, re.MULTILINE)
