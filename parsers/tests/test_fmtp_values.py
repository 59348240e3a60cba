# SPDX-License-Identifier: Apache-2.0
"""DRFSM21 3.2 of a cell: means over the subscribers, as in its Fig. 13."""

from __future__ import annotations

from typing import Any

import pytest

from parsers.measure.deliveries import Arrival, Receiver, Sent
from parsers.measure.fmtp_values import fmtp_values
from parsers.measure.pieces import pieces_of
from parsers.read.cell_files import Cell
from parsers.read.ldm_log import Product


def cell(**changes: Any) -> Cell:
    values = {
        **{"cell": "c", "experiment": "e", "protocol": "ldm7", "m": 2, "r_bps": 20e6, "loss": 0},
        **{"duration_s": 2, "publisher": "p", "subscribers": ["a", "b"], "nic1": "p0"},
        **{"trace": {"source": "model"}, "cores": 1},
        **{"insertion_started": 1000.0, "insertion_ended": 1002.0},
    }
    return Cell.model_validate({**values, **changes})


def product(number: int, size_bytes: int) -> Product:
    return Product(size_bytes, 1_000_000_000 + number, "NGRID", number, f"NGRID.{number:06d}")


A, B, C = product(1, 1000), product(2, 2000), product(3, 1000)


def fmtp(delay_s: float, retrans: int = 0) -> Arrival:
    return Arrival(1_001_000_000, "fmtp", delay_s, retrans)


def receiver(**by: Arrival) -> Receiver:
    return Receiver({{"A": A, "B": B, "C": C}[n]: found for n, found in by.items()}, 0, 0, None)


NEAR = receiver(A=fmtp(0.1), B=fmtp(0.2, 1), C=fmtp(0.1))
FAR = receiver(A=fmtp(0.4), B=fmtp(1.0, 2), C=Arrival(1_001_000_000, "backstop"))


def test_the_cells_value_is_the_mean_over_subscribers() -> None:
    found = fmtp_values(cell(), {"a": NEAR, "b": FAR})
    shown = {name: value.value for name, value in found.items()}
    expected = {
        # a: 32 kbit / 0.4 s = 80; b: 24 kbit / 1.4 s = 17.143 kbit/s. All files: 31.111
        "throughput_fmtp": (80_000 + 24_000 / 1.4) / 2,
        "throughput_mc": (80_000 + 20_000) / 2,  # 16 kbit / 0.2 s; 8 kbit / 0.4 s
        "throughput_retx": (80_000 + 16_000) / 2,  # 16 kbit / 0.2 s; 16 kbit / 1 s
        "ffdr_count": (100 + 200 / 3) / 2,
        "ffdr_size": (100 + 75) / 2,
        "mplr": (36.2 + 2 * 144.8 / 3) / 2,  # 1448 of 4000 bytes; 2896 of 3000
        "repaired_files": (100 / 3 + 50) / 2,
        "retransmitted_blocks": 3,
    }
    assert {name: shown[name] for name in expected} == pytest.approx(expected)


def test_files_that_a_subscriber_lacks_do_not_count_in_its_mean() -> None:
    """b needed no repair: eq. 3 is a's, 16 kbit / 0.2 s, and the note names b."""
    whole = receiver(A=fmtp(0.4), B=fmtp(1.0))
    found = fmtp_values(cell(), {"a": NEAR, "b": whole})["throughput_retx"]
    assert found.value == pytest.approx(80_000)
    assert found.note == "without b: no retransmission-needing file"
    none = fmtp_values(cell(), {"a": whole, "b": whole})["throughput_retx"]
    assert none.reason == "a: no retransmission-needing file"


def test_without_a_subscribers_value_there_is_no_mean() -> None:
    """As for throughput, MPUP16 eq. 3; a subscriber by LDM6 is not asked."""
    pulled = receiver(A=Arrival(1_001_000_000, "backstop"))
    found = fmtp_values(cell(), {"a": NEAR, "b": pulled})
    assert found["throughput_fmtp"].reason == "b: no FMTP-received file"
    assert found["mplr"].reason == "b: FMTP delivered no byte"
    assert found["ffdr_count"].value == pytest.approx(50)
    assert fmtp_values(cell(), {"a": NEAR})["mplr"].reason == "no log of b"
    by_tcp = receiver(A=Arrival(1_001_000_000, "ldm6"))
    mixed = fmtp_values(cell(ldm6_subscribers=["b"]), {"a": NEAR, "b": by_tcp})
    assert mixed["throughput_fmtp"].value == pytest.approx(80_000)
    assert fmtp_values(cell(protocol="ldm6"), {})["mplr"].reason == "defined for LDM7 only"


def test_pieces_have_the_same_mean() -> None:
    receivers = {"a": NEAR, "b": FAR}
    whole = pieces_of(cell(), Sent((A, B, C), "test"), receivers).whole["throughput_fmtp"]
    assert whole.value() == pytest.approx((80_000 + 24_000 / 1.4) / 2)
