# SPDX-License-Identifier: Apache-2.0
"""Evaluate a student's PromQL query with Prometheus' own engine, without a server: `promtool test
rules`, of Debian's package prometheus (Ansible role testtools)."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.counting import counted

PROMTOOL: Final = "promtool"
TIMEOUT_S: Final = 60
MOST_QUERY: Final = 1000  # characters
MOST_REASON: Final = 200
# promtool shows a result only where it differs from the expected one.
OTHER: Final = {"labels": "result_of_nobody{}", "value": -1}
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_GOT: Final = re.compile(
    r'(?P<name>[A-Za-z_:][\w:]*)?(?P<labels>\{(?:\w+="(?:[^"\\]|\\.)*"(?:, )?)*\})? '
    r"(?P<value>[-+]?(?:[0-9.]+(?:E[-+]?[0-9]+)?|Inf)|NaN)(?:, |$)"
)


class NoEngine(Exception):
    """promtool is not installed."""


class QueryError(Exception):
    """The engine refuses the query; the text says why."""


@dataclass(frozen=True)
class Result:
    """An element of the answer."""

    labels: Mapping[str, str]
    value: float


def evaluate(query: str, series: Mapping[str, Sequence[float | None]]) -> list[Result]:
    """Return the answer at the time of the last values.

    `series`: a value each second, by name, with labels as PromQL writes them; None: no value.
    Raises NoEngine, QueryError.
    """
    if len(query) > MOST_QUERY:
        raise QueryError(f"found {len(query)} characters; valid: at most {MOST_QUERY}")
    last_s = max(map(len, series.values())) - 1
    test = {
        "interval": "1s",
        "input_series": [
            {"series": name, "values": " ".join(map(_word, values))}
            for name, values in series.items()
        ],
        "promql_expr_test": [{"expr": query, "eval_time": f"{last_s}s", "exp_samples": [OTHER]}],
    }
    # promtool loads samples up to the last evaluation interval.
    return list(_results(_told(json.dumps({"evaluation_interval": "1s", "tests": [test]}))))


def _word(value: float | None) -> str:
    if value is None:
        return "_"
    return str(int(value)) if value == int(value) else f"{value:.9f}"


def _told(document: str) -> str:
    """Return what promtool writes about one test. Raises NoEngine, QueryError."""
    with tempfile.TemporaryDirectory(prefix="downpour-promql-") as folder:
        file = Path(folder) / "query.json"  # JSON is YAML
        file.write_text(document, encoding="utf-8")
        try:
            done = subprocess.run(
                [PROMTOOL, "test", "rules", str(file)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, errors="replace", timeout=TIMEOUT_S,
            )  # fmt: skip
        except FileNotFoundError:
            raise NoEngine(PROMTOOL) from None
        except subprocess.TimeoutExpired:
            raise QueryError(f"no answer within {counted(TIMEOUT_S, 'second')}") from None
    return done.stdout


def _results(told: str) -> Iterator[Result]:
    got = re.search(r"^ *got: ?(.*)$", told, re.MULTILINE)
    if got is None:
        reason = re.search(r"\berr: (.*)", told)
        raise QueryError((reason[1] if reason else " ".join(told.split()))[:MOST_REASON])
    if got[1] == "nil":
        return
    at = 0
    while at < len(got[1]):
        found = _GOT.match(got[1], at)
        if found is None:
            raise QueryError(f"no answer that can be read: {got[1][at : at + MOST_REASON]}")
        labels = dict(_LABEL.findall(found["labels"] or ""))
        yield Result(labels, float(found["value"]))
        at = found.end()
