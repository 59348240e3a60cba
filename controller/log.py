# SPDX-License-Identifier: Apache-2.0
"""The log of the controller process."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import sys
import threading
import time
import unicodedata
from pathlib import Path
from typing import Final

from controller.options import UsageError

LOG = logging.getLogger("controller.launcher")


# Characters that would end a line, move the cursor, reverse the text or be invisible: control and
# formatting characters, line and paragraph separators.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Zl", "Zp"})


class _Escapes:
    """For str.translate: maps a character that must not reach the log to its replacement."""

    def __getitem__(self, code: int) -> str:
        if unicodedata.category(chr(code)) not in _HIDDEN:
            raise LookupError
        if code < 0x100:
            return f"\\x{code:02x}"
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_ESCAPES: Final = _Escapes()


def one_line(text: str) -> str:
    """Return the text with control characters, and what UTF-8 cannot encode, as \\xNN or
    \\uNNNN."""
    return text.translate(_ESCAPES).encode("utf-8", "backslashreplace").decode()


class LineFormatter(logging.Formatter):
    """Writes each record as one line, whatever strangers have put into it. A traceback's lines are
    indented below it, so that none of them looks like a record."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the record's line."""
        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's line, and its traceback if it has one."""
        first, *rest = super().format(record).split("\n")
        return "\n".join([first, *(f"    {one_line(line)}" for line in rest)])


class _LogFile(logging.handlers.WatchedFileHandler):
    """A log file that is reopened after logrotate has moved it away. If it cannot be written (disk
    full), one line on stderr says so, until it can."""

    _is_failing = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self._has_failed = False
        try:
            super().emit(record)
        except OSError:  # it cannot be reopened, e.g. because its directory is gone
            self.handleError(record)
        self._is_failing = self._has_failed

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - logging's signature
        """Report that a record could not be written."""
        self._has_failed = True
        if not self._is_failing:
            with contextlib.suppress(OSError, ValueError):
                error = sys.exception()
                print(f"controller: --log {self.baseFilename}: {error}", file=sys.stderr)


def set_up_logging(log: Path | None, verbose: bool) -> None:
    """Log to a file (None: stderr), exceptions of all threads too. Raises UsageError."""
    try:
        handler: logging.Handler = (
            logging.StreamHandler() if log is None else _LogFile(log, encoding="utf-8")
        )
    except OSError as error:
        raise UsageError(f"--log {log}: {error.strerror}") from error
    formatter = LineFormatter(
        "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    level = logging.DEBUG if verbose else logging.INFO
    if log is not None and logging.getLogger().handlers:  # a launcher's handlers, which stay
        logging.getLogger().addHandler(handler)
        logging.getLogger().setLevel(level)
    else:
        logging.basicConfig(level=level, handlers=[handler])
    if not verbose:  # otherwise httpx logs a line for each message to a peer
        logging.getLogger("httpx").setLevel(logging.WARNING)

    def log_thread_exception(arguments: threading.ExceptHookArgs) -> None:
        name = arguments.thread.name if arguments.thread else "?"
        if arguments.exc_value is not None:
            LOG.error("thread '%s' died", name, exc_info=arguments.exc_value)

    threading.excepthook = log_thread_exception
