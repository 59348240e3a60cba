# SPDX-License-Identifier: Apache-2.0
"""The controller process's side towards its switches: TLS, link probes, the lease."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import sqlite3
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from controller.options import PemFiles, UsageError
from controller.paths.core import Core
from controller.paths.messages import Role
from controller.service.active_role import Keeper, Lease, LeaseTable
from controller.switches import compat
from controller.switches.board import Board
from controller.switches.liveness import Liveness, Settings, watched_links
from controller.switches.prober import Prober
from controller.switches.switchboard import Switchboard
from topologies.model.network import Network

LOG = logging.getLogger(__name__)
PROBES_PER_S_MAX = 400  # 100 cost 1.5 % of a core; at 2,000, switches answered barriers too late
KEY_BYTES = 16


class Activatable(Protocol):
    """What must act when the lease's holder changes."""

    def activate(self, generation: int) -> None:
        """Act from now on. `generation`: the lease's."""

    def deactivate(self, active_address: str) -> None:
        """Leave the domain to the controller at that address."""

    def reroute_all(self) -> None:
        """Move paths off all links that are down."""


def tls_of(files: PemFiles | None) -> ssl.SSLContext | None:
    """Return the TLS context for switches. Raises UsageError if a file cannot be used."""
    if files is None:
        return None
    key, certificate, authority = files.key, files.certificate, files.authority
    assert authority is not None, "checked with the options"
    for option, path in (
        ("--of-tls-key", key),
        ("--of-tls-cert", certificate),
        ("--of-tls-ca", authority),
    ):
        if not os.access(path, os.R_OK):
            raise UsageError(f"{option} {path}: cannot be read")
    try:
        return compat.tls_context(compat.TlsFiles(key, certificate, authority))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--of-tls-key {key}, --of-tls-cert {certificate}, --of-tls-ca {authority}: "
            f"not a key, its certificate and an authority in PEM: {error}"
        ) from error


def probe_period_s(asked_s: float, links: int) -> float:
    """Return the period (0: no probes) at which one probe in each direction of each link stays
    within PROBES_PER_S_MAX."""
    return max(asked_s, 2 * links / PROBES_PER_S_MAX) if asked_s else 0.0


def prober_of(
    network: Network,
    core: Core,
    board: Board,
    is_ready: Callable[[], Mapping[str, bool]],
    period_ms: float,
) -> Prober:
    """Return the prober of the domain's links. If there are many, it is slower than requested."""
    watched = watched_links(network, core.domain)
    asked_s = period_ms / 1000
    period_s = probe_period_s(asked_s, len(watched))
    if period_s > asked_s:
        LOG.warning(
            "links are probed every %.0f ms, not every %.0f ms as asked: %d links, and at most %d "
            "probes a second",
            period_s * 1000,
            asked_s * 1000,
            len(watched),
            PROBES_PER_S_MAX,
        )
    liveness = Liveness(
        watched,
        {switch.name: switch.dpid for switch in network.switches},
        core.dpids,
        secrets.token_bytes(KEY_BYTES),
        Settings(period_s=period_s),
    )
    return Prober(liveness, board, is_ready)


def first_role(lease_s: float) -> Role:
    """Return the OpenFlow role in which the controller begins."""
    return Role.SLAVE if lease_s else Role.EQUAL


def keeper_of(
    store: Path,
    address: str,
    lease_s: float,
    service: Activatable,
    switchboard: Switchboard[compat.Datapath],
) -> Keeper:
    """Return the keeper of the lease. It begins as standby, or as active if no controller is.

    Raises UsageError if the store cannot be used.
    """

    def on_active(generation: int) -> None:
        service.activate(generation)
        service.reroute_all()
        switchboard.set_role(Role.MASTER, generation)

    def on_standby(lease: Lease) -> None:
        switchboard.set_role(Role.SLAVE, lease.generation)
        service.deactivate(lease.address)

    service.deactivate("")
    holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    try:
        keeper = Keeper(LeaseTable(store), holder, address, lease_s, on_active, on_standby)
        keeper.turn(time.time())
    except sqlite3.Error as error:
        raise UsageError(f"--lease-s: the store {store} cannot be used: {error}") from error
    return keeper
