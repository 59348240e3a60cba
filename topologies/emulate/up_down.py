# SPDX-License-Identifier: Apache-2.0
"""`downpour up`, `down`, `status`, `shell`: a network in the background, held by a process, the
keeper, that lives until `down`."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from common.counting import counted
from common.onos import OnosAddress
from common.places import ROOT
from common.shell import NetworkError, UnknownNameError, termination_as_interrupt
from topologies.emulate import background_process, lifecycle, marks
from topologies.emulate.emulation import Emulation, open_emulation
from topologies.emulate.emulation_state import controllers_of, emulation_state, pids_of
from topologies.emulate.foreign_controller import ControllerAddress, Foreign, check_answers
from topologies.emulate.host_names import with_names
from topologies.emulate.lifecycle import KIND_UP, RunState
from topologies.emulate.onos import Onos, check_onos
from topologies.emulate.processes import get_json
from topologies.model.network import Network, Segment

ASKED_FILE = "asked.json"  # the network that was requested from `up`
STOP_TIMEOUT_S = 15.0
HEALTH_PERIOD_S = 2.0
ENDING_S = 3.0  # how long to wait for a run that another process removes


# -- the keeper process -------------------------------------------------------------------------


def keep(run_id: str, topology: str, network_file: Path, controller: str, report_fd: int) -> int:
    """Run the keeper: build the network, report on `report_fd`, hold the network until SIGTERM,
    remove it. `controller`: the address of an external one or of ONOS, or ""."""

    say = background_process.reporter(report_fd)

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    try:
        external = _external(controller) if controller else True
        network = Network.from_json(network_file.read_text(encoding="utf-8"))
        with lifecycle.enter(run_id, kind=KIND_UP, topology=topology, announced=True) as run:
            log = run.state_dir / "keeper.log"
            with open_emulation(
                network,
                run.state_dir,
                progress=lambda t: say(background_process.PROGRESS, t),
                controllers=external,
            ) as emulation:
                say(background_process.READY, "")
                os.close(report_fd)
                _hold(emulation, log)
    except KeyboardInterrupt:
        return 0
    except NetworkError as error:
        say(background_process.FAILED, str(error))
        return 1
    except Exception as error:  # a bug: report it where the caller reads it
        say(background_process.FAILED, f"{type(error).__name__}: {error}")
        raise
    return 0


def _external(text: str) -> Foreign | Onos:
    """Return what an address names. Raises ValueError."""
    if text.startswith("http:"):
        return Onos.from_here(OnosAddress.parse(text))
    return Foreign.from_here(ControllerAddress.parse(text))


def _hold(emulation: Emulation, log: Path) -> None:
    """Wait for a signal. Record in `log`, which `status` shows, whatever ends meanwhile."""
    said: list[str] = []
    while True:
        time.sleep(HEALTH_PERIOD_S)
        problems = emulation.health()
        if problems != said:
            said = problems
            stamp = time.strftime("%H:%M:%S")
            with log.open("a", encoding="utf-8") as file:
                file.writelines(f"{stamp} {problem}\n" for problem in problems)


# -- up -----------------------------------------------------------------------------------------


def up(
    network: Network,
    topology: str,
    progress: Callable[[str], None],
    controller: ControllerAddress | OnosAddress | None = None,
) -> str:
    """Start a keeper and wait until its network is ready; return the run id. `controller`: an
    external one, or ONOS for the path service. Raises NetworkError if the network does not become
    ready."""
    lifecycle.require_root()
    if isinstance(controller, OnosAddress):
        check_onos(controller)
    elif controller is not None:
        check_answers(controller)
    _refuse_second(own_networks())
    run_id = lifecycle.new_run_id("up")
    with termination_as_interrupt(), ExitStack() as stack:
        directory = lifecycle.announce(run_id, kind=KIND_UP, topology=topology)
        stack.callback(lifecycle.purge, run_id)
        _refuse_second([other for other in own_networks() if _is_before(other, run_id)])
        network_file = directory / ASKED_FILE
        network_file.write_text(network.to_json(), encoding="utf-8")
        failure = background_process.start(
            [
                *(sys.executable, "-m", "topologies", "_keep"),
                *(run_id, topology, str(network_file), str(controller or "")),
            ],
            progress,
            lambda keeper: _end_process(keeper.pid, marks.start_time_ticks(keeper.pid)),
            log=directory / "keeper.stderr",
            cwd=ROOT,
            env={**os.environ, marks.MARK: run_id},
        )
        if failure is not None:
            raise NetworkError(failure)
        stack.pop_all()
    return run_id


def _refuse_second(running: Sequence[str]) -> None:
    """Raise NetworkError if this checkout's network is up."""
    if running:
        raise NetworkError(f"network '{running[0]}' is already up (end it with: down)")


def _is_before(other: str, run_id: str) -> bool:
    """Return whether `other`, of two networks that start at once, goes first: the other gives
    way."""
    states = [lifecycle.read_state(one) for one in (other, run_id)]
    if other == run_id or states[0] is None or states[1] is None:
        return False
    return (states[0].started, other) < (states[1].started, run_id)


def _end_process(pid: int, start_ticks: int | None) -> None:
    """Send SIGTERM and allow some time. Leave another process that has this id by now alone."""
    if start_ticks is None or marks.start_time_ticks(pid) != start_ticks:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while time.monotonic() < deadline and marks.start_time_ticks(pid) == start_ticks:
        time.sleep(0.05)


# -- down ---------------------------------------------------------------------------------------


def ours(state: RunState | None) -> bool:
    """Return whether `up` of this checkout made the network."""
    return state is not None and state.kind == KIND_UP and state.owner == lifecycle.this_owner()


def own_networks() -> list[str]:
    """Return the run ids of this checkout's live `up` networks."""
    found = []
    for run_id in lifecycle.live_runs():
        state = lifecycle.read_state(run_id)
        if state is not None and ours(state) and state.owner_alive:
            found.append(run_id)
    return found


def chosen_network(run_id: str | None) -> str:
    """Return the run to act on: `run_id`, else this checkout's network. Raises NetworkError if
    none is up."""
    candidates = own_networks() if run_id is None else [run_id]
    if not candidates:
        raise NetworkError("no network is up (start one with: up)")
    return candidates[0]


def end(run_id: str) -> None:
    """End one network that `up` made. Raises NetworkError if something cannot be removed."""
    state = lifecycle.read_state(run_id)
    while state is not None and state.owner_alive:
        _end_process(state.owner_pid, state.owner_start_ticks)
        # The keeper may have taken over the network from `up` meanwhile.
        last, state = state, lifecycle.read_state(run_id)
        if state == last:
            break
    lifecycle.purge(run_id)


def to_end(states: Mapping[str, RunState | None], *, everything: bool) -> dict[str, bool]:
    """Return the runs that `down` ends, each with True if its owner is alive (and must be told). A
    run whose starter was killed while its keeper started belongs to its checkout until the keeper
    takes it over."""
    chosen: dict[str, bool] = {}
    for run_id, state in states.items():
        alive = state is not None and state.owner_alive
        starting = state is not None and state.announced and marks.has_processes(run_id)
        if everything or ours(state) or not (alive or starting):
            chosen[run_id] = alive
    return chosen


def _states() -> dict[str, RunState | None]:
    """Return the state by run id. A run that does not name its owner may be ending: wait a moment
    for that."""
    deadline = time.monotonic() + ENDING_S
    while True:
        states = {run_id: lifecycle.read_state(run_id) for run_id in lifecycle.live_runs()}
        if None not in states.values() or time.monotonic() > deadline:
            return states
        time.sleep(0.1)


def down(progress: Callable[[str], None], *, everything: bool = False) -> int:
    """End this checkout's `up` networks and remove what dead runs left. With `everything`, also end
    other owners' live runs. Return how many. Raises NetworkError if something cannot be removed."""
    lifecycle.require_root()
    states = _states()
    chosen = to_end(states, everything=everything)
    problems = []
    for run_id, alive in chosen.items():
        progress(f"{run_id}: {'network' if alive else 'leftovers of a run that ended'}")
        try:
            end(run_id)
        except NetworkError as error:
            problems.append(str(error))
    lifecycle.remove_unfinished()
    if problems:
        raise NetworkError("; ".join(problems))
    return len(chosen)


# -- status -------------------------------------------------------------------------------------


def network_of(run_id: str) -> Network | None:
    """Return the network that a run has built or is building; None if it does not say which."""
    path = marks.state_directory(run_id) / "network.json"
    try:
        return Network.from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def status_of(run_id: str) -> str:
    """Return one run in words: owner, hosts, controller, paths, problems."""
    state, network = lifecycle.read_state(run_id), network_of(run_id)
    emulation = emulation_state(run_id)
    if state is None or not state.owner_alive:
        return f"{run_id}: leftovers of a run that ended (remove them with: down)\n"
    minutes = (time.time() - state.started) / 60
    lines = [f"{run_id}: {state.kind}, {state.topology or 'no name'}, {minutes:.0f} min old"]
    if network is None or emulation is None:
        return f"{lines[0]}, being built\n"
    facts = emulation["facts"]
    lines.append(
        f"  Open vSwitch datapath {facts['datapath']}, delays by {facts['delay_mechanism']}, "
        f"VLAN tags by {'edge switches' if facts['edge_tags'] else 'hosts'}, "
        f"TCP {facts['congestion_control']}"
    )
    if emulation["relay_fifo"] is False:
        lines.append("  wire-relay was refused SCHED_FIFO: delays may be late on a busy machine")
    lines += hosts_table(network, emulation["pids"])
    for domain, socket in emulation["controllers"].items():
        lines += _controller_lines(domain, Path(socket))
    with contextlib.suppress(OSError):
        log = marks.state_directory(run_id) / "keeper.log"
        lines += [f"  trouble: {line}" for line in log.read_text(encoding="utf-8").splitlines()]
    return "\n".join(lines) + "\n"


def status_json(run_id: str) -> dict[str, object]:
    """Return one run for programs. `own`: this checkout's `down` ends it."""
    state, network = lifecycle.read_state(run_id), network_of(run_id)
    alive = state is not None and state.owner_alive
    return {
        "run_id": run_id,
        "kind": "" if state is None else state.kind,
        "topology": "" if state is None else state.topology,
        "own": ours(state),
        "state": ("ready" if emulation_state(run_id) else "being built") if alive else "leftover",
        "hosts": [host.name for host in network.hosts] if network is not None else [],
        "controllers": {
            domain: _health_json(Path(socket)) for domain, socket in controllers_of(run_id).items()
        },
    }


def _health_json(socket: Path) -> dict[str, object]:
    """Return a controller's health; `switches` is empty if it does not answer."""
    try:
        health = get_json(socket, "/v1/health")
    except (OSError, ValueError, http.client.HTTPException):
        health = {}
    return {"socket": str(socket), "switches": dict(health.get("switches", {}))}


def hosts_table(network: Network, pids: Mapping[str, int]) -> list[str]:
    """Return the hosts with their addresses and requested round trips."""
    lines = [f"  {'host':<11} {'site':<10} {'NIC1 (path)':<16} {'NIC2 (routed)':<16} RTT asked"]
    for host in network.hosts:
        rtt = network.round_trip_ms.get(host.name)
        asked = "publisher" if rtt is None or host is network.publisher else f"{rtt:g} ms"
        gone = "" if Path(f"/proc/{pids.get(host.name, 0)}").exists() else "  (gone)"
        lines.append(
            f"  {host.name:<11} {host.site:<10} {host.nic1.ip:<16} {host.nic2.ip:<16} {asked}{gone}"
        )
    return lines


def _controller_lines(domain: str, socket: Path) -> list[str]:
    try:
        health = get_json(socket, "/v1/health")
        answer = get_json(socket, "/v1/paths")
    except (OSError, ValueError, http.client.HTTPException) as error:
        return [f"  controller of {domain}: no answer ({error})"]
    switches: Mapping[str, bool] = health.get("switches", {})
    connected = sum(1 for up in switches.values() if up)
    lines = [
        f"  controller of {domain}: {connected} of "
        f"{counted(len(switches), 'switch', 'switches')} connected"
    ]
    paths = answer if isinstance(answer, list) else []
    for path in paths:
        lines.append(
            f"    path {path['name']}: {path['state']}, {path['rate_bps'] / 1e6:g} Mbit/s, "
            f"{counted(len(path['leaves']), 'leaf', 'leaves')}"
        )
    if not paths:
        lines.append("    no paths")
    return lines


def curl_examples(network: Network, domain: str, socket: str) -> list[str]:
    """Return commands that create and show a path from the publisher to the first subscriber's
    segment, if both end in the domain."""
    curl = f"curl -s --unix-socket {socket} -H 'Content-Type: application/json'"
    inside = {s.name for s in network.switches if s.domain == domain}
    root = network.segment_of(network.publisher.name)
    leaves = [
        s
        for s in network.segments
        if s is not root and s.lane == root.lane and s.endpoint_switch in inside
    ]
    lines = []
    if root.endpoint_switch in inside and leaves:
        path = {"name": "p1", "root": _endpoint(network, root), "rate_bps": 20_000_000}
        leaf = _endpoint(network, leaves[0])
        lines.append(f"{curl} http://localhost/v1/paths -d '{json.dumps(path)}'")
        lines.append(f"{curl} http://localhost/v1/paths/p1/leaves -d '{json.dumps(leaf)}'")
    return [*lines, f"{curl} http://localhost/v1/paths"]


def _endpoint(network: Network, segment: Segment) -> dict[str, object]:
    macs = [nic.mac for nic in network.nics_of(segment)]
    return {
        "switch": segment.endpoint_switch,
        "port": segment.endpoint_port,
        "vlan": segment.vlan,
        "macs": macs,
    }


# -- shell --------------------------------------------------------------------------------------


def shell_command(
    run_id: str | None, host: str, argv: list[str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command and environment of a shell (or `argv`) in a host. Raises NetworkError if
    there is no such network or host."""
    lifecycle.require_root()
    chosen = chosen_network(run_id)
    pids = pids_of(chosen)
    pid = pids.get(host)
    if pid is None:
        valid = ", ".join(pids) or "none yet: the network is being built"
        raise UnknownNameError(f"found host '{host}'; valid: {valid}")
    if marks.marked_processes().get(pid) != chosen:
        raise NetworkError(f"host '{host}' of {chosen} has ended (see: status)")
    ovs = str(marks.state_directory(chosen) / "ovs")
    environment = {
        **os.environ,
        marks.MARK: chosen,
        "OVS_RUNDIR": ovs,
        "OVS_DBDIR": ovs,
        "OVS_LOGDIR": ovs,
        "PS1": f"{host}:\\w\\$ ",
    }
    words = (argv[1:] if argv[:1] == ["--"] else argv) or ["bash", "--norc"]
    asked = marks.state_directory(chosen) / ASKED_FILE
    if asked.exists():
        network = Network.from_json(asked.read_text(encoding="utf-8"))
        words = with_names(words, network, asked.parent)
    return ["mnexec", "-a", str(pid), *words], environment
