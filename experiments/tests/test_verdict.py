# SPDX-License-Identifier: Apache-2.0
"""Every check of the verdict, made to pass and made to fail."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from experiments.tests.judged import (
    GOOD,
    HALF,
    HOSTS,
    PRODUCTS,
    SENT,
    content,
    counters,
    cpu,
    end,
    inventory,
    lag,
    load,
    look,
    probe,
    probes,
    queue,
    replayed,
    stats,
    statuses,
)
from experiments.verdict import ShaperSample, judge, summary
from experiments.verdict.accounts import Account
from experiments.verdict.cpu_load import ProcessLoad
from experiments.verdict.loss import binomial_interval
from experiments.verdict.machine import CPU_CHECKS
from experiments.verdict.replay import Backlogged, backlogged


def test_a_good_run_is_faithful() -> None:
    verdict = judge(GOOD)
    assert verdict.verdict == "faithful"
    assert {c.status for c in verdict.checks} == {"pass"}
    assert verdict.to_dict()["checks"][0].keys() == {"name", "status", "asked", "found", "text"}


def test_the_worst_check_decides() -> None:
    assert judge(dataclasses.replace(GOOD, cpu=cpu(60, steal=5))).verdict == "degraded"
    changes: dict[str, Any] = {"cpu": cpu(60, steal=5), "drained": False}
    assert judge(dataclasses.replace(GOOD, **changes)).verdict == "invalid"
    assert summary([]) == "faithful"


@pytest.mark.parametrize(
    ("changes", "name", "status"),
    [
        ({"link_mismatches": ["x forward: asked 18, found 0"]}, "link settings", "fail"),
        ({"links_checked": 0}, "link settings", "fail"),
        ({"shaping_mismatches": ["rate: asked 1, found 2"]}, "experiment's settings", "fail"),
        ({"shaping_checked": 0}, "experiment's settings", "fail"),
        # 1 of 20000 packets (10000 sent x 2 receivers) warns, 21 of them (0.105 %) fail.
        ({"end": end(meters={"s/1": {"drop_packets": 1}})}, "uninjected drops", "warn"),
        ({"end": end(meters={"s/1": {"drop_packets": 21}})}, "uninjected drops", "fail"),
        ({"end": end(udp={"sl1": {"rcvbuf_errors": 1}})}, "uninjected drops", "warn"),
        ({"end": end(openvswitch={"s/p": {"tx_dropped": 1}})}, "uninjected drops", "warn"),
        ({"end": end(relay={"a:b/forward": {"dropped": 1}})}, "uninjected drops", "warn"),
        ({"end": end(interfaces={**SENT, "sl1/e": {"rx_dropped": 1}})}, "uninjected drops",
         "warn"),
        ({"end": end(qdiscs={"wire/w/10:": {"drops": 1}})}, "uninjected drops", "warn"),
        ({"end": end(qdiscs={"umass/u-eth0/11:": {"drops": 50}})}, "drops at the sender's shaper",
         "fail"),
        ({"end": end(qdiscs={"umass/u-eth0/1:": {"drops": 50}}), "protocol": "ldm6"},
         "drops at the sender's shaper", "warn"),
        ({"receivers": {"wsu1": stats(), "sl1": stats(socket_drops=1)}},
         "drops of FMTP's UDP sockets", "warn"),
        # 20000 packets at 1 %: 200 expected, 99.9 % within 153.2 .. 246.8.
        ({"arrived": dict.fromkeys(HOSTS, (10000, 75))}, "injected loss", "warn"),
        ({"arrived": dict.fromkeys(HOSTS, (10000, 0))}, "injected loss", "fail"),
        ({"arrived": dict.fromkeys(HOSTS, (10000, 200))}, "injected loss", "fail"),
        ({"arrived": {"wsu1": (10_000, 100)}}, "injected loss", "fail"),
        ({"arrived": dict.fromkeys(HOSTS, (100, 1))}, "injected loss", "warn"),
        # Together they are right, but nothing was dropped at one receiver and twice as much at the
        # other.
        ({"arrived": {"wsu1": (10_000, 0), "sl1": (10_000, 200)}}, "injected loss", "warn"),
        ({"receivers": {h: stats(rcvbuf_granted_bytes=599_999_999) for h in HOSTS}},
         "receivers' UDP buffers", "warn"),
        ({"receivers": {"wsu1": stats(), "sl1": None}}, "receivers' UDP buffers", "warn"),
        ({"replayed": None}, "replay", "fail"),
        ({"replayed": replayed(products=99)}, "replay", "fail"),
        ({"replayed": replayed(late_p50_ms=10.0)}, "replay lateness, median", "warn"),
        ({"replayed": replayed(late_p50_ms=100.0)}, "replay lateness, median", "fail"),
        ({"replayed": replayed(late_max_ms=500.0)}, "replay lateness, largest", "warn"),
        ({"replayed": replayed(late_max_ms=5000.0)}, "replay lateness, largest", "fail"),
        # A quarter of 18 ms is 4.5 ms; 5 % of it is less than the floor of 1 ms, which applies.
        ({"end": end(relay={"a:b/forward": {"frames": 1000, "late_p99_us": 4600}})},
         "delay lateness, 1 %", "warn"),
        ({"end": end(relay={"a:b/forward": {"frames": 1000, "late_p99_us": 199_000}})},
         "delay lateness, 1 %", "warn"),
        ({"end": end(relay={"a:b/forward": {"frames": 1000, "late_p99_us": 201_000}})},
         "delay lateness, 1 %", "fail"),
        ({"end": end(relay={"a:b/forward": {"frames": 10, "late_p50_us": 1100}})},
         "delay lateness, median", "warn"),
        ({"end": end(relay={"a:b/forward": {"frames": 10, "late_p50_us": 6000}})},
         "delay lateness, median", "fail"),
        ({"rtt_measured_ms": {"wsu1": 36.0, "sl1": 43.5}}, "round-trip times", "warn"),
        # 0.3 ms more than 1 ms are 30 %, 0.6 ms are 60 %.
        ({"rtt_asked_ms": {"wsu1": 1.0}, "rtt_measured_ms": {"wsu1": 1.3}, "rtt_after_ms": {}},
         "round-trip times", "warn"),
        ({"rtt_asked_ms": {"wsu1": 1.0}, "rtt_measured_ms": {"wsu1": 1.6}, "rtt_after_ms": {}},
         "round-trip times", "fail"),
        ({"rtt_measured_ms": {"wsu1": 0.3, "sl1": 41.0}}, "round-trip times", "fail"),
        ({"rtt_measured_ms": {"wsu1": 36.0}}, "round-trip times", "fail"),
        ({"lags": {"umass": lag(), "sl1": lag(samples=0)}}, "scheduling lag", "warn"),
        ({"lags": {"umass": lag(), "sl1": lag(p50_ms=0.6)}}, "scheduling lag", "warn"),
        ({"lags": {"umass": lag(), "sl1": lag(p50_ms=5.1)}}, "scheduling lag", "fail"),
        ({"lags": {"umass": lag(), "sl1": lag(p99_ms=11)}}, "scheduling lag", "warn"),
        ({"lags": {"umass": lag(), "sl1": lag(p99_ms=101)}}, "scheduling lag", "fail"),
        ({"lags": {"umass": lag(step_ms=-1.1)}}, "clock", "warn"),
        ({"lags": {"umass": lag(step_ms=1000, step_at_s=7)}}, "clock", "fail"),
        ({"lags": {"umass": lag(step_ms=0.5, shift_ms=11)}}, "clock", "fail"),
        ({"lags": {"umass": lag(drift_ppm=-501)}}, "clock", "warn"),
        ({"lags": {"umass": lag(drift_ppm=5001)}}, "clock", "fail"),
        ({"lags": {"umass": lag(resolution_ns=4_000_000)}}, "clock", "fail"),
        ({"load": load(clocksource="jiffies")}, "clock", "fail"),
        # 60 s: 48 s are 80 % of a core, 58.2 s are 97 %.
        ({"load": load(ProcessLoad("", "busy", 1, 48.1, 0, 0))}, "CPU of single processes",
         "warn"),
        ({"load": load(ProcessLoad("", "busy", 1, 58.3, 0, 0))}, "CPU of single processes",
         "fail"),
        # 100 times 1.1 ms, 10.1 ms.
        ({"load": load(ProcessLoad("sl1", "late", 1, 1, 0.11, 100))}, "run queue", "warn"),
        ({"load": load(ProcessLoad("sl1", "late", 1, 1, 1.01, 100))}, "run queue", "fail"),
        # Of 60 s: 10 % and 50 %.
        ({"load": load(ProcessLoad("", "slow", 1, 1, 6.1, 99))}, "run queue", "warn"),
        ({"load": load(ProcessLoad("", "slow", 1, 1, 30.1, 99))}, "run queue", "fail"),
        # With both cores half idle, no process can have waited for more than half of the time.
        ({"load": load(ProcessLoad("sl1", "slept", 1, 1e-5, 59.9, 1), cores=HALF)},
         "run queue", "warn"),
        ({"load": load(sampling_cpu_s=15.1)}, "sampling", "warn"),
        ({"load": load(sampling_cpu_s=60.1)}, "sampling", "fail"),
        ({"queues": [queue(peak_backlog_bytes=450_001)]}, "queue backlog", "warn"),
        ({"queues": [queue(), queue(samples=0)]}, "queue backlog", "warn"),
        ({"queues": [queue(limit_bytes=None, limit_packets=77)]}, "queue backlog", "warn"),
        # 100 Mbit/s and a burst of 0.1 Mbit in a second; 2 % and 5 % more.
        ({"queues": [queue(peak_rate_bps=102.11e6)]}, "link rates", "warn"),
        ({"queues": [queue(peak_rate_bps=105.2e6)]}, "link rates", "fail"),
        # Of 2 x 1.2 GB.
        ({"sockets": {"wsu1": 2_170_000_000, "sl1": 0}}, "fill of the receivers' UDP buffers",
         "warn"),
        ({"sockets": {"sl1": 2_170_000_000}, "receivers": {"sl1.NGRID": stats()},
          "arrived": {"sl1.NGRID": (10_000, 100)}},
         "fill of the receivers' UDP buffers", "warn"),
        ({"rtt_after_ms": {"sl1": 61.0}}, "round-trip times after the replay", "fail"),
        ({"links_after": (["a:b forward: asked 18, found 48"], 16)},
         "link settings after the replay", "fail"),
        ({"shaping_after": (["wsu1 loss: asked 0.01, found None"], 21)},
         "experiment's settings after the replay", "fail"),
        # 18 ms asked: 1 ms more or less passes, 5 ms warn.
        ({"probes": probes([probe(18.1), probe(19.1, "backward")])},
         "link delays after the replay", "warn"),
        ({"probes": probes([probe(16.9)])}, "link delays after the replay", "warn"),
        ({"probes": probes([probe(23.1)])}, "link delays after the replay", "fail"),
        ({"probes": probes([probe(None, received=0)])}, "link delays after the replay", "fail"),
        ({"probes": probes([probe(18.1, received=9)])}, "link delays after the replay", "warn"),
        ({"probes": {"after": [probe(18.0)]}}, "link delays before the replay", "fail"),
        ({"probes": probes([])}, "link delays after the replay", "fail"),
        ({"cpu": []}, "CPU", "warn"),
        ({"cpu": cpu(60, count=8) + cpu(1, count=2)}, "CPU", "warn"),
        ({"cpu": cpu(60, count=4) + cpu(1, count=6)}, "CPU", "fail"),
        ({"cpu": cpu(60, steal=3)}, "CPU steal", "warn"),
        ({"cpu": cpu(60, steal=30)}, "CPU steal", "fail"),
        ({"tcp_found": "cubic"}, "TCP congestion control", "warn"),
        ({"tcp_found": ""}, "TCP congestion control", "warn"),
        ({"tcp_others": "umass reno"}, "TCP congestion control", "fail"),
        ({"tcp_found": "bbr (kernel cannot load ctcp: no BTF)"}, "TCP congestion control", "warn"),
        ({"tcp_found": "bbr and ctcp"}, "TCP congestion control", "warn"),
        ({"drained": False}, "drained", "fail"),
        ({"contents": [content("wsu1")]}, "products identical", "fail"),
        ({"contents": [content("wsu1"), content("sl1", missing=("NGRID.1",), found=99)]},
         "products identical", "fail"),
        ({"contents": [content("wsu1"), content("sl1", different=("NGRID.1",))]},
         "products identical", "fail"),
        ({"contents": [content(h, found=0) for h in HOSTS]}, "products identical", "fail"),
    ],
)  # fmt: skip
def test_each_check_can_fail(changes: dict[str, Any], name: str, status: str) -> None:
    found = statuses(**changes)
    found.pop("datagrams accounted for", None)  # has tests of its own
    assert found == {name: status}


VIRTUAL = dataclasses.replace(
    GOOD,
    clock="virtual",
    replayed=replayed(late_p50_ms=0.05, late_max_ms=0.08),
    rtt_measured_ms={"wsu1": 36.0, "sl1": 41.001},
    rtt_after_ms={},
    lags={"umass": lag(p50_ms=0.02, p99_ms=0.1, max_ms=0.1, look_ns=256)},
    load=None,
    probes={when: [probe(18.001)] for when in ("before", "after")},
)


def test_processors_are_not_judged_in_virtual_time() -> None:
    """A processor that is saturated all the time, or no sample at all, means nothing there."""
    for samples in (cpu(0, steal=50), []):
        assert judge(dataclasses.replace(GOOD, cpu=samples)).verdict != "faithful"
        verdict = judge(dataclasses.replace(VIRTUAL, cpu=samples))
        assert verdict.verdict == "faithful"
        silent = {c.name: c for c in verdict.checks if c.status == "n/a"}
        assert set(silent) == set(CPU_CHECKS)
        assert all("virtual time" in c.text and c.found is None for c in silent.values())


@pytest.mark.parametrize(
    ("changes", "name", "status"),
    [
        ({"rtt_measured_ms": {"wsu1": 36.1, "sl1": 40.9}}, "round-trip times", "pass"),
        ({"rtt_measured_ms": {"wsu1": 36.101, "sl1": 41.0}}, "round-trip times", "warn"),
        ({"rtt_measured_ms": {"wsu1": 36.0, "sl1": 39.999}}, "round-trip times", "fail"),
        ({"lags": {"u": lag(p50_ms=0.11, p99_ms=0.11, look_ns=256)}}, "scheduling lag", "warn"),
        ({"lags": {"u": lag(p50_ms=1.1, p99_ms=1.1, look_ns=256)}}, "scheduling lag", "fail"),
        ({"lags": {"u": lag(p50_ms=0, p99_ms=0, step_ms=0.02, look_ns=256)}}, "clock", "fail"),
        ({"probes": probes([probe(18.0)]) | {"before": [probe(18.051)]}},
         "link delays before the replay", "warn"),
        ({"probes": probes([probe(18.0)]) | {"before": [probe(18.501)]}},
         "link delays before the replay", "fail"),
        ({"replayed": replayed(late_p50_ms=0.21, late_max_ms=0.3)}, "replay lateness, median",
         "warn"),
        ({"replayed": replayed(late_p50_ms=0.05, late_max_ms=1.1)}, "replay lateness, largest",
         "warn"),
        ({"replayed": replayed(late_p50_ms=0.05, late_max_ms=251.0)}, "replay lateness, largest",
         "fail"),
        ({"end": end(relay={"a:b/forward": {"frames": 10, "late_p50_us": 99}})},
         "delay lateness, median", "pass"),
        ({"end": end(relay={"a:b/forward": {"frames": 10, "late_p50_us": 101}})},
         "delay lateness, median", "warn"),
        ({"end": end(relay={"a:b/forward": {"frames": 1000, "late_p99_us": 1001}})},
         "delay lateness, 1 %", "fail"),
    ],
)  # fmt: skip
def test_virtual_time_must_be_exact(changes: dict[str, Any], name: str, status: str) -> None:
    checks = judge(dataclasses.replace(VIRTUAL, **changes)).checks
    assert {c.name: c.status for c in checks}[name] == status
    assert {c.name for c in checks if c.status in ("warn", "fail")} <= {name}
    if status == "fail":
        return
    # The native limits allow all of this.
    native = dataclasses.replace(VIRTUAL, clock="native", **changes)
    assert {c.name: c.status for c in judge(native).checks}[name] == "pass"


def test_rates_must_be_exact_in_virtual_time() -> None:
    for rate_bps, status in ((20.09e6, "pass"), (20.11e6, "warn"), (20.41e6, "fail")):
        evidence = dataclasses.replace(VIRTUAL, shaper=shaper(rate_bps, 5_000_000))
        found = {c.name: c.status for c in judge(evidence).checks}["sender rate"]
        assert found == status, rate_bps


def test_lossless_runs_must_lose_nothing_to_iptables() -> None:
    injected = "-A INPUT -p udp -m comment --comment downpour-loss -j DROP"
    rule = {"chain": "INPUT", "packets": 0, "bytes": 0, "rule": injected}
    quiet: dict[str, Any] = {
        "loss": 0.0,
        "arrived": dict.fromkeys(HOSTS, (10_000, 0)),
        "receivers": {h: stats(datagrams=10_000) for h in HOSTS},
        "end": end(iptables={"sl1": [rule]}),
    }
    assert statuses(**quiet) == {}
    dropped = end(iptables={"sl1": [{**rule, "packets": 1}]})
    assert statuses(**{**quiet, "end": dropped}) == {"injected loss": "fail"}


@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_rules_of_others_are_named(loss: float) -> None:
    """21 packets of 20,000 fail, even where the receivers lose some on purpose."""
    rule = {"chain": "INPUT", "packets": 7, "bytes": 0, "rule": "-A INPUT -p udp -j DROP"}
    after = end(iptables={"sl1": [{**rule, "packets": 28}]})
    changes: dict[str, Any] = {"start": counters(iptables={"sl1": [rule]}), "end": after}
    if not loss:
        changes |= {
            "loss": 0.0,
            "arrived": dict.fromkeys(HOSTS, (10_000, 0)),
            "receivers": {h: stats(datagrams=10_000) for h in HOSTS},
        }
    checks = judge(dataclasses.replace(GOOD, **changes)).checks
    bad, rules = (c for c in checks if c.status in ("warn", "fail"))
    assert rules.name == "firewall rules"
    assert (bad.name, bad.status, bad.found) == ("uninjected drops", "fail", 21)
    assert "sl1: 21 (iptables rule '-A INPUT -p udp -j DROP')" in bad.text


@pytest.mark.parametrize(
    ("changes", "status", "text"),
    [
        # Sent 10,000 to each of two; 20 of 20,000 (0.1 %) warn, more fail.
        ({"datagrams_sent": 10_001}, "warn", "sl1: 1 before the sender's queue had sent them"),
        ({"arrived": {"wsu1": (10_000, 100), "sl1": (9_980, 80)}}, "warn",
         "sl1: 20 on the way to the receiver's NIC"),
        ({"arrived": {"wsu1": (10_000, 100), "sl1": (9_979, 79)}}, "fail",
         "sl1: 21 on the way to the receiver's NIC"),
        ({"receivers": {"wsu1": stats(datagrams=9_900), "sl1": stats(datagrams=9_870)}}, "fail",
         "sl1: 30 between NIC and program, beyond the injected loss"),
        # Copies are as wrong as losses.
        ({"arrived": {"wsu1": (10_000, 100), "sl1": (10_003, 103)}}, "warn",
         "sl1: -3 on the way to the receiver's NIC"),
        ({"datagrams_sent": None}, "warn", "a counter is missing for sl1, wsu1"),
        ({"receivers": {"wsu1": stats(datagrams=9_900), "sl1": None}}, "warn",
         "a counter is missing for sl1"),
    ],
)  # fmt: skip
def test_each_datagram_is_accounted_for(changes: dict[str, Any], status: str, text: str) -> None:
    checks = judge(dataclasses.replace(GOOD, **changes)).checks
    found = {c.name: c for c in checks}["datagrams accounted for"]
    assert found.status == status
    assert text in found.text


def test_what_the_broken_link_lost_is_asked_for_behind_it_alone() -> None:
    """39 datagrams are lost on the way. Behind the link that the cell breaks, they are expected;
    elsewhere they were not asked for."""
    lost: dict[str, Any] = {"arrived": {"wsu1": (10_000, 100), "sl1": (9_961, 61)}}
    lost["receivers"] = {"wsu1": stats(datagrams=9_900), "sl1": stats(datagrams=9_900)}
    for behind, status in (({"sl1"}, "pass"), (set(), "fail"), ({"wsu1"}, "fail")):
        changes: dict[str, Any] = {**lost, "behind_cut": frozenset(behind)}
        checks = judge(dataclasses.replace(GOOD, **changes)).checks
        found = {c.name: c for c in checks}["datagrams accounted for"]
        assert found.status == status, found.text
    copies = {"arrived": {"wsu1": (10_000, 100), "sl1": (10_030, 130)}}
    more: dict[str, Any] = {**copies, "behind_cut": frozenset({"sl1"})}
    checks = judge(dataclasses.replace(GOOD, **more)).checks
    assert {c.name: c for c in checks}["datagrams accounted for"].status == "fail"


def test_a_broken_link_excuses_what_it_changes_and_nothing_else() -> None:
    """A flow that changes during the break is the path's move, if it is behind the cut; lost
    products are never excused."""
    moved = dataclasses.replace(
        GOOD, inventory=inventory(look(), look("meanwhile", changed=["s1 flow 1"]), look("end"))
    )
    names = {c.name: c.status for c in judge(moved).checks}
    assert names["nothing changed meanwhile"] in ("warn", "fail")
    cut = dataclasses.replace(moved, behind_cut=frozenset({"sl1"}))
    checks = {c.name: c for c in judge(cut).checks}
    assert checks["nothing changed meanwhile"].status == "n/a"
    assert "the cell breaks a link on purpose" in checks["nothing changed meanwhile"].text
    missing = dataclasses.replace(
        cut, contents=[content("wsu1", different=("NGRID.1",)), content("sl1")]
    )
    assert {c.name: c for c in judge(missing).checks}["products identical"].status == "fail"


def test_what_a_socket_dropped_is_accounted_for() -> None:
    """It has its own check."""
    dropped = stats(datagrams=9_899, socket_drops=1)
    found = statuses(receivers={"wsu1": stats(datagrams=9_900), "sl1": dropped})
    assert found == {"drops of FMTP's UDP sockets": "warn"}


@pytest.mark.parametrize(
    "changes",
    [{"protocol": "ldm6"}, {"lossy_links": frozenset({"a:b/forward"})}, {"drained": False}],
)
def test_accounts_that_cannot_be_made(changes: dict[str, Any]) -> None:
    wrong: dict[str, Any] = {"datagrams_sent": 20_000, **changes}
    checks = judge(dataclasses.replace(GOOD, **wrong)).checks
    assert {c.name: c.status for c in checks}["datagrams accounted for"] == "n/a"


def test_an_account_names_every_loss() -> None:
    assert Account(100, 98, 98, 1, 94).to_dict() == {
        **{"sent": 100, "shaped": 98, "arrived": 98, "injected": 1, "received": 94},
        "losses": {
            "before the sender's queue had sent them": 2,
            "between NIC and program, beyond the injected loss": 3,
        },
    }


def test_a_full_send_buffer_is_no_loss() -> None:
    assert statuses(end=end(udp={"umass": {"sndbuf_errors": 86}})) == {}


def test_what_the_shaper_drops_is_not_counted_again_at_its_interface() -> None:
    sent = {"umass/u-eth0": {"tx_packets": 10_000, "tx_dropped": 50}}
    both = end(interfaces=sent, qdiscs={"umass/u-eth0/11:": {"drops": 50}})
    assert statuses(end=both) == {"drops at the sender's shaper": "fail"}


def test_what_was_lost_before_the_replay_does_not_count() -> None:
    before = counters(meters={"s/1": {"drop_packets": 7}})
    assert statuses(start=before, end=end(meters={"s/1": {"drop_packets": 7}})) == {}


def test_loss_the_topology_asks_for_is_injected() -> None:
    lossy = end(relay={"a:b/forward": {"dropped": 100}})
    assert statuses(end=lossy, lossy_links=frozenset({"a:b/forward"})) == {}
    netem = end(qdiscs={"wire/w7b/1:": {"kind": "netem", "drops": 100}})
    assert statuses(end=netem, lossy_links=frozenset({"wire/w7b"})) == {}
    assert statuses(end=netem, lossy_links=frozenset({"wire/w7a"})) != {}
    queue = end(qdiscs={"wire/w7b/1:": {"kind": "tbf", "drops": 100}})
    assert statuses(end=queue, lossy_links=frozenset({"wire/w7b"})) != {}


def shaper(rate_bps: float, backlog: int, seconds: int = 10) -> list[ShaperSample]:
    return [ShaperSample(float(i), round(i * rate_bps / 8), backlog) for i in range(seconds + 1)]


def ending_short(samples: list[ShaperSample]) -> list[ShaperSample]:
    """Return them with a second more, which begins with little in the queue and sends little."""
    last = samples[-1]
    short = dataclasses.replace(last, backlog_bytes=100_000)
    return [*samples[:-1], short, ShaperSample(last.time_s + 1, last.sent_bytes + 250_000, 100_000)]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (shaper(20e6, 5_000_000), {}),
        (shaper(20.3e6, 5_000_000), {}),
        (shaper(20.6e6, 5_000_000), {"sender rate": "warn"}),
        (shaper(22e6, 5_000_000), {"sender rate": "fail"}),
        (shaper(19.2e6, 5_000_000), {"sender rate": "warn"}),
        (shaper(16e6, 5_000_000), {"sender rate": "fail"}),
        # A short backlog may have run out between two samples.
        (shaper(16e6, 100_000), {}),
        (shaper(22e6, 100_000), {"sender rate": "fail"}),
        (shaper(16e6, 0), {}),
        # One interval that began with little says nothing of those that began with enough.
        (ending_short(shaper(18e6, 5_000_000)), {"sender rate": "fail"}),
        (ending_short(shaper(20e6, 5_000_000)), {}),
        (shaper(30e6, 5_000_000, seconds=2), {}),  # not decidable
    ],
)
def test_sender_rate(samples: list[ShaperSample], expected: dict[str, str]) -> None:
    assert statuses(shaper=samples) == expected


def test_a_rate_leaves_out_the_idle_time() -> None:
    samples = [
        ShaperSample(0, 0, 10),
        ShaperSample(1, 1000, 10),
        ShaperSample(2, 1100, 0),
        ShaperSample(3, 1200, 10),
        ShaperSample(5, 5200, 10),
    ]
    assert backlogged(samples, 1e9) == Backlogged(8 * 5000, 3.0, 0.0, 0.0)
    assert backlogged(samples, 1e9).rate_bps == 8 * 5000 / 3
    assert backlogged(samples, 80) == Backlogged(8 * 5000, 3.0, 8 * 1000, 1.0)


def test_binomial_interval() -> None:
    """n = 10000, p = 0.01: mean 100, standard deviation 9.95; z(99.9 %) = 3.2905."""
    low, high = binomial_interval(10_000, 0.01, 0.999)
    assert (low, high) == pytest.approx(
        (100 - 3.2905 * 9.9499 - 0.5, 100 + 3.2905 * 9.9499 + 0.5), abs=0.01
    )
    assert binomial_interval(0, 0.01, 0.999) == (0.0, 0.0)


def test_a_clock_that_is_not_the_guests() -> None:
    """Reading the clock takes 20 ns, as natively: so the claim that its time is virtual is
    wrong."""
    assert judge(dataclasses.replace(VIRTUAL, lags={"u": lag(p50_ms=0)})).verdict == "invalid"


def test_what_was_not_watched_is_not_trusted() -> None:
    assert statuses(lags={}) == {"scheduling lag": "warn", "clock": "warn"}


def test_processes_are_not_judged_by_few_times() -> None:
    rare = ProcessLoad("sl1", "rare", 1, 1.0, 5.9, 99)
    assert statuses(load=load(rare)) == {}


def test_a_kernel_without_process_times() -> None:
    assert set(statuses(load=load(processes=()))) == set(CPU_CHECKS[2:])


def test_tcp_may_fill_its_own_shaper() -> None:
    full = queue(place="umass/u-eth0/1:", link=None, peak_backlog_bytes=500_000)
    assert "queue backlog" in statuses(queues=[queue(), full])
    assert statuses(queues=[queue(), full], protocol="ldm6") == {}


def test_a_burst_is_within_the_rate() -> None:
    """100 Mbit/s, 0.1 Mbit of burst: 2 % above both are 102.1 Mbit/s in a second."""
    assert statuses(queues=[queue(peak_rate_bps=102.09e6)]) == {}


def test_a_link_that_jitters_is_judged_by_its_median() -> None:
    """18 ms, 2 ms of jitter: a median of 20.9 ms is 0.9 ms too long, one of 21.1 ms 1.1 ms."""
    for least_ms, expected in ((20.4, {}), (20.6, {"link delays after the replay": "warn"})):
        found = [probe(least_ms, jitter_ms=2.0)]
        assert statuses(probes=probes(found)) == expected


def test_links_that_do_nothing_need_no_probe() -> None:
    checks = judge(dataclasses.replace(GOOD, links_checked=0, probes={})).checks
    assert {c.status for c in checks if c.name.startswith("link delays")} == {"n/a"}


def test_too_few_frames_have_no_quantile() -> None:
    few = {"a:b/forward": {"frames": 999, "late_p50_us": 100, "late_p99_us": 90_000}}
    assert "delay lateness, 1 %" not in statuses(end=end(relay=few))


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("hash", "replayable: the seed and the packet decide"),
        ("random", "random: not replayable"),
        ("random (not replayable: no bpf match)", "random (not replayable: no bpf match)"),
    ],
)
def test_injected_loss_says_if_it_can_be_replayed(model: str, text: str) -> None:
    checks = judge(dataclasses.replace(GOOD, loss_model=model)).checks
    (found,) = (c for c in checks if c.name == "injected loss")
    assert found.status == "pass"
    assert found.text.endswith("; " + text)


@pytest.mark.parametrize(
    ("arrived", "status"),
    [
        ({"wsu1": (10_000, 100), "sl1": (10_000, 500)}, "pass"),
        # As many in total, but exchanged; then losses where none were asked for.
        ({"wsu1": (10_000, 500), "sl1": (10_000, 100)}, "fail"),
        ({"wsu1": (10_000, 100), "sl1": (100, 5)}, "warn"),
    ],
)
def test_each_receivers_own_loss(arrived: dict[str, tuple[int, int]], status: str) -> None:
    asked: dict[str, Any] = {"loss_of": {"wsu1": 0.01, "sl1": 0.05}, "loss": 0.03}
    checks = judge(dataclasses.replace(GOOD, **asked, arrived=arrived)).checks
    (found,) = (c for c in checks if c.name == "injected loss")
    assert found.status == status, found.text


def test_a_receiver_without_loss_loses_nothing() -> None:
    asked: dict[str, Any] = {"loss_of": {"wsu1": 0.02, "sl1": 0.0}, "loss": 0.01}
    for dropped, status in ((0, "pass"), (1, "fail")):
        arrived = {"wsu1": (10_000, 200), "sl1": (10_000, dropped)}
        checks = judge(dataclasses.replace(GOOD, **asked, arrived=arrived)).checks
        (found,) = (c for c in checks if c.name == "injected loss")
        assert found.status == status, found.text


@pytest.mark.parametrize(
    ("factor", "changes", "name"),
    [
        (
            "b_mc",
            {"end": end(qdiscs={"umass/u-eth0/11:": {"drops": 50}})},
            "drops at the sender's shaper",
        ),
        (
            "b_rcv",
            {"receivers": {"wsu1": stats(datagrams=9_900), "sl1": stats(socket_drops=50)}},
            "drops of FMTP's UDP sockets",
        ),
    ],
)
def test_what_a_varied_buffer_drops_is_a_finding(
    factor: str, changes: dict[str, Any], name: str
) -> None:
    assert name in statuses(**changes)
    assert name not in statuses(**changes, varied=frozenset({factor}))


def test_what_a_varied_queue_drops_is_accounted_for() -> None:
    """50 of the 10,050 datagrams that were sent are dropped: the queue's counter must agree."""
    drops = {"umass/u-eth0/11:": {"drops": 50}}
    changes: dict[str, Any] = {"datagrams_sent": 10_050, "varied": frozenset({"b_mc"})}
    assert statuses(**changes, end=end(qdiscs=drops)) == {}
    drops["umass/u-eth0/11:"]["drops"] = 49
    assert statuses(**changes, end=end(qdiscs=drops)) == {"datagrams accounted for": "fail"}
    changes["varied"] = frozenset()
    assert "datagrams accounted for" in statuses(**changes, end=end(qdiscs=drops))


def test_receivers_without_multicast_are_compared_too() -> None:
    contents = [*GOOD.contents, content("sl2")]
    assert statuses(contents=contents, without_multicast=1) == {}
    assert statuses(without_multicast=1) == {"products identical": "fail"}
    wrong = [*GOOD.contents, content("sl2", found=PRODUCTS - 1)]
    assert statuses(contents=wrong, without_multicast=1) == {"products identical": "fail"}


def test_each_check_is_documented() -> None:
    """Including those of a run that only warns: their names are the same."""
    page = (Path(__file__).parents[2] / "docs/guide/verdict.md").read_text()
    relay = {"a:b/forward": {"frames": 1000, "late_p50_us": 1, "late_p99_us": 2}}
    checks = judge(dataclasses.replace(GOOD, end=end(relay=relay))).checks
    assert [c.name for c in checks if c.name not in page] == []
