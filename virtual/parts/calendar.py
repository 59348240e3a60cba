# SPDX-License-Identifier: Apache-2.0
"""A conservative calendar: which guest may run until when, so that no frame comes too late.

Virtual time is cut into windows of equal length. No guest begins a window before all have ended the
one before it. What a guest sends in a window until shortly before its end can reach the others in
the next window, the rest in the one after it. So the least delay of a cut link must be a little
longer than a window (`cut_link.c` says how frames travel).
Chandy and Misra 1979; Nicol 1993 (windows as long as the lookahead). Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

# The guests' clock shows multiples of this (arch/um: TIMER_MULTIPLIER). The length of a window must
# be one too; otherwise a frame's stamp, rounded down, could lie in the window before.
TICK_NS: Final = 256
LEAD_NS: Final = 200_000  # cut_link.c: it writes this long before a window's end
MOST_NS: Final = 22_500_000  # of a window: cut_link.c holds its frames at 1 Gbit/s


class CalendarError(Exception):
    """The guests broke the protocol; the text says which and how."""


def window_of(delays_ns: Iterable[int]) -> int:
    """Return the length of a window for cut links with these delays, in nanoseconds.

    Raises ValueError if there are no delays, or one is too small.
    """
    least_ns = min(delays_ns, default=0)
    window_ns = min(MOST_NS, least_ns - LEAD_NS) // TICK_NS * TICK_NS
    if window_ns <= 0:
        raise ValueError(
            f"found a least delay of {least_ns} ns between parts; "
            f"valid: at least {LEAD_NS + TICK_NS} ns"
        )
    return window_ns


@dataclass(frozen=True)
class Grant:
    """`part` runs from `begin_ns`, the time of its next event, and stops before `end_ns`."""

    part: int
    begin_ns: int
    end_ns: int


class Calendar:
    """Part numbers are 0 to `parts` - 1. `together`: parts run a window at the same time; otherwise
    one after the other, with the same result (for tests)."""

    def __init__(self, parts: int, window_ns: int, *, together: bool = True) -> None:
        if parts < 1 or window_ns < 1:
            raise ValueError(f"found {parts} parts, {window_ns} ns; valid: 1 or more of both")
        self._window_ns = window_ns
        self._together = together
        self._running = set(range(parts))  # they have not said yet that they wait
        self._wishes: dict[int, int | None] = {}  # when each waiting part wants to run
        self._end_ns = 0  # of the present window
        self.windows = 0

    def waits(self, part: int, wish_ns: int | None) -> None:
        """Note that a part waits, and until when. None: nothing will ever wake it.

        Raises CalendarError if it was not running, or wants to run in the past.
        """
        if part not in self._running:
            raise CalendarError(f"part {part} waits, but it did not run")
        earliest_ns = self._end_ns
        if wish_ns is not None and wish_ns < earliest_ns:
            raise CalendarError(
                f"part {part} wants to run at {wish_ns} ns; valid: from {earliest_ns} ns on"
            )
        self._running.discard(part)
        self._wishes[part] = wish_ns

    def gone(self, part: int) -> None:
        """Note that a part has ended."""
        self._running.discard(part)
        self._wishes.pop(part, None)

    @property
    def over(self) -> bool:
        """Return whether all parts have ended."""
        return not self._running and not self._wishes

    def grants(self) -> list[Grant]:
        """Return which parts may run now: none while some are running.

        Raises CalendarError if all wait forever.
        """
        if self._running or not self._wishes:
            return []
        due = self._due()
        if not due:
            wishes = [wish for wish in self._wishes.values() if wish is not None]
            if not wishes:
                raise CalendarError("all parts wait, and none says until when")
            self._end_ns = (min(wishes) // self._window_ns + 1) * self._window_ns
            self.windows += 1
            due = self._due()
        chosen = due if self._together else due[:1]
        for grant in chosen:
            del self._wishes[grant.part]
            self._running.add(grant.part)
        return chosen

    def _due(self) -> list[Grant]:
        """Return grants for all parts that wait to run in the present window."""
        return [
            Grant(part, wish_ns, self._end_ns)
            for part, wish_ns in sorted(self._wishes.items())
            if wish_ns is not None and wish_ns < self._end_ns
        ]
