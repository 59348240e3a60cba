# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/artifact.md name the metrics that the reports have."""

from __future__ import annotations

from experiments.design.spec import find, load
from tools.docs import artifact


def test_the_metric_is_the_reports() -> None:
    """20 s have no file-set of 200 MB, so that the whole run's throughput stands in."""
    claim = next(c for c in load(find("throughput")).claims if c.metric == "throughput_sets")
    short = artifact.read_by(claim, "| m | Run throughput, Mbit/s | runs |")
    assert short == f"Run throughput, {claim.kind}"
    both = "| m | Throughput, mean of sets, Mbit/s | Run throughput, Mbit/s | runs |"
    assert artifact.read_by(claim, both) == f"Throughput, mean of sets, {claim.kind}"
