# SPDX-License-Identifier: Apache-2.0
"""Cells in several guests: what is refused, planned and judged. No guest runs here."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from experiments.cells import elsewhere
from experiments.design import trace_input
from experiments.design.expansion import CellSpec
from experiments.design.spec import UsageError
from experiments.runs import clocks, plan_summary
from experiments.runs import parts as in_parts
from experiments.runs.cell_process import Clock, VirtualClock, sample_of
from experiments.runs.options import RunOptions
from experiments.runs.preparation import Planned
from experiments.verdict.in_parts import parse, parts_checks
from topologies.model.network import Network
from topologies.model.parts import plan
from topologies.model.round_trip import with_round_trip
from topologies.remote.part_plan import PartPlan, files_of
from virtual.parts.calendar import LEAD_NS


def planned(cell: CellSpec, network: Network) -> Planned:
    return Planned(cell, network, trace_input.of_file(1))


def clock_of(one: Planned, name: str = "virtual", **given: Any) -> Clock:
    options = RunOptions(name="lossy", **given)
    return clocks.clock_of(name, options, [one], plan_only=True, parts=2)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"protocol": "norm"}, "protocol norm; valid: ldm7, ldm6"),
        ({"pause_ms": 5.0}, "a receiver that pauses; valid: receivers that do not"),
        ({"background_flows": 1}, "competing flows; valid: none"),
        ({"vlans_by": "ldmd"}, "interfaces that ldmd makes; valid: the network's own"),
    ],
)
def test_cells_that_need_all_hosts_in_one_part(
    changes: dict[str, Any], found: str, cells: dict[str, CellSpec], geni5: Network
) -> None:
    cell = dataclasses.replace(cells["ldm7"], **changes)
    with pytest.raises(UsageError, match=f"^--parts: found {found}"):
        clock_of(planned(cell, geni5))


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"monitor": True}, "--monitor; valid: none"),
        ({"capture": ["a:b"]}, "--capture a:b; valid: none"),
        ({"keep_work": True}, "--keep-work; valid: without it"),
    ],
)
def test_options_that_need_all_hosts_in_one_part(
    given: dict[str, Any], found: str, cells: dict[str, CellSpec], geni5: Network
) -> None:
    with pytest.raises(UsageError, match=f"^--parts: found {found}"):
        clock_of(planned(cells["ldm7"], geni5), **given)


def test_real_clocks_have_one_part(cells: dict[str, CellSpec], geni5: Network) -> None:
    with pytest.raises(UsageError, match="found --parts 2; valid: 1 with the native clock"):
        clock_of(planned(cells["ldm7"], geni5), "native")


def test_the_number_of_parts_is_part_of_the_sample(
    cells: dict[str, CellSpec], geni5: Network
) -> None:
    clock = clock_of(planned(cells["ldm7"], geni5))
    assert isinstance(clock, VirtualClock)
    assert clock.describe()["parts"] == 2
    assert sample_of(clock) == "virtual, 2 parts"
    alone = VirtualClock(clock.kernel)
    assert "parts" not in alone.describe()
    assert sample_of(alone) == "virtual"


def test_the_plan_says_how_the_cell_is_cut(cells: dict[str, CellSpec], geni5: Network) -> None:
    one = planned(cells["ldm7"], geni5)
    here = 8 - len(plan(geni5, 2).others[0])
    expected = f"the publisher and {here} receivers; {8 - here} receivers"
    assert plan_summary.parts_line([one], 2).endswith(expected)


def test_the_plan_says_why_a_cell_is_not_cut(cells: dict[str, CellSpec], geni5: Network) -> None:
    near = planned(cells["ldm7"], with_round_trip(geni5, 2.0))
    line = plan_summary.parts_line([near], 2)
    assert line.startswith("  one part remains: wsu1 stays: ")
    assert "valid: 4 ms or more" in line


def test_a_window_and_the_lead_are_the_shortest_delay(geni5: Network) -> None:
    known = in_parts.plan_of(plan(geni5, 3), Path("/guest/checkout/build"))
    assert known.asking_ns == min(
        round(ms * 1e6) for part in known.others for host in part for ms in (host.nics[0].to_ms,)
    )
    assert 0 <= known.asking_ns - LEAD_NS - known.window_ns < 256
    assert PartPlan.from_json(known.to_json()) == known
    assert len(set(files_of(3))) == 8


def frames(there: int, here: int, back: int, arrived: int) -> dict[str, int]:
    return {
        "sent_there": there,
        "received_here": here,
        "sent_here": back,
        "received_there": arrived,
    }


def raw(before: dict[str, int], after: dict[str, int] | None) -> dict[str, Any]:
    end = None if after is None else {"q-nic1": after}
    return {"q": {"part": 1, "before": {"q-nic1": before}, "after": end}}


@pytest.mark.parametrize(
    ("after", "status", "value"),
    [
        (frames(100, 100, 50, 50), "pass", 0),
        (frames(100, 101, 50, 52), "pass", 0),  # sent after the sending end was read
        (frames(100, 99, 50, 50), "fail", 1),
        (frames(100, 100, 50, 47), "fail", 3),
    ],
)
def test_a_lost_frame_fails_the_cell(after: dict[str, int], status: str, value: int) -> None:
    (check,) = parts_checks(parse(raw(frames(10, 10, 5, 5), after)))
    assert (check.status, check.found) == (status, value)


class Ends:
    """A cut link on which a frame passes each way whenever one of its ends has been read, until
    all is quiet."""

    nics: Final = (SimpleNamespace(interface="q-nic1"),)

    def __init__(self) -> None:
        self.sent = self.lost = 0
        self.quiet = False

    def call(self, what: str) -> dict[str, dict[str, int]]:
        assert what == "carried"
        return {"q-nic1": self._read(10 + self.sent, 8 + self.sent - self.lost)}

    def here(self, _pid: int) -> dict[str, dict[str, int]]:
        return {"q-nic1": self._read(13 + self.sent - self.lost, 11 + self.sent)}

    def _read(self, tx: int, rx: int) -> dict[str, int]:
        self.sent += not self.quiet
        return {"tx_packets": tx, "rx_packets": rx}


@pytest.mark.parametrize("lost", [0, 7])
def test_frames_that_pass_while_the_ends_are_read_are_not_lost(
    monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    ends = Ends()
    host: Any = ends
    monkeypatch.setattr(elsewhere, "_here", ends.here)
    before = elsewhere.frames_before(host, 1)
    ends.sent, ends.lost, ends.quiet = ends.sent + 100, lost, True
    sent = elsewhere._frames(host, 1)
    after = elsewhere.frames_after(sent, host, 1)
    (check,) = parts_checks(parse(raw(before["q-nic1"], after["q-nic1"])))
    assert check.status == ("fail" if lost else "pass")
    # A few that were on the way at a look may hide as many lost ones.
    assert 2 * lost - 8 <= int(str(check.found)) <= 2 * lost


def test_frames_from_before_the_link_ran_do_not_count() -> None:
    (check,) = parts_checks(parse(raw(frames(10, 8, 5, 5), frames(100, 98, 50, 50))))
    assert check.status == "pass"


def test_a_part_that_does_not_answer_fails_the_cell() -> None:
    (check,) = parts_checks(parse(raw(frames(1, 1, 1, 1), None)))
    assert check.status == "fail" and "did not answer" in check.text


def test_one_part_has_no_check() -> None:
    assert parts_checks(parse({})) == []
