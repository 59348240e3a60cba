# SPDX-License-Identifier: Apache-2.0
"""The command `downpour`: the commands of all rooms under one name.

Exit codes: 0 success; 1 a cell failed, products differ, or a metric is outside its band; 2 bad
input; 3 a verdict is invalid; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from bench import cli as bench
from common.command_line import (
    DEVELOPERS,
    EXPERIMENTS,
    LABS,
    NETWORKS,
    PROGRAM,
    Failure,
    command,
    group,
    run,
    unknown,
)
from common.exit_codes import EXIT_FAILED, EXIT_OK
from common.version import version
from controller.api import ctl
from downpour import skeleton
from experiments import cli as experiments
from labs import cli as labs
from monitor import cli as monitor
from parsers import cli as parsers
from topologies import cli as topologies
from virtual import cli as virtual

TEXT: Final = """A testbed in a box for reliable multicast file-stream distribution.

Exit codes: 0 success; 1 a cell failed, products differ, or a metric is outside its band; 2 bad
input; 3 a verdict is invalid; 130 interrupted."""

app = group(TEXT)
app._add_completion = True  # --install-completion, --show-completion


@contextmanager
def told() -> Iterator[None]:
    """Let the commands below report their own errors."""
    yield


def _version(asked: bool) -> None:
    if asked:
        print(f"{PROGRAM} {version()}")
        raise typer.Exit(EXIT_OK)


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    _version_asked: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(EXIT_OK)


@dataclass(kw_only=True)
class DoctorOptions:
    """Options of `doctor`."""

    long: Annotated[
        bool,
        typer.Option("--long", help="Also bring up a small network and measure it (1 minute)."),
    ] = False
    controller: Annotated[
        str | None,
        typer.Option(
            metavar="tcp:HOST:PORT|onos",
            help="Only check that an OpenFlow controller answers there.",
        ),
    ] = None
    onos: Annotated[
        str | None, typer.Option(metavar="URL", help="ONOS's REST, for --controller onos.")
    ] = None


@command(app, "doctor", told=told, panel=EXPERIMENTS)
def doctor_command(options: DoctorOptions) -> int:
    """Say what works on this machine, and what is missing."""
    from downpour import doctor

    if options.controller is not None or options.onos is not None:
        return _check_controller(options)
    code = doctor.main()
    return doctor.measure() if options.long and code == EXIT_OK else code


def _check_controller(options: DoctorOptions) -> int:
    from common.findings import OK, Section, render, write
    from common.onos import OnosAddress
    from topologies.emulate.controller_option import external_address
    from topologies.emulate.foreign_controller import finding
    from topologies.emulate.onos import onos_finding

    address = external_address(options.controller, options.onos)
    assert address is not None, "one of the options is given"
    found = onos_finding(address) if isinstance(address, OnosAddress) else finding(address)
    write(render([Section("Controller of other networks", (found,))]), sys.stdout)
    return EXIT_OK if found.level == OK else EXIT_FAILED


@dataclass(kw_only=True)
class CompletionOptions:
    """Options of `completion`."""

    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL")]


@command(app, "completion", told=told, panel=DEVELOPERS)
def completion_command(options: CompletionOptions) -> int:
    """Print the completion script for bash, zsh or fish."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    variable = f"_{PROGRAM.upper()}_COMPLETE"
    print(get_completion_script(prog_name=PROGRAM, complete_var=variable, shell=options.shell))
    return EXIT_OK


@dataclass(kw_only=True)
class VerifyOptions(topologies.VerifyNetworkOptions):
    """Options of `verify`."""

    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|NETWORK]",
            help="A run directory or a topology. Default: the running network.",
        ),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress (of a run).")] = False


@command(app, "verify", told=told, panel=EXPERIMENTS)
def verify_command(options: VerifyOptions) -> int:
    """Check a run's figures against its logs, or measure a network (root)."""
    from experiments.runs import verify
    from experiments.runs.options import VerifyOptions as RunOptions
    from topologies.model.load import bundled

    what = options.what
    if what is None or what in bundled() or what.endswith((".yaml", ".yml")):
        return topologies.verify_network(what, options)
    if "/" not in what and not Path(what).is_dir():
        raise Failure(unknown("run or network", what, ["a run directory", *bundled()]))
    return verify.main(RunOptions(run=Path(what), quiet=options.quiet))


def _without(room: typer.Typer, name: str) -> typer.Typer:
    """Return a room's commands without one that this module defines under the same name."""
    found = group(TEXT)
    found.registered_commands = [c for c in room.registered_commands if c.name != name]
    found.registered_groups = room.registered_groups
    return found


def _compose() -> None:
    for room in (experiments, parsers, topologies):
        app.add_typer(_without(room.app, "verify"))
    app.add_typer(monitor.app, name="monitor", rich_help_panel=EXPERIMENTS)
    app.add_typer(topologies.topology, name="topology", rich_help_panel=NETWORKS)
    app.add_typer(ctl.app, name="paths", rich_help_panel=NETWORKS)
    app.add_typer(virtual.app, name="virtual", rich_help_panel=NETWORKS)
    app.add_typer(labs.app, name="lab", rich_help_panel=LABS)
    app.add_typer(labs.classes, name="class", rich_help_panel=LABS)
    command(bench.app, "parsers", told=parsers.told)(parsers.speed_command)
    app.add_typer(bench.app, name="bench", rich_help_panel=DEVELOPERS)
    app.add_typer(skeleton.app, name="new", rich_help_panel=DEVELOPERS)


_compose()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line. Return its exit code."""
    return run(app, sys.argv[1:] if arguments is None else arguments)


__all__ = ["Failure", "app", "main"]
