# SPDX-License-Identifier: Apache-2.0
"""Find sockets in the nodes' namespaces that no program of the node has: a program elsewhere may
have one, and send or receive as the host. Programs that only observe have none that carry data."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from common.files import contents
from topologies.emulate.census import PASSING, Program

OWN: Final = "of its programs"
CARRYING: Final = ("tcp", "tcp6", "udp", "udp6", "udplite")  # files of /proc/PID/net
INODE: Final = {**dict.fromkeys((*CARRYING, "raw", "raw6"), 9), "packet": 8}  # the word
MAY_CARRY: Final = PASSING & {"iperf3"}  # competing flows
LOOKS: Final = 3  # sockets come and go while they are listed
PAUSE_S: Final = 0.05
_LINK: Final = re.compile(r"socket:\[(\d+)\]")


def of_nodes(
    pids: Mapping[str, int],
    programs: Iterable[Program],
    again: Callable[[], Iterable[Program]],
    proc: Path = Path("/proc"),
) -> dict[str, str]:
    """Return by "<node> sockets" `OWN`, or what is held elsewhere or by programs that only observe.
    This process may hold some: it watches. `again` lists the programs: one may have started after
    the others were listed."""
    found = list(programs)
    suspects: dict[str, set[str]] | None = None
    for look in range(LOOKS):
        if look:
            time.sleep(PAUSE_S)
            found = list(again())
        held = _held([*(p.pid for p in found), os.getpid()], proc)
        observers = {p.pid: p.name for p in found if p.name in PASSING - MAY_CARRY}
        here = {node: _foreign(pid, held, observers, proc) for node, pid in pids.items()}
        suspects = here if suspects is None else {n: here[n] & suspects[n] for n in here}
        if not any(suspects.values()):
            break
    return {f"{node} sockets": ", ".join(sorted(s)) or OWN for node, s in (suspects or {}).items()}


def _foreign(
    pid: int, held: Mapping[int, int], observers: Mapping[int, str], proc: Path
) -> set[str]:
    """Return what is suspect in the namespace of a process."""
    texts = set()
    for table, word in INODE.items():
        with contextlib.suppress(OSError):
            for line in contents(proc / f"{pid}/net/{table}").splitlines()[1:]:
                words = line.split()
                inode = int(words[word])
                text = _text(table, words, inode)
                if inode and inode not in held:  # 0: closed, or not yet accepted
                    texts.add(f"{text} of a program elsewhere")
                elif table in CARRYING and held.get(inode) in observers:
                    texts.add(f"{text} of {observers[held[inode]]}")
    return texts


def _text(table: str, words: list[str], inode: int) -> str:
    port = f" port {int(words[1].rpartition(':')[2], 16)}" if table in CARRYING else ""
    return f"{table}{port} (inode {inode})"


def _held(pids: Iterable[int], proc: Path) -> dict[int, int]:
    """Return which of the processes has each socket, by inode."""
    found: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in (proc / f"{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if match := _LINK.fullmatch(str(entry.readlink())):
                        found[int(match[1])] = pid
    return found
