# SPDX-License-Identifier: Apache-2.0
"""The commands that compare Downpour's tools with their peers. They print tables; a run can be
interrupted and resumed."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from bench.jobs import SECTIONS, Clock, Job, cells_of, jobs_of, steered
from bench.markdown import markdown
from bench.network import STEERING
from bench.store import ResultsError, Store, manifest, new_directory, not_installed
from bench.table import absent_tools, report
from bench.tools import BY_NAME, missing, tools_of
from common.command_line import Failure, command, count, group, run, unknown, whole
from common.counting import counted
from common.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE
from common.places import ROOT, RUNS
from common.quantities import minutes_text
from common.shell import NetworkError, termination_as_interrupt
from virtual.cores import available_cores
from virtual.kernel_build import Kernel, KernelError, find_kernel

if TYPE_CHECKING:
    from bench.job_process import JobProcess

app = group("Measure fmtp-send/recv and the product queue beside their peers.")
POLL_S: Final = 0.2


class UsageError(Exception):
    """The request is impossible; the text says what is valid."""


@contextmanager
def told() -> Iterator[None]:
    """Turn an error of a command into one line and an exit code."""
    try:
        with termination_as_interrupt():
            yield
    except UsageError as error:
        raise Failure(f"bench: {error}", EXIT_USAGE) from error
    except ResultsError as error:
        raise Failure(f"bench: {error}") from error
    except KeyboardInterrupt:
        text = "\nbench: interrupted; what was measured is kept; --resume continues"
        raise Failure(text, EXIT_INTERRUPTED) from None


def main(arguments: Sequence[str]) -> int:
    """Run one command of this room."""
    return run(app, arguments, "downpour bench")


@dataclass(kw_only=True)
class RunOptions:
    """The options of `bench run`."""

    only: Annotated[
        str, typer.Option(metavar="SECTION,...", help=f"Of: {', '.join(SECTIONS)}.")
    ] = ""
    tools: Annotated[str, typer.Option(metavar="TOOL,...", help=f"Of: {', '.join(BY_NAME)}.")] = ""
    cells: Annotated[
        str, typer.Option(metavar="REGEX", help="Conditions, as the tables show them.")
    ] = ""
    repeats: Annotated[
        int, typer.Option(parser=count, metavar="N", help="Repeats of each measurement.")
    ] = 5
    clock: Annotated[
        Literal["auto", "native", "virtual"],
        typer.Option(help="Clock of shaped, stream, small; auto: virtual if its kernel is built."),
    ] = "auto"
    steering: Annotated[
        bool, typer.Option(help="Native hosts receive on all processors, if the kernel can.")
    ] = True
    jobs: Annotated[
        int, typer.Option(parser=whole, metavar="N", help="Parallel guests (0: one per core).")
    ] = 0
    resume: Annotated[bool, typer.Option("--resume", help="Continue the newest run.")] = False
    plan: Annotated[bool, typer.Option("--plan", help="Check the options and exit.")] = False
    runs: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory for the results.", show_default=False)
    ] = RUNS / "bench"


@dataclass(kw_only=True)
class ReportOptions:
    """The options of `bench report`."""

    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Default: the newest run.", show_default=False)
    ] = RUNS / "bench/latest"
    markdown: Annotated[
        bool, typer.Option("--markdown", help="As in docs/results/benchmarks.md.")
    ] = False


def chosen(text: str, valid: Sequence[str], what: str) -> list[str]:
    """Return the requested names, which commas or blanks separate. Raises UsageError."""
    names = text.replace(",", " ").split() or list(valid)
    for name in names:
        if name not in valid:
            raise UsageError(unknown(what, name, valid))
    return names


def clock_of(asked: str, kernel: Kernel | None) -> Clock:
    """Return the clock of sections that may run on either. Raises UsageError."""
    if asked == "virtual" and kernel is None:
        raise UsageError("found no kernel for virtual time; valid: after make virtual-kernel")
    return "native" if asked == "native" or kernel is None else "virtual"


def plan(options: RunOptions, kernel: Kernel | None, build: Path) -> list[Job]:
    """Return the jobs to run. Raises UsageError."""
    sections = chosen(options.only, SECTIONS, "section")
    names = chosen(options.tools, list(BY_NAME), "tool")
    clock = clock_of(options.clock, kernel)
    cells = [cell for section in sections for cell in cells_of(section, clock)]
    if options.steering and STEERING.exists():
        cells = [steered(cell) for cell in cells]
    try:
        cells = [cell for cell in cells if re.search(options.cells, cell.cell)]
    except re.error as error:
        raise UsageError(f"found --cells '{options.cells}': {error}") from None
    tools = {
        section: [
            tool.name
            for tool in tools_of(section)
            if tool.name in names and not missing(tool, build)
        ]
        for section in sections
    }
    return list(jobs_of(cells, tools, options.repeats))


class Runner:
    """Run native jobs one at a time, and jobs in virtual time one per core."""

    def __init__(self, store: Store, jobs: Sequence[Job], guests: int) -> None:
        self.store, self.guests = store, guests
        self.waiting = list(jobs)
        self.running: list[JobProcess] = []
        self.total = len(jobs)
        self.done = 0
        self.failed_ours = False
        self.began = time.monotonic()

    def _fits(self, job: Job) -> bool:
        if not self.running:
            return True
        both = job.clock == "virtual" and all(r.job.clock == "virtual" for r in self.running)
        return both and len(self.running) < self.guests

    def run(self) -> None:
        """Run all jobs. When this ends, stop those that still run."""
        from bench.job_process import JobProcess

        try:
            while self.waiting or self.running:
                while self.waiting and self._fits(self.waiting[0]):
                    self.running.append(JobProcess(self.waiting.pop(0)))
                for process in list(self.running):
                    result = process.poll()
                    if result is not None:
                        self.running.remove(process)
                        self.keep(process.job, result)
                time.sleep(POLL_S)
        finally:
            for process in self.running:
                process.stop()

    def keep(self, job: Job, result: dict[str, object]) -> None:
        """Store a result and show it."""
        self.store.add(job, result)
        self.done += 1
        elapsed = time.monotonic() - self.began
        left = elapsed / self.done * (self.total - self.done)
        if result["status"] != "ok" and job.tool == "fmtp":
            self.failed_ours = True
        print(
            f"[{self.done}/{self.total}, {minutes_text(left)} left] {job.section}: {job.cell}; "
            f"{job.tool} #{job.repeat + 1}: {words(result)}",
            flush=True,
        )


def words(result: dict[str, object]) -> str:
    """Return a result in short."""
    if result["status"] != "ok":
        return f"FAILED: {result.get('reason')}"
    if "goodput_bps" in result:
        return f"{float(str(result['goodput_bps'])) / 1e6:.1f} Mbit/s"
    if "join_1000_s" in result:
        times = (f"{1e3 * float(str(result[f'join_{size}_s'])):.1f}" for size in (8, 100, 1000))
        return f"8th, 100th, 1,000th leaf {', '.join(times)} ms"
    if "p50_s" in result:
        p50, p99 = (float(str(result[name])) for name in ("p50_s", "p99_s"))
        return f"p50 {p50:.3f} s, p99 {p99:.3f} s, {result['missing']} missing"
    rates = {k: v for k, v in result.items() if k.endswith("_per_s")}
    return ", ".join(f"{k} {float(str(v)):,.0f}" for k, v in rates.items())


@command(app, "run", told=told)
def run_command(options: RunOptions) -> int:
    """Measure the chosen tools in the chosen cells, print the tables, and keep every result.

    Exit code: 0 measured (whatever the figures), 1 our own tool failed, 2 bad usage, 130
    interrupted (--resume continues).
    """
    build = ROOT / "build"
    try:
        kernel = find_kernel()
    except KernelError as error:
        raise UsageError(str(error)) from None
    jobs = plan(options, kernel, build)
    if not jobs:
        raise UsageError("found nothing to measure: no cell and tool fit --only, --cells, --tools")
    if options.plan:
        print(counted(len(jobs), "job"))
        return EXIT_OK
    latest = options.runs / "latest"
    if options.resume and latest.exists():
        store = Store(latest.resolve())
    else:
        store = Store(new_directory(options.runs))
        store.write("manifest.json", json.dumps(manifest(ROOT, build), indent=1))
    have = {job.key for job, result in store.results if result["status"] == "ok"}
    left = [job for job in jobs if job.key not in have]
    for section in dict.fromkeys(job.section for job in jobs):
        for text in absent_tools(section, not_installed(build)):
            print(f"NOT MEASURED in {section}: {text}", flush=True)
    if options.clock == "auto" and kernel is None:
        print("no kernel for virtual time: measuring everything natively (make virtual-kernel)")
    print(
        f"{len(left)} of {counted(len(jobs), 'job')} to run; results in {store.directory}",
        flush=True,
    )
    runner = Runner(store, left, options.jobs or len(available_cores()))
    try:
        runner.run()
    finally:
        _report(store)
    return EXIT_FAILED if runner.failed_ours else EXIT_OK


def _report(store: Store) -> None:
    path = store.directory / "manifest.json"
    absent = json.loads(path.read_text())["not_installed"] if path.exists() else {}
    text = report(store.results, absent)
    store.write("report.txt", text)
    print(text)


@command(app, "report", told=told)
def report_command(options: ReportOptions) -> int:
    """Print the tables of a run again."""
    if not (options.directory / "results.jsonl").exists():
        raise UsageError(f"found no results.jsonl in '{options.directory}'")
    store = Store(options.directory.resolve())
    if options.markdown:
        print(markdown(store.results), end="")
    else:
        _report(store)
    return EXIT_OK


@dataclass(kw_only=True)
class OutlookOptions:
    """The options of `bench outlook`."""


@command(app, "outlook", told=told)
def outlook_command(_options: OutlookOptions) -> int:
    """Extrapolate what FMTP's sender sends to 10,000 receivers, from simulations of up to 1,000."""
    from bench import outlook

    build = ROOT / "build"
    if not (build / outlook.PROGRAM).exists():
        hint = "valid: after `ninja -C build fmtp/outlook`"
        raise UsageError(f"found no program {outlook.PROGRAM}; {hint}")
    total = len(outlook.RECEIVERS) * len(outlook.LOSSES) * len(outlook.REPAIRS)
    samples = []
    for number, sample in enumerate(outlook.simulate(build), 1):
        samples.append(sample)
        text = f"{sample.repair}, m = {sample.receivers}, p = {100 * sample.loss:g} %"
        print(f"[{number}/{total}] {text}: {sample.cost:.4g}", file=sys.stderr, flush=True)
    print(outlook.tables(samples), end="")
    return EXIT_OK


@dataclass(kw_only=True)
class BucketOptions:
    """The options of `bench bucket`."""

    repeats: Annotated[
        int, typer.Option(parser=count, metavar="N", help="Repeats of each measurement.")
    ] = 3
    busy: Annotated[
        bool, typer.Option("--busy", help="Beside a program that spins on each core.")
    ] = False


@command(app, "bucket", told=told)
def bucket_command(options: BucketOptions) -> int:
    """Measure what a token bucket, as in MPUP16, passes of its rate, by its burst (root)."""
    from bench import bucket

    try:
        found = []
        for passed in bucket.measure(bucket.settings(), options.repeats, load=options.busy):
            found.append(passed)
            print(f"{passed.setting}: {bucket.shown(passed)}", file=sys.stderr, flush=True)
    except (NetworkError, OSError) as error:
        raise Failure(f"bench: {error}") from error
    print(bucket.table(found), end="")
    return EXIT_OK
