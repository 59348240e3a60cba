# SPDX-License-Identifier: Apache-2.0
"""The framework's app: a shell that passes switch events on. All decisions are elsewhere."""

from __future__ import annotations

from typing import Any

from controller import compat
from controller.switchboard import Switchboard


class PathServiceApp(compat.App):  # type: ignore[misc]
    OFP_VERSIONS = [compat.OFP_VERSION]

    def __init__(self, *args: Any, switchboard: Switchboard, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._switchboard = switchboard

    @compat.on(compat.StateChange, compat.MAIN, compat.DEAD)
    def state_changed(self, event: Any) -> None:
        if event.state == compat.MAIN:
            self._switchboard.connected(event.datapath)
        else:
            self._switchboard.disconnected(event.datapath)

    @compat.on(compat.BarrierReply, compat.MAIN)
    def barrier_reply(self, event: Any) -> None:
        self._switchboard.barrier_reply(event.msg.datapath, event.msg.xid)

    @compat.on(compat.ErrorMessage, *compat.ALL_STATES)
    def error(self, event: Any) -> None:
        message = event.msg
        self._switchboard.error(message.datapath, message.xid, compat.error_text(message))
