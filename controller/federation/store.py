# SPDX-License-Identifier: Apache-2.0
"""What survives of paths over several domains: the coordinator's records and the participant's
notes, one document each in the path service's store. Only the active controller can write."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator

from pydantic import TypeAdapter

from controller.federation.bookings import BookedHere, BookedTree
from controller.federation.participant import Note
from controller.federation.records import Record
from controller.federation.values import Connection
from controller.service.problems import ServiceError
from controller.service.store import Fenced, Store

_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
_NOTE: TypeAdapter[Note] = TypeAdapter(Note)
_TREE: TypeAdapter[BookedTree] = TypeAdapter(BookedTree)
_HERE: TypeAdapter[BookedHere] = TypeAdapter(BookedHere)
RECORD, NOTE = "record", "note"
TREE, HERE = "booked-tree", "booked-here"


class FederationStore:
    """The store of the federation.

    Thread-safe; what a call writes is on disk when it returns. Writing raises ServiceError 503 if
    another controller has become active, 507 if the store cannot be written.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def _put(self, kind: str, key: str, body: bytes) -> None:
        with self._writing():
            self._store.put_document(kind, key, body.decode())

    def _delete(self, kind: str, key: str) -> None:
        with self._writing():
            self._store.delete_document(kind, key)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with self._store.transaction():
                yield
        except Fenced as error:
            raise ServiceError(503, "standby", "Standby", str(error)) from error
        except sqlite3.Error as error:
            detail = f"nothing was changed: {error}"
            raise ServiceError(507, "store", "Store cannot be written", detail) from error

    # -- the coordinator's

    def records(self) -> Iterable[Record]:
        """Return the records of paths with leaves in other domains."""
        return [_RECORD.validate_json(body) for body in self._store.documents(RECORD)]

    def save_record(self, record: Record) -> None:
        """Keep a record."""
        self._put(RECORD, record.path, _RECORD.dump_json(record))

    def forget_record(self, path: str) -> None:
        """Forget a path's record."""
        self._delete(RECORD, path)

    # -- the participant's

    def load(self) -> Iterable[Note]:
        """Return all notes."""
        return [_NOTE.validate_json(body) for body in self._store.documents(NOTE)]

    def save(self, note: Note) -> None:
        """Keep a note."""
        self._put(NOTE, str(note.connection), _NOTE.dump_json(note))

    def forget(self, connection: Connection) -> None:
        """Forget a connection's note."""
        self._delete(NOTE, str(connection))

    # -- reservations for later

    def booked_trees(self) -> list[BookedTree]:
        """Return the trees that this domain has booked."""
        return [_TREE.validate_json(body) for body in self._store.documents(TREE)]

    def save_booked_tree(self, booked: BookedTree) -> None:
        """Keep a tree."""
        self._put(TREE, booked.path, _TREE.dump_json(booked))

    def forget_booked_tree(self, path: str) -> None:
        """Forget a path's tree."""
        self._delete(TREE, path)

    def booked_here(self) -> list[BookedHere]:
        """Return the notes of this domain's part in others' reservations."""
        return [_HERE.validate_json(body) for body in self._store.documents(HERE)]

    def save_booked_here(self, note: BookedHere) -> None:
        """Keep a note."""
        self._put(HERE, str(note.connection), _HERE.dump_json(note))

    def forget_booked_here(self, connection: Connection) -> None:
        """Forget a note."""
        self._delete(HERE, str(connection))
