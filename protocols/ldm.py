# SPDX-License-Identifier: Apache-2.0
"""LDM7 and LDM6: ldmd, with a product queue at each host.

Rate, repair, FEC, buffers and timers are in ldmd.conf(5), which the experiment writes
(experiments/design/configs.py). The cell has a factor for each of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from common.places import PROGRAMS, program
from protocols.adapter import Adapter

NEEDS: Final = tuple(PROGRAMS[name] for name in ("ldmd", "pqcreate", "pqinsert", "pqcat"))

LDM7: Final = Adapter(
    name="ldm7",
    title="LDM7",
    feed="ldm",
    needs=NEEDS,
    repairs="TCP, or with `repair: multicast` parity on request; its backstop beyond",
    settings="ldmd.conf(5): Table II of MPUP16, from the experiment's file.",
    limits=("Loss is injected into UDP alone, so repairs by TCP lose nothing.",),
    ready_words=(" Receiving",),
    delivered_words=(" Received: {", " Inserted: ", " Backlog: "),
)
LDM6: Final = Adapter(
    name="ldm6",
    title="LDM6",
    feed="ldm",
    needs=NEEDS,
    multicast=False,
    repairs="TCP",
    settings="ldmd.conf(5): Table II of MPUP16, from the experiment's file.",
    limits=("The sender sends a copy to each receiver; each has the base rate.",),
    packet_s=17e-6,
    ready_words=("willing to be a primary feeder",),
    delivered_words=(" Inserted: ",),
)


def ldmd_argv(
    build: Path,
    queue: Path,
    address: str,
    port: int,
    log: Path,
    conf: Path,
    events: Path | None = None,
) -> list[str]:
    """Return the command of a host's ldmd, which listens at `address`. It stays root, like the
    cell: it runs in its own network, with the cell's files. `events`: the directory for its
    events."""
    return [
        str(program("ldmd", build)),
        *["--user", "root", "-f", "-v", "-q", str(queue), "-I", address],
        *["-P", str(port), "-l", str(log)],
        *(["--qlog", str(events)] if events is not None else []),
        str(conf),
    ]


def pqcreate_argv(build: Path, queue: Path, size_bytes: int, slots: int) -> list[str]:
    """Return the command that makes an empty product queue."""
    return [
        str(program("pqcreate", build)),
        *["-s", str(size_bytes), "-S", str(slots), "-q", str(queue)],
    ]


def pqinsert_argv(
    build: Path, queue: Path, trace: Path, feed: str, seed: int, origin: str
) -> list[str]:
    """Return the command that inserts a trace's products, which are called FEED.000000 and so on.
    `origin`: a name of the emulated network. It is part of each product. With the machine's name,
    the products, and the packets that a seed loses, would differ between machines."""
    return [
        str(program("pqinsert", build)),
        *["-v", "-q", str(queue), "-f", feed, "--trace", str(trace)],
        *["--seed", str(seed), "--name", feed, "--origin", origin],
    ]


def pqcat_list_argv(build: Path, queue: Path, feed: str | None = None) -> list[str]:
    """Return the command that lists a queue's products, of one feed or of all."""
    selected = [] if feed is None else ["-f", feed]
    return [str(program("pqcat", build)), "-q", str(queue), *selected, "--list"]


def pqcat_follow_argv(build: Path, queue: Path) -> list[str]:
    """Return the command that lists products as they arrive, until SIGTERM. An insertion wakes it;
    the interval catches an insertion that it missed."""
    return [*pqcat_list_argv(build, queue), "-i", "10"]
