# SPDX-License-Identifier: Apache-2.0
"""Read and print single files by their format, for `downpour parse` and `ldm-log`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from common.counting import counted
from parsers.base.jsonfiles import BadFile
from parsers.base.problems import Problem
from parsers.measure.file_sets import (
    CSV_HEADER,
    FileSetRow,
    deliveries_of,
    mean_of,
    rows,
    sent_sizes,
)
from parsers.read.formats import (
    FORMATS,
    HEAD_CHARACTERS,
    Format,
    by_name,
    detect,
    json_lines,
)
from parsers.read.ldm_log import LdmLog, parse_ldm_log
from parsers.read.papers_log import PapersLog, parse_papers_log
from parsers.read.trace import parse_any_trace

SHOWN_PROBLEMS = 20


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    with path.open(encoding="utf-8", errors="replace", newline="\n") as stream:
        yield stream


def format_of(path: Path, name: str) -> Format:
    """Return the format with that name or, for `auto`, the format that the file's beginning shows.
    Raises `BadFile`."""
    if name != "auto":
        return by_name(name)
    with _opened(path) as stream:
        head = stream.read(HEAD_CHARACTERS)
    found = detect(head)
    if found is None:
        first = head.strip().split("\n")[0][:80]
        valid = ", ".join(f.name for f in FORMATS)
        raise BadFile(f"{path}:1: found {first!r}, which begins none of the formats: {valid}")
    return found


def print_records(path: Path, name: str, out: IO[str], errors: IO[str]) -> bool:
    """Print the file's records as JSON lines, and its problems to `errors`. Return False if a line
    was malformed (a truncated last line does not count). Raises `BadFile`, OSError."""
    known = format_of(path, name)
    with _opened(path) as stream:
        records, problems = known.read(stream.read() if known.is_document else stream, str(path))
    for line in json_lines(records):
        print(line, file=out)
    return tell(problems, errors)


def tell(problems: Sequence[Problem], errors: IO[str]) -> bool:
    """Print the problems. Return False if one of them is a malformed line."""
    for found in problems[:SHOWN_PROBLEMS]:
        print(found, file=errors)
    if len(problems) > SHOWN_PROBLEMS:
        print(f"... and {len(problems) - SHOWN_PROBLEMS} more", file=errors)
    return all(p.is_cut_off for p in problems)


def _receiver_log(path: Path) -> LdmLog | PapersLog:
    form = format_of(path, "auto")
    with _opened(path) as stream:
        if form.name == "ldm-log":
            return parse_ldm_log(stream, str(path))
        if form.name == "papers-log":
            return parse_papers_log(stream, str(path))
    raise BadFile(f"{path}: found the format {form.name!r}; valid: ldm-log, papers-log")


def print_file_sets(
    logs: Sequence[Path], metadata: Path | None, group_bytes: int, out: IO[str], errors: IO[str]
) -> bool:
    """Print the papers' CSV of each receiver's log, and the mean of several logs.

    `metadata`, a trace, says what was sent in which order (the product of line i has index i - 1).
    Without it, the logs together do. Return False if a line was malformed. Raises `BadFile`,
    OSError.
    """
    sound = True
    found = {}
    for path in logs:
        log = _receiver_log(path)
        sound = tell(log.problems, errors) and sound
        try:
            found[path] = deliveries_of(log)
        except ValueError as error:
            raise BadFile(f"{path}: {error}") from None
        if not found[path]:
            raise BadFile(f"{path}: no product was received; valid: a receiver's log")
    if metadata is None:
        sent = sent_sizes(found.values())
        print("no --metadata: taking the sent products from the logs", file=errors)
    else:
        with _opened(metadata) as stream:
            trace = parse_any_trace(stream.read(), str(metadata))
        sound = tell(trace.problems, errors) and sound
        sent = {index: product.size_bytes for index, product in enumerate(trace.products)}
    if sum(sent.values()) < group_bytes:
        print(f"one file-set: all together is less than {group_bytes} bytes", file=errors)
    tables = {path: rows(sent, received, group_bytes) for path, received in found.items()}
    for path, table in tables.items():
        _print_table(table, f"# {path}" if len(tables) > 1 else "", out)
    if len(tables) > 1:
        mean = mean_of(list(tables.values()))
        _print_table(mean, f"# mean of {counted(len(tables), 'receiver')}", out)
    return sound


def _print_table(table: Sequence[FileSetRow], title: str, out: IO[str]) -> None:
    if title:
        print(title, file=out)
    print(CSV_HEADER, file=out)
    for row in table:
        print(row.csv(), file=out)


def run_read(path: Path, name: str) -> int:
    """Print the records. Return 0, or 1 if a line other than a truncated last one was malformed."""
    return 0 if print_records(path, name, sys.stdout, sys.stderr) else 1


def run_file_sets(logs: Sequence[Path], metadata: Path | None, group_bytes: int) -> int:
    """Print the file-sets. Return the exit code as `run_read` does."""
    sound = print_file_sets(logs, metadata, group_bytes, sys.stdout, sys.stderr)
    return 0 if sound else 1
