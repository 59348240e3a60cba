# SPDX-License-Identifier: Apache-2.0
"""The rates of a cell's sender and path, from its factors. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from experiments.design.parameters import Parameters
from experiments.design.spec import UsageError
from protocols import registry

# What ldmd accepts (fmtp.r_mc_bps). tc counts bytes per second: less than 8 bit/s would be none.
LEAST_BPS: Final = 1000
MOST_BPS: Final = 10**12


@dataclass(frozen=True)
class Rates:
    """The rates of the sender and its path, for all feeds together."""

    r_mc_bps: int
    r_uc_bps: int
    r_vn_bps: int
    ldm6_bps: int


def sender_bps(fixed: Parameters, r_bps: int) -> tuple[int, int]:
    """Return r_mc and r_uc, which are multiples of r. Raises UsageError."""
    found = []
    for name, factor in (("r_mc", fixed.r_mc), ("r_uc", fixed.r_uc)):
        rate = round(factor * r_bps)
        if not LEAST_BPS <= rate <= MOST_BPS:
            raise UsageError(
                f"{name}: found {factor:g} x {r_bps} bit/s = {rate} bit/s; valid: {LEAST_BPS} "
                "bit/s to 1e12 bit/s"
            )
        found.append(rate)
    return found[0], found[1]


def rates_of(fixed: Parameters, protocol: str, m: int, r_bps: int) -> Rates:
    """Return the rates of a cell with one feed. Table II: r_vn >= r_mc + r_uc (LDM7), >= m x r
    (LDM6). The headroom keeps the path's meter, which also counts VLAN tags, from dropping what the
    sender's tc passes. Raises UsageError."""
    r_mc, r_uc = sender_bps(fixed, r_bps)
    ldm6_bps = m * r_bps if fixed.ldm6_rate == "per-receiver" else r_bps
    needed = r_mc + r_uc if registry.get(protocol).multicast else ldm6_bps
    r_vn = 0 if fixed.bottleneck_bps else round(fixed.headroom * needed)  # 0: best effort
    return Rates(r_mc, r_uc, r_vn, ldm6_bps)
