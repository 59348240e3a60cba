# SPDX-License-Identifier: Apache-2.0
"""What this machine has, what is used instead, what is missing and how to get it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.places import ROOT
from topologies.emulate import facts as facts_module
from topologies.emulate.controllers import OPENFLOW_PORT
from topologies.emulate.facts import KernelFacts
from topologies.emulate.openvswitch import DAEMON_DIRECTORIES, SCHEMAS
from topologies.emulate.processes import relay_program

OK, INSTEAD, MISSING, ADVICE = "ok", "instead", "MISSING", "advice"

# tool -> (Debian/Ubuntu package, arguments that print its version, necessary?)
TOOLS: Mapping[str, tuple[str, tuple[str, ...], bool]] = {
    "ip": ("iproute2", ("-V",), True),
    "tc": ("iproute2", ("-V",), True),
    "ethtool": ("ethtool", ("--version",), True),
    "nsenter": ("util-linux", ("--version",), True),
    "chrt": ("util-linux", ("--version",), False),
    "mnexec": ("mininet", ("-v",), True),
    "ifconfig": ("net-tools", (), True),
    "ping": ("iputils-ping", ("-V",), True),
    "iptables-save": ("iptables", ("--version",), True),
    "ovs-vsctl": ("openvswitch-switch", ("--version",), True),
    "ovs-ofctl": ("openvswitch-switch", ("--version",), True),
    "ovs-vswitchd": ("openvswitch-switch", ("--version",), True),
    "ovsdb-server": ("openvswitch-switch", ("--version",), True),
    "sar": ("sysstat", ("-V",), True),
    "ps": ("procps", ("--version",), True),
    "tcpdump": ("tcpdump", ("--version",), False),
    "iperf3": ("iperf3", ("--version",), False),
    "meson": ("meson", ("--version",), True),
    "ninja": ("ninja-build", ("--version",), True),
    "cc": ("gcc", ("--version",), True),
}
LEAST_MEMORY_BYTES = 2 * 1024**3
LEAST_DISK_BYTES = 5 * 1024**3
LEAST_CORES = 2


@dataclass(frozen=True)
class Finding:
    """`level`: ok; instead: something else is used; advice: works, less well; MISSING: does not
    work without."""

    level: str
    subject: str
    text: str


def kernel_findings(f: KernelFacts) -> list[Finding]:
    """What follows from the kernel's facts. Pure."""
    found = []

    def either(has: bool, subject: str, yes: str, no: str) -> None:
        found.append(Finding(OK if has else INSTEAD, subject, yes if has else no))

    def need(has: bool, subject: str, remedy: str) -> None:
        found.append(Finding(OK, subject, "") if has else Finding(MISSING, subject, remedy))

    need(f.namespace, "network namespaces", "a kernel with CONFIG_NET_NS, and CAP_SYS_ADMIN")
    need(f.veth, "veth", "a kernel with CONFIG_VETH (modprobe veth)")
    need(f.tbf, "tbf", "a kernel with CONFIG_NET_SCH_TBF (modprobe sch_tbf)")
    need(f.htb, "htb", "a kernel with CONFIG_NET_SCH_HTB (modprobe sch_htb)")
    need(f.bfifo, "bfifo", "a kernel with CONFIG_NET_SCH_FIFO")
    need(
        f.clsact and f.mirred,
        "tc redirect (clsact, u32, mirred)",
        "a kernel with CONFIG_NET_SCH_INGRESS, NET_CLS_U32, NET_ACT_MIRRED",
    )
    need(
        f.iptables_statistic,
        "iptables statistic (injected loss)",
        "apt install iptables, and a kernel with CONFIG_NETFILTER_XT_MATCH_STATISTIC",
    )
    either(
        f.kernel_openvswitch,
        "kernel Open vSwitch",
        "switches forward in the kernel",
        "switches forward in userspace (datapath netdev): faithful to about 60 Mbit/s x 24 "
        "receivers; get it: modprobe openvswitch (Debian and Ubuntu kernels have it)",
    )
    if not f.kernel_openvswitch:
        need(f.tun, "TUN/TAP (/dev/net/tun)", "a kernel with CONFIG_TUN (modprobe tun)")
    either(
        f.netem,
        "netem",
        "the kernel delays and loses frames",
        "wire-relay delays and loses frames; get it: modprobe sch_netem "
        "(Ubuntu: apt install linux-modules-extra-$(uname -r))",
    )
    if not f.netem:
        level = OK if f.sched_fifo else ADVICE
        text = (
            "wire-relay runs with SCHED_FIFO"
            if f.sched_fifo
            else "refused: delays will be up to 20 ms late on a busy machine; get it: CAP_SYS_NICE"
        )
        found.append(Finding(level, "real-time priority", text))
    either(
        f.vlan_8021q,
        "802.1Q interfaces",
        "hosts tag their frames",
        "edge switches tag for the hosts; get it: modprobe 8021q",
    )
    found.append(
        Finding(
            OK,
            "TCP congestion control",
            f"{f.congestion_control} (the kernel has {', '.join(f.congestion_controls)})",
        )
    )
    found.append(
        Finding(
            INSTEAD if f.ctcp_missing else OK,
            "Circuit TCP (ctcp)",
            f"{f.congestion_control} takes its place in experiments: {f.ctcp_missing}"
            if f.ctcp_missing
            else "experiments try it (fixed congestion window)",
        )
    )
    found.append(_cores(f))
    low = f.memory_bytes < LEAST_MEMORY_BYTES
    memory = f"{f.memory_bytes / 1024**3:.1f} GiB available"
    found.append(
        Finding(
            ADVICE if low else OK, "memory", memory + ("; valid: at least 2 GiB" if low else "")
        )
    )
    return found


def _cores(f: KernelFacts) -> Finding:
    subject = "processor cores"
    if f.clock == "virtual":
        return Finding(OK, subject, f"{f.cores} (virtual time: no computation takes time)")
    if f.cores < LEAST_CORES:
        return Finding(ADVICE, subject, f"{f.cores}; valid: at least {LEAST_CORES}")
    return Finding(OK, subject, str(f.cores))


def tool_findings(versions: Mapping[str, str | None]) -> list[Finding]:
    """`versions`: tool -> version, None where it is missing. Pure."""
    found = []
    for tool, version in versions.items():
        package, _, necessary = TOOLS[tool]
        if version is not None:
            found.append(Finding(OK, tool, version))
        else:
            level = MISSING if necessary else ADVICE
            found.append(Finding(level, tool, f"not found; get it: apt install {package}"))
    return found


def find_tool(name: str) -> str | None:
    """Path of a tool, also in the directories that users' PATH may lack."""
    places = (os.environ.get("PATH", ""), *DAEMON_DIRECTORIES, "/sbin")
    return shutil.which(name, path=":".join(places))


def tool_versions() -> dict[str, str | None]:
    return {tool: _version(tool, arguments) for tool, (_, arguments, _) in TOOLS.items()}


def _version(tool: str, arguments: Sequence[str]) -> str | None:
    path = find_tool(tool)
    if path is None:
        return None
    if not arguments:
        return "present"
    try:
        result = subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "present, but does not say its version"
    # Some print options first, some to stderr.
    match = re.search(r"\d+(\.\d+)+[\w.+-]*", result.stdout + result.stderr)
    return match[0] if match else "present"


def machine_findings() -> list[Finding]:
    """Disk, ports, programs of ours, other runs."""
    found = []
    free = shutil.disk_usage(ROOT).free
    text = f"{free / 1024**3:.1f} GiB free below {ROOT}"
    low = free < LEAST_DISK_BYTES
    found.append(
        Finding(ADVICE if low else OK, "disk", text + ("; valid: at least 5 GiB" if low else ""))
    )
    found.append(
        Finding(
            OK,
            "ports",
            f"OpenFlow listens on 127.0.0.1:{OPENFLOW_PORT} inside each run's own namespace: "
            "no port of the machine is used",
        )
    )
    if not any(p.exists() for p in SCHEMAS):
        found.append(
            Finding(MISSING, "Open vSwitch's schema", "get it: apt install openvswitch-switch")
        )
    bridge = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    if bridge.exists() and bridge.read_text(encoding="utf-8").strip() == "1":
        found.append(
            Finding(OK, "bridge-nf-call-iptables", "on (no matter: no Linux bridge is used)")
        )
    program = relay_program()
    if program.exists():
        found.append(Finding(OK, "wire-relay", str(program)))
    else:
        found.append(Finding(ADVICE, "wire-relay", "not built yet; get it: make build"))
    return found


def render(findings: Sequence[Finding]) -> str:
    width = max(len(f.subject) for f in findings)
    return "".join(f"{f.level:<8} {f.subject:<{width}}  {f.text}".rstrip() + "\n" for f in findings)


def doctor() -> int:
    """Print all findings; 1 if something necessary is missing, else 0."""
    findings = []
    if os.geteuid() == 0:
        findings.append(Finding(OK, "root", ""))
        findings += kernel_findings(facts_module.probe())
    else:
        findings.append(Finding(MISSING, "root", "get it: sudo (kernel features were not tried)"))
    findings += tool_findings(tool_versions())
    findings += machine_findings()
    print(render(findings), end="")
    missing = [f.subject for f in findings if f.level == MISSING]
    if missing:
        print(f"\nmissing: {', '.join(missing)}")
        return 1
    print("\nall that is necessary is here")
    return 0
