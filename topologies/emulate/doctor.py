# SPDX-License-Identifier: Apache-2.0
"""Report what this machine's kernel offers native networks, and what is used instead."""

from __future__ import annotations

from collections.abc import Iterator

from common.findings import ADVICE, INSTEAD, MISSING, OK, ROOT_ONLY, Finding
from topologies.emulate import facts as facts_module
from topologies.emulate.controllers import OPENFLOW_PORT
from topologies.emulate.facts import KernelFacts
from topologies.emulate.openvswitch import SCHEMAS


def kernel_findings(f: KernelFacts) -> list[Finding]:
    """Return what follows from the kernel's facts. Pure."""
    return [*_necessary(f), *_replaceable(f), *_congestion_control(f)]


def _necessary(f: KernelFacts) -> Iterator[Finding]:
    needs = [
        (f.namespace, "network namespaces", "a kernel with CONFIG_NET_NS, and CAP_SYS_ADMIN"),
        (f.veth, "veth", "a kernel with CONFIG_VETH (modprobe veth)"),
        (f.tbf, "tbf", "a kernel with CONFIG_NET_SCH_TBF (modprobe sch_tbf)"),
        (f.htb, "htb", "a kernel with CONFIG_NET_SCH_HTB (modprobe sch_htb)"),
        (f.bfifo, "bfifo", "a kernel with CONFIG_NET_SCH_FIFO"),
        (
            f.clsact and f.mirred,
            "tc redirect",
            "a kernel with CONFIG_NET_SCH_INGRESS, NET_CLS_U32, NET_ACT_MIRRED",
        ),
        (
            f.iptables_statistic,
            "iptables statistic",
            "injects loss: apt install iptables, and a kernel with "
            "CONFIG_NETFILTER_XT_MATCH_STATISTIC",
        ),
    ]
    if not f.kernel_openvswitch:
        needs.append((f.tun, "TUN/TAP", "a kernel with CONFIG_TUN (modprobe tun)"))
    for has, subject, remedy in needs:
        yield Finding(OK, subject, "") if has else Finding(MISSING, subject, remedy)


def _replaceable(f: KernelFacts) -> Iterator[Finding]:
    def either(has: bool, subject: str, yes: str, no: str) -> Finding:
        return Finding(OK if has else INSTEAD, subject, yes if has else no)

    yield either(
        f.kernel_openvswitch,
        "kernel Open vSwitch",
        "switches forward in the kernel",
        "switches forward in userspace (datapath netdev): faithful to about 60 Mbit/s x 24 "
        "receivers; get it: modprobe openvswitch (Debian and Ubuntu kernels have it)",
    )
    yield either(
        f.netem,
        "netem",
        "the kernel delays and loses frames",
        "wire-relay delays and loses frames; get it: modprobe sch_netem "
        "(Ubuntu: apt install linux-modules-extra-$(uname -r))",
    )
    if not f.netem and f.sched_fifo:
        yield Finding(OK, "real-time priority", "wire-relay runs with SCHED_FIFO")
    elif not f.netem:
        yield Finding(
            ADVICE,
            "real-time priority",
            "refused: delays will be up to 20 ms late on a busy machine; get it: CAP_SYS_NICE",
        )
    yield either(
        f.vlan_8021q,
        "802.1Q interfaces",
        "hosts tag their frames",
        "edge switches tag for the hosts; get it: modprobe 8021q",
    )


def _congestion_control(f: KernelFacts) -> Iterator[Finding]:
    yield Finding(
        OK,
        "TCP",
        f"congestion control {f.congestion_control} "
        f"(the kernel has {', '.join(f.congestion_controls)})",
    )
    if f.ctcp_missing:
        text = f"{f.congestion_control} takes its place in experiments: {f.ctcp_missing}"
        yield Finding(INSTEAD, "Circuit TCP (ctcp)", text)
    else:
        text = "experiments try it (fixed congestion window)"
        yield Finding(OK, "Circuit TCP (ctcp)", text)


def native_findings(*, is_root: bool) -> list[Finding]:
    """Return what the kernel offers. As root, try each feature in a separate namespace, in about
    0.1 s."""
    if not is_root:
        return [
            Finding(
                ROOT_ONLY,
                "kernel features",
                "native experiments need root; virtual time (CLOCK=virtual) needs none. "
                "Root would also try the features of this kernel",
            )
        ]
    found = kernel_findings(facts_module.probe(load=False))
    if not any(path.exists() for path in SCHEMAS):
        found.append(Finding(MISSING, "OVS schema", "get it: apt install openvswitch-switch"))
    text = f"none of the machine's: OpenFlow uses {OPENFLOW_PORT} inside each run's namespace"
    return [*found, Finding(OK, "ports", text)]
