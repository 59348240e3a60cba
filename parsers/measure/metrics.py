# SPDX-License-Identifier: Apache-2.0
"""The papers' metrics as formulas over plain numbers.

Symbols: MPUP16 III-B (throughput eq. 3, FFDR eq. 4, bandwidth eq. 5, CPU), DRFSM21 3.2
(harmonic-mean throughputs eq. 1-3, FFDR eq. 4-5, MPLR eq. 6). Sizes are in bytes, times in seconds,
rates in bit/s, shares in percent. An undefined quantity is a `Value` without a value, with a
reason.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from common.contracts import BLOCK_BYTES
from parsers.base.metric_units import Value, absent
from parsers.base.times import MICROSECONDS
from parsers.read.cpu_log import RunTimeSample
from parsers.read.ps_log import ProcessSample

GROUP_BYTES = 200_000_000  # G of MPUP16 V-C; it gives the paper's 27 file-sets for the NGRID hour
PCPU_STEP = 0.1  # percent of a core: ps prints pcpu with one decimal


@dataclass(frozen=True, slots=True)
class Delivery:
    """File j at receiver i: size S_j and latency D_ij."""

    size_bytes: int
    latency_s: float


@dataclass(frozen=True, slots=True)
class FileSet:
    """The files first..last (inclusive positions in sending order) with their total size."""

    first: int
    last: int
    size_bytes: int


def file_sets(sizes: Sequence[int], group_bytes: int = GROUP_BYTES) -> list[FileSet]:
    """Cut the files into consecutive sets. Each ends with the file that makes its sum reach G:
    sum(S[I1..I2-1]) < G <= sum(S[I1..I2]), as eq. 3 requires.

    A remainder that does not reach G is left out.
    """
    if group_bytes <= 0:
        raise ValueError("the file-set size G must be positive")
    found: list[FileSet] = []
    first = 0
    total = 0
    for position, size in enumerate(sizes):
        total += size
        if total >= group_bytes:
            found.append(FileSet(first, position, total))
            first = position + 1
            total = 0
    return found


def receiver_throughput(deliveries: Iterable[Delivery]) -> Value:
    """Return the sum of sizes over the sum of latencies, in bit/s: one receiver's term of eq. 3.

    This is also the harmonic-mean throughput of DRFSM21 eq. 1 and 2.
    """
    size = 0
    latency = 0.0
    count = 0
    for delivery in deliveries:
        size += delivery.size_bytes
        latency += delivery.latency_s
        count += 1
    if count == 0:
        return absent("bit/s", "no file received")
    if latency <= 0:
        return absent("bit/s", f"the latencies sum to {latency:.6f} s")
    return Value(8.0 * size / latency, "bit/s")


def throughput(
    order: Sequence[int], received: Mapping[str, Mapping[int, Delivery]], files: FileSet
) -> Value:
    """Return Gamma(I1, I2), eq. 3: the mean over all m receivers of their file-set throughput.

    `order` gives the file ids in sending order, `received` the files of Z_i by receiver and id. If
    a receiver received no file of the set, the mean is undefined.
    """
    if not received:
        return absent("bit/s", "no receiver")
    ids = order[files.first : files.last + 1]
    terms: list[float] = []
    for receiver, files_of in sorted(received.items()):
        term = receiver_throughput(files_of[j] for j in ids if j in files_of)
        if term.value is None:
            return absent("bit/s", f"{receiver}: {term.reason}")
        terms.append(term.value)
    return Value(sum(terms) / len(terms), "bit/s")


def ffdr(
    order: Sequence[int], received: Mapping[str, Mapping[int, Delivery]], files: FileSet
) -> Value:
    """Return Lambda(I1, I2), eq. 4: the mean over the receivers of |Z_i| / N, in percent."""
    if not received:
        return absent("%", "no receiver")
    ids = order[files.first : files.last + 1]
    if not ids:
        return absent("%", "no file was multicast")
    ratios = [sum(1 for j in ids if j in files_of) / len(ids) for files_of in received.values()]
    return Value(100.0 * sum(ratios) / len(ratios), "%")


@dataclass(frozen=True, slots=True)
class FmtpFile:
    """A file that FMTP delivered, with its log line's delay and count of retransmitted blocks."""

    size_bytes: int
    delay_s: float
    retrans: int


@dataclass(frozen=True, slots=True)
class FmtpMetrics:
    """DRFSM21 3.2 for one receiver."""

    throughput_fmtp: Value  # eq. 1
    throughput_mc: Value  # eq. 2, files that needed no retransmission
    throughput_retx: Value  # eq. 3, files that needed some
    ffdr_count: Value  # eq. 4
    ffdr_size: Value  # eq. 5
    mplr: Value  # eq. 6
    repaired_files: Value  # share of the files that needed a retransmission
    retx_blocks: int  # B_t


@dataclass(frozen=True, slots=True)
class FmtpSums:
    """Numerators and denominators of DRFSM21 3.2, as in minute records. They are whole numbers, so
    that sums of sums are exact in any order."""

    files_all: int = 0  # N: by FMTP or by the backstop
    bytes_all: int = 0
    files: int = 0  # N': by FMTP
    bytes: int = 0  # S'
    files_mc: int = 0  # N'': by multicast alone
    bytes_mc: int = 0  # S''
    delay_us: int = 0  # L': from BOP to completion
    delay_us_mc: int = 0  # L''
    blocks: int = 0  # B: retransmitted

    def __add__(self, other: FmtpSums) -> FmtpSums:
        return FmtpSums(*map(operator.add, astuple(self), astuple(other)))


def fmtp_sums(files: Iterable[FmtpFile], backstop_sizes: Iterable[int]) -> FmtpSums:
    """Return the sums. `files`: received by FMTP; `backstop_sizes`: sizes of files from the
    backstop."""
    count = size = count_mc = size_mc = delay = delay_mc = blocks = 0
    for file in files:
        delay_us = round(file.delay_s * MICROSECONDS)
        count, size, delay = count + 1, size + file.size_bytes, delay + delay_us
        blocks += file.retrans
        if file.retrans == 0:
            count_mc, size_mc, delay_mc = (
                count_mc + 1,
                size_mc + file.size_bytes,
                delay_mc + delay_us,
            )
    others = list(backstop_sizes)
    return FmtpSums(
        count + len(others),
        size + sum(others),
        count,
        size,
        count_mc,
        size_mc,
        delay,
        delay_mc,
        blocks,
    )


def _harmonic(files: int, size_bytes: int, delay_us: int, what: str) -> Value:
    if files == 0:
        return absent("bit/s", f"no {what} file")
    if delay_us <= 0:
        return absent("bit/s", f"the latencies sum to {delay_us / MICROSECONDS:.6f} s")
    return Value(8 * MICROSECONDS * size_bytes / delay_us, "bit/s")


def _share(part: int, whole: int, otherwise: str) -> Value:
    return Value(100.0 * part / whole, "%") if whole else absent("%", otherwise)


def of_sums(s: FmtpSums) -> FmtpMetrics:
    """Return the metrics of an interval of any length from its sums."""
    none = "no file received"
    return FmtpMetrics(
        throughput_fmtp=_harmonic(s.files, s.bytes, s.delay_us, "FMTP-received"),
        throughput_mc=_harmonic(s.files_mc, s.bytes_mc, s.delay_us_mc, "multicast-sufficient"),
        throughput_retx=_harmonic(
            s.files - s.files_mc,
            s.bytes - s.bytes_mc,
            s.delay_us - s.delay_us_mc,
            "retransmission-needing",
        ),
        ffdr_count=_share(s.files, s.files_all, none),
        ffdr_size=_share(s.bytes, s.bytes_all, none),
        mplr=_share(s.blocks * BLOCK_BYTES, s.bytes, "FMTP delivered no byte"),
        repaired_files=_share(s.files - s.files_mc, s.files, "FMTP delivered no file"),
        retx_blocks=s.blocks,
    )


def fmtp_metrics(files: Sequence[FmtpFile], backstop_sizes: Sequence[int]) -> FmtpMetrics:
    """Return the metrics of files at one receiver."""
    return of_sums(fmtp_sums(files, backstop_sizes))


def bandwidth(bytes_1: int, time_1_s: float, bytes_2: int, time_2_s: float) -> Value:
    """Return Theta(t1, t2), eq. 5, in bit/s."""
    if time_2_s <= time_1_s:
        return absent("bit/s", f"the readings are {time_2_s - time_1_s:.3f} s apart")
    if bytes_2 < bytes_1:
        return absent("bit/s", f"the byte counter went back from {bytes_1} to {bytes_2}")
    return Value(8.0 * (bytes_2 - bytes_1) / (time_2_s - time_1_s), "bit/s")


@dataclass(frozen=True, slots=True)
class RateSample:
    """A mean rate over the `interval_s` seconds that end at `time_s`."""

    time_s: float
    interval_s: float
    rate: float


def mean_rate(samples: Sequence[RateSample], time_1_s: float, time_2_s: float) -> float | None:
    """Return the time-weighted mean of the samples over [t1, t2]; None unless they cover 90 % of
    it."""
    covered = 0.0
    total = 0.0
    for sample in samples:
        begin = max(time_1_s, sample.time_s - sample.interval_s)
        overlap = min(time_2_s, sample.time_s) - begin
        if overlap > 0:
            covered += overlap
            total += overlap * sample.rate
    if time_2_s <= time_1_s or covered < 0.9 * (time_2_s - time_1_s):
        return None
    return total / covered


@dataclass(frozen=True, slots=True)
class CpuUse:
    """CPU seconds of the sender's processes in an interval, and the utilisation."""

    cpu_s: Value
    utilization: Value  # Phi: share of all cores' time
    one_core: Value  # share of one core's time, which may exceed 100


CpuSample = ProcessSample | RunTimeSample


def _age(sample: CpuSample) -> int:
    """Return a value that never decreases while the process is the same."""
    return sample.etimes_s if isinstance(sample, ProcessSample) else sample.run_ns


def cumulative_cpu(samples: Sequence[CpuSample]) -> list[tuple[float, float]]:
    """Return (time of a block, CPU seconds that all processes seen so far have used), in order of
    time.

    The samples are all from ps.log or all from cpu.log. ps's CPU seconds are computed from pcpu x
    etimes, since cputimes has a granularity of 1 s; see `ProcessSample.cpu_s`. An ended process
    keeps the value of its last sample. If the age (ps) or run time of a process decreases, it is
    another process with the same id.
    """
    latest: dict[int, CpuSample] = {}
    closed = 0.0
    found: list[tuple[float, float]] = []
    ordered = sorted(samples, key=lambda s: (s.time_s, s.pid))
    for position, sample in enumerate(ordered):
        before = latest.get(sample.pid)
        if before is not None and _age(sample) < _age(before):
            closed += before.cpu_s
        latest[sample.pid] = sample
        if position + 1 == len(ordered) or ordered[position + 1].time_s > sample.time_s:
            found.append((sample.time_s, closed + sum(s.cpu_s for s in latest.values())))
    return found


def cpu_use(samples: Sequence[CpuSample], time_1_s: float, time_2_s: float, cores: int) -> CpuUse:
    """Return Phi(t1, t2): what all sampled processes used in [t1, t2], over the available CPU time.

    Between two blocks the use grows linearly; after the last one it is not known, so t2 moves back
    to that. Without a block at or before t1, the counters begin at t1 with 0, so earlier use also
    counts.
    """
    if time_2_s <= time_1_s:
        reason = "the interval is empty"
        return CpuUse(absent("s", reason), absent("%", reason), absent("%", reason))
    blocks = cumulative_cpu(samples)
    if not blocks or blocks[-1][0] <= time_1_s or blocks[0][0] > time_2_s:
        reason = "no sample of the processes in the interval"
        return CpuUse(absent("s", reason), absent("%", reason), absent("%", reason))
    if blocks[0][0] > time_1_s:
        blocks.insert(0, (time_1_s, 0.0))
    end_s = min(time_2_s, blocks[-1][0])
    times = [time_s for time_s, _ in blocks]
    at_1, at_2 = np.interp([time_1_s, end_s], times, [used_s for _, used_s in blocks])
    used = max(0.0, float(at_2 - at_1))
    span = end_s - time_1_s
    seen_s = max(time_s for time_s, _ in blocks if time_s <= end_s)
    last = [s for s in samples if s.time_s == seen_s]
    processes = len({s.pid for s in last})
    plural = "" if processes == 1 else "es"
    if isinstance(last[0], RunTimeSample):
        note = f"by cpu.log: run times in ns of {processes} process{plural}"
    else:
        note = (
            f"by ps: {processes} process{plural}; ps cuts each one's share to {PCPU_STEP:g} % of a"
            f" core, so up to {PCPU_STEP * processes:g} % of one core is not seen"
        )
    return CpuUse(
        Value(used, "s"),
        Value(100.0 * used / (span * cores), "%", note=note),
        Value(100.0 * used / span, "%", note=note),
    )


def quantile(values: Sequence[float], probability: float, unit: str) -> Value:
    """Return the linearly interpolated quantile."""
    if not values:
        return absent(unit, "no sample")
    return Value(float(np.quantile(np.asarray(values), probability)), unit)


def mean(values: Sequence[float], unit: str) -> Value:
    """Return the arithmetic mean; absent without values."""
    if not values:
        return absent(unit, "no sample")
    return Value(float(sum(values)) / len(values), unit)


def cdf(values: Sequence[float], points: int = 400) -> list[tuple[float, float]]:
    """Return (value, share of the samples <= value), thinned to about `points` steps, with both
    ends."""
    ordered = sorted(values)
    n = len(ordered)
    if n == 0:
        return []
    ranks = sorted({round(k * (n - 1) / max(1, points - 1)) for k in range(points)})
    return [(ordered[k], (k + 1) / n) for k in ranks]
