# SPDX-License-Identifier: Apache-2.0
"""A guaranteed path keeps its rate whatever happens beside it. Exact in a guest (test_in_guest.py),
where computing takes no time; on a machine's own clock within what a busy one loses by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controller.api.path_client import PathClient
from controller.switches.queue_tc import DEFAULT, HANDLE
from tests.path_service import guarantee
from tests.path_service.guarantee import Flood, Kept, goodput_bps, interval_us, keeps_its_rate
from tests.path_service.networks import lab_of, mesh, tidy
from topologies.emulate.emulation import Emulation
from topologies.emulate.processes import relay_program

LINK_BPS, KEPT_BPS, OTHER_BPS, FLOOD_BPS = 20_000_000, 8_000_000, 3_000_000, 30_000_000
SECONDS = 3.0
MOST_UNCERTAIN = 0.2  # on a machine's own clock: then a meter of half the rate is still noticed
FULL_FRAME_BITS = (1400 + 42) * 8


@contextmanager
def mesh_lab(*, queues: bool) -> Iterator[Emulation]:
    if not relay_program().exists():
        pytest.skip(f"{relay_program()} is not built (make build): guarantees were NOT tested")
    network = mesh(lanes=3, delayed=False, rate_bps=LINK_BPS)
    with lab_of(network, queues=queues) as found:
        yield found


@pytest.fixture(scope="module")
def running() -> Iterator[Emulation]:
    with mesh_lab(queues=True) as found:
        yield found


@pytest.fixture
def emulation(running: Emulation) -> Iterator[Emulation]:
    yield running
    tidy(running)


def exact(emulation: Emulation) -> bool:
    return emulation.facts.clock == "virtual"


def number_of(emulation: Emulation, path: str) -> int:
    with PathClient(emulation.controller_socket) as service:
        meter = service.get(path)["meter"]
    assert meter is not None, f"path {path} has no guarantee"
    return meter["id"]


def dropped_by_class(emulation: Emulation, number: int) -> int:
    """Frames that the class of the path, or DEFAULT, dropped at all switch ports. AssertionError if
    there is no such class (userspace datapath)."""
    found = [
        record["drops"]
        for name, record in emulation.counters()["classes"].items()
        if name.endswith(f"/{HANDLE:x}:{number:x}")
    ]
    assert found, f"no class {number:x}"
    return sum(found)


def lost_share(found: Kept) -> float:
    return found.kept.lost / found.kept.sent


@pytest.mark.long
@pytest.mark.root
def test_without_queues_it_does_not() -> None:
    """The control: the same flood takes what the path was promised. First: it has its own lab, and
    this process can be in one only."""
    with mesh_lab(queues=False) as emulation:
        found = keeps_its_rate(emulation, KEPT_BPS, OTHER_BPS, "udp", FLOOD_BPS, SECONDS)
    print(f"without queues: kept {found.kept}, {found.kept_bps / 1e6:.3f} Mbit/s")
    assert lost_share(found) > 0.1


@pytest.mark.root
@pytest.mark.parametrize("flood", ["udp", "tcp"])
def test_path_keeps_its_rate(emulation: Emulation, flood: Flood) -> None:
    """Beside iperf3, and beside another guaranteed path that sends three times its rate."""
    found = keeps_its_rate(emulation, KEPT_BPS, OTHER_BPS, flood, FLOOD_BPS, SECONDS)
    print(f"{flood}: kept {found.kept}, {found.kept_bps / 1e6:.3f} Mbit/s")
    assert found.other is not None and found.flood_bps is not None
    assert found.kept.doubled == 0
    # The other path: its rate, and what its meter's bucket holds at the begin (200 kbit).
    assert found.other_bps <= (OTHER_BPS + 200_000 / SECONDS) * 1.02
    # Nobody starves: the flood gets what is left of the link, but for its headers.
    free_bps = LINK_BPS - KEPT_BPS - OTHER_BPS
    if exact(emulation):
        assert found.kept.lost == 0
        assert abs(found.kept_bps / KEPT_BPS - 0.99) < 0.001
        assert found.other_bps >= OTHER_BPS * 0.999
        assert found.flood_bps > free_bps * 0.9
    else:
        # What a busy machine loses before and behind the queue is not the queue's doing (and it may
        # lose so many probes that a link looks dead): the queue itself says what it dropped.
        assert dropped_by_class(emulation, number_of(emulation, "kept")) == 0
        assert flood == "tcp" or dropped_by_class(emulation, DEFAULT) > 0


@pytest.mark.root
def test_meter_is_exact(emulation: Emulation) -> None:
    """Of 1.5 times its rate exactly the rate passes."""
    found = guarantee.metered(emulation, KEPT_BPS, SECONDS)
    off = found.bps / KEPT_BPS - 1
    print(f"meter: {off:+.4%}, on this machine +-{found.uncertainty:.4%}")
    # 2 s hold about 1400 frames: a frame more or less are 0.07 %.
    if exact(emulation):
        assert abs(off) < 0.002
        return
    if found.uncertainty > MOST_UNCERTAIN:
        pytest.skip(
            f"this machine stood still for up to {max(found.gaps_s):.2f} s: the meter was NOT "
            "tested on its clock (in virtual time it is: test_in_guest.py)"
        )
    assert abs(off) < 0.002 + found.uncertainty


def test_only_gaps_longer_than_the_bucket_lose_anything() -> None:
    gaps_s = [0.001, 0.040, 0.150, 0.001]
    found = guarantee.Metered(8e6, 2.0, gaps_s)
    assert found.uncertainty == pytest.approx((0.100 + 0.050) / 2)
    assert guarantee.Metered(8e6, 2.0, [0.002, 0.004]).uncertainty == pytest.approx(0.002)
    queued = guarantee.Metered(8e6, 2.0, [0.002, 0.004], late_s=0.010)
    assert queued.uncertainty == pytest.approx((0.004 + 0.010) / 2)


def test_interval() -> None:
    assert interval_us(FULL_FRAME_BITS * 1000.0) == pytest.approx(1000.0)


def test_goodput_of_iperf() -> None:
    # iperf 3.12: TCP has both sums; UDP says what was sent and the part that was lost.
    tcp = '{"end": {"sum_sent": {"bytes": 2}, "sum_received": {"bytes": 1, "bits_per_second": 8}}}'
    assert goodput_bps(tcp) == 8
    udp = '{"end": {"sum": {"bits_per_second": 200, "lost_percent": 25}}}'
    assert goodput_bps(udp) == 150
