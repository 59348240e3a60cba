# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from topologies.model.load import find, load
from topologies.watch.dumps import commands


def test_every_switch_node_and_host_is_asked() -> None:
    network = load(find("geni5"), {"receivers": 2})
    pids = {host.name: 100 + n for n, host in enumerate(network.hosts)} | {"wire": 99}
    found = {name: list(argv) for name, (argv, _) in commands(network, pids).items()}
    switches = {"newy", "chic", "hous", "salt"}
    switches |= {"tor-umass", "tor-wsu", "tor-sl", "tor-uh", "tor-osf"}
    hosts = {"umass", "wsu1", "sl1"}
    wanted = {f"{s}.{what}.txt" for s in switches for what in ("flows", "groups", "meters")}
    wanted |= {f"{node}.qdiscs.txt" for node in {*hosts, "wire"}}
    wanted |= {f"{host}.sysctls.txt" for host in hosts}
    assert set(found) == wanted
    assert found["chic.meters.txt"][-2:] == ["dump-meters", "chic"]
    assert found["wire.qdiscs.txt"][:2] == ["nsenter", "--net=/proc/99/ns/net"]
    assert "net.ipv4.tcp_congestion_control" in found["sl1.sysctls.txt"]
