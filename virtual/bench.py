# SPDX-License-Identifier: Apache-2.0
"""How long experiments take in virtual time: real time against receivers and rate.

Runs the `lossy` experiment by its command line, one guest at a time, and reads what its cells left:
`virtual.json` (real and virtual time of each phase) and the receivers' counters. A packet counts as
delivered if a receiver's NIC1 took it between the two readings of the counters.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from common.exit_codes import EXIT_FAILED
from common.files import write_json
from common.places import ROOT

EXPERIMENT: Final = ROOT / "experiments/catalogue/lossy.yaml"
NAME: Final = "virtual-bench"
REPLAY: Final = "replaying the trace"
QUEUE_BYTES: Final = 300_000_000
RAN: Final = (0, 3)  # 3: a verdict is invalid, which says nothing about speed


class BenchError(Exception):
    """There is nothing to measure; the text says why."""


@dataclass(frozen=True)
class Row:
    """One cell. Real times are this machine's; `packets` are those delivered in the replay."""

    protocol: str
    m: int
    r_bps: int
    packets: int
    startup_real_s: float  # from the guest's boot to the replay's beginning
    replay_real_s: float
    replay_virtual_s: float
    total_real_s: float

    @property
    def packets_per_real_s(self) -> float:
        return self.packets / self.replay_real_s if self.replay_real_s > 0 else 0.0

    @property
    def virtual_per_real(self) -> float:
        """Return the virtual seconds per real second of the replay."""
        return self.replay_virtual_s / self.replay_real_s if self.replay_real_s > 0 else 0.0


def experiment_text(
    template: str, *, protocols: Sequence[str], receivers: Sequence[int], rates_bps: Sequence[int],
    duration_s: float, repeats: int,
) -> str:  # fmt: skip
    """Return an experiment's file: `template` (YAML) with these factors and without the papers'
    values."""
    yaml = YAML(typ="safe")
    document: dict[str, Any] = yaml.load(template)
    document |= {"name": NAME, "duration_s": duration_s, "repeats": repeats}
    document["factors"] |= {
        "protocol": list(protocols),
        "receivers": list(receivers),
        "rate_bps": list(rates_bps),
    }
    document.pop("paper", None)
    text = io.StringIO()
    yaml.dump(document, text)
    return text.getvalue()


def read_cell(directory: Path) -> Row:
    """Return the row of one cell's directory. Raises BenchError."""
    files = {}
    for name in ("cell", "network", "virtual", "counters-start", "counters-end"):
        try:
            files[name] = json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise BenchError(f"{directory}/{name}.json: {error}") from None
    cell, virtual = files["cell"], files["virtual"]
    phases = virtual["phases"]
    at = next((i for i, phase in enumerate(phases) if phase["text"] == REPLAY), None)
    if at is None or at + 1 == len(phases):
        texts = ", ".join(phase["text"] for phase in phases)
        raise BenchError(f"{directory}/virtual.json: found phases {texts}; valid: '{REPLAY}' "
                         "and one after it")  # fmt: skip
    begin, end = phases[at], phases[at + 1]
    return Row(
        protocol=cell["protocol"],
        m=cell["m"],
        r_bps=cell["r_bps"],
        packets=delivered(
            files["network"], cell["subscribers"], files["counters-start"], files["counters-end"]
        ),
        startup_real_s=begin["real_s"],
        replay_real_s=end["real_s"] - begin["real_s"],
        replay_virtual_s=end["virtual_s"] - begin["virtual_s"],
        total_real_s=virtual["real_s"],
    )


def delivered(
    network: dict[str, Any], subscribers: Sequence[str], start: dict[str, Any], end: dict[str, Any]
) -> int:
    """Return how many packets the subscribers' NIC1 took between the two readings of the
    counters."""
    nic1 = {host["name"]: host["nic1"]["interface"] for host in network["hosts"]}
    keys = [f"{name}/{nic1[name]}" for name in subscribers]
    return sum(
        end["interfaces"][key]["rx_packets"] - start["interfaces"][key]["rx_packets"]
        for key in keys
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text, a line each."""
    lines = [
        f"{'protocol':8} {'m':>3} {'r Mbit/s':>8} {'packets':>9} {'replay s':>9} "
        f"{'packets/s':>9} {'virtual/real':>12} {'start-up s':>10} {'total s':>8}"
    ]
    lines += [
        f"{r.protocol:8} {r.m:3d} {r.r_bps / 1e6:8.3g} {r.packets:9d} {r.replay_real_s:9.2f} "
        f"{r.packets_per_real_s:9.0f} {r.virtual_per_real:12.2f} {r.startup_real_s:10.2f} "
        f"{r.total_real_s:8.2f}"
        for r in rows
    ]
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class Choices:
    """What to measure. `build`: where the C programs are (None: the checkout's)."""

    receivers: Sequence[int]
    rates_mbps: Sequence[int]
    protocols: Sequence[str]
    duration_s: float
    repeats: int
    build: Path | None


def _run(options: Choices, directory: Path) -> Path:
    """Run the experiment; return the directory of its cells. Raises BenchError."""
    text = experiment_text(
        EXPERIMENT.read_text(encoding="utf-8"),
        protocols=options.protocols,
        receivers=options.receivers,
        rates_bps=[rate * 1_000_000 for rate in options.rates_mbps],
        duration_s=options.duration_s,
        repeats=options.repeats,
    )
    path = directory / f"{NAME}.yaml"
    path.write_text(text, encoding="utf-8")
    argv = [sys.executable, "-m", "downpour", "run", str(path), "--clock", "virtual"]
    argv += ["--jobs", "1", "--queue-bytes", str(QUEUE_BYTES)]
    if options.build is not None:
        argv += ["--build", str(options.build)]
    before = set((ROOT / "runs" / NAME).glob("[0-9]*"))
    # To standard error: its report is about the protocols, but its progress must be visible.
    code = subprocess.run(argv, cwd=ROOT, stdout=sys.stderr, check=False).returncode
    made = sorted(set((ROOT / "runs" / NAME).glob("[0-9]*")) - before)
    if code not in RAN or not made:
        raise BenchError(f"the experiment ended with {code}")
    return made[-1] / "cells"


def main(options: Choices, json_file: Path | None = None) -> int:
    """Measure and print the table. Return the exit code."""
    try:
        with tempfile.TemporaryDirectory(prefix="downpour-bench-") as name:
            cells = _run(options, Path(name))
        rows = [read_cell(cell) for cell in cells.iterdir() if cell.is_dir()]
    except BenchError as error:
        print(f"virtual: {error}", file=sys.stderr)
        return EXIT_FAILED
    rows.sort(key=lambda row: (row.protocol, row.m, row.r_bps))
    print(table(rows), end="")
    if json_file is not None:
        values = [
            asdict(r)
            | {"packets_per_real_s": r.packets_per_real_s, "virtual_per_real": r.virtual_per_real}
            for r in rows
        ]
        write_json(json_file, values)
    return 0
