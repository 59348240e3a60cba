# SPDX-License-Identifier: Apache-2.0
"""Whatever happens in whatever order (requests, refusals, silence, lost switches and links, kills
at any message), the books, the store, the desired state and, once all is well again, the switches
agree with each other and with the answers to the requests."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller.paths.core import Endpoint
from controller.paths.forwarding import base_entries
from controller.paths.multipoint_path import MultipointPath
from controller.paths.plan import entries_of
from controller.paths.reservations import Reservations
from controller.service.problems import ServiceError
from controller.service.service import (
    Failure,
    HoldState,
    PathWish,
    Why,
)
from controller.tests.rig import Rig

NAMES = st.sampled_from(["a", "b", "c"])
RATES = st.sampled_from([0, 20_000_000, 60_000_000])


# No registered segments there, so that MACs are what the request says.
def endpoint(at: tuple[str, int], vlan: int, macs: tuple[int, ...]) -> Endpoint:
    addresses = [f"02:00:00:0{at[0][1]}:{vlan - 500:02x}:{mac:02x}" for mac in macs]
    return Endpoint.of(at[0], at[1], vlan, addresses)


ENDPOINTS = st.builds(
    endpoint,
    st.sampled_from([("s1", 1), ("s2", 9), ("s3", 9), ("s4", 9)]),
    st.integers(501, 504),
    st.sampled_from([(), (1,), (1, 2)]),
)
SWITCHES = st.sampled_from(["s1", "s2", "s3", "s4"])
LINKS = st.sampled_from(["s1:s2", "s2:s3", "s1:s3", "s2:s4", "s3:s4"])
HOLDS = st.sampled_from(["h1", "h2"])

# A request that fails with this status has still been carried out.
DONE_ALL_THE_SAME = 504


class Killed(BaseException):
    """The process ends here."""


class Machine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.rig = Rig()
        self.kill_after: int | None = None
        self.model: dict[str, tuple[Endpoint, int, frozenset[Endpoint]]] = {}
        self.wishes: dict[str, PathWish] = {}  # holds that are open
        really_apply = self.rig.apply

        def apply(changes: Any) -> Any:
            if self.kill_after is not None:
                self.kill_after -= 1
                if self.kill_after < 0:
                    raise Killed
            return really_apply(changes)

        self.rig.apply = apply  # type: ignore[method-assign]
        self.rig.service = self.rig.new_service()
        for switch in self.rig.net.switches:
            self.rig.service.switch_up(switch)

    # -- requests

    def ask(self, call: Any, *arguments: Any, **options: Any) -> bool:
        """Return whether the request was carried out."""
        try:
            call(*arguments, **options)
        except ServiceError as error:
            assert error.status in (403, 404, 409, 422, 502, 504), error.detail
            return error.status == DONE_ALL_THE_SAME
        except Killed:
            self.kill_after = None
            self.rig.restart()
            self.model = {
                view.path.name: (view.path.root, view.path.rate_bps, frozenset(view.path.leaves))
                for view in self.rig.service.paths()
            }
            self.wishes = {
                name: wish
                for name, wish in self.wishes.items()
                if self.rig.service.hold_view(name).state is HoldState.HELD
            }
            return False
        return True

    @rule(name=NAMES, root=ENDPOINTS, rate_bps=RATES)
    def create(self, name: str, root: Endpoint, rate_bps: int) -> None:
        if self.ask(self.rig.service.create, name, root, rate_bps):
            self.model.setdefault(name, (root, rate_bps, frozenset()))
            assert self.model[name][:2] == (root, rate_bps)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), leaf=ENDPOINTS)
    def add_leaf(self, data: st.DataObject, leaf: Endpoint) -> None:
        name = data.draw(st.sampled_from(sorted(self.model)))
        if self.ask(self.rig.service.add_leaf, name, leaf):
            root, rate_bps, leaves = self.model[name]
            self.model[name] = (root, rate_bps, leaves | {leaf})

    @precondition(lambda self: any(leaves for _, _, leaves in self.model.values()))
    @rule(data=st.data())
    def remove_leaf(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(n for n in self.model if self.model[n][2])))
        leaf = data.draw(st.sampled_from(sorted(self.model[name][2])))
        if self.ask(self.rig.service.remove_leaf, name, leaf.key):
            root, rate_bps, leaves = self.model[name]
            self.model[name] = (root, rate_bps, leaves - {leaf})

    @precondition(lambda self: any(leaves for _, _, leaves in self.model.values()))
    @rule(data=st.data(), mac=st.integers(1, 9))
    def set_macs(self, data: st.DataObject, mac: int) -> None:
        name = data.draw(st.sampled_from(sorted(n for n in self.model if self.model[n][2])))
        leaf = data.draw(st.sampled_from(sorted(self.model[name][2])))
        macs = (f"02:00:00:00:00:0{mac}",)
        if self.ask(self.rig.service.set_macs, name, leaf.key, macs):
            root, rate_bps, leaves = self.model[name]
            other = Endpoint.of(*leaf.key, macs)
            self.model[name] = (root, rate_bps, leaves - {leaf} | {other})

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if self.ask(self.rig.service.delete, name):
            del self.model[name]

    @rule(
        hold_id=HOLDS,
        name=NAMES,
        root=ENDPOINTS,
        rate_bps=RATES,
        leaves=st.sets(ENDPOINTS, max_size=2),
    )
    def hold(
        self, hold_id: str, name: str, root: Endpoint, rate_bps: int, leaves: set[Endpoint]
    ) -> None:
        if name in self.model:
            root, rate_bps = self.model[name][:2]
        wish = PathWish(name, root, rate_bps, leaves=tuple(sorted(leaves)))
        until = self.rig.clock() + 30
        if self.ask(self.rig.service.hold, hold_id, wish, until) and (
            self.rig.service.hold_view(hold_id).state is HoldState.HELD
        ):
            self.wishes[hold_id] = wish

    @rule(hold_id=HOLDS)
    def commit(self, hold_id: str) -> None:
        wish = self.wishes.get(hold_id)
        done = self.ask(self.rig.service.commit, hold_id)
        if wish is None or hold_id not in self.wishes:
            return
        if self.rig.service.hold_view(hold_id).state is HoldState.HELD:
            assert not done
            return
        del self.wishes[hold_id]
        if done:
            root, rate_bps, leaves = self.model.get(
                wish.name, (wish.root, wish.rate_bps, frozenset())
            )
            by_key = {leaf.key: leaf for leaf in leaves}
            for leaf in wish.leaves:
                if leaf.macs or leaf.key not in by_key:
                    by_key[leaf.key] = leaf
            self.model[wish.name] = (root, rate_bps, frozenset(by_key.values()))

    @rule(hold_id=HOLDS)
    def release(self, hold_id: str) -> None:
        if self.ask(self.rig.service.release, hold_id):
            self.wishes.pop(hold_id, None)

    @rule(seconds=st.sampled_from([1, 31, 4000]))
    def time_passes(self, seconds: int) -> None:
        self.rig.clock.now += seconds
        self.rig.service.expire()
        if seconds > 30:
            self.wishes.clear()

    # -- what goes wrong

    @rule(switch=SWITCHES)
    def switch_lost(self, switch: str) -> None:
        self.rig.failing[switch] = Failure(Why.NOT_CONNECTED)
        self.rig.service.switch_down(switch)

    @rule(switch=SWITCHES)
    def switch_silent(self, switch: str) -> None:
        """The switch acts on messages, and its confirmations are lost."""
        self.rig.silent.add(switch)

    @rule(switch=SWITCHES, done=st.integers(0, 4))
    def switch_refuses_once(self, switch: str, done: int) -> None:
        self.rig.refuse_next[switch] = done

    @rule(switch=SWITCHES, emptied=st.booleans())
    def switch_back(self, switch: str, emptied: bool) -> None:
        self.rig.failing.pop(switch, None)
        self.rig.silent.discard(switch)
        if emptied:
            self.rig.net.switches[switch].__init__(switch)  # type: ignore[misc]
        self.ask(self.rig.service.switch_up, switch)

    @rule(link=LINKS, up=st.booleans())
    def link_changes(self, link: str, up: bool) -> None:
        if not self.ask(self.rig.service.link_changed, link, up):
            for known in list(self.rig.service.down_links()):
                self.rig.service.link_changed(known, True)
        self.forget_dropped_holds()

    def forget_dropped_holds(self) -> None:
        for hold_id in list(self.wishes):
            if self.rig.service.hold_view(hold_id).state is not HoldState.HELD:
                del self.wishes[hold_id]

    @rule(after=st.integers(0, 5))
    def kill_soon(self, after: int) -> None:
        self.kill_after = after

    @rule()
    def restart(self) -> None:
        self.kill_after = None
        self.rig.restart()

    @rule()
    def all_is_well_again(self) -> None:
        self.kill_after = None
        self.rig.failing.clear()
        self.rig.silent.clear()
        self.rig.refuse_next.clear()
        for switch in self.rig.net.switches:
            self.rig.service.switch_up(switch)
        for link in self.rig.service.down_links():
            self.rig.service.link_changed(link, True)
        self.forget_dropped_holds()
        self.rig.assert_settled()
        assert self.rig.service.state.quarantine.is_empty  # every id that no path has is free again
        assert self.rig.store.load().blocked == ()
        for view in self.rig.service.paths():
            assert view.up, view.path

    # -- what must hold at any time

    @invariant()
    def paths_are_what_was_answered(self) -> None:
        found = {
            view.path.name: (view.path.root, view.path.rate_bps, frozenset(view.path.leaves))
            for view in self.rig.service.paths()
        }
        assert found == self.model

    @invariant()
    def store_and_books_agree(self) -> None:
        service = self.rig.service
        loaded = self.rig.store.load()
        paths = {view.path.name: view.path for view in service.paths()}
        assert {path.name: path for path in loaded.paths} == paths
        fresh = Reservations(service.core)
        expected: dict[str, MultipointPath] = dict(paths)
        for hold in service.state.holds.open():
            assert hold.new is not None
            expected[hold.name] = hold.new
        for path in expected.values():
            fresh.replace(None, path)
        assert dict(service.state.reservations.paths) == expected
        assert service.state.reservations._reserved == fresh._reserved
        assert service.state.reservations._owners == fresh._owners

    @invariant()
    def desired_is_what_the_paths_need(self) -> None:
        service = self.rig.service
        expected = {switch: set(entries) for switch, entries in base_entries(service.core).items()}
        for view in service.paths():
            for switch, entries in entries_of(service.core, view.path).items():
                expected[switch] |= entries
        for switch in expected:
            assert service.desired(switch) == expected[switch], switch

    @invariant()
    def known_switches_hold_what_is_desired(self) -> None:
        for switch, known in self.rig.service.switches().items():
            if known:
                assert self.rig.net.switches[switch].entries() == self.rig.service.desired(switch)

    @invariant()
    def nobody_is_busy(self) -> None:
        assert not self.rig.service.state.busy


TestService = pytest.mark.slow(Machine.TestCase)
TestService.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
