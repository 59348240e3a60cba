# SPDX-License-Identifier: Apache-2.0
"""A guaranteed path keeps its rate whatever other traffic does. It does so exactly in a guest
(test_in_guest.py), where computing takes no time; on its own clock a busy machine loses frames."""

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
MOST_UNCERTAIN = 0.2  # on a machine's own clock, where this still finds a meter of half the rate
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
    """Return how many frames the path's class, or DEFAULT, dropped at all switch ports. Assert that
    the class exists (it does not in the userspace datapath)."""
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
    """This is the control: without queues the flood takes the path's rate. The test comes first: it
    has its own network, and a process can be in one only."""
    with mesh_lab(queues=False) as emulation:
        found = keeps_its_rate(emulation, KEPT_BPS, OTHER_BPS, "udp", FLOOD_BPS, SECONDS)
    print(f"without queues: kept {found.kept}, {found.kept_bps / 1e6:.3f} Mbit/s")
    assert lost_share(found) > 0.1


@pytest.mark.root
@pytest.mark.parametrize("flood", ["udp", "tcp"])
def test_path_keeps_its_rate(emulation: Emulation, flood: Flood) -> None:
    """iperf3 floods, and another guaranteed path sends three times its rate."""
    found = keeps_its_rate(emulation, KEPT_BPS, OTHER_BPS, flood, FLOOD_BPS, SECONDS)
    print(f"{flood}: kept {found.kept}, {found.kept_bps / 1e6:.3f} Mbit/s")
    assert found.other is not None and found.flood_bps is not None
    assert found.kept.doubled == 0
    # The other path gets its rate, and its meter's full bucket at the start (200 kbit).
    assert found.other_bps <= (OTHER_BPS + 200_000 / SECONDS) * 1.02
    # The flood does not starve: its payload gets the rest of the link, less headers.
    free_bps = LINK_BPS - KEPT_BPS - OTHER_BPS
    if exact(emulation):
        assert found.kept.lost == 0
        assert abs(found.kept_bps / KEPT_BPS - 0.99) < 0.001
        assert found.other_bps >= OTHER_BPS * 0.999
        assert found.flood_bps > free_bps * 0.9
    else:
        # A busy machine loses frames before and after the queue, and so many probes that a link may
        # look dead. Judge the queue by its own count of drops.
        assert dropped_by_class(emulation, number_of(emulation, "kept")) == 0
        assert flood == "tcp" or dropped_by_class(emulation, DEFAULT) > 0


@pytest.mark.root
def test_meter_is_exact(emulation: Emulation) -> None:
    """A meter passes exactly its rate of a stream of 1.5 times that."""
    found = guarantee.metered(emulation, KEPT_BPS, SECONDS)
    off = found.bps / KEPT_BPS - 1
    print(f"meter: {off:+.4%}, on this machine +-{found.uncertainty:.4%}")
    # 2 s hold about 1400 frames, so one frame is 0.07 %.
    if exact(emulation):
        assert abs(off) < 0.002
        return
    if found.uncertainty > MOST_UNCERTAIN:
        pytest.skip(
            f"this machine paused for up to {max(found.gaps_s):.2f} s: the meter was NOT "
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
    # iperf 3.12: TCP reports both sums, UDP what it sent and the part that was lost.
    tcp = '{"end": {"sum_sent": {"bytes": 2}, "sum_received": {"bytes": 1, "bits_per_second": 8}}}'
    assert goodput_bps(tcp) == 8
    udp = '{"end": {"sum": {"bits_per_second": 200, "lost_percent": 25}}}'
    assert goodput_bps(udp) == 150
