# SPDX-License-Identifier: Apache-2.0
"""Minute records of both versions and LDM's classic lines; a record that comes twice or late counts
once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor import minute_text, records
from monitor.records import FeedPath, Hour, Minute, RecordError, Records, record
from monitor.store import Store
from parsers.measure.metrics import FmtpSums, of_sums

V1 = "20150615T000100Z,here,NGRID,1500,700,4,3,3.000000,100,1.000000,100,1.000000,3200.000,0"
V2 = V1 + ",2,300,-0.100001,3,-0.099981"  # as ldm7/site/rtstats/tests/test_rtstats.c has it
# Columns as rtstats/binstats.c of LDM 6.15 prints them.
CLASSIC = (
    "20150615001530 20150615001532 idd.example.edu NEXRAD2 relay.example.edu_v_idd.example.edu"
    "  1234  99999999   2.13  1.05   57@1502 6.15.0"
)
PATH = "20150615T000100Z,pub,NGRID,p-NGRID,48000000,6"  # as test_rtstats.c has it
MINUTE = 1_434_326_400  # 2015-06-15T00:00:00Z


def test_version_1_says_what_it_can() -> None:
    assert record(V1) == Minute(
        "here", "NGRID", MINUTE, 4, 1500, 3, 700, 3_000_000, 1_000_000, 0, None
    )


def test_version_2_has_the_papers_sums() -> None:
    found = record(V2 + "\n")
    assert isinstance(found, Minute)
    assert found.sums == FmtpSums(4, 1500, 3, 700, 2, 300, -99_981, -100_001, 3)


def test_a_publishers_line() -> None:
    assert record(PATH) == FeedPath("pub", "NGRID", MINUTE, "p-NGRID", 48_000_000, 6)


def test_the_originals_line() -> None:
    """Column 8 is the newest product's latency and 9 the mean: not the other way round."""
    assert record(CLASSIC) == Hour(
        "idd.example.edu", "NEXRAD2", "relay.example.edu_v_idd.example.edu", MINUTE, 1234,
        99_999_999, 2.13, 1.05, 57, MINUTE + 15 * 60 + 32,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("newest", "mean", "slowest", "expected"),
    [
        ("3.1500001", "1.05", "57@1502", (3.1500001, 1.05, 57)),
        ("9.9999997e-05", "0.00", "0@0000", (9.9999997e-05, 0.0, 0)),  # %.8g
        ("-0.25", "-0.25", "0@0000", (-0.25, -0.25, 0)),  # a publisher's clock is ahead
        ("12345.678", "9999.00", "86400@5959", (12345.678, 9999.0, 86400)),
    ],
)
def test_the_originals_columns_are_padded(
    newest: str, mean: str, slowest: str, expected: tuple[float, float, int]
) -> None:
    """LDM 6.15 pads texts and numbers on the left to these widths."""
    at, mmss = slowest.split("@")
    line = (
        f"20150615001530 20150615001532 {'idd.example.edu':>32} {'NEXRAD2':>7} "
        f"{'relay.example.edu_v_idd.example.edu':>32} {1234:>12} {99999999:>12} {newest} "
        f"{mean:>10} {at:>4}@{mmss} {'6.15.0':>20}\n"
    )
    found = record(line)
    assert isinstance(found, Hour)
    assert (found.latest_s, found.mean_s, found.max_s) == expected
    assert (found.host, found.feed, found.products) == ("idd.example.edu", "NEXRAD2", 1234)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("", "0 columns"),
        (V1 + ",5", "15 fields"),
        (V1.replace("000100Z", "000130Z"), "end of a minute"),
        (V1.replace("20150615T", "20151315T"), "found time"),
        (V1.replace("here", "<script>"), "host"),
        (V1.replace("NGRID", "a b"), "feed"),
        (V1.replace(",1500,", ",-1,"), "field 4"),
        (V1.replace(",1500,", ",99999999999999999999,"), "field 4"),
        (V1.replace(",1500,", ",600,"), "more received"),
        (V1.replace("3.000000", "nan"), "field 8"),
        (V1.replace("3.000000", "1e99"), "field 8"),
        (V2.replace(",2,300,", ",5,300,"), "multicast alone"),
        ("x" * 2000, "2000 characters"),
        (PATH.replace("000100Z", "000130Z"), "end of a minute"),
        (PATH.replace("p-NGRID", "a b"), "path"),
        (PATH.replace("48000000", "fast"), "field 5"),
        (PATH.replace(",6", ",-6"), "field 6"),
        (CLASSIC.replace("57@1502", "57"), "column 10"),
        (CLASSIC.replace("1.05", "inf"), "column 9"),
    ],
)
def test_lines_that_are_no_records(line: str, text: str) -> None:
    with pytest.raises(RecordError, match=text):
        record(line)


@given(st.text(max_size=300), st.integers(0, 200))
def test_any_text_is_a_record_or_a_reason(noise: str, at: int) -> None:
    records = Records()
    records.take([noise, V2[:at] + noise + V2[at:], CLASSIC[:at] + noise, PATH[:at] + noise])
    assert records.taken + records.bad == 4


def _minute(n: int, minute: int = 1, host: str = "h") -> str:
    head = f"20150615T00{minute:02}00Z,{host},NGRID,{n},{n},{n},{n},1.0,1,1.0,1,1.0,1.0,0"
    return f"{head},{n},{n},{n}.5,0,{n}.5"


def test_partial_late_and_repeated_records_count_once() -> None:
    """rtstats was killed twice within minute 2: the complete record is the one that counts, in any
    order, over several imports, and with version 1 beside version 2."""
    lines = [_minute(5, 1), _minute(3, 2), _minute(7, 2), _minute(2, 3), _minute(4, 1, "other")]
    lines += [",".join(line.split(",")[:14]) for line in lines]
    for seed in range(20):
        store = Store(None)
        shuffled = lines * 2
        random.Random(seed).shuffle(shuffled)
        for part in (shuffled[:7], shuffled[7:]):
            records = Records()
            records.take(part)
            store.put_records("run", "virtual", records)
        (source,) = store.sources()
        found = store.minutes(source.id, 10**11)
        assert [(i.host, i.minutes, i.whole, i.sums.files_all) for i in found] == [
            ("h", 3, True, 14),
            ("other", 1, True, 4),
        ]
        assert found[0].sums.delay_us == 1_000_000 * (5 + 7 + 2) + 3 * 500_000
        store.close()


def test_hours_come_from_numerators_and_denominators() -> None:
    store, records = Store(None), Records()
    records.take(
        [
            V2,
            "20150615T000200Z,here,NGRID,2000,2000,1,1,9.0,1,1.0,1,1.0,1.0,0,1,2000,0.5,0,0.5",
            V2.replace("T000100Z", "T010100Z"),
        ]
    )
    store.put_records("run", "native", records)
    first, second = store.minutes(1, 3600)
    assert (first.begin, second.begin) == (MINUTE, MINUTE + 3600)
    assert of_sums(first.sums).throughput_fmtp.value == 8_000_000 * 2700 / (500_000 - 99_981)
    assert of_sums(second.sums).throughput_fmtp.value is None
    assert first.age_us == 12_000_000  # a different quantity from the delay since BOP
    text = minute_text.table([first, second], [], with_time=True)
    assert text.splitlines()[1].split()[:5] == ["here", "NGRID", "2015-06-15", "00:00", "5"]
    store.close()


def test_a_store_without_minutes_gets_them(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "old.db"
    store = Store(path)
    store.close()
    with sqlite3.connect(path) as db:
        later = ("minute", "hour", "coarse", "path")
        db.executescript("".join(f"DROP TABLE {t};" for t in later) + "PRAGMA user_version = 1")
    store, records = Store(path), Records()
    records.take([V2])
    store.put_records("run", "native", records)
    assert len(store.minutes(1)) == 1
    store.close()


def test_paths_are_kept_and_shown() -> None:
    """The newest record of each step is kept; a record that comes again counts once."""
    store, records = Store(None), Records()
    later = PATH.replace("T000100Z", "T002100Z").replace(",6", ",4")
    records.take([V2, PATH, later, PATH, PATH.replace("p-NGRID", "p-HDS").replace("pub,", "far,")])
    store.put_records("run", "native", records)
    store.put_records("run", "native", records)
    kept = store.paths(1, 10**11)
    assert [(p.host, p.path, p.leaves) for p in kept] == [
        ("far", "p-HDS", 6),
        ("pub", "p-NGRID", 4),
    ]
    assert [p.leaves for p in store.paths(1, 60, "pub")] == [6, 4]
    text = minute_text.table(store.minutes(1, 10**11), kept, with_time=False).splitlines()
    assert [line.split() for line in text[-3:]] == [
        ["publisher", "feed", "state", "path", "rate", "leaves"],
        ["far", "NGRID", "quiet", "p-HDS", "48", "Mbit/s", "6"],
        ["pub", "NGRID", "active", "p-NGRID", "48", "Mbit/s", "4"],
    ]
    store.forget("run", 600)
    assert [p.leaves for p in store.paths(1, 60, "pub")] == [4]
    store.close()


def test_states_are_the_papers() -> None:
    assert [minute_text.state(0, age) for age in (599, 600, 3599, 3600)] == [
        "active", "quiet", "quiet", "unavailable",
    ]  # fmt: skip


def test_junk_is_bounded() -> None:
    records = Records()
    records.take(f"junk {n}" for n in range(20_000))
    assert (records.taken, records.bad, len(records.minutes)) == (0, 20_000, 0)
    assert len(records.first_bad) < 200


def test_invented_hosts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_RECORDS", 10)
    found = Records()
    found.take(V2.replace("here", f"h{number}") for number in range(30))
    found.take([V2.replace("here", "h3"), CLASSIC])
    assert (len(found.minutes), len(found.hours), found.bad) == (10, 0, 21)
    assert "more than 10 records" in found.first_bad
