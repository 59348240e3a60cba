# SPDX-License-Identifier: Apache-2.0
"""The running controller of a domain.

`launcher.py` starts it if its app is the only one, `manager_app.py` if `ryu-manager` or
`osken-manager` runs the app. Its threads: the framework's; one for REST, plus REST's workers; one
that follows switches and links, plus workers; and one that checks the clock.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from fastapi import FastAPI

from common import looking
from common.counting import counted
from common.http.server import Server
from common.onos import OnosError, Rest
from controller import southbound
from controller.api import rest
from controller.api.auth import Access
from controller.api.counters import router_of
from controller.api.listening import ListenError, Tls, listen_tcp, listen_unix
from controller.federation import joining
from controller.federation.peers import PeerErrors
from controller.log import set_up_logging
from controller.onos.board import OnosBoard
from controller.options import PemFiles, RestSettings, Settings, UsageError, read_workgroups
from controller.service.active_role import CHECKPOINT_S, Keeper
from controller.service.channels import ChannelKeeper
from controller.service.events import EventLog
from controller.service.monitor import PERIOD_S, Monitor
from controller.service.service import PathService
from controller.service.store import Store, StoreError
from controller.switches import compat, openflow
from controller.switches.board import Board
from controller.switches.switchboard import Switchboard

LOG = logging.getLogger("controller.launcher")  # the name under which the process logs
RETRY_S = 2.0
CLOCK_S = 1.0
WORKERS = 16
JOINERS = 4  # paths whose members can change at the same time
STOP_TIMEOUT_S = 0.5


class RestListeners:
    """The sockets of the REST interface, and their TLS."""

    def __init__(self, settings: RestSettings) -> None:
        """Read the TLS files. Raises ListenError."""
        self._path = settings.socket
        self.sockets: list[socket.socket] = []
        self.tls_sockets: list[socket.socket] = []
        self.tls = _tls_of(settings.tls)
        self._address = settings.address

    def listen_tcp(self) -> None:
        """Listen on the TCP address, if there is one. Raises ListenError."""
        if self._address is not None:
            listener = listen_tcp("--rest-listen", *self._address)
            (self.sockets if self.tls is None else self.tls_sockets).append(listener)

    def listen_unix(self) -> None:
        """Listen on the Unix socket, if there is one. Raises ListenError."""
        if self._path is not None:
            self.sockets.append(listen_unix(self._path))

    def unlink(self) -> None:
        """Remove the Unix socket."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()


class Controller:
    """The path service of a domain with everything it talks to: switches, clients, peers."""

    def __init__(self, settings: Settings) -> None:
        """Open what the settings name, and load the store. Raises UsageError."""
        self._settings = settings
        self._access = Access(settings.rest.known, settings.rest.requests_per_s)
        self._ending = threading.Lock()
        self.switchboard = Switchboard(
            settings.core.dpids,
            openflow.encode,
            compat.send,
            compat.close,
            role=southbound.first_role(settings.lease_s),
        )
        onos = settings.switches.onos
        self._onos = None if onos is None else OnosBoard(settings.core.dpids, Rest(onos))
        self._board: Board = self._onos or self.switchboard
        try:
            self._listeners = RestListeners(settings.rest)
            self._of_tls = southbound.tls_of(settings.switches.tls)
            if self._onos is None:
                listen_tcp("--of-listen", *settings.switches.address).close()
            else:
                self._version = self._onos.prepare()
            self._listeners.listen_tcp()
            store = Store(settings.store, settings.network.name, settings.domain)
            set_up_logging(settings.log, settings.is_verbose)
            self._own = self._new_service(store)
            self._joined = self._join(store)
            if self._onos is not None:
                self._onos.desired = self._own.desired
            self._listeners.listen_unix()
            self._keeper = self._new_keeper()
        except (ListenError, StoreError, PeerErrors, OnosError) as error:
            raise UsageError(str(error)) from error
        self._service = self._own if self._joined is None else self._joined.service
        self._monitor = Monitor(self._own, self._board.stats)
        self._joiners = ThreadPoolExecutor(JOINERS, thread_name_prefix="join")
        self._channels = ChannelKeeper(self._own, self._board.post, self._joiners.submit)
        if self._joined is not None:
            self._channels.tell = self._joined.federation.tell_members
            self._joined.federation.on_members = self._channels.set_remote
        self._prober = southbound.prober_of(
            settings.network,
            settings.core,
            self._board,
            self._own.switches,
            settings.switches.liveness_period_ms,
        )
        listeners = self._listeners
        self._rest = Server(
            self._new_app(), listeners.sockets, listeners.tls_sockets, listeners.tls
        )

    def _new_service(self, store: Store) -> PathService:
        """Return the path service. Raises StoreError."""
        return PathService(
            self._settings.network,
            self._settings.domain,
            self._board.apply,
            self._board.read,
            settle=self._board.settle,
            store=store,
            events=EventLog(f"{int(time.time() * 1000):x}"),
            queue_driver=self._settings.switches.queue_driver,
        )

    def _join(self, store: Store) -> joining.Joined | None:
        """Return the part of a federation; None without peers. Raises PeerErrors."""
        settings = self._settings
        if settings.peers is None:
            return None
        exchanges = joining.connect(settings.domain, settings.peers)
        return joining.join(settings.network, settings.domain, self._own, store, exchanges)

    def _new_keeper(self) -> Keeper | None:
        """Return the keeper of the lease; None without a standby. Raises UsageError."""
        settings = self._settings
        if not settings.lease_s:
            return None
        assert settings.store is not None, "checked with the options"
        return southbound.keeper_of(
            settings.store,
            settings.rest.contact,
            settings.lease_s,
            self._own,
            self.switchboard,
        )

    def _new_app(self) -> FastAPI:
        routers = [router_of(self._own, self._monitor, self._counts)]
        if self._joined is not None:
            routers.insert(0, self._joined.router)
        return rest.make_app(self._service, self._access, routers)

    def _counts(self) -> dict[str, int]:
        return {**compat.COUNTS.all(), **self._channels.counts()}

    # -- start and stop

    def start(self) -> None:
        """Start to accept switches, clients and peers. Call from the main thread, then `wait`."""
        address = self._settings.switches.address
        self._prober.start()
        if self._onos is None:
            self._listener = compat.start(
                "controller.switches.app", *address, self._of_tls, switchboard=self.switchboard
            )
        self.serve()

    def listen(self) -> None:
        """Listen for switches, if the framework's launcher (not `start`) starts the app."""
        self._prober.start()
        compat.listen(*self._settings.switches.address, self._of_tls)

    def serve(self) -> None:
        """Start to accept clients and peers, once the listener for switches exists."""
        host, port = self._settings.switches.address
        self._start_threads()
        self._rest.start()
        if self._joined is not None:
            self._joined.federation.start()
        LOG.info(
            "controlling domain '%s' of network '%s' (%s) with %s; switches connect to %s",
            self._settings.domain,
            self._settings.network.name,
            counted(len(self._settings.core.dpids), "switch", "switches"),
            compat.FRAMEWORK if self._onos is None else f"ONOS {self._version}",
            f"{host}:{port}" if self._onos is None else "it",
        )

    def wait(self) -> None:
        """Return when the OpenFlow listener has ended. Signal handlers run meanwhile."""
        if self._onos is not None:
            self._onos.follow()
        else:
            compat.wait(self._listener)

    def stop(self, why: str) -> bool:
        """Give back the lease and close the REST interface. Return False if this was done before.

        The framework's threads continue until the process ends.
        """
        if not self._ending.acquire(blocking=False):
            return False
        LOG.info("ending: %s", why)
        if self._keeper is not None:
            self._keeper.end()
        self._listeners.unlink()
        self._rest.stop(timeout_s=STOP_TIMEOUT_S)
        return True

    def read_workgroups_again(self) -> None:
        """Replace the workgroups by those in their file now; keep them if the file has mistakes."""
        path = self._settings.rest.workgroups
        try:
            self._access.workgroups = read_workgroups(path)
        except UsageError as error:
            LOG.error("the workgroups stay as they were: %s", error)
        else:
            LOG.info("%s read from %s", counted(len(self._access.workgroups), "workgroup"), path)

    # -- threads

    def _start_threads(self) -> None:
        loops: list[tuple[str, Callable[[], None]]] = [
            ("switches", self._follow_switches),
            ("retry", partial(_every, RETRY_S, self._retry)),
            ("clock", partial(_every, CLOCK_S, self._own.expire)),
            ("counters", partial(self._monitor.run, threading.Event(), looking.every_s(PERIOD_S))),
            ("channels", self._channels.run),
        ]
        self._board.on_report = self._channels.packet_in
        if self._keeper is not None:
            loops.append(("lease", self._keeper.run))
            loops.append(("log", partial(_every, CHECKPOINT_S, self._keeper.checkpoint)))
        for name, loop in loops:
            threading.Thread(target=loop, name=name, daemon=True).start()

    def _follow_switches(self) -> None:
        """Handle the switches' events in order. Workers do what waits for switches."""
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="follow") as pool:
            while True:
                try:
                    self._follow(pool)
                except Exception:
                    LOG.exception("following the switches failed")

    def _follow(self, pool: ThreadPoolExecutor) -> None:
        match self._board.events.get():
            case ("up", switch):
                pool.submit(_logged, partial(self._own.switch_up, switch))
            case ("down", switch):
                self._own.switch_down(switch)
            case ("link", link, is_up, why):
                concerned = self._service.note_link(link, is_up, why)
                pool.submit(_logged, partial(self._own.reroute, concerned, link))

    def _retry(self) -> None:
        self._own.retry(self._board.connected_switches())


def _tls_of(files: PemFiles | None) -> ssl.SSLContext | None:
    """Return the TLS context; None without files. Raises ListenError."""
    return None if files is None else Tls(files.key, files.certificate, files.authority).context()


def _logged(call: Callable[[], None]) -> None:
    try:
        call()
    except Exception:
        LOG.exception("following the switches failed")


def _every(seconds: float, call: Callable[[], None]) -> None:
    while True:
        time.sleep(seconds)
        _logged(call)
