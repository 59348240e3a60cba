# SPDX-License-Identifier: Apache-2.0
"""What every kind of cell does on a running network: run LDM servers, set queues, take samples,
measure round trips, and write the results."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, TypedDict

from common.files import tail
from common.virtual_time import begin_afresh, this_clock
from controller.api.path_client import PathAnswer, PathClient, PathClientError
from experiments.cells import counters_log, queue_place, samplers, surveillance
from experiments.cells.cell_logs import LineCounter, parse_ping_min_ms
from experiments.cells.elsewhere import HostFiles
from experiments.cells.events import Event
from experiments.cells.fidelity import Fidelity
from experiments.cells.job import Job
from experiments.cells.run_directory import write_json, write_text
from experiments.cells.sysstat import Sysstat
from experiments.design import clock_offset, configs, shaping
from experiments.design.expansion import Feed, disk_needed_bytes
from experiments.design.shaping import Setting
from experiments.design.trace_input import TraceInfo
from experiments.verdict import ShaperSample
from experiments.verdict.cpu_load import Ended
from experiments.verdict.from_files import judge_cell
from experiments.verdict.queue_watch import shaper_counts
from parsers.base.factors import Scalar
from protocols import ldm
from topologies.emulate.emulation import Emulation
from topologies.model.network import Network

EVENTS: Final = "events"  # in a cell: a folder for each daemon
LISTS_S: Final = 30.0  # for lists of products that are written as products arrive
END_S: Final = 15.0  # for a program to end after SIGTERM
PINGS: Final = 6
POLL_S: Final = 0.2
PROGRESS_S: Final = 1.0


Step = tuple[str, Callable[[], None]]


class CommonJson(TypedDict):
    """What cell.json says about every kind of cell."""

    cell: str
    experiment: str
    level: str | None
    factors: dict[str, Scalar]
    protocol: str
    m: int
    r_bps: int
    loss: float
    duration_s: float
    seed: int
    repeat: int
    publisher: str
    subscribers: list[str]
    site_of: dict[str, str]
    rtt_ms: dict[str, float]
    rtt_measured_ms: dict[str, float]
    rtt_after_ms: dict[str, float]
    trace: TraceInfo
    drained_all: bool
    cores: int
    clock: str
    topology: str
    queues: str
    digest: str
    asked: dict[str, object]


class CellError(Exception):
    """The cell cannot continue; the text says why."""


def emit(event: Event) -> None:
    """Tell the runner."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def phase(text: str) -> None:
    """Begin a phase, and tell the runner."""
    begin_afresh()
    emit({"event": "phase", "text": text})


def progress(
    elapsed_s: float, *, products: int, inserted: int, delivered: int, draining: bool
) -> None:
    """Tell the runner how many products were sent, and how many all receivers have."""
    emit(
        {
            "event": "progress",
            "elapsed_s": round(elapsed_s, 1),
            "products": products,
            "inserted": inserted,
            "delivered": delivered,
            "draining": draining,
        }
    )


class CellBase:
    """A cell on a running network. It leaves its results in the cell's directory `out`."""

    def __init__(self, job: Job, network: Network, emulation: Emulation, out: Path) -> None:
        self.job, self.cell, self.network, self.emulation, self.out = (
            job,
            job.cell,
            network,
            emulation,
            out,
        )
        self.files = HostFiles(emulation.elsewhere)
        self.publisher = network.publisher.name
        self.subscribers = self.cell.subscribing(h.name for h in network.subscribers)
        self.logs = out / "logs"
        self.settings: list[Setting] = []
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.fidelity = Fidelity(emulation, out, job.build)
        self.clock_offsets_ms = self.cell.clock_offsets_ms(self.subscribers)
        self.followers: dict[str, subprocess.Popen[bytes]] = {}  # by the queue they list
        self.rtt_measured_ms: dict[str, float] = {}
        self.rtt_after_ms: dict[str, float] = {}
        self.times: dict[str, float] = {"started": time.time()}
        self.drained = False
        (out / "products").mkdir(exist_ok=True)
        self.logs.mkdir(exist_ok=True)
        self.work = job.work
        self.work.mkdir(parents=True, exist_ok=True)
        needed = disk_needed_bytes(self.cell, int(job.trace_info["bytes"]))
        self.queues, self.queues_on = queue_place.choose(
            needed, job.run_id, self.work, keep=job.keep_work or self.needs_disk
        )
        for host in emulation.elsewhere.values():
            host.share(self.queues)

    @property
    def build(self) -> Path:
        """Return where the C programs are."""
        return self.job.build

    @property
    def needs_disk(self) -> bool:
        """Return whether the cell's files must be on a disk."""
        return False

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return what the cell does on the network, in order, with a text for each step."""
        raise NotImplementedError

    def cell_json(self) -> Mapping[str, object]:
        """Return the content of cell.json."""
        raise NotImplementedError

    # -- the network itself -------------------------------------------------------------------
    def probe_links(self) -> None:
        """Measure the links' delays, before anything else is sent."""
        self.fidelity.probe_links("before")

    def free_what_changes(self) -> None:
        """Free the settings that the cell itself changes during the replay: queues that guarantee
        rates, and the programs that it stops."""
        if self.cell.guarantee == "queues":
            self.fidelity.asked.free |= self.emulation.outlet_places()
        if self.cell.pauses_first:  # an inventory may find them stopped
            self.fidelity.asked.free.add(f"{self.subscribers[0]} scheduling")
        if self.cell.conditions.aqm == "fq-codel":  # the kernel shows a class for each waiting flow
            self.fidelity.asked.free |= self.emulation.flow_classes()

    def look_again(self, lanes: Mapping[str, int]) -> None:
        """Read settings, links' delays, and round trips of `lanes` after the replay."""
        self.fidelity.read_again()
        self.fidelity.probe_links("after")
        self.rtt_after_ms = self.measure_round_trips(lanes)

    def measure_round_trips(self, lanes: Mapping[str, int]) -> dict[str, float]:
        """Return the minimum of a few pings over the path, from each subscriber on its lane. They
        show that the path works and that its delays are as asked."""
        publisher = self.network.publisher
        pings = ["ping", "-n", "-q", "-c", str(PINGS), "-i", "0.2", "-W", "2"]
        running = {
            h: self.emulation.popen(
                h,
                [*pings, publisher.path_nic(lane).ip],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for h, lane in lanes.items()
        }
        measured: dict[str, float] = {}
        silent = {}
        for host, process in running.items():
            output = process.communicate(timeout=30)[0].decode(errors="replace")
            found = parse_ping_min_ms(output)
            if found is None:
                silent[host] = output.strip().splitlines()[-1:]
            else:
                measured[host] = found
        if silent:
            host, last = next(iter(silent.items()))
            raise CellError(
                f"no answer over the path from {publisher.path_nic(lanes[host]).ip} to "
                f"{', '.join(silent)}; {host}: {' '.join(last)}"
            )
        return measured

    # -- shaping ------------------------------------------------------------------------------
    def shape_feed(self, feed: Feed) -> list[list[str]]:
        """Set the publisher's two queues of a feed, on the NIC of its lane; return the commands.
        What the kernel then reports goes to `settings`. Queues that ldmd makes are checked once it
        has started."""
        nic = self.emulation.nic1_of(self.publisher, feed.lane)
        self.fidelity.asked.things |= shaping.htb_things(f"{self.publisher}/{nic}")
        if self.cell.ldmd_shapes:
            return []
        group = self.network.group_of(feed.lane)
        commands = shaping.htb_commands(nic, group, **self._rates(feed))
        for command in commands:
            self.run(self.publisher, command)
        self.read_queues(feed)
        return commands

    def _rates(self, feed: Feed) -> dict[str, int]:
        return {
            "r_mc_bps": feed.r_mc_bps,
            "r_uc_bps": feed.r_uc_bps,
            "b_mc_bytes": self.cell.b_mc_bytes,
            "b_uc_bytes": self.cell.b_uc_bytes,
        }

    def read_queues(self, feed: Feed) -> None:
        """Note what the kernel reports of `shape_feed`'s queues, now and after the replay."""
        nic = self.emulation.nic1_of(self.publisher, feed.lane)
        group = self.network.group_of(feed.lane)
        self.note_settings(
            lambda: shaping.read_back_htb(
                self.run(self.publisher, shaping.qdisc_show(nic)),
                self.run(self.publisher, shaping.class_show(nic)),
                self.run(self.publisher, shaping.filter_show(nic)),
                group=group,
                **self._rates(feed),
            ),
            feed.label,
        )

    def note_settings(self, read: Callable[[], Iterable[Setting]], label: str = "") -> None:
        """Add the publisher's settings that `read` finds to `settings`; call `read` again after the
        replay."""
        where = f"{self.publisher} {label}".strip()

        def named() -> list[Setting]:
            return [dataclasses.replace(s, name=f"{where} {s.name}") for s in read()]

        self.settings += self.fidelity.read(named)

    def save_settings(self) -> None:
        """Write all settings to shaping.json, with those that were found after `shape`."""
        path = self.out / "shaping.json"
        known = json.loads(path.read_text())
        write_json(path, {**known, "settings": [s.to_dict() for s in self.settings]})

    # -- programs -----------------------------------------------------------------------------
    def make_queue(self, name: str, size_bytes: int, slots: int) -> None:
        """Make an empty product queue. Raises CellError."""
        self.queue(name).parent.mkdir(exist_ok=True)
        argv = ldm.pqcreate_argv(self.job.build, self.queue(name), size_bytes, slots)
        done = self.files.run(name, argv)
        if done.returncode != 0:
            raise CellError(f"{name}: {' '.join(argv)}: {done.stderr.strip()}")

    def start_daemon(self, name: str, host: str, conf: str, port: int = configs.LDM_PORT) -> None:
        """Start ldmd at `host`. `name`: names its queue, log and configuration file."""
        path = self.work / f"{name}.ldmd.conf"
        write_text(path, conf)
        self.files.put(host, path)
        shutil.copyfile(path, self.logs / path.name)
        address = configs.ldm_address(self.network.host(host), self.cell)
        log = self.log(name)
        self.files.mirror(host, log)
        events = self.logs.parent / EVENTS / name if "events" in self.job.samples else None
        if events is not None:
            events.mkdir(parents=True, exist_ok=True)
        argv = ldm.ldmd_argv(self.job.build, self.queue(name), address, port, log, path, events)
        # Keep what is not in the log, such as the messages of the loader or of a sanitizer.
        with log.with_suffix(".stderr").open("ab") as errors:
            self.daemons[name] = self.emulation.popen(
                host, argv, stdout=errors, stderr=errors, env=self.clock_of(host)
            )

    def clock_of(self, host: str) -> dict[str, str]:
        """Return the environment in which a host's programs have its clock."""
        offset_ms = self.clock_offsets_ms.get(host)
        return clock_offset.environment(offset_ms, self.job.build) if offset_ms else {}

    def read_back_clocks(self) -> list[Setting]:
        """Ask a program for the time of day at each host whose clock is off."""
        found = []
        for host, offset_ms in self.clock_offsets_ms.items():
            argv = [*clock_offset.arguments(self.clock_of(host)), *clock_offset.DATE]
            before_ns = time.time_ns()
            shown = self.run(host, argv)
            found.append(
                clock_offset.read_back(shown, host, offset_ms, (before_ns, time.time_ns()))
            )
        return found

    def check_daemons(self) -> None:
        """Check that every program that must run still does."""
        if problems := self.emulation.health():
            raise CellError("; ".join(problems))
        for name, process in self.followers.items():
            if process.poll() is not None:
                self._check_list(name, process)
        for name, process in self.daemons.items():
            if process.poll() is not None:
                errors = tail(self.log(name).with_suffix(".stderr"))
                raise CellError(
                    f"ldmd of {name} ended with {process.returncode}:\n"
                    f"{tail(self.log(name))}\n{errors}".rstrip()
                )

    def end_daemons(self) -> None:
        """End subscribers first, so that none loses its publisher. Their last lines are
        statistics."""
        subscribers = [name for name in self.daemons if name != self.publisher]
        for name in subscribers:
            if self.daemons[name].poll() is None:
                self.daemons[name].send_signal(signal.SIGTERM)
        for name in [*subscribers, self.publisher]:
            if name in self.daemons:
                self.end(self.daemons[name], signal.SIGTERM)

    def end_all(self) -> None:
        """End whatever still runs."""
        self.end_daemons()
        for process in self.followers.values():
            self.end(process, signal.SIGTERM)

    # -- samples ------------------------------------------------------------------------------
    def sample(self, stack: ExitStack, every: int, shapers: Mapping[str, tuple[str, str]]) -> None:
        """Sample sysstat's programs, ps and the shapers at the publisher, and the emulation itself,
        until `stack` ends. `shapers`: log name -> (interface, class or "" for the root qdisc)."""
        most = self.cell.duration_s * 1.5 + self.cell.drain_timeout_s + 60
        sysstat = Sysstat(self.emulation, self.logs, self.job.samples, self._daemon_pids, self.end)
        stack.callback(sysstat.stop)
        hosts = [host.name for host in self.network.hosts]
        sysstat.start(self.publisher, hosts, every, max(2, round(most / every)))
        sampled: dict[str, Callable[[], str]] = {"ps.log": self._ps}
        if "counters" in self.job.samples:
            sampled[counters_log.FILE] = counters_log.CountersLog(self.queues).sample
        for name, (interface, classid) in shapers.items():
            sampled[name] = partial(self._shaper, interface, classid)
        for name, function in sampled.items():
            sampler = samplers.Sampler(self.logs / name, every, function)
            sampler.start()
            stack.callback(sampler.stop)
        seed = self.cell.seed if this_clock() == "virtual" else None
        self.fidelity.watch(
            stack,
            long_run=every > 1,
            at_s=surveillance.moments(seed, self.cell.duration_s),
            ended=self.ended_programs,
        )

    def ended_programs(self) -> Sequence[Ended]:
        """Return programs of the cell that ended while it was watched: none here."""
        return ()

    def _daemon_pids(self) -> dict[str, int]:
        return {name: daemon.pid for name, daemon in list(self.daemons.items())}

    def _ps(self) -> str:
        ancestor, there = self.daemons[self.publisher].pid, self.emulation.elsewhere
        if self.publisher in there:
            ps, cpu = there[self.publisher].call("process_blocks", ancestor=ancestor)
        else:
            ps, cpu = samplers.process_blocks(ancestor)
        with (self.logs / "cpu.log").open("a", encoding="utf-8") as log:
            log.write(cpu)
        return str(ps)

    def _shaper(self, interface: str, classid: str) -> str:
        there = self.emulation.elsewhere.get(self.publisher)
        if there is not None:
            found = there.call("shaper", interface=interface, classid=classid)
        else:
            pid = self.emulation.pids[self.publisher]
            found = shaper_counts(pid, interface, classid)
        return "" if found is None else samplers.shaper_line(ShaperSample(time.time(), *found))

    def save_state(self) -> None:
        """Write state/: flows, groups, meters, queueing disciplines and settings before the
        replay."""
        folder = self.out / "state"
        folder.mkdir()
        for name, text in self.emulation.dumps().items():
            write_text(folder / name, text)

    def save_paths(self, file: str) -> list[PathAnswer]:
        """Return the paths as the path service shows them, and write them to `file`."""
        try:
            with PathClient(self.emulation.controller_socket) as service:
                paths = service.paths()
        except PathClientError as error:
            raise CellError(f"the path service does not report its paths: {error}") from None
        write_json(self.out / file, paths)
        return paths

    # -- results ------------------------------------------------------------------------------
    def finish(self) -> tuple[str, bool]:
        """Write cell.json, and verdict.json from the cell's files alone; return (verdict, whether
        all products are identical)."""
        self.save_settings()
        write_json(self.out / "cell.json", self.cell_json())
        verdict, accounts = judge_cell(self.out)
        if accounts is not None:
            write_json(self.out / "losses.json", {h: a.to_dict() for h, a in accounts.items()})
        write_json(self.out / "verdict.json", verdict.to_dict())
        identical = next(c.status for c in verdict.checks if c.name == "products identical")
        return verdict.verdict, identical != "fail"

    def list_queues(self, lists: Sequence[tuple[str, str, str | None]]) -> None:
        """List digest, size and name of every product, recomputed from the bytes. `lists`: names of
        the list and the queue, and the feed (None: all)."""
        running: dict[str, subprocess.Popen[bytes]] = {}
        for name, queue, feed in lists:
            argv = ldm.pqcat_list_argv(self.job.build, self.queue(queue), feed)
            running[name] = self._list_to_file(name, argv)
            if len(running) % (os.cpu_count() or 1) == 0:
                for process in running.values():
                    process.wait()
        for name, process in running.items():
            self._check_list(name, process)

    def _list_to_file(self, name: str, argv: list[str]) -> subprocess.Popen[bytes]:
        with (
            self.product_list(name).open("wb") as target,
            (self.logs / f"{name}.pqcat.stderr").open("wb") as errors,
        ):
            return self.files.popen(name, argv, target, errors, self.clock_of(name))

    def _check_list(self, name: str, process: subprocess.Popen[bytes]) -> None:
        if process.wait() != 0:
            errors = tail(self.logs / f"{name}.pqcat.stderr")
            raise CellError(f"pqcat of {name} ended with {process.returncode}: {errors}")

    def follow_queue(self, name: str) -> None:
        """List the products of a queue as they arrive, for a queue that does not hold the whole
        replay."""
        argv = ldm.pqcat_follow_argv(self.job.build, self.queue(name))
        self.followers[name] = self._list_to_file(name, argv)

    def end_followers(self, products: int) -> None:
        """Wait until the lists are complete: `products` lines each."""
        counters = {n: LineCounter(self.product_list(n), ("",)) for n in self.followers}
        deadline = time.monotonic() + LISTS_S
        while any(c.poll() < products for c in counters.values()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        for name, process in self.followers.items():
            process.send_signal(signal.SIGTERM)
            self._check_list(name, process)

    def save_description(self, state_dir: Path) -> None:
        """Write what the network is, what the kernel can do, and the controller's logs."""
        write_text(self.out / "network.json", self.network.to_json())
        write_json(self.out / "facts.json", self.emulation.facts.to_dict())
        write_json(
            self.out / "links.json", [dataclasses.asdict(r) for r in self.emulation.readback]
        )
        for log in sorted(state_dir.rglob("*.log")):
            target = self.logs / log.name
            if not target.exists():
                shutil.copyfile(log, target)
        for errors in self.logs.glob("*.stderr"):
            if errors.stat().st_size == 0 and errors.name != "cell.stderr":  # still open
                errors.unlink()

    def common_json(self) -> CommonJson:
        """Return what cell.json says about every kind of cell, except the times of its steps."""
        cell, network = self.cell, self.network
        return {
            "cell": cell.cell,
            "experiment": cell.experiment,
            "level": cell.level,
            "factors": dict(cell.factors),
            "protocol": cell.protocol,
            "m": cell.m,
            "r_bps": cell.r_bps,
            "loss": cell.loss,
            "duration_s": cell.duration_s,
            "seed": cell.seed,
            "repeat": cell.repeat,
            "publisher": self.publisher,
            "subscribers": self.subscribers,
            "site_of": {h.name: h.site for h in network.hosts},
            "rtt_ms": {h: network.round_trip_ms[h] for h in self.subscribers},
            "rtt_measured_ms": self.rtt_measured_ms,
            "rtt_after_ms": self.rtt_after_ms,
            "trace": self.job.trace_info,
            "drained_all": self.drained,
            "cores": os.cpu_count() or 1,
            "clock": self.emulation.facts.clock,
            "topology": network.name,
            "queues": self.queues_on,
            "digest": self.job.digest,
            "asked": cell.to_dict(),
        }

    # -- helpers ------------------------------------------------------------------------------
    def queue(self, name: str) -> Path:
        """Return the file of a product queue."""
        return self.queues / f"{name}.pq"

    def product_list(self, name: str) -> Path:
        """Return the file that lists a queue's products."""
        return self.out / "products" / f"{name}.txt"

    def log(self, name: str) -> Path:
        """Return the log of an ldmd."""
        return self.logs / f"{name}.ldmd.log"

    def run(self, host: str, argv: list[str]) -> str:
        """Run a program at a host; return what it prints. Raises NetworkError."""
        return self.emulation.run(host, argv).stdout

    @staticmethod
    def end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """Signal a program and wait; kill it if it does not end."""
        if process.poll() is None:
            process.send_signal(number)
        try:
            process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
