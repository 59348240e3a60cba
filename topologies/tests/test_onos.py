# SPDX-License-Identifier: Apache-2.0
"""The options for ONOS, and what is said of an address. tests/path_service/test_onos.py needs a
real ONOS."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from common.command_line import Failure
from common.findings import MISSING, OK
from common.onos import OnosAddress
from topologies.emulate import onos
from topologies.emulate.controller_option import external_address
from topologies.emulate.foreign_controller import ControllerAddress
from topologies.emulate.onos import Onos, OnosBridges, onos_finding
from topologies.emulate.remote_controllers import HOST_VARIABLE

URL = "http://127.0.0.1:8181"
ADDRESS = OnosAddress("127.0.0.1", 8181)


def test_the_options_name_one_address() -> None:
    assert external_address(None, None) is None
    assert external_address("tcp:h:1", None) == ControllerAddress("h", 1)
    assert external_address("onos", URL) == ADDRESS


@pytest.mark.parametrize(
    ("controller", "url", "says"),
    [
        ("onos", None, "found --controller onos alone; valid: --controller onos --onos URL"),
        (None, URL, "found --onos alone; valid: --controller onos --onos URL"),
        ("tcp:h:1", URL, "found --onos alone; valid: --controller onos --onos URL"),
        ("onos", "127.0.0.1", "--onos: found '127.0.0.1'; valid: http://HOST:PORT"),
        ("ovn", None, "--controller: found 'ovn'; valid: tcp:HOST:PORT"),
    ],
)
def test_other_options_are_refused(controller: str | None, url: str | None, says: str) -> None:
    with pytest.raises(Failure) as caught:
        external_address(controller, url)
    assert str(caught.value).startswith(says)


class Rest(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"version": "2.7.0"}')

    def log_message(self, *_: object) -> None:
        pass


def test_the_doctor_asks_by_rest_and_by_openflow(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        HTTPServer(("127.0.0.1", 0), Rest) as rest,
        socket.create_server(("127.0.0.1", 0)) as openflow,
    ):
        threading.Thread(target=rest.serve_forever, args=(0.01,), daemon=True).start()
        address = OnosAddress("127.0.0.1", rest.server_port)
        monkeypatch.setattr(onos, "OPENFLOW_PORT", openflow.getsockname()[1])

        def greet() -> None:
            connection, _ = openflow.accept()
            with connection:
                connection.recv(8)
                connection.sendall(bytes.fromhex("0400000800000001"))

        greeter = threading.Thread(target=greet, daemon=True)
        greeter.start()
        found = onos_finding(address)
        assert found.level == OK
        assert "is ONOS 2.7.0; it answers with OpenFlow 1.3" in found.text
        greeter.join()
        openflow.close()
        found = onos_finding(address)
        assert found.level == MISSING
        assert "does not answer: Connection refused" in found.text
        rest.shutdown()


def test_the_doctor_says_that_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = OnosAddress("127.0.0.1", listener.getsockname()[1])
    found = onos_finding(address)
    assert (found.level, found.text) == (
        MISSING,
        f"{address} does not answer: Connection refused",
    )


def test_controllers_reach_onos_over_the_bridge_or_from_their_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridges = OnosBridges(Onos(OnosAddress("onos", 8182), tmp_path), 6653, tmp_path)
    monkeypatch.delenv(HOST_VARIABLE, raising=False)
    assert bridges.option == ["--onos", URL]
    monkeypatch.setenv(HOST_VARIABLE, "controller")
    assert bridges.option == ["--onos", "http://onos:8182"]
