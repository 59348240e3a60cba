# SPDX-License-Identifier: Apache-2.0
"""`downpour new`: commented files to start from. Each runs as it is."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from common.command_line import Failure, command, group
from common.exit_codes import EXIT_OK
from common.files import os_error_text
from common.places import ROOT

SKELETONS: Final = Path(__file__).resolve().parent / "skeletons"
LABS: Final = ROOT / "labs"
_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")

app = group("Write a commented skeleton that runs as it is.")


@contextmanager
def told() -> Iterator[None]:
    """Turn an error of a command into one line."""
    try:
        yield
    except OSError as error:
        raise Failure(f"new: {os_error_text(error)}") from error


def _name(text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise typer.BadParameter(
            f"found '{text}'; valid: a lower-case letter, then lower-case letters, digits and -, "
            "e.g. my-own"
        )
    return text


@dataclass(kw_only=True)
class NewOptions:
    """Options of `new experiment` and `new topology`."""

    name: Annotated[
        str, typer.Argument(parser=_name, metavar="NAME", help="Lower-case letters, digits and -.")
    ]
    dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory for the file.", show_default="here")
    ] = Path()


def _filled(text: str, name: str, number: int = 0) -> str:
    return text.replace("NAME", name).replace("NUMBER", str(number))


def _write_file(kind: str, options: NewOptions) -> Path:
    path = options.dir / f"{options.name}.yaml"
    text = _filled((SKELETONS / f"{kind}.yaml").read_text(encoding="utf-8"), options.name)
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise Failure(f"new: found {path}, which exists; valid: a new name") from None
    return path


@command(app, "experiment", told=told)
def experiment_command(options: NewOptions) -> int:
    """Write an experiment file."""
    path = _write_file("experiment", options)
    print(f"{path}\nnext: downpour run {path} --clock virtual --dry-run")
    return EXIT_OK


@command(app, "topology", told=told)
def topology_command(options: NewOptions) -> int:
    """Write a topology file."""
    path = _write_file("topology", options)
    print(f"{path}\nnext: downpour topology show {path}")
    return EXIT_OK


@dataclass(kw_only=True)
class NewLabOptions:
    """Options of `new lab`."""

    name: Annotated[
        str, typer.Argument(parser=_name, metavar="NAME", help="Lower-case letters, digits and -.")
    ]
    dir: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Directory for the folder.", show_default="labs/"),
    ] = LABS


@command(app, "lab", told=told)
def lab_command(options: NewLabOptions) -> int:
    """Create a lab's folder with the next free number."""
    numbers = [int(p.name.split("-")[0]) for p in options.dir.glob("[0-9]*-*")]
    number = max(numbers, default=0) + 1
    place = options.dir / f"{number}-{options.name}"
    # Completely or not at all: a folder without its checks would stop `lab list`.
    with tempfile.TemporaryDirectory(prefix=".new-", dir=options.dir) as made:
        whole = Path(made) / "lab"
        shutil.copytree(SKELETONS / "lab", whole)
        (whole / "checks.py.template").rename(whole / "checks.py")
        shutil.copyfile(SKELETONS / "topology.yaml", whole / "network.yaml")
        for file in (p for p in whole.rglob("*") if p.is_file()):
            text = file.read_text(encoding="utf-8")
            file.write_text(_filled(text, options.name, number), encoding="utf-8")
        whole.rename(place)
    print(f"{place}\nnext: downpour lab start {number}")
    return EXIT_OK
