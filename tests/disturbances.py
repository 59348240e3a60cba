# SPDX-License-Identifier: Apache-2.0
"""Disturb a command at random moments, many times, and list what it leaves on the machine.

    python -m tests.disturbances KIND [--rounds N] [--seed N] [--minutes M]

KIND: up, down, native, virtual, lab, native-lab. The rounds run in separate namespaces (mounts,
processes, network). Whatever exists in them afterwards is a leftover: a process, mount, interface,
namespace, rule of iptables, control group, or file below /run, /dev/shm and the temporary
directory. The seed decides the moment, the process and the signal.

Moments are spread over the whole command, including its report. An undisturbed run notes when it
prints which line; a moment is a time after one of these lines, so it does not depend on how busy
the machine is. A round counts if the command still ran. Root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from common.places import ROOT
from virtual.cores import cache_directory
from virtual.kernel_build import find_kernel

INSIDE: Final = "DOWNPOUR_DISTURBED_MACHINE"
SCRATCH: Final = Path("/run/scratch")  # TMPDIR, home directory and results
TEMPORARY: Final = SCRATCH / "tmp"
CLI: Final = (sys.executable, "-m", "downpour")
SETTLE_S: Final = 25.0
LIMIT_S: Final = 600.0
POLL_S: Final = 0.01
MOST_MISSED: Final = 5  # rounds that come too late, for each that counts
LAB_STATE: Final = Path("/run/user/downpour-labs")
LAB_FILES: Final = ("downpour-labs", "1", "holder.log", "lock")  # stay: a lab's log, its lock
CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")

# -- the machine --------------------------------------------------------------------------------


def _lines(*argv: str) -> set[str]:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return {line.rstrip() for line in done.stdout.splitlines() if line.strip()}


def processes() -> dict[int, str]:
    """Return number -> command line of all processes here, without this one and zombies."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in (1, os.getpid()):
            continue
        with contextlib.suppress(OSError):
            state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            if state not in "ZX":
                text = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(entry.name)] = text.decode(errors="replace").strip()
    return found


def snapshot() -> set[str]:
    """Return everything that a run could leave: a line for each thing."""
    found = {f"process {pid} {text}" for pid, text in processes().items()}
    found |= {f"namespace {line}" for line in _lines("ip", "netns", "list")}
    found |= {f"link {line}" for line in _lines("ip", "-o", "link")}
    found |= {f"address {line}" for line in _lines("ip", "-o", "address")}
    found |= {f"route {line}" for line in _lines("ip", "route", "show", "table", "all")}
    found |= {f"qdisc {line}" for line in _lines("tc", "qdisc")}
    for tool in ("iptables-save", "iptables-legacy-save", "ip6tables-save"):
        if shutil.which(tool):
            found |= {f"{tool} {li}" for li in _lines(tool) if not li.startswith(("#", ":"))}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        found.add(f"mount {line.split()[4]}")
    for root in (Path("/run"), Path("/dev/shm"), TEMPORARY):
        for path in root.rglob("*"):
            if path.is_relative_to(LAB_STATE) and path.name in LAB_FILES:
                continue
            if not path.is_relative_to(SCRATCH) or path.is_relative_to(TEMPORARY):
                found.add(f"file {path}")
    for path in CONTROL_GROUPS.rglob("*downpour-*"):
        if not path.name.startswith("downpour-test-"):  # of another test: they have no namespace
            found.add(f"control group {path}")
    return found


def left(before: set[str], settle_s: float) -> list[str]:
    """Return what differs from `before`, after `settle_s` at most."""
    deadline = time.monotonic() + settle_s
    while True:
        after = snapshot()
        found = [f"left behind: {x}" for x in after - before]
        # The machine outside may remove directories of its mounts, and with them the mounts.
        found += [f"gone: {x}" for x in before - after if not x.startswith("mount ")]
        if not found or time.monotonic() > deadline:
            return sorted(found)
        time.sleep(0.2)


# -- the commands -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A command to disturb. `before` brings the machine to where `argv` starts; `after` is what its
    user does next (nothing if the command cleans up on its own)."""

    argv: tuple[str, ...]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    good: tuple[int, ...] = (0,)  # exit codes: 3 is an invalid verdict, which a busy machine gets


SMALL: Final = ("run", "regression", "--receivers", "2", "--duration", "1", "--only", "ldm7")
UP: Final = ("up", "geni5", "--receivers", "2")
RESULTS: Final = ("--runs", str(SCRATCH / "runs"))
LAB: Final = ("--dir", str(SCRATCH / "lab"))
KINDS: Final[Mapping[str, Kind]] = {
    "up": Kind(UP, after=("down",)),
    "down": Kind(("down",), before=UP, after=("down",)),
    "native": Kind((*SMALL, *RESULTS), good=(0, 3)),
    "virtual": Kind((*SMALL, "--clock", "virtual", *RESULTS)),
    "lab": Kind(("lab", "start", "1", *LAB), after=("lab", "stop", "1", *LAB)),
    "native-lab": Kind(
        ("lab", "start", "1", "--clock", "native", *LAB), after=("lab", "stop", "1", *LAB)
    ),
}

# What gets a signal, and which one. "any" is a random process.
WAYS: Final = (
    *(("group", signal.SIGINT), ("group", signal.SIGINT), ("command", signal.SIGKILL)),
    *(("command", signal.SIGKILL), ("group", signal.SIGKILL), ("command", signal.SIGTERM)),
    *(("group", signal.SIGHUP), ("any", signal.SIGKILL)),
)


@dataclass
class Outcome:
    """The findings of the rounds."""

    rounds: int = 0
    struck: int = 0  # while the command still ran
    tracebacks: int = 0
    interrupted: bool = False
    problems: list[str] = field(default_factory=list)
    ways: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)  # last line before the signal


@dataclass(frozen=True)
class Moment:
    """`after_s` after the command first prints `stage` ("": after its start)."""

    stage: str
    after_s: float


def stages(text: str) -> list[str]:
    """Return the complete lines that a command printed, each once, in order, without numbers."""
    # Without the times of a progress bar, which differ from run to run.
    lines = [re.sub(r"^\s*\[.*?\]|[\d.,:/-]+", "", li) for li in text.split("\n")[:-1]]
    return list(dict.fromkeys(" ".join(line.split())[:60] for line in lines if line.strip()))


@dataclass
class Timeline:
    """When an undisturbed command first printed each line, in s from its start; how long it ran."""

    begins: dict[str, float]
    took_s: float

    def moment(self, share: float) -> Moment:
        """Return the moment at `share` (0 to 1) of the time."""
        at_s = share * self.took_s
        stage, began_s = [(s, b) for s, b in self.begins.items() if b <= at_s][-1]
        return Moment(stage, at_s - began_s)


def start(argv: tuple[str, ...], log: Path) -> subprocess.Popen[bytes]:
    """Start a command as a shell would: its own process group."""
    with log.open("ab") as stream:
        return subprocess.Popen(
            [*CLI, *argv], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            process_group=0,
        )  # fmt: skip


def finished(argv: tuple[str, ...], log: Path) -> int:
    """Run a command to its end; return its exit code, -1 if it does not end."""
    process = start(argv, log)
    try:
        return process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return -1


def strike(process: subprocess.Popen[bytes], whom: str, number: int, dice: random.Random) -> None:
    """Send the signal."""
    with contextlib.suppress(ProcessLookupError):
        if whom == "group":
            os.killpg(process.pid, number)
        elif whom == "command":
            os.kill(process.pid, number)
        else:
            os.kill(dice.choice(sorted(processes()) or [process.pid]), number)


def timeline(argv: tuple[str, ...], log: Path) -> tuple[int, Timeline]:
    """Run a command to its end; return its exit code, and when it printed which line."""
    log.write_bytes(b"")
    began = time.monotonic()
    begins = {"": 0.0}
    process = start(argv, log)
    while process.poll() is None and time.monotonic() - began < LIMIT_S:
        for stage in stages(log.read_text(errors="replace")):
            begins.setdefault(stage, time.monotonic() - began)
        time.sleep(POLL_S)
    took_s = time.monotonic() - began
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait(), Timeline(begins, took_s)


def wait_for(process: subprocess.Popen[bytes], moment: Moment, log: Path) -> bool:
    """Wait until the moment; return False if the command ended before it."""
    while moment.stage and moment.stage not in stages(log.read_text(errors="replace")):
        if process.poll() is not None:
            return False
        time.sleep(POLL_S)
    try:
        process.wait(moment.after_s)
    except subprocess.TimeoutExpired:
        return True
    return False


def one_round(kind: Kind, moment: Moment, dice: random.Random, outcome: Outcome) -> bool:
    """Disturb the command once; return False if it ended before the moment."""
    log = SCRATCH / "log"
    log.write_bytes(b"")
    whom, number = dice.choice(WAYS)
    way = f"{whom} {signal.Signals(number).name}"
    name = f"round {outcome.rounds + 1}: {way} {moment.after_s:.2f} s after '{moment.stage}'"
    before = snapshot()
    if kind.before and finished(kind.before, log):
        outcome.problems.append(f"{name}: cannot begin: {log.read_text()[-500:]}")
    log.write_bytes(b"")
    process = start(kind.argv, log)
    struck = wait_for(process, moment, log)
    if struck:
        outcome.struck += 1
        outcome.ways[way] += 1
        said = stages(log.read_text(errors="replace"))
        outcome.stages[said[-1] if said else ""] += 1
        strike(process, whom, number, dice)
    try:
        process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        outcome.problems.append(f"{name}: no end within {LIMIT_S:.0f} s")
        process.kill()
        process.wait()
    # 2: nothing had been started yet, and the command says so.
    if kind.after and finished(kind.after, log) not in (0, 2):
        outcome.problems.append(f"{name}: '{' '.join(kind.after)}': {log.read_text()[-500:]}")
    if found := left(before, SETTLE_S):
        outcome.problems.append(f"{name}: {'; '.join(found[:12])}; said: {log.read_text()[-800:]}")
        _clean()
    text = log.read_text(errors="replace")
    if "Traceback" in text:
        outcome.tracebacks += 1
        outcome.problems.append(f"{name}: traceback: {text[-1500:]}")
    return struck


def _clean() -> None:
    """Remove a round's leftovers, so that the next round does not count them."""
    finished(("down", "--all"), SCRATCH / "log")
    for pid in processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for path in TEMPORARY.iterdir():
        shutil.rmtree(path, ignore_errors=True)
    shutil.rmtree(LAB_STATE, ignore_errors=True)


def rounds(
    name: str, number: int, seed: int, limit_s: float, say: Callable[[str], None]
) -> Outcome:
    """Disturb a command `number` times, or until the time is up. An undisturbed run, for the
    timeline, comes first."""
    ends = time.monotonic() + limit_s
    kind, outcome, dice = KINDS[name], Outcome(), random.Random(f"{name} {seed}")
    log = SCRATCH / "log"
    if kind.before:
        finished(kind.before, log)
    code, whole = timeline(kind.argv, log)
    said = log.read_text(errors="replace")
    if kind.after:
        finished(kind.after, log)
    if code not in kind.good:
        outcome.problems.append(f"undisturbed: exit code {code}: {said[-1500:]}")
        return outcome
    say(f"{name}: undisturbed {whole.took_s:.1f} s; {number} rounds, seed {seed}")
    shares = [(part + dice.random()) / number for part in range(number)]
    dice.shuffle(shares)
    missed = 0
    while shares and missed <= MOST_MISSED * number and time.monotonic() < ends:
        known = len(outcome.problems)
        try:
            counts = one_round(kind, whole.moment(shares[-1]), dice, outcome)
        except KeyboardInterrupt:  # report the findings so far
            outcome.interrupted = True
            return outcome
        if counts:
            outcome.rounds += 1
            shares.pop()
        else:  # too late: try any other moment
            missed += 1
            shares[-1] = dice.random()
        for problem in outcome.problems[known:]:
            say(problem)
        if outcome.rounds % 5 == 0:
            say(f"{name}: {outcome.rounds} rounds, {missed} too late")
    return outcome


# -- a machine of its own -----------------------------------------------------------------------


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Make the directories that only this machine has. Call this inside the namespaces."""
    for place in ("/run", "/dev/shm"):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", place], check=True)
    Path("/dev/shm").chmod(0o1777)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for path in (TEMPORARY, SCRATCH / "home", Path("/run/user"), Path("/run/netns")):
        path.mkdir(parents=True)
    # iproute2 mounts its directory once per machine, at the first named namespace.
    subprocess.run(["ip", "netns", "add", "first"], check=True)
    subprocess.run(["ip", "netns", "delete", "first"], check=True)
    yield


def inside(command: list[str]) -> list[str]:
    """Return a command that runs `command` in its own namespaces, which end with it."""
    own = ("--mount", "--net", "--ipc", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
    return ["unshare", *own, *command]


def environment() -> dict[str, str]:
    """Return the environment of a separate machine, with the kernel of runs on this machine."""
    kernel = find_kernel()
    cache = cache_directory() if kernel is None else kernel.path.parents[2]
    return {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "HOME": str(SCRATCH / "home"),
        "TMPDIR": str(TEMPORARY),
        "XDG_RUNTIME_DIR": "/run/user",
        "DOWNPOUR_CACHE": str(cache),
        "PYTHONPYCACHEPREFIX": str(
            SCRATCH / "pycache"
        ),  # write nothing into the checkout, and be quick
        "PYTHONUNBUFFERED": "1",
        INSIDE: "1",
    }


def main() -> int:
    """Print the findings, as JSON in the last line. Exit code 1: the command left something."""
    parser = argparse.ArgumentParser(prog="python -m tests.disturbances", description=__doc__)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--minutes", type=float, default=1e6, metavar="M")
    options = parser.parse_args()
    # A shell's background job ignores SIGINT, and so would every command that it must end.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if INSIDE not in os.environ:
        command = inside([sys.executable, "-m", "tests.disturbances", *sys.argv[1:]])
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process inside gets Ctrl-C, and reports
        return subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode
    with prepared():
        try:
            outcome = rounds(
                options.kind,
                options.rounds,
                options.seed,
                60 * options.minutes,
                lambda text: print(text, flush=True),
            )
        except KeyboardInterrupt:  # in the undisturbed run
            outcome = Outcome(interrupted=True)
    print(json.dumps({**vars(outcome), "kind": options.kind, "seed": options.seed}))
    if outcome.interrupted:
        return 130
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
