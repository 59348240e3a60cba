# SPDX-License-Identifier: Apache-2.0
"""The one module that knows the OpenFlow framework: os-ken (preferred), Ryu 4.34 or c65of.

`frameworks.py` chooses one. `start` runs only the path service's app; `listen` is for an app that
the framework's own launcher has started, perhaps beside others.

Threads: with os-ken's native hub, and with c65of, everything is an ordinary thread. With the
eventlet hub (Ryu; os-ken before 4.0, or os-ken-eventlet), the framework runs in green threads of
the main thread, while the controller's own threads stay real (nothing is monkey-patched). Its
queues and semaphores must then only be used through `in_hub`.

Two parts of the framework are replaced: its listener, because connections need limits and TLS that
works in threads, and the entry point of its parser, because messages are checked first.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import inspect
import logging
import os
import queue
import socket
import ssl
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar

from common import looking
from controller.paths.replies import Malformed, Type
from controller.switches import frameworks
from controller.switches.channel import Channel
from controller.switches.guard import (
    HANDSHAKE_S,
    Bucket,
    Counts,
    Inlet,
    Strangers,
)

LOG = logging.getLogger(__name__)
Handler = TypeVar("Handler", bound=Callable[..., None])
LOOK_S = 0.2
ECHO_INTERVAL_S, ECHO_LONGEST_S = 5.0, 15.0  # Channel closes connections that are silent for 20 s


ROOT = frameworks.root_package()

warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
warnings.filterwarnings("ignore", message=r"Datapath#ports is kept")
if frameworks.uses_eventlet(ROOT):
    frameworks.mend_eventlet(ROOT)


def _module(name: str) -> Any:
    return importlib.import_module(frameworks.module_of(ROOT, name))


_hub = _module("lib.hub")
_app_manager = _module("base.app_manager")
_handler = _module("controller.handler")
_ofp_event = _module("controller.ofp_event")
_ofproto = _module("ofproto.ofproto_v1_3")
_parser = _module("ofproto.ofproto_v1_3_parser")
_controller = _module("controller.controller")
_ofp_handler = _module("controller.ofp_handler")
_ofproto_parser = _module("ofproto.ofproto_parser")

HAS_LAUNCHER = ROOT != frameworks.C65OF
IS_GREEN = HAS_LAUNCHER and _hub.HUB_TYPE == "eventlet"
FRAMEWORK = (
    f"{ROOT} {importlib.metadata.version(ROOT.replace('_', '-'))}"
    f" ({'eventlet' if IS_GREEN else 'threads'})"
)


class Port(Protocol):
    """A port of a switch (OFPPort)."""

    port_no: int
    config: int
    state: int


class Datapath(Protocol):
    """A connected switch, as the framework represents it. `ofproto` has OpenFlow's constants,
    `ofproto_parser` its classes; neither has types."""

    id: int | None
    ofproto: Any
    ofproto_parser: Any
    state: str
    socket: Channel
    ports: Mapping[int, Port]
    inlet: Inlet

    def send(self, data: bytes) -> object:
        """Send encoded messages, from any thread. They are lost if the connection has ended."""

    def send_msg(self, message: object) -> object:
        """Send a message object."""

    def set_state(self, state: str) -> object:
        """Change the state of the connection."""


class ReceivedMessage(Protocol):
    """A message of a switch."""

    datapath: Datapath
    xid: int


class ReceivedError(ReceivedMessage, Protocol):
    """OFPErrorMsg."""

    type: int
    code: int


class ReceivedPortStatus(ReceivedMessage, Protocol):
    """OFPPortStatus."""

    reason: int
    desc: Port


M = TypeVar("M", bound=ReceivedMessage, covariant=True)


class Event(Protocol[M]):
    """The arrival of a message."""

    @property
    def msg(self) -> M:
        """Return the message."""


class StateEvent(Protocol):
    """A connection's new state: MAIN (connected) or DEAD."""

    datapath: Datapath
    state: str


_APPS = {"os_ken": "OSKenApp", "ryu": "RyuApp", frameworks.C65OF: "OFApp"}
App: Any = getattr(_app_manager, _APPS[ROOT])
OFP_VERSION: int = _ofproto.OFP_VERSION
MAIN = _handler.MAIN_DISPATCHER
DEAD = _handler.DEAD_DISPATCHER
ALL_STATES = (
    _handler.HANDSHAKE_DISPATCHER,
    _handler.CONFIG_DISPATCHER,
    _handler.MAIN_DISPATCHER,
)
StateChange = _ofp_event.EventOFPStateChange
BarrierReply = _ofp_event.EventOFPBarrierReply
ErrorMessage = _ofp_event.EventOFPErrorMsg
PortStatus = _ofp_event.EventOFPPortStatus
RoleReply = _ofp_event.EventOFPRoleReply


def on(event: Any, *states: str) -> Callable[[Handler], Handler]:
    """Decorate a method to handle `event` of datapaths in one of `states`."""
    decorator: Callable[[Handler], Handler] = _handler.set_ev_cls(event, list(states))
    return decorator


def offline_datapath() -> Datapath:
    """Return an object with `ofproto` and `ofproto_parser` of OpenFlow 1.3 and no connection."""
    if not HAS_LAUNCHER:
        plain: Any = SimpleNamespace(ofproto=_ofproto, ofproto_parser=_parser)
        found: Datapath = plain
        return found
    datapath: Datapath = _module("ofproto.ofproto_protocol").ProtocolDesc(version=OFP_VERSION)
    return datapath


def meter_instruction(parser: Any, meter_id: int) -> Any:
    """Return an OFPInstructionMeter. Some versions require `type_` and `len_`, but ignore
    them."""
    cls = parser.OFPInstructionMeter
    parameters = inspect.signature(cls).parameters
    extra = {
        name: None
        for name in ("type_", "len_")
        if name in parameters and parameters[name].default is inspect.Parameter.empty
    }
    return cls(meter_id=meter_id, **extra)


# The prefixes of an error's code names, by its type (OpenFlow 1.3.5, 7.4.4).
_CODES = tuple(
    f"OFP{letters}C"
    for letters in (
        *("HF", "BR", "BA", "BI", "BM", "FMF", "GMF", "PMF", "TMF", "QOF", "SCF", "RRF", "MMF"),
        "TFF",
    )
)


def _constant(ofproto: Any, prefix: str, value: int) -> str:
    """Return a constant's name and value; only the value if it has no name."""
    names = (n for n in dir(ofproto) if n.startswith(prefix) and getattr(ofproto, n) == value)
    return f"{next(names, '')}({value})"


def error_text(message: ReceivedError) -> str:
    """Return the names of an OFPErrorMsg's type and code."""
    ofproto = message.datapath.ofproto
    if not HAS_LAUNCHER:
        codes = _CODES[message.type] if 0 <= message.type < len(_CODES) else "OFP"
        kind = _constant(ofproto, "OFPET_", message.type)
        return f"{kind}, {_constant(ofproto, f'{codes}_', message.code)}"
    try:
        return (
            f"{ofproto.ofp_error_type_to_str(message.type)}, "
            f"{ofproto.ofp_error_code_to_str(message.type, message.code)}"
        )
    except Exception:  # an experimenter's error has other fields
        return f"type {getattr(message, 'type', '?')}, code {getattr(message, 'code', '?')}"


class _GreenCalls:
    """Runs other threads' functions in a green thread of the hub, in order."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        self._trampoline: Any = importlib.import_module("eventlet.hubs").trampoline

    def post(self, call: Callable[[], object]) -> None:
        self._calls.put(call)
        with contextlib.suppress(BlockingIOError):  # already full of wake-ups
            os.write(self._write_fd, b".")

    def loop(self) -> None:
        while True:
            self._trampoline(self._read_fd, read=True)
            os.read(self._read_fd, 4096)
            while not self._calls.empty():
                try:
                    self._calls.get()()
                except Exception:
                    LOG.exception("call in the hub failed")


_green_calls = _GreenCalls() if IS_GREEN else None


def in_hub(call: Callable[[], object]) -> None:
    """Run `call` where the framework's objects may be used.

    That is at once, in the calling thread, or soon, in the hub's. Calls of one thread keep their
    order.
    """
    if _green_calls is None:
        call()
    else:
        _green_calls.post(call)


def send(datapath: Datapath, data: bytes) -> None:
    """Send encoded messages, from any thread. They are lost if the connection has ended."""
    in_hub(lambda: datapath.send(data))


def close(datapath: Datapath) -> None:
    """End a connection, from any thread."""
    in_hub(datapath.socket.abort)


def ports_of(datapath: Datapath) -> dict[int, bool]:
    """Return for each port whether it was up when the switch connected."""
    return {number: port_is_up(datapath, port) for number, port in datapath.ports.items()}


def port_is_up(datapath: Datapath, port: Port) -> bool:
    """Return whether a port is up, by its OFPPort description."""
    ofproto = datapath.ofproto
    return not (port.config & ofproto.OFPPC_PORT_DOWN or port.state & ofproto.OFPPS_LINK_DOWN)


# Handlers of messages that the framework does not parse, once a switch is known.
RawHandler = Callable[[Datapath, bytes], None]
_raw_handlers: dict[Type, RawHandler] = {}
COUNTS = Counts()
_strangers = Strangers()
_switches: set[Datapath] = set()  # known and connected
_log_lines = Bucket(1.0, 20.0)


def handle_raw(handlers: Mapping[Type, RawHandler]) -> None:
    """Handle messages of these types before the framework parses them."""
    _raw_handlers.update(handlers)


def known(datapath: Datapath) -> None:
    """Note that the connection belongs to a switch of the domain."""
    datapath.socket.is_known = True
    _strangers.leave(datapath.socket)
    _switches.add(datapath)
    if datapath.state == DEAD:  # it ended meanwhile
        _switches.discard(datapath)


def _warn(text: str, *arguments: object) -> None:
    """Log a warning that a stranger can cause. Its rate is limited, so that it cannot fill the
    log."""
    if _log_lines.take(time.monotonic()):
        LOG.warning(text, *arguments)


@dataclass
class _OtherApps:
    """Whether other apps of this process also get the messages that the path service handles."""

    are_served: bool = False


_others = _OtherApps()
_parse = _ofproto_parser.msg
# These loggers log every message that cannot be parsed, with a traceback and all bytes.
_COMPLAINS = "ofproto.ofproto_parser" if HAS_LAUNCHER else "controller.controller"
logging.getLogger(frameworks.module_of(ROOT, _COMPLAINS)).disabled = True


def _checked_parse(
    datapath: Datapath, version: int, kind: int, length: int, xid: int, data: bytes
) -> object:
    """Return the framework's message object, or None if the framework has nothing to do for it."""
    try:
        return _judged(datapath, version, kind, length, xid, bytes(data))
    except Malformed as error:
        datapath.inlet.refused = error
        raise


def _judged(
    datapath: Datapath, version: int, kind: int, length: int, xid: int, raw: bytes
) -> object:
    """Return the same, after checks. Raises Malformed."""
    verdict = datapath.inlet.judge(raw, time.monotonic())
    if verdict.pause_s > 0:
        _hub.sleep(verdict.pause_s)
    if not verdict.passes:
        return None
    handler = _raw_handlers.get(verdict.kind)
    if handler is not None and datapath.state == MAIN:
        handler(datapath, raw)
        if not _others.are_served:
            return None
    if verdict.kind is Type.PACKET_IN and not _others.are_served:
        return None
    try:
        message = _parse(datapath, version, kind, length, xid, raw)
    except Exception:  # c65of raises; the others return None
        message = None
    if message is None:
        COUNTS.add("malformed_messages")
        raise Malformed(f"{verdict.kind.name} cannot be parsed")
    return message


_ofproto_parser.msg = _checked_parse


@dataclass(frozen=True)
class TlsFiles:
    """The controller's key and certificate, and the authority that must have signed the switches'
    certificates."""

    key: Path
    certificate: Path
    authority: Path


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context for switches.

    Raises OSError (ssl.SSLError among them) if a file cannot be used.
    """
    module: Any = importlib.import_module("eventlet.green.ssl") if IS_GREEN else ssl
    context: ssl.SSLContext = module.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.certificate, files.key)
    context.load_verify_locations(files.authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


Address = tuple[str | int, ...]  # host, port; for IPv6 two more numbers


class Service(Protocol):
    """A thread of the framework."""

    def is_alive(self) -> bool:
        """Return whether it runs."""


class _Listener:
    """Replaces the framework's OpenFlowController."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listen = _hub.listen if HAS_LAUNCHER else socket.create_server
        self._server: socket.socket = listen((host, port), family=family)

    def start(self) -> list[Service]:
        """Start as c65of's message handler does. The other frameworks start what they call."""
        return [_hub.spawn(self)]

    def __call__(self) -> None:
        while True:
            try:
                connection, address = self._server.accept()
            except OSError as error:
                _warn("a connection could not be accepted: %s", error)
                _hub.sleep(0.1)
                continue
            _hub.spawn(self._serve, connection, address)

    def _serve(self, connection: socket.socket, address: Address) -> None:
        where = f"{address[0]}:{address[1]}"
        COUNTS.add("connections")
        channel = Channel(connection, is_green=IS_GREEN, handshake_s=HANDSHAKE_S)
        displaced = _strangers.enter(channel)
        if isinstance(displaced, Channel):
            COUNTS.add("displaced")
            displaced.abort()
        try:
            if self._tls is not None:
                channel.start_tls(self._tls)
            self._follow(channel, address)
        except ssl.SSLError as error:
            COUNTS.add("tls_failures")
            _warn("connection from %s refused: TLS: %s", where, error.reason or error)
        except Malformed as error:
            _warn("connection from %s closed: malformed OpenFlow: %s", where, error)
        except Exception as error:
            _warn("connection from %s closed: %s: %s", where, type(error).__name__, error)
        finally:
            if channel.has_timed_out:
                COUNTS.add("handshake_timeouts")
            _strangers.leave(channel)
            channel.close()

    def _follow(self, channel: Channel, address: Address) -> None:
        datapath = _controller.Datapath(channel, address)
        datapath.inlet = Inlet(COUNTS)
        channel.vet = datapath.inlet.vet
        channel.ended = partial(_ended, datapath)
        with contextlib.closing(datapath):
            datapath.serve()
        if datapath.inlet.refused is not None:  # c65of only logs what its parser raises
            raise datapath.inlet.refused


def _ended(datapath: Datapath) -> None:
    """Wake the thread that sends.

    With os-ken 4.x's native hub, it waits forever for something to send, and until then the end of
    the connection is not reported.
    """
    _switches.discard(datapath)
    datapath.set_state(DEAD)
    datapath.send(b"")


def _keep_alive() -> None:
    """Send every switch an echo request now and then; Channel closes silent connections.

    (The framework would use a thread for each connection, which outlives it for a while.)
    """
    interval_s = min(ECHO_LONGEST_S, looking.every_s(ECHO_INTERVAL_S))
    while True:
        _hub.sleep(interval_s)
        for datapath in list(_switches):
            datapath.send_msg(datapath.ofproto_parser.OFPEchoRequest(datapath))


def start(
    app_module: str,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    **app_arguments: object,
) -> list[Service]:
    """Start the OpenFlow listener and the app in `app_module` (which gets `app_arguments`).

    Call from the main thread, then `wait`. Raises OSError if the address cannot be used.
    """
    if HAS_LAUNCHER:
        settings = launcher_settings()
        settings(args=[], project="downpour", prog="controller", default_config_files=[])
    _replace_listener(host, port, tls)
    manager = _app_manager.AppManager.get_instance()
    manager.load_apps([app_module, frameworks.module_of(ROOT, "controller.ofp_handler")])
    contexts = manager.create_contexts()
    services: list[Service] = manager.instantiate_apps(**contexts, **app_arguments)
    return services


def listen(host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
    """Listen for switches in a process that the framework's launcher started, beside other apps.

    Call while the launcher creates its apps. Raises OSError if the address cannot be used.
    """
    _others.are_served = True
    _replace_listener(host, port, tls)


def _replace_listener(host: str, port: int, tls: ssl.SSLContext | None) -> None:
    listener = _Listener(host, port, tls)
    _ofp_handler.OpenFlowController = lambda: listener
    if _green_calls is not None:
        _hub.spawn(_green_calls.loop)
    _hub.spawn(_keep_alive)


def launcher_settings() -> Any:
    """Return the options that the framework's launcher was called with."""
    return _module("cfg").CONF


def threads_are_real() -> bool:
    """Return whether threads are real: launchers make them green unless told otherwise."""
    if not IS_GREEN:
        return True
    patcher: Any = importlib.import_module("eventlet.patcher")
    return not patcher.is_monkey_patched("thread")


def wait(services: list[Service]) -> None:
    """Block the main thread while the listener runs. Signal handlers run meanwhile."""
    if IS_GREEN:
        _hub.joinall(services)
    else:
        look_s = looking.every_s(LOOK_S)
        while all(service.is_alive() for service in services):
            time.sleep(look_s)
