# SPDX-License-Identifier: Apache-2.0
"""Expand an experiment file of `kind: join-leave` to its cells. Pure: starts nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from common.contracts import JOIN_LEAVE
from experiments.design import borrowing, trace_input
from experiments.design.expansion import (
    LETTERS,
    QUEUE_FACTOR,
    CellSpec,
    Combination,
    Feed,
    build_cell,
    holds_the_replay,
)
from experiments.design.join_leave_script import Event, make_script
from experiments.design.rates import Rates, sender_bps
from experiments.design.spec import (
    SUBSCRIPTION_FACTORS,
    JoinLeaveSpec,
    SubscriptionsSpec,
    UsageError,
)
from experiments.design.trace_input import ReplayTrace
from parsers.base.factors import Scalar

SECTION: Final = "# feed "  # before the lines of each feed, in the text of all feeds' traces
FEED_SEEDS: Final = 1000  # distance of the seeds of a run's feeds


@dataclass(frozen=True)
class JoinLeaveCell(CellSpec):
    """A cell with several feeds, whose subscribers follow a script."""

    streams: tuple[Feed, ...]
    script: tuple[Event, ...]
    lanes: str = "nics"

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """Return the feeds, each with its own path."""
        return self.streams

    @property
    def backlog_s(self) -> float | None:
        """Return 0: a subscription begins with what is sent from then on."""
        return 0.0

    @property
    def session_count(self) -> int:
        """Return how often a subscriber joins while the cell runs."""
        return sum(event.what == "join" for event in self.script)

    @property
    def queue_count(self) -> int:
        """Return the number of subscribers' product queues, one for each feed."""
        return self.m * len(self.streams)

    @property
    def subscriptions(self) -> tuple[tuple[str, str], ...]:
        """Return (subscriber, feed) of all that ever subscribe, in order of their first join."""
        return tuple(dict.fromkeys((e.subscriber, e.feed) for e in self.script))

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> JoinLeaveCell:
        """Return the cell that `to_dict` described."""
        streams = tuple(Feed(**feed) for feed in raw["streams"])
        script = tuple(Event(**event) for event in raw["script"])
        return cls(**{**raw, **cls._tuples(raw), "streams": streams, "script": script})


def feeds_of(spec: JoinLeaveSpec) -> tuple[Feed, ...]:
    """Return the feeds, each with its lane. r_vn is that of the papers' cells, headroom x (r_mc +
    r_uc), or what the feed may borrow. Raises UsageError."""
    fixed = spec.parameters
    found = []
    for lane, feed in enumerate(spec.feeds, start=1):
        r_mc, r_uc = sender_bps(fixed, feed.rate_bps)
        ceil = round(spec.r_mc_ceil * feed.rate_bps) if spec.borrow else 0
        found.append(Feed(feed.feed, lane, r_mc, r_uc, 0, feed.size_factor, feed.feed, ceil))
    total = borrowing.total_bps(found)
    return tuple(
        replace(f, r_vn_bps=round(fixed.headroom * borrowing.path_bps(f, total))) for f in found
    )


def expand(
    spec: JoinLeaveSpec, subscribers: Sequence[str], level: str | None = None
) -> tuple[JoinLeaveCell, ...]:
    """Return a cell for each combination of the factors' levels and each repeat, with its own
    script. `level`: the level of `spec`."""
    varied = {n: v for n in SUBSCRIPTION_FACTORS if (v := getattr(spec.factors, n)) is not None}
    # A leaver's products must stay in its queue until it is judged.
    fixed = spec.parameters.model_copy(update={"q_rcv": None})
    cells = []
    for repeat, levels in itertools.product(
        range(spec.repeats), itertools.product(*varied.values())
    ):
        changed = dict(zip(varied, levels, strict=True))
        feeds = feeds_of(spec.model_copy(update={"borrow": changed.get("borrow", spec.borrow)}))
        chosen = _combination(spec, len(subscribers), changed, repeat)
        base = build_cell(spec, level, chosen, fixed, _rates(feeds))
        asked = {n: v for n, v in changed.items() if n in SubscriptionsSpec.model_fields}
        script = _script(spec.subscriptions.model_copy(update=asked), base, subscribers, feeds)
        cells.append(JoinLeaveCell(**vars(base), streams=feeds, script=script, lanes=spec.lanes))
    return tuple(cells)


def _rates(feeds: Sequence[Feed]) -> Rates:
    return Rates(
        sum(feed.r_mc_bps for feed in feeds),
        sum(feed.r_uc_bps for feed in feeds),
        sum(feed.r_vn_bps for feed in feeds),
        ldm6_bps=0,
    )


def _combination(
    spec: JoinLeaveSpec, m: int, changed: Mapping[str, Scalar], repeat: int
) -> Combination:
    """Return what distinguishes a cell. `changed`: the levels of its factors."""
    changed = {n: v if not isinstance(v, bool) else str(v).lower() for n, v in changed.items()}
    name = [
        f"{JOIN_LEAVE}-m{m}-f{len(spec.feeds)}",
        *(
            f"{LETTERS[factor]}{level if isinstance(level, str) else f'{level:g}'}"
            for factor, level in changed.items()
        ),
        *([f"n{repeat + 1}"] if spec.repeats > 1 else []),
    ]
    factors: dict[str, Scalar] = {
        "protocol": "ldm7",
        "receivers": m,
        "rate_bps": sum(feed.rate_bps for feed in spec.feeds),
        "loss": 0.0,
        **changed,
    }
    return Combination("-".join(name), factors, repeat, m, None)


def _script(
    asked: SubscriptionsSpec, cell: CellSpec, subscribers: Sequence[str], feeds: Sequence[Feed]
) -> tuple[Event, ...]:
    return make_script(
        subscribers,
        [feed.name for feed in feeds],
        duration_s=cell.duration_s,
        stay_s=asked.stay_s,
        away_s=asked.away_s,
        killed=asked.killed,
        seed=cell.seed,
        visitors=asked.visitors,
    )


def prepare(spec: JoinLeaveSpec, cell: JoinLeaveCell) -> ReplayTrace:
    """Return the traces of all feeds in one text, each after a line of `SECTION` and its name. Each
    feed has its own generated hour, or all have the given file. Raises UsageError if the
    publisher's queue does not hold all products: at the end, it is compared with the subscribers'
    queues."""
    parts = [
        _scaled(trace_input.prepare(spec.trace, cell.duration_s, _seed(cell, feed)), feed)
        for feed in cell.feeds
    ]
    made = ReplayTrace(
        file=trace_input.file_of(cell.seed),
        source="; ".join(dict.fromkeys(part.source for part in parts)),
        text="".join(
            f"{SECTION}{feed.name}\n{part.text}"
            for feed, part in zip(cell.feeds, parts, strict=True)
        ),
        products=sum(part.products for part in parts),
        size_bytes=sum(part.size_bytes for part in parts),
        largest_bytes=max(part.largest_bytes for part in parts),
    )
    _check_queue(cell, made)
    return made


def _check_queue(cell: JoinLeaveCell, trace: ReplayTrace) -> None:
    if not holds_the_replay(cell.q_snd_bytes, trace.size_bytes):
        least = math.ceil(QUEUE_FACTOR * trace.size_bytes)
        raise UsageError(
            f"q_snd: found {cell.q_snd_bytes} bytes; valid: {least} or more, for "
            f"{trace.products} products of {trace.size_bytes} bytes"
        )
    if cell.n_snd < trace.products:
        raise UsageError(f"n_snd: found {cell.n_snd}; valid: {trace.products} or more products")


def _seed(cell: JoinLeaveCell, feed: Feed) -> int:
    return cell.seed + FEED_SEEDS * (feed.lane - 1)


def _scaled(trace: ReplayTrace, feed: Feed) -> ReplayTrace:
    """Multiply the sizes by the feed's factor; each is at least a byte."""
    rows = [line.split(" ", 1) for line in trace.text.splitlines()]
    sizes = [max(1, round(int(size) * feed.size_factor)) for size, _ in rows]
    return ReplayTrace(
        file=trace.file,
        source=trace.source,
        text="".join(f"{size} {when}\n" for size, (_, when) in zip(sizes, rows, strict=True)),
        products=len(sizes),
        size_bytes=sum(sizes),
        largest_bytes=max(sizes),
    )


def traces_of(text: str) -> Mapping[str, str]:
    """Return the trace by feed, from the text that `prepare` made."""
    found: dict[str, str] = {}
    for part in text.split(SECTION)[1:]:
        name, _, lines = part.partition("\n")
        found[name] = lines
    return found
