# SPDX-License-Identifier: Apache-2.0
"""A SYNTHETIC cell of the papers' length for `downpour bench parsers`: nothing was measured.

Sizes and gaps are random (seeded), with about the NGRID hour's totals. Every file has as many lines
as a real one.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

START_S = 1_795_226_400  # 2026-11-21T02:00:00Z
MEDIAN_BYTES, SIGMA, LARGEST_BYTES = 39_000, 1.7, 53_900_000


@dataclass(frozen=True)
class Hour:
    """The cell's size: the papers' hour by default."""

    receivers: int = 24
    products: int = 28_166
    seconds: int = 3600
    seed: int = 1

    @property
    def hosts(self) -> list[str]:
        """Return the receivers' names: r1, r2, ..."""
        return [f"r{number + 1}" for number in range(self.receivers)]


@dataclass(frozen=True)
class _Made:
    index: int
    size_bytes: int
    created_s: float

    @property
    def info(self) -> str:
        created = _digits(self.created_s, "%Y%m%d%H%M%S")
        return (
            f"{self.size_bytes:10d} {created} NGRID {self.index % 1000:03d}  NGRID.{self.index:06d}"
        )


def _digits(moment_s: float, pattern: str) -> str:
    whole, fraction = divmod(round(moment_s * 1e6), 1_000_000)
    return f"{time.strftime(pattern, time.gmtime(whole))}.{fraction:06d}"


def _line(moment_s: float, prog: str, place: str, message: str) -> str:
    return f"{_digits(moment_s, '%Y%m%dT%H%M%S')}Z {prog}[77]   {place}:120   INFO  {message}\n"


def _products(hour: Hour) -> list[_Made]:
    chosen = random.Random(hour.seed)
    times = sorted(chosen.uniform(0, hour.seconds) for _ in range(hour.products))
    return [
        _Made(
            index,
            max(1, min(LARGEST_BYTES, round(MEDIAN_BYTES * chosen.lognormvariate(0, SIGMA)))),
            START_S + moment,
        )
        for index, moment in enumerate(times)
    ]


def _ingest(products: list[_Made]) -> Iterator[str]:
    for made in products:
        yield _line(
            made.created_s + 0.0001, "pqinsert", "pqinsert.c:insert", f"Inserted: {made.info}"
        )


def _publisher(products: list[_Made]) -> Iterator[str]:
    for made in products:
        yield _line(
            made.created_s + 0.05,
            "mldm",
            "mldm.c:multicasted",
            f'Multicasted: prodIndex={made.index}, prodInfo="{made.info}"',
        )
        yield _line(
            made.created_s + 0.4,
            "mldm",
            "mldm.c:released",
            f"Released: prodIndex={made.index}, why=all-done",
        )


def _receiver(products: list[_Made], seed: int) -> Iterator[str]:
    """Yield a receiver's log: FMTP misses one product in 250, and the backstop delivers it."""
    chosen = random.Random(seed)
    for made in products:
        delay = 0.02 + chosen.expovariate(10)
        arrival = made.created_s + 0.01 + delay
        if made.index % 250 == 249:
            yield _line(arrival, "down7", "down7.c:missed", f"Missed: index={made.index}")
            yield _line(arrival + 0.2, "down7", "down7.c:saved", f"Inserted: {made.info}")
            continue
        retrans = chosen.choice((0, 0, 0, 1, 3))
        yield _line(
            arrival,
            "down7",
            "down7.c:ended",
            f"Received: {{delay: {delay:.6f} s, index: {made.index}, retrans: {retrans}, "
            f'info: "{made.info}"}}',
        )


def _listing(products: list[_Made]) -> Iterator[str]:
    for made in products:
        digest = hashlib.md5(str(made.index).encode(), usedforsecurity=False).hexdigest()
        yield f"{digest} {made.size_bytes} NGRID.{made.index:06d}\n"


def _sar(seconds: int) -> Iterator[str]:
    yield "Linux 6.1.0 (synthetic) \t2026-11-21 \t_x86_64_\t(2 CPU)\n"
    zeros = "      0.00" * 4
    for second in range(-5, seconds + 30):
        a = time.strftime("%H:%M:%S", time.gmtime(START_S + second))
        b = time.strftime("%H:%M:%S", time.gmtime(START_S + second + 1))
        yield f"\n{a}        CPU     %user     %nice   %system   %iowait    %steal     %idle\n"
        yield f"{b}        all     20.00      0.00     10.00      1.00      4.00     65.00\n"
        yield (
            f"\n{a}        IFACE   rxpck/s   txpck/s    rxkB/s    txkB/s"
            "   rxcmp/s   txcmp/s  rxmcst/s   %ifutil\n"
        )
        for name in ("lo", "umass0", "umass1"):
            yield f"{b}        {name}   400.00    400.00     10.00   1500.00{zeros}\n"


def _processes(seconds: int, receivers: int) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    names = ["ldmd", "mldm", *("up7",) * receivers]
    for second in range(-5, seconds + 30):
        yield second, [(70 + number, name) for number, name in enumerate(names)]


def _ps(seconds: int, receivers: int) -> Iterator[str]:
    for second, processes in _processes(seconds, receivers):
        yield f"@ {START_S + second}.000\n    PID    PPID %CPU     TIME ELAPSED   RSS COMMAND\n"
        for pid, name in processes:
            age = second + 15
            yield f"{pid:7d}       1  4.2 {age // 24:8d} {age:7d}  9000 {name} -q umass.pq -P 388\n"


def _cpu(seconds: int, receivers: int) -> Iterator[str]:
    for second, processes in _processes(seconds, receivers):
        yield f"@ {START_S + second}.000\n"
        for pid, name in processes:
            yield f"{pid} {name} {(second + 6) * 42_000_000 + pid}\n"


def _trace(products: list[_Made]) -> Iterator[str]:
    for made in products:
        yield f"{made.size_bytes} {_digits(made.created_s, '%Y%m%d%H%M%S')[:-3]}\n"


def _notifyme(products: list[_Made]) -> Iterator[str]:
    for made in products:
        yield _line(made.created_s + 0.02, "notifyme", "notifyme.c:notifymeprog_6", made.info)


def _papers_log(products: list[_Made]) -> Iterator[str]:
    for made in products:
        arrival = _digits(made.created_s + 0.1, "%Y%m%dT%H%M%S")
        created = _digits(made.created_s, "%Y%m%d%H%M%S")
        yield (
            f"{arrival}Z mldm[77] INFO eop_func: product: Received {made.size_bytes} {created} "
            f"NGRID {made.index % 1000:03d} {made.index}\n"
        )


def _sadf(seconds: int) -> Iterator[str]:
    yield '{"sysstat": {"hosts": [{"nodename": "synthetic", "statistics": [\n'
    for second in range(seconds):
        moment = time.gmtime(START_S + second)
        devices = ", ".join(
            f'{{"iface": "{name}", "rxpck": 400.00, "txpck": 400.00, "rxkB": 10.00, '
            '"txkB": 1500.00}'
            for name in ("lo", "umass0", "umass1")
        )
        yield (
            f'{{"timestamp": {{"date": "{time.strftime("%Y-%m-%d", moment)}", '
            f'"time": "{time.strftime("%H:%M:%S", moment)}", "utc": 1, "interval": 1}},\n'
            '"cpu-load": [{"cpu": "all", "user": 20.00, "nice": 0.00, "system": 10.00, '
            '"iowait": 1.00, "steal": 4.00, "idle": 65.00}],\n'
            f'"network": {{"net-dev": [{devices}]}}}}{"," if second + 1 < seconds else ""}\n'
        )
    yield "]}]}}\n"


def _flows(count: int) -> Iterator[str]:
    yield "OFPST_FLOW reply (OF1.3) (xid=0x2):\n"
    for number in range(count):
        yield (
            f" cookie=0x444f574e02{number:06x}, duration=3600.123s, table=0, n_packets={number}, "
            f"n_bytes={number * 1460}, priority=100,in_port=1,dl_vlan={number % 4094 + 1} "
            f"actions=meter:{number},group:{number}\n"
        )


def _classes(count: int) -> Iterator[str]:
    for number in range(1, count + 1):
        yield (
            f"class htb 1:{number:x} root leaf {number + 16:x}: prio 0 rate 20Mbit ceil 20Mbit "
            "burst 1600b cburst 1600b \n"
            f" Sent {number * 1460} bytes {number} pkt (dropped 0, overlimits 0 requeues 0) \n"
            " backlog 0b 0p requeues 0\n"
            f" lended: {number} borrowed: 0 giants: 0\n tokens: 10000 ctokens: 10000\n\n"
        )


def _iperf3(seconds: int) -> Iterator[str]:
    yield '{"start": {"test_start": {"protocol": "TCP", "num_streams": 1}},\n"intervals": [\n'
    for second in range(seconds):
        one = (
            f'{{"start": {second}, "end": {second + 1}, "seconds": 1.0, "bytes": 2500000, '
            '"bits_per_second": 20000000.0, "retransmits": 0, "omitted": false}'
        )
        yield f'{{"streams": [{one}], "sum": {one}}}{"," if second + 1 < seconds else ""}\n'
    yield '], "end": {}}\n'


def write_others(directory: Path, hour: Hour) -> dict[str, Path]:
    """Write files in formats that no cell has; return them by the format's name."""
    products = _products(hour)
    lines: dict[str, Iterator[str]] = {
        "trace": _trace(products),
        "notifyme": _notifyme(products),
        "papers-log": _papers_log(products),
        "sadf": _sadf(hour.seconds),
        "ovs-ofctl": _flows(10_000),
        "tc-class": _classes(10_000),
        "iperf3": _iperf3(hour.seconds),
    }
    directory.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, text in lines.items():
        found[name] = directory / f"{name}.txt"
        with found[name].open("w", encoding="utf-8") as file:
            file.writelines(text)
    return found


def write_cell(directory: Path, hour: Hour) -> None:
    """Write the cell's directory (docs/reference/contracts.md) without verdict and counters."""
    products = _products(hour)
    cell = {
        "cell": directory.name,
        "experiment": "synthetic",
        "protocol": "ldm7",
        "m": hour.receivers,
        "r_bps": 20e6,
        "loss": 0.01,
        "duration_s": hour.seconds,
        "publisher": "umass",
        "subscribers": hour.hosts,
        "nic1": "umass0",
        "trace": {"source": "synthetic", "products": hour.products},
        "insertion_started": START_S,
        "insertion_ended": START_S + hour.seconds,
        "cores": 2,
    }
    files: dict[str, Callable[[], Iterator[str]]] = {
        "cell.json": lambda: iter([json.dumps(cell, indent=2) + "\n"]),
        "logs/pqinsert.log": partial(_ingest, products),
        "logs/umass.ldmd.log": partial(_publisher, products),
        "logs/sar.log": partial(_sar, hour.seconds),
        "logs/ps.log": partial(_ps, hour.seconds, hour.receivers),
        "logs/cpu.log": partial(_cpu, hour.seconds, hour.receivers),
        "products/umass.txt": partial(_listing, products),
    }
    for number, host in enumerate(hour.hosts):
        files[f"logs/{host}.ldmd.log"] = partial(_receiver, products, hour.seed + 1 + number)
        files[f"products/{host}.txt"] = partial(_listing, products)
    for name, lines in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8") as file:
            file.writelines(lines())
