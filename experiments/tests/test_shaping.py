# SPDX-License-Identifier: Apache-2.0
"""Traffic control and loss: commands, and reading back what tc and iptables print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments.design import loss_model, shaping
from experiments.design.shaping import Setting

GOLDEN = Path(__file__).parent / "golden"
RATES = {
    "r_mc_bps": 20_000_000,
    "r_uc_bps": 20_000_000,
    "b_mc_bytes": 600_000_000,
    "b_uc_bytes": 600_000_000,
}


def golden(name: str) -> str:
    return (GOLDEN / name).read_text()


def htb(**changes: str) -> list[Setting]:
    texts = {
        "qdisc_text": golden("htb-qdisc.json"),
        "class_text": golden("htb-class.txt"),
        "filter_text": golden("htb-filter.json"),
        **changes,
    }
    return shaping.read_back_htb(
        texts["qdisc_text"], texts["class_text"], texts["filter_text"], group="239.1.2.3", **RATES
    )


def test_ldm7_commands_are_the_papers() -> None:
    """V-B: HTB, default 2, two classes, rate = ceil, directly below the root, a bfifo each, the
    group's datagrams in the first."""
    commands = [" ".join(c) for c in shaping.htb_commands("u-eth0", "239.1.2.3", **RATES)]
    assert commands == [
        "tc qdisc add dev u-eth0 root handle 1: htb default 2",
        "tc class add dev u-eth0 parent 1: classid 1:1 htb rate 20000000bit ceil 20000000bit"
        " quantum 1514",
        "tc qdisc add dev u-eth0 parent 1:1 handle 11: bfifo limit 600000000",
        "tc class add dev u-eth0 parent 1: classid 1:2 htb rate 20000000bit ceil 20000000bit"
        " quantum 1514",
        "tc qdisc add dev u-eth0 parent 1:2 handle 12: bfifo limit 600000000",
        "tc filter add dev u-eth0 parent 1: protocol ip prio 1 u32 match ip dst 239.1.2.3/32"
        " flowid 1:1",
    ]


def test_ldm6_commands_are_the_papers() -> None:
    """V-B: burst 50 KB; the limit for m = 8, r = 20 Mbit/s, 90 ms is 3.6 MB."""
    (command,) = shaping.tbf_commands("u-eth0", 160_000_000, 3_600_000)
    assert " ".join(command) == (
        "tc qdisc add dev u-eth0 root handle 1: tbf rate 160000000bit burst 51200 limit 3600000"
    )


def test_htb_read_back() -> None:
    assert shaping.mismatches(htb()) == []
    assert {s.name for s in htb()} >= {"multicast rate", "unicast ceil", "multicast filter"}


@pytest.mark.parametrize(
    ("text", "old", "new", "name"),
    [
        ("htb-qdisc.json", '"kind":"htb"', '"kind":"noqueue"', "root qdisc"),
        ("htb-qdisc.json", '"default":"0x2"', '"default":"0x1"', "default class"),
        # tc's own 600mb is 600 MiB, which was not requested.
        ("htb-qdisc.json", "600000000", "629145600", "unicast bfifo limit"),
        (
            "htb-class.txt",
            "1:1 root leaf 11: prio 0 rate 20Mbit",
            "1:1 root leaf 11: prio 0 rate 160Mbit",
            "multicast rate",
        ),
        ("htb-class.txt", "ceil 20Mbit", "ceil 40Mbit", "multicast ceil"),
        ("htb-class.txt", "class htb 1:2", "class htb 1:3", "unicast rate"),
        ("htb-filter.json", "ef010203", "ef010204", "multicast filter"),
        ("htb-filter.json", '"ffffffff"', '"ffffff00"', "multicast filter"),
        ("htb-filter.json", '"flowid":"1:1"', '"flowid":"1:2"', "multicast filter"),
    ],
)
def test_htb_read_back_sees(text: str, old: str, new: str, name: str) -> None:
    content = golden(text)
    assert old in content
    key = {"q": "qdisc_text", "c": "class_text", "f": "filter_text"}[text[4]]
    found = htb(**{key: content.replace(old, new, 1)})
    assert name in {s.name for s in found if not s.ok}


def test_nothing_there_is_not_ok() -> None:
    found = htb(qdisc_text="[]", class_text="", filter_text="[]")
    assert not any(s.ok for s in found)


def test_classes_of_newer_tc_are_json_in_bytes_per_second() -> None:
    text = '[{"class":"htb","handle":"1:1","rate":2500000,"ceil":2500000}]'
    assert shaping.parse_classes(text) == {"1:1": (20e6, 20e6)}


@pytest.mark.parametrize(
    ("text", "bps"),
    [("20Mbit", 20e6), ("12500Kbit", 12.5e6), ("1Gbit", 1e9), ("19999992bit", 19_999_992.0)],
)
def test_rates(text: str, bps: float) -> None:
    assert shaping.parse_rate_bps(text) == bps
    assert shaping.parse_rate_bps(text + "x") is None


def test_tbf_read_back() -> None:
    """tc gives 2e7 bytes/s and 177440 us: (3.6 MB - 50 kB) / 20 MB/s."""
    found = shaping.read_back_tbf(
        golden("tbf-qdisc.json"), rate_bps=160_000_000, limit_bytes=3_600_000
    )
    assert shaping.mismatches(found) == []
    assert {s.name: s.found for s in found}["limit"] == pytest.approx(3_600_000)


@pytest.mark.parametrize(
    ("rate", "limit", "name"), [(20_000_000, 3_600_000, "rate"), (160_000_000, 32_400_000, "limit")]
)
def test_tbf_read_back_sees(rate: int, limit: int, name: str) -> None:
    found = shaping.read_back_tbf(golden("tbf-qdisc.json"), rate_bps=rate, limit_bytes=limit)
    assert name in {s.name for s in found if not s.ok}
    assert not any(s.ok for s in shaping.read_back_tbf("[]", rate_bps=rate, limit_bytes=limit))


def test_a_burst_is_read_back_in_whole_microseconds() -> None:
    """51,200 bytes at 960 Mbit/s are 426.67 us; 426 us are 51,120 bytes."""
    text = json.dumps(
        [{"kind": "tbf", "root": True,
          "options": {"rate": 120_000_000, "burst": 51_120, "limit": 3_600_000}}]
    )  # fmt: skip
    found = shaping.read_back_tbf(text, rate_bps=960_000_000, limit_bytes=3_600_000)
    assert shaping.mismatches(found) == []
    smaller = text.replace("51120", "50900")
    found = shaping.read_back_tbf(smaller, rate_bps=960_000_000, limit_bytes=3_600_000)
    assert [s.name for s in found if not s.ok] == ["burst"]


def test_loss_commands() -> None:
    count = " ".join(shaping.arrival_command("e0", udp_only=True))
    drop = " ".join(shaping.loss_command("e0", 0.01, True, None))
    assert count == "iptables -w -A INPUT -i e0 -p udp -m comment --comment downpour-arrived"
    assert drop == (
        "iptables -w -A INPUT -i e0 -p udp -m statistic --mode random --probability 0.0100000000"
        " -m comment --comment downpour-loss -j DROP"
    )
    assert "-p" not in shaping.loss_command("e0", 0.01, False, None)
    assert " ".join(shaping.loss_command("e0", 0.01, True, "1,6 0 0 0")) == (
        "iptables -w -A INPUT -i e0 -p udp -m bpf --bytecode 1,6 0 0 0"
        " -m comment --comment downpour-loss -j DROP"
    )


def test_loss_read_back() -> None:
    text = golden("iptables-v-S.txt")
    rule = shaping.parse_loss_rules(text)
    assert rule is not None
    assert (rule.arrived_packets, rule.dropped_packets) == (50_000, 531)
    wanted: dict[str, Any] = {"interface": "lo", "loss": 0.01, "udp_only": True, "program": None}
    assert shaping.mismatches(shaping.read_back_loss(text, "h", **wanted)) == []
    for change in ({"interface": "e0"}, {"loss": 0.011}, {"loss": 0.0}, {"udp_only": False}):
        assert shaping.mismatches(shaping.read_back_loss(text, "h", **{**wanted, **change})), change
    assert shaping.mismatches(shaping.read_back_loss("-P INPUT ACCEPT", "h", **wanted))


def test_hash_loss_read_back() -> None:
    """It notices a p that differs by 1e-6, another seed, or a die instead of a hash; p is kept to
    2^-32."""
    text = golden("iptables-v-S-bpf.txt")
    rule = shaping.parse_loss_rules(text)
    assert rule is not None
    assert (rule.arrived_packets, rule.dropped_packets) == (4000, 224)
    assert rule.probability == pytest.approx(0.05, abs=2**-32)
    seed = loss_model.loss_seed(2053, "uva")
    wanted: dict[str, Any] = {"interface": "lo", "loss": 0.05, "udp_only": True}
    program = loss_model.program(0.05, seed)
    assert shaping.mismatches(shaping.read_back_loss(text, "h", **wanted, program=program)) == []
    for other in (loss_model.program(0.050001, seed), loss_model.program(0.05, seed + 1), None):
        found = shaping.read_back_loss(text, "h", **wanted, program=other)
        assert [s.name for s in found if not s.ok] == ["h loss program"]
    wrong = shaping.read_back_loss(text, "h", **{**wanted, "loss": 0.05 + 1e-9}, program=program)
    assert [s.name for s in wrong if not s.ok] == ["h loss"]
