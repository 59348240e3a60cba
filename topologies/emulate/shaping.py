# SPDX-License-Identifier: Apache-2.0
"""Apply the settings of impaired links (tc, wire-relay), and read them back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from common.shell import NetworkError, check, check_all, in_node
from topologies.emulate.processes import Relay
from topologies.model import wire_plan
from topologies.model.wire_plan import LinkReadback, RelayReady, WirePlan


@dataclass(frozen=True)
class Shaped:
    """The settings in force. `relay_fifo`: wire-relay has real-time priority; None: there is no
    relay."""

    readback: tuple[LinkReadback, ...]
    relay_ready: RelayReady | None
    relay_fifo: bool | None


def shape(
    wire: WirePlan, pid: int, state_dir: Path, started: Callable[[Relay], None], seed: int
) -> Shaped:
    """Shape the links in the namespace of process `pid`. `started` gets a relay as soon as there is
    one, so that it is stopped whatever happens. Raises NetworkError if a link is not as
    asked."""
    check(in_node(pid, ["tc", "-batch", "-"]), stdin=wire_plan.tc_batch(wire))
    ready: RelayReady | None = None
    if wire.relayed:
        relay = Relay(state_dir)
        started(relay)
        ready = relay.start(pid, wire, seed=seed)
    readback = read_back(wire, pid, ready)
    bad = [r for r in readback if not r.ok]
    if bad:
        raise NetworkError(
            "; ".join(
                f"link {r.link} {r.direction}: asked {wire_plan.describe(r.asked)}; "
                f"found {wire_plan.describe(r.found)} ({r.note})"
                for r in bad[:5]
            )
        )
    return Shaped(readback, ready, None if ready is None else bool(ready["sched_fifo"]))


def read_back(wire: WirePlan, pid: int, ready: RelayReady | None) -> tuple[LinkReadback, ...]:
    """Return the settings of all impaired links, as the kernel and the relay report them. Raises
    NetworkError."""
    qdiscs = json.loads(check(in_node(pid, ["tc", "-r", "-j", "qdisc", "show"])) or "[]")
    redirected = [d.ingress for d in wire.directions if d.mechanism != "relay"]
    texts = check_all(
        {
            name: (in_node(pid, ["tc", "-j", "filter", "show", "dev", name, "ingress"]), "")
            for name in redirected
        }
    )
    filters = {name: json.loads(text or "[]") for name, text in texts.items()}
    return wire_plan.read_back(wire, qdiscs, filters, ready)
