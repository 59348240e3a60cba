# SPDX-License-Identifier: Apache-2.0
"""Two real hosts behind an impaired link: the traffic meets what was asked for."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.shell import NetworkError, check
from topologies.emulate import lifecycle, marks, processes
from topologies.emulate.emulation import Emulation, open_emulation
from topologies.emulate.facts import KernelFacts, probe
from topologies.emulate.processes import Controller, Relay, relay_program
from topologies.model import wire_plan
from topologies.model.network import Impairment, Network
from topologies.model.wire_plan import WirePlan
from topologies.tests.networks import two_hosts

DELAYED = Impairment(rate_bps=100_000_000, delay_ms=18.0, queue_bytes=500_000)


@contextmanager
def network_up(network: Network, facts: KernelFacts | None = None) -> Iterator[Emulation]:
    if not relay_program().exists():
        pytest.skip(f"{relay_program()} is not built (make build): NOTHING was tested")
    run_id = lifecycle.new_run_id(f"test-emulation-{os.getpid()}")
    with (
        lifecycle.enter(run_id) as run,
        open_emulation(network, run.state_dir, facts=facts) as emulation,
    ):
        yield emulation


def facts_with(mechanism: str) -> KernelFacts:
    """Return the machine's facts with `mechanism` for delays; skip where the kernel has no
    netem."""
    found = probe()
    if mechanism == "netem" and found.delay_mechanism != "netem":
        pytest.skip("this kernel has no netem: links with netem were NOT tested")
    return dataclasses.replace(found, netem=mechanism == "netem")


def round_trips_ms(emulation: Emulation, host: str, target: str, count: int = 20) -> list[float]:
    argv = ["ping", "-n", "-c", str(count), "-i", "0.05", target]
    text = emulation.run(host, argv, check=False).stdout
    return sorted(float(x) for x in re.findall(r"time=([\d.]+) ms", text))


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.parametrize("mechanism", ["relay", "netem"])
def test_delay_is_as_asked(mechanism: str) -> None:
    network = two_hosts(DELAYED, control=Impairment(delay_ms=10.0))
    with network_up(network, facts_with(mechanism)) as emulation:
        assert {r.mechanism for r in emulation.readback} == {mechanism}
        assert all(r.ok for r in emulation.readback) and len(emulation.readback) == 4
        assert {r.asked == r.found for r in emulation.readback} == {True}
        for target, asked_ms in ((network.publisher.nic1.ip, 36.0), ("10.8.1.2", 20.0)):
            round_trips_ms(emulation, "q", target, 2)  # address resolution, flow set-up
            for _attempt in range(3):  # other work on the machine delays more
                times = round_trips_ms(emulation, "q", target)
                assert len(times) == 20, f"{20 - len(times)} of 20 pings lost"
                assert times[0] >= asked_ms - 0.01, "faster than the link"
                median = times[len(times) // 2]
                if median <= asked_ms + 1.5:
                    break
            assert median <= asked_ms + 1.5, times


TCP_SERVER = """
import hashlib, socket
s = socket.create_server(("0.0.0.0", 7000))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("0.0.0.0", 7000)); u.settimeout(3)
print("ready", flush=True)
c, _ = s.accept()
h = hashlib.sha256(); n = 0
while data := c.recv(65536):
    h.update(data); n += len(data)
c.sendall(h.hexdigest().encode()); c.close()
n = 0
try:
    while n < 86:
        u.recv(2000); n += 1
except TimeoutError:
    pass
print(n, flush=True)
"""
TCP_CLIENT = """
import hashlib, socket, sys, time
data = bytes(range(256)) * 4096
c = socket.create_connection((sys.argv[1], 7000), timeout=10)
c.sendall(data); c.shutdown(socket.SHUT_WR)
print(c.recv(100).decode() == hashlib.sha256(data).hexdigest())
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(86):
    u.sendto(bytes(1448), (sys.argv[1], 7000)); time.sleep(0.001)
"""


@pytest.mark.root
def test_tcp_and_udp_cross_unharmed() -> None:
    """Ping alone would not show checksums that offloads left incomplete."""
    network = two_hosts(DELAYED)
    with network_up(network) as emulation:
        server = emulation.popen(
            "p", [sys.executable, "-c", TCP_SERVER], stdout=subprocess.PIPE, stderr=sys.stderr
        )
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        client = [sys.executable, "-c", TCP_CLIENT, network.publisher.nic1.ip]
        assert emulation.run("q", client).stdout == "True\n"
        assert server.stdout.readline() == b"86\n", "UDP datagrams were lost"
        server.wait(timeout=5)
        server.stdout.close()
        counters = emulation.counters()
        assert counters["udp"]["p"]["in_datagrams"] == 86
        assert counters["udp"]["p"]["in_errors"] == 0
        assert counters["interfaces"]["q/q-nic1"]["tx_packets"] > 86
        assert counters["openvswitch"]["sw/sw-p3"]["rx_packets"] > 86
        if emulation.facts.delay_mechanism == "relay":
            line = counters["relay"]["q:sw/forward"]
            assert line["bytes"] > 256 * 4096 + 86 * 1490
            assert (line["dropped"], line["lost"], line["partial_checksum"]) == (0, 0, 0)


UDP_BURST = """
import socket, sys
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(int(sys.argv[2])):
    u.sendto(bytes(1000), (sys.argv[1], 7000))
"""


@pytest.mark.slow
@pytest.mark.root
def test_what_a_stalled_switch_loses_is_counted() -> None:
    """Frames for which the userspace datapath has no room appear in no interface's counters."""
    if probe().datapath != "user":
        pytest.skip("kernel datapath: it has no packet sockets, their drops were NOT tested")
    network = two_hosts(Impairment())
    with network_up(network) as emulation:
        target = network.publisher.nic1.ip
        assert len(round_trips_ms(emulation, "q", target, count=3)) == 3

        def stalled_burst(frames: int) -> tuple[int, int]:
            """Return (frames that arrived at p, frames lost at packet sockets)."""
            before = emulation.counters()
            pid = emulation._switches.datapath_pid
            os.kill(pid, signal.SIGSTOP)
            try:
                emulation.run("q", [sys.executable, "-c", UDP_BURST, target, str(frames)])
            finally:
                os.kill(pid, signal.SIGCONT)
            time.sleep(1)
            after = emulation.counters()
            arrived = [c["interfaces"]["p/p-nic1"]["rx_packets"] for c in (before, after)]
            lost = [
                sum(port["socket_drops"] for port in c["openvswitch"].values())
                for c in (before, after)
            ]
            return arrived[1] - arrived[0], lost[1] - lost[0]

        arrived, lost = stalled_burst(500)
        assert arrived >= 500
        assert lost == 0
        arrived, lost = stalled_burst(20_000)
        assert 1000 < arrived < 20_000
        assert 20_000 <= arrived + lost <= 20_050  # and a few ARP frames


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.parametrize("mechanism", ["relay", "netem"])
def test_loss_is_as_asked_and_tags_survive(mechanism: str) -> None:
    """Frames cross the uplink with the segment's VLAN tag; a quarter of them is lost."""
    network = two_hosts(Impairment(), uplink=Impairment(delay_ms=1.0, loss=0.25))
    with network_up(network, facts_with(mechanism)) as emulation:
        ofctl = ["ovs-ofctl", "-O", "OpenFlow13"]
        check([*ofctl, "add-flow", "up", "priority=1,dl_vlan=100,actions=drop"])
        # Broadcasts leave by the uplink as well; q answers them (1 = on), which does not matter.
        argv = ["ping", "-n", "-q", "-b", "-c", "1000", "-i", "0.002", "10.9.1.255"]
        emulation.run("p", argv, check=False)
        text = check([*ofctl, "dump-flows", "up"])
        match = re.search(r"n_packets=(\d+).*dl_vlan=100", text)
        assert match, text
        # Binomial, n = 1000, p = 0.75: mean 750, standard deviation 13.7; five of them.
        assert 681 <= int(match[1]) <= 819
        if mechanism == "relay":
            line = emulation.counters()["relay"]["sw:up/forward"]
            assert 1000 <= line["lost"] + line["frames"] <= 1010
            assert 181 <= line["lost"] <= 319


@pytest.mark.root
def test_rate_alone_is_redirected_and_shaped() -> None:
    asked = Impairment(rate_bps=10_000_000, queue_bytes=3_000_000)
    network = two_hosts(asked)
    with network_up(network) as emulation:
        assert [(r.mechanism, r.ok) for r in emulation.readback] == [("redirect", True)] * 2
        send = "import socket,sys\nu=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
        send += "for i in range(860): u.sendto(bytes(1448),(sys.argv[1],7000))\n"
        round_trips_ms(
            emulation, "q", network.publisher.nic1.ip, 2
        )  # address resolution drops frames
        start = time.monotonic()
        emulation.run("q", [sys.executable, "-c", send, network.publisher.nic1.ip])
        while True:
            shaper = emulation.counters()["qdiscs"]["wire/w0b/10:"]
            if shaper["backlog_packets"] == 0 and shaper["sent_packets"] >= 860:
                break
            assert time.monotonic() - start < 10, shaper
            time.sleep(0.02)
        elapsed = time.monotonic() - start
        assert shaper["drops"] == 0
        # 860 frames of 1490 bytes at 10 Mbit/s take 1.025 s; a busy machine may add any time to
        # that.
        assert elapsed >= 1.0


@pytest.mark.root
def test_mismatch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    real = wire_plan.tc_batch

    def half_the_rate(wire: WirePlan) -> str:
        return real(wire).replace("rate 100000000bit", "rate 50000000bit")

    monkeypatch.setattr(wire_plan, "tc_batch", half_the_rate)
    with pytest.raises(NetworkError) as error, network_up(two_hosts(DELAYED)):
        pass
    text = str(error.value)
    assert "link q:sw forward: asked rate 100 Mbit/s" in text
    assert "found rate 50 Mbit/s" in text
    assert not [r for r in lifecycle.live_runs() if r.startswith(f"test-emulation-{os.getpid()}-")]


@pytest.mark.root
def test_programs_run_in_their_host_with_the_mark() -> None:
    with network_up(two_hosts(Impairment())) as emulation:
        assert emulation.nic1_of("p") == (
            "p-nic1"
            if emulation.facts.edge_tags
            else f"vlan{emulation.network.segment_of('p').vlan}"
        )
        process = emulation.popen("p", ["sh", "-c", "exec sleep 60"], env={"EXTRA": "1"})
        time.sleep(0.2)
        environ = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        assert f"{marks.MARK}={emulation.run_id}".encode() in environ and b"EXTRA=1" in environ
        assert "p-nic2" in Path(f"/proc/{process.pid}/net/dev").read_text()
        with pytest.raises(NetworkError, match="found host 'nobody'; valid: p, q, r"):
            emulation.run("nobody", ["true"])
        with pytest.raises(NetworkError, match="exit code 3: oops"):
            emulation.run("q", ["sh", "-c", "echo oops >&2; exit 3"])
        with pytest.raises(NetworkError, match=r"no end within 0\.2 s"):
            emulation.run("q", ["sleep", "5"], timeout_s=0.2)
        control = emulation.run(
            "p", ["cat", "/proc/sys/net/ipv4/tcp_congestion_control"]
        ).stdout.strip()
        assert control == emulation.facts.congestion_control
        emulation.run("p", ["iptables", "-A", "INPUT", "-p", "udp", "-j", "ACCEPT"])
        emulation.run("p", ["tc", "qdisc", "add", "dev", "p-nic1", "root", "handle", "1:", "htb"])
        htb_class = ["tc", "class", "add", "dev", "p-nic1", "parent", "1:", "classid", "1:10"]
        emulation.run("p", [*htb_class, "htb", "rate", "20mbit"])
        start = time.monotonic()
        counters = emulation.counters()
        assert time.monotonic() - start < 3
        assert [r["rule"] for r in counters["iptables"]["p"]] == ["-A INPUT -p udp -j ACCEPT"]
        assert counters["qdiscs"]["p/p-nic1/1:"]["kind"] == "htb"
        assert counters["classes"]["p/p-nic1/1:10"]["drops"] == 0
        assert counters["groups"]["sw/1"]["buckets"]
        assert emulation.health() == []
    assert process.wait(timeout=5) == -9, "a program outlived its network"


@pytest.mark.root
def test_node_named_wire_is_refused() -> None:
    network = two_hosts(DELAYED)
    hosts = (network.hosts[0], dataclasses.replace(network.hosts[1], name="wire"))
    with (
        pytest.raises(NetworkError, match="node 'wire'"),
        network_up(dataclasses.replace(network, hosts=hosts)),
    ):
        pass


def test_relay_says_why_it_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "relay"
    program.write_text("#!/bin/sh\necho 'w0a: interface: No such device' >&2\nexit 1\n")
    program.chmod(0o755)
    relay = Relay(tmp_path, program=program)
    monkeypatch.setattr(processes, "in_node", lambda _pid, argv: argv)
    wire = wire_plan.plan(two_hosts(DELAYED), "relay")
    with pytest.raises(NetworkError, match=r"did not start \(exit code 1\): w0a: interface"):
        relay.start(1, wire)
    with pytest.raises(NetworkError, match="found no program"):
        Relay(tmp_path, program=tmp_path / "absent").start(1, wire)


def test_relay_that_never_starts_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "relay"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(processes, "in_node", lambda _pid, argv: argv)
    monkeypatch.setattr(processes, "RELAY_START_TIMEOUT_S", 0.2)
    relay = Relay(tmp_path, program=program)
    try:
        with pytest.raises(NetworkError, match="within 0 s: it said nothing"):
            relay.start(1, wire_plan.plan(two_hosts(DELAYED), "relay"))
    finally:
        relay.stop()


def test_controller_that_ends_is_reported_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'port 6653 is in use' >&2\nexit 2\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    controller = Controller("al2s", 6653, tmp_path)
    controller.start(tmp_path / "network.json")
    with pytest.raises(NetworkError, match=r"al2s ended \(exit code 2\): port 6653 is in use"):
        controller.wait_listening()


def test_controller_that_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'still thinking' >&2\nexec sleep 60\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    monkeypatch.setattr(processes, "CONTROLLER_START_TIMEOUT_S", 0.3)
    controller = Controller("al2s", 6653, tmp_path)
    controller.start(tmp_path / "network.json")
    try:
        with pytest.raises(NetworkError, match="does not answer at .*still thinking"):
            controller.wait_listening()
    finally:
        controller.stop()
    assert not controller.alive
