# SPDX-License-Identifier: Apache-2.0
"""Run a Slurm cluster of one node on this machine's loopback, as plain processes: munged, slurmctld
and slurmd. One directory holds everything that they write."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "sinfo", "scancel")
PARTITION: Final = "main"
UP_S: Final = 60.0
DEAD_S: Final = 10  # until a node that does not answer is down


def lacking() -> str:
    """Return why a cluster cannot run here; "" if it can."""
    if os.geteuid() != 0:
        return "needs root: slurmd starts jobs as their users"
    path = f"{os.environ['PATH']}:/usr/sbin"
    absent = [p for p in PROGRAMS if shutil.which(p, path=path) is None]
    return f"no {absent[0]} (Debian: slurmctld slurmd slurm-client munge)" if absent else ""


def configuration(
    place: Path, host: str, ports: tuple[int, int], cores: int, memory_mb: int
) -> str:
    """Return the text of slurm.conf."""
    control, node = ports
    return f"""ClusterName=downpour
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.sock
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ReturnToService=2
SlurmdTimeout={DEAD_S}
BatchStartTimeout=10
MinJobAge=86400
SlurmctldPort={control}
SlurmdPort={node}
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmdSpoolDir={place}/spool
StateSaveLocation={place}/state
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
MailProg=/bin/true
SchedulerParameters=sched_interval=2,batch_sched_delay=0
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} RealMemory={memory_mb} State=UNKNOWN
PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


def _is_job(variable: bytes) -> bool:
    return variable.startswith(b"SLURM_JOB_ID=")


@dataclass
class Cluster:
    """A running cluster. `environment` lets Slurm's commands find it."""

    place: Path
    environment: Mapping[str, str]
    daemons: dict[str, subprocess.Popen[bytes]]

    def start(self, name: str, *argv: str) -> None:
        """Start a daemon in the foreground."""
        with (self.place / f"{name}.out").open("ab") as out:
            self.daemons[name] = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=dict(self.environment),
                start_new_session=True,
            )

    def start_node(self) -> None:
        """Start the node's daemon."""
        self.start("slurmd", "slurmd", "-D", "-f", str(self.place / "slurm.conf"))

    def run(self, *argv: str) -> str:
        """Return what a command of Slurm prints; "" if it fails."""
        done = subprocess.run(
            argv, env=dict(self.environment), capture_output=True, text=True, check=False
        )
        return done.stdout if done.returncode == 0 else ""

    def await_node(self) -> None:
        """Wait until the node takes jobs."""
        deadline = time.monotonic() + UP_S
        while "idle" not in self.run("sinfo", "--noheader", "--format=%t"):
            if time.monotonic() > deadline:
                logs = sorted(self.place.glob("*.log")) + sorted(self.place.glob("*.out"))
                raise RuntimeError("\n".join(p.read_text(errors="replace")[-800:] for p in logs))
            time.sleep(0.3)

    def kill_node(self) -> None:
        """End the node as a power cut does: its daemon, its jobs' keepers, and its jobs."""
        node = self.daemons.pop("slurmd")
        for pid in self._below(node.pid) | self._keepers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        node.kill()
        node.wait()

    def _keepers(self) -> set[int]:
        """Return the jobs' processes: their environment names this cluster's configuration."""
        mark = f"SLURM_CONF={self.place}/slurm.conf".encode()
        daemons = {p.pid for p in self.daemons.values()}
        found = set[int]()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    parts = (entry / "environ").read_bytes().split(b"\0")
                    keeper = (entry / "comm").read_text().startswith("slurmstepd")
                    if mark in parts and (keeper or any(map(_is_job, parts))):
                        found.add(int(entry.name))
        return found - daemons

    @staticmethod
    def _below(pid: int) -> set[int]:
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            return {int(c) for c in children}.union(*(Cluster._below(int(c)) for c in children))
        return set()

    def stop(self) -> None:
        """End all daemons, jobs first."""
        for pid in self._keepers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in reversed(self.daemons.values()):
            process.terminate()
        for process in self.daemons.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def cluster(place: Path, cores: int = 2, memory_mb: int = 8000) -> Iterator[Cluster]:
    """Run a cluster below a directory that root owns. Raises RuntimeError."""
    host = socket.gethostname().partition(".")[0]
    for name in ("spool", "state"):
        (place / name).mkdir()
    (place / "slurm.conf").write_text(configuration(place, host, _free_ports(), cores, memory_mb))
    key = place / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    environment = {**os.environ, "SLURM_CONF": str(place / "slurm.conf")}
    environment["PATH"] = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    found = Cluster(place, environment, {})
    try:
        found.start(
            *("munged", "munged", "--foreground", "--force", f"--key-file={key}"),
            *(f"--socket={place}/munge.sock", f"--pid-file={place}/munged.pid"),
            *(f"--log-file={place}/munged.log", f"--seed-file={place}/munged.seed"),
        )
        found.start("slurmctld", "slurmctld", "-D", "-f", str(place / "slurm.conf"))
        found.start_node()
        found.await_node()
        yield found
    finally:
        found.stop()
