# SPDX-License-Identifier: Apache-2.0
"""What a cell's surroundings do: the first receiver, queues that manage themselves, marks."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.cells.pauses import Stop
from experiments.design.conditions import Conditions, handicap
from experiments.design.expansion import CellSpec, expand
from experiments.design.networks import Networks
from experiments.design.spec import ExperimentSpec, SpecErrors, load_as
from topologies.model.wire_plan import DISCIPLINES
from virtual.guest import GuestSpec, run_guest
from virtual.kernel_build import Kernel

HEAD = """
name: own
description: what the first receiver has
topology: TOPOLOGY
factors: {protocol: [ldm7], receivers: [4], rate_bps: [20Mbps], loss: [1%], FACTORS}
parameters:
  {f_snd: 5000, f_rcv: 20, b_mc: 1MB, b_uc: 1MB, b_rcv: 1MB, q_snd: 100MB, n_snd: 100}
base_seed: 1
duration_s: 5
"""


def cells(place: Path, factors: str, topology: str = "geni5") -> tuple[CellSpec, ...]:
    path = place / "own.yaml"
    path.write_text(HEAD.replace("FACTORS", factors).replace("TOPOLOGY", topology))
    return expand(load_as(ExperimentSpec, path))


@pytest.mark.parametrize(
    ("text", "kind", "size"),
    [("as-others", "", 0), ("loss-10", "loss", 10), ("rate-5", "rate", 5), ("stop-10", "stop", 10)],
)
def test_a_handicap_is_read(text: str, kind: str, size: float) -> None:
    found = handicap(text)
    assert (found.kind, found.size) == (kind, size)


@pytest.mark.parametrize("text", ["loss-100", "loss-0", "slow", "stop-10s", "rtt-99999", "loss--1"])
def test_another_handicap_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="as-others, loss-10"):
        handicap(text)


def test_the_first_receiver_alone_loses_more(tmp_path: Path) -> None:
    """10 % at one, 1 % at three: 13 % of four; each is named."""
    (cell,) = cells(tmp_path, "first_receiver: [loss-10]")
    hosts = ("a", "b", "c", "d")
    assert cell.by_receiver(hosts, "p_i") == {"a": 0.1, "b": 0.01, "c": 0.01, "d": 0.01}
    assert cell.loss == pytest.approx(0.13 / 4)
    assert cell.cell == "ldm7-m4-r20-p1-first-loss-10"
    again = CellSpec.from_dict(cell.to_dict())
    assert again.conditions == cell.conditions


def test_the_first_receiver_alone_has_a_slow_link_or_a_long_way(tmp_path: Path) -> None:
    networks = Networks()
    both = cells(tmp_path, "first_receiver: [as-others, rate-5, rtt-300]")
    usual, slow, far = (networks.of(cell) for cell in both)
    first, second = (host.name for host in usual.subscribers[:2])
    nic = usual.host(first).nic1.interface

    def to_first(network: object) -> object:
        links = network.links  # type: ignore[attr-defined]
        (link,) = (k for k in links if nic in (k.a.interface, k.b.interface))
        return link.forward if link.b.interface == nic else link.backward

    assert to_first(slow).rate_bps == 5_000_000  # type: ignore[attr-defined]
    assert to_first(usual).rate_bps is None  # type: ignore[attr-defined]
    assert far.round_trip_ms[first] == 300
    assert far.round_trip_ms[second] == usual.round_trip_ms[second]
    # Half of the difference between 300 ms and the topology's round trip, in each direction.
    more = (300 - usual.round_trip_ms[first]) / 2
    assert to_first(far).delay_ms == pytest.approx(more)  # type: ignore[attr-defined]


def test_queues_are_managed_where_a_link_has_a_rate(tmp_path: Path) -> None:
    (cell,) = cells(tmp_path, "aqm: [fq-codel], ecn: [mark]", "bottleneck")
    network = Networks().of(cell)
    found = {k.name: k.forward.discipline for k in network.links if k.forward.rate_bps}
    assert set(found.values()) == {"fq_codel ecn"}
    assert {k.forward.discipline for k in network.links if not k.forward.rate_bps} == {""}
    assert Conditions(aqm="codel").discipline == "codel"
    assert Conditions().discipline == ""


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ("ecn: [mark]", r"own.yaml:5: found ecn mark with aqm fifo; valid: aqm codel"),
        ("first_receiver: [slow]", r"own.yaml:5: found .*slow.*valid: as-others, loss-10"),
        ("aqm: [red]", r"own.yaml:5: found .*red"),
        ("handoff_loss: [100%]", r"own.yaml:5: found handoff_loss 1; valid: a probability below"),
    ],
)
def test_what_cannot_be_is_told(tmp_path: Path, factors: str, expected: str) -> None:
    with pytest.raises(SpecErrors, match=expected):
        cells(tmp_path, factors)


def test_tcp_without_selective_acknowledgements(tmp_path: Path) -> None:
    """Settings are asked of the hosts only where they differ from the system's."""
    on, off = cells(tmp_path, "sack: [on, off]")
    assert on.conditions.sysctls == {}
    assert off.conditions.sysctls == {"tcp_sack": "0"}
    assert off.cell.endswith("-sack-off")
    assert Conditions(ecn="mark", sack="off").sysctls == {"tcp_ecn": "1", "tcp_sack": "0"}


def test_a_stop_is_as_long_as_asked() -> None:
    program = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        stop = Stop(program.pid, 0.05, 0.4)
        time.sleep(0.25)
        state = Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0]
        time.sleep(0.6)
        stop.stop()
    finally:
        program.kill()
        program.wait()
    assert state == "T"
    found = stop.read_back("first", "native").found
    assert isinstance(found, float)
    assert 0.4 <= found < 0.6


@pytest.mark.emulated
def test_a_guest_has_every_discipline(kernel: Kernel) -> None:
    """`aqm: [codel, pie]` once failed in virtual time: the guest's kernel had only FQ-CoDel."""
    tries = [
        f"tc qdisc replace dev lo root {kind} limit 100 {mark}"
        for kind in DISCIPLINES
        for mark in ("ecn", "noecn")
    ]
    script = "ip link set lo up; " + "; ".join(f"{each} && tc qdisc show dev lo" for each in tries)
    out, err = io.BytesIO(), io.BytesIO()
    code, _ = run_guest(kernel, GuestSpec(argv=("sh", "-c", script)), stdout=out, stderr=err)
    found = [line.split()[1] for line in out.getvalue().decode().splitlines()]
    assert (code, err.getvalue()) == (0, b"")
    assert found == [kind for kind in DISCIPLINES for _ in range(2)]
