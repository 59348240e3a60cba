# SPDX-License-Identifier: Apache-2.0
"""What the verdict catches. Each fault is caused on purpose in a network that is otherwise
faithful: two hosts behind a link of 100 Mbit/s and 18 ms, and 500 multicast datagrams."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from common.places import BUILD
from common.shell import check, in_node
from experiments.cells.fidelity import HOSTLAG, Fidelity
from experiments.cells.run_directory import write_json
from experiments.design import shaping
from experiments.verdict import Check, Evidence, host_lag, network_checks
from experiments.verdict.accounts import accounting
from experiments.verdict.collect import (
    arrivals,
    delays,
    link_mismatches,
    link_probes,
    shaping_mismatches,
    watched,
)
from experiments.verdict.machine import clock_check
from parsers.read.counters import parse_counters
from parsers.read.ldm_log import ReceiverStats
from parsers.read.products import ContentCheck
from topologies.emulate.emulation import Emulation
from topologies.emulate.processes import Relay
from topologies.model import wire_plan
from topologies.model.network import Impairment
from topologies.model.wire_plan import WIRE
from topologies.tests.networks import two_hosts
from topologies.tests.test_emulation import network_up
from virtual.guest import CHECKOUT, GuestSpec, run_guest
from virtual.kernel_build import Kernel

BUILT = pytest.mark.skipif(not (BUILD / HOSTLAG).exists(), reason="SKIPPED: run `make build` first")
ROOT_ONLY = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: network namespaces need root"),
    BUILT,
]
LINK = Impairment(rate_bps=100_000_000, delay_ms=18.0, queue_bytes=500_000)
DATAGRAMS = 500
PORT = 38800

# Each datagram begins with its number. 1,400 bytes in bursts of 5: about 5.6 Mbit/s for a second.
SEND = f"""
import socket, struct, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[2]))
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
for i in range({DATAGRAMS}):
    s.sendto(struct.pack('!I', i) + bytes(1396), (sys.argv[1], {PORT}))
    if i % 5 == 4:
        time.sleep(0.01)
"""
# Prints a line when it listens; a datagram's number does not matter. Ends 1 s after the last one,
# so that it also receives duplicates.
RECEIVE = f"""
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_000_000)
s.bind((sys.argv[1], {PORT}))
group = socket.inet_aton(sys.argv[1]) + socket.inet_aton(sys.argv[2])
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
print('ready', flush=True)
n, s_timeout = 0, 30
while True:
    s.settimeout(s_timeout)
    try:
        s.recv(2000)
    except TimeoutError:
        break
    n, s_timeout = n + 1, 1
print(n)
"""


def shape(emulation: Emulation, fidelity: Fidelity) -> None:
    """Set the publisher's two queues and the rule that counts, as in a cell without loss."""
    nic = emulation.nic1_of("p")
    group = emulation.network.multicast_group
    rates = {"r_mc_bps": 50_000_000, "r_uc_bps": 10_000_000}
    sizes = {"b_mc_bytes": 1_000_000, "b_uc_bytes": 1_000_000}
    for command in shaping.htb_commands(nic, group, **rates, **sizes):
        emulation.run("p", command)
    emulation.run("q", shaping.arrival_command(emulation.nic1_of("q"), udp_only=True))
    fidelity.read(
        lambda: shaping.read_back_htb(
            emulation.run("p", shaping.qdisc_show(nic)).stdout,
            emulation.run("p", shaping.class_show(nic)).stdout,
            emulation.run("p", shaping.filter_show(nic)).stdout,
            group=group,
            **rates,
            **sizes,
        )
    )


def send_all(emulation: Emulation, mischief: Callable[[], object] = lambda: None) -> int:
    """Cause `mischief`, send 500 datagrams from p to the group, and return how many q's program
    got."""
    group, nic = (
        emulation.network.multicast_group,
        {h.name: h.nic1.ip for h in emulation.network.hosts},
    )
    receiver = emulation.popen(
        "q", [sys.executable, "-c", RECEIVE, group, nic["q"]], stdout=subprocess.PIPE
    )
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == b"ready\n"
    try:
        mischief()
    except BaseException:
        receiver.kill()
        receiver.wait()
        raise
    emulation.run("p", [sys.executable, "-c", SEND, group, nic["p"]], timeout_s=60)
    return int(receiver.communicate(timeout=60)[0])


def observe(
    emulation: Emulation,
    out: Path,
    mischief: Callable[[], object] = lambda: None,
    *,
    before: Callable[[], object] = lambda: None,
    at_s: Sequence[float] = (0.6,),
) -> dict[str, Check]:
    """Run a small replay, watched as a cell's is. `mischief` happens after its beginning; the
    effect of `before` lasts from before the first reading. Return the checks by name; those of
    things that are missing here (LDM, sar, pings) mean nothing."""
    out.mkdir(exist_ok=True)
    fidelity = Fidelity(emulation, out, BUILD)
    fidelity.asked.rate_bps = 1e6  # four packets of 16 are watched
    fidelity.asked.groups = {emulation.network.multicast_group: ["q"]}
    fidelity.asked.free |= {"p programs", "q programs"}
    fidelity.asked.things |= shaping.htb_things(f"p/{emulation.nic1_of('p')}")
    fidelity.probe_links("before")
    with ExitStack() as stack:
        shape(emulation, fidelity)
        stack.callback(
            emulation.run,
            "p",
            ["tc", "qdisc", "del", "dev", emulation.nic1_of("p"), "root"],
            check=False,
        )
        stack.callback(emulation.run, "q", ["iptables", "-w", "-F", "INPUT"])
        before()
        with ExitStack() as watching:
            fidelity.watch(watching, long_run=False, at_s=at_s)
            write_json(out / "counters-start.json", emulation.counters())
            received = send_all(emulation, mischief)
            write_json(out / "counters-end.json", emulation.counters())
        fidelity.read_again()
        fidelity.probe_links("after")
    write_json(out / "links.json", [dataclasses.asdict(r) for r in emulation.readback])
    start, end = (
        parse_counters((out / f"counters-{when}.json").read_text(), when)
        for when in ("start", "end")
    )
    wrong, checked = link_mismatches(out / "links.json")
    zero: dict[str, Any] = {f.name: 0 for f in dataclasses.fields(ReceiverStats)}
    stats = {**zero, "prog": "down7", "datagrams": received, "rcvbuf_granted_bytes": 4_000_000}
    evidence = Evidence(
        protocol="ldm7",
        m=1,
        loss=0.0,
        shaped_bps=50_000_000,
        b_rcv_bytes=4_000_000,
        products=0,
        start=start,
        end=end,
        link_mismatches=wrong,
        links_checked=checked,
        shaping_mismatches=(),
        shaping_checked=1,
        links_after=link_mismatches(out / "links-end.json"),
        shaping_after=shaping_mismatches(out / "shaping-end.json"),
        probes=link_probes(out / "link-probes.json"),
        publisher="p",
        publisher_nic1=emulation.nic1_of("p"),
        relay_delay_ms=delays(emulation.network),
        receivers={"q": ReceiverStats(**stats)},
        datagrams_sent=DATAGRAMS,
        arrived=arrivals(start, end, ["q"], 0.0),
        contents=[ContentCheck("q", 0, 0, (), (), ())],
        clock=emulation.facts.clock,
        network=emulation.network,
        **watched(out),
    )
    return {c.name: c for c in (*network_checks(evidence), accounting(evidence))}


# Without checks that a busy machine may spoil.
CLEAN = (
    *("link settings", "link settings after the replay", "experiment's settings after the replay"),
    *("drops at the sender's shaper", "uninjected drops", "datagrams accounted for"),
    *("link rates", "queue backlog", "fill of the receivers' UDP buffers", "clock"),
    *("every interface as planned", "nothing changed meanwhile", "firewall rules"),
    *("neighbours' counters", "order of packets", "copies of packets", "packets unchanged"),
    "packets lost on the way",
)


def not_passed(checks: dict[str, Check], names: tuple[str, ...] = CLEAN) -> dict[str, str]:
    return {name: checks[name].text for name in names if checks[name].status not in ("pass", "n/a")}


@pytest.fixture(scope="module")
def emulation() -> Iterator[Emulation]:
    with network_up(two_hosts(LINK)) as found:
        yield found


class TestInALab:
    # A sender that waits for a processor sends no bursts, and fills no queue.
    pytestmark = [*ROOT_ONLY, pytest.mark.alone]

    def test_a_clean_run_passes(self, emulation: Emulation, tmp_path: Path) -> None:
        checks = observe(emulation, tmp_path)
        assert not_passed(checks) == {}
        assert "500 sent to 1 receiver: 0 taken by the injected loss" in (
            checks["datagrams accounted for"].text
        )
        for when in ("before", "after"):
            assert checks[f"link delays {when} the replay"].status != "fail"

    def test_an_overloaded_host(self, emulation: Emulation, tmp_path: Path) -> None:
        """All processors compute for others, 60 of each 80 ms: 3 of 4 timers expire in such a time
        and wait for its end, 20 ms or more in half of all cases. (Programs of normal priority would
        not do: the scheduler lets a program that has slept run before them.)"""
        if not emulation.facts.sched_fifo:
            pytest.skip("SKIPPED: no real-time priority here: an overloaded host was NOT tried")
        clean = observe(emulation, tmp_path / "clean")["scheduling lag"]
        assert clean.status != "fail", clean.text
        with hogs():
            loaded = observe(emulation, tmp_path / "loaded")["scheduling lag"]
        assert loaded.status == "fail", loaded.text
        assert isinstance(loaded.found, dict)
        assert isinstance(clean.found, dict)
        assert loaded.found["p50_ms"] > 3 * clean.found["p50_ms"], loaded.text

    def test_loss_by_a_rule_that_is_not_ours(self, emulation: Emulation, tmp_path: Path) -> None:
        """The rule drops every 20th datagram: 25 of 500."""
        every_20th = ["-m", "statistic", "--mode", "nth", "--every", "20", "--packet", "0"]
        rule = ["iptables", "-w", "-A", "INPUT", "-p", "udp", *every_20th, "-j", "DROP"]
        checks = observe(emulation, tmp_path, lambda: emulation.run("q", rule))
        assert checks["uninjected drops"].status == "fail"
        assert checks["uninjected drops"].found == 25
        assert "--mode nth --every 20" in checks["uninjected drops"].text
        assert checks["datagrams accounted for"].status == "fail"
        assert "q: 25 between NIC and program" in checks["datagrams accounted for"].text

    def test_loss_that_no_counter_of_drops_shows(
        self, emulation: Emulation, tmp_path: Path
    ) -> None:
        """A filter at q's interface drops datagrams whose number ends in hexadecimal 0: 32."""
        nic = emulation.nic1_of("q")
        add = ["tc", "filter", "add", "dev", nic, "ingress", "protocol", "ip", "prio", "1"]

        def install() -> None:
            emulation.run("q", ["tc", "qdisc", "add", "dev", nic, "clsact"])
            emulation.run("q", [*add, "bpf", "da", "bytecode", DROP_NUMBERS_ENDING_IN_0])

        try:
            checks = observe(emulation, tmp_path, install)
        finally:
            emulation.run("q", ["tc", "qdisc", "del", "dev", nic, "clsact"])
        assert checks["datagrams accounted for"].status == "fail"
        assert "q: 32 on the way to the receiver's NIC" in checks["datagrams accounted for"].text

    def test_settings_changed_while_it_ran(self, emulation: Emulation, tmp_path: Path) -> None:
        nic = emulation.nic1_of("p")
        change = ["tc", "class", "change", "dev", nic, "parent", "1:", "classid", "1:1", "htb"]
        faster = [*change, "rate", "60000000bit", "ceil", "60000000bit"]
        checks = observe(emulation, tmp_path, lambda: emulation.run("p", faster))
        found = checks["experiment's settings after the replay"]
        assert found.status == "fail"
        assert "multicast rate: asked 50000000, the kernel has 60000000" in found.text

    def test_a_delay_changed_behind_its_back(self, emulation: Emulation, tmp_path: Path) -> None:
        """18 ms become 48 while it runs. netem's settings show that. wire-relay does not report
        that another one has replaced it, but the probes afterwards find it."""
        with (
            nullcontext()
            if emulation.facts.delay_mechanism == "netem"
            else other_relay(emulation) as relay
        ):
            checks = observe(emulation, tmp_path, relay or (lambda: slow_netem(emulation)))
        assert checks["link delays before the replay"].status != "fail"
        after = checks["link delays after the replay"]
        assert after.status == "fail"
        assert after.found == pytest.approx(48.0, abs=3.0)
        assert "q:sw" in after.text
        if emulation.facts.delay_mechanism == "netem":
            assert checks["link settings after the replay"].status == "fail"

    def test_a_queue_that_is_too_small(self, tmp_path: Path) -> None:
        """3,000 bytes before 5 Mbit/s: two of each burst of five datagrams find room."""
        small = Impairment(rate_bps=5_000_000, delay_ms=1.0, queue_bytes=6_000)
        with network_up(two_hosts(small)) as emulation:
            checks = observe(emulation, tmp_path)
        assert not_passed(checks, ("link settings", "link rates", "clock")) == {}
        assert checks["uninjected drops"].status == "fail"
        assert "qdisc drops" in checks["uninjected drops"].text
        assert checks["datagrams accounted for"].status == "fail"
        assert "on the way to the receiver's NIC" in checks["datagrams accounted for"].text


# Classic BPF for tc: UDP over IPv4 (offsets from the Ethernet header) whose datagram's number, the
# first 4 bytes of its payload, ends in 0 hexadecimal, is dropped (2: TC_ACT_SHOT), else let pass.
DROP_NUMBERS_ENDING_IN_0 = ",".join(
    (
        "8",
        "48 0 0 23",  # protocol
        "21 0 4 17",
        "48 0 0 45",  # last byte of the number
        "84 0 0 15",
        "21 0 1 0",
        "6 0 0 2",
        "6 0 0 4294967295",
        "6 0 0 4294967295",
    )
)


HOG = """
import time
while True:
    now = time.monotonic()
    begin = now - now % 0.08
    while time.monotonic() < begin + 0.06:
        pass
    time.sleep(max(0, begin + 0.08 - time.monotonic()))
"""


@contextmanager
def hogs() -> Iterator[None]:
    argv = ["chrt", "-f", "1", sys.executable, "-c", HOG]
    running = [subprocess.Popen(argv) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


@contextmanager
def other_relay(emulation: Emulation) -> Iterator[Callable[[], None]]:
    """Return a function that replaces wire-relay by another one, with 30 ms more; in the end it is
    replaced by one like the first."""

    def restart(more_ms: float) -> None:
        assert emulation._relay is not None
        emulation._relay.stop()
        longer = dataclasses.replace(LINK, delay_ms=LINK.delay_ms + more_ms)
        wire = wire_plan.plan(two_hosts(longer), emulation.facts.delay_mechanism)
        (emulation.state_dir / "relay-ready.json").unlink()
        (emulation.state_dir / "relay-stats.json").unlink(missing_ok=True)
        emulation._relay = Relay(emulation.state_dir)
        emulation._relay.start(emulation.pids[WIRE], wire)
        emulation._relay.ask_report()

    try:
        yield lambda: restart(30.0)
    finally:
        restart(0.0)


def slow_netem(emulation: Emulation) -> None:
    for d in emulation._wire.directions:
        limit = ["handle", "1:", "netem", "limit", "1000000", "delay", "48ms"]
        change = ["tc", "qdisc", "change", "dev", d.egress, "root", *limit]
        check(in_node(emulation.pids[WIRE], change))


# struct timex of linux/timex.h: modes = ADJ_TICK, and a tick 2 % longer than 10,000 us.
FASTER_CLOCK = """
import ctypes, struct
timex = ctypes.create_string_buffer(208)
struct.pack_into("=I", timex, 0, 0x4000)
struct.pack_into("=q", timex, 88, 10_200)
if ctypes.CDLL(None).adjtimex(timex) < 0: raise SystemExit(1)
"""


@pytest.mark.slow
@BUILT
@pytest.mark.parametrize(
    ("command", "status"), [("true", "pass"), ("date -s '+2 seconds'", "fail")]
)
def test_a_clock_that_is_set(command: str, status: str, kernel: Kernel) -> None:
    """Run in a guest, whose clock is its own: in the middle of 5 s of virtual time, the time of day
    is set 2 s forward."""
    judged, found = clock_after(command, kernel)
    assert judged.status == status, judged.text
    assert found.step_ms == pytest.approx(2000.0 if status == "fail" else 0.0, abs=0.01)


@pytest.mark.slow
@BUILT
def test_a_clock_that_drifts(kernel: Kernel) -> None:
    """For 3 of 5 s it runs 2 % too fast: 12,000 ppm of the whole."""
    judged, found = clock_after(f"{sys.executable} -c '{FASTER_CLOCK}'", kernel)
    assert judged.status == "fail", judged.text
    assert found.drift_ppm == pytest.approx(12_000, rel=0.2)


def clock_after(command: str, kernel: Kernel) -> tuple[Check, host_lag.HostLag]:
    """Return what hostlag finds in a guest that runs `command` after 2 of 5 s."""
    program = CHECKOUT / (BUILD / HOSTLAG).relative_to(BUILD.parent)
    script = f"{program} 100000 & sleep 2; {command} >&2; sleep 3; kill $!; wait"
    out, err = io.BytesIO(), io.BytesIO()
    code, _ = run_guest(kernel, GuestSpec(argv=("sh", "-c", script)), stdout=out, stderr=err)
    assert code in (0, 143), err.getvalue()
    found = host_lag.parse(json.loads(out.getvalue()))
    empty = parse_counters('{"time": 0}', "none")
    evidence = Evidence(
        protocol="ldm7",
        m=1,
        loss=0.0,
        shaped_bps=0,
        b_rcv_bytes=0,
        products=0,
        link_mismatches=(),
        links_checked=0,
        shaping_mismatches=(),
        shaping_checked=0,
        links_after=((), 0),
        shaping_after=((), 0),
        start=empty,
        end=empty,
        lags={"guest": found},
        clock="virtual",
    )
    return clock_check(evidence), found
