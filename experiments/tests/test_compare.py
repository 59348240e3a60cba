# SPDX-License-Identifier: Apache-2.0
"""`downpour report RUN RUN` on SYNTHETIC runs (parsers/tests/synthetic.py)."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.exit_codes import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from experiments.cli import main as command
from experiments.runs import compare
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run

Output = pytest.CaptureFixture[str]


def run(tmp_path: Path, name: str, *cells: SyntheticCell) -> Path:
    return write_synthetic_run(tmp_path / "lossy" / name, *cells)


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


def main(arguments: list[Any]) -> int:
    return command(["report", "--full", *(str(a) for a in arguments)])


def flat(text: str) -> str:
    """Return the text without line breaks and frames."""
    return " ".join(text.translate(str.maketrans("│║", "  ")).split())


def compared(capsys: Output, *arguments: str | Path) -> str:
    assert main(list(arguments)) == EXIT_OK
    return flat(capsys.readouterr().out)


def test_identical_repeats(tmp_path: Path, capsys: Output) -> None:
    cell = SyntheticCell("ldm7", clock="virtual", real_s=25.0)
    runs = [run(tmp_path, name, cell) for name in ("1", "2", "3")]
    text = compared(capsys, *runs, "--identical")
    assert "3 repeats, virtual time (A, B, C): identical to the last digit" in text
    # Five kinds of logs, two hosts' logs, and three lists of products.
    files = sum(1 for p in (runs[0] / "cells" / cell.name).glob("[lp][or]*/*") if p.is_file())
    assert f"{files} of {files} logs and lists are the same byte for byte" in text
    assert "virtual (kernel 7.2.11, seed 1, 20 s took 25.0 s of real time, ratio 0.80" in text
    assert (
        "n/a: Sender CPU, all cores, Sender CPU, of one core, CPU by ps, all cores: virtual" in text
    )


def test_repeats_that_differ_are_told_where(tmp_path: Path, capsys: Output) -> None:
    runs = [
        run(tmp_path, str(us), SyntheticCell("ldm7", clock="virtual", late_us=us)) for us in (0, 3)
    ]
    assert main([*runs, "--identical"]) == EXIT_FAILED
    out = capsys.readouterr()
    text = flat(out.out)
    assert "not identical: " in text
    assert "deliveries differ at 2 of 2 receivers" in text
    # 150.000 and 150.003 ms, p50 over both receivers; 3 us of their mean are 0.002 %.
    assert "Latency p50, ms 150.0000 150.0030 0.003 0.002 % NO" in text
    assert "FFDR, % 100.00000 100.00000 0 0 % yes" in text
    assert "NO 0.003 NO 0.003" in text
    assert "logs/r1.ldmd.log" in text
    assert "--identical" in out.err


def test_other_inputs_are_no_plain_repeat(tmp_path: Path, capsys: Output) -> None:
    one, other = (run(tmp_path, n, SyntheticCell("ldm7")) for n in "12")
    file = other / "cells/ldm7-m2-r20-p1/cell.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"seed": 2, "loss_model": "hash"}))
    text = compared(capsys, one, other)
    assert "arrival; different inputs: seed, loss model" in text
    assert "seed 1 2 loss model not told hash" in text


def test_a_run_with_repeats_alone(tmp_path: Path, capsys: Output) -> None:
    cells = [SyntheticCell("ldm7", repeat=0), SyntheticCell("ldm7", repeat=1)]
    text = compared(capsys, run(tmp_path, "1", *cells), "--identical")
    assert "2 repeats, native time (A1, A2): identical" in text


def test_native_and_virtual(tmp_path: Path, capsys: Output) -> None:
    native = [run(tmp_path, str(us), SyntheticCell("ldm7", late_us=us)) for us in (0, 1000)]
    virtual = run(tmp_path, "v", SyntheticCell("ldm7", clock="virtual", late_us=2000))
    pages, file = tmp_path / "pages", tmp_path / "c.json"
    text = compared(capsys, *native, virtual, "--output", pages, "--json", file)
    # p50: (150 + 151) / 2 = 150.5 ms natively, 152 ms in virtual time: +1.5 ms, 1.00 %.
    assert "150.50 152.00 +1.50 +1.00 % NO" in text
    assert "n/a: virtual time" in text
    assert "virtual against native:" in text
    (found,) = json.loads(file.read_text())["comparisons"]
    p50 = found["clocks"]["metrics"]["latency_p50"]
    assert p50["native"]["value"] == pytest.approx(0.1505)
    assert p50["difference"] == pytest.approx(0.0015)
    assert p50["native_maximum"] == pytest.approx(0.151)
    cpu = found["clocks"]["metrics"]["cpu"]
    assert cpu["virtual"] == {
        "value": None,
        "reason": "virtual time: the processor is infinitely fast there",
    }
    (repeats,) = found["repeats"]
    assert (repeats["clock"], repeats["identical"]) == ("native", False)
    assert repeats["receivers"]["r1"]["latency_differs_s"] == pytest.approx(0.001)
    html = (pages / "index.html").read_text()
    assert html.startswith("<!DOCTYPE html>") and "native (A, B) and virtual (C)" in html


@pytest.mark.slow
def test_points_of_two_runs_with_their_difference(tmp_path: Path, capsys: Output) -> None:
    """Medians: 300 and 310, then 302 and 310 ms; differences 2 and 0: mean 1, s = sqrt 2, and t(1)
    s / sqrt 2 = 12.706. The same losses, settings and trace; another kernel."""
    runs = []
    for name, late_us in (("1", (0, 10_000)), ("2", (2_000, 10_000))):
        cells = [SyntheticCell("ldm6", repeat=n, late_us=us) for n, us in enumerate(late_us)]
        cells += [replace(cell, m=4) for cell in cells]
        figure = {
            "name": "f", "title": "Latency over m", "kind": "lines", "x": "receivers",
            "metric": "latency_p50",
        }  # fmt: skip
        manifest = {"experiment": "x", "kernel": f"Linux {name}", "spec": {"figures": [figure]}}
        directory = tmp_path / "x" / name
        runs.append(write_synthetic_run(directory, *cells, manifest=manifest))
    text = compared(capsys, *runs)
    assert "Latency p50, ms; LDM6, r = 20 Mbit/s, p = 1 %" in text
    assert "m = 2 305.0 ± 63.5 306.0 ± 50.8 +1.0 ± 12.7 +0.3 % yes" in text
    # Repeats are compared by number: the second ones are equal, the first ones are not.
    assert "20 s, repeat 2: 2 repeats, native time (A2, B2): identical" in text
    assert "20 s, repeat 1: 2 repeats, native time (A1, B1): not identical" in text
    assert "A and B agree within their error bars: 0 of " in text
    assert "kernel Linux 1 Linux 2" in text
    pages = tmp_path / "compared" / "x-1--x-2"
    names = {p.name for p in pages.iterdir()}
    assert names == {"index.html", "report.md", "report.txt", "f.svg", "f.png", "f.pdf"}
    html = (pages / "index.html").read_text()
    assert "run = A: 305.0 ms at m = 2" in html and "run = B: 306.0 ms at m = 2" in html
    before = html
    compared(capsys, *runs)  # replaces it
    assert (pages / "index.html").read_text() == before


def test_runs_of_other_seeds_are_not_paired(tmp_path: Path, capsys: Output) -> None:
    runs = []
    for name, first in (("1", 1), ("2", 5)):
        cells = [SyntheticCell("ldm6", repeat=n) for n in range(2)]
        told = [{"repeat": n, "seed": first + n} for n in range(2)]
        manifest = {"experiment": "x", "cells": told}
        runs.append(write_synthetic_run(tmp_path / "x" / name, *cells, manifest=manifest))
    text = compared(capsys, *runs)
    assert "B - A: of the means over the repeats, whose seeds differ between the runs" in text
    assert "same seed" not in text


def test_many_runs_show_every_value(tmp_path: Path, capsys: Output) -> None:
    runs = [run(tmp_path, str(us), SyntheticCell("ldm6", late_us=us)) for us in range(5)]
    text = compared(capsys, *runs)
    for value in ("300.0000 300.0010 300.0020 300.0030", "Latency p50, ms 300.0040"):
        assert value in text


def bad(capsys: Output, *arguments: Any) -> str:
    assert main(list(arguments)) == EXIT_USAGE
    out = capsys.readouterr()
    assert out.out == ""
    assert "Traceback" not in out.err and out.err.count("\n") == 1
    return out.err


@pytest.mark.slow
def test_bad_input_is_one_message_and_nothing_is_written(tmp_path: Path, capsys: Output) -> None:
    good = run(tmp_path, "1", SyntheticCell("ldm7"))
    alias = good.parent / "latest"
    alias.symlink_to(good.name)
    other = run(tmp_path, "2", SyntheticCell("ldm6"))
    file = tmp_path / "c.json"
    absent = tmp_path / "absent"
    assert f"found no run in {absent}; valid: a run directory" in bad(capsys, good, absent)
    assert f"found {alias}, the same run as {good}" in bad(capsys, good, alias)
    assert "no cells/<cell>/ in it" in bad(capsys, good, tmp_path)
    assert "no two cells under the same conditions" in bad(capsys, good, other, "--json", file)
    assert "no two cells" in bad(capsys, good, "--identical")
    (other / "cells/ldm6-m2-r20-p1/facts.json").write_text("{")
    assert "facts.json: not JSON" in bad(capsys, good, other, "--json", file)
    (other / "cells/ldm6-m2-r20-p1/facts.json").write_text("[]")
    assert "facts.json: expected an object, found list" in bad(capsys, good, other)
    assert not file.exists()
    third = run(tmp_path, "3", SyntheticCell("ldm7"))
    assert "/no/where" in bad(capsys, good, third, "--json", "/no/where/c.json")


def test_files_of_the_user_stay(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory is refused for anything in it that no comparison wrote, before the runs are
    compared; then neither the comparison nor its JSON is written."""
    runs = [run(tmp_path, name, SyntheticCell("ldm7")) for name in "12"]
    own = tmp_path / "site"
    own.mkdir()
    (own / "index.html").write_text("<title>My thesis</title>")
    (own / "chapter.tex").write_text("x")
    file = tmp_path / "c.json"
    with monkeypatch.context() as patch:
        patch.setattr(compare, "compare_runs", lambda _: pytest.fail("it computed"))
        for found in (own, Path("/"), Path("/etc/passwd"), Path("/etc/passwd/x")):
            text = bad(capsys, *runs, "--output", found, "--json", file)
            assert "--output: found /" in text and "valid: a new or empty directory" in text
        monkeypatch.chdir(own)
        for name in (".", ""):
            assert f"found {own}/chapter.tex, which" in bad(capsys, *runs, "--output", name)
    assert sorted(p.name for p in own.iterdir()) == ["chapter.tex", "index.html"]
    assert not file.exists()


def test_an_earlier_comparison_is_replaced_but_not_with_notes(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [run(tmp_path, name, SyntheticCell("ldm7")) for name in "12"]
    pages = tmp_path / "pages"
    pages.mkdir()
    file = pages / "c.json"
    monkeypatch.chdir(pages)
    compared(capsys, *runs, "--output", ".", "--json", file)
    page = pages / "index.html"
    page.write_text(page.read_text() + '<a href="old.svg">')
    (pages / "old.svg").write_text("of an earlier comparison")
    compared(capsys, *runs, "--output", pages, "--json", file)
    names = sorted(p.name for p in pages.iterdir())
    assert names == ["c.json", "index.html", "report.md", "report.txt"]
    (pages / "notes.txt").write_text("x")
    before = page.stat().st_mtime_ns
    assert "notes.txt, which no comparison" in bad(capsys, *runs, "--output", pages, "--json", file)
    assert page.stat().st_mtime_ns == before


def test_a_comparison_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [run(tmp_path, name, SyntheticCell("ldm7")) for name in "12"]
    out = tmp_path / "out"
    assert bad(capsys, *runs, "--output", out, "--json", "/no/where/c.json") == (
        "report: /no/where/c.json: No such file or directory\n"
    )
    before = sorted(tmp_path.iterdir())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(next(out.parent.glob(".out*"))))

    monkeypatch.setattr(Path, "write_bytes", full)
    text = bad(capsys, *runs, "--output", out, "--json", tmp_path / "c.json")
    assert text.startswith(f"report: {out}: No space left")
    assert sorted(tmp_path.iterdir()) == before and out not in before


def test_options_of_the_other_kind_of_report_are_refused(tmp_path: Path, capsys: Output) -> None:
    runs = [run(tmp_path, name, SyntheticCell("ldm7")) for name in "12"]
    assert "--output: found with one run" in bad(capsys, runs[0], "--output", tmp_path / "x")
    assert "--include-invalid: found with" in bad(capsys, *runs, "--include-invalid")


@pytest.mark.slow
def test_the_result_of_a_comparison_fits_a_screen(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several runs, and of two, which have a table of differences."""
    monkeypatch.setenv("COLUMNS", "80")
    runs = [
        run(tmp_path, str(us), SyntheticCell("ldm7", late_us=us), SyntheticCell("ldm6", late_us=us))
        for us in range(4)
    ]
    for chosen in (runs, runs[:2]):
        assert command(["report", *map(str, chosen), "--output", str(tmp_path / "c")]) == EXIT_OK
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) <= 40
        assert max(len(line) for line in lines[:-1]) <= 80
        assert lines[-1].endswith(f"{tmp_path}/c/index.html")
        assert "not identical" in flat(" ".join(lines))
    assert any(line.startswith("Latency p50, ms: LDM6") for line in lines)
    assert not any("Deliveries" in line for line in lines)  # --full has tables of these
