# SPDX-License-Identifier: Apache-2.0
"""Probe frames: what was written can be read; anything else is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.paths import lldp
from controller.paths.entries import (
    CONTROLLER,
    Flow,
    Meter,
    Output,
)
from controller.paths.lldp import NotAProbe, Probe

KEY = b"k" * 16
PROBE = Probe(0x0000AB0000000001, 3, 77)


def test_bytes_of_a_probe() -> None:
    # IEEE 802.1AB: each TLV is 7 bits of type, 9 bits of length.
    # chassis 1/9: 0209, port 2/5: 0405, TTL 3/2: 0602, organisation 127/16: fe10, end: 0000.
    frame = lldp.frame_of(PROBE, KEY)
    assert frame[:14].hex() == "0180c200000e" + "024400000001" + "88cc"
    assert frame[14:25].hex() == "0209070000ab0000000001"
    assert frame[25:32].hex() == "04050700000003"
    assert frame[32:36].hex() == "06020002"
    assert frame[36:46].hex() == "fe10024450010000004d"
    assert frame[54:56].hex() == "0000"
    assert len(frame) == 60


def test_only_the_key_makes_the_tag() -> None:
    received = lldp.read(lldp.frame_of(PROBE, KEY))
    assert received.probe == PROBE
    assert received.is_ours(KEY)
    assert not received.is_ours(b"j" * 16)
    for place in (15, 24, 31, 35, 45, 50):  # chassis, port, TTL, sequence, tag
        changed = bytearray(lldp.frame_of(PROBE, KEY))
        changed[place] ^= 1
        with contextlib.suppress(NotAProbe):
            assert not lldp.read(bytes(changed)).is_ours(KEY)


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (b"", "not LLDP"),
        (bytes(1600), "1600 bytes"),
        (lldp.frame_of(PROBE, KEY)[:54], "no END"),
        (lldp.frame_of(PROBE, KEY)[:14] + b"\x04\x05\x07\0\0\0\3\0\0", "TLV 2 at position 0"),
        (lldp.frame_of(PROBE, KEY)[:14] + b"\x02\x02\x07\1\0\0", "someone else"),
        (lldp.frame_of(PROBE, KEY)[:14] + b"\x03\xff\x07", "TLV of 511 bytes in 1"),
    ],
)
def test_other_frames_are_refused(frame: bytes, text: str) -> None:
    with pytest.raises(NotAProbe, match=text):
        lldp.read(frame)


@given(
    st.binary(max_size=120),
    st.lists(st.tuples(st.integers(0, 59), st.integers(0, 255)), max_size=5),
)
def test_no_bytes_do_harm_and_none_are_taken_for_ours(
    tail: bytes, changes: list[tuple[int, int]]
) -> None:
    frame = bytearray(lldp.frame_of(PROBE, KEY))
    original = bytes(frame)
    for place, value in changes:
        frame[place] = value
    for data in (bytes(frame), original[:14] + tail, tail):
        try:
            received = lldp.read(data)
        except NotAProbe:
            continue
        if received.is_ours(KEY):
            assert received.probe == PROBE


def test_entries_hand_probes_of_some_ports_to_the_controller_at_a_bounded_rate() -> None:
    assert lldp.entries([]) == frozenset()
    found = lldp.entries([3, 1])
    (meter,) = (e for e in found if isinstance(e, Meter))
    flows = sorted((e for e in found if isinstance(e, Flow)), key=lambda f: str(f.match.in_port))
    assert [(f.match.in_port, f.match.eth_type) for f in flows] == [(1, 0x88CC), (3, 0x88CC)]
    assert {(f.actions, f.meter) for f in flows} == {((Output(CONTROLLER),), meter.number)}
    assert meter.rate_kbps == 200
