# SPDX-License-Identifier: Apache-2.0
"""Read the settings of every interface from the kernel, without starting a program.

An inventory maps a thing ("newy/newy-p3 qdiscs") to its value as text.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from common.files import contents
from common.shell import NetworkError, namespace_of
from topologies.watch import host_settings, netlink
from topologies.watch.netlink import attributes, dump, handle_text, text_of

Inventory = dict[str, str]

OF_QUEUES: Final = (
    *("qdiscs", "classes", "filters"),
    *("settings of qdiscs", "settings of classes", "settings of filters"),
)
OFFLOADS: Final = {  # linux/ethtool.h: legacy requests, one per feature
    "rx-checksumming": 0x14,
    "tx-checksumming": 0x16,
    "scatter-gather": 0x18,
    "tcp-segmentation-offload": 0x1E,
    "generic-segmentation-offload": 0x23,
    "generic-receive-offload": 0x2B,
}
GET_FEATURES: Final = 0x3A
FEATURE_WORDS: Final = 2  # of 32 features; NETDEV_FEATURE_COUNT is 61 in Linux 6.18
IFF_UP: Final = 0x1
SIOCETHTOOL: Final = 0x8946
# linux/if_link.h
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_XDP, IFLA_GSO_MAX_SEGS = 1, 3, 4, 43, 40
IFLA_TXQLEN, IFLA_GSO_MAX_SIZE, IFLA_GRO_MAX_SIZE = 13, 41, 58
IFLA_XDP_ATTACHED: Final = 2
# linux/rtnetlink.h, linux/pkt_cls.h, linux/pkt_sched.h
TCA_KIND, TCA_OPTIONS = 1, 2
TCA_U32_ACT, TCA_U32_PCNT = 7, 9
TCA_ACT_KIND, TCA_ACT_OPTIONS, TCA_ACT_PARMS = 1, 2, 2
TCA_HTB_INIT: Final = 2
HTB_DIRECT_PACKETS: Final = slice(16, 20)  # tc_htb_glob.direct_pkts: a counter
# linux/netfilter/nf_tables.h
NFT_GETCHAIN, NFT_GETRULE = (10 << 8) | 4, (10 << 8) | 7
NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME, NFTA_CHAIN_POLICY = 1, 3, 5
NFTA_RULE_TABLE, NFTA_RULE_CHAIN = 1, 2
NF_DROP: Final = bytes(4)
FAMILIES: Final = {1: "inet", 2: "ip", 3: "arp", 5: "netdev", 7: "bridge", 10: "ip6"}
INGRESS, EGRESS = 0xFFFFFFF2, 0xFFFFFFF3


def read(pid: int | None) -> Inventory:
    """Return the inventory of the namespace of process `pid` (None: this one). Its keys lack the
    node: "<interface> qdiscs", "firewall". Raises NetworkError."""
    try:
        with nullcontext() if pid is None else namespace_of(pid):
            return _here()
    except OSError as error:
        raise NetworkError(f"inventory: {error.strerror}") from error


def _here() -> Inventory:
    found: Inventory = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, netlink.NETLINK_ROUTE) as one:
        one.bind((0, 0))
        names = _links(one, found)
        queued = _qdiscs(one, names, found)
        for index in queued:
            _classes_and_filters(one, index, names[index], found)
        host_settings.rules_and_routes(one, names, found)
        host_settings.neighbours(one, names, found)
        host_settings.addresses(one, names, found)
    host_settings.policies(found)
    _firewall(found)
    _offloads(found)
    host_settings.sysctls(found)
    return found


def _links(one: socket.socket, found: Inventory) -> dict[int, str]:
    names = {}
    up = []
    for body in dump(one, netlink.RTM_GETLINK, bytes(16)):
        index, flags = struct.unpack_from("=4xiI", body)
        values = dict(attributes(body[16:]))
        name = names[index] = text_of(values.get(IFLA_IFNAME, b""))
        if not flags & IFF_UP:
            continue
        up.append(name)
        if name == "lo":
            continue
        mtu, segments = (
            struct.unpack("=I", values.get(n, bytes(4)))[0] for n in (IFLA_MTU, IFLA_GSO_MAX_SEGS)
        )
        xdp = dict(attributes(values.get(IFLA_XDP, b""))).get(IFLA_XDP_ATTACHED, b"\0")[0]
        found[f"{name} link"] = f"mtu {mtu}" + (f" XDP program attached ({xdp})" if xdp else "")
        found[f"{name} gso_max_segs"] = str(segments)
        found[f"{name} frames"] = _frames(values)
    found["interfaces"] = " ".join(sorted(up))
    return names


def _frames(values: Mapping[int, bytes]) -> str:
    """Return the source of frames, and how large they may get before they are segmented."""
    queue, sent, received = (
        struct.unpack("=I", values.get(n, bytes(4)))[0]
        for n in (IFLA_TXQLEN, IFLA_GSO_MAX_SIZE, IFLA_GRO_MAX_SIZE)
    )
    address = values.get(IFLA_ADDRESS, b"").hex(":")
    return f"address {address}, queue {queue}, gso_max_size {sent}, gro_max_size {received}"


def _qdiscs(one: socket.socket, names: Mapping[int, str], found: Inventory) -> list[int]:
    """Record queueing disciplines; return the interfaces that have real ones."""
    shown: dict[int, list[str]] = {}
    raw: dict[int, list[str]] = {}
    for body in dump(one, netlink.RTM_GETQDISC, bytes(20)):
        _, index, handle, parent, _ = netlink.TC.unpack_from(body)
        values = dict(attributes(body[netlink.TC.size :]))
        kind = text_of(values.get(TCA_KIND, b""))
        if index not in names or kind == "noqueue":
            continue
        shown.setdefault(index, []).append(f"{handle_text(parent)} {kind}")
        options = values.get(TCA_OPTIONS, b"")
        if kind == "htb":
            options = _without_direct_packets(options)
        raw.setdefault(index, []).append(f"{handle:x} {parent:x} {kind} {options.hex()}")
    for index, lines in shown.items():
        found[f"{names[index]} qdiscs"] = ", ".join(sorted(lines))
        found[f"{names[index]} settings of qdiscs"] = _digest(raw[index])
    return list(shown)


def _without_direct_packets(options: bytes) -> bytes:
    kept = b""
    for number, value in attributes(options):
        if number == TCA_HTB_INIT:
            changed = bytearray(value)
            changed[HTB_DIRECT_PACKETS] = bytes(4)
            value = bytes(changed)
        kept += bytes((number,)) + value
    return kept


def _classes_and_filters(one: socket.socket, index: int, name: str, found: Inventory) -> None:
    classes: list[tuple[int, str, str]] = []
    for body in dump(one, netlink.RTM_GETTCLASS, netlink.TC.pack(0, index, 0, 0, 0)):
        _, at, handle, _, _ = netlink.TC.unpack_from(body)
        values = dict(attributes(body[netlink.TC.size :]))
        kind = text_of(values.get(TCA_KIND, b""))
        # tbf and netem have one class, which they make themselves.
        if at == index and kind not in ("tbf", "netem"):
            classes.append((handle, kind, values.get(TCA_OPTIONS, b"").hex()))
    if classes:
        found[f"{name} classes"] = ", ".join(f"{handle_text(h)} {k}" for h, k, _ in sorted(classes))
        found[f"{name} settings of classes"] = _digest(f"{h:x} {o}" for h, _, o in classes)
    parents = [0, *(h for h, _, _ in classes), INGRESS, EGRESS]
    shown, raw = [], []
    for parent in parents:
        for kind, line in _filters(one, index, parent):
            where = handle_text(parent) if parent else "root"
            shown.append(f"{where} {kind}")
            raw.append(line)
    if shown:
        counted = [f"{shown.count(s)} x {s}" for s in sorted(set(shown))]
        found[f"{name} filters"] = ", ".join(counted)
        found[f"{name} settings of filters"] = _digest(raw)


def _filters(one: socket.socket, index: int, parent: int) -> Iterator[tuple[str, str]]:
    """Yield (kind, all settings) of each filter, without u32's hash tables."""
    try:
        bodies = list(dump(one, netlink.RTM_GETTFILTER, netlink.TC.pack(0, index, 0, parent, 0)))
    except OSError:
        return  # this queueing discipline has no filters
    for body in bodies:
        _, at, handle, _, info = netlink.TC.unpack_from(body)
        values = dict(attributes(body[netlink.TC.size :]))
        options = values.get(TCA_OPTIONS, b"")
        kind = text_of(values.get(TCA_KIND, b""))
        if at != index or handle == 0 or (kind == "u32" and not handle & 0xFFF):
            continue
        yield kind, f"{handle:x} {info:x} {kind} {_filter_settings(kind, options)}"


def _filter_settings(kind: str, options: bytes) -> str:
    """Return the settings, without counters and times of use."""
    words = []
    for number, value in attributes(options):
        if kind == "u32" and number == TCA_U32_PCNT:
            continue
        if kind == "u32" and number == TCA_U32_ACT:
            for _, action in attributes(value):
                parts = dict(attributes(action))
                inner = dict(attributes(parts.get(TCA_ACT_OPTIONS, b"")))
                words.append(text_of(parts.get(TCA_ACT_KIND, b"")))
                words.append(inner.get(TCA_ACT_PARMS, b"").hex())
            continue
        if kind == "u32":
            words.append(f"{number}={value.hex()}")
    return " ".join(words)


def _firewall(found: Inventory) -> None:
    """Record the number of rules in each chain of nf_tables (current iptables, ip6tables, arptables
    and nft), and the tables of legacy iptables."""
    counts: dict[str, int] = {}
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, netlink.NETLINK_NETFILTER) as one:
            one.bind((0, 0))
            for body in dump(one, NFT_GETRULE, bytes(4)):
                values = dict(attributes(body[4:]))
                family = FAMILIES.get(body[0], str(body[0]))
                table, chain = (
                    text_of(values.get(n, b"")) for n in (NFTA_RULE_TABLE, NFTA_RULE_CHAIN)
                )
                place = f"{family} {table} {chain}"
                counts[place] = counts.get(place, 0) + 1
            for body in dump(one, NFT_GETCHAIN, bytes(4)):
                values = dict(attributes(body[4:]))
                if values.get(NFTA_CHAIN_POLICY) == NF_DROP:
                    family = FAMILIES.get(body[0], str(body[0]))
                    table, chain = (
                        text_of(values.get(n, b"")) for n in (NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME)
                    )
                    counts[f"policy DROP of {family} {table} {chain}"] = 1
    except OSError:
        pass  # a kernel without nf_tables has no such rules
    for file in ("ip_tables_names", "ip6_tables_names", "arp_tables_names"):
        path = Path("/proc/thread-self/net", file)
        if path.exists():
            for name in contents(path).split():
                counts[f"{file.removesuffix('_names')} {name}"] = 1
    if counts:
        found["firewall"] = ", ".join(f"{n} x {place}" for place, n in sorted(counts.items()))


def _offloads(found: Inventory) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for name in found["interfaces"].split():
            if name == "lo":
                continue
            on = []
            for feature, command in OFFLOADS.items():
                value = _ethtool(one, name, command)
                if value:
                    on.append(feature)
            found[f"{name} offloads"] = " ".join(on) or "none"
            found[f"{name} features"] = _features(one, name)


def _features(one: socket.socket, name: str) -> str:
    """Return all active features of an interface, as bits."""
    buffer = bytearray(struct.pack("=II", GET_FEATURES, FEATURE_WORDS) + bytes(16 * FEATURE_WORDS))
    _ask(one, name, buffer)
    return " ".join(f"{active:08x}" for active in struct.unpack_from("=8xI12xI", buffer, 8)[::-1])


def _ethtool(one: socket.socket, name: str, command: int) -> int:
    buffer = bytearray(struct.pack("=II", command, 0))
    return int(struct.unpack("=II", buffer)[1]) if _ask(one, name, buffer) else 0


def _ask(one: socket.socket, name: str, buffer: bytearray) -> bool:
    """Ask an interface by ethtool's ioctl; the answer replaces the question. Return whether it has
    one."""
    pointer = (ctypes.c_char * len(buffer)).from_buffer(buffer)
    request = struct.pack("@16sP16x", name.encode(), ctypes.addressof(pointer))
    try:
        fcntl.ioctl(one.fileno(), SIOCETHTOOL, request)
    except OSError:
        return False
    return True


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()[:16]


def differences(asked: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """Return a text for each thing that is not as asked, in order."""
    return [
        f"{thing}: asked {asked.get(thing, 'none')}, found {found.get(thing, 'none')}"
        for thing in sorted({*asked, *found})
        if asked.get(thing) != found.get(thing)
    ]
