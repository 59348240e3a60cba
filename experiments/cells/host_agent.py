# SPDX-License-Identifier: Apache-2.0
"""The agent of a cell's host on another machine (topologies/remote/agent.py), with what a cell
reads there: the sender's processes, and how full queues and sockets become."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Final

from experiments.cells import samplers
from experiments.verdict.queue_watch import QueueWatch, SocketWatch
from topologies.remote.agent import serve

NAME: Final = "host"  # of this namespace, until the caller gives it the host's name


class Watching:
    """Queues and sockets of the host, from `watch` to `watched`."""

    def __init__(self) -> None:
        self._queues: QueueWatch | None = None
        self._sockets: SocketWatch | None = None
        self._repeater: samplers.Repeater | None = None

    def watch(self, interval_s: float) -> None:
        """Start to watch. Raises NetworkError."""
        pids = {NAME: os.getpid()}
        queues, sockets = QueueWatch(pids, [NAME]), SocketWatch(pids, [NAME])

        def look() -> None:
            queues.look()
            sockets.look()

        self._queues, self._sockets = queues, sockets
        self._repeater = samplers.Repeater("queues", interval_s, look)
        self._repeater.start()

    def watched(self) -> dict[str, Any]:
        """Stop; return what was seen."""
        assert self._queues and self._sockets and self._repeater
        self._repeater.stop()
        queues = [queue.to_dict() for queue in self._queues.close()]
        peak = self._sockets.peak_bytes[NAME]
        return {"queues": queues, "peak_bytes": peak, "failed": self._repeater.failed}


def functions() -> dict[str, Callable[..., Any]]:
    """Return what can be called here besides the agent's own functions."""
    watching = Watching()
    return {
        "watch": watching.watch,
        "watched": watching.watched,
        "process_blocks": samplers.process_blocks,
    }


if __name__ == "__main__":
    sys.exit(serve(functions))
