# SPDX-License-Identifier: Apache-2.0
"""The report and the verdict measure the same loss, and name the same losses as foreign."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from common.contracts import ARRIVED_COMMENT, LOSS_COMMENT
from experiments.verdict.collect import arrivals
from parsers.measure.run_files import load_cell
from parsers.measure.summary import summarize
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run

FOREIGN = "-A INPUT -p udp -j DROP"


def _rules(arrived: int, injected: int, foreign: int) -> list[dict[str, Any]]:
    counts = {
        f"-A INPUT -p udp -m comment --comment {ARRIVED_COMMENT}": arrived,
        f"-A INPUT -p udp -m comment --comment {LOSS_COMMENT} -j DROP": injected,
        FOREIGN: foreign,
    }
    return [{"chain": "INPUT", "packets": n, "bytes": n, "rule": r} for r, n in counts.items()]


def test_a_foreign_rule_is_no_injected_loss(tmp_path: Path) -> None:
    """Of 10,000 packets the experiment drops 100 (1 %) and another rule 300."""
    run = write_synthetic_run(tmp_path / "lossy" / "run", SyntheticCell("ldm7"))
    (directory,) = (run / "cells").iterdir()
    for name, counts in (("start", (0, 0, 0)), ("end", (10_000, 100, 300))):
        path = directory / f"counters-{name}.json"
        counters = json.loads(path.read_text())
        counters["iptables"] = {host: _rules(*counts) for host in counters["iptables"]}
        path.write_text(json.dumps(counters))

    data = load_cell(directory)
    assert data.counters_start is not None
    assert data.counters_end is not None
    hosts = data.cell.subscribers
    found = arrivals(data.counters_start, data.counters_end, hosts, loss=0.01)
    assert found == dict.fromkeys(hosts, (10_000, 100))

    cell = summarize(data)
    assert cell.values["loss_measured"].value == 1.0
    assert {r.host: r.loss_measured.value for r in cell.receivers} == dict.fromkeys(hosts, 1.0)
    what = f"iptables rule '{FOREIGN}'"
    foreign = {(d.place, d.packets) for d in cell.uninjected if d.what == what}
    assert foreign == {(host, 300) for host in hosts}
    injected = {(d.place, d.packets) for d in cell.drops if d.injected}
    assert injected == {(host, 100) for host in hosts}
    # A receiver without loss, beside others that lose, has no rule for it.
    own, start, end = hosts[0], data.counters_start, data.counters_end
    for counters in (start, end):
        kept = [r for r in counters.iptables[own] if LOSS_COMMENT not in r.rule]
        counters.iptables[own] = kept
    assert own not in arrivals(start, end, hosts, loss=0.01)
    assert arrivals(start, end, hosts, 0.01, {own: 0.0})[own] == (10_000, 0)
