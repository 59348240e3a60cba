# SPDX-License-Identifier: Apache-2.0
"""Every symbol of MPUP16 Table I may be a factor, and receivers may differ."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from common.places import EXPERIMENTS, ROOT
from experiments.design import configs, ldmd_settings
from experiments.design.expansion import CellSpec, expand
from experiments.design.feed_names import FEED_NAMES
from experiments.design.networks import Networks
from experiments.design.parameters import PARAMETER_FACTORS, Factors, Parameters, trace_label
from experiments.design.spec import ExperimentSpec, SpecErrors, UsageError, at_level, load, load_as
from experiments.runs.manifest import traces_of
from experiments.runs.preparation import plan
from parsers.base.factors import FACTORS
from parsers.read.published import Where
from topologies.model.load import find as find_topology
from topologies.model.load import load as load_topology

# Its paper level names a trace, beside which the factor `trace` is refused.
GOOD = (EXPERIMENTS / "lossless.yaml").read_text().replace("trace: paced, ", "")
CONF_SET = ROOT / "ldm7/ldmd/conf_set.c"
LEVELS = {
    "r_mc": "0.5, 1",
    "r_uc": "0.5, 2",
    "b_mc": "1MB, 300MB",
    "b_uc": "1MB, 300MB",
    "b_rcv": "1MB, 600MB",
    "f_cwnd_factor": "1.2, 2",
    "q_snd": "1GB, 5GB",
    "n_snd": "100, 35000",
    "repair": "unicast, multicast",
    "mac_level": "0, auto",
    "feed": "NGRID, CONDUIT",
    "trace": "model, paced",
    "without_multicast": "0, 3",
    "ldm6_from": "publisher, relays",
    "pull_path": "nic1, nic2",
}
FIELDS = {"b_mc": "b_mc_bytes", "b_uc": "b_uc_bytes", "b_rcv": "b_rcv_bytes",
          "q_snd": "q_snd_bytes", "r_mc": "r_mc_bps", "r_uc": "r_uc_bps"}  # fmt: skip


def spec_of(folder: Path, *changes: tuple[str, str]) -> ExperimentSpec:
    text = GOOD
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    path = folder / "x.yaml"
    path.write_text(text)
    return at_level(load_as(ExperimentSpec, path), "quick")


def refused(folder: Path, parameters: str) -> str:
    """Return the one line by which a file with these parameters is refused."""
    path = folder / "x.yaml"
    path.write_text(GOOD.replace("parameters:\n", f"parameters:\n{parameters}", 1))
    with pytest.raises(SpecErrors) as caught:
        load(path)
    (line,) = str(caught.value).splitlines()
    return line


def varied(folder: Path, name: str, levels: str) -> tuple[CellSpec, ...]:
    fixed = re.findall(rf"(?m)^(?:  )?{name}: [^\[].*\n", GOOD)  # the factor takes its place
    spec = spec_of(
        folder,
        *((line, "") for line in fixed),
        ("protocol: [ldm7, ldm6]", f"protocol: [ldm7]\n  {name}: [{levels}]"),
    )
    return expand(spec)


@pytest.mark.parametrize("name", LEVELS)
def test_a_symbol_is_a_factor(tmp_path: Path, name: str) -> None:
    cells = varied(tmp_path, name, LEVELS[name])
    field = FIELDS.get(name, name)
    values = [getattr(c, field) for c in cells]
    assert len(cells) == 2
    assert len(set(values)) == 2, values
    assert len({c.cell for c in cells}) == 2
    for cell in cells:
        level = cell.factors[name]
        assert FACTORS[name].read(level) == level  # as metrics.json and claims have it
        assert Where.model_validate({name: level}).holds(cell.factors)
        assert re.fullmatch(r"[A-Za-z0-9.-]+", cell.cell)
        again = CellSpec.from_dict(json.loads(json.dumps(cell.to_dict())))
        assert again == cell


def test_every_factor_is_known_everywhere() -> None:
    assert set(PARAMETER_FACTORS) == set(Factors.model_fields) - {
        *("protocol", "receivers", "rate_bps", "loss")
    }
    assert set(PARAMETER_FACTORS) - {"trace"} <= set(Parameters.model_fields)
    assert set(PARAMETER_FACTORS) <= set(FACTORS) & set(Where.model_fields)


def test_ldmd_is_told(tmp_path: Path) -> None:
    network = load_topology(find_topology("geni5"))
    leaf = configs_leaf()
    texts = [
        configs.subscriber_conf(network, cell, network.subscribers[0], cell.feeds[0], leaf)
        for name in ("repair", "mac_level", "b_rcv", "feed")
        for cell in varied(tmp_path, name, LEVELS[name])[1:]
    ]
    for text, line in zip(
        texts,
        ["SET fmtp.repair multicast", "SET fmtp.mac_level auto", "SET fmtp.b_rcv_bytes 600000000"],
        strict=False,
    ):
        assert line in text.splitlines()
    assert "RECEIVE CONDUIT " in texts[-1]


def configs_leaf() -> Any:
    from controller.api.path_client import endpoints_of

    _, leaves = endpoints_of(load_topology(find_topology("geni5")))
    return next(iter(leaves.values()))


def test_each_level_has_its_trace(tmp_path: Path) -> None:
    (tmp_path / "My Trace.txt").write_text("1000 20150615000000.009\n" * 3)
    changes = ("protocol: [ldm7, ldm6]", "protocol: [ldm7]\n  trace: [paced, My Trace.txt]")
    planned = plan(spec_of(tmp_path, changes, ("trace: model\n", "")))
    assert {p.cell.cell: p.trace.file for p in planned} == {
        "ldm7-m8-r20-p0-paced": f"trace-paced-{planned[0].cell.seed}.txt",
        "ldm7-m8-r20-p0-my-trace": "trace-my-trace.txt",
    }
    assert [p.trace.products for p in planned if p.cell.trace == "my-trace"] == [3]
    seed = planned[0].cell.seed
    assert set(traces_of(planned)) == {f"{seed}-paced", f"{seed}-my-trace"}


def test_a_copy_of_a_trace_has_its_label() -> None:
    assert trace_label("/data/My Trace.txt") == trace_label("trace-my-trace.txt") == "my-trace"
    assert trace_label("2020.txt") == "t-2020"


# -- receivers that differ ----------------------------------------------------------------------
def test_receivers_have_their_own_loss_round_trip_and_rate(tmp_path: Path) -> None:
    lists = (
        "parameters:\n  p_i: [0, 1%, 2%]\n  rtt_i_ms: [10, 20, 40]\n"
        "  rate_i_bps: [1Gbps, 1Gbps, 50Mbps]\n  queue_i: 64kB\n"
    )
    changes = (("receivers: [8]", "receivers: [3]"), ("parameters:\n", lists))
    (cell, _) = expand(spec_of(tmp_path, *changes))
    network = Networks().of(cell)
    hosts = cell.subscribing(h.name for h in network.subscribers)
    assert cell.by_receiver(hosts, "p_i") == dict(zip(hosts, (0, 0.01, 0.02), strict=True))
    assert cell.loss == pytest.approx(0.01)  # the mean
    assert [network.round_trip_ms[h] for h in hosts] == [10, 20, 40]
    nics = {network.host(h).nic1.interface: h for h in hosts}
    rates = {
        nics[port.interface]: (way.rate_bps, way.queue_bytes)
        for link in network.links
        for port, way in ((link.b, link.forward), (link.a, link.backward))
        if port.interface in nics
    }
    expected = [(rate, 64_000) for rate in (10**9, 10**9, 5 * 10**7)]
    assert rates == dict(zip(hosts, expected, strict=True))


def test_two_round_trips_behind_one_link_are_refused(tmp_path: Path) -> None:
    """geni5's receivers 1 and 5 are at one site, whose hosts share the site's hand-off link."""
    lists = "parameters:\n  rtt_i_ms: [10, 20, 30, 40, 50, 60, 70, 80]\n"
    (cell, _) = expand(spec_of(tmp_path, ("parameters:\n", lists)))
    with pytest.raises(UsageError, match=r"rtt_i_ms: geni5: found .* behind the same link"):
        Networks().of(cell)


# -- set ----------------------------------------------------------------------------------------
def test_the_table_is_ldmds() -> None:
    """Names, bounds and texts of conf_set.c."""
    rows = re.findall(
        r'\{"([a-z0-9_.]+)", (KIND_\w+), AT\(\w+\),\s*([^,]+),\s*([^"]+),\s*((?:"[^"]*"\s*)+)\}',
        CONF_SET.read_text(),
    )
    found = {
        name: (kind, "".join(re.findall(r'"([^"]*)"', text))) for name, kind, _, _, text in rows
    }
    table = ldmd_settings.SETTINGS
    assert {n: s.valid for n, s in table.items()} == {n: text for n, (_, text) in found.items()}
    for name, kind, least, most, _ in rows:
        if table[name].kind in ("real", "whole"):
            asked = (float(least), float(1 << 30 if most.strip() == "1 << 30" else most))
            assert (table[name].least, table[name].most) == asked, name
            assert (table[name].kind == "real") == (kind == "KIND_REAL"), name


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("{fmtp.held: 1}", "did you mean 'fmtp.held_s'"),
        ("{fmtp.held_s: -1}", "fmtp.held_s: an integer from 0 (no limit) to 1e9"),
        ("{fmtp.held_s: 1.5}", "fmtp.held_s: an integer"),
        ("{fmtp.held_s: 1e400}", "fmtp.held_s: an integer"),
        ("{fmtp.held_share: .nan}", "a number from 0 (no limit) to 1"),
        ("{ldm7.fallback: true}", "0 or 1"),
        ("{fmtp.f_snd: 10}", "fmtp.f_snd, which follows from f_snd"),
        ("{path.service: 'http://x'}", "path.service, which follows from the network"),
        ('{ldm7.vlanutil: "a b"}', "the path of vlanutil"),
        ('{fmtp.key_file: "a\\nEXEC b"}', "the path of a file"),
        ("7", "a mapping of settings of ldmd.conf(5)"),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line(tmp_path: Path, given: str, expected: str) -> None:
    line = refused(tmp_path, f"  set: {given}\n")
    assert expected in line
    assert line.startswith(f"{tmp_path / 'x.yaml'}:")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("{fmtp.held: 1}", "found set 'fmtp.held' in parameters; valid: fmtp."),
        ("{fmtp.r_mc_bps: 1}", "found set 'fmtp.r_mc_bps' in parameters; valid: not"),
        ("{fmtp.held_s: x}", "found set fmtp.held_s: 'x' in parameters; valid: fmtp.held_s: an"),
    ],
)
def test_a_wrong_setting_is_quoted(tmp_path: Path, given: str, found: str) -> None:
    assert found in refused(tmp_path, f"  set: {given}\n")


@pytest.mark.parametrize("name", ["b_mc", "b_uc", "b_rcv", "q_snd", "n_snd", "f_snd", "f_rcv"])
def test_a_required_parameter_may_be_a_factor_alone(tmp_path: Path, name: str) -> None:
    levels = LEVELS.get(name, "100, 200")
    text = re.sub(rf"(?m)^  {name}: .*\n", "", GOOD).replace(
        "protocol: [ldm7, ldm6]", f"protocol: [ldm7]\n  {name}: [{levels}]"
    )
    path = tmp_path / "x.yaml"
    path.write_text(text)
    assert len(expand(load_as(ExperimentSpec, path))) == 2


def test_feeds_are_those_of_the_c_programs() -> None:
    table = (ROOT / "ldm7/common/feedtype.c").read_text()
    names = set(re.findall(r'\{0x[0-9A-F]{8}u, "(\w+)"\}', table))
    assert names - {"ANY", "NONE", "604"} == FEED_NAMES


@pytest.mark.parametrize(
    ("given", "hint"), [("NOSUCH", ""), ("ngrid", " (did you mean 'NGRID'?)"), ("ANY", "")]
)
def test_an_unknown_feed_is_refused(tmp_path: Path, given: str, hint: str) -> None:
    line = refused(tmp_path, f"  feed: {given}\n")
    assert f"found feed '{given}' in parameters; valid: a feed type of LDM" in line
    assert hint in line


def test_ldmds_queues_are_alike(tmp_path: Path) -> None:
    alike = ("parameters:\n", "parameters:\n  shaped_by: ldmd\n")
    (cell, *_) = expand(spec_of(tmp_path, alike))
    assert cell.shaped_by == "ldmd"
    varied_block = ("protocol: [ldm7, ldm6]", "protocol: [ldm7]\n  b_uc: [5MB]")
    with pytest.raises(SpecErrors) as caught:
        spec_of(tmp_path, alike, varied_block, ("  b_uc: 600MB\n", ""))
    (line,) = str(caught.value).splitlines()
    assert "shaped_by: ldmd with b_mc and b_uc that differ; valid: one value of both" in line


@pytest.mark.parametrize(
    ("value", "written"), [(12345678.0, "12345678"), (1234567.25, "1234567.25"), (1e-7, "1e-07")]
)
def test_a_number_keeps_all_its_digits(value: float, written: str) -> None:
    assert ldmd_settings.checked("ldm6.time_offset_s", value) == written


def test_a_setting_takes_the_place_of_the_cells(tmp_path: Path) -> None:
    text = "parameters:\n  set: {ldm7.fallback: 1, fmtp.held_s: 30, ldm6.max_latency_s: 99}\n"
    network = load_topology(find_topology("geni5"))
    for cell in expand(spec_of(tmp_path, ("parameters:\n", text))):
        conf = configs.subscriber_conf(
            network, cell, network.subscribers[0], cell.feeds[0], configs_leaf()
        ).splitlines()
        assert "SET fmtp.held_s 30" in conf
        assert "SET ldm6.max_latency_s 99" in conf
        assert [line for line in conf if "ldm7.fallback" in line] == ["SET ldm7.fallback 1"]
        assert len([line for line in conf if "max_latency_s" in line]) == 1


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ("  p_i: [1%]\n", "found p_i of 1 receiver; valid: 8"),
        ("  p_i: [1%, 1%, 1%, 1%, 1%, 1%, 1%, 100%]\n", "probabilities below 1"),
        ("  queue_i: 64kB\n", "found queue_i without rate_i_bps"),
        ("  p_i: 5\n", "found p_i 5 in parameters; valid: a list, e.g. [a, b]"),
        ("  p_i: []\n", "found p_i [] in parameters; valid: a list that is not empty"),
        ("  rtt_i_ms: [x]\n", "found 'x' in parameters.rtt_i_ms; valid: a number"),
        ("  rtt_i_ms: [.inf]\n", "found inf in parameters.rtt_i_ms; valid: a finite number"),
        ("  rtt_i_ms: [0]\n", "found 0 in parameters.rtt_i_ms; valid: greater than 0"),
        ("  rtt_i_ms: [true]\n", "found True in parameters.rtt_i_ms; valid: a number"),
        ("  without_multicast: x\n", "valid: a whole number"),
        ("  feed: 5\n", "found feed 5 in parameters; valid: a text"),
        ("  rtt_i_ms: [1, 1, 1, 1, 1, 1, 1, 1]\n  rtt_ms: 5\n", "found rtt_i_ms beside rtt_ms"),
    ],
)
def test_a_wrong_list_is_refused_in_one_line(tmp_path: Path, changes: str, expected: str) -> None:
    assert expected in refused(tmp_path, changes)


def test_loss_beside_p_i_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    text = GOOD.replace("parameters:\n", f"parameters:\n  p_i: {[0.01] * 8}\n", 1)
    path.write_text(text.replace("loss: [0]", "loss: [1%]", 1))
    with pytest.raises(SpecErrors, match="found loss 0.01 beside parameters.p_i"):
        load(path)
