# SPDX-License-Identifier: Apache-2.0
"""Lists of the products in queues that are smaller than the replay, with the real programs."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from common.places import ROOT
from experiments.cells import cell_base
from experiments.cells.cell_base import CellBase, CellError
from experiments.cells.elsewhere import HostFiles
from experiments.cells.job import Job
from parsers.read.products import parse_products
from protocols import ldm

BUILD = ROOT / "build"
pytestmark = pytest.mark.skipif(
    not all((BUILD / f"ldm7/{p}").exists() for p in ("pqcreate", "pqinsert", "pqcat")),
    reason="SKIPPED: run `make build` first",
)
BATCHES, BATCH, SIZE = 8, 3, 50_000
PRODUCTS = BATCHES * BATCH


def run_in(directory: Path, build: Path = BUILD) -> CellBase:
    """Return a cell's run that has only what queues and their lists need."""
    run = CellBase.__new__(CellBase)
    run.out, run.queues, run.logs = directory, directory / "queues", directory / "logs"
    run.job, run.followers = cast(Job, SimpleNamespace(build=build)), {}
    run.clock_offsets_ms, run.files = {}, HostFiles({})
    (directory / "products").mkdir()
    run.logs.mkdir()
    return run


def insert(run: CellBase, name: str, batch: int) -> None:
    """Insert three products of pseudo-random bytes, different for each batch."""
    trace = run.out / "trace.txt"
    trace.write_text(f"{SIZE} 20150615000000.000\n" * BATCH)
    argv = ldm.pqinsert_argv(BUILD, run.queue(name), trace, "NGRID", batch + 1, "umass")
    subprocess.run(argv, check=True, timeout=60, stderr=subprocess.DEVNULL)


def await_lines(path: Path, lines: int) -> None:
    """Wait: a busy machine lists a queue more slowly than it overflows, which is not what is
    tested."""
    deadline = time.monotonic() + 60
    while path.read_text().count("\n") < lines:
        assert time.monotonic() < deadline, f"{lines} lines of {path}"
        time.sleep(0.01)


def test_all_products_are_listed_though_the_queue_holds_few(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    run.make_queue("large", 10_000_000, 100)
    run.make_queue("small", 200_000, 100)  # room for four of the 24
    run.follow_queue("small")
    for batch in range(BATCHES):
        for name in ("large", "small"):
            insert(run, name, batch)
        await_lines(run.product_list("small"), BATCH * (batch + 1))
    run.list_queues([("large", "large", None), ("rest", "small", None)])
    run.end_followers(PRODUCTS)
    found = {
        name: parse_products(run.product_list(name).read_text(), name).products
        for name in ("large", "small", "rest")
    }
    assert len(found["rest"]) <= 4
    assert len(found["large"]) == PRODUCTS
    assert found["small"] == found["large"]


def test_what_never_comes_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_base, "LISTS_S", 0.1)
    run = run_in(tmp_path)
    run.make_queue("small", 200_000, 100)
    run.follow_queue("small")
    run.end_followers(1)
    assert run.product_list("small").read_text() == ""
    assert run.followers["small"].returncode == 0


def test_a_list_that_cannot_be_made_ends_the_cell(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    run.queues.mkdir()
    run.queue("small").write_text("no queue")
    run.follow_queue("small")
    run.followers["small"].wait(timeout=60)
    with pytest.raises(CellError, match="pqcat of small ended with 2: .*not a product queue"):
        run.end_followers(0)
