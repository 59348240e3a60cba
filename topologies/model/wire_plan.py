# SPDX-License-Identifier: Apache-2.0
"""Plan the commands that make impaired links, and compare the result with the kernel's. Pure.

An impaired link is two veth pairs that meet in the namespace `wire`:

    node a ---- w0a [wire] w0b ---- node b

Frames that arrive at w0a leave at w0b (forward), and the reverse. In each direction:

    netem     tc redirects at ingress; at the egress netem delays and loses, and its child tbf has
              the rate and queue
    relay     wire-relay carries, delays and loses; the egress tbf has the rate and queue
    redirect  nothing to delay or lose: tc redirects, and the egress tbf has the rate and queue
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from common.contracts import FRAME_BYTES
from topologies.model.network import Impairment, Link, Network

TcRecord = Mapping[str, Any]  # an object of `tc -j`; its keys depend on its kind
RelayLine = TypedDict(
    "RelayLine",
    {
        "link": str,
        "direction": str,
        "in": str,
        "out": str,
        "delay_us": int,
        "jitter_us": int,
        "loss": float,
        "seed": int,
        "slots": int,
    },
)


class RelayReady(TypedDict):
    """wire-relay's ready file: the configuration that it accepted."""

    sched_fifo: bool
    lines: Sequence[RelayLine]


WIRE = "wire"
FORWARD, BACKWARD = "forward", "backward"
NETEM_HANDLE, SHAPER_HANDLE, DISCIPLINE_HANDLE = "1:", "10:", "11:"

DISCIPLINES = ("codel", "fq_codel", "pie")
MARK, NO_MARK = "ecn", "noecn"  # packets of senders that support ECN are marked instead of dropped

LEAST_FRAME_BYTES = 60
TYPICAL_SMALL_FRAME_BYTES = 500  # assumed mean size where a limit counts frames, not bytes
UNLIMITED_BPS = 1_000_000_000  # assumed where a delayed link has no rate
DEFAULT_QUEUE_S = 0.05  # queue of a link with a rate, if the file sets none
LEAST_QUEUE_BYTES = 65_536
RELAY_SLOTS_MIN, RELAY_SLOTS_MAX = 512, 16_384
# Ring of a delayed link without a rate. A TCP connection sends its whole window into it at once, 6
# MB by Linux's default (tcp_rmem), and two may do so at the same time: 2 x 6 MB / 1518.
CONTROL_SLOTS = 8192
NETEM_LIMIT_MIN = 100_000

DELAY_TOLERANCE_MS = 0.001
RELATIVE_TOLERANCE = 2e-5  # tc prints times and probabilities with six digits


@dataclass(frozen=True)
class LinkReadback:
    """One direction of a link: what was asked, and what the kernel and the relay report."""

    link: str
    direction: str  # "forward" or "backward"
    asked: Impairment
    found: Impairment
    mechanism: str  # "netem", "relay" or "redirect"
    ok: bool
    note: str


@dataclass(frozen=True)
class WireDirection:
    link: str
    direction: str
    ingress: str  # interfaces in the namespace `wire`
    egress: str
    asked: Impairment
    mechanism: str


@dataclass(frozen=True)
class WireLink:
    """The interfaces of one impaired link in the namespace `wire`."""

    link: Link
    a_interface: str
    b_interface: str
    directions: tuple[WireDirection, WireDirection]


@dataclass(frozen=True)
class WirePlan:
    links: tuple[WireLink, ...]

    @property
    def directions(self) -> tuple[WireDirection, ...]:
        """Return all directions of impaired links."""
        return tuple(d for link in self.links for d in link.directions)

    @property
    def relayed(self) -> tuple[WireDirection, ...]:
        """Return the directions that wire-relay carries."""
        return tuple(d for d in self.directions if d.mechanism == "relay")


def plan(network: Network, delay_mechanism: str) -> WirePlan:
    """Return the interfaces and mechanisms of all impaired links. `delay_mechanism`: "netem" or
    "relay"."""
    links = []
    for index, link in enumerate(k for k in network.links if not k.is_plain):
        a, b = f"w{index}a", f"w{index}b"
        links.append(
            WireLink(
                link=link,
                a_interface=a,
                b_interface=b,
                directions=(
                    _direction(link.name, FORWARD, a, b, link.forward, delay_mechanism),
                    _direction(link.name, BACKWARD, b, a, link.backward, delay_mechanism),
                ),
            )
        )
    return WirePlan(tuple(links))


def _direction(
    link: str, direction: str, ingress: str, egress: str, asked: Impairment, mechanism: str
) -> WireDirection:
    timed = asked.delay_ms > 0 or asked.jitter_ms > 0 or asked.loss > 0
    return WireDirection(
        link, direction, ingress, egress, asked, mechanism if timed else "redirect"
    )


def queue_bytes(asked: Impairment) -> int | None:
    """Return the queue to set; None without a rate (then nothing queues)."""
    if asked.rate_bps is None:
        return asked.queue_bytes
    if asked.queue_bytes is not None:
        return asked.queue_bytes
    return max(LEAST_QUEUE_BYTES, int(asked.rate_bps * DEFAULT_QUEUE_S / 8))


def burst_bytes(rate_bps: int) -> int:
    """Return the token bucket: 1 ms of the rate, at least three frames."""
    return max(3 * FRAME_BYTES, rate_bps // 8 // 1000)


def netem_limit_frames(asked: Impairment) -> int:
    """Return netem's limit. netem counts frames, and its default of 1000 drops frames at high rate
    x delay. So there is room for all frames in flight and in the queue, even small ones."""
    rate_bps = asked.rate_bps or UNLIMITED_BPS
    in_flight = rate_bps / 8 * (asked.delay_ms + asked.jitter_ms) / 1000
    frames = (in_flight + (queue_bytes(asked) or 0)) / LEAST_FRAME_BYTES
    return max(NETEM_LIMIT_MIN, math.ceil(frames))


def relay_slots(asked: Impairment) -> int:
    """Return how many frames the relay's ring must hold: twice rate x delay in frames of mean size,
    rounded up to a power of two."""
    if asked.rate_bps is None:
        return CONTROL_SLOTS
    in_flight = asked.rate_bps / 8 * (asked.delay_ms + asked.jitter_ms) / 1000
    frames = max(RELAY_SLOTS_MIN, min(RELAY_SLOTS_MAX, in_flight / FRAME_BYTES * 2))
    return 1 << math.ceil(math.log2(frames))


def tc_batch(wire: WirePlan) -> str:
    """Return the input of `tc -batch -` inside the namespace `wire`."""
    lines: list[str] = []
    for d in wire.directions:
        if d.mechanism != "relay":
            lines.append(f"qdisc add dev {d.ingress} clsact")
            lines.append(
                f"filter add dev {d.ingress} ingress protocol all prio 1 u32 match u32 0 0"
                f" action mirred egress redirect dev {d.egress}"
            )
        parent = "root"
        if d.mechanism == "netem":
            lines.append(
                f"qdisc add dev {d.egress} root handle {NETEM_HANDLE} netem {_netem_options(d)}"
            )
            parent = f"parent {NETEM_HANDLE}1"
        queue = queue_bytes(d.asked)
        if d.asked.rate_bps is not None:
            lines.append(
                f"qdisc add dev {d.egress} {parent} handle {SHAPER_HANDLE} tbf"
                f" rate {d.asked.rate_bps}bit burst {burst_bytes(d.asked.rate_bps)} limit {queue}"
            )
            if d.asked.discipline:
                lines.append(
                    f"qdisc add dev {d.egress} parent {SHAPER_HANDLE}1 handle {DISCIPLINE_HANDLE}"
                    f" {discipline_options(d.asked)}"
                )
        elif queue is not None:
            lines.append(
                f"qdisc add dev {d.egress} {parent} handle {SHAPER_HANDLE} bfifo limit {queue}"
            )
    return "".join(f"{line}\n" for line in lines)


def discipline_options(asked: Impairment) -> str:
    """Return a queue's discipline in tc's syntax. Its limit is the link's queue in full frames; the
    rest are tc's defaults (tc-codel(8), tc-fq_codel(8), tc-pie(8))."""
    kind, _, mark = asked.discipline.partition(" ")
    frames = max(1, (queue_bytes(asked) or 0) // FRAME_BYTES)
    return f"{kind} limit {frames} {mark or NO_MARK}"


def _found_discipline(by_kind: Mapping[str, TcRecord], asked: Impairment) -> tuple[str, bool]:
    """Return the discipline of a link's queue, as `Impairment` names it, and whether its limit is
    as asked."""
    for kind in DISCIPLINES:
        if (options := by_kind.get(kind)) is not None:
            limit = max(1, (queue_bytes(asked) or 0) // FRAME_BYTES)
            text = f"{kind} {MARK}" if options.get(MARK) else kind
            return text, int(options.get("limit", 0)) == limit
    return "", True


def _netem_options(d: WireDirection) -> str:
    options = [f"limit {netem_limit_frames(d.asked)}"]
    if d.asked.delay_ms > 0 or d.asked.jitter_ms > 0:
        options.append(f"delay {d.asked.delay_ms * 1000:.0f}us")
        if d.asked.jitter_ms > 0:
            options[-1] += f" {d.asked.jitter_ms * 1000:.0f}us"
    if d.asked.loss > 0:
        options.append(f"loss random {d.asked.loss * 100:.7f}%")
    return " ".join(options)


def outlets(wire: WirePlan, switches: Collection[str], wire_pid: int) -> str:
    """Return `outlets.json`, for the controller that sets queues: the interfaces where a switch's
    frames leave over a link with a rate (in the namespace of process `pid`), and the parent of each
    shaper."""
    found = []
    for w in wire.links:
        for d, source in zip(w.directions, (w.link.a, w.link.b), strict=True):
            if source.node in switches and d.asked.rate_bps is not None:
                found.append(
                    {
                        "switch": source.node,
                        "port": source.number,
                        "pid": wire_pid,
                        "interface": d.egress,
                        "parent": f"{NETEM_HANDLE}1" if d.mechanism == "netem" else "root",
                        "queue_bytes": queue_bytes(d.asked),
                    }
                )
    return json.dumps({"outlets": found}, indent=2) + "\n"


def line_seed(seed: int, link: str, direction: str) -> int:
    """Return the 64-bit seed of one direction of a link, by which wire-relay chooses the frames
    that it loses. It is made like a receiver's in experiments/design/loss_model.py, from the same
    seed."""
    digest = hashlib.sha256(f"downpour loss {seed} {link}/{direction}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def relay_configuration(wire: WirePlan, *, ready: Path, stats: Path, seed: int) -> str:
    """Return the configuration file of wire-relay (topologies/wire/src/config.h)."""
    lines = [f"ready {ready}", f"stats {stats}"]
    for d in wire.relayed:
        lines.append(
            f"line {d.link} {d.direction} {d.ingress} {d.egress}"
            f" delay_us={d.asked.delay_ms * 1000:.0f} jitter_us={d.asked.jitter_ms * 1000:.0f}"
            f" loss={d.asked.loss:.9g} seed={line_seed(seed, d.link, d.direction)}"
            f" slots={relay_slots(d.asked)}"
        )
    return "".join(f"{line}\n" for line in lines)


def read_back(
    wire: WirePlan,
    qdiscs: Sequence[TcRecord],
    filters: Mapping[str, Sequence[TcRecord]],
    relay_ready: RelayReady | None,
) -> tuple[LinkReadback, ...]:
    """Compare the plan with what the kernel and the relay report.

    `qdiscs`: `tc -r -j qdisc show` of the namespace `wire` (raw: with tbf's limit). `filters`:
    interface -> `tc -j filter show dev INTERFACE ingress`. `relay_ready`: the relay's ready file.
    """
    lines = {(n["link"], n["direction"]): n for n in (relay_ready["lines"] if relay_ready else ())}
    return tuple(
        _read_back_one(
            d,
            [q for q in qdiscs if q.get("dev") == d.egress],
            filters.get(d.ingress, ()),
            lines.get((d.link, d.direction)),
        )
        for d in wire.directions
    )


def _read_back_one(
    d: WireDirection,
    qdiscs: Sequence[TcRecord],
    filters: Sequence[TcRecord],
    line: RelayLine | None,
) -> LinkReadback:
    problems: list[str] = []
    notes: list[str] = []
    rate, queue, delay, jitter, loss = None, None, 0.0, 0.0, 0.0
    by_kind = {str(q.get("kind")): q.get("options", {}) for q in qdiscs}
    if (tbf := by_kind.get("tbf")) is not None:
        rate = int(tbf["rate"]) * 8
        queue = tbf_limit_bytes(tbf)
    elif (bfifo := by_kind.get("bfifo")) is not None:
        queue = int(bfifo["limit"])
    if (netem := by_kind.get("netem")) is not None:
        delay = float(netem.get("delay", {}).get("delay", 0.0)) * 1000
        jitter = float(netem.get("delay", {}).get("jitter", 0.0)) * 1000
        loss = float(netem.get("loss-random", {}).get("loss", 0.0))
        if int(netem.get("limit", 0)) < netem_limit_frames(d.asked):
            problems.append(f"netem's limit is {netem.get('limit')} frames")
    if d.mechanism == "relay":
        if line is None:
            problems.append("wire-relay does not serve it")
        else:
            delay, jitter = line["delay_us"] / 1000, line["jitter_us"] / 1000
            loss = float(line["loss"])
            if (line["in"], line["out"]) != (d.ingress, d.egress):
                problems.append(f"wire-relay carries {line['in']} to {line['out']}")
            if int(line["slots"]) < relay_slots(d.asked):
                problems.append(f"wire-relay's ring has {line['slots']} slots")
    elif redirect_target(filters) != d.egress:
        problems.append(f"frames of {d.ingress} go to {redirect_target(filters)}")
    if d.asked.rate_bps is not None and d.asked.queue_bytes is None and queue is not None:
        notes.append(f"queue not asked for, set to {queue} bytes")
        shown_queue = None if queue == queue_bytes(d.asked) else queue
    else:
        shown_queue = queue
    discipline, as_long = _found_discipline(by_kind, d.asked)
    if not as_long:
        problems.append(f"{discipline} has another limit than the queue")
    found = Impairment(rate, round(delay, 6), round(jitter, 6), loss, shown_queue, discipline)
    problems += mismatches(d.asked, found)
    return LinkReadback(
        d.link, d.direction, d.asked, found, d.mechanism, not problems, "; ".join(problems + notes)
    )


def mismatches(asked: Impairment, found: Impairment) -> list[str]:
    """Return where `found` differs from what was asked, beyond the precision of what tc prints."""
    wrong = []
    if not _close(asked.rate_bps, found.rate_bps, 8):  # the kernel counts bytes per second
        wrong.append("rate")
    if not _close(asked.queue_bytes, found.queue_bytes, 0):
        wrong.append("queue")
    if not _close(asked.delay_ms, found.delay_ms, DELAY_TOLERANCE_MS):
        wrong.append("delay")
    if not _close(asked.jitter_ms, found.jitter_ms, DELAY_TOLERANCE_MS):
        wrong.append("jitter")
    if not _close(asked.loss, found.loss, 1e-9):
        wrong.append("loss")
    if asked.discipline != found.discipline:
        wrong.append("discipline")
    return wrong


def _close(asked: float | None, found: float | None, tolerance: float) -> bool:
    if asked is None or found is None:
        return asked is found
    relative = RELATIVE_TOLERANCE * abs(asked) if isinstance(asked, float) else 0.0
    return abs(asked - found) <= tolerance + relative


def tbf_limit_bytes(options: TcRecord) -> int | None:
    """Return the queue limit from tbf's options: `limit` itself (tc -r), else from `lat`, the time
    in microseconds in which (limit - burst) bytes are sent."""
    if "limit" in options:
        return int(options["limit"])
    if "lat" in options:
        return int(float(options["lat"]) * options["rate"] / 1e6 + options["burst"] + 0.5)
    return None


def redirect_target(filters: Sequence[TcRecord]) -> str | None:
    """Return the interface to which a mirred redirect among `filters` sends all frames."""
    for entry in filters:
        for action in entry.get("options", {}).get("actions", ()):
            if action.get("kind") == "mirred" and action.get("mirred_action") == "redirect":
                return str(action.get("to_dev"))
    return None


def describe(asked: Impairment) -> str:
    """Return one direction's settings in words, for messages."""
    parts = [
        "no rate" if asked.rate_bps is None else f"rate {asked.rate_bps / 1e6:g} Mbit/s",
        f"delay {asked.delay_ms:g} ms",
    ]
    if asked.jitter_ms:
        parts.append(f"jitter {asked.jitter_ms:g} ms")
    if asked.loss:
        parts.append(f"loss {asked.loss:g}")
    if asked.queue_bytes is not None:
        parts.append(f"queue {asked.queue_bytes} bytes")
    if asked.discipline:
        parts.append(f"discipline {asked.discipline}")
    return ", ".join(parts)
