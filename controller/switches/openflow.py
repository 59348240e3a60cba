# SPDX-License-Identifier: Apache-2.0
"""Turn message descriptions into OpenFlow 1.3 messages. This module sends nothing.

`datapath` is the framework's object for a connected switch (or `compat.offline_datapath()`). It has
the protocol's constants (`ofproto`) and classes (`ofproto_parser`).
"""

from __future__ import annotations

from typing import Any

from controller.paths.entries import (
    CONTROLLER,
    COOKIE_BASE,
    COOKIE_MASK,
    EXACT,
    Action,
    Flow,
    Group,
    Match,
    Meter,
    Output,
    SetQueue,
    SetVlan,
)
from controller.paths.messages import (
    Barrier,
    Change,
    Command,
    DeleteOwnedFlows,
    Message,
    PacketOut,
    Request,
    Role,
    RoleRequest,
)
from controller.paths.replies import Multipart
from controller.switches import compat
from controller.switches.compat import Datapath

Built = Any  # a message object of the framework, which has no types


def encode(datapath: Datapath, message: Message, xid: int) -> bytes:
    """Return the bytes of a message."""
    built = build(datapath, message)
    built.set_xid(xid)
    built.serialize()
    return bytes(built.buf)


def build(datapath: Datapath, message: Message) -> Built:
    """Return the framework's message object for a description."""
    parser = datapath.ofproto_parser
    ofproto = datapath.ofproto
    match message:
        case Change(command, Flow() as flow):
            return _flow_mod(datapath, command, flow)
        case Change(command, Group() as group):
            return _group_mod(datapath, command, group)
        case Change(command, Meter() as meter):
            return _meter_mod(datapath, command, meter)
        case DeleteOwnedFlows(cookie, mask):
            return parser.OFPFlowMod(
                datapath,
                cookie=cookie,
                cookie_mask=mask,
                table_id=ofproto.OFPTT_ALL,
                command=ofproto.OFPFC_DELETE,
                out_port=ofproto.OFPP_ANY,
                out_group=ofproto.OFPG_ANY,
            )
        case Barrier():
            return parser.OFPBarrierRequest(datapath)
        case Request(kind):
            return _request(datapath, kind)
        case RoleRequest(role, generation):
            number = {
                Role.EQUAL: ofproto.OFPCR_ROLE_EQUAL,
                Role.MASTER: ofproto.OFPCR_ROLE_MASTER,
                Role.SLAVE: ofproto.OFPCR_ROLE_SLAVE,
            }[role]
            return parser.OFPRoleRequest(datapath, number, generation)
        case PacketOut(port, frame):
            return parser.OFPPacketOut(
                datapath,
                buffer_id=ofproto.OFP_NO_BUFFER,
                in_port=ofproto.OFPP_CONTROLLER,
                actions=[parser.OFPActionOutput(port)],
                data=frame,
            )
    raise TypeError(f"no OpenFlow message for {message!r}")


def _request(datapath: Datapath, kind: Multipart) -> Built:
    parser = datapath.ofproto_parser
    ofproto = datapath.ofproto
    match kind:
        case Multipart.FLOW:
            return parser.OFPFlowStatsRequest(
                datapath,
                0,
                ofproto.OFPTT_ALL,
                ofproto.OFPP_ANY,
                ofproto.OFPG_ANY,
                COOKIE_BASE,
                COOKIE_MASK,
                parser.OFPMatch(),
            )
        case Multipart.GROUP:
            return parser.OFPGroupStatsRequest(datapath, 0, ofproto.OFPG_ALL)
        case Multipart.GROUP_DESC:
            return parser.OFPGroupDescStatsRequest(datapath, 0)
        case Multipart.METER:
            return parser.OFPMeterStatsRequest(datapath, 0, ofproto.OFPM_ALL)
        case Multipart.METER_CONFIG:
            return parser.OFPMeterConfigStatsRequest(datapath, 0, ofproto.OFPM_ALL)
        case Multipart.PORT_STATS:
            return parser.OFPPortStatsRequest(datapath, 0, ofproto.OFPP_ANY)
        case Multipart.PORT_DESC:
            return parser.OFPPortDescStatsRequest(datapath, 0)


def _flow_mod(datapath: Datapath, command: Command, flow: Flow) -> Built:
    parser = datapath.ofproto_parser
    ofproto = datapath.ofproto
    instructions = []
    if flow.meter is not None:
        instructions.append(compat.meter_instruction(parser, flow.meter))
    if flow.actions:
        actions = [action(datapath, a) for a in flow.actions]
        instructions.append(parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions))
    return parser.OFPFlowMod(
        datapath,
        cookie=flow.cookie,
        command={
            Command.ADD: ofproto.OFPFC_ADD,
            Command.MODIFY: ofproto.OFPFC_MODIFY_STRICT,
            Command.DELETE: ofproto.OFPFC_DELETE_STRICT,
        }[command],
        priority=flow.priority,
        out_port=ofproto.OFPP_ANY,
        out_group=ofproto.OFPG_ANY,
        match=match_of(datapath, flow.match),
        instructions=instructions,
    )


def match_of(datapath: Datapath, match: Match) -> object:
    """Return the framework's object for a match."""
    fields: dict[str, int | str | tuple[str, str]] = {}
    if match.in_port is not None:
        fields["in_port"] = match.in_port
    if match.vlan is not None:
        fields["vlan_vid"] = datapath.ofproto.OFPVID_PRESENT | match.vlan
    if match.eth_dst is not None:
        dst = match.eth_dst
        fields["eth_dst"] = dst.value if dst.mask == EXACT else (dst.value, dst.mask)
    if match.eth_src is not None:
        fields["eth_src"] = match.eth_src
    if match.eth_type is not None:
        fields["eth_type"] = match.eth_type
    if match.ip_proto is not None:
        fields["ip_proto"] = match.ip_proto
    return datapath.ofproto_parser.OFPMatch(**fields)


def action(datapath: Datapath, description: Action) -> object:
    """Return the framework's object for an action."""
    parser = datapath.ofproto_parser
    match description:
        case SetVlan(vlan):
            return parser.OFPActionSetField(vlan_vid=datapath.ofproto.OFPVID_PRESENT | vlan)
        case Output(port):
            if port == CONTROLLER:
                return parser.OFPActionOutput(port, datapath.ofproto.OFPCML_NO_BUFFER)
            return parser.OFPActionOutput(port)
        case SetQueue(queue):
            return parser.OFPActionSetQueue(queue)
        case _:
            return parser.OFPActionGroup(description.group)


def _group_mod(datapath: Datapath, command: Command, group: Group) -> Built:
    parser = datapath.ofproto_parser
    ofproto = datapath.ofproto
    buckets = [
        parser.OFPBucket(
            actions=[action(datapath, description) for description in bucket.actions],
            watch_port=ofproto.OFPP_ANY,
            watch_group=ofproto.OFPG_ANY,
        )
        for bucket in group.buckets
    ]
    return parser.OFPGroupMod(
        datapath,
        {
            Command.ADD: ofproto.OFPGC_ADD,
            Command.MODIFY: ofproto.OFPGC_MODIFY,
            Command.DELETE: ofproto.OFPGC_DELETE,
        }[command],
        ofproto.OFPGT_ALL,
        group.number,
        [] if command is Command.DELETE else buckets,
    )


def _meter_mod(datapath: Datapath, command: Command, meter: Meter) -> Built:
    parser = datapath.ofproto_parser
    ofproto = datapath.ofproto
    bands = [parser.OFPMeterBandDrop(rate=meter.rate_kbps, burst_size=meter.burst_kbit)]
    return parser.OFPMeterMod(
        datapath,
        {
            Command.ADD: ofproto.OFPMC_ADD,
            Command.MODIFY: ofproto.OFPMC_MODIFY,
            Command.DELETE: ofproto.OFPMC_DELETE,
        }[command],
        ofproto.OFPMF_KBPS | ofproto.OFPMF_BURST | ofproto.OFPMF_STATS,
        meter.number,
        [] if command is Command.DELETE else bands,
    )
