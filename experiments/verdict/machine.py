# SPDX-License-Identifier: Apache-2.0
"""Check that the machine kept up: processors, processes, how late programs ran, clocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from common.counting import counted
from common.virtual_time import Clock
from experiments.verdict.checks import Check, Limits, Status, worst
from experiments.verdict.cpu_load import Load, ProcessLoad
from experiments.verdict.evidence import Evidence, host_of

BUSY_SHARE: Final = Limits(
    0.10, 0.50, "with less than 5 % idle time, processes wait for the CPU instead of the network"
)
BUSY_IDLE_PERCENT: Final = 5.0
STEAL_PERCENT: Final = Limits(
    2.0, 10.0, "time the hypervisor gave to others is missing in every timer"
)
CORE_SHARE: Final = Limits(
    0.80,
    0.97,
    "of a core by one process: what works alone in one thread cannot catch up after a burst "
    "when it needs nearly all of one; userspace switches at 96 % lost up to a fifth of the frames",
)
RUN_QUEUE_MS: Final = Limits(
    1.0,
    10.0,
    "each time it has something to do: it adds to the latency of each message, the least round "
    "trip of the papers is 36 ms",
)
RUN_QUEUE_SHARE: Final = Limits(
    0.10,
    0.50,
    "of the replay: one that stands in the queue for half of the time works at half its speed",
)
RUN_QUEUE_TIMES: Final = 100  # fewer, and the mean is not worth judging
LAG_P50_MS: Final[Mapping[Clock, Limits]] = {
    "native": Limits(
        0.5, 5.0, "late is late for each timer and each frame; measured 0.1 ms on a busy machine"
    ),
    "virtual": Limits(
        0.1,
        1.0,
        "no program waits for a processor there; looks of others at the clock, 256 ns each, made "
        "half of the timers 0.02 ms late",
    ),
}
LAG_P99_MS: Final[Mapping[Clock, Limits]] = {
    "native": Limits(
        10.0,
        100.0,
        "some slices of a busy scheduler; a tenth of a second is TCP's delayed ACK "
        "twice and half of its least retransmission timeout",
    ),
    "virtual": Limits(0.5, 5.0, "as for the median; measured 0.07 to 0.10 ms"),
}
CLOCK_STEP_MS: Final[Mapping[Clock, Limits]] = {
    "native": Limits(
        1.0,
        10.0,
        "latencies are differences of CLOCK_REALTIME stamps of two programs; the least "
        "one-way delay of the papers is 18 ms",
    ),
    "virtual": Limits(0.001, 0.01, "a guest's clock is never set"),
}
CLOCK_DRIFT_PPM: Final = Limits(
    500.0, 5000.0, "the kernel corrects a clock by at most 500 ppm; 0.5 % would be seen in rates"
)
CLOCK_RESOLUTION_NS: Final = Limits(
    1.0, 1000.0, "without high-resolution timers everything waits for ticks of 1 to 10 ms"
)
VIRTUAL_LOOK_NS: Final = 256  # each reading of the clock advances virtual time by this much
SLOW_CLOCKSOURCES: Final = ("jiffies", "refined-jiffies")
SAMPLING_SHARE: Final = Limits(
    0.25,
    1.0,
    "of a core: observers must not slow the others; lag and run queue show whether they do",
)
NO_CPU_IN_VIRTUAL_TIME: Final = (
    "does not apply: virtual time stands still while a process computes, "
    "so none ever waits for a processor"
)


CPU_CHECKS: Final = ("CPU", "CPU steal", "CPU of single processes", "run queue", "sampling")


def cpu(evidence: Evidence) -> list[Check]:
    """Check processors and processes; in virtual time, nothing needs judging."""
    if evidence.clock == "virtual":
        return [Check(name, "n/a", None, None, NO_CPU_IN_VIRTUAL_TIME) for name in CPU_CHECKS]
    return [*_saturation(evidence), *_processes(evidence)]


def _saturation(evidence: Evidence) -> list[Check]:
    every = [s for s in evidence.cpu if s.cpu == "all"]
    if not every:
        text = "sar gave no CPU sample while products were on their way"
        return [Check("CPU", "warn", None, None, text)]
    busy = sum(s.idle < BUSY_IDLE_PERCENT for s in every) / len(every)
    steal = sum(s.steal for s in every) / len(every)
    idle = sum(s.idle for s in every) / len(every)
    cores = evidence.load.cores if evidence.load is not None else ()
    busy_cores = ", ".join(f"{c.core} {100 * c.busy:.0f} %" for c in cores)
    stolen = ", ".join(f"{c.core} {100 * c.steal:.1f} %" for c in cores)
    return [
        Check(
            "CPU",
            BUSY_SHARE.status(busy),
            f"saturated in at most {100 * BUSY_SHARE.warn:g} % of the samples",
            f"{100 * busy:.0f} %",
            f"less than {BUSY_IDLE_PERCENT:g} % idle in {100 * busy:.0f} % of {len(every)} "
            f"samples; idle on average {idle:.0f} %; busy: {busy_cores or 'cores unknown'}",
        ),
        Check(
            "CPU steal",
            STEAL_PERCENT.status(steal),
            f"at most {STEAL_PERCENT.warn:g} %",
            round(steal, 2),
            f"{steal:.1f} % of the time was taken by the hypervisor; {stolen or 'cores unknown'}",
        ),
    ]


def _processes(evidence: Evidence) -> list[Check]:
    load = evidence.load
    if load is None or load.elapsed_s <= 0 or not load.processes:
        text = "the kernel does not report the processes' times"
        return [Check(name, "warn", None, None, text) for name in CPU_CHECKS[2:]]
    busiest = max(load.processes, key=lambda p: p.cpu_s)
    share = busiest.cpu_s / load.elapsed_s
    at_hosts: dict[str, float] = {}
    for p in load.processes:
        at_hosts[p.place] = at_hosts.get(p.place, 0.0) + p.cpu_s
    sender = at_hosts.get(evidence.publisher, 0.0) / load.elapsed_s
    hosts = {host_of(name) for name in evidence.receivers}
    receivers = sum(at_hosts.get(host, 0.0) for host in hosts) / load.elapsed_s
    single = Check(
        "CPU of single processes",
        CORE_SHARE.status(share),
        f"at most {CORE_SHARE.warn:.0%} of a core",
        round(share, 4),
        f"busiest: {_process(busiest)}, {share:.1%} of a core; sender's host {sender:.1%}, "
        f"receivers' {receivers:.1%}",
    )
    watching = load.sampling_cpu_s / load.elapsed_s
    sampling = Check(
        "sampling",
        SAMPLING_SHARE.status(watching),
        f"at most {SAMPLING_SHARE.warn:.0%} of a core",
        round(watching, 4),
        f"what drives and watches the cell took {watching:.1%} of a core: its process and programs "
        "that this started and saw end (ps, tc, pqinsert), sar, pidstat, hostlag",
    )
    return [single, _run_queue(load), sampling]


def _run_queue(load: Load) -> Check:
    """Check how long processes waited for a processor, each time and in total."""
    often = [p for p in load.processes if p.times >= RUN_QUEUE_TIMES]
    each = max(often, key=lambda p: p.mean_wait_ms, default=None)
    most = max(load.processes, key=lambda p: p.wait_s)
    # No process waits while a processor is idle, but Linux (seen with 6.18) may count a whole sleep
    # as waiting: 9.99 s for a process that ran once, with both cores 60 % idle.
    busiest = max((core.busy + core.steal for core in load.cores), default=1.0)
    waited_s = min(most.wait_s, busiest * load.elapsed_s)
    share = waited_s / load.elapsed_s
    mean_ms = each.mean_wait_ms if each is not None else 0.0
    text = f"{_process(most)} waited {waited_s:.2f} s in all, {share:.1%} of the replay"
    if waited_s < most.wait_s:
        text += f" (the kernel says {most.wait_s:.2f} s, longer than any core was busy)"
    if each is not None:
        text += f"; {_process(each)} {mean_ms:.3f} ms each of {counted(each.times, 'time')}"
    asked = f"at most {RUN_QUEUE_MS.warn:g} ms on average and {RUN_QUEUE_SHARE.warn:.0%} in all"
    status = worst((RUN_QUEUE_MS.status(mean_ms), RUN_QUEUE_SHARE.status(share)))
    found = {"mean_ms": round(mean_ms, 4), "share": round(share, 4)}
    return Check("run queue", status, asked, found, text)


def _process(load: ProcessLoad) -> str:
    return f"{load.name} of {load.place}" if load.place else load.name


def lag_check(evidence: Evidence) -> Check:
    """Check how late a program in each host runs after its timer; the worst host counts."""
    name = "scheduling lag"
    lags = {host: lag for host, lag in evidence.lags.items() if lag.samples > 0}
    hosts = {h.name for h in evidence.network.hosts} if evidence.network else set()
    silent = sorted((hosts | set(evidence.lags)) - set(lags))
    if not lags or silent:
        return Check(name, "warn", None, None, f"not sampled: {', '.join(silent) or 'any host'}")
    limit_p50, limit_p99 = LAG_P50_MS[evidence.clock], LAG_P99_MS[evidence.clock]
    half = max(lags, key=lambda host: lags[host].p50_ms)
    late = max(lags, key=lambda host: lags[host].p99_ms)
    latest = max(lags, key=lambda host: lags[host].max_ms)
    status = worst((limit_p50.status(lags[half].p50_ms), limit_p99.status(lags[late].p99_ms)))
    samples = sum(lag.samples for lag in lags.values())
    text = (
        f"of {counted(samples, 'timer')} at {counted(len(lags), 'host')}: "
        f"worst median {half}, {lags[half].p50_ms:.3f} "
        f"ms; worst 1 % {late}, {lags[late].p99_ms:.3f} ms; latest {latest}, "
        f"{lags[latest].max_ms:.3f} ms"
    )
    asked = f"at most {limit_p50.warn:g} ms (half), {limit_p99.warn:g} ms (1 %)"
    found = {"p50_ms": lags[half].p50_ms, "p99_ms": lags[late].p99_ms}
    return Check(name, status, asked, found, text)


def clock_check(evidence: Evidence) -> Check:
    """Check the clock that all hosts share: it must never be set and hardly ever be corrected. In
    virtual time, check the guest's own clock."""
    name = "clock"
    if not evidence.lags:
        return Check(name, "warn", None, None, "not watched")
    host, lag = max(evidence.lags.items(), key=lambda item: abs(item[1].step_ms))
    step_ms = max(abs(lag.step_ms), abs(lag.shift_ms))
    drift_ppm = max((one.drift_ppm for one in evidence.lags.values()), key=abs)
    source = evidence.load.clocksource if evidence.load is not None else "the guest's"
    statuses: list[Status] = [
        CLOCK_STEP_MS[evidence.clock].status(step_ms),
        CLOCK_DRIFT_PPM.status(abs(drift_ppm)),
        CLOCK_RESOLUTION_NS.status(lag.resolution_ns),
        "fail" if source in SLOW_CLOCKSOURCES else "pass",
    ]
    text = (
        f"clock source {source}, resolution {lag.resolution_ns} ns; CLOCK_REALTIME was set by "
        f"{lag.step_ms:.3f} ms at most and {lag.shift_ms:.3f} ms in all; drift against the raw "
        f"clock {drift_ppm:+.1f} ppm"
    )
    if abs(lag.step_ms) >= CLOCK_STEP_MS[evidence.clock].warn:
        text += f"; set at {lag.step_at_s:.3f} (seen at {host})"
    if evidence.clock == "virtual":
        looks = {one.look_ns for one in evidence.lags.values()}
        statuses.append("pass" if looks == {VIRTUAL_LOOK_NS} else "fail")
        text += f"; a look at it takes {', '.join(map(str, sorted(looks)))} ns of virtual time"
    return Check(name, worst(statuses), 0, round(step_ms, 6), text)
