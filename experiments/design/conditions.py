# SPDX-License-Identifier: Apache-2.0
"""The conditions of a cell: managed queues, marks instead of losses, TCP's congestion control, a
handicap of the first receiver, and a monitor. Pure."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Final

QUEUES: Final = ("fifo", "codel", "fq-codel", "pie")
ECN: Final = ("drop", "mark")
TCP: Final = ("ctcp", "cubic", "bbr", "reno")
AS_OTHERS: Final = "as-others"
KINDS: Final = {"loss": "%", "rate": "Mbit/s", "rtt": "ms", "stop": "s"}
MOST: Final = {"loss": 99, "rate": 10_000, "rtt": 10_000, "stop": 600}
FIRST: Final = re.compile(r"as-others|(loss|rate|rtt|stop)-([1-9][0-9]{0,4})", re.ASCII)
VALID: Final = (
    "as-others, loss-10 (%), rate-5 (Mbit/s), rtt-300 (ms) or stop-10 (s, once, in the middle)"
)


@dataclass(frozen=True)
class Handicap:
    """How the first receiver differs from the others. `kind` empty: not at all."""

    kind: str = ""
    size: float = 0.0

    @property
    def loss(self) -> float | None:
        """Return its probability of loss."""
        return self.size / 100 if self.kind == "loss" else None

    @property
    def rate_bps(self) -> int | None:
        """Return the rate of the link to it."""
        return round(self.size * 1e6) if self.kind == "rate" else None

    @property
    def rtt_ms(self) -> float | None:
        """Return its round trip."""
        return self.size if self.kind == "rtt" else None

    @property
    def stop_s(self) -> float:
        """Return how long its programs are stopped, once."""
        return self.size if self.kind == "stop" else 0.0


def handicap(text: str) -> Handicap:
    """Read a level of `first_receiver`. Raises ValueError, which says what is valid."""
    found = FIRST.fullmatch(text)
    if found is None or (found[1] and int(found[2]) > MOST[found[1]]):
        raise ValueError(VALID)
    return Handicap(found[1], float(found[2])) if found[1] else Handicap()


@dataclass(frozen=True)
class Conditions:
    """The conditions of a cell."""

    aqm: str = "fifo"
    ecn: str = "drop"
    sack: str = "on"
    tcp: str = ""  # the only congestion control; empty: the first of tcp_congestion_control
    first_receiver: str = AS_OTHERS
    b_rcv_i_bytes: tuple[int, ...] | None = None  # by receiver; None: b_rcv for all
    monitor: str = "off"  # off, on

    @property
    def first(self) -> Handicap:
        """Return the first receiver's own conditions."""
        return handicap(self.first_receiver)

    def to_dict(self) -> dict[str, object]:
        """Return the conditions that differ from the defaults."""
        usual = asdict(Conditions())
        return {name: value for name, value in asdict(self).items() if value != usual[name]}

    @property
    def sysctls(self) -> dict[str, str]:
        """Return the TCP settings (of net.ipv4) of the hosts that send and receive."""
        marks = {"tcp_ecn": "1"} if self.ecn == "mark" else {}  # request them (RFC 3168)
        return marks | ({"tcp_sack": "0"} if self.sack == "off" else {})

    @property
    def discipline(self) -> str:
        """Return the queues' discipline as `topologies.model.network.Impairment` names it."""
        if self.aqm == "fifo":
            return ""
        mark = " ecn" if self.ecn == "mark" else ""
        return self.aqm.replace("-", "_") + mark
