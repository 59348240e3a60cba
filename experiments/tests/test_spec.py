# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from common.places import EXPERIMENTS
from experiments.design.spec import (
    ExperimentSpec,
    SpecErrors,
    UsageError,
    at_level,
    find,
    json_schema,
    level_of,
    load,
    load_as,
)
from experiments.design.spec_options import override
from parsers.read.published import parse_published

GOOD = (EXPERIMENTS / "lossy.yaml").read_text()


def mistakes(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(SpecErrors) as caught:
        load(path)
    return [line.replace(f"{path}:", "") for line in str(caught.value).splitlines()]


@pytest.mark.parametrize("name", ["lossless", "lossy", "regression"])
def test_bundled_experiments_are_table_ii(name: str) -> None:
    spec = load(find(name))
    assert isinstance(spec, ExperimentSpec)
    fixed = spec.parameters
    assert spec.name == name
    (factors,) = spec.factors
    assert factors.rate_bps == (20_000_000,)
    assert (fixed.f_snd, fixed.f_rcv) == (5000, 20)
    assert fixed.b_mc == fixed.b_uc == fixed.b_rcv == 600_000_000
    assert (fixed.q_snd, fixed.n_snd) == (5_000_000_000, 35_000)
    assert factors.loss == ((0.0,) if name == "lossless" else (0.01,))


def test_published_values() -> None:
    """MPUP16 V-D and V-F."""
    lossy = {(p.metric, p.protocol, p.value) for p in load(find("lossy")).paper}
    assert ("ffdr", "ldm7", 88.7) in lossy
    assert ("nic_bandwidth", "ldm7", 21.4) in lossy
    assert ("nic_bandwidth", "ldm6", 350) in lossy
    lossless = {(p.metric, p.protocol, p.value) for p in load(find("lossless")).paper}
    assert ("nic_bandwidth", "ldm7", 12.4) in lossless


@pytest.mark.parametrize("name", ["lossy", "lossless"])
def test_derived_values_follow_from_the_published_ones(name: str) -> None:
    """Bandwidth divided by the hour's mean rate, to the three given digits."""
    rows = {(p.metric, p.protocol): p for p in load(find(name)).paper if p.value is not None}
    rate = rows["input_rate", "both"].value
    assert rate == 12.33
    for protocol in ("ldm7", "ldm6"):
        derived = rows["bandwidth_over_offered", protocol]
        published = next(
            p.value
            for p in load(find(name)).paper
            if (p.metric, p.protocol) == ("nic_bandwidth", protocol)
        )
        assert published is not None
        assert derived.value == pytest.approx(published / rate, rel=0.005)
        assert derived.source.startswith("derived from the published figures")
        assert parse_published({"paper": [derived.model_dump(mode="json")]})[1] == ()


def test_schema_is_current() -> None:
    assert (EXPERIMENTS / "schema.json").read_text() == json_schema(), (
        "run python -m experiments.design.spec"
    )


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("f_snd: 5000", "f_snd: 10").replace("receivers: [8]", "receivers: [0]")
    text = text.replace("rate_bps: [20Mbps]", "rate_bps: [0]").replace("n_snd:", "n_sndd:")
    found = mistakes(tmp_path, text)
    lines = GOOD.splitlines()
    at = {
        key: next(i for i, s in enumerate(lines, 1) if key in s) for key in ("receivers:", "n_snd:")
    }
    assert any(s.startswith(f"{at['receivers:']}: found 0 in factors.receivers;") for s in found)
    assert any("rate_bps" in s and "a rate above 0" in s for s in found)
    assert any(
        s.startswith(f"{at['n_snd:']}: found unknown key 'n_sndd'") and "did you mean 'n_snd'" in s
        for s in found
    )
    assert any("no 'n_snd' in parameters" in s for s in found)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("f_snd: 5000", "f_snd: 20", "above f_rcv, 20"),
        ("loss: [1%]", "loss: [100%]", "below 1"),
        (
            "f_snd: 5000",
            "handoff_loss: 100%\n  f_snd: 5000",
            "found handoff_loss 1; valid: a probability below 1",
        ),
        ("protocol: [ldm7, ldm6]", "protocol: [ldm7, ldm7]", "each level once"),
        ("protocol: [ldm7, ldm6]", "protocol: [ldm8]", "valid: ldm7, ldm6, fcast, m2c, fmtp, "),
        ("metric: ffdr", "metric: ffdrr", "did you mean 'ffdr'"),
        ("duration_s: 60", "duration_s: 0", "greater than 0"),
        ("q_snd: 5GB", "q_snd: 5gb", "a size above 0"),
        ("q_snd: 5GB", "q_snd: .nan", "a size above 0"),
        ("    value: 88.7\n", "", "a value or a text"),
        ("name: lossy", "name: lossy\nname: lossy", "each key once"),
        ("name: lossy", "name: [", "YAML 1.2"),
    ],
)
def test_one_mistake(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in GOOD
    found = mistakes(tmp_path, GOOD.replace(old, new, 1))
    assert len(found) == 1, found
    assert expected in found[0]


def test_unknown_experiment_is_answered_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"found 'losy'; valid: .*did you mean 'lossy'"):
        find("losy")


def test_overrides() -> None:
    spec = override(
        load_as(ExperimentSpec, find("lossy")),
        {
            "duration_s": 5,
            "receivers": 4,
            "repeats": 3,
            "trace": "t",
            "seed": 0,
            "queue_bytes": 10_000_000,
        },
    )
    assert (spec.duration_s, spec.factors[0].receivers, spec.trace) == (5.0, (4,), "t")
    assert (spec.base_seed, spec.parameters.q_snd, spec.repeats) == (0, 10_000_000, 3)
    same = load_as(ExperimentSpec, find("lossy"))
    assert override(same, {"duration_s": None}) == same


def test_bad_overrides_are_reported_together() -> None:
    with pytest.raises(UsageError) as caught:
        override(
            load_as(ExperimentSpec, find("lossy")),
            {"duration_s": float("nan"), "receivers": 0, "seed": -1},
        )
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == ["--receivers", "--duration", "--seed"]


LEVELS = """
levels:
  quick: { duration_s: 10, factors: { receivers: [2, 4] }, parameters: { f_snd: 50 } }
  paper: { repeats: 5, trace: /data/ngrid.txt, factors: { rate_bps: [10Mbps, 60Mbps] } }
"""


def with_levels(text: str) -> str:
    plain = GOOD[: GOOD.index("levels:")] + GOOD[GOOD.index("paper:\n  - metric") :]
    return plain + text


def test_levels_take_the_place_of_the_files_values(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(with_levels(LEVELS))
    spec = load_as(ExperimentSpec, path)
    quick, paper = at_level(spec, None), at_level(spec, "paper")
    assert (quick.duration_s, quick.repeats, quick.trace) == (10, 1, "model")
    assert quick.factors[0].receivers == (2, 4)
    assert quick.factors[0].rate_bps == (20_000_000,)
    assert (quick.parameters.f_snd, quick.parameters.f_rcv) == (50, 20)
    assert (paper.duration_s, paper.repeats, paper.trace) == (60, 5, "/data/ngrid.txt")
    assert paper.factors[0].rate_bps == (10_000_000, 60_000_000)
    assert paper.factors[0].receivers == (8,)
    assert quick.levels is None
    assert quick.paper == paper.paper == spec.paper
    assert (level_of(spec, None), level_of(spec, "paper")) == ("quick", "paper")
    assert type(quick).model_validate(quick.model_dump(mode="json")) == quick


def test_a_level_may_have_other_blocks_of_factors(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    block = "{ protocol: [ldm7], receivers: [%d], rate_bps: [1Mbps], loss: [0] }"
    path.write_text(
        with_levels(f"levels:\n  quick: {{ factors: [{block % 1}, {block % 2}] }}\n  paper: {{}}\n")
    )
    spec = at_level(load_as(ExperimentSpec, path), "quick")
    assert [b.receivers for b in spec.factors] == [(1,), (2,)]


def test_levels_that_are_not_there() -> None:
    regression = load(find("regression"))
    assert at_level(regression, None) == regression
    assert level_of(regression, None) is None
    with pytest.raises(UsageError, match="--level: found 'paper'; valid: without it"):
        at_level(regression, "paper")
    with pytest.raises(UsageError, match="--level: found 'fast'; valid: quick or paper"):
        at_level(load(find("lossy")), "fast")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("duration_s: 10", "duration_s: -1", "duration_s -1 in levels.quick; valid: "),
        ("receivers: [2, 4]", "receivers: [2, 0]", "found 0 in levels.quick.factors.receivers"),
        ("receivers: [2, 4]", "receiver: [2]", "did you mean 'receivers'"),
        ("f_snd: 50", "f_snd: 5", "found f_snd 5; valid: above f_rcv, 20"),
        ("f_snd: 50", "f_sndd: 5", "did you mean 'f_snd'"),
        ("duration_s: 10", "durations: 10", "did you mean 'duration_s'"),
        ("receivers: [2, 4]", "receivers: [4, 4]", "each level once"),
    ],
)
def test_mistakes_of_a_level_have_their_line(
    tmp_path: Path, old: str, new: str, expected: str
) -> None:
    text = with_levels(LEVELS.replace(old, new, 1))
    line = 1 + text[: text.index("  quick:")].count("\n")
    (found,) = mistakes(tmp_path, text)
    assert found.startswith(f"{line}: ")
    assert expected in found


def test_mistakes_between_factors_and_subscribers(tmp_path: Path) -> None:
    text = GOOD.replace("  n_snd: 35000", "  n_snd: 35000\n  subscribers: [uva, umd]")
    (found,) = mistakes(tmp_path, text)
    assert "found m = 8; valid: at most 2, the number of parameters.subscribers" in found
    found = mistakes(tmp_path, text.replace("[uva, umd]", "[uva, uva]"))[-1]
    assert "subscribers with a host twice" in found


def test_mistakes_in_blocks_of_factors(tmp_path: Path) -> None:
    block = "  - { protocol: [ldm7], receivers: [8], rate_bps: [20Mbps], loss: [0] }\n"
    start, end = GOOD.index("factors:"), GOOD.index("# Table II")
    text = GOOD[:start] + f"factors:\n{block}{block.replace('[8]', '[0]')}\n" + GOOD[end:]
    line = 3 + text[: text.index("factors:")].count("\n")
    (found,) = mistakes(tmp_path, text)
    assert found.startswith(f"{line}: found 0 in factors[1].receivers")


@pytest.mark.parametrize("text", ["", "[" * 30 + "]" * 30, "[" * 3000 + "]" * 3000])
def test_a_file_without_an_experiment_is_told_what_is_valid(tmp_path: Path, text: str) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(SpecErrors, match=r"own.yaml:\d+: found .*; valid: an experiment$"):
        load(path)
