# SPDX-License-Identifier: Apache-2.0
"""Bytes from switches: correct ones are understood, others do no harm."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.paths import replies
from controller.paths.entries import (
    ANY_MULTICAST,
    COOKIE_BASE,
    Bucket,
    EthMatch,
    Flow,
    Group,
    Match,
    Meter,
    Output,
    SetQueue,
    SetVlan,
    ToGroup,
)
from controller.paths.replies import Malformed, Multipart, Type
from controller.paths.stats import (
    Count,
    GroupCount,
    MeterCount,
    PortCount,
)
from controller.switches import readback

COOKIE = COOKIE_BASE | 7

# OXM fields by hand: class 8000, field << 1 | mask?, length.
IN_PORT_3 = "80000004 00000003"
VLAN_101 = "80000c02 1065"
DST_MULTICAST = "8000070c 010000000000 010000000000"
SRC = "80000806 020000000001"
ARP = "80000a02 0806"


def oxm_match(*fields: str) -> bytes:
    body = bytes.fromhex("".join(fields))
    raw = struct.pack("!HH", 1, 4 + len(body)) + body
    return raw.ljust((len(raw) + 7) // 8 * 8, b"\0")


def output(port: int) -> bytes:
    return struct.pack("!HHIH6x", 0, 16, port, 0xFFE5)


def set_vlan(vlan: int) -> bytes:
    return struct.pack("!HH4sH6x", 25, 16, bytes.fromhex("80000c02"), 0x1000 | vlan)


def to_group(number: int) -> bytes:
    return struct.pack("!HHI", 22, 8, number)


def set_queue(number: int) -> bytes:
    return struct.pack("!HHI", 21, 8, number)


def apply_actions(*actions: bytes) -> bytes:
    body = b"".join(actions)
    return struct.pack("!HH4x", 4, 8 + len(body)) + body


def meter_instruction(number: int) -> bytes:
    return struct.pack("!HHI", 6, 8, number)


def flow(
    match: bytes, *instructions: bytes, cookie: int = COOKIE, table: int = 0, idle_s: int = 0
) -> bytes:
    body = match + b"".join(instructions)
    head = struct.pack(
        "!HBxIIHHHH4xQQQ", 48 + len(body), table, 9, 0, 1000, idle_s, 0, 0, cookie, 11, 1100
    )
    return head + body


def group(number: int, *buckets: bytes, kind: int = 0) -> bytes:
    packed = b"".join(
        struct.pack("!HHII4x", 16 + len(b), 0, 0xFFFFFFFF, 0xFFFFFFFF) + b for b in buckets
    )
    return struct.pack("!HBxI", 8 + len(packed), kind, number) + packed


def meter(number: int, rate: int, burst: int, flags: int = 13, band: int = 1) -> bytes:
    return struct.pack("!HHI", 24, flags, number) + struct.pack("!HHII4x", band, 16, rate, burst)


def message(kind: int, body: bytes, version: int = 4) -> bytes:
    return struct.pack("!BBHI", version, kind, 8 + len(body), 77) + body


def multipart(kind: int, body: bytes, flags: int = 0) -> bytes:
    return message(19, struct.pack("!HH4x", kind, flags) + body)


def test_flows_groups_and_meters_become_entries() -> None:
    flows = (
        flow(
            oxm_match(IN_PORT_3, VLAN_101, DST_MULTICAST, SRC),
            meter_instruction(7),
            apply_actions(to_group(7)),
        )
        + flow(oxm_match(IN_PORT_3, ARP), apply_actions(set_vlan(300), set_queue(5), output(2)))
        + flow(oxm_match())
        + flow(oxm_match("80000606 020000000002"))
        + flow(oxm_match("80000a02 0800", "80001401 02"))
        + flow(oxm_match(), cookie=0xDEAD << 32)  # another program's
    )
    groups = group(7, set_vlan(300) + output(2), set_vlan(310) + set_queue(5) + output(3))
    found = readback.held(
        {
            Multipart.FLOW: [flows],
            Multipart.GROUP_DESC: [groups, group(0x1000000, output(1))],
            Multipart.METER_CONFIG: [meter(7, 20_000, 1000)],
        }
    )
    assert found.strange == frozenset()
    assert found.entries == {
        Flow(Match(3, 101, ANY_MULTICAST, "02:00:00:00:00:01"), 1000, COOKIE, (ToGroup(7),), 7),
        Flow(
            Match(in_port=3, eth_type=0x0806),
            1000,
            COOKIE,
            (SetVlan(300), SetQueue(5), Output(2)),
        ),
        Flow(Match(), 1000, COOKIE, ()),
        Flow(Match(eth_dst=EthMatch("02:00:00:00:00:02")), 1000, COOKIE, ()),
        Flow(Match(eth_type=0x0800, ip_proto=2), 1000, COOKIE, ()),
        Group(7, (Bucket(300, 2), Bucket(310, 3, 5))),
        Meter(7, 20_000, 1000),
    }


@pytest.mark.parametrize(
    "changed",
    [
        flow(oxm_match(), idle_s=5),
        flow(oxm_match(), table=1),
        flow(oxm_match("80001001 06")),  # ip_dscp
        flow(oxm_match("80000d04 1000 1000")),  # any VLAN
        flow(oxm_match("00010004 00000001")),  # not OPENFLOW_BASIC
        flow(oxm_match(), struct.pack("!HHB3x", 1, 8, 1)),  # goto table
        flow(oxm_match(), apply_actions(struct.pack("!HH4x", 18, 8))),  # pop_vlan
        flow(oxm_match(), apply_actions(struct.pack("!HH4sH6x", 25, 16, b"\x80\0\x0a\2", 5))),
    ],
)
def test_flow_that_someone_changed_is_strange_and_takes_its_cookie_along(changed: bytes) -> None:
    found = readback.held({Multipart.FLOW: [flow(oxm_match(IN_PORT_3)) + changed]})
    assert found == readback.Held(frozenset(), frozenset({COOKIE}))


def test_groups_and_meters_of_another_kind_have_no_content() -> None:
    found = readback.held(
        {
            Multipart.GROUP_DESC: [
                group(1, set_vlan(300) + output(2), kind=1)
                + group(2, output(2))
                + group(3, set_vlan(1) + struct.pack("!HH4x", 18, 8))
            ],
            Multipart.METER_CONFIG: [meter(1, 5, 5, flags=1) + meter(2, 5, 5, band=2)],
        }
    )
    assert found.entries == {
        Group(1, ()), Group(2, ()), Group(3, ()), Meter(1, 0, 0), Meter(2, 0, 0),
    }  # fmt: skip


def test_counters() -> None:
    match = oxm_match(IN_PORT_3, VLAN_101)
    parts = {
        Multipart.FLOW: [flow(match, apply_actions(output(2))) + flow(match, cookie=5)],
        Multipart.GROUP: [struct.pack("!H2xII4xQQII", 72, 7, 1, 10, 1000, 1, 2)
                          + struct.pack("!QQQQ", 4, 400, 6, 600)],
        Multipart.METER: [struct.pack("!IH6xIQQII", 7, 56, 3, 12, 1200, 1, 2)
                          + struct.pack("!QQ", 2, 200)],
        Multipart.PORT_STATS: [
            struct.pack("!I4xQQQQQQ", 3, 1, 2, 100, 200, 5, 6).ljust(112, b"\xff")
        ],
    }  # fmt: skip
    found = readback.statistics(parts)
    assert found.flows == {("flow", 1000, Match(in_port=3, vlan=101)): Count(11, 1100)}
    assert found.groups == {7: GroupCount(Count(10, 1000), (Count(4, 400), Count(6, 600)))}
    assert found.meters == {7: MeterCount(Count(12, 1200), Count(2, 200))}
    assert found.ports == {3: PortCount(Count(1, 100), Count(2, 200), 5, 6)}


def packet_in_message(port: int, frame: bytes, cookie: int = COOKIE) -> bytes:
    match = oxm_match(VLAN_101, f"80000004 {port:08x}")
    head = struct.pack("!IHBBQ", 0xFFFFFFFF, len(frame), 1, 0, cookie)
    return message(10, head + match + b"\0\0" + frame)


def test_packet_in() -> None:
    found = replies.packet_in(packet_in_message(3, b"frame"))
    assert found == replies.PacketIn(3, COOKIE, b"frame")
    raw = struct.pack("!IHBBQ", 0xFFFFFFFF, 60, 1, 0, COOKIE) + oxm_match(VLAN_101)
    with pytest.raises(Malformed, match="without in_port"):
        replies.packet_in(message(10, raw + b"\0\0" + b"frame"))


def test_messages_that_the_framework_may_see() -> None:
    hello = struct.pack("!HHI", 1, 8, 0x10)
    for kind, body in (
        (0, b""),
        (0, hello),
        (0, struct.pack("!HHB3x", 9, 5, 0) + hello),  # 5 bytes, padded to 8
        (1, b"\0\1\0\1data"),
        (2, b"ping"),
        (6, bytes(24)),
        (12, bytes(72)),
        (21, b""),
        (25, bytes(16)),
    ):
        assert replies.check(message(kind, body)) == kind
    assert replies.check(multipart(13, bytes(128))) is Type.MULTIPART_REPLY
    assert replies.check(message(0, b"", version=6)) is Type.HELLO


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\4\0\0", "3 bytes are not an OpenFlow header"),
        (b"\4\2\0\7\0\0\0\0", "length field 7 of a message of 8 bytes"),
        (message(2, b"", version=1), "version 0x01 instead of 0x04"),
        (message(14, b""), "message type 14 is not for a controller"),
        (message(0, struct.pack("!HH", 1, 0)), "element of length 0"),
        (message(0, struct.pack("!HH", 1, 60)), "element of length 60 in 4 bytes"),
        (message(6, bytes(23)), "31 bytes are not a FEATURES_REPLY"),
        (message(12, bytes(71)), "79 bytes are not a PORT_STATUS"),
        (message(21, b"x"), "9 bytes are not a BARRIER_REPLY"),
        (message(19, b"\0"), "9 bytes are not a MULTIPART_REPLY"),
        (multipart(13, bytes(65)), "not a MULTIPART_REPLY"),
    ],
)
def test_malformed_messages(raw: bytes, text: str) -> None:
    with pytest.raises(Malformed, match=text):
        replies.check(raw)


def test_entries_of_length_zero_do_not_go_on_for_ever() -> None:
    for decode in (replies.flows, replies.group_descriptions, replies.group_counts,
                   replies.meter_configs, replies.meter_counts):  # fmt: skip
        with pytest.raises(Malformed):
            list(decode(bytes(64)))


PIECES = st.sampled_from(
    [
        flow(oxm_match(IN_PORT_3, DST_MULTICAST), apply_actions(set_vlan(5), output(2))),
        group(7, set_vlan(300) + output(2)),
        meter(7, 20_000, 1000),
        struct.pack("!H2xII4xQQIIQQ", 56, 7, 1, 10, 1000, 1, 2, 4, 400),
        struct.pack("!IH6xIQQIIQQ", 7, 56, 3, 12, 1200, 1, 2, 3, 4),
    ]
)


@given(
    st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=3).map(b"".join)),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    st.sampled_from(list(Multipart)),
)
@example(b"", [], Multipart.FLOW)
def test_any_bytes_are_read_or_refused(
    body: bytes, changes: list[tuple[int, int]], kind: Multipart
) -> None:
    changed = bytearray(body)
    for place, value in changes:
        if place < len(changed):
            changed[place] = value
    for read in (readback.held, readback.statistics):
        with contextlib.suppress(Malformed):
            read({kind: [bytes(changed)]})
    for raw in (message(10, bytes(changed)), multipart(kind, bytes(changed)), bytes(changed)):
        try:
            replies.check(raw)
            replies.packet_in(raw)
        except Malformed:
            pass
