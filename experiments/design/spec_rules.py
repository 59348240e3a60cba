# SPDX-License-Identifier: Apache-2.0
"""What must hold between the factors and parameters of an experiment file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic import BaseModel

from common.counting import counted
from experiments.design import layers
from experiments.design.levels import LISTS, level_of
from experiments.design.parameters import Factors, Parameters
from experiments.design.spec_reports import Reports
from topologies.model.document import Place

# Where the file may have a value that a factor of the same name would replace.
FIXED: Final = (("parameters",), ("subscriptions",), ())


def check_varied(reports: Reports, given: BaseModel | Sequence[BaseModel]) -> None:
    """Report values that no cell uses, because a factor of the same name varies in every cell."""
    blocks = list(given) if isinstance(given, Sequence) else [given]
    others = [] if reports.level is not None else reports.levels_factors()
    for name in type(blocks[0]).model_fields:
        everywhere = all(getattr(block, name) is not None for block in blocks)
        if not everywhere or any("protocol" in block and name not in block for block in others):
            continue  # an added block of a level needs the value
        for above in FIXED:
            if reports.is_written(place := (*above, name)):
                found = f"{name} beside factors.{name}"
                reports.add(place, found, "one of the two: the factor's levels replace the value")


def _given(fixed: Parameters, number: int, block: Factors, name: str) -> list[tuple[Place, Any]]:
    """Return a parameter's values for a block, each with its place; nothing if there are none."""
    if (levels := getattr(block, name)) is not None:
        return [(("factors", number, name, index), level) for index, level in enumerate(levels)]
    value = getattr(fixed, name)
    return [] if value is None else [(("parameters", name), value)]


def check_factors(reports: Reports, fixed: Parameters, blocks: Sequence[Factors]) -> None:
    """Report levels that exclude each other, in a block or with the parameters."""
    names = fixed.subscribers
    if names is not None and len(set(names)) < len(names):
        reports.add(("parameters", "subscribers"), "subscribers with a host twice", "each once")
    for number, block in enumerate(blocks):
        for name, levels in block.model_dump(exclude_none=True).items():
            if len({level_of(name, level) for level in levels}) < len(levels):
                found = f"factors.{name} with a level twice"
                reports.add(("factors", number, name), found, "each level once")
        for name in ("loss", "handoff_loss"):
            for index, level in enumerate(getattr(block, name) or ()):
                if level >= 1.0:
                    place: Place = ("factors", number, name, index)
                    reports.add(place, f"{name} {level:g}", "a probability below 1, e.g. 1%")
        _check_lists(reports, fixed, blocks, number)
        for index, m in enumerate(block.receivers):
            if names is not None and m > len(names):
                place = ("factors", number, "receivers", index)
                valid = f"at most {len(names)}, the number of parameters.subscribers"
                reports.add(place, f"m = {m}", valid)


def _check_file(reports: Reports, fixed: Parameters, number: int, block: Factors) -> None:
    """Check that a carousel has a file, and that periodic loss is the only loss."""
    place: Place = ("factors", number, "protocol")
    if "fcast" in block.protocol and not (block.file_bytes or fixed.file_bytes):
        valid = "file_bytes beside it, in parameters or factors: a carousel sends a file"
        reports.add(place, "protocol fcast without file_bytes", valid)
    _check_storage(reports, fixed, number, block)
    _check_layers(reports, fixed, number, block)
    if any(block.loss_period or (fixed.loss_period,)):
        if any(block.loss):
            found = f"loss {max(block.loss):g} beside loss_period"
            reports.add(("factors", number, "loss"), found, "[0]: every nth datagram is lost")
        if set(block.protocol) != {"fcast"}:
            reports.add(place, f"{', '.join(block.protocol)} with loss_period", "[fcast]")


def _check_layers(reports: Reports, fixed: Parameters, number: int, block: Factors) -> None:
    """Check what layered multicast supports, and what may compete with it."""
    for key, found, valid in layers.problems(fixed, block):
        reports.add(("factors", number, key), found, valid)


def _check_storage(reports: Reports, fixed: Parameters, number: int, block: Factors) -> None:
    """Check the schemes of MSR-TR-99-14: they sort Reed-Solomon groups, and crowd-bucket needs one
    order."""
    storages = set(block.storage or (fixed.storage,))
    place: Place = ("factors", number, "storage") if block.storage else ("parameters", "storage")
    if fec := storages - {"in-place"} and set(block.fec or (fixed.fec,)) - {"rs"}:
        named = ", ".join(sorted(storages - {"in-place"}))
        reports.add(place, f"{named} with fec {', '.join(sorted(fec))}", "in-place, or fec rs")
    orders = set(block.order or (fixed.order,)) - {"sequential"}
    if "crowd-bucket" in storages and orders:
        found = f"crowd-bucket with order {', '.join(sorted(orders))}"
        reports.add(place, found, "another scheme, or order sequential")


def _check_shapers(reports: Reports, fixed: Parameters, number: int, block: Factors) -> None:
    """Check that ldmd's two queues have the same rate and buffer."""
    if fixed.shaped_by == "cell":
        return
    for one, other in (("r_mc", "r_uc"), ("b_mc", "b_uc")):
        levels = [set(getattr(block, x) or (getattr(fixed, x),)) for x in (one, other)]
        if len(levels[0] | levels[1]) > 1:
            found = f"shaped_by: ldmd with {one} and {other} that differ"
            reports.add(("factors", number), found, "one value of both")


def _check_lists(
    reports: Reports, fixed: Parameters, blocks: Sequence[Factors], number: int
) -> None:
    """Check lists by receiver, and parameters that only some receivers or protocols may have."""
    block = blocks[number]
    _check_lengths(reports, fixed, blocks, number)
    without = max(block.without_multicast or (fixed.without_multicast,))
    if without:
        place: Place = ("factors", number, "without_multicast")
        found = f"without_multicast {without}"
        if without >= min(block.receivers):
            valid = f"below {min(block.receivers)}, the least of factors.receivers"
            reports.add(place, found, valid)
        if "ldm6" in block.protocol:
            valid = "0 with protocol ldm6; a separate block with protocol [ldm7]"
            reports.add(place, found, valid)
    _check_sender(reports, fixed, number, block)
    _check_file(reports, fixed, number, block)
    _check_offsets(reports, fixed, number, block)
    _check_shapers(reports, fixed, number, block)
    losses = _given(fixed, number, block, "p_i")
    for place, p_i in losses:
        if max(p_i) >= 1.0:
            reports.add(place, "p_i of 1", "probabilities below 1, e.g. 1%")
    if losses and any(block.loss):
        found = f"loss {max(block.loss):g} beside {losses[0][0][0]}.p_i"
        reports.add(("factors", number, "loss"), found, "[0]: p_i has each receiver's loss")
    _check_first(reports, fixed, number, block)
    slow = [text for text in block.first_receiver or () if text.startswith("rate-")]
    queues = _given(fixed, number, block, "queue_i")
    if queues and not _given(fixed, number, block, "rate_i_bps") and not slow:
        reports.add(queues[0][0], "queue_i without rate_i_bps", "both, or neither")
    round_trips = _given(fixed, number, block, "rtt_i_ms")
    if round_trips and (block.rtt_ms or fixed.rtt_ms is not None):
        reports.add(round_trips[0][0], "rtt_i_ms beside rtt_ms", "one of the two")


def _check_lengths(
    reports: Reports, fixed: Parameters, blocks: Sequence[Factors], number: int
) -> None:
    """Check that each list has a value for each receiver of its block. It may have more if another
    block, or a level, has a larger m."""
    block = blocks[number]
    own = max(block.receivers)
    others = [m for b in blocks for m in b.receivers]
    if reports.level is None:
        given = [levels.get("receivers") for levels in reports.levels_factors()]
        others += [m for ms in given if isinstance(ms, list) for m in ms if isinstance(m, int)]
    for name in LISTS:
        for place, values in _given(fixed, number, block, name):
            found, count = f"{name} of {counted(len(values), 'receiver')}", len(values)
            if count < own:
                reports.add(place, found, f"{own}, as factors.receivers has m = {own}")
            elif count > max(others) and (reports.level is None or reports.is_written(place)):
                valid = f"at most {max(others)}, the largest of factors.receivers"
                reports.add(place, found, valid)


def _check_first(reports: Reports, fixed: Parameters, number: int, block: Factors) -> None:
    """Check that the first receiver differs by `first_receiver` or by lists, not both, and that
    marks have a managed queue."""
    levels = block.first_receiver or (fixed.first_receiver,)
    place: Place = ("factors", number, "first_receiver")
    if set(levels) != {"as-others"}:
        for name in ("p_i", "rtt_i_ms", "rate_i_bps"):
            if _given(fixed, number, block, name):
                reports.add(place, f"first_receiver beside {name}", "one of the two")
        if "fcast" in block.protocol:
            found = "protocol fcast with first_receiver"
            reports.add(("factors", number, "protocol"), found, "another protocol")
    if "mark" in (block.ecn or (fixed.ecn,)) and "fifo" in (block.aqm or (fixed.aqm,)):
        found = "ecn mark with aqm fifo"
        reports.add(("factors", number, "ecn"), found, "aqm codel, fq-codel or pie")


def _check_sender(reports: Reports, fixed: Parameters, number: int, block: Factors) -> None:
    """Check parameters that only LDM6 may have, and those that only LDM7 may have."""
    place: Place = ("factors", number, "protocol")
    if (block.sender_bps or fixed.sender_bps) and set(block.protocol) != {"ldm6"}:
        reports.add(place, f"{', '.join(block.protocol)} with sender_bps", "[ldm6]")
    if "nic1" not in (block.pull_path or (fixed.pull_path,)):
        return
    if set(block.protocol) != {"ldm7"}:
        reports.add(place, f"{', '.join(block.protocol)} with pull_path nic1", "[ldm7]")
    if fixed.vlans_by != "network":
        # They subscribe over the path, which needs the interface first.
        where: Place = ("parameters", "vlans_by")
        reports.add(where, "pull_path nic1 with vlans_by: ldmd", "vlans_by: network")
    if any(block.without_multicast or (fixed.without_multicast,)):
        reports.add(place, "pull_path nic1 with without_multicast", "pull_path nic2")


def _check_offsets(reports: Reports, fixed: Parameters, number: int, block: Factors) -> None:
    """Check that clocks are off by one level or by a list, and only where ldmd runs."""
    offset = any(block.clock_offset_ms or (fixed.clock_offset_ms,))
    lists = _given(fixed, number, block, "clock_offset_i_ms")
    if offset and lists:
        found = "clock_offset_i_ms beside clock_offset_ms"
        reports.add(lists[0][0], found, "one of the two")
    place: Place = ("factors", number, "protocol")
    for name in (n for n in ("fcast", "m2c") if n in block.protocol):
        if offset or any(any(values) for _, values in lists):
            reports.add(place, f"protocol {name} with a clock offset", "ldm7 or ldm6")
        if any(block.pause_ms or (fixed.pause_ms,)):
            reports.add(place, f"protocol {name} with pause_ms", "ldm7 or ldm6")
