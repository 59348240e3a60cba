# SPDX-License-Identifier: Apache-2.0
"""A controller process with connections that claim to be a switch of the domain, with and without
TLS, and with switches that come and go a thousand times."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from controller.api.keys import KeysError, make_keys
from controller.paths.core import Endpoint
from controller.tests import certificates, process
from controller.tests.test_hostile import SETUP, Running, is_closed_by_peer
from controller.tests.test_tls import options
from controller.tests.wire_switch import BARRIER_REQUEST, HELLO, WireSwitch, message

pytestmark = pytest.mark.slow  # controller processes

FLAPS = int(os.environ.get("DOWNPOUR_FLAPS", "200"))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with contextlib.closing(Running(tmp_path_factory.mktemp("attacks"))) as running:
        yield running


def counter(running: Running, name: str) -> float:
    transport = httpx.HTTPTransport(uds=str(running.log.parent / "rest.sock"))
    with httpx.Client(transport=transport, base_url="http://controller", timeout=30) as client:
        text = client.get("/v1/metrics").text
    found = re.search(rf"^downpour_openflow_{name}_total (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def is_ready(running: Running, name: str) -> bool:
    return running.client.health()["switches"][name]


def test_live_switch_keeps_its_place(running: Running) -> None:
    real = running.switch(1)
    process.wait_until("s1 is ready", lambda: is_ready(running, "s1"))
    before, lines = counter(running, "duplicate_switches"), len(running.log.read_text())
    for _ in range(30):
        spoof = WireSwitch(running.connect(), 1)
        assert spoof.ended.wait(30)
        assert spoof.seen[BARRIER_REQUEST] == 0  # it was told nothing that a switch is told
        spoof.close()
    assert counter(running, "duplicate_switches") - before == 30
    assert not real.ended.is_set() and real.echo(1)
    assert is_ready(running, "s1")
    assert len(running.log.read_text()) - lines < 30 * 200
    real.close()


def test_switch_that_is_gone_without_a_word_is_replaced(running: Running) -> None:
    """This is what a power cut leaves: the old connection stays open at the controller and answers
    nothing."""
    old = running.switch(2)
    process.wait_until("s2 is ready", lambda: is_ready(running, "s2"))
    old.is_mute = True
    new = WireSwitch(running.connect(), 2)
    process.wait_until("the new one is taken", lambda: new.seen[BARRIER_REQUEST] > 0)
    assert old.ended.wait(30)
    process.wait_until("s2 is ready", lambda: is_ready(running, "s2"))
    assert new.echo(2)
    old.close()
    new.close()


def test_claims_at_once_are_one_at_a_time(running: Running) -> None:
    old = running.switch(3)
    old.is_mute = True
    claims = [WireSwitch(running.connect(), 3) for _ in range(20)]
    process.wait_until("one is taken", lambda: sum(c.seen[BARRIER_REQUEST] > 0 for c in claims) > 0)
    process.wait_until("the others go", lambda: sum(c.ended.is_set() for c in claims) == 19)
    (left,) = [c for c in claims if not c.ended.is_set()]
    assert left.echo(3)
    for one in (old, *claims):
        one.close()


def by_fin(running: Running) -> None:
    running.switch(4).close()


def by_reset(running: Running) -> None:
    connection = running.connect()
    connection.sendall(SETUP[:8] + message(HELLO)[:0])
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def by_reset_when_known(running: Running) -> None:
    switch = running.switch(4)
    switch.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    switch.close()


def at_once(running: Running) -> None:
    """Connect again before the end is noticed."""
    first = running.switch(4)
    with contextlib.suppress(OSError):
        first.connection.shutdown(socket.SHUT_WR)
    first.close()


KINDS: tuple[Callable[[Running], None], ...] = (by_fin, by_reset, by_reset_when_known, at_once)


def files(running: Running) -> int:
    return len(list(Path(f"/proc/{running.process.pid}/fd").iterdir()))


def test_switch_that_flaps(running: Running) -> None:
    """DOWNPOUR_FLAPS=1000 runs that many."""
    other = running.switch(1)
    running.client.create_path("flapping", Endpoint("s1", 1, 150), 0)
    for number in range(20):  # to warm up
        KINDS[number % len(KINDS)](running)
    process.wait_until("s4 is gone", lambda: not is_ready(running, "s4"))
    memory_kb, threads, open_files = (
        running.status("VmRSS"),
        running.status("Threads"),
        files(running),
    )
    for number in range(FLAPS):
        KINDS[number % len(KINDS)](running)
    process.wait_until("s4 is gone", lambda: not is_ready(running, "s4"))
    process.wait_until("threads end", lambda: running.status("Threads") <= threads + 5)
    process.wait_until("files are closed", lambda: files(running) <= open_files + 5)
    grown_kb = running.status("VmRSS") - memory_kb
    print(f"{FLAPS} flaps: memory {memory_kb} kB, +{grown_kb} kB")
    assert grown_kb < 4000 + 4 * FLAPS
    assert other.echo(9)
    last = running.switch(4)
    process.wait_until("s4 is ready", lambda: is_ready(running, "s4"))
    assert [path["name"] for path in running.client.paths()] == ["flapping"]
    running.client.delete_path("flapping")
    assert "Traceback" not in running.log.read_text()
    last.close()
    other.close()


# -- TLS


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls") / "ours"
    make_keys(directory, ("localhost",), ("s1", "s2"))
    return directory


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iterator[Running]:
    with contextlib.closing(Running(tmp_path_factory.mktemp("secure"), options(keys))) as running:
        yield running


def connection(running: Running, keys: Path, certificate: Path, key: Path) -> ssl.SSLSocket:
    """Connect as a switch. Raises ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(keys / "ca.pem")
    context.load_cert_chain(certificate, key)
    return context.wrap_socket(running.connect())


def as_switch(running: Running, keys: Path, name: str, number: int) -> WireSwitch:
    certificate, key = keys / f"{name}-cert.pem", keys / f"{name}-key.pem"
    return WireSwitch(connection(running, keys, certificate, key), number)


def test_certificate_of_a_switch_speaks_for_it_alone(secure: Running, keys: Path) -> None:
    """Even while the claimed switch is not connected."""
    spoof = as_switch(secure, keys, "switch-s2", 1)
    assert spoof.ended.wait(30)
    assert spoof.seen[BARRIER_REQUEST] == 0
    assert "a connection with the certificate of s2 claims to be 's1'" in secure.log.read_text()
    real = as_switch(secure, keys, "switch-s1", 1)
    process.wait_until("s1", lambda: real.seen[BARRIER_REQUEST] > 0)
    other = as_switch(secure, keys, "switch", 3)  # names no switch: as before
    process.wait_until("s3", lambda: other.seen[BARRIER_REQUEST] > 0)
    again = as_switch(secure, keys, "switch", 1)  # while s1 is connected
    assert again.ended.wait(30)
    assert real.echo(5)
    for switch in (spoof, real, other, again):
        switch.close()


BAD = {
    "expired": {"begins": -3, "ends": -1},
    "not-yet": {"begins": 1, "ends": 3},
    "self-signed": {"is_self_signed": True},
    "server-only": {"uses": (ExtendedKeyUsageOID.SERVER_AUTH,)},
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_certificates(secure: Running, keys: Path, tmp_path: Path, kind: str) -> None:
    certificate, key = certificates.make(tmp_path, kind, keys, **BAD[kind])  # type: ignore[arg-type]
    before = counter(secure, "tls_failures")
    with contextlib.suppress(ssl.SSLError, ConnectionError):
        refused = connection(secure, keys, certificate, key)
        refused.sendall(message(HELLO))  # TLS 1.3: the refusal comes after the handshake
        assert is_closed_by_peer(refused)
    process.wait_until("counted", lambda: counter(secure, "tls_failures") > before)


def test_recorded_handshake_is_no_switch(secure: Running, keys: Path) -> None:
    """A switch's side of a connection is sent again byte by byte."""
    listener = socket.create_server(("127.0.0.1", 0))
    sent = bytearray()
    switch_end = socket.create_connection(listener.getsockname())
    relay_end, _ = listener.accept()
    controller = secure.connect()

    def copy(source: socket.socket, target: socket.socket, note: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if note:
                    sent.extend(data)
                target.sendall(data)

    threading.Thread(target=copy, args=(relay_end, controller, True), daemon=True).start()
    threading.Thread(target=copy, args=(controller, relay_end, False), daemon=True).start()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(keys / "ca.pem")
    context.load_cert_chain(keys / "switch-s2-cert.pem", keys / "switch-s2-key.pem")
    switch = WireSwitch(context.wrap_socket(switch_end), 2)
    process.wait_until("s2 is ready", lambda: is_ready(secure, "s2"))
    switch.close()
    for one in (controller, relay_end):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)  # a thread waits for it: close would not end it
        one.close()
    listener.close()
    process.wait_until("s2 is gone", lambda: not is_ready(secure, "s2"))
    with secure.connect() as replay, contextlib.suppress(OSError):
        replay.sendall(bytes(sent))
        assert is_closed_by_peer(replay)
    assert not is_ready(secure, "s2")


def test_names_of_switches_for_keys(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match="found switch '../x'; valid: letters"):
        make_keys(tmp_path / "keys", ("localhost",), ("../x",))
    assert not (tmp_path / "keys").exists()
