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
# The programs of these write the logs; for all others, the cell itself does (`logs/feed.log`).
WITH_OWN_LOGS: Final = ("ldm7", "ldm6", "fcast", "m2c")
MULTICAST_PROTOCOLS: Final = ("ldm7", "fcast", "m2c")  # of WITH_OWN_LOGS: they send data to groups
JOIN_LEAVE: Final = "join-leave"  # `kind` of an experiment whose subscribers join and leave

VerdictWord = Literal["faithful", "degraded", "invalid"]
FAITHFUL: Final = "faithful"
DEGRADED: Final = "degraded"
INVALID: Final = "invalid"
UNKNOWN: Final = "unknown"  # of a cell without verdict.json
WORST_FIRST: Final = (INVALID, UNKNOWN, DEGRADED, FAITHFUL)

BLOCK_BYTES: Final = 1448  # FMTP payload of a datagram (DRFSM21 eq. 6)
FRAME_BYTES: Final = 1518  # Ethernet, payload of 1500 bytes, with a VLAN tag, without FCS

# The kernel keeps rates in bytes per second, and tc prints three digits or more. So a rate read
# back is the one that was set if it differs by no more than this share.
TC_RATE_TOLERANCE: Final = 1e-3

# A network requests a controller in another container with DIR/RUN/NAME.request.json.
ATTENDANT_FILE: Final = ".attendant"  # in DIR: a program answers requests
REQUEST_SUFFIX: Final = ".request.json"
ENDED_SUFFIX: Final = ".ended.json"  # beside the request, while the controller is not running


def attendant_name(domain: str) -> str:
    """Return the name of the file written by the program that answers the domain's requests; "":
    the program for all domains that have none of their own."""
    return f"{ATTENDANT_FILE}-{domain}" if domain else ATTENDANT_FILE
