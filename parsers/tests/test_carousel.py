# SPDX-License-Identifier: Apache-2.0
"""A carousel's logs and metrics, and Fcast's formula."""

from __future__ import annotations

from typing import Any

import pytest

from parsers.measure import carousel, storage
from parsers.measure.carousel import CarouselData, expected_files
from parsers.measure.side_by_side import deliveries_of
from parsers.measure.summary import CellData
from parsers.read.cell_files import Cell
from parsers.read.fcast_log import parse_receiver, parse_sender

SENT = """\
fcast-send: toi=1 bytes=1048576 name=/q/file
fcast-send: tsi=1 files=1 bytes=1048576 symbol_bytes=1024
files=1 bytes=1048576 datagrams=1450 source=1025 repair=420 control=5 rounds=0 index=45 \
read_errors=0 send_errors=0 seconds=1.290
"""
GOT = """\
toi=1 bytes=1048576 seconds=1.100 received=1126 lost=128 useful=1026 digest=good name=file
files=1 bytes=1048576 received=1127 lost=129 out_of_order=0 redundant=100 stray=0 malformed=0 \
forged=0 conflicting=0 refused=0 evicted=0 decoded_blocks=30 restored=100 wrong=0 unstored=0 \
store_errors=0 socket_drops=0 seconds=1.101 result=complete
"""
DISK = """storage=crowd-bucket io=direct crowd=4 peak_blocks=8 memory_bytes=300000 \
rss_bytes=6000000 writes=256 seeks=255 written_bytes=1048576 write_seconds=1.048576 reads=0 """


def cell(**parameters: object) -> Cell:
    values: dict[str, Any] = {
        **{"cell": "x", "experiment": "x", "protocol": "fcast", "m": 1, "r_bps": 1e7},
        **{"loss": 0.1, "duration_s": 60, "publisher": "p", "subscribers": ["s"], "nic1": "e"},
        **{"insertion_started": 0, "insertion_ended": 0, "cores": 1, "parameters": parameters},
        "trace": {"source": "one file", "products": 1, "bytes": 1048576},
    }
    return Cell.model_validate(values)


@pytest.mark.parametrize(
    ("k", "groups", "loss", "files"),
    [
        *[(4, 256, 0.1, 1.902), (8, 128, 0.1, 1.559), (16, 64, 0.1, 1.368), (32, 32, 0.1, 1.259)],
        *[(128, 8, 0.1, 1.157), (1024, 1, 0.1, 1.111), (4, 256, 0.4, 3.82), (32, 32, 0.4, 2.094)],
        *[(32, 1, 0.0, 1.0)],
    ],
)
def test_the_formula(k: int, groups: int, loss: float, files: float) -> None:
    """For 1 MB in blocks of 1 KB; the values were computed independently of this program."""
    assert expected_files(k, groups, loss) == pytest.approx(files, abs=0.006)


def test_what_the_programs_say() -> None:
    sender, receiver = parse_sender(SENT), parse_receiver(GOT)
    assert sender is not None
    assert (sender.datagrams, sender.symbol_bytes, sender.seconds) == (1450, 1024, 1.29)
    assert receiver is not None
    assert (receiver.received, receiver.lost, receiver.complete) == (1127, 129, True)
    assert (receiver.file_s, receiver.file_received, receiver.file_useful) == (1.1, 1126, 1026)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [0.95, 0.99, 0.999_999])
def test_the_formula_where_nearly_all_is_lost(loss: float) -> None:
    """(1 - loss)^k is below the smallest number there. For one group: 1 / (1 - loss) by hand."""
    one = expected_files(255, 1, loss)
    assert one == pytest.approx(1 / (1 - loss), rel=1e-4)
    assert one < expected_files(255, 400, loss) < 2 * one


@pytest.mark.parametrize("cut", [1, 40, 120])
def test_half_a_log_says_nothing(cut: int) -> None:
    assert parse_sender(SENT[:-cut]) is None
    assert parse_receiver(GOT[:-cut]) is None
    assert parse_receiver("") is None


def test_listening_time_is_counted_in_files() -> None:
    waited = carousel.parse_tune_ins('{"s": {"at_s": -0.1, "waited_s": 0.1}}', "x")
    data = CarouselData(parse_sender(SENT), {"s": parse_receiver(GOT)}, waited)
    values = carousel.carousel_values(cell(fec="rs", k=32), data)
    assert values["listening_time"].value == pytest.approx((1126 + 128) / 1024)
    assert values["symbols_received"].value == pytest.approx(1126 / 1024)
    assert values["symbols_needed"].value == pytest.approx(1026 / 1024)
    assert values["listening_formula"].value == pytest.approx(1.259, abs=0.006)
    assert set(values) == set(carousel.NAMES)
    times = carousel.download_values(cell(), data)
    assert times["latency_max"].value == pytest.approx(1.0)
    assert times["throughput"].value == pytest.approx(8 * 1048576 / 1.0)


def test_runs_are_compared_by_what_receivers_got() -> None:
    data = CarouselData(parse_sender(SENT), {"s": parse_receiver(GOT), "late": None})
    found = deliveries_of(CellData(cell(), carousel=data))
    assert [(d.arrived_us, d.retrans) for d in found["s"]] == [(1_100_000, 128)]
    assert "late" not in found


def test_what_has_no_value_says_why() -> None:
    data = CarouselData(parse_sender(SENT), {"s": parse_receiver(GOT), "late": None})
    ldpc = carousel.carousel_values(cell(fec="ldpc-triangle"), data)
    assert "Reed-Solomon" in ldpc["listening_formula"].reason
    assert "1 receivers" in ldpc["listening_time"].note
    none = carousel.carousel_values(cell(), CarouselData(None, {"s": None}))
    assert "no receiver completed" in none["listening_time"].reason
    assert carousel.carousel_values(cell(), None)["listening_max"].reason == carousel.NO_CAROUSEL


def test_what_a_scheme_of_storage_costs() -> None:
    text = GOT.replace("seconds=1.101", f"{DISK}seconds=1.101")
    data = CarouselData(parse_sender(SENT), {"s": parse_receiver(text)})
    told: dict[str, object] = {"fec": "rs", "k": 32, "storage": "crowd-bucket", "crowd": 4}
    values = carousel.carousel_values(cell(**told, symbol_bytes=1024), data)
    assert values["disk_rate"].value == pytest.approx(8e6)
    assert values["disk_seeks"].value == pytest.approx(255 / 1024)
    assert values["scheme_memory"].value == 300_000
    assert values["scheme_formula"].value == 32 * 4 * 1024
    assert values["rss"].value == 6_000_000
    quick = text.replace("write_seconds=1.048576", "write_seconds=0.001")
    data = CarouselData(parse_sender(SENT), {"s": parse_receiver(quick)})
    assert "in writes" in carousel.carousel_values(cell(), data)["disk_rate"].reason
    old = CarouselData(parse_sender(SENT), {"s": parse_receiver(GOT)})
    assert "do not say" in carousel.carousel_values(cell(), old)["rss"].reason


def test_memory_by_the_report() -> None:
    """Fig. 18 with k = 64 and blocks of 1 KB: the lines cross at 68 MB and at 516 MB."""
    assert [storage.scheme_blocks("crowd-bucket", 1, 64, b) for b in (16, 128)] == [1024, 8192]
    for b, crossing_mb in ((16, 68), (128, 516)):
        below, above = (storage.pool_blocks(int(f * crossing_mb * 1000), 64, b) for f in (0.8, 1.3))
        assert below < 64 * b < above
    # The continuous function, which the integers approximate.
    assert storage.pool_blocks(1_000_000, 64, 16) == pytest.approx((1e6 * 15) ** 0.5, rel=0.05)
    assert storage.pool_blocks(4, 2, 1) == 2
    assert storage.scheme_blocks("in-place", 1000, 64, 4) is None
