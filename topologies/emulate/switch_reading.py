# SPDX-License-Identifier: Apache-2.0
"""Read what switches hold, as an inventory: flows, groups, meters, and settings in the database."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

from common.shell import NetworkError, check, check_all
from topologies.watch import raw_entries, switch_counters
from topologies.watch.dumps import OPENFLOW
from topologies.watch.inventory import Inventory
from topologies.watch.raw_entries import Entries
from topologies.watch.switch_counters import SwitchCounters

T = TypeVar("T")

SWITCHES: Final = "switches"  # their ports are in the run's own namespace
# A switch's database settings that concern frames: name, columns, table.
DATABASE: Final = (
    ("policing", "name,ingress_policing_rate,ingress_policing_burst", "Interface"),
    ("mirrors", "name", "Mirror"),
    ("bridge", "name,fail_mode,mcast_snooping_enable,stp_enable,rstp_enable,flood_vlans", "Bridge"),
    ("port", "name,tag,trunks,vlan_mode,qos,bond_mode", "Port"),
)
DUMPS: Final = tuple(OPENFLOW.values())
_VOLATILE: Final = re.compile(
    r"(cookie=0x[0-9a-f]+), duration=[\d.]+s, (table=\d+), n_packets=\d+, n_bytes=\d+,"
    r"(?: (?:idle|hard)_age=\d+,)*"
)


class SwitchReader:
    """Reads the switches of one network. It asks each for its entries, and starts `ovs-ofctl` for
    those whose entries it has not shown yet."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[Entries, Inventory]] = {}

    def read(
        self, switches: Sequence[str], owner: Mapping[str, str], pause_s: float = 0.0
    ) -> Inventory:
        """Return each switch's flows, groups and meters, and the settings of all. `owner`: the
        switch of each interface; `pause_s`: between two switches, and two programs. Raises
        NetworkError."""
        found: Inventory = {}
        changed: dict[str, Entries] = {}
        for switch in switches:
            now = entries(switch)
            known = self._shown.get(switch)
            if known is not None and known[0] == now:
                found |= known[1]
            else:
                changed[switch] = now
            time.sleep(pause_s)
        for switch, text in self._texts(changed, pause_s).items():
            found |= self.learn(switch, changed[switch], text)
        return found | database(owner)

    def learn(self, switch: str, before: Entries, text: Sequence[str]) -> Inventory:
        """Return the entries that `ovs-ofctl` has shown as text, by `DUMPS`. Remember them if the
        switch had the same ones before and has them now. Raises NetworkError."""
        here = {**flows(switch, text[0]), **groups(switch, text[1]), **meters(switch, text[2])}
        if entries(switch) == before:  # the text shows these bytes
            self._shown[switch] = (before, here)
        return here

    @staticmethod
    def _texts(switches: Mapping[str, Entries], pause_s: float) -> dict[str, list[str]]:
        questions: dict[str, tuple[Sequence[str], str]] = {}
        for switch in switches:
            for what in DUMPS:
                argv = ["ovs-ofctl", "-O", "OpenFlow13", "--no-names", what, switch]
                questions[f"{what} {switch}"] = (argv, "")
        text: dict[str, str] = {}
        if pause_s == 0:
            text = check_all(questions)
        for name, question in questions.items() if pause_s else ():
            text |= check_all({name: question})
            time.sleep(pause_s)
        return {switch: [text[f"{what} {switch}"] for what in DUMPS] for switch in switches}


def entries(switch: str) -> Entries:
    """Return what a switch has. Raises NetworkError."""
    return _asked(switch, raw_entries.ask)


def counters(switch: str) -> SwitchCounters:
    """Return what a switch has counted. Raises NetworkError."""
    return _asked(switch, switch_counters.ask)


def _asked(switch: str, ask: Callable[[str], T]) -> T:
    """Ask a switch at its management socket. Raises NetworkError."""
    path = Path(os.environ.get("OVS_RUNDIR", "/var/run/openvswitch")) / f"{switch}.mgmt"
    try:
        return ask(str(path))
    except (OSError, ValueError) as error:
        raise NetworkError(f"{path}: {error}") from None


def database(owner: Mapping[str, str]) -> Inventory:
    """Return the database's settings of all switches. Raises NetworkError."""
    argv = ["ovs-vsctl", "--format=csv"]
    for _, columns, table in DATABASE:
        argv += ["--", f"--columns={columns}", "list", table]
    tables = check(argv).split("\n\n")
    rows = {
        name: text.splitlines()[1:] for (name, _, _), text in zip(DATABASE, tables, strict=True)
    }
    policed = [line for line in rows["policing"] if not line.endswith(",0,0")]
    found = {f"{SWITCHES} policing": ", ".join(sorted(policed)) or "none"}
    found[f"{SWITCHES} mirrors"] = " ".join(rows["mirrors"]) or "none"
    for name, _, _ in DATABASE[2:]:
        for line in rows[name]:
            row, _, rest = line.partition(",")
            found[f"{owner.get(row, SWITCHES)}/{row} {name}"] = rest
    return found


def flows(switch: str, text: str) -> Inventory:
    """Read `ovs-ofctl dump-flows`: "<switch> flow <cookie, table, priority, match>" -> actions."""
    found = {}
    for line in text.splitlines():
        if " actions=" in line:
            match, _, actions = line.strip().partition(" actions=")
            found[f"{switch} flow {_VOLATILE.sub(chr(92) + '1, ' + chr(92) + '2,', match)}"] = (
                actions
            )
    return found


def groups(switch: str, text: str) -> Inventory:
    """Read `ovs-ofctl dump-groups`: "<switch> group <id>" -> type and buckets."""
    found = {}
    for line in text.splitlines():
        if "group_id=" in line:
            number, _, rest = line.strip().partition("group_id=")[2].partition(",")
            found[f"{switch} group {number}"] = re.sub(r"bucket_id:\d+,", "", rest)
    return found


def meters(switch: str, text: str) -> Inventory:
    """Read `ovs-ofctl dump-meters`: "<switch> meter <id>" -> flags and bands."""
    found = {}
    for block in re.split(r"(?=meter=\d+)", text):
        if match := re.match(r"meter=(\d+)\s+(.*)", block, re.DOTALL):
            found[f"{switch} meter {match[1]}"] = " ".join(match[2].split())
    return found
