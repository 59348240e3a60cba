# SPDX-License-Identifier: Apache-2.0
"""Readable quantities: what can be read, and that nothing else can."""

import pytest

from common.quantities import (
    format_rate,
    format_size,
    parse_delay_ms,
    parse_loss,
    parse_rate_bps,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        (1, 1),
        ("1bps", 1),
        ("1500kbps", 1_500_000),
        ("20Mbps", 20_000_000),
        ("20 Mbps", 20_000_000),
        ("0.5Gbps", 500_000_000),
        ("1Gbps", 1_000_000_000),
        ("100Gbps", 100_000_000_000),
    ],
)
def test_rates(text: object, rate_bps: int) -> None:
    assert parse_rate_bps(text) == rate_bps


@pytest.mark.parametrize(
    "text",
    # Cases that Mininet would silently ignore, look-alikes, and rates below a bit.
    [0, -1, "0Mbps", "20", "20mbps", "20MB", "Mbps", "1e6bps", "0.5bps", "١Mbps", " 1Mbps",
     "1  Mbps", "1Mbps\n", True, None, 1.5, [1], "9" * 16 + "bps", float("nan")],
)  # fmt: skip
def test_refused_rates(text: object) -> None:
    with pytest.raises(ValueError, match="a rate above 0"):
        parse_rate_bps(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("600MB", 600_000_000), ("12kB", 12_000), ("1KiB", 1024), ("2MiB", 2_097_152), (1518, 1518)],
)
def test_sizes(text: object, size_bytes: int) -> None:
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize("text", [0, "0B", "600mb", "600Mb", "600", "600 M", -5, False])
def test_refused_sizes(text: object) -> None:
    with pytest.raises(ValueError, match="a size above 0"):
        parse_size_bytes(text)


@pytest.mark.parametrize(
    ("text", "loss"), [(0, 0.0), (1, 1.0), (0.01, 0.01), ("1%", 0.01), ("0.5 %", 0.005)]
)
def test_loss(text: object, loss: float) -> None:
    assert parse_loss(text) == loss


@pytest.mark.parametrize("text", [-0.1, 1.01, "101%", "1", "-1%", True, float("nan"), None])
def test_refused_loss(text: object) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        parse_loss(text)


@pytest.mark.parametrize("delay", [-1, "18ms", True, float("nan"), float("inf"), 60_001, None])
def test_refused_delays(delay: object) -> None:
    with pytest.raises(ValueError, match="milliseconds, 0 or more"):
        parse_delay_ms(delay)


@pytest.mark.parametrize("rate_bps", [1, 999, 1000, 1_500_000, 20_000_000, 1_000_000_000])
def test_formatted_rates_read_back(rate_bps: int) -> None:
    assert parse_rate_bps(format_rate(rate_bps)) == rate_bps


@pytest.mark.parametrize(
    ("size", "text"), [(12_000_000, "12MB"), (11_250_000, "11250kB"), (7, "7B")]
)
def test_formatted_sizes(size: int, text: str) -> None:
    assert format_size(size) == text
    assert parse_size_bytes(text) == size
