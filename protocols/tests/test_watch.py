# SPDX-License-Identifier: Apache-2.0
"""Files that have arrived, and how long waiting for them takes."""

from __future__ import annotations

import time
from pathlib import Path

from protocols.watch import Watch


def test_a_file_is_told_when_it_is_closed_or_moved_in(tmp_path: Path) -> None:
    inboxes = [tmp_path / "r0", tmp_path / "r1"]
    for inbox in inboxes:
        inbox.mkdir()
    watch = Watch(inboxes)
    (inboxes[1] / "a").write_bytes(b"x")
    (tmp_path / "b").write_bytes(b"y")
    (tmp_path / "b").rename(inboxes[0] / "b")
    assert watch.wait(1) == [(1, "a"), (0, "b")]
    assert watch.wait(0) == []
    watch.close()


def test_a_wait_of_less_than_a_millisecond_lasts_as_long(tmp_path: Path) -> None:
    """50 waits of 0.3 ms are 15 ms: neither nothing nor, rounded up, 50 ms."""
    watch = Watch([tmp_path])
    best_s = min(_spent_s(watch) for _ in range(5))
    assert 0.015 <= best_s < 0.045
    watch.close()


def _spent_s(watch: Watch) -> float:
    begun = time.monotonic()
    for _ in range(50):
        watch.wait(0.0003)
    return time.monotonic() - begun
