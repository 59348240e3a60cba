# SPDX-License-Identifier: Apache-2.0
"""What a switch holds, as the bytes of its answers: a played switch, and Open vSwitch."""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path

import pytest

from topologies.tests.own_openvswitch import beside_open_vswitch
from topologies.watch import raw_entries
from topologies.watch.raw_entries import (
    ECHO_REPLY,
    ECHO_REQUEST,
    ERROR,
    FLOWS,
    GROUPS,
    HELLO,
    METERS,
    MORE,
    REPLY,
)


def message(kind: int, body: bytes = b"", number: int = 0, version: int = 4) -> bytes:
    return struct.pack("!BBHI", version, kind, 8 + len(body), number) + body


def reply(kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    return message(REPLY, struct.pack("!HHI", kind, flags, 0) + body, kind)


def flow(cookie: int, age_s: int, packets: int) -> bytes:
    """Return an ofp_flow_stats (OpenFlow 1.3.5, 7.3.5.2) that matches everything and drops."""
    head = struct.pack("!HBxIIHHHH4xQQQ", 56, 0, age_s, 7, 100, 0, 0, 0, cookie, packets, 60)
    return head + struct.pack("!HHI", 1, 4, 0)


def asked(*messages: bytes) -> tuple[raw_entries.Entries, bytes]:
    """Return what is read of a switch that sends these messages, and what it is sent."""
    here, switch = socket.socketpair()
    with here, switch:
        switch.sendall(b"".join(messages))
        switch.shutdown(socket.SHUT_WR)
        found = raw_entries.entries(raw_entries.answers(here))
        here.shutdown(socket.SHUT_WR)
        return found, switch.recv(4096)


def test_ages_counters_and_order_do_not_count() -> None:
    rest = (reply(GROUPS, b"groups"), reply(METERS))
    first, _ = asked(reply(FLOWS, flow(1, 3, 10) + flow(2, 3, 0)), *rest)
    parts = (reply(FLOWS, flow(2, 8, 5), MORE), *rest, reply(FLOWS, flow(1, 9, 99)))
    later, _ = asked(message(HELLO, version=6), *parts)
    other, _ = asked(reply(FLOWS, flow(1, 3, 10) + flow(3, 3, 0)), *rest)
    assert first == later != other
    assert len(flow(1, 0, 0)) == 56
    assert asked(reply(FLOWS), reply(GROUPS), reply(METERS))[0] != first


def test_a_switch_that_asks_gets_its_echo() -> None:
    done = (reply(FLOWS), reply(GROUPS), reply(METERS))
    _, sent = asked(message(ECHO_REQUEST, b"are you there", 77), *done)
    assert sent == message(ECHO_REPLY, b"are you there", 77)


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ((message(REPLY, version=1),), "found OpenFlow version 1; valid: 4"),
        ((message(ERROR, bytes(8), FLOWS),), "the switch refuses question 1"),
        ((reply(FLOWS),), "closed the connection after 0 of 8 bytes"),
        (
            (reply(FLOWS, flow(1, 1, 1)[:50]), reply(GROUPS), reply(METERS)),
            "found a flow of 56 bytes in 50",
        ),
    ],
)
def test_what_is_no_answer_is_said(messages: tuple[bytes, ...], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        asked(*messages)


READ = """
from topologies.emulate import switch_reading
from topologies.emulate.switch_reading import SwitchReader
from common import shell
import sys
started = []
def check_all(commands):
    started.extend(commands)
    return shell.check_all(commands)
switch_reading.check_all = check_all
reader = SwitchReader()
def read():
    started.clear()
    found = reader.read(["s", "t"], {"s": "s", "t": "t"})
    entries = {k: v for k, v in found.items() if " flow " in k or " group " in k or " meter " in k}
    print(len(started), entries)
    return found
first = read()
print(first["switches mirrors"], first["s/s bridge"].split(",")[0], sorted(first)[-1])
shell.check(["ovs-ofctl", "-O", "OpenFlow13", "packet-out", "s",
    "in_port=controller packet=" + "00" * 60 + " actions=table"])
assert read() == first
shell.check(["ovs-ofctl", "-O", "OpenFlow13", "mod-flows", "s", "priority=7,actions=group:5"])
read()
shell.check(["ovs-ofctl", "-O", "OpenFlow13", "add-meter", "t",
    "meter=3,kbps,band=type=drop,rate=9"])
read()
last = read()
reader = SwitchReader()
for switch in ("s", "t"):
    text = [shell.check(["ovs-ofctl", "-O", "OpenFlow13", "--no-names", what, switch])
        for what in switch_reading.DUMPS]
    reader.learn(switch, switch_reading.entries(switch), text)
started.clear()
print(len(started), reader.read(["s", "t"], {"s": "s", "t": "t"}) == last, len(started))
"""


@pytest.mark.root
@pytest.mark.slow
def test_programs_start_only_for_switches_that_have_changed(tmp_path: Path) -> None:
    script = tmp_path / "read.py"
    script.write_text(READ)
    made = "".join(
        f"ovs-vsctl add-br {s} -- set bridge {s} datapath_type=netdev protocols=OpenFlow13"
        " fail_mode=secure\n"
        for s in ("s", "t")
    )
    ofctl = "ovs-ofctl -O OpenFlow13"
    made += f"{ofctl} add-group s group_id=5,type=all,bucket=output:1\n"
    made += f"{ofctl} add-flow s priority=7,actions=drop\n"
    done = beside_open_vswitch(lambda _: f"{made} PYTHONPATH=. {sys.executable} {script}")
    assert done.returncode == 0, done.stderr[-2000:]
    first, facts, again, changed, metered, last, learnt = done.stdout.splitlines()
    group = "'s group 5': 'type=all,bucket=actions=output:1'"
    flow_of = "'s flow cookie=0x0, table=0, priority=7': '{}'"
    assert first == again.replace("0 {", "6 {") == f"6 {{{flow_of.format('drop')}, {group}}}"
    assert facts == "none secure t/t port"
    assert changed == f"3 {{{flow_of.format('group:5')}, {group}}}"
    assert metered.startswith("3 {") and "'t meter 3': 'kbps bands=" in metered
    assert last == metered.replace("3 {", "0 {", 1)
    assert learnt == "0 True 0"
