# SPDX-License-Identifier: Apache-2.0
"""Start and end the controller process: options, signals, exit code.

The flows stay on the switches when the controller ends; a new one reads them when the switches
connect to it and changes only what differs from its store.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from common.exit_codes import EXIT_USAGE
from common.starting import imports
from common.virtual_time import begin_afresh
from controller.options import Settings, UsageError, parse_arguments, settings_of
from controller.paths.core import UnknownDomain

if TYPE_CHECKING:
    from controller.process import Controller

LOG = logging.getLogger(__name__)
START_STEP_NS: Final = 100_000_000  # several times what the imports take in virtual time


def main(argv: Sequence[str] | None = None) -> int:
    """Run the controller. Returns only after mistakes in the options; a signal ends the process."""
    arguments = parse_arguments(argv)
    try:
        controller = _controller_of(settings_of(arguments))
    except (UsageError, UnknownDomain) as error:
        for line in str(error).splitlines():
            print(f"controller: {' '.join(line.split())}", file=sys.stderr)
        return EXIT_USAGE
    handle_signals(controller)
    try:
        controller.start()
    except Exception:
        LOG.exception("the framework did not start")
        _end(controller, "the framework did not start", 1)
        raise
    controller.wait()
    LOG.error("the OpenFlow listener ended")
    _end(controller, "the OpenFlow listener ended", 1)
    return 1


def _controller_of(settings: Settings) -> Controller:
    """Return the controller. Raises UsageError, also if the framework is missing."""
    try:  # imported late, as it is slow: report mistakes in the options first
        with imports():
            from controller.process import Controller
    except ImportError as error:
        raise UsageError(str(error)) from error
    begin_afresh(START_STEP_NS)
    return Controller(settings)


def handle_signals(controller: Controller) -> None:
    """End at SIGTERM and SIGINT, read the workgroups again at SIGHUP."""

    # Each in its own thread: the main thread may hold any lock when the signal arrives.
    def on_end(number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        ending = threading.Thread(target=_end, args=(controller, name, 0), name="end", daemon=True)
        ending.start()

    def on_hangup(_number: int, _frame: FrameType | None) -> None:
        threading.Thread(
            target=controller.read_workgroups_again, name="workgroups", daemon=True
        ).start()

    signal.signal(signal.SIGTERM, on_end)
    signal.signal(signal.SIGINT, on_end)
    signal.signal(signal.SIGHUP, on_hangup)


def _end(controller: Controller, why: str, code: int) -> None:
    """Stop the controller and exit; do nothing if another thread is already doing so."""
    if controller.stop(why):
        logging.shutdown()
        _exit_now(code)


def _exit_now(code: int) -> NoReturn:
    """Exit at once: the framework's threads are not daemons and cannot be asked to end."""
    os._exit(code)
