# SPDX-License-Identifier: Apache-2.0
"""Queues through Open vSwitch's database, for its kernel datapath: each port has a QoS record of
type linux-htb, and each path a Queue record, which OpenFlow's set_queue chooses.

Queue 0 is the default, LLDP has its own, and queue N is path N's. In the kernel they are the
classes 1:(N+1) of an HTB whose rate is class 1:fffe. This controller's records have the interface's
name in external_ids:downpour.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from controller.paths.queues import (
    LLDP_BPS,
    LLDP_QUEUE,
    PortKey,
    PortQueues,
    QueueClass,
    QueueError,
    burst_bytes,
    differences,
    parse_rate,
)
from topologies.model.network import Network

OWNER: Final = "downpour"
ROOT: Final = 0xFFFE
TIMEOUT_S: Final = 20.0


@dataclass(frozen=True)
class Record:
    """This controller's QoS record in the database."""

    uuid: str
    interface: str
    queues: Mapping[int, str] = field(default_factory=dict)  # number -> uuid
    in_use: bool = False  # a port uses it


def interfaces_of(network: Network) -> dict[PortKey, str]:
    """Return by switch port the name of its interface, and of its Port record."""
    return {
        (port.node, port.number): port.interface
        for link in network.links
        for port in (link.a, link.b)
    }


def parse_records(qos_json: str, port_json: str) -> dict[str, list[Record]]:
    """Return this controller's records by interface.

    The texts are from `ovs-vsctl --format=json list`, with the columns _uuid, external_ids and
    queues of QoS, and name and qos of Port. Raises ValueError.
    """
    used = {row["name"]: _uuid(row["qos"]) for row in _rows(port_json)}
    found: dict[str, list[Record]] = {}
    for row in _rows(qos_json):
        interface = _map(row["external_ids"]).get(OWNER)
        if interface is None:
            continue
        uuid = _uuid(row["_uuid"])
        queues = {int(number): _uuid(queue) for number, queue in _map(row["queues"]).items()}
        record = Record(uuid, interface, queues, used.get(interface) == uuid)
        found.setdefault(interface, []).append(record)
    return found


Cell = Any  # of an OVSDB table in JSON (RFC 7047, 5.1): an atom, a set, or a map


def _rows(text: str) -> list[dict[str, Cell]]:
    table = json.loads(text or '{"headings": [], "data": []}')
    return [dict(zip(table["headings"], row, strict=True)) for row in table["data"]]


def _map(value: Cell) -> dict[str, Cell]:
    """Read ["map", [[key, value], ...]]."""
    return {pair[0]: pair[1] for pair in value[1]}


def _uuid(value: Cell) -> str:
    """Read ["uuid", "..."], or ["set", []] for none."""
    return value[1] if value[0] == "uuid" else ""


def commands(
    interface: str, records: Iterable[Record], now: PortQueues | None, wanted: PortQueues
) -> list[str]:
    """Return words of ovs-vsctl that change a port to `wanted`.

    `now`: what the kernel has; None: nothing that can be used.
    """
    words: list[str] = []
    kept: Record | None = None
    for record in records:
        if record.in_use and now is not None and kept is None:
            kept = record
            continue
        words += ["--", "destroy", "QoS", record.uuid]
        for queue in record.queues.values():
            words += ["--", "destroy", "Queue", queue]
    shares = {0: (wanted.default_bps, 1), LLDP_QUEUE: (LLDP_BPS, 0)}
    shares |= {c.number: (c.rate_bps, 0) for c in wanted.classes}
    if kept is None or now is None:
        words += ["--", "--id=@qos", "create", "QoS", "type=linux-htb"]
        words += [f"other-config:max-rate={wanted.rate_bps}", f"external-ids:{OWNER}={interface}"]
        words += [f"queues:{number}=@q{number}" for number in shares]
        for number, (rate_bps, priority) in shares.items():
            words += _create(interface, number, rate_bps, priority, wanted.rate_bps)
        return [*words, "--", "set", "Port", interface, "qos=@qos"]
    old = {0: now.default_bps, LLDP_QUEUE: LLDP_BPS, **{c.number: c.rate_bps for c in now.classes}}
    for number, (rate_bps, priority) in shares.items():
        if number not in kept.queues:
            words += _create(interface, number, rate_bps, priority, wanted.rate_bps)
            words += ["--", "set", "QoS", kept.uuid, f"queues:{number}=@q{number}"]
        elif old.get(number) != rate_bps:
            words += ["--", "set", "Queue", kept.queues[number]]
            words += [f"other-config:min-rate={rate_bps}", f"other-config:burst={_burst(rate_bps)}"]
    for number, uuid in kept.queues.items():
        if number not in shares:
            words += ["--", "remove", "QoS", kept.uuid, "queues", str(number)]
            words += ["--", "destroy", "Queue", uuid]
    return words


def _create(interface: str, number: int, rate_bps: int, priority: int, link_bps: int) -> list[str]:
    return [
        *("--", f"--id=@q{number}", "create", "Queue", f"other-config:min-rate={rate_bps}"),
        *(f"other-config:max-rate={link_bps}", f"other-config:priority={priority}"),
        *(f"other-config:burst={_burst(rate_bps)}", f"external-ids:{OWNER}={interface}"),
    ]


def _burst(rate_bps: int) -> int:
    """Return the burst in bits."""
    return burst_bytes(rate_bps) * 8


_CLASS = re.compile(r"^class htb 1:([0-9a-f]+) .*?\brate (\S+) ceil (\S+) ", re.MULTILINE)


def read_back(class_text: str) -> PortQueues | None:
    """Parse `tc class show`; None if there is no HTB of Open vSwitch. Raises ValueError."""
    rates = {int(m[1], 16): parse_rate(m[2]) for m in _CLASS.finditer(class_text)}
    if not {ROOT, 1, LLDP_QUEUE + 1} <= rates.keys():
        return None
    classes = [
        QueueClass(number - 1, (), rate)
        for number, rate in sorted(rates.items())
        if number not in (ROOT, 1, LLDP_QUEUE + 1)
    ]
    return PortQueues(rates[ROOT], tuple(classes))


def without_vlans(queues: PortQueues) -> PortQueues:
    """Return the queues as the kernel has them: set_queue chooses the class, not the VLAN id."""
    classes = tuple(QueueClass(c.number, (), c.rate_bps) for c in queues.classes)
    return PortQueues(queues.rate_bps, classes)


class QueueOvsdb:
    """The driver (`controller.paths.queues.QueueDriver`). `database`: as for ovs-vsctl's --db."""

    sets_queue = True

    def __init__(self, network: Network, database: str) -> None:
        self._interfaces = interfaces_of(network)
        self._database = database

    def apply(self, wanted: Mapping[PortKey, PortQueues]) -> None:
        """Set the queues of these ports. Raises QueueError."""
        asked = {self._interfaces[port]: without_vlans(q) for port, q in wanted.items()}
        there = self._ports()
        # A switch that is off gets its queues when it returns: `QueueKeeper.refresh`.
        asked = {name: queues for name, queues in asked.items() if name in there}
        records = self._records()
        found = _kernel(asked)
        words: list[str] = []
        for number, (name, queues) in enumerate(asked.items()):
            mine = commands(name, records.get(name, ()), found[name], queues)
            words += [re.sub(r"@q(\w+)", rf"@p{number}q\1", word) for word in mine]
        if words:
            self._vsctl(*words[1:])
            found = _kernel(asked)
        problems = [
            f"{name}: {'; '.join(wrong)}"
            for name, queues in asked.items()
            if (wrong := differences(found[name], queues))
        ]
        if problems:
            raise QueueError("; ".join(problems))

    def _ports(self) -> set[str]:
        text = self._vsctl("--format=json", "--columns=name", "list", "Port")
        return {str(row["name"]) for row in _rows(text)}

    def _records(self) -> dict[str, list[Record]]:
        try:
            return parse_records(
                self._vsctl("--format=json", "--columns=_uuid,external_ids,queues", "list", "QoS"),
                self._vsctl("--format=json", "--columns=name,qos", "list", "Port"),
            )
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise QueueError(f"the database of Open vSwitch: {error}") from error

    def _vsctl(self, *words: str) -> str:
        argv = ["ovs-vsctl", f"--db={self._database}", f"--timeout={TIMEOUT_S:.0f}", *words]
        return _run(argv)


def _kernel(interfaces: Iterable[str]) -> dict[str, PortQueues | None]:
    try:
        return {name: read_back(_run(["tc", "class", "show", "dev", name])) for name in interfaces}
    except ValueError as error:
        raise QueueError(str(error)) from error


def _run(argv: list[str]) -> str:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=TIMEOUT_S + 5, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise QueueError(f"{argv[0]}: {error}") from error
    if done.returncode != 0:
        raise QueueError(f"{' '.join(argv)[:200]}: {done.stderr.strip()[-500:]}")
    return done.stdout
