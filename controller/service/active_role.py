# SPDX-License-Identifier: Apache-2.0
"""Which of the controllers that share a store is active: a lease in the store's SQLite file.

The active controller renews the lease. Another one takes it when it has expired, with the next
generation. Switches get the generation with the MASTER role (OpenFlow 1.3.5, 6.3.6), and the store
compares it in each transaction: so a controller that was stopped and resumes can change neither.
Time is in epoch seconds. A clock that jumps may change which controller is active, but never makes
two active.
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

from controller.service.store import bound_log

LOG = logging.getLogger(__name__)
BUSY_TIMEOUT_S = 1.0
STANDBY_POLL_S = 0.1
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
    """`address`: the holder's REST interface; `expires`: epoch seconds."""

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
        self._connection.execute(SCHEMA)

    def read(self) -> Lease | None:
        """Return the lease, if a controller ever took it."""
        row = self._connection.execute(
            "SELECT holder, address, expires, generation FROM lease"
        ).fetchone()
        return None if row is None else Lease(*row)

    def take(self, holder: str, address: str, now: float, duration_s: float) -> Lease | None:
        """Return the lease with a new generation; None if another controller has it."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            old = self.read()
            if old is not None and old.expires > now:
                self._connection.execute("ROLLBACK")
                return None
            # Switches remember the greatest generation they saw, even if the store is new.
            generation = max(int(now * 1000), 0 if old is None else old.generation + 1)
            lease = Lease(holder, address, now + duration_s, generation)
            self._connection.execute(
                "INSERT OR REPLACE INTO lease VALUES (1, ?, ?, ?, ?)",
                (lease.holder, lease.address, lease.expires, lease.generation),
            )
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        return lease

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

    def take(self, holder: str, address: str, now: float, duration_s: float) -> Lease | None:
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
        self._told: int | None = None  # the generation of the active controller, as last reported
        self._lock = threading.Lock()

    def turn(self, now: float) -> float:
        """Do what is due; return the seconds until the next call."""
        with self._lock:
            if self._lease is not None:
                self._hold(self._lease, now)
            if self._lease is None:
                self._wait(now)
            return STANDBY_POLL_S if self._lease is None else self._duration_s / 4

    def _hold(self, lease: Lease, now: float) -> None:
        expires = now + self._duration_s
        try:
            if now < lease.expires and self._table.renew(lease, expires):
                self._lease = Lease(lease.holder, lease.address, expires, lease.generation)
                return
        except sqlite3.Error as error:
            if now < lease.expires:
                LOG.warning("the lease could not be renewed: %s", error)
                return
        LOG.warning("the lease of generation %d is lost; standing by", lease.generation)
        self._lease = None

    def _wait(self, now: float) -> None:
        try:
            lease = self._table.take(self._holder, self._address, now, self._duration_s)
            active = lease or self._table.read()
        except sqlite3.Error as error:
            LOG.warning("the lease cannot be read: %s", error)
            return
        if lease is not None:
            LOG.info("active now, generation %d", lease.generation)
            self._lease, self._told = lease, None
            self._on_active(lease.generation)
        elif active is not None and active.generation != self._told:
            LOG.info("standing by; active is '%s' at %s", active.holder, active.address)
            self._told = active.generation
            self._on_standby(active)

    def end(self) -> None:
        """Give the lease back, so that another controller need not wait for its end."""
        with self._lock:
            lease, self._lease = self._lease, None
            if lease is not None:
                try:
                    self._table.renew(lease, 0.0)
                except sqlite3.Error as error:
                    LOG.warning("the lease could not be given back: %s", error)

    def run(self) -> None:
        """Keep the lease forever; for a thread."""
        while True:
            wait_s = STANDBY_POLL_S
            try:
                wait_s = self.turn(time.time())
            except Exception:
                LOG.exception("keeping the lease failed")
            time.sleep(wait_s)
