# SPDX-License-Identifier: Apache-2.0
"""Cells whose files were not measured but written by hand, and which then judge themselves as every
cell does at its end: runs for `verify` to check."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from experiments.cells.congestion_control import Chosen
from experiments.cells.job import Job
from experiments.cells.replay_cell import CellRun
from experiments.cells.run_directory import write_json, write_text
from experiments.design.shaping import Setting
from experiments.runs import digests
from experiments.tests.judged import flight, look, probe, queue
from experiments.tests.played import Play, Stage, prepared, run
from parsers.measure.evaluate import evaluate
from topologies.model.network import Network

BEGIN_S = 1_767_225_600.0  # 20260101T000000Z
PRODUCTS = 2  # of the trace of `played`
SETTING = Setting("qdisc", "htb", "htb")
ARRIVED = 10_000  # packets at each receiver
LINK = {"link": "a:b", "direction": "forward", "asked": {}, "found": {}, "ok": True, "note": ""}
LAG = {
    **{"samples": 600, "max_at_s": 0.0, "cpu_ns": 0},
    "late_ns": {"p50": 768, "p99": 3072, "max": 4000},
    "clock": {
        **{"elapsed_ns": 10**10, "raw_elapsed_ns": 10**10, "resolution_ns": 1, "look_ns": 256},
        **{"shift_ns": 0, "step_ns": 0, "step_at_s": 0.0},
    },
}


class StoredRun(CellRun):
    """A cell that has run, as far as its files and its own memory tell."""

    def __init__(self, job: Job, out: Path) -> None:
        network = Network.from_json(job.network.read_text())
        self.job, self.cell, self.network, self.out = job, job.cell, network, out
        self.emulation: Any = SimpleNamespace(facts=SimpleNamespace(clock="virtual"))
        self.publisher = network.publisher.name
        self.subscribers = self.cell.subscribing(h.name for h in network.subscribers)
        self.nic1 = network.publisher.nic1.interface
        self.rtt_measured_ms = {h: network.round_trip_ms[h] for h in self.subscribers}
        self.rtt_after_ms = dict(self.rtt_measured_ms)
        self.times = {
            "started": BEGIN_S - 10,
            "insertion_started": BEGIN_S,
            "insertion_ended": BEGIN_S + 10,
            "drained": BEGIN_S + 11,
        }
        self.settings = [SETTING]
        self.drained, self.queues_on = True, "memory"
        self.loss_models = dict.fromkeys(self.subscribers, "hash")
        self._tcp, self._tcp_others = Chosen("ctcp (cwnd 187)", "ctcp"), ""
        self.upstreams, self.clock_offsets_ms = {}, {}
        self.window_bytes, self.tbf_limit = 270_000, 0


def write_files(out: Path, stored: StoredRun) -> None:
    """Write what a cell leaves before it judges itself."""
    write_watched(out, stored.network, stored.subscribers)
    write_json(out / "counters-start.json", _counters(stored, 0))
    write_json(out / "counters-end.json", _counters(stored, ARRIVED))
    _write_logs(out, stored)


def write_watched(out: Path, network: Network, hosts: Sequence[str]) -> None:
    """Write what the network is, and what was seen of it; `hosts`: subscribers."""
    write_text(out / "network.json", network.to_json())
    for end in ("", "-end"):
        write_json(out / f"links{end}.json", [LINK])
        write_json(out / f"shaping{end}.json", {"settings": [SETTING.to_dict()]})
    probes = [probe(18.0).to_dict()]
    write_json(out / "link-probes.json", {"before": probes, "after": probes})
    write_json(
        out / "queues.json", {"queues": [queue().to_dict()], "sockets": dict.fromkeys(hosts, 2304)}
    )
    write_json(out / "host-lag.json", dict.fromkeys((network.publisher.name, *hosts), LAG))
    looks = [look("start"), look("meanwhile"), look("end")]
    write_json(
        out / "inventory.json",
        {"looks": looks, "changes": [], "changes_missed": 0, "throttled": 0},
    )
    way = {**dataclasses.asdict(flight()), "blocks": [[0.0, 200, 20.5, 20.5, 20.5, 20.5]]}
    write_json(out / "flights.json", {"unseen": 0, "flights": [way]})


def _counters(stored: StoredRun, sent: int) -> dict[str, Any]:
    nic = f"{stored.publisher}/{stored.nic1}"
    rules = {
        host: [
            {"chain": "INPUT", "packets": packets, "bytes": 0, "rule": f"--comment {comment}{end}"}
            for comment, packets, end in (
                ("downpour-arrived", sent, ""),
                ("downpour-loss", sent // 100, " -j DROP"),
            )
        ]
        for host in stored.subscribers
    }
    return {
        "time": BEGIN_S,
        "interfaces": {nic: {"tx_packets": sent}},
        "classes": {f"{nic}/1:1": {"sent_packets": sent}},
        "iptables": rules,
    }


def _write_logs(out: Path, stored: StoredRun) -> None:
    head = "20260101T000011.000000Z {}[7]   x.c:f:1   NOTE {}\n"
    rest = " socket_drops=0 rcvbuf_granted_bytes=600000000"
    received = (
        f"FMTP receiver: datagrams={ARRIVED * 99 // 100} blocks=9000 duplicate_blocks=0"
        f" products={PRODUCTS} missed=0 retx_requests=0 retx_blocks=0 bad_messages=0{rest}"
    )
    sent = (
        f"FMTP sender: products={PRODUCTS} datagrams={ARRIVED} datagram_bytes=1 blocks=9000"
        " retx_requests=0 retx_blocks=0 retx_bytes=0 rejects=0 timeouts=0 bad_messages=0"
    )
    replayed = (
        f"Replayed: products={PRODUCTS} bytes=300 elapsed_s=10.0 late_p50_ms=0.051"
        " late_max_ms=0.052"
    )
    logs, lists = out / "logs", out / "products"
    lists.mkdir()
    write_text(logs / "pqinsert.log", head.format("pqinsert", replayed))
    write_text(logs / f"{stored.publisher}.ldmd.log", head.format("mldm", sent))
    lines = (f"{BEGIN_S + i} {i * 2_500_000} 3000\n" for i in range(10))
    write_text(logs / "shaper.log", "".join(lines))
    for host in stored.subscribers:
        write_text(logs / f"{host}.ldmd.log", head.format("down7", received))
    for host in (stored.publisher, *stored.subscribers):
        write_text(lists / f"{host}.txt", f"{'0' * 32} 100 A.000000\n{'1' * 32} 200 A.000001\n")


def play(job: Job, out: Path) -> Iterator[dict[str, Any]]:
    """Stand for a cell's process."""
    stored = StoredRun(job, out)
    write_files(out, stored)
    verdict, identical = stored.finish()
    yield {"event": "done", "verdict": verdict, "identical": identical}


def stored_run(folder: Path, stage: Stage, way: Play = play) -> Path:
    """Make a complete run of one cell, by LDM7; return its directory."""
    stage.play = way
    given, planned = prepared(folder)
    path = run(folder, (given, planned[:1])).path
    told = json.loads((path / "manifest.json").read_text())
    write_json(path / "manifest.json", {**told, "only": [planned[0].cell.cell]})
    write_json(path / "metrics.json", evaluate(path).document)
    digests.write_run(path)
    return path


def changed(file: Path, **values: Any) -> None:
    """Change keys of a JSON object in a file; None: remove the key."""
    known = {**json.loads(file.read_text()), **values}
    write_json(file, {key: value for key, value in known.items() if value is not None})
