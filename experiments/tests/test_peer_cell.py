# SPDX-License-Identifier: Apache-2.0
"""Cells whose protocol sends files: their products, logs, verdict and metrics."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import pytest

from common.contracts import WITH_OWN_LOGS
from experiments.cells.peer_inboxes import Inboxes
from experiments.cells.product_log import ProductLog
from experiments.design.peer_products import content, products_of
from experiments.design.trace_input import prepare
from experiments.tests.judged import GOOD, HOSTS, PRODUCTS
from experiments.tests.judged import content as held
from experiments.verdict import judge
from parsers.measure.bandwidth import delivery_values
from parsers.measure.deliveries import receiver_of, sent_by
from parsers.read.cell_files import Cell, CellTrace
from parsers.read.counters import Counters
from parsers.read.ldm_log import Replayed, parse_ldm_log
from protocols.adapter import Setup, Station

TRACE = prepare("model", 5.0, 2053).text


def test_products_are_the_traces_with_bytes_from_the_seed() -> None:
    products = products_of(TRACE, "NGRID")
    assert len(products) == len(TRACE.splitlines())
    first = products[0]
    assert first.name == "NGRID.000000"
    assert first.size_bytes == int(TRACE.split()[0])
    assert len(content(7, first)) == first.size_bytes
    assert content(7, first) == content(7, first) != content(8, first)


def logs(tmp_path: Path) -> tuple[str, str]:
    """Three products are sent, of which two arrive, half a second and a second later."""
    feed, inbox = tmp_path / "feed.log", tmp_path / "sl1.inbox.log"
    sent, arrived = ProductLog(feed, "feed"), ProductLog(inbox, "inbox")
    for n, product in enumerate(products_of(TRACE, "NGRID")[:3]):
        at = 1_767_225_600.125 + n
        sent.inserted(product, "NGRID", at, at)
        if n < 2:
            arrived.inserted(product, "NGRID", at, at + 0.5 * (n + 1))
    sent.replayed(3, 3, 2.0, [0.0, 0.25, 0.5])
    return feed.read_text(), inbox.read_text()


def test_the_logs_are_read_as_all_others(tmp_path: Path) -> None:
    feed, inbox = (parse_ldm_log(text, "x") for text in logs(tmp_path))
    assert not feed.problems and not inbox.problems
    (summed,) = feed.of(Replayed)
    assert (summed.products, summed.late_p50_ms, summed.late_max_ms) == (3, 0.25, 0.5)
    assert len(sent_by("norm", None, feed).order) == 3
    arrivals = receiver_of(inbox).arrivals
    assert {a.how for a in arrivals.values()} == {"file"}
    assert sorted(a.latency_s(p) for p, a in arrivals.items()) == pytest.approx([0.5, 1.0])


def test_what_is_missing_and_what_a_delivered_byte_cost(tmp_path: Path) -> None:
    """One of three is missing; 3 bytes left the NIC for each byte that arrived at the one
    receiver."""
    feed, inbox = (parse_ldm_log(text, "x") for text in logs(tmp_path))
    receivers = {"sl1": receiver_of(inbox)}
    size_bytes = sum(p.size_bytes for p in receivers["sl1"].arrivals)
    cell = Cell(
        cell="x", experiment="x", protocol="norm", m=1, r_bps=1, loss=0, duration_s=1, repeat=0,
        publisher="p", subscribers=("sl1",), nic1="p-nic1", nics=("p-nic1",), cores=1,
        trace=CellTrace(source="x"), insertion_started=0, insertion_ended=1,
    )  # fmt: skip

    def at(tx_bytes: int) -> Counters:
        names = ("rx_bytes", "rx_packets", "rx_dropped", "tx_packets", "tx_dropped")
        interface = {**dict.fromkeys(names, 0), "tx_bytes": tx_bytes}
        return Counters.model_validate({"time": 0, "interfaces": {"p/p-nic1": interface}})

    both = (at(100), at(100 + 3 * size_bytes))
    found = delivery_values(cell, sent_by("norm", None, feed), receivers, both)
    assert found["products_missing"].value == 1
    assert found["wire_per_delivered"].value == pytest.approx(3.0)


def test_inboxes_tell_missing_wrong_and_repeated_deliveries(tmp_path: Path) -> None:
    """Of five products, the first comes twice, the second is wrong and then right, the third stays
    wrong, the fourth is cut short; the fifth is there before it was sent. Other things are none."""
    station = Station("10.1.0.1", "eth0")
    setup = Setup(
        build=tmp_path, work=tmp_path, sender=station, receivers=(station, station),
        group="232.1.1.1", port=1, rate_bps=0,
    )  # fmt: skip
    for directory in (setup.source, setup.inbox(0), setup.inbox(1)):
        directory.mkdir()
    products = products_of(TRACE, "NGRID")[:5]
    for product in products:
        (setup.source / product.name).write_bytes(content(7, product))
    inboxes = Inboxes(setup, products, keep_sources=False)
    inboxes.sent |= {p.name for p in products[:4]}
    one, two, three, four, five = (setup.inbox(0) / p.name for p in products)
    right = [content(7, p) for p in products]

    def arrived(path: Path, data: bytes) -> list[str]:
        path.write_bytes(data)
        return [product.name for _, product in inboxes.collect(0)]

    assert arrived(one, right[0]) == [one.name]
    assert not one.exists()
    assert arrived(one, right[0]) == []
    assert inboxes.again == 1
    assert arrived(two, right[1][:-1] + bytes([right[1][-1] ^ 1])) == []
    assert set(inboxes.other) == {(0, two.name)}
    assert arrived(two, right[1]) == [two.name]
    assert arrived(three, bytes(len(right[2]))) == []
    assert arrived(four, right[3][:-1]) == []
    assert arrived(five, right[4]) == []
    assert arrived(setup.inbox(0) / "NONSENSE\n\udcff", b"x") == []
    (setup.inbox(1) / four.name).mkdir()
    assert arrived(setup.inbox(1) / one.name, right[0]) == [one.name]
    md5 = hashlib.md5(bytes(len(right[2])), usedforsecurity=False).hexdigest()
    assert inboxes.other == {(0, three.name): md5}
    assert inboxes.missing_by_receiver() == [3, 4]
    assert not (setup.source / one.name).exists()  # both have it


@pytest.mark.parametrize(
    ("protocol", "status", "verdict"),
    [("ldm7", "fail", "invalid"), ("norm", "n/a", "faithful"), ("tcp", "n/a", "faithful")],
)
def test_what_a_peer_misses_is_a_finding(protocol: str, status: str, verdict: str) -> None:
    lacking = held(HOSTS[0], found=PRODUCTS - 1, missing=("NGRID.000007",))
    seen = dataclasses.replace(
        GOOD,
        protocol=protocol,
        contents=[lacking, held(HOSTS[1])],
        drained=False,
    )
    found = judge(seen)
    checks = {c.name: c for c in found.checks}
    assert checks["products identical"].status == status
    assert checks["drained"].status == status
    assert found.verdict == verdict
    if protocol not in WITH_OWN_LOGS:
        assert "1 missing" in checks["products identical"].text


def test_other_bytes_are_no_finding() -> None:
    wrong = held(HOSTS[0], different=("NGRID.000007",))
    seen = dataclasses.replace(GOOD, protocol="norm", contents=[wrong, held(HOSTS[1])])
    assert judge(seen).verdict == "invalid"
