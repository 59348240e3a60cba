# SPDX-License-Identifier: Apache-2.0
"""`python -m bench`: runs what was asked, prints tables, can be interrupted and resumed."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import job_process
from bench.jobs import SECTIONS, Clock, Job, cells_of, jobs_of
from bench.markdown import markdown
from bench.store import Store, manifest, new_directory, not_installed
from bench.table import absent_tools, report
from bench.tools import BY_NAME, missing, tools_of
from common.places import ROOT
from common.quantities import minutes_text
from common.shell import termination_as_interrupt
from virtual.cores import available_cores
from virtual.kernel_build import Kernel, KernelError, find_kernel

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
POLL_S: Final = 0.2


class UsageError(Exception):
    """What was asked cannot be; the text says what can."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures fmtp-send/recv and the product queue beside their peers.",
        epilog="exit code: 0 measured (whatever the figures), 1 our own tool failed, 2 bad usage, "
        "130 interrupted (--resume goes on)",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="measure")
    run.add_argument("--only", default="", metavar="SECTION,...", help=", ".join(SECTIONS))
    run.add_argument("--tools", default="", metavar="TOOL,...", help=", ".join(BY_NAME))
    run.add_argument("--cells", default="", metavar="REGEX", help="conditions, as tables show them")
    run.add_argument("--repeats", type=int, default=5, metavar="N")
    run.add_argument(
        "--clock", choices=("auto", "native", "virtual"), default="auto",
        help="of shaped, stream and small (auto: virtual if there is a kernel for it)",
    )  # fmt: skip
    run.add_argument("--jobs", type=int, default=0, metavar="N", help="guests at once")
    run.add_argument("--resume", action="store_true", help="go on with the newest run")
    run.add_argument("--runs", type=Path, default=ROOT / "runs" / "bench", metavar="DIR")
    again = commands.add_parser("report", help="the tables of a run")
    again.add_argument("directory", type=Path, nargs="?", default=ROOT / "runs/bench/latest")
    again.add_argument("--markdown", action="store_true", help="as in docs/benchmarks.md")
    for name, text in (("job", "one job, here"), ("guest", "one job, in virtual time")):
        one = commands.add_parser(name, help=f"{text} (used by run)")
        one.add_argument("job", type=Path)
        one.add_argument("result", type=Path)
        one.add_argument("build", type=Path)
    return parser


def chosen(text: str, valid: Sequence[str], what: str) -> list[str]:
    names = [name for name in text.split(",") if name] or list(valid)
    for name in names:
        if name not in valid:
            raise UsageError(f"found {what} '{name}'; valid: {', '.join(valid)}")
    return names


def clock_of(asked: str, kernel: Kernel | None) -> Clock:
    if asked == "virtual" and kernel is None:
        raise UsageError("found no kernel for virtual time; valid: after make virtual-kernel")
    return "native" if asked == "native" or kernel is None else "virtual"


def plan(options: argparse.Namespace, kernel: Kernel | None, build: Path) -> list[Job]:
    sections = chosen(options.only, SECTIONS, "section")
    names = chosen(options.tools, list(BY_NAME), "tool")
    clock = clock_of(options.clock, kernel)
    if options.repeats < 1:
        raise UsageError(f"found --repeats {options.repeats}; valid: 1 or more")
    cells = [cell for section in sections for cell in cells_of(section, clock)]
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
    """Native jobs one at a time; those in virtual time as many at once as there are cores."""

    def __init__(self, store: Store, jobs: Sequence[Job], guests: int) -> None:
        self.store, self.guests = store, guests
        self.waiting = list(jobs)
        self.running: list[job_process.JobProcess] = []
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
        try:
            while self.waiting or self.running:
                while self.waiting and self._fits(self.waiting[0]):
                    self.running.append(job_process.JobProcess(self.waiting.pop(0)))
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
    """A result in short."""
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


def _run(options: argparse.Namespace) -> int:
    build = ROOT / "build"
    try:
        kernel = find_kernel()
    except KernelError as error:
        raise UsageError(str(error)) from None
    jobs = plan(options, kernel, build)
    if not jobs:
        raise UsageError("found nothing to measure: no cell and tool fit --only, --cells, --tools")
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
        print("no kernel for virtual time: all is measured natively (make virtual-kernel)")
    print(f"{len(left)} of {len(jobs)} jobs to run; results in {store.directory}", flush=True)
    runner = Runner(store, left, options.jobs or len(available_cores()))
    try:
        runner.run()
    finally:
        _report(store)
    return EXIT_FAILED if runner.failed_ours else 0


def _report(store: Store) -> None:
    path = store.directory / "manifest.json"
    absent = json.loads(path.read_text())["not_installed"] if path.exists() else {}
    text = report(store.results, absent)
    store.write("report.txt", text)
    print(text)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        if options.command == "job":
            return job_process.main_job(options.job, options.result, options.build)
        if options.command == "guest":
            return job_process.main_guest(options.job, options.result)
        if options.command == "report":
            if not (options.directory / "results.jsonl").exists():
                raise UsageError(f"found no results.jsonl in '{options.directory}'")
            store = Store(options.directory.resolve())
            if options.markdown:
                print(markdown(store.results), end="")
            else:
                _report(store)
            return 0
        with termination_as_interrupt():
            return _run(options)
    except UsageError as error:
        print(f"bench: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("\nbench: interrupted; what was measured is kept, --resume goes on", file=sys.stderr)
        return EXIT_INTERRUPTED
