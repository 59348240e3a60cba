# SPDX-License-Identifier: Apache-2.0
"""The commands about virtual time: guests whose clock jumps between events."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from common.command_line import Failure, command, count, group, number, run, seconds, whole
from common.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE

app = group("Run programs in a User-Mode Linux guest whose clock jumps between events.")


@contextmanager
def told() -> Iterator[None]:
    """Turn an error of a command into one line and an exit code."""
    from common.shell import termination_as_interrupt
    from virtual.guest import GuestError
    from virtual.kernel_build import KernelError

    try:
        with termination_as_interrupt():
            yield
    except (GuestError, KernelError) as error:
        raise Failure(f"virtual: {error}", EXIT_FAILED) from error
    except KeyboardInterrupt:
        raise Failure("\nvirtual: interrupted; the guest is gone", EXIT_INTERRUPTED) from None


def main(arguments: Sequence[str]) -> int:
    """Run one command of this room."""
    return run(app, arguments, "downpour virtual")


@dataclass(kw_only=True)
class RunOptions:
    """Options of `virtual run`."""

    seed: Annotated[
        int, typer.Option(parser=whole, metavar="N", help="Seed of the guest's random numbers.")
    ] = 1
    memory_mb: Annotated[
        int, typer.Option(parser=count, metavar="N", help="The guest's memory, in MiB.")
    ] = 2000
    limit_s: Annotated[
        float | None,
        typer.Option(
            "--limit-s", parser=seconds, metavar="S", help="Limit of real time, in seconds."
        ),
    ] = None
    stall_s: Annotated[
        float,
        typer.Option(
            "--stall-s",
            parser=seconds,
            metavar="S",
            help="Limit of real time without progress, in seconds.",
        ),
    ] = 120.0
    share: Annotated[
        list[Path],
        typer.Option(
            metavar="DIR", help="A directory that the guest may write to, at the same path."
        ),
    ] = field(default_factory=list)
    show: Annotated[
        list[Path],
        typer.Option(metavar="DIR", help="A directory that the guest may only read."),
    ] = field(default_factory=list)
    words: Annotated[list[str] | None, typer.Argument(metavar="COMMAND...")] = None


@command(app, "run", told=told, rest=True)
def run_command(options: RunOptions) -> int:
    """Run a command as root in a guest; the host stays as it is.

    Exit code: the command's; 1 the guest failed, 2 bad usage, 130 interrupted.
    """
    from virtual import kernel_build
    from virtual.guest import GuestSpec, Share, run_guest

    if not options.words:
        raise Failure("virtual: found no command; valid: downpour virtual run -- COMMAND ...")
    for path in options.share:
        if not path.is_dir():
            raise Failure(f"virtual: found --share '{path}'; valid: a directory")
    for path in options.show:
        if not path.is_dir():
            raise Failure(f"virtual: found --show '{path}'; valid: a directory")
    spec = GuestSpec(
        argv=tuple(options.words),
        shares=tuple(Share(p.resolve(), p.resolve(), writable=True) for p in options.share),
        reads=tuple(path.absolute() for path in options.show),
        memory_bytes=options.memory_mb * 2**20,
        seed=options.seed,
        limit_s=options.limit_s,
        stall_s=options.stall_s,
    )
    kernel = kernel_build.ensure_kernel()
    code, times = run_guest(kernel, spec, stdout=sys.stdout.buffer, stderr=sys.stderr.buffer)
    print(
        f"virtual: {times.virtual_s:.3f} s of virtual time in {times.real_s:.1f} s "
        f"({times.ratio:.2f} : 1)",
        file=sys.stderr,
    )
    return code


@command(app, "status", told=told)
def status_command() -> int:
    """Show which kernel guests use, if any."""
    from virtual.kernel_build import find_kernel

    kernel = find_kernel()
    subject = "virtual time"
    if kernel is None:
        print(f"advice   {subject:35} no kernel yet; get it: make virtual-kernel")
    else:
        mode = "seccomp" if kernel.seccomp else "ptrace, half as fast"
        print(f"ok       {subject:35} kernel {kernel.version} ({mode})")
    return EXIT_OK


@dataclass(kw_only=True)
class KernelOptions:
    """Options of `virtual kernel`."""

    source: Annotated[
        Path | None, typer.Option(metavar="FILE", help="linux-source-*.tar.xz or .deb.")
    ] = None
    no_download: Annotated[
        bool,
        typer.Option("--no-download", help="Use only sources in /usr/src, even old ones."),
    ] = False
    file: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Install the kernel that --export wrote."),
    ] = None
    export: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the kernel and its digest file.")
    ] = None


@command(app, "kernel", told=told)
def kernel_command(options: KernelOptions) -> int:
    """Build the guest's kernel, unless it is built.

    DOWNPOUR_KERNEL=FILE names a built kernel; DOWNPOUR_CACHE=DIR the only cache. Root builds for
    all users. Exit code: 0 built, 1 not built, 3 no source available.
    """
    from virtual import kernel_command

    if options.file is not None and options.export is not None:
        raise Failure("virtual: found --from and --export; valid: one of them")
    return kernel_command.run(
        source=options.source,
        download=not options.no_download,
        file=options.file,
        export=options.export,
    )


@dataclass(kw_only=True)
class SelftestOptions:
    """Options of `virtual selftest`."""

    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the rows to this file.")
    ] = None
    native: Annotated[
        bool,
        typer.Option("--native", help="Measure this machine's own kernel (root); not judged."),
    ] = False
    parts: Annotated[
        bool,
        typer.Option("--parts", help="Check a link between two guests that run at once."),
    ] = False
    machine: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="With --parts: run one guest there (`virtual parts`)."
        ),
    ] = ""


@command(app, "selftest", told=told)
def selftest_command(options: SelftestOptions) -> int:
    """Check every timer and shaper of a guest against theory.

    Exit code: 0 all within tolerance, 1 something is off or failed, 2 bad usage.
    """
    from virtual.selftest import cli as selftest

    return selftest.main(
        options.json, native=options.native, in_parts=options.parts, machine=options.machine
    )


@dataclass(kw_only=True)
class PartsOptions:
    """Options of `virtual parts`."""

    address: Annotated[str, typer.Argument(metavar="HOST:PORT")]


@command(app, "parts", told=told)
def parts_command(options: PartsOptions) -> int:
    """Run parts of other machines' cells, in guests, until interrupted.

    If you can reach the port, you can run programs in guests here.
    """
    import socket

    from virtual.kernel_build import ensure_kernel
    from virtual.parts import machines

    try:
        listener = socket.create_server(machines.address_of(options.address))
    except (ValueError, OSError) as error:
        raise Failure(f"virtual: {options.address}: {error}") from None
    with listener:
        kernel = ensure_kernel()
        print(f"waiting for parts at {options.address}", flush=True)
        machines.serve(listener, kernel, lambda text: print(text, flush=True))
    return EXIT_OK


def _numbers(text: str | list[int]) -> list[int]:
    if isinstance(text, list):
        return text
    words = text.split(",")
    if not all(word.isdigit() and int(word) > 0 for word in words):
        raise typer.BadParameter(f"found '{text}'; valid: whole numbers, as 1,4,8")
    return [int(word) for word in words]


@dataclass(kw_only=True)
class BenchOptions:
    """Options of `virtual bench`."""

    receivers: Annotated[str, typer.Option(metavar="M,...", help="Numbers of receivers.")] = (
        "1,4,8,16,24"
    )
    rates_mbps: Annotated[str, typer.Option(metavar="R,...", help="Rates in Mbit/s.")] = "20"
    protocols: Annotated[str, typer.Option(metavar="ldm7,ldm6", help="Protocols to measure.")] = (
        "ldm7"
    )
    duration: Annotated[
        float, typer.Option(parser=number, metavar="S", help="Seconds of the trace.")
    ] = 20.0
    repeats: Annotated[int, typer.Option(parser=count, metavar="N", help="Runs of each cell.")] = 1
    build: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory of the C programs.")
    ] = None
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write the rows to this file.")
    ] = None


@command(app, "bench", told=told)
def bench_command(options: BenchOptions) -> int:
    """Measure the real time of experiments in virtual time.

    Compare figures of one machine only, and repeat them: other programs slow it down.
    """
    from virtual import bench

    choices = bench.Choices(
        receivers=_numbers(options.receivers),
        rates_mbps=_numbers(options.rates_mbps),
        protocols=options.protocols.split(","),
        duration_s=options.duration,
        repeats=options.repeats,
        build=options.build,
    )
    return bench.main(choices, options.json)


__all__ = ["EXIT_USAGE", "app", "main"]
