#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LDM7 over a VLAN: the publisher makes its interface with its queues, the subscriber its own when
it learns its address, with a tag or, where the switch's port tags, without.

Usage: vlan.py LDMD TOOLS_DIRECTORY, as integration.py. Needs 802.1Q: if this kernel lacks it, a
guest has it (virtual/tests/test_vlan_in_guest.py).
"""

from __future__ import annotations

import re
import sys

from integration import (
    PORT,
    Servers,
    await_receiving,
    control_ip,
    expect,
    inside,
    mixed_sizes,
    netns,
    run_cases,
    sh,
    wait_for,
)


def has_vlans() -> bool:
    """Does the kernel make 802.1Q interfaces?"""
    name = netns("r1")
    probe = ["link", "add", "link", "nic1", "name", "probe.2", "type", "vlan", "id", "2"]
    if sh("ip", "-n", name, *probe, check=False).returncode != 0:
        return False
    sh("ip", "-n", name, "link", "del", "probe.2")
    return True


def case_vlan(servers: Servers) -> None:
    """The interface is made with the address assigned, and only from there FMTP is let in."""
    if not has_vlans():
        print("# SKIPPED vlan: this kernel has no 802.1Q", flush=True)
        return
    vlanutil = str(servers.tools / "vlanutil")
    servers.start(
        "s",
        "ALLOW NGRID ^10\\.77\\.2\\.\nMULTICAST NGRID 224.0.77.1:38800 10.77.5.1 24 1101 sw p1\n"
        f"SET ldm7.nic nic1\nSET ldm7.vlanutil {vlanutil}\n",
    )
    receive = f"RECEIVE NGRID {control_ip('s')}:{PORT}"
    servers.start("r1", f"{receive} nic1 sw p7 1101\nSET ldm7.vlanutil {vlanutil}\n")
    await_receiving(servers, ("r1",))
    shown = sh("ip", "-n", netns("r1"), "-o", "-4", "addr", "show", "dev", "nic1.1101").stdout
    found = re.search(r"inet (10\.77\.5\.(\d+))/24 ", shown)
    expect(found is not None and 2 <= int(found[2]) <= 254, f"address: {shown}")
    address = found[1] if found else ""
    expect(f"ifaceCidrAddr={address}/24" in servers.log("r1"), "not the address assigned")
    route = sh("ip", "-n", netns("r1"), "route", "get", "10.77.5.1").stdout
    expect("dev nic1.1101" in route, f"route to the server: {route}")
    expect(f"Host {address} is authorized to connect" in servers.log("s"), "FMTP from elsewhere")
    servers.insert("a", mixed_sizes(10))
    servers.same_everywhere(10, ("r1",))
    servers.expect_logged("r1", "Received: {", 10)
    servers.stop("r1")
    links = sh("ip", "-n", netns("r1"), "link").stdout
    expect("nic1.1101" not in links, "the interface is still there")
    made = f"Interface nic1.1101 made: {vlanutil} create {address}/24 10.77.5.1"
    expect(servers.count("r1", made) == 1, "not logged that it was made")
    expect(servers.count("r1", "Interface nic1.1101 removed") == 1, "not logged that it went")
    # An address that was not assigned is not let in, even from the same VLAN.
    sh(*inside("r1", vlanutil, "create", "nic1.1101", "10.77.5.250/24"))
    servers.start("r1", f"{receive} 10.77.5.250 dummy dummy\n")
    wait_for("refusal", lambda: "Host 10.77.5.250 is not authorized" in servers.log("s"))
    classes = sh(*inside("s", "tc", "class", "show", "dev", "nic1.1101")).stdout
    expect(classes.count("rate 20Mbit ceil 20Mbit") == 2, f"classes: {classes}")
    servers.stop_all()
    links = sh("ip", "-n", netns("s"), "link").stdout
    expect("nic1.1101" not in links, "the publisher's interface is still there")


def has_macvlan() -> bool:
    """Does the kernel make interfaces that share another's address?"""
    probe = ["link", "add", "link", "nic1", "name", "probe.2", "type", "macvlan"]
    if sh("ip", "-n", netns("r1"), *probe, "mode", "passthru", check=False).returncode != 0:
        return False
    sh("ip", "-n", netns("r1"), "link", "del", "probe.2")
    return True


def case_untagged(servers: Servers) -> None:
    """Where the switch's port tags, the interface is made without a tag."""
    if not has_macvlan():
        print("# SKIPPED untagged: this kernel has no macvlan", flush=True)
        return
    vlanutil = str(servers.tools / "vlanutil")
    servers.start(
        "s",
        "ALLOW NGRID ^10\\.77\\.2\\.\nMULTICAST NGRID 224.0.77.1:38800 10.77.1.1 24 1101 sw p1\n",
    )
    sh("ip", "-n", netns("r1"), "addr", "flush", "dev", "nic1")
    receive = f"RECEIVE NGRID {control_ip('s')}:{PORT} nic1 sw p7 1101"
    servers.start("r1", f"{receive}\nSET ldm7.vlanutil {vlanutil}\nSET ldm7.nic_tags 0\n")
    await_receiving(servers, ("r1",))
    (found,) = re.findall(r"ifaceCidrAddr=(\S+)", servers.log("r1"))
    shown = sh("ip", "-n", netns("r1"), "-d", "addr", "show", "dev", "nic1.1101").stdout
    expect("macvlan mode passthru" in shown and f"inet {found} " in shown, f"interface: {shown}")
    made = f"Interface nic1.1101 made: {vlanutil} attach {found} 10.77.1.1"
    expect(servers.count("r1", made) == 1, "not logged that it was made")
    servers.insert("a", mixed_sizes(10))
    servers.same_everywhere(10, ("r1",))
    servers.stop("r1")
    expect("nic1.1101" not in sh("ip", "-n", netns("r1"), "link").stdout, "still there")


if __name__ == "__main__":
    sys.exit(run_cases({"vlan": case_vlan, "untagged": case_untagged}, __doc__, ("s", "r1")))
