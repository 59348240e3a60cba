# SPDX-License-Identifier: Apache-2.0
"""Read what affects packets in a namespace besides queues and firewalls: addresses, routes and
their TCP settings, policy rules, fixed neighbours, IPsec policies and sysctls."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from common.files import contents
from topologies.watch import netlink
from topologies.watch.netlink import attributes, dump

UNTOUCHED_RULES: Final = (0, 32766, 32767)  # local, main, default
# linux/fib_rules.h, linux/rtnetlink.h, linux/neighbour.h, linux/if_addr.h, linux/xfrm.h
FRA_PRIORITY: Final = 6
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_METRICS = 1, 4, 5, 8
RTN_UNICAST: Final = 1
ROUTE_TYPES: Final = {2: "local", 3: "broadcast", 5: "multicast", 6: "blackhole", 7: "unreachable"}
METRICS: Final = {
    **{1: "lock", 2: "mtu", 3: "window", 4: "rtt", 5: "rttvar", 6: "ssthresh", 7: "cwnd"},
    **{8: "advmss", 9: "reordering", 10: "hoplimit", 11: "initcwnd", 12: "features"},
    **{13: "rto_min", 14: "initrwnd", 15: "quickack", 16: "congctl"},
}
NUD_PERMANENT: Final = 0x80
NDA_DST, NDA_LLADDR = 1, 2
IFA_LOCAL: Final = 2
NETLINK_XFRM: Final = 6
XFRM_MSG_GETSA, XFRM_MSG_GETPOLICY = 0x12, 0x15
SYSCTL_ROOT: Final = Path("/proc/sys/net")
SYSCTLS: Final = ("core/rmem_max", "core/wmem_max", "core/netdev_max_backlog")
SYSCTL_FAMILIES: Final = ("tcp_", "udp_", "ip_", "igmp_", "icmp_", "fib_", "fwmark_")
OF_INTERFACES: Final = (
    *("accept_local", "disable_policy", "disable_xfrm", "force_igmp_version", "forwarding"),
    *("mc_forwarding", "rp_filter", "arp_ignore", "drop_unicast_in_l2_multicast"),
)
# Values that the kernel fills in, and secrets.
NO_SETTING: Final = (
    *("ipv4/tcp_available_congestion_control", "ipv4/tcp_allowed_congestion_control"),
    *("ipv4/tcp_available_ulp", "ipv4/tcp_fastopen_key"),
)

Found = dict[str, str]


def rules_and_routes(one: socket.socket, names: Mapping[int, str], found: Found) -> None:
    """Record policy rules and IPv4 routes."""
    priorities = []
    try:
        for body in dump(one, netlink.RTM_GETRULE, struct.pack("=B11x", socket.AF_INET)):
            values = dict(attributes(body[12:]))
            priorities.append(struct.unpack("=I", values.get(FRA_PRIORITY, bytes(4)))[0])
    except OSError:
        priorities = list(UNTOUCHED_RULES)  # without policy routing, a kernel has these only
    found["rules"] = " ".join(map(str, sorted(priorities)))
    routes = []
    for body in dump(one, netlink.RTM_GETROUTE, struct.pack("=B11x", socket.AF_INET)):
        length, table, kind = body[1], body[4], body[7]
        values = dict(attributes(body[12:]))
        to = ".".join(map(str, values.get(RTA_DST, bytes(4))))
        by = names.get(struct.unpack("=i", values.get(RTA_OIF, bytes(4)))[0], "-")
        via = ".".join(map(str, values.get(RTA_GATEWAY, b"")))
        words = [f"{table}:{to}/{length} {by}", *(["via " + via] if via else [])]
        if kind != RTN_UNICAST:
            words.append(ROUTE_TYPES.get(kind, f"type {kind}"))
        words += _metrics(values.get(RTA_METRICS, b""))
        routes.append(" ".join(words))
    found["routes"] = ", ".join(sorted(routes))


def _metrics(data: bytes) -> list[str]:
    """Return a route's TCP settings."""
    words = []
    for number, value in attributes(data):
        shown = struct.unpack("=I", value)[0] if len(value) == 4 else value.rstrip(b"\0").decode()
        words.append(f"{METRICS.get(number, number)} {shown}")
    return words


def neighbours(one: socket.socket, names: Mapping[int, str], found: Found) -> None:
    """Record fixed neighbours; the others come and go."""
    fixed = []
    for body in dump(one, netlink.RTM_GETNEIGH, struct.pack("=B11x", socket.AF_INET)):
        index, state = struct.unpack_from("=4xiH", body)
        if not state & NUD_PERMANENT:
            continue
        values = dict(attributes(body[12:]))
        address = ".".join(map(str, values.get(NDA_DST, b"")))
        fixed.append(f"{names.get(index, '-')} {address} {values.get(NDA_LLADDR, b'').hex(':')}")
    found["neighbours"] = ", ".join(sorted(fixed)) or "none fixed"


def addresses(one: socket.socket, names: Mapping[int, str], found: Found) -> None:
    """Record IPv4 addresses."""
    shown = []
    for body in dump(one, netlink.RTM_GETADDR, struct.pack("=B7x", socket.AF_INET)):
        length, index = body[1], struct.unpack_from("=4xi", body)[0]
        local = dict(attributes(body[8:])).get(IFA_LOCAL, b"")
        shown.append((names.get(index, "-"), f"{'.'.join(map(str, local))}/{length}"))
    for name in dict.fromkeys(names.values()):
        if here := sorted(text for of, text in shown if of == name):
            found[f"{name} addresses"] = " ".join(here)


def policies(found: Found) -> None:
    """Count IPsec's policies and associations: a policy may drop what no firewall counts."""
    counts = dict.fromkeys(("policies", "associations"), 0)
    # A kernel without IPsec has none.
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_XFRM) as one,
    ):
        one.bind((0, 0))
        for name, question in zip(counts, (XFRM_MSG_GETPOLICY, XFRM_MSG_GETSA), strict=True):
            counts[name] = sum(1 for _ in dump(one, question, b""))
    found["IPsec"] = ", ".join(f"{n} {name}" for name, n in counts.items() if n) or "none"


def sysctls(found: Found) -> None:
    """Record every IPv4 setting that may affect packets or the programs that send them."""
    names = [name for name in SYSCTLS if (SYSCTL_ROOT / name).exists()]
    names += [
        f"ipv4/{path.name}"
        for path in sorted((SYSCTL_ROOT / "ipv4").iterdir())
        if path.name.startswith(SYSCTL_FAMILIES)
    ]
    for name in names:
        if name not in NO_SETTING and (value := _sysctl(name)) is not None:
            found[f"sysctl {name}"] = value
    for interface in ("all", *found["interfaces"].split()):
        values = ((n, _sysctl(f"ipv4/conf/{interface}/{n}")) for n in OF_INTERFACES)
        text = ", ".join(f"{name} {value}" for name, value in values if value is not None)
        if interface == "all":
            found["sysctl ipv4/conf/all"] = text
        elif text:
            found[f"{interface} IPv4"] = text


def _sysctl(name: str) -> str | None:
    """Return a setting's value; None if it does not exist or cannot be read."""
    with contextlib.suppress(OSError):
        return " ".join(contents(SYSCTL_ROOT / name).split())
    return None
