# SPDX-License-Identifier: Apache-2.0
"""Attempts to fool the verdict from where it does not look at first: programs that hide, what a
host has learned, features of interfaces, and options of open sockets. As in `test_fool`, natively
and in virtual time."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from common.shell import namespace_of
from experiments.tests.test_catch import LINK, ROOT_ONLY
from experiments.tests.test_fool import (
    CHANGED,
    PLANNED,
    PORT_OF_Q,
    Action,
    Attempt,
    Unable,
    end_program,
    in_a_guest,
    later,
    running,
    seen_and_undone,
    tool,
)
from topologies.emulate.emulation import Emulation
from topologies.emulate.packet_sockets import sockets_of
from topologies.tests.networks import two_hosts
from topologies.tests.test_emulation import network_up

# A flow that takes a tenth of the link: it shares the sender's queue with FMTP's repairs.
FLOW: Final = """
import socket, sys, time
open("/proc/self/comm", "w").write(sys.argv[1])
one = socket.socket(fileno=int(sys.argv[3])) if len(sys.argv) > 3 else socket.socket(type=2)
while True:
    one.sendto(bytes(1400), (sys.argv[2], 9))
    time.sleep(0.01)
"""


def start(emulation: Emulation, argv: list[str], node: str | None) -> None:
    """Start a program in a node (None: outside)."""
    if node is not None:
        running.append(emulation.popen(node, argv))
    else:
        running.append(subprocess.Popen(argv, close_fds=False))
    time.sleep(0.2)
    if running[-1].poll() is not None:
        raise Unable(f"{argv[0]} ended with {running[-1].returncode}")


def flow_as(name: str) -> Action:
    """Return an action: a program of p with another's name sends to q."""

    def action(emulation: Emulation) -> None:
        start(
            emulation, [sys.executable, "-c", FLOW, name, emulation.network.host("q").nic1.ip], "p"
        )

    return action


# Frames of an unknown type from a packet socket; IP packets of an unused protocol.
FRAMES: Final = """
import socket, sys, time
open("/proc/self/comm", "w").write(sys.argv[1])
one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
one.bind((sys.argv[2], 0))
while True:
    one.send(bytes.fromhex("020000000909") + one.getsockname()[4] + b"\\x88\\xb5" + bytes(1400))
    time.sleep(0.01)
"""
PACKETS: Final = """
import socket, sys, time
open("/proc/self/comm", "w").write(sys.argv[1])
one = socket.socket(socket.AF_INET, socket.SOCK_RAW, 253)
while True:
    one.sendto(bytes(1400), (sys.argv[2], 0))
    time.sleep(0.01)
"""


def stranger(text: str, name: str) -> Action:
    """Return an action: a program that the run did not start sends from p, with another's name."""

    def action(emulation: Emulation) -> None:
        to = emulation.nic1_of("p") if text is FRAMES else emulation.network.host("q").nic1.ip
        enter = ["mnexec", "-a", str(emulation.pids["p"])]
        start(emulation, [*enter, sys.executable, "-c", text, name, to], None)

    return action


def flow_from_outside(emulation: Emulation, holder: int | None = None) -> None:
    """A program that is in no host has a socket of p. `holder`: a process of p."""
    with namespace_of(holder or emulation.pids["p"]):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.set_inheritable(True)
    to = emulation.network.host("q").nic1.ip
    start(emulation, [sys.executable, "-c", FLOW, "python3", to, str(one.fileno())], None)
    one.close()


def small_packets(emulation: Emulation) -> None:
    """q tells p that packets to q may have 600 bytes: ICMP, as if about an answer to a ping."""
    p, q = (emulation.network.host(name).nic1.ip for name in ("p", "q"))
    source, target = (socket.inet_aton(ip) for ip in (p, q))
    answer = struct.pack("!BBHHH", 0, 0, 0, 7, 7)
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28, 1, 0, 64, 1, 0, source, target)
    body = header + answer
    message = struct.pack("!BBHHH", 3, 4, 0, 0, 600) + body
    total = sum(struct.unpack(f"!{len(message) // 2}H", message))
    check = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    message = message[:2] + struct.pack("!H", check) + message[4:]
    with (
        namespace_of(emulation.pids["q"]),
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as one,
    ):
        one.sendto(message, (p, 0))
    time.sleep(0.3)
    shown = emulation.run("p", ["ip", "route", "get", q]).stdout
    if "mtu 600" not in shown:
        raise Unable(f"p did not believe it: {shown.strip()}")


def forget(emulation: Emulation) -> None:
    emulation.run("p", ["ip", "route", "flush", "cache"], check=False)


def feature(state: str) -> Action:
    return lambda _e: tool("ethtool", "-K", PORT_OF_Q, "rx-udp-gro-forwarding", state)


# A program of q listens; one of p sends to it, now and then. The last word calls them so.
LISTENER: Final = """
import socket, sys
open("/proc/self/comm", "w").write(sys.argv[2])
one, _ = socket.create_server((sys.argv[1], 388)).accept()
while one.recv(65536):
    pass
"""
TALKER: Final = """
import socket, sys, time
open("/proc/self/comm", "w").write(sys.argv[2])
while True:
    try:
        one = socket.create_connection((sys.argv[1], 388))
        break
    except ConnectionRefusedError:  # not yet
        time.sleep(0.02)
while True:
    one.sendall(bytes(1000))
    time.sleep(0.05)
"""
SO_MAX_PACING_RATE, SO_ATTACH_FILTER, TCP_WINDOW_CLAMP = 47, 26, 10


def connected_as(name: str) -> Action:
    """Return an action: programs of p and q, so called, have a connection."""

    def action(emulation: Emulation) -> None:
        to = emulation.network.host("q").nic1.ip
        for node, text in (("q", LISTENER), ("p", TALKER)):
            start(emulation, [sys.executable, "-c", text, to, name], node)

    return action


def each_connection(number: int, change: Callable[[socket.socket], object]) -> Action:
    """Return an action: somebody changes the connection of the first (q's) or second program."""

    def action(_emulation: Emulation) -> None:
        for one in sockets_of(running[number].pid):
            if one.type == socket.SOCK_STREAM:
                with contextlib.suppress(OSError):
                    one.getpeername()  # else it listens
                    change(one)

    return action


def option(level: int, name: int, value: int | bytes) -> Callable[[socket.socket], object]:
    return lambda one: one.setsockopt(level, name, value)


def loses(one: socket.socket) -> None:
    """Every packet is dropped with a probability of 3 %."""
    lines = (
        *((0x20, 0, 0, 0xFFFFF000 + 56), (0x35, 1, 0, int(2**32 * 0.03))),  # a random number
        *((0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF)),
    )
    program = ctypes.create_string_buffer(b"".join(struct.pack("@HBBI", *one) for one in lines))
    described = struct.pack("@HP", len(lines), ctypes.addressof(program))
    one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, described)


def another_algorithm(emulation: Emulation) -> None:
    """The connection uses another congestion control for a second and a half."""
    before = emulation.run("p", ["sysctl", "-n", "net.ipv4.tcp_congestion_control"]).stdout.strip()
    names = emulation.run("p", ["sysctl", "-n", "net.ipv4.tcp_available_congestion_control"])
    others = set(names.stdout.split()) - {before}
    if not others:
        raise Unable(f"this kernel has only {before}")

    def use(name: str) -> None:
        change = option(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        each_connection(1, change)(emulation)

    use(min(others))
    later(1.5, lambda: use(before))


def of_connection(name: str, program: str, meanwhile: Action, text: str) -> Attempt:
    """Return an attempt on a connection of a program that calls itself `program`."""
    before = connected_as(program)
    return Attempt(name, (PLANNED, CHANGED), before, meanwhile, end_program, text)


def of_stranger(name: str, program: str, text: str) -> Attempt:
    """Return an attempt by a Python program `text` that calls itself `program`."""
    seen = f"p strangers: asked none, found {program}"
    return Attempt(name, (PLANNED,), stranger(text, program), undo=end_program, text=seen)


PACED: Final = option(socket.SOL_SOCKET, SO_MAX_PACING_RATE, struct.pack("@I", 12_000))
OF_OPTIONS: Final = (
    Attempt(
        "a connection whose pace somebody limits",
        (PLANNED,),
        before=connected_as("up6"),
        meanwhile=each_connection(1, PACED),
        undo=end_program,
        text="p socket options: asked as its programs set them, found up6 TCP: SO_MAX_PACING_RATE",
    ),
    of_connection(
        "the same of a program that the plan does not know",
        "another",
        each_connection(1, PACED),
        "another TCP: SO_MAX_PACING_RATE 12000, was",
    ),
    of_connection(
        "a small receive buffer",
        "down6",
        each_connection(0, option(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)),
        "SO_BUF_LOCK 2",
    ),
    of_connection(
        "a small window",
        "down6",
        each_connection(0, option(socket.IPPROTO_TCP, TCP_WINDOW_CLAMP, 16_000)),
        "TCP_WINDOW_CLAMP 16000",
    ),
    of_connection(
        "a receiver woken late",
        "down6",
        each_connection(0, option(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 30_000)),
        "SO_RCVLOWAT 30000",
    ),
    of_connection(
        "segments held back",
        "up6",
        each_connection(1, option(socket.IPPROTO_TCP, socket.TCP_CORK, 1)),
        "TCP_CORK 1",
    ),
    of_connection(
        "a filter that loses 3 %", "down6", each_connection(0, loses), "filter 4 instructions"
    ),
    of_connection(
        "another congestion control for a while", "up6", another_algorithm, "TCP_CONGESTION"
    ),
)

ATTEMPTS: Final = (
    Attempt(
        "a program that calls itself ping and sends",
        (PLANNED,),
        before=flow_as("ping"),
        undo=end_program,
        text="ping",
    ),
    of_stranger("a stranger that calls itself tcpdump and sends frames", "tcpdump", FRAMES),
    of_stranger("a stranger that calls itself tc and sends from a raw socket", "tc", PACKETS),
    of_stranger("a stranger that calls itself iperf3 and sends", "iperf3", FLOW),
    Attempt(
        "a program outside, with a socket of a host",
        (PLANNED,),
        before=flow_from_outside,
        undo=end_program,
        text="p sockets",
    ),
    Attempt(
        "a host that learned a smaller MTU by ICMP",
        (PLANNED,),
        before=small_packets,
        undo=forget,
        text="mtu 600",
    ),
    Attempt("the same meanwhile", (PLANNED, CHANGED), meanwhile=small_packets, undo=forget),
    Attempt(
        "a port that joins datagrams",
        (PLANNED,),
        before=feature("on"),
        undo=feature("off"),
    ),
    *OF_OPTIONS,
)


@pytest.fixture(scope="module")
def emulation() -> Iterator[Emulation]:
    with network_up(two_hosts(LINK)) as found:
        yield found


class TestFooledFromHiding:
    pytestmark = [*ROOT_ONLY, pytest.mark.emulated]

    @pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda a: a.name)
    def test_seen(self, emulation: Emulation, tmp_path: Path, attempt: Attempt) -> None:
        seen_and_undone(emulation, tmp_path, attempt)


@pytest.mark.emulated
@pytest.mark.usefixtures("kernel")
def test_in_virtual_time() -> None:
    in_a_guest(Path(__file__), "TestFooledFromHiding")
