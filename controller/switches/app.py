# SPDX-License-Identifier: Apache-2.0
"""The framework's app: it passes switch events on. All decisions are made elsewhere."""

from __future__ import annotations

from functools import partial

from controller.paths.replies import Type
from controller.switches import compat
from controller.switches.switchboard import Switchboard


class PathServiceApp(compat.App):  # type: ignore[misc]
    OFP_VERSIONS = [compat.OFP_VERSION]

    def __init__(
        self, *args: object, switchboard: Switchboard[compat.Datapath], **kwargs: object
    ) -> None:
        super().__init__(*args, **kwargs)
        self._switchboard = switchboard
        switchboard.on_duplicate = partial(compat.COUNTS.add, "duplicate_switches")
        compat.handle_raw(
            {
                Type.PACKET_IN: switchboard.packet_in,
                Type.MULTIPART_REPLY: switchboard.multipart_reply,
            }
        )

    @compat.on(compat.StateChange, compat.MAIN, compat.DEAD)
    def state_changed(self, event: compat.StateEvent) -> None:
        """Report that a switch has connected or disconnected."""
        if event.state == compat.MAIN:
            datapath = event.datapath
            names = datapath.socket.certified_names()
            if self._switchboard.connected(datapath, compat.ports_of(datapath), names):
                compat.known(datapath)
            else:
                compat.COUNTS.add("unknown_switches")
        else:
            self._switchboard.disconnected(event.datapath)

    @compat.on(compat.BarrierReply, compat.MAIN)
    def barrier_reply(self, event: compat.Event[compat.ReceivedMessage]) -> None:
        """Pass on a confirmation."""
        self._switchboard.barrier_reply(event.msg.datapath, event.msg.xid)

    @compat.on(compat.ErrorMessage, *compat.ALL_STATES)
    def error(self, event: compat.Event[compat.ReceivedError]) -> None:
        """Pass on a switch's error."""
        message = event.msg
        self._switchboard.error(message.datapath, message.xid, compat.error_text(message))

    @compat.on(compat.PortStatus, compat.MAIN)
    def port_status(self, event: compat.Event[compat.ReceivedPortStatus]) -> None:
        """Pass on whether a port is up."""
        message = event.msg
        deleted = message.reason == message.datapath.ofproto.OFPPR_DELETE
        is_up = not deleted and compat.port_is_up(message.datapath, message.desc)
        self._switchboard.port_status(message.datapath, message.desc.port_no, is_up)

    @compat.on(compat.RoleReply, compat.MAIN)
    def role_reply(self, event: compat.Event[compat.ReceivedMessage]) -> None:
        """Pass on that a switch has taken a role."""
        self._switchboard.role_reply(event.msg.datapath, event.msg.xid)
