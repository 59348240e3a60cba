# SPDX-License-Identifier: Apache-2.0
"""The commands about networks.

Exit codes: 0 success, 1 failure of the system, 2 bad usage or input, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from common.command_line import NETWORKS, Failure, command, completing, group, number, run, whole
from common.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from common.places import TOPOLOGIES
from topologies.watch.capture import DEFAULT_LIMIT_BYTES

if TYPE_CHECKING:
    from topologies.model.network import Network

app = group("Bring emulated networks up and look at them.")
topology = group("Check topology files and show the networks that they make.")


@contextmanager
def told() -> Iterator[None]:
    """Make one line and an exit code of what goes wrong in a command."""
    from common.shell import NetworkError
    from topologies.model.load import TopologyErrors

    try:
        yield
    except TopologyErrors as error:
        raise Failure(str(error), EXIT_USAGE) from error
    except NetworkError as error:
        raise Failure(str(error), EXIT_USAGE if os.geteuid() != 0 else EXIT_FAILED) from error
    except KeyboardInterrupt:
        raise Failure("interrupted", EXIT_INTERRUPTED) from None


def main(arguments: Sequence[str]) -> int:
    """Run one command of this room."""
    return run(app, arguments)


def _need_root() -> None:
    if os.geteuid() != 0:
        raise Failure(
            f"found user id {os.geteuid()}; valid: root, which making network namespaces needs, "
            "or the network of an experiment in virtual time: downpour run NAME --clock virtual "
            "(make: CLOCK=virtual)"
        )


def _bundled() -> list[str]:
    return sorted(path.stem for path in TOPOLOGIES.glob("*.yaml"))


@dataclass(kw_only=True)
class TopologyOptions:
    """Which network, and with which parameters."""

    topology: Annotated[
        str,
        typer.Argument(
            metavar="TOPOLOGY",
            help="A bundled topology, or a .yaml file.",
            autocompletion=completing(_bundled),
        ),
    ]
    receivers: Annotated[
        int | None, typer.Option(parser=whole, metavar="M", help="Number of receivers.")
    ] = None
    set: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="A parameter of the file.")
    ] = field(default_factory=list)


def parameters(receivers: int | None, assignments: Sequence[str]) -> dict[str, int | str]:
    """Return the topology's parameters of a command line. Failure for one without a value."""
    found: dict[str, int | str] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Failure(f"--set: found '{text}'; valid: NAME=VALUE")
        found[name] = value
    if receivers is not None:
        found["receivers"] = receivers
    return found


def _network(options: TopologyOptions) -> Network:
    from topologies.model.load import find, load

    return load(find(options.topology), parameters(options.receivers, options.set))


# -- the network that is up ---------------------------------------------------------------------
@command(app, "up", told=told, panel=NETWORKS)
def up_command(options: TopologyOptions) -> int:
    """Bring a network up to play with (root)."""
    from topologies.emulate import up_down
    from topologies.emulate.emulation_state import controllers_of

    network = _network(options)
    _need_root()
    start = time.monotonic()
    run_id = up_down.up(network, options.topology, _progress(start))
    print(up_down.status_of(run_id), end="")
    controllers = controllers_of(run_id)
    print(f"\nready after {time.monotonic() - start:.1f} s. Next:")
    print(f"  downpour shell {network.subscribers[0].name}")
    for domain, socket in controllers.items():
        for line in up_down.curl_examples(network, domain, socket):
            print(f"  {line}")
    print("  downpour status, downpour down (make: shell HOST=..., status, down)")
    return EXIT_OK


def _progress(start: float) -> Callable[[str], None]:
    def show(text: str) -> None:
        line = f"[{time.monotonic() - start:5.1f} s] {text}"
        if sys.stdout.isatty():
            print(f"\r{line:<70}", end="" if text != "control network" else "\n", flush=True)
        else:
            print(line, flush=True)

    return show


@dataclass(kw_only=True)
class DownOptions:
    """Of `down`."""

    all: Annotated[bool, typer.Option("--all", help="Also live runs of others.")] = False


@command(app, "down", told=told, panel=NETWORKS)
def down_command(options: DownOptions) -> int:
    """End the network and remove leftovers of dead runs (root)."""
    from topologies.emulate import up_down

    _need_root()
    number_of = up_down.down(
        lambda text: print(f"removing {text}", flush=True), everything=options.all
    )
    print("nothing was up" if number_of == 0 else "down")
    return EXIT_OK


@command(app, "status", told=told, panel=NETWORKS)
def status_command() -> int:
    """Say which networks are up."""
    from topologies.emulate import lifecycle, up_down

    runs = lifecycle.live_runs()
    for run_id in runs:
        print(up_down.status_of(run_id), end="")
    if not runs:
        print("no network is up")
    return EXIT_OK


RunId = Annotated[
    str | None, typer.Option("--run", metavar="ID", help="Default: the network that `up` made.")
]


@dataclass(kw_only=True)
class ShellOptions:
    """Of `shell`."""

    run: RunId = None
    host: Annotated[str, typer.Argument(metavar="HOST", help="A host that `status` lists.")]
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="Run this instead.")
    ] = None


@command(app, "shell", told=told, panel=NETWORKS, rest=True)
def shell_command(options: ShellOptions) -> int:
    """Open a shell in a host, or run a command there (root)."""
    from topologies.emulate import up_down

    _need_root()
    argv, environment = up_down.shell_command(options.run, options.host, options.words or [])
    os.execvpe(argv[0], argv, environment)


@dataclass(kw_only=True)
class CaptureOptions:
    """Of `capture`."""

    link: Annotated[
        str, typer.Argument(metavar="LINK", help="a:b captures at a's end, b:a at b's.")
    ]
    run: RunId = None
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the file goes.")] = Path(
        "captures"
    )
    seconds: Annotated[
        float | None,
        typer.Option(parser=number, metavar="S", help="Default: until Ctrl-C."),
    ] = None
    capture_bytes: Annotated[
        int,
        typer.Option(parser=whole, metavar="N", help="Size at most: the latest frames."),
    ] = DEFAULT_LIMIT_BYTES
    snap_bytes: Annotated[
        int, typer.Option(parser=whole, metavar="N", help="Of each frame (0: all).")
    ] = 0


@command(app, "capture", told=told, panel=NETWORKS)
def capture_command(options: CaptureOptions) -> int:
    """Capture a link of the network that is up (root)."""
    from topologies.emulate.capture_command import capture

    _need_root()
    found = capture(
        options.run,
        options.link,
        options.out,
        options.seconds,
        options.capture_bytes,
        options.snap_bytes,
        lambda text: print(text, flush=True),
    )
    print(
        f"{options.out / found.file}: {found.size_bytes} bytes, {found.frames} frames captured, "
        f"{found.dropped} dropped by the kernel"
        + ("; the first ones were overwritten" if found.ring else "")
    )
    if found.problem:
        raise Failure(found.problem, EXIT_FAILED)
    return EXIT_OK


@dataclass(kw_only=True)
class PurgeOptions:
    """Of `purge`."""

    run_id: Annotated[str, typer.Argument(metavar="ID", help="As `status` shows it.")]


@command(app, "purge", told=told, panel=NETWORKS)
def purge_command(options: PurgeOptions) -> int:
    """Remove one run's network, whatever state it is in (root)."""
    from topologies.emulate import lifecycle

    _need_root()
    lifecycle.purge(options.run_id)
    return EXIT_OK


# -- files ----------------------------------------------------------------------------------------
@dataclass(kw_only=True)
class ValidateOptions:
    """Of `topology validate`."""

    files: Annotated[
        list[str], typer.Argument(metavar="TOPOLOGY...", help="Bundled names, or .yaml files.")
    ]


@command(topology, "validate", told=told)
def validate_command(options: ValidateOptions) -> int:
    """Check topology files; every mistake is a line."""
    from topologies.model.load import TopologyErrors, find, load

    bad = False
    for name in options.files:
        try:
            network = load(find(name))
        except TopologyErrors as error:
            print(error, file=sys.stderr)
            bad = True
            continue
        print(
            f"{name}: valid: {len(network.hosts)} hosts, {len(network.switches)} switches, "
            f"{len(network.links)} links"
        )
    return EXIT_USAGE if bad else EXIT_OK


@dataclass(kw_only=True)
class ShowOptions(TopologyOptions):
    """Of `topology show`."""

    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw it instead: FILE.svg, .png, .pdf or .dot."),
    ] = None


@command(topology, "show", told=told)
def show_command(options: ShowOptions) -> int:
    """Show the network that a topology makes, as tables or as a picture."""
    if options.picture is not None:
        return _draw(options, options.picture)
    from topologies.model.describe import describe

    print(describe(_network(options)), end="")
    return EXIT_OK


def _draw(options: TopologyOptions, file: Path) -> int:
    from common.graphviz import PictureError, check_suffix, save
    from topologies.model.drawing import dot_of

    try:
        check_suffix(file)
        save(dot_of(_network(options)), file)
    except PictureError as error:
        raise Failure(f"--picture: {error}", EXIT_USAGE) from error
    print(f"Picture: {file}")
    return EXIT_OK


@command(topology, "export", told=told)
def export_command(options: TopologyOptions) -> int:
    """Print the network that a topology makes, as JSON."""
    print(_network(options).to_json())
    return EXIT_OK


@command(topology, "list", told=told)
def list_command() -> int:
    """List the bundled topologies."""
    from topologies.model.load import bundled, find, load

    for name in bundled():
        print(f"{name:12} {load(find(name)).description}")
    return EXIT_OK
