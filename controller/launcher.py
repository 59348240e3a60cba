# SPDX-License-Identifier: Apache-2.0
"""The controller process: options, start, signals, end.

Neither `osken-manager` (gone) nor `ryu-manager` is used. Threads: the framework's, one for REST
(plus its workers), one that follows switches and links (plus workers), one that looks at the clock.
The flows stay on the switches when the controller ends; a new one reads them when the switches
connect to it and changes only what differs from its store.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from controller import southbound
from controller.api import auth
from controller.federation import joining
from controller.federation.front import FederatedService
from controller.federation.peers import PeerAddress, PeerErrors, load_peers
from controller.paths.core import UnknownDomain, core_of
from controller.paths.queues import QueueError
from controller.service.events import EventLog
from controller.service.service import PathService
from controller.service.store import Store, StoreError
from controller.service.workgroups import WorkgroupErrors, Workgroups
from controller.service.workgroups import load as load_workgroups
from controller.switches import queue_option
from controller.switches.switchboard import Switchboard
from topologies.model.network import ControlledBy, Network

LOG = logging.getLogger(__name__)
RETRY_S = 2.0
CLOCK_S = 1.0
WORKERS = 16
EXIT_USAGE = 2


class UsageError(Exception):
    """A user's mistake: one line, exit 2."""


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m controller",
        description="OpenFlow 1.3 controller of one domain: the dynamic multipoint path service.",
    )
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
    parser.add_argument(
        "--rest-socket", type=Path, metavar="PATH", help="serve REST on this Unix socket"
    )
    parser.add_argument("--rest-listen", metavar="HOST:PORT", help="serve REST on TCP too")
    parser.add_argument(
        "--rest-tls-key", type=Path, metavar="FILE", help="with --rest-tls-cert: HTTPS on TCP"
    )
    parser.add_argument("--rest-tls-cert", type=Path, metavar="FILE", help="its certificate")
    parser.add_argument(
        "--rest-tls-ca", type=Path, metavar="FILE", help="clients must have certificates of it"
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
        default=auth.REQUESTS_PER_S,
        metavar="N",
        help="requests per second of one workgroup (default %(default)g)",
    )
    parser.add_argument(
        "--store", type=Path, metavar="FILE", help="keep paths there over restarts (SQLite)"
    )
    parser.add_argument(
        "--peers",
        type=Path,
        metavar="FILE",
        help="controllers of other domains, with which paths may be set up together",
    )
    parser.add_argument(
        "--queues",
        default="none",
        metavar="DRIVER",
        help=f"who sets the queues of switch ports: {queue_option.VALID} (default %(default)s)",
    )
    southbound.add_options(parser)
    parser.add_argument("--log", type=Path, metavar="FILE", help="log there, not to stderr")
    parser.add_argument("-v", "--verbose", action="store_true", help="log every message")
    arguments = parser.parse_args(argv)
    if arguments.rest_socket is None and arguments.rest_listen is None:
        parser.error("neither --rest-socket nor --rest-listen given; valid: at least one")
    if arguments.rest_listen is not None and arguments.workgroups is None:
        parser.error("--rest-listen without --workgroups; valid: both, as TCP needs tokens")
    if (arguments.rest_tls_key is None) != (arguments.rest_tls_cert is None):
        parser.error("valid: --rest-tls-key and --rest-tls-cert together, or neither")
    if arguments.rest_tls_ca is not None and arguments.rest_tls_key is None:
        parser.error("--rest-tls-ca without --rest-tls-key; valid: both")
    if not arguments.rate_limit > 0:
        parser.error(f"--rate-limit {arguments.rate_limit:g}: valid: above 0")
    try:
        southbound.check_options(arguments)
    except southbound.OptionError as error:
        parser.error(str(error))
    return arguments


def host_and_port(option: str, text: str) -> tuple[str, int]:
    """'127.0.0.1:6653' or '[::1]:6653'. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise UsageError(f"{option} '{text}': valid: HOST:PORT, e.g. 127.0.0.1:6653")
    if not 1 <= int(port) <= 65535:
        raise UsageError(f"{option} '{text}': port {port} is not within 1..65535")
    return host, int(port)


def read_network(path: Path) -> Network:
    """Raises UsageError."""
    try:
        return Network.from_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--network {path}: {error.strerror}") from error
    except KeyError as error:
        raise UsageError(f"--network {path}: key {error} is missing") from error
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        raise UsageError(f"--network {path}: not a network description: {error}") from error


def set_up_logging(log: Path | None, verbose: bool) -> None:
    """Raises UsageError. Exceptions of threads are logged, whoever started the thread."""
    try:
        handler: logging.Handler = (
            logging.StreamHandler() if log is None else logging.FileHandler(log, encoding="utf-8")
        )
    except OSError as error:
        raise UsageError(f"--log {log}: {error.strerror}") from error
    formatter = logging.Formatter(
        "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
    if not verbose:  # a line for each message to a peer otherwise
        logging.getLogger("httpx").setLevel(logging.WARNING)

    def log_thread_exception(arguments: threading.ExceptHookArgs) -> None:
        name = arguments.thread.name if arguments.thread else "?"
        if arguments.exc_value is not None:
            LOG.error("thread '%s' died", name, exc_info=arguments.exc_value)

    threading.excepthook = log_thread_exception


def main(argv: Sequence[str] | None = None) -> int:
    """Returns only on errors; the normal end is a signal."""
    arguments = parse_arguments(argv)
    try:
        return _serve(arguments)
    except (UsageError, UnknownDomain) as error:
        for line in str(error).splitlines():
            print(f"controller: {' '.join(line.split())}", file=sys.stderr)
        return EXIT_USAGE


def read_workgroups(path: Path | None) -> Workgroups:
    """Raises UsageError with all mistakes."""
    if path is None:
        return Workgroups()
    try:
        return load_workgroups(path)
    except WorkgroupErrors as error:
        raise UsageError(str(error)) from error


def read_peers(arguments: argparse.Namespace, network: Network) -> dict[str, PeerAddress] | None:
    """None: paths of this domain alone. Raises UsageError with all mistakes."""
    if arguments.peers is None:
        return None
    domains = [d.name for d in network.domains if d.controlled_by is ControlledBy.CONTROLLER]
    try:
        return load_peers(arguments.peers, domains, arguments.domain)
    except PeerErrors as error:
        raise UsageError(str(error)) from error


def _join(
    arguments: argparse.Namespace,
    network: Network,
    own: PathService,
    store: Store,
    peers: dict[str, PeerAddress] | None,
) -> joining.Joined | None:
    """Raises PeerErrors."""
    if peers is None:
        return None
    exchanges = joining.connect(arguments.domain, peers)
    return joining.join(network, arguments.domain, own, store, exchanges)


def _serve(arguments: argparse.Namespace) -> int:
    of_host, of_port = host_and_port("--of-listen", arguments.of_listen)
    rest_address = (
        host_and_port("--rest-listen", arguments.rest_listen) if arguments.rest_listen else None
    )
    network = read_network(arguments.network)
    core = core_of(network, arguments.domain)
    try:
        queue_driver = queue_option.driver_of(arguments.queues, network)
    except QueueError as error:
        raise UsageError(str(error)) from error
    access = auth.Access(read_workgroups(arguments.workgroups), arguments.rate_limit)
    peers = read_peers(arguments, network)

    # Slow imports, and the framework's, only after the cheap checks.
    try:
        from controller.switches import compat, openflow
    except ImportError as error:
        raise UsageError(str(error)) from error
    from controller.api import rest, server
    from controller.api.observe import router_of
    from controller.service.monitor import Monitor

    switchboard = Switchboard(
        core.dpids,
        openflow.encode,
        compat.send,
        compat.close,
        role=southbound.first_role(arguments.lease_s),
    )
    sockets: list[socket.socket] = []
    tls_sockets: list[socket.socket] = []
    unlink: list[Path] = []
    try:
        tls = _tls_of(arguments)
        of_tls = southbound.tls_of(arguments)
        server.listen_tcp("--of-listen", of_host, of_port).close()
        if rest_address is not None:
            listener = server.listen_tcp("--rest-listen", *rest_address)
            (sockets if tls is None else tls_sockets).append(listener)
        store = Store(arguments.store, network.name, arguments.domain)
        set_up_logging(arguments.log, arguments.verbose)
        own = PathService(
            network,
            arguments.domain,
            switchboard.apply,
            switchboard.read,
            store=store,
            events=EventLog(f"{int(time.time() * 1000):x}"),
            queue_driver=queue_driver,
        )
        joined = _join(arguments, network, own, store, peers)
        service: PathService | FederatedService = own if joined is None else joined.service
        if arguments.rest_socket is not None:
            sockets.append(server.listen_unix(arguments.rest_socket))
            unlink.append(arguments.rest_socket)
        keeper = None
        if arguments.lease_s:
            address = arguments.rest_listen or str(arguments.rest_socket)
            keeper = southbound.keeper_of(
                arguments.store, address, arguments.lease_s, own, switchboard
            )
    except (server.ListenError, StoreError, PeerErrors, southbound.OptionError) as error:
        raise UsageError(str(error)) from error
    prober = southbound.prober_of(
        network, core, switchboard, own.switches, arguments.liveness_period_ms
    )

    monitor = Monitor(own, switchboard.stats)
    routers = [router_of(own, monitor, compat.COUNTS.all)]
    if joined is not None:
        routers.insert(0, joined.router)
    app = rest.make_app(service, access, routers)
    rest_server = server.Server(app, sockets, tls_sockets, tls)
    ending = threading.Lock()

    def end(why: str, code: int) -> None:
        """Ends the process at once: the framework's threads are not daemons and cannot be
        asked to end."""
        if not ending.acquire(blocking=False):
            return
        LOG.info("ending: %s", why)
        if keeper is not None:
            keeper.end()
        for path in unlink:
            with contextlib.suppress(OSError):
                path.unlink()
        rest_server.stop(timeout_s=0.5)
        logging.shutdown()
        os._exit(code)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        # Not here: the main thread may hold any lock just now.
        name = signal.Signals(number).name
        threading.Thread(target=end, args=(name, 0), name="end", daemon=True).start()

    def read_again() -> None:
        try:
            access.workgroups = read_workgroups(arguments.workgroups)
        except UsageError as error:
            LOG.error("the workgroups stay as they were: %s", error)
        else:
            LOG.info("%d workgroups read from %s", len(access.workgroups), arguments.workgroups)

    def on_hangup(_number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=read_again, name="workgroups", daemon=True).start()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    signal.signal(signal.SIGHUP, on_hangup)

    try:
        prober.start()
        services = compat.start(
            "controller.switches.app", of_host, of_port, of_tls, switchboard=switchboard
        )
    except Exception:
        LOG.exception("the framework did not start")
        end("the framework did not start", 1)
        raise
    followers: tuple[tuple[str, Callable[[], None]], ...] = (
        ("switches", partial(_follow_switches, own, service.note_link, switchboard)),
        ("retry", partial(_every, RETRY_S, partial(_retry, own, switchboard))),
        ("clock", partial(_every, CLOCK_S, own.expire)),
        ("counters", partial(monitor.run, threading.Event())),
    )
    if keeper is not None:
        followers = (*followers, ("lease", keeper.run))
    for name, follow in followers:
        threading.Thread(target=follow, name=name, daemon=True).start()
    rest_server.start()
    if joined is not None:
        joined.federation.start()
    LOG.info(
        "controlling domain '%s' of network '%s' (%d switches) with %s; switches connect to %s:%d",
        arguments.domain,
        network.name,
        len(core.dpids),
        compat.FRAMEWORK,
        of_host,
        of_port,
    )
    compat.wait(services)
    LOG.error("the OpenFlow listener ended")
    end("the OpenFlow listener ended", 1)
    return 1


def _tls_of(arguments: argparse.Namespace) -> ssl.SSLContext | None:
    """Raises ListenError."""
    from controller.api.server import Tls

    if arguments.rest_tls_key is None:
        return None
    return Tls(arguments.rest_tls_key, arguments.rest_tls_cert, arguments.rest_tls_ca).context()


def _follow_switches(
    service: PathService,
    note_link: Callable[[str, bool, str], frozenset[str]],
    switchboard: Switchboard,
) -> None:
    """What must be in order is done here, what waits for switches by workers."""
    with ThreadPoolExecutor(WORKERS, thread_name_prefix="follow") as pool:
        while True:
            try:
                match switchboard.events.get():
                    case ("up", switch):
                        pool.submit(_logged, service.switch_up, switch)
                    case ("down", switch):
                        service.switch_down(switch)
                    case ("link", link, is_up, why):
                        concerned = note_link(link, is_up, why)
                        pool.submit(_logged, service.reroute, concerned, link)
            except Exception:
                LOG.exception("following the switches failed")


def _logged(call: Callable[..., None], *arguments: Any) -> None:
    try:
        call(*arguments)
    except Exception:
        LOG.exception("following the switches failed")


def _every(seconds: float, call: Callable[[], None]) -> None:
    while True:
        time.sleep(seconds)
        _logged(call)


def _retry(service: PathService, switchboard: Switchboard) -> None:
    service.retry(switchboard.connected_switches())
