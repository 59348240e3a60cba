# SPDX-License-Identifier: Apache-2.0
"""Parse the arguments of `downpour paths`, and format its output. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import IPv4Address

from common.counting import counted
from controller.api.answers import (
    ChannelCountsAnswer,
    ChannelMemberAnswer,
    ComparisonAnswer,
    CountAnswer,
    CountersAnswer,
    PathAnswer,
    Place,
    ReservationAnswer,
    WorkgroupAnswer,
)
from controller.paths.core import Endpoint
from controller.paths.multipoint_path import Channels, EndpointDocument

_MAC = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kMG]?)(?:bps|bit/s)?")
_UNITS = {"": 1, "k": 1_000, "M": 1_000_000, "G": 1_000_000_000}
_AFTER = re.compile(r"\+([0-9]{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def endpoint_of(text: str) -> Endpoint:
    """Parse SWITCH:PORT:VLAN[@MAC,MAC...]. Raises ValueError, which says what is valid."""
    place, at, macs = text.partition("@")
    parts = place.rsplit(":", 2)
    valid = "valid: SWITCH:PORT:VLAN[@MAC,MAC...], e.g. chic:3:1201@02:00:00:00:00:01"
    if len(parts) != 3 or not parts[0] or not all(p.isascii() and p.isdigit() for p in parts[1:]):
        raise ValueError(f"found '{text}'; {valid}")
    addresses = macs.split(",") if at else []
    for mac in addresses:
        if not _MAC.fullmatch(mac):
            raise ValueError(f"found MAC '{mac}' in '{text}'; {valid}")
    return Endpoint.of(parts[0], int(parts[1]), int(parts[2]), addresses)


def rate_of(text: str) -> int:
    """Return bit/s from '20M', '1.5G', '20Mbps', '20000000'; 'best-effort' is 0.

    Raises ValueError.
    """
    if text == "best-effort":
        return 0
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"found '{text}'; valid: e.g. 20M, 1.5G, 500k (bit/s), or best-effort")
    return round(float(match[1]) * _UNITS[match[2]])


def channels_of(text: str) -> Channels:
    """Return channels from GROUP or GROUP/COUNT. Raises ValueError, which says what is valid."""
    group, slash, count = text.partition("/")
    try:
        return Channels(IPv4Address(group), int(count) if slash else 1)
    except ValueError:
        valid = "valid: GROUP[/COUNT], e.g. 232.10.1.0/46"
        raise ValueError(f"found '{text}'; {valid}") from None


def time_of(text: str, now: float) -> float:
    """Return epoch seconds from '+90m' or an ISO 8601 time (UTC by default). Raises ValueError."""
    match = _AFTER.fullmatch(text)
    if match is not None:
        return now + int(match[1]) * _SECONDS[match[2]]
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"found '{text}'; valid: +90m (s, m, h, d), or e.g. 2026-11-21T18:00"
        ) from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows under a heading, with left-aligned columns."""
    lines = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def rate_text(rate_bps: int) -> str:
    """Return a rate in Mbit/s; 0: "best effort"."""
    return f"{rate_bps / 1e6:g} Mbit/s" if rate_bps else "best effort"


def time_text(time: float | None) -> str:
    """Return epoch seconds as ISO 8601 in UTC; None: "-"."""
    if time is None:
        return "-"
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def place_text(endpoint: EndpointDocument | Place) -> str:
    """Return an endpoint as SWITCH:PORT:VLAN."""
    return f"{endpoint['switch']}:{endpoint['port']}:{endpoint['vlan']}"


def paths_text(paths: Iterable[PathAnswer]) -> str:
    """Return a table of paths."""
    head = ("PATH", "STATE", "RATE", "ROOT", "LEAVES", "WORKGROUP", "END")
    return table(
        head,
        (
            (
                path["name"],
                path["state"],
                rate_text(path["rate_bps"]),
                place_text(path["root"]),
                str(len(path["leaves"])),
                path["workgroup"] or "-",
                time_text(path["end_time"]),
            )
            for path in paths
        ),
    )


def reservation_text(reservation: ReservationAnswer) -> str:
    """Return one line: which path is reserved, from when to when."""
    return (
        f"path {reservation['name']}: reserved from {time_text(reservation['start_time'])} "
        f"to {time_text(reservation['end_time'])}, "
        f"{counted(len(reservation['leaves']), 'leaf', 'leaves')}"
    )


def reservations_text(reservations: Iterable[ReservationAnswer]) -> str:
    """Return a table of reservations."""
    head = ("PATH", "RATE", "ROOT", "LEAVES", "WORKGROUP", "START", "END")
    return table(
        head,
        (
            (
                booked["name"],
                rate_text(booked["rate_bps"]),
                place_text(booked["root"]),
                str(len(booked["leaves"])),
                booked["workgroup"] or "-",
                time_text(booked["start_time"]),
                time_text(booked["end_time"]),
            )
            for booked in reservations
        ),
    )


def path_text(path: PathAnswer, counters: CountersAnswer) -> str:
    """Return one path: what entered it, and what each leaf and edge received."""
    entered, root = counters["entered"], counters["root"]
    lines = [
        f"path {path['name']}: {path['state']}, {rate_text(path['rate_bps'])}, "
        f"{path['algorithm']} tree"
        + (", leaf to leaf" if path["leaf_to_leaf"] else "")
        + f", workgroup {path['workgroup'] or '-'}, end {time_text(path['end_time'])}",
        f"root {place_text(path['root'])} ({', '.join(path['root']['macs']) or 'any MAC'})",
        f"  entered {_count(entered['multicast'])} multicast, {_count(entered['unicast'])} unicast",
        f"  meter dropped {_count(counters['meter_dropped'])}, passed {_count(counters['passed'])}",
        f"  dropped {_packets(root['spoofed'])} spoofed, {_packets(root['denied'])} denied",
    ]
    if counters["silent"]:
        lines.append(f"switches that do not report their counters: {', '.join(counters['silent'])}")
    state = {place_text(leaf): leaf["state"] for leaf in path["leaves"]}
    head = ("LEAF", "STATE", "MULTICAST", "MISSING", "UNICAST", "SENT", "SPOOFED", "DENIED")
    rows = [
        (
            place_text(leaf),
            state.get(place_text(leaf), "?"),
            _count(leaf["multicast"]),
            _missing(leaf["compared"]),
            _packets(leaf["unicast"]),
            _packets(leaf["sent"]),
            _packets(leaf["spoofed"]),
            _packets(leaf["denied"]),
        )
        for leaf in counters["leaves"]
    ]
    lines += ["", table(head, rows)]
    rows_of_edges = [
        (
            f"{edge['from']} -> {edge['to']}",
            str(edge["vlan"]),
            _count(edge["sent"]),
            _count(edge["arrived"]),
            _missing(edge["compared"]),
        )
        for edge in counters["edges"]
    ]
    lines += ["", table(("EDGE", "VLAN", "SENT", "ARRIVED", "MISSING"), rows_of_edges)]
    if path["channels"] is not None:
        lines += ["", _channels_text(counters["channels"], path["channels"]["members"])]
    return "\n".join(lines)


def _channels_text(
    counts: Iterable[ChannelCountsAnswer], members: Iterable[ChannelMemberAnswer]
) -> str:
    joined = {(member["group"], place_text(member)) for member in members}
    rows = [
        (
            channel["group"],
            _count(channel["entered"]),
            place_text(leaf),
            "yes" if (channel["group"], place_text(leaf)) in joined else "no",
            _count(leaf["got"]),
        )
        for channel in counts
        for leaf in channel["leaves"]
    ]
    return table(("CHANNEL", "ENTERED", "LEAF", "JOINED", "GOT"), rows)


def workgroup_text(workgroup: WorkgroupAnswer) -> str:
    """Return a workgroup's name, and what it may use."""
    name = workgroup.get("name", "?")
    roles = [
        role
        for role, is_set in (("admin", workgroup.get("admin")), ("peer", workgroup.get("peer")))
        if is_set
    ]
    lines = [f"workgroup {name}" + (f" ({', '.join(roles)})" if roles else "")]
    lines += [
        f"  {e['switch']}:{e['port']} VLANs {e['vlans']}" for e in workgroup.get("endpoints", ())
    ]
    return "\n".join(lines)


def event_text(kind: str, data: Mapping[str, object]) -> str:
    """Return an event as one line: time, kind, the rest as key=value."""
    rest = " ".join(f"{key}={_value(value)}" for key, value in data.items() if key != "time")
    time = data.get("time")
    stamp = time_text(time) if isinstance(time, (int, float)) else "-"
    return f"{stamp} {kind} {rest}".rstrip()


def _value(value: object) -> str:
    if isinstance(value, Mapping) and {"switch", "port", "vlan"} <= value.keys():
        return f"{value['switch']}:{value['port']}:{value['vlan']}"
    if isinstance(value, list):
        return ",".join(_value(item) for item in value)
    return str(value)


def _packets(count: CountAnswer) -> str:
    return f"{count['packets']:,}"


def _count(count: CountAnswer) -> str:
    return f"{count['packets']:,} frames {count['bytes'] / 1e6:,.1f} MB"


def _missing(compared: ComparisonAnswer | None) -> str:
    if compared is None:
        return "-"
    since = time_text(compared["since"])[11:]
    return f"{compared['missing']:,} of {compared['sent']:,} since {since}"
