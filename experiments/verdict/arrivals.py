# SPDX-License-Identifier: Apache-2.0
"""Check that no product arrived before it can have crossed the network: a receiver's clock that is
wrong, or a log that was edited, may say that one did. Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from common.counting import counted
from common.virtual_time import Clock
from experiments.verdict.checks import Check, Limits, worst
from experiments.verdict.evidence import Evidence, host_of
from parsers.read.ldm_log import Backlog, Inserted, Received, Record
from topologies.model.network import Network

NAME: Final = "arrivals no sooner than possible"
EARLY_MS: Final[Mapping[Clock, Limits]] = {
    "native": Limits(1.0, 10.0, "as the clock, which both of its stamps come from"),
    "virtual": Limits(0.05, 0.5, "as links' delays; all programs read one clock"),
}
EARLY_SHARE: Final = Limits(
    0.2, 0.5, "of the delay, if that is less: 10 ms early is all of the way to a near receiver"
)
FLOOR_MS: Final = EARLY_MS["virtual"]


def earliest_ms(records: Iterable[Record]) -> float | None:
    """Return the least time from a product's creation to its arrival, ms, in the records of one
    receiver's log; None if nothing arrived."""
    times_us = (
        record.time_us - record.product.created_us
        for record in records
        if isinstance(record, Received | Backlog)
        or (isinstance(record, Inserted) and record.via != "ingest")
    )
    least_us = min(times_us, default=None)
    return None if least_us is None else least_us / 1e3


def least_ms(network: Network, source: str) -> dict[str, float]:
    """Return the least time in which anything can come from a node to every other, ms: over any
    links and through any nodes, so that it holds for whatever a protocol does."""
    links: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for link in network.links:
        for a, b, asked in (
            (link.a.node, link.b.node, link.forward),
            (link.b.node, link.a.node, link.backward),
        ):
            links[a].append((b, max(0.0, asked.delay_ms - asked.jitter_ms)))
    found: dict[str, float] = {}
    queue = [(0.0, source)]
    while queue:
        so_far, node = heapq.heappop(queue)
        if node not in found:
            found[node] = so_far
            for other, delay_ms in links[node]:
                heapq.heappush(queue, (so_far + delay_ms, other))
    return found


def _limits(delay_ms: float, clock: Clock, *, own_clock: bool) -> Limits:
    """Return how much too early an arrival may be, ms. `own_clock`: of a host on another
    machine."""
    most = EARLY_MS[clock]
    if own_clock:
        return most
    return Limits(
        min(most.warn, max(FLOOR_MS.warn, EARLY_SHARE.warn * delay_ms)),
        min(most.fail, max(FLOOR_MS.fail, EARLY_SHARE.fail * delay_ms)),
        most.reason,
    )


def arrivals_checks(evidence: Evidence) -> list[Check]:
    """Return the check; none without a network to compare with."""
    return [] if evidence.network is None else [_check(evidence, evidence.network)]


def _check(evidence: Evidence, network: Network) -> Check:
    """Check each receiver's earliest arrival against the shortest way. A clock that the experiment
    puts off counts by what was asked."""
    if not evidence.earliest_ms:
        text = "does not apply: no log names a product's creation and arrival"
        return Check(NAME, "n/a", None, None, text)
    least = least_ms(network, evidence.publisher)
    statuses = []
    found: list[tuple[float, str]] = []
    for name, arrived_ms in evidence.earliest_ms.items():
        host = host_of(name)
        asked_ms = least.get(host, 0.0) + evidence.clock_offsets_ms.get(host, 0.0)
        own_clock = host in evidence.elsewhere or evidence.publisher in evidence.elsewhere
        limits = _limits(least.get(host, 0.0), evidence.clock, own_clock=own_clock)
        early_ms = round(asked_ms - arrived_ms, 6)
        statuses.append(limits.status(early_ms))
        text = f"{name} after {arrived_ms:.3f} ms, the network takes {asked_ms:g} ms"
        found.append((early_ms / limits.fail, text))
    found.sort(reverse=True)
    bad = [text for _, text in found[: sum(status != "pass" for status in statuses)]]
    text = f"{counted(len(found), 'receiver')}; earliest: {'; '.join(bad[:6] or [found[0][1]])}"
    return Check(NAME, worst(statuses), 0, len(bad), text)
