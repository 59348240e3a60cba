# SPDX-License-Identifier: Apache-2.0
"""More attempts to fool the verdict: settings that no queue, firewall or counter shows. As in
`test_fool`, natively and in virtual time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from experiments.tests.test_catch import LINK, PORT, ROOT_ONLY
from experiments.tests.test_fool import (
    ACCOUNTS,
    CHANGED,
    PLANNED,
    PORT_OF_Q,
    Action,
    Attempt,
    at,
    end_program,
    in_a_guest,
    later,
    nic,
    ofctl,
    seen_and_undone,
    slow_program,
    tool,
)
from topologies.emulate.emulation import Emulation
from topologies.tests.networks import two_hosts
from topologies.tests.test_emulation import network_up


def sysctl(host: str, setting: str) -> Action:
    return lambda e: at(e, host, "sysctl", "-q", "-w", f"net.ipv4.{setting}")


def route(*metric: str) -> Action:
    """Change the TCP settings of q's route to its network."""

    def change(emulation: Emulation) -> None:
        q = emulation.network.host("q").nic1
        network = f"{q.ip.rpartition('.')[0]}.0/{q.prefix_len}"
        to = [network, "dev", nic(emulation, "q"), "proto", "kernel", "scope", "link", "src", q.ip]
        at(emulation, "q", "ip", "route", "replace", *to, *metric)

    return change


def neighbour(verb: str, *more: str) -> Action:
    """p's address gets the hardware address of a station that does not exist."""

    def change(emulation: Emulation) -> None:
        p = emulation.network.host("p").nic1.ip
        at(emulation, "q", "ip", "neigh", verb, p, "dev", nic(emulation, "q"), *more)

    return change


NOBODY: Final = ("lladdr", "02:00:00:00:09:09", "nud", "permanent")


def neighbour_for_a_moment(emulation: Emulation) -> None:
    neighbour("replace", *NOBODY)(emulation)
    neighbour("del")(emulation)


def ipsec(emulation: Emulation) -> None:
    selector = ["src", "203.0.113.0/24", "dst", "0.0.0.0/0", "dir", "in"]
    at(emulation, "q", "ip", "xfrm", "policy", "add", *selector, "action", "block")


def no_ipsec(emulation: Emulation) -> None:
    emulation.run("q", ["ip", "xfrm", "policy", "flush"], check=False)


def ipsec_for_a_moment(emulation: Emulation) -> None:
    ipsec(emulation)
    no_ipsec(emulation)


def link(*words: str) -> Action:
    return lambda e: at(e, "q", "ip", "link", "set", "dev", nic(e, "q"), *words)


def port(*words: str) -> Action:
    return lambda _e: tool("ip", "link", "set", "dev", PORT_OF_Q, *words)


def address_for_a_moment(emulation: Emulation) -> None:
    link("address", "02:00:00:00:09:77")(emulation)
    link("address", emulation.network.host("q").nic1.mac)(emulation)


def forward_policy(policy: str) -> Action:
    return lambda e: at(e, "r", "iptables", "-w", "-P", "FORWARD", policy)


def bridge(*words: str) -> Action:
    return lambda _e: tool("ovs-vsctl", *words)


def another_table(_emulation: Emulation) -> None:
    ofctl("add-flow", "sw", "table=9,priority=7,actions=drop")


def no_other_table(_emulation: Emulation) -> None:
    ofctl("del-flows", "sw", "table=9")


def own_time(emulation: Emulation) -> None:
    slow_program(["unshare", "-T", "--monotonic", "100"])(emulation)


FILLER = f"""
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[2]))
for i in range(50):
    s.sendto(bytes(1396), (sys.argv[1], {PORT}))
"""


def fill_the_receiver(emulation: Emulation) -> None:
    """A program on q's own host sends to the group: q's socket gets it without a wire."""
    network = emulation.network
    argv = [sys.executable, "-c", FILLER, network.multicast_group, network.host("q").nic1.ip]
    later(0.3, lambda: emulation.run("q", argv))


ATTEMPTS: Final = (
    Attempt(
        "a route that limits TCP's window",
        (PLANNED,),
        before=route("window", "2000"),
        undo=route(),
        text="window 2000",
    ),
    Attempt(
        "a route with another congestion control",
        (PLANNED,),
        before=route("congctl", "reno"),
        undo=route(),
        text="congctl reno",
    ),
    Attempt(
        "a chain that drops by policy, without a rule",
        (PLANNED,),
        before=forward_policy("DROP"),
        undo=forward_policy("ACCEPT"),
        text="policy DROP of ip filter FORWARD",
    ),
    Attempt("an IPsec policy", (PLANNED,), before=ipsec, undo=no_ipsec, text="1 policies"),
    Attempt("an IPsec policy for a moment", (CHANGED,), meanwhile=ipsec_for_a_moment),
    Attempt(
        "a neighbour fixed at a station that nobody has",
        (PLANNED,),
        before=neighbour("replace", *NOBODY),
        undo=neighbour("del"),
    ),
    Attempt(
        "the same for a moment",
        (CHANGED,),
        meanwhile=neighbour_for_a_moment,
        text="fixed neighbour added",
    ),  # fmt: skip
    Attempt(
        "no slow start after a pause",
        (PLANNED,),
        before=sysctl("p", "tcp_slow_start_after_idle=0"),
        undo=sysctl("p", "tcp_slow_start_after_idle=1"),
    ),
    Attempt(
        "TCP that takes for lost what was overtaken",
        (PLANNED, CHANGED),
        meanwhile=sysctl("q", "tcp_recovery=0"),
        undo=sysctl("q", "tcp_recovery=1"),
    ),
    Attempt(
        "a receiver that may join no group more",
        (PLANNED,),
        before=sysctl("q", "igmp_max_memberships=1"),
        undo=sysctl("q", "igmp_max_memberships=20"),
    ),
    Attempt(
        "a station's address changed for a moment",
        (CHANGED,),
        meanwhile=address_for_a_moment,
        text="address changed",
    ),
    Attempt(
        "packets cut smaller before they are sent",
        (PLANNED,),
        before=link("gso_max_size", "3000"),
        undo=link("gso_max_size", "65536"),
    ),
    Attempt(
        "a switch's port with a short queue",
        (PLANNED,),
        before=port("txqueuelen", "1"),
        undo=port("txqueuelen", "1000"),
    ),
    Attempt(
        "a switch that learns groups by itself",
        (PLANNED,),
        before=bridge("set", "bridge", "sw", "mcast_snooping_enable=true"),
        undo=bridge("set", "bridge", "sw", "mcast_snooping_enable=false"),
    ),
    Attempt(
        "an entry in a switch's other table",
        (PLANNED,),
        before=another_table,
        undo=no_other_table,
        text="sw flow",
    ),
    Attempt("a program whose clock began elsewhere", (PLANNED,), before=own_time, undo=end_program),
    Attempt("somebody fills a receiver's socket", (ACCOUNTS,), meanwhile=fill_the_receiver),
)


@pytest.fixture(scope="module")
def emulation() -> Iterator[Emulation]:
    with network_up(two_hosts(LINK)) as found:
        yield found


class TestFooledBySettings:
    pytestmark = [*ROOT_ONLY, pytest.mark.emulated]

    @pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda a: a.name)
    def test_seen(self, emulation: Emulation, tmp_path: Path, attempt: Attempt) -> None:
        seen_and_undone(emulation, tmp_path, attempt)


@pytest.mark.emulated
@pytest.mark.usefixtures("kernel")
def test_in_virtual_time() -> None:
    in_a_guest(Path(__file__), "TestFooledBySettings")
