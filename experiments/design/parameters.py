# SPDX-License-Identifier: Apache-2.0
"""An experiment's factors and parameters, by the symbols of MPUP16 Tables I and II."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from common.nearest import did_you_mean
from experiments.design import conditions, ldmd_settings
from experiments.design.feed_names import FEED_NAMES
from experiments.design.loss_model import LossModel
from protocols import registry
from topologies.model.spec import NAME_PATTERN, Loss, RateBps, SizeBytes, Text


def _known_protocol(value: object) -> object:
    """Check that the protocol comes with Downpour or an installed package."""
    try:
        valid = registry.names()
    except registry.ProtocolError as error:
        raise _wrong(str(error).partition("; valid: ")[2]) from None
    if value not in valid:
        near = did_you_mean(value, valid) if isinstance(value, str) else ""
        raise _wrong(f"{', '.join(valid)}{near}")
    return value


def _no_truth(value: object) -> object:
    if isinstance(value, bool):
        raise PydanticCustomError("experiment", "{valid}", {"valid": "a number"})
    return value


NO_TRUTH: Final = BeforeValidator(_no_truth)  # pydantic alone accepts true as 1

Protocol = Annotated[str, BeforeValidator(_known_protocol)]
MODEL: Final = "model"  # the trace that Downpour generates
PACED: Final = "paced"  # the same with a source that has a maximum rate
FEED_MODELS: Final = tuple(  # other feeds and hours: see `feed_models`
    f"{MODEL}:{name}" for name in ("conduit", "nexrad2", "nexrad3", "ngrid-2020")
)
GENERATED: Final = (MODEL, PACED, *FEED_MODELS)
MAX_RECEIVERS = 999
MAX_DURATION_S = 7 * 24 * 3600  # a week
MIN_DURATION_S = 0.001  # the resolution of times in traces
MAX_REPEATS = 1000
Fec = Literal["ldpc-triangle", "ldpc-staircase", "rs", "none"]
Order = Literal["shuffle", "rotate", "sequential"]
Storage = Literal["in-place", "memory", "receive-order", "group-area", "crowd-bucket", "crowd-pool"]
LeaveMs = Annotated[int, Field(strict=True, ge=0, le=9000)]
SlotSeconds = Annotated[float, Field(ge=0.1, le=3600, allow_inf_nan=False), NO_TRUTH]
PerMinute = Annotated[float, Field(ge=0, le=6000, allow_inf_nan=False), NO_TRUTH]
Sessions = Annotated[int, Field(strict=True, ge=0, le=1)]
Packets = Annotated[int, Field(strict=True, ge=2, le=100_000)]
Io = Literal["cached", "direct"]
Guarantee = Literal["none", "queues"]
Cut = Literal["none", "handoff"]
Cc = Literal["m2c", "webrc", "static"]
RivalTcp = Literal["cubic", "reno"]
Repair = Literal["unicast", "multicast", "blocks"]
Aqm = Literal["fifo", "codel", "fq-codel", "pie"]
Ecn = Literal["drop", "mark"]
Sack = Literal["on", "off"]
Tcp = Literal["ctcp", "cubic", "bbr", "reno"]
Monitor = Literal["off", "on"]
Clocks = Literal["any", "native", "virtual"]
Truth = Annotated[bool, Field(strict=True)]
Receivers = Annotated[int, Field(strict=True, ge=1, le=MAX_RECEIVERS)]
Factor = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False), NO_TRUTH]
Slots = Annotated[int, Field(strict=True, ge=1, le=10_000_000)]
Seconds = Annotated[float, Field(ge=5, le=MAX_DURATION_S, allow_inf_nan=False), NO_TRUTH]
Duration = Annotated[float, Field(gt=0, le=MAX_DURATION_S, allow_inf_nan=False), NO_TRUTH]
Repeats = Annotated[int, Field(strict=True, ge=1, le=MAX_REPEATS)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")]
MetricName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
HostName = Annotated[str, Field(pattern=NAME_PATTERN)]
Symbols = Annotated[int, Field(strict=True, ge=0, le=50_000)]
SymbolBytes = Annotated[int, Field(strict=True, ge=64, le=1440)]
Percent = Annotated[int, Field(strict=True, ge=0, le=700)]
GapSeconds = Annotated[float, Field(ge=0, le=MAX_DURATION_S, allow_inf_nan=False), NO_TRUTH]
Period = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
Crowd = Annotated[int, Field(strict=True, ge=1, le=4096)]
Iops = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
OffsetMs = Annotated[float, Field(ge=-10_000, le=10_000, allow_inf_nan=False), NO_TRUTH]
PauseMs = Annotated[float, Field(ge=0, le=900, allow_inf_nan=False), NO_TRUTH]
RttMs = Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False), NO_TRUTH]
BurstPackets = Annotated[float, Field(ge=1, le=10_000, allow_inf_nan=False), NO_TRUTH]
Flows = Annotated[int, Field(strict=True, ge=0, le=1000)]
AlgorithmName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,14}$")]
Without = Annotated[int, Field(strict=True, ge=0, lt=MAX_RECEIVERS)]
Ldm6From = Literal["publisher", "relays"]
PullPath = Literal["nic1", "nic2"]
WindowFactor = Annotated[float, Field(ge=1.0, le=100.0, allow_inf_nan=False), NO_TRUTH]
Headroom = Annotated[float, Field(ge=1.0, le=10.0, allow_inf_nan=False), NO_TRUTH]
Losses = Annotated[tuple[Loss, ...], Field(min_length=1)]
RoundTrips = Annotated[tuple[RttMs, ...], Field(min_length=1)]
Rates = Annotated[tuple[RateBps, ...], Field(min_length=1)]
Sizes = Annotated[tuple[SizeBytes, ...], Field(min_length=1)]
Offsets = Annotated[tuple[OffsetMs, ...], Field(min_length=1)]


def _mac_level(value: object) -> object:
    """Also accept 0, 1 and 2 as numbers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _handicap(value: object) -> object:
    """Check a condition of the first receiver."""
    try:
        conditions.handicap(str(value))
    except ValueError as error:
        raise PydanticCustomError("experiment", "{valid}", {"valid": str(error)}) from None
    return value


def _feed(value: object) -> object:
    """Check the name of an LDM feed type; return it in capitals."""
    if isinstance(value, str) and value not in FEED_NAMES:
        hint = did_you_mean(value.upper(), sorted(FEED_NAMES))
        raise _wrong(f"a feed type of LDM, e.g. NGRID, CONDUIT or EXP{hint}")
    return value


FeedName = Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9]{0,15}$"), BeforeValidator(_feed)]
FirstReceiver = Annotated[str, BeforeValidator(_handicap)]
MacLevel = Annotated[Literal["auto", "0", "1", "2"], BeforeValidator(_mac_level)]


def _lists(value: object) -> object:
    """Check a list of lists, one for each level."""
    if isinstance(value, list) and value and not any(isinstance(v, (list, tuple)) for v in value):
        raise _wrong("a list for each level, e.g. [[a, b], [c, d]]")
    return value


LISTS: Final = BeforeValidator(_lists)


def _trace(value: object) -> object:
    """Check a trace's name. A missing file shows only when the trace is read."""
    if isinstance(value, str) and value.startswith(f"{MODEL}:") and value not in GENERATED:
        raise _wrong(valid_traces(value))
    return value


TraceName = Annotated[Text, BeforeValidator(_trace)]


def valid_traces(found: str) -> str:
    """Return the valid traces, and the one that was probably meant."""
    return f"{', '.join(GENERATED)}, or the path of a file{did_you_mean(found, GENERATED)}"


def _settings(value: object) -> object:
    """Check settings of ldmd.conf by name, against the table of all."""
    if not isinstance(value, Mapping):
        raise _wrong("a mapping of settings of ldmd.conf(5), e.g. {fmtp.held_s: 60}")
    return {str(name): _setting(str(name), given) for name, given in value.items()}


def _setting(name: str, value: object) -> str:
    if name not in ldmd_settings.SETTINGS:
        hint = did_you_mean(name, ldmd_settings.FREE)
        raise _wrong(f"{', '.join(ldmd_settings.FREE)}{hint}", repr(name))
    if instead := ldmd_settings.SETTINGS[name].instead:
        raise _wrong(f"not {name}, which follows from {instead}", repr(name))
    try:
        return ldmd_settings.checked(name, value)
    except ValueError as error:
        raise _wrong(f"{name}: {error}", f"{name}: {value!r}") from None


def _wrong(valid: str, found: str | None = None) -> PydanticCustomError:
    """Return the error. `found`: what is wrong in the value; by default the whole value."""
    context = {"valid": valid} if found is None else {"valid": valid, "found": found}
    return PydanticCustomError("experiment", "{valid}", context)


Settings = Annotated[dict[str, str | int | float], BeforeValidator(_settings)]


def trace_label(trace: str) -> str:
    """Return a trace's name as a level of its factor: a file's name is its stem."""
    label = re.sub(r"[^a-z0-9-]+", "-", Path(trace).stem.lower()).strip("-")
    label = label.removeprefix("trace-")  # of a copy that a run made
    return (label if label[:1].isalpha() else f"t-{label}".rstrip("-"))[:32]


class Block(BaseModel):
    """A block of the file. Unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Factors(Block):
    """What varies; a cell runs for each combination of levels. A factor with a parameter's name
    takes that parameter's place."""

    protocol: tuple[Protocol, ...] = Field(min_length=1, description="names of protocols")
    receivers: tuple[Receivers, ...] = Field(min_length=1, description="number of receivers m")
    rate_bps: tuple[RateBps, ...] = Field(min_length=1, description="base rate r")
    loss: tuple[Loss, ...] = Field(
        min_length=1, description="share p of packets lost at every receiver"
    )
    f_snd: tuple[Factor, ...] | None = Field(default=None, min_length=1)
    f_rcv: tuple[Factor, ...] | None = Field(default=None, min_length=1)
    rtt_ms: tuple[RttMs, ...] | None = Field(default=None, min_length=1)
    loss_burst_packets: tuple[BurstPackets, ...] | None = Field(default=None, min_length=1)
    background_flows: tuple[Flows, ...] | None = Field(default=None, min_length=1)
    b_snd: tuple[SizeBytes, ...] | None = Field(default=None, min_length=1)
    r_mc: tuple[Factor, ...] | None = Field(default=None, min_length=1)
    r_uc: tuple[Factor, ...] | None = Field(default=None, min_length=1)
    b_mc: tuple[SizeBytes, ...] | None = Field(default=None, min_length=1)
    b_uc: tuple[SizeBytes, ...] | None = Field(default=None, min_length=1)
    b_rcv: tuple[SizeBytes, ...] | None = Field(default=None, min_length=1)
    f_cwnd_factor: tuple[WindowFactor, ...] | None = Field(default=None, min_length=1)
    q_snd: tuple[SizeBytes, ...] | None = Field(default=None, min_length=1)
    n_snd: tuple[Slots, ...] | None = Field(default=None, min_length=1)
    repair: tuple[Repair, ...] | None = Field(default=None, min_length=1)
    mac_level: tuple[MacLevel, ...] | None = Field(default=None, min_length=1)
    feed: tuple[FeedName, ...] | None = Field(default=None, min_length=1)
    trace: tuple[TraceName, ...] | None = Field(
        default=None,
        min_length=1,
        description="what is replayed: model, paced or a file, as the experiment's trace",
    )
    headroom: tuple[Headroom, ...] | None = Field(default=None, min_length=1)
    p_i: Annotated[tuple[Losses, ...], LISTS] | None = Field(default=None, min_length=1)
    rtt_i_ms: Annotated[tuple[RoundTrips, ...], LISTS] | None = Field(default=None, min_length=1)
    rate_i_bps: Annotated[tuple[Rates, ...], LISTS] | None = Field(default=None, min_length=1)
    queue_i: tuple[SizeBytes, ...] | None = Field(default=None, min_length=1)
    b_rcv_i: Annotated[tuple[Sizes, ...], LISTS] | None = Field(default=None, min_length=1)
    clock_offset_i_ms: Annotated[tuple[Offsets, ...], LISTS] | None = Field(
        default=None, min_length=1
    )
    set: tuple[Settings, ...] | None = Field(default=None, min_length=1)
    without_multicast: tuple[Without, ...] | None = Field(default=None, min_length=1)
    ldm6_from: tuple[Ldm6From, ...] | None = Field(default=None, min_length=1)
    sender_bps: tuple[RateBps, ...] | None = Field(default=None, min_length=1)
    pull_path: tuple[PullPath, ...] | None = Field(default=None, min_length=1)
    guarantee: tuple[Guarantee, ...] | None = Field(default=None, min_length=1)
    cut: tuple[Cut, ...] | None = Field(default=None, min_length=1)
    file_bytes: tuple[SizeBytes, ...] | None = Field(default=None, min_length=1)
    fec: tuple[Fec, ...] | None = Field(default=None, min_length=1)
    k: tuple[Symbols, ...] | None = Field(default=None, min_length=1)
    order: tuple[Order, ...] | None = Field(default=None, min_length=1)
    tune_in_s: tuple[GapSeconds, ...] | None = Field(default=None, min_length=1)
    loss_period: tuple[Period, ...] | None = Field(default=None, min_length=1)
    storage: tuple[Storage, ...] | None = Field(default=None, min_length=1)
    crowd: tuple[Crowd, ...] | None = Field(default=None, min_length=1)
    bottleneck_bps: tuple[RateBps, ...] | None = Field(default=None, min_length=1)
    cc: tuple[Cc, ...] | None = Field(default=None, min_length=1)
    leave_latency_ms: tuple[LeaveMs, ...] | None = Field(default=None, min_length=1)
    slot_s: tuple[SlotSeconds, ...] | None = Field(default=None, min_length=1)
    max_rate_bps: tuple[RateBps, ...] | None = Field(default=None, min_length=1)
    rival_sessions: tuple[Sessions, ...] | None = Field(default=None, min_length=1)
    short_flows_per_min: tuple[PerMinute, ...] | None = Field(default=None, min_length=1)
    clock_offset_ms: tuple[OffsetMs, ...] | None = Field(default=None, min_length=1)
    pause_ms: tuple[PauseMs, ...] | None = Field(default=None, min_length=1)
    handoff_loss: tuple[Loss, ...] | None = Field(default=None, min_length=1)
    first_receiver: tuple[FirstReceiver, ...] | None = Field(default=None, min_length=1)
    aqm: tuple[Aqm, ...] | None = Field(default=None, min_length=1)
    ecn: tuple[Ecn, ...] | None = Field(default=None, min_length=1)
    sack: tuple[Sack, ...] | None = Field(default=None, min_length=1)
    tcp: tuple[Tcp, ...] | None = Field(default=None, min_length=1)
    monitor: tuple[Monitor, ...] | None = Field(default=None, min_length=1)


BASE_FACTORS: Final = ("protocol", "receivers", "rate_bps", "loss")
ONLY_OF: Final = {"repair": "ldm7"}  # factors of one protocol; other protocols' cells have none
# The factors that vary a parameter, in the order of cell names, each with its letters there.
PARAMETER_FACTORS: Final = {
    "f_snd": "fsnd",
    "f_rcv": "frcv",
    "rtt_ms": "rtt",
    "loss_burst_packets": "burst",
    "background_flows": "bg",
    "b_snd": "bsnd",
    "r_mc": "rmc",
    "r_uc": "ruc",
    "b_mc": "bmc",
    "b_uc": "buc",
    "b_rcv": "brcv",
    "f_cwnd_factor": "fcwnd",
    "q_snd": "qsnd",
    "n_snd": "nsnd",
    "repair": "",
    "mac_level": "mac",
    "feed": "",
    "trace": "",
    "headroom": "head",
    "p_i": "pi",
    "rtt_i_ms": "rtti",
    "rate_i_bps": "ratei",
    "queue_i": "qi",
    "b_rcv_i": "brcvi",
    "clock_offset_i_ms": "offi",
    "set": "set-",
    "without_multicast": "u",
    "ldm6_from": "",
    "sender_bps": "cap",
    "pull_path": "",
    "guarantee": "g",
    "cut": "cut",
    "file_bytes": "file",
    "fec": "",
    "k": "k",
    "order": "",
    "tune_in_s": "tune",
    "loss_period": "every",
    "storage": "",
    "crowd": "b",
    "bottleneck_bps": "line",
    "cc": "",
    "leave_latency_ms": "leave",
    "slot_s": "slot",
    "max_rate_bps": "most",
    "rival_sessions": "rival",
    "short_flows_per_min": "short",
    "clock_offset_ms": "off",
    "pause_ms": "pause",
    "handoff_loss": "shared",
    "first_receiver": "first-",
    "aqm": "",
    "ecn": "",
    "sack": "sack-",
    "tcp": "",
    "monitor": "monitor-",
}


class Parameters(Block):
    """What stays fixed, by the symbols of MPUP16 Tables I and II."""

    f_snd: Factor = Field(description="timeout factor of FMTP's sender, equation (1)")
    f_rcv: Factor = Field(description="timeout factor of FMTP's receiver, equation (2)")
    r_mc: Factor = Field(1.0, description="the sender's multicast rate, as a multiple of r")
    r_uc: Factor = Field(1.0, description="the sender's unicast rate, as a multiple of r")
    b_mc: SizeBytes = Field(description="the sender's traffic-control buffer for multicast")
    b_uc: SizeBytes = Field(description="the sender's traffic-control buffer for unicast")
    b_rcv: SizeBytes = Field(description="the receivers' UDP buffer")
    b_snd: SizeBytes | None = Field(
        None,
        description="the sender's UDP buffer for multicast. By default the system's, so that "
        "products wait in the file queue; as large as b_mc, they wait in traffic "
        "control, as in the papers, while tau_snd runs",
    )
    q_snd: SizeBytes = Field(description="the sender's file queue in bytes")
    n_snd: Slots = Field(description="the sender's file queue in files")
    q_rcv: SizeBytes | None = Field(
        None, description="the receivers' file queue; by default the whole replay fits"
    )
    f_cwnd_factor: WindowFactor = Field(
        1.2,
        description="the sender's CTCP window: f_cwnd_factor x r_uc x max RTT_i",
    )
    headroom: Headroom = Field(
        1.2,
        description="r_vn = headroom x (r_mc + r_uc) for LDM7, headroom x m x r for LDM6; Table"
        " II requires at least 1",
    )
    loss_model: LossModel = Field(
        "hash",
        description="hash: seed, receiver and packet decide which packets are lost; random: the"
        " kernel draws them",
    )
    tcp_congestion_control: tuple[AlgorithmName, ...] = Field(
        ("ctcp", "bbr"),
        min_length=1,
        description="the first one that the kernel has is used; ctcp: the papers' CTCP with a "
        "fixed window",
    )
    rtt_ms: RttMs | None = Field(
        None,
        description="one round-trip time for all receivers, half in each direction; by default "
        "the topology's",
    )
    handoff_loss: Loss = Field(
        0.0,
        description="loss on the publisher's hand-off link, before the tree branches: all "
        "receivers miss the same frames (DRFSM21 5.2)",
    )
    loss_burst_packets: BurstPackets = Field(
        1.0,
        description="mean length of a burst of losses; 1: independent losses, above: Gilbert-"
        "Elliott with the same mean loss",
    )
    background_flows: Flows = Field(
        0,
        description="competing TCP flows (iperf3) over the same links, on a path without a "
        "guarantee; the topology needs a parameter `lanes`",
    )
    background_tcp: RivalTcp = Field(
        "cubic", description="congestion control of the competing flows"
    )
    rival_sessions: Sessions = Field(
        0,
        description="competing endless sessions of m2c over the same links",
    )
    short_flows_per_min: PerMinute = Field(
        0.0,
        description="competing short TCP connections: 3.2 kB on average (exponential), arriving"
        " as a Poisson process (M2C10 7.4)",
    )
    bottleneck_bps: RateBps | None = Field(
        None,
        description="rate of the topology's limited core links, instead of its own; then no "
        "path reserves capacity",
    )
    bottleneck_packets: Packets = Field(
        25, description="queue of these links, in full frames (M2C10 7.1)"
    )
    guarantee: Guarantee = Field(
        "none",
        description="queues: each path has its own queue at switch ports whose link has a rate "
        "(docs/reference/path-service.md); none: one queue for all",
    )
    cut: Cut = Field(
        "none",
        description="handoff: the hand-off link to the next controller domain breaks after half"
        " of the trace, and is restored when all products have arrived",
    )
    shaped_by: Literal["cell", "ldmd"] = Field(
        "cell",
        description="ldm7: who sets up the sender's two queues: the cell, or the publisher's"
        " ldmd at its start (DRFSM21 2.2.3), with the same rate and buffer for both",
    )
    vlans_by: Literal["network", "ldmd"] = Field(
        "network",
        description="ldm7: who makes the subscribers' interfaces on the path: the network, or each"
        " subscriber's ldmd when it subscribes (DRFSM21 2.2.2)",
    )
    ldm6_rate: Literal["per-receiver", "shared"] = Field(
        "per-receiver",
        description="rate of LDM6's token bucket; per-receiver: m x r (MPUP16 V-B), shared: r "
        "for all receivers (DRFSM21 5.4)",
    )
    subscribers: tuple[HostName, ...] | None = Field(
        None,
        min_length=1,
        description="hosts of the topology, of which the first m subscribe; by default all of "
        "the topology's, in its order",
    )
    repair: Repair = Field(
        "unicast",
        description="how FMTP repairs; unicast: by TCP, as in the papers; multicast: with FEC; "
        "blocks: multicast of the lost blocks, without FEC",
    )
    mac_level: MacLevel = Field(
        "0", description="what authenticates datagrams; 0: nothing, as in the papers"
    )
    feed: FeedName = Field("NGRID", description="LDM's feed type of the products")
    p_i: Losses | None = Field(
        None,
        min_length=1,
        description="loss of each receiver, in the order of the subscribers; needs loss: [0]",
    )
    rtt_i_ms: RoundTrips | None = Field(None, min_length=1, description="rtt_ms of each receiver")
    rate_i_bps: Rates | None = Field(
        None,
        min_length=1,
        description="rate of the link to each receiver's NIC1",
    )
    queue_i: SizeBytes | None = Field(
        None,
        description="buffer of each link that rate_i_bps limits; by default 50 ms at its rate",
    )
    without_multicast: Without = Field(
        0,
        description="how many receivers, counted from the last, have no multicast and use LDM6 "
        "over the routed network (MPUP16 I)",
    )
    ldm6_from: Ldm6From = Field(
        "publisher",
        description="where receivers without multicast ask: at the publisher, or in turn at the"
        " receivers with multicast, which relay (DRFSM21 4)",
    )
    sender_bps: RateBps | None = Field(
        None,
        description="ldm6: upper limit of its token bucket (MPUP16 Fig. 4a)",
    )
    pull_path: PullPath = Field(
        "nic2",
        description="ldm7: the NIC for subscriptions and pulls; nic1: in the queue of FMTP's"
        " repairs, as in the scripts of MPUP16",
    )
    file_bytes: SizeBytes | None = Field(
        None, description="one file of this size instead of the trace; fcast and m2c need it"
    )
    fec: Fec = Field(
        "ldpc-triangle",
        description="fcast and m2c: the erasure code; m2c has ldpc-triangle and none",
    )
    k: Symbols = Field(0, description="fcast: source symbols per block at most; 0: its default")
    order: Order = Field("shuffle", description="fcast: order of the blocks in a round")
    symbol_bytes: SymbolBytes = Field(1400, description="fcast: bytes of data in a datagram")
    overhead_percent: Percent = Field(
        0,
        description="fcast: repair symbols for 100 source symbols; 0 means 50, or with rs as"
        " many as fit in blocks of 255",
    )
    tune_in_s: GapSeconds = Field(
        0.0,
        description="fcast: mean time between receivers that tune in (Poisson); 0: all "
        "listen before the first symbol",
    )
    loss_period: Period = Field(
        0,
        description="each receiver loses every nth datagram; needs loss: [0]",
    )
    storage: Storage = Field(
        "in-place",
        description="fcast: where a receiver keeps symbols; the schemes of MSR-TR-99-14 need"
        " fec rs, and crowd-bucket needs order sequential",
    )
    crowd: Crowd = Field(
        4, description="fcast: blocks that the schemes of MSR-TR-99-14 write at once"
    )
    io: Io = Field("cached", description="fcast: whether receivers write through the page cache")
    disk_iops: Iops = Field(
        0,
        description="fcast: writes per second of the receivers' disk, native clock only; 0: "
        "no limit",
    )
    cc: Cc = Field(
        "m2c",
        description="m2c: congestion control; m2c: our reading of M2C10, webrc: RFC 3738, "
        "static: layers with a fixed rate",
    )
    leave_latency_ms: LeaveMs = Field(
        0,
        description="m2c: how long a group still arrives after a receiver left it, as behind"
        " routers",
    )
    slot_s: SlotSeconds = Field(10.0, description="m2c: TSD, length of a time slot in seconds")
    quiescence_s: SlotSeconds = Field(
        300.0, description="m2c: QD, the shortest rest of a channel, in seconds"
    )
    max_rate_bps: RateBps | None = Field(
        None, description="m2c: limit of each receiver's rate; by default what is sent"
    )
    clock_offset_ms: OffsetMs = Field(
        0.0,
        description="how far the receivers' clocks are ahead of the publisher's (DRFSM21 eq. 7)",
    )
    clock_offset_i_ms: Offsets | None = Field(
        None, min_length=1, description="clock_offset_ms of each receiver"
    )
    pause_ms: PauseMs = Field(
        0.0,
        description="how long the first receiver's ldmd pauses in each second of the replay "
        "(DRFSM21 2.1); what does not fit its UDP buffer b_rcv meanwhile is lost",
    )
    first_receiver: FirstReceiver = Field(
        "as-others", description=f"what only the first receiver has: {conditions.VALID}"
    )
    aqm: Aqm = Field(
        "fifo", description="how links with a rate manage their queues; fifo: not at all"
    )
    ecn: Ecn = Field(
        "drop",
        description="mark: TCP negotiates ECN, and managed queues mark packets instead of "
        "dropping them",
    )
    sack: Sack = Field(
        "on", description="off: TCP without selective acknowledgements (MPUP16 Fig. 6a)"
    )
    tcp: Tcp | None = Field(
        None, description="the only congestion control, instead of tcp_congestion_control"
    )
    monitor: Monitor = Field(
        "off", description="on: record what ldmd counts, and send minute records to a monitor"
    )
    b_rcv_i: Sizes | None = Field(None, min_length=1, description="b_rcv of each receiver")
    set: Settings = Field({}, description="further settings of ldmd.conf(5), at every host")
