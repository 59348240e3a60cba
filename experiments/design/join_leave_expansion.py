# SPDX-License-Identifier: Apache-2.0
"""From an experiment file of `kind: join-leave` to its cells: pure, nothing is started here."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.contracts import JOIN_LEAVE
from experiments.design import trace_input
from experiments.design.expansion import LETTERS, CellSpec, Feed
from experiments.design.join_leave_script import Event, make_script
from experiments.design.spec import SUBSCRIPTION_FACTORS, JoinLeaveSpec
from experiments.design.trace_input import ReplayTrace

SECTION: Final = "# feed "  # before the lines of each feed, in the text of all feeds' traces
FEED_SEEDS: Final = 1000  # distance of the seeds of a run's feeds


@dataclass(frozen=True)
class JoinLeaveCell(CellSpec):
    """A cell with several feeds, whose subscribers follow a script."""

    streams: tuple[Feed, ...]
    script: tuple[Event, ...]

    @property
    def feeds(self) -> tuple[Feed, ...]:
        return self.streams

    @property
    def backlog_s(self) -> float | None:
        return 0.0  # a subscription begins with what is sent from then on

    @property
    def session_count(self) -> int:
        return sum(event.what == "join" for event in self.script)

    @property
    def queue_count(self) -> int:
        return self.m * len(self.streams)

    @property
    def subscriptions(self) -> tuple[tuple[str, str], ...]:
        """(subscriber, feed) of all that are ever subscribed, in order of their first join."""
        return tuple(dict.fromkeys((e.subscriber, e.feed) for e in self.script))

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> JoinLeaveCell:
        streams = tuple(Feed(**feed) for feed in raw["streams"])
        script = tuple(Event(**event) for event in raw["script"])
        return cls(**{**raw, **cls._tuples(raw), "streams": streams, "script": script})


def feeds_of(spec: JoinLeaveSpec) -> tuple[Feed, ...]:
    """A lane for each feed. r_vn as in the papers' cells: headroom x (r_mc + r_uc)."""
    fixed = spec.parameters
    found = []
    for lane, feed in enumerate(spec.feeds, start=1):
        r_mc, r_uc = round(fixed.r_mc * feed.rate_bps), round(fixed.r_uc * feed.rate_bps)
        r_vn = round(fixed.headroom * (r_mc + r_uc))
        found.append(Feed(feed.feed, lane, r_mc, r_uc, r_vn, feed.size_factor, feed.feed))
    return tuple(found)


def expand(
    spec: JoinLeaveSpec, subscribers: Sequence[str], level: str | None = None
) -> tuple[JoinLeaveCell, ...]:
    """A cell for each combination of the factors' levels and each repeat, with a script of its
    own. `level`: the one that `spec` is at."""
    fixed, feeds = spec.parameters, feeds_of(spec)
    rate_bps = sum(feed.rate_bps for feed in spec.feeds)
    varied = {n: v for n in SUBSCRIPTION_FACTORS if (v := getattr(spec.factors, n)) is not None}
    cells = []
    for repeat, combination in itertools.product(
        range(spec.repeats), itertools.product(*varied.values())
    ):
        changed = dict(zip(varied, combination, strict=True))
        subscriptions = spec.subscriptions.model_copy(update=changed)
        parts = [
            f"{JOIN_LEAVE}-m{len(subscribers)}-f{len(feeds)}",
            *(f"{LETTERS[name]}{found:g}" for name, found in changed.items()),
            *([f"n{repeat + 1}"] if spec.repeats > 1 else []),
        ]
        seed = spec.base_seed + repeat
        cells.append(
            JoinLeaveCell(
                cell="-".join(parts),
                experiment=spec.name,
                level=level,
                factors={
                    "protocol": "ldm7",
                    "receivers": len(subscribers),
                    "rate_bps": rate_bps,
                    "loss": 0.0,
                    **changed,
                },
                topology=spec.topology,
                protocol="ldm7",
                m=len(subscribers),
                subscribers=None,
                r_bps=rate_bps,
                loss=0.0,
                loss_model=fixed.loss_model,
                loss_burst_packets=fixed.loss_burst_packets,
                rtt_ms=fixed.rtt_ms,
                background_flows=fixed.background_flows,
                handoff_loss=fixed.handoff_loss,
                guarantee=fixed.guarantee,
                duration_s=spec.duration_s,
                drain_timeout_s=spec.drain_timeout_s,
                repeat=repeat,
                seed=seed,
                f_snd=fixed.f_snd,
                f_rcv=fixed.f_rcv,
                r_mc_bps=sum(feed.r_mc_bps for feed in feeds),
                r_uc_bps=sum(feed.r_uc_bps for feed in feeds),
                r_vn_bps=sum(feed.r_vn_bps for feed in feeds),
                ldm6_rate=fixed.ldm6_rate,
                ldm6_bps=0,
                b_mc_bytes=fixed.b_mc,
                b_uc_bytes=fixed.b_uc,
                b_rcv_bytes=fixed.b_rcv,
                b_snd_bytes=fixed.b_snd or 0,
                q_snd_bytes=fixed.q_snd,
                n_snd=fixed.n_snd,
                q_rcv_bytes=0,  # a leaver's products must be there until he is judged
                f_cwnd_factor=fixed.f_cwnd_factor,
                tcp_congestion_control=fixed.tcp_congestion_control,
                streams=feeds,
                script=make_script(
                    subscribers,
                    [feed.name for feed in feeds],
                    duration_s=spec.duration_s,
                    stay_s=subscriptions.stay_s,
                    away_s=subscriptions.away_s,
                    killed=subscriptions.killed,
                    seed=seed,
                ),
            )
        )
    return tuple(cells)


def prepare(spec: JoinLeaveSpec, cell: JoinLeaveCell) -> ReplayTrace:
    """The traces of all feeds in one text, each behind a line of `SECTION` and its name. Each feed
    has a generated hour of its own, or all have the given file."""
    parts = [
        _scaled(trace_input.prepare(spec.trace, cell.duration_s, _seed(cell, feed)), feed)
        for feed in cell.feeds
    ]
    return ReplayTrace(
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


def _seed(cell: JoinLeaveCell, feed: Feed) -> int:
    return cell.seed + FEED_SEEDS * (feed.lane - 1)


def _scaled(trace: ReplayTrace, feed: Feed) -> ReplayTrace:
    """Sizes times the feed's factor, at least a byte."""
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
    """Feed -> its trace, from the text that `prepare` made."""
    found: dict[str, str] = {}
    for part in text.split(SECTION)[1:]:
        name, _, lines = part.partition("\n")
        found[name] = lines
    return found
