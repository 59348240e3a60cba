# SPDX-License-Identifier: Apache-2.0
"""Find programs in the nodes that the run did not start, whatever their names: they may load the
network or the processors. The run's own tools are also in nodes, but soon end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from topologies.emulate.census import Program, stat_of

NONE: Final = "none"
LOOKS: Final = 40  # for tools that this process started: a busy machine delays their end
PAUSE_S: Final = 0.05


def of_nodes(
    nodes: Iterable[str],
    programs: Collection[Program],
    again: Callable[[], Collection[Program]],
    started: Collection[int],
    proc: Path = Path("/proc"),
) -> dict[str, str]:
    """Return by "<node> strangers" `NONE`, or the programs that descend from none of the processes
    `started`. A descendant of this process is one if it lasts: `again` lists the programs."""
    known = set(started)
    strangers, tools = _suspects(programs, known, proc)
    for _ in range(LOOKS):
        if not tools:
            break
        time.sleep(PAUSE_S)
        tools &= _suspects(again(), known, proc)[1]
    found = [p for p in programs if p.pid in strangers | tools]
    texts: dict[str, list[str]] = {node: [] for node in nodes}
    for program in found:
        texts[program.node].append(f"{program.name} (process {program.pid})")
    return {f"{node} strangers": ", ".join(here) or NONE for node, here in texts.items()}


def _suspects(
    programs: Iterable[Program], started: Collection[int], proc: Path
) -> tuple[set[int], set[int]]:
    """Return the strangers, and apart those that descend from this process."""
    strangers: set[int] = set()
    tools: set[int] = set()
    for program in programs:
        line = _descent(program.pid, proc)
        if line and line.isdisjoint(started):
            (tools if os.getpid() in line else strangers).add(program.pid)
    return strangers, tools


def _descent(pid: int, proc: Path) -> set[int]:
    """Return a process, its ancestors and the leaders of their sessions, which remain known when an
    ancestor has ended; nothing if it is gone."""
    line: list[int] = []
    leaders: set[int] = set()
    while pid > 0 and pid not in line:
        try:
            fields = stat_of(proc / str(pid))
        except OSError:
            break
        if fields[0] in "ZX" and not line:
            break
        line.append(pid)
        leaders.add(int(fields[3]))
        pid = int(fields[1])
    return {*line, *leaders}
