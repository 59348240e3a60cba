# SPDX-License-Identifier: Apache-2.0
"""The parameters that a replayed cell's cell.json states, by the papers' names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from experiments.design.expansion import CellSpec, congestion_window_packets


def parameters(  # the last three are what the cell found or computed
    cell: CellSpec,
    source: Any,
    rtt_ms: Mapping[str, float],
    window_bytes: int,
    tbf_limit: int,
    tcp_found: str,
) -> dict[str, object]:
    """Return the parameters; `source`: of the trace."""
    return {
        "F": source,
        "m": cell.m,
        "RTT_i": sorted(set(rtt_ms.values())),
        "p_i": cell.loss if cell.p_i is None else list(cell.p_i),
        "r": cell.r_bps,
        "r_vn": cell.r_vn_bps,
        "r_mc": cell.r_mc_bps,
        "r_uc": cell.r_uc_bps,
        "b_mc": cell.b_mc_bytes,
        "b_uc": cell.b_uc_bytes,
        "b_rcv": cell.b_rcv_bytes,
        **({"b_snd": cell.b_snd_bytes} if cell.b_snd_bytes else {}),
        "f_cwnd": window_bytes,
        "f_cwnd_packets": congestion_window_packets(window_bytes),
        "f_snd": cell.f_snd,
        "f_rcv": cell.f_rcv,
        "q_snd": cell.q_snd_bytes,
        "n_snd": cell.n_snd,
        **({"q_rcv": cell.q_rcv_bytes} if cell.q_rcv_bytes else {}),
        **({"tbf_limit": tbf_limit} if cell.protocol == "ldm6" else {}),
        **({"rtt_ms": cell.rtt_ms} if cell.rtt_ms is not None else {}),
        **({"rate_i": list(cell.rate_i_bps)} if cell.rate_i_bps is not None else {}),
        "without_multicast": cell.without_multicast,
        "ldm6_from": cell.ldm6_from,
        **({"sender_bps": cell.sender_bps} if cell.sender_bps else {}),
        "pull_path": cell.pull_path,
        "repair": cell.repair,
        "mac_level": cell.mac_level,
        "feed": cell.feed,
        **(asdict(cell.carousel) if cell.carousel.file_bytes else {}),
        **({"loss_period": cell.loss_period} if cell.loss_period else {}),
        **({"pause_ms": cell.pause_ms} if cell.pause_ms else {}),
        **cell.conditions.to_dict(),
        **dict(cell.settings),
        "loss_burst_packets": cell.loss_burst_packets,
        "background_flows": cell.background_flows,
        **_of_rivals(cell),
        "guarantee": cell.guarantee,
        "cut": cell.cut,
        # f_cwnd is for CTCP; any other algorithm sizes its window itself.
        "tcp_congestion_control": tcp_found,
    }


def _of_rivals(cell: CellSpec) -> dict[str, object]:
    """Return cell.json's entries for layered multicast and for competitors."""
    found: dict[str, object] = {}
    if cell.bottleneck.rate_bps:
        found["bottleneck_bps"] = cell.bottleneck.rate_bps
        found["bottleneck_packets"] = cell.bottleneck.packets
    if cell.has_rivals:
        found["background_tcp"] = cell.rivals.tcp
        found["rival_sessions"] = cell.rivals.sessions
        found["short_flows_per_min"] = cell.rivals.short_flows_per_min
    return {**found, **(asdict(cell.layers) if cell.protocol == "m2c" else {})}
