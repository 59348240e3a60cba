# SPDX-License-Identifier: Apache-2.0
"""The hidden faults of lab 8. Their kind, place and amount follow from a seed (pure). The program
that causes them runs in the guest, beside the cell, which does not know of it.

`python -m labs.hidden_faults MISCHIEF NETWORK CELL`: waits until the replay has begun, and causes
the fault.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from common.contracts import MULTICAST_CLASS
from common.shell import check, in_node
from experiments.cells.run_directory import write_json
from topologies.model import wire_plan
from topologies.model.network import Network

Kind = Literal["none", "delay", "rate", "queue", "rule", "filter", "clock"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
CASES: Final = ("a", "b", "c")
SENDER: Final = "sender"
EVERYWHERE: Final = "everywhere"
DONE: Final = "behind.json"  # in the cell's directory: says that the fault was caused, not which
BEGUN: Final = "counters-start.json"  # written when the replay begins
AFTER_S: Final = 2.0

# The possible amounts by kind, in the unit of the student's answer.
AMOUNTS: Final[dict[Kind, tuple[int, ...]]] = {
    "none": (0,),
    "delay": (10, 15, 25, 40),  # ms more, in each direction
    "rate": (12, 14, 16, 17),  # Mbit/s of the multicast instead of 20
    "queue": (15_000, 20_000, 30_000),  # bytes of the multicast's queue
    "rule": (20, 25, 40, 50),  # every nth datagram
    "filter": (7, 15, 31),  # datagrams whose offset has none of these bits (in 1448's multiples)
    "clock": (300, 700, 1500),  # ms forward
}


@dataclass(frozen=True)
class Mischief:
    """`place`: a receiver, SENDER or EVERYWHERE. `amount`: see AMOUNTS."""

    kind: Kind
    place: str
    amount: int


def mischief(seed: int, receivers: Sequence[str]) -> dict[str, Mischief]:
    """Return the fault in each case: three different kinds, which follow from `seed` alone."""
    found = {}
    left: list[Kind] = list(KINDS)
    for case in CASES:
        seed, number = divmod(seed, len(left))
        kind = left.pop(number)
        seed, number = divmod(seed, len(AMOUNTS[kind]))
        amount = AMOUNTS[kind][number]
        seed, number = divmod(seed, len(receivers))
        if kind in ("delay", "rule", "filter"):
            place = receivers[number]
        else:
            place = {"rate": SENDER, "queue": SENDER}.get(kind, EVERYWHERE)
        found[case] = Mischief(kind, place, amount)
    return found


# -- in the guest ------------------------------------------------------------------------------
def process_of(node: str) -> int:
    """Return a process in the node's namespace: Mininet's shell there. Raises LookupError."""
    words = f"mininet:{node}".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words in path.read_bytes().split(b"\0"):
                return int(path.parent.name)
        except OSError:
            continue
    raise LookupError(f"no process in {node}")


def delay_commands(network: Network, receiver: str, more_ms: int) -> list[list[str]]:
    """Return the commands that lengthen the hand-off link of the receiver's rack in both
    directions, in `wire`."""
    rack = network.segment_of(receiver).edge_switch
    commands = []
    for d in wire_plan.plan(network, "netem").directions:
        if rack in d.link.split(":") and d.mechanism == "netem":
            netem = ["netem", "limit", str(wire_plan.netem_limit_frames(d.asked))]
            longer = ["delay", f"{d.asked.delay_ms + more_ms}ms"]
            device = ["dev", d.egress, "root", "handle", wire_plan.NETEM_HANDLE]
            commands.append(["tc", "qdisc", "change", *device, *netem, *longer])
    return commands


def rate_command(nic: str, rate_mbps: int) -> list[str]:
    """Return the command that sets the rate of the sender's multicast."""
    change = ["tc", "class", "change", "dev", nic, "parent", "1:", "classid", MULTICAST_CLASS]
    return [*change, "htb", "rate", f"{rate_mbps}mbit", "ceil", f"{rate_mbps}mbit"]


def queue_command(nic: str, limit_bytes: int) -> list[str]:
    """Return the command that sets the sender's multicast queue, in bytes."""
    change = ["tc", "qdisc", "change", "dev", nic, "parent", MULTICAST_CLASS, "handle", "11:"]
    return [*change, "bfifo", "limit", str(limit_bytes)]


def rule_command(nic: str, every: int) -> list[str]:
    """Return the command that drops every n-th datagram at a receiver."""
    nth = ["-m", "statistic", "--mode", "nth", "--every", str(every), "--packet", "0"]
    return ["iptables", "-w", "-A", "INPUT", "-i", nic, "-p", "udp", *nth, "-j", "DROP"]


def filter_commands(nic: str, mask: int) -> list[list[str]]:
    """Return commands for a filter that no drop counter shows. It drops FMTP blocks whose number
    has none of `mask`'s bits, by the low bits of offset / 8 (1448 = 8 x 181, and 181 is odd)."""
    program = [
        "48 0 0 23",  # protocol
        "21 0 5 17",
        "32 0 0 46",  # FMTP's sequence number: Ethernet 14, IPv4 20, UDP 8, index 4
        "21 3 0 0",  # a first block, BOP or EOP
        "116 0 0 3",
        f"84 0 0 {mask}",
        "21 1 0 0",
        "6 0 0 4294967295",
        "6 0 0 2",
    ]
    text = ",".join([str(len(program)), *program])
    return [
        ["tc", "qdisc", "add", "dev", nic, "clsact"],
        [*("tc", "filter", "add", "dev", nic, "ingress", "protocol", "ip", "prio", "1")]
        + ["bpf", "da", "bytecode", text],
    ]


def path_nic(node: int, address: str) -> str:
    """Return the interface with the address in the namespace of process `node`."""
    for entry in json.loads(check(in_node(node, ["ip", "-j", "address", "show"]))):
        if any(a.get("local") == address for a in entry.get("addr_info", [])):
            return str(entry["ifname"])
    raise LookupError(f"no interface with {address}")


def do(found: Mischief, network: Network) -> None:
    """Cause the fault. Raises LookupError or LabError if that is impossible."""
    if found.kind == "none":
        return
    if found.kind == "clock":
        subprocess.run(
            ["date", "-s", f"+{found.amount / 1000} seconds"], check=True, capture_output=True
        )
        return
    if found.kind == "delay":
        for command in delay_commands(network, found.place, found.amount):
            check(in_node(process_of(wire_plan.WIRE), command))
        return
    host = network.publisher if found.place == SENDER else network.host(found.place)
    node = process_of(host.name)
    nic = path_nic(node, host.nic1.ip)
    commands = {
        "rate": lambda: [rate_command(nic, found.amount)],
        "queue": lambda: [queue_command(nic, found.amount)],
        "rule": lambda: [rule_command(nic, found.amount)],
        "filter": lambda: filter_commands(nic, found.amount),
    }
    for command in commands[found.kind]():
        check(in_node(node, command))


def main(argv: Sequence[str]) -> int:
    """Run in the guest. The arguments are the mischief, the network's file and the cell's
    directory."""
    what, network, out = argv
    found = Mischief(**json.loads(what))
    described = Network.from_json(Path(network).read_text())
    while not (Path(out) / BEGUN).exists():
        time.sleep(0.1)
    time.sleep(AFTER_S)
    problem = ""
    try:
        do(found, described)
    except Exception as error:  # whatever started this must learn of it
        problem = f"{type(error).__name__}: {error}"
    write_json(Path(out) / DONE, {"problem": problem})
    return 0


def argv_of(found: Mischief, python: str, network: Path, out: Path) -> list[str]:
    """Return the command that starts `main`."""
    return [python, "-m", "labs.hidden_faults", json.dumps(asdict(found)), str(network), str(out)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
