# SPDX-License-Identifier: Apache-2.0
"""Options of `downpour workers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import typer

from common.command_line import count, port

LOOPBACK: Final = "127.0.0.1"
PORT: Final = 8786


@dataclass(kw_only=True)
class WorkersOptions:
    """Where workers listen, and how many there are."""

    count: Annotated[
        int | None,
        typer.Option(parser=count, metavar="N", help="Number of workers (default: one per core)."),
    ] = None
    join: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Join this scheduler instead of starting one."),
    ] = None
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Where the scheduler listens. Anyone who reaches it can run programs as you.",
        ),
    ] = LOOPBACK
    port: Annotated[int, typer.Option(parser=port, metavar="N", help="Its port.")] = PORT
