# SPDX-License-Identifier: Apache-2.0
"""Script which subscribers join and leave which feed when, from a seed. Pure.

One subscriber of each feed stays from before the first product to the end. Every other subscriber
visits every feed: it is alternately away and subscribed, for times that are exponentially
distributed above a minimum. Some visitors are still subscribed when the run ends.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

FULL_S: Final = 600.0  # the length of a run to which a file's means apply
LEAST_SHARE: Final = 0.25  # shorter runs shorten the means, to this share at most
LEAST_SESSION_S: Final = (
    4.0  # long enough to subscribe over the longest round trip and get products
)
LEAST_AWAY_S: Final = 2.0  # long enough for a branch to be pruned

What = Literal["join", "leave", "kill"]


@dataclass(frozen=True, order=True)
class Event:
    """An action `at_s` seconds after the first product's insertion; 0: before it."""

    at_s: float
    what: What
    subscriber: str
    feed: str


def stayers(subscribers: Sequence[str], feeds: Sequence[str]) -> dict[str, str]:
    """Return the subscriber that stays, by feed: a different one for each, if there are enough."""
    return {feed: subscribers[i % len(subscribers)] for i, feed in enumerate(feeds)}


def make_script(
    subscribers: Sequence[str],
    feeds: Sequence[str],
    *,
    duration_s: float,
    stay_s: float,
    away_s: float,
    killed: float,
    seed: int,
    visitors: bool = True,
) -> tuple[Event, ...]:
    """Return all events in order of time, the joins of subscribers that stay first. `stay_s`,
    `away_s`: means in a run of `FULL_S`; `killed`: share of sessions that end by a kill. Without
    `visitors`, every subscriber stays with every feed."""
    if not visitors:
        return tuple(Event(0.0, "join", s, f) for f in feeds for s in subscribers)
    share = min(1.0, max(LEAST_SHARE, duration_s / FULL_S))
    rng = random.Random(f"downpour join-leave {seed}")
    staying = stayers(subscribers, feeds)
    events = [Event(0.0, "join", subscriber, feed) for feed, subscriber in staying.items()]
    for feed in feeds:
        for subscriber in subscribers:
            if staying[feed] == subscriber:
                continue
            at_s = 0.0
            while True:
                at_s += _time(rng, LEAST_AWAY_S, away_s * share)
                if at_s > duration_s - LEAST_SESSION_S:
                    break
                events.append(Event(round(at_s, 3), "join", subscriber, feed))
                at_s += _time(rng, LEAST_SESSION_S, stay_s * share)
                if at_s > duration_s:
                    break
                events.append(Event(round(at_s, 3), "leave", subscriber, feed))
    return _with_kills(sorted(events), killed)


def _time(rng: random.Random, least_s: float, mean_s: float) -> float:
    above = max(0.0, mean_s - least_s)
    return least_s + (rng.expovariate(1 / above) if above > 0 else 0.0)


def _with_kills(events: Sequence[Event], killed: float) -> tuple[Event, ...]:
    """Turn leaves into kills: in order of time, the first and then every (1 / killed)-th."""
    found: list[Event] = []
    leaves = 0
    for event in events:
        if event.what == "leave":
            if -(-leaves * killed // 1) != -(-(leaves + 1) * killed // 1):
                event = replace(event, what="kill")
            leaves += 1
        found.append(event)
    return tuple(found)
