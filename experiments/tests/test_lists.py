# SPDX-License-Identifier: Apache-2.0
"""Lists by receiver and settings of ldmd.conf as factors; values that a factor would replace."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from experiments import cli
from experiments.design.expansion import CellSpec, expand
from experiments.design.levels import NAMED, level_of
from experiments.design.networks import Networks
from experiments.design.parameters import PARAMETER_FACTORS
from experiments.design.spec import ExperimentSpec, SpecErrors, UsageError, at_level, load, load_as
from experiments.design.spec_options import override
from parsers.base.factors import FACTORS, list_name
from parsers.read.published import Where

TEXT = """name: t
description: Two receivers
topology: geni5
factors:
  protocol: [ldm7]
  receivers: [2]
  rate_bps: [10Mbps]
  loss: [0]
{factors}parameters:
{parameters}  f_snd: 5000
  f_rcv: 20
  b_mc: 600MB
  b_uc: 600MB
  b_rcv: 600MB
  q_snd: 100MB
  n_snd: 35000
base_seed: 7
duration_s: 5
"""


def file(folder: Path, factors: str = "", parameters: str = "") -> Path:
    path = folder / "x.yaml"
    path.write_text(TEXT.format(factors=factors, parameters=parameters))
    return path


def cells(folder: Path, factors: str, parameters: str = "") -> tuple[CellSpec, ...]:
    return expand(load_as(ExperimentSpec, file(folder, factors, parameters)))


def refused(path: Path) -> list[str]:
    """Return the mistakes of a file, as LINE: TEXT."""
    with pytest.raises(SpecErrors) as caught:
        load(path)
    return [line.removeprefix(f"{path}:") for line in str(caught.value).splitlines()]


# -- levels -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "levels", "field", "values", "names"),
    [
        ("p_i", "[[0, 0], [0, 2%]]", "p_i", [(0, 0), (0, 0.02)], ["2x0", "0/2"]),
        ("rtt_i_ms", "[[36, 41], [36, 90.5]]", "rtt_i_ms", [(36, 41), (36, 90.5)],
         ["36/41", "36/90.5"]),
        ("rate_i_bps", "[[1Gbps, 50Mbps], [50Mbps, 50Mbps]]", "rate_i_bps",
         [(10**9, 5 * 10**7), (5 * 10**7, 5 * 10**7)], ["1000/50", "2x50"]),
        ("clock_offset_i_ms", "[[0, -3], [0, 3]]", "clock_offset_i_ms", [(0, -3), (0, 3)],
         ["0/-3", "0/3"]),
        ("set", "[{}, {fmtp.held_s: 60, fmtp.ttl: 1}]", "settings",
         [{}, {"fmtp.held_s": "60", "fmtp.ttl": "1"}], ["none", "fmtp.held_s=60+fmtp.ttl=1"]),
    ],
)  # fmt: skip
def test_a_list_is_a_level(
    tmp_path: Path, name: str, levels: str, field: str, values: list[object], names: list[str]
) -> None:
    both = cells(tmp_path, f"  {name}: {levels}\n")
    assert [getattr(cell, field) for cell in both] == values
    assert [cell.factors[name] for cell in both] == names
    assert len({cell.cell for cell in both}) == 2
    for cell, level in zip(both, names, strict=True):
        assert re.fullmatch(r"[A-Za-z0-9.-]+", cell.cell)
        assert FACTORS[name].read(level) == level
        assert Where.model_validate({name: level}).holds(cell.factors)
        assert CellSpec.from_dict(json.loads(json.dumps(cell.to_dict()))) == cell


def test_buffers_of_receivers_are_levels(tmp_path: Path) -> None:
    both = cells(tmp_path, "  b_rcv_i: [[1MB, 2MB], [2MB, 2MB]]\n")
    buffers = [cell.conditions.b_rcv_i_bytes for cell in both]
    assert buffers == [(1_000_000, 2_000_000), (2_000_000, 2_000_000)]


def test_the_paths_rate_is_a_factor(tmp_path: Path) -> None:
    """r_vn = headroom x (r_mc + r_uc), Table II."""
    assert [c.r_vn_bps for c in cells(tmp_path, "  headroom: [1, 1.5]\n")] == [
        20_000_000,
        30_000_000,
    ]


def test_a_link_has_each_levels_buffer(tmp_path: Path) -> None:
    lists = "  rate_i_bps: [10Mbps, 10Mbps]\n"
    found = [
        {w.queue_bytes for link in Networks().of(cell).links for w in (link.forward, link.backward)}
        for cell in cells(tmp_path, "  queue_i: [64kB, 128kB]\n", lists)
    ]
    assert 64_000 in found[0] - found[1]
    assert 128_000 in found[1] - found[0]


def test_another_block_has_the_parameters_list(tmp_path: Path) -> None:
    one = "  {{ protocol: [ldm7], receivers: [2], rate_bps: [10Mbps], loss: [0]{} }}\n"
    text = TEXT.format(factors="", parameters="  p_i: [0, 1%]\n")
    start, end = text.index("factors:"), text.index("parameters:")
    blocks = f"factors:\n  -{one.format(', p_i: [[0, 2%]]')[1:]}  -{one.format('')[1:]}"
    path = tmp_path / "x.yaml"
    path.write_text(text[:start] + blocks + text[end:])
    assert [c.p_i for c in expand(load_as(ExperimentSpec, path))] == [(0, 0.02), (0, 0.01)]


@pytest.mark.parametrize(
    ("given", "name"),
    [([1, 1, 2], "2x1/2"), ([0.07 / 0.01], "7"), ([-0.0, 0], "2x0"), ([1e-7], "1e-07")],
)
def test_names_of_lists(given: list[float], name: str) -> None:
    assert list_name(given) == name


def test_a_claim_names_a_list() -> None:
    for condition in ([[0, "2%"]], "0/2", ["0/2"]):
        demand = Where.model_validate({"p_i": condition})
        assert demand.holds({"p_i": "0/2"})
        assert not demand.holds({"p_i": "0/3"})
    assert Where.model_validate({"p_i": "0/0/1"}).holds({"p_i": "2x0/1"})
    assert Where.model_validate({"set": {"fmtp.ttl": 1}}).holds({"set": "fmtp.ttl=1"})
    with pytest.raises(ValueError, match="a list with a value for each receiver"):
        Where.model_validate({"p_i": "a/b"})


def test_long_and_odd_levels_have_different_names(tmp_path: Path) -> None:
    levels = "[{fmtp.key_file: /a/b}, {fmtp.key_file: /a-b}, {fmtp.key_file: /a_b}]"
    found = [c.cell for c in cells(tmp_path, f"  set: {levels}\n")]
    assert len(set(found)) == 3
    many = [",".join(str(a + b) for b in range(40)) for a in (1, 2)]
    path = file(tmp_path, f"  rtt_i_ms: [[{many[0]}], [{many[1]}]]\n")
    path.write_text(path.read_text().replace("receivers: [2]", "receivers: [40]"))
    names = [c.cell for c in expand(load_as(ExperimentSpec, path))]
    assert len(set(names)) == 2
    assert max(map(len, names)) < 100


def test_levels_that_differ_in_the_seventh_digit_are_two_cells(tmp_path: Path) -> None:
    path = file(tmp_path, "  b_snd: [1000000, 1000001]\n")
    assert len({c.cell for c in expand(load_as(ExperimentSpec, path))}) == 2


def test_names_are_for_what_has_no_plain_level() -> None:
    assert set(NAMED) <= set(PARAMETER_FACTORS)
    assert level_of("b_mc", 5) == 5
    assert level_of("p_i", None) is None


# -- mistakes -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("factors", "parameters", "expected"),
    [
        ("", "  p_i: [0, 0, 1%]\n", "10: found p_i of 3 receivers; valid: at most 2, the largest"),
        ("  p_i: [[0, 0, 1%]]\n", "", "9: found p_i of 3 receivers; valid: at most 2, the largest"),
        ("  p_i: [[0, 0], [0]]\n", "", "9: found p_i of 1 receiver; valid: 2, as factors.rec"),
        ("  p_i: [0, 1%]\n", "", "9: found p_i [0, '1%'] in factors; valid: a list for each level"),
        ("  p_i: [[0, 0], [0, x]]\n", "", "9: found 'x' in factors.p_i[1]; valid: a probability"),
        ("  p_i: [[0, 0], [0, 100%]]\n", "", "9: found p_i of 1; valid: probabilities below 1"),
        ("  p_i: [[0, 1%], [0, 0.01]]\n", "", "9: found factors.p_i with a level twice; valid: e"),
        ("  set: [{fmtp.ttl: 1}, {fmtp.ttl: 1.0}]\n", "", "9: found factors.set with a level twic"),
        ("  set: [{fmtp.tll: 1}]\n", "", "9: found 'fmtp.tll' in factors.set; valid: fmtp.layout"),
        ("  queue_i: [64kB]\n", "", "9: found queue_i without rate_i_bps; valid: both, or neither"),
        ("  rtt_i_ms: [[1, 2]]\n", "  rtt_ms: 5\n", "9: found rtt_i_ms beside rtt_ms; valid: one"),
        ("  headroom: [0.5]\n", "", "9: found 0.5 in factors.headroom; valid: 1.0 or more"),
        ("  r_mc: [1, 2]\n", "  r_mc: 3\n", "11: found r_mc beside factors.r_mc; valid: one of "),
        ("  trace: [model:nosuch]\n", "", "9: found 'model:nosuch' in factors.trace; valid: mode"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_once_with_its_line(
    tmp_path: Path, factors: str, parameters: str, expected: str
) -> None:
    (found,) = refused(file(tmp_path, factors, parameters))
    assert found.startswith(expected)


def test_loss_beside_levels_of_p_i_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, "  p_i: [[0, 1%]]\n")
    path.write_text(path.read_text().replace("loss: [0]", "loss: [1%]"))
    assert refused(path)[0].startswith("8: found loss 0.01 beside factors.p_i; valid: [0]")


def test_a_wrong_level_of_a_required_key_is_told_once(tmp_path: Path) -> None:
    path = file(tmp_path, "  n_snd: [0]\n")
    path.write_text(path.read_text().replace("  n_snd: 35000\n", ""))
    assert refused(path) == ["9: found 0 in factors.n_snd; valid: 1 or more"]


def test_an_unknown_trace_is_told_with_other_mistakes(tmp_path: Path) -> None:
    path = file(tmp_path, "  trace: [model:nosuch]\n  r_mc: [0]\n  mac_level: [9]\n")
    assert [line.split(":")[0] for line in refused(path)] == ["9", "10", "11"]


def test_a_list_for_a_levels_receivers_is_accepted(tmp_path: Path) -> None:
    path = file(tmp_path, "", "  p_i: [0, 1%, 2%]\n")
    levels = "levels:\n  quick: {}\n  paper: { factors: { receivers: [3] } }\n"
    path.write_text(path.read_text() + levels)
    (cell,) = expand(at_level(load_as(ExperimentSpec, path), "paper"))
    assert cell.p_i == (0, 0.01, 0.02)
    path.write_text(path.read_text().replace("[0, 1%, 2%]", "[0, 1%, 2%, 3%]"))
    assert "p_i of 4 receivers; valid: at most 3" in refused(path)[0]
    path.write_text(file(tmp_path).read_text() + "levels:\n  quick: {}\n"
                    "  paper: { parameters: { p_i: [0, 0, 0] } }\n")  # fmt: skip
    assert "p_i of 3 receivers; valid: at most 2" in refused(path)[0]


def test_a_parameter_that_another_block_needs_is_accepted(tmp_path: Path) -> None:
    path = file(tmp_path, "", "  r_mc: 3\n")
    one = "{ protocol: [ldm7], receivers: [2], rate_bps: [10Mbps], loss: [0]"
    blocks = f"factors:\n  - {one} }}\n  - {one}, r_mc: [2] }}\n"
    text = path.read_text()
    path.write_text(text[: text.index("factors:")] + blocks + text[text.index("parameters:") :])
    assert [c.r_mc_bps for c in expand(load_as(ExperimentSpec, path))] == [30_000_000, 20_000_000]


def test_a_subscription_key_that_a_factor_replaces_is_refused(tmp_path: Path) -> None:
    from common.places import EXPERIMENTS

    path = tmp_path / "x.yaml"
    text = (EXPERIMENTS / "churn.yaml").read_text()
    path.write_text(text.replace("  away_s: 30\n", "  away_s: 30\n  stay_s: 45\n", 1))
    (found,) = refused(path)
    assert "found stay_s beside factors.stay_s; valid: one of the two" in found


# -- options, and what only the plan finds ---------------------------------------------------------
@pytest.mark.parametrize(
    ("factors", "given", "expected"),
    [
        ("  p_i: [[0, 1%]]\n", {"receivers": 3}, "--receivers: found '3'; valid: at most 2, the l"),
        ("  trace: [model, paced]\n", {"trace": "x"}, "--trace: found 'x'; valid: without it: cel"),
        ("  b_snd: [1MB]\n", {"receivers": 3}, ""),
    ],
)
def test_an_option_that_cells_contradict_is_refused(
    tmp_path: Path, factors: str, given: dict[str, object], expected: str
) -> None:
    spec = load_as(ExperimentSpec, file(tmp_path, factors))
    if not expected:
        override(spec, given)  # type: ignore[arg-type]
        return
    with pytest.raises(UsageError) as caught:
        override(spec, given)  # type: ignore[arg-type]
    assert str(caught.value).startswith(expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factors", "parameters", "more", "expected"),
    [
        ("  cut: [handoff]\n", "", [], ":9: cut: found 'handoff' with topology geni5"),
        ("", "  cut: handoff\n", [], ":10: cut: found 'handoff' with topology geni5"),
        ("", "  background_flows: 1\n", [], ":10: background_flows: found 1 on geni5"),
        ("  trace: [nosuch]\n", "", [], ":9: trace: found '"),
        ("", "", ["--trace", "/nosuch"], "/nosuch:1: found no readable file"),
    ],
)
def test_what_the_plan_finds_has_a_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    factors: str,
    parameters: str,
    more: list[str],
    expected: str,
) -> None:
    path = file(tmp_path, factors, parameters)
    assert cli.main(["run", str(path), "--dry-run", "--clock", "virtual", *more]) == 2
    found = capsys.readouterr().err
    where = f"{path}{expected}" if expected.startswith(":") else expected
    assert found.startswith(where)
    assert "Traceback" not in found
