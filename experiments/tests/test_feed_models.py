# SPDX-License-Identifier: Apache-2.0
"""Hours of other feeds, compared with what is published about these feeds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from common.places import EXPERIMENTS, ROOT
from experiments.design.feed_models import MODELS
from experiments.design.spec import FEED_MODELS, SpecErrors, UsageError, load
from experiments.design.trace_input import prepare

SEEDS = (1, 42, 2053)
# IDD17 and DRFSM21 4, 5.3, as printed there.
PUBLISHED = {
    "conduit": {"products": 87_792.9, "volume": 7_887.856},
    "nexrad2": {"products": 62_359.45, "volume": 5_387.548},
    "nexrad3": {"products": 90_171.375, "volume": 1_803.479},
    "ngrid-2020": {
        "products": 45_703,
        "size, median": 31_290,
        "size, interquartile range": 118_618,
        "gap, median": 4.16,
        "gap, interquartile range": 23.79,
    },
}


def test_each_model_has_a_name() -> None:
    assert tuple(f"model:{name}" for name in MODELS) == FEED_MODELS
    assert set(PUBLISHED) == set(MODELS)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", SEEDS)
def test_statistics_as_published(name: str, seed: int) -> None:
    """Each published number to 0.5 %; the products fill the hour."""
    hour = MODELS[name].generate(seed)
    found = {row.name: row for row in MODELS[name].check(hour)}
    for statistic, value in PUBLISHED[name].items():
        assert found[statistic].published == value
        assert found[statistic].model == pytest.approx(value, rel=0.005), statistic
    times = [a.time_us for a in hour]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(3600e6, rel=1e-6)


@pytest.mark.slow
def test_seeds_differ_in_the_order_alone() -> None:
    one, other = (MODELS["nexrad2"].generate(seed) for seed in (1, 2))
    assert one != other
    assert one == MODELS["nexrad2"].generate(1)
    assert sorted(a.size_bytes for a in one) == sorted(a.size_bytes for a in other)


@pytest.mark.slow
def test_radars_are_independent_and_model_output_comes_in_runs() -> None:
    """Check the assumptions that feed_models.py states: the correlation of a product's size with
    that of the next."""
    ranks = {}
    for name in ("nexrad3", "conduit"):
        sizes = np.array([a.size_bytes for a in MODELS[name].generate(7)], dtype=np.float64)
        score = np.argsort(np.argsort(sizes)).astype(np.float64)
        ranks[name] = float(np.corrcoef(score[:-1], score[1:])[0, 1])
    assert abs(ranks["nexrad3"]) < 0.02
    assert ranks["conduit"] > 0.5


@pytest.mark.slow
def test_as_a_trace() -> None:
    """The first minute; more than one hour; what cell.json says."""
    made = prepare("model:nexrad2", 60.0, 5)
    assert made.source == "NEXRAD level 2 model, seed 5"
    assert made.products == pytest.approx(62_359 / 60, rel=0.15)
    assert [row["statistic"] for row in made.to_dict()["model_check"]][:2] == [
        "products (count)",
        "volume (MB)",
    ]
    assert prepare("model:nexrad2", 3700.0, 5).source.endswith(", 2 hours")


def test_unknown_model() -> None:
    with pytest.raises(UsageError) as caught:
        prepare("model:conduct", 60.0, 5)
    text = str(caught.value)
    assert text.startswith("trace: found 'model:conduct'; valid: model, paced, model:conduit, ")
    assert text.endswith("(did you mean 'model:conduit'?)")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("topology: ", "trace: model:conduct\ntopology: "),
        ("  quick: {}", "  quick: { trace: model:conduct }"),
        ("  loss: [10%, 40%]", "  loss: [10%, 40%]\n  trace: [model, model:conduct]"),
    ],
)
def test_an_unknown_model_is_named_where_it_is_written(tmp_path: Path, old: str, new: str) -> None:
    file, text = tmp_path / "x.yaml", (EXPERIMENTS / "fcast-k.yaml").read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(SpecErrors) as caught:
        load(file)
    where, said = str(caught.value).split(": found ", 1)
    path, line = where.rsplit(":", 1)
    assert (path, "model:conduct" in file.read_text().splitlines()[int(line) - 1]) == (
        str(file),
        True,
    )
    assert "'model:conduct'" in said.partition("; valid: model, paced, model:conduit, ")[0]
    assert said.endswith("(did you mean 'model:conduit'?)")


@pytest.mark.slow
@pytest.mark.parametrize("module", ["design.trace_input", "cells.cell_main"])
def test_nothing_else_waits_for_the_models(module: str) -> None:
    """Nor does a cell's process, in a guest, wait for SciPy."""
    code = f"import sys, experiments.{module} as m; print('scipy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
