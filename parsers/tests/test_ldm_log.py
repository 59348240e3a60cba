# SPDX-License-Identifier: Apache-2.0
"""Log lines and the records made of them, compared with golden samples."""

from __future__ import annotations

import calendar
import random
from pathlib import Path

import pytest

from parsers.measure.deliveries import receiver_of, sent_by
from parsers.read.ldm_log import (
    Backlog,
    Duplicate,
    Inserted,
    Missed,
    Multicasted,
    Notice,
    PathEvent,
    Product,
    Received,
    ReceiverStats,
    Receiving,
    Released,
    Replayed,
    SenderStats,
    Sending,
    parse_ldm_log,
    parse_product,
)

GOLDEN = Path(__file__).parent / "golden"
# 2026-11-21T01:46:00Z, by the calendar and not by the parser
MINUTE_US = calendar.timegm((2026, 11, 21, 1, 46, 0, 0, 0, 0)) * 1_000_000


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


def product(size: int, created_us: int, seqno: int, ident: str) -> Product:
    return Product(size, MINUTE_US + created_us, "NGRID", seqno, ident)


FIRST = product(90654, 5_200_000, 0, "NAME.000000")
SECOND = product(91495, 5_202_000, 1, "NAME.000001")
THIRD = product(50421, 5_204_000, 2, "NAME.000002")


def test_ldm7_receiver_every_record() -> None:
    log = parse_ldm_log(golden("ldm7_receiver.log"), "r.log")
    assert log.problems == ()
    assert log.lines == 10
    assert log.other_lines == 1  # the subscription's reply
    assert list(log.records) == [
        Receiving(MINUTE_US + 10_000, "down7", 411),
        Received(MINUTE_US + 5_251_701, "down7", 411, 0.001701, 0, 0, FIRST),
        Received(MINUTE_US + 5_500_000, "down7", 411, 0.25, 1, 6, SECOND),
        Missed(MINUTE_US + 5_600_000, "down7", 411, 2),
        Inserted(MINUTE_US + 6_000_001, "down7", 411, "backstop", THIRD),
        Backlog(
            MINUTE_US + 6_100_000,
            "down7",
            411,
            product(12725, -1, 3, 'name with spaces "and quotes"'),
        ),
        Duplicate(MINUTE_US + 6_200_000, "down7", 411, "d41d8cd98f00b204e9800998ecf8427e", 12725),
        Notice(MINUTE_US + 6_300_000, "down7", 411, "ERROR", "connection to 10.0.0.1 lost"),
        ReceiverStats(
            MINUTE_US + 10_000_000, "down7", 411, 260, 180, 1, 2, 1, 7, 6, 0, 2, 600000000
        ),
    ]


def test_path_events() -> None:
    log = parse_ldm_log(golden("ldm7_paths.log"), "p.log")
    root, leaf = "star:4:101", "ashb:2:303"
    assert list(log.records) == [
        PathEvent(MINUTE_US - 900_000, "mldm", 402, "path ready", "NGRID", root, 0.03125, 0),
        PathEvent(MINUTE_US + 41_000, "mldm", 402, "leaf added", "NGRID", leaf, 0.0125, 1),
        Notice(
            MINUTE_US + 1_000_000,
            "mldm",
            402,
            "WARN",
            "Path service: refused: path=NGRID, endpoint=star:5:404, status=409, "
            'problem="Not enough capacity"',
        ),
        PathEvent(MINUTE_US + 2_000_000, "mldm", 402, "leaf removed", "NGRID", leaf, 0.008, 0),
        PathEvent(MINUTE_US + 4_000_000, "mldm", 402, "path deleted", "NGRID", "", 0.004, None),
    ]
    assert log.other_lines == 1  # no answer
    (problem,) = log.problems
    assert (problem.line, problem.reason) == (7, "expected endpoint=...")


def test_ldm7_sender_every_record() -> None:
    log = parse_ldm_log(golden("ldm7_sender.log"), "s.log")
    assert log.problems == ()
    assert list(log.records) == [
        Multicasted(MINUTE_US + 5_201_000, "mldm", 402, 0, FIRST),
        Multicasted(MINUTE_US + 5_260_000, "mldm", 402, 1, SECOND),
        Multicasted(MINUTE_US + 5_270_000, "mldm", 402, 2, THIRD),
        Released(MINUTE_US + 5_560_000, "mldm", 402, 0, "all-done"),
        Released(MINUTE_US + 5_570_000, "mldm", 402, 2, "timeout"),
        Sending(MINUTE_US + 9_000_000, "up6", 403, THIRD),
        SenderStats(MINUTE_US + 10_000_000, "mldm", 402, 3, 167, 235000, 161, 7, 6, 8688, 1, 1, 0),
    ]
    sent = sent_by("ldm7", log, None)
    assert sent.order == (FIRST, SECOND, THIRD)
    assert sent.released == {"all-done": 1, "timeout": 1}


def test_inserted_means_who_says_it() -> None:
    ldm6 = parse_ldm_log(golden("ldm6_receiver.log"), "r6.log")
    (record,) = ldm6.of(Inserted)
    assert record.via == "ldm6"
    assert record.product.seqno == 0
    ingest = parse_ldm_log(golden("pqinsert.log"), "i.log")
    assert [r.via for r in ingest.of(Inserted)] == ["ingest"] * 3
    assert ingest.of(Replayed) == [
        Replayed(MINUTE_US + 5_205_000, "pqinsert", 400, 3, 232570, 0.005, 0.1, 0.1)
    ]


def test_malformed_lines_are_told_with_file_and_line() -> None:
    log = parse_ldm_log(golden("ldm_malformed.log"), "bad.log")
    assert len(log.records) == 1  # the first line only
    assert [p.line for p in log.problems] == list(range(2, 12))
    told = [str(p) for p in log.problems]
    assert told[0].startswith("bad.log:2: not a log line")
    assert "Segmentation fault" in told[0]
    assert "month must be in 1..12" in told[1]
    assert "expected Missed: index=I" in told[2]
    assert "expected Received" in told[3]
    assert "day is out of range" in told[4]
    assert "neither pqinsert" in told[5]
    assert "'datagrams=many'" in told[6]
    assert "counters missing: datagrams" in told[7]
    assert "expected Released" in told[8]
    # A cut-off line would parse, with another name for the product.
    assert told[9].startswith("bad.log:11: the last line is cut off")


def test_a_cut_off_last_line_is_reported_wherever_it_is_cut() -> None:
    text = golden("ldm7_receiver.log")
    whole = parse_ldm_log(text, "r.log")
    for cut in range(1, 200):
        log = parse_ldm_log(text[:-cut], "r.log")
        assert log.records == whole.records[:-1]
        assert [p.line for p in log.problems] == [10]


def test_order_of_lines_does_not_matter() -> None:
    for name, is_sender in (("ldm7_receiver.log", False), ("ldm7_sender.log", True)):
        lines = golden(name).splitlines(keepends=True)
        expected = parse_ldm_log("".join(lines), name)
        for seed in range(20):
            shuffled = lines[:]
            random.Random(seed).shuffle(shuffled)
            log = parse_ldm_log("".join(shuffled), name)
            assert set(log.records) == set(expected.records)
            if is_sender:
                assert sent_by("ldm7", log, None) == sent_by("ldm7", expected, None)
            else:
                assert receiver_of(log) == receiver_of(expected)


def test_a_product_counts_once_by_its_first_arrival() -> None:
    text = golden("ldm7_receiver.log")
    again = text + text.replace("T014605.251701Z", "T014605.900000Z")
    arrivals = receiver_of(parse_ldm_log(again, "r.log")).arrivals
    assert arrivals[FIRST].time_us == MINUTE_US + 5_251_701
    # 5.251701 - 5.200000
    assert arrivals[FIRST].latency_s(FIRST) == pytest.approx(0.051701, abs=1e-12)
    assert {a.how for a in arrivals.values()} == {"fmtp", "backstop", "backlog"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "12 20261121014605.2 NGRID 000  x",
        "-12 20261121014605.200000 NGRID 000  x",
        "12 20261121014605.200000 NGRID 00  x",
        "12 20261121014605.200000 NGRID 000  ",
        "12 20261121246000.200000 NGRID 000  x",
    ],
)
def test_bad_products_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_product(text)


def test_times_are_exact_to_the_microsecond() -> None:
    for fraction in ("000000", "000001", "999999"):
        found = parse_product(f"1 20261121014600.{fraction} NGRID 000  x")
        assert found.created_us == MINUTE_US + int(fraction)


def test_a_product_is_one_object_whichever_line_names_it() -> None:
    """Lines pad its size differently; the reader of a long run must not keep each form."""
    stamp, info = "20261121T014605.251701Z", "1234 20261121014605.200000 NGRID 007  NGRID.7"
    log = parse_ldm_log(
        f"{stamp} pqinsert[1]   pqinsert.c:insert:1   INFO Inserted:       {info}\n"
        f'{stamp} mldm[2]   mldm.c:sent:1   INFO Multicasted: prodIndex=7, prodInfo="  {info}"\n'
        f"{stamp} down7[3]   down7.c:ended:1   INFO Received: {{delay: 0.1 s, index: 7, "
        f'retrans: 0, info: "      {info}"}}\n',
        "x.log",
    )
    (inserted,), (sent,) = log.of(Inserted), log.of(Multicasted)
    (received,) = log.of(Received)
    assert inserted.product is sent.product is received.product


def test_noise_never_raises() -> None:
    rng = random.Random(7)
    text = golden("ldm7_receiver.log")
    for _ in range(300):
        damaged = bytearray(text.encode())
        for _ in range(rng.randrange(1, 12)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        log = parse_ldm_log(damaged.decode("utf-8", "replace"), "noise.log")
        assert len(log.records) + len(log.problems) + log.other_lines == log.lines
