# SPDX-License-Identifier: Apache-2.0
"""Find out what this kernel can do for an emulated network, by trying it in a short-lived network
namespace."""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

from common.machine import memory_available_bytes
from common.virtual_time import Clock, this_clock
from topologies.emulate import ctcp_host

MODULES = (
    *("openvswitch", "sch_netem", "8021q", "sch_tbf", "sch_htb", "sch_ingress", "cls_u32"),
    *("act_mirred", "tun", "veth", "tcp_bbr", "macvlan"),
)
PREFERRED_CONGESTION_CONTROL = ("bbr", "cubic", "reno")

# The probe prints 'name=1' for each line that works. Each test has its own line, so that one that
# fails does not affect the next.
PROBES: tuple[tuple[str, str], ...] = (
    ("namespace", "true"),
    ("veth", "ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up"),
    ("tbf", "tc qdisc add dev v0 root tbf rate 10mbit burst 5000 limit 50000"),
    ("tbf_off", "tc qdisc del dev v0 root"),
    ("htb", "tc qdisc add dev v0 root handle 1: htb default 1"),
    ("htb_off", "tc qdisc del dev v0 root"),
    ("bfifo", "tc qdisc add dev v0 root bfifo limit 50000"),
    ("bfifo_off", "tc qdisc del dev v0 root"),
    ("netem", "tc qdisc add dev v0 root netem delay 1ms"),
    ("clsact", "tc qdisc add dev v1 clsact"),
    (
        "mirred",
        "tc filter add dev v1 ingress protocol all prio 1 u32 match u32 0 0"
        " action mirred egress redirect dev v0",
    ),
    ("vlan_8021q", "ip link add link v0 name v0.5 type vlan id 5"),
    ("macvlan", "ip link add link v1 name v1.5 type macvlan mode passthru"),
    ("kernel_openvswitch", "ovs-dpctl --timeout=5 add-dp probe && ovs-dpctl del-dp probe"),
    (
        "iptables_statistic",
        "iptables -A INPUT -m statistic --mode random --probability 0.01 -j DROP",
    ),
    ("sched_fifo", "chrt -f 50 true"),
    ("tun", "ip tuntap add dev t0 mode tap"),
)


@dataclass(frozen=True)
class KernelFacts:
    """What works here (True) and what does not. Hosts use `congestion_control` until
    `Emulation.use_ctcp`; `ctcp_missing` says why that cannot be tried ("": it can). `clock`
    "virtual": time passes only while all processes sleep, so computation takes no time."""

    kernel: str
    namespace: bool
    veth: bool
    tun: bool
    kernel_openvswitch: bool
    netem: bool
    vlan_8021q: bool
    tbf: bool
    htb: bool
    bfifo: bool
    clsact: bool
    mirred: bool
    iptables_statistic: bool
    sched_fifo: bool
    congestion_controls: tuple[str, ...]
    congestion_control: str
    cores: int
    memory_bytes: int
    ctcp_missing: str = "not looked for"
    clock: Clock = "native"
    macvlan: bool = False

    @property
    def datapath(self) -> str:
        """Return Open vSwitch's datapath: "kernel" or "user"."""
        return "kernel" if self.kernel_openvswitch else "user"

    @property
    def delay_mechanism(self) -> str:
        """Return what delays and loses frames: "netem" or "relay"."""
        return "netem" if self.netem and self.clsact and self.mirred else "relay"

    @property
    def edge_tags(self) -> bool:
        """Return whether edge switches add the segments' VLAN tags; otherwise hosts do."""
        return not self.vlan_8021q

    def to_dict(self) -> dict[str, object]:
        """Return all facts by name, with what follows from them."""
        return {
            **dataclasses.asdict(self),
            "datapath": self.datapath,
            "delay_mechanism": self.delay_mechanism,
            "edge_tags": self.edge_tags,
        }


def probe_script() -> str:
    """Return the shell script that tries everything (run it in its own namespace)."""
    lines = [f"if {command} >/dev/null 2>&1; then echo {name}=1; fi" for name, command in PROBES]
    lines.append("echo cc=$(cat /proc/sys/net/ipv4/tcp_available_congestion_control)")
    return "\n".join(lines) + "\n"


def parse_probe(
    text: str,
    *,
    kernel: str,
    cores: int,
    memory_bytes: int,
    ctcp_missing: str = "not looked for",
    clock: Clock = "native",
) -> KernelFacts:
    """Return the facts from the probe script's output."""
    found: set[str] = set()
    controls: tuple[str, ...] = ()
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "cc":
            controls = tuple(value.split())
        elif value == "1":
            found.add(name)
    chosen = next((c for c in PREFERRED_CONGESTION_CONTROL if c in controls), "reno")
    return KernelFacts(
        kernel=kernel,
        namespace="namespace" in found,
        veth="veth" in found,
        tun="tun" in found,
        kernel_openvswitch="kernel_openvswitch" in found,
        netem="netem" in found,
        vlan_8021q="vlan_8021q" in found,
        tbf="tbf" in found,
        htb="htb" in found,
        bfifo="bfifo" in found,
        clsact="clsact" in found,
        mirred="mirred" in found,
        iptables_statistic="iptables_statistic" in found,
        sched_fifo="sched_fifo" in found,
        congestion_controls=controls,
        congestion_control=chosen,
        cores=cores,
        memory_bytes=memory_bytes,
        ctcp_missing=ctcp_missing,
        clock=clock,
        macvlan="macvlan" in found,
    )


def load_modules() -> None:
    """Ask the kernel to load the modules that networks use; any may be missing or built in."""
    names = " ".join(MODULES)
    subprocess.run(
        ["sh", "-c", f"for m in {names}; do modprobe -q $m; done"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )


def probe(*, load: bool = True) -> KernelFacts:
    """Find out the facts (root; about 0.1 s). Without `load`, do not load kernel modules, except
    those that the kernel itself loads on demand."""
    if load and Path("/proc/modules").exists():
        load_modules()
    try:
        result = subprocess.run(
            ["unshare", "--net", "sh"],
            input=probe_script(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        text = result.stdout
    except (OSError, subprocess.TimeoutExpired):
        text = ""
    return parse_probe(
        text,
        kernel=platform.release(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=memory_available_bytes(Path("/proc/meminfo").read_text(encoding="utf-8")),
        ctcp_missing=ctcp_host.what_is_missing(),
        clock=this_clock(),
    )
