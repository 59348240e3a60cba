# SPDX-License-Identifier: Apache-2.0
"""The queue behind `downpour rate-for`, compared with sums by hand and with its own definition."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import cli
from experiments.design.trace_rate import (
    BLOCK_BYTES,
    OVERHEAD,
    Arrival,
    Repairs,
    delivery_ratio,
    rate_for,
    serve,
)

MB = 1_000_000


def test_a_queue_by_hand() -> None:
    """Two files of 1 MB come at once, a third after 3 s; 8 Mbit/s of payload sends one in a
    second."""
    rate_bps = 8 * MB * OVERHEAD
    found = serve([Arrival(0, MB), Arrival(0, MB), Arrival(3, MB)], rate_bps)
    assert found.latencies_s == pytest.approx((1.0, 2.0, 1.0))
    assert found.buffer_bytes == pytest.approx(2 * MB * OVERHEAD)
    assert found.quantile_s(0.5) == pytest.approx(1.0) and found.latency_s == pytest.approx(2.0)


def test_the_least_rate_by_hand() -> None:
    arrivals = [Arrival(0, MB), Arrival(0, MB)]
    found = rate_for(arrivals, 4.0, None)
    assert found is not None
    assert found.rate_bps == pytest.approx(4 * MB * OVERHEAD, rel=1e-3)
    assert rate_for(arrivals, None, 1.5 * MB) is None  # both come at once
    two = rate_for([Arrival(0, MB), Arrival(1, MB)], None, 1.5 * MB * OVERHEAD)
    assert two is not None  # half of the first must have left when the second comes
    assert two.rate_bps == pytest.approx(4 * MB * OVERHEAD, rel=1e-3)


streams = st.lists(
    st.tuples(st.floats(0, 100, allow_nan=False), st.integers(1, 10**8)), min_size=1, max_size=30
).map(lambda pairs: [Arrival(t, s) for t, s in sorted(pairs)])


@pytest.mark.slow
@given(streams, st.floats(0.01, 1000))
def test_it_holds_the_bound_and_less_would_not(arrivals: list[Arrival], latency_s: float) -> None:
    found = rate_for(arrivals, latency_s, None)
    assert found is not None and found.latency_s <= latency_s
    assert serve(arrivals, found.rate_bps * 0.999).latency_s > latency_s or found.rate_bps < 1.001
    # When the longest wait begins, the queue has no more than that time sends.
    assert found.buffer_bytes <= found.latency_s * found.rate_bps / 8 * (1 + 1e-9)


def test_fmtps_share_by_hand() -> None:
    """Two files of ten blocks come at once; a block takes 10 ms. tau_snd is 100 ms, the longest
    round trip. Of the first file, the receiver 45 ms away can ask for the blocks that leave in the
    first 55 ms: five of them. It asks for all other blocks too late."""
    rate_bps = 8 * BLOCK_BYTES * OVERHEAD / 0.01
    files = [Arrival(0, 10 * BLOCK_BYTES), Arrival(0, 10 * BLOCK_BYTES)]
    found = delivery_ratio(files, rate_bps, Repairs(0.1, 1e-6, (0.045, 0.1)))
    assert found == pytest.approx((0.9**5 + 3 * 0.9**10) / 4)


@given(streams, st.floats(0.0, 0.99), st.floats(1, 5000))
def test_fmtps_share_falls_with_loss_and_grows_with_the_timer(
    arrivals: list[Arrival], loss: float, f_snd: float
) -> None:
    def share(loss: float, f_snd: float) -> float:
        return delivery_ratio(arrivals, 20e6, Repairs(loss, f_snd, (0.036, 0.09)))

    assert share(0.0, f_snd) == 1.0
    assert 0 <= share(loss, f_snd) <= share(loss / 2, f_snd) <= 1
    assert share(loss, f_snd) <= share(loss, 2 * f_snd)


def trace(directory: Path) -> str:
    path = directory / "trace.txt"
    path.write_text("1000000 20150615000000.000\n1000000 20150615000000.000\n")
    return str(path)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rate-for", trace(tmp_path), "--latency", "4s"]) == 0
    out = capsys.readouterr().out
    assert "2 files, 2.0 MB in 0.0 s" in out
    assert "least rate: 4.15 Mbit/s" in out
    assert "buffer: 2.1 MB" in out


def test_the_command_with_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At 8.6 Mbit/s each file takes a second. With f_snd 0.5 all blocks but those of the first half
    second, less 90 ms, are asked for too late, and with 1 % loss none of the other files is
    complete."""
    words = ["--rate", "8600kbps", "--loss", "1%", "--f-snd", "0.5", "--rtt", "90ms"]
    assert cli.main(["rate-for", trace(tmp_path), *words]) == 0
    out = capsys.readouterr().out
    assert "rate: 8.60 Mbit/s (headers included)" in out and "least rate" not in out
    assert "FFDR: 0.76 % at 8.60 Mbit/s, with 1 % of the packets lost and f_snd = 0.5" in out


def test_small_rates_and_queues_keep_three_digits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of 1,000 bytes takes 1,036 bytes with its headers: 8.29 s at 1 kbit/s."""
    path = tmp_path / "small.txt"
    path.write_text("1000 20150615000000.000\n1000 20150615100000.000\n")
    words = [str(path), "--rate", "1kbps", "--loss", "1%"]
    assert cli.main(["rate-for", *words]) == 0
    out = capsys.readouterr().out
    assert "2 files, 0.00200 MB in 36000.0 s, 0.000000444 Mbit/s on average" in out
    assert "rate: 0.00100 Mbit/s (headers included)" in out
    assert "buffer: 0.00104 MB" in out
    assert " % at 0.00100 Mbit/s, with 1 % of the packets lost" in out
    rows = [line.split() for line in out.splitlines() if line.startswith("  ")]
    assert [row[0] for row in rows] == ["0.000500", "0.000800", "0.00100", "0.00125", "0.00200"]
    assert rows[2] == ["0.00100", "8.298", "8.298", "8.298", "0.00104"]
    assert cli.main(["rate-for", str(path), "--latency", "10s"]) == 0
    assert "least rate: 0.000830 Mbit/s" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "near"), [("models", "model"), ("paced:1", "paced")])
def test_a_wrong_trace_names_the_generated_ones(
    name: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rate-for", name, "--latency", "4s"]) == 2
    said = capsys.readouterr().err
    assert "found no readable file (No such file or directory); valid: model, paced, " in said
    assert ", model:conduit, model:nexrad2, model:nexrad3, model:ngrid-2020, or a regular" in said
    assert f"(did you mean '{near}'?)" in said


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "rate-for: found neither --latency nor --buffer; valid: at least one"),
        (["--rate", "5Mbps", "--latency", "4s"], "found --rate with --latency or --buffer"),
        (["--rate", "5Mbqs"], "found '5Mbqs'; valid: a rate above 0"),
        (["--rate", "5Mbps", "--loss", "100%"], "--loss: found '100%'; valid: a probability"),
        (["--rate", "5Mbps", "--loss", "x"], "--loss: found 'x'; valid: a probability"),
        (["--rate", "5Mbps", "--loss", "1%", "--f-snd", "nan"], "--f-snd: found 'nan'; valid: "),
        (["--rate", "5Mbps", "--loss", "1%", "--rtt", "9ms,"], "--rtt: found ''; valid: a time"),
        (["--latency", "4 parsecs"], "--latency: found '4 parsecs'; valid: "),
        (["--latency", "-1s"], "--latency: found '-1s'; valid: "),
        (["--latency", "4s", "--seed", "-1"], "--seed: found '-1'; valid: "),
        (["--buffer", "1MB"], "found no rate; valid: a buffer of at least 2.1 MB"),
    ],
)
def test_mistakes(
    tmp_path: Path, words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rate-for", trace(tmp_path), *words]) == 2
    assert expected in capsys.readouterr().err
