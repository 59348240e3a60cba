# SPDX-License-Identifier: Apache-2.0
"""`downpour paths`: the path service from the command line.

Exit codes: 0 done, 1 the service refused, 2 bad usage, 3 the service does not answer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from common import graphviz
from common.command_line import Failure, command, group, run
from common.counting import counted
from common.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from controller.api import ctl_text, picture
from controller.api.path_client import PathAnswer, PathClient, PathClientError
from controller.api.path_client import PathOptions as PathWishOptions
from controller.paths.channels import LEAVE_LATENCY_MAX_MS
from controller.paths.core import Endpoint
from controller.paths.multipoint_path import Channels

EXIT_NO_ANSWER: Final = 3
ADDRESS: Final = "DOWNPOUR_PATH_SERVICE"
PLACE: Final = "SWITCH:PORT:VLAN[@MAC,MAC...]"
TIME_HELP: Final = "+90m, or e.g. 2026-11-21T18:00 (UTC)."

app = group("The dynamic multipoint path service from the command line.")


class UsageError(Exception):
    """A request that cannot be made; the text says what is valid."""


@dataclass(frozen=True)
class Service:
    """Which service to ask, and how to show its answers."""

    address: str | None
    token_file: Path | None
    ca_file: Path | None
    json: bool


_SERVICE: ContextVar[Service] = ContextVar("service")


@app.callback()
def _service(
    at: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", envvar=ADDRESS, help="Unix socket or http(s)://HOST:PORT."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The workgroup's token.")
    ] = None,
    ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Who signed the server's key.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what the service answered.")
    ] = False,
) -> None:
    _SERVICE.set(Service(at, token_file, ca_file, as_json))


@contextmanager
def told() -> Iterator[None]:
    """Turn an error of a command into one line and an exit code."""
    try:
        yield
    except (UsageError, graphviz.PictureError) as error:
        raise Failure(f"paths: {error}", EXIT_USAGE) from error
    except PathClientError as error:
        code = EXIT_FAILED if error.status else EXIT_NO_ANSWER
        raise Failure(f"paths: {error.title}: {error}", code) from error
    except KeyboardInterrupt:
        raise Failure("", EXIT_INTERRUPTED) from None


def main(arguments: Sequence[str]) -> int:
    """Run one command of this room."""
    return run(app, arguments, "downpour paths")


def token_of(path: Path | None) -> str | None:
    """Read a token file. Raises UsageError."""
    if path is None:
        return None
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not ASCII"
        raise UsageError(f"--token-file {path}: {why}; valid: a file with a token") from error
    if not token:
        raise UsageError(f"--token-file {path}: empty; valid: a file with a token")
    return token


def _asked() -> Service:
    return _SERVICE.get()


@contextmanager
def _client() -> Iterator[PathClient]:
    """Open the service that the command line names. Raises UsageError."""
    asked = _asked()
    if not asked.address:
        raise UsageError(
            f"found no --at ADDRESS and no ${ADDRESS}; valid: a Unix socket or http(s)://HOST:PORT"
        )
    token = token_of(asked.token_file)
    with PathClient(asked.address, token=token, ca_file=asked.ca_file) as service:
        yield service


def _tell(result: object, text: Callable[[], str]) -> int:
    print(json.dumps(result, indent=2) if _asked().json else text())
    return EXIT_OK


def _endpoint(text: str | Endpoint) -> Endpoint:
    if isinstance(text, Endpoint):
        return text
    try:
        return ctl_text.endpoint_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _rate(text: str | int) -> int:
    try:
        return text if isinstance(text, int) else ctl_text.rate_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _time(text: str | float) -> float:
    try:
        return text if isinstance(text, float) else ctl_text.time_of(text, time.time())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _channels(text: str | Channels) -> Channels:
    try:
        return text if isinstance(text, Channels) else ctl_text.channels_of(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _with_latency(channels: Channels | None, latency_ms: int) -> Channels | None:
    if channels is None and latency_ms:
        raise UsageError("found --leave-latency without --channels; valid: both")
    return None if channels is None else replace(channels, leave_latency_ms=latency_ms)


@dataclass(kw_only=True)
class PathOptions:
    """Which path."""

    path: Annotated[str, typer.Argument(metavar="PATH", help="Name of the path.")]


@command(app, "list", told=told)
def list_command() -> int:
    """List paths."""
    with _client() as service:
        paths = service.paths()
        return _tell(paths, lambda: ctl_text.paths_text(paths))


@command(app, "show", told=told)
def show_command(options: PathOptions) -> int:
    """Show a path: what entered it, and what each edge and leaf received."""
    with _client() as service:
        path, counters = service.get(options.path), service.counters(options.path)
        result = {"path": path, "counters": counters}
        return _tell(result, lambda: ctl_text.path_text(path, counters))


@dataclass(kw_only=True)
class WishOptions(PathOptions):
    """What a path needs, now or later."""

    root: Annotated[
        Endpoint, typer.Option(parser=_endpoint, metavar=PLACE, help="Root of the path.")
    ]
    rate: Annotated[
        int,
        typer.Option(parser=_rate, metavar="RATE", help="e.g. 20M (bit/s), or best-effort."),
    ]
    steiner: Annotated[
        bool, typer.Option("--steiner", help="Leaves join the tree, not the root.")
    ] = False
    leaf_to_leaf: Annotated[
        bool, typer.Option("--leaf-to-leaf", help="Also allow unicast between leaves.")
    ] = False
    workgroup: Annotated[
        str | None, typer.Option(metavar="NAME", help="Owner of the path (admins only).")
    ] = None

    @property
    def algorithm(self) -> str | None:
        """The service's default: None."""
        return "steiner" if self.steiner else None


@dataclass(kw_only=True)
class CreateOptions(WishOptions):
    """The options of `paths create`."""

    end: Annotated[
        float | None,
        typer.Option(parser=_time, metavar="TIME", help=TIME_HELP),
    ] = None
    channels: Annotated[
        Channels | None,
        typer.Option(
            parser=_channels,
            metavar="GROUP[/COUNT]",
            help="Groups that leaves join by IGMP, e.g. 232.10.1.0/46.",
        ),
    ] = None
    leave_latency: Annotated[
        int,
        typer.Option(
            metavar="MS",
            min=0,
            max=LEAVE_LATENCY_MAX_MS,
            help="Delay between a leave and its effect.",
        ),
    ] = 0


@command(app, "create", told=told)
def create_command(options: CreateOptions) -> int:
    """Create a path."""
    with _client() as service:
        made = service.create_path(
            options.path,
            options.root,
            options.rate,
            workgroup=options.workgroup,
            algorithm=options.algorithm,
            leaf_to_leaf=options.leaf_to_leaf,
            end_time=options.end,
            channels=_with_latency(options.channels, options.leave_latency),
        )
        return _tell(made, lambda: _line(made))


@dataclass(kw_only=True)
class LeavesOptions(PathOptions):
    """The options of `paths add` and `paths remove`."""

    leaves: Annotated[
        list[Endpoint],
        typer.Argument(parser=_endpoint, metavar="LEAF...", help=f"Each: {PLACE}."),
    ]


@command(app, "add", told=told)
def add_command(options: LeavesOptions) -> int:
    """Add leaves to a path."""
    with _client() as service:
        changed = _each(options.path, options.leaves, service.add_leaf)
        return _tell(changed, lambda: _line(changed))


@command(app, "remove", told=told)
def remove_command(options: LeavesOptions) -> int:
    """Remove leaves of a path."""
    with _client() as service:
        changed = _each(options.path, options.leaves, service.remove_leaf)
        return _tell(changed, lambda: _line(changed))


@command(app, "delete", told=told)
def delete_command(options: PathOptions) -> int:
    """Delete a path."""
    with _client() as service:
        service.delete_path(options.path)
        return _tell({}, lambda: f"path {options.path} deleted")


@dataclass(kw_only=True)
class ReserveOptions(WishOptions):
    """The options of `paths reserve`."""

    start: Annotated[
        float, typer.Option(parser=_time, metavar="TIME", help=f"When it begins: {TIME_HELP}")
    ]
    end: Annotated[
        float, typer.Option(parser=_time, metavar="TIME", help=f"When it ends: {TIME_HELP}")
    ]
    leaves: Annotated[
        list[Endpoint] | None,
        typer.Argument(parser=_endpoint, metavar="[LEAF]...", help=f"Each: {PLACE}."),
    ] = None


@command(app, "reserve", told=told)
def reserve_command(options: ReserveOptions) -> int:
    """Reserve a path with its leaves for later."""
    with _client() as service:
        made = service.reserve(
            options.path,
            options.root,
            options.rate,
            options.leaves or (),
            options.start,
            PathWishOptions(
                workgroup=options.workgroup,
                algorithm=options.algorithm,
                leaf_to_leaf=options.leaf_to_leaf,
                end_time=options.end,
            ),
        )
        return _tell(made, lambda: ctl_text.reservation_text(made))


@command(app, "reservations", told=told)
def reservations_command() -> int:
    """List the reservations that have not begun."""
    with _client() as service:
        booked = service.reservations()
        return _tell(booked, lambda: ctl_text.reservations_text(booked))


@command(app, "cancel", told=told)
def cancel_command(options: PathOptions) -> int:
    """Cancel a reservation that has not begun."""
    with _client() as service:
        service.cancel(options.path)
        return _tell({}, lambda: f"reservation {options.path} cancelled")


@dataclass(kw_only=True)
class WatchOptions:
    """The options of `paths watch`."""

    since: Annotated[
        str | None, typer.Option(metavar="ID", help="Also print events since this one.")
    ] = None


@command(app, "watch", told=told)
def watch_command(options: WatchOptions) -> int:
    """Print events, one per line, until interrupted."""
    with _client() as service:
        for event in service.events(options.since):
            if _asked().json:
                shown = {"id": event.id, "kind": event.kind, "data": event.data}
                print(json.dumps(shown), flush=True)
            else:
                print(ctl_text.event_text(event.kind, event.data), flush=True)
    return EXIT_OK


@command(app, "workgroup", told=told)
def workgroup_command() -> int:
    """Show the token's workgroup and what it may use."""
    with _client() as service:
        workgroup = service.workgroup()
        return _tell(workgroup, lambda: ctl_text.workgroup_text(workgroup))


@command(app, "switches", told=told)
def switches_command() -> int:
    """List the switches, and whether they hold what they should."""
    with _client() as service:
        switches = service.health()["switches"]
        rows = [(name, "up" if known else "down") for name, known in switches.items()]
        return _tell(switches, lambda: ctl_text.table(("SWITCH", "STATE"), rows))


def _each(
    path: str, leaves: Sequence[Endpoint], change: Callable[[str, Endpoint], PathAnswer]
) -> PathAnswer:
    """Change one leaf after another. Changes before an error stay, and the message lists them."""
    results: list[PathAnswer] = []
    for leaf in leaves:
        try:
            results.append(change(path, leaf))
        except PathClientError as error:
            if results:
                said = ", ".join(map(str, leaves[: len(results)]))
                raise PathClientError(
                    error.status, error.title, f"{error} (done before: {said})"
                ) from error
            raise
    return results[-1]


def _line(path: PathAnswer) -> str:
    return f"path {path['name']}: {path['state']}, {counted(len(path['leaves']), 'leaf', 'leaves')}"


@dataclass(kw_only=True)
class PictureOptions:
    """The options of `paths picture`."""

    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH]...", help="Default: all.")
    ] = None
    counters: Annotated[
        bool, typer.Option("--counters", help="Show the numbers of frames sent and received.")
    ] = False
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="FILE.svg, .png, .pdf or .dot (default: DOT on stdout)."),
    ] = None


@command(app, "picture", told=told)
def picture_command(options: PictureOptions) -> int:
    """Draw paths as DOT or SVG, with the VLAN id on each edge."""
    with _client() as service:
        _picture(service, options)
    return EXIT_OK


def _picture(service: PathClient, arguments: PictureOptions) -> None:
    output: Path | None = arguments.output
    if output is not None:
        graphviz.check_suffix(output)
    names = arguments.paths
    paths = [service.get(name) for name in names] if names else service.paths()
    counters = (
        {path["name"]: service.counters(path["name"]) for path in paths}
        if arguments.counters
        else {}
    )
    drawn = picture.dot_of(paths, counters)
    if output is None:
        print(drawn, end="")
    else:
        graphviz.save(drawn, output)
