# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from parsers.base.factors import FACTORS, Scalar, show
from parsers.read.published import (
    Claim,
    Figure,
    PaperValue,
    Range,
    Where,
    parse_published,
)

ROW: dict[str, Any] = {
    "metric": "bandwidth",
    "protocol": "ldm7",
    "value": 21.4,
    "unit": "Mbit/s",
    "source": "MPUP16 V-F, Fig. 6a",
    "at": {"receivers": {"at_least": 4, "at_most": 24}, "loss": "1%", "rate_bps": "20Mbps"},
}
CLAIM: dict[str, Any] = {
    "kind": "linear",
    "metric": "nic_bandwidth",
    "over": "receivers",
    "where": {"protocol": "ldm6", "loss": 0},
    "text": "LDM6's bandwidth grows linearly in m",
    "source": "MPUP16 V-F, Fig. 6a",
}
FIGURE: dict[str, Any] = {
    "name": "fig4a",
    "title": "Throughput",
    "source": "MPUP16 Fig. 4a",
    "kind": "lines",
    "x": "rate_bps",
    "metric": "throughput",
    "by": ["protocol", "receivers"],
    "where": {"loss": 0},
}


def where(**levels: Any) -> Where:
    return Where.model_validate(levels)


def test_every_factor_can_be_demanded() -> None:
    assert list(Where.model_fields) == list(FACTORS)


def test_levels_are_read_with_their_units() -> None:
    at = PaperValue.model_validate(ROW).at
    assert at.levels == {
        "receivers": Range(at_least=4, at_most=24),
        "rate_bps": (20_000_000,),
        "loss": (0.01,),
    }
    assert where(file_set_bytes=["1MB", 2_000_000]).file_set_bytes == (1_000_000, 2_000_000)
    assert where(loss=[0, "1%", "0.5%"]).loss == (0.0, 0.01, 0.005)


def test_only_named_factors_are_written() -> None:
    assert where(loss=0).model_dump(mode="json") == {"loss": [0.0]}


def test_demands() -> None:
    asked = where(receivers={"at_least": 4, "at_most": 24}, loss=[0, 0.01])
    cell: dict[str, Scalar] = {"protocol": "ldm7", "receivers": 4, "loss": 0.01}
    assert asked.holds(cell)
    assert not asked.holds({**cell, "receivers": 3})
    assert asked.holds({**cell, "receivers": 24})
    assert not asked.holds({**cell, "receivers": 25})
    assert not asked.holds({**cell, "loss": 0.02})
    assert not asked.holds({"receivers": 4})  # the loss is not known
    assert Where().holds({})
    # 0.1 + 0.2 is not 0.3 in binary
    assert where(rtt_ms=0.3).holds({"rtt_ms": 0.1 + 0.2})


def test_value_in_si_units_and_the_canonical_name() -> None:
    row = PaperValue.model_validate(ROW)
    assert (row.metric, row.value_si) == ("nic_bandwidth", 21.4e6)
    assert not row.derived
    of_uva = PaperValue.model_validate({**ROW, "subscriber": "uva"})
    assert of_uva.where.levels["subscriber"] == ("uva",)


@pytest.mark.parametrize("model,raw", [(PaperValue, ROW), (Claim, CLAIM), (Figure, FIGURE)])
def test_the_manifests_copy_reads_the_same(
    model: type[PaperValue] | type[Claim] | type[Figure], raw: dict[str, Any]
) -> None:
    item = model.model_validate(raw)
    assert model.model_validate(item.model_dump(mode="json")) == item


def wrong(model: type[PaperValue] | type[Claim] | type[Figure], raw: dict[str, Any]) -> str:
    """Return `place: text` of the first mistake."""
    with pytest.raises(ValidationError) as caught:
        model.model_validate(raw)
    error = caught.value.errors()[0]
    return f"{'.'.join(str(p) for p in error['loc'])}: {error['msg']}"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"metric": "ffdrr"}, "(did you mean 'ffdr'?)"),
        ({"at": {"receiver": 8}}, "at.receiver: Extra inputs"),
        ({"at": {"receivers": 8.5}}, "at.receivers: a whole number from 1"),
        ({"at": {"receivers": []}}, "at.receivers: at least one level"),
        ({"at": {"receivers": {"from": 4}}}, "at.receivers: a whole number from 1; a list of such"),
        ({"at": {"rate_bps": "20 Mbit"}}, "at.rate_bps: a rate above 0"),
        ({"at": {"loss": 1.5}}, "at.loss: a probability from 0 to 1"),
        ({"at": {"protocol": "LDM 8"}}, "at.protocol: the name of a protocol"),
        ({"unit": "s"}, "unit 's' of nic_bandwidth; valid: bit/s"),
        ({"value": None}, "a value or a text"),
        ({"published": 3600}, "published: Extra inputs"),
        ({"source": " "}, "source: a string that is not empty"),
    ],
)
def test_mistakes_in_a_row(change: dict[str, Any], expected: str) -> None:
    assert expected in wrong(PaperValue, {**ROW, **change})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"over": None}, "kind linear: over: a factor with numbers"),
        ({"over": "subscriber"}, "kind linear: over: a factor with numbers"),
        ({"over": "reciever"}, "(did you mean 'receivers'?)"),
        ({"against": {"protocol": "ldm7"}}, "kind linear: no against"),
        (
            {"kind": "increases", "against": {"loss": [0, 0.01]}},
            "kind increases: against: one level of loss",
        ),
        ({"kind": "equal"}, "kind equal: against or against_metric"),
        ({"kind": "equal", "against": {"protocol": "ldm7"}}, "kind equal: no over"),
        (
            {"kind": "equal", "over": None, "against": {"loss": [0, 0.01]}},
            "kind equal: against: one level of loss",
        ),
        (
            {"kind": "ratio", "over": None, "against": {"protocol": "ldm7"}},
            "kind ratio: at_least or at_most",
        ),
        ({"compared_by": "difference"}, "kind linear: compared_by: ratio; difference with above"),
        (
            {"kind": "increases", "against": {"loss": 0}, "compared_by": "difference"},
            "kind increases: compared_by: ratio",
        ),
        ({"kind": "like"}, "'linear', 'flat'"),
    ],
)
def test_mistakes_in_a_claim(change: dict[str, Any], expected: str) -> None:
    assert expected in wrong(Claim, {**CLAIM, **change})


def test_mistakes_in_a_figure() -> None:
    assert "kind lines: x: the factor" in wrong(Figure, {**FIGURE, "x": None})
    assert "kind lines: metric: what" in wrong(Figure, {**FIGURE, "metric": None})
    assert "kind boxes, and with no other" in wrong(Figure, {**FIGURE, "kind": "boxes"})
    assert "kind minutes: no x" in wrong(Figure, {**FIGURE, "kind": "minutes"})


def test_a_manifest_is_read_as_far_as_it_can_be() -> None:
    spec = {"paper": [ROW, {**ROW, "at": {"loss": "2"}}], "claims": [CLAIM], "figures": "none"}
    found, complaints = parse_published({"spec": spec})
    assert [row.value for row in found.paper] == [21.4]
    assert len(found.claims) == 1
    assert complaints[0].startswith("paper 2: at.loss: found '2'; valid: a probability from 0 to 1")
    assert complaints[1] == "figures: expected a list, found str"
    undated = {k: v for k, v in ROW.items() if k != "at"}
    found, complaints = parse_published({"spec": {"paper": [ROW, undated]}})
    assert len(found.paper) == 1
    assert complaints == ("paper 2: no 'at': the conditions of the published value are unknown",)
    assert parse_published({})[1] == ()


def test_what_the_blocks_ask_for() -> None:
    figure = {**FIGURE, "kind": "boxes", "x": "file_set_bytes"}
    figure["where"] = {"file_set_bytes": ["1MB", "200MB"]}
    spec = {"paper": [{**ROW, "at": {"file_set_bytes": "50MB"}}], "figures": [figure]}
    found, complaints = parse_published({"spec": spec})
    assert complaints == ()
    assert found.file_set_bytes == (1_000_000, 50_000_000, 200_000_000)
    assert not found.per_subscriber
    found, _ = parse_published({"spec": {"paper": [{**ROW, "subscriber": "uva"}]}})
    assert found.per_subscriber


def test_factors_as_text() -> None:
    levels: dict[str, Scalar] = {
        "loss": 0.01,
        "protocol": "ldm7",
        "receivers": 8,
        "rate_bps": 20_000_000,
    }
    assert show(levels) == "LDM7, m = 8, r = 20 Mbit/s, p = 1 %"
