# SPDX-License-Identifier: Apache-2.0
"""Counters pages: the samples of the C reader's corpus, damage, and other files."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from experiments.cells.counters_page import Column, Page, PageError, Row, load, parse

CORPUS = Path(__file__).resolve().parents[2] / "common/c/fuzz/corpus/stats_page"


def test_two_tables() -> None:
    page = parse((CORPUS / "two").read_bytes())
    assert (page.program, page.pid, page.start_us) == ("mldm", 4711, 1_450_000_000_000_000)
    own, peers = page.tables
    assert own.columns == (Column("products", "counter", 0, "Products."),)
    assert own.rows == (Row({"feed": "NGRID"}, (7,)),)
    assert peers.columns[1] == Column("wait_seconds", "gauge", 9, "Wait.")
    assert peers.rows == (Row({"feed": "NGRID", "receiver": "10.0.0.1:5"}, (8, 9)),)


def test_a_row_that_is_being_written_is_left_out() -> None:
    data = bytearray((CORPUS / "one").read_bytes())
    data[-8:] = struct.pack("=Q", 3)
    (table,) = parse(bytes(data)).tables
    assert (table.rows, table.torn) == ((), 1)


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (0, b"X", "no counters page"),
        (8, b"\2", "found version 2; valid: 1"),
        (12, b"\1", "byte order"),
        (16, b"\0", "its header says 1024 bytes"),
        (20, b"\x63", "99 tables"),
        (384 + 88, b"\x63", "found 99 columns"),
        (384 + 99, b"\xff", "beyond the end"),
        (384 + 104, b"\1", "found rows of 1 bytes"),
        (496 + 40, b"\7", "found kind 7"),
    ],
)
def test_damage(at: int, value: bytes, said: str) -> None:
    data = bytearray((CORPUS / "one").read_bytes())
    data[at : at + 1] = value
    with pytest.raises(PageError, match=said):
        parse(bytes(data))


def test_any_bytes_are_refused_or_read() -> None:
    """Cuts and random changes of good pages cause no exception but PageError."""
    rng = random.Random(20)
    good = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    refused = 0
    for _ in range(3000):
        data = bytearray(rng.choice(good))
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        cut = bytes(data[: rng.randrange(len(data))]) if rng.random() < 0.2 else bytes(data)
        try:
            assert isinstance(parse(cut), Page)
        except PageError as error:
            refused += 1
            assert "\n" not in str(error)
    assert 300 < refused < 3000


def test_files(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes((CORPUS / "one").read_bytes())
    assert load(tmp_path / "good").program == "mldm"
    (tmp_path / "link").symlink_to("good")
    with pytest.raises(OSError, match="symbolic"):
        load(tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises((PageError, OSError)):
        load(tmp_path / "pipe")
