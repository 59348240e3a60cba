# SPDX-License-Identifier: Apache-2.0
"""Use a path's channels with ordinary sockets: hosts join groups as any program does, the kernel
reports the groups by IGMP, and the controller follows."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from controller.api.answers import ChannelsAnswer
from controller.api.path_client import PathClient
from controller.paths.multipoint_path import Channels
from tests.path_service.networks import endpoints
from tests.path_service.scenarios import wait_until
from tests.path_service.stream import ENDLESS, IDLE_MS
from topologies.emulate.emulation import Emulation, NetworkError
from virtual.selftest.pair import UDP
from virtual.selftest.parse import Arrival, arrivals

PATH: Final = "layers"
RATE_BPS: Final = 20_000_000
THREE: Final = Channels(IPv4Address("239.30.2.0"), 3)
FIRST_PORT: Final = 7800
PAYLOAD_BYTES: Final = 200
INTERVAL_NS: Final = 2_000_000
END_S: Final = 30.0

# From a raw socket, at the given rate: IGMPv3 joins and leaves of a group, in turn.
FLOOD: Final = """
import socket, struct, sys, time
address, group, rate, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP)
raw.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
raw.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
raw.setsockopt(socket.IPPROTO_IP, 4, bytes.fromhex("94040000"))  # IP_OPTIONS: Router Alert
def report(kind):
    body = struct.pack("!BBHHHBBH4s", 0x22, 0, 0, 0, 1, kind, 0, 0, socket.inet_aton(group))
    total = sum(struct.unpack("!8H", body))
    total = (total & 0xFFFF) + (total >> 16)
    return body[:2] + struct.pack("!H", ~total & 0xFFFF) + body[4:]
both = [report(4), report(3)]
start, sent = time.monotonic(), 0
while (now := time.monotonic()) < start + seconds:
    while sent < (now - start) * rate:
        try:
            raw.sendto(both[sent % 2], ("224.0.0.22", 0))
        except OSError:
            pass
        sent += 1
    time.sleep(0.001)
print(sent)
"""


class Layers:
    """A path with three channels from the publisher to hosts, and programs that send and join."""

    def __init__(
        self, emulation: Emulation, work: Path, hosts: Sequence[str], channels: Channels = THREE
    ) -> None:
        self._emulation = emulation
        self._work = work
        self._channels = channels
        self._programs: list[subprocess.Popen[bytes]] = []
        self._receivers: dict[tuple[str, int], subprocess.Popen[bytes]] = {}
        self._senders: dict[int, subprocess.Popen[bytes]] = {}
        root, leaves = endpoints(emulation.network)
        self.host_of = {leaf.key: host for host, leaf in leaves.items()}
        with PathClient(emulation.controller_socket) as service:
            service.create_path(PATH, root, RATE_BPS, channels=channels)
            for host in hosts:
                service.add_leaf(PATH, leaves[host])

    def close(self) -> None:
        """End the programs that still run."""
        for program in self._programs:
            program.kill()
            program.wait()

    # -- programs

    def send(self, channel: int) -> None:
        words = [str(self._channels.group(channel)), FIRST_PORT + channel, ENDLESS]
        publisher = self._emulation.network.publisher.name
        out = self._work / f"send-{channel}"
        program = self._start(publisher, out, "send", *words, PAYLOAD_BYTES, INTERVAL_NS)
        self._senders[channel] = program

    def join(self, host: str, channel: int) -> None:
        """Let the host's socket join; return once it has."""
        address = self._emulation.network.host(host).nic1.ip
        group = str(self._channels.group(channel))
        out = self._file(host, channel)
        words = ["receive", FIRST_PORT + channel, IDLE_MS, group, address]
        program = self._start(host, out, *words)
        self._receivers[host, channel] = program
        wait_until(f"{host} joins {group}", lambda: b"ready\n" in out.read_bytes())

    def leave(self, host: str, channel: int) -> list[Arrival]:
        """End the host's program; return what arrived."""
        self._end(self._receivers.pop((host, channel)))
        return arrivals(self._file(host, channel).read_text().removeprefix("ready\n"))

    def stop(self, channel: int) -> int:
        """End the sender; return how many datagrams it sent."""
        self._end(self._senders.pop(channel))
        time.sleep(0.3)
        return int((self._work / f"send-{channel}").read_text())

    def flood(self, host: str, channel: int, rate: int, seconds: float) -> subprocess.Popen[bytes]:
        """Start a host's flood of reports, which prints their number at its end."""
        address = self._emulation.network.host(host).nic1.ip
        words = [address, str(self._channels.group(channel)), str(rate), str(seconds)]
        argv = [sys.executable, "-c", FLOOD, *words]
        program = self._emulation.popen(host, argv, stdout=subprocess.PIPE)
        self._programs.append(program)
        return program

    def _start(self, host: str, out: Path, *words: object) -> subprocess.Popen[bytes]:
        with out.open("wb") as file:
            argv = [str(UDP), *(str(word) for word in words)]
            program = self._emulation.popen(host, argv, stdout=file, stderr=subprocess.STDOUT)
        self._programs.append(program)
        return program

    def _file(self, host: str, channel: int) -> Path:
        return self._work / f"{host}-{channel}"

    @staticmethod
    def _end(program: subprocess.Popen[bytes]) -> None:
        program.terminate()
        code = program.wait(timeout=END_S)
        if code != 0:
            raise NetworkError(f"a program of the test ended with {code}")

    # -- what the path service knows

    def joined(self) -> dict[int, set[str]]:
        """Return, by channel, the hosts whose leaves get it."""
        with PathClient(self._emulation.controller_socket) as service:
            shown: ChannelsAnswer | None = service.get(PATH)["channels"]
        assert shown is not None
        found: dict[int, set[str]] = {}
        for member in shown["members"]:
            channel = int(IPv4Address(member["group"])) - int(self._channels.base)
            key = (member["switch"], member["port"], member["vlan"])
            found.setdefault(channel, set()).add(self.host_of[key])
        return found

    def wait_joined(self, wanted: Mapping[int, set[str]]) -> float:
        """Wait until these hosts have joined; return how many seconds it took."""
        start = time.monotonic()
        wait_until(f"members {wanted}", lambda: self.joined() == wanted)
        return time.monotonic() - start

    def got(self) -> dict[tuple[int, str], int]:
        """Return the switches' counts of each channel's frames to each leaf that got any."""
        with PathClient(self._emulation.controller_socket) as service:
            channels = service.counters(PATH)["channels"]
        return {
            (
                int(IPv4Address(channel["group"])) - int(self._channels.base),
                self.host_of[leaf["switch"], leaf["port"], leaf["vlan"]],
            ): leaf["got"]["packets"]
            for channel in channels
            for leaf in channel["leaves"]
        }
