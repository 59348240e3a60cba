# SPDX-License-Identifier: Apache-2.0
"""The launcher's part towards the switches: options, TLS, link probes, and who is active."""

from __future__ import annotations

import argparse
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

from controller.paths.core import Core
from controller.paths.messages import Role
from controller.service.active_role import Keeper, Lease, LeaseTable
from controller.switches.liveness import Liveness, Settings, watched_links
from controller.switches.prober import Prober
from controller.switches.switchboard import Switchboard
from topologies.model.network import Network

LOG = logging.getLogger(__name__)
PERIOD_MS = 100.0
PROBES_PER_S_MAX = 400  # 100 cost 1.5 % of a core; with 2,000 barriers were not answered in time
KEY_BYTES = 16


class OptionError(Exception):
    """A user's mistake; the text names the option and what would be valid."""


class Activatable(Protocol):
    def activate(self, generation: int) -> None: ...
    def deactivate(self, active_address: str) -> None: ...
    def reroute_all(self) -> None: ...


def add_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("switches")
    group.add_argument(
        "--of-tls-key",
        type=Path,
        metavar="FILE",
        help="with --of-tls-cert and --of-tls-ca: switches connect by TLS only",
    )
    group.add_argument("--of-tls-cert", type=Path, metavar="FILE", help="its certificate")
    group.add_argument(
        "--of-tls-ca", type=Path, metavar="FILE", help="switches must have certificates of it"
    )
    group.add_argument(
        "--liveness-period-ms",
        type=float,
        default=PERIOD_MS,
        metavar="MS",
        help="between two probes of each direction of a link; 0: none, links are up while their "
        "ports are (default %(default)g)",
    )
    group.add_argument(
        "--lease-s",
        type=float,
        default=0.0,
        metavar="S",
        help="share the store with a standby controller, which takes over when this one has not "
        "renewed its lease for S seconds; 0: there is none (default %(default)g)",
    )


def check_options(arguments: argparse.Namespace) -> None:
    """Raises OptionError."""
    tls = (arguments.of_tls_key, arguments.of_tls_cert, arguments.of_tls_ca)
    if any(tls) and not all(tls):
        raise OptionError("valid: --of-tls-key, --of-tls-cert and --of-tls-ca together, or none")
    period_ms = arguments.liveness_period_ms
    if not (period_ms == 0 or 10 <= period_ms <= 60_000):
        raise OptionError(f"--liveness-period-ms {period_ms:g}: valid: 0 or 10..60000")
    if not (arguments.lease_s == 0 or 0.5 <= arguments.lease_s <= 3600):
        raise OptionError(f"--lease-s {arguments.lease_s:g}: valid: 0 or 0.5..3600")
    if arguments.lease_s and arguments.store is None:
        raise OptionError("--lease-s without --store; valid: both, the lease is kept in the store")


def tls_of(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    """Raises OptionError if a file cannot be used."""
    if arguments.of_tls_key is None:
        return None
    from controller.switches import compat

    key, certificate, authority = (
        arguments.of_tls_key,
        arguments.of_tls_cert,
        arguments.of_tls_ca,
    )
    for option, path in (
        ("--of-tls-key", key),
        ("--of-tls-cert", certificate),
        ("--of-tls-ca", authority),
    ):
        if not os.access(path, os.R_OK):
            raise OptionError(f"{option} {path}: cannot be read")
    try:
        return compat.tls_context(compat.TlsFiles(key, certificate, authority))
    except (OSError, ValueError) as error:
        raise OptionError(
            f"--of-tls-key {key}, --of-tls-cert {certificate}, --of-tls-ca {authority}: "
            f"not a key, its certificate and an authority in PEM: {error}"
        ) from error


def probe_period_s(asked_s: float, links: int) -> float:
    """A probe goes each way of each link; 0 (no probes) stays 0."""
    return max(asked_s, 2 * links / PROBES_PER_S_MAX) if asked_s else 0.0


def prober_of(
    network: Network,
    core: Core,
    switchboard: Switchboard,
    is_ready: Callable[[], Mapping[str, bool]],
    period_ms: float,
) -> Prober:
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
    return Prober(liveness, switchboard, is_ready)


def first_role(lease_s: float) -> Role:
    return Role.SLAVE if lease_s else Role.EQUAL


def keeper_of(
    store: Path, address: str, lease_s: float, service: Activatable, switchboard: Switchboard
) -> Keeper:
    """Begins as standby, or active if nobody is. Raises OptionError if the store cannot be
    used."""

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
        raise OptionError(f"--lease-s: the store {store} cannot be used: {error}") from error
    return keeper
