# SPDX-License-Identifier: Apache-2.0
"""The papers' formulas against hand calculations (the arithmetic is in the comments)."""

from __future__ import annotations

import random

import pytest

from parsers.base.metric_units import (
    METRICS,
    Value,
    absent,
    canonical,
    to_si,
)
from parsers.measure.metrics import (
    Delivery,
    FileSet,
    FmtpFile,
    RateSample,
    bandwidth,
    cdf,
    cpu_use,
    ffdr,
    file_sets,
    fmtp_metrics,
    mean,
    mean_rate,
    quantile,
    receiver_throughput,
    throughput,
)
from parsers.read.cpu_log import RunTimeSample
from parsers.read.ps_log import ProcessSample

# Three files of 1000, 3000 and 2000 bytes; two receivers. Receiver b never got file 1 by FMTP.
ORDER = (0, 1, 2)
RECEIVED = {
    "a": {0: Delivery(1000, 0.1), 1: Delivery(3000, 0.1), 2: Delivery(2000, 0.4)},
    "b": {0: Delivery(1000, 0.2), 2: Delivery(2000, 0.4)},
}
ALL = FileSet(0, 2, 6000)


def value_of(value: Value) -> float:
    assert value.value is not None, value.reason
    return value.value


def test_file_sets_reach_g_with_their_last_file() -> None:
    # G = 4000: 1000, then 1000 + 3000 = 4000 >= G: set (0, 1); then 2000 < G: left out.
    assert file_sets([1000, 3000, 2000], 4000) == [FileSet(0, 1, 4000)]
    # G = 3999 cuts at the same place; G = 4001 needs file 2 as well.
    assert file_sets([1000, 3000, 2000], 3999) == [FileSet(0, 1, 4000)]
    assert file_sets([1000, 3000, 2000], 4001) == [FileSet(0, 2, 6000)]
    # Each set begins after the one before: 5 | 3 2 | 7, and a rest of 1.
    assert file_sets([5, 3, 2, 7, 1], 5) == [FileSet(0, 0, 5), FileSet(1, 2, 5), FileSet(3, 3, 7)]
    assert file_sets([1, 1], 5) == []
    with pytest.raises(ValueError):
        file_sets([1], 0)


def test_throughput_equation_3() -> None:
    # a: (1000 + 3000 + 2000) / (0.1 + 0.1 + 0.4) = 6000 / 0.6 = 10000 B/s = 80000 bit/s
    # b: (1000 + 2000) / (0.2 + 0.4) = 3000 / 0.6 = 5000 B/s = 40000 bit/s
    # mean of the two: 60000 bit/s. (The mean of per-file rates would be 83333 for a alone.)
    assert value_of(throughput(ORDER, RECEIVED, ALL)) == pytest.approx(60_000)
    # Files 0..1 only: a: 4000 / 0.2 = 160000 bit/s; b: 1000 / 0.2 = 40000 bit/s; mean 100000
    assert value_of(throughput(ORDER, RECEIVED, FileSet(0, 1, 4000))) == pytest.approx(100_000)


def test_throughput_weighs_receivers_equally_not_their_bytes() -> None:
    received = {"a": {0: Delivery(8000, 1.0)}, "b": {0: Delivery(8000, 4.0)}}
    # a 64000, b 16000 bit/s: mean 40000. Pooling both would give 16000 / 5 x 8 = 25600.
    assert value_of(throughput((0,), received, FileSet(0, 0, 8000))) == pytest.approx(40_000)


def test_throughput_is_undefined_without_files_or_time() -> None:
    nothing = throughput(ORDER, {**RECEIVED, "c": {}}, ALL)
    assert nothing.value is None
    assert nothing.reason == "c: no file received"
    assert throughput(ORDER, {}, ALL).reason == "no receiver"
    backwards = receiver_throughput([Delivery(1000, -0.5)])
    assert backwards.value is None
    assert "-0.5" in backwards.reason


def test_ffdr_equation_4() -> None:
    # a: 3 of 3, b: 2 of 3; mean of 1 and 2/3 = 5/6 = 83.33 %
    assert value_of(ffdr(ORDER, RECEIVED, ALL)) == pytest.approx(100 * 5 / 6)
    # A receiver that got nothing counts with 0: (1 + 2/3 + 0) / 3 = 55.56 %
    assert value_of(ffdr(ORDER, {**RECEIVED, "c": {}}, ALL)) == pytest.approx(100 * 5 / 9)
    assert ffdr((), {"a": {}}, FileSet(0, -1, 0)).value is None


def test_drfsm_equations_1_to_6() -> None:
    files = [
        FmtpFile(1000, 0.1, 0),
        FmtpFile(3000, 0.1, 0),
        FmtpFile(2000, 0.6, 3),
    ]
    found = fmtp_metrics(files, backstop_sizes=[4000])
    # (1) S' = 6000, L' = 0.8: 7500 B/s = 60000 bit/s
    assert value_of(found.throughput_fmtp) == pytest.approx(60_000)
    # (2) S'' = 4000, L'' = 0.2: 20000 B/s = 160000 bit/s
    assert value_of(found.throughput_mc) == pytest.approx(160_000)
    # (3) (6000 - 4000) / (0.8 - 0.2) = 3333.3 B/s = 26666.7 bit/s
    assert value_of(found.throughput_retx) == pytest.approx(26_666.6667)
    # (4) 3 of 4 files
    assert value_of(found.ffdr_count) == pytest.approx(75)
    # (5) 6000 of 10000 bytes
    assert value_of(found.ffdr_size) == pytest.approx(60)
    # (6) 3 x 1448 / 6000 = 72.4 %
    assert value_of(found.mplr) == pytest.approx(72.4)
    assert found.retx_blocks == 3


def test_drfsm_undefined_values_have_reasons() -> None:
    found = fmtp_metrics([FmtpFile(1000, 0.1, 0)], [])
    assert found.throughput_retx == absent("bit/s", "no retransmission-needing file")
    assert value_of(found.mplr) == 0
    nothing = fmtp_metrics([], [])
    for value in (nothing.throughput_fmtp, nothing.ffdr_count, nothing.ffdr_size, nothing.mplr):
        assert value.value is None
        assert value.reason
    # All by the backstop: FMTP delivered nothing, which is a ratio of 0 and no throughput.
    backstop = fmtp_metrics([], [500])
    assert value_of(backstop.ffdr_count) == 0
    assert backstop.throughput_fmtp.value is None


def test_bandwidth_equation_5() -> None:
    # (2 500 500 - 500) B in 2 s = 1 250 000 B/s = 10 Mbit/s
    assert value_of(bandwidth(500, 10.0, 2_500_500, 12.0)) == pytest.approx(10e6)
    assert bandwidth(0, 1.0, 5, 1.0).value is None
    assert "went back" in bandwidth(5, 1.0, 4, 2.0).reason


def test_mean_rate_weighs_by_overlap() -> None:
    samples = [RateSample(1.0, 1.0, 10.0), RateSample(2.0, 1.0, 20.0), RateSample(4.0, 2.0, 40.0)]
    # [0.5, 3]: 0.5 s of 10, 1 s of 20, 1 s of 40: (5 + 20 + 40) / 2.5 = 26
    assert mean_rate(samples, 0.5, 3.0) == pytest.approx(26)
    assert mean_rate(samples, 0.0, 4.0) == pytest.approx((10 + 20 + 80) / 4)
    # 4 of 5 s covered is too little to speak for the interval.
    assert mean_rate(samples, 0.0, 5.0) is None
    assert mean_rate([], 0.0, 1.0) is None


def ps(time_s: float, pid: int, pcpu: float, cputimes: int, etimes: int) -> ProcessSample:
    return ProcessSample(time_s, pid, 1, pcpu, cputimes, etimes, 1000, "ldmd")


def test_cpu_utilization() -> None:
    samples = [
        # Process 1: 10 % of 10 s = 1.0 s at t = 100; 15 % of 30 s = 4.5 s at t = 120.
        ps(100.0, 1, 10.0, 1, 10),
        ps(120.0, 1, 15.0, 4, 30),
        # Process 2 begins within the interval: 50 % of 5 s = 2.5 s.
        ps(120.0, 2, 50.0, 2, 5),
        # After the interval: a quarter of what is used between the blocks counts.
        ps(140.0, 1, 90.0, 45, 50),
    ]
    use = cpu_use(samples, 100.0, 125.0, cores=2)
    # t = 100: 1.0 s; t = 120: 4.5 + 2.5 = 7.0; t = 140: 45 + 2.5 = 47.5, so t = 125: 17.125
    assert value_of(use.cpu_s) == pytest.approx(16.125)
    # in 25 s: 64.5 % of one core, half of it of two
    assert value_of(use.utilization) == pytest.approx(32.25)
    assert value_of(use.one_core) == pytest.approx(64.5)
    assert "2 processes" in use.one_core.note
    assert "up to 0.2 % of one core" in use.one_core.note


def test_cpu_of_a_process_that_ended_and_of_its_reused_id() -> None:
    samples = [
        ps(0.0, 1, 0.0, 0, 0),
        ps(10.0, 7, 40.0, 2, 5),  # 2.0 s, then it ends
        ps(20.0, 1, 5.0, 1, 20),  # 1.0 s
        ps(30.0, 7, 30.0, 1, 4),  # another process 7: 1.2 s
        ps(30.0, 1, 5.0, 1, 30),  # 1.5 s
    ]
    # 2.0 + 1.2 + 1.5 = 4.7 s in 30 s on one core
    use = cpu_use(samples, 0.0, 30.0, cores=1)
    assert value_of(use.cpu_s) == pytest.approx(4.7)
    assert value_of(use.utilization) == pytest.approx(100 * 4.7 / 30)


def ran(time_s: float, pid: int, run_ms: float) -> RunTimeSample:
    return RunTimeSample(time_s, pid, "up6", round(run_ms * 1e6))


def test_cpu_by_run_times() -> None:
    """ps shows these times as 0.1 % or as nothing."""
    samples = [
        ran(100.0, 1, 5.0),
        ran(100.0, 2, 0.25),
        ran(110.0, 1, 24.0),
        ran(110.0, 2, 1.5),
        ran(110.0, 3, 0.75),  # begins within the interval
        ran(120.0, 1, 25.0),  # 2 has ended and keeps its 1.5 ms
        ran(120.0, 3, 0.5),  # another process 3: the first one's 0.75 ms stay
        ran(130.0, 1, 900.0),  # after the interval: nine tenths count
    ]
    use = cpu_use(samples, 104.0, 129.0, cores=2)
    # t = 100: 5.25 ms; t = 110: 26.25; t = 120: 25 + 1.5 + 0.75 + 0.5 = 27.75; t = 130: 902.75
    # t = 104: 5.25 + 0.4 x 21 = 13.65 ms; t = 129: 27.75 + 0.9 x 875 = 815.25; 801.6 ms in 25 s
    assert value_of(use.cpu_s) == pytest.approx(0.8016)
    assert value_of(use.one_core) == pytest.approx(3.2064)
    assert value_of(use.utilization) == pytest.approx(1.6032)
    assert use.utilization.note.startswith("by cpu.log: run times in ns of 2 processes")
    # Without a block before it the interval begins at its own begin, with 0: 27.75 ms in 25 s
    early = cpu_use(samples, 95.0, 120.0, cores=1)
    assert value_of(early.one_core) == pytest.approx(100 * 0.02775 / 25)


def test_cpu_does_not_depend_on_the_order_of_samples() -> None:
    samples = [ps(t, p, 10.0, t // 10, t) for t in range(0, 60, 5) for p in (1, 2, 3)]
    expected = cpu_use(samples, 0.0, 55.0, 2)
    for seed in range(10):
        shuffled = samples[:]
        random.Random(seed).shuffle(shuffled)
        assert cpu_use(shuffled, 0.0, 55.0, 2) == expected
    # 3 processes x 10 % of one core = 15 % of two
    assert value_of(expected.utilization) == pytest.approx(15)


def test_cpu_undefined() -> None:
    assert (
        cpu_use([], 0.0, 1.0, 2).utilization.reason == "no sample of the processes in the interval"
    )
    assert cpu_use([ps(5.0, 1, 1.0, 0, 1)], 6.0, 7.0, 2).utilization.value is None
    assert cpu_use([ps(5.0, 1, 1.0, 0, 1)], 6.0, 6.0, 2).utilization.value is None


def test_quantiles_and_cdf() -> None:
    # Linear interpolation between ranks: p50 of 1..4 is 2.5, p90 is 1 + 0.9 x 3 = 3.7
    assert value_of(quantile([4, 1, 3, 2], 0.5, "s")) == pytest.approx(2.5)
    assert value_of(quantile([4, 1, 3, 2], 0.9, "s")) == pytest.approx(3.7)
    assert value_of(mean([1, 2, 6], "s")) == pytest.approx(3)
    assert quantile([], 0.5, "s").value is None
    assert mean([], "s").value is None
    assert cdf([3, 1, 2, 2]) == [(1, 0.25), (2, 0.5), (2, 0.75), (3, 1.0)]
    thinned = cdf(list(range(10_000)), points=100)
    assert len(thinned) == 100
    assert thinned[0] == (0, 1e-4)
    assert thinned[-1] == (9_999, 1.0)


def test_a_value_has_a_number_or_a_reason() -> None:
    with pytest.raises(ValueError):
        Value(None, "%")
    with pytest.raises(ValueError):
        Value(0.0, "%", reason="but why")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ffdr", "ffdr"),
        ("ffdr-percent", "ffdr"),
        ("Throughput", "throughput"),
        ("throughput_mbps", "throughput"),
        ("bandwidth", "nic_bandwidth"),
        ("bandwidth-over-offered", "bandwidth_over_offered"),
        ("products-identical", "products_identical"),
        ("retransmitted-blocks", "retransmitted_blocks"),
        ("verdict-invalid", "verdict_invalid"),
        ("cpu", "cpu"),
        ("speed", None),
    ],
)
def test_names_that_experiments_use(name: str, expected: str | None) -> None:
    assert canonical(name) == expected


def test_units() -> None:
    assert to_si(21.4, "Mbit/s", METRICS["nic_bandwidth"]) == pytest.approx(21.4e6)
    assert to_si(0.887, "ratio", METRICS["ffdr"]) == pytest.approx(88.7)
    assert to_si(3, "ms", METRICS["latency_p50"]) == pytest.approx(0.003)
    with pytest.raises(ValueError, match="unit 'furlongs' of cpu; valid: "):
        to_si(1, "furlongs", METRICS["cpu"])
