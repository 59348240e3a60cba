# SPDX-License-Identifier: Apache-2.0
"""The controller process: options, start, signals, end.

Neither `osken-manager` (gone) nor `ryu-manager` is used. Threads: the framework's, one for REST
(plus its workers), one that follows switches coming and going. The flows stay on the switches
when the controller ends; a new controller replaces them when the switches connect to it.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from controller.core import UnknownDomain, core_of
from controller.service import PathService
from controller.switchboard import Switchboard
from topologies.model import Network

LOG = logging.getLogger(__name__)
RETRY_S = 2.0
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
    parser.add_argument("--log", type=Path, metavar="FILE", help="log there, not to stderr")
    parser.add_argument("-v", "--verbose", action="store_true", help="log every message")
    arguments = parser.parse_args(argv)
    if arguments.rest_socket is None and arguments.rest_listen is None:
        parser.error("neither --rest-socket nor --rest-listen given; valid: at least one")
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
        print(f"controller: {' '.join(str(error).split())}", file=sys.stderr)
        return EXIT_USAGE


def _serve(arguments: argparse.Namespace) -> int:
    of_host, of_port = host_and_port("--of-listen", arguments.of_listen)
    rest_address = (
        host_and_port("--rest-listen", arguments.rest_listen) if arguments.rest_listen else None
    )
    network = read_network(arguments.network)
    core = core_of(network, arguments.domain)

    # Slow imports, and the framework's, only after the cheap checks.
    try:
        from controller import compat, openflow
    except ImportError as error:
        raise UsageError(str(error)) from error
    from controller import rest

    switchboard = Switchboard(core.dpids, openflow.encode, compat.send, compat.close)
    service = PathService(network, arguments.domain, switchboard.apply)
    sockets = []
    unlink: list[Path] = []
    try:
        rest.listen_tcp("--of-listen", of_host, of_port).close()
        if rest_address is not None:
            sockets.append(rest.listen_tcp("--rest-listen", *rest_address))
        set_up_logging(arguments.log, arguments.verbose)
        if arguments.rest_socket is not None:
            sockets.append(rest.listen_unix(arguments.rest_socket))
            unlink.append(arguments.rest_socket)
    except rest.ListenError as error:
        raise UsageError(str(error)) from error

    server = rest.Server(rest.make_app(service), sockets)
    ending = threading.Lock()

    def end(why: str, code: int) -> None:
        """Ends the process at once: the framework's threads are not daemons and cannot be
        asked to end."""
        if not ending.acquire(blocking=False):
            return
        LOG.info("ending: %s", why)
        for path in unlink:
            with contextlib.suppress(OSError):
                path.unlink()
        server.stop(timeout_s=0.5)
        logging.shutdown()
        os._exit(code)

    def on_signal(number: int, _frame: FrameType | None) -> None:
        # Not here: the main thread may hold any lock just now.
        name = signal.Signals(number).name
        threading.Thread(target=end, args=(name, 0), name="end", daemon=True).start()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)

    try:
        services = compat.start("controller.app", of_host, of_port, switchboard=switchboard)
    except Exception:
        LOG.exception("the framework did not start")
        end("the framework did not start", 1)
        raise
    threading.Thread(
        target=_follow_switches, args=(service, switchboard), name="switches", daemon=True
    ).start()
    server.start()
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


def _follow_switches(service: PathService, switchboard: Switchboard) -> None:
    retry_at = 0.0
    while True:
        try:
            with contextlib.suppress(queue.Empty):
                match switchboard.events.get(timeout=RETRY_S):
                    case ("up", switch):
                        service.switch_up(switch)
                    case ("down", switch):
                        service.switch_down(switch)
            if time.monotonic() >= retry_at:
                service.retry(switchboard.connected_switches())
                retry_at = time.monotonic() + RETRY_S
        except Exception:
            LOG.exception("following the switches failed")
