# SPDX-License-Identifier: Apache-2.0
"""Words and sizes that one room writes and another reads."""

from __future__ import annotations

from typing import Final, Literal

# Comments of the iptables rules at hosts. A rule without them is not the experiment's.
LOSS_COMMENT: Final = "downpour-loss"  # drops what the experiment injects
ARRIVED_COMMENT: Final = "downpour-arrived"  # counts what reaches the rule that drops
BURST_COMMENT: Final = "downpour-burst"  # counts the first packet of each burst of losses
MONITOR_COMMENT: Final = "downpour-monitor"  # at the monitor: counts what the publisher sends it

# Classes of the sender's queues, LDM7.
MULTICAST_CLASS: Final = "1:1"
UNICAST_CLASS: Final = "1:2"

Protocol = Literal["ldm7", "ldm6", "fcast", "m2c", "tcp"]  # of published values and bands
PROTOCOL_PATTERN: Final = r"^[a-z][a-z0-9-]{0,31}$"  # of an experiment's protocol
# Of these, our own programs write the logs; of all others the cell itself (`logs/feed.log`).
WITH_OWN_LOGS: Final = ("ldm7", "ldm6", "fcast", "m2c")
MULTICAST_PROTOCOLS: Final = ("ldm7", "fcast", "m2c")  # of WITH_OWN_LOGS: data go to groups
JOIN_LEAVE: Final = "join-leave"  # `kind` of an experiment whose subscribers join and leave

VerdictWord = Literal["faithful", "degraded", "invalid"]
FAITHFUL: Final = "faithful"
DEGRADED: Final = "degraded"
INVALID: Final = "invalid"
UNKNOWN: Final = "unknown"  # of a cell without verdict.json
WORST_FIRST: Final = (INVALID, UNKNOWN, DEGRADED, FAITHFUL)

BLOCK_BYTES: Final = 1448  # FMTP payload of a datagram (DRFSM21 eq. 6)
FRAME_BYTES: Final = 1518  # Ethernet, payload of 1500 bytes, with a VLAN tag, without FCS

# The kernel keeps rates in bytes per second, and tc prints three digits or more: a rate read back
# is the one set if it differs by no more than this part.
TC_RATE_TOLERANCE: Final = 1e-3

# A network asks for a controller in another container by DIR/RUN/NAME.request.json.
ATTENDANT_FILE: Final = ".attendant"  # in DIR: a program answers requests
REQUEST_SUFFIX: Final = ".request.json"
ENDED_SUFFIX: Final = ".ended.json"  # beside the request, while what it asked for does not run


def attendant_name(domain: str) -> str:
    """Return the name of the file that the program which answers the domain's requests writes;
    "": those of all domains that have no such program."""
    return f"{ATTENDANT_FILE}-{domain}" if domain else ATTENDANT_FILE
