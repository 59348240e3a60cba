# SPDX-License-Identifier: Apache-2.0
"""Record with sysstat while products are in transit; its own tools read the records afterwards.

sar always runs at the publisher, and writes text and a binary file (`sar -f`, `sadf`). On request
(`--sample`), sar runs at every host of the cell, and pidstat for the cell's programs.
`counters_log` reads the counters of ldmd's processes (`--sample counters`); `minute_records` does
`--sample minutes`.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from experiments.cells.samplers import Repeater, descendants

if TYPE_CHECKING:  # it imports Mininet, which a plan does not need
    from topologies.emulate.emulation import Emulation

Sample = Literal["hosts", "pidstat", "counters", "minutes", "events"]
SAMPLES: Final[tuple[Sample, ...]] = get_args(Sample)
ENVIRONMENT: Final = {"LC_ALL": "C", "S_TIME_FORMAT": "ISO", "TZ": "UTC"}
# A cell's programs by their commands' names. Lines of other runs' programs are removed at the
# end.
PROGRAMS: Final = "ldmd|mldm|up6|up7|down6|down7|pqact|pqinsert|rtstats"
End = Callable[[subprocess.Popen[bytes], signal.Signals], None]


def sar_argv(binary: Path, every: int, count: int) -> list[str]:
    """Return the command of sar, which prints its text."""
    return ["sar", "-o", str(binary), "-n", "DEV", "-u", str(every), str(count)]


def pidstat_argv(every: int, count: int) -> list[str]:
    """Return the command of pidstat: CPU, memory and disk of each program, with epoch times."""
    return ["pidstat", "-h", "-H", "-u", "-r", "-d", "-C", PROGRAMS, str(every), str(count)]


def lines_of(text: str, pids: Iterable[int]) -> str:
    """Return pidstat's header, once, and its lines about these processes."""
    wanted, header, kept = {str(pid) for pid in pids}, "", []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("#"):
            header = header or line
        elif len(words) > 3 and words[2] in wanted:
            kept.append(line)
    return "".join(f"{line}\n" for line in ([header] if header else []) + kept)


class Sysstat:
    """sysstat's programs of one cell, from `start` to `stop`.

    `daemons`: name -> process whose descendants are the programs of a host, as they are now.
    """

    def __init__(
        self,
        emulation: Emulation,
        logs: Path,
        samples: Iterable[str],
        daemons: Callable[[], Mapping[str, int]],
        end: End,
    ) -> None:
        self._emulation, self._logs, self._daemons, self._end = emulation, logs, daemons, end
        self._samples = frozenset(samples)
        self._running: list[subprocess.Popen[bytes]] = []
        self._seen: dict[str, set[int]] = {}
        self._look: Repeater | None = None

    def start(self, publisher: str, hosts: Iterable[str], every: int, count: int) -> None:
        """Start all that was requested. Raises NetworkError."""
        self._sar(publisher, "sar", every, count)
        if "hosts" in self._samples:
            for host in hosts:
                if host != publisher:
                    self._sar(host, f"sar.{host}", every, count)
        if "pidstat" in self._samples:
            self._program(publisher, self._pidstat_log, pidstat_argv(every, count))
            self._look = Repeater("pidstat", every, self._note_programs)
            self._look.start()

    def _sar(self, host: str, name: str, every: int, count: int) -> None:
        binary = self._logs / f"{name}.sa"
        if host in self._emulation.elsewhere:
            self._emulation.elsewhere[host].mirror(binary)
        argv = sar_argv(binary, every, count)
        self._program(host, self._logs / f"{name}.log", argv)

    def _program(self, host: str, log: Path, argv: list[str]) -> None:
        with log.open("wb") as output:
            self._running.append(
                self._emulation.popen(host, argv, stdout=output, stderr=output, env=ENVIRONMENT)
            )

    @property
    def _pidstat_log(self) -> Path:
        return self._logs / "pidstat.all"

    def _note_programs(self) -> None:
        for name, pid in self._daemons().items():
            self._seen.setdefault(name, set()).update(descendants(pid))

    def stop(self) -> None:
        """End them; pidstat's lines go to a file for each host."""
        for program in self._running:
            self._end(program, signal.SIGINT)
        self._running.clear()
        if self._look is None:
            return
        self._look.stop()
        self._look = None
        text = self._pidstat_log.read_text(encoding="utf-8", errors="replace")
        for name, pids in self._seen.items():
            (self._logs / f"pidstat.{name}.log").write_text(lines_of(text, pids), encoding="utf-8")
        self._pidstat_log.unlink()
