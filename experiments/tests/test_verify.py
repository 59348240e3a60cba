# SPDX-License-Identifier: Apache-2.0
"""If a run was tampered with, that is found, and where."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from experiments.design.selection import select
from experiments.design.spec import at_level, find, load
from experiments.runs import asked_cells, digests
from experiments.runs.options import VerifyOptions
from experiments.runs.preparation import cells_of
from experiments.runs.records import FORMAT
from experiments.runs.same_values import same_value
from experiments.runs.verify import main
from parsers.measure.agreement import leaves
from parsers.measure.evaluate import evaluate
from parsers.report.publish import write_report
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "synthetic" / "20261122T000000Z"
    write_synthetic_run(run, SyntheticCell("ldm7"), SyntheticCell("ldm6"))
    for cell in sorted((run / "cells").iterdir()):
        digests.write_cell(cell)
    (run / "metrics.json").write_text(json.dumps(evaluate(run).document))
    digests.write_run(run)
    return run


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def verified(run: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(VerifyOptions(run=run, quiet=True))
    return code, capsys.readouterr().out


def test_untouched(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = verified(run, capsys)
    assert code == 0, text
    assert "Verified: 2 cells, " in text
    cell = run / "cells/ldm7-m2-r20-p1"
    files = sum(1 for p in cell.rglob("*") if p.is_file()) - 1  # without digests.json
    assert f"ldm7-m2-r20-p1: {files} files, " in text


def test_one_byte_of_a_log(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The size of a received product, 250000 -> 250001: one of 2 x 40 counts as not received."""
    log = run / "cells/ldm7-m2-r20-p1/logs/r1.ldmd.log"
    log.write_text(log.read_text().replace("    250000 ", "    250001 ", 1))
    code, text = verified(run, capsys)
    assert code == 1
    assert "changed: logs/r1.ldmd.log" in text
    assert "ldm6-m2-r20-p1: " in text
    assert text.splitlines()[-1].startswith("NOT VERIFIED")
    assert "problems: ldm7-m2-r20-p1" in text.splitlines()[-1]
    assert "values.ffdr.value: metrics.json has 100.0, the logs give 98.75" in text


def test_one_value_of_the_metrics(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "metrics.json"
    metrics = json.loads(path.read_text())
    value = metrics["cells"]["ldm6-m2-r20-p1"]["values"]["nic_bandwidth"]
    value["value"] *= 1 + 1e-8
    path.write_text(json.dumps(metrics))
    code, text = verified(run, capsys)
    assert code == 1
    assert "ldm6-m2-r20-p1: " in text
    assert "  values.nic_bandwidth.value: metrics.json has " in text
    assert "problems: ldm6-m2-r20-p1" in text.splitlines()[-1]


def test_rounding_is_no_difference(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "metrics.json"
    metrics = json.loads(path.read_text())
    value = metrics["cells"]["ldm7-m2-r20-p1"]["values"]["latency_mean"]
    value["value"] *= 1 + 1e-12
    path.write_text(json.dumps(metrics))
    assert verified(run, capsys)[0] == 0


def test_a_missing_and_an_added_file(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "cells/ldm6-m2-r20-p1/logs/sar.log").unlink()
    (run / "cells/ldm7-m2-r20-p1/logs/note.txt").write_text("x")
    (run / "extra.txt").write_text("x")
    code, text = verified(run, capsys)
    assert code == 1
    assert "missing: logs/sar.log" in text
    assert "extra: logs/note.txt" in text
    assert "extra: extra.txt" in text


def test_changed_digests_are_found_too(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log that no metric reads is changed, and the cell's digests are written again."""
    cell = run / "cells/ldm7-m2-r20-p1"
    (cell / "logs/relay.log").write_text("something else\n")
    digests.write_cell(cell)
    code, text = verified(run, capsys)
    assert code == 1
    assert "changed: cells/ldm7-m2-r20-p1/digests.json" in text


def test_a_cell_that_is_gone(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(run / "cells/ldm6-m2-r20-p1")
    code, text = verified(run, capsys)
    assert code == 1
    assert "missing: cells/ldm6-m2-r20-p1/digests.json" in text
    assert "ldm6-m2-r20-p1: 0 files" in text


def test_without_digests_nothing_is_verified(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "digests.json").unlink()
    code, text = verified(run, capsys)
    assert code == 1
    assert "no digests.json: cannot check whether its files were changed" in text


def test_a_report_that_was_replaced(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_report(run)
    assert verified(run, capsys)[0] == 0
    (run / "report/index.html").write_text("<h1>anything</h1>")
    (run / "report/more.html").write_text("anything else")
    code, text = verified(run, capsys)
    assert code == 1
    assert "report/: changed: index.html (" in text
    assert "report/: extra: more.html" in text
    write_report(run)  # anyone may write another
    assert verified(run, capsys)[0] == 0


def test_a_report_without_digests(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An older run's is not checked; a newer run's must have them."""
    write_report(run)
    (run / "report/digests.json").unlink()
    code, text = verified(run, capsys)
    assert code == 0
    assert "report/ not checked: it was written before" in text
    record = run / "cells/ldm7-m2-r20-p1/run.json"
    record.write_text(json.dumps({"format": FORMAT}))
    assert "report/: no digests.json: cannot check" in verified(run, capsys)[1]


class TestAskedCells:
    """The cells of a run against those that its manifest asks for."""

    SPEC = at_level(load(find("loss-sweep")), None).model_copy(update={"repeats": 4})
    CELLS = tuple(cells_of(SPEC, None))
    NAMES = tuple(cell.cell for cell in CELLS)

    def found(self, *, there: list[str], new: bool = True, **told: object) -> asked_cells.Asked:
        manifest = {"spec": self.SPEC.model_dump(mode="json"), "only": [], **told}
        return asked_cells.check(Path("run"), manifest, there, is_new=new)

    def test_all(self) -> None:
        assert self.found(there=list(self.NAMES)) == asked_cells.Asked()

    def test_missing(self) -> None:
        """Cells are deleted, and named nowhere else any more."""
        found = self.found(there=list(self.NAMES[:-3]))
        assert len(found.problems) == 3
        assert found.problems[0].startswith(f"missing: cell {self.NAMES[-3]}, which")

    def test_failed(self) -> None:
        """A cell without a result is no secret: the manifest and the report name it."""
        gone = self.NAMES[5]
        there = [name for name in self.NAMES if name != gone]
        assert self.found(there=there, failed={gone: {}}).problems == ()

    def test_chosen(self) -> None:
        """By the record, or by an older run's command."""
        there = [c.cell for c in select(self.CELLS, ["protocol=ldm7", "repeat=1"])]
        options = ["--only", "protocol=ldm7", "--only=repeat=1"]
        command = ["downpour", "run", "loss-sweep", *options]
        for told in ({"only": ["protocol=ldm7", "repeat=1"]}, {"only": None, "command": command}):
            assert self.found(there=there, **told) == asked_cells.Asked()
            assert len(self.found(there=there[1:], **told).problems) == 1

    def test_not_known(self) -> None:
        command = ["downpour", "repeat", "runs/x"]
        found = self.found(there=[self.NAMES[0]], only=None, command=command)
        assert found.problems == ()
        assert "has no 'only'" in found.note

    def test_extra(self) -> None:
        there = [*self.NAMES, "another"]
        assert "extra: cell another, which" in self.found(there=there).problems[0]
        assert "other names than another" in self.found(there=there, new=False).note

    def test_damaged(self) -> None:
        spec: object
        for spec in (None, [], {"kind": 3}, {"name": "x"}):
            assert self.found(there=[], spec=spec).problems
            assert self.found(there=[], spec=spec, new=False).note

    def test_until_decided(self) -> None:
        """The first repeats must be there, and all before the last of a point."""
        until: dict[str, object] = {"stopped": "", "over": False, "repeats": 2}
        first = [c.cell for c in self.CELLS if c.repeat < 2]
        assert self.found(there=first, until_decided=until).problems == ()
        assert len(self.found(there=first[1:], until_decided=until).problems) == 1
        assert self.found(there=first[:-1], until_decided=until | {"over": True}).problems == ()
        point = [c.cell for c in self.CELLS if c.factors == self.CELLS[0].factors]
        more = [*first, point[2], point[3]]
        assert self.found(there=more, until_decided=until).problems == ()
        more.remove(point[2])
        assert point[2] in self.found(there=more, until_decided=until).problems[0]


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(VerifyOptions(run=tmp_path)) == 2
    assert "valid: a run directory" in capsys.readouterr().err
    (tmp_path / "cells").mkdir()
    assert main(VerifyOptions(run=tmp_path)) == 2
    assert "metrics.json: found nothing" in capsys.readouterr().err
    (tmp_path / "metrics.json").write_text("[1]")
    assert main(VerifyOptions(run=tmp_path)) == 2
    assert "not the metrics of a run" in capsys.readouterr().err


def test_a_file_that_would_never_end(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run / "metrics.json"
    file.unlink()
    os.mkfifo(file)
    assert main(VerifyOptions(run=run)) == 2
    assert f"{file}: found no regular file (a FIFO" in capsys.readouterr().err


def test_a_file_that_was_cut(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The metrics cannot be computed, but the digests say which files were changed."""
    cell = run / "cells/ldm7-m2-r20-p1"
    counters = cell / "counters-end.json"
    counters.write_text(counters.read_text()[:100])
    (run / "cells/ldm6-m2-r20-p1/logs/sar.log").write_text("")
    code, text = verified(run, capsys)
    assert code == 1
    assert text.index("changed: counters-end.json (") < text.index("the logs give no metrics: ")
    assert f"the logs give no metrics: {counters}: Invalid JSON" in text
    assert "changed: logs/sar.log (" in text
    assert ": 1 PROBLEM\n" in text and "1 PROBLEMS" not in text
    assert text.splitlines()[-1].startswith("NOT VERIFIED")


@pytest.mark.parametrize("key", ["duration_s", "insertion_started", "insertion_ended"])
@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_numbers_that_are_none(
    run: Path, capsys: pytest.CaptureFixture[str], key: str, value: str
) -> None:
    file = run / "cells/ldm7-m2-r20-p1/cell.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: float(value)}))
    code, text = verified(run, capsys)
    assert code == 1
    assert f"{file}: {key}: Input should be a finite number; found " in text


@pytest.mark.parametrize("value", ["x", None, 0])
def test_metrics_with_another_size_of_file_sets(
    run: Path, capsys: pytest.CaptureFixture[str], value: object
) -> None:
    path = run / "metrics.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "file_set_bytes": value}))
    assert main(VerifyOptions(run=run)) == 2
    assert f"file_set_bytes is {json.dumps(value)}; valid: a" in capsys.readouterr().err


def test_values() -> None:
    assert same_value(2427, 2427.0)
    assert not same_value(2427.0, 2428.0)
    assert not same_value(1e12, 1e12 + 1)  # a relative 1e-12, but a count
    assert same_value(0.1 + 0.2, 0.3)
    assert not same_value(0.3, 0.3 + 1e-9)
    assert not same_value(None, 0)
    assert not same_value(True, 1)
    assert not same_value("1", 1)
    assert dict(leaves({"a": [1, {"b": []}], "c": {}})) == {"a[0]": 1, "a[1].b": [], "c": {}}
