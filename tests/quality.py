# SPDX-License-Identifier: Apache-2.0
"""Check the C code beyond its tests: `python -m tests.quality analyze|coverage|threads`.

analyze   gcc -fanalyzer and clang-tidy (.clang-tidy says which checks, and why not others) over
          every C file but tests; the code marks a false finding, with the reason
coverage  line coverage of the C rooms by their own tests; fails if a core falls below its share
threads   tests of programs with threads, under ThreadSanitizer

Each prints what it checked, and exits with 1 if it found something.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD_PREFIX = re.compile(r"^(?:build-analyze/)?(?:\.\./)+")
FINDING = re.compile(r"^(?P<where>[^\s:]+):\d+:\d+: (?:warning|error): .*$")
# pq: the notifier's thread
THREADED = ("fmtp-loop", "ldm7-pq", "ldm7-pq_lookup", "ldm7-pq_processes")
# Coverage leaves these out: they take minutes, and kill processes or run code that others cover.
LONG = frozenset({
    "ldmd-integration", "ldmd-integration7", "ldmd-flood", "ldm7-pq_step", "fmtp-efficiency",
    "fmtp-fuzz-keyx", "ldmctl", "ldmd-paths",
})  # fmt: skip


@dataclass(frozen=True)
class Share:
    """The part of the lines of some files that tests must run."""

    name: str
    pattern: str  # of paths below the checkout
    least_percent: float


COUNTED = ("common/c/", "transport/", "fmtp/src/", "fcast/src/", "m2c/src/", "ldm7/")
# Protocol cores, coders, parsers and the queue, whose tests need no socket.
LOOPS = "client|server|multicast_in|multicast_out|connections"
LDM_CORES = (
    "conf\\w*|match|xdr|ldmrpc|ldmtypes|pim|session|intake|resume|autoshift|progress"
    "|pathrest|pathservice\\w*"
)
CORES = (
    Share("FMTP cores", rf"fmtp/src/(?!({LOOPS})\.c)[^/]+\.c", 90),
    Share("codes, timers, simulator", r"transport/(fec|loop|sim)/(?!speed|overhead)[^/]+\.c", 90),
    Share("carousel cores", r"fcast/src/[^/]+\.c", 90),
    Share("layered control cores", r"m2c/src/[^/]+\.c", 90),
    Share("product queue", r"ldm7/queue/pq[^/]*\.c", 90),
    Share("LDM coders and parsers", rf"ldm7/(common/[^/]+|ldmd/({LDM_CORES}))\.c", 90),
)


def is_test(path: str) -> bool:
    return bool({"tests", "fuzz"} & set(Path(path).parts))


def findings(text: str) -> list[str]:
    """Return a compiler's warnings and errors about files other than tests, each once."""
    found: dict[str, None] = {}
    for raw in text.splitlines():
        line = BUILD_PREFIX.sub("", raw)
        match = FINDING.match(line)
        if match and not is_test(match["where"]):
            found[line] = None
    return list(found)


@dataclass(frozen=True)
class FileCoverage:
    path: str
    lines: int
    covered: int


def covered_files(report: str) -> list[FileCoverage]:
    """Return the files in gcovr's JSON summary."""
    return [
        FileCoverage(f["filename"], f["line_total"], f["line_covered"])
        for f in json.loads(report)["files"]
        if f["line_total"]
    ]


def percent(files: Iterable[FileCoverage]) -> float:
    some = list(files)
    lines = sum(f.lines for f in some)
    return 100.0 * sum(f.covered for f in some) / lines if lines else 0.0


def coverage_table(files: Sequence[FileCoverage], shares: Sequence[Share]) -> tuple[str, bool]:
    """Return the table, and whether the tests reach every share."""
    out, good = [], True
    for f in sorted(files, key=lambda f: f.path):
        out.append(f"  {percent([f]):6.1f} %  {f.lines:5}  {f.path}")
    for share in shares:
        some = [f for f in files if re.fullmatch(share.pattern, f.path)]
        reached = percent(some)
        ok = bool(some) and reached >= share.least_percent
        good = good and ok
        out.append(
            f"{'met   ' if ok else 'MISSED'}  {share.name}: {reached:.1f} % of "
            f"{sum(f.lines for f in some)} lines; at least {share.least_percent:g} %"
        )
    return "\n".join(out), good


def run(argv: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **({"CC": "gcc"} if "setup" in argv else {})}
    return subprocess.run(
        [str(a) for a in argv], cwd=ROOT, text=True, capture_output=True, env=env, check=False
    )


def configured(name: str, *options: str) -> Path | None:
    """Return the build directory; print why and return None if Meson cannot configure it."""
    build = ROOT / name
    if not (build / "build.ninja").exists():
        done = run(("meson", "setup", build, *options))
        if done.returncode != 0:
            print(done.stdout[-4000:], done.stderr[-4000:], sep="\n", file=sys.stderr)
            return None
    return build


def analyze() -> int:
    build = configured("build-analyze", "-Dc_args=-fanalyzer", "-Dbuildtype=debugoptimized")
    if build is None:
        return 1
    # A file with a finding does not compile, so that the next run checks it again.
    done = run(("ninja", "-C", build, "-k", "0"))
    gcc = findings(done.stdout)
    database = json.loads((build / "compile_commands.json").read_text())
    for entry in database:
        entry["command"] = entry["command"].replace(" -fanalyzer", "")
    (build / "clang").mkdir(exist_ok=True)
    (build / "clang" / "compile_commands.json").write_text(json.dumps(database))
    names = sorted({str((Path(e["directory"]) / e["file"]).resolve()) for e in database})
    files = [name for name in names if not is_test(str(Path(name).relative_to(ROOT)))]

    def tidy(name: str) -> str:
        return run(("clang-tidy", "-p", build / "clang", "--quiet", name)).stdout

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outputs = list(pool.map(tidy, files))
    clang = findings("\n".join(outputs).replace(f"{ROOT}/", ""))
    for line in gcc + clang:
        print(line)
    print(
        f"analyze: {len(files)} files; gcc -fanalyzer: {len(gcc)} findings, "
        f"clang-tidy: {len(clang)} findings"
    )
    return 1 if gcc or clang else 0


def coverage() -> int:
    # atomic: several threads update the counters, which could otherwise become negative
    build = configured(
        "build-coverage",
        "-Db_coverage=true",
        "-Dbuildtype=debug",
        "-Dc_args=-fprofile-update=atomic",
    )
    if build is None:
        return 1
    for counted in build.rglob("*.gcda"):
        counted.unlink()
    known = json.loads(run(("meson", "introspect", "--tests", build)).stdout)
    names = [t["name"] for t in known if t["name"] not in LONG]
    done = run(("ninja", "-C", build))
    if done.returncode != 0:
        print(done.stdout[-4000:], done.stderr[-4000:], sep="\n")
        return 1
    done = run(("meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", *names))
    if done.returncode != 0:
        # Another step checks that the tests pass; here a failed test only covers fewer lines.
        print(done.stdout[-8000:], "coverage: not all tests passed in this build", sep="\n")
    gcovr = (sys.executable, "-m", "gcovr", "--root", ROOT, "--object-directory", build)
    report = run(
        (
            *gcovr,
            *(word for place in COUNTED for word in ("--filter", place)),
            # A test kills some of its processes, which may leave their counters half written.
            "--gcov-ignore-parse-errors",
            # A test also compiles gmac.c without the library: its functions begin at other lines.
            "--merge-mode-functions=separate",
            "--json-summary",
            "-",
        )
    )
    if report.returncode != 0:
        print(report.stderr[-4000:])
        return 1
    files = [f for f in covered_files(report.stdout) if not is_test(f.path)]
    table, good = coverage_table(files, CORES)
    print(table)
    return 0 if good else 1


def threads() -> int:
    # It cannot follow fences: those in the counters' pages are for readers in other processes.
    build = configured(
        "build-tsan", "-Db_sanitize=thread", "-Db_lundef=false", "-Dc_args=-Wno-tsan"
    )
    if build is None:
        return 1
    for argv in (
        ("ninja", "-C", build),
        ("meson", "test", "-C", build, "--no-rebuild", "--print-errorlogs", *THREADED),
    ):
        done = run(argv)
        if done.returncode != 0:
            print(done.stdout[-8000:], done.stderr[-4000:], sep="\n")
            return 1
    print(f"threads: {', '.join(THREADED)} under ThreadSanitizer: no finding")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    checks = {"analyze": analyze, "coverage": coverage, "threads": threads}
    parser = argparse.ArgumentParser(
        prog="python -m tests.quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("check", choices=sorted(checks))
    return checks[parser.parse_args(argv).check]()


if __name__ == "__main__":
    sys.exit(main())
