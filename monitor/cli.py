# SPDX-License-Identifier: Apache-2.0
"""The commands that keep what runs counted: `downpour monitor ...`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from common.command_line import (
    Failure,
    code_of,
    command,
    group,
    port_or_any,
    time_s,
)
from common.counting import counted
from common.exit_codes import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from common.files import os_error_text
from common.places import RUNS

if TYPE_CHECKING:
    from monitor.qlog import Qlog
    from monitor.store import Source, Store
    from parsers.measure.delivered import Delivered

app = group("Keep what the programs of runs counted (--sample counters), and export it.")

LEAST_TOKEN: Final = 16
WHOLE_S: Final = 10**11  # longer than any

SourceName = Annotated[
    str | None, typer.Option("--source", metavar="NAME", help="Required if the store has several.")
]
StoreFile = Annotated[
    Path, typer.Option("--store", metavar="FILE", help="The store's file (SQLite).")
]


@contextmanager
def told() -> Iterator[None]:
    """Turn an error of a command into one line and an exit code."""
    from monitor.parquet import ParquetError
    from monitor.push import PushError
    from monitor.sources import SourceError
    from monitor.store import StoreError, StoreRoomError

    try:
        yield
    except PushError as error:
        raise Failure(str(error), EXIT_FAILED) from error
    except StoreRoomError as error:
        raise Failure(str(error), EXIT_FAILED) from error
    except (ParquetError, SourceError, StoreError) as error:
        raise Failure(str(error), EXIT_USAGE) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(os_error_text(error), code_of(error)) from error


@dataclass(kw_only=True)
class ImportOptions:
    """Options of `monitor import`."""

    what: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|FILE...",
            help="A run, a cell, its counters.jsonl or minutes.txt, lines of rtstats, OpenMetrics "
            "text with time stamps, CSV, or Parquet.",
        ),
    ]
    store: StoreFile = Path("monitor.db")
    keep: Annotated[
        float | None,
        typer.Option(
            parser=time_s, metavar="TIME", show_default="all",
            help="Then delete values older than this, counted back from the newest.",
        ),
    ] = None  # fmt: skip


@command(app, "import", told=told)
def import_command(options: ImportOptions) -> int:
    """Add recordings to the store. Duplicates count once."""
    from monitor.sources import is_records, recordings
    from monitor.store import Store

    left_out = 0
    with closing(Store(options.store)) as store:
        for path in options.what:
            left_out += _import_records(store, path, options.keep)
            if path.is_file() and is_records(path):
                continue
            for name, clock, recording in recordings(path):
                store.put(name, clock, recording)
                _forget(store, name, options.keep)
                count = sum(len(points.values) for points in recording.points.values())
                print(
                    f"{name} ({clock}): {len(recording.points)} series, {counted(count, 'value')}"
                )
                if recording.bad:
                    left_out += recording.bad
                    text = f"left out {counted(recording.bad, 'line')}: {recording.first_bad}"
                    print(f"{path}: {text}", file=sys.stderr)
    return EXIT_FAILED if left_out else EXIT_OK


def _forget(store: Store, name: str, keep_s: float | None) -> None:
    if keep_s is not None:
        store.forget(name, keep_s)


def _import_records(store: Store, path: Path, keep_s: float | None) -> int:
    """Add minute records, if there are any; return how many lines were left out."""
    from monitor.sources import is_records, records

    if not path.is_dir() and not is_records(path):
        return 0
    left_out = 0
    for name, clock, found in records(path):
        store.put_records(name, clock, found)
        _forget(store, name, keep_s)
        hosts = len({minute.host for minute in found.minutes.values()})
        print(f"{name} ({clock}): {len(found.minutes)} minute records of {counted(hosts, 'host')}, "
              f"{len(found.paths)} of paths, {len(found.hours)} classic lines")  # fmt: skip
        if found.bad:
            left_out += found.bad
            print(
                f"{path}: left out {counted(found.bad, 'line')}: {found.first_bad}", file=sys.stderr
            )
    return left_out


@contextmanager
def _opened(file: Path) -> Iterator[Store]:
    """Open a store that exists. Raises StoreError."""
    from monitor.store import Store, StoreError

    if not file.is_file():
        raise StoreError(f"{file}: found no file; valid: what `monitor import` made")
    with closing(Store(file)) as store:
        yield store


def _source(store: Store, wanted: str | None) -> Source:
    sources = {source.name: source for source in store.sources()}
    if wanted is None and len(sources) == 1:
        return next(iter(sources.values()))
    if wanted not in sources:
        names = ", ".join(sources) or "none: the store is empty"
        raise Failure(f"--source: found {wanted or 'nothing'}; valid: {names}", EXIT_USAGE)
    return sources[wanted]


@dataclass(kw_only=True)
class ExportOptions:
    """Options of `monitor export`."""

    store: StoreFile = Path("monitor.db")
    source: SourceName = None
    format: Annotated[
        Literal["openmetrics", "csv", "parquet"],
        typer.Option(
            help="openmetrics: for Prometheus and VictoriaMetrics; parquet: for pandas and the "
            "like, needs the extra parquet."
        ),
    ] = "openmetrics"
    step: Annotated[
        float | None,
        typer.Option(
            parser=time_s, metavar="TIME", show_default="all values",
            help="Only the last value of each step of this length, a multiple of 10 s.",
        ),
    ] = None  # fmt: skip


def _step_us(step_s: float) -> int:
    from monitor.store import STEP_US

    found = round(step_s * 1_000_000)
    if found <= 0 or found % STEP_US:
        raise Failure(f"--step: found {step_s:g} s; valid: 10s, 20s, 1min or the like", EXIT_USAGE)
    return found


@command(app, "export", told=told)
def export_command(options: ExportOptions) -> int:
    """Print a recording."""
    from monitor import openmetrics, parquet, table

    if options.format == "parquet" and sys.stdout.isatty():
        raise Failure("found a terminal; valid: a file or a pipe (> FILE)", EXIT_USAGE)
    step_us = None if options.step is None else _step_us(options.step)
    with _opened(options.store) as store:
        recording = store.recording(_source(store, options.source).id, step_us)
    if options.format == "csv":
        table.write(recording, sys.stdout)
    elif options.format == "parquet":
        sys.stdout.buffer.write(parquet.content(recording))
    else:
        sys.stdout.writelines(openmetrics.lines(recording))
    return EXIT_OK


@dataclass(kw_only=True)
class TraceOptions:
    """Options of `monitor trace`."""

    what: Annotated[
        list[Path],
        typer.Argument(metavar="RUN|FILE...", help="A finished run, or files of --qlog (.sqlog)."),
    ]
    cell: Annotated[
        str | None, typer.Option(metavar="NAME", help="Needed if the run has several.")
    ] = None


@command(app, "trace", told=told)
def trace_command(options: TraceOptions) -> int:
    """Print deliveries or events for Perfetto and chrome://tracing: a group per host or file."""
    from monitor.qlog import trace_events
    from monitor.trace import lines, pieces

    if len(options.what) == 1 and options.what[0].is_dir():
        sys.stdout.writelines(pieces(_delivered(options.what[0], options.cell)))
        return EXIT_OK
    files, left_out = [], 0
    for path in options.what:
        found = _qlog(path)
        files.append(found)
        left_out += found.bad
        if found.bad:
            print(
                f"{path}: left out {counted(found.bad, 'record')}: cut or malformed",
                file=sys.stderr,
            )
    sys.stdout.writelines(lines(trace_events(files)))
    return EXIT_FAILED if left_out else EXIT_OK


def _qlog(path: Path) -> Qlog:
    """Read a file of --qlog. Raises Failure."""
    from monitor.qlog import QlogError, parse
    from monitor.sources import regular

    try:
        found = parse(regular(path).read_bytes())
    except QlogError as error:
        raise Failure(f"{path}: {error}", EXIT_USAGE) from error
    return replace(found, program=f"{path.resolve().parent.name}/{found.program}")


def _delivered(path: Path, cell: str | None) -> Delivered:
    """Return a cell's deliveries. Raises Failure."""
    from monitor.running import FinishedRun
    from parsers.base.jsonfiles import BadFile
    from parsers.measure.delivered import decode

    try:
        run = FinishedRun(path)
    except BadFile as error:
        raise Failure(str(error), EXIT_USAGE) from error
    name = cell or (run.cells[0] if len(run.cells) == 1 else "")
    blob = run.deliveries(name)
    if not blob:
        names = ", ".join(run.cells) or "none: its subscribers come and go"
        raise Failure(f"--cell: found {name or 'nothing'}; valid: {names}", EXIT_USAGE)
    return decode(blob)


@dataclass(kw_only=True)
class PushOptions:
    """Options of `monitor push`."""

    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="Such as http://127.0.0.1:8428 (VictoriaMetrics) or "
            "http://127.0.0.1:9090/api/v1/write (Prometheus' remote write).",
        ),
    ]
    store: StoreFile = Path("monitor.db")
    source: SourceName = None


@command(app, "push", told=told)
def push_command(options: PushOptions) -> int:
    """Send a recording to VictoriaMetrics or Prometheus."""
    from monitor.push import push

    with _opened(options.store) as store:
        source = _source(store, options.source)
        recording = store.recording(source.id)
    size = push(options.url, source.name, recording)
    print(f"{source.name}: sent {len(recording.points)} series, {size} bytes")
    return EXIT_OK


@dataclass(kw_only=True)
class MinutesOptions:
    """Options of `monitor minutes`."""

    store: StoreFile = Path("monitor.db")
    source: SourceName = None
    step: Annotated[
        float | None,
        typer.Option(
            parser=time_s, metavar="TIME", help="Length of a row, in whole minutes.",
            show_default="one row",
        ),
    ] = None  # fmt: skip
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Only this host.")] = None


@command(app, "minutes", told=told)
def minutes_command(options: MinutesOptions) -> int:
    """Print the DRFSM paper's metrics from minute records. The publishers' paths follow."""
    from monitor import minute_text

    step_s = WHOLE_S if options.step is None else round(options.step)
    if options.step is not None and (options.step % 60 or step_s > WHOLE_S):
        raise Failure(f"--step: found {options.step:g} s; valid: whole minutes", EXIT_USAGE)
    with _opened(options.store) as store:
        source = _source(store, options.source).id
        found = store.minutes(source, step_s, options.host)
        paths = store.paths(source, step_s, options.host)
        if options.host is not None and not found and not paths:
            hosts = {minute.host for minute in store.minutes(source, WHOLE_S)}
            hosts |= {path.host for path in store.paths(source, WHOLE_S)}
            names = ", ".join(sorted(hosts)) or "none: no minute records"
            raise Failure(f"--host: found {options.host}; valid: {names}", EXIT_USAGE)
    print(minute_text.table(found, paths, with_time=options.step is not None), end="")
    return EXIT_OK


@dataclass(kw_only=True)
class ServeOptions:
    """Options of `monitor serve`."""

    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="[RUN]",
            help="A finished run. Default: the current run, or the next one to start.",
        ),
    ] = None
    runs: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory with the runs.", show_default=False)
    ] = RUNS
    listen: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Addresses other than 127.0.0.1 need --token-file."),
    ] = "127.0.0.1"
    port: Annotated[
        int, typer.Option(parser=port_or_any, metavar="N", help="Port; 0: any free one.")
    ] = 8750
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the token that viewers need.")
    ] = None


def _token(options: ServeOptions) -> str:
    """Return what viewers must know; "" without. Raises Failure, SourceError, OSError."""
    from monitor.sources import regular

    if options.token_file is None:
        if options.listen not in ("127.0.0.1", "::1", "localhost"):
            raise Failure(
                f"--listen: found {options.listen} without --token-file; valid: 127.0.0.1, or a "
                "file with a token of at least 16 characters",
                EXIT_USAGE,
            )
        return ""
    try:
        token = regular(options.token_file, "a file").read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        text = f"{options.token_file}: found bytes that are not text; valid: a token"
        raise Failure(text, EXIT_USAGE) from None
    if len(token) < LEAST_TOKEN:
        raise Failure(
            f"{options.token_file}: found a token of {len(token)} characters; "
            f"valid: at least {LEAST_TOKEN}",
            EXIT_USAGE,
        )
    return token


@command(app, "serve", told=told)
def serve_command(options: ServeOptions) -> int:
    """Show the current or a finished run in a browser."""
    import socket

    from monitor.running import FinishedRun, Shown, Waiting
    from parsers.base.jsonfiles import BadFile

    token = _token(options)
    try:
        shown: Shown = FinishedRun(options.run) if options.run else Waiting(options.runs)
    except BadFile as error:
        raise Failure(str(error), EXIT_USAGE) from error
    family = socket.AF_INET6 if ":" in options.listen else socket.AF_INET
    with socket.socket(family) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((options.listen, options.port))
        except (OSError, UnicodeError) as error:
            where, why = f"{options.listen} port {options.port}", getattr(error, "strerror", error)
            valid = "valid: an address of this machine, and a free port (--port 0)"
            raise Failure(f"--listen: found {where}: {why}; {valid}", EXIT_FAILED) from None
        listener.listen()  # before printing: the printed address accepts connections
        port = listener.getsockname()[1]
        host = f"[{options.listen}]" if ":" in options.listen else options.listen
        print(f"http://{host}:{port}/ (Ctrl-C ends it)", flush=True)
        # Slow to import: viewers that come meanwhile wait in the listener's queue.
        from common.http.server import BUSY_MAX, bounded
        from monitor.api import make_app

        bounded(make_app(shown, token), None, BUSY_MAX, has_lifespan=True).run(sockets=[listener])
    return EXIT_OK
