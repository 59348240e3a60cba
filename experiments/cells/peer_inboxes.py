# SPDX-License-Identifier: Apache-2.0
"""The receivers' inboxes of a cell whose protocol delivers files: what has arrived, what is
missing, what has other bytes than were sent, and what came again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from experiments.design.peer_products import PeerProduct
from protocols.adapter import Setup
from protocols.files import same_bytes
from protocols.watch import Watch


class Inboxes:
    """Watches the inboxes of `setup`, which exist. Removes what has arrived."""

    def __init__(
        self, setup: Setup, products: Sequence[PeerProduct], *, keep_sources: bool
    ) -> None:
        """`keep_sources`: keep the sender's files that all receivers have."""
        self._setup, self._keep_sources = setup, keep_sources
        receivers = range(len(setup.receivers))
        self._watch = Watch([setup.inbox(i) for i in receivers])
        self._by_name = {p.name: p for p in products}
        self._left = dict.fromkeys(self._by_name, len(receivers))
        self.sent: set[str] = set()
        self.missing = {(i, p.name) for p in products for i in receivers}
        self.other: dict[tuple[int, str], str] = {}  # MD5 of a missing product's other bytes
        self.again = 0  # deliveries of what had arrived

    def collect(self, wait_s: float) -> list[tuple[int, PeerProduct]]:
        """Return what has arrived within the time: the receiver's number, and the product."""
        return [
            (i, self._by_name[name]) for i, name in self._watch.wait(wait_s) if self._take(i, name)
        ]

    def _take(self, i: int, name: str) -> bool:
        """Return whether a file is a product that was missing."""
        if name not in self.sent:
            return False
        if (i, name) not in self.missing:
            self.again += 1
            return False
        source, file = self._setup.source / name, self._setup.inbox(i) / name
        if not same_bytes(source, file):
            self._note_other(i, name, file)
            return False
        self.missing.discard((i, name))
        self.other.pop((i, name), None)
        file.unlink(missing_ok=True)
        self._left[name] -= 1
        if self._left[name] == 0 and not self._keep_sources:
            source.unlink()
        return True

    def _note_other(self, i: int, name: str, file: Path) -> None:
        """Remember a file that is whole but wrong. A shorter one may be incomplete."""
        try:
            data = file.read_bytes() if file.is_file() else b""
        except OSError:
            return
        if len(data) == self._by_name[name].size_bytes:
            self.other[i, name] = hashlib.md5(data, usedforsecurity=False).hexdigest()

    def missing_by_receiver(self) -> list[int]:
        """Return how many products each receiver lacks."""
        counts = [0] * len(self._setup.receivers)
        for i, _ in self.missing:
            counts[i] += 1
        return counts
