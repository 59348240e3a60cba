# SPDX-License-Identifier: Apache-2.0
"""A cell of the papers' experiments: one feed over LDM7 or LDM6, with all subscribers from the
start to the end. It replays, waits, collects and judges."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from common.contracts import MULTICAST_CLASS
from common.counting import counted
from common.files import tail
from common.virtual_time import begin_afresh
from controller.api.path_client import PathClient, PathClientError, endpoints_of
from experiments.cells import congestion_control, samplers
from experiments.cells.background_traffic import Background, BackgroundError
from experiments.cells.cell_base import (
    POLL_S,
    PROGRESS_S,
    CellBase,
    CellError,
    Step,
    progress,
)
from experiments.cells.cell_logs import LineCounter
from experiments.cells.job import REPLAYING, Job
from experiments.cells.minute_records import MinuteRecords, MonitorError
from experiments.cells.own_vlans import OwnVlans
from experiments.cells.pauses import Pauses, Stop
from experiments.cells.replay_parameters import parameters
from experiments.cells.run_directory import write_json, write_text
from experiments.design import (
    burst_loss,
    configs,
    loss_model,
    shaping,
)
from experiments.design.expansion import (
    congestion_window_bytes,
    holds_the_replay,
    queue_bytes,
    receiver_queue_slots,
)
from experiments.design.shaping import Setting
from protocols import ldm, registry
from protocols.adapter import Adapter
from topologies.emulate.emulation import Emulation
from topologies.model.network import Link, Network
from topologies.model.paths import handoff_of

READY_S: Final = 30.0  # until all subscribers are connected, and 2 s more for each
READY_PER_HOST_S: Final = 2.0


class CellRun(CellBase):
    """The cell on a running network. Every step leaves its results in the cell's directory."""

    def __init__(self, job: Job, network: Network, emulation: Emulation, out: Path) -> None:
        super().__init__(job, network, emulation, out)
        (self.feed,) = self.cell.feeds
        self.nic1 = emulation.nic1_of(self.publisher)
        self.multicast = self.cell.multicast_of(self.subscribers)
        self.upstreams = self.cell.upstreams(self.subscribers)
        self.max_rtt_ms = max(network.round_trip_ms[h] for h in self.subscribers)
        self.tbf_limit = self.cell.tbf_limit_bytes(self.max_rtt_ms)
        self.window_bytes = congestion_window_bytes(
            self.cell.f_cwnd_factor, self.cell.r_uc_bps, self.max_rtt_ms
        )
        self._tcp, self._tcp_others = congestion_control.Chosen(), ""
        p_i = self.cell.by_receiver(self.subscribers, "p_i")
        self.loss_of = {h: p_i.get(h, self.cell.loss) for h in self.subscribers}
        self.loss_models: dict[str, str] = {}  # subscriber -> hash, bursts, or random and why
        self.background: Background | None = None
        self._to_cut = handoff_of(network) if self.cell.cut != "none" else None
        self._cut: Link | None = None
        self.vlans = OwnVlans(self, self.multicast) if self.cell.ldmd_makes_vlans else None
        self.monitor: MinuteRecords | None = None
        if "minutes" in job.samples and self.multicast:
            self.monitor = MinuteRecords(emulation, network, job.build, self.queues, out)

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps of the cell, in order."""
        prepare: tuple[Step, ...] = (
            ("shaping the sender, injecting loss", self.shape),
            ("creating the product queues", self.make_queues),
            ("starting the LDM servers", self.start_daemons),
            ("waiting for the subscribers", self.await_ready),
        )
        end: tuple[Step, ...] = (("ending the LDM servers", self.end_daemons),)
        if self.vlans is not None:
            leave = ("removing the interfaces that the subscribers make", self.vlans.leave)
            look = ("checking the subscribers' interfaces", self.vlans.check_made)
            prepare = (leave, *prepare, look)
            end = (*end, ("checking for leftover interfaces", self.vlans.check_gone))
        if self.cell.ldmd_shapes:
            prepare = (*prepare, ("checking the sender's queues", self.check_queues))
        if not self.cell.makes_path:
            # The publisher's ldmd makes the path, and subscriptions make its tree grow.
            prepare = (
                *prepare,
                ("checking the path", self.check_path),
                ("measuring round trips", self.measure),
            )
        else:
            # The loss injected for LDM6 would also hit pings.
            prepare = (
                ("creating the path", self.make_path),
                ("checking the path", self.check_path),
                ("measuring round trips", self.measure),
                *prepare,
            )
        if self.monitor is not None:
            prepare = (*prepare, ("starting the monitor", self.start_monitor))
        if self.cell.background_flows:
            prepare = (*prepare, ("starting the competing flows", self.start_background))
        return (
            ("probing the links", self.probe_links),
            *prepare,
            (REPLAYING, self.replay),
            *((("ending the monitor", self.monitor.finish),) if self.monitor is not None else ()),
            ("checking the network again", self.look_back),
            *end,
            ("comparing the products", self.list_products),
        )

    # -- set-up -------------------------------------------------------------------------------
    def make_path(self) -> None:
        """Make the multipoint path from the publisher to every segment."""
        root, leaves = endpoints_of(self.network)
        try:
            with PathClient(self.emulation.controller_socket) as service:
                service.create_path(self.feed.name, root, self.feed.r_vn_bps)
                for name in sorted(self._segments()):
                    service.add_leaf(self.feed.name, leaves[name])
        except PathClientError as error:
            raise CellError(f"the path service refused the path: {error}") from None

    def check_path(self) -> None:
        """Check that the path is up, with a leaf for each segment of subscribers."""
        paths = {path["name"]: path for path in self.save_paths("paths.json")}
        path = paths.get(self.feed.name, {"state": "missing", "leaves": []})
        if path["state"] != "up":
            raise CellError(
                f"path {self.feed.name} is {path['state']}, not up: see paths.json and "
                "logs/controller-*.log"
            )
        leaves, segments = len(path["leaves"]), len(self._segments())
        if leaves != segments:
            raise CellError(
                f"path {self.feed.name} has {counted(leaves, 'leaf', 'leaves')} "
                f"for {counted(segments, 'segment')}: see paths.json"
            )

    def _segments(self) -> set[str]:
        return {self.network.segment_of(host).name for host in self.multicast}

    def measure(self) -> None:
        """Measure the round trip of each subscriber, before the replay."""
        self.rtt_measured_ms = self.measure_round_trips(dict.fromkeys(self.multicast, 1))

    def look_back(self) -> None:
        """Read settings, delays and round trips again, after the replay."""
        self._tcp_others = congestion_control.others(
            self.emulation, [self.publisher, *self.subscribers], self._tcp.name
        )
        if self._cut is not None:
            self.emulation.mend(self._cut.name)
        # The loss injected for LDM6 also hits pings, and no path returns to a repaired link.
        lossless = self.cell.is_multicast or self.cell.loss == 0
        hosts = self.multicast if lossless and self._cut is None else []
        self.look_again(dict.fromkeys(hosts, 1))

    def shape(self) -> None:
        """Set the publisher's traffic control, the subscribers' loss, and TCP's congestion
        control."""
        if self.cell.is_multicast:
            commands = self.shape_feed(self.feed)
        else:
            self.fidelity.asked.things |= shaping.tbf_things(f"{self.publisher}/{self.nic1}")
            commands = shaping.tbf_commands(self.nic1, self.cell.shaped_bps, self.tbf_limit)
            for command in commands:
                self.run(self.publisher, command)
            self.note_settings(
                lambda: shaping.read_back_tbf(
                    self.run(self.publisher, shaping.qdisc_show(self.nic1)),
                    rate_bps=self.cell.shaped_bps,
                    limit_bytes=self.tbf_limit,
                )
            )
        loss_text = {host: self._inject_loss(host) for host in self.multicast}
        hosts = [self.publisher, *self.subscribers]
        self._tcp = congestion_control.choose(
            self.emulation, hosts, self.cell.tcp_congestion_control, self.window_bytes
        )
        self._set_tcp()
        self.settings += self.fidelity.read(self.read_back_clocks)
        write_json(
            self.out / "shaping.json",
            {
                "commands": [" ".join(c) for c in commands],
                "loss_commands": loss_text,
                "loss_models": self.loss_models,
                "settings": [s.to_dict() for s in self.settings],
                "tcp_congestion_control": self._tcp.text,
            },
        )
        if wrong := shaping.mismatches(self.settings):
            raise CellError("shaping is not as asked: " + "; ".join(wrong))

    def check_queues(self) -> None:
        """Compare the queues that ldmd made with the plan, as `shape` does with the cell's own."""
        self.read_queues(self.feed)
        self.save_settings()
        if wrong := shaping.mismatches(self.settings):
            raise CellError("the shaping that ldmd set up is not as asked: " + "; ".join(wrong))

    def _inject_loss(self, host: str) -> list[str]:
        """Inject the loss at one subscriber and read it back; return the commands."""
        cell, nic = self.cell, self.emulation.nic1_of(host)
        udp_only = cell.is_multicast
        if cell.bursts and self.loss_of[host] > 0:
            return self._inject_bursts(host, nic, udp_only)
        # Arrivals are counted even without loss, to show that nothing else drops any.
        commands = [shaping.arrival_command(nic, udp_only)]
        self.run(host, commands[0])
        if cell.loss_period:
            return [" ".join(c) for c in (*commands, self._drop_every(host, nic))]
        program = None
        if self.loss_of[host] > 0:
            command, program = self._drop_packets(host, nic, udp_only)
            commands.append(command)
        self._read_back_loss(host, nic, udp_only, program)
        return [" ".join(command) for command in commands]

    def _drop_every(self, host: str, nic: str) -> list[str]:
        """Add the rule that drops every nth datagram, and read it back."""
        period = self.cell.loss_period
        command = shaping.period_command(nic, period)
        self.run(host, command)
        self.loss_models[host] = f"every {period}th"
        self.settings += self.fidelity.read(
            lambda: shaping.read_back_period(self.run(host, shaping.IPTABLES_SHOW), host, period)
        )
        return command

    def _drop_packets(self, host: str, nic: str, udp_only: bool) -> tuple[list[str], str | None]:
        """Add the rule that drops packets; return its command and its BPF program. If the kernel
        has no bpf match, it draws the packets at random (program None)."""
        cell, loss = self.cell, self.loss_of[host]
        program: str | None = None
        model = loss_model.in_force(cell.loss_model, registry.get(cell.protocol).distinct)
        if model == "hash":
            program = loss_model.program(loss, loss_model.loss_seed(cell.seed, host))
        command = shaping.loss_command(nic, loss, udp_only, program)
        done = self.emulation.run(host, command, check=False)
        if done.returncode == 0:
            self.loss_models[host] = model
            return command, program
        if program is None:
            raise CellError(f"{host}: {' '.join(command)}: {done.stderr.strip()}")
        self.loss_models[host] = f"random ({loss_model.not_replayable(done.stderr)})"
        command = shaping.loss_command(nic, loss, udp_only, None)
        self.run(host, command)
        return command, None

    def _read_back_loss(self, host: str, nic: str, udp_only: bool, program: str | None) -> None:
        """Note the loss rules that the kernel reports at one subscriber."""
        self.settings += self.fidelity.read(
            lambda: shaping.read_back_loss(
                self.run(host, shaping.IPTABLES_SHOW),
                host,
                interface=nic,
                loss=self.loss_of[host],
                udp_only=udp_only,
                program=program,
            )
        )

    def _inject_bursts(self, host: str, nic: str, udp_only: bool) -> list[str]:
        """Do the same for losses in bursts; their rules are in `loss/<host>.rules`."""
        cell, loss = self.cell, self.loss_of[host]
        seed = loss_model.loss_seed(cell.seed, host)
        asked = burst_loss.rules(
            burst_loss.pattern(loss, cell.loss_burst_packets, seed), nic, udp_only
        )
        path = self.out / "loss" / f"{host}.rules"
        path.parent.mkdir(exist_ok=True)
        write_text(path, asked)
        command = [*burst_loss.RESTORE, str(path)]
        self.files.put(host, path)
        self.run(host, command)
        self.loss_models[host] = "bursts"
        self.fidelity.asked.things[f"{host} firewall"] = burst_loss.firewall(asked)
        self.settings += self.fidelity.read(
            lambda: burst_loss.read_back(
                self.run(host, list(burst_loss.SAVE)),
                host,
                asked,
                loss,
                cell.loss_burst_packets,
            )
        )
        return [" ".join(command)]

    def _set_tcp(self) -> None:
        """Change TCP's settings at every host, as the cell's conditions ask."""
        for name, value in self.cell.conditions.sysctls.items():
            for host in (self.publisher, *self.subscribers):
                self.run(host, ["sysctl", "-q", "-w", f"net.ipv4.{name}={value}"])
                self.fidelity.asked.things[f"{host} sysctl ipv4/{name}"] = value
                found = self.run(host, ["sysctl", "-n", f"net.ipv4.{name}"]).strip()
                self.settings.append(Setting(f"{host} net.ipv4.{name}", value, found))

    def make_queues(self) -> None:
        """Make a queue at the publisher and at each subscriber."""
        products, size = self.job.trace_info["products"], self.job.trace_info["bytes"]
        for host in [self.publisher, *self.subscribers]:
            if host == self.publisher:
                bytes_, slots = queue_bytes(size, self.cell.q_snd_bytes), self.cell.n_snd
            else:
                bytes_ = queue_bytes(size, self.cell.q_rcv_bytes)
                slots = receiver_queue_slots(products)
            self.make_queue(host, bytes_, slots)
            if not holds_the_replay(bytes_, size) or slots < products:
                self.follow_queue(host)

    def start_daemons(self) -> None:
        """Start ldmd at the publisher and at each subscriber."""
        root, leaves = endpoints_of(self.network)
        roots = {self.feed.name: root}
        service = self.emulation.controller_socket
        if self.publisher in self.emulation.elsewhere:
            there = self.emulation.elsewhere[self.publisher]
            there.share(service.parent)
            there.forward(service)
        publisher = configs.publisher_conf(self.network, self.cell, roots, service)
        publisher += configs.queue_settings(self.cell, self.nic1, self.job.build)
        self.start_daemon(self.publisher, self.publisher, publisher)
        for name, upstream in self.upstreams.items():
            source = self.network.host(upstream or self.publisher)
            conf = configs.unicast_conf(self.cell, self.feed, source)
            self.start_daemon(name, name, conf)
        for name in self.multicast:
            leaf = leaves[self.network.segment_of(name).name]
            host = self.network.host(name)
            conf = configs.subscriber_conf(self.network, self.cell, host, self.feed, leaf)
            conf += configs.vlan_settings(self.cell, self.emulation.facts.edge_tags, self.job.build)
            self.start_daemon(name, name, conf)

    def await_ready(self) -> None:
        """Wait until every subscriber is connected to the publisher."""
        deadline = time.monotonic() + READY_S + READY_PER_HOST_S * self.cell.m
        counters = {
            h: LineCounter(self.log(h), self._adapter(h).ready_words) for h in self.subscribers
        }
        while True:
            waiting = [h for h, c in counters.items() if c.poll() == 0]
            if not waiting:
                return
            self.check_daemons()
            if time.monotonic() > deadline:
                first = waiting[0]
                raise CellError(
                    f"{len(waiting)} of {self.cell.m} subscribers are not connected "
                    f"({', '.join(waiting)}). {first} says:\n{tail(self.log(first))}"
                )
            time.sleep(POLL_S)

    def _adapter(self, host: str) -> Adapter:
        return registry.get("ldm6" if host in self.upstreams else self.cell.protocol)

    def start_monitor(self) -> None:
        """Start the monitor, and rtstats at the publisher and at each subscriber that gets
        multicast."""
        assert self.monitor is not None
        try:
            self.monitor.start(self.work)
            if (node := self.network.monitor) is not None:
                publisher = self.network.publisher.nic2.ip
                self.run(node.name, shaping.monitor_command(publisher))
            for host in (self.publisher, *self.multicast):
                self.monitor.follow(host, self.log(host), self.clock_of(host))
            self.monitor.check()
        except MonitorError as error:
            raise CellError(f"the monitor: {error}") from None

    def start_background(self) -> None:
        """Start the competing flows; they run until the replay is over."""
        flows = self.cell.background_flows
        try:
            self.background = Background(self.emulation, self.network, self.subscribers, flows)
            self.background.start(self.logs, self.cell.duration_s)
        except BackgroundError as error:
            raise CellError(str(error)) from None

    def end_all(self) -> None:
        """End whatever still runs, competing flows included."""
        if self.background is not None:
            self.background.stop()
        if self.monitor is not None:
            self.monitor.stop()
        super().end_all()

    # -- replay -------------------------------------------------------------------------------
    def replay(self) -> None:
        """Sample the sender, replay the trace, and wait until all products are everywhere."""
        every = samplers.interval_s(self.cell.duration_s)
        self.save_state()
        self._expect()
        with ExitStack() as stack:
            classid = MULTICAST_CLASS if self.cell.is_multicast else ""
            self.sample(stack, every, {"shaper.log": (self.nic1, classid)})
            time.sleep(min(every, 2) + 0.2)  # one sample of the idle sender
            write_json(self.out / "counters-start.json", self.emulation.counters())
            begin_afresh()
            self._insert_with_pauses()
            write_json(self.out / "counters-end.json", self.emulation.counters())
            time.sleep(min(every, 2) + 0.2)  # the interval that holds the last product
        if self.background is not None:
            try:
                self.background.finish()
            except BackgroundError as error:
                raise CellError(str(error)) from None

    def expect_of_sender(self, *, multicast: bool) -> None:
        """Note how fast the sender sends, how much, and to which groups; by unicast, a copy to each
        receiver."""
        cell, asked = self.cell, self.fidelity.asked
        asked.rate_bps = cell.r_mc_bps + cell.r_uc_bps if multicast else cell.shaped_bps
        asked.size_bytes = self.job.trace_info["bytes"] * (1 if multicast else cell.m)
        asked.groups = {self.network.multicast_group: self.multicast} if multicast else {}

    def _expect(self) -> None:
        """Note what the network must show while the replay runs, besides its plan."""
        asked = self.fidelity.asked
        self.free_what_changes()
        self.expect_of_sender(multicast=self.cell.protocol == "ldm7")
        for host in (self.publisher, *self.subscribers):
            preload = " with LD_PRELOAD" if host in self.clock_offsets_ms else ""
            shell = "" if host in self.emulation.elsewhere else "1 x bash, "
            asked.things[f"{host} programs"] = f"{shell}1 x hostlag, 1 x ldmd{preload}"
            if self.monitor is not None and host in (self.publisher, *self.multicast):
                asked.things[f"{host} programs"] += ", 1 x rtstats"

    def _insert_with_pauses(self) -> None:
        """Replay, while the first receiver's programs stop for a part of each second."""
        if not self.cell.pauses_first:
            self._insert_and_wait()
            return
        slow, clock = self.subscribers[0], self.emulation.facts.clock
        pid, stop_s = self.daemons[slow].pid, self.cell.conditions.first.stop_s
        pauses: Pauses | Stop
        if stop_s:
            pauses = Stop(pid, self.cell.duration_s / 2, stop_s)
        else:
            pauses = Pauses(pid, self.cell.pause_ms)
        try:
            self._insert_and_wait()
        finally:
            pauses.stop()
        self.settings.append(pauses.read_back(slow, clock))

    def _insert_and_wait(self) -> None:
        products: int = self.job.trace_info["products"]
        argv = ldm.pqinsert_argv(
            self.job.build,
            self.queue(self.publisher),
            self.job.trace,
            self.feed.name,
            self.cell.seed,
            self.publisher,
        )
        self.files.put(self.publisher, self.job.trace, text=False)
        inserted = LineCounter(self.logs / "pqinsert.log", (" Inserted: ",))
        delivered = {
            h: LineCounter(self.log(h), self._adapter(h).delivered_words) for h in self.subscribers
        }
        begin = time.time()
        self.times["insertion_started"] = begin
        with (self.logs / "pqinsert.log").open("wb") as log:
            insert = self.emulation.popen(self.publisher, argv, stdout=log, stderr=log)
        told = 0.0
        deadline: float | None = None
        while True:
            code = insert.poll()
            now = time.time()
            if self._to_cut is not None and now - begin >= self.cell.duration_s / 2:
                self.emulation.cut(self._to_cut.name)
                self.times["cut"] = time.time()
                self._cut, self._to_cut = self._to_cut, None
            if code is not None and deadline is None:
                self.times["insertion_ended"] = now
                if code != 0:
                    raise CellError(
                        f"pqinsert ended with {code}:\n{tail(self.logs / 'pqinsert.log')}"
                    )
                deadline = now + self.cell.drain_timeout_s
            least = min(counter.poll() for counter in delivered.values())
            if now - told >= PROGRESS_S:
                told = now
                progress(
                    now - begin,
                    products=products,
                    inserted=inserted.poll(),
                    delivered=least,
                    draining=deadline is not None,
                )
                self.check_daemons()
            self.drained = deadline is not None and least >= products
            if self.drained or (deadline is not None and now > deadline):
                self.times["drained"] = now
                return
            time.sleep(POLL_S)

    # -- results ------------------------------------------------------------------------------
    def list_products(self) -> None:
        """List what the publisher and each subscriber hold."""
        hosts = [self.publisher, *self.subscribers]
        self.list_queues([(host, host, None) for host in hosts if host not in self.followers])
        self.end_followers(self.job.trace_info["products"])

    def _path_interfaces(self) -> dict[str, object]:
        """Return, by host, the interfaces that show competing traffic separately."""
        if not (self.cell.has_rivals or self.cell.bottleneck.rate_bps):
            return {}
        lanes = range(1, self.network.lane_count + 1)
        hosts = (self.publisher, *self.subscribers)
        nics = {h: [f"{h}/{self.emulation.nic1_of(h, lane)}" for lane in lanes] for h in hosts}
        return {"path_interfaces": nics}

    def cell_json(self) -> Mapping[str, object]:
        """Return the content of cell.json."""
        common = self.common_json()
        return {
            **common,
            **self.times,
            "loss_model": loss_model.used_models(self.loss_models),
            "tcp_others": self._tcp_others,
            "ldm6_subscribers": list(self.upstreams),
            **({"clock_offset_ms": self.clock_offsets_ms} if self.clock_offsets_ms else {}),
            "nic1": self.nic1,
            **self._path_interfaces(),
            "nics": [self.nic1, self.network.publisher.nic2.interface],
            "parameters": parameters(
                self.cell,
                self.job.trace_info["source"],
                common["rtt_ms"],
                self.window_bytes,
                self.tbf_limit,
                self._tcp.text,
            ),
        }
