# SPDX-License-Identifier: Apache-2.0
"""Protocol m2c as a level: what a file may ask for, what competes, the programs' arguments, and
what their logs give."""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
from pathlib import Path

import pytest

from common.places import EXPERIMENTS, ROOT
from experiments.design import layers
from experiments.design.expansion import CellSpec, expand
from experiments.design.layers import Layers
from experiments.design.spec import ExperimentSpec, SpecErrors, at_level, find, load, load_as
from experiments.runs.preparation import plan
from experiments.tests.judged import GOOD
from experiments.verdict import judge
from parsers.measure.layers import LayersData
from parsers.read import m2c_log
from protocols.adapter import Setup, Station
from topologies.model.core_rate import with_core_rate
from topologies.model.load import find as find_topology
from topologies.model.load import load as load_topology

NAMES = tuple(sorted(path.stem for path in EXPERIMENTS.glob("m2c-*.yaml")))
TEXT = (EXPERIMENTS / "m2c-stream.yaml").read_text()
SETUP = Setup(
    build=Path("/b"),
    work=Path("/w"),
    sender=Station("10.0.0.1", "nic1"),
    receivers=(Station("10.0.0.2", "nic1"),),
    group="239.10.1.1",
    port=38800,
    rate_bps=20_000_000,
)
RECEIVED = """\
slot=1 seconds=21.234 layers=12 packets_per_s=120.9 target_per_s=30.0 lost=242 rtt_ms=160.5 joins=14
bytes=4000000 time_s=33.062 gput_kbps=967.9 tput_kbps=1040.0 loss=8.847 dup=0.071 sym=1.256 \
head=5.432 net=6.851 comp=0.566 received=2823 lost=274 reordered=0 late=0 loss_events=42 joins=15 \
leaves=3 join_timeouts=0 slots=3 stray=0 malformed=0 forged=0 strange=0 socket_drops=0 \
result=complete
"""


def mistakes(folder: Path, *changes: tuple[str, str]) -> str:
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    (folder / "x.yaml").write_text(text)
    with pytest.raises(SpecErrors) as caught:
        load(folder / "x.yaml")
    return str(caught.value)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", ["quick", "paper"])
def test_the_overview_counts_their_cells(name: str, level: str) -> None:
    text = (ROOT / "docs/results/README.md").read_text()
    row = re.search(rf"^\| \[{name}\].*$", text, re.MULTILINE)
    assert row is not None
    cells = expand(at_level(load_as(ExperimentSpec, find(name)), level), level)
    assert len(cells) == int(row[0].split("|")[4 if level == "quick" else 6])
    assert len({cell.cell for cell in cells}) == len(cells)


def test_a_cell_has_its_line_and_a_way_for_what_competes() -> None:
    for item in plan(at_level(load(find("m2c-stream")), "quick"), "quick"):
        core = next(k for k in item.network.links if k.name == "left:right")
        assert core.forward.rate_bps == item.cell.bottleneck.rate_bps in (1_000_000, 4_000_000)
        assert core.forward.queue_bytes == 25 * 1518  # frames with a VLAN tag
        assert item.network.lane_count == 2
        assert item.cell.r_vn_bps == 0  # best effort
        again = CellSpec.from_dict(json.loads(json.dumps(item.cell.to_dict())))
        assert again == item.cell


@pytest.mark.parametrize("name", ["m2c-stream", "m2c-transfers", "m2c-receivers", "leave-latency"])
@pytest.mark.parametrize("level", ["quick", "paper"])
def test_layers_reach_twice_the_line(name: str, level: str) -> None:
    """A sender of 20 Mbit/s made 20 packets for each one that crossed a line of 1 Mbit/s."""
    cells = expand(at_level(load_as(ExperimentSpec, find(name)), level), level)
    layered = [cell for cell in cells if cell.protocol == "m2c"]
    assert layered
    assert {cell.r_bps / cell.bottleneck.rate_bps for cell in layered} == {2.0}


def test_only_the_core_links_change() -> None:
    network = load_topology(find_topology("bottleneck"), {"receivers": 2})
    changed = with_core_rate(network, 1_000_000, 37_950)
    differing = {a.name for a, b in zip(network.links, changed.links, strict=True) if a != b}
    assert differing == {"left:right"}
    with pytest.raises(ValueError, match="valid: a topology with one, such as bottleneck"):
        with_core_rate(load_topology(find_topology("drfsm8")), 1_000_000, 37_950)


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    sizes = "    file_bytes: [4.4MB, 49.3MB, 103.8MB]\n"
    of_quick = "    factors: { file_bytes: [4.4MB, 49.3MB] }\n"
    without = mistakes(tmp_path, *[(sizes, "")] * TEXT.count(sizes), (of_quick, ""))
    assert "protocol m2c without file_bytes" in without
    both = mistakes(tmp_path, ("    background_flows: [0]", "    background_flows: [1]"))
    assert "rival_sessions 1; valid: 0 unless protocol is [m2c]" in both
    short = mistakes(tmp_path, ("  bottleneck_packets: 25", "  slot_s: 1"))
    assert "slot_s 1 with quiescence_s 300; valid: a quiescence of at most 191 slots" in short


def test_what_the_programs_are_told() -> None:
    slow = Layers(cc="webrc", leave_latency_ms=3000, slot_s=2, quiescence_s=60)
    sent = " ".join(layers.send_argv(slow, SETUP, Path("/w/file"), fec="none"))
    assert "--base 239.10.1.1:38800 --interface 10.0.0.1 --max-rate 20000000" in sent
    assert "--slot 2000 --quiescence 60000 --fec none" in sent
    told = " ".join(layers.receive_argv(slow, SETUP, 0, Path("/d")))
    assert "--interface 10.0.0.2 --cc webrc --slot 2000" in told
    assert told.endswith("/d")
    assert layers.listen_argv(slow, SETUP, 0)[-1] == "--listen"
    channels = layers.channels_of("239.10.1.1", slow)
    assert (channels.count, channels.leave_latency_ms) == (1 + 30 + 64, 3000)
    static = dataclasses.replace(slow, cc="static")
    assert "--layers static" in " ".join(layers.send_argv(static, SETUP, Path("f"), fec="none"))


def test_repeats_meet_what_competes_at_other_moments() -> None:
    """In virtual time, repeats beside a long stream were nearly equal: a file of 4 MB by TCP took
    70.44 s with two different seeds."""
    found = [layers.phase_s(repeat, 2053 + repeat) for repeat in range(20)]
    assert found[0] == 0
    assert len(set(found)) == 20
    assert 0 < min(found[1:]) < 2 and 8 < max(found) < layers.PHASE_S


@pytest.mark.slow
def test_short_flows_are_those_of_the_report() -> None:
    """10 a minute; exponential, 85 % below 6 kB."""
    flows = layers.short_flows(10, 600_000, 1)
    assert flows == layers.short_flows(10, 600_000, 1) != layers.short_flows(10, 600_000, 2)
    assert len(flows) == pytest.approx(100_000, rel=0.02)
    sizes = [size for _, size in flows]
    assert sum(size < 6000 for size in sizes) / len(sizes) == pytest.approx(0.85, abs=0.005)
    assert statistics.stdev(sizes) == pytest.approx(statistics.fmean(sizes), rel=0.02)
    assert layers.short_flows(0, 600, 1) == []


def test_the_verdict_sees_what_lies_between_a_nic_and_its_program() -> None:
    got = m2c_log.parse_receiver(RECEIVED)
    assert got is not None and got.overheads is not None
    assert (got.overheads.net, got.by_slot[0].packets_per_s) == (6.851, 120.9)
    sender = m2c_log.LayersSender(33_531, 1436, 20, 10.0, 1700.0, 40.0, 0)

    def statuses(receiver: m2c_log.LayersReceiver, arrived: int, late: int = 0) -> dict[str, str]:
        data = LayersData(dataclasses.replace(sender, late=late), {"a": receiver})
        evidence = dataclasses.replace(
            GOOD, protocol="m2c", layers=data, arrived={"a": (arrived, 0)}
        )
        return {c.name: c.status for c in judge(evidence).checks}

    names = ("datagrams accounted for", "sender rate")
    assert [statuses(got, 2900)[n] for n in names] == ["pass", "pass"]
    assert statuses(got, 2822)[names[0]] == "fail"
    assert statuses(dataclasses.replace(got, socket_drops=1), 2900)[names[0]] == "fail"
    assert statuses(dataclasses.replace(got, stray=1), 2900)[names[0]] == "fail"
    assert statuses(got, 2900, late=1)[names[1]] == "fail"
    assert m2c_log.parse_receiver(RECEIVED[:-20]) is None
