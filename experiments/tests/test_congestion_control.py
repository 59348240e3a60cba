# SPDX-License-Identifier: Apache-2.0
"""Which congestion control connections really use."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.cells import congestion_control
from topologies.emulate import census


@pytest.fixture
def algorithms() -> tuple[str, str]:
    """Return two algorithms that this host lets programs use."""
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    if len(allowed) < 2:
        pytest.skip(f"this host allows only {allowed}: congestion control of sockets was NOT read")
    return allowed[0], allowed[1]


def test_the_algorithm_of_each_connection(
    algorithms: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting was another when a connection was made; then it was put back."""
    one, other = algorithms
    before = list(congestion_control.in_use(os.getpid()))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, other.encode())
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, one.encode())
            found = list(congestion_control.in_use(os.getpid()))
            program = SimpleNamespace(name="up7", node="umass", pid=os.getpid())
            monkeypatch.setattr(census, "programs", lambda _: [program])
            emulation: Any = SimpleNamespace(pids={"umass": 1}, elsewhere={})
            text = congestion_control.others(emulation, ["umass"], one)
    assert sorted(found) == sorted([*before, one, other])
    assert f"umass {other}" in text
    assert f"umass {one}" not in text
