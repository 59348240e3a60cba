# SPDX-License-Identifier: Apache-2.0
"""Connects a domain's path service with its peers, for the option `--peers`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import APIRouter

from controller.federation.federation import Exchange, Federation
from controller.federation.local import ServicePaths
from controller.federation.peers import Peer, PeerAddress
from controller.federation.records import Timing
from controller.federation.routes import make_router
from controller.federation.service import FederatedService
from controller.federation.store import FederationStore
from controller.federation.trees import Domains
from controller.service.service import PathService
from controller.service.store import Store
from topologies.model.network import Network


@dataclass(frozen=True)
class Joined:
    """A path service with peers. `router`: the REST routes about other domains."""

    service: FederatedService
    federation: Federation
    router: APIRouter


def join(
    network: Network,
    home: str,
    own: PathService,
    store: Store,
    peers: Mapping[str, Exchange],
    *,
    timing: Timing | None = None,
) -> Joined:
    """Return a domain's path service, connected with its peers.

    The caller calls `Federation.start` once the domain's REST interface is served.
    """
    domains = Domains(network)
    federation = Federation(
        domains,
        home,
        ServicePaths(domains, home, own),
        own,
        FederationStore(store),
        peers,
        timing=timing,
        is_active=lambda: own.is_active,
    )
    service = FederatedService(own, federation)
    return Joined(service, federation, make_router(federation, service.path))


def connect(home: str, addresses: Mapping[str, PeerAddress]) -> dict[str, Exchange]:
    """Return a connection to each peer. Raises PeerErrors."""
    return {name: Peer(home, address) for name, address in addresses.items()}
