# SPDX-License-Identifier: Apache-2.0
"""From a complete SYNTHETIC run directory (see synthetic.py) to metrics.json and the report."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from parsers import cli
from parsers.__main__ import main
from parsers.base.jsonfiles import BadFile
from parsers.base.metric_units import Value, absent
from parsers.measure.comparison import group_cells, mean_of
from parsers.measure.run_files import load_cell
from parsers.measure.summary import CellMetrics, summarize, with_purpose
from parsers.read.cell_files import Cell
from parsers.read.counters import Drop
from parsers.report.document import render_text
from parsers.report.drawing import Plot
from parsers.report.publish import write_report
from parsers.tests.synthetic import SyntheticCell, metrics_of, write_synthetic_run
from parsers.tests.test_join_leave import write_run as write_join_leave

LDM7, LDM6 = SyntheticCell("ldm7"), SyntheticCell("ldm6")


def _not_drawn(_: object, name: str, title: str, alt: str, caption: str = "") -> Plot:
    return Plot(name, title, alt, b"", b"", b"", caption)


def summary_of(tmp_path: Path, cell: SyntheticCell) -> CellMetrics:
    run = write_synthetic_run(tmp_path / "run", cell)
    return summarize(load_cell(run / "cells" / cell.name))


def value_of(cell: CellMetrics, name: str) -> float:
    value = cell.values[name]
    assert value.value is not None, value.reason
    return value.value


# 40 products of 250 000 bytes in 20 s; see synthetic.py for the rules.
EXPECTED: dict[str, dict[str, float]] = {
    "ldm7": {
        "throughput": 15e6,  # 2 Mbit / 0.1 s = 20 and 2 Mbit / 0.2 s = 10 Mbit/s
        "throughput_fmtp": 80e6 / 3,  # 2 Mbit / 0.05 s = 40 and 2 Mbit / 0.15 s = 13.3 Mbit/s
        "ffdr": 100.0,
        "mplr": 0.11584,  # 4 of 40 products had 2 blocks again: 8 x 1448 / 10 000 000
        "retransmitted_blocks": 16,
        "nic_bandwidth": 4.096e6,  # 500 kB/s x 1024 x 8, for 20 s by the counters
        "nic_bandwidth_sar": 4.096e6,
        "input_rate": 80e6 / 19.5,  # 80 Mbit; the last at 19.5 s
        "bandwidth_over_offered": 1.00864,  # over 19.7 s: 80.6912 of 80 Mbit
        "cpu": 12.5,  # a quarter of one of two cores
        "cpu_one_core": 25.0,
        "cpu_ps": 10.0,  # four fifths of it
        "latency_p50": 0.15,  # half of the arrivals took 0.1 s, half 0.2 s
        "latency_p99": 0.2,
        "latency_mean": 0.15,
        "loss_injected": 1.0,
        "loss_measured": 1.0,  # 100 of 9900 + 100
        "products_identical": 1.0,
        "verdict_invalid": 0.0,
    },
    "ldm6": {
        "throughput": 7.5e6,  # 2 Mbit / 0.2 s = 10 and 2 Mbit / 0.4 s = 5 Mbit/s
        "nic_bandwidth": 8.192e6,
        "bandwidth_over_offered": 2.03776,  # over 19.9 s: 163.0208 of 80 Mbit
        "latency_p50": 0.3,
        "latency_p99": 0.4,
        "loss_measured": 1.0,  # 100 of 10 000
        "products_identical": 1.0,
    },
}


@pytest.mark.parametrize("protocol", ["ldm7", "ldm6"])
def test_metrics_of_a_cell(tmp_path: Path, protocol: str) -> None:
    cell = summary_of(tmp_path, SyntheticCell(protocol))
    for name, expected in EXPECTED[protocol].items():
        assert value_of(cell, name) == pytest.approx(expected, rel=2e-4), name
    assert cell.problems == ()
    assert cell.missing == ()
    assert cell.sent == 40
    assert cell.identical.value == 2
    assert not cell.file_sets_complete
    assert "less than G = 200 MB" in cell.values["throughput_sets"].reason
    assert cell.series.nic_bps
    assert cell.series.sender_cpu
    assert {round(share, 6) for _, share in cell.series.sender_cpu} == {12.5}
    assert cell.series.sender_cpu_source == "cpu.log"
    assert cell.series.latency_cdf[-1][1] == 1.0
    if protocol == "ldm6":
        assert cell.values["ffdr"] == absent("%", "defined for LDM7 only")
        assert cell.values["mplr"].value is None


VIRTUAL7 = SyntheticCell("ldm7", clock="virtual", real_s=25.0)


def test_no_cpu_figure_in_virtual_time(tmp_path: Path) -> None:
    """The same logs have CPU times (see EXPECTED), which mean nothing there."""
    cell = summary_of(tmp_path, VIRTUAL7)
    for name in ("cpu", "cpu_one_core", "cpu_ps"):
        assert cell.values[name].value is None
        assert cell.values[name].reason == "virtual time: the processor is infinitely fast there"
    assert (cell.series.machine_cpu, cell.series.sender_cpu) == ((), ())
    assert cell.series.sender_cpu_source == ""
    for name, expected in EXPECTED["ldm7"].items():
        if not name.startswith("cpu"):
            assert value_of(cell, name) == pytest.approx(expected, rel=2e-4), name
    assert cell.missing == ()


def test_a_report_says_which_clock_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parsers.report.plots.save", _not_drawn)  # only their choice is tested
    run = write_synthetic_run(tmp_path, VIRTUAL7, SyntheticCell("ldm6", clock="virtual"))
    written = write_report(run)
    flat = " ".join(written.text.split())
    assert written.report.subtitle.endswith("clock: virtual")
    assert written.report.subtitle in flat
    # 20 s / 25 s
    assert (
        "ldm7-m2-r20-p1: clock: virtual (kernel 7.2.11, seed 1, 20 s took 25.0 s of real time,"
        " ratio 0.80; 92.0 s of virtual time with set-up and end)."
    ) in flat
    assert "ldm6-m2-r20-p1: clock: virtual (the real time it took is not known" in flat
    assert "ldm6-m2-r20-p1: virtual.json is missing." in flat
    assert "CPU over time is left out: virtual time:" in flat
    assert not list(run.glob("report/cpu*"))
    assert sorted(p.name for p in run.glob("report/*.png")) == [
        "bandwidth.png",
        "latency.png",
        "throughput.png",
    ]
    assert "clock: virtual (kernel 7.2.11" in (run / "report/index.html").read_text()
    metrics = metrics_of(run)
    assert metrics["clock"] == "virtual"
    assert metrics["cells"]["ldm7-m2-r20-p1"]["virtual"]["real_s"] == 25.0
    assert "CLOCKS DIFFER" not in flat


@pytest.mark.usefixtures("no_plots")
def test_cells_of_different_clocks_are_never_one_figure(tmp_path: Path) -> None:
    """A mean over two clocks would mean nothing; nor would LDM7 of one beside LDM6 of the other."""
    cells = (SyntheticCell("ldm7", clock="native"), SyntheticCell("ldm6", clock="virtual"))
    run = write_synthetic_run(tmp_path, *cells)
    written = write_report(run)
    flat = " ".join(written.text.replace("║", " ").split())
    assert "CLOCKS DIFFER: native: ldm7-m2-r20-p1; virtual: ldm6-m2-r20-p1" in flat
    assert written.report.subtitle.endswith("clock: native and virtual")
    assert written.report.subtitle in flat
    groups = metrics_of(run)["groups"]
    assert [(g["clock"], list(g["cells"])) for g in groups] == [
        ("native", ["ldm7"]),
        ("virtual", ["ldm6"]),
    ]
    slugs = {
        g.slug
        for g in group_cells([summarize(load_cell(d)) for d in (run / "cells").iterdir()], ())
    }
    assert slugs == {"m2-r20-p1-20s", "m2-r20-p1-20s-virtual"}


@pytest.mark.usefixtures("no_plots")
def test_a_clock_that_is_not_told_is_native(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, LDM7)
    assert "clock" not in json.loads((run / "cells" / LDM7.name / "cell.json").read_text())
    assert "ldm7-m2-r20-p1: clock: native." in write_report(run).text
    assert metrics_of(run)["clock"] == "native"


def test_a_bad_virtual_json_is_told(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, VIRTUAL7)
    file = run / "cells" / VIRTUAL7.name / "virtual.json"
    file.write_text('{"kernel": "7", "real_s": 0, "virtual_s": 1}')
    with pytest.raises(BadFile, match=r"virtual\.json: real_s: .*greater than 0; found 0"):
        load_cell(file.parent)


@pytest.mark.parametrize(
    "start_s",
    [
        1_767_225_613,  # 2026-01-01T00:00:13Z: a guest's clock begins at midnight
        86_413,  # 1970-01-02T00:00:13Z
        4_102_444_790,  # 2099-12-31T23:59:50Z: into another century
    ],
)
def test_figures_do_not_depend_on_the_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_s: int
) -> None:
    monkeypatch.setattr("parsers.tests.synthetic.START_S", start_s)
    cell = summary_of(tmp_path, SyntheticCell("ldm7", clock="native"))
    assert cell.problems == ()
    for name, expected in EXPECTED["ldm7"].items():
        assert value_of(cell, name) == pytest.approx(expected, rel=2e-4), name


@pytest.mark.usefixtures("no_plots")
def test_checks_that_do_not_apply_are_no_complaint(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, VIRTUAL7)
    check = {"name": "CPU", "status": "n/a", "asked": None, "found": None, "text": "no figure"}
    verdict = {"verdict": "faithful", "checks": [check]}
    (run / "cells" / VIRTUAL7.name / "verdict.json").write_text(json.dumps(verdict))
    written = write_report(run)
    assert written.report.banner.lines == ()
    assert re.search(r"^ n/a +CPU +no figure$", written.text, re.MULTILINE)


def test_cpu_by_ps_where_there_is_no_cpu_log(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, LDM7)
    log = run / "cells" / LDM7.name / "logs" / "cpu.log"
    exact = summarize(load_cell(log.parents[1]))
    assert exact.values["cpu"].note.startswith("by cpu.log: run times in ns of 1 process")
    for text, told in ((None, ("logs/cpu.log",)), ("@ 1795226400.0\n", ())):
        log.unlink()
        if text is not None:
            log.write_text(text, encoding="utf-8")
        cell = summarize(load_cell(log.parents[1]))
        assert cell.missing == told
        # ps's own figure, 0.8 of the true one, with its reservation
        assert value_of(cell, "cpu") == value_of(cell, "cpu_ps") == pytest.approx(10.0, rel=2e-4)
        assert "ps cuts each one's share to 0.1 % of a core" in cell.values["cpu"].note
        assert cell.series.sender_cpu_source == "ps"
        log.touch()


@pytest.mark.slow
@pytest.mark.usefixtures("no_plots")
def test_the_cpu_rows_name_their_source(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path)
    text = render_text(write_report(run).report, 100)
    assert re.search(r"CPU by cpu\.log, all cores, % +12\.50 +n/a +12\.50", text)
    assert re.search(r"CPU by ps, all cores, % +10\.00 +10\.00", text)
    (run / "cells" / LDM6.name / "logs" / "cpu.log").unlink()
    text = render_text(write_report(run).report, 100)
    assert re.search(r"CPU by cpu\.log or ps, all +12\.50 +n/a +10\.00", text)
    assert max(len(line) for line in text.splitlines()) <= 100


@pytest.mark.usefixtures("no_plots")
def test_malformed_cpu_log_is_told_with_file_and_line(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, LDM7)
    log = run / "cells" / LDM7.name / "logs" / "cpu.log"
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    lines[3] = "77 mldm much\n"
    log.write_text("".join(lines), encoding="utf-8")
    assert "logs/cpu.log:4: expected PID NAME NANOSECONDS" in " ".join(
        write_report(run).text.split()
    )


def test_file_sets_when_the_run_is_large_enough(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, LDM7)
    cell = summarize(load_cell(run / "cells" / LDM7.name), group_bytes=1_000_000)
    assert cell.file_sets_complete
    # 4 x 250 000 reach G: ten sets.
    assert [(s.files.first, s.files.last) for s in cell.file_sets] == [
        (i, i + 3) for i in range(0, 40, 4)
    ]
    assert value_of(cell, "throughput_sets") == pytest.approx(15e6, rel=1e-6)
    assert cell.values["throughput_sets"].note == "mean of 10 file-sets of G = 1 MB"
    assert value_of(cell, "throughput") == pytest.approx(15e6, rel=1e-6)
    # In a run without a file-set there is no mean of file-sets, only the whole run's.
    small = summarize(load_cell(run / "cells" / LDM7.name))
    assert small.values["throughput_sets"].value is None
    assert "10.0 MB were sent, less than G = 200 MB" in small.values["throughput_sets"].reason
    assert value_of(small, "throughput") == pytest.approx(15e6, rel=1e-6)


def test_backstop_lowers_ffdr_but_not_the_contents(tmp_path: Path) -> None:
    cell = summary_of(tmp_path, SyntheticCell("ldm7", backstop_index=5))
    # receiver 1: 39 of 40, receiver 2: 40 of 40
    assert value_of(cell, "ffdr") == pytest.approx(98.75)
    assert value_of(cell, "ffdr_count") == pytest.approx(100 * 79 / 80)
    # Z_i leaves the file out, which was 1 s late: the throughput is the same.
    assert value_of(cell, "throughput") == pytest.approx(15e6, rel=1e-6)
    # The latency of all deliveries includes it: 0.1 + 1.0 s.
    assert value_of(cell, "latency_max") == pytest.approx(1.1)
    assert cell.receivers[0].by == {"fmtp": 39, "backstop": 1}
    assert cell.receivers[0].missed == 1
    assert cell.identical.value == 2


def test_order_of_log_lines_does_not_matter(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, SyntheticCell("ldm7", backstop_index=5))
    directory = run / "cells" / LDM7.name
    expected = summarize(load_cell(directory))
    for seed, log in enumerate(sorted((directory / "logs").glob("*.ldmd.log"))):
        lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
        random.Random(seed).shuffle(lines)
        log.write_text("".join(lines), encoding="utf-8")
    assert summarize(load_cell(directory)) == expected


@pytest.mark.usefixtures("no_plots")
def test_damaged_contents_are_named(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, LDM7, SyntheticCell("ldm6", damaged=True))
    written = write_report(run)
    check = metrics_of(run)["cells"][LDM6.name]["receivers"][1]["content"]
    assert (check["missing"], check["different"], check["extra"]) == (
        ["NAME.000003"],
        ["NAME.000004"],
        [],
    )
    top = written.text[: written.text.index("Metric")]
    assert "CONTENTS DIFFER: only 1 of 2" in top
    assert "r2: 1 missing: NAME.000003." in written.text
    assert re.search(r"identical files\s+2/2\s+n/a\s+1/2", render_text(written.report, 100))


@pytest.mark.parametrize(
    ("verdict", "shown"),
    [
        ("degraded", "DEGRADED"),
        ("invalid", "INVALID: do not use these figures."),
        (None, "UNKNOWN: a cell has no verdict"),
    ],
)
@pytest.mark.usefixtures("no_plots")
def test_verdict_is_on_top(tmp_path: Path, verdict: str | None, shown: str) -> None:
    run = write_synthetic_run(tmp_path, LDM7, SyntheticCell("ldm6", verdict=verdict))
    text = write_report(run).text
    assert shown in text
    assert text.index(shown) < text.index("Metric")
    assert metrics_of(run)["verdict"] == (verdict or "unknown")
    if verdict:
        assert "host CPU: the host was saturated" in text[: text.index("Metric")]
        assert metrics_of(run)["cells"][LDM6.name]["values"]["verdict_invalid"]["value"] == (
            verdict == "invalid"
        )


@pytest.mark.parametrize(
    ("changes", "place", "what", "asked_for"),
    [
        ({"parameters": {"pause_ms": 100.0}}, "uva", "UDP rcvbuf_errors", True),
        ({"parameters": {"pause_ms": 100.0}}, "umd", "UDP rcvbuf_errors", False),
        ({"parameters": {"pause_ms": 100.0}}, "uva", "interface rx_dropped", False),
        ({"factors": {"b_rcv": 100_000}}, "umd", "UDP rcvbuf_errors", True),
        ({}, "uva", "UDP rcvbuf_errors", False),
    ],
)
def test_a_buffer_that_was_to_overflow(
    changes: dict[str, Any], place: str, what: str, asked_for: bool
) -> None:
    cell = Cell.model_construct(subscribers=("uva", "umd"), **changes)
    assert with_purpose(cell, Drop(place, what, 7, injected=False)).injected == asked_for


@pytest.mark.usefixtures("no_plots")
def test_uninjected_loss_is_marked(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, LDM7, SyntheticCell("ldm6", qdisc_drops=12))
    text = write_report(run).text
    assert "UNINJECTED LOSS: 12 packets at 1 place" in text[: text.index("Metric")]
    assert re.search(r"LDM7 +paper +difference +LDM6 ! ", text)
    assert re.search(r"UNINJECTED +umass/umass0/1: +qdisc drops +12", text)
    assert f"{LDM7.name}: no loss that was not injected." in text


@pytest.mark.usefixtures("no_plots")
def test_whatever_is_missing_has_a_reason_and_never_a_zero(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path)
    for name in (LDM7.name, LDM6.name):
        directory = run / "cells" / name
        for part in ("logs", "products"):
            shutil.rmtree(directory / part)
        for file in directory.glob("counters-*.json"):
            file.unlink()
        (directory / "verdict.json").unlink()
    (run / "manifest.json").unlink()
    text = write_report(run).text
    for cell in metrics_of(run)["cells"].values():
        for name, value in cell["values"].items():
            if name == "loss_injected":
                continue
            assert value["value"] is None, name
            assert value["reason"], name
    assert "logs/r1.ldmd.log is missing" in text
    assert "manifest.json is missing" in text
    assert "contents not checked: no products/umass.txt" in text


def test_one_missing_receiver_log_makes_the_mean_undefined(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path)
    (run / "cells" / LDM7.name / "logs" / "r2.ldmd.log").unlink()
    cell = summarize(load_cell(run / "cells" / LDM7.name))
    assert cell.values["throughput"].reason == "no log of r2"
    assert cell.values["ffdr"].reason == "no log of r2"
    assert cell.receivers[0].throughput.value == pytest.approx(20e6)
    assert cell.receivers[1].throughput.reason == "no log of r2"


def test_counters_missing_falls_back_to_sar(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path)
    (run / "cells" / LDM7.name / "counters-end.json").unlink()
    cell = summarize(load_cell(run / "cells" / LDM7.name))
    assert value_of(cell, "nic_bandwidth") == pytest.approx(4.096e6)
    assert cell.values["nic_bandwidth"].note == "NIC1 by sar: no counters of start and end"
    assert cell.values["pull_bandwidth"].reason


def test_sar_is_not_needed_for_the_bandwidth(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path)
    (run / "cells" / LDM7.name / "logs" / "sar.log").unlink()
    cell = summarize(load_cell(run / "cells" / LDM7.name))
    assert value_of(cell, "nic_bandwidth") == pytest.approx(4.096e6)
    assert cell.values["nic_bandwidth_sar"].reason == "no sar.log"


@pytest.mark.usefixtures("no_plots")
def test_cut_off_logs_are_told_with_file_and_line(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path)
    log = run / "cells" / LDM6.name / "logs" / "r1.ldmd.log"
    text = log.read_text(encoding="utf-8")
    log.write_text(text[:-4], encoding="utf-8")
    report = write_report(run).text
    assert "logs/r1.ldmd.log:40: the last line is cut off" in report
    assert "1 of 80 arrivals are missing" in report


def test_repeats_are_averaged(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path, LDM7)
    cells = []
    for number, suffix in enumerate(("a", "b")):
        copy = run / "cells" / f"{LDM7.name}-{suffix}"
        shutil.copytree(run / "cells" / LDM7.name, copy)
        cell = json.loads((copy / "cell.json").read_text(encoding="utf-8"))
        cell["cell"] = copy.name
        cell["cores"] = 2 + 2 * number  # 12.5 % and 6.25 %
        (copy / "cell.json").write_text(json.dumps(cell), encoding="utf-8")
        cells.append(summarize(load_cell(copy)))
    (group,) = group_cells(cells, ())
    cpu = group.values["ldm7"]["cpu"]
    assert cpu.value == pytest.approx(9.375, rel=1e-3)
    # standard deviation of (12.5, 6.25) with n - 1: 6.25 / sqrt 2 = 4.419
    assert "mean of 2 repeats, standard deviation 4.419" in cpu.note
    undefined = mean_of([Value(1.0, "%"), absent("%", "no ps.log")])
    assert undefined == absent("%", "1 of 2 repeats: no ps.log")


def test_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal without UTF-8 gets ASCII; the files are still UTF-8."""
    run = write_join_leave(tmp_path)  # a run without figures, which take most of the time
    page = f"Report: {run / 'report' / 'index.html'}"
    monkeypatch.setenv("COLUMNS", "80")
    for encoding, ascii_only in (("utf-8", False), ("latin-1", True)):
        out = io.BytesIO()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding=encoding))
        assert main(["report", "--full", str(run)]) == 0
        sys.stdout.flush()
        text = out.getvalue().decode("ascii" if ascii_only else "utf-8")
        body, _, last = text.rstrip().rpartition("\n\n")
        assert last == page
        assert max(len(line) for line in body.splitlines()) <= 80
        stored = (run / "report" / "report.txt").read_text(encoding="utf-8")
        assert "─" in stored
        assert (body.rstrip() == stored.rstrip()) == (not ascii_only)


@pytest.mark.slow
def test_in_a_pipe_the_result_has_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write_join_leave(tmp_path)
    root = Path(__file__).resolve().parents[2]
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    command = [sys.executable, "-m", "parsers", "report", str(run)]
    done = subprocess.run(command, cwd=root, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode("ascii").splitlines()
    assert len(lines) <= 40
    assert max(len(line) for line in lines[:-1]) <= 80
    assert lines[-1].endswith("index.html")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "not a run directory"),
        (("cell.json", None), "cell.json is missing"),
        (("cell.json", '{"m": 0}'), "cell.json: m: Input should be greater than or equal to 1"),
        (("cell.json", "{"), "cell.json: Invalid JSON"),
        (
            ("verdict.json", '{"verdict": "fine"}'),
            "verdict.json: verdict: Input should be 'faithful'",
        ),
        (("counters-end.json", "[]"), "counters-end.json: "),
        (("network.json", "{}"), "network.json: not a network"),
    ],
)
@pytest.mark.usefixtures("no_plots")
def test_bad_run_directory_is_one_clear_message(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, str | None] | None,
    message: str,
) -> None:
    run = tmp_path / "run"
    if change is None:
        run.mkdir()
    else:
        file = write_synthetic_run(run) / "cells" / LDM7.name / change[0]
        if change[1] is None:
            file.unlink()
        else:
            file.write_text(change[1], encoding="utf-8")
    before = sorted(os.walk(run))
    assert main(["report", str(run)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert sorted(os.walk(run)) == before
    if change is not None:
        with pytest.raises(BadFile):
            write_report(run)


def test_bad_group_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ldm-log", "some.log", "--group-bytes", "0"]) == 2
    assert "--group-bytes: found '0'; valid: a size above 0" in capsys.readouterr().err
