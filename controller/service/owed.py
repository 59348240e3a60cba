# SPDX-License-Identifier: Apache-2.0
"""Changes that happened but could not be written to the store. The next transaction writes them.

A change that the switches refused is undone in memory whether or not the store accepts that.
Without this, the rows of the change would stay, and later changes of the path would not fit them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from controller.paths.multipoint_path import MultipointPath
from controller.service.holds import Holds
from controller.service.store import Blocked, Store


class Owed:
    """Path numbers, hold ids and blocked ids whose rows are out of date. Used under the service's
    lock."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()
        self._holds: set[str] = set()
        self._blocked: list[Blocked] = []

    def __bool__(self) -> bool:
        return bool(self._numbers or self._holds or self._blocked)

    def add(
        self,
        paths: Iterable[MultipointPath | None] = (),
        holds: Iterable[str] = (),
        blocked: Iterable[Blocked] = (),
    ) -> None:
        """Note rows that must be written as memory has them."""
        self._numbers.update(path.number for path in paths if path is not None)
        self._holds.update(holds)
        self._blocked += blocked

    def write(
        self, store: Store, paths: Mapping[str, MultipointPath], holds: Holds
    ) -> Callable[[], None]:
        """Write everything, in the store's open transaction; return the function to call after the
        commit."""
        numbers, ids, blocked = set(self._numbers), set(self._holds), len(self._blocked)
        if numbers:
            by_number = {path.number: path for path in paths.values() if path.number in numbers}
            for number in sorted(numbers):
                store.rewrite(number, by_number.get(number))
        for hold_id in sorted(ids):
            hold = holds.find(hold_id)
            if hold is not None:
                store.put_hold(hold.row())
        store.block(self._blocked)

        def written() -> None:
            self._numbers -= numbers
            self._holds -= ids
            del self._blocked[:blocked]

        return written
