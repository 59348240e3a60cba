# SPDX-License-Identifier: Apache-2.0
"""The agent, which runs where the lab's network is: it builds the network, and executes commands
and checks one after another.

In a guest it stops time while no command runs: it polls for the next one without ever waiting, and
only waiting (or reading the clock) advances a guest's clock. The holder then stops the whole guest,
so that it uses no processor either. So no time passes between commands, however long the holder
takes.

Files of the exchange directory: `job.json` (what to build); `events` (from the agent, lines of
JSON: progress, ready, failed); `commands/NUMBER.json`, `commands/NUMBER.interrupt` (from the
holder, with new names, because a guest may cache what it knows of an old file); `done/NUMBER.json`
(answers); `out`, `err` (what commands print).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from common.files import write_json
from common.shell import NetworkError, termination_as_interrupt
from labs.bash import Bash
from labs.checking import CheckProblem, run_checks
from labs.live import LiveNetwork
from labs.spec import Lab, as_words, load_lab
from topologies.emulate import lifecycle
from topologies.emulate.emulation import Emulation, open_emulation
from topologies.model.network import Network

POLL_S: Final = 0.05  # how soon an interrupt is seen while a command runs
IDLE_POLL_S: Final = 0.02  # on the native clock: how soon a command is seen
SETTLE_S: Final = 1.0
AFTER_LINE_S: Final = 0.1
KIND: Final = "lab"
FAULTS: Final = (
    "cut LINK | cut-silently LINK | mend LINK | kill-controller | start-controller | "
    "power-off SWITCH | power-on SWITCH"
)


@dataclass(frozen=True)
class Job:
    """The holder's order. `frozen`: time stands still between commands."""

    folder: Path  # of the lab
    work: Path
    student: str
    network: str  # JSON
    run_id: str
    frozen: bool

    def to_json(self) -> str:
        """Return the job as text."""
        values = {**self.__dict__, "folder": str(self.folder), "work": str(self.work)}
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Return the job that `to_json` wrote."""
        raw = json.loads(text)
        return cls(**{**raw, "folder": Path(raw["folder"]), "work": Path(raw["work"])})


def main(exchange: Path) -> int:
    """Serve until SIGTERM (or the guest's end). The holder starts this without the command line's
    imports, which would take seconds in a guest."""

    def say(kind: str, **values: Any) -> None:
        with (exchange / "events").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": kind, **values}) + "\n")

    job = Job.from_json((exchange / "job.json").read_text(encoding="utf-8"))
    try:
        with termination_as_interrupt():
            lab = load_lab(job.folder)
            network = Network.from_json(job.network)
            with (
                lifecycle.enter(job.run_id, kind=KIND, topology=network.name) as run,
                open_emulation(
                    network,
                    run.state_dir,
                    progress=lambda t: say("progress", text=t),
                    controllers=lab.spec.controller == "running",
                ) as emulated,
                Agent(exchange, job, lab, emulated) as agent,
            ):
                agent.prepare()
                say("ready")
                agent.serve()
    except KeyboardInterrupt:
        return 0
    except NetworkError as error:
        say("failed", text=str(error))
        return 1
    except Exception as error:
        say("failed", text=f"{type(error).__name__}: {error}")
        raise
    return 0


class _Interrupted(Exception):
    """The student pressed Ctrl-C while checks ran."""


class Agent:
    """Serves commands one after another; a context manager."""

    def __init__(self, exchange: Path, job: Job, lab: Lab, emulated: Emulation) -> None:
        self._exchange, self._job, self._lab, self._emulated = exchange, job, lab, emulated
        self._network = LiveNetwork(emulated)
        self._faults_path = emulated.state_dir / "faults.sock"
        self._faults = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._faults.bind(str(self._faults_path))
        self._faults.listen(16)
        self._bash = Bash(exchange, job.work, self._environment(), emulated.pids)

    def __enter__(self) -> Agent:
        return self

    def __exit__(self, *_: object) -> None:
        self._bash.close()
        self._faults.close()

    def _environment(self) -> dict[str, str]:
        words = as_words(self._lab.parameters(self._job.student))
        checkout = Path(__file__).resolve().parent.parent
        network = self._emulated.network
        found = {
            **os.environ,
            "PATH": f"{checkout}/labs/bin:{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "NETWORK": str(self._emulated.state_dir / "network.json"),
            "FAULT_SOCKET": str(self._faults_path),
            "GROUP": network.multicast_group,
            "LC_ALL": "C.UTF-8",
        }
        for lane in range(2, network.lane_count + 1):
            found[f"GROUP{lane}"] = network.group_of(lane)
        if self._emulated.controller_sockets:
            found["REST"] = str(self._emulated.controller_socket)
        for name, host in ((h.name, h) for h in network.hosts):
            found[f"IP_{name.upper().replace('-', '_')}"] = host.nic1.ip
        return {**found, **{name.upper(): word for name, word in words.items()}}

    # -- commands

    def prepare(self) -> None:
        """Prepare the network as the lab asks before the student starts. Raises NetworkError."""
        name = self._lab.spec.prepare
        if name is None:
            return
        log = self._exchange / "prepare.log"
        script, told = shlex.quote(str(self._job.folder / name)), shlex.quote(str(log))
        code = self._run(0, f"( set -e; . {script} ) >{told} 2>&1")
        if code != 0:
            text = log.read_text(encoding="utf-8", errors="replace").strip()
            raise NetworkError(f"{name} of the lab failed with code {code}: {text[-1000:]}")

    def serve(self) -> None:
        """Execute one command after another, forever."""
        number = 1
        while True:
            command = self._next(number)
            write_json(self._exchange / f"done/{number}.json", self._do(number, command))
            number += 1

    def _next(self, number: int) -> dict[str, Any]:
        """Return the next command. In a guest no time passes until there is one."""
        folder, name = self._exchange / "commands", f"{number}.json"
        while name not in os.listdir(folder):  # noqa: PTH208 - one system call that never fails
            if not self._job.frozen:
                self._serve_faults(IDLE_POLL_S)
        command: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
        return command

    def _do(self, number: int, command: dict[str, Any]) -> dict[str, Any]:
        if command["kind"] == "run":
            code = self._run(number, str(command["line"]))
            # Let frames in transit arrive, as they would while a person types the next line:
            # otherwise a frame could wait at a switch until that line.
            time.sleep(AFTER_LINE_S)
            return {"code": code}
        # No time has passed since the student's last command, and a switch confirms a change before
        # its datapath's cache has followed.
        time.sleep(SETTLE_S)
        try:
            results = run_checks(
                self._lab,
                self._job.work,
                self._job.student,
                network=self._network,
                only=command.get("only"),
                progress=lambda text: self._progress(number, text),
            )
        except _Interrupted:
            return {"problem": "interrupted; no result is written"}
        except (NetworkError, CheckProblem) as error:
            return {"problem": str(error)}
        except KeyboardInterrupt:
            raise
        except Exception:  # a broken check must not end the student's network
            return {"problem": f"a check of this lab is broken:\n{traceback.format_exc()}"}
        return {"results": [r.to_dict() for r in results]}

    def _progress(self, number: int, text: str) -> None:
        """Act on an interrupt before each check, when the last check has repaired what it broke."""
        if self._interrupts(number):
            raise _Interrupted
        with (self._exchange / "events").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": "progress", "text": text}) + "\n")

    def _run(self, number: int, line: str) -> int:
        interrupts = 0
        self._bash.begin(line)
        while (code := self._bash.wait(POLL_S, self._faults, self._serve_faults)) is None:
            asked = self._interrupts(number)
            if asked > interrupts:
                interrupts = asked
                self._bash.interrupt(hard=asked > 1)
        return code

    def _interrupts(self, number: int) -> int:
        """Return how often the student has pressed Ctrl-C during this command."""
        names = os.listdir(self._exchange / "commands")  # noqa: PTH208
        return sum(n.startswith(f"{number}.interrupt") for n in names)

    # -- faults, requested by labs/bin/fault

    def _serve_faults(self, wait_s: float = 0.0) -> None:
        ready, _, _ = select.select([self._faults], [], [], wait_s)
        if not ready:
            return
        connection, _ = self._faults.accept()
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5.0)
            words = connection.recv(4096).decode("utf-8", "replace").split()
            try:
                text = self._fault(words)
                connection.sendall(f"0{text}\n".encode())
            except NetworkError as error:
                connection.sendall(f"1{error}\n".encode())

    def _fault(self, words: list[str]) -> str:
        """Cause the fault, or repair it, and return what was done. Raises NetworkError."""
        lab = self._emulated
        match words:
            case ["cut", link]:
                lab.cut(link)
            case ["cut-silently", link]:
                lab.cut(link, silent=True)
            case ["mend", link]:
                lab.mend(link)
            case ["power-off", switch]:
                lab.stop_switch(switch)
            case ["power-on", switch]:
                lab.start_switch(switch)
            case ["kill-controller"]:
                lab.kill_controller(self._domain())
            case ["start-controller"]:
                lab.start_controller(self._domain())
            case _:
                raise NetworkError(f"found '{' '.join(words)}'; valid: fault {FAULTS}")
        return f"{' '.join(words)}: done at {time.strftime('%H:%M:%S')}"

    def _domain(self) -> str:
        domains = list(self._emulated.controller_sockets)
        if not domains:
            raise NetworkError("this lab has no controller")
        return domains[0]


def end(pid: int) -> None:
    """End on SIGTERM to an agent on the native clock."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
