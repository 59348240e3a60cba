# SPDX-License-Identifier: Apache-2.0
"""Check that the network is as asked, from the publisher to every subscriber, over a path made for
the test: ping measures the round trip, iperf3 the rate of TCP and the loss of UDP."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.counting import counted
from common.shell import NetworkError
from topologies.model.network import Host, Network
from topologies.model.paths import NoPath, path_to, reversed_path
from topologies.verify import iperf3, multicast
from topologies.verify.nodes import Nodes

PATH = "downpour-verify"
RATE_BPS = 20_000_000
UDP_SHARE = 0.9  # of the path's rate, counted in frames as its meter counts
PINGS, PING_INTERVAL_S = 40, 0.05  # a busy machine delays most of them, seldom all
ANSWER_S = 30.0
# What any machine adds. Measured on two cores without netem and kernel Open vSwitch, at loads of 11
# to 14: wire-relay is 0.02 to 0.09 ms late each time it delays a frame. A switch takes 0.20 to 0.27
# ms, because one thread serves all ports in turn, even with real-time priority.
RTT_SLACK_MS, RTT_SLACK, DELAY_SLACK_MS, SWITCH_SLACK_MS = 1.0, 0.05, 0.1, 0.3
UDP_LEAST, LOSS_SLACK = 0.98, 0.01
TCP_MOST = 1.05
_RTT = re.compile(r"= ([\d.]+)/([\d.]+)/([\d.]+)/")
_EACH = re.compile(r" time=([\d.]+) ms")


@dataclass(frozen=True)
class Asked:
    """What the topology file and the path promise for one subscriber. `loss`: on the way there;
    `delays`, `switches`: how many times a packet is delayed and crosses a switch, there and
    back."""

    rtt_ms: float
    delays: int
    switches: int
    loss: float
    path_bps: int

    @property
    def most_ms(self) -> float:
        """Return the longest round trip that is accepted."""
        machine_ms = DELAY_SLACK_MS * self.delays + SWITCH_SLACK_MS * self.switches
        return self.rtt_ms + max(RTT_SLACK_MS, self.rtt_ms * RTT_SLACK, machine_ms)


@dataclass(frozen=True)
class SiteCheck:
    """What was measured to one subscriber. `rtt_ms`: the smallest round trip; None: no answer.
    `median_ms`: their median."""

    host: str
    site: str
    asked: Asked
    rtt_ms: float | None
    tcp: iperf3.Measured
    udp: iperf3.Measured
    udp_bps: float  # of payload, asked
    median_ms: float = 0.0

    def problems(self) -> list[str]:
        """Return the deviations from what was asked."""
        asked, found = self.asked, []
        if self.rtt_ms is None:
            found.append("no ping came back")
        elif not asked.rtt_ms - 0.1 <= self.rtt_ms <= asked.most_ms:
            found.append(self._round_trip())
        if self.udp.sent_bps < UDP_LEAST * self.udp_bps:
            found.append(f"UDP asked {_mbps(self.udp_bps)} Mbit/s, sent {_mbps(self.udp.sent_bps)}")
        lost = self.udp.lost or 0.0
        if abs(lost - asked.loss) > LOSS_SLACK:
            found.append(f"loss asked {asked.loss:.2%}, found {lost:.2%} of the datagrams")
        if asked.path_bps and self.tcp.received_bps > TCP_MOST * asked.path_bps:
            found.append(
                f"TCP got {_mbps(self.tcp.received_bps)} Mbit/s over a path of "
                f"{_mbps(asked.path_bps)}"
            )
        return found

    def _round_trip(self) -> str:
        asked = self.asked
        return (
            f"round trip asked {asked.rtt_ms:g} ms, found {self.rtt_ms:g} ms at least, median "
            f"{self.median_ms:g} ms; allowed {asked.rtt_ms - 0.1:g} to {asked.most_ms:g} ms, as "
            f"{counted(asked.delays, 'delay')} and {counted(asked.switches, 'switch', 'switches')} "
            f"on the way take up to {DELAY_SLACK_MS:g} and {SWITCH_SLACK_MS:g} ms each; a busy "
            f"machine takes longer"
        )


def asked_of(network: Network, host: Host, path_bps: int) -> Asked:
    """Return what is promised to a subscriber. Raises NetworkError if no path leads there."""
    try:
        hops = path_to(network, host.name)
    except NoPath as error:
        raise NetworkError(str(error)) from error
    kept = 1.0
    for hop in hops:
        kept *= 1 - (hop.link.forward if hop.forward else hop.link.backward).loss
    delays_ms = [hop.delay_ms for hop in (*hops, *reversed_path(hops)) if hop.delay_ms]
    # Each way, there is one switch less than there are links.
    switches = 2 * (len(hops) - 1)
    return Asked(round(sum(delays_ms), 3), len(delays_ms), switches, 1 - kept, path_bps)


def verify(
    nodes: Nodes,
    network: Network,
    sockets: Mapping[str, Path],
    progress: Callable[[str], None],
    *,
    rate_bps: int = RATE_BPS,
    seconds: int = 3,
) -> tuple[SiteCheck, ...]:
    """Create a path of `rate_bps` to all sites, measure, and delete it. Raises NetworkError."""
    found = []
    with _path(network, sockets, rate_bps):
        for host in network.subscribers:
            progress(f"{host.name}: ping")
            _resolve(nodes, network, host)
            rtt_ms, median_ms = _round_trip_ms(nodes, network, host)
            publisher, udp_bps = network.publisher.name, _payload_bps(rate_bps)
            progress(f"{host.name}: iperf3, TCP")
            test = iperf3.Test(publisher, host.name, host.nic1.ip, seconds)
            tcp = iperf3.measure(nodes, test)
            progress(f"{host.name}: iperf3, UDP")
            test = iperf3.Test(publisher, host.name, host.nic1.ip, seconds, udp_bps)
            udp = iperf3.measure(nodes, test)
            asked = asked_of(network, host, rate_bps)
            found.append(
                SiteCheck(host.name, host.site, asked, rtt_ms, tcp, udp, udp_bps, median_ms)
            )
    return tuple(found)


def _payload_bps(rate_bps: int) -> float:
    return rate_bps * UDP_SHARE * iperf3.PAYLOAD_BYTES / iperf3.FRAME_BYTES


@contextmanager
def _path(network: Network, sockets: Mapping[str, Path], rate_bps: int) -> Iterator[None]:
    """Hold a path from the publisher to every segment. Raises NetworkError."""
    try:
        multicast.ensure(network, sockets, PATH, rate_bps)
        yield
    finally:
        multicast.remove(network, sockets, PATH)


def _resolve(nodes: Nodes, network: Network, host: Host) -> None:
    """Wait until the host answers, so that no address is resolved during the measurement."""
    deadline = time.monotonic() + ANSWER_S
    argv = ["ping", "-n", "-q", "-c", "1", "-W", "1", host.nic1.ip]
    while nodes.run(network.publisher.name, argv, check=False).returncode != 0:
        if time.monotonic() > deadline:
            raise NetworkError(f"{host.name}: {host.nic1.ip} does not answer over the path")


def _round_trip_ms(nodes: Nodes, network: Network, host: Host) -> tuple[float | None, float]:
    argv = ["ping", "-n", "-c", str(PINGS), "-i", str(PING_INTERVAL_S), "-W", "2"]
    done = nodes.run(network.publisher.name, [*argv, host.nic1.ip], check=False)
    return round_trips(done.stdout)


def round_trips(text: str) -> tuple[float | None, float]:
    """Return the smallest round trip and the median, in ms, from ping's output."""
    match = _RTT.search(text)
    each = [float(one) for one in _EACH.findall(text)]
    return (float(match[1]) if match else None), (statistics.median(each) if each else 0.0)


# -- as text -------------------------------------------------------------------------------------
HEADER = (
    f"{'host':<11} {'site':<10} {'RTT asked':>9} {'found':>8} {'allowed':>8}  {'TCP got':>8}  "
    f"{'UDP sent':>8} {'got':>7} {'loss asked':>10} {'found':>7}"
)
UNITS = (
    f"{'':<11} {'':<10} {'ms':>9} {'ms':>8} {'ms':>8}  {'Mbit/s':>8}  {'Mbit/s':>8} {'Mbit/s':>7} "
    f"{'':>10} {'':>7}"
)


def table(checks: tuple[SiteCheck, ...]) -> str:
    """Return asked and measured values side by side, a line per subscriber, and the deviations."""
    lines = [HEADER, UNITS]
    for one in checks:
        rtt = "none" if one.rtt_ms is None else f"{one.rtt_ms:.2f}"
        lines.append(
            f"{one.host:<11} {one.site:<10} {one.asked.rtt_ms:>9g} {rtt:>8} "
            f"{one.asked.most_ms:>8.2f}  "
            f"{_mbps(one.tcp.received_bps):>8}  {_mbps(one.udp.sent_bps):>8} "
            f"{_mbps(one.udp.received_bps):>7} {one.asked.loss:>10.2%} {one.udp.lost or 0:>7.2%}"
        )
    rate_bps = checks[0].asked.path_bps if checks else 0
    lines.append(f"The path's rate is {_mbps(rate_bps)} Mbit/s; UDP sends {UDP_SHARE:.0%} of it.")
    for one in checks:
        lines += [f"not as asked: {one.host}: {text}" for text in one.problems()]
    if not any(one.problems() for one in checks):
        lines.append("All is as asked.")
    return "\n".join(lines) + "\n"


def _mbps(rate_bps: float) -> str:
    return f"{rate_bps / 1e6:.2f}"
