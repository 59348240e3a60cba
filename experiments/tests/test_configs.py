# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from controller.api.path_client import endpoints_of
from experiments.design import configs
from experiments.design.expansion import CellSpec, Feed
from protocols import ldm
from topologies.model.network import Network

FEED = Feed("NGRID", 1, 20_000_000, 20_000_000, 48_000_000)


def entries(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith(("#", "SET"))]


def test_ldm7_publisher(geni5: Network, cells: dict[str, CellSpec]) -> None:
    root, _ = endpoints_of(geni5)
    text = configs.publisher_conf(geni5, cells["ldm7"], {"NGRID": root}, Path("/s"))
    multicast, *allow = entries(text)
    assert multicast == (
        f"MULTICAST NGRID 239.10.1.1:38800 10.10.1.1 24 1101 {root.switch} {root.port}"
    )
    assert {
        "SET fmtp.f_snd 5000",
        "SET fmtp.f_rcv 20",
        "SET fmtp.r_mc_bps 20000000",
        "SET fmtp.b_rcv_bytes 600000000",
        "SET fmtp.layout 2021",
        "SET fmtp.repair unicast",
        "SET fmtp.mac_level 0",
        "SET ldm7.verify_md5 0",
        "SET path.service unix:/s",
        "SET path.rate_bps 48000000",
    } <= set(text.splitlines())
    assert "fmtp.b_snd_bytes" not in text
    waiting = dataclasses.replace(cells["ldm7"], b_snd_bytes=600_000_000)
    text_waiting = configs.publisher_conf(geni5, waiting, {"NGRID": root}, Path("/s"))
    assert "SET fmtp.b_snd_bytes 600000000" in text_waiting.splitlines()
    # Each host that subscribes over NIC2 and receives on NIC1 is allowed, no other.
    assert allowed(allow) == {nic.ip for h in geni5.subscribers for nic in (h.nic1, h.nic2)}


def test_ldmd_makes_the_queues_where_it_is_asked_to(cells: dict[str, CellSpec]) -> None:
    build = Path("/b")
    assert configs.queue_settings(cells["ldm7"], "nic1", build) == ""
    ldm6 = dataclasses.replace(cells["ldm6"], shaped_by="ldmd")
    assert configs.queue_settings(ldm6, "nic1", build) == ""
    cell = dataclasses.replace(cells["ldm7"], shaped_by="ldmd", b_mc_bytes=5_000_000)
    lines = configs.queue_settings(cell, "umass-nic1.1101", build).splitlines()
    assert lines[:3] == [
        "SET ldm7.nic umass-nic1.1101",
        "SET ldm7.nic_tags 0",
        "SET ldm7.nic_buffer_bytes 5000000",
    ]
    assert lines[3].startswith("SET ldm7.vlanutil /b")


def allowed(lines: list[str]) -> set[str]:
    """Return the addresses, of some that look alike, that these ALLOW entries let in."""
    patterns = [line.split('"')[1] for line in lines]
    assert all(line.startswith("ALLOW NGRID ") and len(line) < 255 for line in lines)
    network = [f"10.{a}.{b}.{c}" for a in (10, 20) for b in (0, 1) for c in range(256)]
    known = [*network, *(ip + "1" for ip in network), *("1" + ip for ip in network)]
    return {ip for ip in known if any(re.search(p, ip) for p in patterns)}


def test_ldm7_subscriber_controls_over_nic2_and_receives_on_nic1(
    geni5: Network, cells: dict[str, CellSpec]
) -> None:
    _, leaves = endpoints_of(geni5)
    host = geni5.subscribers[1]
    leaf = leaves[geni5.segment_of(host.name).name]
    (receive,) = entries(configs.subscriber_conf(geni5, cells["ldm7"], host, FEED, leaf))
    assert receive == (
        f"RECEIVE NGRID {geni5.publisher.nic2.ip}:388 {host.nic1.ip} {leaf.switch} {leaf.port} 1303"
    )


def test_ldm6_runs_over_nic1(geni5: Network, cells: dict[str, CellSpec]) -> None:
    root, leaves = endpoints_of(geni5)
    host = geni5.subscribers[0]
    text = configs.publisher_conf(geni5, cells["ldm6"], {}, Path("/s"))
    assert allowed(entries(text)) == {h.nic1.ip for h in geni5.subscribers}
    assert "fmtp" not in text
    assert "path" not in text
    leaf = leaves[geni5.segment_of(host.name).name]
    (request,) = entries(configs.subscriber_conf(geni5, cells["ldm6"], host, FEED, leaf))
    assert request == 'REQUEST NGRID ".*" 10.10.1.1:388'


def test_command_lines(geni5: Network, cells: dict[str, CellSpec]) -> None:
    build, queue = Path("/b"), Path("/w/h.pq")
    host = geni5.subscribers[0]
    address = configs.ldm_address(host, cells["ldm7"])
    argv = ldm.ldmd_argv(build, queue, address, 388, Path("/l"), Path("/c"))
    assert " ".join(argv) == (
        f"/b/ldm7/ldmd/ldmd --user root -f -v -q /w/h.pq -I {host.nic2.ip} -P 388 -l /l /c"
    )
    assert ldm.ldmd_argv(build, queue, address, 388, Path("/l"), Path("/c"), Path("/e"))[-3:] == [
        *["--qlog", "/e", "/c"]
    ]
    assert configs.ldm_address(host, cells["ldm6"]) == host.nic1.ip
    assert " ".join(ldm.pqcreate_argv(build, queue, 5, 7)) == (
        "/b/ldm7/pqcreate -s 5 -S 7 -q /w/h.pq"
    )
    assert " ".join(ldm.pqinsert_argv(build, queue, Path("/t"), "NGRID", 9, "umass")) == (
        "/b/ldm7/pqinsert -v -q /w/h.pq -f NGRID --trace /t --seed 9 --name NGRID --origin umass"
    )
