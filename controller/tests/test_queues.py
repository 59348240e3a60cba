# SPDX-License-Identifier: Apache-2.0
"""Which queue each port gets, and the keeper that follows the paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from controller.paths.core import Endpoint, core_of
from controller.paths.multipoint_path import MultipointPath
from controller.paths.plan import (
    Step,
    add_leaf,
    create_path,
    remove_leaf,
)
from controller.paths.queues import (
    PortKey,
    PortQueues,
    QueueClass,
    QueueError,
    QueueKeeper,
    queues_of,
    rated_ports,
)
from controller.paths.reservations import Reservations
from controller.service.service import ServiceError
from controller.tests.rig import Rig
from controller.tests.sample import LEAF_3, LEAF_4, ROOT, network

CORE = core_of(network(rate_to_s4_bps=100_000_000), "core")
# The links to s4 are the only ones with a rate; the path to it goes by s2.
S2_TO_S4, S4_TO_S2 = ("s2", 3), ("s4", 1)
S3_TO_S4, S4_TO_S3 = ("s3", 3), ("s4", 2)
FREE = PortQueues(100_000_000)


def path_to(*leaves: Endpoint, rate_bps: int = 20_000_000, number: int = 1) -> MultipointPath:
    reservations = Reservations(CORE)
    step = create_path(CORE, reservations, MultipointPath("p", number, ROOT, rate_bps))
    step.apply(reservations)
    for leaf in leaves:
        step = add_leaf(CORE, reservations, reservations.paths["p"], leaf)
        step.apply(reservations)
    return reservations.paths["p"]


def test_ports_of_links_with_a_rate() -> None:
    assert rated_ports(CORE) == dict.fromkeys((S2_TO_S4, S4_TO_S2, S3_TO_S4, S4_TO_S3), FREE)


def test_a_path_has_its_class_where_it_leaves_a_switch() -> None:
    path = path_to(LEAF_3, LEAF_4)
    (hop,) = (h for h in path.hops if h.link == "s2:s4")
    assert queues_of(CORE, [path]) == {
        **dict.fromkeys((S4_TO_S2, S3_TO_S4, S4_TO_S3), FREE),
        S2_TO_S4: PortQueues(100_000_000, (QueueClass(1, (hop.vlan,), 20_000_000),)),
    }


def test_a_path_without_guarantee_has_none() -> None:
    path = path_to(LEAF_4, rate_bps=0)
    assert all(queues.classes == () for queues in queues_of(CORE, [path]).values())


def test_default_class_gets_what_is_left() -> None:
    queues = PortQueues(100).with_share(2, 20, 30).with_share(1, 10, 20)
    assert [c.number for c in queues.classes] == [1, 2]
    assert PortQueues(100_000_000).default_bps == 99_936_000  # without 64 kbit/s for LLDP
    assert PortQueues(100_000_000).with_share(1, 10, 60_000_000).default_bps == 39_936_000
    # Everything is guaranteed: guarantees come first, but the class must have a rate.
    assert PortQueues(100_000_000).with_share(1, 10, 100_000_000).default_bps == 12_000


def test_two_leaves_on_one_port_are_two_copies() -> None:
    queues = PortQueues(100).with_share(1, 10, 20).with_share(1, 11, 20)
    assert queues.classes == (QueueClass(1, (10, 11), 40),)
    assert queues.without_share(1, 10).classes == (QueueClass(1, (11,), 20),)
    assert queues.without_share(1, 10).without_share(1, 11) == PortQueues(100)
    assert queues.without_share(1, 12) == queues
    assert queues.without_share(2, 10) == queues


class Recorder:
    sets_queue = False

    def __init__(self) -> None:
        self.calls: list[dict[PortKey, PortQueues]] = []
        self.refuses = False

    def apply(self, wanted: Mapping[PortKey, PortQueues]) -> None:
        if self.refuses:
            raise QueueError("no")
        self.calls.append(dict(wanted))


def test_keeper_widens_before_and_settles_after() -> None:
    driver = Recorder()
    keeper = QueueKeeper(CORE, driver)
    none, one, both = path_to(), path_to(LEAF_3), path_to(LEAF_3, LEAF_4)
    keeper.widen([(none, one)])
    keeper.settle([(none, one)])
    assert driver.calls == []  # no link of the path has a rate
    keeper.widen([(one, both)])
    ((port, queues),) = driver.calls.pop().items()
    assert (port, [c.number for c in queues.classes]) == (S2_TO_S4, [1])
    keeper.settle([(one, both)])
    assert driver.calls == []
    keeper.refresh("s4")
    assert driver.calls.pop() == {S4_TO_S2: FREE, S4_TO_S3: FREE}
    keeper.refresh("s2")
    assert driver.calls.pop() == {S2_TO_S4: queues}
    keeper.widen([(both, one)])
    assert driver.calls == []
    keeper.settle([(both, one)])
    assert driver.calls.pop() == {S2_TO_S4: PortQueues(100_000_000)}
    keeper.settle([(one, None)])
    assert driver.calls == []


def test_keeper_of_a_restarted_controller_and_of_a_driver_that_refuses() -> None:
    driver = Recorder()
    keeper = QueueKeeper(CORE, driver)
    both = path_to(LEAF_3, LEAF_4)
    keeper.load([both])
    assert driver.calls == []
    driver.refuses = True
    with pytest.raises(QueueError):
        keeper.settle([(both, None)])
    driver.refuses = False
    keeper.repair()  # what was refused is still to be done
    assert driver.calls.pop() == {S2_TO_S4: FREE}
    keeper.repair()
    assert driver.calls == []


def test_several_paths_change_at_once() -> None:
    driver = Recorder()
    keeper = QueueKeeper(CORE, driver)
    one, two = path_to(LEAF_4), path_to(LEAF_4, number=2, rate_bps=30_000_000)
    keeper.widen([(None, one), (None, two)])
    ((_, queues),) = driver.calls.pop().items()
    assert [(c.number, c.rate_bps) for c in queues.classes] == [(1, 20_000_000), (2, 30_000_000)]
    QueueKeeper(CORE, None).widen([(None, one)])  # no driver


def test_incremental_is_what_the_whole_gives() -> None:
    driver = Recorder()
    keeper = QueueKeeper(CORE, driver)
    reservations = Reservations(CORE)
    state: dict[PortKey, PortQueues] = rated_ports(CORE)
    steps = [create_path(CORE, reservations, MultipointPath("p", 7, ROOT, 30_000_000))]
    makers: list[Callable[[MultipointPath], Step]] = [
        lambda p: add_leaf(CORE, reservations, p, LEAF_4),
        lambda p: add_leaf(CORE, reservations, p, LEAF_3),
        lambda p: remove_leaf(CORE, reservations, p, LEAF_4.key),
        lambda p: add_leaf(CORE, reservations, p, LEAF_4),
    ]
    for make in makers:
        step = steps[-1]
        step.apply(reservations)
        keeper.widen([(step.old, step.new)])
        keeper.settle([(step.old, step.new)])
        for call in driver.calls:
            state.update(call)
        assert state == queues_of(CORE, reservations.paths.values())
        steps.append(make(reservations.paths["p"]))


# -- with the path service


def classes_at(driver: Recorder) -> dict[PortKey, list[int]]:
    """Return port -> numbers of the paths that have a class there, after all calls."""
    state: dict[PortKey, PortQueues] = {}
    for call in driver.calls:
        state.update(call)
    return {port: [c.number for c in q.classes] for port, q in state.items() if q.classes}


def test_service_sets_queues_and_takes_them_away() -> None:
    driver = Recorder()
    rig = Rig(queue_driver=driver)
    assert {port for call in driver.calls for port in call} == set(rated_ports(CORE))
    rig.service.create("p", ROOT, 20_000_000)
    rig.service.add_leaf("p", LEAF_4)
    assert classes_at(driver) == {S2_TO_S4: [1]}
    rig.service.remove_leaf("p", LEAF_4.key)
    assert classes_at(driver) == {}
    rig.service.add_leaf("p", LEAF_4)
    driver.calls.clear()
    rig.restart()  # with the same store: the path's classes come back with its switches
    assert classes_at(driver) == {S2_TO_S4: [1]}
    rig.service.delete("p")
    assert classes_at(driver) == {}


def test_a_leaf_without_its_queue_is_refused_and_undone() -> None:
    driver = Recorder()
    rig = Rig(queue_driver=driver)
    rig.service.create("p", ROOT, 20_000_000)
    before = rig.entries()
    driver.refuses = True
    with pytest.raises(ServiceError) as error:
        rig.service.add_leaf("p", LEAF_4)
    assert (error.value.status, error.value.kind) == (502, "queues")
    assert error.value.detail.endswith(": no")
    assert rig.entries() == before
    assert rig.service.path("p").path.leaves == ()
    driver.refuses = False
    rig.service.retry([])
    assert classes_at(driver) == {}
    rig.service.add_leaf("p", LEAF_4)
    assert classes_at(driver) == {S2_TO_S4: [1]}


def test_what_is_no_path_any_more_goes_even_if_its_queues_do_not() -> None:
    driver = Recorder()
    rig = Rig(queue_driver=driver)
    rig.service.create("p", ROOT, 20_000_000)
    rig.service.add_leaf("p", LEAF_4)
    driver.refuses = True
    rig.service.delete("p")
    driver.refuses = False
    rig.service.retry([])
    assert classes_at(driver) == {}
