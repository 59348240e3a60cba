# SPDX-License-Identifier: Apache-2.0
"""Capture a link of a running network by its name: tcpdump at one of its ends writes a ring of two
files, which become one pcapng file of bounded size.

A link "a:b" is captured at a's end, where a's frames appear before the link delays or loses them,
and b's frames after that. "b:a" is the same link, captured at b's end.
"""

from __future__ import annotations

import contextlib
import re
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Final

from common.shell import NetworkError, UnknownNameError
from topologies.model.network import Network
from topologies.watch.pcapng import FILE_HEADER_BYTES, Interface, pcapng

DEFAULT_LIMIT_BYTES = 64_000_000
# tcpdump counts files in 10^6 bytes and writes two; pcapng takes up to a third more.
LEAST_LIMIT_BYTES = 3_000_000
BUFFER_KIB = 16_384  # the kernel's, for frames that tcpdump has not read yet
START_S, END_S = 20.0, 30.0
_COUNTS = re.compile(r"^(\d+) packets? (captured|dropped by kernel)$", re.M)


@dataclass(frozen=True)
class Tap:
    """Where a link is captured: at `interface` of node `at`. `asked`: the requested name, which
    also names the file."""

    link: str
    at: str
    interface: str
    asked: str

    @property
    def stem(self) -> str:
        """Return the name of its file, without suffix."""
        return self.asked.replace(":", "-").replace("/", "-")


@dataclass(frozen=True)
class Captured:
    """A capture's result. `ring`: frames before the first one in the file were overwritten."""

    link: str
    at: str
    interface: str
    file: str
    size_bytes: int
    frames: int  # captured in total
    dropped: int  # by the kernel, in addition: tcpdump was too slow
    ring: bool
    problem: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return the result for JSON."""
        return asdict(self)


# Open vSwitch's userspace datapath joins its switches by patch ports, which tcpdump cannot see.
WITH_INTERFACE: Final = (
    "a host's link, or one with a delay, rate or loss (others have no interface)"
)


def links_of(network: Network) -> list[str]:
    """Return all links that `CAPTURE` may name."""
    return [link.name for link in network.links]


def tap_of(network: Network, name: str) -> Tap:
    """Return where to capture the link of this name. Raises NetworkError, with the valid names, if
    the network has no such link."""
    # A link's own name comes first: of several links between two nodes, one may have the reverse
    # name.
    for link in network.links:
        if name == link.name:
            return Tap(link.name, link.a.node, link.a.interface, name)
    for link in network.links:
        if name == f"{link.b.node}:{link.a.node}":
            return Tap(link.name, link.b.node, link.b.interface, name)
    raise UnknownNameError(
        f"found link '{name}'; valid (or with the ends the other way round, to capture at the "
        f"other end): {', '.join(links_of(network))}"
    )


def tcpdump_argv(tap: Tap, base: Path, limit_bytes: int, snap_bytes: int) -> list[str]:
    """Return tcpdump's command. `base`: the beginning of the names of its two files, `base0` and
    `base1`."""
    half_mb = max(1, int(limit_bytes * 0.375) // 1_000_000)
    return [
        *("tcpdump", "-i", tap.interface, "-n", "--immediate-mode"),
        *("-B", str(BUFFER_KIB), "-s", str(snap_bytes), "--time-stamp-precision=nano"),
        *("-Z", "root", "-C", str(half_mb), "-W", "2", "-w", str(base)),
    ]


def counts(text: str) -> tuple[int, int]:
    """Return (frames captured, dropped by the kernel) from tcpdump's last lines. Raises
    NetworkError without them. Its "received by filter" counts a frame twice on some
    interfaces."""
    found = {what: int(number) for number, what in _COUNTS.findall(text)}
    try:
        return found["captured"], found["dropped by kernel"]
    except KeyError:
        said = " ".join(text.split())[-300:] or "nothing"
        raise NetworkError(f"tcpdump ended without its counts; it said: {said}") from None


def ordered(base: Path) -> list[Path]:
    """Return the ring's files, oldest first. The second appears when the first is full, and then
    they take turns."""
    files = [p for p in (base.with_name(f"{base.name}{i}") for i in (0, 1)) if p.exists()]
    return sorted(files, key=_first_frame)


def _first_frame(path: Path) -> tuple[int, ...]:
    """Return the first frame's time stamp (seconds, nanoseconds). A file without a frame sorts
    last."""
    with path.open("rb") as stream:
        head = stream.read(FILE_HEADER_BYTES + 8)
    stamp = head[FILE_HEADER_BYTES:]
    return struct.unpack("=II", stamp) if len(stamp) == 8 else (2**32, 0)


Start = Callable[[str, Sequence[str], IO[bytes]], "subprocess.Popen[bytes]"]


class Capture:
    """A running tcpdump. `start(node, argv, stderr)` starts a program where the node's interfaces
    are. Raises NetworkError if tcpdump does not start."""

    def __init__(
        self, tap: Tap, directory: Path, start: Start, limit_bytes: int, snap_bytes: int
    ) -> None:
        if limit_bytes < LEAST_LIMIT_BYTES:
            raise NetworkError(
                f"found a capture of {limit_bytes} bytes; valid: {LEAST_LIMIT_BYTES}"
            )
        self.tap, self._directory, self._snap_bytes = tap, directory, snap_bytes
        directory.mkdir(parents=True, exist_ok=True)
        # AppArmor's usual profile lets tcpdump write files with this suffix.
        self._base = directory / f"{tap.stem}.pcap"
        self._said = directory / f"{tap.stem}.tcpdump"
        argv = tcpdump_argv(tap, self._base, limit_bytes, snap_bytes)
        with self._said.open("wb") as errors:
            try:
                self._process = start(tap.at, argv, errors)
            except FileNotFoundError:
                raise NetworkError("tcpdump: not found on this machine (see: doctor)") from None

    @property
    def alive(self) -> bool:
        """Return whether tcpdump runs."""
        return self._process.poll() is None

    def listening(self) -> bool:
        """Return whether tcpdump has reported that it captures. Raises NetworkError if it has
        ended."""
        if "listening on" in self._text():
            return True
        if not self.alive:
            said = " ".join(self._text().split())[-300:]
            valid = f"; valid: {WITH_INTERFACE}" if "No such device" in said else ""
            raise NetworkError(f"capture of {self.tap.link}: {said}{valid}")
        return False

    def _text(self) -> str:
        return self._said.read_text(encoding="utf-8", errors="replace")

    def tell_to_stop(self) -> None:
        """Ask tcpdump to end; do not wait."""
        with contextlib.suppress(ProcessLookupError):
            if self.alive:
                self._process.send_signal(signal.SIGINT)  # it then writes what it has

    def finish(self) -> Captured:
        """Write the pcapng file after `tell_to_stop`; describe it."""
        try:
            self._process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        problem, captured, dropped = "", 0, 0
        try:
            captured, dropped = counts(self._text())
        except NetworkError as error:
            problem = str(error)
        files = ordered(self._base)
        target = self._directory / f"{self.tap.stem}.pcapng"
        temporary = target.with_name(f".{target.name}")
        interface = Interface(
            self.tap.interface,
            f"link {self.tap.link} at {self.tap.at}",
            self._snap_bytes,
        )
        kept = 0
        with temporary.open("wb") as out:
            pieces = pcapng((p.read_bytes() for p in files), interface, captured + dropped, dropped)
            for piece in pieces:
                out.write(piece)
                kept += 1
        temporary.rename(target)
        for path in (*files, self._said):
            path.unlink()
        in_file = kept - 2  # without the blocks before and after the frames
        return Captured(
            self.tap.link,
            self.tap.at,
            self.tap.interface,
            target.name,
            target.stat().st_size,
            captured,
            dropped,
            in_file < captured,
            problem,
        )


def await_listening(captures: Sequence[Capture]) -> None:
    """Wait until all captures run. Raises NetworkError if one does not start."""
    deadline = time.monotonic() + START_S
    while waiting := [c for c in captures if not c.listening()]:
        if time.monotonic() > deadline:
            raise NetworkError(f"capture of {waiting[0].tap.link}: tcpdump does not begin")
        time.sleep(0.02)
