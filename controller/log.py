# SPDX-License-Identifier: Apache-2.0
"""The log of the controller process."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from controller.options import UsageError

LOG = logging.getLogger("controller.launcher")


def set_up_logging(log: Path | None, verbose: bool) -> None:
    """Log to a file (None: stderr), exceptions of all threads too. Raises UsageError."""
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
