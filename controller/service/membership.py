# SPDX-License-Identifier: Apache-2.0
"""Who has joined which channel: the querier of RFC 3376, with explicit tracking of each host. No
I/O: reports and the time go in, queries and changes come out.

Each host of version 3 reports for itself, so an endpoint leaves a channel with its last host, at
once or after `leave_latency_s`. A host of version 1 or 2 stays silent when it hears another host's
report. So if an endpoint may have several hosts, the others are asked before it leaves (RFC 2236,
3). A host's cost is bounded: records a second, hosts of an endpoint, sources of a group. Groups
that are not channels take no memory.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Final

from controller.paths.core import EndpointKey
from controller.paths.igmp import ANY, Filter, Query, Record, Report
from controller.switches.guard import Bucket

RECORDS_PER_S: Final = 100.0  # of a host, about channels
RECORDS_BURST: Final = 512.0
HOSTS_MAX: Final = 64  # of an endpoint that names no MACs
SOURCES_MAX: Final = 64  # of a host in a group; more than that count as all sources
UNKNOWN: Final = ""  # the host of a membership that an earlier process knew
LEAVING: Final = "-"  # in timers: a channel's, not a host's


@dataclass(frozen=True)
class Settings:
    """Timers (RFC 3376, 8)."""

    robustness: int = 2
    interval_s: float = 125.0  # between general queries
    response_s: float = 10.0
    startup_response_s: float = 1.0  # hosts may have joined before the leaf was added
    last_member_s: float = 1.0  # between queries after a host has left

    @property
    def silence_s(self) -> float:
        """Return how long a host is a member without another report."""
        return self.robustness * self.interval_s + self.response_s

    @property
    def startup_s(self) -> float:
        """Return the time between the first queries."""
        return self.interval_s / 4


@dataclass(frozen=True)
class Watched:
    """An endpoint whose hosts may join the groups `base` to `base` + `count` - 1.

    `macs`: its hosts' addresses; none: any. Times in seconds.
    """

    base: IPv4Address
    count: int
    leave_latency_s: float = 0.0
    macs: tuple[str, ...] = ()

    def channel_of(self, group: IPv4Address) -> int | None:
        """Return the number of the channel that a group is, from 0; None: it is not a channel."""
        number = int(group) - int(self.base)
        return number if 0 <= number < self.count else None


@dataclass(frozen=True)
class Asking:
    """A query to be sent out of an endpoint."""

    endpoint: EndpointKey
    query: Query


@dataclass
class Todo:
    """What the caller has to do now. `changed`: endpoints whose channels have changed."""

    queries: list[Asking] = field(default_factory=list)
    changed: set[EndpointKey] = field(default_factory=set)


@dataclass
class _Interest:
    """A host's state of a group (RFC 3376, 3.2). It is a member until `until_s`."""

    version: int
    until_s: float
    excludes: bool = False
    sources: set[IPv4Address] = field(default_factory=set)

    def follow(self, record: Record) -> bool:
        """Apply a record; return whether the host wants the group, from any source."""
        what, named = record.filter, record.sources
        if what in (Filter.IS_EXCLUDE, Filter.TO_EXCLUDE):
            self.excludes = True
        elif what in (Filter.IS_INCLUDE, Filter.TO_INCLUDE):
            self.excludes, self.sources = False, set(named[: SOURCES_MAX + 1])
        elif what is Filter.ALLOW:
            self.sources.update(named[: SOURCES_MAX + 1])
        elif not self.excludes:
            self.sources.difference_update(named)
        if len(self.sources) > SOURCES_MAX:
            self.excludes = True
        if self.excludes:
            self.sources.clear()
        return self.excludes or bool(self.sources)


@dataclass
class _Channel:
    """An endpoint's membership. `leaves_s`: when it ends; None while hosts want it."""

    hosts: dict[str, _Interest] = field(default_factory=dict)
    leaves_s: float | None = None
    queries_s: list[float] = field(default_factory=list)  # when the remaining queries are due
    response_s: float = 0.0


@dataclass
class _Host:
    bucket: Bucket = field(default_factory=lambda: Bucket(RECORDS_PER_S, RECORDS_BURST))
    joined: int = 0  # number of channels


@dataclass
class _Endpoint:
    watched: Watched
    serial: int  # distinguishes endpoints that follow each other at one place
    startup_left: int
    channels: dict[int, _Channel] = field(default_factory=dict)
    hosts: dict[str, _Host] = field(default_factory=dict)  # by MAC, without UNKNOWN
    timed: set[tuple[int, str]] = field(default_factory=set)  # hosts with a timer for `until_s`

    def host(self, mac: str) -> _Host | None:
        """Return a host, perhaps a new one in place of one that has joined nothing. None if there
        are too many."""
        known = self.hosts.get(mac)
        if known is not None:
            return known
        if not self.watched.macs and len(self.hosts) >= HOSTS_MAX:
            idle = next((mac for mac, host in self.hosts.items() if not host.joined), None)
            if idle is None:
                return None
            del self.hosts[idle]
        host = self.hosts[mac] = _Host()
        return host

    def drop(self, number: int, mac: str) -> None:
        """Remove a host from a channel, if it is there."""
        if self.channels[number].hosts.pop(mac, None) is not None and mac in self.hosts:
            self.hosts[mac].joined -= 1


_Timer = tuple[float, int, EndpointKey, int, int | None, str]  # None: the general query


class Membership:
    """Not thread-safe. All times are from one monotonic clock, in seconds."""

    def __init__(self, settings: Settings = Settings()) -> None:  # noqa: B008 (immutable)
        self._set = settings
        self._endpoints: dict[EndpointKey, _Endpoint] = {}
        self._timers: list[_Timer] = []
        self._order = itertools.count()
        self._changed: set[EndpointKey] = set()
        self.ignored: Counter[str] = Counter()  # by reason

    # -- questions

    def members(self, key: EndpointKey) -> frozenset[int]:
        """Return the channels that an endpoint has joined, from 0."""
        endpoint = self._endpoints.get(key)
        return frozenset() if endpoint is None else frozenset(endpoint.channels)

    def next_s(self) -> float | None:
        """Return when to call `tick` next; None: nothing to do."""
        return self._timers[0][0] if self._timers else None

    @property
    def watched(self) -> Mapping[EndpointKey, Watched]:
        """Return the endpoints that may join."""
        return {key: endpoint.watched for key, endpoint in self._endpoints.items()}

    # -- what happened

    def watch(
        self, key: EndpointKey, watched: Watched, now_s: float, joined: Iterable[int] = ()
    ) -> None:
        """Let an endpoint's hosts join from now on, or change how they may.

        `joined`: channels that an earlier process knew; they last until the first queries have been
        answered.
        """
        known = self._endpoints.get(key)
        if known is not None and _same_groups(known.watched, watched):
            if known.watched != watched:
                known.watched = watched
                self._forget_strangers(key, known)
            return
        self.unwatch(key)
        endpoint = _Endpoint(watched, next(self._order), self._set.robustness)
        self._endpoints[key] = endpoint
        self._time(now_s, key, endpoint)
        until_s = now_s + self._set.robustness * self._set.startup_s + self._set.response_s
        for channel in joined:
            endpoint.channels[channel] = _Channel({UNKNOWN: _Interest(3, until_s, excludes=True)})
            self._time_host(until_s, key, endpoint, channel, UNKNOWN)

    def unwatch(self, key: EndpointKey) -> None:
        """Drop an endpoint and its members."""
        endpoint = self._endpoints.pop(key, None)
        if endpoint is not None and endpoint.channels:
            self._changed.add(key)

    def report(self, key: EndpointKey, mac: str, report: Report, now_s: float) -> None:
        """Apply a host's report, or count why it is ignored."""
        endpoint = self._endpoints.get(key)
        if endpoint is None or (endpoint.watched.macs and mac not in endpoint.watched.macs):
            self.ignored["stranger"] += 1
            return
        host = endpoint.host(mac)
        if host is None:
            self.ignored["too many hosts"] += 1
            return
        for record in report.records:
            channel = endpoint.watched.channel_of(record.group)
            if channel is None:
                self.ignored["other group"] += 1
            elif not host.bucket.take(now_s):
                self.ignored["too often"] += 1
            else:
                self._follow(key, endpoint, channel, mac, record, report.version, now_s)

    def tick(self, now_s: float) -> Todo:
        """Return what to do now. Call at `next_s`, or a little later, and after reports."""
        todo = Todo()
        while self._timers and self._timers[0][0] <= now_s:
            _, _, key, serial, channel, mac = heapq.heappop(self._timers)
            endpoint = self._endpoints.get(key)
            if endpoint is None or endpoint.serial != serial:
                continue
            if channel is None:
                self._query_all(key, endpoint, now_s, todo)
            elif mac != LEAVING:
                endpoint.timed.discard((channel, mac))
                self._expire(key, endpoint, channel, mac, now_s)
            elif channel in endpoint.channels:
                self._leave_in_time(key, endpoint, channel, now_s, todo)
        todo.changed, self._changed = self._changed, set()
        return todo

    # -- internals

    def _time(
        self,
        when_s: float,
        key: EndpointKey,
        endpoint: _Endpoint,
        channel: int | None = None,
        mac: str = LEAVING,
    ) -> None:
        entry = (when_s, next(self._order), key, endpoint.serial, channel, mac)
        heapq.heappush(self._timers, entry)

    def _time_host(
        self, when_s: float, key: EndpointKey, endpoint: _Endpoint, number: int, mac: str
    ) -> None:
        """Set a host's timer, unless it has one: that one is earlier, and sets this one when it
        ends."""
        if (number, mac) not in endpoint.timed:
            endpoint.timed.add((number, mac))
            self._time(when_s, key, endpoint, number, mac)

    def _follow(
        self,
        key: EndpointKey,
        endpoint: _Endpoint,
        number: int,
        mac: str,
        record: Record,
        version: int,
        now_s: float,
    ) -> None:
        channel = endpoint.channels.get(number)
        known = None if channel is None else channel.hosts.get(mac)
        until_s = now_s + self._set.silence_s
        interest = known or _Interest(version, until_s)
        interest.version = version
        if interest.follow(record):
            interest.until_s = until_s
            if channel is None:
                channel = endpoint.channels[number] = _Channel()
                self._changed.add(key)
            channel.leaves_s = None
            channel.queries_s.clear()
            if known is None:
                channel.hosts[mac] = interest
                endpoint.hosts[mac].joined += 1
                self._time_host(until_s, key, endpoint, number, mac)
            if len(endpoint.watched.macs) == 1:
                endpoint.drop(number, UNKNOWN)
        elif channel is not None and channel.leaves_s is None:
            endpoint.drop(number, mac)
            if len(endpoint.watched.macs) == 1:
                endpoint.drop(number, UNKNOWN)
            if not channel.hosts:
                self._begin_to_leave(key, endpoint, number, version, now_s)

    def _begin_to_leave(
        self, key: EndpointKey, endpoint: _Endpoint, number: int, version: int, now_s: float
    ) -> None:
        delay_s = endpoint.watched.leave_latency_s
        if version < 3 and len(endpoint.watched.macs) != 1:
            delay_s = max(delay_s, self._set.robustness * self._set.last_member_s)
        if delay_s <= 0:
            self._end(key, endpoint, number)
            return
        channel = endpoint.channels[number]
        count = self._set.robustness
        channel.leaves_s = now_s + delay_s
        channel.response_s = delay_s / count
        channel.queries_s = [now_s + delay_s * turn / count for turn in range(count)]
        for when_s in (*channel.queries_s, channel.leaves_s):
            self._time(when_s, key, endpoint, number)

    def _leave_in_time(
        self, key: EndpointKey, endpoint: _Endpoint, number: int, now_s: float, todo: Todo
    ) -> None:
        channel = endpoint.channels[number]
        if channel.leaves_s is None:
            return
        if channel.leaves_s <= now_s:
            self._end(key, endpoint, number)
        elif channel.queries_s and channel.queries_s[0] <= now_s:
            del channel.queries_s[0]
            todo.queries.append(self._asking(key, endpoint, number, channel.response_s))

    def _query_all(self, key: EndpointKey, endpoint: _Endpoint, now_s: float, todo: Todo) -> None:
        settings = self._set
        is_first = endpoint.startup_left > 0
        response_s = settings.startup_response_s if is_first else settings.response_s
        todo.queries.append(self._asking(key, endpoint, None, response_s))
        endpoint.startup_left = max(0, endpoint.startup_left - 1)
        step_s = self._set.startup_s if endpoint.startup_left else self._set.interval_s
        self._time(now_s + step_s, key, endpoint)

    def _asking(
        self, key: EndpointKey, endpoint: _Endpoint, number: int | None, response_s: float
    ) -> Asking:
        group = ANY if number is None else endpoint.watched.base + number
        settings = self._set
        query = Query(
            3,
            group,
            max(0.1, response_s),
            robustness=settings.robustness,
            interval_s=settings.interval_s,
        )
        return Asking(key, query)

    def _expire(
        self, key: EndpointKey, endpoint: _Endpoint, number: int, mac: str, now_s: float
    ) -> None:
        channel = endpoint.channels.get(number)
        interest = None if channel is None else channel.hosts.get(mac)
        if channel is None or interest is None:
            return
        if interest.until_s > now_s:
            self._time_host(interest.until_s, key, endpoint, number, mac)
            return
        endpoint.drop(number, mac)
        if not channel.hosts:
            self._end(key, endpoint, number)

    def _forget_strangers(self, key: EndpointKey, endpoint: _Endpoint) -> None:
        macs = frozenset(endpoint.watched.macs)
        if not macs:
            return
        for number, channel in list(endpoint.channels.items()):
            for mac in channel.hosts.keys() - macs - {UNKNOWN}:
                endpoint.drop(number, mac)
            if not channel.hosts and channel.leaves_s is None:
                self._end(key, endpoint, number)
        for mac in [mac for mac in endpoint.hosts if mac not in macs]:
            del endpoint.hosts[mac]

    def _end(self, key: EndpointKey, endpoint: _Endpoint, number: int) -> None:
        del endpoint.channels[number]
        self._changed.add(key)


def _same_groups(old: Watched, new: Watched) -> bool:
    return (old.base, old.count) == (new.base, new.count)
