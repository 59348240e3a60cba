# SPDX-License-Identifier: Apache-2.0
"""Make a complete SYNTHETIC run directory for the report's tests: nothing in it was measured.


All numbers follow from simple rules, so that tests know the metrics in advance: products of
`SIZE_BYTES`, one every `GAP_S`. At receiver i (0, 1, ...) LDM7 takes 0.10 x (i+1) s for each, and
LDM6 0.20 x (i+1) s. NIC 1 sends `nic_bps` all the time; the sender's one process uses `cpu_share`
of a core, of which ps sees four fifths.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.contracts import LOSS_COMMENT

START_S = 1_795_226_400  # 2026-11-21T02:00:00Z: the first insertion
SIZE_BYTES = 250_000
GAP_S = 0.5
SITES = (("WSU", 36.0), ("SL", 41.0), ("UH", 50.0), ("OSF", 90.0))


@dataclass(frozen=True)
class SyntheticCell:
    protocol: str
    m: int = 2
    duration_s: int = 20
    loss: float = 0.01
    cpu_share: float = 0.25  # of one core
    verdict: str | None = "faithful"
    backstop_index: int | None = None  # this product reaches receiver 0 by the backstop (LDM7)
    damaged: bool = False  # the last receiver's queue lacks one product and has another changed
    qdisc_drops: int = 0
    clock: str | None = None  # None: cell.json names none, as when there was only one
    real_s: float | None = None  # of virtual.json; None: there is none
    repeat: int | None = None  # from 0; becomes a part of the name
    late_us: int = 0  # every arrival and retransmission comes that much later

    @property
    def name(self) -> str:
        name = f"{self.protocol}-m{self.m}-r20-p{100 * self.loss:g}"
        return name if self.repeat is None else f"{name}-n{self.repeat + 1}"

    @property
    def products(self) -> int:
        return int(self.duration_s / GAP_S)

    @property
    def nic_bps(self) -> float:
        """Return whole kB (1024 bytes) per second, which sar prints exactly."""
        return 1024 * 8 * (500.0 if self.protocol == "ldm7" else 500.0 * self.m)


def _utc(time_s: float) -> datetime.datetime:
    moment = datetime.datetime.fromtimestamp(START_S, tz=datetime.UTC)
    return moment + datetime.timedelta(microseconds=round((time_s - START_S) * 1e6))


def _line(time_s: float, prog: str, place: str, message: str, level: str = "INFO") -> str:
    return f"{_utc(time_s):%Y%m%dT%H%M%S.%f}Z {prog}[77]   {place}:1   {level}  {message}\n"


def _info(index: int) -> str:
    created = _utc(START_S + index * GAP_S)
    return f"{SIZE_BYTES:10d} {created:%Y%m%d%H%M%S.%f} NGRID {index % 1000:03d}  NAME.{index:06d}"


def _receiver_log(cell: SyntheticCell, number: int) -> str:
    lines = []
    for index in range(cell.products):
        created = START_S + index * GAP_S
        if cell.protocol == "ldm6":
            arrival = created + 0.20 * (number + 1) + cell.late_us / 1e6
            lines.append(
                _line(arrival, "down6", "down6.c:dh_saveProd", f"Inserted: {_info(index)}")
            )
            continue
        arrival = created + 0.10 * (number + 1) + cell.late_us / 1e6
        if number == 0 and index == cell.backstop_index:
            lines.append(
                _line(arrival, "down7", "down7.c:missed", f"Missed: index={index}", "WARN")
            )
            arrival += 1.0
            lines.append(_line(arrival, "down7", "down7.c:saved", f"Inserted: {_info(index)}"))
            continue
        retrans = 2 if index % 10 == 0 else 0
        delay = 0.10 * (number + 1) - 0.05 + cell.late_us / 1e6
        lines.append(
            _line(
                arrival,
                "down7",
                "down7.c:ended",
                f"Received: {{delay: {delay:.6f} s, index: {index}, retrans: {retrans}, "
                f'info: "{_info(index)}"}}',
            )
        )
    if cell.protocol == "ldm7":
        lines.append(
            _line(
                START_S + cell.duration_s + 5,
                "down7",
                "down7.c:stats",
                f"FMTP receiver: datagrams=9900 blocks=9800 duplicate_blocks=0"
                f" products={cell.products} missed=0 retx_requests=100 retx_blocks=100"
                f" bad_messages=0 socket_drops=0 rcvbuf_granted_bytes=600000000",
            )
        )
    return "".join(lines)


def _sar(cell: SyntheticCell) -> str:
    rate = cell.nic_bps / 8 / 1024
    zeros = "  0.00" * 4
    text = f"Linux 6.1.0 (synthetic) \t{_utc(START_S):%Y-%m-%d} \t_x86_64_\t(2 CPU)\n"
    for second in range(-2, cell.duration_s + 5):
        a = f"{_utc(START_S + second):%H:%M:%S}"
        b = f"{_utc(START_S + second + 1):%H:%M:%S}"
        text += (
            f"\n{a}  CPU  %user  %nice  %system  %iowait  %steal  %idle\n"
            f"{b}  all  20.00  0.00  10.00  1.00  4.00  65.00\n"
            f"\n{a}  IFACE  rxpck/s  txpck/s  rxkB/s  txkB/s"
            "  rxcmp/s  txcmp/s  rxmcst/s  %ifutil\n"
            f"{b}  lo  0.00  0.00  0.00  0.00{zeros}\n"
            f"{b}  umass0  400.00  400.00  10.00  {rate:.2f}{zeros}\n"
        )
    return text


def _ps(cell: SyntheticCell) -> str:
    text = ""
    for second in range(0, cell.duration_s + 5):
        age = second + 10  # at the first insertion it is 10 s old and has used nothing
        used = 0.8 * cell.cpu_share * second
        text += (
            f"@ {START_S + second}.000000\n"
            "  PID  PPID %CPU     TIME ELAPSED   RSS COMMAND\n"
            f"   77     1 {100 * used / age:6.3f} {int(used):5d} {age:5d}  9000 mldm\n"
        )
    return text


def _cpu(cell: SyntheticCell) -> str:
    """The process has used 3 s by the first insertion."""
    text = ""
    for second in range(0, cell.duration_s + 5):
        used_ns = 3_000_000_000 + round(cell.cpu_share * second * 1e9)
        text += f"@ {START_S + second}.000\n77 mldm {used_ns}\n"
    return text


def _counters(cell: SyntheticCell, hosts: list[str], end: bool) -> dict[str, Any]:
    """The end is 30 s after the start; the NIC sends until the last arrival."""
    slowest_s = (0.20 if cell.protocol == "ldm6" else 0.10) * cell.m + cell.late_us / 1e6
    active_s = (cell.products - 1) * GAP_S + slowest_s
    sent = round(active_s * cell.nic_bps / 8) if end else 0
    arrived = 10_000 if end else 0
    dropped = round(arrived * cell.loss)
    rule = (
        "-i nic1 -m statistic --mode random --probability 0.00999999978 "
        f"-m comment --comment {LOSS_COMMENT} -j DROP"
    )
    return {
        "time": START_S - 2 + (30 if end else 0),
        "interfaces": {
            "umass/umass0": {"tx_bytes": 1_000 + sent, "tx_packets": sent // 1500},
            **{f"{h}/nic1": {"rx_packets": 7 + arrived} for h in hosts},
        },
        "qdiscs": {"umass/umass0/1:": {"kind": "htb", "drops": cell.qdisc_drops if end else 0}},
        "iptables": {
            h: [{"chain": "INPUT", "packets": dropped, "bytes": 1488 * dropped, "rule": rule}]
            for h in hosts
        }
        if cell.loss
        else {},
    }


def _listing(cell: SyntheticCell, damaged: bool) -> str:
    lines = []
    for index in range(cell.products):
        content = f"synthetic {index}"
        if damaged and index == 3:
            continue
        if damaged and index == 4:
            content = "bits flipped"
        digest = hashlib.md5(content.encode(), usedforsecurity=False).hexdigest()
        lines.append(f"{digest} {SIZE_BYTES} NAME.{index:06d}\n")
    return "".join(lines)


def _write_cell(directory: Path, cell: SyntheticCell) -> None:
    hosts = [f"r{number + 1}" for number in range(cell.m)]
    site_of = {h: SITES[i % len(SITES)][0] for i, h in enumerate(hosts)}
    rtt_ms = {h: SITES[i % len(SITES)][1] for i, h in enumerate(hosts)}
    for folder in ("logs", "products"):
        (directory / folder).mkdir(parents=True)

    def put(name: str, text: str) -> None:
        (directory / name).write_text(text, encoding="utf-8")

    put(
        "cell.json",
        json.dumps(
            {
                "cell": cell.name,
                "experiment": "synthetic",
                "protocol": cell.protocol,
                "m": cell.m,
                "r_bps": 20_000_000,
                "loss": cell.loss,
                "duration_s": cell.duration_s,
                "seed": 1,
                "publisher": "umass",
                "subscribers": hosts,
                "site_of": {"umass": "UMass", **site_of},
                "rtt_ms": rtt_ms,
                "rtt_measured_ms": {h: rtt + 0.5 for h, rtt in rtt_ms.items()},
                "nic1": "umass0",
                "parameters": {"f_snd": 5000},
                "trace": {
                    "source": "model",
                    "products": cell.products,
                    "bytes": cell.products * SIZE_BYTES,
                    "model_check": [
                        {
                            "statistic": "median size",
                            "unit": "bytes",
                            "published": 1000.0,
                            "model": 1050.0,
                            "difference": 0.05,
                        }
                    ],
                },
                "started": START_S - 10.0,
                "insertion_started": float(START_S),
                "insertion_ended": float(START_S + cell.duration_s),
                "drained": float(START_S + cell.duration_s + 2),
                "cores": 2,
                **({} if cell.clock is None else {"clock": cell.clock}),
                **({} if cell.repeat is None else {"repeat": cell.repeat}),
            },
            indent=1,
        ),
    )
    if cell.real_s is not None:
        virtual = {"kernel": "7.2.11", "mode": "seccomp", "seed": 1, "packets_delivered": None}
        spans = {"real_s": cell.real_s, "virtual_s": 92.0, "ready_real_s": 9.8}
        put("virtual.json", json.dumps(virtual | spans))
    if cell.verdict is not None:
        checks = [
            {
                "name": "link delay",
                "status": "pass",
                "asked": "18 ms",
                "found": "18 ms",
                "text": "read back from the kernel",
            }
        ]
        if cell.verdict != "faithful":
            checks.append(
                {
                    "name": "host CPU",
                    "status": "fail" if cell.verdict == "invalid" else "warn",
                    "asked": "below 90 %",
                    "found": "97 %",
                    "text": "the host was saturated",
                }
            )
        put("verdict.json", json.dumps({"verdict": cell.verdict, "checks": checks}))
    put("counters-start.json", json.dumps(_counters(cell, hosts, end=False)))
    put("counters-end.json", json.dumps(_counters(cell, hosts, end=True)))
    put("network.json", json.dumps({"links": []}))
    publisher = ""
    if cell.protocol == "ldm7":
        publisher = "".join(
            _line(
                START_S + i * GAP_S + 0.05,
                "mldm",
                "mldm.c:multicasted",
                f'Multicasted: prodIndex={i}, prodInfo="{_info(i)}"',
            )
            for i in range(cell.products)
        )
    put("logs/umass.ldmd.log", publisher)
    put(
        "logs/pqinsert.log",
        "".join(
            _line(
                START_S + i * GAP_S + 0.0001,
                "pqinsert",
                "pqinsert.c:insert",
                f"Inserted: {_info(i)}",
            )
            for i in range(cell.products)
        ),
    )
    put("logs/sar.log", _sar(cell))
    put("logs/ps.log", _ps(cell))
    put("logs/cpu.log", _cpu(cell))
    put("products/umass.txt", _listing(cell, damaged=False))
    for number, host in enumerate(hosts):
        put(f"logs/{host}.ldmd.log", _receiver_log(cell, number))
        damaged = cell.damaged and number == cell.m - 1
        put(f"products/{host}.txt", _listing(cell, damaged))


def write_synthetic_run(
    directory: Path, *cells: SyntheticCell, manifest: dict[str, Any] | None = None
) -> Path:
    """Write manifest.json and one directory per cell; return `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    paper = [
        {
            "metric": "ffdr",
            "protocol": "ldm7",
            "value": 88.7,
            "unit": "%",
            "source": "MPUP16 V-D, Fig. 3",
            "at": {"loss": 0.01, "rate_bps": 20_000_000},
            "published_s": 3600.0,
            "conditions": "p = 1 %, r = 20 Mbit/s, whole hour of NGRID",
        },
        {
            "metric": "bandwidth",
            "protocol": "ldm6",
            "value": 350,
            "unit": "Mbit/s",
            "source": "MPUP16 V-F, Fig. 6a",
            "at": {"receivers": 24, "rate_bps": 20_000_000},
            "published_s": 3600.0,
            "conditions": "m = 24, r = 20 Mbit/s, whole hour of NGRID",
        },
        {
            "metric": "throughput",
            "protocol": "both",
            "unit": "Mbit/s",
            "source": "MPUP16 V-E, Fig. 4b",
            "at": {"rate_bps": 20_000_000},
            "conditions": "r = 20 Mbit/s",
            "text": "the same throughput for LDM6 and LDM7",
        },
    ]
    told = {"experiment": "synthetic", "paper": paper} if manifest is None else manifest
    (directory / "manifest.json").write_text(json.dumps(told), encoding="utf-8")
    for cell in cells or (SyntheticCell("ldm7"), SyntheticCell("ldm6")):
        _write_cell(directory / "cells" / cell.name, cell)
    return directory


def sweep_cells() -> list[SyntheticCell]:
    """Return cells with m = 2, 4, 8 and both protocols, in three repeats that come 0, 10 and 20 ms
    later; one cell of LDM6 is invalid."""
    return [
        SyntheticCell(
            protocol,
            m=m,
            repeat=repeat,
            late_us=10_000 * repeat,
            verdict="invalid" if (protocol, m, repeat) == ("ldm6", 8, 2) else "faithful",
        )
        for m in (2, 4, 8)
        for repeat in range(3)
        for protocol in ("ldm7", "ldm6")
    ]


SWEEP_MANIFEST: dict[str, Any] = {
    "experiment": "synthetic",
    "command": ["experiments", "run", "synthetic", "--level", "quick"],
    "level": "quick",
    "started": START_S - 100,
    "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
    "kernel": "Linux-6.1 (synthetic)",
    "python": {"version": "3.11.2", "packages": {"numpy": "2.0"}},
    "programs": {"tc": "iproute2"},
    "machine": {"cpu": "none", "cores": 2},
    "sysctls": {"net.core.rmem_max": "1"},
    "failed": [{"cell": "ldm6-m16-r20-p1", "reason": "no memory", "artefacts": "failed/x"}],
    "spec": {
        "description": "Both protocols over the number of receivers",
        "repeats": 3,
        "paper": [
            {
                "metric": "nic_bandwidth", "protocol": "ldm6", "value": 16, "unit": "Mbit/s",
                "source": "synthetic Fig. 1", "at": {"receivers": 4, "loss": 0.01},
            },
            {
                "metric": "nic_bandwidth", "protocol": "ldm7", "value": 5, "unit": "Mbit/s",
                "source": "synthetic Fig. 1", "at": {"receivers": {"at_least": 2, "at_most": 8}},
            },
            {
                "metric": "throughput", "protocol": "both", "source": "synthetic 2",
                "text": "LDM7 is faster", "at": {"loss": 0.01},
            },
        ],
        "claims": [
            {
                "kind": "linear", "metric": "nic_bandwidth", "over": "receivers",
                "where": {"protocol": "ldm6"}, "text": "LDM6 bandwidth grows linearly in m",
                "source": "synthetic Fig. 1",
            },
            {
                "kind": "above", "metric": "throughput", "where": {"protocol": "ldm6"},
                "against": {"protocol": "ldm7"}, "text": "LDM6 is faster than LDM7",
                "source": "synthetic 2",
            },
        ],
        "figures": [
            {
                "name": "fig1", "title": "Bandwidth over m", "source": "synthetic Fig. 1",
                "kind": "lines", "x": "receivers", "metric": "nic_bandwidth", "by": ["protocol"],
            },
            {
                "name": "fig2", "title": "Throughput over m", "kind": "bars", "x": "receivers",
                "metric": "throughput", "by": ["protocol"],
            },
            {
                "name": "fig3", "title": "At each subscriber, and MPLR", "kind": "lines",
                "x": "receivers", "metric": "throughput", "second": "mplr", "by": ["subscriber"],
                "where": {"protocol": "ldm7", "subscriber": ["r1", "r2"]},
            },
            {
                "name": "fig4", "title": "Bandwidth over time", "kind": "minutes",
                "where": {"receivers": 8},
            },
            {
                "name": "fig5", "title": "File-sets", "kind": "boxes", "x": "file_set_bytes",
                "metric": "throughput",
                "where": {
                    "protocol": "ldm7", "receivers": 2, "file_set_bytes": ["1MB", "2MB", "5MB"]
                },
            },
            {
                "name": "fig6", "title": "Nothing to see", "kind": "lines", "x": "rtt_ms",
                "metric": "throughput",
            },
        ],
    },
}  # fmt: skip


def write_synthetic_sweep(directory: Path) -> Path:
    """Write a run of `sweep_cells` whose file asks for a figure of each kind."""
    return write_synthetic_run(directory, *sweep_cells(), manifest=SWEEP_MANIFEST)


def metrics_of(run: Path) -> dict[str, Any]:
    """Return the figures of a report."""
    found: dict[str, Any] = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    return found
