# SPDX-License-Identifier: Apache-2.0
"""Adapters: what a protocol needs, its command lines, and what it cannot do."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from common.places import PROGRAMS, absent_programs

# How the sender learns of files:
#   stdin    one program reads paths, one per line, while it runs
#   batch    one program gets all files that came while the one before it ran; its end is the
# session's   carousel one program sends its files again and again until it is ended
#   ldm      the cell inserts products into a queue (protocols `ldm7` and `ldm6`)
Feed = Literal["stdin", "batch", "carousel", "ldm"]
NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,31}", re.ASCII)
# Payload of a full datagram, divided by its size with the headers that a queue counts. A protocol
# whose rate counts payload gets this share of the rate on the wire.
PAYLOAD_SHARE: Final = 1428 / 1470
PACKET_S: Final = 32e-6  # real time that a delivered datagram takes in virtual time


@dataclass(frozen=True)
class Station:
    """A host's interface to the path."""

    address: str
    interface: str


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Where a protocol runs, and its settings."""

    build: Path  # the C programs, as Meson lays them out
    work: Path  # its own directory: the source, an inbox for each receiver
    sender: Station
    receivers: tuple[Station, ...]
    group: str  # multicast address
    port: int  # this port and the next are free
    rate_bps: int  # on the wire, of what is sent to the group; 0: as fast as it can
    loss: float = 0.0  # a probability, for protocols that cannot request what they miss
    delay_ms: float = 0.0  # one way, the longest
    rcvbuf_bytes: int = 32_000_000
    rcvbufs: tuple[int, ...] = ()  # for each receiver; empty: all have rcvbuf_bytes
    all_to_all: bool = False  # receivers may also send to the group; a path has only one source
    file_bytes: int = 0  # of the only file, called `file`; 0: files come one after the other

    @property
    def stream(self) -> bool:
        """Return whether files come one after the other."""
        return self.file_bytes == 0

    def program(self, name: str) -> str:
        """Return the path of a program below the build directory."""
        return str(self.build / name)

    @property
    def group_port(self) -> str:
        """Return the group and its port in the form that most programs take."""
        return f"{self.group}:{self.port}"

    @property
    def source(self) -> Path:
        """Return the directory where the sender finds its files."""
        return self.work / "source"

    def rcvbuf(self, receiver: int) -> int:
        """Return a receiver's UDP buffer."""
        return self.rcvbufs[receiver] if self.rcvbufs else self.rcvbuf_bytes

    def inbox(self, receiver: int) -> Path:
        """Return the directory where a receiver puts its files."""
        return self.work / f"r{receiver}"


Receive = Callable[[Setup, int], list[str]]  # the command of a receiver, by its number from 0
Send = Callable[[Setup, Sequence[Path]], list[str]]  # the command of the sender, of some files
# The outputs of the sender (stdout, stderr) and of each receiver -> counters by name.
Count = Callable[[str, Sequence[str]], Mapping[str, float]]


def no_command(_setup: Setup, _what: object) -> list[str]:
    """Fail: the cell itself starts this protocol's commands."""
    raise NotImplementedError("a protocol that the cell itself starts")


def no_counts(_sender: str, _receivers: Sequence[str]) -> Mapping[str, float]:
    """Return no counters: the programs report none."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """A protocol. Files arrive at `Setup.inbox` under the names that they have at the sender."""

    name: str
    title: str
    feed: Feed  # of a stream of files
    needs: tuple[str, ...]  # programs: of the build directory (with a slash) or of the system
    receiver: Receive = no_command
    sender: Send = no_command
    multicast: bool = True  # False: each receiver gets its own copy and has the base rate
    file_feed: Feed | None = None  # for a single file, if it differs
    receivers_first: bool = True  # False (the sender first) if receivers connect
    ready: str = ""  # the sender's words on stderr once the receivers have connected
    settle_s: float = 0.5  # time for receivers that print nothing to come up
    # False: repeated datagrams, or all datagrams of a file, begin with the same 12 bytes. A hash of
    # these would drop every repair, so the kernel draws the loss.
    distinct: bool = True
    package: str = ""  # what `make bench-setup` installs for it
    repairs: str = ""  # how it repairs, in a few words
    settings: str = ""  # its settings and their source in its own documentation: one sentence
    limits: tuple[str, ...] = ()  # what it cannot do, and the cost of a stream: sentences
    counts: Count = no_counts
    packet_s: float = PACKET_S  # the cost of a delivered packet in virtual time
    ready_words: tuple[str, ...] = field(default=())  # of `ldm`: words in a receiver's log
    delivered_words: tuple[str, ...] = field(default=())  # of `ldm`: a line for each product

    def feed_of(self, setup: Setup) -> Feed:
        """Return how the sender learns of files."""
        return self.feed if setup.stream or self.file_feed is None else self.file_feed


def missing(needs: Sequence[str], build: Path) -> list[str]:
    """Return the programs that this machine lacks."""
    return [
        need
        for need in needs
        if not ((build / need).exists() if "/" in need else shutil.which(need))
    ]


def lacking(adapter: Adapter, build: Path) -> str | None:
    """Return one line about the programs of a protocol that this machine lacks; None if it has
    all."""
    own = [name for name, path in PROGRAMS.items() if path in adapter.needs]
    if (text := absent_programs(own, build)) is not None:
        return text
    others = [need for need in adapter.needs if need not in PROGRAMS.values()]
    if not (absent := missing(others, build)):
        return None
    if adapter.package or any("/" in need for need in absent):
        how = f", which installs {adapter.package}" if adapter.package else ""
        valid = f"after `make bench-setup`{how}"
    else:
        valid = "a directory of the PATH, below /usr or the checkout, that has it"
    return f"protocol {adapter.name}: found no program {', '.join(absent)}; valid: {valid}"


def named_counts(text: str, first: str, names: Mapping[str, str]) -> dict[str, float]:
    """Return counters from the last line of `name=value` words that begins with `first`. `names`:
    the program's name -> the counter's."""
    lines = [line for line in text.splitlines() if line.startswith(f"{first}=")]
    if not lines:
        return {}
    words = dict(re.findall(r"(\w+)=(\d+)", lines[-1]))
    return {ours: float(words[theirs]) for theirs, ours in names.items() if theirs in words}
