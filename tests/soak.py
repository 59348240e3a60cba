# SPDX-License-Identifier: Apache-2.0
"""Let subscribers come and go for days of virtual time, and list what grows: programs, files.

    python -m tests.soak DIR [--hours H] [--runs N] [--every S] [--sparse] [--judge]

DIR gets a directory for each of N runs of H virtual hours (default: one run of 168, a week), with
the sizes of each program and file every S virtual seconds (samples.jsonl). The command does not
repeat a complete run, so it continues where you stopped it. Each run is an experiment of the kind
join-leave in a guest: three feeds of small products and seven subscribers, some of which it kills.
With `--sparse` the days are as real ones: a product per minute, subscribers stay for hours, and
observers look at the network every ten minutes; virtual time skips the rest. `--judge` runs
nothing, and judges existing samples.

At the end it prints the slopes per virtual hour of each program's own memory (RssAnon), threads and
open files, and of the files, from the samples after the first quarter. Exit code 1: something
grows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from common import looking
from common.places import ROOT

SAMPLES: Final = "samples.jsonl"
DONE: Final = "done.json"
SETTLED: Final = 0.25  # the first part of a run fills caches and rings
FEWEST: Final = 8  # samples of a slope
# Not growth: an allocator's noise in a run of a few hours.
MOST_KB_PER_H: Final = 64.0
MOST_PER_H: Final = 0.5  # threads, open files
MOST_STORE_KB_PER_H: Final = 16.0
GUEST_MB: Final = 4000
STALL_S: Final = 900
# A log gets a line for each event: its growth is printed, not judged. A queue fills up by design.
LOGS: Final = re.compile(r"\.(log|stderr|jsonl|sa|txt|all)$|/logs/|/products/")
QUEUES: Final = re.compile(r"\.pq$")

SPEC: Final = """\
name: soak
kind: join-leave
description: Subscribers joining and leaving three feeds of small products
topology: drfsm8
feeds:
  - {{ feed: NGRID, rate_bps: 20Mbps, size_factor: 1 }}
  - {{ feed: CONDUIT, rate_bps: 10Mbps, size_factor: 1 }}
  - {{ feed: NEXRAD3, rate_bps: 5Mbps, size_factor: 1 }}
subscriptions: {{ stay_s: {stay_s}, away_s: {away_s}, killed: 25% }}
parameters:
  f_snd: 5000
  f_rcv: 20
  b_mc: 600MB
  b_uc: 600MB
  b_rcv: 600MB
  q_snd: 300MB
  n_snd: 35000
base_seed: {seed}
trace: {trace}
duration_s: {duration_s}
"""


@dataclass(frozen=True)
class Use:
    """What a process uses. `anon_kb`: its own memory, without mapped files."""

    program: str
    anon_kb: int
    threads: int
    files: int
    wakes: int  # how often its threads slept and ran again, which keeps a guest busy


def wakes(process: Path) -> int:
    """Return how often the threads of a process yielded the processor voluntarily."""
    found = 0
    for thread in (process / "task").iterdir():
        with contextlib.suppress(OSError):
            words = (thread / "status").read_text().split()
            found += int(words[words.index("voluntary_ctxt_switches:") + 1])
    return found


@dataclass(frozen=True)
class Profile:
    """How much happens. `look_s`: how often observers look at the network; 0: as usual."""

    product_s: int
    stay_s: int
    away_s: int
    look_s: float


DENSE: Final = Profile(product_s=20, stay_s=300, away_s=200, look_s=0)
SPARSE: Final = Profile(product_s=60, stay_s=4 * 3600, away_s=3600, look_s=600)


# -- in the guest -----------------------------------------------------------------------------


def program_of(words: Sequence[str], name: str) -> str:
    """Return which program it is: a Python module's name, for ldmd also its log's name."""
    if "-m" in words[:8]:
        module = words[words.index("-m") + 1 : words.index("-m") + 3]
        return " ".join(word for word in module if not word.startswith(("-", "/")))
    for word in words:
        if found := re.search(r"([\w.-]+)\.ldmd\.(?:log|conf)$", word):
            return f"{name} {found[1]}"
    return name


def uses(proc: Path = Path("/proc")) -> dict[str, Use]:
    """Return what each process uses, by its number and start; kernel threads have no memory."""
    found = {}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, KeyError, IndexError):
            lines = (entry / "status").read_text().splitlines()
            status = dict(line.split(":", 1) for line in lines)
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            start = (entry / "stat").read_text().rpartition(")")[2].split()[19]
            found[f"{entry.name}-{start}"] = Use(
                program_of(words, status["Name"].strip()),
                int(status["RssAnon"].split()[0]),
                int(status["Threads"]),
                len(list((entry / "fd").iterdir())),
                wakes(entry),
            )
    return found


def sizes(places: Sequence[Path]) -> dict[str, int]:
    """Return the size of each file below the places, in bytes on the disk."""
    found = {}
    for place in places:
        for path in place.rglob("*"):
            with contextlib.suppress(OSError):
                if path.is_file() and not path.is_symlink():
                    found[str(path)] = path.stat().st_blocks * 512
    return found


def inside(directory: Path, every_s: float, profile: Profile) -> int:
    """Run the experiment in this guest, and sample until it ends; return its exit code."""
    runs = directory / "runs"
    argv = [sys.executable, "-m", "downpour", "run", str(directory / "soak.yaml"), "--clock"]
    argv += ["native", "--runs", str(runs)]
    environment = {**os.environ, looking.VARIABLE: str(profile.look_s)}
    began = time.time()
    with (directory / "run.log").open("wb") as log, (directory / SAMPLES).open("w") as samples:
        run = subprocess.Popen(
            argv, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=environment
        )
        ended = threading.Thread(target=run.wait, daemon=True)  # with a timeout it would poll
        ended.start()
        while ended.is_alive():
            ended.join(every_s)
            raw = {key: asdict(use) for key, use in uses().items()}
            places = (runs, Path("/run"), Path("/tmp"), Path("/dev/shm"))
            line = {"at_s": time.time() - began, "processes": raw, "files": sizes(places)}
            samples.write(json.dumps(line) + "\n")
            samples.flush()
    return run.returncode


# -- what grew --------------------------------------------------------------------------------


def slope_per_h(points: Sequence[tuple[float, float]]) -> float:
    """Return the growth of (s, value) per hour, by least squares."""
    return statistics.linear_regression(*zip(*points, strict=True)).slope * 3600


def series(samples: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Return the series to judge, by "quantity: who". Programs that come and go count as one series
    per name: the largest of each sample."""
    settled = list(samples[int(len(samples) * SETTLED) :])
    usual = statistics.median(len(s["processes"]) for s in settled)
    while len(settled[-1]["processes"]) < usual / 2:  # network down, report under way
        settled.pop()
    lasting = set.intersection(*(set(s["processes"]) for s in settled))
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for sample in settled:
        brief: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for key, use in sample["processes"].items():
            if key in lasting:
                brief[f"{use['program']} ({key})"].append(use)
            else:
                brief[f"{use['program'].partition(' ')[0]} (all that come and go)"].append(use)
        for who, those in brief.items():
            for quantity in ("anon_kb", "threads", "files"):
                most = max(use[quantity] for use in those)
                found[f"{quantity}: {who}"].append((sample["at_s"], most))
        files = {p: n for p, n in sample["files"].items() if not QUEUES.search(p)}
        kept = {p: n for p, n in files.items() if not LOGS.search(p)}
        found["kb: files but logs"].append((sample["at_s"], sum(kept.values()) / 1024))
        for path, size in kept.items():
            if "store" in Path(path).name or "controller" in path:
                found[f"store_kb: {path}"].append((sample["at_s"], size / 1024))
        logs = sum(n for p, n in files.items() if LOGS.search(p))
        found["logs_kb: all"].append((sample["at_s"], logs / 1024))
    return found


LIMITS: Final = {
    "anon_kb": MOST_KB_PER_H,
    "threads": MOST_PER_H,
    "files": MOST_PER_H,
    "kb": MOST_KB_PER_H,
    "store_kb": MOST_STORE_KB_PER_H,
    "logs_kb": float("inf"),
}


def judge(samples: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return a line for each series that changed, and the lines of those that grow."""
    shown, growing = [], []
    for name, points in sorted(series(samples).items()):
        if len(points) < FEWEST:
            continue
        slope = slope_per_h(points)
        values = [value for _, value in points]
        text = f"{slope:+10.2f} per h  {values[0]:.0f} -> {values[-1]:.0f}  {name}"
        if values[0] != values[-1] or abs(slope) > 0.01:
            shown.append(text)
        if slope > LIMITS[name.partition(":")[0]] and max(values[len(values) // 2 :]) > max(
            values[: len(values) // 2]
        ):
            growing.append(text)
    return shown, growing


# -- outside ----------------------------------------------------------------------------------


def trace_lines(hours: float, product_s: int) -> Iterator[str]:
    """Yield small products, one every `product_s`; every thirtieth has a few more blocks."""
    for number in range(max(2, int(hours * 3600 / product_s))):
        at_s = number * product_s
        day, rest = divmod(at_s, 86400)
        clock = f"{rest // 3600:02}{rest % 3600 // 60:02}{rest % 60:02}"
        yield f"{20_000 if number % 30 == 0 else 3_000} 201601{day + 1:02}{clock}.000\n"


def prepare(directory: Path, hours: float, number: int, profile: Profile = DENSE) -> None:
    """Write the experiment and its trace."""
    directory.mkdir(parents=True, exist_ok=True)
    trace = directory / "soak.trace.txt"
    trace.write_text("".join(trace_lines(hours, profile.product_s)))
    text = SPEC.format(
        seed=3000 + number,
        trace=trace,
        duration_s=hours * 3600,
        stay_s=profile.stay_s,
        away_s=profile.away_s,
    )
    (directory / "soak.yaml").write_text(text)


def one(
    directory: Path, hours: float, number: int, every_s: float, profile: Profile = DENSE
) -> None:
    """Do a run unless it is complete. Raises SystemExit if it fails."""
    if (directory / DONE).exists():
        print(f"{directory.name}: complete", flush=True)
        return
    prepare(directory, hours, number, profile)
    argv = [
        *(sys.executable, "-m", "downpour", "virtual", "run", "--share", str(directory)),
        *("--memory-mb", str(GUEST_MB), "--stall-s", str(STALL_S), "--seed", str(number)),
        *("--", sys.executable, "-m", "tests.soak", str(directory)),
        *("--inside", "--every", str(every_s)),
        *(("--sparse",) if profile is SPARSE else ()),
    ]
    began = time.monotonic()
    with (directory / "guest.log").open("wb") as log:
        guest = subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
        while guest.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                guest.wait(30)
            tell(directory, hours, time.monotonic() - began)
    if guest.returncode not in (0, 3):  # 3: a verdict that is not faithful
        text = (directory / "guest.log").read_text() + (directory / "run.log").read_text()
        raise SystemExit(f"{directory}: exit status {guest.returncode}:\n{text[-2000:]}")
    took = {"real_s": time.monotonic() - began, "hours": hours, "code": guest.returncode}
    (directory / DONE).write_text(json.dumps(took))


def read(directory: Path) -> list[dict[str, Any]]:
    """Return the samples; the last line may be half written."""
    found = []
    with contextlib.suppress(OSError, ValueError), (directory / SAMPLES).open() as lines:
        for line in lines:
            found.append(json.loads(line))
    return found


def tell(directory: Path, hours: float, real_s: float) -> None:
    """Print a run's progress."""
    samples = read(directory)
    at_s = samples[-1]["at_s"] if samples else 0.0
    left = f"{(hours * 3600 - at_s) * real_s / at_s / 60:.0f} min left" if at_s else "starting"
    print(
        f"{directory.name}: {at_s / 3600:.2f} of {hours:g} h of virtual time, "
        f"{at_s / real_s:.1f} virtual s per s, {left}",
        flush=True,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Do the runs that are not complete, and judge all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--hours", type=float, default=168.0)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--every", type=float, default=300.0, metavar="S")
    parser.add_argument("--sparse", action="store_true", help="as few events as on a real day")
    parser.add_argument("--judge", action="store_true", help="run nothing; judge existing results")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    profile = SPARSE if options.sparse else DENSE
    if options.inside:
        return inside(options.directory, options.every, profile)
    grows, judged = False, 0
    for number in range(1, options.runs + 1):
        directory = options.directory.absolute() / f"run-{number}"
        if not options.judge:
            one(directory, options.hours, number, options.every, profile)
        samples = read(directory)
        if len(samples) < FEWEST:
            print(f"{directory}: found {len(samples)} samples; valid: {FEWEST} or more")
            continue
        print(f"{directory.name}: {len(samples)} samples, {samples[-1]['at_s'] / 3600:.2f} h")
        judged += 1
        shown, growing = judge(samples)
        print("\n".join(shown))
        for line in growing:
            print(f"GROWS {line}")
        grows = grows or bool(growing)
    return 2 if not judged else 1 if grows else 0


if __name__ == "__main__":
    sys.exit(main())
