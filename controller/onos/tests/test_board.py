# SPDX-License-Identifier: Apache-2.0
"""The path service over a stand-in for ONOS."""

from __future__ import annotations

import pytest

from common.onos import OnosError
from controller.onos import board as board_module
from controller.onos.board import OnosBoard
from controller.onos.planning import SETTINGS
from controller.onos.records import APPLICATION, device_of
from controller.onos.tests.fake_onos import PENDING_ADD, FakeOnos
from controller.paths.core import core_of
from controller.paths.entries import Entry
from controller.paths.forwarding import base_entries
from controller.paths.messages import Barrier, Change, Command
from controller.service.service import PathService, ServiceError
from controller.service.store import Store
from controller.switches.installer import Failure, Why
from controller.switches.switchboard import Event
from controller.tests.sample import LEAF_2, LEAF_3, LEAF_4, ROOT, network

DOMAIN = "core"
RATE = 20_000_000


class Rig:
    def __init__(self) -> None:
        self.network = network()
        dpids = core_of(self.network, DOMAIN).dpids
        self.devices = {name: device_of(dpid) for name, dpid in dpids.items()}
        self.onos = FakeOnos(list(self.devices.values()))
        self.store = Store(None, self.network.name, DOMAIN)
        self.start()
        self.look()

    def start(self) -> None:
        """Start the path service, also again."""
        self.board = OnosBoard(core_of(self.network, DOMAIN).dpids, self.onos)
        self.board.prepare()
        board = self.board
        self.service = PathService(
            self.network, DOMAIN, board.apply, board.read, settle=board.settle, store=self.store
        )
        self.board.desired = self.service.desired

    def look(self) -> list[Event]:
        """Look at ONOS once; return what happened, which the service has handled."""
        self.board.look()
        events = []
        while not self.board.events.empty():
            event = self.board.events.get()
            events.append(event)
            if event[0] == "up":
                self.service.switch_up(event[1])
            elif event[0] == "down":
                self.service.switch_down(event[1])
        return events

    def held(self) -> dict[str, frozenset[Entry]]:
        """Return what ONOS has for each switch."""
        found = self.board.read(self.devices)
        assert not any(isinstance(entries, Failure) for entries in found.values()), found
        self.board.settle(self.devices)
        return {name: e for name, e in found.items() if not isinstance(e, Failure)}

    def assert_settled(self) -> None:
        assert set(self.service.switches().values()) == {True}
        assert self.held() == {name: self.service.desired(name) for name in self.devices}

    def path(self) -> None:
        self.service.create("p", ROOT, RATE)
        for leaf in (LEAF_2, LEAF_3):
            self.service.add_leaf("p", leaf)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(board_module, "CONFIRM_S", 0.3)
    monkeypatch.setattr(board_module, "CONFIRM_LOOK_S", 0.001)
    monkeypatch.setattr(board_module, "GONE_S", 0.0)
    monkeypatch.setattr(board_module, "DEVICES_EVERY", 1)
    return Rig()


def test_onos_is_set_as_needed_and_only_where_it_differs(rig: Rig) -> None:
    assert rig.onos.settings == SETTINGS
    rig.onos.calls.clear()
    assert rig.board.prepare() == "2.7.0"
    assert rig.onos.calls == []


def test_switches_have_what_every_switch_has(rig: Rig) -> None:
    rig.assert_settled()
    assert rig.held() == base_entries(rig.service.core)


def test_paths_come_change_and_go(rig: Rig) -> None:
    rig.path()
    rig.assert_settled()
    rig.service.add_leaf("p", LEAF_4)
    rig.assert_settled()
    rig.service.remove_leaf("p", LEAF_2.key)
    rig.assert_settled()
    rig.service.delete("p")
    rig.assert_settled()
    assert rig.held() == base_entries(rig.service.core)


def test_a_leaf_changes_no_flow_of_others(rig: Rig) -> None:
    rig.path()
    before = {d: dict(flows) for d, flows in rig.onos.flows.items()}
    rig.onos.calls.clear()
    rig.service.add_leaf("p", LEAF_4)
    for device, flows in before.items():
        assert flows.items() <= rig.onos.flows[device].items()
    assert sum(call.endswith("/buckets") for call in rig.onos.calls) == 1
    assert sum(call == "POST /flows" for call in rig.onos.calls) <= 2


def test_what_onos_has_not_seen_is_not_confirmed(rig: Rig) -> None:
    rig.path()
    rig.onos.looks = False
    with pytest.raises(ServiceError) as caught:
        rig.service.add_leaf("p", LEAF_4)
    assert caught.value.status == 504
    assert "ONOS does not show" in caught.value.detail
    rig.onos.looks = True
    rig.service.retry(rig.board.connected_switches())
    rig.assert_settled()


def test_what_onos_refuses_is_undone(rig: Rig) -> None:
    rig.path()
    before = rig.held()
    rig.onos.refuses = "/flows"
    with pytest.raises(ServiceError) as caught:
        rig.service.add_leaf("p", LEAF_4)
    assert caught.value.status == 502
    rig.onos.refuses = ""
    rig.service.retry(rig.board.connected_switches())
    assert rig.held() == before


def test_onos_that_refuses_in_the_switch_is_undone(rig: Rig) -> None:
    rig.path()
    before = rig.held()
    rig.onos.fails = LEAF_4.port, LEAF_4.vlan
    with pytest.raises(ServiceError) as caught:
        rig.service.add_leaf("p", LEAF_4)
    assert caught.value.status == 502
    rig.onos.fails = None
    rig.service.retry(rig.board.connected_switches())
    assert rig.held() == before


def test_a_new_service_changes_nothing_that_is_as_it_should_be(rig: Rig) -> None:
    rig.path()
    rig.start()
    rig.onos.calls.clear()
    rig.look()
    assert rig.onos.calls == []
    rig.assert_settled()


def test_a_new_service_repairs_what_differs_and_leaves_strangers_alone(rig: Rig) -> None:
    rig.path()
    device = rig.devices["s1"]
    flows, groups = rig.onos.flows[device], rig.onos.groups[device]
    stranger = {**next(iter(flows.values())), "appId": "org.example"}
    gone = next(name for name, flow in flows.items() if flow["priority"] == 1000)
    del flows[gone]
    flows["stranger"] = stranger
    odd = next(flow for flow in flows.values() if flow["priority"] == 300)
    odd["selector"]["criteria"].append({"type": "UDP_DST", "udpPort": 7})
    next(iter(groups.values()))["buckets"].clear()
    rig.onos.meters[device][1]["bands"][0]["rate"] = 7
    rig.start()
    rig.look()
    rig.look()
    rig.service.retry(rig.board.connected_switches())
    rig.assert_settled()
    assert rig.onos.flows[device]["stranger"]["appId"] != APPLICATION


def test_onos_that_does_not_answer_and_comes_back(rig: Rig) -> None:
    rig.path()
    rig.onos.is_gone = True
    assert {event[0] for event in rig.look()} == {"down"}
    with pytest.raises(ServiceError) as caught:
        rig.service.add_leaf("p", LEAF_4)
    assert caught.value.status == 504
    rig.onos.is_gone = False
    for flows in rig.onos.flows.values():  # ONOS forgets flows when it ends
        flows.clear()
    rig.onos.settings["org.onosproject.net.flow.impl.FlowRuleManager"].clear()
    assert {event[0] for event in rig.look()} == {"up", "port"}
    assert rig.onos.settings == SETTINGS
    rig.assert_settled()


def test_a_short_pause_of_onos_disconnects_nobody(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_module, "GONE_S", 60.0)
    rig.onos.is_gone = True
    assert rig.look() == []
    rig.onos.is_gone = False
    assert rig.look() == []


def test_a_switch_that_leaves_onos(rig: Rig) -> None:
    rig.onos.available[rig.devices["s2"]] = False
    assert ("down", "s2") in rig.look()
    assert rig.board.connected_switches() == ["s1", "s3", "s4"]
    assert rig.board.read(["s2"]) == {"s2": Failure(Why.NOT_CONNECTED)}


def test_a_switch_that_leaves_onos_meanwhile_has_confirmed_nothing(rig: Rig) -> None:
    flow = next(iter(rig.service.desired("s2")))
    rig.onos.looks = False
    assert rig.board.apply({"s2": (Change(Command.MODIFY, flow), Barrier())}) == {}
    rig.onos.available[rig.devices["s2"]] = False
    rig.board.look()
    assert rig.board.settle(["s2"]) == {"s2": Failure(Why.NOT_CONNECTED)}


def test_counters(rig: Rig) -> None:
    rig.path()
    found = rig.board.stats(["s1"])["s1"]
    assert not isinstance(found, Failure)
    assert set(found.groups) == {1}
    assert 1 in found.meters
    rig.onos.is_gone = True
    assert isinstance(rig.board.stats(["s1"])["s1"], Failure)


def test_a_setting_that_does_not_stick_is_told(rig: Rig) -> None:
    name = "org.onosproject.net.meter.impl.MeterManager"

    class Stubborn(dict[str, str]):
        def update(self, *_: object) -> None:  # type: ignore[override]
            pass

    rig.onos.settings[name] = Stubborn(userDefinedIndex="false")
    with pytest.raises(OnosError, match="found userDefinedIndex = false; valid: true"):
        rig.board.prepare()


def test_entries_are_pending_until_onos_has_looked(rig: Rig) -> None:
    """A check of the stand-in."""
    rig.onos.looks = False
    rig.onos.call(
        "POST", f"/groups/{rig.devices['s1']}", {"appCookie": "0x1", "groupId": "1", "buckets": []}
    )
    assert rig.onos.groups[rig.devices["s1"]]["0x1"]["state"] == PENDING_ADD
