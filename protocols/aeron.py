# SPDX-License-Identifier: Apache-2.0
"""Aeron (io.aeron:aeron-all) by BenchAeron, with a media driver in each process."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final

from protocols.adapter import Adapter, Setup

if TYPE_CHECKING:
    from pathlib import Path

PLACE: Final = "bench/aeron"
JAR: Final = f"{PLACE}/aeron-all.jar"
PROGRAM: Final = f"{PLACE}/BenchAeron.class"
MTU_BYTES: Final = 1472  # and 28 of headers: a packet of 1500
TERM_BYTES: Final = 16 << 20
LEAST_WINDOW_BYTES: Final = 128 << 10  # Aeron's default
MOST_WINDOW_BYTES: Final = TERM_BYTES // 2  # Aeron refuses more
UNLIMITED_WINDOW_BYTES: Final = 4 << 20
WINDOWS: Final = 2  # of the bandwidth-delay product
JAVA: Final = (
    *("java", "-XX:+UseSerialGC", "-Xmx256m", "-Xshare:auto", "-XX:-UsePerfData"),
    *("--add-opens", "java.base/jdk.internal.misc=ALL-UNNAMED"),
    *("--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED", "-Djava.net.preferIPv4Stack=true"),
    *("-Dagrona.disable.bounds.checks=true", "-XX:TieredStopAtLevel=4"),
)


def window_bytes(s: Setup) -> int:
    """Return the receivers' window."""
    if s.rate_bps == 0:
        return UNLIMITED_WINDOW_BYTES
    product = round(WINDOWS * s.rate_bps / 8 * 2 * s.delay_ms / 1000)
    return min(MOST_WINDOW_BYTES, max(LEAST_WINDOW_BYTES, product))


def data_group(s: Setup) -> str:
    """Return the group to send to. Aeron needs an odd address for data. The next address is for the
    receivers' messages."""
    address = IPv4Address(s.group)
    return str(address if int(address) % 2 or not s.all_to_all else address + 1)


def _program(s: Setup, role: str, number: int, *words: str) -> list[str]:
    path = f"{s.program(PLACE)}:{s.program(JAR)}"
    return [*JAVA, "-cp", path, "BenchAeron", role, f"driver={s.work}/aeron{number}", *words]


def _receiver(s: Setup, i: int) -> list[str]:
    window = window_bytes(s)
    sizes = f"rcv-wnd={window}|so-rcvbuf={max(window, s.rcvbuf(i))}"
    here = s.receivers[i].address
    if s.all_to_all:
        channel = f"aeron:udp?endpoint={data_group(s)}:{s.port}|interface={here}|{sizes}"
        more = []
    else:
        channel = f"aeron:udp?endpoint=0.0.0.0:{s.port}|{sizes}"
        more = [f"join={s.group}", f"interface={here}"]
    return _program(s, "recv", i + 1, f"channel={channel}", f"directory={s.inbox(i)}", *more)


def _sender(s: Setup, _: Sequence[Path]) -> list[str]:
    here = s.sender.address
    common = (
        f"mtu={MTU_BYTES}|term-length={TERM_BYTES}|fc=min,g:/{len(s.receivers)},t:30s"
        f"|so-sndbuf={UNLIMITED_WINDOW_BYTES}"
    )
    if s.all_to_all:
        channel = f"aeron:udp?endpoint={data_group(s)}:{s.port}|interface={here}|{common}"
        more = []
    else:
        channel = f"aeron:udp?control={here}:{s.port + 1}|control-mode=manual|{common}"
        more = [f"destination=aeron:udp?endpoint={s.group_port}"]
    return _program(s, "send", 0, f"channel={channel}", *more)


def _counts(sent: str, _: Sequence[str]) -> Mapping[str, float]:
    """Read the driver's counters: messages of receivers, and retransmissions."""
    words = dict(re.findall(r"\b([a-z_]+)=(\d+)", sent))
    names = {
        "status_messages_received": "status_messages",
        "naks_received": "naks",
        "nak_messages_received": "naks",
        "retransmits_sent": "retransmits",
    }
    return {ours: float(words[theirs]) for theirs, ours in names.items() if theirs in words}


AERON: Final = Adapter(
    name="aeron",
    title="Aeron",
    feed="stdin",
    needs=("java", JAR, PROGRAM),
    receiver=_receiver,
    sender=_sender,
    receivers_first=True,
    ready="receivers connected",
    settle_s=0.5,
    package="aeron-all from Maven Central, where there is a JDK of version 17 or later",
    distinct=False,
    repairs="multicast of what receivers name, at once",
    settings=(
        "Aeron's documentation (Configuration Options; Multicast; Flow and Congestion Control): "
        "flow control `min` for the whole group, frames of 1,500 bytes, windows of twice the "
        "bandwidth-delay product, agents in one thread as for few cores."
    ),
    limits=(
        "It has no rate of its own: its window, and the sender's queue, hold it back.",
        "Messages arrive in order: a lost packet holds up all that follow.",
        "The window of the slowest receiver bounds the sender (flow control `min`).",
        "A path has one source: receivers answer by unicast, and do not hear each other ask.",
        "A receiver that lags by more than the window is dropped, and what it misses is lost.",
    ),
    counts=_counts,
)
