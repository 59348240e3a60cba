# SPDX-License-Identifier: Apache-2.0
"""No product arrives before it can have crossed the network."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.virtual_time import Clock
from experiments.tests.judged import GOOD
from experiments.verdict import Check, Evidence
from experiments.verdict.arrivals import arrivals_checks, earliest_ms, least_ms
from parsers.read.ldm_log import parse_ldm_log
from topologies.model.load import find, load
from topologies.model.network import Network

NAMES = "Inserted:        100 20260101000010.000000 NGRID 001  A.000001\n"
LOG = (
    f"20260101T000009.000000Z pqinsert[7]   pqinsert.c:f:1   INFO {NAMES}"
    f"20260101T000010.048000Z down6[7]   down6.c:dh_saveProd:1   INFO {NAMES}"
    f"20260101T000010.018000Z down6[7]   down6.c:dh_saveProd:1   INFO {NAMES}"
)


@pytest.fixture(scope="module")
def network() -> Network:
    return load(find("geni5"), {"receivers": 2})


def checked(evidence: Evidence) -> Check:
    (check,) = arrivals_checks(evidence)
    return check


def found(network: Network, clock: Clock = "virtual", **changes: object) -> Evidence:
    publisher = network.publisher.name
    known: dict[str, object] = {"network": network, "publisher": publisher, "clock": clock}
    return replace(GOOD, **{**known, **changes})  # type: ignore[arg-type]


def test_the_first_arrival_counts() -> None:
    assert earliest_ms(parse_ldm_log(LOG, "x.log").records) == 18.0
    assert earliest_ms([]) is None


def test_least(network: Network) -> None:
    """Half of each receiver's round trip: no way is shorter than the path here."""
    least = least_ms(network, network.publisher.name)
    for host in network.subscribers:
        assert least[host.name] <= network.round_trip_ms[host.name] / 2 + 1e-9
        assert least[host.name] > 0


@pytest.mark.parametrize(
    ("clock", "early_ms", "status"),
    [
        ("virtual", 0.0, "pass"),
        ("virtual", 0.1, "warn"),
        ("virtual", 1.0, "fail"),
        ("native", 0.5, "pass"),
        ("native", 5.0, "warn"),
        ("native", 17.0, "fail"),
    ],
)
def test_too_early(network: Network, clock: Clock, early_ms: float, status: str) -> None:
    host = network.subscribers[0].name
    least = least_ms(network, network.publisher.name)[host]
    seen = {f"{host}.NGRID": least - early_ms}
    check = checked(found(network, clock, earliest_ms=seen))
    assert check.status == status, check.text
    assert f"the network takes {least:g} ms" in check.text


def test_a_clock_that_is_off_on_purpose(network: Network) -> None:
    host = network.subscribers[0].name
    least = least_ms(network, network.publisher.name)[host]
    seen = {host: least - 15.0}
    one = found(network, earliest_ms=seen, clock_offsets_ms={host: -15.0})
    assert checked(one).status == "pass"
    assert checked(replace(one, clock_offsets_ms={})).status == "fail"
    assert checked(replace(one, clock_offsets_ms={host: 5.0})).status == "fail"


def test_nothing_to_compare(network: Network) -> None:
    assert checked(found(network)).status == "n/a"


def test_without_a_network() -> None:
    assert arrivals_checks(GOOD) == []
