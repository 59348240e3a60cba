# SPDX-License-Identifier: Apache-2.0
"""A report says at its top that documents were changed since the run was complete."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from common import digests
from common.exit_codes import EXIT_USAGE
from parsers.__main__ import main
from parsers.report.changed import changed_documents, warning_about
from parsers.report.publish import write_report
from parsers.tests.synthetic import SyntheticCell, write_synthetic_run

NAME = "ldm7-m2-r20-p1"


def sealed(directory: Path, files: list[Path]) -> None:
    """Write digests.json, as the room `experiments` does."""
    described = {}
    for file in files:
        found = digests.digest_of(file)
        name = str(file.relative_to(directory))
        described[name] = {"sha256": found.sha256, "size_bytes": found.size_bytes}
    text = json.dumps({"algorithm": "sha256", "files": described})
    (directory / digests.NAME).write_text(text)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "synthetic/20261122T000000Z"
    write_synthetic_run(run, SyntheticCell("ldm7"), SyntheticCell("ldm6"))
    for cell in sorted((run / "cells").iterdir()):
        sealed(cell, [p for p in cell.rglob("*") if p.is_file()])
    sealed(run, [run / "manifest.json", *run.glob(f"cells/*/{digests.NAME}")])
    return run


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "synthetic/20261122T000000Z"))


def better(run: Path) -> None:
    """Give a cell another verdict."""
    file = run / "cells" / NAME / "verdict.json"
    file.write_text(file.read_text().replace("faithful", "degraded"))


def test_nothing_changed(run: Path) -> None:
    written = write_report(run)
    assert written.brief.warning == ""
    assert "Changed files" not in written.text
    assert "changed since" not in (run / "report/index.html").read_text()


def test_a_changed_verdict(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    better(run)
    written = write_report(run)
    start = "1 file of this run changed since it was complete, so do not trust this report: "
    assert written.brief.warning.startswith(f"{start}changed: cells/{NAME}/verdict.json (")
    assert written.brief.warning.endswith(
        "`downpour verify runs/synthetic/20261122T000000Z` says what differs."
    )
    found = json.loads((run / "report/brief.json").read_text())
    assert found["warning"] == written.brief.warning
    assert "Changed files" in written.text.splitlines()[1]
    page = (run / "report/index.html").read_text()
    assert page.index("1 file of this run changed") < page.index('class="result"')
    assert "**1 file of this run changed" in (run / "report/report.md").read_text()
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("*** 1 file of this run changed")


def test_changed_digests_are_found_too(run: Path) -> None:
    better(run)
    cell = run / "cells" / NAME
    files = [p for p in cell.rglob("*") if p.is_file() and p.name != digests.NAME]
    sealed(cell, files)
    (found,) = changed_documents(run)
    assert found.startswith(f"changed: cells/{NAME}/{digests.NAME} (")


def test_what_is_missing_extra_or_unreadable(run: Path) -> None:
    cell = run / "cells" / NAME
    (cell / "counters-end.json").unlink()
    (cell / "virtual.json").write_text("{}")
    (run / "manifest.json").write_text("{}")
    (run / "cells/ldm6-m2-r20-p1" / digests.NAME).write_text("{")
    found = changed_documents(run)
    assert f"missing: cells/{NAME}/counters-end.json" in found
    assert f"extra: cells/{NAME}/virtual.json" in found
    assert found[0].startswith("changed: cells/ldm6-m2-r20-p1/digests.json (")
    assert found[1].startswith("changed: manifest.json (")
    assert found[2].startswith("unreadable: cells/ldm6-m2-r20-p1/digests.json cannot be read")
    warning = warning_about(found, "a/b")
    assert warning.startswith("5 files of this run changed")
    assert "; 2 more. " in warning


def test_logs_are_left_to_verify(run: Path) -> None:
    """They may be gigabytes."""
    (run / "cells" / NAME / "logs/sar.log").write_text("")
    assert changed_documents(run) == []


def test_a_file_that_would_never_end(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run / f"cells/{NAME}/verdict.json"
    file.unlink()
    os.mkfifo(file)
    assert main(["report", str(run)]) == EXIT_USAGE
    assert f"{file}: found no regular file (a FIFO, a device or a socket); valid" in (
        capsys.readouterr().err
    )


def test_a_run_that_is_not_complete(run: Path) -> None:
    """The run has no digests yet, one of its cells has none, and another is being made."""
    (run / digests.NAME).unlink()
    (run / "cells" / NAME / digests.NAME).unlink()
    (run / "cells/.ldm7-m4-r20-p1.partial").mkdir()
    better(run)
    assert changed_documents(run) == []
    assert write_report(run).brief.warning == ""
