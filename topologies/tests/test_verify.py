# SPDX-License-Identifier: Apache-2.0
"""`downpour verify NETWORK`: requested values beside what ping and iperf3 find."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from common.places import ROOT
from common.shell import NetworkError
from topologies.emulate import lifecycle
from topologies.emulate.emulation import open_emulation
from topologies.emulate.processes import relay_program
from topologies.model.load import find, load
from topologies.model.network import Network
from topologies.verify import iperf3, sites
from topologies.verify.iperf3 import Measured

ALLOWED = (
    "at least, median 48 ms; allowed 39.9 to 42 ms, as 2 delays and 4 switches on the way take up "
    "to 0.1 and 0.3 ms each; a busy machine takes longer"
)
TCP = Measured(18e6, 17e6, None, 3)


def check(rtt_ms: float | None = 40.2, tcp: Measured = TCP, lost: float = 0.0) -> sites.SiteCheck:
    udp = Measured(17.4e6, 17.4e6 * (1 - lost), lost, None)
    asked = sites.Asked(40.0, 2, 4, 0.0, 20_000_000)
    return sites.SiteCheck("uva1", "uva", asked, rtt_ms, tcp, udp, 17.4e6, 48.0)


def test_what_is_as_asked_has_no_problems() -> None:
    assert check().problems() == []
    assert "All is as asked." in sites.table((check(),))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (check(rtt_ms=None), "no ping came back"),
        (check(rtt_ms=20.0), f"round trip asked 40 ms, found 20 ms {ALLOWED}"),
        (check(rtt_ms=47.0), f"round trip asked 40 ms, found 47 ms {ALLOWED}"),
        (check(lost=0.1), "loss asked 0.00%, found 10.00% of the datagrams"),
        (check(tcp=Measured(30e6, 30e6, None, 0)), "TCP got 30.00 Mbit/s over a path of 20.00"),
    ],
)
def test_what_is_not_as_asked_is_named(found: sites.SiteCheck, expected: str) -> None:
    assert found.problems() == [expected]
    text = sites.table((found,))
    assert f"not as asked: uva1: {expected}" in text and "All is as asked" not in text


def test_each_delay_and_each_switch_may_take_its_time() -> None:
    """To uva a packet crosses three delayed links and four switches each way: 38.4 ms plus at most
    6 x 0.1 and 8 x 0.3 ms."""
    network = load(find("twocores"))
    (uva,) = (host for host in network.subscribers if host.name == "uva")
    asked = sites.asked_of(network, uva, 20_000_000)
    assert (asked.rtt_ms, asked.delays, asked.switches) == (38.4, 6, 8)
    assert asked.most_ms == pytest.approx(41.4)
    assert dataclasses.replace(check(rtt_ms=41.03), asked=asked).problems() == []
    late = dataclasses.replace(check(rtt_ms=41.5), asked=asked)
    (line,) = late.problems()
    assert line.startswith("round trip asked 38.4 ms, found 41.5 ms at least, median 48 ms; ")
    assert "allowed 38.3 to 41.4 ms, as 6 delays and 8 switches on the way" in line


def test_what_ping_says() -> None:
    reply = "64 bytes from 10.1.0.2: icmp_seq={} ttl=64 time={} ms\n"
    text = "".join(reply.format(n, t) for n, t in enumerate(("41.3", "40.5", "68.2")))
    summary = "rtt min/avg/max/mdev = 40.496/50.001/68.214/0.1 ms\n"
    assert sites.round_trips(text + summary) == (40.496, 41.3)
    assert sites.round_trips("3 packets transmitted, 0 received\n") == (None, 0.0)


def test_loss_that_is_asked_is_no_problem() -> None:
    lossy = dataclasses.replace(check(lost=0.1), asked=sites.Asked(40.0, 2, 4, 0.1, 20_000_000))
    assert lossy.problems() == []


def test_reports_of_iperf3() -> None:
    tcp = {"end": {"sum_sent": {"bits_per_second": 5e6, "retransmits": 2},
                   "sum_received": {"bits_per_second": 4e6}}}  # fmt: skip
    assert iperf3.read(json.dumps(tcp), "a to b") == Measured(5e6, 4e6, None, 2)
    udp = {"end": {"sum": {"bits_per_second": 8e6, "packets": 100, "lost_packets": 25}}}
    assert iperf3.read(json.dumps(udp), "a to b") == Measured(8e6, 6e6, 0.25, None)
    for text, expected in (
        ('{"error": "unable to connect"}', "iperf3 from a to b: unable to connect"),
        ("", "iperf3 from a to b: found no report"),
        ('{"end": {}}', "found no report"),
    ):
        with pytest.raises(NetworkError, match=expected):
            iperf3.read(text, "a to b")


needs_network = [
    pytest.mark.root,
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes network namespaces"),
    pytest.mark.skipif(not relay_program().exists(), reason="wire-relay is not built (make build)"),
]


def slower(network: Network, delay_ms: float) -> Network:
    """Return the same network with another delay on every delayed link."""
    links = tuple(
        dataclasses.replace(
            link,
            forward=dataclasses.replace(link.forward, delay_ms=delay_ms),
            backward=dataclasses.replace(link.backward, delay_ms=delay_ms),
        )
        if link.forward.delay_ms
        else link
        for link in network.links
    )
    return dataclasses.replace(network, links=links)


class TestNetwork:
    pytestmark = needs_network

    def test_bottleneck_is_as_asked_and_another_one_is_not(self) -> None:
        """The round trip that the file asks for is found; if a file asks for more, that is
        reported."""
        network = load(find("bottleneck"), {"receivers": 1})
        said: list[str] = []
        run_id = lifecycle.new_run_id("test-verify")
        with (
            lifecycle.enter(run_id) as run,
            open_emulation(network, run.state_dir) as emulation,
        ):
            sockets = emulation.controller_sockets
            (found,) = sites.verify(emulation, network, sockets, said.append, seconds=2)
            asked = sites.asked_of(slower(network, 60.0), network.subscribers[0], 20_000_000)
        assert found.asked.rtt_ms == 40
        assert found.rtt_ms is not None and 40 <= found.rtt_ms < 60  # a busy machine adds to it
        assert 0 < found.tcp.received_bps < 21e6
        assert found.udp.sent_bps > 0.9 * found.udp_bps
        assert said[0].endswith("ping")
        wrong = dataclasses.replace(found, asked=asked)
        assert any("round trip asked 240 ms" in text for text in wrong.problems())

    @pytest.mark.long
    def test_the_command_brings_a_network_up_and_takes_it_down(self, tmp_path: Path) -> None:
        environment = {**os.environ, "DOWNPOUR_OWNER": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-m", "downpour", "verify", "bottleneck", "--seconds", "1",
             "--rate", "10Mbps"],
            cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stderr
        assert "RTT asked" in done.stdout and "The path's rate is 10.00 Mbit/s" in done.stdout
        assert ("All is as asked." in done.stdout) == (done.returncode == 0)
        assert "verify-" not in " ".join(lifecycle.live_runs())
