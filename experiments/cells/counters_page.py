# SPDX-License-Identifier: Apache-2.0
"""Parse the counters pages of ldmd's processes (`common/c/stats_page.h`) into `Page`.

A page describes its own layout. It is checked like any input; a `PageError` has one line.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.counting import counted

VERSION: Final = 1
MAGIC: Final = b"DPSTATS\n"
ORDER: Final = 0x01020304
MOST_BYTES: Final = 4 << 20
KINDS: Final = {1: "counter", 2: "gauge"}
_HEADER: Final = struct.Struct("=8sIIIIQQQ40s40s24s104s24s104s")
_TABLE: Final = struct.Struct("=40s24s24sIIIIII")
_COLUMN: Final = struct.Struct("=40sII144s")
_TEXTS: Final = struct.Struct("=Q104s104s")
_MOST_TABLES, _MOST_COLUMNS, _MOST_ROWS = 8, 64, 4096
TRIES: Final = 20


class PageError(Exception):
    """Bytes that are not a counters page."""


@dataclass(frozen=True)
class Column:
    """`decimals`: values are in units of 10^-decimals."""

    name: str
    kind: str
    decimals: int
    help: str


@dataclass(frozen=True)
class Row:
    """`labels`: of the page and of the row."""

    labels: dict[str, str]
    values: tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """The rows in use. `torn`: how many were left out because they were being written."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    torn: int


@dataclass(frozen=True)
class Page:
    """`start_us`: when the process began, since 1970."""

    program: str
    pid: int
    start_us: int
    tables: tuple[Table, ...]


def _text(raw: bytes) -> str:
    text, end, _ = raw.partition(b"\0")
    if not end:
        raise PageError("an unterminated string")
    return text.decode("ascii", errors="replace")


def _columns(data: bytes, at: int, count: int, table: str) -> Iterator[Column]:
    for i in range(count):
        name, kind, decimals, text = _COLUMN.unpack_from(data, at + i * _COLUMN.size)
        if kind not in KINDS or decimals > 9:
            raise PageError(f"column {i} of {table}: found kind {kind}, {decimals} decimals")
        yield Column(_text(name), KINDS[kind], decimals, _text(text))


def _table(data: bytes, before: bytes, at: int, of_page: dict[str, str]) -> Table:
    raw_name, key0, key1, columns, rows, columns_at, rows_at, row_bytes, _ = _TABLE.unpack_from(
        data, at
    )
    name, keys = _text(raw_name), [_text(key) for key in (key0, key1)]
    if not (0 < columns <= _MOST_COLUMNS and 0 < rows <= _MOST_ROWS):
        raise PageError(f"table {name}: found {counted(columns, 'column')}, {counted(rows, 'row')}")
    layout = struct.Struct(f"={columns + 1}Q")
    if row_bytes != _TEXTS.size + layout.size:
        raise PageError(f"table {name}: found rows of {row_bytes} bytes")
    if columns_at + columns * _COLUMN.size > len(data) or rows_at + rows * row_bytes > len(data):
        raise PageError(f"table {name} lies beyond the end")
    found, torn = [], 0
    for row in range(rows):
        start = rows_at + row * row_bytes
        done, *texts = _TEXTS.unpack_from(data, start)
        *values, begun = layout.unpack_from(data, start + _TEXTS.size)
        if done != begun or data[start : start + row_bytes] != before[start : start + row_bytes]:
            torn += 1
        elif done and (not keys[0] or texts[0][:1] != b"\0"):
            own = {key: _text(text) for key, text in zip(keys, texts, strict=True) if key}
            found.append(Row(of_page | own, tuple(values)))
    return Table(name, tuple(_columns(data, columns_at, columns, name)), tuple(found), torn)


def parse(data: bytes, before: bytes | None = None) -> Page:
    """Parse the bytes of a page. Raises PageError.

    `before`: what was read just before. A row that is equal in both is whole. One reading is not
    enough: the kernel may copy its bytes in any order, so that a row's two marks can be equal in a
    torn row."""
    if not _HEADER.size <= len(data) <= MOST_BYTES:
        raise PageError(f"found {len(data)} bytes; valid: {_HEADER.size} to {MOST_BYTES}")
    magic, version, order, size, tables, pid, _, start_us, _, program, *labels = (
        _HEADER.unpack_from(data)
    )
    if magic != MAGIC or order != ORDER:
        raise PageError("no counters page of this machine's byte order")
    if version != VERSION:
        raise PageError(f"found version {version}; valid: {VERSION}")
    if size != len(data) or not 0 < tables <= _MOST_TABLES:
        raise PageError(
            f"found {len(data)} bytes and {counted(tables, 'table')}; its header says {size} bytes"
        )
    if _HEADER.size + tables * _TABLE.size > size:
        raise PageError("the tables lie beyond the end")
    texts = [_text(label) for label in labels]
    of_page = {key: text for key, text in zip(texts[::2], texts[1::2], strict=True) if key}
    found = [
        _table(data, data if before is None else before, _HEADER.size + i * _TABLE.size, of_page)
        for i in range(tables)
    ]
    return Page(_text(program), pid, start_us, tuple(found))


def load(path: Path) -> Page:
    """Return the page of a file; read it again while a row is being written. Raises PageError,
    OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb", buffering=0) as file:
        data = os.pread(file.fileno(), MOST_BYTES + 1, 0)
        for _ in range(TRIES):
            before, data = data, os.pread(file.fileno(), MOST_BYTES + 1, 0)
            page = parse(data, before)
            if not any(table.torn for table in page.tables):
                break
    return page
