# SPDX-License-Identifier: Apache-2.0
"""Lab 4: compare what a student reads in Wireshark with three independent sources: the capture as
`labs.fmtp_capture` reads it, the hash that decides which datagrams a receiver loses, and the
programs' logs.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from common.contracts import BLOCK_BYTES
from common.counting import counted
from experiments.design import loss_model
from labs import fmtp_capture as fmtp
from labs.checking import NOT_TOLD, Context, Ends, Outcome, failed, nothing, passed
from labs.fmtp_capture import CaptureError, Message
from labs.predictions import late_s, predicted
from labs.runs import CellOfRun, Missing, RunProblem, cells, newest, wrong_with

EXPERIMENT: Final = "nacks"
CAPTURE: Final = "captures/tor-umass-newy.pcapng"
_RETRANS = re.compile(r"Received: \{.*\bretrans: (\d+)")
_DATAGRAMS = re.compile(r"FMTP (?:sender|receiver):.*? datagrams=(\d+)")


@dataclass(frozen=True)
class Reading:
    """A capture's content. `addresses`: each host's address on the path."""

    cell: CellOfRun
    messages: tuple[Message, ...]
    addresses: dict[str, str]

    def of(self, kind: int, *, source: str = "", destination: str = "") -> list[Message]:
        """Return messages of a kind, from or to a host."""
        return [
            m
            for m in self.messages
            if m.kind == kind
            and (not source or m.source == self.addresses[source])
            and (not destination or m.destination == self.addresses[destination])
        ]

    @property
    def receivers(self) -> list[str]:
        """Return the names of the receiving hosts."""
        return list(self.cell.described["subscribers"])


def cell_of(context: Context, parameter: str) -> CellOfRun:
    """Return the newest cell with the student's loss. Raises Missing, RunProblem."""
    loss = context.integer(parameter) / 100
    found = newest(cells(context.work, EXPERIMENT), {"loss": loss, "protocol": "ldm7"})
    if found is None:
        raise Missing(f"no run with a loss of {100 * loss:g} %")
    return found


@lru_cache(maxsize=4)
def _read(path: Path, _changed: float) -> tuple[Message, ...]:
    return tuple(fmtp.messages(path))


def reading(context: Context) -> Reading:
    """Return the capture of the first run. Raises Missing, RunProblem, CaptureError."""
    there = cells(context.work, EXPERIMENT)
    loss = context.integer("loss_percent") / 100
    with_capture = [cell for cell in there if (cell.path / CAPTURE).is_file()]
    cell = newest(with_capture, {"loss": loss, "protocol": "ldm7"})
    if cell is None:
        raise Missing(f"no run with a loss of {100 * loss:g} % and a capture of tor-umass:newy")
    path = cell.path / CAPTURE
    network = json.loads((cell.path / "network.json").read_text())
    addresses = {h["name"]: h["nic1"]["ip"] for h in network["hosts"]}
    return Reading(cell, _read(path, path.stat().st_mtime), addresses)


def lost_by_hash(found: Reading, host: str) -> int:
    """Return how many of the multicast datagrams this host loses, by the rule that decides the
    losses."""
    seed = loss_model.loss_seed(int(found.cell.described["seed"]), host)
    p = float(found.cell.described["loss"])
    return sum(
        loss_model.udp_is_lost(m.header + bytes(m.length), p, seed)
        for m in found.messages
        if m.kind in fmtp.BY_UDP
    )


def blocks_wanted(requests: Sequence[Message]) -> int:
    """Return how many blocks these retransmission requests ask for."""
    return sum(math.ceil(m.length / BLOCK_BYTES) for m in requests)


def in_ms(begin: Message, end: Message) -> float:
    """Return the time between two messages, in ms."""
    return (end.time_ns - begin.time_ns) / 1e6


def number(value: float) -> str:
    """Return a number as text, with thousands separators."""
    return f"{value:,.10g}"


READ: Final = "reading your capture with the check's own program"


def captured(context: Context) -> Reading:
    """Return the `reading`. Raises Ends: without a capture there is nothing to check."""
    try:
        return reading(context)
    except (Missing, RunProblem, CaptureError) as error:
        raise Ends(nothing(READ, "a capture (check 'Your capture')", str(error))) from None


# -- the checks --------------------------------------------------------------------------------
def capture(context: Context) -> Outcome:
    """Check that the run exists, with a capture and the student's loss and seed."""
    tried = "looking for your run with a capture"
    expected = f"loss {context.integer('loss_percent')} %, seed {context.integer('seed')}, complete"
    try:
        found = reading(context)
    except Missing as error:
        outcome = failed if cells(context.work, EXPERIMENT) else nothing
        return outcome(tried, expected, str(error), "missing")
    except (RunProblem, CaptureError) as error:
        return failed(tried, expected, str(error), "not-yours")
    problems = wrong_with(found.cell, seed=context.integer("seed"), m=4, duration_s=6.0)
    if problems:
        return failed(tried, expected, "; ".join(problems[:3]), "not-yours")
    described = json.loads((found.cell.path / "captures.json").read_text())
    lacking = [c for c in described if c["dropped"] or c["ring"] or c.get("problem")]
    sent = datagrams(found.cell, str(found.cell.described["publisher"]))
    there = len([m for m in found.messages if m.kind in fmtp.BY_UDP])
    if lacking or sent != there:
        text = f"{there:,} datagrams in the capture, {sent:,} sent"
        return failed(tried, expected, text, "incomplete")
    return passed(tried, expected, f"{found.cell.shown}: {there:,} datagrams")


def datagrams(cell: CellOfRun, host: str) -> int:
    """Return how many datagrams the program at `host` sent or received, by its log."""
    text = (cell.path / f"logs/{host}.ldmd.log").read_text(errors="replace")
    return sum(int(n) for n in _DATAGRAMS.findall(text))


def stream(context: Context) -> Outcome:
    """Check the answers: products and blocks in the multicast stream."""
    tried = "counting BOP and MEM_DATA in your capture"
    found = captured(context)
    yours = (context.number("products"), context.number("blocks"))
    right = (len(found.of(fmtp.BOP)), len(found.of(fmtp.MEM_DATA)))
    expected, said = (f"{number(a)} products, {number(b)} blocks" for a, b in (right, yours))
    if yours == right:
        return passed(tried, expected, said)
    all_datagrams = sum(1 for m in found.messages if m.kind in fmtp.BY_UDP)
    is_frames = yours[0] == right[0] and yours[1] >= all_datagrams
    return failed(tried, NOT_TOLD, said, "frames" if is_frames else "other")


def lost(context: Context) -> Outcome:
    """Check the answer: how many datagrams one receiver lost."""
    host = context.word("receiver")
    tried = f"applying the rule of the loss to each datagram of your capture, for {host}"
    found = captured(context)
    answer = context.number("datagrams_lost")
    by_host = {h: lost_by_hash(found, h) for h in found.receivers}
    right = by_host[host]
    sent = datagrams(found.cell, str(found.cell.described["publisher"]))
    arrived = datagrams(found.cell, host)
    expected = f"{right} (sent {sent:,}, arrived {arrived:,})"
    if answer == right == sent - arrived:
        return passed(tried, expected, number(answer))
    if answer == blocks_wanted(found.of(fmtp.RETX_REQ, source=host)):
        hint = "asked"
    elif answer == sum(by_host.values()):
        hint = "all"
    elif answer in by_host.values():
        hint = "other-receiver"
    else:
        hint = "other"
    return failed(tried, NOT_TOLD, number(answer), hint)


def asked(context: Context) -> Outcome:
    """Check the answer: how many blocks one receiver asked for."""
    host = context.word("receiver")
    tried = f"{READ}: RETX_REQ from {host}"
    found = captured(context)
    answer = context.number("blocks_asked_for")
    requests = found.of(fmtp.RETX_REQ, source=host)
    right = blocks_wanted(requests)
    expected = f"{counted(right, 'block')} in {counted(len(requests), 'request')}"
    if answer == right:
        return passed(tried, expected, number(answer))
    if answer == len(requests):
        hint = "requests"
    elif answer == len({m.time_ns for m in requests}):
        hint = "frames"
    elif answer == blocks_wanted(found.of(fmtp.RETX_REQ)):
        hint = "all"
    elif answer == lost_by_hash(found, host):
        hint = "lost"
    else:
        hint = "other"
    return failed(tried, NOT_TOLD, number(answer), hint)


def first(context: Context) -> Outcome:
    """Check the answers about a receiver's first request and its repair."""
    host = context.word("receiver")
    tried = f"{READ}: {host}'s first RETX_REQ, and the block it asks for"
    found = captured(context)
    requests = found.of(fmtp.RETX_REQ, source=host)
    if not requests:
        return failed(tried, "a request", "none in your capture", "block")
    request = requests[0]
    yours = (context.number("first_product"), context.number("first_offset"))
    times = (context.number("asked_after_ms"), context.number("answered_after_ms"))
    sent = next(m for m in found.of(fmtp.MEM_DATA) if same_block(m, request))
    answer = next(
        m
        for m in found.of(fmtp.RETX_DATA, destination=host)
        if same_block(m, request) and m.time_ns >= request.time_ns
    )
    right = (in_ms(sent, request), in_ms(request, answer))
    rtt_ms = found.cell.described["rtt_ms"][host]
    expected = (
        f"product {request.index}, offset {request.seq}; asked after {right[0]:.3f} ms "
        f"(a round trip takes {rtt_ms:g}), answered {right[1]:.3f} ms later"
    )
    said = f"product {yours[0]:g}, offset {yours[1]:g}; {times[0]:g} ms, {times[1]:g} ms"
    if yours != (request.index, request.seq):
        return failed(tried, NOT_TOLD, said, "block")
    tolerance = float(context.arguments["tolerance_ms"])
    for mine, theirs, hint in zip(right, times, ("asked", "answered"), strict=True):
        if abs(mine - theirs) > tolerance:
            seconds = mine > 1 and math.isclose(mine, 1000 * theirs, rel_tol=0.02)
            return failed(tried, NOT_TOLD, said, "unit" if seconds else hint)
    return passed(tried, expected, said)


def same_block(message: Message, request: Message) -> bool:
    """Return whether a message carries the block that a request names."""
    return message.index == request.index and message.seq == request.seq


def beginnings(context: Context) -> Outcome:
    """Check the answer: how many BOP requests a receiver sent."""
    host = context.word("receiver")
    tried = f"{READ}: BOP_REQ from {host}"
    found = captured(context)
    answer, right = context.number("bop_requests"), len(found.of(fmtp.BOP_REQ, source=host))
    if answer == right:
        return passed(tried, str(right), number(answer))
    hint = "all" if answer == len(found.of(fmtp.BOP_REQ)) else "other"
    return failed(tried, NOT_TOLD, number(answer), hint)


def overhead(context: Context) -> Outcome:
    """Check the answers: retransmitted bytes, and their share of the stream."""
    tried = f"{READ}: RETX_DATA to all receivers"
    found = captured(context)
    answer, share = context.number("retransmitted_bytes"), context.number("overhead_percent")
    repairs = found.of(fmtp.RETX_DATA)
    right = sum(m.length for m in repairs)
    right_share = 100 * right / sum(m.length for m in found.of(fmtp.MEM_DATA))
    expected = f"{right:,} bytes, {right_share:.2f} %"
    said = f"{number(answer)} bytes, {share:g} %"
    tolerance = float(context.arguments["tolerance"])
    if math.isclose(answer, right, rel_tol=tolerance):
        close = math.isclose(share, right_share, rel_tol=2 * tolerance)
        return passed(tried, expected, said) if close else failed(tried, NOT_TOLD, said, "percent")
    mine = found.of(fmtp.RETX_DATA, destination=context.word("receiver"))
    if math.isclose(answer, sum(m.length for m in mine), rel_tol=tolerance):
        hint = "mine"
    elif 1.0 < answer / right < 1.25:
        hint = "frames"
    else:
        hint = "other"
    return failed(tried, NOT_TOLD, said, hint)


def shares_whole(cell: CellOfRun) -> dict[str, tuple[int, int]]:
    """Return by host (deliveries without repair, all deliveries by FMTP), from its log."""
    found = {}
    for host in cell.described["subscribers"]:
        text = (cell.path / f"logs/{host}.ldmd.log").read_text(errors="replace")
        blocks = Counter(int(n) > 0 for n in _RETRANS.findall(text))
        found[host] = (blocks[False], blocks.total())
    return found


def whole_percent(cell: CellOfRun) -> float:
    """Return the share of products that arrived without repair, in percent."""
    counts = shares_whole(cell).values()
    return 100 * sum(w for w, _ in counts) / sum(n for _, n in counts)


def sizes_of(cell: CellOfRun) -> list[int]:
    """Return the bytes of the products that were sent, from the run's trace."""
    (trace,) = cell.run.glob("trace*.txt")
    return [int(line.split()[0]) for line in trace.read_text().splitlines()]


def prediction(context: Context) -> Outcome:
    """Check the prediction for more loss against the second run."""
    tried = "your prediction against the second run's logs"
    yours = predicted(context.work, "products_without_repair_percent")
    said = f"{yours:g} %"
    try:
        cell = cell_of(context, "more_loss_percent")
    except (Missing, RunProblem) as error:
        return failed(tried, "a prediction, then a run", f"{said}; {error}", "run")
    if problems := wrong_with(cell, seed=context.integer("seed"), m=4, duration_s=6.0):
        return failed(tried, "a run of yours", "; ".join(problems[:3]), "run")
    right, tolerance = whole_percent(cell), float(context.arguments["tolerance_points"])
    expected = f"{right:.1f} %, to {tolerance:g} percentage points"
    if late := late_s(context.work, cell.started):
        text = f"{said}; written {late:.0f} s after the run began"
        return failed(tried, NOT_TOLD, text, "after")
    p = context.integer("more_loss_percent") / 100
    blocks = [math.ceil(size / BLOCK_BYTES) for size in sizes_of(cell)]
    # Some streams have few products in 6 s, so chance may move the run further from the formula
    # than a  good prediction is.
    formula = 100 * statistics.fmean((1 - p) ** n for n in blocks)
    if abs(yours - right) <= tolerance or abs(yours - formula) <= tolerance / 2:
        return passed(tried, f"{expected}; or {formula:.1f} % by the formula", said)
    mean_blocks = statistics.fmean(blocks)
    if abs(yours - 100 * (1 - p)) <= 1:
        hint = "packets"
    elif abs(yours - 100 * (1 - p) ** mean_blocks) <= 3:
        hint = "mean"
    else:
        hint = "other"
    return failed(tried, NOT_TOLD, said, hint)


def whole(context: Context) -> Outcome:
    """Check the answer: products without repair in the second run."""
    tried = "counting 'retrans: 0' in the four receivers' logs of the second run"
    try:
        cell = cell_of(context, "more_loss_percent")
    except (Missing, RunProblem) as error:
        return nothing(tried, "a second run", str(error))
    answer, right = context.number("products_without_repair_percent"), whole_percent(cell)
    expected, said = f"{right:.2f} %, to 0.2", f"{answer:g}"
    if abs(answer - right) <= 0.2:
        return passed(tried, expected, said)
    good, every = shares_whole(cell)[context.word("receiver")]
    if abs(100 * answer - right) <= 0.2:
        hint = "unit"
    elif abs(answer - 100 * good / every) <= 0.2:
        hint = "receiver"
    elif abs(100 - answer - right) <= 0.2:
        hint = "repaired"
    else:
        hint = "other"
    return failed(tried, NOT_TOLD, said, hint)
