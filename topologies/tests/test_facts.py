# SPDX-License-Identifier: Apache-2.0
"""Kernel facts from the probe's output, and the probe itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from common.machine import memory_available_bytes, memory_free_bytes
from topologies.emulate.facts import (
    PROBES,
    KernelFacts,
    parse_probe,
    probe,
    probe_script,
)

NO_MODULES = """\
namespace=1
veth=1
tbf=1
htb=1
bfifo=1
clsact=1
mirred=1
iptables_statistic=1
sched_fifo=1
tun=1
cc=reno bbr cubic
"""


def parse(text: str) -> KernelFacts:
    return parse_probe(text, kernel="6.1.0", cores=2, memory_bytes=4 * 1024**3)


def test_kernel_without_modules_uses_ours() -> None:
    f = parse(NO_MODULES)
    assert (f.datapath, f.delay_mechanism, f.edge_tags) == ("user", "relay", True)
    assert f.congestion_control == "bbr"
    assert f.congestion_controls == ("reno", "bbr", "cubic")


def test_distribution_kernel_uses_its_own() -> None:
    f = parse(NO_MODULES + "netem=1\nvlan_8021q=1\nkernel_openvswitch=1\n")
    assert (f.datapath, f.delay_mechanism, f.edge_tags) == ("kernel", "netem", False)


def test_netem_needs_the_redirect() -> None:
    f = parse(NO_MODULES.replace("mirred=1\n", "") + "netem=1\n")
    assert f.delay_mechanism == "relay"


@pytest.mark.parametrize(
    ("available", "chosen"),
    [("reno cubic", "cubic"), ("reno", "reno"), ("cubic bbr", "bbr"), ("", "reno")],
)
def test_congestion_control(available: str, chosen: str) -> None:
    assert parse(f"cc={available}\n").congestion_control == chosen


def test_nothing_works_without_output() -> None:
    f = parse("")
    assert not any((f.namespace, f.veth, f.tbf, f.htb, f.netem, f.sched_fifo))
    assert f.to_dict()["datapath"] == "user"


def test_memory() -> None:
    text = "MemTotal:  8000000 kB\nMemAvailable:    4096 kB\n"
    assert memory_available_bytes(text) == 4096 * 1024
    assert memory_available_bytes("MemTotal: 1 kB\n") == 0


@pytest.mark.parametrize(
    ("group", "files", "left"),
    [
        ("0::/\n", {}, 8_000_000_000),
        ("0::/a/b\n", {"a/memory.max": "max", "a/memory.current": "5"}, 8_000_000_000),
        (
            "0::/a/b\n",
            {
                "a/memory.max": "2000000000",
                "a/memory.current": "500000000",
                "a/memory.stat": "anon 1\ninactive_file 100000000\n",
                "a/b/memory.max": "max",
            },
            1_600_000_000,
        ),
        (
            "4:memory:/x\n0::/\n",
            {"memory/x/memory.limit_in_bytes": "1000", "memory/x/memory.usage_in_bytes": "3000"},
            0,
        ),
        (
            "4:memory:/x\n",
            {
                "memory/memory.limit_in_bytes": "9000",
                "memory/memory.usage_in_bytes": "3000",
                "memory/memory.stat": "total_inactive_file 500\n",
            },
            6_500,
        ),
    ],
)
def test_free_memory_is_within_the_limits_of_control_groups(
    tmp_path: Path, group: str, files: dict[str, str], left: int
) -> None:
    texts = {"proc/meminfo": "MemAvailable: 7812500 kB\n", "proc/self/cgroup": group}
    for name, text in {**texts, **{f"sys/fs/cgroup/{n}": t for n, t in files.items()}}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_free_bytes(tmp_path) == left


def test_script_has_one_line_per_probe() -> None:
    lines = probe_script().splitlines()
    assert len(lines) == len(PROBES) + 1
    assert all(line.startswith("if ") for line in lines[:-1])


@pytest.mark.root
def test_probe_here() -> None:
    f = probe()
    assert f.namespace and f.veth, "no network namespaces or veth: nothing of Downpour can run"
    assert f.kernel == os.uname().release
    assert f.congestion_control in f.congestion_controls
