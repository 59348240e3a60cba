# SPDX-License-Identifier: Apache-2.0
"""deliveries.bin and minutes: exact, in any order, and bounded whatever the bytes are."""

from __future__ import annotations

import dataclasses
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.measure.delivered import (
    BACKSTOP,
    MAGIC,
    MULTICAST,
    REPAIRED,
    DeliveredError,
    decode,
    delivered_of,
    encode,
    minutes,
    totals,
)
from parsers.measure.deliveries import Arrival, Receiver, Sent
from parsers.measure.evaluate import Transports, evaluate
from parsers.measure.fmtp_values import mean_of
from parsers.measure.metrics import FmtpSums, of_sums
from parsers.read.ldm_log import Product
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run

BEGIN_S = 1_795_226_400  # a whole minute
BEGIN_US = BEGIN_S * 1_000_000
A = Product(1000, BEGIN_US + 59_000_000, "NGRID", 0, "A")
B = Product(3000, BEGIN_US + 59_500_000, "NGRID", 1, "B")
C = Product(500, BEGIN_US + 61_000_000, "NGRID", 2, "C")


def _receiver(arrivals: dict[Product, Arrival]) -> Receiver:
    return Receiver(arrivals, 0, 0, None)


def _two() -> dict[str, Receiver]:
    return {
        "near": _receiver(
            {
                A: Arrival(BEGIN_US + 59_100_000, "fmtp", 0.04, 0, 0),
                B: Arrival(BEGIN_US + 60_000_000, "fmtp", 0.3, 2, 1),  # in the next minute
                C: Arrival(BEGIN_US + 62_000_000, "backstop"),
            }
        ),
        "far": _receiver({C: Arrival(BEGIN_US + 60_999_990, "fmtp", -0.00003, 0, 2)}),  # its clock
    }


def test_what_goes_in_comes_out() -> None:
    found = decode(encode(delivered_of(BEGIN_S, Sent((A, B, C), "test"), _two())))
    assert found.receivers == ("near", "far")
    assert found.idents == ("A", "B", "C")
    assert found.created_us.tolist() == [59_000_000, 59_500_000, 61_000_000]
    assert found.size.tolist() == [1000, 3000, 500]
    assert found.way.tolist() == [[MULTICAST, REPAIRED, BACKSTOP], [0, 0, MULTICAST]]
    assert found.latency_us.tolist() == [[100_000, 500_000, 1_000_000], [0, 0, -10]]
    assert found.delay_us.tolist() == [[40_000, 300_000, 0], [0, 0, -30]]
    assert found.blocks.tolist() == [[0, 2, 0], [0, 0, 0]]


def test_minutes_by_hand() -> None:
    found = list(minutes(delivered_of(BEGIN_S, Sent((A, B, C), "test"), _two())))
    assert [(m.host, m.minute - BEGIN_S, dataclasses.astuple(m.sums)) for m in found] == [
        ("near", 0, (1, 1000, 1, 1000, 1, 1000, 40_000, 40_000, 0)),
        ("near", 60, (2, 3500, 1, 3000, 0, 0, 300_000, 0, 2)),
        ("far", 60, (1, 500, 1, 500, 1, 500, -30, -30, 0)),
    ]


def test_hours_come_from_numerators_and_denominators() -> None:
    """(1000 + 3000) bytes in (0.04 + 0.3) s; not a mean of the minutes' rates."""
    near = totals(delivered_of(BEGIN_S, Sent((A, B, C), "test"), _two()))["near"]
    found = of_sums(near)
    assert found.throughput_fmtp.value == 8_000_000 * 4000 / 340_000
    assert found.throughput_mc.value == 8_000_000 * 1000 / 40_000
    assert found.throughput_retx.value == 8_000_000 * 3000 / 300_000
    assert found.ffdr_count.value == pytest.approx(200 / 3)
    assert found.ffdr_size.value == pytest.approx(100 * 4000 / 4500)
    assert found.mplr.value == 100 * 2 * 1448 / 4000


def test_a_product_that_nobody_is_known_to_have_sent_is_kept() -> None:
    found = delivered_of(BEGIN_S, Sent((A,), "test"), _two())
    assert found.idents == ("A", "B", "C")


@pytest.mark.parametrize("backstop", [None, 3])
def test_sums_are_the_reports_metrics_to_the_last_bit(tmp_path: Path, backstop: int | None) -> None:
    cell = SyntheticCell("ldm7", m=3, duration_s=150, backstop_index=backstop)
    found = evaluate(write_synthetic_run(tmp_path / "run", cell))
    assert isinstance(found, Transports)
    (measured,) = found.cells
    delivered = decode(measured.delivered)
    for receiver in measured.receivers:
        of_minutes = sum(
            (m.sums for m in minutes(delivered) if m.host == receiver.host), FmtpSums()
        )
        assert of_sums(of_minutes) == receiver.fmtp
    of = {host: of_sums(sums) for host, sums in totals(delivered).items()}
    for name in ("throughput_fmtp", "throughput_mc", "ffdr_count", "ffdr_size", "mplr"):
        assert mean_of(dict(sorted(of.items())), name) == measured.values[name]


@pytest.mark.slow
@given(
    st.integers(0, 4),
    st.integers(0, 40),
    st.randoms(use_true_random=False),
)
def test_any_numbers_survive(m: int, n: int, random: object) -> None:
    draw = np.random.default_rng(random.getrandbits(32))  # type: ignore[attr-defined]
    found = decode(encode(delivered_of(BEGIN_S, Sent((), ""), {})))
    way = draw.integers(0, 7, (m, n))
    fmtp = np.isin(way, (1, 2))
    found = dataclasses.replace(
        found,
        receivers=tuple(f"r{i}" for i in range(m)),
        idents=tuple(f"p{i}" for i in range(n)),
        created_us=np.sort(draw.integers(-(2**40), 2**40, n)),
        size=draw.integers(0, 2**32, n),
        way=way,
        latency_us=draw.integers(-(2**45), 2**45, (m, n)),
        delay_us=np.where(fmtp, draw.integers(-(2**45), 2**45, (m, n)), 0),
        blocks=draw.integers(0, 2**20, (m, n)),
    )
    back = decode(encode(found))
    for name in ("created_us", "size", "way", "latency_us", "delay_us", "blocks"):
        assert (getattr(back, name) == getattr(found, name)).all(), name


def _with(header: dict[str, object]) -> bytes:
    whole = encode(delivered_of(BEGIN_S, Sent((A, B, C), "test"), _two()))
    (length,) = struct.unpack_from("<I", whole, 8)
    known = json.loads(whole[12 : 12 + length]) | header
    head = json.dumps(known).encode()
    return MAGIC + struct.pack("<I", len(head)) + head + whole[12 + length :]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "found b''"),
        (b"DPDELIV2" + bytes(20), "DPDELIV2"),
        (MAGIC + struct.pack("<I", 2**31), "not JSON"),
        (_with({"version": 2}), "another version"),
        (_with({"products": 2**40}), "products: found 1099511627776"),
        (_with({"products": 4}), "bytes of columns"),
        (_with({"receivers": ["one"]}), "bytes of columns"),
        (_with({"receivers": [1, 2]}), "without names"),
        (_with({"products": 2**22, "receivers": ["r"] * 4096}), "at most"),
        (_with({"columns": {}}), "created: found None"),
        (_with({"idents_bytes": True}), "idents_bytes: found True"),
        (_with({})[:-5], "bytes of columns"),
        (_with({})[:-40] + zlib.compress(b"x"), ""),
    ],
)
def test_bytes_that_are_no_deliveries(data: bytes, text: str) -> None:
    with pytest.raises(DeliveredError, match=text or None):
        decode(data)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_damage_never_crashes(noise: bytes, at: int) -> None:
    whole = bytearray(_with({}))
    whole[at : at + len(noise)] = noise
    for data in (bytes(whole), noise, MAGIC + noise):
        try:
            decode(data)
        except DeliveredError as error:
            assert "\n" not in str(error)
