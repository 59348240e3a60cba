# SPDX-License-Identifier: Apache-2.0
"""A receiver that is paused for a part of each second: its programs, and how it is judged."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common.places import EXPERIMENTS, ROOT
from experiments.cells.pauses import Pauses
from experiments.cells.peer_cell import PeerRun
from experiments.cells.replay_cell import CellRun
from experiments.cells.samplers import descendants
from experiments.design.spec import SpecErrors, load
from experiments.tests.built import IN_GUESTS
from experiments.tests.bundled import cells_of
from experiments.tests.judged import GOOD, HOSTS, counters, stats
from experiments.verdict import Check, Evidence, judge
from parsers.measure.deliveries import receiver_stats
from parsers.read.ldm_log import parse_ldm_log

SLOW = (EXPERIMENTS / "slow-receiver.yaml").read_text()
# A shell with a child that writes down when it runs.
TICKS = "import time\nwhile True: print(time.monotonic(), flush=True); time.sleep(0.005)"


def test_programs_stand_still_and_go_on(tmp_path: Path) -> None:
    ticks = tmp_path / "ticks"
    argv = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, TICKS]
    with ticks.open("wb") as out, subprocess.Popen(argv, stdout=out) as shell:
        try:
            while not ticks.stat().st_size:
                time.sleep(0.01)
            family = descendants(shell.pid)
            pauses = Pauses(shell.pid, 300)
            time.sleep(1.6)
            pauses.stop()
            stopped = time.monotonic()
            time.sleep(0.3)
        finally:
            for pid in descendants(shell.pid):
                os.kill(pid, 9)
    times = [float(line) for line in ticks.read_text().split()]
    gaps = [b - a for a, b in itertools.pairwise(times) if b - a > 0.25]
    assert len(family) == 2
    assert len(gaps) >= 2 and all(gap >= 0.29 for gap in gaps)
    assert times[-1] > stopped
    found = pauses.read_back("uva", "native")
    assert found.asked == 300 and isinstance(found.found, float) and found.found >= 300


def test_an_end_does_not_wait_for_a_pause() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        begin = time.monotonic()
        pauses = Pauses(sleeper.pid, 900)
        pauses.stop()
        assert time.monotonic() - begin < 0.8
        sleeper.kill()
    assert not pauses.read_back("uva", "native").ok  # none was as long as requested


def test_levels_of_the_experiment() -> None:
    assert {(c.pause_ms, c.b_rcv_bytes) for c in cells_of("slow-receiver", "quick")} == set(
        itertools.product((0, 100, 600), (100_000, 100_000_000))
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("[0, 100, 300, 600]", "[0, 1000]", "found 1000 in factors.pause_ms; valid: "),
        ("[0, 100, 300, 600]", "[true]", "valid: a number"),
        ("[ldm7]", "[fcast]", "found protocol fcast with pause_ms; valid: ldm7 or ldm6"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, old: str, new: str, expected: str) -> None:
    path = tmp_path / "x.yaml"
    text = SLOW[: SLOW.index("levels:")].replace(old, new, 1)
    path.write_text(text.replace("parameters:\n", "parameters:\n  file_bytes: 65000\n", 1))
    with pytest.raises(SpecErrors) as caught:
        load(path)
    assert expected in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


# -- the verdict --------------------------------------------------------------------------------
def overflow(host: str) -> Evidence:
    """400 of 9,900 datagrams found a host's UDP buffer full; both of its counters say so."""
    received = {h: stats(datagrams=9_900) for h in HOSTS}
    received[host] = stats(datagrams=9_500, socket_drops=400)
    end = GOOD.end.model_copy(update={"udp": counters(udp={host: {"rcvbuf_errors": 400}}).udp})
    return dataclasses.replace(GOOD, receivers=received, end=end)


def checks(evidence: Evidence) -> dict[str, Check]:
    return {c.name: c for c in judge(evidence).checks}


def test_a_buffer_overflows_on_purpose_where_its_programs_stand_still() -> None:
    slow = dataclasses.replace(overflow(HOSTS[0]), paused=HOSTS[0])
    found = checks(slow)
    assert judge(slow).verdict == "faithful"
    text = found["drops of FMTP's UDP sockets"].text
    assert text == f"{HOSTS[0]}, which is paused on purpose: 400; others: none"
    assert found["uninjected drops"].status == "pass"


def test_blocks_come_twice_where_programs_stand_still() -> None:
    received = {h: stats(datagrams=9_900, blocks=9_900) for h in HOSTS}
    received[HOSTS[0]] = stats(datagrams=9_900, blocks=9_900, duplicate_blocks=500)
    twice = dataclasses.replace(GOOD, receivers=received)
    found = checks(dataclasses.replace(twice, paused=HOSTS[0]))["blocks received twice"]
    assert (found.status, found.found) == ("pass", 0)
    assert f"{HOSTS[0]}, which is paused on purpose, 500" in found.text
    other = checks(dataclasses.replace(twice, paused=HOSTS[1]))["blocks received twice"]
    assert other.status == "fail"


@pytest.mark.parametrize("protocol", ["ldm7", "fmtp", "norm", "tcp"])
def test_programs_that_the_cell_stops_may_be_found_stopped(
    protocol: str,
) -> None:
    """Of every protocol, and only at the first receiver, and only in cells that stop it."""
    kind = CellRun if protocol == "ldm7" else PeerRun
    free = {}
    for cell in cells_of("heterogeneous", "quick"):
        if cell.protocol != protocol:
            continue
        run: Any = object.__new__(kind)
        run.cell, run.publisher, run.subscribers, run.multicast = cell, "s", ["a", "b"], []
        run.fidelity = SimpleNamespace(asked=SimpleNamespace(free=set(), things={}))
        run.network = SimpleNamespace(multicast_group="239.1.1.1")
        run.clock_offsets_ms, run.monitor = {}, None
        run.emulation = SimpleNamespace(elsewhere={})
        run.job = SimpleNamespace(trace_info={"bytes": 1000})
        run._expect()
        # A sender by unicast sends a copy to each of eight.
        assert run.fidelity.asked.size_bytes == (8000 if protocol == "tcp" else 1000)
        if kind is CellRun:  # the publisher's too: a program beside them would be foreign
            programs = [run.fidelity.asked.things[f"{host} programs"] for host in ("s", "a", "b")]
            assert programs == ["1 x bash, 1 x hostlag, 1 x ldmd"] * 3
        free[cell.conditions.first_receiver] = run.fidelity.asked.free - {"programs"}
    assert free.pop("stop-10") == {"a scheduling"}
    assert set(free) == {"as-others", "loss-10", "rate-5", "rtt-300"}
    assert not any(free.values())


def test_no_other_buffer_overflows_on_purpose() -> None:
    found = checks(dataclasses.replace(overflow(HOSTS[1]), paused=HOSTS[0]))
    assert found["drops of FMTP's UDP sockets"].status == "fail"
    assert found["uninjected drops"].status == "fail"


def test_buffers_overflow_where_their_size_varies() -> None:
    varied = dataclasses.replace(overflow(HOSTS[0]), varied=frozenset({"b_rcv"}))
    found = checks(varied)
    assert found["drops of FMTP's UDP sockets"].status == "n/a"
    assert found["uninjected drops"].status == "pass"


HOSTS_OF_DRFSM8 = ("uva", "uwisc", "uutah", "uwash")


def dropped_by_socket(run: Path, host: str) -> int:
    (log,) = run.glob(f"cells/*/logs/{host}.ldmd.log")
    found = receiver_stats(parse_ldm_log(log.read_text(), log.name))
    assert found is not None
    return found.socket_drops


# -- a cell -------------------------------------------------------------------------------------
class TestInAGuest:
    pytestmark = [*IN_GUESTS, pytest.mark.slow]

    def test_it_loses_and_the_others_do_not(self) -> None:
        runs = ROOT / "runs" / f"slow-{os.getpid()}"
        argv = [sys.executable, "-m", "downpour", "run", "slow-receiver", "--clock", "virtual"]
        argv += ["--duration", "5", "--queue-bytes", "200MB", "--runs", str(runs)]
        try:
            done = subprocess.run(
                [*argv, "--only", "b_rcv=100kB", "--only", "pause_ms=600"],
                cwd=ROOT, capture_output=True, text=True, timeout=500,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
            (run,) = (runs / "slow-receiver").glob("2*")
            (cell,) = json.loads((run / "metrics.json").read_text())["cells"].values()
            assert cell["verdict"] == "faithful"
            drops = {host: dropped_by_socket(run, host) for host in HOSTS_OF_DRFSM8}
            slow = drops.pop("uva")
            assert slow > 100 and set(drops.values()) == {0}
        finally:
            shutil.rmtree(runs, ignore_errors=True)
