# SPDX-License-Identifier: Apache-2.0
"""What survives the process: paths, holds and blocked ids in an SQLite file, and the federation's
knowledge of paths over several domains.

Each path, leaf and hop is a row, so that a leaf that joins writes a few rows however many there
are. Everything that one request changes is one transaction, committed before any message to a
switch: after a kill -9, the file says what the switches should have. The active and the standby
controller of a domain share the file; the `lease` row says which one may write (active_role.py).
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from controller.paths.core import Core, Endpoint, EndpointKey
from controller.paths.multipoint_path import (
    Algorithm,
    EndpointDocument,
    MultipointPath,
    TreeHop,
    channels_from_json,
    channels_to_json,
    endpoint_from_json,
    endpoint_to_json,
    trimmed,
)

SCHEMA_VERSION = 1
CHANNELS = "channels"  # the kind of documents with a path's channels, keyed by its number
BUSY_TIMEOUT_MS = 5000
# A controller that starts beside another may meet its commits to a disk that writes something
# large. It has nothing to do before, but giving up would leave the domain without a standby.
OPEN_TIMEOUT_MS = 30_000
LOG_PAGES = 64
PAGE_BYTES = 4096

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE path (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, workgroup TEXT NOT NULL,
    switch TEXT NOT NULL, port INTEGER NOT NULL, vlan INTEGER NOT NULL, macs TEXT NOT NULL,
    rate_bps INTEGER NOT NULL, algorithm TEXT NOT NULL, leaf_to_leaf INTEGER NOT NULL,
    end_time REAL);
CREATE TABLE leaf (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, path INTEGER NOT NULL,
    switch TEXT NOT NULL, port INTEGER NOT NULL, vlan INTEGER NOT NULL, macs TEXT NOT NULL,
    UNIQUE (path, switch, port, vlan));
CREATE TABLE hop (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, path INTEGER NOT NULL,
    link TEXT NOT NULL, source TEXT NOT NULL, vlan INTEGER NOT NULL,
    UNIQUE (path, link, source));
CREATE TABLE hold (
    id TEXT PRIMARY KEY, path TEXT NOT NULL, state TEXT NOT NULL, until REAL NOT NULL,
    request TEXT NOT NULL, change TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE blocked (
    switch TEXT NOT NULL, number INTEGER NOT NULL, link TEXT NOT NULL, vlan INTEGER NOT NULL,
    PRIMARY KEY (switch, number, link, vlan)) WITHOUT ROWID;
CREATE TABLE document (
    kind TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (kind, key)) WITHOUT ROWID;
CREATE TABLE lease (
    id INTEGER PRIMARY KEY CHECK (id = 1), holder TEXT NOT NULL, address TEXT NOT NULL,
    expires REAL NOT NULL, generation INTEGER NOT NULL);
"""


NO_CHANNELS = channels_from_json(None)
NO_GENERATION = -1  # no lease ever has it: a store fenced with it is read only


class StoreError(Exception):
    """The file cannot be used; the text says which, why, and what would be valid."""


class Fenced(Exception):
    """Another controller has taken over: nothing was written."""


@dataclass(frozen=True, order=True)
class Blocked:
    """What must not be reused until `switch` is known to have dropped it.

    That is `number` and, unless `link` is "", (`link`, `vlan`): the switch may still forward by
    entries that it was told to delete.
    """

    switch: str
    number: int
    link: str = ""
    vlan: int = 0


@dataclass(frozen=True)
class HoldRow:
    """A hold as the store keeps it.

    `request` (canonical JSON of the request) distinguishes a repetition from another request;
    `change` turns the current path into the requested one.
    """

    id: str
    path: str
    state: str
    until: float
    request: str
    change: str


@dataclass(frozen=True)
class Loaded:
    paths: tuple[MultipointPath, ...]
    holds: tuple[HoldRow, ...]
    blocked: tuple[Blocked, ...]


def bound_log(connection: sqlite3.Connection) -> None:
    """Checkpoint the write-ahead log into the file once it has LOG_PAGES, instead of SQLite's 1000.
    Otherwise, a file of a few pages would have a log a hundred times as large. Raises
    sqlite3.Error."""
    connection.execute(f"PRAGMA wal_autocheckpoint={LOG_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit={LOG_PAGES * PAGE_BYTES}")


def is_locked(error: Exception) -> bool:
    """Return whether the reason is that another program is writing to the file."""
    extended: int = getattr(error, "sqlite_errorcode", 0)
    return extended & 0xFF == sqlite3.SQLITE_BUSY


class Store:
    """The file that keeps paths and holds; None: in memory only.

    Thread-safe. Raises StoreError when opened or read.
    """

    def __init__(self, file: Path | None, network: str, domain: str) -> None:
        self._file = file
        self._lock = threading.RLock()
        self._generation: int | None = None
        self._open_transaction = False
        try:
            if file is not None:
                file.touch(mode=0o600, exist_ok=True)
            self._connection = sqlite3.connect(
                ":memory:" if file is None else str(file),
                timeout=OPEN_TIMEOUT_MS / 1000,
                isolation_level=None,
                check_same_thread=False,
            )
            self._connection.execute("PRAGMA journal_mode=WAL")
            bound_log(self._connection)
            # A power cut may cost the newest commits, but never the file's consistency. A confirmed
            # request must also survive one.
            self._connection.execute("PRAGMA synchronous=FULL")
            self._check(network, domain)
            self._connection.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
        except (OSError, sqlite3.Error) as error:
            raise StoreError(self._text(error)) from error

    def _text(self, error: Exception) -> str:
        if is_locked(error):
            return (
                f"--store {self._file}: another program had it locked for "
                f"{OPEN_TIMEOUT_MS / 1000:g} s; valid: a file of this domain's controllers alone"
            )
        why = error.strerror if isinstance(error, OSError) else error
        return (
            f"--store {self._file}: {why or error}; valid: a file that this program made, or none"
        )

    def _check(self, network: str, domain: str) -> None:
        with self._begin("EXCLUSIVE"):
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                if self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    raise StoreError(f"--store {self._file}: another program's SQLite file")
                for statement in _SCHEMA.split(";"):
                    self._connection.execute(statement)
                self._connection.executemany(
                    "INSERT INTO meta VALUES (?, ?)", [("network", network), ("domain", domain)]
                )
                self._connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
                return
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"--store {self._file}: found schema {version}; valid: {SCHEMA_VERSION}"
            )
        found = dict(self._connection.execute("SELECT key, value FROM meta"))
        for key, wanted in (("network", network), ("domain", domain)):
            if found.get(key) != wanted:
                raise StoreError(
                    f"--store {self._file}: is of {key} '{found.get(key)}'; valid: of '{wanted}'"
                )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def fence(self, generation: int | None) -> None:
        """Let transactions fail with Fenced from now on, unless the lease has this generation."""
        self._generation = generation

    def load(self) -> Loaded:
        """Return the content of the file. Raises StoreError if it is damaged."""
        try:
            with self._lock:
                leaves: dict[int, list[Endpoint]] = {}
                hops: dict[int, list[TreeHop]] = {}
                execute = self._connection.execute
                for path, switch, port, vlan, macs in execute(
                    "SELECT path, switch, port, vlan, macs FROM leaf ORDER BY sequence"
                ):
                    leaves.setdefault(path, []).append(_endpoint(switch, port, vlan, macs))
                for path, link, source, vlan in execute(
                    "SELECT path, link, source, vlan FROM hop ORDER BY sequence"
                ):
                    hops.setdefault(path, []).append(TreeHop(link, source, vlan))
                channels = {
                    int(key): channels_from_json(json.loads(body))
                    for key, body in execute(
                        "SELECT key, body FROM document WHERE kind = ?", (CHANNELS,)
                    )
                }
                paths = [
                    MultipointPath(
                        name=name,
                        number=number,
                        root=_endpoint(switch, port, vlan, macs),
                        rate_bps=rate_bps,
                        leaves=tuple(leaves.get(number, ())),
                        hops=tuple(hops.get(number, ())),
                        workgroup=workgroup,
                        algorithm=Algorithm(algorithm),
                        leaf_to_leaf=bool(leaf_to_leaf),
                        end_time=end_time,
                        channels=channels.get(number, NO_CHANNELS)[0],
                        members=channels.get(number, NO_CHANNELS)[1],
                    )
                    for (
                        number,
                        name,
                        workgroup,
                        switch,
                        port,
                        vlan,
                        macs,
                        rate_bps,
                        algorithm,
                        leaf_to_leaf,
                        end_time,
                    ) in execute("SELECT * FROM path ORDER BY number")
                ]
                holds = [HoldRow(*row) for row in execute("SELECT * FROM hold ORDER BY id")]
                blocked = [Blocked(*row) for row in execute("SELECT * FROM blocked")]
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            raise StoreError(self._text(error)) from error
        return Loaded(tuple(paths), tuple(holds), tuple(blocked))

    def documents(self, kind: str) -> list[str]:
        """Return the documents of a kind that controller/federation keeps here, as text."""
        with self._lock:
            query = "SELECT body FROM document WHERE kind = ? ORDER BY key"
            return [row[0] for row in self._connection.execute(query, (kind,))]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Do all writes of the block together or not at all. Raises Fenced, sqlite3.Error."""
        with self._begin("IMMEDIATE"):
            if self._generation is not None:
                row = self._connection.execute("SELECT generation FROM lease").fetchone()
                if row is None or row[0] != self._generation:
                    raise Fenced("another controller is active")
            yield

    @contextlib.contextmanager
    def _begin(self, how: str) -> Iterator[None]:
        with self._lock:
            self._connection.execute(f"BEGIN {how}")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    # -- inside a transaction

    def replace(self, old: MultipointPath | None, new: MultipointPath | None) -> None:
        """Write what differs between the two states of one path."""
        execute = self._connection.execute
        if new is None:
            if old is not None:
                self._delete_rows(old.number)
            return
        if old is None or _row(old) != _row(new):
            execute("INSERT OR REPLACE INTO path VALUES (?,?,?,?,?,?,?,?,?,?,?)", _row(new))
        change = Change.between(old, new)
        self._connection.executemany(
            "DELETE FROM leaf WHERE path = ? AND switch = ? AND port = ? AND vlan = ?",
            [(new.number, *key) for key in change.leaves_removed],
        )
        self._connection.executemany(
            "UPDATE leaf SET macs = ? WHERE path = ? AND switch = ? AND port = ? AND vlan = ?",
            [(" ".join(leaf.macs), new.number, *leaf.key) for leaf in change.leaves_changed],
        )
        self._connection.executemany(
            "INSERT INTO leaf (path, switch, port, vlan, macs) VALUES (?,?,?,?,?)",
            [(new.number, *leaf.key, " ".join(leaf.macs)) for leaf in change.leaves_added],
        )
        self._connection.executemany(
            "DELETE FROM hop WHERE path = ? AND link = ? AND source = ?",
            [(new.number, hop.link, hop.source) for hop in change.hops_removed],
        )
        self._connection.executemany(
            "INSERT INTO hop (path, link, source, vlan) VALUES (?,?,?,?)",
            [(new.number, hop.link, hop.source, hop.vlan) for hop in change.hops_added],
        )
        before = (None, frozenset()) if old is None else (old.channels, old.members)
        if (new.channels, new.members) != before:
            body = json.dumps(channels_to_json(new), separators=(",", ":"))
            self.put_document(CHANNELS, str(new.number), body)

    def rewrite(self, number: int, path: MultipointPath | None) -> None:
        """Write all rows of a path's number again (None: there is no path), whatever is there."""
        self._delete_rows(number)
        if path is not None:
            self.replace(None, path)

    def _delete_rows(self, number: int) -> None:
        for table, column in (("path", "number"), ("leaf", "path"), ("hop", "path")):
            self._connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))
        self.delete_document(CHANNELS, str(number))

    def put_hold(self, row: HoldRow) -> None:
        """Write a hold."""
        self._connection.execute(
            "INSERT OR REPLACE INTO hold VALUES (?,?,?,?,?,?)",
            (row.id, row.path, row.state, row.until, row.request, row.change),
        )

    def delete_hold(self, hold_id: str) -> None:
        """Delete a hold."""
        self._connection.execute("DELETE FROM hold WHERE id = ?", (hold_id,))

    def put_document(self, kind: str, key: str, body: str) -> None:
        """Write a document of a kind."""
        self._connection.execute(
            "INSERT OR REPLACE INTO document VALUES (?, ?, ?)", (kind, key, body)
        )

    def delete_document(self, kind: str, key: str) -> None:
        """Delete a document."""
        self._connection.execute("DELETE FROM document WHERE kind = ? AND key = ?", (kind, key))

    def block(self, blocked: Iterable[Blocked]) -> None:
        """Write what is in quarantine."""
        self._connection.executemany(
            "INSERT OR IGNORE INTO blocked VALUES (?,?,?,?)",
            [(b.switch, b.number, b.link, b.vlan) for b in blocked],
        )

    def unblock(self, blocked: Iterable[Blocked]) -> None:
        """Delete what has left the quarantine."""
        self._connection.executemany(
            "DELETE FROM blocked WHERE switch = ? AND number = ? AND link = ? AND vlan = ?",
            [(b.switch, b.number, b.link, b.vlan) for b in blocked],
        )


class ChangeDocument(TypedDict):
    """A `Change` as holds keep it; keys and hops are arrays in JSON."""

    leaves_removed: list[EndpointKey]
    leaves_changed: list[EndpointDocument]
    leaves_added: list[EndpointDocument]
    hops_removed: list[tuple[str, str, int]]
    hops_added: list[tuple[str, str, int]]


@dataclass(frozen=True)
class Change:
    """What turns one state of a path into another, in rows.

    Leaves that stay keep their order, and new ones follow. Hops that cannot keep their order are
    all written again.
    """

    leaves_removed: tuple[tuple[str, int, int], ...] = ()
    leaves_changed: tuple[Endpoint, ...] = ()
    leaves_added: tuple[Endpoint, ...] = ()
    hops_removed: tuple[TreeHop, ...] = ()
    hops_added: tuple[TreeHop, ...] = ()

    @classmethod
    def between(cls, old: MultipointPath | None, new: MultipointPath) -> Change:
        """Return the change from `old` to `new`."""
        old_leaves = old.leaves if old is not None else ()
        old_hops = old.hops if old is not None else ()
        old_part, new_part = trimmed(old_leaves, new.leaves)
        before = {leaf.key: leaf for leaf in old_part}
        after = {leaf.key: leaf for leaf in new_part}
        removed = [key for key in before if key not in after]
        changed = [leaf for key, leaf in after.items() if before.get(key, leaf) != leaf]
        added = tuple(leaf for key, leaf in after.items() if key not in before)
        if new.hops[: len(old_hops)] == old_hops:
            return cls(tuple(removed), tuple(changed), added, (), new.hops[len(old_hops) :])
        gone, come = trimmed(old_hops, new.hops)
        if not come:
            return cls(tuple(removed), tuple(changed), added, gone)
        kept_set = set(new.hops)
        kept = tuple(hop for hop in old_hops if hop in kept_set)
        if new.hops[: len(kept)] != kept:
            kept = ()
        stay = frozenset(kept)
        return cls(
            tuple(removed),
            tuple(changed),
            added,
            tuple(hop for hop in old_hops if hop not in stay),
            new.hops[len(kept) :],
        )

    def applied_to(self, old: MultipointPath) -> MultipointPath:
        """Return the newer state. (Hops are in the order of `between`.)"""
        gone, changed = set(self.leaves_removed), {leaf.key: leaf for leaf in self.leaves_changed}
        cut = frozenset(self.hops_removed)
        return replace(
            old,
            leaves=(
                *(changed.get(leaf.key, leaf) for leaf in old.leaves if leaf.key not in gone),
                *self.leaves_added,
            ),
            hops=(*(hop for hop in old.hops if hop not in cut), *self.hops_added),
        )

    def to_json(self) -> ChangeDocument:
        """Return the change as holds keep it."""
        return {
            "leaves_removed": list(self.leaves_removed),
            "leaves_changed": [endpoint_to_json(leaf) for leaf in self.leaves_changed],
            "leaves_added": [endpoint_to_json(leaf) for leaf in self.leaves_added],
            "hops_removed": [(hop.link, hop.source, hop.vlan) for hop in self.hops_removed],
            "hops_added": [(hop.link, hop.source, hop.vlan) for hop in self.hops_added],
        }

    @classmethod
    def from_json(cls, raw: ChangeDocument) -> Change:
        """Read what `to_json` gives."""
        return cls(
            tuple((key[0], key[1], key[2]) for key in raw["leaves_removed"]),
            tuple(endpoint_from_json(leaf) for leaf in raw["leaves_changed"]),
            tuple(endpoint_from_json(leaf) for leaf in raw["leaves_added"]),
            tuple(TreeHop(*hop) for hop in raw["hops_removed"]),
            tuple(TreeHop(*hop) for hop in raw["hops_added"]),
        )


def check_fits(core: Core, path: MultipointPath) -> None:
    """Raise StoreError if the path belongs to another network than `core`."""
    missing = [
        *(f"link '{h.link}'" for h in path.hops if (h.link, h.source) not in core.hop),
        *(f"port {e.switch}:{e.port}" for e in path.endpoints if not _is_access(core, e)),
    ]
    if missing:
        raise StoreError(
            f"--store: path '{path.name}' needs {missing[0]}, which domain '{core.domain}' does "
            "not have; valid: a store of this network"
        )


def _is_access(core: Core, endpoint: Endpoint) -> bool:
    return (endpoint.switch, endpoint.port) in core.access


def _endpoint(switch: str, port: int, vlan: int, macs: str) -> Endpoint:
    return Endpoint(switch, port, vlan, tuple(macs.split()))


def _row(path: MultipointPath) -> tuple[object, ...]:
    return (
        path.number,
        path.name,
        path.workgroup,
        *path.root.key,
        " ".join(path.root.macs),
        path.rate_bps,
        path.algorithm.value,
        int(path.leaf_to_leaf),
        path.end_time,
    )
