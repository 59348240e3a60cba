# SPDX-License-Identifier: Apache-2.0
"""Options of the commands that run and judge experiments, as Typer reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from common.command_line import (
    completing,
    count,
    number,
    seconds,
    size_bytes,
    snap_bytes,
    time_s,
    whole,
)
from common.places import BUILD, EXPERIMENTS, RUNS
from topologies.watch.capture import DEFAULT_LIMIT_BYTES
from virtual.cores import available_cores
from virtual.guest import STALL_S

NativeOrVirtual = Literal["native", "virtual"]
Duration = Annotated[
    float | None, typer.Option(parser=number, metavar="S", help="Seconds of the trace.")
]


def _experiments() -> list[str]:
    return sorted(path.stem for path in EXPERIMENTS.glob("*.yaml"))


AUTO: Final = "auto"


def _parts(text: str | int) -> int:
    if text == AUTO:
        return len(available_cores())
    try:
        return count(text)
    except typer.BadParameter as error:
        raise typer.BadParameter(f"{error.message}, or {AUTO}") from None


_PARTS: Final = typer.Option(
    parser=_parts,
    metavar="auto|N",
    help="Guests of a cell, each on its own core, if delays allow (virtual clock); auto: one per "
    "core.",
    show_default="1",
)


@dataclass(kw_only=True)
class GuestOptions:
    """Options for guests in virtual time."""

    jobs: Annotated[
        int | None,
        typer.Option(parser=count, metavar="N", help="Parallel guests (default: one per core)."),
    ] = None
    limit_s: Annotated[
        float | None,
        typer.Option(
            "--limit-s",
            parser=seconds,
            metavar="S",
            help="Limit of a cell's real time (virtual clock).",
        ),
    ] = None
    stall_s: Annotated[
        float,
        typer.Option(
            "--stall-s",
            parser=seconds,
            metavar="S",
            help="Real seconds without virtual progress that end a guest.",
        ),
    ] = STALL_S


@dataclass(kw_only=True)
class BuildOptions(GuestOptions):
    """The same options, and the directory of the C programs."""

    build: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of the C programs.", show_default=False)
    ] = BUILD


@dataclass(kw_only=True)
class Overrides(BuildOptions):
    """Options that replace values of the experiment file."""

    level: Annotated[
        str | None,
        typer.Option(metavar="LEVEL", help="quick (the default) or paper (as the papers')."),
    ] = None
    repeats: Annotated[
        int | None, typer.Option(parser=count, metavar="N", help="Runs of each cell.")
    ] = None
    duration: Annotated[
        float | None, typer.Option(parser=number, metavar="S", help="Seconds of the trace.")
    ] = None
    receivers: Annotated[
        int | None, typer.Option(parser=whole, metavar="M", help="Number of receivers.")
    ] = None
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="File with lines 'SIZE YYYYMMDDhhmmss.mmm', a log of notifyme, model, paced, or "
            "model:NAME (conduit, nexrad2, nexrad3, ngrid-2020).",
        ),
    ] = None
    seed: Annotated[int | None, typer.Option(parser=whole, metavar="N", help="Base seed.")] = None
    queue_bytes: Annotated[
        int | None,
        typer.Option(
            parser=size_bytes, metavar="N", help="Size of the sender's product queue (paper: 5GB)."
        ),
    ] = None
    monitor: Annotated[
        bool,
        typer.Option(
            "--monitor",
            help="Same as --sample counters --sample minutes; in experiments the factor `monitor`.",
        ),
    ] = False


@dataclass(kw_only=True)
class RunChoices(Overrides):
    """How to run an experiment."""

    only: Annotated[
        list[str],
        typer.Option(
            metavar="EXPR",
            help="Cells with these levels (receivers=8,16; repeat=1), or whose name matches "
            "this regular expression. Several: all must hold.",
        ),
    ] = field(default_factory=list)
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and exit.")] = False
    order: Annotated[
        Literal["random", "file"],
        typer.Option(help="Order of the cells: by seed, or as in the file."),
    ] = "random"
    include_invalid: Annotated[
        bool,
        typer.Option("--include-invalid", help="Include cells with an invalid verdict in means."),
    ] = False
    resume: Annotated[bool, typer.Option("--resume", help="Use the cells of interrupted runs.")] = (
        False
    )
    until_decided: Annotated[
        bool,
        typer.Option(
            "--until-decided",
            help="Add repeats of the cells whose claims are open until they are decided, --budget "
            "ends, or each cell has --repeats (default: 32).",
        ),
    ] = False
    budget: Annotated[
        float | None,
        typer.Option(
            parser=time_s,
            metavar="TIME",
            help="Real time after which --until-decided starts no cell.",
            show_default="2h",
        ),
    ] = None
    runs: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory for the results.", show_default=False)
    ] = RUNS
    keep_work: Annotated[bool, typer.Option("--keep-work", help="Keep the product queues.")] = False
    sample: Annotated[
        list[str],
        typer.Option(
            metavar="WHAT",
            help="Also record: hosts (sar at every host, not at the publisher alone), pidstat "
            "(each program), counters (what ldmd's processes count: what receivers pin, lag, "
            "repairs), minutes (rtstats' minute records, sent to a monitor), events (of products, "
            "as qlog). It costs processor time, which the verdict counts.",
        ),
    ] = field(default_factory=list)
    capture: Annotated[
        list[str],
        typer.Option(
            metavar="LINK",
            help="Capture this link while cells run (a:b: at a's end, b:a: at b's) into "
            "captures/LINK.pcapng of the cell. Several are possible.",
        ),
    ] = field(default_factory=list)
    capture_bytes: Annotated[
        int,
        typer.Option(
            parser=size_bytes,
            metavar="N",
            help="Maximum size of a capture; the latest frames are kept.",
            show_default="64MB",
        ),
    ] = DEFAULT_LIMIT_BYTES
    snap_bytes: Annotated[
        int,
        typer.Option(
            parser=snap_bytes,
            metavar="N",
            help="Bytes of each captured frame to keep (0: all).",
            show_default="all",
        ),
    ] = 0


@dataclass(kw_only=True)
class NamedRun(RunChoices):
    """A run of an experiment that the user names."""

    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="An experiment or a .yaml file.",
            autocompletion=completing(_experiments),
        ),
    ]


@dataclass(kw_only=True)
class RunOptions(NamedRun):
    """Options of `run`."""

    clock: Annotated[
        NativeOrVirtual,
        typer.Option(help="virtual: guests whose clock jumps from event to event; needs no root."),
    ] = "native"
    parts: Annotated[int | None, _PARTS] = None
    machine: Annotated[
        list[str],
        typer.Option(
            metavar="HOST:PORT",
            help="With --parts: run the parts after the first at this machine (`virtual parts`). "
            "Several are possible.",
        ),
    ] = field(default_factory=list)
    at: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Run cells at workers: tcp://HOST:PORT (a Dask scheduler) or slurm:PARTITION. "
            "Default: this machine.",
        ),
    ] = None
    mixed: Annotated[
        bool,
        typer.Option("--mixed", help="Accept workers whose kernel, programs or packages differ."),
    ] = False


@dataclass(kw_only=True)
class RemoteOptions(NamedRun):
    """Options of `remote`."""

    inventory: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Ansible's inventory: the machines that have the network's hosts.",
        ),
    ]
    install: Annotated[
        bool,
        typer.Option("--install", help="First install and build on the machines, by Ansible."),
    ] = False


Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run: runs/EXPERIMENT/STAMP.")]


@dataclass(kw_only=True)
class RepeatOptions(BuildOptions):
    """Options of `repeat`."""

    run: Run
    clock: Annotated[NativeOrVirtual | None, typer.Option(help="Default: the run's clock.")] = None
    parts: Annotated[int | None, _PARTS] = None
    other_programs: Annotated[
        bool,
        typer.Option(
            "--other-programs", help="Continue even if the programs differ from the run's."
        ),
    ] = False
    against: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Compare with this run instead of running it again."),
    ] = None


@dataclass(kw_only=True)
class VerifyOptions:
    """Options of `verify`."""

    run: Run
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")] = False


def _share(text: str | float) -> float:
    if isinstance(text, float):
        return text
    word = text.strip()
    number = word.removesuffix("%").rstrip() if word.endswith("%") else ""
    try:
        share = float(number) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1 or not number[:1].isdigit():
        raise typer.BadParameter(f"found '{text}'; valid: 0% to 100%, e.g. 0.1%")
    return share


DEFAULT_TOLERANCE: Final = 0.001  # 0.1 %: for other packages' versions


@dataclass(kw_only=True)
class RegressionOptions(BuildOptions):
    """Options of `regression`."""

    name: Annotated[str, typer.Argument(metavar="[NAME]", help="An experiment that has bands.")] = (
        "regression"
    )
    clock: Annotated[
        Literal["auto", "native", "virtual"],
        typer.Option(help="auto: virtual if its kernel is built, else native."),
    ] = "auto"
    duration: Annotated[
        float | None, typer.Option(parser=number, metavar="S", help="Seconds of the trace.")
    ] = None
    run: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Judge this run directory instead of making a run."),
    ] = None
    bands: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Use these bands instead of catalogue/bands/NAME.yaml."),
    ] = None
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit XML to this file.")
    ] = None
    summary: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Append a Markdown summary to this file.",
            envvar="GITHUB_STEP_SUMMARY",
        ),
    ] = None
    update_bands: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write proposed bands to this file and show what differs; the current bands stay.",
        ),
    ] = None
    tolerance: Annotated[
        float,
        typer.Option(
            parser=_share,
            metavar="P%",
            help="Relative tolerance on either side, in a proposal.",
            show_default="0.1%",
        ),
    ] = DEFAULT_TOLERANCE


@dataclass(kw_only=True)
class ReportOptions:
    """Options of `report`."""

    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN]...", help="Default: the newest run. Several runs are compared."
        ),
    ] = None
    full: Annotated[bool, typer.Option("--full", help="Print the whole report.")] = False
    include_invalid: Annotated[
        bool,
        typer.Option("--include-invalid", help="Include cells with an invalid verdict in means."),
    ] = False
    identical: Annotated[
        bool,
        typer.Option(
            "--identical", help="Exit code 1 unless all repeats are the same to the last digit."
        ),
    ] = False
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory for the comparison (default: runs/compared/RUN--RUN).",
        ),
    ] = None
    json: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write the comparison with all digits to this file."
        ),
    ] = None
