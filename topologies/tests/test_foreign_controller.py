# SPDX-License-Identifier: Apache-2.0
"""A controller that is not Downpour's: its address, what answers there, and a network whose
switches it controls."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.findings import MISSING, OK
from common.places import ROOT
from common.shell import NetworkError, check
from topologies.emulate import lifecycle
from topologies.emulate.emulation import open_emulation
from topologies.emulate.foreign_controller import (
    ControllerAddress,
    Foreign,
    check_answers,
    finding,
)
from topologies.emulate.processes import relay_program
from topologies.model.load import load
from topologies.tests.networks import TWO_SITES

# Tells each switch to learn by itself, and nothing else.
APP = """\
from os_ken.base.app_manager import OSKenApp
from os_ken.controller import ofp_event
from os_ken.controller.handler import CONFIG_DISPATCHER, set_ev_cls
from os_ken.ofproto import ofproto_v1_3

class Normal(OSKenApp):
    OFP_VERSIONS = [ofproto_v1_3.OFP_VERSION]

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, event):
        switch = event.msg.datapath
        p, o = switch.ofproto_parser, switch.ofproto
        act = p.OFPInstructionActions(o.OFPIT_APPLY_ACTIONS, [p.OFPActionOutput(o.OFPP_NORMAL)])
        switch.send_msg(p.OFPFlowMod(switch, priority=7, match=p.OFPMatch(), instructions=[act]))
"""
START_S = 30.0


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("tcp:10.0.0.1:6653", "10.0.0.1", 6653),
        ("tcp:[::1]:1", "::1", 1),
        ("tcp:c.org:9", "c.org", 9),
    ],
)
def test_an_address_reads_as_it_prints(text: str, host: str, port: int) -> None:
    found = ControllerAddress.parse(text)
    assert (found.host, found.port, str(found)) == (host, port, text)


@pytest.mark.parametrize(
    "text", ["", "10.0.0.1:6653", "tcp:h", "tcp:h:0", "tcp:h:70000", "ssl:h:6653", "tcp:a b:1"]
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"found '.*'; valid: tcp:HOST:PORT"):
        ControllerAddress.parse(text)


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[ControllerAddress]:
    """Run a server that answers one connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(8)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield ControllerAddress("127.0.0.1", server.getsockname()[1])
        thread.join()


def test_who_greets_with_openflow_answers() -> None:
    with answering(bytes.fromhex("0600001000000001 0001000800000010")) as address:
        assert finding(address).level == OK


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"HTTP/1.1 400 Bad Request", "valid: a controller that speaks OpenFlow"),
        (b"", "answers b''"),
        (bytes.fromhex("0100000800000001"), "offers OpenFlow version code 1; valid: 4"),
    ],
)
def test_what_does_not_speak_openflow_13_is_refused(answer: bytes, says: str) -> None:
    with answering(answer) as address, pytest.raises(NetworkError, match=says):
        check_answers(address)


def test_where_nobody_listens_is_said() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        found = finding(ControllerAddress("127.0.0.1", one.getsockname()[1]))
    assert found.level == MISSING
    assert "does not answer: Connection refused" in found.text


@contextlib.contextmanager
def foreign_controller(place: Path) -> Iterator[ControllerAddress]:
    """Run os-ken with another app."""
    (place / "normal.py").write_text(APP)
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = ControllerAddress("127.0.0.1", one.getsockname()[1])
    options = ["--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", str(address.port)]
    with (place / "controller.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "controller", "manager", *options, str(place / "normal.py")],
            stdout=log,
            stderr=log,
            cwd=ROOT,
            env={**os.environ, "DOWNPOUR_FRAMEWORK": "os-ken"},
        )
    try:
        deadline = time.monotonic() + START_S
        while finding(address).level != OK:
            assert process.poll() is None, (place / "controller.log").read_text()
            assert time.monotonic() < deadline, (place / "controller.log").read_text()
            time.sleep(0.2)
        yield address
    finally:
        process.kill()
        process.wait()


@pytest.mark.root
def test_a_foreign_controller_has_the_switches(tmp_path: Path) -> None:
    if not relay_program().exists():
        pytest.skip(f"{relay_program()} is not built (make build): NOTHING was tested")
    file = tmp_path / "sites.yaml"
    file.write_text(TWO_SITES.replace("vlan: 202", "vlan: 101"))
    with foreign_controller(tmp_path) as address:
        foreign = Foreign.from_here(address)
        run_id = lifecycle.new_run_id(f"test-foreign-{os.getpid()}")
        with (
            lifecycle.enter(run_id) as run,
            open_emulation(load(file, {}), run.state_dir, controllers=foreign) as emulation,
        ):
            argv = ["ping", "-n", "-c", "3", "-w", "10", "10.10.1.2"]
            assert " 0% packet loss" in emulation.run("pub", argv, check=False).stdout
            flows = check(["ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "hub"])
            assert [line for line in flows.splitlines() if "priority=7" in line]
            assert "group" not in flows
            assert emulation.controller_sockets == {}
            assert emulation.health() == []
