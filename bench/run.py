# SPDX-License-Identifier: Apache-2.0
"""One job: the network, the tool, the clock, the digests. Runs in its own process."""

from __future__ import annotations

import contextlib
import json
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
from bench.statistics import percentile
from bench.tools import BY_NAME, Tool, setup_of
from common.counting import counted
from common.shell import NetworkError
from protocols.files import same_bytes
from protocols.session import Session, SessionError
from protocols.watch import Watch

IDLE_LIMIT_S: Final = 60.0  # without an arrival; then the tool counts as stuck
TICK_S: Final = 0.25
BATCH_POLL_S: Final = 0.01  # how often to look whether the batch has ended


class RunFailed(Exception):
    """The tool failed; the text is its output."""


def limit_s(job: Job) -> float:
    """Return the limit of the timed part: 20 times what the file takes at the link's rate or at 200
    Mbit/s."""
    total = job.size_bytes * job.files if job.kind == "file" else 0
    return 60 + 20 * total * 8 / (job.rate_bps or 200_000_000)


def write_source(path: Path, size: int, seed: int) -> None:
    """Write a file of random bytes that follow from the seed."""
    path.write_bytes(np.random.default_rng(seed).bytes(size))


class Run:
    """A running job."""

    def __init__(self, job: Job, network: Network, build: Path, work: Path) -> None:
        self.job, self.network = job, network
        self.tool: Tool = BY_NAME[job.tool]
        self.setup = setup_of(job, build, work)
        self.session = Session(self.tool.adapter, self.setup, network.popen, work)
        self.times: dict[tuple[int, str], float] = {}
        self.watch = Watch([self.setup.inbox(i) for i in range(job.receivers)])

    # ------------------------------------------------------------------ one file

    def transfer(self) -> dict[str, Any]:
        """Send one file to all receivers and measure it."""
        path = self.setup.source / "file"
        write_source(path, self.job.size_bytes, self.job.seed)
        self.session.get_ready()
        sent_before = self.network.sent_bytes()
        began = time.monotonic()
        self.session.send(path)
        self.collect_file(began)
        usage = self.usage()
        wire = self.network.sent_bytes() - sent_before
        seconds = max(self.times.values()) - began
        wrong = [
            i
            for i in range(self.job.receivers)
            if not same_bytes(path, self.setup.inbox(i) / "file")
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
                # A receiver may have removed the file again because it was wrong.
                with contextlib.suppress(FileNotFoundError):
                    size_bytes = (self.setup.inbox(i) / name).stat().st_size
                    if name != "file" or size_bytes != self.job.size_bytes:
                        continue
                    self.times[i, name] = time.monotonic()
            complete = len(self.times) == self.job.receivers
            # A session may still write; its last line counts.
            if complete and not self.session.is_sending:
                return
            self.session.check_alive()
            if time.monotonic() > end:
                raise RunFailed(
                    f"{len(self.times)} of "
                    f"{counted(self.job.receivers, 'receiver')} had the file after "
                    f"{limit_s(self.job):.0f} s; {self.session.complaint()}"
                )

    def usage(self) -> dict[str, Any]:
        """Return the processors' seconds and the peak memory of all programs."""
        sender = [p.usage() for p in self.session.senders]
        receivers = [p.usage() for p in self.session.receivers]
        both = {
            "cpu_sender_s": sum(u.total_s for u in sender),
            "cpu_receivers_s": sum(u.total_s for u in receivers),
            "sender_user_s": sum(u.user_s for u in sender),
            "sender_system_s": sum(u.system_s for u in sender),
            "sender_peak_bytes": max((u.peak_bytes for u in sender), default=0),
        }
        if self.job.clock == "virtual":
            # Programs take no time there.
            for name in both:
                if name != "sender_peak_bytes":
                    both[name] = 0.0
        return both

    # ------------------------------------------------------------------ a stream of files

    def stream(self) -> dict[str, Any]:
        """Send a stream of files at their times and measure their delays."""
        plan = arrivals(self.job)
        for n, arrival in enumerate(plan):
            write_source(self.setup.source / arrival.name, arrival.size_bytes, self.job.seed + n)
        self.session.get_ready()
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
        delays: list[float] = []
        fed, last = 0, began
        while missing and time.monotonic() - last < IDLE_LIMIT_S:
            now = time.monotonic()
            while fed < len(plan) and due[plan[fed].name] <= now:
                self.session.send(self.setup.source / plan[fed].name)
                fed, last = fed + 1, now
            self.session.go_on()
            next_s = due[plan[fed].name] - now if fed < len(plan) else TICK_S
            if self.session.is_sending:
                next_s = min(next_s, BATCH_POLL_S)
            for i, name in self.watch.wait(min(TICK_S, next_s)):
                now = time.monotonic()
                if (i, name) in missing and same_bytes(
                    self.setup.source / name, self.setup.inbox(i) / name
                ):
                    last = now
                    delays.append(now - due[name])
                    missing.discard((i, name))
                    (self.setup.inbox(i) / name).unlink()
                    left[name] -= 1
                    if left[name] == 0 and not self.session.is_batch:
                        (self.setup.source / name).unlink()
        return delays

    # ------------------------------------------------------------------ ceilings

    def bare(self) -> dict[str, Any]:
        """Measure bare system calls with the same packets."""
        path = self.setup.source / "file"
        write_source(path, self.job.size_bytes, self.job.seed)
        self.session.get_ready()
        sent_before = self.network.sent_bytes()
        self.session.send(path)
        found = [parse_bare(text) for text in self._printed()]
        return {
            "seconds": max(seconds for seconds, _ in found),
            "goodput_bps": min(8 * count / seconds for seconds, count in found),
            "delivered_fraction": min(count for _, count in found) / self.job.size_bytes,
            "wire_ratio": (self.network.sent_bytes() - sent_before) / self.job.size_bytes,
            **self.usage(),
        }

    def iperf3(self) -> dict[str, Any]:
        """Measure iperf3's UDP from the sender to each receiver."""
        self.session.get_ready()
        for i in range(self.job.receivers):
            argv = self.tool.adapter.sender(self.setup, [])
            argv[argv.index("RECEIVER")] = receiver_ip(i)
            self.session.senders.append(self.session.start(0, argv, f"sender{i}"))
        found = [parse_iperf3(text) for text in self._printed()]
        return {
            "seconds": max(seconds for seconds, _ in found),
            "goodput_bps": min(8 * count / seconds for seconds, count in found),
            "delivered_fraction": min(count for _, count in found) / self.job.size_bytes,
            **self.usage(),
        }

    def _printed(self) -> list[str]:
        """Wait until all programs have ended; return what each receiver printed. Raises
        RunFailed."""
        for program in self.session.programs:
            if not program.wait(limit_s(self.job)):
                raise RunFailed(f"{program.log.stem} did not end; {self.session.complaint()}")
        self.session.check_alive()
        return [program.printed() for program in self.session.receivers]

    def measure(self) -> dict[str, Any]:
        """Measure the job as its tool and kind require."""
        if self.tool.kind == "bare":
            return self.bare()
        if self.tool.kind == "iperf3":
            return self.iperf3()
        return self.stream() if self.job.kind == "stream" else self.transfer()

    def finish(self) -> dict[str, Any]:
        """End all programs. Keep what this project's own tools report at their end."""
        self.session.stop()
        self.watch.close()
        ends = (*self.session.senders[:1], *self.session.receivers[:1])
        lines = [last_report(program.printed()) for program in ends]
        return {"reports": [line for line in lines if line]}


def last_report(text: str) -> str:
    """Return the line about the run that fmtp-send, fmtp-recv, fcast-send or fcast-recv printed."""
    lines = [line for line in text.splitlines() if line.startswith(("products=", "files="))]
    return lines[-1] if lines else ""


def parse_bare(text: str) -> tuple[float, int]:
    """Return the seconds and bytes that a receiver of bare datagrams counted."""
    match = re.search(r"seconds=([0-9.]+) bytes=(\d+)", text)
    if match is None:
        raise RunFailed(f"found '{text.strip()[:200]}'; valid: seconds=N bytes=N")
    return max(float(match[1]), 1e-6), int(match[2])


def parse_iperf3(text: str) -> tuple[float, int]:
    """Return the seconds and bytes that an iperf3 server received."""
    try:
        received = json.loads(text)["end"]["sum_received"]
        return float(received["seconds"]), int(received["bytes"])
    except (ValueError, KeyError) as error:
        raise RunFailed(f"found no report of iperf3's server: {error}") from None


def parse_rates(text: str) -> dict[str, float]:
    """Return the NAME_per_s=VALUE words of bench-queue."""
    return {name: float(value) for name, value in re.findall(r"(\w+_per_s)=([0-9.]+)", text)}


def run_queue(job: Job, build: Path, work: Path) -> dict[str, Any]:
    """Measure a product queue, without a network."""
    argv = BY_NAME[job.tool].adapter.sender(setup_of(job, build, work), [])
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    rates = parse_rates(done.stdout)
    if done.returncode or not rates:
        return {"status": "failed", "reason": done.stderr.strip()[-300:] or "nothing was printed"}
    return {"status": "ok", **rates}


def run_job(job: Job, build: Path, work: Path) -> dict[str, Any]:
    """Return the job's result: status "ok" with its figures, or "failed" with the reason. The
    calling process is in its own namespace."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    if job.kind == "queue":
        try:
            return run_queue(job, build, work)
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
        run = Run(job, network, build, work)
        try:
            result = run.measure()
        finally:
            report = run.finish()
        return {"status": "ok", **result, **report}
    except (RunFailed, SessionError, NetworkError, OSError) as error:
        return {"status": "failed", "reason": str(error)}
    finally:
        if network is not None:
            network.close()
        shutil.rmtree(work, ignore_errors=True)
