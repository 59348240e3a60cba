# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from experiments.spec import (
    HERE,
    ExperimentSpec,
    SpecErrors,
    UsageError,
    bundled,
    find,
    json_schema,
    load,
    load_as,
    override,
)
from parsers.paper import parse_paper

GOOD = (HERE / "lossy.yaml").read_text()


def mistakes(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    with pytest.raises(SpecErrors) as caught:
        load(path)
    return [line.replace(f"{path}:", "") for line in str(caught.value).splitlines()]


@pytest.mark.parametrize("name", sorted({*bundled()} - {"join-leave"}))
def test_bundled_experiments_are_table_ii(name: str) -> None:
    spec = load(find(name))
    assert isinstance(spec, ExperimentSpec)
    fixed = spec.parameters
    assert spec.name == name
    assert spec.factors.rate_bps == (20_000_000,)
    assert (fixed.f_snd, fixed.f_rcv) == (5000, 20)
    assert fixed.b_mc == fixed.b_uc == fixed.b_rcv == 600_000_000
    assert (fixed.q_snd, fixed.n_snd) == (5_000_000_000, 35_000)
    assert spec.factors.loss == ((0.0,) if name == "lossless" else (0.01,))


def test_published_values() -> None:
    """mpup-ldm7.txt V-D and V-F."""
    lossy = {(p.metric, p.protocol, p.value) for p in load(find("lossy")).paper}
    assert ("ffdr", "ldm7", 88.7) in lossy
    assert ("bandwidth", "ldm7", 21.4) in lossy
    assert ("bandwidth", "ldm6", 350) in lossy
    lossless = {(p.metric, p.protocol, p.value) for p in load(find("lossless")).paper}
    assert ("bandwidth", "ldm7", 12.4) in lossless


@pytest.mark.parametrize("name", ["lossy", "lossless"])
def test_derived_values_follow_from_the_published_ones(name: str) -> None:
    """Bandwidth over the hour's mean rate, to the three digits that are given."""
    rows = {(p.metric, p.protocol): p for p in load(find(name)).paper if p.value is not None}
    rate = rows["input_rate", "both"].value
    assert rate == 12.33
    for protocol in ("ldm7", "ldm6"):
        derived = rows["bandwidth_over_offered", protocol]
        published = next(
            p.value
            for p in load(find(name)).paper
            if (p.metric, p.protocol) == ("bandwidth", protocol)
        )
        assert published is not None
        assert derived.value == pytest.approx(published / rate, rel=0.005)
        assert derived.source.startswith("derived from the published figures")
        assert parse_paper([derived.model_dump()])[1] == ()


def test_schema_is_current() -> None:
    assert (HERE / "schema.json").read_text() == json_schema(), "run python -m experiments.spec"


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
        ("protocol: [ldm7, ldm6]", "protocol: [ldm7, ldm7]", "each level once"),
        ("protocol: [ldm7, ldm6]", "protocol: [ldm8]", "'ldm7' or 'ldm6'"),
        ("metric: ffdr", "metric: ffdrr", "did you mean 'ffdr'"),
        ("duration_s: 60", "duration_s: 0", "greater than 0"),
        ("q_snd: 5GB", "q_snd: 5gb", "a size above 0"),
        ("q_snd: 5GB", "q_snd: .nan", "a size above 0"),
        ("    value: 88.7\n", "", "one of both"),
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
        {"duration_s": 5, "receivers": 4, "trace": "t", "seed": 0, "queue_bytes": 10_000_000},
    )
    assert (spec.duration_s, spec.factors.receivers, spec.trace) == (5.0, (4,), "t")
    assert (spec.base_seed, spec.parameters.q_snd) == (0, 10_000_000)
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
