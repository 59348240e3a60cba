# SPDX-License-Identifier: Apache-2.0
"""Which of the controllers that share a store is active: a lease in the store's SQLite file.

The active controller renews the lease. A standby takes it, with the next generation, when it has
looked at it for the lease's whole duration and seen no renewal. Only its own looks count: no role
changes while the whole machine or its disk stands still, nor when the clock jumps. Switches get the
generation with the MASTER role (OpenFlow 1.3.5, 6.3.6), and the store compares it in each
transaction: so a controller that was stopped and resumes can change neither. Time is in epoch
seconds.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from controller.service.store import bound_log, is_locked

LOG = logging.getLogger(__name__)
BUSY_TIMEOUT_S = 1.0
POLL_S = 0.1  # of a standby, and of a controller that could not renew its lease
GIVEN_BACK = 0.0
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


class LeaseTable:
    """The row in the store. All methods raise sqlite3.Error."""

    def __init__(self, store: Path) -> None:
        self._connection = sqlite3.connect(
            store, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
        self._connection.execute("PRAGMA journal_mode = WAL")
        bound_log(self._connection)
        # A renewal need not survive a power cut, so that it need not wait for the disk.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute(SCHEMA)

    def read(self) -> Lease | None:
        """Return the lease, if a controller ever took it."""
        row = self._connection.execute(
            "SELECT holder, address, expires, generation FROM lease"
        ).fetchone()
        return None if row is None else Lease(*row)

    def take(
        self, seen: Lease | None, holder: str, address: str, now: float, duration_s: float
    ) -> Lease | None:
        """Return the lease with a new generation; None if it is no longer as it was `seen`, or if
        another controller has the file locked."""
        self._connection.execute("PRAGMA busy_timeout = 0")
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            if self.read() != seen:
                return None
            # Switches remember the greatest generation they saw, even if the store is new.
            generation = max(int(now * 1000), 0 if seen is None else seen.generation + 1)
            lease = Lease(holder, address, now + duration_s, generation)
            self._connection.execute(
                "INSERT OR REPLACE INTO lease VALUES (1, ?, ?, ?, ?)",
                (lease.holder, lease.address, lease.expires, lease.generation),
            )
            self._connection.execute("COMMIT")
            return lease
        except sqlite3.OperationalError as error:
            if not is_locked(error):
                raise
            return None
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")

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


class Keeper:
    """Takes and renews the lease.

    Calls `on_active(generation)` or `on_standby(lease of the active controller)` when this
    controller's role or the lease's holder changes, and once at the beginning.
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
        self._looks = 0  # since `_seen` changed
        self._told: int | None = None  # the generation of the active controller, as last reported
        self._lock = threading.Lock()

    def turn(self, now: float) -> float:
        """Do what is due; return the seconds until the next call."""
        with self._lock:
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
            if is_locked(error) or now < lease.expires:  # nobody can take it from a locked file
                LOG.warning("the lease could not be renewed: %s", error)
                return False
        LOG.warning("the lease of generation %d is lost; standing by", lease.generation)
        self._lease, self._seen, self._looks = None, lease, 0
        return False

    def _wait(self, now: float) -> bool:
        """Look at the lease, take it if it is free; return whether this controller has it."""
        try:
            active = self._table.read()
            lease = self._take(active, now) if self._is_free(active, now) else None
        except sqlite3.Error as error:
            LOG.warning("the lease cannot be read: %s", error)
            return False
        if lease is not None:
            LOG.info("active now, generation %d", lease.generation)
            self._lease, self._told = lease, None
            self._on_active(lease.generation)
        elif active is not None and active.generation != self._told:
            LOG.info("standing by; active is '%s' at %s", active.holder, active.address)
            self._told = active.generation
            self._on_standby(active)
        return lease is not None

    def _is_free(self, active: Lease | None, now: float) -> bool:
        """Return whether the lease, as it is now, may be taken."""
        is_first, is_same = self._seen is None, active == self._seen
        self._seen, self._looks = active, self._looks + 1 if is_same else 0
        if active is None or active.expires == GIVEN_BACK:
            return True
        return (is_first and active.expires <= now) or self._looks * POLL_S >= self._duration_s

    def _take(self, active: Lease | None, now: float) -> Lease | None:
        lease = self._table.take(active, self._holder, self._address, now, self._duration_s)
        if lease is None:  # its holder is writing to the file, or renewed it just now
            self._looks = 0
        return lease

    def end(self) -> None:
        """Give the lease back, so that another controller need not wait for its end."""
        with self._lock:
            lease, self._lease = self._lease, None
            if lease is not None:
                try:
                    self._table.renew(lease, GIVEN_BACK)
                except sqlite3.Error as error:
                    LOG.warning("the lease could not be given back: %s", error)

    def run(self) -> None:
        """Keep the lease forever; for a thread."""
        while True:
            wait_s = POLL_S
            try:
                wait_s = self.turn(time.time())
            except Exception:
                LOG.exception("keeping the lease failed")
            time.sleep(wait_s)
