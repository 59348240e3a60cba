# SPDX-License-Identifier: Apache-2.0
"""What survives of paths over several domains: the coordinator's records and the participant's
notes, a row of JSON each, in tables of their own in the path service's SQLite file."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from pathlib import Path

from pydantic import TypeAdapter

from controller.federation.coordinator import Record
from controller.federation.participant import Note
from controller.federation.values import Connection
from controller.store import BUSY_TIMEOUT_MS

_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
_NOTE: TypeAdapter[Note] = TypeAdapter(Note)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS federation_record (
    path TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS federation_note (
    coordinator TEXT NOT NULL, path TEXT NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (coordinator, path)) WITHOUT ROWID;
"""


class FederationStore:
    """`file` None: in memory only. Thread-safe; what a call writes is on disk when it returns."""

    def __init__(self, file: Path | None) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(
            ":memory:" if file is None else str(file),
            timeout=BUSY_TIMEOUT_MS / 1000,
            isolation_level=None,
            check_same_thread=False,
        )
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.executescript(_SCHEMA)

    def _write(self, statement: str, values: tuple[str, ...]) -> None:
        with self._lock:
            self._connection.execute(statement, values)

    def _bodies(self, table: str) -> list[str]:
        with self._lock:
            return [row[0] for row in self._connection.execute(f"SELECT body FROM {table}")]

    # -- the coordinator's

    def records(self) -> Iterable[Record]:
        return [_RECORD.validate_json(body) for body in self._bodies("federation_record")]

    def save_record(self, record: Record) -> None:
        body = _RECORD.dump_json(record).decode()
        self._write("INSERT OR REPLACE INTO federation_record VALUES (?, ?)", (record.path, body))

    def forget_record(self, path: str) -> None:
        self._write("DELETE FROM federation_record WHERE path = ?", (path,))

    # -- the participant's

    def load(self) -> Iterable[Note]:
        return [_NOTE.validate_json(body) for body in self._bodies("federation_note")]

    def save(self, note: Note) -> None:
        key = note.connection
        self._write(
            "INSERT OR REPLACE INTO federation_note VALUES (?, ?, ?)",
            (key.coordinator, key.path, _NOTE.dump_json(note).decode()),
        )

    def forget(self, connection: Connection) -> None:
        self._write(
            "DELETE FROM federation_note WHERE coordinator = ? AND path = ?",
            (connection.coordinator, connection.path),
        )

    def close(self) -> None:
        with self._lock:
            self._connection.close()
