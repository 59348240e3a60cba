# SPDX-License-Identifier: Apache-2.0
"""Find who was subscribed to which feed when, and what happened to each product, from the logs, the
products' lists and the executed script of a cell whose subscribers join and leave. Pure.

A subscription is one subscriber's to one feed. Its sessions are the times between a join and the
next leave. Times are in seconds since 1970, on the machine's clock.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from parsers.base.jsonfiles import BadFile, describe
from parsers.base.times import MICROSECONDS
from parsers.measure.deliveries import Arrival, receiver_of
from parsers.read.ldm_log import (
    How,
    Inserted,
    LdmLog,
    PathChange,
    PathEvent,
    Receiving,
)
from parsers.read.products import ListedProduct, compare_products

What = Literal["join", "leave", "kill"]
# If the subscribers that stayed had a product this long before a leave, the leaver must also
# have had it: the network's longest round trip, a retransmission timeout, and a margin for a busy
# machine.
IN_FLIGHT_S = 1.0


class ScriptEvent(BaseModel):
    """What the cell did to a subscription: started its ldmd, ended it, or killed it."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    time_s: float
    what: What
    subscriber: str
    feed: str


_EVENTS = TypeAdapter(tuple[ScriptEvent, ...])


def parse_events(text: str, file: str) -> tuple[ScriptEvent, ...]:
    """Return events.json in order of time. Raises `BadFile`."""
    try:
        return tuple(sorted(_EVENTS.validate_python(json.loads(text)), key=lambda e: e.time_s))
    except json.JSONDecodeError as error:
        raise BadFile(f"{file}:{error.lineno}: not JSON: {error.msg}") from None
    except ValidationError as error:
        raise BadFile(describe(error, file)) from None


@dataclass(frozen=True, slots=True)
class Session:
    """`ready_s`: FMTP connected; `pruned_s`: the branch was gone (None: not seen, or still
    there)."""

    join_s: float
    end_s: float | None  # None: until the end of the run
    how: Literal["stayed", "left", "killed"]
    ready_s: float | None = None
    leaf_added_took_s: float | None = None  # the path service's share of the time
    first_product_s: float | None = None
    first_multicast_s: float | None = None
    pruned_s: float | None = None

    def after_join(self, moment_s: float | None) -> float | None:
        """Return the seconds from the join to `moment_s`; None if there is no such moment."""
        return None if moment_s is None else moment_s - self.join_s

    @property
    def prune_took_s(self) -> float | None:
        """Return the seconds from the session's end to the pruned branch; None if unknown."""
        if self.pruned_s is None or self.end_s is None:
            return None
        return self.pruned_s - self.end_s


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one subscriber received of one feed, as numbers of products."""

    subscriber: str
    feed: str
    sessions: tuple[Session, ...]
    stayed: bool  # subscribed from before the first product to the end
    sent: int  # while it was subscribed
    received: int  # of those, intact
    in_flight: int  # sent so shortly before a leave that they did not arrive
    lost: tuple[str, ...]  # sent while subscribed, not received, not in flight
    away: int  # sent while it was not subscribed, between sessions
    recovered: int  # of those, received after it joined again
    not_recovered: tuple[str, ...]  # of those, missing although it is subscribed at the end
    duplicates: int  # products more than once in its queue
    damaged: int  # products that differ from the publisher's, or that the publisher does not have
    arrived_twice: int  # refused by the queue
    by: Mapping[How, int]  # how products arrived

    @property
    def at_end(self) -> bool:
        """Return whether the subscriber was still there at the end."""
        return self.sessions[-1].end_s is None


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed at the publisher. `inserted_s`: ident -> when it entered the publisher's queue."""

    name: str
    inserted_s: Mapping[str, float]
    published: tuple[ListedProduct, ...]
    path_events: tuple[PathEvent, ...]


def feed_of(
    name: str, ingest: LdmLog, published: Sequence[ListedProduct], publisher: LdmLog
) -> Feed:
    """Return the feed. `publisher`: the log of the publisher's ldmd, which controls the path with
    the feed's name."""
    inserted = {r.product.ident: r.time_us / MICROSECONDS for r in ingest.of(Inserted)}
    events = tuple(e for e in publisher.of(PathEvent) if e.path == name)
    return Feed(name, inserted, tuple(published), events)


def sessions_of(
    events: Sequence[ScriptEvent], log: LdmLog, feed: Feed, endpoint: str
) -> tuple[Session, ...]:
    """Return the sessions of one subscription. `events`: the subscription's own, in order of time,
    joins and ends in turn."""
    found: list[Session] = []
    arrivals = sorted((a.time_us, a.how) for a in receiver_of(log).arrivals.values())
    for i, event in enumerate(events):
        if event.what != "join":
            continue
        end = events[i + 1] if i + 1 < len(events) else None
        again = events[i + 2].time_s if i + 2 < len(events) else None
        end_s = None if end is None else end.time_s
        ready = _first((r.time_us for r in log.of(Receiving)), event.time_s, end_s)
        found.append(
            Session(
                join_s=event.time_s,
                end_s=end_s,
                how="stayed" if end is None else "left" if end.what == "leave" else "killed",
                ready_s=ready,
                leaf_added_took_s=_took(feed, "leaf added", endpoint, event.time_s, end_s),
                first_product_s=_first((t for t, _ in arrivals), event.time_s, end_s),
                first_multicast_s=_first(
                    (t for t, how in arrivals if how == "fmtp"), event.time_s, end_s
                ),
                pruned_s=None if end_s is None else _pruned(feed, endpoint, end_s, again),
            )
        )
    return tuple(found)


def _first(times_us: Iterable[int], since_s: float, until_s: float | None) -> float | None:
    moments = (t / MICROSECONDS for t in times_us)
    inside = [m for m in moments if m >= since_s and (until_s is None or m <= until_s)]
    return min(inside, default=None)


def _changes(
    feed: Feed, what: PathChange, endpoint: str, since_s: float, until_s: float | None
) -> list[PathEvent]:
    return [
        e
        for e in feed.path_events
        if (e.what, e.endpoint) == (what, endpoint)
        and e.time_us / MICROSECONDS >= since_s
        and (until_s is None or e.time_us / MICROSECONDS <= until_s)
    ]


def _took(
    feed: Feed, what: PathChange, endpoint: str, since_s: float, until_s: float | None
) -> float | None:
    found = _changes(feed, what, endpoint, since_s, until_s)
    return found[0].took_s if found else None


def _pruned(feed: Feed, endpoint: str, since_s: float, until_s: float | None) -> float | None:
    found = _changes(feed, "leaf removed", endpoint, since_s, until_s)
    return found[0].time_us / MICROSECONDS if found else None


def subscription_of(
    subscriber: str,
    feed: Feed,
    sessions: Sequence[Session],
    log: LdmLog,
    held: Sequence[ListedProduct],
    reached_s: Mapping[str, float],
) -> Subscription:
    """Return what a subscriber received. `held`: its queue of this feed. `reached_s`: ident -> when
    the last subscriber that stayed had it; this shows what was sent before a session ended."""
    receiver = receiver_of(log)
    content = compare_products(subscriber, feed.published, held)
    copies = Counter(p.ident for p in held)
    good = set(copies) - set(content.different) - set(content.extra)
    good |= {ident for ident in content.extra if copies[ident] > 1}  # a second intact copy
    sent, in_flight, away = _sent(feed, sessions, reached_s)
    missing = {ident for ident in sent if ident not in good}
    flying = missing & in_flight
    back = sessions[-1].end_s is None
    first_s = min(feed.inserted_s.values(), default=0.0)
    ready = sessions[0].ready_s
    return Subscription(
        subscriber=subscriber,
        feed=feed.name,
        sessions=tuple(sessions),
        stayed=back and len(sessions) == 1 and ready is not None and ready <= first_s,
        sent=len(sent),
        received=len(sent) - len(missing),
        in_flight=len(flying),
        lost=tuple(sorted(missing - flying)),
        away=len(away),
        recovered=len(away & good),
        not_recovered=tuple(sorted(away - good)) if back else (),
        duplicates=sum(n - 1 for n in copies.values()),
        damaged=len(content.different) + len([i for i in content.extra if copies[i] == 1]),
        arrived_twice=receiver.duplicates,
        by=_ways(receiver.arrivals.values()),
    )


def _ways(arrivals: Iterable[Arrival]) -> dict[How, int]:
    counts = Counter(a.how for a in arrivals)
    return {how: counts[how] for how in sorted(counts)}


def _sent(
    feed: Feed, sessions: Sequence[Session], reached_s: Mapping[str, float]
) -> tuple[set[str], set[str], set[str]]:
    """Return (sent within a session, those of them possibly in flight at its end, sent between the
    first session's start and the last session's end, but in no session)."""
    sent: set[str] = set()
    in_flight: set[str] = set()
    away: set[str] = set()
    ready = [s.ready_s for s in sessions if s.ready_s is not None]
    if not ready:
        return sent, in_flight, away
    last_end = sessions[-1].end_s
    for ident, inserted in feed.inserted_s.items():
        # If the subscribers that stayed lost it, its insertion counts.
        reached = reached_s.get(ident, inserted)
        for session in sessions:
            if session.ready_s is None or inserted < session.ready_s:
                continue
            if session.end_s is None or reached <= session.end_s:
                sent.add(ident)
                if session.end_s is not None and reached > session.end_s - IN_FLIGHT_S:
                    in_flight.add(ident)
                break
        else:
            if inserted >= ready[0] and (last_end is None or reached <= last_end):
                away.add(ident)
    return sent, in_flight, away


def reached_s(stayed: Iterable[LdmLog]) -> dict[str, float]:
    """Return ident -> when the last of these subscribers received it, without products that one of
    them never received."""
    found: dict[str, float] = {}
    counts: Counter[str] = Counter()
    logs = list(stayed)
    for log in logs:
        for product, arrival in receiver_of(log).arrivals.items():
            moment = arrival.time_us / MICROSECONDS
            found[product.ident] = max(moment, found.get(product.ident, moment))
            counts[product.ident] += 1
    return {ident: moment for ident, moment in found.items() if counts[ident] == len(logs)}
