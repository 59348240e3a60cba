# SPDX-License-Identifier: Apache-2.0
"""The one module that knows the OpenFlow framework: os-ken (preferred) or Ryu 4.34.

Threads: with os-ken's native hub everything is an ordinary thread. With the eventlet hub (Ryu;
os-ken with OSKEN_HUB_TYPE=eventlet) the framework lives in green threads of the main thread,
while our own threads stay real ones (nothing is monkey-patched); its queues and semaphores must
then only be touched through `in_hub`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import logging
import os
import queue
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

LOG = logging.getLogger(__name__)
Handler = TypeVar("Handler", bound=Callable[..., None])


def _root_package() -> str:
    for name in ("os_ken", "ryu"):
        if importlib.util.find_spec(name) is not None:
            return name
    raise ImportError("neither os-ken nor Ryu is installed (pip install os-ken)")


ROOT = _root_package()

warnings.filterwarnings("ignore", message=r"\s*Eventlet is deprecated")
if ROOT == "ryu":
    # Ryu 4.34 imports a name that eventlet removed in 0.30.3.
    _wsgi: Any = importlib.import_module("eventlet.wsgi")
    if not hasattr(_wsgi, "ALREADY_HANDLED"):
        _wsgi.ALREADY_HANDLED = object()


def _module(name: str) -> Any:
    return importlib.import_module(f"{ROOT}.{name}")


_hub = _module("lib.hub")
_app_manager = _module("base.app_manager")
_cfg = _module("cfg")
_handler = _module("controller.handler")
_ofp_event = _module("controller.ofp_event")
_ofproto = _module("ofproto.ofproto_v1_3")
_parser = _module("ofproto.ofproto_v1_3_parser")
_protocol = _module("ofproto.ofproto_protocol")
_module("controller.controller")  # registers the listening options

IS_GREEN = _hub.HUB_TYPE == "eventlet"
FRAMEWORK = f"{ROOT} {getattr(importlib.import_module(ROOT), 'version', '') or ''}".strip()

App: Any = _app_manager.OSKenApp if ROOT == "os_ken" else _app_manager.RyuApp
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


def on(event: Any, *states: str) -> Callable[[Handler], Handler]:
    """Decorator: the method handles `event` of datapaths in one of `states`."""
    decorator: Callable[[Handler], Handler] = _handler.set_ev_cls(event, list(states))
    return decorator


def offline_datapath() -> Any:
    """Something that has `ofproto` and `ofproto_parser` of OpenFlow 1.3 and no connection."""
    return _protocol.ProtocolDesc(version=OFP_VERSION)


def meter_instruction(parser: Any, meter_id: int) -> Any:
    """OFPInstructionMeter: some versions want `type_` and `len_`, which they then ignore."""
    cls = parser.OFPInstructionMeter
    parameters = inspect.signature(cls).parameters
    extra = {
        name: None
        for name in ("type_", "len_")
        if name in parameters and parameters[name].default is inspect.Parameter.empty
    }
    return cls(meter_id=meter_id, **extra)


def error_text(message: Any) -> str:
    """Names of an OFPErrorMsg's type and code."""
    ofproto = message.datapath.ofproto
    try:
        return (
            f"{ofproto.ofp_error_type_to_str(message.type)}, "
            f"{ofproto.ofp_error_code_to_str(message.type, message.code)}"
        )
    except Exception:  # an experimenter's error has other fields
        return f"type {getattr(message, 'type', '?')}, code {getattr(message, 'code', '?')}"


class _GreenCalls:
    """Runs functions of other threads in a green thread of the hub, in order."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        self._trampoline: Any = importlib.import_module("eventlet.hubs").trampoline

    def post(self, call: Callable[[], None]) -> None:
        self._calls.put(call)
        with contextlib.suppress(BlockingIOError):  # full of wake-ups already
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


def in_hub(call: Callable[[], None]) -> None:
    """Runs `call` where the framework's objects may be used: at once in the calling thread, or
    soon in the hub's. Calls of one thread keep their order."""
    if _green_calls is None:
        call()
    else:
        _green_calls.post(call)


def is_closed(datapath: Any) -> bool:
    """Whether the connection has ended. With os-ken 4.2.2's native hub this must be asked for:
    its sending thread waits for ever for something to send, so that the end of a connection is
    not reported (no DEAD state)."""
    return bool(datapath.socket.fileno() == -1)


def release(datapath: Any) -> None:
    """Lets the framework's threads of a closed connection end: the sending one fails."""
    in_hub(lambda: datapath.send(b""))


def start(app_module: str, host: str, port: int, **app_arguments: Any) -> list[Any]:
    """Starts the OpenFlow listener and the app of `app_module` (which gets `app_arguments`).

    Call from the main thread, then `wait`. The listener's own errors (address in use) are only
    logged by the framework: check before.
    """
    _cfg.CONF(
        args=["--ofp-listen-host", host, "--ofp-tcp-listen-port", str(port)],
        project="downpour",
        prog="controller",
        default_config_files=[],
    )
    if _green_calls is not None:
        _hub.spawn(_green_calls.loop)
    manager = _app_manager.AppManager.get_instance()
    manager.load_apps([app_module, f"{ROOT}.controller.ofp_handler"])
    contexts = manager.create_contexts()
    services: list[Any] = manager.instantiate_apps(**contexts, **app_arguments)
    return services


def wait(services: list[Any]) -> None:
    """Blocks the main thread while the listener runs; signal handlers run meanwhile."""
    if IS_GREEN:
        _hub.joinall(services)
    else:
        while all(service.is_alive() for service in services):
            time.sleep(0.2)
