# SPDX-License-Identifier: Apache-2.0
"""Which of the controllers that share a store is active: a lease in the store's SQLite file.

The active controller renews the lease. A standby takes it, with the next generation, when it has
looked at it for the lease's whole duration and seen no renewal. Only its own looks count: no role
changes while the whole machine stands still, nor when the clock jumps. Nor does one while the disk
does: renewals do not wait for it, and who has the file locked is alive. Switches get the generation
with the MASTER role (OpenFlow 1.3.5, 6.3.6), and the store compares it in each transaction: so a
controller that was stopped and resumes can change neither. Time is in epoch seconds.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from controller.service.store import bound_log, is_locked

LOG = logging.getLogger(__name__)
BUSY_TIMEOUT_S = 1.0
POLL_S = 0.1  # of a standby, and of a controller that could not renew its lease
GIVEN_BACK = 0.0
WRITER_S = 1.0  # after another wrote to the file: its holder, if that waits for it, then renews
CHECKPOINT_S = 10.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS lease (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    holder TEXT NOT NULL,
    address TEXT NOT NULL,
    expires REAL NOT NULL,
    generation INTEGER NOT NULL
)
"""


@dataclass(frozen=True)
class Lease:
    """`address`: the holder's REST interface; `expires`: epoch seconds, or GIVEN_BACK."""

    holder: str
    address: str
    expires: float
    generation: int


def _opened(store: Path, timeout_s: float) -> sqlite3.Connection:
    return sqlite3.connect(store, timeout=timeout_s, isolation_level=None, check_same_thread=False)


class LeaseTable:
    """The row in the store. All methods raise sqlite3.Error."""

    def __init__(self, store: Path) -> None:
        self._taking = _opened(store, 0.0)
        self._taking.execute("PRAGMA journal_mode = WAL")
        bound_log(self._taking)
        # The greatest generation that switches saw must survive a power cut.
        self._taking.execute("PRAGMA synchronous = FULL")
        self._taking.execute(SCHEMA)
        self._copying = _opened(store, BUSY_TIMEOUT_S)
        self._connection = _opened(store, BUSY_TIMEOUT_S)
        # A renewal need not survive one. So it neither waits for the disk nor copies the log.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("PRAGMA wal_autocheckpoint = 0")

    def checkpoint(self) -> None:
        """Copy the log into the file, or renewals would make it grow. Waits for the disk: not for
        the thread that renews."""
        self._copying.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def read(self) -> Lease | None:
        """Return the lease, if a controller ever took it."""
        return self._row(self._connection)

    def _row(self, connection: sqlite3.Connection) -> Lease | None:
        row = connection.execute(
            "SELECT holder, address, expires, generation FROM lease"
        ).fetchone()
        return None if row is None else Lease(*row)

    def take(
        self, seen: Lease | None, holder: str, address: str, now: float, duration_s: float
    ) -> Lease | None:
        """Return the lease with a new generation; None if it is no longer as it was `seen`. Raises
        at once if another program has the file locked (`is_locked`)."""
        self._taking.execute("BEGIN IMMEDIATE")
        try:
            if self._row(self._taking) != seen:
                return None
            # Switches remember the greatest generation they saw, even if the store is new.
            generation = max(int(now * 1000), 0 if seen is None else seen.generation + 1)
            lease = Lease(holder, address, now + duration_s, generation)
            self._taking.execute(
                "INSERT OR REPLACE INTO lease VALUES (1, ?, ?, ?, ?)",
                (lease.holder, lease.address, lease.expires, lease.generation),
            )
            self._taking.execute("COMMIT")
            return lease
        finally:
            if self._taking.in_transaction:
                self._taking.execute("ROLLBACK")

    def renew(self, lease: Lease, expires: float) -> bool:
        """Renew the lease; return False if it has changed."""
        cursor = self._connection.execute(
            "UPDATE lease SET expires = ? WHERE holder = ? AND generation = ?",
            (expires, lease.holder, lease.generation),
        )
        return cursor.rowcount == 1


class Table(Protocol):
    def read(self) -> Lease | None:
        """Return the lease; see LeaseTable."""

    def take(
        self, seen: Lease | None, holder: str, address: str, now: float, duration_s: float
    ) -> Lease | None:
        """Take the lease; see LeaseTable."""

    def renew(self, lease: Lease, expires: float) -> bool:
        """Renew the lease; see LeaseTable."""

    def checkpoint(self) -> None:
        """Copy the log into the file; see LeaseTable."""


class Keeper:
    """Takes and renews the lease.

    Calls `on_active(generation)` or `on_standby(lease of the active controller)` when this
    controller's role or the lease's holder changes, and once at the beginning. The lease has no
    address if this controller lost it and no other has it yet.
    """

    def __init__(
        self,
        table: Table,
        holder: str,
        address: str,
        duration_s: float,
        on_active: Callable[[int], None],
        on_standby: Callable[[Lease], None],
    ) -> None:
        self._table = table
        self._holder = holder
        self._address = address
        self._duration_s = duration_s
        self._on_active = on_active
        self._on_standby = on_standby
        self._lease: Lease | None = None  # this controller's
        self._seen: Lease | None = None  # another's, or its own that it lost
        self._looks_left = 0  # until it may be taken, if it stays as it was seen
        self._rest_looks = 0  # until this controller, which could not act, tries again
        self._told: int | None = None  # the generation of the active controller, as last reported
        self._has_ended = False
        self._lock = threading.Lock()

    def turn(self, now: float) -> float:
        """Do what is due; return the seconds until the next call."""
        with self._lock:
            if self._has_ended:
                return POLL_S
            is_held = self._lease is not None and self._hold(self._lease, now)
            if self._lease is None:
                is_held = self._wait(now)
            return self._duration_s / 4 if is_held else POLL_S

    def _hold(self, lease: Lease, now: float) -> bool:
        """Renew the lease; return whether that succeeded. If it failed, another controller may have
        taken it."""
        expires = now + self._duration_s
        try:
            if self._table.renew(lease, expires):
                self._lease = Lease(lease.holder, lease.address, expires, lease.generation)
                return True
        except sqlite3.Error as error:
            if self._may_still_hold(lease, now, error):
                LOG.warning("the lease could not be renewed: %s", error)
                return False
        LOG.warning("the lease of generation %d is lost; standing by", lease.generation)
        self._lease, self._seen = None, lease
        self._looks_left = self._looks(self._duration_s)
        self._stand_by(lease)
        return False

    def _may_still_hold(self, lease: Lease, now: float, error: sqlite3.Error) -> bool:
        """Return whether this controller has the lease, which it could not renew. While the file is
        locked, nobody else can take it."""
        if is_locked(error):
            with contextlib.suppress(sqlite3.Error):
                seen = self._table.read()
                return seen is not None and seen.generation == lease.generation
        return now < lease.expires

    def _wait(self, now: float) -> bool:
        """Look at the lease, take it if it is free; return whether this controller has it."""
        try:
            seen = self._table.read()
            lease = self._take(seen, now) if self._is_free(seen, now) else None
        except sqlite3.Error as error:
            LOG.warning("the lease cannot be read: %s", error)
            return False
        if lease is not None:
            return self._act(lease)
        if seen is not None and seen.generation != self._told:
            LOG.info("standing by; active is '%s' at %s", seen.holder, seen.address)
            self._stand_by(seen)
        return False

    def _act(self, lease: Lease) -> bool:
        """Become active; return whether that succeeded. If not, another controller may act."""
        LOG.info("active now, generation %d", lease.generation)
        self._lease, self._told = lease, None
        try:
            self._on_active(lease.generation)
        except Exception:
            LOG.exception("generation %d cannot act; standing by", lease.generation)
            self._give_back()
            self._rest_looks = self._looks(self._duration_s)
            self._stand_by(lease)
            return False
        return True

    def _stand_by(self, lease: Lease) -> None:
        """Report the lease of the active controller, or this controller's own that it has lost."""
        self._told = lease.generation
        is_own = lease.holder == self._holder
        self._on_standby(replace(lease, address="") if is_own else lease)

    def _looks(self, seconds: float) -> int:
        return math.ceil(max(0.0, seconds) / POLL_S)

    def _is_free(self, seen: Lease | None, now: float) -> bool:
        """Return whether the lease, as it is now, may be taken."""
        if seen is not None and seen == self._seen:
            self._looks_left -= 1
        elif seen is not None:  # the clock says only what was before the first look
            left_s = seen.expires - now if self._seen is None else self._duration_s
            self._looks_left = self._looks(min(left_s, self._duration_s))
        self._seen = seen
        self._rest_looks = max(0, self._rest_looks - 1)
        if self._rest_looks:
            return False
        return seen is None or seen.expires == GIVEN_BACK or self._looks_left <= 0

    def _take(self, seen: Lease | None, now: float) -> Lease | None:
        try:
            return self._table.take(seen, self._holder, self._address, now, self._duration_s)
        except sqlite3.OperationalError as error:
            if not is_locked(error):
                raise
            self._looks_left = self._looks(WRITER_S)
            return None

    def _give_back(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            try:
                self._table.renew(lease, GIVEN_BACK)
            except sqlite3.Error as error:
                LOG.warning("the lease could not be given back: %s", error)

    def end(self) -> None:
        """Give the lease back, so that another controller need not wait for its end."""
        with self._lock:
            self._has_ended = True
            self._give_back()

    def run(self) -> None:
        """Keep the lease forever; for a thread."""
        while True:
            wait_s = POLL_S
            try:
                wait_s = self.turn(time.time())
            except Exception:
                LOG.exception("keeping the lease failed")
            time.sleep(wait_s)

    def checkpoint(self) -> None:
        """Bound the store's log, every CHECKPOINT_S; for another thread than `run`'s."""
        self._table.checkpoint()
