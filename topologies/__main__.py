# SPDX-License-Identifier: Apache-2.0
"""Command line of the topologies: `python -m topologies {up,down,status,shell,...}`.

Exit codes: 0 success, 1 failure of the system, 2 bad usage or input.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from common.shell import NetworkError
from topologies.model.describe import describe
from topologies.model.load import (
    TopologyErrors,
    bundled,
    find,
    load,
)
from topologies.watch.capture import DEFAULT_LIMIT_BYTES


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="topologies", description="Emulated networks of Downpour.")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")

    up = verbs.add_parser("up", help="bring a network up to play with")
    up.add_argument("topology", help=f"{', '.join(bundled())}, or a .yaml file")
    up.add_argument("--receivers", metavar="M", help="number of receivers")
    up.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a parameter of the file"
    )

    down = verbs.add_parser("down", help="end the network and remove leftovers of dead runs")
    down.add_argument("--all", action="store_true", help="also live runs of others")

    verbs.add_parser("status", help="what is up")

    shell = verbs.add_parser("shell", help="a shell in a host")
    shell.add_argument("--run", help="run id (default: the network that `up` made)")
    shell.add_argument("host")
    shell.add_argument("command", nargs=argparse.REMAINDER, help="-- COMMAND ... instead")

    capture = verbs.add_parser("capture", help="capture a link of the network that is up")
    capture.add_argument("link", help='its name: "a:b" at a\'s end, "b:a" at b\'s')
    capture.add_argument("--run", help="run id (default: the network that `up` made)")
    capture.add_argument(
        "--out", type=Path, default=Path("captures"), metavar="DIR", help="default: captures"
    )
    capture.add_argument("--seconds", type=float, metavar="S", help="default: until Ctrl-C")
    capture.add_argument(
        "--capture-bytes",
        type=int,
        default=DEFAULT_LIMIT_BYTES,
        metavar="N",
        help="size of the file at most: the latest frames (default %(default)s)",
    )
    capture.add_argument(
        "--snap-bytes", type=int, default=0, metavar="N", help="of each frame (default: all)"
    )

    validate = verbs.add_parser("validate", help="check topology files and show what they make")
    validate.add_argument("files", nargs="+", metavar="FILE")

    purge = verbs.add_parser("purge", help="remove one run, whatever state it is in")
    purge.add_argument("run_id")

    keep = verbs.add_parser("_keep")
    for name in ("run_id", "topology", "network", "report_fd"):
        keep.add_argument(name)
    return top


def parameters(receivers: str | None, assignments: list[str]) -> dict[str, int | str]:
    """Topology parameters of the command line. NetworkError for one without a value."""
    found: dict[str, int | str] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise NetworkError(f"--set: found '{text}'; valid: NAME=VALUE")
        found[name] = value
    if receivers is not None:
        found["receivers"] = receivers
    return found


def _up(options: argparse.Namespace) -> int:
    from topologies.emulate import lifecycle, up_down

    lifecycle.require_root()
    network = load(find(options.topology), parameters(options.receivers, options.set))
    start = time.monotonic()
    run_id = up_down.up(network, options.topology, _progress(start))
    print(up_down.status_of(run_id), end="")
    controllers = up_down.lab_state(run_id)["controllers"]
    print(f"\nready after {time.monotonic() - start:.1f} s. Next:")
    print(f"  make shell HOST={network.subscribers[0].name}")
    for domain, socket in controllers.items():
        for line in up_down.curl_examples(network, domain, socket):
            print(f"  {line}")
    print("  make status, make down")
    return 0


def _progress(start: float) -> Callable[[str], None]:
    def show(text: str) -> None:
        line = f"[{time.monotonic() - start:5.1f} s] {text}"
        if sys.stdout.isatty():
            print(f"\r{line:<70}", end="" if text != "control network" else "\n", flush=True)
        else:
            print(line, flush=True)

    return show


def _down(options: argparse.Namespace) -> int:
    from topologies.emulate import up_down

    number = up_down.down(
        lambda text: print(f"removing {text}", flush=True), everything=options.all
    )
    print("nothing was up" if number == 0 else "down")
    return 0


def _status() -> int:
    from topologies.emulate import lifecycle, up_down

    runs = lifecycle.live_runs()
    for run_id in runs:
        print(up_down.status_of(run_id), end="")
    if not runs:
        print("no network is up")
    return 0


def _shell(options: argparse.Namespace) -> int:
    from topologies.emulate import up_down

    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    argv, environment = up_down.shell_command(options.run, options.host, command)
    os.execvpe(argv[0], argv, environment)


def _capture(options: argparse.Namespace) -> int:
    from topologies.emulate.capture_command import capture

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
        raise NetworkError(found.problem)
    return 0


def _validate(files: list[str]) -> int:
    bad = False
    for name in files:
        try:
            print(describe(load(find(name))), end="")
        except TopologyErrors as error:
            print(error, file=sys.stderr)
            bad = True
    return 2 if bad else 0


def run(options: argparse.Namespace) -> int:
    verb = options.verb
    if verb == "up":
        return _up(options)
    if verb == "down":
        return _down(options)
    if verb == "status":
        return _status()
    if verb == "shell":
        return _shell(options)
    if verb == "capture":
        return _capture(options)
    if verb == "validate":
        return _validate(options.files)
    if verb == "purge":
        from topologies.emulate import lifecycle

        lifecycle.require_root()
        lifecycle.purge(options.run_id)
        return 0
    from topologies.emulate import up_down

    return up_down.keep(
        options.run_id, options.topology, Path(options.network), int(options.report_fd)
    )


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    try:
        return run(options)
    except TopologyErrors as error:
        print(error, file=sys.stderr)
        return 2
    except NetworkError as error:
        print(f"topologies {options.verb}: {error}", file=sys.stderr)
        return 2 if os.geteuid() != 0 else 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
