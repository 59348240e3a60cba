# SPDX-License-Identifier: Apache-2.0
"""The parts of a cell that follow from its parameters alone."""

from __future__ import annotations

from typing import TypedDict

from experiments.design.carousel import Carousel
from experiments.design.conditions import Conditions
from experiments.design.layers import Layers, Rivals
from experiments.design.parameters import Parameters


class Buffers(TypedDict):
    """Sizes of queues and socket buffers, in bytes and products."""

    b_mc_bytes: int
    b_uc_bytes: int
    b_rcv_bytes: int
    b_snd_bytes: int
    q_snd_bytes: int
    n_snd: int
    q_rcv_bytes: int


def buffers(fixed: Parameters) -> Buffers:
    """Return the sizes of queues and socket buffers."""
    return {
        "b_mc_bytes": fixed.b_mc,
        "b_uc_bytes": fixed.b_uc,
        "b_rcv_bytes": fixed.b_rcv,
        "b_snd_bytes": fixed.b_snd or 0,
        "q_snd_bytes": fixed.q_snd,
        "n_snd": fixed.n_snd,
        "q_rcv_bytes": fixed.q_rcv or 0,
    }


class ByReceiver(TypedDict):
    """Lists with a value for each receiver."""

    p_i: tuple[float, ...] | None
    rtt_i_ms: tuple[float, ...] | None
    rate_i_bps: tuple[int, ...] | None
    clock_offset_i_ms: tuple[float, ...] | None


def by_receiver(fixed: Parameters, m: int) -> ByReceiver:
    """Return what parameters say about each of the first m receivers."""
    return {
        "p_i": fixed.p_i and fixed.p_i[:m],
        "rtt_i_ms": fixed.rtt_i_ms and fixed.rtt_i_ms[:m],
        "rate_i_bps": fixed.rate_i_bps and fixed.rate_i_bps[:m],
        "clock_offset_i_ms": fixed.clock_offset_i_ms and fixed.clock_offset_i_ms[:m],
    }


def conditions(fixed: Parameters, m: int) -> Conditions:
    """Return the queues, the first receiver and the monitor."""
    return Conditions(
        aqm=fixed.aqm,
        ecn=fixed.ecn,
        sack=fixed.sack,
        tcp=fixed.tcp or "",
        first_receiver=fixed.first_receiver,
        b_rcv_i_bytes=fixed.b_rcv_i and fixed.b_rcv_i[:m],
        monitor=fixed.monitor,
    )


def layers(fixed: Parameters) -> Layers:
    """Return the settings of layered multicast."""
    return Layers(
        cc=fixed.cc,
        leave_latency_ms=fixed.leave_latency_ms,
        slot_s=fixed.slot_s,
        quiescence_s=fixed.quiescence_s,
        max_rate_bps=fixed.max_rate_bps or 0,
    )


def rivals(fixed: Parameters) -> Rivals:
    """Return the competitors."""
    return Rivals(fixed.background_tcp, fixed.rival_sessions, fixed.short_flows_per_min)


def carousel(fixed: Parameters) -> Carousel:
    """Return the settings of a carousel."""
    return Carousel(
        file_bytes=fixed.file_bytes or 0,
        fec=fixed.fec,
        k=fixed.k,
        order=fixed.order,
        symbol_bytes=fixed.symbol_bytes,
        overhead_percent=fixed.overhead_percent,
        tune_in_s=fixed.tune_in_s,
        storage=fixed.storage,
        crowd=fixed.crowd,
        io=fixed.io,
        disk_iops=fixed.disk_iops,
    )
