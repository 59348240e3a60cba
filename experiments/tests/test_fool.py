# SPDX-License-Identifier: Apache-2.0
"""Attempts to fool the verdict, each on a network that is faithful otherwise: what is done, and the
checks that must see it. The tests run natively; for virtual time they run in a guest (below)."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from common.places import ROOT
from common.shell import NetworkError, check, in_node
from experiments.tests.test_catch import (
    BUILT,
    CLEAN,
    DROP_NUMBERS_ENDING_IN_0,
    LINK,
    PORT,
    ROOT_ONLY,
    not_passed,
    observe,
)
from topologies.emulate.emulation import Emulation
from topologies.model.wire_plan import WIRE
from topologies.tests.networks import two_hosts
from topologies.tests.test_emulation import network_up

PLANNED, CHANGED = "every interface as planned", "nothing changed meanwhile"
DELAYS, ORDER, COPIES = "delays during the replay", "order of packets", "copies of packets"
CONTENT, LOST = "packets unchanged", "packets lost on the way"
ACCOUNTS, RULES = "datagrams accounted for", "firewall rules"
SETTINGS = "experiment's settings after the replay"
LINKS = "link settings after the replay"
PORT_OF_Q: Final = "sw-p3"  # the switch's port, a plain interface; the link behind it is impaired


class Unable(Exception):
    """This kernel lacks what the attempt needs."""


def tool(*argv: str) -> None:
    """Run a command where the switches' ports are. Raises Unable if the kernel lacks what it
    needs."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unable(f"{' '.join(argv)}: {done.stderr.strip()}")


def tc(*words: str) -> None:
    tool("tc", *words)


def at(emulation: Emulation, node: str, *argv: str) -> None:
    done = emulation.run(node, list(argv), check=False)
    if done.returncode != 0:
        raise Unable(f"{node}: {' '.join(argv)}: {done.stderr.strip()}")


def later(seconds: float, action: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, action)
    timer.start()


Action = Callable[[Emulation], object]


@dataclass(frozen=True)
class Attempt:
    """`before`: done before the first reading, to stay; `meanwhile`: done when the replay begins;
    `undo`: restores everything; `seen_by`: every check that must fail."""

    name: str
    seen_by: tuple[str, ...]
    before: Action | None = None
    meanwhile: Action | None = None
    undo: Action | None = None
    text: str = ""  # what one of the checks must name


def port_queue(*words: str) -> Action:
    return lambda _e: tc("qdisc", "add", "dev", PORT_OF_Q, "root", *words)


def no_port_queue(_emulation: Emulation) -> None:
    subprocess.run(["tc", "qdisc", "del", "dev", PORT_OF_Q, "root"], capture_output=True)


def reorder(_emulation: Emulation) -> None:
    """Every fourth datagram goes through a slow class."""
    tc("qdisc", "add", "dev", PORT_OF_Q, "root", "handle", "1:", "htb", "default", "1")
    for number, rate in (("1", "1gbit"), ("2", "800kbit")):
        klass = ["dev", PORT_OF_Q, "parent", "1:", "classid", f"1:{number}", "htb", "rate", rate]
        tc("class", "add", *klass, "quantum", "1514")
    fourth = ["u32", "match", "u8", "0", "0x03", "at", "31", "match", "u8", "17", "0xff", "at", "9"]
    tc(
        *("filter", "add", "dev", PORT_OF_Q, "parent", "1:", "protocol", "all", "prio", "1"),
        *(*fourth, "flowid", "1:2"),
    )


def slow_for_a_while(_emulation: Emulation) -> None:
    """For a quarter of a second in the middle hardly anything passes; then all is as before."""

    def slow() -> None:
        tc("qdisc", "add", "dev", PORT_OF_Q, "root", "tbf", "rate", "200kbit", "burst", "3000",
           "limit", "4mb")  # fmt: skip
        time.sleep(0.25)
        tc("qdisc", "change", "dev", PORT_OF_Q, "root", "tbf", "rate", "1gbit", "burst", "100kb",
           "limit", "4mb")  # fmt: skip
        time.sleep(0.25)
        no_port_queue(_emulation)

    later(0.3, slow)


def nic(emulation: Emulation, host: str) -> str:
    return emulation.nic1_of(host)


def limit_for_a_moment(emulation: Emulation) -> None:
    """A queue's limit is made small and large again, within milliseconds."""
    leaf = ["tc", "qdisc", "change", "dev", nic(emulation, "p"), "parent", "1:1", "handle", "11:"]

    def change() -> None:
        at(emulation, "p", *leaf, "bfifo", "limit", "3000")
        at(emulation, "p", *leaf, "bfifo", "limit", "1000000")

    later(0.3, change)


def mtu(value: int) -> Action:
    return lambda _e: tool("ip", "link", "set", "dev", PORT_OF_Q, "mtu", str(value))


def mtu_for_a_moment(emulation: Emulation) -> None:
    mtu(1400)(emulation)
    mtu(1500)(emulation)


def offload(state: str) -> Action:
    return lambda e: at(e, "p", "ethtool", "-K", "p-nic1", "tx", state)


def ofctl(*words: str) -> None:
    tool("ovs-ofctl", "-O", "OpenFlow13", *words)


def flow_to_q(actions: str) -> Action:
    """Return an action that changes what the switch does with p's multicast."""

    def change(_emulation: Emulation) -> None:
        match, old = _group_flow()
        saved.append((match, old))
        ofctl("--strict", "mod-flows", "sw", f"priority=200,{match},actions={actions},{old}")

    return change


saved: list[tuple[str, str]] = []


def flow_back(_emulation: Emulation) -> None:
    match, old = saved.pop()
    ofctl("--strict", "mod-flows", "sw", f"priority=200,{match},actions={old}")


def _group_flow() -> tuple[str, str]:
    """Return what the switch matches of p's multicast, and what it does with it."""
    text = check(["ovs-ofctl", "-O", "OpenFlow13", "--no-names", "dump-flows", "sw"])
    line = next(
        line
        for line in text.splitlines()
        if "priority=200,in_port=2" in line and "01:00:00:00:00:00" in line
    )
    match, _, actions = line.strip().partition("priority=200,")[2].partition(" actions=")
    return match, actions


def ecn_flow(_emulation: Emulation) -> None:
    match, actions = _group_flow()
    ofctl("add-flow", "sw", f"priority=250,ip,{match},actions=set_field:3->ip_ecn,{actions}")


def no_ecn_flow(_emulation: Emulation) -> None:
    match, _ = _group_flow()
    ofctl("--strict", "del-flows", "sw", f"priority=250,ip,{match}")


def second_path(emulation: Emulation) -> None:
    """p's multicast leaves over the control network."""
    group = emulation.network.multicast_group
    at(emulation, "p", "ip", "route", "add", f"{group}/32", "dev", "p-nic2")


def no_second_path(emulation: Emulation) -> None:
    group = emulation.network.multicast_group
    emulation.run("p", ["ip", "route", "del", f"{group}/32"], check=False)


def policy_rule(emulation: Emulation) -> None:
    at(emulation, "p", "ip", "rule", "add", "from", "all", "lookup", "77", "prio", "77")


def no_policy_rule(emulation: Emulation) -> None:
    emulation.run("p", ["ip", "rule", "del", "prio", "77"], check=False)


def rule_for_a_moment(emulation: Emulation) -> None:
    rule = ["INPUT", "-p", "udp", "-j", "DROP"]

    def there_and_back() -> None:
        at(emulation, "q", "iptables", "-w", "-I", *rule)
        time.sleep(0.02)
        at(emulation, "q", "iptables", "-w", "-D", *rule)

    later(0.3, there_and_back)


def rule_elsewhere(emulation: Emulation) -> None:
    at(emulation, "r", "iptables", "-w", "-t", "mangle", "-A", "FORWARD", "-p", "udp", "-j", "DROP")


def no_rule_elsewhere(emulation: Emulation) -> None:
    emulation.run("r", ["iptables", "-w", "-t", "mangle", "-F"], check=False)


def silent_rule(emulation: Emulation) -> None:
    at(emulation, "q", "iptables", "-w", "-A", "INPUT", "-p", "udp", "-m", "length",
       "--length", "0:100")  # fmt: skip


def no_silent_rule(emulation: Emulation) -> None:
    emulation.run("q", ["iptables", "-w", "-F", "INPUT"], check=False)


def policed(rate: str) -> Action:
    return lambda _e: tool(
        *("ovs-vsctl", "set", "interface", "sw-p2", f"ingress_policing_rate={rate}"),
        f"ingress_policing_burst={0 if rate == '0' else 10000}",
    )


def larger_bucket(emulation: Emulation) -> None:
    """The token bucket of q's link holds ten times as much."""
    direction = next(d for d in emulation._wire.directions if d.link.startswith("q:"))
    shown = check(in_node(emulation.pids[WIRE], ["tc", "qdisc", "show", "dev", direction.egress]))
    parent = ["parent", "1:1"] if "parent 1:1" in shown else ["root"]
    change = ["tc", "qdisc", "change", "dev", direction.egress, *parent, "handle", "10:", "tbf"]
    values = ["rate", "100mbit", "burst", "125000", "limit", "500000"]
    try:
        check(in_node(emulation.pids[WIRE], [*change, *values]))
    except NetworkError as error:
        raise Unable(str(error)) from error


def bucket_as_before(emulation: Emulation) -> None:
    direction = next(d for d in emulation._wire.directions if d.link.startswith("q:"))
    shown = check(in_node(emulation.pids[WIRE], ["tc", "qdisc", "show", "dev", direction.egress]))
    parent = ["parent", "1:1"] if "parent 1:1" in shown else ["root"]
    change = ["tc", "qdisc", "change", "dev", direction.egress, *parent, "handle", "10:", "tbf"]
    check(
        in_node(
            emulation.pids[WIRE],
            [*change, "rate", "100000000bit", "burst", "12500", "limit", "500000"],
        )
    )


def extra_interface(emulation: Emulation) -> None:
    for words in (("add", "name", "x0", "type", "veth", "peer", "name", "x1"), ("set", "x0", "up")):
        at(emulation, "q", "ip", "link", *words)


def no_extra_interface(emulation: Emulation) -> None:
    emulation.run("q", ["ip", "link", "del", "x0"], check=False)


def forwards_no_more(emulation: Emulation) -> None:
    at(emulation, "q", "sysctl", "-q", "-w", "net.ipv4.tcp_sack=0")


def as_it_was(emulation: Emulation) -> None:
    at(emulation, "q", "sysctl", "-q", "-w", "net.ipv4.tcp_sack=1")


SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
running: list[subprocess.Popen[bytes]] = []


def slow_program(prefix: list[str]) -> Action:
    def start(emulation: Emulation) -> None:
        running.append(emulation.popen("q", [*prefix, *SLEEPER]))
        time.sleep(0.2)
        if running[-1].poll() is not None:
            raise Unable(f"{' '.join(prefix)} ended with {running[-1].returncode}")

    return start


NICE_THREAD = """
import os, threading, time
def work():
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 7)
    time.sleep(60)
threading.Thread(target=work, daemon=True).start()
time.sleep(60)
"""
LATE_TIMERS = """
import time
open("/proc/self/timerslack_ns", "w").write("20000000")
time.sleep(60)
"""


def python(text: str) -> Action:
    return slow_program([sys.executable, "-c", text])


def on_one_core(emulation: Emulation) -> None:
    if os.cpu_count() == 1:
        raise Unable("there is one core only")
    slow_program(["taskset", "-c", "0"])(emulation)


def stopped_program(emulation: Emulation) -> None:
    slow_program([])(emulation)
    running[-1].send_signal(19)  # SIGSTOP


def in_a_group_with_a_quota(emulation: Emulation) -> None:
    """One program of one host gets only a tenth of a processor."""
    for root in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")):
        group = root / f"downpour-test-{os.getpid()}"
        try:
            group.mkdir()
            if (group / "cpu.max").exists():
                (group / "cpu.max").write_text("10000 100000")
            elif (group / "cpu.cfs_quota_us").exists():
                (group / "cpu.cfs_quota_us").write_text("10000")
            else:
                raise OSError("no quota")
            slow_program([])(emulation)
            (group / "cgroup.procs").write_text(str(running[-1].pid))
        except OSError:
            if group.exists():
                group.rmdir()
            continue
        return
    raise Unable("no control group with a quota can be made here")


def end_program(_emulation: Emulation) -> None:
    while running:
        process = running.pop()
        process.kill()
        process.wait()
    for root in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")):
        group = root / f"downpour-test-{os.getpid()}"
        if group.is_dir():
            time.sleep(0.1)
            group.rmdir()


EXTRA_SENDER = f"""
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[2]))
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 8)
for i in range(40):
    s.sendto(bytes(1000), (sys.argv[1], {PORT + 1}))
"""


def second_sender(emulation: Emulation) -> None:
    network = emulation.network
    argv = [sys.executable, "-c", EXTRA_SENDER, network.multicast_group, network.publisher.nic1.ip]
    later(0.3, lambda: emulation.run("p", argv))


def interface_down_for_a_moment(_emulation: Emulation) -> None:
    def flash() -> None:
        tool("ip", "link", "set", "dev", PORT_OF_Q, "down")
        tool("ip", "link", "set", "dev", PORT_OF_Q, "up")

    later(0.3, flash)


def redirected(_emulation: Emulation) -> None:
    """A filter at the switch's port takes every datagram whose number ends in 0."""
    tc("qdisc", "add", "dev", PORT_OF_Q, "clsact")
    tc(
        *("filter", "add", "dev", PORT_OF_Q, "egress", "protocol", "all", "prio", "1"),
        *("bpf", "da", "bytecode", DROP_NUMBERS_ENDING_IN_0),
    )


def not_redirected(_emulation: Emulation) -> None:
    subprocess.run(["tc", "qdisc", "del", "dev", PORT_OF_Q, "clsact"], capture_output=True)


def meter(emulation: Emulation) -> None:
    ofctl("add-meter", "sw", "meter=7,kbps,band=type=drop,rate=3000")
    flow_to_q("meter:7")(emulation)


def no_meter(emulation: Emulation) -> None:
    flow_back(emulation)
    ofctl("del-meter", "sw", "meter=7")


def queue_of(*words: str) -> tuple[Action, Action]:
    return port_queue(*words), no_port_queue


BOTTLENECK = ("tbf", "rate", "3600kbit", "burst", "5000", "limit", "4mb")

ATTEMPTS: Final = (
    Attempt(
        "a bottleneck at a plain port of a switch, from before the start to after the end",
        (PLANNED, DELAYS),
        before=port_queue(*BOTTLENECK),
        undo=no_port_queue,
        text="sw/sw-p3 qdiscs: asked none, found root tbf",
    ),
    Attempt(
        "the same, set when the replay began",
        (PLANNED, CHANGED, DELAYS),
        meanwhile=port_queue(*BOTTLENECK),
        undo=no_port_queue,
    ),
    Attempt("each fourth datagram overtaken", (PLANNED, ORDER), before=reorder, undo=no_port_queue),
    Attempt(
        "slow for a quarter of a second in the middle, restored before the end",
        (CHANGED, DELAYS),
        meanwhile=slow_for_a_while,
        undo=no_port_queue,
        text="switches/sw-p3: queueing discipline tbf root set",
    ),
    Attempt(
        "a queue's limit changed and restored between two looks",
        (CHANGED,),
        meanwhile=limit_for_a_moment,
    ),
    Attempt("a smaller MTU in the core", (PLANNED,), before=mtu(1450), undo=mtu(1500)),
    Attempt("another MTU for a moment", (CHANGED,), meanwhile=mtu_for_a_moment),
    Attempt(
        "a checksum offload switched on", (PLANNED,), before=offload("on"), undo=offload("off")
    ),
    Attempt(
        "a switch that forwards twice",
        (CHANGED, COPIES),
        meanwhile=flow_to_q("output:3"),
        undo=flow_back,
    ),
    Attempt(
        "ECN marks by a switch",
        (CHANGED, CONTENT),
        meanwhile=ecn_flow,
        undo=no_ecn_flow,
    ),
    Attempt("a meter that nobody asked for", (CHANGED,), meanwhile=meter, undo=no_meter),
    Attempt(
        "a second path: the group's route by the control network",
        (PLANNED, CHANGED),
        meanwhile=second_path,
        undo=no_second_path,
    ),
    Attempt("a routing rule", (PLANNED,), before=policy_rule, undo=no_policy_rule),
    Attempt("a firewall rule there for 20 ms", (CHANGED,), meanwhile=rule_for_a_moment),
    Attempt(
        "a rule elsewhere: at the control network's router",
        (PLANNED,),
        before=rule_elsewhere,
        undo=no_rule_elsewhere,
        text="r firewall",
    ),
    Attempt(
        "a firewall rule at a receiver that takes nothing",
        (RULES,),
        before=silent_rule,
        undo=no_silent_rule,
    ),
    Attempt(
        "a policer at a switch's port",
        (PLANNED,),
        before=policed("20000"),
        undo=policed("0"),
    ),
    Attempt(
        "a token bucket that holds ten times as much",
        (PLANNED,),
        before=larger_bucket,
        undo=bucket_as_before,
    ),
    Attempt(
        "a filter that drops at a switch's port",
        (PLANNED, ACCOUNTS, LOST),
        before=redirected,
        undo=not_redirected,
    ),
    Attempt(
        "one more interface at a host", (PLANNED,), before=extra_interface, undo=no_extra_interface
    ),
    Attempt("TCP without SACK", (PLANNED,), before=forwards_no_more, undo=as_it_was),
    Attempt(
        "a program of one host with less of the processors (nice)",
        (PLANNED,),
        before=slow_program(["nice", "-n", "7"]),
        undo=end_program,
        text="q scheduling",
    ),
    Attempt(
        "a program of one host on one core only",
        (PLANNED,),
        before=on_one_core,
        undo=end_program,
        text="q scheduling",
    ),
    Attempt(
        "a thread of a program with less of the processors",
        (PLANNED,),
        before=python(NICE_THREAD),
        undo=end_program,
        text="nice 7",
    ),
    Attempt(
        "a program before all others (real time)",
        (PLANNED,),
        before=slow_program(["chrt", "-f", "1"]),
        undo=end_program,
        text="policy 1",
    ),
    Attempt(
        "a program whose timers are 20 ms late",
        (PLANNED,),
        before=python(LATE_TIMERS),
        undo=end_program,
        text="timer slack 20000000 ns",
    ),
    Attempt(
        "a stopped program", (PLANNED,), before=stopped_program, undo=end_program, text="stopped"
    ),
    Attempt(
        "a program of one host with a quota",
        (PLANNED,),
        before=in_a_group_with_a_quota,
        undo=end_program,
        text="q scheduling",
    ),
    Attempt("a second sender to the group", (ACCOUNTS,), meanwhile=second_sender),
    Attempt("an interface down for a moment", (CHANGED,), meanwhile=interface_down_for_a_moment),
    Attempt(
        "packets repeated by netem",
        (PLANNED, COPIES, ACCOUNTS),
        before=port_queue("netem", "duplicate", "20%"),
        undo=no_port_queue,
    ),
    Attempt(
        "packets damaged by netem",
        (PLANNED, CONTENT, ACCOUNTS),
        before=port_queue("netem", "corrupt", "40%"),
        undo=no_port_queue,
    ),
    Attempt(
        "30 ms more in one direction only",
        (PLANNED, DELAYS),
        before=port_queue("netem", "delay", "30ms"),
        undo=no_port_queue,
        text="p to q (path)",
    ),
)


@pytest.fixture(scope="module")
def emulation() -> Iterator[Emulation]:
    with network_up(two_hosts(LINK)) as found:
        yield found


class TestFooled:
    pytestmark = [*ROOT_ONLY, pytest.mark.emulated]

    def test_nothing_done(self, emulation: Emulation, tmp_path: Path) -> None:
        checks = observe(emulation, tmp_path)
        assert not_passed(checks, (*CLEAN, RULES)) == {}
        assert checks[DELAYS].status != "fail", checks[DELAYS].text

    @pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda a: a.name)
    def test_seen(self, emulation: Emulation, tmp_path: Path, attempt: Attempt) -> None:
        seen_and_undone(emulation, tmp_path, attempt)


def seen_and_undone(emulation: Emulation, out: Path, attempt: Attempt) -> None:
    """Make the attempt; every check that must see it fails."""

    def done(action: Action | None) -> Callable[[], object]:
        return (lambda: None) if action is None else (lambda: action(emulation))

    try:
        checks = observe(emulation, out, done(attempt.meanwhile), before=done(attempt.before))
    except Unable as error:
        pytest.skip(f"SKIPPED: this kernel cannot do it, so it was NOT tried: {error}")
    finally:
        if attempt.undo is not None:
            with contextlib.suppress(Unable):
                attempt.undo(emulation)
    passed = {name: checks[name].text for name in attempt.seen_by if checks[name].status != "fail"}
    assert passed == {}, {n: c.text for n, c in checks.items() if c.status == "fail"}
    texts = " | ".join(checks[name].text for name in attempt.seen_by)
    assert attempt.text in texts


def in_a_guest(file: Path, tests: str) -> None:
    """Run a file's tests in a guest, with the kernel's netem and Open vSwitch."""
    argv = [
        *(sys.executable, "-m", "downpour", "virtual", "run", "--"),
        *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-rs"),
        *(str(file.relative_to(ROOT)), "-k", tests),
    ]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=900)
    print(done.stdout[-3000:])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.emulated
@pytest.mark.usefixtures("kernel")
@BUILT
def test_in_virtual_time() -> None:
    in_a_guest(Path(__file__), "TestFooled")
