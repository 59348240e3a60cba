# SPDX-License-Identifier: Apache-2.0
"""Deliveries of a growing cell: what was known, with the changes applied, is all of them."""

from __future__ import annotations

import gc
import random
from typing import Any

import numpy as np
import pytest

from monitor.growing import Deliveries
from parsers.measure.delivered import Delivered, decode
from parsers.read.ldm_log import LdmLog, Product, parse_ldm_log, parse_product
from parsers.synthetic_hour import Hour, _ingest, _products, _publisher, _receiver

HOUR = Hour(receivers=3, products=120, seconds=30)
ROWS = ("way", "latency_us", "delay_us", "blocks")


def logs() -> dict[str, list[str]]:
    products = _products(HOUR)
    found = {"pqinsert": list(_ingest(products)), "umass": list(_publisher(products))}
    for number, host in enumerate(HOUR.hosts):
        found[host] = list(_receiver(products, number + 2))
    return found


def log(host: str, lines: list[str]) -> LdmLog:
    return parse_ldm_log(lines, host)


def over(known: Delivered | None, first: int, news: Delivered) -> dict[str, Any]:
    """Do what the page does (D.joined)."""
    found: dict[str, Any] = {
        name: getattr(news, name) for name in (*ROWS, "created_us", "size", "idents", "receivers")
    }
    if first == 0 or known is None:
        return found
    assert (known.receivers, known.begin_us) == (news.receivers, news.begin_us)
    for name in ROWS:
        found[name] = np.hstack([getattr(known, name)[:, :first], found[name]])
    for name in ("created_us", "size"):
        found[name] = np.concatenate([getattr(known, name)[:first], found[name]])
    return found | {"idents": known.idents[:first] + news.idents}


@pytest.mark.parametrize("seed", range(3))
def test_what_changed_over_what_was_known_is_all(seed: int) -> None:
    """Logs grow in any order, and parts of a receiver's before the sender's."""
    rng = random.Random(seed)
    left, cell = logs(), Deliveries(HOUR.hosts)
    known: Delivered | None = None
    steps = 0
    while any(left.values()):
        for _ in range(rng.randrange(1, 4)):
            host = rng.choice([host for host, lines in left.items() if lines])
            count = rng.randrange(1, 25)
            cell.take(host, log(host, left[host][:count]))
            del left[host][:count]
        step = cell.added(whole=False)
        if step is None:
            continue
        first, blob = step
        joined = over(known, first, decode(blob))
        known = decode(cell.blob())
        steps += first > 0
        for name, value in joined.items():
            assert np.array_equal(value, getattr(known, name)), (name, first)
    assert steps > 5 and known is not None
    assert known.shape == (HOUR.receivers, HOUR.products) and known.way.all()
    assert cell.added(whole=False) is None  # nothing since
    assert cell.added(whole=True) == (0, cell.blob())


def test_a_step_has_what_is_new_and_no_more() -> None:
    left, cell = logs(), Deliveries(HOUR.hosts)
    for host, lines in left.items():
        cell.take(host, log(host, lines[: len(lines) // 2]))
    assert cell.added(whole=False) is not None
    newest = HOUR.hosts[0]
    cell.take(newest, log(newest, left[newest][60:61]))
    step = cell.added(whole=False)
    assert step is not None and step[0] == 60 and decode(step[1]).shape == (3, 1)


def test_the_oldest_go_when_there_are_too_many() -> None:
    """The newest are left, and a viewer that received all changes has the same."""
    left, unbounded, cell = logs(), Deliveries(HOUR.hosts), Deliveries(HOUR.hosts, most=180)
    known: Delivered | None = None
    while any(left.values()):
        for host, lines in left.items():
            for one in (unbounded, cell):
                one.take(host, log(host, lines[:10]))
            del lines[:10]
        if (step := cell.added(whole=False)) is not None:
            joined = over(known, step[0], decode(step[1]))
            known = decode(cell.blob())
            for name, value in joined.items():
                assert np.array_equal(value, getattr(known, name)), name
        if any(left.values()):
            assert sum(map(len, cell._arrivals.values())) <= 180 + 3 * 10
    whole = decode(unbounded.blob())
    assert known is not None and 30 <= known.shape[1] <= 60 < whole.shape[1] == HOUR.products
    assert known.idents == whole.idents[-known.shape[1] :]
    assert np.array_equal(known.latency_us, whole.latency_us[:, -known.shape[1] :])
    cell.take("umass", log("umass", logs()["umass"]))  # lines about dropped products come again
    assert cell.added(whole=False) is None and decode(cell.blob()).shape == known.shape


def test_without_a_sender_the_oldest_go_also() -> None:
    """With LDM6, nothing says what was sent."""
    left, cell = logs(), Deliveries(HOUR.hosts, most=180)
    for host in ("pqinsert", *HOUR.hosts):
        cell.take(host, log(host, left[host]))
    (found,) = {decode(cell.blob()).shape}
    assert found[0] == 3 and 30 <= found[1] <= 60


def test_what_has_gone_is_nowhere() -> None:
    """Neither the parser nor anything else holds more products than were kept."""
    parse_product.cache_clear()
    gc.collect()
    before = sum(isinstance(found, Product) for found in gc.get_objects())
    left, cell = logs(), Deliveries(HOUR.hosts, most=90)
    while any(left.values()):
        for host, lines in left.items():
            count = 20 if host == "umass" else 10  # lines about ten products
            cell.take(host, log(host, lines[:count]))
            del lines[:count]
    gc.collect()
    held = sum(isinstance(found, Product) for found in gc.get_objects()) - before
    assert cell._products() <= held <= 2 * 90 / 3
