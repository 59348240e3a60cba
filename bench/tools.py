# SPDX-License-Identifier: Apache-2.0
"""The tools that are measured: their command lines. Pure but for `missing`."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from bench.jobs import Job
from bench.network import SENDER_IP, receiver_ip

GROUP: Final = "239.192.77.1:38800"
GROUP_IP: Final = GROUP.partition(":")[0]
TCP_PORT: Final = 38801
PROGRESS: Final = "progress"
# Paths come on standard input of a sender that is up; or its command names the file; or, for a
# stream, a command per batch of what has come meanwhile; or the command sends the file again and
# again until it is ended (carousel); or nothing is kept (the ceilings); or there is no network at
# all (queue), or no file (paths).
Feed = Literal["stdin", "command", "carousel", "bare", "iperf3", "queue", "paths"]


@dataclass(frozen=True)
class Context:
    """Where a run happens."""

    job: Job
    build: Path
    work: Path

    def program(self, name: str) -> str:
        """Return the path of a program of this project."""
        return str(self.build / name)

    def inbox(self, receiver: int) -> Path:
        """Return where a receiver puts its files."""
        return self.work / f"r{receiver}"

    @property
    def source(self) -> Path:
        """Return where the sender finds its files."""
        return self.work / "source"


@dataclass(frozen=True)
class Tool:
    """How a tool is started, and in which sections it takes part."""

    name: str
    title: str
    feed: Feed
    needs: tuple[str, ...]  # programs: of the build (with a slash) or of the system
    # The commands of a receiver (by its number) and of the sender (of some files).
    commands: tuple[Callable[..., list[str]], Callable[..., list[str]]]
    sections: frozenset[str]
    receivers_first: bool = True  # or, for those that connect, the sender
    ready: str = ""  # what the sender's stderr says when receivers have connected
    settle_s: float = 0.5  # until receivers that say nothing are up
    package: str = ""  # what `make bench-setup` installs for it

    def receiver(self, context: Context, number: int) -> list[str]:
        """Return the command of a receiver."""
        return self.commands[0](context, number)

    def sender(self, context: Context, files: Sequence[Path]) -> list[str]:
        """Return the command of the sender."""
        return self.commands[1](context, files)


def missing(tool: Tool, build: Path) -> list[str]:
    """What of its needs is not on this machine."""
    return [
        need
        for need in tool.needs
        if not ((build / need).exists() if "/" in need else shutil.which(need))
    ]


def _rate(job: Job, unlimited: int) -> int:
    return job.rate_bps or unlimited


def _fmtp(*more: str) -> tuple[Callable[..., list[str]], Callable[..., list[str]]]:
    def receiver(c: Context, i: int) -> list[str]:
        return [
            c.program("fmtp/fmtp-recv"),
            *("--server", f"{SENDER_IP}:{TCP_PORT}", "--group", GROUP),
            *("--interface", receiver_ip(i), "--rate", str(c.job.rate_bps or "unlimited")),
            *("--rcvbuf", str(RCVBUF_BYTES), str(c.inbox(i))),
        ]

    def sender(c: Context, _: Sequence[Path]) -> list[str]:
        return [
            c.program("fmtp/fmtp-send"),
            *("--group", GROUP, "--address", SENDER_IP, "--port", str(TCP_PORT)),
            *("--receivers", str(c.job.receivers), "--rate", str(c.job.rate_bps or "auto")),
            *("--stdin", *more),
        ]

    return receiver, sender


def _norm(proactive: int) -> tuple[Callable[..., list[str]], Callable[..., list[str]]]:
    def receiver(c: Context, i: int) -> list[str]:
        return [
            c.program("bench/peers/bench-norm"),
            *("recv", f"group={GROUP}", f"node={i + 2}", f"directory={c.inbox(i)}"),
            f"rcvbuf={RCVBUF_BYTES}",
        ]

    def sender(c: Context, _: Sequence[Path]) -> list[str]:
        # Its rate counts UDP payload (1428 bytes of 1470 on the wire): as much as fills the link.
        rate = round(_rate(c.job, NORM_UNLIMITED_BPS) * (1428 / 1470))
        grtt_us = max(1000, round(2000 * c.job.delay_ms))
        return [
            c.program("bench/peers/bench-norm"),
            *("send", f"group={GROUP}", "node=1", f"rate={rate}", f"receivers={c.job.receivers}"),
            *(f"proactive={proactive}", f"grtt_us={grtt_us}"),
        ]

    return receiver, sender


NORM_UNLIMITED_BPS: Final = 160_000_000
RCVBUF_BYTES: Final = 32_000_000
UFTP_BLOCK_BYTES: Final = 1420


def _uftp_receiver(c: Context, i: int) -> list[str]:
    return [
        *("uftpd", "-d", "-q", "-x", "0", "-B", str(RCVBUF_BYTES), "-I", "eth0"),
        *("-D", str(c.inbox(i)), "-M", "239.192.78.1"),
    ]


def _uftp_sender(c: Context, files: Sequence[Path]) -> list[str]:
    rate_kbps = c.job.rate_bps // 1000 if c.job.rate_bps else -1
    uids = ",".join(f"0x{_uid(i):08X}" for i in range(c.job.receivers))
    return [
        *("uftp", "-q", "-x", "0", "-R", str(rate_kbps), "-B", str(RCVBUF_BYTES)),
        *("-b", str(UFTP_BLOCK_BYTES), "-I", "eth0", "-M", "239.192.78.1", "-P", "239.192.78.2"),
        *("-H", uids, *map(str, files)),
    ]


def _uid(receiver: int) -> int:
    """A client's default id: its address."""
    value = 0
    for part in receiver_ip(receiver).split("."):
        value = value << 8 | int(part)
    return value


def _udpcast_receiver(c: Context, i: int) -> list[str]:
    return [
        *("udp-receiver", "--nokbd", "--no-progress", "--interface", "eth0"),
        *("--mcast-rdv-address", "239.192.79.1", "--rcvbuf", str(RCVBUF_BYTES)),
        *("--file", str(c.inbox(i) / "file")),
    ]


def _udpcast_sender(c: Context, files: Sequence[Path]) -> list[str]:
    rate = ["--max-bitrate", f"{c.job.rate_bps // 1000}k"] if c.job.rate_bps else []
    return [
        *("udp-sender", "--nokbd", "--no-progress", "--interface", "eth0", "--full-duplex"),
        *("--mcast-rdv-address", "239.192.79.1", "--mcast-data-address", "239.192.79.2"),
        *("--min-receivers", str(c.job.receivers), "--max-wait", "30", *rate),
        *("--file", str(files[0])),
    ]


def flute_parity(block_symbols: int, loss: float) -> int:
    """Repair symbols of a block that very rarely are too few at a receiver with that loss: what is
    lost on average and five standard deviations, and two. FLUTE has no feedback, so it is told the
    loss; a block that is short nevertheless waits for the carousel's next turn."""
    return math.ceil(block_symbols * loss + 5 * math.sqrt(block_symbols * loss * (1 - loss))) + 2


def _flute(scheme: str, block: int) -> tuple[Callable[..., list[str]], Callable[..., list[str]]]:
    port = str(TCP_PORT)

    def receiver(c: Context, i: int) -> list[str]:
        return [
            c.program(f"{FLUTE}/flute-receiver"),
            *("--group", GROUP_IP, "--port", port, "--interface", receiver_ip(i), str(c.inbox(i))),
        ]

    def sender(c: Context, files: Sequence[Path]) -> list[str]:
        # Its rate counts UDP payload; a datagram of 1400 bytes of the file has 1470 on the wire.
        rate_kbps = round(_rate(c.job, FLUTE_UNLIMITED_BPS) * (1428 / 1470) / 1000)
        return [
            c.program(f"{FLUTE}/flute-sender"),
            *("--destination", GROUP_IP, "--port", port, "--bind", f"{SENDER_IP}:0"),
            *("--bitrate", str(rate_kbps), "--fec", scheme, "--symbol-length", "1400"),
            *("--source-block-length", str(block)),
            *("--parity-symbols", str(flute_parity(block, c.job.loss))),
            *("--carousel", "delay", "--carousel-secs", "0", str(files[0])),
        ]

    return receiver, sender


def _fcast(
    group: str, *more: str, sending: Sequence[str] = ()
) -> tuple[Callable[..., list[str]], Callable[..., list[str]]]:
    """`more`: options of both; `sending`: of the sender."""

    def receiver(c: Context, i: int) -> list[str]:
        return [
            c.program("fcast/fcast-recv"),
            *("--group", group, "--interface", receiver_ip(i), "--rcvbuf", str(RCVBUF_BYTES)),
            *(*more, str(c.inbox(i))),
        ]

    def sender(c: Context, files: Sequence[Path]) -> list[str]:
        # Its rate counts IP and UDP headers; Ethernet's are 14 of 1514 bytes on the wire.
        rate_bps = round(_rate(c.job, FCAST_UNLIMITED_BPS) * (1500 / 1514))
        return [
            c.program("fcast/fcast-send"),
            *("--group", group, "--interface", SENDER_IP, "--rate", str(rate_bps)),
            *("--cache", str(c.work), *more, *sending, *map(str, files)),
        ]

    return receiver, sender


# Without feedback: what eight receivers on two cores take.
FCAST_UNLIMITED_BPS: Final = 2_000_000_000
FLUTE_UNLIMITED_BPS: Final = 200_000_000
FLUTE: Final = "bench/flute/bin"
FLUTE_GROUP: Final = f"{GROUP_IP}:{TCP_PORT}"
INTEROP_BLOCK: Final = 60  # symbols
FLUTE_CRATE: Final = "flute 1.11.7 if it finds cargo 1.88 or later"


def _tcp_receiver(c: Context, i: int) -> list[str]:
    program = c.program("bench/peers/bench-tcp")
    return [program, "recv", f"server={SENDER_IP}:{TCP_PORT}", f"directory={c.inbox(i)}"]


def _tcp_sender(c: Context, _: Sequence[Path]) -> list[str]:
    program = c.program("bench/peers/bench-tcp")
    return [program, "send", f"listen={SENDER_IP}:{TCP_PORT}", f"receivers={c.job.receivers}"]


def _bare(
    *, offload: bool, window: bool, keep: bool = False
) -> tuple[Callable[..., list[str]], Callable[..., list[str]]]:
    flag = int(offload)

    def receiver(c: Context, i: int) -> list[str]:
        return [
            c.program("bench/peers/bench-bare"),
            *("recv", f"group={GROUP}", f"interface={receiver_ip(i)}", f"slot={i}"),
            *(f"receivers={c.job.receivers}", f"progress={c.work / PROGRESS}", f"gro={flag}"),
            *(f"bytes={c.job.size_bytes}", f"rcvbuf={RCVBUF_BYTES}"),
            *([f"keep={c.inbox(i) / 'kept'}"] if keep else []),
        ]

    def sender(c: Context, files: Sequence[Path]) -> list[str]:
        return [
            c.program("bench/peers/bench-bare"),
            *("send", f"group={GROUP}", f"interface={SENDER_IP}", f"file={files[0]}"),
            *(f"receivers={c.job.receivers}", f"progress={c.work / PROGRESS}", f"gso={flag}"),
            f"window={WINDOW_BYTES if window else 0}",
        ]

    return receiver, sender


WINDOW_BYTES: Final = 4_000_000  # of RCVBUF_BYTES


def _iperf3_receiver(_: Context, __: int) -> list[str]:
    return ["iperf3", "-s", "-1", "--json"]


def _iperf3_sender(c: Context, _: Sequence[Path]) -> list[str]:
    size = c.job.size_bytes
    return ["iperf3", "-c", "RECEIVER", "-u", "-b", "0", "-l", "1460", "-n", str(size), "--json"]


def _store(name: str, program: str) -> tuple[Callable[..., list[str]], Callable[..., list[str]]]:
    def command(c: Context, _: object) -> list[str]:
        return [c.program(f"bench/peers/{program}"), name, f"directory={c.work}"]

    return command, command


def _nothing(_: Context, __: object) -> list[str]:
    return []


_ALL: Final = frozenset({"blast", "shaped", "stream", "small", "receivers"})
_FILES: Final = frozenset({"blast", "shaped"})
_OURS: Final = ("fmtp/fmtp-send", "fmtp/fmtp-recv")
_CONNECTED: Final = "receivers connected"


TOOLS: Final[tuple[Tool, ...]] = (
    Tool(
        "fmtp", "fmtp-send/recv", "stdin", _OURS, _fmtp(), _ALL,
        ready=_CONNECTED, receivers_first=False, settle_s=0,
    ),
    # What protection costs: `fmtp` is the default, AES-GMAC between our own programs.
    *(
        Tool(
            f"fmtp-mac{level}", f"the same, {title}", "stdin", _OURS, _fmtp("--mac", str(level)),
            frozenset({"blast"}), ready=_CONNECTED, receivers_first=False, settle_s=0,
        )
        for level, title in ((0, "no MAC"), (1, "HMAC-SHA256"), (2, "Ed25519"))
    ),
    Tool(
        "fcast", "fcast-send/recv", "carousel", ("fcast/fcast-send", "fcast/fcast-recv"),
        _fcast(GROUP), _FILES,
    ),
    Tool(
        "fcast-plain", "the same, no digest", "carousel",
        ("fcast/fcast-send", "fcast/fcast-recv"),
        _fcast(GROUP, sending=("--digest", "none")), frozenset({"blast"}),
    ),
    Tool(
        "uftp", "UFTP", "command", ("uftp", "uftpd"), (_uftp_receiver, _uftp_sender),
        frozenset({"blast", "shaped", "stream"}), package="uftp",
    ),
    Tool(
        "udpcast", "UDPcast", "command", ("udp-sender", "udp-receiver"),
        (_udpcast_receiver, _udpcast_sender), _FILES, package="udpcast",
    ),
    Tool(
        "norm", "NORM", "stdin", ("bench/peers/bench-norm",), _norm(0),
        frozenset({"blast", "shaped", "stream"}), package="libnorm-dev",
    ),
    Tool(
        "norm-fec", "NORM, proactive FEC", "stdin", ("bench/peers/bench-norm",), _norm(4),
        frozenset({"shaped", "stream"}), package="libnorm-dev",
    ),
    *(
        Tool(name, title, "carousel", (f"{FLUTE}/flute-sender", f"{FLUTE}/flute-receiver"),
              _flute(scheme, block), frozenset({section}), package=FLUTE_CRATE)
        for name, title, scheme, block, section in (
            ("flute", "FLUTE, no code", "no-code", 64, "blast"),
            ("flute-rs", "FLUTE, Reed-Solomon", "reed-solomon", 200, "shaped"),
            ("flute-rq", "FLUTE, RaptorQ", "raptorq", 2000, "shaped"),
        )
    ),
    # Each program with the other project's, as the codes of both are.
    *(
        Tool(f"{name}-{code}", f"{title}, {code}", "carousel", needs,
             (receiver[0], sender[1]), frozenset({"interop"}), package=FLUTE_CRATE)
        for code, scheme, fec in (
            ("no-code", "no-code", ("--fec", "none")),
            ("rs", "reed-solomon", ("--fec", "rs", "--overhead", "25")),
        )
        for theirs in (_flute(scheme, INTEROP_BLOCK),)
        for ours in (
            _fcast(FLUTE_GROUP, "--protocol", "flute", "--variant", "rizzo",
                   sending=("--k", str(INTEROP_BLOCK), *fec)),
        )
        for name, title, needs, receiver, sender in (
            ("fcast-flute", "fcast-send to FLUTE",
             ("fcast/fcast-send", f"{FLUTE}/flute-receiver"), theirs, ours),
            ("flute-fcast", "FLUTE to fcast-recv",
             (f"{FLUTE}/flute-sender", "fcast/fcast-recv"), ours, theirs),
        )
    ),
    Tool(
        "tcp", "TCP to each", "stdin", ("bench/peers/bench-tcp",), (_tcp_receiver, _tcp_sender),
        frozenset({"blast", "shaped", "stream"}),
        ready=_CONNECTED, receivers_first=False, settle_s=0,
    ),
    Tool(
        "iperf3", "iperf3 UDP to each", "iperf3", ("iperf3",), (_iperf3_receiver, _iperf3_sender),
        frozenset({"blast"}), package="iperf3",
    ),
    Tool(
        "bare", "ceiling: bare datagrams", "bare", ("bench/peers/bench-bare",),
        _bare(offload=False, window=True), frozenset({"blast"}),
    ),
    Tool(
        "bare-gso", "ceiling: bare, GSO/GRO", "bare", ("bench/peers/bench-bare",),
        _bare(offload=True, window=True), frozenset({"blast"}),
    ),
    Tool(
        "bare-file", "ceiling: the same into files", "bare", ("bench/peers/bench-bare",),
        _bare(offload=True, window=True, keep=True), frozenset({"blast"}),
    ),
    Tool(
        "bare-open", "bare, GSO/GRO, no window", "bare", ("bench/peers/bench-bare",),
        _bare(offload=True, window=False), frozenset({"blast"}),
    ),
    *(
        Tool(name, title, "queue", (f"bench/peers/{program}",), _store(name, program),
              frozenset({"queue"}), package=package)
        for name, title, program, package in (
            ("pq", "product queue", "bench-queue", ""),
            ("file", "plain file, pwrite and pread", "bench-queue", ""),
            ("lmdb", "LMDB, a transaction each, no sync", "bench-lmdb", "liblmdb-dev"),
        )
    ),
    *(
        Tool(name, title, "paths", needs, (_nothing, _nothing), frozenset({"paths"}))
        for name, title, needs in (
            ("paths-fake", "switches that confirm at once", ()),
            ("paths-ovs", "Open vSwitch", ("ovs-vswitchd", "ovsdb-server")),
        )
    ),
)  # fmt: skip
BY_NAME: Final = {tool.name: tool for tool in TOOLS}


def tools_of(section: str) -> list[Tool]:
    """Return the tools that take part in a section."""
    return [tool for tool in TOOLS if section in tool.sections]
