# SPDX-License-Identifier: Apache-2.0
"""One processor core per guest. A guest is one kernel process and its stubs, only one of which ever
runs at a time: on one core a system call costs a seventh of what it costs on two. Locks keep the
guests of one user apart, including those of several launchers; users begin at different cores."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_PLACE: ContextVar[int | None] = ContextVar("_PLACE", default=None)
_GUESTS: Counter[int] = Counter()  # of this process, by core


def cache_directory() -> Path:
    """Return where this user's kernels and locks are."""
    if given := os.environ.get("DOWNPOUR_CACHE"):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "downpour"


def available_cores() -> list[int]:
    """Return the cores that this process may use, in order."""
    return sorted(os.sched_getaffinity(0))


@contextmanager
def at_place(place: int | None) -> Iterator[None]:
    """Within the context, give new guests the core of a place of the machine (turns.py)."""
    token = _PLACE.set(place)
    try:
        yield
    finally:
        _PLACE.reset(token)


@contextmanager
def beside(number: int) -> Iterator[None]:
    """Within the context, give new guests the core that is `number` places on, if there are
    places."""
    place = _PLACE.get()
    with at_place(None if place is None else place + number):
        yield


@contextmanager
def one_core(directory: Path | None = None) -> Iterator[int]:
    """Yield a core that no other guest of this user has. If all are taken or locking fails, yield
    one that fewest guests of this process have: guests that share a core are slower, not different,
    but parts of one cell would then not run at the same time. The first choice is the last core
    (interrupts often go to the first), or one as many before it as the user's number says: users do
    not see each other's locks, and a class on one machine must not crowd onto one core."""
    cores = available_cores()
    if (place := _PLACE.get()) is not None:
        yield cores[-1 - place % len(cores)]
        return
    first = os.getuid() % len(cores)
    order = cores[::-1][first:] + cores[::-1][:first]
    folder = directory if directory is not None else cache_directory() / "cores"
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # no home directory, or another user's: no locks
            folder.mkdir(parents=True, exist_ok=True)
        for core in order:
            try:
                stream = stack.enter_context((folder / f"{core}.lock").open("ab"))
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            break
        else:
            first = os.getpid() % len(cores)
            core = min(cores[first:] + cores[:first], key=_GUESTS.__getitem__)
        _GUESTS[core] += 1
        stack.callback(_GUESTS.subtract, [core])
        yield core
