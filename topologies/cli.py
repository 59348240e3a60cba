# SPDX-License-Identifier: Apache-2.0
"""The commands about networks.

Exit codes: 0 success, 1 failure of the system, 2 bad usage or input, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from common.command_line import (
    NETWORKS,
    Failure,
    command,
    completing,
    count,
    group,
    number,
    run,
    snap_bytes,
    unknown,
    whole,
)
from common.counting import counted
from common.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from common.places import TOPOLOGIES
from common.quantities import parse_rate_bps
from common.shell import termination_as_interrupt
from common.terminal import columns
from topologies.watch.capture import DEFAULT_LIMIT_BYTES

if TYPE_CHECKING:
    from topologies.model.network import Network
    from topologies.verify.nodes import Nodes

# The formats of topologies.export. Listed here, as a help text need not import that module.
EXPORT_FORMATS = ("json", "dot", "graphml", "mininet", "containerlab", "containerlab-script")

app = group("Bring emulated networks up and look at them.")
topology = group("Check topology files and show the networks that they describe.")


@contextmanager
def told() -> Iterator[None]:
    """Turn an error of a command into one line and an exit code."""
    from common.shell import NetworkError, UnknownNameError
    from topologies.model.load import TopologyErrors

    try:
        yield
    except (TopologyErrors, UnknownNameError) as error:
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
            f"found user id {os.geteuid()}; valid: root (needed to make network namespaces), "
            "or the network of an experiment in virtual time: downpour run NAME --clock virtual "
            "(make: CLOCK=virtual)"
        )


def _bundled() -> list[str]:
    return sorted(path.stem for path in TOPOLOGIES.glob("*.yaml"))


@dataclass(kw_only=True)
class TopologyOptions:
    """The network, and its parameters."""

    topology: Annotated[
        str,
        typer.Argument(
            metavar="TOPOLOGY",
            help="A bundled topology or a .yaml file.",
            autocompletion=completing(_bundled),
        ),
    ]
    receivers: Annotated[
        int | None, typer.Option(parser=whole, metavar="M", help="Number of receivers.")
    ] = None
    set: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="Set a parameter of the file.")
    ] = field(default_factory=list)


def parameters(receivers: int | None, assignments: Sequence[str]) -> dict[str, int | str]:
    """Return the topology parameters of a command line. Raises Failure for one without a
    value."""
    found: dict[str, int | str] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Failure(f"--set: found '{text}'; valid: NAME=VALUE")
        if name in found:
            raise Failure(f"--set: found '{text}' after '{name}={found[name]}'; valid: one of them")
        found[name] = value
    if receivers is not None:
        if "receivers" in found:
            other = f"--set receivers={found['receivers']}"
            raise Failure(f"--receivers: found '{receivers}' with {other}; valid: one of them")
        found["receivers"] = receivers
    return found


def _network(options: TopologyOptions) -> Network:
    from topologies.model.load import find, load

    return load(find(options.topology), parameters(options.receivers, options.set))


# -- the network that is up ---------------------------------------------------------------------
@dataclass(kw_only=True)
class UpOptions(TopologyOptions):
    """Options of `up`."""

    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Also measure every site, and print expected and measured values."
        ),
    ] = False
    cli: Annotated[
        bool, typer.Option("--cli", help="Also open Mininet's prompt; exit ends the network.")
    ] = False
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Keep the network if it is the same; replace any other."),
    ] = False
    controller: Annotated[
        str | None,
        typer.Option(
            metavar="tcp:HOST:PORT|onos",
            help="Give the switches to this OpenFlow controller; the path service is off. "
            "onos: the path service uses ONOS.",
        ),
    ] = None
    onos: Annotated[
        str | None, typer.Option(metavar="URL", help="ONOS's REST, for --controller onos.")
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what --replace would do.")] = (
        False
    )


@command(app, "up", told=told, panel=NETWORKS)
def up_command(options: UpOptions) -> int:
    """Bring up a network to experiment with (root)."""
    from topologies.emulate import up_down
    from topologies.emulate.controller_option import external_address

    network = _network(options)
    controller = external_address(options.controller, options.onos)
    if controller is not None and (options.verify or options.replace):
        raise Failure("--controller: found --verify or --replace; valid: without them")
    _need_root()
    start = time.monotonic()
    run_id = _same_network(network) if options.replace or options.dry_run else None
    if options.dry_run:
        print("is up" if run_id is not None else f"would bring up {options.topology}")
        return EXIT_OK
    if run_id is not None:
        print("is up")
    else:
        for other in up_down.own_networks() if options.replace else ():
            up_down.end(other)
        run_id = up_down.up(network, options.topology, _progress(start), controller)
        print(f"ready after {time.monotonic() - start:.1f} s")
    print(up_down.status_of(run_id))
    code = _verify(run_id, VerifyNetworkOptions()) if options.verify else EXIT_OK
    if options.cli:
        _prompt_and_end(run_id)
    else:
        _print_next(run_id, network)
    return code


def _same_network(network: Network) -> str | None:
    """Return this checkout's running network if it is the same one."""
    from topologies.emulate import up_down

    running = up_down.own_networks()
    return next((run_id for run_id in running if up_down.network_of(run_id) == network), None)


def _print_next(run_id: str, network: Network) -> None:
    from topologies.emulate import up_down
    from topologies.emulate.emulation_state import controllers_of

    print("Next:")
    print(f"  downpour shell {network.subscribers[0].name}")
    controllers = controllers_of(run_id)
    print("  downpour multicast 20Mbps, downpour cli" if controllers else "  downpour cli")
    for domain, socket in controllers.items():
        for line in up_down.curl_examples(network, domain, socket):
            print(f"  {line}")
    print("  downpour status, downpour down (make: shell HOST=..., status, down)")


def _prompt_and_end(run_id: str) -> None:
    from topologies.emulate import up_down
    from topologies.prompt import prompt

    print()
    try:
        prompt(run_id)
    finally:
        up_down.end(run_id)


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
    """Options of `down`."""

    all: Annotated[bool, typer.Option("--all", help="Also end other users' live runs.")] = False
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be ended.")] = False


@command(app, "down", told=told, panel=NETWORKS)
def down_command(options: DownOptions) -> int:
    """Take down the network and remove leftovers of dead runs (root)."""
    from topologies.emulate import lifecycle, up_down

    _need_root()
    if options.dry_run:
        states = {run_id: lifecycle.read_state(run_id) for run_id in lifecycle.live_runs()}
        for run_id in up_down.to_end(states, everything=options.all):
            print(f"would end {run_id}")
        return EXIT_OK
    number_of = up_down.down(
        lambda text: print(f"removing {text}", flush=True), everything=options.all
    )
    print("nothing was up" if number_of == 0 else "down")
    return EXIT_OK


@dataclass(kw_only=True)
class StatusOptions:
    """Options of `status`."""

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


@command(app, "status", told=told, panel=NETWORKS)
def status_command(options: StatusOptions) -> int:
    """List the networks that are up."""
    from topologies.emulate import lifecycle, up_down

    runs = lifecycle.live_runs()
    if options.as_json:
        print(json.dumps([up_down.status_json(run_id) for run_id in runs], indent=2))
        return EXIT_OK
    for run_id in runs:
        print(up_down.status_of(run_id), end="")
    if not runs:
        print("no network is up")
    return EXIT_OK


RunId = Annotated[
    str | None, typer.Option("--run", metavar="ID", help="Default: the network that `up` created.")
]


@dataclass(kw_only=True)
class PromptOptions:
    """Options of `cli`."""

    run: RunId = None


@command(app, "cli", told=told, panel=NETWORKS)
def prompt_command(options: PromptOptions) -> int:
    """Open Mininet's prompt on the network that is up (root)."""
    from topologies.emulate import up_down
    from topologies.prompt import prompt

    _need_root()
    prompt(up_down.chosen_network(options.run))
    return EXIT_OK


@dataclass(kw_only=True)
class MulticastOptions:
    """Options of `multicast`."""

    rate: Annotated[str, typer.Argument(metavar="RATE", help="Guaranteed rate, e.g. 20Mbps.")] = (
        "20Mbps"
    )
    run: RunId = None
    delete: Annotated[bool, typer.Option("--delete", help="Delete that path.")] = False


@command(app, "multicast", told=told, panel=NETWORKS)
def multicast_command(options: MulticastOptions) -> int:
    """Make a multicast path from the publisher to every site (root)."""
    from topologies.emulate import up_down
    from topologies.verify import multicast

    rate_bps = _rate_bps(options.rate)
    _need_root()
    run_id = up_down.chosen_network(options.run)
    network, sockets = _running(run_id)
    if options.delete:
        changed = multicast.remove(network, sockets, multicast.NAME)
        print(f"path {multicast.NAME}: {'deleted' if changed else 'did not exist'}")
        return EXIT_OK
    changed = multicast.ensure(network, sockets, multicast.NAME, rate_bps)
    sites = len({host.site for host in network.subscribers})
    done = "made" if changed else "existed already"
    print(f"path {multicast.NAME}: {rate_bps / 1e6:g} Mbit/s to {counted(sites, 'site')}: {done}")
    return EXIT_OK


def _running(run_id: str) -> tuple[Network, dict[str, Path]]:
    """Return a running network, and the sockets of its controllers."""
    from topologies.emulate import up_down
    from topologies.emulate.emulation_state import controllers_of

    network = up_down.network_of(run_id)
    if network is None:
        raise Failure(f"{run_id}: the network is being built (see: status)")
    return network, {domain: Path(text) for domain, text in controllers_of(run_id).items()}


@dataclass(kw_only=True)
class VerifyNetworkOptions:
    """How to measure a network."""

    rate: Annotated[
        str, typer.Option(metavar="RATE", help="Rate of the measured path, e.g. 20Mbps.")
    ] = "20Mbps"
    seconds: Annotated[
        int, typer.Option(parser=count, metavar="S", help="Length of each iperf3 test.")
    ] = 3


def verify_network(name: str | None, options: VerifyNetworkOptions) -> int:
    """Measure the network that is up, or the topology `name`, which is brought up for the
    measurement."""
    from topologies.emulate import lifecycle, up_down
    from topologies.emulate.emulation import open_emulation
    from topologies.model.load import find, load

    with told():
        network = load(find(name)) if name is not None else None
        _rate_bps(options.rate)
        _need_root()
        if network is None or _same_network(network) is not None:
            return _verify(up_down.chosen_network(None), options)
        show = _progress(time.monotonic())
        with (
            termination_as_interrupt(),
            lifecycle.enter(lifecycle.new_run_id("verify"), topology=name or "") as run,
            open_emulation(network, run.state_dir, progress=show) as emulation,
        ):
            return _measure(emulation, network, emulation.controller_sockets, options)


def _verify(run_id: str, options: VerifyNetworkOptions) -> int:
    from topologies.verify.nodes import nodes_of

    network, sockets = _running(run_id)
    return _measure(nodes_of(run_id), network, sockets, options)


def _measure(
    nodes: Nodes, network: Network, sockets: Mapping[str, Path], options: VerifyNetworkOptions
) -> int:
    from topologies.verify import sites

    show = _progress(time.monotonic())
    rate_bps = _rate_bps(options.rate)
    found = sites.verify(nodes, network, sockets, show, rate_bps=rate_bps, seconds=options.seconds)
    print(f"\n{sites.table(found)}", end="")
    return EXIT_FAILED if any(one.problems() for one in found) else EXIT_OK


def _rate_bps(text: str) -> int:
    try:
        return parse_rate_bps(text)
    except ValueError as error:
        raise Failure(f"--rate: found '{text}'; valid: {error}") from None


@dataclass(kw_only=True)
class ShellOptions:
    """Options of `shell`."""

    run: RunId = None
    host: Annotated[str, typer.Argument(metavar="HOST", help="A host that `status` lists.")]
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND]...", help="Run this command instead.")
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
    """Options of `capture`."""

    link: Annotated[
        str, typer.Argument(metavar="LINK", help="a:b captures at a's end, b:a at b's.")
    ]
    run: RunId = None
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory for the file.")] = Path(
        "captures"
    )
    seconds: Annotated[
        float | None,
        typer.Option(parser=number, metavar="S", help="Default: until Ctrl-C."),
    ] = None
    capture_bytes: Annotated[
        int,
        typer.Option(parser=whole, metavar="N", help="Maximum size; the latest frames are kept."),
    ] = DEFAULT_LIMIT_BYTES
    snap_bytes: Annotated[
        int,
        typer.Option(parser=snap_bytes, metavar="N", help="Bytes of each frame to keep (0: all)."),
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
        f"{options.out / found.file}: {found.size_bytes} "
        f"bytes, {counted(found.frames, 'frame')} captured, "
        f"{found.dropped} dropped by the kernel"
        + ("; the first ones were overwritten" if found.ring else "")
    )
    if found.problem:
        raise Failure(found.problem, EXIT_FAILED)
    return EXIT_OK


@dataclass(kw_only=True)
class PurgeOptions:
    """Options of `purge`."""

    run_id: Annotated[str, typer.Argument(metavar="ID", help="Run id, as `status` shows it.")]


@command(app, "purge", told=told, panel=NETWORKS)
def purge_command(options: PurgeOptions) -> int:
    """Remove one run's network in any state (root)."""
    from topologies.emulate import lifecycle

    _need_root()
    there = lifecycle.live_runs()
    if options.run_id not in there:
        raise Failure(unknown("run", options.run_id, there or ["none: found nothing of a run"]))
    lifecycle.purge(options.run_id)
    return EXIT_OK


# -- files ----------------------------------------------------------------------------------------
@dataclass(kw_only=True)
class ValidateOptions:
    """The options of `topology validate`."""

    files: Annotated[
        list[str], typer.Argument(metavar="TOPOLOGY...", help="Bundled names, or .yaml files.")
    ]


@command(topology, "validate", told=told)
def validate_command(options: ValidateOptions) -> int:
    """Check topology files; print one line per mistake."""
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
            f"{name}: valid: {counted(len(network.hosts), 'host')}, "
            f"{counted(len(network.switches), 'switch', 'switches')}, "
            f"{counted(len(network.links), 'link')}"
        )
    return EXIT_USAGE if bad else EXIT_OK


@dataclass(kw_only=True)
class ShowOptions(TopologyOptions):
    """The options of `topology show`."""

    picture: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw it instead, as FILE.svg, .png, .pdf or .dot."),
    ] = None


@command(topology, "show", told=told)
def show_command(options: ShowOptions) -> int:
    """Show the network that a topology describes, as tables or as a picture."""
    if options.picture is not None:
        return _draw(options, options.picture)
    from topologies.model.describe import describe

    print(describe(_network(options), columns()), end="")
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


@dataclass(kw_only=True)
class ExportOptions(TopologyOptions):
    """The options of `topology export`."""

    to: Annotated[
        str,
        typer.Option(metavar="FORMAT", help="For: " + ", ".join(EXPORT_FORMATS) + "."),
    ] = EXPORT_FORMATS[0]


@command(topology, "export", told=told)
def export_command(options: ExportOptions) -> int:
    """Print the network that a topology describes, for other programs."""
    from topologies.export import FORMATS

    if options.to not in FORMATS:
        raise Failure(unknown("--to", options.to, EXPORT_FORMATS), EXIT_USAGE)
    print(FORMATS[options.to](_network(options)), end="")
    return EXIT_OK


@command(topology, "list", told=told)
def list_command() -> int:
    """List the bundled topologies."""
    from topologies.model.load import bundled, find, load

    for name in bundled():
        print(f"{name:12} {load(find(name)).description}")
    return EXIT_OK
