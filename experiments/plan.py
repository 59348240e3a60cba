# SPDX-License-Identifier: Apache-2.0
"""From an experiment to its cells: pure, nothing is started here.

A cell is one combination of factor levels and one repeat: one network, one replay, one set of
logs. Cells that differ only in the protocol get the same seed, hence the same trace and the same
bytes, so that protocols are compared on equal input.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Final

from experiments.spec import ExperimentSpec

FEED: Final = "NGRID"  # of the papers' experiments
QUEUE_MARGIN_BYTES: Final = 64_000_000
QUEUE_FACTOR: Final = 1.5
SLOT_MARGIN: Final = 1000
PACKET_MEMORY_FACTOR: Final = 2  # kernel memory of a full datagram, by its size
DISK_MARGIN_BYTES: Final = 256_000_000  # logs, report, file system metadata
SETUP_S: Final = 5.0  # network, controller, programs; grows with the hosts
SETUP_PER_HOST_S: Final = 0.5
FINISH_S: Final = 8.0  # counters, digests, teardown
# Of a guest, measured on one core of a 2-core virtual machine (docs/virtual-time.md).
VIRTUAL_START_S: Final = 6.0
VIRTUAL_PER_HOST_S: Final = 0.6
VIRTUAL_SECOND_S: Final = 0.06
VIRTUAL_SESSION_S: Final = 0.5  # an ldmd's start and end, where subscribers come and go
VIRTUAL_PACKET_S: Final = {"ldm7": 32e-6, "ldm6": 17e-6}
TCP_PAYLOAD_BYTES: Final = 1448  # of a segment: MTU 1500, IPv4, TCP with time stamps
TBF_BURST_BYTES: Final = 50 * 1024  # `50kb` of tc, mpup-ldm7.txt V-B


@dataclass(frozen=True)
class Feed:
    """A file-stream with a path of its own (drfsm.txt 2.1.3)."""

    name: str  # LDM's feedtype
    lane: int
    r_mc_bps: int
    r_uc_bps: int
    r_vn_bps: int
    size_factor: float = 1.0  # of the trace's sizes
    label: str = ""  # in messages and names of files; empty where there is one feed


@dataclass(frozen=True)
class CellSpec:
    """Everything that decides what a cell does; `to_dict` goes to the cell's process."""

    cell: str
    experiment: str
    topology: str
    protocol: str
    m: int
    r_bps: int
    loss: float
    loss_model: str
    duration_s: float
    drain_timeout_s: float
    repeat: int
    seed: int
    f_snd: float
    f_rcv: float
    r_mc_bps: int
    r_uc_bps: int
    r_vn_bps: int
    b_mc_bytes: int
    b_uc_bytes: int
    b_rcv_bytes: int
    b_snd_bytes: int  # 0: the system's default
    q_snd_bytes: int
    n_snd: int
    q_rcv_bytes: int  # 0: the whole replay fits
    f_cwnd_factor: float
    tcp_congestion_control: tuple[str, ...]

    @property
    def feeds(self) -> tuple[Feed, ...]:
        return (Feed(FEED, 1, self.r_mc_bps, self.r_uc_bps, self.r_vn_bps),)

    @property
    def backlog_s(self) -> float | None:
        """How far back a first subscription asks for products; None: as far as LDM does."""
        return None

    @property
    def session_count(self) -> int:
        """How often a subscriber joins while the cell runs."""
        return 0

    @property
    def queue_count(self) -> int:
        """Product queues of subscribers."""
        return self.m

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> CellSpec:
        return cls(**{**raw, "tcp_congestion_control": tuple(raw["tcp_congestion_control"])})

    def digest(self, trace_text: str) -> str:
        """Identifies what is run: a finished cell with the same digest need not run again."""
        text = json.dumps(self.to_dict(), sort_keys=True) + trace_text
        return hashlib.sha256(text.encode()).hexdigest()


def cell_name(protocol: str, m: int, r_bps: int, loss: float, repeat: int, repeats: int) -> str:
    """ldm7-m8-r20-p1: rate in Mbit/s, loss in percent; -n2 for the second of several repeats."""
    name = f"{protocol}-m{m}-r{r_bps / 1e6:g}-p{loss * 100:g}"
    return f"{name}-n{repeat + 1}" if repeats > 1 else name


def expand(spec: ExperimentSpec) -> tuple[CellSpec, ...]:
    """The cells in running order: repeat by repeat, protocols next to each other."""
    factors, fixed = spec.factors, spec.parameters
    cells = []
    for repeat, m, r_bps, loss, protocol in itertools.product(
        range(spec.repeats), factors.receivers, factors.rate_bps, factors.loss, factors.protocol
    ):
        r_mc = round(fixed.r_mc * r_bps)
        r_uc = round(fixed.r_uc * r_bps)
        # Table II: r_vn >= r_mc + r_uc (LDM7), >= m x r (LDM6). The headroom keeps the path's
        # meter, which counts VLAN tags too, from dropping what the sender's tc lets pass.
        needed = r_mc + r_uc if protocol == "ldm7" else m * r_bps
        cells.append(
            CellSpec(
                cell=cell_name(protocol, m, r_bps, loss, repeat, spec.repeats),
                experiment=spec.name,
                topology=spec.topology,
                protocol=protocol,
                m=m,
                r_bps=r_bps,
                loss=loss,
                loss_model=fixed.loss_model,
                duration_s=spec.duration_s,
                drain_timeout_s=spec.drain_timeout_s,
                repeat=repeat,
                seed=spec.base_seed + repeat,
                f_snd=fixed.f_snd,
                f_rcv=fixed.f_rcv,
                r_mc_bps=r_mc,
                r_uc_bps=r_uc,
                r_vn_bps=round(fixed.headroom * needed),
                b_mc_bytes=fixed.b_mc,
                b_uc_bytes=fixed.b_uc,
                b_rcv_bytes=fixed.b_rcv,
                b_snd_bytes=fixed.b_snd or 0,
                q_snd_bytes=fixed.q_snd,
                n_snd=fixed.n_snd,
                q_rcv_bytes=fixed.q_rcv or 0,
                f_cwnd_factor=fixed.f_cwnd_factor,
                tcp_congestion_control=fixed.tcp_congestion_control,
            )
        )
    return tuple(cells)


def receiver_queue_bytes(trace_bytes: int, q_rcv_bytes: int = 0) -> int:
    """A receiver's queue: it holds the whole replay, unless `q_rcv_bytes` is less."""
    whole = math.ceil(QUEUE_FACTOR * trace_bytes) + QUEUE_MARGIN_BYTES
    return min(whole, q_rcv_bytes) if q_rcv_bytes else whole


def holds_the_replay(queue_bytes: int, trace_bytes: int) -> bool:
    """All products are still in a queue of this size when the replay is over. Regions of products
    that do not come may take some of it for a while."""
    return queue_bytes >= QUEUE_FACTOR * trace_bytes


def receiver_queue_slots(trace_products: int) -> int:
    return math.ceil(QUEUE_FACTOR * trace_products) + SLOT_MARGIN


def disk_needed_bytes(cell: CellSpec, trace_bytes: int) -> int:
    """Space the cell's queues reserve, and a margin."""
    # Of several feeds each queue holds its own: together as much as one that holds all.
    receivers = cell.m * (receiver_queue_bytes(trace_bytes, cell.q_rcv_bytes) - QUEUE_MARGIN_BYTES)
    return cell.q_snd_bytes + receivers + cell.queue_count * QUEUE_MARGIN_BYTES + DISK_MARGIN_BYTES


def queues_written_bytes(cell: CellSpec, trace_bytes: int) -> int:
    """What is written to the cell's queues, and to the sender's traffic control, at most."""
    receiver = min(trace_bytes, receiver_queue_bytes(trace_bytes, cell.q_rcv_bytes))
    waiting = min(trace_bytes, cell.b_snd_bytes) * PACKET_MEMORY_FACTOR
    return min(trace_bytes, cell.q_snd_bytes) + cell.m * receiver + waiting


def seconds_estimated(cell: CellSpec) -> float:
    """Time a cell takes when the replay drains at once."""
    return SETUP_S + SETUP_PER_HOST_S * (cell.m + 1) + cell.duration_s + FINISH_S


def seconds_limit(cell: CellSpec) -> float:
    """After this the cell's process is ended: nothing it waits for takes longer."""
    return 180.0 + 10.0 * cell.m + cell.duration_s * 1.5 + cell.drain_timeout_s


def virtual_seconds_estimated(cell: CellSpec, trace_bytes: int) -> float:
    """Real time a cell takes in a guest with a core of its own: start and end, the samplers of each
    virtual second, and the packets that reach receivers."""
    packets = cell.m * trace_bytes / TCP_PAYLOAD_BYTES
    sessions = VIRTUAL_SESSION_S * cell.session_count
    start_end = sessions + VIRTUAL_START_S + VIRTUAL_PER_HOST_S * (cell.m + 1)
    per_packet = VIRTUAL_PACKET_S[cell.protocol]
    return start_end + VIRTUAL_SECOND_S * cell.duration_s + per_packet * packets


def virtual_seconds_limit(cell: CellSpec, trace_bytes: int) -> float:
    """After this real time a cell's guest is ended: a machine of a tenth of the speed does it."""
    return 300.0 + 10.0 * virtual_seconds_estimated(cell, trace_bytes)


def tbf_limit_bytes(m: int, r_bps: int, max_rtt_ms: float) -> int:
    """Limit of LDM6's token bucket filter: m x 2 x r x max RTT (mpup-ldm7.txt V-B)."""
    return round(m * 2 * r_bps * max_rtt_ms / 1000 / 8)


def congestion_window_bytes(factor: float, r_uc_bps: int, max_rtt_ms: float) -> int:
    """f_cwnd = factor x r_uc x max RTT; Table II: factor 1.2."""
    return round(factor * r_uc_bps * max_rtt_ms / 1000 / 8)


def congestion_window_packets(window_bytes: int) -> int:
    """The window as the kernel counts it: in segments, rounded up."""
    return math.ceil(window_bytes / TCP_PAYLOAD_BYTES)
