# SPDX-License-Identifier: Apache-2.0
"""The switches of a domain behind ONOS's REST: what `switchboard.py` is for switches that connect
here.

A thread looks at ONOS's devices and ports, and reports what changes. Packets cannot be sent or
received this way, so links are not probed, and nobody joins channels by IGMP.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NoReturn

from common.onos import OnosError, OnosNotFound, OnosRefused, Rest, version
from controller.onos import planning, records
from controller.onos.planning import Call, Expected, Todo, Wanted
from controller.onos.records import Devices, Held
from controller.paths.entries import Entries, Entry, Flow, Group
from controller.paths.messages import Change, Message
from controller.paths.stats import SwitchStats
from controller.switches.installer import Failure, Why
from controller.switches.switchboard import Event, PacketIn

LOG = logging.getLogger(__name__)
LOOK_S: Final = 0.02  # between two looks at the ports
DEVICES_EVERY: Final = 10  # looks at the ports for one at the devices
AGAIN_S: Final = 0.5  # when ONOS does not answer
GONE_S: Final = 3.0  # without an answer: its switches count as disconnected
CONFIRM_S: Final = 10.0  # for ONOS to show what was requested: it may skip five of its polls
CONFIRM_LOOK_S: Final = 0.05
WORKERS: Final = 16
NOBODY: Final = Devices(frozenset(), {})


class OnosBoard:
    """`dpids`: of the domain's switches. `desired(switch)`: what a switch should have, whose
    cookies ONOS does not keep."""

    def __init__(self, dpids: Mapping[str, int], rest: Rest) -> None:
        self._rest = rest
        self._devices = {name: records.device_of(dpid) for name, dpid in dpids.items()}
        self._names = {device: name for name, device in self._devices.items()}
        self._seen = NOBODY
        self._looks = 0
        self._is_lost = False
        self._answered_s = time.monotonic()
        self._available: object = None
        self._lock = threading.Lock()
        self._expected: dict[str, dict[planning.Key, Wanted]] = {n: {} for n in dpids}
        self._ids: dict[str, dict[planning.Key, str]] = {name: {} for name in dpids}
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="onos")
        self.desired: Callable[[str], Iterable[Entry]] = lambda _switch: ()
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.on_packet_in: PacketIn | None = None  # never called
        self.on_report: PacketIn | None = None  # never called
        self.on_event: Callable[[Event], None] | None = None

    def emit(self, event: Event) -> None:
        """Report an event to the owner."""
        self.events.put(event)
        if self.on_event is not None:
            self.on_event(event)

    # -- following ONOS

    def prepare(self) -> str:
        """Change what must be set otherwise in ONOS; return its version. Raises OnosError."""
        found = version(self._rest)
        for component, wanted in planning.SETTINGS.items():
            path = f"/configuration/{component}"
            have = records.settings_of(self._rest.get(path), component)
            body = {name: value for name, value in wanted.items() if have.get(name) != value}
            if not body:
                continue
            self._rest.call("POST", path, body)
            have = records.settings_of(self._rest.get(path), component)
            for name, value in body.items():
                if have.get(name) != value:
                    raise OnosError(
                        f"{self._rest.address}: {component}: found {name} = {have.get(name)}; "
                        f"valid: {value}"
                    )
        return found

    def follow(self) -> NoReturn:
        """Look at ONOS's devices and ports forever, and report what changes."""
        while True:
            time.sleep(self.look())

    def look(self) -> float:
        """Look once; return how long to wait before the next look."""
        try:
            if self._is_lost:
                self.prepare()  # it may have started again
                LOG.info("%s answers again", self._rest.address)
            ports = self._rest.get("/devices/ports")
            if self._looks % DEVICES_EVERY == 0 or self._is_lost:
                self._available = self._rest.get("/devices")
            now = records.devices_of(self._available, ports)
        except OnosError as error:
            if not self._is_lost:
                LOG.warning("%s", error)
            self._is_lost = True
            if time.monotonic() - self._answered_s > GONE_S:
                self._note(NOBODY)
            return AGAIN_S
        self._looks += 1
        self._is_lost, self._answered_s = False, time.monotonic()
        self._note(now)
        return LOOK_S

    def _note(self, now: Devices) -> None:
        news = planning.news_of(self._names, self._seen, now)
        self._seen = now
        for event in news:
            self.emit(event)

    def connected_switches(self) -> list[str]:
        """Return the names of the switches that are connected to ONOS."""
        seen = self._seen
        return sorted(n for n, device in self._devices.items() if device in seen.available)

    def post(self, switch: str, messages: Sequence[Message]) -> None:
        """Drop messages without an answer: ONOS's REST sends no packets."""

    def ask(self, switch: str, answered: Callable[[], None]) -> None:
        """Drop the question: no link is probed."""

    # -- changing

    def apply(self, changes: Mapping[str, Sequence[Message]]) -> dict[str, Failure]:
        """Request the changes, in the order in which a switch needs them; `settle` waits for
        them. Flows of all switches are one request."""
        failures: dict[str, Failure] = {}
        todos: dict[str, Todo] = {}
        here = frozenset(self.connected_switches())
        for name, messages in changes.items():
            if name not in here:
                failures[name] = Failure(Why.NOT_CONNECTED)
                continue
            todos[name], expected = planning.todo_of(self._devices[name], messages)
            with self._lock:
                self._expected[name].update(expected)
        failures |= self._on_each(todos, self._add)
        failures |= self._flows({n: t for n, t in todos.items() if n not in failures})
        good = {name: todo for name, todo in todos.items() if name not in failures}
        failures |= self._on_each(good, self._end)
        return failures

    def _on_each(
        self, todos: Mapping[str, Todo], work: Callable[[str, Todo], None]
    ) -> dict[str, Failure]:
        """Do it for all switches at the same time; return the failures."""
        running = {name: self._pool.submit(work, name, todo) for name, todo in todos.items()}
        failures = {}
        for name, future in running.items():
            try:
                future.result()
            except OnosError as error:
                failures[name] = _failure(error)
        return failures

    def _add(self, name: str, todo: Todo) -> None:
        """Add and change meters and groups. Raises OnosError."""
        device = self._devices[name]
        for change in todo.meters:
            self._calls(planning.meter_calls(device, change))
        if todo.meters and todo.flows:
            self._await_meters(device, [change.entry for change in todo.meters])
        for change in todo.groups:
            self._calls(self._group_calls(device, change))

    def _await_meters(self, device: str, meters: Sequence[Entry]) -> None:
        """Wait until ONOS has seen meters in the switch, which refuses flows that name others. ONOS
        answers before it sends them. Raises OnosError."""
        none: dict[str, list[object]] = {"flows": [], "groups": []}
        deadline_s = time.monotonic() + CONFIRM_S
        while True:
            held = records.held_of(none, none, self._rest.get(f"/meters/{device}"), {})
            if all(held.seen(meter)[0] == records.ADDED for meter in meters):
                return
            if time.monotonic() > deadline_s:
                return  # ONOS tries again with the flows, and `settle` waits for them
            time.sleep(CONFIRM_LOOK_S)

    def _group_calls(self, device: str, change: Change) -> list[Call]:
        group = change.entry
        assert isinstance(group, Group)
        path = f"/groups/{device}/{records.group_key(group.number)}"
        try:
            answer = self._rest.get(path)
        except OnosNotFound:
            return planning.group_calls(device, group, None)
        none: dict[str, list[object]] = {"flows": [], "meters": []}
        held = records.held_of(none, answer, none, {}).groups.get(group.number)
        return planning.group_calls(device, group, held)

    def _end(self, name: str, todo: Todo) -> None:
        """Delete groups and meters, once the flows that name them are gone: otherwise the switch
        would delete these too, and ONOS would add them again. Raises OnosError."""
        if not todo.last:
            return
        deadline_s = time.monotonic() + CONFIRM_S
        while planning.unmet(todo.gone, self._held_at(name)) and time.monotonic() < deadline_s:
            time.sleep(CONFIRM_LOOK_S)
        self._calls(todo.last)

    def _calls(self, calls: Iterable[Call]) -> None:
        for call in calls:
            self._rest.call(call.method, call.path, call.body)

    def _flows(self, todos: Mapping[str, Todo]) -> dict[str, Failure]:
        """Delete, then add flows."""
        ids: dict[str, list[str]] = {}
        flows: dict[str, list[Flow]] = {}
        for name, todo in todos.items():
            known = self._ids[name]
            gone = [known.pop(flow.key) for flow in todo.unwanted if flow.key in known]
            if gone:
                ids[self._devices[name]] = gone
            if todo.flows:
                flows[self._devices[name]] = todo.flows
        try:
            if ids:
                self._calls([planning.delete_flows(ids)])
            if flows:
                call = planning.add_flows(flows)
                answer = self._rest.call(call.method, call.path, call.body)
                self._note_ids(flows, records.flow_ids_of(answer))
        except OnosError as error:
            concerned = {*ids, *flows}
            return {n: _failure(error) for n in todos if self._devices[n] in concerned}
        return {}

    def _note_ids(self, flows: Mapping[str, Sequence[Flow]], ids: Sequence[str]) -> None:
        asked = [(device, flow) for device, some in flows.items() for flow in some]
        if len(asked) != len(ids):
            raise OnosError(f"ONOS answers with {len(ids)} flow ids; valid: {len(asked)}")
        for (device, flow), id_ in zip(asked, ids, strict=True):
            self._ids[self._names[device]][flow.key] = id_

    def settle(self, switches: Iterable[str]) -> dict[str, Failure]:
        """Wait until ONOS shows what `apply` has requested, that is until it has seen it in the
        switches; return the failures."""
        deadline_s = time.monotonic() + CONFIRM_S
        failures: dict[str, Failure] = {}
        waiting = set(switches)
        while waiting:
            with self._lock:
                left = {name: dict(self._expected[name]) for name in waiting}
            waiting = {name for name, expected in left.items() if expected}
            for name, found in self._held(waiting).items():
                failure = self._compare(name, left[name], found)
                if failure is None and time.monotonic() > deadline_s and self._expected[name]:
                    text = planning.text_of(self._expected[name])
                    failure = Failure(Why.TIMEOUT, f"{text} {CONFIRM_S:g} s after the request")
                if failure is not None:
                    failures[name] = failure
                    waiting.discard(name)
                    with self._lock:
                        self._expected[name].clear()
            if any(self._expected[name] for name in waiting):
                time.sleep(CONFIRM_LOOK_S)
        return failures

    def _compare(self, name: str, expected: Expected, found: Held | Failure) -> Failure | None:
        """Forget what a switch was expected to have, and has."""
        if isinstance(found, Failure):
            return found
        failure = planning.failure_of(expected, found)
        if failure is None:
            unmet = planning.unmet(expected, found)
            with self._lock:
                now = self._expected[name]
                for key, wanted in expected.items():
                    if key not in unmet and now.get(key) == wanted:
                        del now[key]
        return failure

    # -- reading

    def _held(self, switches: Iterable[str]) -> dict[str, Held | Failure]:
        """Return what ONOS has for the switches, in any state."""
        here = frozenset(self.connected_switches())
        found: dict[str, Held | Failure] = {}
        running = {}
        for name in switches:
            if name in here:
                running[name] = self._pool.submit(self._held_at, name)
            else:
                found[name] = Failure(Why.NOT_CONNECTED)
        for name, future in running.items():
            try:
                found[name] = future.result()
            except OnosError as error:
                found[name] = _failure(error)
        return found

    def _held_at(self, name: str) -> Held:
        device = self._devices[name]
        try:
            flows = self._rest.get(f"/flows/{device}")
        except OnosNotFound:  # it has none
            flows = {"flows": []}
        groups = self._rest.get(f"/groups/{device}")
        meters = self._rest.get(f"/meters/{device}")
        with self._lock:
            wanted = [wanted.entry for wanted in self._expected[name].values()]
        known = (*self.desired(name), *wanted)
        cookies = {entry.key: entry.cookie for entry in known if isinstance(entry, Flow)}
        return records.held_of(flows, groups, meters, cookies)

    def read(self, switches: Iterable[str]) -> dict[str, Entries | Failure]:
        """Return which of this controller's entries ONOS keeps in each switch; `settle` then waits
        until it has seen them there. Flows that cannot be expressed as entries are deleted."""
        result: dict[str, Entries | Failure] = {}
        for name, found in self._held(switches).items():
            if isinstance(found, Failure):
                result[name] = found
                continue
            entries = frozenset(found.entries())
            self._ids[name] = {key: held.id for key, held in found.flows.items()}
            with self._lock:
                self._expected[name] = planning.confirming(found)
            result[name] = entries
            if found.strange:
                LOG.warning("switch '%s' has flows that something else changed: deleted", name)
                try:
                    self._calls([planning.delete_flows({self._devices[name]: found.strange})])
                except OnosError as error:
                    result[name] = _failure(error)
        return result

    def stats(self, switches: Iterable[str]) -> dict[str, SwitchStats | Failure]:
        """Return the counters of each switch, as old as ONOS's last poll."""
        try:
            ports = records.port_counts_of(self._rest.get("/statistics/ports"))
        except OnosError as error:
            return dict.fromkeys(switches, _failure(error))
        return {
            name: found
            if isinstance(found, Failure)
            else found.stats(ports.get(self._devices[name], {}))
            for name, found in self._held(switches).items()
        }


def _failure(error: OnosError) -> Failure:
    """Return why a switch did not confirm."""
    if isinstance(error, OnosRefused):
        return Failure(Why.REFUSED, str(error))
    return Failure(Why.NOT_CONNECTED, str(error))
