# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import json
import os
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments import cli
from experiments.bounds import bands, regression
from experiments.bounds.bands import Band, Finding, judge
from experiments.bounds.bands_report import (
    Outcome,
    junit,
    markdown,
    table,
)
from experiments.design.spec import SpecErrors, bundled
from experiments.verdict.cpu_load import CoreLoad, Load, ProcessLoad
from topologies.model.document import parse_document


def metrics(
    clock: str = "native", duration_s: float = 20, **values: float | None
) -> dict[str, Any]:
    def cell(protocol: str) -> dict[str, Any]:
        shown = {
            name: {"value": value, "reason": "no log" if value is None else ""}
            for name, value in values.items()
        }
        about = {"protocol": protocol, "clock": clock, "duration_s": duration_s}
        return {"cell": about, "values": shown}

    cells = {"ldm7-x": cell("ldm7"), "ldm6-x": cell("ldm6")}
    return {"cells": cells, "clock": clock, "verdict": "faithful"}


FFDR = Band(metric="ffdr", protocol="ldm7", low=99, reason="why")


@pytest.mark.parametrize(
    ("value", "status"), [(99.0, "within"), (98.9, "outside"), (None, "outside")]
)
def test_a_demand_from_below(value: float | None, status: str) -> None:
    (finding,) = judge([FFDR], metrics(ffdr=value))
    assert (finding.cell, finding.status) == ("ldm7-x", status)
    assert finding.text == ("no log" if value is None else "why")
    text = table([finding])
    assert "at least 99 %" in text
    assert ("OUTSIDE" in text) is (status == "outside")


@pytest.mark.parametrize(("value", "offends"), [(2.0, False), (2.1, True)])
def test_a_demand_from_above_at_every_cell(value: float, offends: bool) -> None:
    band = Band(metric="bandwidth_over_offered", high=2, reason="why")
    findings = judge([band], metrics(bandwidth_over_offered=value))
    assert [(f.cell, f.offends) for f in findings] == [("ldm6-x", offends), ("ldm7-x", offends)]


@pytest.mark.parametrize(
    ("bps", "offends"),
    [(3.2214e6, True), (3.2215e6, False), (3.228e6, False), (3.2281e6, True)],
)
def test_a_band_in_a_unit_of_its_own(bps: float, offends: bool) -> None:
    """metrics.json has bit/s."""
    band = Band(
        metric="throughput", protocol="ldm7", low=3.2215, high=3.228, unit="Mbit/s", reason="why"
    )
    (finding,) = judge([band], metrics(throughput=bps))
    assert finding.offends is offends
    assert finding.found == pytest.approx(bps / 1e6)
    assert str(band) == "3.2215 to 3.228 Mbit/s"


def test_a_band_that_no_cell_is_about_is_outside() -> None:
    (finding,) = judge([FFDR], {"cells": {}})
    assert finding.offends
    assert "no cell with protocol ldm7" in str(finding)


@pytest.mark.parametrize(
    ("clock", "duration_s", "statuses"),
    [
        ("native", 20, ["not asked"]),
        ("virtual", 10, ["not asked"]),
        ("virtual", 20, ["outside"]),
    ],
)
def test_a_band_for_other_conditions_is_not_asked(
    clock: str, duration_s: float, statuses: list[str]
) -> None:
    band = Band(
        metric="mplr", protocol="ldm7", clock="virtual", duration_s=20, low=1, high=1, reason="why"
    )
    assert [f.status for f in judge([band], metrics(clock, duration_s, mplr=2))] == statuses


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("metric: fdr, low: 1", "b:3: found metric 'fdr'; valid: a metric (did you mean 'ffdr'?)"),
        ("metric: ffdr", "b:3: found a band without limits; valid: low, high or both"),
        ("metric: ffdr, low: 2, high: 1", "b:3: found low 2 above high 1; valid: low at most high"),
        ("metric: ffdr, low: 1, unit: ms", "b:3: found unit 'ms'; valid: unit 'ms' of ffdr"),
        ("metric: ffdr, lo: 1", "unknown key 'lo' in bands[0]; valid: metric, protocol, clock,"),
        ("metric: ffdr, low: .nan", "b:3: found low nan"),
    ],
)
def test_mistakes_in_a_bands_file(line: str, expected: str) -> None:
    text = f"experiment: x\nbands:\n  - {{{line}, reason: why}}\n"
    with pytest.raises(SpecErrors) as caught:
        bands.check_file(parse_document(text, "b"))
    assert expected in str(caught.value)


def test_bands_that_come_with_downpour() -> None:
    """Each belongs to an experiment, and the regression's judge content, delivery, bandwidth and
    verdict."""
    files = {path.stem: bands.load(path) for path in bands.FOLDER.glob("*.yaml")}
    assert set(files) == {"regression", "join-leave", "smoke"} <= set(bundled())
    assert all(name == file.experiment for name, file in files.items())
    for name in ("regression", "smoke"):
        assert {(b.metric, b.protocol) for b in files[name].bands} >= {
            ("products_identical", "all"),
            ("ffdr", "ldm7"),
            ("bandwidth_over_offered", "ldm7"),
            ("bandwidth_over_offered", "ldm6"),
            ("verdict_invalid", "all"),
        }


# -- reports ----------------------------------------------------------------------------------
BANDS = (
    FFDR,
    Band(metric="mplr", protocol="ldm7", low=1, high=1.2, reason="a < b & c"),
    Band(metric="mplr", clock="virtual", low=1, reason="why"),
)
FOUND = tuple(judge(BANDS, metrics(ffdr=100, mplr=1.3)))


def test_junit_has_a_case_per_band_that_was_asked() -> None:
    outcome = Outcome("regression", FOUND, facts={"clock": "native"}, took_s=61.04)
    root = ET.fromstring(junit(outcome))
    (suite,) = root.findall("testsuite")
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "time")} == {
        "tests": "2",
        "failures": "1",
        "errors": "0",
        "time": "61.0",
    }
    assert [c.get("name") for c in suite.iter("testcase")] == [
        "ffdr at least 99 %",
        "mplr 1 to 1.2 %",
    ]
    (failure,) = suite.iter("failure")
    assert failure.get("message") == "found 1.3 %; valid: 1 to 1.2 %"
    assert failure.text == "a < b & c"
    assert [(p.get("name"), p.get("value")) for p in suite.iter("property")] == [
        ("clock", "native")
    ]


def test_junit_of_a_run_that_could_not_be_made() -> None:
    root = ET.fromstring(junit(Outcome("regression", problem="no root\x1b\nreally")))
    (error,) = root.iter("error")
    assert (error.get("message"), error.text) == ("no root", "no root\nreally")
    assert root[0].get("tests") == root[0].get("errors") == "1"


def test_markdown_names_what_is_outside_first() -> None:
    text = markdown(Outcome("regression", FOUND, facts={"run": "a|b"}))
    lines = text.splitlines()
    assert lines[0] == "## ❌ regression: 1 of 2 bands hold, outside: mplr"
    assert lines[2] == r"run: a\|b"
    assert lines[4] == "- **ldm7-x: mplr: found 1.3 %; valid: 1 to 1.2 % (a < b & c)**"
    assert (
        "| not asked | - | mplr | at least 1 % | no value | for the virtual clock only |" in lines
    )
    assert all(line.count("|") == 7 for line in lines if line.startswith("| "))
    assert markdown(Outcome("x", FOUND[:1])).startswith("## ✅ x: 1 of 1 bands hold")


# -- proposals --------------------------------------------------------------------------------
TEXT = """# why there are bands
experiment: x
bands:
  - metric: ffdr # a demand
    low: 99
    reason: why
  - metric: retransmitted_blocks
    low: 2427
    high: 2427
    reason: "same seed"
  - {metric: throughput, low: 1, high: 2, unit: Mbit/s, reason: why}
"""


def test_a_proposal_moves_measured_bands_only() -> None:
    """1 % around 4 to 5 Mbit/s is 3.96 to 5.05; equal values of an exact band stay exact."""
    known = bands.check_file(parse_document(TEXT, "b")).bands
    found = metrics(ffdr=98, retransmitted_blocks=2430, throughput=4e6)
    found["cells"]["ldm6-x"]["values"]["throughput"] = {"value": 5e6}
    text = bands.propose(TEXT, known, judge(known, found), 0.01)
    assert text == TEXT.replace("2427", "2430").replace(
        "low: 1, high: 2,", "low: 3.96, high: 5.05,"
    )


# -- the command ------------------------------------------------------------------------------
@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Write a run directory whose regression is within all bands but one."""
    found = metrics(
        "virtual", 10, products_identical=1, ffdr=98, retransmitted_blocks=9, verdict_invalid=0
    )
    for name, value in (("ldm7-x", 1.1), ("ldm6-x", 8.4)):
        found["cells"][name]["values"]["bandwidth_over_offered"] = {"value": value}
    path = tmp_path / "run"
    path.mkdir()
    (path / "metrics.json").write_text(json.dumps(found))
    return path


def test_the_command_names_the_offending_metric(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    xml = tmp_path / "deep/junit.xml"
    assert cli.main(["regression", "--run", str(run), "--junit", str(xml)]) == 1
    captured = capsys.readouterr()
    assert captured.err == (
        "*** ldm7-x: ffdr: found 98 %; valid: at least 99 % "
        "(f_snd = 5000 leaves time for every retransmission at this load)\n"
    )
    assert captured.out.endswith("regression: 7 of 8 bands hold, outside: ffdr\n")
    assert len(list(ET.parse(xml).iter("failure"))) == 1
    assert summary.read_text().startswith("before\n## ❌ regression: 7 of 8")


# Of 20 s on two cores: the time of others, and the run's own.
STOLEN = Load(20.0, (CoreLoad("cpu0", 0.3, 0.14), CoreLoad("cpu1", 0.4, 0.14)), (), 14.0, "tsc")
FOREIGN = dataclasses.replace(STOLEN, cores=(CoreLoad("cpu0", 0.8, 0.0), CoreLoad("cpu1", 0.8, 0)))
QUIET = dataclasses.replace(STOLEN, cores=(CoreLoad("cpu0", 0.4, 0.01), CoreLoad("cpu1", 0.35, 0)))
SPINNING = ProcessLoad("", "spins", 1, 12.0, 0.0, 9)
OWN = dataclasses.replace(FOREIGN, processes=(SPINNING,))
ALL_BUSY = dataclasses.replace(OWN, cores=(CoreLoad("cpu0", 1.0, 0.0), CoreLoad("cpu1", 0.9, 0.0)))

LATE_PACKETS = (
    "delays during the replay: 2 blocks of 10 s of 2 flights: a to b (path), half of the packets "
    "took 49.864 ms or more instead of 18 ms"
)


def judged(run: Path, checks: Sequence[str], load: Load | None, **changes: float) -> int:
    """Return the exit code of a run whose cells are invalid: one by steal, one by `checks`."""
    values = {"products_identical": 1, "ffdr": 100, "retransmitted_blocks": 9, "verdict_invalid": 1}
    found = metrics("virtual", 10, **{**values, **changes})
    loads = {"ldm7-x": STOLEN, "ldm6-x": load}
    names = {"ldm7-x": ("CPU steal",), "ldm6-x": checks}
    for cell, value in (("ldm7-x", 1.1), ("ldm6-x", 8.4)):
        found["cells"][cell]["values"]["bandwidth_over_offered"] = {"value": value}
        place = run / "cells" / cell
        place.mkdir(parents=True)
        told = [check.partition(": ") for check in names[cell]]
        failed = [{"name": name, "status": "fail", "text": text} for name, _, text in told]
        warned = {"name": "delays during the replay", "status": "warn", "text": ""}
        (place / "verdict.json").write_text(json.dumps({"checks": [*failed, warned]}))
        if (its := loads[cell]) is not None:
            (place / "load.json").write_text(json.dumps(its.to_dict()))
    (run / "metrics.json").write_text(json.dumps(found))
    return cli.main(["regression", "--run", str(run)])


@pytest.mark.parametrize(
    ("checks", "load", "said"),
    [
        (["CPU steal"], STOLEN, "14% of the processors were taken by others (14% by the hyperv"),
        (["CPU", "run queue"], FOREIGN, "45% of the processors were taken by others (0% by the "),
        ([LATE_PACKETS], FOREIGN, "45% of the processors were taken by others (0% by the "),
    ],
)
def test_a_machine_that_others_used_decides_nothing(
    run: Path, capsys: pytest.CaptureFixture[str], checks: list[str], load: Load, said: str
) -> None:
    assert judged(run, checks, load) == 3
    out = capsys.readouterr().out
    assert "NOT DECIDED, this machine was too busy: ldm6-x: " + said in out
    names = ", ".join(check.partition(":")[0] for check in checks)
    assert f"35% by the run; {names}; ldm7-x: 14%" in out


@pytest.mark.parametrize(
    ("checks", "load"),
    [
        (["firewall rules"], FOREIGN),
        (["CPU steal", "firewall rules"], FOREIGN),  # others, and something wrong
        (["CPU steal", "CPU of single processes"], STOLEN),
        ([], FOREIGN),
        ([f"{LATE_PACKETS}; a to c (path), 0 to 10 s, the fastest 8.000 ms"], FOREIGN),
        ([LATE_PACKETS], QUIET),  # more than the switches of an idle machine forward
        (["run queue"], QUIET),  # the run's programs hindered each other
        (["CPU", "run queue"], OWN),
        (["CPU", "run queue"], ALL_BUSY),  # others, and a program that spins
        (["CPU steal"], None),
        (["CPU steal"], dataclasses.replace(STOLEN, cores=())),
        (["CPU steal"], dataclasses.replace(STOLEN, elapsed_s=0.0)),
    ],
)
def test_a_busy_machine_hides_no_failure(
    run: Path, capsys: pytest.CaptureFixture[str], checks: list[str], load: Load | None
) -> None:
    assert judged(run, checks, load) == 1
    assert "NOT DECIDED" not in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [{"ffdr": 98}, {"products_identical": 0.9}])
def test_other_bands_decide_on_a_busy_machine_too(run: Path, wrong: dict[str, float]) -> None:
    assert judged(run, ["CPU steal"], STOLEN, **wrong) == 1


@pytest.mark.parametrize("file", ["verdict.json", "load.json"])
@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"checks": 1, "cores": 1}', "\udcff"])
def test_broken_evidence_decides(run: Path, file: str, text: str) -> None:
    judged(run, ["CPU steal"], STOLEN)
    (run / "cells/ldm6-x" / file).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert cli.main(["regression", "--run", str(run)]) == 1


def test_the_command_with_everything_within(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (run / "metrics.json").read_text().replace('"value": 98', '"value": 100')
    (run / "metrics.json").write_text(text)
    assert cli.main(["regression", "--run", str(run)]) == 0
    assert capsys.readouterr().err == ""


def test_a_proposal_is_a_new_file_and_shown(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(TEXT)
    new = tmp_path / "new.yaml"
    argv = ["regression", "--run", str(run), "--bands", str(own), "--update-bands", str(new)]
    assert cli.main(argv) == 1
    assert own.read_text() == TEXT
    assert "low: 9\n    high: 9\n" in new.read_text()
    assert "+    high: 9" in capsys.readouterr().out
    assert cli.main(argv) == 2
    assert "which exists; valid: a new file" in capsys.readouterr().err
    assert cli.main([*argv[:-1], str(own)]) == 2


@pytest.mark.parametrize("broken", ["invalid", "failed"])
def test_no_bands_are_proposed_of_a_run_that_decides_nothing(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: str
) -> None:
    """Bands that do not mention the verdict must not let such a run's figures in."""
    own, new = tmp_path / "own.yaml", tmp_path / "new.yaml"
    own.write_text("experiment: regression\nbands:\n  - {metric: ffdr, low: 1, reason: why}\n")
    if broken == "failed":
        (run / "manifest.json").write_text('{"failed": {"ldm6-x": {"reason": "no end"}}}')
    else:
        (run / "metrics.json").write_text(json.dumps(metrics("virtual", 10, verdict_invalid=1)))
    cli.main(["regression", "--run", str(run), "--bands", str(own), "--update-bands", str(new)])
    assert not new.exists()
    said = "ldm6-x failed; valid: a run" if broken == "failed" else "the verdict of ldm6-x is inva"
    assert f"--update-bands: found {said}" in capsys.readouterr().err


def test_a_cell_that_failed_is_an_error_beside_the_bands(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failed cell does not stop a run; here all bands but one hold in the other cells."""
    (run / "manifest.json").write_text('{"failed": {"ldm6-y": {"reason": "no end within 9 s"}}}')
    (run / "metrics.json").write_text((run / "metrics.json").read_text().replace("98", "100"))
    xml, summary = tmp_path / "junit.xml", tmp_path / "s.md"
    argv = ["regression", "--run", str(run), "--junit", str(xml), "--summary", str(summary)]
    assert cli.main(argv) == 1
    captured = capsys.readouterr()
    assert captured.err == "*** ldm6-y: no end within 9 s\n"
    assert captured.out.endswith("8 of 8 bands hold, failed: ldm6-y\n")
    (case,) = [c for c in ET.parse(xml).iter("testcase") if c.find("error") is not None]
    assert case.get("name") == "ldm6-y"
    assert ET.parse(xml).getroot()[0].get("tests") == "9"
    assert "**ldm6-y**\n```\nno end within 9 s" in summary.read_text()


@pytest.mark.parametrize("text", ['{"failed": ["a"]}', '{"failed": {"a": 1}}', "[]"])
def test_a_manifest_that_is_not_one_is_named(
    run: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (run / "manifest.json").write_text(text)
    assert cli.main(["regression", "--run", str(run)]) == 1
    assert f"found {run}/manifest.json without the " in capsys.readouterr().err


def test_a_run_of_another_experiment_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "manifest.json").write_text('{"experiment": "synthetic"}')
    assert cli.main(["regression", "--run", str(run)]) == 2
    said = capsys.readouterr().err
    assert f"--run: found {run}, a run of synthetic; valid: a run of regression" in said
    own = tmp_path / "own.yaml"
    own.write_text(TEXT.replace("experiment: x", "experiment: synthetic"))
    assert cli.main(["regression", "--bands", str(own)]) == 2
    said = capsys.readouterr().err
    assert f"--bands: found {own}, bands of synthetic; valid: bands of regression" in said


def test_a_run_that_is_not_there_is_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["regression", "--run", str(tmp_path / "none")]) == 2
    captured = capsys.readouterr()
    assert f"--run: found no run in {tmp_path}/none; valid: a run directory," in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("option", ["--junit", "--summary"])
@pytest.mark.parametrize(
    ("place", "found"),
    [("there", "a directory"), ("file/x/y", "no directory"), ("sealed/x", "no right to write")],
)
def test_a_file_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
    place: str,
    found: str,
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "sealed").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.setattr(regression, "_make", lambda _: pytest.fail("it ran"))
    writable = os.access
    monkeypatch.setattr(os, "access", lambda p, m: "sealed" not in str(p) and writable(p, m))
    assert cli.main(["regression", option, str(tmp_path / place)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{option}: found {tmp_path}/")
    assert found in said and "; valid: " in said


def test_a_run_without_metrics_is_an_error_in_junit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    xml = tmp_path / "junit.xml"
    assert cli.main(["regression", "--run", str(tmp_path), "--junit", str(xml)]) == 1
    assert "found no metrics in" in capsys.readouterr().err
    assert len(list(ET.parse(xml).iter("error"))) == 1


def test_a_run_whose_cells_all_failed_has_no_error_that_follows_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, xml, summary = tmp_path / "run", tmp_path / "junit.xml", tmp_path / "s.md"
    (run / "failed/ldm7-x").mkdir(parents=True)
    reasons = {name: {"reason": "no end within 9 s"} for name in ("ldm6-y", "ldm7-x")}
    (run / "manifest.json").write_text(json.dumps({"failed": reasons}))
    argv = ["regression", "--run", str(run), "--junit", str(xml), "--summary", str(summary)]
    assert cli.main(argv) == 1
    captured = capsys.readouterr()
    assert captured.err == "*** ldm6-y: no end within 9 s\n*** ldm7-x: no end within 9 s\n"
    first, last = captured.out.splitlines()
    assert first == "regression: no cell has a result, failed: ldm6-y, ldm7-x"
    assert last == f"Logs of failed cells: {run}/failed (in CI, keep this directory)"
    assert [e.get("message") for e in ET.parse(xml).iter("error")] == ["no end within 9 s"] * 2
    assert "no end within 9 s" in summary.read_text()
    assert "| cell |" not in summary.read_text()


def test_no_kernel_and_no_root(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(regression, "find_kernel", lambda: None)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert cli.main(["regression"]) == 1
    assert "valid: `make virtual-kernel` first, or `make regression" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["lossy"], "bands: found no lossy.yaml; valid: an experiment with bands: join-leave, reg"),
        (["--bands", "/none"], "/none:1: found no readable file"),
        (["--tolerance", "5"], "found '5'; valid: 0% to 100%"),
        (["--clock", "sun"], "--clock: found 'sun'; valid: auto, native, virtual"),
    ],
)
def test_bad_usage(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["regression", *arguments]) == 2
    assert expected in capsys.readouterr().err


def test_a_finding_tells_metric_found_and_band() -> None:
    finding = Finding("c", FFDR, 98.123456789, "outside", "why")
    assert str(finding) == "c: ffdr: found 98.12346 %; valid: at least 99 % (why)"
