# SPDX-License-Identifier: Apache-2.0
"""Measure whether a path keeps its rate, on `mesh.yaml` with three lanes from p to qc over a:c:

lane 1  `kept`   a guaranteed path whose stream stays within its rate
lane 2  `other`  a guaranteed path whose stream sends far more than its rate
lane 3  `flood`  a best-effort path on which iperf3 sends more than the link carries
"""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from controller.paths.forwarding import BURST_MS
from tests.path_service.networks import make_path
from tests.path_service.stream import OVERHEAD_BYTES, Account, Stream, rate_bps
from topologies.emulate.emulation import Emulation, NetworkError

PAYLOAD_BYTES: Final = 1400
WITHIN: Final = 0.99  # share of its rate that `kept` sends
BEYOND: Final = 3.0  # multiple of its rate that `other` sends
HOST: Final = "qc"
IPERF_PORT: Final = 5201
START_S: Final = 20.0
END_S: Final = 90.0

Flood = Literal["none", "udp", "tcp"]


@dataclass(frozen=True)
class Kept:
    """What arrived at qc. `flood_bps`: iperf3's goodput, None without a flood."""

    kept: Account
    kept_bps: float
    other: Account | None
    other_bps: float
    flood_bps: float | None


def interval_us(send_bps: float) -> float:
    """Return the interval of full datagrams at `send_bps`, by a meter's count: no tag, no FCS."""
    return (PAYLOAD_BYTES + OVERHEAD_BYTES) * 8e6 / send_bps


def keeps_its_rate(
    emulation: Emulation,
    kept_bps: int,
    other_bps: int,
    flood: Flood,
    flood_bps: int,
    seconds: float,
) -> Kept:
    """Send on all lanes; return what arrived. The flood starts before the streams and ends after
    them. `other_bps` 0: no second path."""
    make_path(emulation, "kept", kept_bps, [HOST], lane=1)
    if other_bps:
        make_path(emulation, "other", other_bps, [HOST], lane=2)
    iperf: Iperf | None = None
    if flood != "none":
        make_path(emulation, "flood", 0, [HOST], lane=3)
        reaches(emulation, emulation.network.host(HOST).path_nic(3).ip)
        iperf = Iperf(emulation, flood, flood_bps, seconds + 2.0)
        time.sleep(1.0)
    first = stream(emulation, 1, WITHIN * kept_bps)
    second = stream(emulation, 2, BEYOND * other_bps) if other_bps else None
    time.sleep(seconds)
    other = second.stop() if second is not None else None
    mine = first.stop()
    return Kept(
        mine.at(HOST),
        rate_bps(mine.arrivals[HOST], PAYLOAD_BYTES),
        other.at(HOST) if other is not None else None,
        rate_bps(other.arrivals[HOST], PAYLOAD_BYTES) if other is not None else 0.0,
        iperf.received_bps() if iperf is not None else None,
    )


def stream(emulation: Emulation, lane: int, send_bps: float) -> Stream:
    return Stream(
        emulation,
        emulation.state_dir,
        [HOST],
        lane=lane,
        payload_bytes=PAYLOAD_BYTES,
        interval_us=interval_us(send_bps),
    )


@dataclass(frozen=True)
class Metered:
    """What a meter let pass in `window_s`. `gaps_s`: between all arrivals of the stream; in a long
    gap the machine did something else. `late_s`: how much longer the window's first frame
    travelled than the fastest one."""

    bps: float
    window_s: float
    gaps_s: Sequence[float]
    late_s: float = 0.0

    @property
    def uncertainty(self) -> float:
        """Return by what share `bps` may be off. The meter drops what a gap holds beyond its
        bucket. A gap before the window may fill the bucket. On a busy machine, frames that passed
        the meter before the window may arrive within it."""
        bucket_s = BURST_MS / 1e3
        lost_s = sum(max(0.0, gap - bucket_s) for gap in self.gaps_s)
        return (lost_s + min(bucket_s, max(self.gaps_s)) + self.late_s) / self.window_s


def metered(emulation: Emulation, guaranteed_bps: int, seconds: float) -> Metered:
    """Send 1.5 times the path's rate for `seconds`; return what arrived after the first second,
    without the burst at the start. Like a meter, count Ethernet frames without tag and FCS."""
    make_path(emulation, "metered", guaranteed_bps, [HOST], lane=1)
    sender = stream(emulation, 1, 1.5 * guaranteed_bps)
    time.sleep(seconds)
    found = sender.stop().arrivals[HOST]
    begin_ns = found[0].arrived_ns + 1_000_000_000
    later = [a for a in found if a.arrived_ns >= begin_ns]
    window_s = (later[-1].arrived_ns - later[0].arrived_ns) / 1e9
    gaps_s = [(b.arrived_ns - a.arrived_ns) / 1e9 for a, b in itertools.pairwise(found)]
    quickest_ns = min(a.arrived_ns - a.sent_ns for a in found)
    late_s = (later[0].arrived_ns - later[0].sent_ns - quickest_ns) / 1e9
    return Metered(rate_bps(later, PAYLOAD_BYTES), window_s, gaps_s, late_s)


def reaches(emulation: Emulation, address: str) -> None:
    """Resolve the address and fill caches before a measurement. Raises NetworkError."""
    publisher = emulation.network.publisher.name
    deadline = time.monotonic() + START_S
    ping = ["ping", "-n", "-q", "-c", "1", "-W", "1", address]
    while emulation.run(publisher, ping, check=False).returncode != 0:
        if time.monotonic() > deadline:
            raise NetworkError(f"{address} does not answer over the best-effort path")


class Iperf:
    """iperf3 from the publisher to qc on lane 3; the constructor starts it. Raises NetworkError."""

    def __init__(self, emulation: Emulation, flood: Flood, flood_bps: int, seconds: float) -> None:
        address = emulation.network.host(HOST).path_nic(3).ip
        port = str(IPERF_PORT)
        self._out = emulation.state_dir / "iperf.json"
        self._server = emulation.popen(
            HOST,
            ["iperf3", "-s", "-1", "-B", address, "-p", port],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )
        deadline = time.monotonic() + START_S
        while f"{address}:{port}" not in emulation.run(HOST, ["ss", "-Hltn"]).stdout:
            if time.monotonic() > deadline:
                raise NetworkError("iperf3's server did not start")
            time.sleep(0.02)
        udp = ["-u", "-b", str(flood_bps), "-l", str(PAYLOAD_BYTES)]
        how = udp if flood == "udp" else ["-P", "4"]
        argv = ["iperf3", "-c", address, "-p", port, "-t", f"{seconds:.0f}", "-J", *how]
        with self._out.open("wb") as file:
            publisher = emulation.network.publisher.name
            self._client = emulation.popen(publisher, argv, stdout=file, stderr=subprocess.STDOUT)

    def received_bps(self) -> float:
        """Wait for the end; return the payload that reached the server. Raises NetworkError."""
        code = self._client.wait(timeout=END_S)
        text = self._out.read_text()
        if code != 0:
            raise NetworkError(f"iperf3: exit code {code}: {text[-300:]}")
        self._server.wait(timeout=END_S)
        return goodput_bps(text)


def goodput_bps(iperf_json: str) -> float:
    """Return the bits per second at the receiver from iperf3 -J; for UDP, sent less lost."""
    end = json.loads(iperf_json)["end"]
    if "sum_received" in end and end["sum_received"].get("bytes"):
        return float(end["sum_received"]["bits_per_second"])
    total = end["sum"]
    return float(total["bits_per_second"]) * (1 - float(total["lost_percent"]) / 100)
