# SPDX-License-Identifier: Apache-2.0
"""TLS between switches and the controller, with keys of `python -m controller keys`."""

from __future__ import annotations

import argparse
import shutil
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller import southbound
from controller.api.keys import make_keys
from controller.options import (
    UsageError,
    add_switch_options,
    check_switch_options,
    switch_pem_files,
)
from controller.tests import process
from controller.tests.ovs_bench import EVERYONE, MULTICAST, RATE, needs_open_vswitch, open_bench
from controller.tests.sample import LEAF_2, LEAF_3, LEAF_4, MAC_1, ROOT
from controller.tests.test_hostile import Running, is_closed_by_peer
from controller.tests.wire_switch import BARRIER_REQUEST, HELLO, WireSwitch, message

pytestmark = [
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls") / "ours"
    make_keys(directory, ("localhost",))
    return directory


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls") / "foreign"
    make_keys(directory, ("localhost",))
    return directory


def options(keys: Path) -> list[str]:
    return [
        *("--of-tls-key", str(keys / "controller-key.pem")),
        *("--of-tls-cert", str(keys / "controller-cert.pem")),
        *("--of-tls-ca", str(keys / "ca.pem")),
    ]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iterator[Running]:
    with closing(Running(tmp_path_factory.mktemp("run"), options(keys))) as running:
        yield running


def secure(running: Running, authority: Path, certificate: Path | None) -> ssl.SSLSocket:
    """Return a switch's end of a connection. Raises ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(authority / "ca.pem")
    if certificate is not None:
        context.load_cert_chain(certificate / "switch-cert.pem", certificate / "switch-key.pem")
    return context.wrap_socket(running.connect())


def test_switch_with_a_certificate_of_the_authority(running: Running, keys: Path) -> None:
    switch = WireSwitch(secure(running, keys, keys), 1)
    process.wait_until("s1", lambda: switch.seen[BARRIER_REQUEST] > 0)
    # Both ends write at the same time, many times: two threads of the controller share the
    # connection.
    assert all(switch.echo(number) for number in range(200))
    switch.close()


@pytest.mark.parametrize("certificate", ["none", "foreign"])
def test_switch_without_a_right_certificate_is_refused(
    running: Running, keys: Path, foreign: Path, certificate: str
) -> None:
    before = running.log.read_text().count("refused: TLS")
    try:
        connection = secure(running, keys, foreign if certificate == "foreign" else None)
        connection.sendall(message(HELLO))  # TLS 1.3: the refusal comes after the handshake
        assert is_closed_by_peer(connection)
    except (ssl.SSLError, ConnectionError):
        pass
    process.wait_until(
        "refusal in the log", lambda: running.log.read_text().count("refused: TLS") > before, 60
    )


def test_controller_with_a_foreign_certificate_is_refused(running: Running, foreign: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        secure(running, foreign, foreign)


def test_plain_and_silent_connections_end_and_disturb_nobody(running: Running, keys: Path) -> None:
    switch = WireSwitch(secure(running, keys, keys), 1)
    process.wait_until("s1", lambda: switch.seen[BARRIER_REQUEST] > 0)
    silent = [running.connect() for _ in range(60)]
    with running.connect() as plain:
        plain.sendall(message(HELLO) * 10)
        assert is_closed_by_peer(plain)
    assert is_closed_by_peer(silent[0])  # displaced
    assert switch.echo(1)
    for connection in silent:
        connection.close()
    switch.close()


def test_files_that_cannot_be_used(tmp_path: Path, keys: Path, foreign: Path) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store")
    add_switch_options(parser)

    def error(*arguments: str) -> str:
        with pytest.raises(UsageError) as caught:
            parsed = parser.parse_args(arguments)
            check_switch_options(parsed)
            southbound.tls_of(switch_pem_files(parsed))
        return str(caught.value)

    assert "--of-tls-key, --of-tls-cert and --of-tls-ca together" in error(*options(keys)[:4])
    missing = error(*options(keys)[:5], str(tmp_path / "none.pem"))
    assert f"--of-tls-ca {tmp_path / 'none.pem'}: cannot be read" in missing
    mixed = options(keys)
    mixed[1] = str(foreign / "controller-key.pem")
    assert "not a key, its certificate and an authority in PEM" in error(*mixed)
    assert error("--lease-s", "5") == (
        "--lease-s without --store; valid: both, the lease is kept in the store"
    )
    assert "valid: 0 or 0.5..3600" in error("--lease-s", "0.1", "--store", "x")
    assert "valid: 0 or 10..60000" in error("--liveness-period-ms", "5")


def test_a_port_is_no_proof_of_tls(running: Running) -> None:
    """The listener speaks only TLS: it answers a plain HELLO with an alert, not with a HELLO."""
    with running.connect() as plain:
        plain.sendall(message(HELLO))
        plain.settimeout(30)
        try:
            answer = plain.recv(8)
        except ConnectionError:
            answer = b""
        assert answer[:2] != message(HELLO)[:2]


@needs_open_vswitch
def test_open_vswitch_over_tls(keys: Path) -> None:
    with open_bench(tls=keys) as bench, bench.client() as client:
        client.create_path("NGRID", ROOT, RATE)
        for leaf in (LEAF_2, LEAF_3, LEAF_4):
            client.add_leaf("NGRID", leaf)
        bench.expect(EVERYONE, "s1", MULTICAST, MAC_1, 101)
