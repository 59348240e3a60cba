# SPDX-License-Identifier: Apache-2.0
"""Students' PromQL queries: what the engine answers and refuses, and the message without an
engine."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from labs import promql
from labs.promql import NoEngine, QueryError, evaluate

NEEDS_ENGINE = pytest.mark.skipif(
    shutil.which(promql.PROMTOOL) is None,
    reason="SKIPPED: promtool is not installed (apt-get install prometheus)",
)
# 3 more each second, of which none in the first 10; gone and back; a fraction; a hostile label.
SERIES: dict[str, list[float | None]] = {
    'blocks_total{host="a"}': [None] * 10 + [100.0 + 3 * n for n in range(61)],
    'blocks_total{host="b"}': [float(n) for n in range(71)],
    'gone{host="a"}': [1.0] * 30 + [None] * 41,
    'share{host="a"}': [0.0000125] * 71,
    'odd{host="a\\"} 5, {b=\\"c"}': [7.0] * 71,
}


@NEEDS_ENGINE
@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("blocks_total", [({"host": "a"}, 280), ({"host": "b"}, 70)]),
        ("increase(blocks_total[30s])", [({"host": "a"}, 90), ({"host": "b"}, 30)]),
        ("topk(1, sum by (host) (increase(blocks_total[30s])))", [({"host": "a"}, 90)]),
        ("sum(rate(blocks_total[20s]))", [({}, 4)]),
        ("share", [({"host": "a"}, 0.0000125)]),
        ("-1e9 * share / 0", [({"host": "a"}, float("-inf"))]),
        ("odd", [({"host": 'a\\"} 5, {b=\\"c'}, 7)]),
        ("nothing", []),
        ("42", [({}, 42)]),
    ],
)
def test_answers(query: str, answer: list[tuple[dict[str, str], float]]) -> None:
    found = [
        ({k: v for k, v in one.labels.items() if k != "__name__"}, one.value)
        for one in evaluate(query, SERIES)
    ]
    assert [labels for labels, _ in found] == [labels for labels, _ in answer]
    assert [value for _, value in found] == pytest.approx([value for _, value in answer])


@NEEDS_ENGINE
@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("topk(1, blocks_total", "unclosed left parenthesis"),
        ("increase(blocks_total)", "expected type range vector"),
        ("blocks_total[30s]", "not a vector or scalar"),
        ("", "no expression"),
        ("'}\nalerts: [", "unterminated"),
    ],
)
def test_refusals(query: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        evaluate(query, SERIES)


def test_a_query_of_any_length_is_bounded() -> None:
    with pytest.raises(QueryError, match="found 5000 characters; valid: at most 1000"):
        evaluate("1" * 5000, SERIES)


def test_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoEngine):
        evaluate("1", SERIES)


def test_an_engine_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tmp_path / promql.PROMTOOL
    engine.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(promql, "TIMEOUT_S", 1)
    with pytest.raises(QueryError, match="no answer within 1 second"):
        evaluate("1", SERIES)
