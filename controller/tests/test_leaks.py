# SPDX-License-Identifier: Apache-2.0
"""Nothing is left of paths that came and went: objects of each type are counted.

Past events and holds are kept up to a bound, which is low here. `test_soak.py` watches a controller
process.
"""

from __future__ import annotations

import gc
import logging
import os
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.paths.core import Endpoint
from controller.service import holds
from controller.service.events import EventLog
from controller.service.service import PathService
from controller.service.views import PathWish
from controller.tests.rig import Rig
from controller.tests.sample import LEAF_2, LEAF_3, LEAF_4, ROOT

KEPT = 20  # past events and holds
WARM, CYCLES = 60, 100
LONG = int(os.environ.get("DOWNPOUR_CYCLES", "300"))
SPARE_KB = 1024  # growth allowed in the second half of the long test
RATE_BPS = 20_000_000
SPARE_OBJECTS = CYCLES // 2  # of one type: the interpreter's caches; a leak leaves one a cycle
SPARE_BYTES = 20_000
OWN = ("builtins.set", "builtins.builtin_function_or_method")  # `objects` itself makes some


class SmallRig(Rig):
    """A rig that remembers few events."""

    def new_service(self) -> PathService:
        return PathService(
            self.of, "core", self.apply, self.read,
            store=self.store, events=EventLog("0", KEPT), clock=self.clock,
        )  # fmt: skip


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr(holds, "MAX_REMEMBERED", KEPT)
    logging.disable()  # pytest would keep what is logged
    yield SmallRig()
    logging.disable(logging.NOTSET)


def cycle(rig: Rig, number: int) -> None:
    """Make two paths, one by a hold, change them, fail a link, count, and delete them."""
    service, name = rig.service, f"path-{number}"
    service.create(name, ROOT, RATE_BPS)
    for leaf in (LEAF_2, LEAF_3, LEAF_4):
        service.add_leaf(name, leaf)
    service.remove_leaf(name, LEAF_3.key)
    service.add_leaf(name, LEAF_3)
    service.link_changed("s1:s2", False)
    service.link_changed("s1:s2", True)
    other = PathWish(f"{name}-b", Endpoint("s1", 1, 200 + number % 1000), RATE_BPS)
    service.hold(f"hold-{number}", other, rig.clock() + 60)
    service.commit(f"hold-{number}")
    in_vain = PathWish(f"{name}-c", Endpoint("s2", 9, 1200 + number % 1000), RATE_BPS)
    service.hold(f"vain-{number}", in_vain, rig.clock() + 0.5)
    rig.monitor.read(0)
    service.delete(other.name)
    service.delete(name)
    rig.clock.now += 1
    service.expire()
    for notes in (rig.asked, rig.sent):  # kept by the rig itself
        notes.clear()


def objects() -> Counter[str]:
    gc.collect()
    return Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())


def traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start(1)
    yield
    tracemalloc.stop()


@pytest.mark.long
def test_no_object_stays(rig: Rig, traced: None) -> None:
    del traced
    for number in range(WARM):
        cycle(rig, number)
    before = objects()
    before_bytes = traced_bytes()
    for number in range(WARM, WARM + CYCLES):
        cycle(rig, number)
    after_bytes = traced_bytes()
    after = objects()
    grown = {k: n - before[k] for k, n in after.items() if n - before[k] > SPARE_OBJECTS}
    print(f"{CYCLES} cycles: {after_bytes - before_bytes:+} bytes")
    assert {k: n for k, n in grown.items() if k not in OWN} == {}
    assert after_bytes - before_bytes < SPARE_BYTES


def resident_kb() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


@pytest.mark.long
@pytest.mark.slow
def test_the_second_half_adds_nothing(rig: Rig) -> None:
    """DOWNPOUR_CYCLES=10000 runs that many."""
    sizes_kb = []
    for number in range(LONG):
        if number % (LONG // 10) == 0:
            sizes_kb.append(resident_kb())
        cycle(rig, number)
    sizes_kb.append(resident_kb())
    print(f"{LONG} cycles, kB after each tenth: {sizes_kb}")
    assert sizes_kb[-1] - sizes_kb[5] < SPARE_KB


@pytest.mark.slow
def test_a_leak_would_be_seen(rig: Rig) -> None:
    """Without this, the test above would prove nothing."""
    cycle(rig, 0)
    before, leaked = objects(), []
    for number in range(1, 2 * SPARE_OBJECTS):
        cycle(rig, number)
        leaked.append(Endpoint("s1", 1, number))
    kind = "controller.paths.core.Endpoint"
    assert objects()[kind] - before[kind] > SPARE_OBJECTS
    assert leaked


def test_a_free_number_is_kept_once(rig: Rig) -> None:
    """However often its path came and went."""
    for _ in range(50):
        rig.service.create("a", ROOT, RATE_BPS)
        rig.service.delete("a")
    assert rig.service.state.reservations.next_number() == 1
    assert len(rig.service.state.reservations._free_numbers) == 1
