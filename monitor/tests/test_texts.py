# SPDX-License-Identifier: Apache-2.0
"""OpenMetrics and CSV: what is written comes back, and what others write is refused in a line."""

from __future__ import annotations

import contextlib
import io
import random

import pytest

from monitor import openmetrics, table
from monitor.recording import GONE, SAMPLED, Recording, Series

SECOND = 1_000_000
START = 1_450_000_000 * SECOND + 250_000
PINNED = Series("fmtp_peer_pinned_bytes", "gauge", 0, "Bytes.", (("receiver", '10.0.0.1:5 "x"\\'),))
LATENCY = Series("down7_latency_seconds", "counter", 6, "Sum.", (("host", "uva"),))
TICKS = Series(SAMPLED, "gauge", 0, "1.")


def recorded(gone: int = GONE) -> Recording:
    """150 samples, one a second; the latency grows twice, the receiver leaves and comes back."""
    recording = Recording()
    for i in range(150):
        recording.of(TICKS).add(START + i * SECOND, 1)
    for i, value in ((0, 0), (5, 4096), (100, gone), (140, 7)):
        recording.of(PINNED).add(START + i * SECOND, value)
    for i, value in ((0, 1), (30, 2_500_000)):
        recording.of(LATENCY).add(START + i * SECOND, value)
    return recording


def plain(recording: Recording) -> dict[tuple[str, str, int], list[tuple[int, int]]]:
    return {
        (s.name, s.kind, s.decimals): list(points)
        for s, points in recording.points.items()
        if s.name != SAMPLED
    }


def test_openmetrics_repeats_what_holds_and_nothing_that_is_gone() -> None:
    text = "".join(openmetrics.lines(recorded()))
    lines = text.splitlines()
    assert lines[0] == "# TYPE downpour_down7_latency_seconds counter"
    assert lines[2] == (
        'downpour_down7_latency_seconds_total{host="uva"} 0.000001 1450000000.250000'
    )
    pinned = [line.split()[-2:] for line in lines if line.startswith(f"downpour_{PINNED.name}{{")]
    assert [(v, float(t) - START / SECOND) for v, t in pinned] == [
        ("0", 0),
        *(("4096", at) for at in range(5, 100, 5)),
        ("7", 140),
        ("7", 145),
    ]
    assert lines[-1] == "# EOF"


def test_openmetrics_comes_back() -> None:
    text = "".join(openmetrics.lines(recorded(gone=12)))
    back = openmetrics.read(io.StringIO(text))
    assert "".join(openmetrics.lines(back)) == text
    assert PINNED in back.points
    assert LATENCY in back.points


def test_csv_comes_back() -> None:
    out = io.StringIO()
    table.write(recorded(), out)
    lines = out.getvalue().splitlines()
    assert lines[0] == "time_s,metric,host,receiver,value"
    assert lines[1] == "1450000000.250000,down7_latency_seconds_total,uva,,0.000001"
    back = table.read(io.StringIO(out.getvalue()))
    assert plain(back) == plain(recorded())
    again = io.StringIO()
    table.write(back, again)
    assert again.getvalue() == out.getvalue()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x 1\n", "without a time stamp"),
        ("x 1 1\n", "no OpenMetrics text"),
        ("# TYPE a gauge\na 1\n# EOF\n", "without a time stamp"),
        ("# TYPE a gauge\na NaN 1\n# EOF\n", "not a number"),
        ("# TYPE a gauge\na -1 1\n# EOF\n", "negative"),
        ("# TYPE a gauge\na 1e30 1\n# EOF\n", "too large"),
        # What the library's parser makes other exceptions of.
        ("g 1 .9e99\ng 1e400 1\n# EOF\n", "no OpenMetrics text"),
        ('{"g_x", ="b"} 5 1\n# EOF\n', "no OpenMetrics text"),
        ("g 1 -9.99\n# EOF\n", "no OpenMetrics text"),
        ("# TYPE h histogram\nh {schema:1} 1\n# EOF\n", "no OpenMetrics text"),
        ('{"a b"} 5 1\n# EOF\n', "line 1: another form"),
        ('# TYPE "a b" gauge\n{"a b"} 5 1\n# EOF\n', "found metric 'a b'; valid: letters"),
        ('# TYPE g gauge\ng{"a b"="c"} 5 1\n# EOF\n', "found label 'a b'; valid: letters"),
    ],
)
def test_other_text_is_refused(text: str, said: str) -> None:
    with pytest.raises(openmetrics.TextError, match=said) as found:
        openmetrics.read(io.StringIO(text))
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: found no column time_s"),
        ("time_s,metric\n", "line 1: found no column value"),
        ("time_s,metric,value\n1,a\n", "line 2: found another number of columns"),
        ("time_s,metric,value\n1,a,b\n", "line 2: found 'b'; valid: a number"),
        ("time_s,metric,value\n1,a,1\n1,a,-3\n", "line 3: found '-3'; valid: 0 to"),
        ("time_s,metric,value\n1,a,NaN\n", "line 2: found 'NaN'"),
        ('time_s,metric,value\n1,a,"1"x\n', "after line 1: "),
        ("time_s,metric,value\n1,a,1e999999\n", "line 2: found '1e999999'; valid: "),
        ("time_s,metric,value\n1e999999,a,1\n", "line 2: found '1e999999'; valid: "),
        ("time_s,metric,value\n1,a b,1\n", "line 2: found metric 'a b'; valid: letters"),
        ("time_s,metric,value\n1,_total,1\n", "line 2: found metric ''; valid: letters"),
        ('time_s,metric,value\n1,"a{} 1\n# EOF",1\n', "found metric 'a{} 1\\n# EOF'; valid: "),
        ('time_s,metric,"a""b",value\n1,a,c,1\n', "line 2: found label 'a\"b'; valid: letters"),
        ("time_s,metric,__name__,value\n1,a,c,1\n", "found label '__name__'; valid: letters"),
    ],
)
def test_other_tables_are_refused(text: str, said: str) -> None:
    with pytest.raises(table.TableError) as found:
        table.read(io.StringIO(text))
    assert said in str(found.value)


def test_any_damage_of_texts_is_read_or_refused() -> None:
    """What the library's parser is not made for: whatever it raises becomes one line."""
    dice = random.Random(22)
    lines = [
        "# TYPE h histogram\n", 'h_bucket{le="+Inf"} 1 5 # {a="b"} 1\n', "h {schema:1} 1\n",
        "# TYPE g gauge\n", 'g{a="b\\"c"} 1e3 5\n', "g 1e400 1\n", "g 1 .9e99\n", "# UNIT g s\n",
        "# TYPE i info\n", 'i_info{a="b"} 1\n', '{"g_x", a="b"} 5 6\n', "# EOF\n",
    ]  # fmt: skip
    table_lines = ["1.5,a_total,x,5\n", "2,g,,\n", '3,g,"q,w",1e5\n', "1e999,g,,nan\n"]
    strange = '{}",=\\#\n\0 eE+-.09aNI_\u0661\ud800'

    def damaged(text: str) -> str:
        for _ in range(dice.randrange(5)):
            at = dice.randrange(len(text) + 1)
            text = text[:at] + dice.choice(["", *strange]) + text[at + dice.randrange(3) :]
        return text

    for _ in range(1500):
        text = damaged("".join(dice.choices(lines, k=dice.randrange(1, 8))) + "# EOF\n")
        with contextlib.suppress(openmetrics.TextError):
            "".join(openmetrics.lines(openmetrics.read(io.StringIO(text))))
        text = damaged("time_s,metric,p,value\n" + "".join(dice.choices(table_lines, k=3)))
        with contextlib.suppress(table.TableError):
            table.write(table.read(io.StringIO(text)), io.StringIO())
