# SPDX-License-Identifier: Apache-2.0
"""The log of the controller process."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Final

from controller.options import UsageError

LOG = logging.getLogger("controller.launcher")


# What would end a line, move the cursor or turn the text round: C0, DEL, C1, separators, bidi.
_CONTROLS: Final = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (
        *range(0x20),
        *range(0x7F, 0xA0),
        0x200E,
        0x200F,
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
    )
}


def one_line(text: str) -> str:
    """Return the text with control characters, and what UTF-8 cannot say, as \\xNN or \\uNNNN."""
    return text.translate(_CONTROLS).encode("utf-8", "backslashreplace").decode()


class LineFormatter(logging.Formatter):
    """A record is one line, whatever strangers have put into it; a traceback's lines are indented
    below it, so that none of them looks like a record."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, and its traceback if it has one."""
        first, *rest = super().format(record).split("\n")
        return "\n".join([first, *(f"    {one_line(line)}" for line in rest)])


def set_up_logging(log: Path | None, verbose: bool) -> None:
    """Log to a file (None: stderr), exceptions of all threads too. Raises UsageError."""
    try:
        handler: logging.Handler = (
            logging.StreamHandler() if log is None else logging.FileHandler(log, encoding="utf-8")
        )
    except OSError as error:
        raise UsageError(f"--log {log}: {error.strerror}") from error
    formatter = LineFormatter(
        "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    level = logging.DEBUG if verbose else logging.INFO
    if log is not None and logging.getLogger().handlers:  # a launcher's, which stay
        logging.getLogger().addHandler(handler)
        logging.getLogger().setLevel(level)
    else:
        logging.basicConfig(level=level, handlers=[handler])
    if not verbose:  # a line for each message to a peer otherwise
        logging.getLogger("httpx").setLevel(logging.WARNING)

    def log_thread_exception(arguments: threading.ExceptHookArgs) -> None:
        name = arguments.thread.name if arguments.thread else "?"
        if arguments.exc_value is not None:
            LOG.error("thread '%s' died", name, exc_info=arguments.exc_value)

    threading.excepthook = log_thread_exception
