# SPDX-License-Identifier: Apache-2.0
"""Hosts join and leave the channels of paths by IGMP: the thread around membership.py.

Reports come from the switches as packet-ins; queries go out of leaves as packet-outs. Changes go to
the path service, one change of a path at a time. Everything that was reported meanwhile is in the
next one, so that a host which joins and leaves endlessly delays no other host.

A hand-off leaf's only neighbour is another domain's switch: what that domain's leaves have joined
comes by `set_remote`.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from controller.paths import igmp
from controller.paths.core import Core, Endpoint, EndpointKey
from controller.paths.messages import Message, PacketOut
from controller.paths.multipoint_path import MultipointPath, joined_by
from controller.paths.replies import PacketIn
from controller.service.events import EventLog
from controller.service.membership import Asking, Membership, Settings, Watched
from controller.service.problems import ServiceError

LOG = logging.getLogger(__name__)
INBOX_MAX: Final = 4096  # further reports are dropped; the switches' meters limit them before
RETRY_S: Final = 1.0
QUERIER_MAC: Final = "02:44:50:00:00:00"  # locally administered

Channels = Mapping[EndpointKey, frozenset[int]]
Post = Callable[[str, Sequence[Message]], None]
# Tells the domain that sends a path's frames what was joined here; returns whether it now knows.
Tell = Callable[[str, Endpoint, frozenset[int]], bool]
Submit = Callable[[Callable[[], None]], object]


class Paths(Protocol):
    """The part of the path service that this module needs."""

    core: Core
    events: EventLog

    @property
    def is_active(self) -> bool:
        """Return whether this controller acts."""

    def channel_paths(self) -> Mapping[str, MultipointPath]:
        """Return the paths with channels."""

    def set_channels(self, name: str, wanted: Channels) -> None:
        """Let leaves get these channels and no others."""


class ChannelKeeper:
    """Keeps the members of all paths as the hosts request. `post` sends messages to a switch;
    `submit` runs functions that wait for switches."""

    def __init__(
        self, paths: Paths, post: Post, submit: Submit, settings: Settings | None = None
    ) -> None:
        self._paths = paths
        self.tell: Tell = lambda _name, _root, _channels: True
        self._post = post
        self._submit = submit
        self._membership = Membership(settings or Settings())
        self._inbox: queue.Queue[Callable[[float], None]] = queue.Queue(INBOX_MAX)
        self._known: dict[str, MultipointPath] = {}
        self._owner: dict[EndpointKey, str] = {}  # leaf -> path
        self._remote: dict[tuple[str, EndpointKey], frozenset[int]] = {}
        self._dirty: set[str] = set()  # paths whose members may need a change
        self._running: set[str] = set()  # paths that are being changed, or told to a peer
        self._told: dict[str, tuple[Endpoint, frozenset[int]]] = {}  # by path
        self._retry_s: dict[str, float] = {}
        self._is_stale = True  # paths may have changed
        self._dropped = 0
        self._ignored = 0  # packet-ins that are not reports
        paths.events.subscribe(self._paths_changed)

    def counts(self) -> dict[str, int]:
        """Return how many reports were ignored, by reason."""
        found = {
            f"reports_{why.replace(' ', '_')}": number
            for why, number in sorted(dict(self._membership.ignored).items())
        }
        return {**found, "reports_dropped": self._dropped, "reports_malformed": self._ignored}

    # -- called by other threads; never blocks

    def packet_in(self, switch: str, packet: PacketIn) -> None:
        """Take a frame from a leaf's host."""
        self._put(lambda now_s: self._read(switch, packet, now_s))

    def set_remote(self, name: str, leaf: EndpointKey, channels: frozenset[int]) -> bool:
        """Record what the leaves behind a hand-off have joined; return whether there is such a leaf
        with such channels."""
        path = self._paths.channel_paths().get(name)
        if path is None or path.channels is None or not self._is_hand_off(leaf):
            return False
        count = path.channels.count
        if all(known.key != leaf for known in path.leaves) or max(channels, default=0) >= count:
            return False

        def note(_now_s: float) -> None:
            self._remote[name, leaf] = channels
            self._dirty.add(name)

        self._put(note)
        return True

    def _paths_changed(self) -> None:
        self._is_stale = True
        self._put(lambda _now_s: None)

    def _put(self, call: Callable[[float], None]) -> None:
        try:
            self._inbox.put_nowait(call)
        except queue.Full:
            self._dropped += 1

    # -- the thread

    def run(self) -> None:
        """Work forever."""
        while True:
            try:
                self.wait(time.monotonic())
                self.turn(time.monotonic())
            except Exception:
                LOG.exception("following the members of channels failed")
                time.sleep(RETRY_S)

    def wait(self, now_s: float) -> None:
        """Wait until there is something to do."""
        times = [*self._retry_s.values()]
        if (next_s := self._membership.next_s()) is not None:
            times.append(next_s)
        timeout_s = max(0.0, min(times) - now_s) if times else None
        with contextlib.suppress(queue.Empty):
            block = timeout_s is None or timeout_s > 0
            self._inbox.get(block, timeout_s)(time.monotonic())

    def turn(self, now_s: float) -> None:
        """Do what is due, without waiting."""
        if self._is_stale:
            self._is_stale = False
            self._follow_paths(now_s)
        with contextlib.suppress(queue.Empty):
            for _ in range(INBOX_MAX):
                self._inbox.get_nowait()(now_s)
        todo = self._membership.tick(now_s)
        for asking in todo.queries:
            self._ask(asking)
        self._dirty.update(self._owner[key] for key in todo.changed if key in self._owner)
        for name in [name for name, when_s in self._retry_s.items() if when_s <= now_s]:
            del self._retry_s[name]
            self._dirty.add(name)
        for name in sorted(self._dirty - self._running - self._retry_s.keys()):
            self._begin(name)

    def _read(self, switch: str, packet: PacketIn, now_s: float) -> None:
        try:
            received = igmp.read(packet.frame)
        except igmp.NotIgmp:
            self._ignored += 1
            return
        if received.vlan is None or not isinstance(received.message, igmp.Report):
            self._ignored += 1
            return
        key = (switch, packet.in_port, received.vlan)
        if key not in self._owner:  # of a path too new to be known here
            self._follow_paths(now_s)
        self._membership.report(key, received.source_mac, received.message, now_s)

    def _ask(self, asking: Asking) -> None:
        switch, port, vlan = asking.endpoint
        frame = igmp.frame_of(asking.query, QUERIER_MAC, vlan=vlan)
        self._post(switch, [PacketOut(port, frame)])

    # -- paths come, change and go

    def _follow_paths(self, now_s: float) -> None:
        paths = dict(self._paths.channel_paths()) if self._paths.is_active else {}
        for name in self._known.keys() - paths.keys():
            self._forget_leaves(name, keep=frozenset())
            self._retry_s.pop(name, None)
            self._told.pop(name, None)
            self._dirty.discard(name)
        for name, path in paths.items():
            if self._known.get(name) is not path:
                self._follow(path, now_s)
        self._known = paths

    def _follow(self, path: MultipointPath, now_s: float) -> None:
        assert path.channels is not None
        self._forget_leaves(path.name, keep=frozenset(leaf.key for leaf in path.leaves))
        joined = joined_by(path.members)
        for leaf in path.leaves:
            self._owner[leaf.key] = path.name
            if self._is_hand_off(leaf.key):
                continue
            latency_s = path.channels.leave_latency_ms / 1000
            watched = Watched(path.channels.base, path.channels.count, latency_s, leaf.macs)
            self._membership.watch(leaf.key, watched, now_s, joined.get(leaf.key, ()))
        self._dirty.add(path.name)

    def _forget_leaves(self, name: str, keep: frozenset[EndpointKey]) -> None:
        for key in [k for k, owner in self._owner.items() if owner == name and k not in keep]:
            del self._owner[key]
            self._membership.unwatch(key)
            self._remote.pop((name, key), None)

    def _is_hand_off(self, key: EndpointKey) -> bool:
        return key[1] in self._paths.core.probed.get(key[0], ())

    # -- members change

    def _begin(self, name: str) -> None:
        self._dirty.discard(name)
        wanted = self._differences(name)
        if wanted:
            self._running.add(name)
            self._submit(lambda: self._change(name, wanted))
            return
        path = self._known.get(name)
        if path is not None and self._is_hand_off(path.root.key):
            union = frozenset(member.channel for member in path.members)
            if self._told.get(name) != (path.root, union):
                self._running.add(name)
                self._submit(lambda: self._tell(name, path.root, union))

    def _differences(self, name: str) -> Channels:
        """Return the channels of the leaves whose hosts request other channels than the path
        has."""
        path = self._paths.channel_paths().get(name)
        if path is None or not self._paths.is_active:
            return {}
        joined = joined_by(path.members)
        wanted: dict[EndpointKey, frozenset[int]] = {}
        for leaf in path.leaves:
            key, has = leaf.key, joined.get(leaf.key, frozenset())
            if self._owner.get(key) != name:
                continue  # the next turn watches this leaf
            if self._is_hand_off(key):
                wants = self._remote.get((name, key), has)
            else:
                wants = self._membership.members(key)
            if wants != has:
                wanted[key] = wants
        return wanted

    def _tell(self, name: str, root: Endpoint, union: frozenset[int]) -> None:
        """Tell the sending domain what was joined. A worker runs this."""
        is_known = False
        try:
            is_known = self.tell(name, root, union)
        except Exception:
            LOG.exception("path=%s action=tell-members", name)

        def told() -> None:
            if is_known:
                self._told[name] = (root, union)

        self._ended(name, told, is_again=not is_known)

    def _change(self, name: str, wanted: Channels) -> None:
        """Change a path's members. A worker runs this."""
        is_again = False
        try:
            self._paths.set_channels(name, wanted)
        except ServiceError as error:
            LOG.warning("path=%s action=channels: %s", name, error.detail)
            # A switch that has not confirmed gets the change when it is back.
            is_again = error.kind != "unconfirmed"
        except Exception:
            LOG.exception("path=%s action=channels", name)
            is_again = True
        self._ended(name, lambda: None, is_again=is_again)

    def _ended(self, name: str, note: Callable[[], None], *, is_again: bool) -> None:
        def ended(now_s: float) -> None:
            note()
            self._running.discard(name)
            self._is_stale = True
            self._dirty.add(name)
            if is_again:
                self._retry_s[name] = now_s + RETRY_S

        self._inbox.put(ended)  # must not get lost, or the path would never change again
