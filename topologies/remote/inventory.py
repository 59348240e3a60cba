# SPDX-License-Identifier: Apache-2.0
"""Read from an Ansible inventory which machine has which host of the network."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from common.quantities import MOST_PORT
from common.shell import NetworkError

ROOT: Final = "downpour"  # in the user's home, as the playbooks; else downpour_root
VALID: Final = "a file of Ansible (INI or YAML)"
HOST: Final = "downpour_host"  # the host of the topology; else the name in the inventory
TUNNEL: Final = "downpour_tunnel"  # the machine's address for tunnels; else ansible_host
HUB: Final = "downpour_hub"  # the address of the machine with the switches, as this one sees it
# Instead of tunnels, two interfaces there and two here, for the path and for control; the site has
# put each pair into one VLAN.
CIRCUIT: Final = "downpour_circuit"
HUB_CIRCUIT: Final = "downpour_hub_circuit"
NICS: Final = ("path", "control")
READ_S: Final = 60.0  # for Ansible, which may ask a program or a cloud for the hosts
MESSAGES: Final = 3  # of Ansible's last ones, which say why
_MESSAGE: Final = re.compile(r"(?:\[[A-Z ]+\]:|ERROR!)[ *]*(.*)")


class InventoryError(NetworkError):
    """The inventory says what cannot be used."""


@dataclass(frozen=True)
class RemoteHost:
    """A host of the topology (`name`) and how to reach its machine. `hub` "": by the route.
    `circuit`, `hub_circuit`: interfaces there and here; empty: tunnels."""

    name: str
    address: str
    tunnel: str
    hub: str = ""
    port: int = 0
    user: str = ""
    key: str = ""
    ssh_arguments: str = ""
    root: str = ROOT
    circuit: tuple[str, ...] = ()
    hub_circuit: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the fields by name."""
        return asdict(self)


def read(path: Path) -> list[RemoteHost]:
    """Return the hosts of an inventory, as `ansible-inventory` understands it. Raises
    InventoryError; NetworkError if Ansible does not answer."""
    if not path.is_file():
        raise InventoryError(f"found no inventory {path}; valid: {VALID}")
    environment = {
        **os.environ,
        "ANSIBLE_INVENTORY_UNPARSED_FAILED": "1",
        "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1",
        "LC_ALL": "C.UTF-8",
    }
    try:
        done = subprocess.run(
            ["ansible-inventory", "-i", str(path), "--list"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=READ_S,
            env=environment,
            check=False,
        )
    except FileNotFoundError:
        raise NetworkError("found no ansible-inventory; valid: make setup") from None
    except subprocess.TimeoutExpired:
        raise NetworkError(
            f"{path}: found no answer of ansible-inventory within {READ_S:g} s; valid: an "
            "inventory whose scripts and plugins answer by then"
        ) from None
    if done.returncode != 0:
        reasons = "; ".join(_messages(done.stderr)[-MESSAGES:]) or "it gave no reason"
        raise InventoryError(f"{path}: found what Ansible cannot read ({reasons}); valid: {VALID}")
    listed = json.loads(done.stdout)
    variables: Mapping[str, Mapping[str, Any]] = listed["_meta"]["hostvars"]
    return hosts_of(variables, path)


def _messages(text: str) -> list[str]:
    """Return the messages of Ansible, which breaks long ones into lines."""
    found: list[str] = []
    for line in text.splitlines():
        if (begin := _MESSAGE.match(line)) is not None or not found:
            found.append(begin[1] if begin is not None else line)
        else:
            found[-1] += f" {line}"
    return [shown for message in found if (shown := " ".join(message.split()))]


def hosts_of(variables: Mapping[str, Mapping[str, Any]], path: Path) -> list[RemoteHost]:
    """Return the hosts from Ansible's variables by the name in the inventory. Raises
    InventoryError."""
    found = []
    for name, given in variables.items():
        address = str(given.get("ansible_host", name))
        if given.get("ansible_connection", "ssh") != "ssh":
            raise InventoryError(
                f"{path}, {name}: found ansible_connection={given['ansible_connection']}; valid: "
                "ssh; a host that is not in the inventory is on this machine"
            )
        arguments = [given.get(f"ansible_ssh_{kind}_args", "") for kind in ("common", "extra")]
        found.append(
            RemoteHost(
                name=str(given.get(HOST, name)),
                address=address,
                tunnel=str(given.get(TUNNEL, address)),
                hub=str(given.get(HUB, "")),
                port=_port(given, f"{path}, {name}"),
                user=str(given.get("ansible_user", "")),
                key=str(given.get("ansible_ssh_private_key_file", "")),
                ssh_arguments=" ".join(filter(None, map(str, arguments))),
                root=str(given.get("downpour_root", ROOT)).rstrip("/"),
                circuit=_circuit(given, CIRCUIT, HUB_CIRCUIT, f"{path}, {name}"),
                hub_circuit=_circuit(given, HUB_CIRCUIT, CIRCUIT, f"{path}, {name}"),
            )
        )
    if not found:
        raise InventoryError(
            f"{path}: found no host; valid: a line for each host on another machine"
        )
    names = [host.name for host in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InventoryError(f"{path}: found host '{twice[0]}' twice; valid: each once ({HOST})")
    ends = [interface for host in found for interface in host.hub_circuit]
    if twice := sorted({end for end in ends if ends.count(end) > 1}):
        raise InventoryError(
            f"{path}: found interface '{twice[0]}' twice; valid: each once ({HUB_CIRCUIT})"
        )
    return found


def _port(given: Mapping[str, Any], where: str) -> int:
    """Return the port of ssh; 0: its default."""
    text = str(given.get("ansible_port", ""))
    if not text:
        return 0
    if not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= MOST_PORT:
        raise InventoryError(f"{where}: found ansible_port='{text}'; valid: 1 to {MOST_PORT}")
    return int(text)


def _circuit(given: Mapping[str, Any], name: str, other: str, where: str) -> tuple[str, ...]:
    """Return the two interfaces of a variable; () if neither it nor its other end is given."""
    text = str(given.get(name, ""))
    found = tuple(part.strip() for part in text.split(",")) if text else ()
    if not found and other not in given:
        return ()
    if len(found) != len(NICS) or not all(found) or len(set(found)) != len(NICS):
        raise InventoryError(
            f"{where}: found {name}='{text}'; valid: two interfaces, for the path and for control "
            f"(eth1.701,eth1.702), together with {other}"
        )
    return found


def check_names(hosts: Iterable[RemoteHost], valid: Iterable[str], path: Path) -> None:
    """Check that the topology has these hosts. Raises InventoryError."""
    known = list(valid)
    for host in hosts:
        if host.name not in known:
            raise InventoryError(
                f"{path}: found host '{host.name}'; valid: {', '.join(known)} "
                f"({HOST}=NAME gives a machine of another name its host)"
            )


def to_json(hosts: Iterable[RemoteHost]) -> str:
    """Return the hosts for a cell's process."""
    return json.dumps([host.to_dict() for host in hosts], indent=2) + "\n"


def from_json(text: str) -> list[RemoteHost]:
    """Return the hosts that a text of `to_json` describes."""
    found = [RemoteHost(**raw) for raw in json.loads(text)]  # JSON has lists, no tuples
    return [
        replace(host, circuit=tuple(host.circuit), hub_circuit=tuple(host.hub_circuit))
        for host in found
    ]
