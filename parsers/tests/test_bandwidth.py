# SPDX-License-Identifier: Apache-2.0
"""Eq. 5 by the byte counters of all NICs, and what the bytes were."""

from __future__ import annotations

from typing import Any

import pytest

from common.contracts import MONITOR_COMMENT
from parsers.measure.bandwidth import PARTS, bandwidth_values, delivery_values, parts
from parsers.measure.deliveries import Arrival, Receiver, Sent
from parsers.read.cell_files import Cell
from parsers.read.counters import Counters
from parsers.read.ldm_log import Product, SenderStats

ACTIVE_S = (1000.0, 1010.0)


def cell(**changes: Any) -> Cell:
    values = {
        **{"cell": "c", "experiment": "e", "protocol": "ldm7", "m": 1, "r_bps": 20e6, "loss": 0},
        **{"duration_s": 9, "publisher": "p", "subscribers": ["q"], "nic1": "vlan5"},
        **{"nics": ["vlan5", "p-nic2"], "trace": {"source": "model"}, "cores": 1},
        **{"insertion_started": 1000.0, "insertion_ended": 1009.0},
    }
    return Cell.model_validate({**values, **changes})


def counters(time: float, nic1: int, nic2: int, multicast: int) -> Counters:
    """p's NIC1 has a parent interface, which counts the same bytes once more."""
    sent = {"p/vlan5": nic1, "p/p-nic1": nic1, "p/p-nic2": nic2, "q/q-nic2": 99}
    return Counters.model_validate(
        {
            "time": time,
            "interfaces": {place: {"tx_bytes": n} for place, n in sent.items()},
            "classes": {"p/vlan5/1:1": {"sent_bytes": multicast}},
        }
    )


START, END = counters(998.7, 500, 100, 0), counters(1010.3, 12_500_500, 1_000_100, 10_000_000)


def test_all_bytes_over_the_time_from_first_insertion_to_last_arrival() -> None:
    """13.5 MB in 10 s are 10.8 Mbit/s, however long before and after them the counters are read."""
    found = bandwidth_values(cell(), START, END, ACTIVE_S)
    shown = {name: value.value for name, value in found.items()}
    assert shown == pytest.approx(
        {"nic_bandwidth": 10.8e6, "nic1_bandwidth": 10e6, "nic2_bandwidth": 0.8e6}
    )


def test_the_four_parts_add_up_and_the_pulls_are_among_them() -> None:
    stats = SenderStats(
        0, "mldm", 1, *(0,) * 6, retx_bytes=2_000_000, rejects=0, timeouts=0, bad_messages=0
    )
    pulled = Product(750_000, 1, "NGRID", 1, "a")
    receiver = Receiver({pulled: Arrival(5, "backstop")}, 1, 0, None)
    total = bandwidth_values(cell(), START, END, ACTIVE_S)["nic_bandwidth"]
    sent = Sent((), "", stats=stats)
    found = parts(cell(), START, END, ACTIVE_S, sent, {"q": receiver}, total)
    shown = [found[name].value for name in PARTS]
    assert shown == pytest.approx([8e6, 1.6e6, 0.6e6, 0.6e6])
    assert sum(v for v in shown if v is not None) == pytest.approx(total.value)


def test_what_went_to_the_monitor_is_left_out() -> None:
    """40 packets of 5,000 bytes are 5,560 bytes of frames: 4,448 bit/s less on NIC2."""
    rule = {
        "chain": "INPUT",
        "packets": 40,
        "bytes": 5_000,
        "rule": f"-A INPUT -s 10.0.0.1/32 -m comment --comment {MONITOR_COMMENT}",
    }
    before = {**rule, "packets": 0, "bytes": 0}
    start, end = (
        Counters.model_validate({**of.model_dump(), "iptables": {"monitor": [found]}})
        for of, found in ((START, before), (END, rule))
    )
    found = bandwidth_values(cell(), start, end, ACTIVE_S)
    shown = {name: value.value for name, value in found.items()}
    assert shown == pytest.approx(
        {
            "nic_bandwidth": 10.8e6 - 4_448,
            "nic1_bandwidth": 10e6,
            "nic2_bandwidth": 0.8e6 - 4_448,
        }
    )
    assert found["nic_bandwidth"].note.endswith("without 5560 bytes to the monitor")
    one = Product(1_000_000, 1, "NGRID", 1, "a")
    receivers = {"q": Receiver({one: Arrival(5, "fmtp")}, 1, 0, None)}
    delivered = delivery_values(cell(), Sent((one,), ""), receivers, (start, end))
    # 12.5 MB by NIC1 and 1 MB by NIC2, for 1 MB at each receiver.
    assert delivered["wire_per_delivered"].value == pytest.approx(13.5 - 0.00556)


def test_what_cannot_be_told_says_why() -> None:
    found = bandwidth_values(cell(nic1="eth9", nics=["eth9"]), START, END, ACTIVE_S)
    assert found["nic_bandwidth"].reason == "the counters have no interface p/eth9"
    back = bandwidth_values(cell(), END, START, ACTIVE_S)["nic_bandwidth"]
    assert back.reason == "the byte counter of p/vlan5 went back"
    none = bandwidth_values(cell(), None, END, ACTIVE_S)["nic_bandwidth"]
    assert none.reason == "no counters of start and end"
    total = bandwidth_values(cell(), START, END, ACTIVE_S)["nic_bandwidth"]
    ldm6 = parts(cell(protocol="ldm6"), START, END, ACTIVE_S, Sent((), ""), {}, total)
    assert {v.reason for v in ldm6.values()} == {
        "LDM6 sends everything by TCP, a copy for each receiver"
    }
