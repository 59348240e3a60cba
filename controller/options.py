# SPDX-License-Identifier: Apache-2.0
"""The options of `python -m controller`, and the settings that result from them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from common import looking
from common.http.ratelimit import REQUESTS_PER_S
from common.onos import VALID as VALID_ONOS
from common.onos import OnosAddress
from common.shell import NetworkError
from controller.federation.peers import PeerAddress, PeerErrors, load_peers
from controller.paths.core import Core, core_of
from controller.paths.queues import QueueDriver, QueueError
from controller.service.workgroups import WorkgroupErrors, Workgroups
from controller.service.workgroups import load as load_workgroups
from controller.switches import queue_option
from topologies.model.network import ControlledBy, Network

LIVENESS_PERIOD_MS = 100.0
Address = tuple[str, int]  # host, TCP port


class UsageError(Exception):
    """A user's mistake: one line, exit 2."""


@dataclass(frozen=True)
class PemFiles:
    """The controller's key and certificate. `authority` signs the certificates of its clients."""

    key: Path
    certificate: Path
    authority: Path | None


@dataclass(frozen=True)
class RestSettings:
    """Where REST is served, and to whom. `known` was read from the file `workgroups`."""

    socket: Path | None
    address: Address | None
    address_text: str | None  # as given
    tls: PemFiles | None
    workgroups: Path | None
    known: Workgroups
    requests_per_s: float

    @property
    def contact(self) -> str:
        """Return the address that a standby gives to its clients."""
        return self.address_text or str(self.socket)


@dataclass(frozen=True)
class SwitchSettings:
    """Where switches connect, and how links and queues are managed. `onos`: they connect to it, and
    not here."""

    address: Address
    tls: PemFiles | None
    liveness_period_ms: float
    queue_driver: QueueDriver | None
    onos: OnosAddress | None = None


@dataclass(frozen=True)
class Settings:
    """What the command line asks for, checked. `peers` None: only paths within this domain.
    `lease_s` 0: no standby shares the store."""

    network: Network
    core: Core
    rest: RestSettings
    switches: SwitchSettings
    peers: dict[str, PeerAddress] | None
    store: Path | None
    lease_s: float
    log: Path | None
    is_verbose: bool

    @property
    def domain(self) -> str:
        """Return the domain to control."""
        return self.core.domain


# -- the command line


def parse_arguments(
    argv: Sequence[str] | None, prog: str = "python -m controller"
) -> argparse.Namespace:
    """Return the options; exit with 2 if they contradict each other."""
    parser = _parser(prog)
    arguments = parser.parse_args(argv)
    try:
        _check_rest_options(arguments)
        check_switch_options(arguments)
    except UsageError as error:
        parser.error(str(error))
    return arguments


def option_names() -> dict[str, bool]:
    """Return the long options without their dashes, and whether each takes a value."""
    found = {}
    for action in _parser("")._actions:
        for name in action.option_strings:
            if name.startswith("--") and name != "--help":
                found[name.removeprefix("--")] = action.nargs != 0
    return found


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="OpenFlow 1.3 controller of one domain: the dynamic multipoint path service.",
    )
    _add_domain_options(parser)
    _add_rest_options(parser)
    _add_path_options(parser)
    add_switch_options(parser)
    parser.add_argument("--log", type=Path, metavar="FILE", help="log to it instead of stderr")
    parser.add_argument("-v", "--verbose", action="store_true", help="log every message")
    return parser


def _add_domain_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--network", type=Path, required=True, metavar="FILE", help="network.json of the run"
    )
    parser.add_argument("--domain", required=True, metavar="NAME", help="the domain to control")
    parser.add_argument(
        "--of-listen",
        default="127.0.0.1:6653",
        metavar="HOST:PORT",
        help="where switches connect (default %(default)s)",
    )


def _add_rest_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rest-socket", type=Path, metavar="PATH", help="serve REST on this Unix socket"
    )
    parser.add_argument("--rest-listen", metavar="HOST:PORT", help="serve REST on TCP too")
    parser.add_argument(
        "--rest-tls-key", type=Path, metavar="FILE", help="with --rest-tls-cert: HTTPS on TCP"
    )
    parser.add_argument("--rest-tls-cert", type=Path, metavar="FILE", help="its certificate")
    parser.add_argument(
        "--rest-tls-ca", type=Path, metavar="FILE", help="clients need certificates that it signed"
    )
    parser.add_argument(
        "--workgroups",
        type=Path,
        metavar="FILE",
        help="who may use which VLANs on which ports (read again at SIGHUP)",
    )
    parser.add_argument(
        "--rate-limit",
        type=float,
        default=REQUESTS_PER_S,
        metavar="N",
        help="requests per second of one workgroup (default %(default)g)",
    )


def _add_path_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", type=Path, metavar="FILE", help="keep paths in this SQLite file across restarts"
    )
    parser.add_argument(
        "--peers",
        type=Path,
        metavar="FILE",
        help="controllers of other domains, for paths over several domains",
    )
    parser.add_argument(
        "--queues",
        default="none",
        metavar="DRIVER",
        help=f"who sets the queues of switch ports: {queue_option.VALID} (default %(default)s)",
    )


def add_switch_options(parser: argparse.ArgumentParser) -> None:
    """Add the options about the switches and about the active controller."""
    group = parser.add_argument_group("switches")
    group.add_argument(
        "--of-tls-key",
        type=Path,
        metavar="FILE",
        help="with --of-tls-cert and --of-tls-ca: switches connect by TLS only",
    )
    group.add_argument("--of-tls-cert", type=Path, metavar="FILE", help="its certificate")
    group.add_argument(
        "--of-tls-ca", type=Path, metavar="FILE", help="switches need certificates that it signed"
    )
    group.add_argument(
        "--onos",
        metavar="URL",
        help=f"the switches connect to this ONOS, which is told what they need: {VALID_ONOS}; "
        "links are not probed, channels not joined",
    )
    group.add_argument(
        "--liveness-period-ms",
        type=float,
        default=LIVENESS_PERIOD_MS,
        metavar="MS",
        help="between two probes of each direction of a link; 0: no probes, links are up while "
        "their ports are (default %(default)g)",
    )
    group.add_argument(
        "--lease-s",
        type=float,
        default=0.0,
        metavar="S",
        help="share the store with a standby controller, which takes over when this one has not "
        "renewed its lease for S seconds; 0: no standby (default %(default)g)",
    )


def _check_rest_options(arguments: argparse.Namespace) -> None:
    """Raise UsageError if the options of the REST interface contradict each other."""
    if arguments.rest_socket is None and arguments.rest_listen is None:
        raise UsageError("neither --rest-socket nor --rest-listen given; valid: at least one")
    if arguments.rest_listen is not None and arguments.workgroups is None:
        raise UsageError("--rest-listen without --workgroups; valid: both, as TCP needs tokens")
    if (arguments.rest_tls_key is None) != (arguments.rest_tls_cert is None):
        raise UsageError("valid: --rest-tls-key and --rest-tls-cert together, or neither")
    if arguments.rest_tls_ca is not None and arguments.rest_tls_key is None:
        raise UsageError("--rest-tls-ca without --rest-tls-key; valid: both")
    if not arguments.rate_limit > 0:
        raise UsageError(f"--rate-limit {arguments.rate_limit:g}: valid: above 0")


def check_switch_options(arguments: argparse.Namespace) -> None:
    """Raise UsageError if the options about the switches contradict each other."""
    tls = (arguments.of_tls_key, arguments.of_tls_cert, arguments.of_tls_ca)
    if any(tls) and not all(tls):
        raise UsageError("valid: --of-tls-key, --of-tls-cert and --of-tls-ca together, or none")
    period_ms = arguments.liveness_period_ms
    if not (period_ms == 0 or 10 <= period_ms <= 60_000):
        raise UsageError(f"--liveness-period-ms {period_ms:g}: valid: 0 or 10..60000")
    if not (arguments.lease_s == 0 or 0.5 <= arguments.lease_s <= 3600):
        raise UsageError(f"--lease-s {arguments.lease_s:g}: valid: 0 or 0.5..3600")
    if arguments.onos is not None:
        for name in ("of_tls_key", "lease_s"):
            if getattr(arguments, name):
                raise UsageError(f"--onos with --{name.replace('_', '-')}; valid: one of them")
        if arguments.queues != "none":
            raise UsageError(f"--onos with --queues {arguments.queues}; valid: one of them")
    if arguments.lease_s and arguments.store is None:
        raise UsageError("--lease-s without --store; valid: both, the lease is kept in the store")


# -- what the options stand for


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Read the files that the options name. Raises UsageError, UnknownDomain."""
    try:
        looking.every_s(0.0)
    except NetworkError as error:
        raise UsageError(str(error)) from error
    of_address = host_and_port("--of-listen", arguments.of_listen)
    rest_address = (
        host_and_port("--rest-listen", arguments.rest_listen) if arguments.rest_listen else None
    )
    network = read_network(arguments.network)
    core = core_of(network, arguments.domain)
    try:
        queue_driver = queue_option.driver_of(arguments.queues, network)
    except QueueError as error:
        raise UsageError(str(error)) from error
    rest = RestSettings(
        arguments.rest_socket,
        rest_address,
        arguments.rest_listen,
        _rest_pem_files(arguments),
        arguments.workgroups,
        read_workgroups(arguments.workgroups),
        arguments.rate_limit,
    )
    switches = SwitchSettings(
        of_address,
        switch_pem_files(arguments),
        0.0 if arguments.onos else arguments.liveness_period_ms,
        queue_driver,
        _onos_address(arguments.onos),
    )
    peers = _read_peers(arguments, network)
    return Settings(
        network,
        core,
        rest,
        switches,
        peers,
        arguments.store,
        arguments.lease_s,
        arguments.log,
        arguments.verbose,
    )


def _rest_pem_files(arguments: argparse.Namespace) -> PemFiles | None:
    if arguments.rest_tls_key is None:
        return None
    return PemFiles(arguments.rest_tls_key, arguments.rest_tls_cert, arguments.rest_tls_ca)


def switch_pem_files(arguments: argparse.Namespace) -> PemFiles | None:
    """Return the files of the options --of-tls-*; None if switches connect without TLS."""
    if arguments.of_tls_key is None:
        return None
    return PemFiles(arguments.of_tls_key, arguments.of_tls_cert, arguments.of_tls_ca)


def _onos_address(text: str | None) -> OnosAddress | None:
    try:
        return None if text is None else OnosAddress.parse(text)
    except ValueError as error:
        raise UsageError(f"--onos: {error}") from None


def host_and_port(option: str, text: str) -> Address:
    """Split '127.0.0.1:6653' or '[::1]:6653'. Raises UsageError, which names the option."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise UsageError(f"{option} '{text}': valid: HOST:PORT, e.g. 127.0.0.1:6653")
    if not 1 <= int(port) <= 65535:
        raise UsageError(f"{option} '{text}': port {port} is not within 1..65535")
    return host, int(port)


def read_network(path: Path) -> Network:
    """Read a network description. Raises UsageError."""
    try:
        return Network.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--network {path}: {error.strerror}") from error
    except KeyError as error:
        raise UsageError(f"--network {path}: key {error} is missing") from error
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise UsageError(f"--network {path}: not a network description: {error}") from error


def read_workgroups(path: Path | None) -> Workgroups:
    """Read the workgroups; None if there is no file. Raises UsageError with all mistakes."""
    if path is None:
        return Workgroups()
    try:
        return load_workgroups(path)
    except WorkgroupErrors as error:
        raise UsageError(str(error)) from error


def _read_peers(arguments: argparse.Namespace, network: Network) -> dict[str, PeerAddress] | None:
    """Read the peers; None if there is no file. Raises UsageError with all mistakes."""
    if arguments.peers is None:
        return None
    domains = [d.name for d in network.domains if d.controlled_by is ControlledBy.CONTROLLER]
    try:
        return load_peers(arguments.peers, domains, arguments.domain)
    except PeerErrors as error:
        raise UsageError(str(error)) from error
