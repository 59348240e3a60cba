# SPDX-License-Identifier: Apache-2.0
"""The tools of each section: protocols (`protocols/`), ceilings, queues, paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from bench.jobs import Job
from bench.network import SENDER_IP, receiver_ip
from protocols import aeron, fcast, flute, fmtp, norm, quic, tcp, udpcast, uftp
from protocols.adapter import Adapter, Receive, Send, Setup, Station
from protocols.adapter import missing as missing_programs

GROUP_IP: Final = "239.192.77.1"
PORT: Final = 38800
INTERFACE: Final = "eth0"
PROGRESS: Final = "progress"
# An adapter feeds a protocol; ceilings keep nothing; queue has no network, and paths no file.
Kind = Literal["protocol", "bare", "iperf3", "queue", "paths"]


@dataclass(frozen=True)
class Tool:
    """One or more programs behind an adapter, and the sections that they take part in."""

    adapter: Adapter
    sections: frozenset[str]
    kind: Kind = "protocol"

    @property
    def name(self) -> str:
        """Return its name for --tools."""
        return self.adapter.name

    @property
    def title(self) -> str:
        """Return its name in tables."""
        return self.adapter.title


def setup_of(job: Job, build: Path, work: Path) -> Setup:
    """Return the settings for a job's tool."""
    return Setup(
        build=build,
        work=work,
        sender=Station(SENDER_IP, INTERFACE),
        receivers=tuple(Station(receiver_ip(i), INTERFACE) for i in range(job.receivers)),
        group=GROUP_IP,
        port=PORT,
        rate_bps=job.rate_bps,
        loss=job.loss,
        delay_ms=job.delay_ms,
        rcvbuf_bytes=RCVBUF_BYTES,
        all_to_all=True,
        file_bytes=job.size_bytes if job.kind == "file" else 0,
    )


def missing(tool: Tool, build: Path) -> list[str]:
    """Return the programs that it needs and this machine lacks."""
    return missing_programs(tool.adapter.needs, build)


RCVBUF_BYTES: Final = 32_000_000
WINDOW_BYTES: Final = 4_000_000  # of RCVBUF_BYTES
INTEROP_BLOCK: Final = 60  # symbols
_BARE: Final = "bench/peers/bench-bare"


def _bare(
    name: str, title: str, *, offload: bool = True, window: bool = True, keep: bool = False
) -> Tool:
    flag = int(offload)

    def receiver(s: Setup, i: int) -> list[str]:
        return [
            s.program(_BARE),
            *("recv", f"group={s.group_port}", f"interface={s.receivers[i].address}", f"slot={i}"),
            *(f"receivers={len(s.receivers)}", f"progress={s.work / PROGRESS}", f"gro={flag}"),
            *(f"bytes={s.file_bytes}", f"rcvbuf={s.rcvbuf_bytes}"),
            *([f"keep={s.inbox(i) / 'kept'}"] if keep else []),
        ]

    def sender(s: Setup, files: Sequence[Path]) -> list[str]:
        return [
            s.program(_BARE),
            *("send", f"group={s.group_port}", f"interface={s.sender.address}", f"file={files[0]}"),
            *(f"receivers={len(s.receivers)}", f"progress={s.work / PROGRESS}", f"gso={flag}"),
            f"window={WINDOW_BYTES if window else 0}",
        ]

    adapter = Adapter(
        name=name, title=title, feed="carousel", needs=(_BARE,), receiver=receiver, sender=sender
    )
    return Tool(adapter, _BLAST, "bare")


def _iperf3_receiver(_: Setup, __: int) -> list[str]:
    return ["iperf3", "-s", "-1", "--json"]


def _iperf3_sender(s: Setup, _: Sequence[Path]) -> list[str]:
    size = str(s.file_bytes)
    return ["iperf3", "-c", "RECEIVER", "-u", "-b", "0", "-l", "1460", "-n", size, "--json"]


def _store(name: str, title: str, program: str, package: str = "") -> Tool:
    path = f"bench/peers/{program}"

    def command(s: Setup, _: Sequence[Path]) -> list[str]:
        return [s.program(path), name, f"directory={s.work}"]

    adapter = Adapter(
        name=name, title=title, feed="carousel", needs=(path,), sender=command, package=package
    )
    return Tool(adapter, frozenset({"queue"}), "queue")


def _paths(name: str, title: str, *needs: str) -> Tool:
    adapter = Adapter(name=name, title=title, feed="carousel", needs=needs)
    return Tool(adapter, frozenset({"paths"}), "paths")


_ALL: Final = frozenset({"blast", "shaped", "stream", "small", "receivers"})
_FILES: Final = frozenset({"blast", "shaped"})
_STREAMS: Final = frozenset({"blast", "shaped", "stream"})
_BLAST: Final = frozenset({"blast"})


def _interop(code: str, scheme: flute.Scheme, *fec: str) -> list[Tool]:
    """Return each program paired with the other project's, for the codes that both have."""
    theirs = flute.commands(scheme, INTEROP_BLOCK)
    options = ("--protocol", "flute", "--variant", "rizzo")
    ours = fcast.commands(*options, sending=("--k", str(INTEROP_BLOCK), *fec))

    def pair(name: str, title: str, needs: tuple[str, ...], both: tuple[Receive, Send]) -> Tool:
        adapter = Adapter(
            name=f"{name}-{code}",
            title=f"{title}, {code}",
            feed="carousel",
            needs=needs,
            receiver=both[0],
            sender=both[1],
            package=flute.CRATE,
        )
        return Tool(adapter, frozenset({"interop"}))

    send, receive = fcast.FCAST.needs
    return [
        pair("fcast-flute", "fcast-send to FLUTE", (send, flute.RECEIVER), (theirs[0], ours[1])),
        pair("flute-fcast", "FLUTE to fcast-recv", (flute.SENDER, receive), (ours[0], theirs[1])),
    ]


def _mac(level: int, title: str) -> Tool:
    """Return tools that show the cost of protection. `fmtp` is the default, AES-GMAC between this
    project's own programs."""
    adapter = fmtp.variant(
        f"fmtp-mac{level}", f"the same, {title}", fmtp.FMTP.repairs, "--mac", str(level)
    )
    return Tool(adapter, _BLAST)


TOOLS: Final[tuple[Tool, ...]] = (
    Tool(fmtp.FMTP, _ALL),
    _mac(0, "no MAC"),
    _mac(1, "HMAC-SHA256"),
    _mac(2, "Ed25519"),
    Tool(fcast.FCAST, _FILES),
    Tool(fcast.variant("fcast-plain", "the same, no digest", "--digest", "none"), _BLAST),
    Tool(uftp.UFTP, _STREAMS),
    Tool(udpcast.UDPCAST, _FILES),
    Tool(norm.NORM, _STREAMS),
    Tool(norm.FEC, frozenset({"shaped", "stream"})),
    Tool(flute.NO_CODE, _BLAST),
    Tool(flute.RS, frozenset({"shaped"})),
    Tool(flute.RQ, frozenset({"shaped"})),
    *_interop("no-code", "no-code", "--fec", "none"),
    *_interop("rs", "reed-solomon", "--fec", "rs", "--overhead", "25"),
    Tool(aeron.AERON, _STREAMS),
    Tool(tcp.TCP, _STREAMS),
    Tool(quic.QUIC, _STREAMS),
    Tool(
        Adapter(
            name="iperf3",
            title="iperf3 UDP to each",
            feed="carousel",
            needs=("iperf3",),
            receiver=_iperf3_receiver,
            sender=_iperf3_sender,
            package="iperf3",
        ),
        _BLAST,
        "iperf3",
    ),
    _bare("bare", "ceiling: bare datagrams", offload=False),
    _bare("bare-gso", "ceiling: bare, GSO/GRO"),
    _bare("bare-file", "ceiling: the same into files", keep=True),
    _bare("bare-open", "bare, GSO/GRO, no window", window=False),
    _store("pq", "product queue", "bench-queue"),
    _store("file", "plain file, pwrite and pread", "bench-queue"),
    _store("lmdb", "LMDB, a transaction each, no sync", "bench-lmdb", "liblmdb-dev"),
    _paths("paths-fake", "switches that confirm at once"),
    _paths("paths-ovs", "Open vSwitch", "ovs-vswitchd", "ovsdb-server"),
)
BY_NAME: Final = {tool.name: tool for tool in TOOLS}


def tools_of(section: str) -> list[Tool]:
    """Return the tools that take part in a section."""
    return [tool for tool in TOOLS if section in tool.sections]
