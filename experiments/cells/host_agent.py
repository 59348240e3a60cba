# SPDX-License-Identifier: Apache-2.0
"""The agent of a cell's host on another machine (topologies/remote/agent.py), with what a cell
reads there: the sender's processes, how full queues and sockets become, and what changes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from experiments.cells import samplers
from experiments.verdict.queue_watch import QueueWatch, SocketWatch, shaper_counts
from topologies.remote.agent import serve
from topologies.watch.journal import Journal

NAME: Final = "host"  # of this namespace, until the caller gives it the host's name


class Watching:
    """Queues or sockets of the host, from `watch` to `watched`."""

    def __init__(self) -> None:
        self._watch: QueueWatch | SocketWatch | None = None
        self._repeater: samplers.Repeater | None = None

    def watch(self, interval_s: float, sends: bool) -> None:
        """Start to watch the queues of a host that `sends`, or the sockets of one that receives.
        Raises NetworkError."""
        pids = {NAME: os.getpid()}
        self._watch = QueueWatch(pids, [NAME]) if sends else SocketWatch(pids, [NAME])
        self._repeater = samplers.Repeater("queues", interval_s, self._watch.look)
        self._repeater.start()

    def watched(self) -> dict[str, Any]:
        """Stop; return what was seen."""
        assert self._watch and self._repeater
        self._repeater.stop()
        seen: dict[str, Any] = {"failed": self._repeater.failed}
        if isinstance(self._watch, QueueWatch):
            return {**seen, "queues": [queue.to_dict() for queue in self._watch.close()]}
        return {**seen, "peak_bytes": self._watch.close()[NAME]}


class Recording:
    """What the kernel reports of changes in the host's namespace, from `record` to `recorded`."""

    def __init__(self) -> None:
        self._journal: Journal | None = None
        self._repeater: samplers.Repeater | None = None

    def record(self, node: str, interval_s: float) -> None:
        """Start to record. `node`: the host's name. Raises NetworkError."""
        self._journal = Journal({node: None})
        self._repeater = samplers.Repeater("journal", interval_s, self._journal.look)
        self._repeater.start()

    def recorded(self) -> dict[str, Any]:
        """Stop; return the first changes, and how often some were missed. Raises OSError."""
        assert self._journal and self._repeater
        self._repeater.stop()
        changes = [asdict(change) for change in self._journal.close()]
        return {"changes": changes, "missed": self._journal.missed + self._repeater.failed}


def functions() -> dict[str, Callable[..., Any]]:
    """Return what can be called here besides the agent's own functions."""
    watching, recording = Watching(), Recording()
    return {
        "watch": watching.watch,
        "watched": watching.watched,
        "record": recording.record,
        "recorded": recording.recorded,
        "process_blocks": samplers.process_blocks,
        "shaper": partial(shaper_counts, None),
    }


if __name__ == "__main__":
    sys.exit(serve(functions))
