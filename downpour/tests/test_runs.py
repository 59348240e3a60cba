# SPDX-License-Identifier: Apache-2.0
"""Reading a run from Python: a SYNTHETIC run whose figures follow from its description."""

from __future__ import annotations

import csv
import resource
import signal
from pathlib import Path

import pytest

from downpour.runs import BadFile, load_run
from parsers.report.publish import write_report
from parsers.tests.synthetic import GAP_S, SIZE_BYTES, START_S, SyntheticCell, write_synthetic_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two receivers; LDM7's first one gets product 3 by the backstop."""
    monkeypatch.setattr("parsers.report.publish.render_plots", lambda *_: ())
    cells = SyntheticCell("ldm7", backstop_index=3), SyntheticCell("ldm6", verdict="degraded")
    found = write_synthetic_run(tmp_path / "run", *cells)
    write_report(found)
    return found


def test_cells_with_factors_verdict_and_metrics(run: Path) -> None:
    found = load_run(run)
    assert found.experiment == "synthetic"
    assert [(c.name, c.verdict) for c in found.cells] == [
        ("ldm6-m2-r20-p1", "degraded"),
        ("ldm7-m2-r20-p1", "faithful"),
    ]
    ldm7 = found.cells[1]
    assert ldm7.factors["protocol"] == "ldm7" and ldm7.factors["receivers"] == 2
    # 250,000 bytes every half second
    assert ldm7.metrics["input_rate"] == pytest.approx(4e6, rel=0.05)
    assert found.units["input_rate"] == "bit/s"
    assert "background_goodput" not in ldm7.metrics
    assert ldm7.reasons["background_goodput"] == "no competing flows"
    row = found.rows()[1]
    assert row["cell"] == ldm7.name and row["loss"] == 0.01 and row["verdict"] == "faithful"


def test_each_delivery(run: Path) -> None:
    ldm6, ldm7 = load_run(run).cells
    deliveries = {(d.receiver, d.product): d for d in ldm7.deliveries()}
    assert len(deliveries) == 2 * 40
    receivers = sorted({receiver for receiver, _ in deliveries})
    first = deliveries[receivers[0], "NAME.000000"]
    assert (first.size_bytes, first.created_s, first.how) == (SIZE_BYTES, START_S, "fmtp")
    assert first.latency_s == pytest.approx(0.1) and first.retransmitted_blocks == 2
    late = deliveries[receivers[0], "NAME.000003"]
    assert late.how == "backstop" and late.latency_s == pytest.approx(1.1)
    assert late.created_s == pytest.approx(START_S + 3 * GAP_S)
    assert deliveries[receivers[1], "NAME.000003"].latency_s == pytest.approx(0.2)
    assert {d.how for d in ldm6.deliveries()} == {"ldm6"}


def test_deliveries_as_csv(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "deliveries.csv"
    assert load_run(run).save_deliveries(file) == 160
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 160
    assert {row["cell"] for row in rows} == {"ldm6-m2-r20-p1", "ldm7-m2-r20-p1"}
    assert float(rows[0]["latency_s"]) > 0


def test_a_full_disk_leaves_no_half_file(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "deliveries.csv"
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, old[1]))
    try:
        with pytest.raises(OSError):
            load_run(run).save_deliveries(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert [p.name for p in tmp_path.iterdir() if p.name != "run"] == []


def test_what_is_no_run(run: Path, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="not a run directory: no cells/<cell>/ in it"):
        load_run(tmp_path / "nothing")
    (run / "metrics.json").write_text("{")
    with pytest.raises(BadFile, match=r"metrics\.json: Expecting"):
        load_run(run)
    (run / "metrics.json").unlink()
    with pytest.raises(BadFile, match="valid: `downpour report .*` writes it"):
        load_run(run)
