#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forged datagrams against running servers whose feed carries no MACs.

Usage: forged.py LDMD TOOLS_DIRECTORY [CASE...], as integration.py.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys

from integration import (
    Servers,
    await_receiving,
    cases_in,
    expect,
    inside,
    mixed_sizes,
    path_ip,
    publisher7,
    run_cases,
    sh,
    subscriber7,
    wait_for,
)

# Standard input: a datagram a line in hexadecimal; they go out over and over, every 5 ms.
FORGER = """
import select, socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(sys.argv[1]))
sock.bind((sys.argv[1], 0))
forged = [bytes.fromhex(line) for line in sys.stdin.readline().split()]
for turn in range(int(sys.argv[2])):
    for datagram in forged:
        sock.sendto(datagram, ("224.0.77.1", 38800))
    select.select([], [], [], 0.005)
"""
FMTP_BOP, FMTP_EOP, FMTP_MEM_DATA, BLOCK = 1, 2, 4, 1448


def forged(flags: int, index: int, seqnum: int = 0, payload: bytes = b"") -> str:
    """A datagram of FMTP in hexadecimal."""
    return (struct.pack(">IIHH", index, seqnum, len(payload), flags) + payload).hex()


def forged_bop(layout: int, index: int, size: int) -> str:
    start = struct.pack(">QI", 1, 0) if layout == 2021 else b""
    body = start + struct.pack(">IH", size, 16) + bytes(16)
    return forged(FMTP_BOP, index, 0, body)


def forge(source: str, datagrams: list[str], turns: int) -> subprocess.Popen[str]:
    """Begin to send them from the host's address on the path."""
    argv = inside(source, sys.executable, "-c", FORGER, path_ip(source), str(turns))
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(" ".join(datagrams) + "\n")
    process.stdin.close()
    return process


def lacking(servers: Servers, host: str) -> set[str]:
    """Return the files of the publisher's products that the host does not have."""
    lines = set(servers.products("s")) - set(servers.products(host))
    return {line.rsplit("/", 1)[-1] for line in lines}


def forgeries(servers: Servers, layout: int, source: str, may_lose: set[str]) -> None:
    """Without MACs, forged datagrams of each kind: all other products still arrive intact."""
    settings = f"SET fmtp.mac_level 0\nSET fmtp.layout {layout}\n"
    servers.queue("r1").unlink()
    servers.tool("pqcreate", "-s", "20m", "-S", "500", "-q", str(servers.queue("r1")))
    servers.start("s", publisher7(settings))
    servers.start("r1", subscriber7("r1", settings))
    await_receiving(servers, ("r1",))
    servers.insert("before", [700_000] * 6)
    servers.same_everywhere(6, ("r1",))
    for kind in ("jump", "far", "bop", "tail"):
        newest = max(map(int, re.findall(r"Multicasted: prodIndex=(\d+)", servers.log("s"))))
        coming = newest + 1
        block = bytes([0xEE]) * BLOCK
        datagrams = {
            "jump": [forged(FMTP_EOP, coming + 4000)],
            "far": [forged(FMTP_MEM_DATA, coming + 60_000, BLOCK * n, block) for n in range(40)],
            "bop": [forged_bop(layout, coming + n, 19_000_000) for n in range(3)],
            "tail": [forged(FMTP_MEM_DATA, coming, BLOCK * n, block) for n in range(180, 200)],
        }[kind]
        before = len(servers.products("r1"))
        forger = forge(source, datagrams, 1 if kind == "jump" else 60)
        if kind != "tail":
            forger.wait(20)
        expect(servers.has("r1", before), f"{kind}: products went when datagrams were forged")
        servers.insert(kind, [300_000] + mixed_sizes(5, tiny=False))
        expect(forger.wait(20) == 0, "the forger failed")
        wait_for(f"all but what was named ({kind})", lambda: lacking(servers, "r1") <= may_lose)
    missed = servers.count("r1", "Missed: index=")
    expect(missed < 50, f"{missed} indices were given up for forged datagrams")
    check = sh(str(servers.tools / "pqcheck"), "-c", "-q", str(servers.queue("r1")), check=False)
    expect(check.returncode == 0, f"pqcheck: {check.stdout}{check.stderr}")
    servers.stop_all()
    bad = re.findall(r"FMTP receiver: .* bad_messages=(\d+)", servers.log("r1"))
    expect(bool(bad) and int(bad[-1]) > 1000, f"the forged datagrams did not arrive: {bad}")


def case_forged_datagrams(servers: Servers) -> None:
    """From the publisher's address."""
    forgeries(servers, 2021, "s", set())


def case_forged_datagrams_2017(servers: Servers) -> None:
    """From another host of the network, as layout 2017 joins the group of any source. It cannot
    tell that a product was rejected because it is still to come: what was named may be lost."""
    forgeries(servers, 2017, "r3", {"bop.000", "bop.001", "bop.002", "tail.000"})


CASES = cases_in(globals())

if __name__ == "__main__":
    sys.exit(run_cases(CASES, __doc__))
