# SPDX-License-Identifier: Apache-2.0
"""IGMP messages against samples worked out by hand from RFC 2236 and RFC 3376. As the comments
show, each checksum is the complement of the sum of its 16-bit words, carries added (RFC 1071)."""

from __future__ import annotations

import contextlib
import struct
from ipaddress import IPv4Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.paths import igmp
from controller.paths.igmp import Filter, NotIgmp, Query, Record, Report

GROUP = IPv4Address("239.10.1.1")
SSM_A, SSM_B = IPv4Address("232.1.2.3"), IPv4Address("232.1.2.4")
ONE, TWO = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
MAC = "02:00:00:00:00:02"

SAMPLES: dict[str, tuple[str, igmp.Message]] = {
    # 1164 + 027d = 13e1
    "v3 general query": ("1164ec1e00000000027d0000", Query(3)),
    # 110a + e801 + 0203 + 0a14 + 0002 + 0a00 + 0001 + 0a00 + 0002 = 1 1927
    "v3 query of a group and sources": (
        "110ae6d7e80102030a1400020a0000010a000002",
        Query(3, SSM_A, 1.0, (ONE, TWO), True, 2, 20.0),
    ),
    # 1164
    "v2 general query": ("1164ee9b00000000", Query(2)),
    # 110a + ef0a + 0101 = 1 0115
    "v2 query of a group": ("110afee9ef0a0101", Query(2, GROUP, 1.0)),
    # 1100: the query of version 1 has no response time
    "v1 query": ("1100eeff00000000", Query(2, response_s=0.0)),
    # 1200 + ef0a + 0101 = 1 020b
    "v1 report": ("1200fdf3ef0a0101", Report(1, (Record(Filter.IS_EXCLUDE, GROUP),))),
    # 1600 + ef0a + 0101 = 1 060b
    "v2 report": ("1600f9f3ef0a0101", Report(2, (Record(Filter.IS_EXCLUDE, GROUP),))),
    # 1700 + ef0a + 0101 = 1 070b
    "v2 leave": ("1700f8f3ef0a0101", Report(2, (Record(Filter.TO_INCLUDE, GROUP),))),
    # 2200 + 0001 + 0400 + ef0a + 0101 = 1 160c
    "v3 join": (
        "2200e9f20000000104000000ef0a0101",
        Report(3, (Record(Filter.TO_EXCLUDE, GROUP),)),
    ),
    # 2200 + 0001 + 0300 + ef0a + 0101 = 1 150c
    "v3 leave": (
        "2200eaf20000000103000000ef0a0101",
        Report(3, (Record(Filter.TO_INCLUDE, GROUP),)),
    ),
    # 2200 + 0002 + 0500 + 0001 + e801 + 0203 + 0a00 + 0001
    #      + 0600 + 0002 + e801 + 0204 + 0a00 + 0001 + 0a00 + 0002 = 2 1f12
    "v3 report of sources": (
        "2200e0eb0000000205000001e80102030a00000106000002e80102040a0000010a000002",
        Report(3, (Record(Filter.ALLOW, SSM_A, (ONE,)), Record(Filter.BLOCK, SSM_B, (ONE, TWO)))),
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_messages_are_those_of_the_standards(name: str) -> None:
    text, message = SAMPLES[name]
    assert igmp.read_message(bytes.fromhex(text)) == message
    assert igmp.bytes_of(message).hex() == text


def test_a_query_has_ttl_1_and_router_alert() -> None:
    # 46c0 + 0024 + 4000 + 0102 + e000 + 0001 + 9404 = 1 fbeb
    head = "46c000240000400001020413" + "00000000" + "e0000001" + "94040000"
    ethernet = "01005e000001" + "024450000000" + "0800"
    body = SAMPLES["v3 general query"][0]
    frame = igmp.frame_of(Query(3), "02:44:50:00:00:00")
    assert frame.hex() == ethernet + head + body + "00" * 10


def joining_frame() -> bytes:
    # 46c0 + 0028 + 4000 + 0102 + 0a00 + 0002 + e000 + 0016 + 9404 = 2 0606
    head = "46c00028000040000102f9f7" + "0a000002" + "e0000016" + "94040000"
    ethernet = "01005e000016" + "020000000002" + "81000066" + "0800"
    return bytes.fromhex(ethernet + head + SAMPLES["v3 join"][0])


def test_a_host_joins_with_a_tagged_frame() -> None:
    found = igmp.read(joining_frame())
    assert found == igmp.Received(SAMPLES["v3 join"][1], MAC, TWO, 102, True)
    assert igmp.frame_of(found.message, MAC, TWO, 102) == joining_frame().ljust(60, b"\0")


def test_a_report_without_router_alert_counts() -> None:
    # 4500 + 001c + 0102 + 0a00 + 0002 + ef0a + 0101 = 1 402b
    head = "4500001c000000000102bfd3" + "0a000002" + "ef0a0101"
    ethernet = "01005e0a0101" + "020000000002" + "0800"
    found = igmp.read(bytes.fromhex(ethernet + head + SAMPLES["v2 report"][0]))
    assert found == igmp.Received(SAMPLES["v2 report"][1], MAC, TWO, None, False)


def test_auxiliary_data_and_unknown_records_are_skipped() -> None:
    """A record with a word of auxiliary data, one of type 7, and one that counts."""
    records = "05010001e80102030a000001deadbeef" + "07000000ef0a0102" + "04000000ef0a0101"
    body = bytes.fromhex("2200000000000003" + records)
    found = igmp.read_message(with_checksum(body))
    expected = (Record(Filter.ALLOW, SSM_A, (ONE,)), Record(Filter.TO_EXCLUDE, GROUP))
    assert found == Report(3, expected)


def with_checksum(body: bytes) -> bytes:
    return body[:2] + struct.pack("!H", igmp.checksum(body[:2] + b"\0\0" + body[4:])) + body[4:]


@pytest.mark.parametrize(
    ("code", "number"), [(0, 0), (127, 127), (128, 128), (0x8F, 248), (0x90, 256), (255, 31744)]
)
def test_codes_are_those_of_rfc_3376(code: int, number: int) -> None:
    """(mantissa | 16) << (exponent + 3) from 128 on."""
    assert igmp.from_code(code) == number
    assert igmp.to_code(number) == code


@given(st.integers(0, 40_000))
def test_a_code_never_stands_for_more(number: int) -> None:
    code = igmp.to_code(number)
    assert igmp.from_code(code) <= number
    assert code == 0xFF or igmp.from_code(code + 1) > number


def test_groups_have_the_addresses_of_rfc_1112() -> None:
    assert igmp.mac_of(IPv4Address("232.10.1.7")) == "01:00:5e:0a:01:07"
    assert igmp.mac_of(IPv4Address("239.138.1.7")) == "01:00:5e:0a:01:07"


FRAME = joining_frame()


@pytest.mark.parametrize(
    ("what", "frame"),
    [
        ("33 bytes", FRAME[:33]),
        ("1523 bytes", FRAME.ljust(1523, b"\0")),
        ("Ethernet type 0x86dd", FRAME[:16] + b"\x86\xdd" + FRAME[18:]),
        ("IPv4 header 0x66", FRAME[:18] + b"\x66" + FRAME[19:]),
        ("IPv4 header 0x44", FRAME[:18] + b"\x44" + FRAME[19:]),
        ("40 of 39 bytes", FRAME[:-1]),
        ("a fragment", FRAME[:24] + b"\x20\0" + FRAME[26:]),
        ("TTL 2", FRAME[:26] + b"\x02" + FRAME[27:]),
        ("IP protocol 17", FRAME[:27] + b"\x11" + FRAME[28:]),
        ("wrong checksum of the IPv4 header", FRAME[:28] + b"\0\0" + FRAME[30:]),
        ("wrong checksum", FRAME[:-1] + b"\x02"),
    ],
)
def test_what_is_no_igmp_is_refused(what: str, frame: bytes) -> None:
    with pytest.raises(NotIgmp, match=what):
        igmp.read(frame)


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("7 bytes of IGMP", "22000000000000"),
        ("type 0x99", "9900000000000000"),
        ("query of 9 bytes", "116400000000000000"),
        ("group 10.0.0.1 is no", "160000000a000001"),
        ("group 10.0.0.1 is no", "220000000000000104000000" + "0a000001"),
        ("2 records in 16 bytes", "220000000000000204000000ef0a0101"),
        ("65535 sources in 0 bytes", "22000000000000010400ffffef0a0101"),
        ("1020 auxiliary bytes", "220000000000000104ff0000ef0a0101"),
        ("9 sources in 0 bytes", "11640000ef0a0101027d0009"),
    ],
)
def test_messages_that_lie_about_their_size_are_refused(what: str, body: str) -> None:
    with pytest.raises(NotIgmp, match=what):
        igmp.read_message(with_checksum(bytes.fromhex(body)))


def test_old_versions_cannot_express_sources() -> None:
    for version in (1, 2):
        with pytest.raises(ValueError, match="cannot express"):
            igmp.bytes_of(Report(version, (Record(Filter.IS_EXCLUDE, GROUP, (ONE,)),)))
    with pytest.raises(ValueError, match="version 1 cannot express TO_INCLUDE"):
        igmp.bytes_of(Report(1, (Record(Filter.TO_INCLUDE, GROUP),)))


addresses = st.integers(0, 0xFFFFFFFF).map(IPv4Address)
groups = st.integers(0xE0000000, 0xEFFFFFFF).map(IPv4Address)
sources = st.lists(addresses, max_size=6).map(tuple)
records = st.builds(Record, st.sampled_from(Filter), groups, sources)
old_records = st.builds(Record, st.sampled_from([Filter.IS_EXCLUDE, Filter.TO_INCLUDE]), groups)
messages = st.one_of(
    st.builds(Report, st.just(3), st.lists(records, max_size=20).map(tuple)),
    st.builds(Report, st.just(2), old_records.map(lambda record: (record,))),
    st.builds(
        Query,
        st.just(3),
        st.one_of(st.just(igmp.ANY), groups),
        st.integers(0, 255).map(lambda code: igmp.from_code(code) / 10),
        sources,
        st.booleans(),
        st.integers(0, 7),
        st.integers(0, 255).map(lambda code: float(igmp.from_code(code))),
    ),
    st.builds(
        Query,
        st.just(2),
        st.one_of(st.just(igmp.ANY), groups),
        st.integers(0, 255).map(lambda tenths: tenths / 10),
    ),
)


@given(messages, addresses, st.one_of(st.none(), st.integers(0, 4095)))
def test_what_is_written_is_read(
    message: igmp.Message, source: IPv4Address, vlan: int | None
) -> None:
    found = igmp.read(igmp.frame_of(message, MAC, source, vlan))
    assert found == igmp.Received(message, MAC, source, vlan, True)


@pytest.mark.slow
@settings(max_examples=1000)
@given(st.binary(max_size=1600))
def test_any_bytes_are_read_or_refused(frame: bytes) -> None:
    with contextlib.suppress(NotIgmp):
        igmp.read(frame)


@pytest.mark.slow
@settings(max_examples=2000)
@given(
    st.sampled_from([0x11, 0x12, 0x16, 0x17, 0x22]),
    st.one_of(
        st.binary(max_size=200),
        st.lists(
            st.tuples(
                st.integers(0, 8),
                st.integers(0, 3),
                st.integers(0, 4),
                st.sampled_from([0xEF0A0101, 0xE8010203, 0x0A000001]),
                st.binary(max_size=24),
            ),
            max_size=8,
        ).map(
            lambda parts: (
                struct.pack("!xxxxH", len(parts))
                + b"".join(struct.pack("!BBHI", *part[:4]) + part[4] for part in parts)
            )
        ),
    ),
)
def test_any_message_with_a_right_checksum_is_read_or_refused(kind: int, rest: bytes) -> None:
    body = with_checksum(struct.pack("!BB", kind, 0) + rest.ljust(6, b"\0"))
    try:
        found = igmp.read_message(body)
    except NotIgmp:
        return
    if isinstance(found, Report) and found.version == 3:
        size = 8 + sum(8 + 4 * len(record.sources) for record in found.records)
        assert size <= len(body)  # it needs no more memory than its bytes


@given(messages, st.data())
def test_a_flipped_bit_is_noticed(message: igmp.Message, data: st.DataObject) -> None:
    body = bytearray(igmp.bytes_of(message))
    bit = data.draw(st.integers(0, 8 * len(body) - 1))
    body[bit // 8] ^= 1 << bit % 8
    with pytest.raises(NotIgmp, match="wrong checksum"):
        igmp.read_message(bytes(body))
