# SPDX-License-Identifier: Apache-2.0
"""Parse the counters that tools print into the records of `Emulation.counters()`.

All functions here are pure; `topologies.emulate.counter_reading` runs the tools.
"""

from __future__ import annotations

import json
import re
from typing import Any

Record = dict[str, Any]


def interfaces(proc_net_dev: str) -> dict[str, Record]:
    """Read /proc/net/dev: interface -> counters (proc_net_dev(5))."""
    found: dict[str, Record] = {}
    for line in proc_net_dev.splitlines()[2:]:
        name, _, rest = line.partition(":")
        v = [int(x) for x in rest.split()]
        if len(v) >= 16:
            found[name.strip()] = {
                "rx_bytes": v[0],
                "rx_packets": v[1],
                "rx_dropped": v[3],
                "tx_bytes": v[8],
                "tx_packets": v[9],
                "tx_dropped": v[11],
            }
    return found


def udp(proc_net_snmp: str) -> Record:
    """Read the UDP counters in /proc/net/snmp."""
    rows = [line.split() for line in proc_net_snmp.splitlines() if line.startswith("Udp:")]
    values = dict(zip(rows[0][1:], rows[1][1:], strict=True)) if len(rows) == 2 else {}
    names = {
        "in_datagrams": "InDatagrams",
        "in_errors": "InErrors",
        "rcvbuf_errors": "RcvbufErrors",
        "sndbuf_errors": "SndbufErrors",
    }
    return {ours: int(values.get(theirs, 0)) for ours, theirs in names.items()}


def qdiscs(tc_json: str) -> dict[str, Record]:
    """Read `tc -j -s qdisc show`: "interface/handle" -> counters. Interfaces without a queueing
    discipline (noqueue) are left out."""
    found: dict[str, Record] = {}
    for entry in json.loads(tc_json or "[]"):
        if entry["kind"] == "noqueue":
            continue
        found[f"{entry['dev']}/{entry['handle']}"] = {
            "kind": entry["kind"],
            "sent_bytes": entry.get("bytes", 0),
            "sent_packets": entry.get("packets", 0),
            "drops": entry.get("drops", 0),
            "overlimits": entry.get("overlimits", 0),
            "backlog_bytes": entry.get("backlog", 0),
            "backlog_packets": entry.get("qlen", 0),
        }
    return found


def classful_interfaces(tc_json: str) -> tuple[str, ...]:
    """Return the interfaces whose queueing discipline has classes."""
    entries = json.loads(tc_json or "[]")
    return tuple(dict.fromkeys(e["dev"] for e in entries if e["kind"] in ("htb", "prio")))


_CLASS = re.compile(r"^class (\S+) (\S+) ")
_SENT = re.compile(
    r"Sent (\d+) bytes (\d+) pkts? \(dropped (\d+), overlimits (\d+) requeues (\d+)\)"
)
_BACKLOG = re.compile(r"backlog (\w+)b (\w+)p")
_SUFFIXES = {"K": 1024, "M": 1024**2, "G": 1024**3}


def classes(tc_text: str, interface: str) -> dict[str, Record]:
    """Read `tc -s class show dev INTERFACE` (tc has no JSON for classes): "interface/classid" ->
    counters."""
    found: dict[str, Record] = {}
    current: Record | None = None
    for line in tc_text.splitlines():
        if match := _CLASS.match(line):
            current = {"kind": match[1]}
            found[f"{interface}/{match[2]}"] = current
        elif current is not None and (match := _SENT.search(line)):
            names = ("sent_bytes", "sent_packets", "drops", "overlimits")
            current.update(zip(names, (int(match[i]) for i in range(1, 5)), strict=True))
        elif current is not None and (match := _BACKLOG.search(line)):
            current["backlog_bytes"] = _scaled(match[1])
            current["backlog_packets"] = _scaled(match[2])
    return found


def _scaled(text: str) -> int:
    """Return a number as tc prints it: it prints large backlogs as 12Kb."""
    factor = _SUFFIXES.get(text[-1:], 1)
    return int(text.rstrip("KMG") or 0) * factor


_RULE = re.compile(r"^\[(\d+):(\d+)\] (-A (\S+).*)$")


def iptables(save_text: str) -> list[Record]:
    """Read `iptables-save -c`: the rules with their counters."""
    found = []
    for line in save_text.splitlines():
        if match := _RULE.match(line):
            found.append(
                {
                    "chain": match[4],
                    "packets": int(match[1]),
                    "bytes": int(match[2]),
                    "rule": match[3],
                }
            )
    return found
