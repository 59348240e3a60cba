# SPDX-License-Identifier: Apache-2.0
"""Call an agent's functions: a JSON object a line, both ways."""

from __future__ import annotations

import json
import os
import select
import threading
from abc import ABC, abstractmethod
from typing import Any, Final

from common.shell import NetworkError

SILENT_S: Final = 60.0  # without a byte of an answer, besides what the call itself may take


class Channel(ABC):
    """The way to one agent. Threads may share it. `name`, `address`: for messages."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address
        self._lock = threading.Lock()

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Return whether the connection still stands."""

    @abstractmethod
    def _send(self, data: bytes) -> None:
        """Send to the agent. Raises OSError."""

    @abstractmethod
    def _fd(self) -> int:
        """Return the descriptor of the agent's answers."""

    @abstractmethod
    def _drop(self) -> None:
        """End the connection at once."""

    @abstractmethod
    def complaint(self) -> str:
        """Return why the connection is lost."""

    @abstractmethod
    def close(self) -> None:
        """End the agent, which ends everything there. Idempotent."""

    def call(self, name: str, **given: object) -> Any:
        """Return what the agent's function returns. Raises NetworkError."""
        asked = json.dumps({"call": name, "with": given}) + "\n"
        with self._lock:
            try:
                self._send(asked.encode())
                line = self._answer(SILENT_S + float(str(given.get("timeout_s", 0))))
            except TimeoutError as error:
                self._drop()  # else the next call would take this one's answer
                raise NetworkError(
                    f"{self.name} ({self.address}): no answer to '{name}' within {error}"
                ) from None
            except (OSError, ValueError):
                line = b""
        if not line:
            raise NetworkError(f"{self.name}: {self.complaint()}")
        try:
            answer = json.loads(line)
            said = None if "is" in answer else str(answer["error"])
        except (ValueError, LookupError, TypeError):
            said = f"found {line[:60]!r}; valid: the agent's answers (a shell there may print more)"
        if said is not None:
            raise NetworkError(f"{self.name} ({self.address}): {said}")
        return answer["is"]

    def _answer(self, silent_s: float) -> bytes:
        """Return the next line; b"" at the end. Raises TimeoutError, with the time, and OSError."""
        fd, line = self._fd(), bytearray()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while not line.endswith(b"\n"):
            if not poll.poll(silent_s * 1000):
                raise TimeoutError(f"{silent_s:g} s")
            if not (more := os.read(fd, 1 << 16)):
                return b""
            line += more
        return bytes(line)
