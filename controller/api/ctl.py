# SPDX-License-Identifier: Apache-2.0
"""`python -m controller.api.ctl`: the path service from the command line.

Exit codes: 0 done, 1 the service refused, 2 bad usage, 3 the service does not answer.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from controller.api import ctl_text, picture
from controller.api.path_client import PathClient, PathClientError
from controller.paths.core import Endpoint

EXIT_REFUSED, EXIT_USAGE, EXIT_NO_ANSWER = 1, 2, 3
ADDRESS = "DOWNPOUR_PATH_SERVICE"


class UsageError(Exception):
    pass


def _value(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """`parse`, with its words for argparse's message."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parsed


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m controller.api.ctl",
        description="The dynamic multipoint path service from the command line.",
        epilog="Exit codes: 0 done, 1 refused, 2 bad usage, 3 no answer.",
    )
    top.add_argument(
        "--at",
        metavar="ADDRESS",
        default=os.environ.get(ADDRESS),
        help=f"Unix socket or http(s)://HOST:PORT (default: ${ADDRESS})",
    )
    top.add_argument("--token-file", type=Path, metavar="FILE", help="the workgroup's token")
    top.add_argument("--ca-file", type=Path, metavar="FILE", help="who signed the server's key")
    top.add_argument("--json", action="store_true", help="print what the service answered")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, *, path: bool = False) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        if path:
            made.add_argument("path", metavar="PATH", help="name of the path")
        return made

    endpoint = _value(ctl_text.endpoint_of)
    place = "SWITCH:PORT:VLAN[@MAC,MAC...]"
    command("paths", "list paths")
    command("show", "a path: what entered, what each edge and leaf got", path=True)
    create = command("create", "make a path", path=True)
    create.add_argument("--root", required=True, type=endpoint, metavar=place)
    create.add_argument(
        "--rate",
        required=True,
        type=_value(ctl_text.rate_of),
        metavar="RATE",
        help="e.g. 20M (bit/s), or best-effort",
    )
    create.add_argument("--steiner", action="store_true", help="leaves join the tree, not the root")
    create.add_argument("--leaf-to-leaf", action="store_true", help="unicast between leaves, too")
    create.add_argument(
        "--end",
        type=_value(lambda text: ctl_text.end_of(text, time.time())),
        metavar="TIME",
        help="+90m, or e.g. 2026-11-21T18:00 (UTC)",
    )
    create.add_argument("--workgroup", metavar="NAME", help="whose path it is (admins only)")
    for name, text in (("add", "add leaves to a path"), ("remove", "remove leaves of a path")):
        made = command(name, text, path=True)
        made.add_argument("leaves", nargs="+", type=endpoint, metavar=place)
    command("delete", "delete a path", path=True)
    watch = command("watch", "print what happens, a line per event, without end")
    watch.add_argument("--since", metavar="ID", help="also what happened after this event")
    drawn = command("picture", "paths as DOT or SVG, with the VLAN id on each edge")
    drawn.add_argument("paths", nargs="*", metavar="PATH", help="default: all")
    drawn.add_argument("--counters", action="store_true", help="with frames sent and arrived")
    drawn.add_argument(
        "--output", type=Path, metavar="FILE", help="FILE.svg or FILE.dot (default: DOT on stdout)"
    )
    command("workgroup", "who the token's workgroup is, and what it may use")
    command("switches", "the switches, and whether they hold what they shall")
    return top


def token_of(path: Path | None) -> str | None:
    """Raises UsageError."""
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


def main(argv: Sequence[str] | None = None) -> int:
    top = parser()
    arguments = top.parse_args(argv)
    if not arguments.at:
        top.error(f"no --at ADDRESS and no ${ADDRESS}; valid: a Unix socket or http(s)://HOST:PORT")
    try:
        token = token_of(arguments.token_file)
        with PathClient(arguments.at, token=token, ca_file=arguments.ca_file) as service:
            run(service, arguments)
    except (UsageError, picture.PictureError) as error:
        print(f"ctl: {error}", file=sys.stderr)
        return EXIT_USAGE
    except PathClientError as error:
        print(f"ctl: {error.title}: {error}", file=sys.stderr)
        return EXIT_REFUSED if error.status else EXIT_NO_ANSWER
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def run(service: PathClient, arguments: argparse.Namespace) -> None:
    """Raises PathClientError, PictureError, UsageError."""

    def tell(result: Any, text: Callable[[], str]) -> None:
        print(json.dumps(result, indent=2) if arguments.json else text())

    match arguments.command:
        case "paths":
            paths = service.paths()
            tell(paths, lambda: ctl_text.paths_text(paths))
        case "show":
            path, counters = service.get(arguments.path), service.counters(arguments.path)
            tell({"path": path, "counters": counters}, lambda: ctl_text.path_text(path, counters))
        case "create":
            made = service.create_path(
                arguments.path,
                arguments.root,
                arguments.rate,
                workgroup=arguments.workgroup,
                algorithm="steiner" if arguments.steiner else None,
                leaf_to_leaf=arguments.leaf_to_leaf,
                end_time=arguments.end,
            )
            tell(made, lambda: _line(made))
        case "add" | "remove":
            change = service.add_leaf if arguments.command == "add" else service.remove_leaf
            changed = _each(arguments.path, arguments.leaves, change)
            tell(changed, lambda: _line(changed))
        case "delete":
            service.delete_path(arguments.path)
            tell({}, lambda: f"path {arguments.path} deleted")
        case "watch":
            _watch(service, arguments)
        case "picture":
            _picture(service, arguments)
        case "workgroup":
            workgroup = service.workgroup()
            tell(workgroup, lambda: ctl_text.workgroup_text(workgroup))
        case "switches":
            switches = service.health()["switches"]
            rows = [(name, "up" if known else "down") for name, known in switches.items()]
            tell(switches, lambda: ctl_text.table(("SWITCH", "STATE"), rows))


def _each(
    path: str, leaves: Sequence[Endpoint], change: Callable[[str, Endpoint], dict[str, Any]]
) -> dict[str, Any]:
    """One leaf after the other; what was done before an error stays, and is said."""
    result: dict[str, Any] = {}
    for done, leaf in enumerate(leaves):
        try:
            result = change(path, leaf)
        except PathClientError as error:
            if done:
                said = ", ".join(map(str, leaves[:done]))
                raise PathClientError(
                    error.status, error.title, f"{error} (done before: {said})"
                ) from error
            raise
    return result


def _line(path: Mapping[str, Any]) -> str:
    return f"path {path['name']}: {path['state']}, {len(path['leaves'])} leaves"


def _watch(service: PathClient, arguments: argparse.Namespace) -> None:
    for event in service.events(arguments.since):
        if arguments.json:
            shown = {"id": event.id, "kind": event.kind, "data": event.data}
            print(json.dumps(shown), flush=True)
        else:
            print(ctl_text.event_text(event.kind, event.data), flush=True)


def _picture(service: PathClient, arguments: argparse.Namespace) -> None:
    output: Path | None = arguments.output
    if output is not None and output.suffix not in (".dot", ".svg"):
        raise UsageError(f"--output {output}: valid: a name that ends with .svg or .dot")
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
        return
    text = picture.svg_of(drawn) if output.suffix == ".svg" else drawn
    partial = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(output)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(f"--output {output}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
