# SPDX-License-Identifier: Apache-2.0
"""Links that break and are repaired, switches that lose their power, in a real network."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

import pytest

from common.shell import NetworkError, check
from topologies.emulate.emulation import Emulation
from topologies.emulate.faults import (
    Made,
    cuttable,
    patch_peers,
    patch_restored,
)
from topologies.model import wire_plan
from topologies.model.network import Impairment
from topologies.tests.networks import two_hosts
from topologies.tests.test_emulation import DELAYED, network_up

PATIENCE_S = 10.0


def ports_up(switch: str) -> dict[int, bool]:
    """Return OpenFlow port -> whether it has a carrier and has not been taken down."""
    text = check(["ovs-ofctl", "-O", "OpenFlow13", "--no-names", "show", switch])
    blocks = re.split(r"^ (?=\w+\()", text, flags=re.MULTILINE)[1:]
    ports = [b for b in blocks if b[0].isdigit()]  # not the bridge's own, LOCAL
    return {int(b.partition("(")[0]): "_DOWN" not in b for b in ports}


def reaches(emulation: Emulation) -> bool:
    """Return whether q reaches p over the path network, within 0.3 s."""
    ping = ["ping", "-n", "-q", "-c", "1", "-W", "0.3", emulation.network.publisher.nic1.ip]
    return emulation.run("q", ping, check=False).returncode == 0


def wait_until_reaches(emulation: Emulation) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reaches(emulation):
        assert time.monotonic() < deadline, "no answer after the link was mended"


def wait_for_port(switch: str, number: int, up: bool) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while ports_up(switch).get(number) is not up:
        assert time.monotonic() < deadline, f"port {number} of {switch} is not up={up}"
        time.sleep(0.01)


@pytest.mark.root
@pytest.mark.parametrize(("link", "port"), [("q:sw", 3), ("p:sw", 2)], ids=["wire", "veth"])
def test_cut_is_seen_by_the_ports_unless_it_is_silent(link: str, port: int) -> None:
    with network_up(two_hosts(DELAYED)) as emulation:
        wait_until_reaches(emulation)
        emulation.cut(link)
        wait_for_port("sw", port, False)
        assert not reaches(emulation)
        with pytest.raises(NetworkError, match="is already cut"):
            emulation.cut(link)
        emulation.mend(link)
        wait_for_port("sw", port, True)
        wait_until_reaches(emulation)
        emulation.cut(link, silent=True)
        assert not reaches(emulation)
        assert ports_up("sw")[port]
        emulation.mend(link)
        wait_until_reaches(emulation)
        assert emulation.health() == []
        with pytest.raises(NetworkError, match="is not cut; cut: none"):
            emulation.mend(link)


@pytest.mark.root
def test_a_cut_wire_does_not_keep_the_relay_busy() -> None:
    with network_up(two_hosts(DELAYED)) as emulation:
        if emulation.relay_fifo is None:
            pytest.skip("this kernel has netem: wire-relay was NOT tested")
        emulation.cut("q:sw")
        pid = relay_of(emulation)
        used = [cpu_s(pid)]
        time.sleep(1.0)
        used.append(cpu_s(pid))
        # Without clearing the socket's error it would use a whole core.
        assert used[1] - used[0] < 0.4


def relay_of(emulation: Emulation) -> int:
    """Return the process that runs wire-relay, which may still be replacing nsenter."""
    configuration = str(emulation.state_dir / "relay.conf").encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if words[:1] and words[0].endswith(b"wire-relay") and configuration in words:
                return int(entry.name)
    raise AssertionError("wire-relay does not run")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@pytest.mark.root
@pytest.mark.parametrize("uplink", [Impairment(), Impairment(rate_bps=50_000_000)])
def test_link_between_switches(uplink: Impairment) -> None:
    with network_up(two_hosts(Impairment(), uplink=uplink)) as emulation:
        for _round in range(2):
            emulation.cut("sw:up")
            # One end is taken down, the other loses its carrier; patch ports disappear.
            wait_until(lambda: not any(ports_up(s).get(1) for s in ("sw", "up")))
            emulation.mend("sw:up")
            wait_until(lambda: all(ports_up(s).get(1) for s in ("sw", "up")))
        emulation.cut("sw:up", silent=True)
        assert all(ports_up(s)[1] for s in ("sw", "up"))
        emulation.mend("sw:up")


def wait_until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.root
def test_switch_without_power_and_back() -> None:
    with network_up(two_hosts(DELAYED, uplink=Impairment(rate_bps=50_000_000))) as emulation:
        flows = flows_of("sw")
        emulation.stop_switch("sw")
        assert not reaches(emulation)
        wait_for_port("up", 1, False)
        with pytest.raises(NetworkError, match="'sw' is already off"):
            emulation.stop_switch("sw")
        with pytest.raises(NetworkError, match="found switch 'nobody'; valid: sw, up"):
            emulation.stop_switch("nobody")
        emulation.start_switch("sw")
        wait_for_port("up", 1, True)
        wait_until_reaches(emulation)
        assert flows_of("sw") == flows
        # Both ends of a link lose their power; it works when both have power again.
        for stop, start in (("sw", "up"), ("up", "sw")):
            emulation.stop_switch(stop)
            emulation.stop_switch(start)
            emulation.start_switch(stop)
            assert not ports_up(stop)[1]
            emulation.start_switch(start)
            wait_for_port("sw", 1, True)
            wait_for_port("up", 1, True)
        wait_until_reaches(emulation)


def flows_of(switch: str) -> list[str]:
    text = check(["ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "dump-flows", switch])
    return sorted(text.splitlines()[1:])


def test_unknown_link_and_controller() -> None:
    network = two_hosts(DELAYED)
    wire = wire_plan.plan(network, "relay")
    with pytest.raises(NetworkError, match="found link 'p:q'; valid: p:sw, q:sw, sw:up, r:p, r:q"):
        cuttable(network, wire, "user", "p:q")


def test_patch_ports_of_a_link() -> None:
    network = two_hosts(Impairment())
    found = cuttable(network, wire_plan.plan(network, "relay"), "user", "sw:up")
    assert (found.made, found.ends) == (Made.PATCH, ())
    loud = " ".join(patch_peers(found.link, silent=False))
    assert loud == "-- --if-exists del-port sw sw-p1 -- --if-exists del-port up up-p1"
    silent = " ".join(patch_peers(found.link, silent=True))
    assert silent == (
        "-- set Interface sw-p1 options:peer=cut -- set Interface up-p1 options:peer=cut"
    )
    assert " ".join(patch_restored(found.link)) == (
        "-- --may-exist add-port sw sw-p1"
        " -- set Interface sw-p1 type=patch options:peer=up-p1 ofport_request=1"
        " -- --may-exist add-port up up-p1"
        " -- set Interface up-p1 type=patch options:peer=sw-p1 ofport_request=1"
    )
    kernel = cuttable(network, wire_plan.plan(network, "netem"), "kernel", "sw:up")
    assert kernel.made is Made.VETH
    assert [(e.node, e.interface) for e in kernel.ends] == [("", "sw-p1"), ("", "up-p1")]
    host = cuttable(network, wire_plan.plan(network, "relay"), "user", "p:sw")
    assert [(e.node, e.interface) for e in host.ends] == [("", "sw-p2"), ("p", "p-nic1")]
