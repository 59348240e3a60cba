# SPDX-License-Identifier: Apache-2.0
"""Expand an experiment to its cells. Pure: starts nothing.

A cell is one combination of factor levels and one repeat: one network, one replay, one set of
logs. Cells that differ only in the protocol get the same seed, hence the same trace and the same
bytes, so that protocols are compared on equal input.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from experiments.design import cell_parts
from experiments.design.carousel import Carousel
from experiments.design.conditions import Conditions, handicap
from experiments.design.layers import Bottleneck, Layers, Rivals, transfer_s
from experiments.design.levels import NAMED, level_of
from experiments.design.parameters import (
    BASE_FACTORS,
    ONLY_OF,
    PARAMETER_FACTORS,
    Factors,
    Parameters,
    trace_label,
)
from experiments.design.rates import Rates, rates_of
from experiments.design.spec import SUBSCRIPTION_FACTORS, ExperimentSpec, Spec
from parsers.base.factors import Scalar
from protocols import registry

SIZE_FACTORS: Final = (
    "file_bytes",
    "b_snd",
    "b_mc",
    "b_uc",
    "b_rcv",
    "q_snd",
    "queue_i",
)  # bytes; in names of cells MB
RATE_FACTORS: Final = ("bottleneck_bps", "max_rate_bps", "sender_bps")  # in names of cells Mbit/s
LONGEST_LEVEL: Final = 48  # characters in names of cells
LETTERS: Final = {**PARAMETER_FACTORS, **SUBSCRIPTION_FACTORS}  # of factors, in names of cells
QUEUE_MARGIN_BYTES: Final = 64_000_000
QUEUE_FACTOR: Final = 1.5
SLOT_MARGIN: Final = 1000
PACKET_MEMORY_FACTOR: Final = 2  # kernel memory of a full datagram, by its size
DISK_MARGIN_BYTES: Final = 256_000_000  # logs, report, file system metadata
SETUP_S: Final = 5.0  # network, controller, programs; grows with the hosts
SETUP_PER_HOST_S: Final = 0.5
FINISH_S: Final = 8.0  # counters, digests, teardown
# For a guest, measured on one core of a 2-core virtual machine (docs/guide/virtual-time.md).
VIRTUAL_START_S: Final = 6.0
VIRTUAL_PER_HOST_S: Final = 0.6
VIRTUAL_SECOND_S: Final = 0.06
VIRTUAL_SESSION_S: Final = 0.5  # an ldmd's start and end, where subscribers come and go
LEAST_WINDOW_PACKETS: Final = 10  # RFC 6928
SEGMENT_FRAME_BYTES: Final = 1514  # of a full TCP segment, without a VLAN tag
TCP_PAYLOAD_BYTES: Final = 1448  # of a segment: MTU 1500, IPv4, TCP with time stamps
TBF_BURST_BYTES: Final = 50 * 1024  # `50kb` of tc, MPUP16 V-B


@dataclass(frozen=True)
class Feed:
    """A file-stream with a path of its own (DRFSM21 2.1.3)."""

    name: str  # LDM's feedtype
    lane: int
    r_mc_bps: int
    r_uc_bps: int
    r_vn_bps: int
    size_factor: float = 1.0  # of the trace's sizes
    label: str = ""  # in messages and names of files; empty where there is one feed
    ceil_bps: int = 0  # of each of its two queues; 0: their rates, so nothing is borrowed


@dataclass(frozen=True)
class CellSpec:
    """Everything that determines what a cell does; `to_dict` goes to the cell's process."""

    cell: str
    experiment: str
    level: str | None
    factors: Mapping[str, Scalar]  # name -> level, of the factors that the experiment varies
    topology: str
    protocol: str
    m: int
    subscribers: tuple[str, ...] | None  # None: the first m of the topology
    r_bps: int
    loss: float
    loss_model: str
    loss_burst_packets: float
    rtt_ms: float | None  # None: the topology's
    handoff_loss: float  # on the publisher's hand-off link, away from it
    background_flows: int
    guarantee: str  # of the path's rate: none, queues
    cut: str  # of the hand-off link between controller domains: none, handoff
    duration_s: float
    drain_timeout_s: float
    repeat: int
    seed: int
    f_snd: float
    f_rcv: float
    r_mc_bps: int
    r_uc_bps: int
    r_vn_bps: int
    shaped_by: str  # the sender's queues: cell, ldmd
    vlans_by: str  # the subscribers' interfaces on the path: network, ldmd
    ldm6_rate: str  # per-receiver, shared
    ldm6_bps: int  # rate of LDM6's token bucket filter
    b_mc_bytes: int
    b_uc_bytes: int
    b_rcv_bytes: int
    b_snd_bytes: int  # 0: the system's default
    q_snd_bytes: int
    n_snd: int
    q_rcv_bytes: int  # 0: the whole replay fits
    f_cwnd_factor: float
    tcp_congestion_control: tuple[str, ...]
    repair: str  # unicast, multicast
    mac_level: str
    feed: str  # LDM's feed type, of a cell with one feed
    trace: str  # the trace's name among the levels of its factor; "": no factor
    p_i: tuple[float, ...] | None  # by receiver; None: `loss` for all
    rtt_i_ms: tuple[float, ...] | None
    rate_i_bps: tuple[int, ...] | None
    without_multicast: int  # the last of the m receivers
    ldm6_from: str  # publisher, relays
    sender_bps: int  # the maximum that LDM6's bucket passes; 0: its rate
    pull_path: str  # nic1, nic2
    queue_i_bytes: int  # of the links of rate_i_bps; 0: 50 ms at their rate
    settings: Mapping[str, str]  # further ones of ldmd.conf
    loss_period: int  # every nth datagram is lost; 0: `loss`
    clock_offset_ms: float  # of receivers' programs, beyond the publisher's
    clock_offset_i_ms: tuple[float, ...] | None  # by receiver
    pause_ms: float  # of the first receiver, in each second
    carousel: Carousel
    layers: Layers
    rivals: Rivals
    bottleneck: Bottleneck
    conditions: Conditions

    @property
    def has_rivals(self) -> bool:
        """Return whether other traffic shares the links that the path crosses."""
        rivals = self.rivals
        return bool(self.background_flows or rivals.sessions or rivals.short_flows_per_min)

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """Return the feeds, each with its own path."""
        return (Feed(self.feed, 1, self.r_mc_bps, self.r_uc_bps, self.r_vn_bps),)

    @property
    def backlog_s(self) -> float | None:
        """Return how far back a first subscription requests products; None: as far as LDM does."""
        return None

    @property
    def session_count(self) -> int:
        """Return how often a subscriber joins while the cell runs."""
        return 0

    @property
    def pauses_first(self) -> bool:
        """Return whether the first receiver's programs are stopped, repeatedly or once."""
        return bool(self.pause_ms or self.conditions.first.stop_s)

    @property
    def ldmd_shapes(self) -> bool:
        """Return whether the publisher's ldmd makes the sender's queues (ldm7.nic)."""
        return self.protocol == "ldm7" and self.shaped_by == "ldmd"

    @property
    def ldmd_makes_vlans(self) -> bool:
        """Return whether each subscriber's ldmd makes its interface on the path."""
        return self.protocol == "ldm7" and self.vlans_by == "ldmd"

    @property
    def shaped_bps(self) -> int:
        """Return the rate of the sender's queue that carries the products."""
        if self.is_multicast:
            return self.r_mc_bps
        return min(self.ldm6_bps, self.sender_bps or self.ldm6_bps)

    @property
    def makes_path(self) -> bool:
        """Return whether the cell makes the path, not the publisher's ldmd: LDM6 knows nothing of
        paths, and receivers that subscribe over the path need it beforehand."""
        return self.protocol != "ldm7" or self.pull_path == "nic1"

    @property
    def is_multicast(self) -> bool:
        """Return whether the products go to the group's address, shaped as multicast."""
        return registry.get(self.protocol).multicast

    def tbf_limit_bytes(self, max_rtt_ms: float) -> int:
        """Return the limit of LDM6's token bucket filter. A rate that all share is the path's, and
        so is its queue (DRFSM21 5.1)."""
        if self.ldm6_rate == "shared":
            return self.b_mc_bytes
        return tbf_limit_bytes(self.m * self.r_bps, max_rtt_ms, self.m)

    def by_receiver(self, hosts: Sequence[str], what: str) -> dict[str, float]:
        """Return `p_i`, `rtt_i_ms`, `rate_i_bps` or `clock_offset_i_ms` by host; {} if all
        receivers have the same. `hosts`: the receivers that take part, in order."""
        own: dict[str, float] = dict(zip(hosts, getattr(self, what) or (), strict=False))
        first = self.conditions.first
        mine = {"p_i": first.loss, "rate_i_bps": first.rate_bps}
        if hosts and (value := mine.get(what)) is not None:
            others = dict.fromkeys(hosts, self.others_loss) if what == "p_i" else {}
            own = {**others, **own, hosts[0]: value}
        return own

    @property
    def others_loss(self) -> float:
        """Return the loss of receivers without their own value."""
        return float(self.factors.get("loss", self.loss))

    def b_rcv_of(self, hosts: Sequence[str]) -> dict[str, int]:
        """Return the UDP buffer of each receiver. `hosts`: those that take part, in order."""
        given = self.conditions.b_rcv_i_bytes or [self.b_rcv_bytes] * len(hosts)
        return dict(zip(hosts, given, strict=False))

    def clock_offsets_ms(self, hosts: Sequence[str]) -> dict[str, float]:
        """Return how far the clocks of receivers' programs are off, for the clocks that are."""
        own = self.by_receiver(hosts, "clock_offset_i_ms")
        offsets = {host: own.get(host, self.clock_offset_ms) for host in hosts}
        return {host: offset for host, offset in offsets.items() if offset}

    def multicast_of(self, hosts: Sequence[str]) -> list[str]:
        """Return the receivers that have multicast, of those that take part, in order."""
        return list(hosts[: len(hosts) - self.without_multicast])

    def upstreams(self, hosts: Sequence[str]) -> dict[str, str | None]:
        """Return the host that each receiver without multicast asks over LDM6; None: the
        publisher."""
        served = self.multicast_of(hosts)
        rest = hosts[len(served) :]
        if self.ldm6_from == "publisher":
            return dict.fromkeys(rest)
        return {host: served[number % len(served)] for number, host in enumerate(rest)}

    @property
    def trace_key(self) -> str:
        """Return the name of the cell's trace in the run's manifest: its seed, and its level."""
        if self.carousel.file_bytes:
            return f"{self.seed}-file{self.carousel.file_bytes}"
        return f"{self.seed}-{self.trace}" if self.trace else str(self.seed)

    @property
    def bursts(self) -> bool:
        """Return whether losses come in bursts instead of independently."""
        return self.loss > 0 and self.loss_burst_packets > 1

    def subscribing(self, hosts: Iterable[str]) -> list[str]:
        """Return which of the topology's subscribers take part."""
        return list(self.subscribers) if self.subscribers is not None else [*hosts][: self.m]

    @property
    def queue_count(self) -> int:
        """Return the number of subscribers' product queues."""
        return self.m

    def to_dict(self) -> dict[str, object]:
        """Return the cell as JSON, for its process, its manifest and its digest."""
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> CellSpec:
        """Return the cell that `to_dict` described."""
        return cls(**{**raw, **cls._tuples(raw)})

    @staticmethod
    def _tuples(raw: dict[str, Any]) -> dict[str, Any]:
        """Convert what JSON has as lists, and as an object."""
        names = (
            *("subscribers", "tcp_congestion_control", "p_i", "rtt_i_ms", "rate_i_bps"),
            "clock_offset_i_ms",
        )
        found: dict[str, Any] = {n: tuple(raw[n]) for n in names if raw[n] is not None}
        surroundings = raw.get("conditions", {})
        if (buffers := surroundings.get("b_rcv_i_bytes")) is not None:
            surroundings = {**surroundings, "b_rcv_i_bytes": tuple(buffers)}
        return {
            **found,
            "carousel": Carousel(**raw["carousel"]),
            "layers": Layers(**raw["layers"]),
            "rivals": Rivals(**raw["rivals"]),
            "bottleneck": Bottleneck(**raw["bottleneck"]),
            "conditions": Conditions(**surroundings),
        }

    def digest(self, trace_text: str) -> str:
        """Return a digest of what runs: a finished cell with this digest need not run again."""
        text = json.dumps(self.to_dict(), sort_keys=True) + trace_text
        return hashlib.sha256(text.encode()).hexdigest()


def cell_name(factors: Mapping[str, Scalar], repeat: int, repeats: int) -> str:
    """Return a name like ldm7-m8-r20-p1 (rate in Mbit/s, loss in percent). What else varies
    follows, e.g. -fsnd500-rtt10, then -n2 for the second of several repeats."""
    base = (
        f"{factors['protocol']}-m{factors['receivers']}"
        f"-r{float(factors['rate_bps']) / 1e6:.10g}-p{float(factors['loss']) * 100:.10g}"
    )
    further = [
        f"{letters}{_short(n, factors[n])}" for n, letters in LETTERS.items() if n in factors
    ]
    return "-".join([base, *further, *([f"n{repeat + 1}"] if repeats > 1 else [])])


def _short(name: str, level: Scalar) -> str:
    if isinstance(level, str):
        return _in_names(level) if name in NAMED else level.lower()
    if name in RATE_FACTORS:
        return f"{level / 1e6:.10g}"
    return f"{level / 1e6:.10g}M" if name in SIZE_FACTORS else f"{level:.10g}"


def _in_names(level: str) -> str:
    """Return how names of cells write the name of a list or settings: fit for directories, and
    different for different levels."""
    text = level.translate({ord("-"): "neg", ord("_"): None, **dict.fromkeys(map(ord, "/=+"), "-")})
    safe = re.sub(r"[^A-Za-z0-9.-]", "", text)
    if safe == text and len(safe) <= LONGEST_LEVEL:
        return safe
    return f"{safe[:LONGEST_LEVEL]}-{hashlib.sha256(level.encode()).hexdigest()[:8]}"


def levels_of(spec: ExperimentSpec) -> list[dict[str, Scalar]]:
    """Return the levels of all factors for each combination; a combination in two blocks appears
    once. A factor that only one block varies has its parameter's value in the others; one that
    only some protocols have is left out for all others."""
    varied = [n for n in PARAMETER_FACTORS if any(getattr(b, n) for b in spec.factors)]
    found: dict[str, dict[str, Scalar]] = {}
    for block in spec.factors:
        lists: dict[str, tuple[Scalar, ...]] = {
            "receivers": block.receivers,
            "rate_bps": block.rate_bps,
            "loss": block.loss,
            **{n: _levels(spec, block, n) for n in varied},
            "protocol": block.protocol,
        }
        for combination in itertools.product(*lists.values()):
            levels = dict(zip(lists, combination, strict=True))
            # A parameter may have no value, such as the topology's round trips.
            ordered = {
                n: levels[n]
                for n in (*BASE_FACTORS, *varied)
                if levels[n] is not None
                and ONLY_OF.get(n, levels["protocol"]) == levels["protocol"]
            }
            found.setdefault(cell_name(ordered, 0, 1), ordered)
    return list(found.values())


def _levels(spec: ExperimentSpec, block: Factors, name: str) -> tuple[Scalar, ...]:
    """Return the levels of a factor in a block, or the experiment's value."""
    given: tuple[object, ...] = getattr(block, name) or ()
    default = spec.trace if name == "trace" else getattr(spec.parameters, name)
    return tuple(level_of(name, value) for value in given or (default,))


def _named_values(spec: ExperimentSpec) -> dict[tuple[str, Scalar], object]:
    """Return the lists and settings that are levels, by factor and name."""
    return {
        (name, level_of(name, value)): value
        for block in spec.factors
        for name in NAMED
        for value in (*(getattr(block, name) or ()), getattr(spec.parameters, name))
        if value is not None
    }


def traces_by_label(spec: Spec) -> dict[str, str]:
    """Return the experiment's traces: `CellSpec.trace` -> what the file says."""
    given = [spec.trace]
    if isinstance(spec, ExperimentSpec):
        given += [trace for block in spec.factors for trace in block.trace or ()]
    return {"": spec.trace, **{trace_label(trace): trace for trace in given}}


@dataclass(frozen=True)
class Combination:
    """What distinguishes a cell from the others of its experiment."""

    cell: str
    factors: Mapping[str, Scalar]  # all of them, by name
    repeat: int
    m: int
    subscribers: tuple[str, ...] | None  # None: the first m of the topology

    @property
    def protocol(self) -> str:
        """Return the protocol that distributes the products."""
        return str(self.factors["protocol"])

    @property
    def r_bps(self) -> int:
        """Return the base rate r."""
        return int(self.factors["rate_bps"])


def build_cell(
    spec: Spec, level: str | None, chosen: Combination, fixed: Parameters, rates: Rates
) -> CellSpec:
    """Return the cell of a combination. `level`: the level of `spec`. `fixed`: the parameters, with
    the combination's factors in their place."""
    return CellSpec(
        cell=chosen.cell,
        experiment=spec.name,
        level=level,
        factors=chosen.factors,
        topology=spec.topology,
        protocol=chosen.protocol,
        m=chosen.m,
        subscribers=chosen.subscribers,
        r_bps=chosen.r_bps,
        loss=_mean_loss(chosen, fixed),
        loss_model=fixed.loss_model,
        loss_burst_packets=fixed.loss_burst_packets,
        rtt_ms=fixed.rtt_ms,
        handoff_loss=fixed.handoff_loss,
        background_flows=fixed.background_flows,
        guarantee=fixed.guarantee,
        cut=fixed.cut,
        duration_s=spec.duration_s,
        drain_timeout_s=spec.drain_timeout_s,
        repeat=chosen.repeat,
        seed=spec.base_seed + chosen.repeat,
        f_snd=fixed.f_snd,
        f_rcv=fixed.f_rcv,
        r_mc_bps=rates.r_mc_bps,
        r_uc_bps=rates.r_uc_bps,
        r_vn_bps=rates.r_vn_bps,
        shaped_by=fixed.shaped_by,
        vlans_by=fixed.vlans_by,
        ldm6_rate=fixed.ldm6_rate,
        ldm6_bps=rates.ldm6_bps,
        **cell_parts.buffers(fixed),
        f_cwnd_factor=fixed.f_cwnd_factor,
        tcp_congestion_control=(fixed.tcp,) if fixed.tcp else fixed.tcp_congestion_control,
        repair=fixed.repair,
        mac_level=fixed.mac_level,
        feed=fixed.feed,
        trace=str(chosen.factors.get("trace", "")),
        **cell_parts.by_receiver(fixed, chosen.m),
        without_multicast=fixed.without_multicast,
        ldm6_from=fixed.ldm6_from,
        sender_bps=fixed.sender_bps or 0,
        pull_path=fixed.pull_path,
        queue_i_bytes=fixed.queue_i or 0,
        settings={name: str(value) for name, value in fixed.set.items()},
        loss_period=fixed.loss_period,
        clock_offset_ms=fixed.clock_offset_ms,
        pause_ms=fixed.pause_ms,
        carousel=cell_parts.carousel(fixed),
        layers=cell_parts.layers(fixed),
        rivals=cell_parts.rivals(fixed),
        bottleneck=Bottleneck(fixed.bottleneck_bps or 0, fixed.bottleneck_packets),
        conditions=cell_parts.conditions(fixed, chosen.m),
    )


def _mean_loss(chosen: Combination, fixed: Parameters) -> float:
    losses = list(fixed.p_i or [float(chosen.factors["loss"])] * chosen.m)[: chosen.m]
    if (first := handicap(fixed.first_receiver).loss) is not None:
        losses[0] = first
    return losses[0] if len(set(losses)) == 1 else sum(losses) / chosen.m


def expand(spec: ExperimentSpec, level: str | None = None) -> tuple[CellSpec, ...]:
    """Return the cells in the order of the file: repeat by repeat, protocols next to each other. A
    seed depends only on the repeat, so that all levels are compared on the same trace and losses.
    `level`: the level of `spec`."""
    hosts = spec.parameters.subscribers
    named = _named_values(spec)
    cells = []
    for repeat, factors in itertools.product(range(spec.repeats), levels_of(spec)):
        m = int(factors["receivers"])
        name = cell_name(factors, repeat, spec.repeats)
        chosen = Combination(name, factors, repeat, m, hosts[:m] if hosts is not None else None)
        changed = {
            n: named.get((n, v), v) for n, v in factors.items() if n in LETTERS and n != "trace"
        }
        fixed = spec.parameters.model_copy(update=changed)
        rates = rates_of(fixed, chosen.protocol, m, chosen.r_bps)
        cells.append(build_cell(spec, level, chosen, fixed, rates))
    return tuple(cells)


def queue_bytes(trace_bytes: int, asked_bytes: int) -> int:
    """Return the size of a queue, which holds the whole replay unless `asked_bytes` (0: any) is
    less. More would only take time to reserve."""
    whole = math.ceil(QUEUE_FACTOR * trace_bytes) + QUEUE_MARGIN_BYTES
    return min(whole, asked_bytes) if asked_bytes else whole


def holds_the_replay(size_bytes: int, trace_bytes: int) -> bool:
    """Return whether all products are still in a queue of this size when the replay is over.
    Regions for products that never complete may occupy some of it for a while."""
    return size_bytes >= QUEUE_FACTOR * trace_bytes


def receiver_queue_slots(trace_products: int) -> int:
    """Return how many products a receiver's queue can hold: more than the trace has."""
    return math.ceil(QUEUE_FACTOR * trace_products) + SLOT_MARGIN


def disk_needed_bytes(cell: CellSpec, trace_bytes: int) -> int:
    """Return the space that the cell's queues reserve, and a margin."""
    # With several feeds each has its own queue: together they need as much as one queue for all.
    receivers = cell.m * (queue_bytes(trace_bytes, cell.q_rcv_bytes) - QUEUE_MARGIN_BYTES)
    queues = queue_bytes(trace_bytes, cell.q_snd_bytes) + receivers
    return queues + cell.queue_count * QUEUE_MARGIN_BYTES + DISK_MARGIN_BYTES


def queues_written_bytes(cell: CellSpec, trace_bytes: int) -> int:
    """Return the maximum written to the cell's queues and the sender's traffic control."""
    receiver = min(trace_bytes, queue_bytes(trace_bytes, cell.q_rcv_bytes))
    waiting = min(trace_bytes, cell.b_snd_bytes) * PACKET_MEMORY_FACTOR
    return min(trace_bytes, cell.q_snd_bytes) + cell.m * receiver + waiting


def seconds_estimated(cell: CellSpec) -> float:
    """Return the time that a cell takes when the replay drains at once."""
    return SETUP_S + SETUP_PER_HOST_S * (cell.m + 1) + cell.duration_s + FINISH_S


def seconds_limit(cell: CellSpec) -> float:
    """Return the time after which the cell's process is ended: longer than anything that it waits
    for."""
    return 180.0 + 10.0 * cell.m + cell.duration_s * 1.5 + cell.drain_timeout_s


def virtual_seconds_estimated(cell: CellSpec, trace_bytes: int) -> float:
    """Return the real time that a cell takes in a guest with its own core: start and end, the
    samplers of each virtual second, and the packets that reach receivers or, while a file passes a
    slow line, those that sessions send."""
    lines = (
        cell.r_bps,
        cell.bottleneck.rate_bps,
        cell.layers.max_rate_bps,
        *(cell.rate_i_bps or ()),
    )
    copies = 1 if cell.is_multicast else cell.m
    competitors = copies - 1 + cell.background_flows + cell.rivals.sessions
    most_s = cell.duration_s + cell.drain_timeout_s
    file_s = min(most_s, transfer_s(cell.carousel.file_bytes, lines, competitors))
    layers_bps = cell.r_bps * (1 + cell.rivals.sessions) if cell.is_multicast else 0
    packets = max(cell.m * trace_bytes, file_s * layers_bps / 8) / TCP_PAYLOAD_BYTES
    sessions = VIRTUAL_SESSION_S * cell.session_count
    start_end = sessions + VIRTUAL_START_S + VIRTUAL_PER_HOST_S * (cell.m + 1)
    per_packet = registry.get(cell.protocol).packet_s
    return start_end + VIRTUAL_SECOND_S * (cell.duration_s + file_s) + per_packet * packets


def virtual_seconds_limit(cell: CellSpec, trace_bytes: int) -> float:
    """Return the real time after which a cell's guest is ended: enough for a machine ten times
    slower."""
    return 300.0 + 10.0 * virtual_seconds_estimated(cell, trace_bytes)


def tbf_limit_bytes(rate_bps: int, max_rtt_ms: float, m: int) -> int:
    """Return the limit of LDM6's token bucket filter: m x 2 x r x max RTT, for a rate of m x r
    (MPUP16 V-B). It is at least two minimum windows of each receiver, since the filter drops what
    does not fit."""
    least = 2 * m * LEAST_WINDOW_PACKETS * SEGMENT_FRAME_BYTES
    return max(least, round(2 * rate_bps * max_rtt_ms / 1000 / 8))


def congestion_window_bytes(factor: float, r_uc_bps: int, max_rtt_ms: float) -> int:
    """Return f_cwnd = factor x r_uc x max RTT; Table II: factor 1.2. It is at least TCP's initial
    window: with fewer than two segments in flight, each waits for a delayed acknowledgement."""
    least = LEAST_WINDOW_PACKETS * TCP_PAYLOAD_BYTES
    return max(least, round(factor * r_uc_bps * max_rtt_ms / 1000 / 8))


def congestion_window_packets(window_bytes: int) -> int:
    """Return the window as the kernel counts it: in segments, rounded up."""
    return math.ceil(window_bytes / TCP_PAYLOAD_BYTES)
