# SPDX-License-Identifier: Apache-2.0
"""The commands that read single files: logs of any version, and outputs of tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from common.command_line import (
    EXPERIMENTS,
    Failure,
    code_of,
    command,
    count,
    group,
    run,
    size_bytes,
    unknown,
)
from common.exit_codes import EXIT_USAGE
from common.files import os_error_text

app = group("Read logs and outputs of tools.")


@contextmanager
def told() -> Iterator[None]:
    """Turn an error of a command into one line and an exit code."""
    from parsers.base.jsonfiles import BadFile

    try:
        yield
    except BadFile as error:
        raise Failure(str(error), EXIT_USAGE) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(os_error_text(error), code_of(error)) from error


def main(arguments: Sequence[str]) -> int:
    """Run one command of this room."""
    return run(app, arguments)


def _format(text: str) -> str:
    from parsers.read.formats import FORMATS

    names = ["auto", *(known.name for known in FORMATS)]
    if text not in names:
        raise typer.BadParameter(unknown("format", text, names))
    return text


@dataclass(kw_only=True)
class ParseOptions:
    """Options of `parse`."""

    file: Annotated[Path, typer.Argument(metavar="FILE", help="A log, or the output of a tool.")]
    format: Annotated[
        str,
        typer.Option(parser=_format, metavar="NAME", help="Format of the file; auto: detect it."),
    ] = "auto"


@command(app, "parse", told=told, panel=EXPERIMENTS)
def parse_command(options: ParseOptions) -> int:
    """Print a log's records as JSON lines.

    Lines that it cannot parse go to stderr as file:line (exit code 1). A wrong --format names
    all formats.
    """
    from parsers import reading

    return reading.run_read(options.file, options.format)


@dataclass(kw_only=True)
class FileSetOptions:
    """Options of `ldm-log`."""

    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Receivers' logs.")]
    metadata: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The trace that was sent (default: use the logs)."),
    ] = None
    group_bytes: Annotated[
        int,
        typer.Option(
            parser=size_bytes,
            metavar="G",
            help="Bytes of a file-set (the papers' scripts: 209715200).",
        ),
    ] = 200_000_000


@command(app, "ldm-log", told=told, panel=EXPERIMENTS)
def file_sets_command(options: FileSetOptions) -> int:
    """Print the papers' metrics of receivers' logs, as CSV.

    Throughput and FFDR by file-sets of G bytes in sending order. One table for each log, and the
    mean of several logs; -1: not defined.
    """
    from parsers import reading

    return reading.run_file_sets(options.logs, options.metadata, options.group_bytes)


@dataclass(kw_only=True)
class SpeedOptions:
    """The options of `bench parsers`."""

    receivers: Annotated[
        int,
        typer.Option(parser=count, metavar="M", help="Number of receivers whose logs are read."),
    ] = 24
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the figures to this file.")
    ] = None


def speed_command(options: SpeedOptions) -> int:
    """Measure the speed and memory of each format's reader."""
    from parsers import bench

    return bench.run(options.receivers, options.json)
