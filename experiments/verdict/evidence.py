# SPDX-License-Identifier: Apache-2.0
"""What a verdict is based on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from common.virtual_time import Clock
from experiments.verdict.as_planned import InventorySeen
from experiments.verdict.cpu_load import Load
from experiments.verdict.elsewhere import Elsewhere
from experiments.verdict.host_lag import HostLag
from experiments.verdict.in_flight import FlightSeen
from experiments.verdict.in_parts import CutFrames
from experiments.verdict.queue_watch import Queue
from parsers.measure.carousel import CarouselData
from parsers.measure.layers import LayersData
from parsers.read.counters import Counters
from parsers.read.ldm_log import ReceiverStats, Replayed
from parsers.read.products import ContentCheck
from parsers.read.sar_log import CpuSample
from topologies.model.network import Network
from topologies.watch.link_probes import LinkProbe


def host_of(receiver: str) -> str:
    """Return the host of a receiver: "sl1", also of its subscription "sl1.NGRID"."""
    return receiver.partition(".")[0]


@dataclass(frozen=True)
class ShaperSample:
    """State of the sender's shaper (multicast class, or TBF) at one instant."""

    time_s: float
    sent_bytes: int
    backlog_bytes: int


@dataclass(frozen=True)
class BurstCount:
    """The burst losses that one receiver's rules counted, and the least and most that so many
    consecutive packets of its pattern can have (experiments/design/burst_loss.py)."""

    dropped: int
    begun: int  # bursts whose first packet arrived
    may_drop: tuple[int, int]
    may_begin: tuple[int, int]


@dataclass(frozen=True)
class Evidence:
    """All that a verdict needs about one cell."""

    protocol: str
    m: int  # receivers, of LDM7 those with multicast
    loss: float
    shaped_bps: int  # rate of the multicast class (LDM7) or of the TBF (LDM6)
    b_rcv_bytes: int
    products: int  # of the trace
    link_mismatches: Sequence[str]  # one text per value that differs when read back
    links_checked: int
    shaping_mismatches: Sequence[str]
    shaping_checked: int
    # As above, after the replay.
    links_after: tuple[Sequence[str], int]
    shaping_after: tuple[Sequence[str], int]
    start: Counters
    end: Counters
    loss_of: Mapping[str, float] = field(default_factory=dict)  # p_i; empty: `loss` for all
    f_rcv: float = 20.0
    repair: str = "unicast"
    without_multicast: int = 0  # further receivers, by LDM6 over the routed network
    varied: frozenset[str] = frozenset()  # the experiment's factors
    publisher: str = ""
    publisher_nic1: str = ""
    loss_model: str = "random"  # in force: hash, or random and why
    lossy_links: frozenset[str] = frozenset()
    behind_cut: frozenset[str] = frozenset()  # subscribers behind the link that the cell breaks
    relay_delay_ms: Mapping[str, float] = field(default_factory=dict)  # "<link>/<direction>"
    cpu: Sequence[CpuSample] = ()
    replayed: Replayed | None = None
    receivers: Mapping[str, ReceiverStats | None] = field(default_factory=dict)
    datagrams_sent: int | None = None  # what the multicast sender says about itself
    arrived: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # (arrived, dropped)
    loss_burst_packets: float = 1.0  # asked mean length of a burst of losses
    bursts: Mapping[str, BurstCount] = field(default_factory=dict)  # empty: independent losses
    congested: frozenset[str] = frozenset()  # "<node>/<interface>" that competing flows fill
    marks_asked: bool = False  # queues are to mark ECN-capable packets
    paused: str | None = None  # whose programs are stopped for a part of each second
    contents: Sequence[ContentCheck] = ()
    drained: bool = True
    drain_s: float = 0.0
    shaper: Sequence[ShaperSample] = ()
    tcp_asked: Sequence[str] = ()
    tcp_found: str = ""
    tcp_others: str = ""  # connections that use another algorithm, by host
    rtt_asked_ms: Mapping[str, float] = field(default_factory=dict)
    rtt_measured_ms: Mapping[str, float] = field(default_factory=dict)
    rtt_after_ms: Mapping[str, float] = field(default_factory=dict)  # of some or none
    probes: Mapping[str, Sequence[LinkProbe]] = field(default_factory=dict)  # before, after
    lags: Mapping[str, HostLag] = field(default_factory=dict)  # by host
    load: Load | None = None  # None in virtual time
    queues: Sequence[Queue] = ()
    sockets: Mapping[str, int] = field(default_factory=dict)  # peak bytes of UDP sockets by host
    inventory: InventorySeen | None = None  # the settings of everything, all the time
    flights: Sequence[FlightSeen] = ()  # packets in transit
    flights_unseen: int = 0  # packets of the sample that the watcher missed
    network: Network | None = None
    branches_change: bool = False  # subscribers join and leave, so a packet's receivers change
    clock: Clock = "native"
    loss_period: int = 0  # every nth datagram is lost; 0: `loss`
    carousel: CarouselData | None = None  # of protocol fcast
    disk_iops: int = 0  # writes a second that the receivers' disk accepts; 0: no limit
    layers: LayersData | None = None  # of protocol m2c
    elsewhere: Mapping[str, Elsewhere] = field(default_factory=dict)  # hosts on other machines
    # Of each receiver's first product by its latency: from creation to arrival.
    earliest_ms: Mapping[str, float] = field(default_factory=dict)
    clock_offsets_ms: Mapping[str, float] = field(default_factory=dict)  # asked, by host
    cut_frames: list[CutFrames] | None = field(default_factory=list)  # None: not counted


def parse_shaper_log(text: str) -> list[ShaperSample]:
    """Read logs/shaper.log: `epoch_s sent_bytes backlog_bytes` per line."""
    samples = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3:
            samples.append(ShaperSample(float(words[0]), int(words[1]), int(words[2])))
    return samples
