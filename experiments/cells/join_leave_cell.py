# SPDX-License-Identifier: Apache-2.0
"""One cell whose subscribers join and leave: several feeds, each with its own path, which the
publisher's ldmd makes, extends and prunes as subscriptions come and go. The cell itself only starts
and ends ldmd at subscribers."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from common import looking
from common.contracts import JOIN_LEAVE, MULTICAST_CLASS
from common.files import tail
from common.virtual_time import begin_afresh
from controller.api.path_client import (
    Endpoint,
    PathClient,
    PathClientError,
    endpoints_of,
)
from experiments.cells import path_entries, samplers
from experiments.cells.cell_base import (
    POLL_S,
    PROGRESS_S,
    CellBase,
    CellError,
    Step,
    emit,
)
from experiments.cells.cell_logs import LineCounter
from experiments.cells.job import REPLAYING, Job
from experiments.cells.run_directory import write_json, write_text
from experiments.design import borrowing, configs, shaping
from experiments.design.expansion import Feed, queue_bytes, receiver_queue_slots
from experiments.design.join_leave_expansion import FEED_SEEDS, JoinLeaveCell, traces_of
from experiments.design.join_leave_script import Event
from protocols import ldm
from topologies.emulate.emulation import Emulation
from topologies.model.network import Network

READY_S: Final = 60.0  # until a path is up, or the permanent subscribers are connected
SETTLE_S: Final = 5.0  # after the last product: repairs, and branches to be pruned


@dataclasses.dataclass(frozen=True)
class Subscription:
    """One subscriber of one feed: an ldmd with its own queue."""

    subscriber: str
    feed: Feed
    leaf: Endpoint
    products: int  # of the feed

    @property
    def name(self) -> str:
        """Return the name of the subscription's queue, log and list."""
        return f"{self.subscriber}.{self.feed.name}"

    @property
    def port(self) -> int:
        """Return the port of the subscription's ldmd; a host's ldmds each have their own."""
        return configs.LDM_PORT + self.feed.lane - 1


class JoinLeaveRun(CellBase):
    """The cell on a running network."""

    def __init__(self, job: Job, network: Network, emulation: Emulation, out: Path) -> None:
        super().__init__(job, network, emulation, out)
        assert isinstance(job.cell, JoinLeaveCell)
        self.plan: JoinLeaveCell = job.cell
        self.traces = traces_of(job.trace.read_text(encoding="ascii"))
        self.products = {name: len(text.splitlines()) for name, text in self.traces.items()}
        self.roots: dict[str, Endpoint] = {}
        self.subscriptions: dict[tuple[str, str], Subscription] = {}
        for feed in self.plan.feeds:
            self.roots[feed.name], leaves = endpoints_of(network, feed.lane)
            for subscriber, name in self.plan.subscriptions:
                if name == feed.name:
                    segment = network.segment_of(subscriber, feed.lane)
                    self.subscriptions[subscriber, name] = Subscription(
                        subscriber, feed, leaves[segment.name], self.products[name]
                    )
        self.events: list[dict[str, object]] = []  # events.json
        self.ending: list[subprocess.Popen[bytes]] = []

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps of the cell, in order."""
        return (
            ("probing the links", self.probe_links),
            ("shaping the sender", self.shape),
            ("creating the product queues", self.make_queues),
            ("starting the publisher, which makes the paths", self.start_publisher),
            ("starting the subscriptions that stay", self.subscribe_stayers),
            ("measuring round trips", self.measure),
            (REPLAYING, self.replay),
            # The script decides which hosts have a branch: paths-end.json shows it, pings cannot.
            ("checking the network again", lambda: self.look_again({})),
            ("ending the LDM servers", self.end_daemons),
            ("comparing the products", self.list_products),
        )

    def queue(self, name: str) -> Path:
        """Return the subscription's queue file. It has its own directory, as ldmd keeps what it
        remembers about its sessions beside it."""
        return self.queues / name / "products.pq"

    # -- set-up -------------------------------------------------------------------------------
    def shape(self) -> None:
        """Set and read back each feed's traffic control at the publisher."""
        if self.plan.lanes == "vlan":
            commands = self._shape_shared()
        else:
            commands = [command for feed in self.plan.feeds for command in self.shape_feed(feed)]
        write_json(
            self.out / "shaping.json",
            {
                "commands": [" ".join(c) for c in commands],
                "settings": [s.to_dict() for s in self.settings],
            },
        )
        if wrong := shaping.mismatches(self.settings):
            raise CellError("shaping is not as asked: " + "; ".join(wrong))

    def _shape_shared(self) -> list[list[str]]:
        """Set all feeds' queues on the NIC that they share; return the commands."""
        publisher, network, cell = self.network.publisher, self.network, self.plan
        groups = {f.lane: network.group_of(f.lane) for f in cell.feeds}
        nics = {f.lane: publisher.path_nic(f.lane) for f in cell.feeds}
        subnets = {lane: f"{nic.ip}/{nic.prefix_len}" for lane, nic in nics.items()}
        queues = borrowing.leaves(cell.feeds, groups, subnets, cell.b_mc_bytes, cell.b_uc_bytes)
        total = borrowing.total_bps(cell.feeds)
        nic = publisher.nic1.interface
        self.fidelity.asked.things |= borrowing.things(f"{self.publisher}/{nic}", queues)
        commands = borrowing.commands(nic, queues, total)
        for command in commands:
            self.run(self.publisher, command)
        self.note_settings(
            lambda: borrowing.read_back(
                self.run(self.publisher, shaping.qdisc_show(nic)),
                self.run(self.publisher, shaping.class_show(nic)),
                self.run(self.publisher, shaping.filter_show(nic)),
                queues,
                total,
            )
        )
        return commands

    def _shapers(self) -> dict[str, tuple[str, str]]:
        """Return log name -> (interface, class), for each feed's multicast and for a NIC that feeds
        share."""
        if self.plan.lanes == "nics":
            return {
                f"shaper.{feed.name}.log": (
                    self.emulation.nic1_of(self.publisher, feed.lane),
                    MULTICAST_CLASS,
                )
                for feed in self.plan.feeds
            }
        nic = self.network.publisher.nic1.interface
        of_feeds = {
            f"shaper.{feed.name}.log": (nic, borrowing.multicast_class(feed.lane))
            for feed in self.plan.feeds
        }
        return {**of_feeds, borrowing.TOTAL_LOG: (nic, borrowing.TOTAL_CLASS)}

    def make_queues(self) -> None:
        """Make a queue for the publisher and one for each subscription."""
        trace_bytes = int(self.job.trace_info["bytes"])
        all_bytes = queue_bytes(trace_bytes, self.plan.q_snd_bytes)
        self.make_queue(self.publisher, all_bytes, self.plan.n_snd)
        for subscription in self.subscriptions.values():
            text = self.traces[subscription.feed.name]
            size = sum(int(line.split(" ", 1)[0]) for line in text.splitlines())
            slots = receiver_queue_slots(subscription.products)
            self.make_queue(subscription.name, queue_bytes(size, 0), slots)

    def start_publisher(self) -> None:
        """Start the publisher's ldmd."""
        service = self.emulation.controller_socket
        conf = configs.publisher_conf(self.network, self.plan, self.roots, service)
        self.start_daemon(self.publisher, self.publisher, conf)
        self._await(
            {
                name: LineCounter(self.log(self.publisher), (f"path ready: path={name},",))
                for name in self.roots
            },
            "no path yet for",
        )

    def subscribe_stayers(self) -> None:
        """Start the subscriptions that stay from the start to the end."""
        waiting = {}
        for event in self.plan.script:
            if event.at_s == 0:
                self._do(event)
                name = self.subscriptions[event.subscriber, event.feed].name
                waiting[name] = LineCounter(self.log(name), (" Receiving",))
        self._await(waiting, "not connected:")
        self.save_paths("paths-start.json")

    def measure(self) -> None:
        """Measure over the branches of subscriptions that stay; the others come and go."""
        lanes = {f.name: f.lane for f in self.plan.feeds}
        self.rtt_measured_ms = self.measure_round_trips(
            {e.subscriber: lanes[e.feed] for e in self.plan.script if e.at_s == 0}
        )

    def _await(self, counters: dict[str, LineCounter], what: str) -> None:
        deadline = time.monotonic() + READY_S
        while waiting := [name for name, counter in counters.items() if counter.poll() == 0]:
            self.check_daemons()
            if time.monotonic() > deadline:
                first = waiting[0] if waiting[0] in self.daemons else self.publisher
                raise CellError(f"{what} {', '.join(waiting)}. {first} says:\n{self._says(first)}")
            time.sleep(POLL_S)

    def _says(self, name: str) -> str:
        return tail(self.log(name))

    # -- the script ---------------------------------------------------------------------------
    def _do(self, event: Event) -> None:
        """Do a join, a leave or a kill, and write its line in events.json."""
        subscription = self.subscriptions[event.subscriber, event.feed]
        name = subscription.name
        self.events.append({**dataclasses.asdict(event), "time_s": time.time()})
        if event.what == "join":
            self._await_ended()
            conf = configs.subscriber_conf(
                self.network,
                self.plan,
                self.network.host(event.subscriber),
                subscription.feed,
                subscription.leaf,
            )
            self.start_daemon(name, event.subscriber, conf, subscription.port)
            return
        process = self.daemons.pop(name)
        if event.what == "leave":
            process.send_signal(signal.SIGTERM)
        else:
            os.killpg(process.pid, signal.SIGKILL)  # ldmd and its children, as one session
        self.ending.append(process)

    def _await_ended(self) -> None:
        """Wait until a subscription's queue and ports are free again."""
        for process in self.ending:
            self.end(process, signal.SIGTERM)
        self.ending.clear()

    # -- replay -------------------------------------------------------------------------------
    def replay(self) -> None:
        """Sample the sender, replay all traces, follow the script, and wait for the products."""
        every = samplers.interval_s(self.plan.duration_s)
        self.save_state()
        self.free_what_changes()
        asked = self.fidelity.asked
        asked.free.add("programs")  # those of subscribers come and go, and their branches
        asked.paths = path_entries.BRANCHES
        asked.rate_bps = sum(feed.r_mc_bps + feed.r_uc_bps for feed in self.plan.feeds)
        with ExitStack() as stack:
            self.sample(stack, every, self._shapers())
            time.sleep(min(every, 2) + 0.2)  # one sample of the idle sender
            write_json(self.out / "counters-start.json", self.emulation.counters())
            begin_afresh()
            self._insert_and_follow()
            self.save_paths("paths-end.json")
            self._save_path_counters()
            write_json(self.out / "events.json", self.events)
            write_json(self.out / "counters-end.json", self.emulation.counters())
            time.sleep(min(every, 2) + 0.2)  # the interval that holds the last product

    def _save_path_counters(self) -> None:
        try:
            with PathClient(self.emulation.controller_socket) as service:
                counters = [service.counters(name) for name in self.roots]
        except PathClientError as error:
            raise CellError(f"the path service does not report its counters: {error}") from None
        write_json(self.out / "path-counters.json", counters)

    def _start_inserts(self) -> list[subprocess.Popen[bytes]]:
        inserts = []
        for feed in self.plan.feeds:
            trace = self.work / f"{feed.name}.trace.txt"
            write_text(trace, self.traces[feed.name])
            argv = ldm.pqinsert_argv(
                self.job.build,
                self.queue(self.publisher),
                trace,
                feed.name,
                self.plan.seed + FEED_SEEDS * (feed.lane - 1),
                self.publisher,
            )
            with (self.logs / f"pqinsert.{feed.name}.log").open("wb") as log:
                inserts.append(self.emulation.popen(self.publisher, argv, stdout=log, stderr=log))
        return inserts

    def _insert_and_follow(self) -> None:
        inserted = [
            LineCounter(self.logs / f"pqinsert.{feed.name}.log", (" Inserted: ",))
            for feed in self.plan.feeds
        ]
        last = {name: self._last_product(s) for (_, name), s in self.subscriptions.items()}
        script = [event for event in self.plan.script if event.at_s > 0]
        begin = time.time()
        self.times["insertion_started"] = begin
        inserts = self._start_inserts()
        told, deadline = 0.0, None
        arrived: dict[str, LineCounter] = {}
        while True:
            now = time.time()
            while script and begin + script[0].at_s <= now:
                self._do(script.pop(0))
            if deadline is None and all(p.poll() is not None for p in inserts):
                self._check_inserts(inserts)
                self.times["insertion_ended"] = now
            if deadline is None and "insertion_ended" in self.times and not script:
                deadline = now + self.plan.drain_timeout_s
                arrived = {
                    name: LineCounter(self.log(name), (last[name.partition(".")[2]],))
                    for name in self.daemons
                    if name != self.publisher
                }
            if now - told >= looking.every_s(PROGRESS_S):
                told = now
                emit(
                    {
                        "event": "progress",
                        "elapsed_s": round(now - begin, 1),
                        "products": sum(self.products.values()),
                        "inserted": sum(counter.poll() for counter in inserted),
                        "subscriptions": len(self.daemons) - 1,
                        "draining": deadline is not None,
                    }
                )
                self.check_daemons()
            if deadline is not None:
                self.drained = all(counter.poll() > 0 for counter in arrived.values())
                if self.drained or now > deadline:
                    break
            poll_s = looking.every_s(POLL_S)
            wait_s = poll_s if not script else begin + script[0].at_s - time.time()
            time.sleep(min(poll_s, max(0.0, wait_s)))
        self.times["drained"] = time.time()
        time.sleep(SETTLE_S)
        self._await_ended()

    def _last_product(self, subscription: Subscription) -> str:
        """Return the end of the line of the feed's last product, at a subscriber."""
        return f" {subscription.feed.name}.{subscription.products - 1:06d}"

    def _check_inserts(self, inserts: list[subprocess.Popen[bytes]]) -> None:
        for feed, process in zip(self.plan.feeds, inserts, strict=True):
            if process.returncode != 0:
                log = self.logs / f"pqinsert.{feed.name}.log"
                raise CellError(
                    f"pqinsert of {feed.name} ended with {process.returncode}:\n{tail(log)}"
                )

    # -- results ------------------------------------------------------------------------------
    def end_daemons(self) -> None:
        """End every ldmd, once those that are leaving have ended."""
        self._await_ended()
        super().end_daemons()

    def list_products(self) -> None:
        """List what the publisher and each subscription hold."""
        lists: list[tuple[str, str, str | None]] = [
            (f"{self.publisher}.{feed.name}", self.publisher, feed.name) for feed in self.plan.feeds
        ]
        lists += [(s.name, s.name, None) for s in self.subscriptions.values()]
        self.list_queues(lists)

    def cell_json(self) -> Mapping[str, object]:
        """Return the content of cell.json."""
        cell, network = self.plan, self.network
        return {
            **self.common_json(),
            **self.times,
            "kind": JOIN_LEAVE,
            "lanes": cell.lanes,
            "feeds": [
                {
                    **dataclasses.asdict(feed),
                    "products": self.products[feed.name],
                    "group": network.group_of(feed.lane),
                    "nic1": self.emulation.nic1_of(self.publisher, feed.lane),
                    "stays": [
                        e.subscriber for e in cell.script if e.at_s == 0 and e.feed == feed.name
                    ],
                }
                for feed in cell.feeds
            ],
            "endpoints": {
                s.name: f"{s.leaf.switch}:{s.leaf.port}:{s.leaf.vlan}"
                for s in self.subscriptions.values()
            },
            "parameters": {
                "RTT_i": sorted(set(network.round_trip_ms.values())),
                "b_mc": cell.b_mc_bytes,
                "b_uc": cell.b_uc_bytes,
                "b_rcv": cell.b_rcv_bytes,
                "f_snd": cell.f_snd,
                "f_rcv": cell.f_rcv,
                "q_snd": cell.q_snd_bytes,
                "n_snd": cell.n_snd,
                "tcp_congestion_control": self.emulation.facts.congestion_control,
            },
        }
