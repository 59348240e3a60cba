# SPDX-License-Identifier: Apache-2.0
"""Files of --qlog: what programs write, what a kill leaves, and what strangers may write."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.places import ROOT
from monitor.qlog import SCHEMA, Qlog, QlogError, parse, trace_events
from monitor.trace import lines

HEAD = json.dumps({"trace": {"vantage_point": {"name": "mldm.7"}, "event_schemas": [SCHEMA]}})


def file(*records: str) -> bytes:
    return b"".join(b"\x1e" + r.encode() + b"\n" for r in (HEAD, *records))


def record(time_ms: float, event: str, **data: object) -> str:
    return json.dumps({"time": time_ms, "name": f"fmtp:{event}", "data": data})


def test_a_slice_from_start_to_end() -> None:
    found = parse(file(
        record(1000.5, "product_started", index=3, bytes=10, name="a"),
        record(1000.75, "receiver_left", host="10.0.0.1", receivers=0),
        record(1001, "product_released", index=3, why="all-done"),
        record(1002, "product_missed", index=9),
    ))  # fmt: skip
    assert (found.program, found.bad) == ("mldm.7", 0)
    events = [(e["ph"], e["name"], e.get("ts"), e.get("id")) for e in trace_events([found])]
    assert events == [
        ("M", "process_name", None, None),
        ("b", "a", 0, "1.0.3"),
        ("i", "receiver_left", 250, None),
        ("e", "a", 500, "1.0.3"),
        ("i", "product_missed", 1500, None),
    ]


def test_losses_and_requests_are_marks_of_their_product() -> None:
    found = parse(file(
        record(1, "product_started", index=3, bytes=5000, name="a"),
        record(2, "block_lost", index=3, first=1, blocks=2),
        record(3, "repair_requested", index=3, blocks=2, by="tcp"),
        record(3, "repair_sent", index=3, blocks=2, by="tcp"),
        record(3, "timer_expired", index=3, timer="patience"),
        record(3, "queue_full", index=3),
        record(4, "product_completed", index=3, retx_blocks=2, delay_s=0.003),
        record(5, "block_lost", index=4, first=0, blocks=1),
    ))  # fmt: skip
    marks = [(e["ph"], e["name"], e.get("id")) for e in trace_events([found])][2:]
    assert marks == [
        ("n", "block_lost", "1.0.3"),
        ("n", "repair_requested", "1.0.3"),
        ("n", "repair_sent", "1.0.3"),
        ("n", "timer_expired", "1.0.3"),
        ("n", "queue_full", "1.0.3"),
        ("e", "a", "1.0.3"),
        ("i", "block_lost", None),
    ]


def test_a_kill_costs_the_last_record_alone() -> None:
    whole = file(record(1, "product_started", index=0), record(2, "product_missed", index=0))
    for cut in range(len(whole) - 20, len(whole) - 2):
        found = parse(whole[:cut])
        assert ([e.name for e in found.events], found.bad) == (["product_started"], 1)
    # The next program appends after the cut: its records are read again.
    assert len(parse(whole[:-9] + file(record(3, "product_sent", index=1))[1:]).events) >= 1


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\x1e{}\n", b"\x1e[", HEAD.replace("fmtp-1", "x").encode()]
)
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(QlogError, match="valid: a file of --qlog"):
        parse(data)


@given(st.lists(st.binary(max_size=60), max_size=8), st.binary(max_size=60))
def test_hostile_records(records: list[bytes], head: bytes) -> None:
    with contextlib.suppress(QlogError):
        parse(head)
    found = parse(HEAD.encode() + b"".join(b"\x1e" + r for r in records))
    assert len(found.events) + found.bad >= len(records)
    json.dumps(list(trace_events([found])))


JUNK = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=9) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


@given(JUNK, st.sampled_from(["fmtp:product_started", "fmtp:product_missed", "x", None]), JUNK)
def test_records_with_foreign_values(time: object, name: object, data: object) -> None:
    found = parse(file(json.dumps({"time": time, "name": name, "data": data})))
    assert len(found.events) + found.bad == 1
    list(trace_events([found]))


def test_documentation_has_the_table_of_the_programs() -> None:
    text = (ROOT / "fmtp/include/fmtp_events.h").read_text()
    row = r'X\(\w+,\s*"(\w+)",\s*"(\w+)",\s*"([^"]*)",\s*"([^"]*)"\)'
    rows = re.findall(row, text)
    assert len(rows) == 14
    assert f'"{SCHEMA}"' in text
    document = (ROOT / "docs/reference/contracts.md").read_text()
    table = "".join(f"| `{name}` | {rest} | {data} | {text} |\n" for name, rest, data, text in rows)
    assert f"|---|---|---|---|\n{table}<!-- end -->" in document, table


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "uva").mkdir()
    good = tmp_path / "uva/a.sqlog"
    good.write_bytes(file(record(1, "product_started", index=0))[:-1] + b"\x1e{")
    done = subprocess.run(
        [sys.executable, "-m", "downpour", "monitor", "trace", str(good)],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "left out 1 record" in done.stderr
    (process, _) = json.loads(done.stdout)["traceEvents"]
    assert process["args"]["name"] == "uva/mldm.7"
    bad = tmp_path / "b"
    bad.write_text("x")
    done = subprocess.run(
        [sys.executable, "-m", "downpour", "monitor", "trace", str(bad)],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "valid:" in done.stderr


def test_nothing_gives_nothing() -> None:
    assert list(trace_events([])) == []
    assert list(trace_events([Qlog("p", (), 0)]))[0]["ph"] == "M"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_know_are_malformed(number: str) -> None:
    """Perfetto would refuse the whole trace."""
    text = f'{{"time":1,"name":"fmtp:queue_full","data":{{"index":{number}}}}}'
    assert parse(file(text, record(2, "queue_full", index=1))).bad == 1


def test_what_is_nested_deeply_is_malformed_or_written() -> None:
    """A trace nests one level more than its file."""
    for depth in (*range(1, 40), *range(300, 1100, 3)):
        data = '{"a":' * depth + "1" + "}" * depth
        found = parse(file(f'{{"time":1,"name":"fmtp:queue_full","data":{data}}}'))
        assert json.loads("".join(lines(trace_events([found]))))
        assert found.bad == (depth + 1 > 400)
