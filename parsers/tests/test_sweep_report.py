# SPDX-License-Identifier: Apache-2.0
"""The report of a sweep, from a SYNTHETIC run (see synthetic.py) and from chosen points."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import numpy as np
import pytest

from parsers.base.intervals import Estimate, over_repeats
from parsers.base.metric_units import METRICS
from parsers.measure.evaluate import Transports, evaluate
from parsers.measure.sweep import Line, Point
from parsers.measure.taus import interval_s
from parsers.read.cell_files import ProtocolAbout
from parsers.read.published import Figure, PaperValue
from parsers.report.document import render_text
from parsers.report.drawing import DASHES
from parsers.report.figures import Drawn
from parsers.report.over_time import means
from parsers.report.overlays import Places, published
from parsers.report.points_table import PEER_METRICS
from parsers.report.publish import Written, make_report, write_report
from parsers.report.spreads import OUTLIERS, box
from parsers.report.sweep_sections import failed_of, interval_text, points_section
from parsers.tests.synthetic import SWEEP_MANIFEST, sweep_cells


@pytest.fixture
def written(drawn_sweep: Written) -> Written:
    return drawn_sweep


def flat(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.slow
def test_text_has_what_was_found_and_not_every_table(written: Written) -> None:
    whole = render_text(written.report, 100)
    text = flat(whole)
    assert "19 cells: 17 faithful, 1 invalid and excluded, 1 failed." in text
    # 500, 1000, 2000 kB/s more for each two receivers: 4.096 Mbit/s for each, no scatter.
    assert "held slope 4.096 [4.096, 4.096]" in text
    assert "not held 3 not held; e.g. m = 2: 7.21" in text
    # Throughput of LDM7 at m = 2, repeats: (20 + 10) / 2, 2 / 0.11 and 2 / 0.21, 2 / 0.12 and
    # 2 / 0.22: 15, 13.853, 12.879; mean 13.911, t(2) s / sqrt 3 = 4.303 x 1.0617 / 1.732 = 2.64.
    assert re.search(r"LDM7 2 13\.91 ± 2\.64 0\.12 ± 0\.00 4\.10 ± 0\.00 3", text)
    assert "2, 1 excluded" in text
    assert "Figure 'Nothing to see' is left out: no valid cell has throughput over rtt_ms." in text
    assert "ldm6-m16-r20-p1 no memory failed/x" in text
    assert "ldm6-m8-r20-p1-n3 host CPU: the host was saturated" in text
    assert "downpour run synthetic --level quick" in text
    assert "git checkout 0123456789abcdef" in text
    assert "downpour verify runs/synthetic/s1" in text
    assert "Deliver" not in text  # the receivers' tables
    assert len(whole.splitlines()) < 150
    for width in (60, 80, 100):
        lines = render_text(written.report, width).splitlines()
        assert max(len(line) for line in lines if "python -m" not in line) <= width


@pytest.mark.slow
def test_page_and_markdown_have_the_same_findings(written: Written) -> None:
    page = (written.report_dir / "index.html").read_text(encoding="utf-8")
    markdown = (written.report_dir / "report.md").read_text(encoding="utf-8")
    for text in (page, markdown):
        assert "13.91 ± 2.64" in text
        assert "LDM6 bandwidth grows linearly in m" in text
    assert "Delivered by" in page and "Delivered by" not in markdown
    # Claims, two kinds of points, groups and three details of each, verdicts, versions.
    assert page.count("<details>") == 9
    assert "](fig1.svg)" in markdown
    figures = {p.stem for p in written.report_dir.glob("*.svg")}
    assert figures == {"fig1", "fig2", "fig3", "fig4", "fig5"}
    assert {p.stem for p in written.report_dir.glob("*.pdf")} == figures
    # The picture is described for those who cannot see it.
    assert "LDM6: 8.19 Mbit/s at m = 2, 32.77 Mbit/s at m = 8" in page


@pytest.mark.slow
def test_points_as_csv(written: Written) -> None:
    with (written.report_dir / "points.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    chosen = [
        r
        for r in rows
        if (r["protocol"], r["receivers"], r["subscriber"], r["file_set_bytes [bytes]"])
        == ("ldm6", "8", "", "")
    ]
    (row,) = chosen
    assert float(row["nic_bandwidth [bit/s]"]) == pytest.approx(32.768e6)
    assert row["nic_bandwidth n"] == "2"
    assert float(row["throughput low [bit/s]"]) < float(row["throughput [bit/s]"])
    assert float(row["rate_bps [bit/s]"]) == 20e6
    assert row["excluded"] == "ldm6-m8-r20-p1-n3"
    assert row["ffdr [%]"] == ""
    assert sum(r["subscriber"] != "" for r in rows) == 2 * (2 + 4 + 8)


@pytest.mark.slow
def test_cells_as_csv(written: Written) -> None:
    text = (written.report_dir / "cells.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(sweep_cells()) == 18
    (invalid,) = [r for r in rows if r["verdict"] == "invalid"]
    assert (invalid["cell"], invalid["repeat"]) == ("ldm6-m8-r20-p1-n3", "2")
    assert float(rows[-1]["throughput [bit/s]"]) > 1e6


@pytest.mark.slow
def test_invalid_cells_are_taken_when_asked_for(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parsers.report.publish.draw", lambda *_: Drawn((), ()))
    found = evaluate(written.report_dir.parent, include_invalid=True)
    report = make_report(found, "synthetic/s1")
    titles = [section.title for section in report.sections]
    assert "Failed cells" in titles and "Excluded cells" not in titles
    assert "1 INVALID but not excluded, as was asked" in report.banner.headline
    assert report.banner.verdict == "invalid"


@pytest.mark.long
@pytest.mark.slow
def test_the_same_run_gives_the_same_bytes(written: Written) -> None:
    run = written.report_dir.parent
    before = {p.name: p.read_bytes() for p in written.report_dir.iterdir()}
    write_report(run)
    assert {p.name: p.read_bytes() for p in written.report_dir.iterdir()} == before


@pytest.mark.slow
def test_cells_parsed_by_several_processes_are_the_same(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = written.report_dir.parent
    one_by_one = evaluate(run)
    monkeypatch.setattr("parsers.measure.evaluate.PARALLEL_FROM_BYTES", 0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    together = evaluate(run)
    assert isinstance(one_by_one, Transports) and isinstance(together, Transports)
    assert together.cells == one_by_one.cells
    assert together.document == one_by_one.document


def test_estimates_as_text() -> None:
    """11 and 13: 12 +- 12.706; a bootstrap's interval need not be symmetric."""
    mbps = METRICS["throughput"]
    assert interval_text(mbps, over_repeats([11e6, 13e6])) == "12.00 ± 12.71"
    assert interval_text(mbps, over_repeats([11e6]), unit=True) == "11.00 Mbit/s"
    skewed = Estimate(3e6, 2.5e6, 4e6, 27, "bootstrap")
    assert interval_text(mbps, skewed, unit=True) == "3.00 [2.50, 4.00] Mbit/s"


def test_failed_cells_of_a_manifest() -> None:
    listed = failed_of(SWEEP_MANIFEST)
    by_name = failed_of(
        {"failed": {"ldm6-m16-r20-p1": {"reason": "no memory", "artefacts": "failed/x"}}}
    )
    assert listed == by_name
    assert failed_of({}) == ()


@pytest.mark.slow
def test_other_protocols_are_shown_by_the_metrics_that_compare_them(written: Written) -> None:
    found = evaluate(written.report_dir.parent)
    assert isinstance(found, Transports)

    def metrics(of: Transports) -> set[str]:
        return {name for name in PEER_METRICS if METRICS[name].label in flat(shown(of))}

    def shown(of: Transports) -> str:
        return " ".join(" ".join(table.header) for table in points_section(of).tables)

    usual = metrics(found)
    about = ProtocolAbout(name="norm", title="NORM")
    cells = (replace(found.cells[0], about=about), *found.cells[1:])
    peers = metrics(replace(found, cells=cells))
    measured = {name for point in found.points for name in point.estimates}
    assert peers == measured & set(PEER_METRICS)
    assert {"latency_p99", "products_missing"} <= peers - usual


# -- published values in figures --------------------------------------------------------------
FIGURE = Figure.model_validate(
    {
        "name": "f", "title": "F", "kind": "lines", "x": "receivers", "metric": "ffdr",
        "by": ["protocol"], "where": {"loss": "1%"},
    }
)  # fmt: skip
LINES = [
    Line(
        p.upper(),
        {"protocol": p},
        (8, 16),
        (over_repeats([99.0]), over_repeats([98.0])),
        (Point({"protocol": p, "receivers": 8}, {}, (), fixed={"rate_bps": 20e6}),),
    )
    for p in ("ldm7", "ldm6")
]
PLACES = Places("receivers", (), False, (8, 16))


def overlays(**row: object) -> list[tuple[float, float, float, str]]:
    from parsers.report.curves import looks_of

    given = {"metric": "ffdr", "protocol": "ldm7", "value": 88.7, "unit": "%", "source": "s"}
    value = PaperValue.model_validate(given | row)
    found = published(FIGURE, "ffdr", LINES, looks_of(LINES), PLACES, [value])
    return [(o.begin, o.end, o.value, o.colour) for o in found]


def test_published_values_lie_on_their_line() -> None:
    blue, red = "#0072B2", "#D55E00"
    assert overlays(at={"receivers": 16}) == [(16.0, 16.0, 88.7, blue)]
    assert overlays(at={"receivers": [8, 16]}, protocol="ldm6") == [
        (8.0, 8.0, 88.7, red),
        (16.0, 16.0, 88.7, red),
    ]
    assert overlays(at={"receivers": {"at_least": 4, "at_most": 24}}) == [(4.0, 24.0, 88.7, blue)]


def test_published_values_of_other_conditions_are_not_drawn() -> None:
    assert overlays(at={"receivers": 16, "loss": "2%"}) == []
    assert overlays(at={"loss": "1%"}) == []  # m is not given for it
    assert overlays(at={"receivers": 16}, metric="ffdr_count") == []
    assert len(overlays(at={"receivers": 16, "loss": "1%"})) == 1
    assert overlays(at={"receivers": 16, "rate_bps": "60Mbps"}) == []  # measured: r = 20 Mbit/s
    assert len(overlays(at={"receivers": 16, "rate_bps": "20Mbps"})) == 1
    # A published value is also shown where there is a measured one.
    assert overlays(at={"receivers": 24}) == [(24.0, 24.0, 88.7, "#0072B2")]


def test_lines_are_told_apart_without_colours() -> None:
    from parsers.report.curves import looks_of

    lines = [
        Line(f"{p} {m}", {"protocol": p, "receivers": m}, (1,), (over_repeats([1.0]),))
        for p in ("ldm7", "ldm6")
        for m in (8, 16)
    ]
    looks = looks_of(lines)
    assert [look.colour for look in looks] == ["#0072B2", "#0072B2", "#D55E00", "#D55E00"]
    assert looks[0].marker == looks[2].marker != looks[1].marker
    assert len({(look.colour, look.marker, str(look.dash)) for look in looks}) == 4
    both = looks_of(LINES)
    assert [look.dash for look in both] == [DASHES[0], DASHES[1]]


# -- over time, boxes -------------------------------------------------------------------------
def test_means_are_weighted_by_time() -> None:
    """10 for 2 s, 40 for 1 s, then 20 for 3 s: (20 + 40) / 3 and 20."""
    assert means([(2.0, 10.0), (3.0, 40.0), (6.0, 20.0)], 3.0, 6.0) == [(3.0, 20.0), (6.0, 20.0)]
    # A second half that no sample covers is not shown.
    assert means([(1.0, 5.0), (2.0, 5.0), (3.0, 5.0)], 3.0, 6.0) == [(3.0, 5.0)]
    assert means([], 3.0, 6.0) == []


def test_short_runs_have_shorter_intervals() -> None:
    assert [interval_s(s) for s in (3600, 600, 599, 120, 60, 5)] == [60, 60, 30, 10, 5, 1]


def test_boxes() -> None:
    """1 to 9 and an outlier: quartiles of ten values by linear interpolation."""
    found = box([*range(1, 10), 100.0], 1.0)
    assert (found["q1"], found["med"], found["q3"]) == (3.25, 5.5, 7.75)
    assert (found["whislo"], found["whishi"], list(found["fliers"])) == (1.0, 9.0, [100.0])
    many = box([*np.linspace(1, 2, 1000), *np.linspace(90, 100, 200)], 1.0)
    assert len(many["fliers"]) == OUTLIERS
    assert max(many["fliers"]) == 100.0
