# SPDX-License-Identifier: Apache-2.0
"""Message order, and the bytes of real OpenFlow 1.3 messages."""

from __future__ import annotations

import random

from controller.paths.core import core_of
from controller.paths.entries import (
    ANY_MULTICAST,
    COOKIE_BASE,
    TABLE_MISS,
    Bucket,
    Entries,
    Entry,
    Flow,
    Group,
    Match,
    Meter,
    Output,
    SetVlan,
    ToGroup,
)
from controller.paths.messages import (
    Barrier,
    Change,
    Command,
    DeleteOwnedFlows,
    Delta,
    Message,
    PacketOut,
    Request,
    Role,
    RoleRequest,
    delta,
    messages_of,
)
from controller.paths.multipoint_path import MultipointPath
from controller.paths.plan import entries_of
from controller.paths.replies import Multipart
from controller.switches import compat, openflow
from controller.tests.fake_switch import FakeSwitch
from controller.tests.planning import grown
from controller.tests.sample import LEAF_2, LEAF_3, ROOT, network

METER = Meter(1, 20_000, 200)
GROUP = Group(1, (Bucket(300, 2),))
FLOW = Flow(
    Match(1, 101, ANY_MULTICAST, "02:00:00:00:00:01"), 1000, COOKIE_BASE | 1, (ToGroup(1),), 1
)


def changes(held: Entries, desired: Entries) -> tuple[Message, ...]:
    return messages_of(delta(held, desired))


def test_what_a_flow_uses_comes_first() -> None:
    assert changes(frozenset(), frozenset({FLOW, GROUP, METER})) == (
        Change(Command.ADD, METER),
        Change(Command.ADD, GROUP),
        Barrier(),
        Change(Command.ADD, FLOW),
        Barrier(),
    )


def test_what_a_flow_uses_goes_last() -> None:
    assert changes(frozenset({FLOW, GROUP, METER}), frozenset()) == (
        Change(Command.DELETE, FLOW),
        Barrier(),
        Change(Command.DELETE, GROUP),
        Change(Command.DELETE, METER),
        Barrier(),
    )


def test_flow_that_stops_using_a_group_is_changed_before_the_group_goes() -> None:
    other = Flow(FLOW.match, FLOW.priority, FLOW.cookie, (Output(2),), 1)
    assert changes(frozenset({FLOW, GROUP, METER}), frozenset({other, METER})) == (
        Change(Command.MODIFY, other),
        Barrier(),
        Change(Command.DELETE, GROUP),
        Barrier(),
    )


def test_only_differences_are_sent() -> None:
    bigger = Group(1, (Bucket(300, 2), Bucket(320, 3)))
    have: Entries = frozenset({FLOW, GROUP, METER})
    assert changes(have, have) == ()
    assert changes(have, frozenset({FLOW, bigger, METER})) == (
        Change(Command.MODIFY, bigger),
        Barrier(),
    )


def test_flow_whose_cookie_changes_is_added_because_modifying_keeps_the_cookie() -> None:
    other = Flow(FLOW.match, FLOW.priority, FLOW.cookie + 1, FLOW.actions, FLOW.meter)
    assert changes(frozenset({FLOW}), frozenset({other})) == (Change(Command.ADD, other), Barrier())
    assert messages_of(Delta((FLOW,), (other,)).inverse) == (Change(Command.ADD, FLOW), Barrier())


def test_any_difference_is_accepted_by_a_strict_switch() -> None:
    seed = random.Random(7)
    pool: list[Entry] = []
    for number in (1, 2, 3):
        meter = Meter(number, 1000 * number, 200)
        group = Group(number, (Bucket(number, number),))
        pool += [meter, Meter(number, 5, 200), group, Group(number, (Bucket(9, 9),))]

    def some() -> Entries:
        chosen = {e.key: e for e in seed.sample(pool, seed.randint(0, len(pool)))}
        flows = []
        for port in range(6):
            meter = seed.choice([None, 1, 2, 3])
            group = seed.choice([None, 1, 2, 3])
            if meter is not None and ("meter", meter) not in chosen:
                continue
            if group is not None and ("group", group) not in chosen:
                continue
            actions = (ToGroup(group),) if group else (SetVlan(5), Output(1))
            flows.append(Flow(Match(in_port=port), 1000, COOKIE_BASE, actions, meter))
        return frozenset([*chosen.values(), *flows])

    switch = FakeSwitch("s")
    have: Entries = frozenset()
    for _ in range(500):
        want = some()
        switch.handle(changes(have, want))
        assert switch.entries() == want
        have = want


def _bytes(message: object) -> bytes:
    datapath = compat.offline_datapath()
    built = openflow.build(datapath, message)  # type: ignore[arg-type]
    built.set_xid(0x80000001)
    built.serialize()
    return bytes(built.buf)


def test_meter_mod_bytes() -> None:
    # OpenFlow 1.3.5: header (version 4, type 29, length 32), command 0 add,
    # flags kbps|burst|stats = 1|4|8, meter 1; band: type 1 drop, length 16, rate, burst, pad.
    assert _bytes(Change(Command.ADD, METER)).hex() == (
        "041d0020800000010000000d000000010001001000004e20000000c800000000"
    )


def test_group_mod_bytes() -> None:
    # type 15, length 64; command 0 add, type 0 ALL, pad, group 1; bucket: length 48, weight 0,
    # watch port and group ANY, pad; set_field (25, 16): OXM 0x8000, field 6, length 2, 0x1000|300;
    # output (0, 16) to port 2, max_len OFPCML_MAX 0xffe5.
    data = _bytes(Change(Command.ADD, GROUP))
    assert data[:32].hex() == ("040f004080000001000000000000000100300000ffffffffffffffff00000000")
    assert data[32:48].hex() == "0019001080000c02112c000000000000"
    assert data[48:58].hex() == "0000001000000002ffe5"
    assert len(data) == 64


def test_flow_mod_bytes() -> None:
    data = _bytes(Change(Command.ADD, FLOW))
    assert data[:2].hex() == "040e"
    assert data[8:16].hex() == "444f574e00000001"  # cookie
    assert data[24] == 0 and data[25] == 0  # table, command add
    assert data[30:32] == (1000).to_bytes(2, "big")  # priority
    match = data[48:]
    assert match[:2].hex() == "0001"  # OXM
    oxm_length = int.from_bytes(match[2:4], "big")
    oxm = match[4:oxm_length].hex()
    assert "8000000400000001" in oxm  # in_port 1
    assert "80000706010000000000010000000000" in oxm.replace("8000070c", "80000706")
    assert "80000806020000000001" in oxm  # eth_src
    assert "80000c021065" in oxm  # vlan 101 | present
    instructions = match[(oxm_length + 7) // 8 * 8 :].hex()
    assert instructions.startswith("0006000800000001")  # meter 1
    assert instructions[16:].startswith("00040010000000000016000800000001")  # group 1


def test_every_message_of_a_plan_serializes() -> None:
    core = core_of(network(), "core")
    path = grown(core, MultipointPath("p", 1, ROOT, 20_000_000), LEAF_2, LEAF_3)
    for entries in entries_of(core, path).values():
        for messages in (changes(frozenset(), entries), changes(entries, frozenset())):
            for message in messages:
                data = _bytes(message)
                assert int.from_bytes(data[2:4], "big") == len(data)


def test_delete_is_strict_and_without_instructions_is_drop() -> None:
    assert _bytes(Change(Command.DELETE, FLOW))[25] == 4  # OFPFC_DELETE_STRICT
    miss = _bytes(Change(Command.ADD, TABLE_MISS))
    assert miss[30:32] == b"\0\0"
    assert len(miss) == 56  # empty match, no instruction
    owned = _bytes(DeleteOwnedFlows())
    assert owned[8:24].hex() == "444f574e00000000ffffffff00000000"
    assert owned[24] == 0xFF and owned[25] == 3  # all tables, OFPFC_DELETE


def test_request_role_and_packet_out_bytes() -> None:
    # Multipart request (18): type 1 FLOW, flags, pad; all tables, any port, any group, our cookies.
    flows = _bytes(Request(Multipart.FLOW))
    assert flows[:2].hex() == "0412"
    assert flows[8:32].hex() == "0001000000000000" + "ff000000ffffffffffffffff00000000"
    assert flows[32:48].hex() == "444f574e00000000ffffffff00000000"
    meters = _bytes(Request(Multipart.METER_CONFIG))
    assert meters[8:24].hex() == "000a000000000000" + "ffffffff00000000"  # OFPM_ALL
    assert _bytes(Request(Multipart.GROUP_DESC))[8:].hex() == "0007000000000000"
    # Role request (24): master 2, generation.
    role = _bytes(RoleRequest(Role.MASTER, 0x1122334455667788))
    assert role[:4].hex() == "04180018" and role[8:].hex() == "00000002000000001122334455667788"
    # Packet out (13): no buffer, in_port OFPP_CONTROLLER, 16 bytes of actions, pad; output; data.
    out = _bytes(PacketOut(3, b"frame"))
    assert out[8:24].hex() == "ffffffff" + "fffffffd" + "0010" + "000000000000"
    assert out[24:32].hex() == "0000001000000003" and out[40:] == b"frame"
