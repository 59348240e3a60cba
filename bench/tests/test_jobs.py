# SPDX-License-Identifier: Apache-2.0
"""What is measured follows from seeds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bench.arrivals import SMALL_BYTES, arrivals
from bench.jobs import SECTIONS, cells_of, job_from, jobs_of, steered
from bench.statistics import median, percentile
from bench.tools import TOOLS, tools_of


def test_cells_are_those_of_the_demand() -> None:
    """20 and 100 Mbit/s, 0/1/5 %, 0 and 25 ms, 8 and 24 receivers: 24 cells."""
    shaped = cells_of("shaped", "virtual")
    conditions = {(c.rate_bps, c.loss, c.delay_ms, c.receivers) for c in shaped}
    assert len(shaped) == len(conditions) == 24
    assert {c.clock for c in shaped} == {"virtual"}
    blast = {(c.size_bytes, c.loss) for c in cells_of("blast", "virtual") if c.card == "segmenting"}
    assert blast == {
        (200_000_000, 0.0),
        (200_000_000, 0.01),
        (1_000_000_000, 0.0),
        (1_000_000_000, 0.01),
    }
    assert {c.clock for c in cells_of("blast", "virtual")} == {"native"}
    assert [c.receivers for c in cells_of("receivers", "native")] == [1, 8, 64, 256]


def test_native_networks_receive_on_all_processors() -> None:
    """A guest has one; the queue has no network."""
    kinds = {
        section: {steered(cell).steered for cell in cells_of(section, "virtual")}
        for section in SECTIONS
    }
    assert [name for name, seen in kinds.items() if seen == {True}] == [
        "blast", "receivers", "interop",
    ]  # fmt: skip
    assert kinds["small"] == {True, False}
    blast = steered(cells_of("blast", "virtual")[0])
    assert blast.cell == "200 MB, N=8, loss 0 %, received on all processors"


def test_unknown_section_is_told() -> None:
    with pytest.raises(ValueError, match="'blsat'.*blast"):
        cells_of("blsat", "native")


def test_repeats_are_outermost_and_tools_innermost() -> None:
    cells = cells_of("blast", "native")[:2]
    jobs = list(jobs_of(cells, {"blast": ["a", "b"]}, 2))
    assert [(j.repeat, j.loss, j.tool) for j in jobs] == [
        (0, 0.0, "a"), (0, 0.0, "b"), (0, 0.01, "a"), (0, 0.01, "b"),
        (1, 0.0, "a"), (1, 0.0, "b"), (1, 0.01, "a"), (1, 0.01, "b"),
    ]  # fmt: skip


def test_seed_depends_on_section_and_repeat_only() -> None:
    job = cells_of("shaped", "virtual")[0]
    same = replace(job, tool="uftp", loss=0.05, clock="native", receivers=24)
    assert same.seed == job.seed
    assert replace(job, repeat=1).seed != job.seed
    assert replace(job, section="blast").seed != job.seed


def test_job_survives_its_file() -> None:
    for section in SECTIONS:
        for job in cells_of(section, "virtual"):
            assert job_from(json.loads(job.key)) == job


def test_every_section_has_tools_and_every_tool_a_section() -> None:
    assert all(tools_of(section) for section in SECTIONS)
    assert all(tool.sections <= set(SECTIONS) and tool.sections for tool in TOOLS)


def test_stream_offers_what_was_asked() -> None:
    """The mean rate over all seeds is near the requested one, the sizes' mean near 80 kB (200 draws
    with a standard deviation of 1.31 times the mean: the mean of 40 streams is within 3 x 1.31 /
    sqrt(8000))."""
    job = cells_of("stream", "virtual")[0]
    sizes, spans = [], []
    for repeat in range(40):
        stream = arrivals(replace(job, repeat=repeat))
        assert len(stream) == 200
        assert [a.time_s for a in stream] == sorted(a.time_s for a in stream)
        sizes += [a.size_bytes for a in stream]
        spans.append(sum(a.size_bytes for a in stream) * 8 / stream[-1].time_s)
    assert sum(sizes) / len(sizes) == pytest.approx(80_000, rel=0.045)
    assert sum(spans) / len(spans) == pytest.approx(10e6, rel=0.05)


def test_streams_repeat() -> None:
    job = cells_of("stream", "virtual")[0]
    assert arrivals(job) == arrivals(replace(job, tool="uftp", loss=0.01))
    assert arrivals(job) != arrivals(replace(job, repeat=1))


def test_small_products_have_ngrid_sizes() -> None:
    """The median must be the published quantile that is the median of products up to 100 kB (75.2 %
    of all): between the 35 % and 40 % rows, 31,762 and 32,952 bytes."""
    stream = arrivals(cells_of("small", "virtual")[0])
    sizes = [float(a.size_bytes) for a in stream]
    assert len(sizes) == 10_000
    assert max(sizes) <= SMALL_BYTES
    assert min(sizes) >= 217
    assert 31_000 < median(sizes) < 33_500


def test_percentiles_by_nearest_rank() -> None:
    """Wikipedia's example of the nearest-rank method."""
    values = [15.0, 20.0, 35.0, 40.0, 50.0]
    assert percentile(values, 0.05) == 15
    assert percentile(values, 0.30) == 20
    assert percentile(values, 0.40) == 20
    assert percentile(values, 0.50) == 35
    assert percentile(values, 1.00) == 50
    assert percentile([], 0.5) != percentile([], 0.5)  # not a number


def test_median_of_even_and_odd() -> None:
    assert median([3.0, 1.0, 2.0]) == 2
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
