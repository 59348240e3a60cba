# SPDX-License-Identifier: Apache-2.0
"""Run one iperf3 test between two nodes, and read the client's report."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from common.shell import NetworkError
from topologies.verify.nodes import Nodes

PORT = 5201
PAYLOAD_BYTES = 1400  # of a UDP datagram
FRAME_BYTES = PAYLOAD_BYTES + 42  # with UDP, IPv4 and Ethernet headers, without FCS
START_S, END_S = 20.0, 30.0
POLL_S = 0.05


@dataclass(frozen=True)
class Test:
    """A test from `client` to `server` at `address`. `udp_bps`: rate of payload; None: TCP."""

    client: str
    server: str
    address: str
    seconds: int = 5
    udp_bps: float | None = None
    port: int = PORT

    @property
    def client_argv(self) -> list[str]:
        """Return the sender's command."""
        argv = ["iperf3", "-c", self.address, "-p", str(self.port), "-t", str(self.seconds), "-J"]
        if self.udp_bps is not None:
            argv += ["-u", "-b", str(round(self.udp_bps)), "-l", str(PAYLOAD_BYTES)]
        return argv


@dataclass(frozen=True)
class Measured:
    """Rates of payload. `lost`: share of the datagrams, None for TCP. `retransmits`: None for
    UDP."""

    sent_bps: float
    received_bps: float
    lost: float | None
    retransmits: int | None


def measure(nodes: Nodes, test: Test) -> Measured:
    """Run the test; it takes `seconds`. Raises NetworkError in iperf3's own words."""
    with _server(nodes, test):
        done = nodes.run(test.client, test.client_argv, timeout_s=test.seconds + END_S, check=False)
    return read(done.stdout or done.stderr, f"{test.client} to {test.server}")


@contextmanager
def _server(nodes: Nodes, test: Test) -> Iterator[None]:
    argv = ["iperf3", "-s", "-1", "-B", test.address, "-p", str(test.port)]
    server = nodes.popen(test.server, argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_S
        listening = f"{test.address}:{test.port}"
        while listening not in nodes.run(test.server, ["ss", "-Hltn"]).stdout:
            if server.poll() is not None or time.monotonic() > deadline:
                raise NetworkError(f"{test.server}: iperf3 does not listen at {listening}")
            time.sleep(POLL_S)
        yield
    finally:
        server.terminate()
        server.wait(timeout=END_S)


def read(text: str, which: str) -> Measured:
    """Read the client's report (iperf3 -J). Raises NetworkError if the test failed."""
    try:
        report: Any = json.loads(text)
        if "error" in report:
            raise NetworkError(f"iperf3 from {which}: {report['error']}")
        end = report["end"]
        if "sum" in end:  # UDP
            total = end["sum"]
            lost = total["lost_packets"] / total["packets"] if total["packets"] else 1.0
            sent = float(total["bits_per_second"])
            return Measured(sent, sent * (1 - lost), lost, None)
        sent, received = end["sum_sent"], end["sum_received"]
        return Measured(
            float(sent["bits_per_second"]),
            float(received["bits_per_second"]),
            None,
            int(sent["retransmits"]) if "retransmits" in sent else None,
        )
    except (ValueError, KeyError, TypeError) as error:
        said = " ".join(text.split())[:200]
        raise NetworkError(f"iperf3 from {which}: found no report: {said or error}") from error
