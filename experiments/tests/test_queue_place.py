# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from common.machine import memory_available_bytes
from experiments.cells import queue_place
from topologies.emulate import marks

MEMINFO = (
    "MemTotal:       24000000 kB\nMemFree:  1 kB\nMemAvailable:    8000000 kB\nBuffers: 2 kB\n"
)


def test_available_bytes() -> None:
    assert memory_available_bytes(MEMINFO) == 8_000_000 * 1024
    assert memory_available_bytes("MemFree: 1 kB\n") == 0


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "shm/downpour"
    monkeypatch.setattr(marks, "MEMORY_ROOT", root)
    monkeypatch.setattr(queue_place, "memory_free_bytes", lambda: 6_000_000_000)
    return root


def test_queues_that_fit_lie_in_memory(memory: Path, tmp_path: Path) -> None:
    place, where = queue_place.choose(6_000_000_000, "r1", tmp_path, keep=False)
    assert (place, where) == (memory / "r1", "memory")
    assert place.is_dir()


def test_queues_that_do_not_fit_lie_on_disk(memory: Path, tmp_path: Path) -> None:
    place, where = queue_place.choose(6_000_000_001, "r1", tmp_path, keep=False)
    assert (place, where) == (tmp_path, "disk (memory has 6.0 GB for 6.0 GB)")
    assert not memory.exists()


def test_queues_that_are_kept_lie_on_disk(memory: Path, tmp_path: Path) -> None:
    assert queue_place.choose(1, "r1", tmp_path, keep=True)[0] == tmp_path
    assert not memory.exists()


def test_the_reserve_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.machine.memory_free_bytes", lambda: 1_500_000_000)
    assert queue_place.memory_free_bytes() == 0
