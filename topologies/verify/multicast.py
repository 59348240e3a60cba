# SPDX-License-Identifier: Apache-2.0
"""Manage the path from the publisher to every site of a running network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from common.shell import NetworkError
from controller.api.path_client import Endpoint, PathClient, PathClientError, endpoints_of
from topologies.model.network import Network

NAME = "downpour"


def service_of(network: Network, sockets: Mapping[str, Path]) -> Path:
    """Return the socket of the controller where the publisher's paths begin. Raises
    NetworkError."""
    root, _ = endpoints_of(network)
    domain = next(s.domain for s in network.switches if s.name == root.switch)
    if domain not in sockets:
        raise NetworkError(f"domain {domain}: no controller makes paths there")
    return sockets[domain]


def ensure(network: Network, sockets: Mapping[str, Path], name: str, rate_bps: int) -> bool:
    """Create the path, or its missing parts; return whether anything was missing. Raises
    NetworkError if a path with this name has another root or rate, or the service refuses."""
    root, leaves = endpoints_of(network)
    try:
        with PathClient(service_of(network, sockets)) as service:
            known = {path["name"] for path in service.paths()}
            service.create_path(name, root, rate_bps)  # refused if a different one exists
            found = service.get(name)["leaves"]
            there = {(leaf["switch"], leaf["port"], leaf["vlan"]) for leaf in found}
            missing = [leaf for _, leaf in sorted(leaves.items()) if _key(leaf) not in there]
            for leaf in missing:
                service.add_leaf(name, leaf)
    except PathClientError as error:
        raise NetworkError(f"the path service refused path {name}: {error}") from error
    return name not in known or bool(missing)


def remove(network: Network, sockets: Mapping[str, Path], name: str) -> bool:
    """Delete the path; return whether it existed. Raises NetworkError."""
    try:
        with PathClient(service_of(network, sockets)) as service:
            if name not in {path["name"] for path in service.paths()}:
                return False
            service.delete_path(name)
    except PathClientError as error:
        raise NetworkError(f"the path service refused to delete path {name}: {error}") from error
    return True


def _key(endpoint: Endpoint) -> tuple[str, int, int]:
    return endpoint.switch, endpoint.port, endpoint.vlan
