# SPDX-License-Identifier: Apache-2.0
"""One job: the network, the tool, the clock, the digests. Runs in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.arrivals import Arrival, arrivals
from bench.jobs import Job
from bench.network import Network, receiver_ip
from bench.program import Program
from bench.statistics import percentile
from bench.tools import BY_NAME, Context, Tool
from bench.watch import Watch
from common.shell import NetworkError

CONNECT_LIMIT_S: Final = 120.0
IDLE_LIMIT_S: Final = 60.0  # without an arrival: the tool has given up
TICK_S: Final = 0.25


class RunFailed(Exception):
    """The tool did not do it; the text says what it said."""


def limit_s(job: Job) -> float:
    """Of the timed part: 20 times what the file takes at the link's rate or at 200 Mbit/s."""
    total = job.size_bytes * job.files if job.kind == "file" else 0
    return 60 + 20 * total * 8 / (job.rate_bps or 200_000_000)


def write_source(path: Path, size: int, seed: int) -> None:
    """Write a file of random bytes that follow from the seed."""
    path.write_bytes(np.random.default_rng(seed).bytes(size))


def same_bytes(a: Path, b: Path) -> bool:
    """Byte for byte."""
    if not b.exists() or a.stat().st_size != b.stat().st_size:
        return False
    if a.stat().st_size == 0:
        return True
    return bool(np.array_equal(np.memmap(a, mode="r"), np.memmap(b, mode="r")))


class Run:
    """A job while it runs."""

    def __init__(self, job: Job, network: Network, context: Context) -> None:
        self.job, self.network, self.context = job, network, context
        self.tool: Tool = BY_NAME[job.tool]
        self.senders: list[Program] = []
        self.receivers: list[Program] = []
        self.times: dict[tuple[int, str], float] = {}
        for i in range(job.receivers):
            context.inbox(i).mkdir(parents=True)
        context.source.mkdir()
        self.watch = Watch([context.inbox(i) for i in range(job.receivers)])

    def start(self, host: int, argv: Sequence[str], name: str, *, stdin: bool = False) -> Program:
        """Start a program in a host; with `stdin` it reads what `tell` writes."""
        log = self.context.work / f"{name}.err"
        read, write = os.pipe() if stdin else (-1, -1)
        with log.open("wb") as err, log.with_suffix(".out").open("wb") as out:
            if stdin:
                with os.fdopen(read, "rb") as source:
                    popen = self.network.popen(host, argv, stdin=source, stdout=out, stderr=err)
                self.pipe = write
            else:
                popen = self.network.popen(host, argv, stdout=out, stderr=err)
        return Program(popen, log)

    def start_receivers(self) -> None:
        """Start a receiver in each receiving host."""
        for i in range(self.job.receivers):
            argv = self.tool.receiver(self.context, i)
            self.receivers.append(self.start(i + 1, argv, f"receiver{i}"))

    def start_sender(self, files: Sequence[Path], *, stdin: bool) -> Program:
        """Start the tool's sender for some files."""
        argv = self.tool.sender(self.context, files)
        sender = self.start(0, argv, f"sender{len(self.senders)}", stdin=stdin)
        self.senders.append(sender)
        return sender

    def get_ready(self) -> None:
        """All that comes before the files: programs are up, receivers have connected."""
        if self.tool.receivers_first:
            self.start_receivers()
            time.sleep(self.tool.settle_s)
        if self.tool.feed == "stdin":
            sender = self.start_sender([], stdin=True)
            if not self.tool.receivers_first:
                time.sleep(0.2)
                self.start_receivers()
            end = time.monotonic() + CONNECT_LIMIT_S
            while self.tool.ready not in sender.said():
                self.check_alive()
                if time.monotonic() > end:
                    raise RunFailed(f"receivers did not connect; {self.complaint()}")
                time.sleep(0.02)
            time.sleep(0.3)
        self.check_alive()
        for program in (*self.senders, *self.receivers):
            program.mark()

    def check_alive(self) -> None:
        """Raise RunFailed if a program has failed."""
        for program in (*self.senders, *self.receivers):
            if program.code not in (None, 0):
                raise RunFailed(f"exit code {program.code}; {self.complaint()}")

    def complaint(self) -> str:
        """The last words of the programs, in short."""
        for program in (*self.senders, *self.receivers):
            text = program.said().strip().splitlines()
            if text and program.code:
                return f"{program.log.stem} says: {text[-1][:200]}"
        said = self.senders[-1].said().strip().splitlines() if self.senders else []
        return f"the sender says: {said[-1][:200]}" if said else "nothing was said"

    def tell(self, path: Path) -> None:
        """Name a file to the sender that reads standard input."""
        os.write(self.pipe, f"{path}\n".encode())

    # ------------------------------------------------------------------ one file

    def transfer(self) -> dict[str, Any]:
        """Send one file to all receivers and measure it."""
        path = self.context.source / "file"
        write_source(path, self.job.size_bytes, self.job.seed)
        self.get_ready()
        sent_before = self.network.sent_bytes()
        began = time.monotonic()
        if self.tool.feed == "stdin":
            self.tell(path)
        else:
            self.start_sender([path], stdin=False)
        self.collect_file(began)
        usage = self.usage()
        wire = self.network.sent_bytes() - sent_before
        seconds = max(self.times.values()) - began
        wrong = [
            i
            for i in range(self.job.receivers)
            if not same_bytes(path, self.context.inbox(i) / "file")
        ]
        if wrong:
            raise RunFailed(f"{len(wrong)} of {self.job.receivers} receivers hold other bytes")
        return {
            "seconds": seconds,
            "goodput_bps": self.job.size_bytes * 8 / seconds,
            "wire_bytes": wire,
            "wire_ratio": wire / self.job.size_bytes,
            **usage,
        }

    def collect_file(self, began: float) -> None:
        """Wait until every receiver has the file. Raises RunFailed."""
        end = began + limit_s(self.job)
        while True:
            for i, name in self.watch.wait(TICK_S):
                # A receiver that finds it wrong removes it again.
                with contextlib.suppress(FileNotFoundError):
                    size_bytes = (self.context.inbox(i) / name).stat().st_size
                    if name != "file" or size_bytes != self.job.size_bytes:
                        continue
                    self.times[i, name] = time.monotonic()
            complete = len(self.times) == self.job.receivers
            # A command's session may still write: its last word counts.
            if complete and (self.tool.feed != "command" or self.senders[-1].code is not None):
                return
            self.check_alive()
            if time.monotonic() > end:
                raise RunFailed(
                    f"{len(self.times)} of {self.job.receivers} receivers had the file after "
                    f"{limit_s(self.job):.0f} s; {self.complaint()}"
                )

    def usage(self) -> dict[str, Any]:
        """Return the processors' seconds and the peak memory of all programs."""
        sender = [p.usage() for p in self.senders]
        receivers = [p.usage() for p in self.receivers]
        both = {
            "cpu_sender_s": sum(u.total_s for u in sender),
            "cpu_receivers_s": sum(u.total_s for u in receivers),
            "sender_user_s": sum(u.user_s for u in sender),
            "sender_system_s": sum(u.system_s for u in sender),
            "sender_peak_bytes": max((u.peak_bytes for u in sender), default=0),
        }
        if self.job.clock == "virtual":
            # Processors are infinitely fast there.
            for name in both:
                if name != "sender_peak_bytes":
                    both[name] = 0.0
        return both

    # ------------------------------------------------------------------ a stream of files

    def stream(self) -> dict[str, Any]:
        """Send a stream of files at their times and measure their delays."""
        plan = arrivals(self.job)
        for n, arrival in enumerate(plan):
            write_source(self.context.source / arrival.name, arrival.size_bytes, self.job.seed + n)
        self.get_ready()
        sent_before = self.network.sent_bytes()
        delays = self.feed_stream(plan)
        wire = self.network.sent_bytes() - sent_before
        total = sum(a.size_bytes for a in plan)
        usage = self.usage()
        wanted = len(plan) * self.job.receivers
        cpu = usage["cpu_sender_s"] + usage["cpu_receivers_s"]
        return {
            "delivered": len(delays),
            "missing": wanted - len(delays),
            "p50_s": percentile(delays, 0.5),
            "p99_s": percentile(delays, 0.99),
            "max_s": max(delays, default=0.0),
            "product_bytes": total,
            "wire_bytes": wire,
            "wire_ratio": wire / total,
            "overhead_bytes_per_file": (wire - total) / len(plan),
            "cpu_s_per_file": cpu / len(plan),
            **usage,
        }

    def feed_stream(self, plan: Sequence[Arrival]) -> list[float]:
        """Feed the sender and collect; return the delays, in seconds."""
        began = time.monotonic()
        due = {a.name: began + a.time_s for a in plan}
        missing = {(i, a.name) for a in plan for i in range(self.job.receivers)}
        left = {a.name: self.job.receivers for a in plan}
        waiting: list[Path] = []  # for a sender that takes a batch
        delays: list[float] = []
        fed, last = 0, began
        while missing and time.monotonic() - last < IDLE_LIMIT_S:
            now = time.monotonic()
            while fed < len(plan) and due[plan[fed].name] <= now:
                path = self.context.source / plan[fed].name
                if self.tool.feed == "stdin":
                    self.tell(path)
                else:
                    waiting.append(path)
                fed, last = fed + 1, now
            if waiting and (not self.senders or self.senders[-1].code is not None):
                self.start_sender(waiting, stdin=False)
                waiting = []
            next_s = due[plan[fed].name] - now if fed < len(plan) else TICK_S
            if self.tool.feed != "stdin":
                next_s = min(next_s, 0.01)
            for i, name in self.watch.wait(min(TICK_S, next_s)):
                now = time.monotonic()
                if (i, name) in missing and same_bytes(
                    self.context.source / name, self.context.inbox(i) / name
                ):
                    last = now
                    delays.append(now - due[name])
                    missing.discard((i, name))
                    (self.context.inbox(i) / name).unlink()
                    left[name] -= 1
                    if left[name] == 0 and self.tool.feed == "stdin":
                        (self.context.source / name).unlink()
        return delays

    # ------------------------------------------------------------------ ceilings

    def bare(self) -> dict[str, Any]:
        """Measure bare system calls with the same packets."""
        path = self.context.source / "file"
        write_source(path, self.job.size_bytes, self.job.seed)
        self.get_ready()
        sent_before = self.network.sent_bytes()
        sender = self.start_sender([path], stdin=False)
        for program in (sender, *self.receivers):
            if not program.wait(limit_s(self.job)):
                raise RunFailed(f"{program.log.stem} did not end; {self.complaint()}")
        self.check_alive()
        found = [parse_bare(program.printed()) for program in self.receivers]
        return {
            "seconds": max(seconds for seconds, _ in found),
            "goodput_bps": min(8 * count / seconds for seconds, count in found),
            "delivered_fraction": min(count for _, count in found) / self.job.size_bytes,
            "wire_ratio": (self.network.sent_bytes() - sent_before) / self.job.size_bytes,
            **self.usage(),
        }

    def iperf3(self) -> dict[str, Any]:
        """Measure iperf3's UDP from the sender to each receiver."""
        self.get_ready()
        for i in range(self.job.receivers):
            argv = self.tool.sender(self.context, [])
            argv[argv.index("RECEIVER")] = receiver_ip(i)
            self.senders.append(self.start(0, argv, f"sender{i}"))
        for program in (*self.senders, *self.receivers):
            if not program.wait(limit_s(self.job)):
                raise RunFailed(f"{program.log.stem} did not end; {self.complaint()}")
        self.check_alive()
        found = [parse_iperf3(program.printed()) for program in self.receivers]
        return {
            "seconds": max(seconds for seconds, _ in found),
            "goodput_bps": min(8 * count / seconds for seconds, count in found),
            "delivered_fraction": min(count for _, count in found) / self.job.size_bytes,
            **self.usage(),
        }

    def measure(self) -> dict[str, Any]:
        """Measure the job in the way that suits its tool and kind."""
        if self.tool.feed == "bare":
            return self.bare()
        if self.tool.feed == "iperf3":
            return self.iperf3()
        return self.stream() if self.job.kind == "stream" else self.transfer()

    def finish(self) -> dict[str, Any]:
        """Ends all programs. What our own tools report at their end is kept."""
        if self.tool.feed == "stdin" and self.senders:
            os.close(self.pipe)
            self.senders[0].wait(10)
        for program in (*self.senders, *self.receivers):
            program.stop()
        self.watch.close()
        lines = [last_report(p.printed()) for p in (*self.senders[:1], *self.receivers[:1])]
        return {"reports": [line for line in lines if line]}


def last_report(text: str) -> str:
    """The run's line of fmtp-send, fmtp-recv, fcast-send or fcast-recv."""
    lines = [line for line in text.splitlines() if line.startswith(("products=", "files="))]
    return lines[-1] if lines else ""


def parse_bare(text: str) -> tuple[float, int]:
    """Seconds and bytes that a receiver of bare datagrams counted."""
    match = re.search(r"seconds=([0-9.]+) bytes=(\d+)", text)
    if match is None:
        raise RunFailed(f"found '{text.strip()[:200]}'; valid: seconds=N bytes=N")
    return max(float(match[1]), 1e-6), int(match[2])


def parse_iperf3(text: str) -> tuple[float, int]:
    """Seconds and bytes that an iperf3 server received."""
    try:
        received = json.loads(text)["end"]["sum_received"]
        return float(received["seconds"]), int(received["bytes"])
    except (ValueError, KeyError) as error:
        raise RunFailed(f"found no report of iperf3's server: {error}") from None


def parse_rates(text: str) -> dict[str, float]:
    """NAME_per_s=VALUE words of bench-queue."""
    return {name: float(value) for name, value in re.findall(r"(\w+_per_s)=([0-9.]+)", text)}


def run_queue(context: Context) -> dict[str, Any]:
    """Measure a product queue, without a network."""
    argv = BY_NAME[context.job.tool].sender(context, [])
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    rates = parse_rates(done.stdout)
    if done.returncode or not rates:
        return {"status": "failed", "reason": done.stderr.strip()[-300:] or "nothing was printed"}
    return {"status": "ok", **rates}


def run_job(job: Job, build: Path, work: Path) -> dict[str, Any]:
    """The job's result: status "ok" with its figures, or "failed" with the reason. The calling
    process is in a namespace of its own."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    if job.kind == "queue":
        try:
            return run_queue(Context(job, build, work))
        finally:
            shutil.rmtree(work, ignore_errors=True)
    if job.kind == "paths":
        from bench.paths import run_paths  # imports the controller

        try:
            return run_paths(job.tool, work)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    network: Network | None = None
    try:
        network = Network(job, work / "switch")
        run = Run(job, network, Context(job, build, work))
        try:
            result = run.measure()
        finally:
            report = run.finish()
        return {"status": "ok", **result, **report}
    except (RunFailed, NetworkError, OSError) as error:
        return {"status": "failed", "reason": str(error)}
    finally:
        if network is not None:
            network.close()
        shutil.rmtree(work, ignore_errors=True)
