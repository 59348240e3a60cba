# SPDX-License-Identifier: Apache-2.0
"""The tiers of the tests, and the steps of each, which `tests/run.py` runs."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.exit_codes import EXIT_INVALID
from tests import cross
from tests.frameworks import EXIT_NO_PACKAGE, FRAMEWORKS

ROOT: Final = Path(__file__).resolve().parent.parent
LOGS: Final = ROOT / "build" / "test-logs"
TIERS: Final = ("check", "test", "all")
EXIT_NO_SOURCE: Final = 3  # of the kernel's build: this machine cannot get the source
EXIT_NO_TOOL: Final = 77  # of tests that build or start a Debian
FUZZ_REST_S: Final = 240
CORES: Final = os.cpu_count() or 1
PYTHON_TRACK: Final = "python"  # tracks run at the same time
C_TRACK: Final = "c"
VIRTUAL_TRACK: Final = "virtual"


@dataclass(frozen=True)
class Step:
    """Commands that run one after another. Each counts as a test, unless `junit` has the counts."""

    name: str
    title: str
    commands: tuple[tuple[str, ...], ...]
    typical_s: float  # an estimate, used until this machine has measured it
    junit: Path | None = None
    skip_code: int | None = None  # exit code that means: not available here
    needs: str | None = None  # skipped unless this step passed
    root: bool = False  # skipped without root
    long: bool = False  # with DOWNPOUR_TEST_LONG
    in_gaps: bool = False  # uses the cores only while other tracks do not
    track: str | None = None  # runs beside the steps of other tracks; None: alone, after them


def _python(python: str, name: str, marks: str, *more: str) -> tuple[str, ...]:
    """Return a pytest command with more workers than cores, as many tests wait for processes. A
    file's tests run at one worker, as they share fixtures."""
    workers = ("-n", str(CORES + 2), "--dist", "loadfile", "--no-loadscope-reorder")
    return (
        *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers),
        *("-m", marks, f"--junitxml={LOGS / name}.xml", *more),
    )


def _first_time(python: str) -> tuple[tuple[str, ...], ...]:
    """Return a command that compiles all tests, if none is compiled. Otherwise all workers would
    compile all tests at the same time."""
    if any((ROOT / "tests" / "__pycache__").glob("*-pytest-*.pyc")):
        return ()
    return ((python, "-m", "pytest", "-qq", "-p", "no:cacheprovider", "--collect-only"),)


def files_with(mark: str, root: Path = ROOT) -> list[Path]:
    """Return the files with tests of a mark. Collecting from all files takes 15 s longer."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    rooms = settings["tool"]["pytest"]["ini_options"]["testpaths"]
    found = (path for room in rooms for path in sorted((root / room).rglob("*.py")))
    return [path for path in found if f"mark.{mark}" in path.read_text()]


def _c(python: str, tier: str) -> list[Step]:
    asan = ROOT / "build-asan"
    setup = ("meson", "setup", str(asan), str(ROOT))
    # They compile in half the time of the default; the tests take a tenth longer.
    fast = ("-Doptimization=1", "-Dc_args=-g1")
    sanitizers = ("-Db_sanitize=address,undefined", "-Db_lundef=false", *fast)
    configure = () if (asan / "build.ninja").exists() else ((*setup, *sanitizers),)
    suites = ("--no-suite", "slow") if tier == "check" else ()
    # The benchmarks' peers are not part of `make build`.
    peers = () if tier == "check" else (("ninja", "-C", str(ROOT / "build"), "peers"),)
    longer = ("--timeout-multiplier", "5") if tier == "all" else ()
    tests = ("meson", "test", "-C", str(asan), "--no-rebuild", "--print-errorlogs", *longer)
    return [
        Step(
            "lint",
            "lint and types",
            (
                (python, "-m", "ruff", "check", "."),
                (python, "-m", "ruff", "format", "--check", "."),
                (python, "-m", "mypy"),
                (python, "-m", "tests.lab_types"),
            ),
            30,
            track=C_TRACK,
        ),
        Step(
            "c-build",
            "C programs and tests, with address and undefined-behaviour sanitizers",
            (*configure, ("ninja", "-C", str(asan)), *peers),
            60,
            track=C_TRACK,
        ),
        Step(
            "c",
            "C tests",
            # a test's processes mostly wait for each other
            ((*tests, "--num-processes", str(CORES + 1), *suites),),
            60,
            asan / "meson-logs" / "testlog.junit.xml",
            long=tier == "all",
            track=C_TRACK,
        ),
    ]


def _regressions(python: str) -> list[Step]:
    regression = (python, "-m", "downpour", "regression")
    smoke = (*regression, "smoke", "--clock", "native")

    def junit(name: str) -> tuple[str, str]:
        return ("--junit", str(LOGS / f"{name}.xml"))

    return [
        Step(
            "kernel",
            "kernel for virtual time",
            ((python, "-m", "downpour", "virtual", "kernel"),),
            300,
            skip_code=EXIT_NO_SOURCE,
            in_gaps=True,
            track=VIRTUAL_TRACK,
        ),
        Step(
            "regression",
            "8-receiver regression in virtual time",
            ((*regression, "--clock", "virtual", *junit("regression")),),
            40,
            LOGS / "regression.xml",
            needs="kernel",
            track=VIRTUAL_TRACK,
        ),
        Step(
            "smoke",
            "4 receivers on this machine's clock",
            ((*smoke, *junit("smoke")),),
            50,
            LOGS / "smoke.xml",
            skip_code=EXIT_INVALID,
            root=True,
        ),
    ]


# One test at a time: tests outside the tracks watch a network on the machine's own clock.
def _pytest(python: str, marks: str, name: str, *more: str) -> tuple[str, ...]:
    marked = ("-m", marks, f"--junitxml={LOGS / name}.xml")
    return (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *marked, *more)


def _networks(python: str) -> list[Step]:
    """Return longer steps with whole networks, and with the service in front of them."""
    leave = ("downpour", "regression", "join-leave", "--clock", "virtual", "--duration", "40")
    beside = ("-n", str(CORES), "--dist", "loadfile", "--no-loadscope-reorder")
    in_guests = _pytest(python, "guest", "guests", *beside)
    return [
        Step(
            "emulated",
            "end-to-end tests over the network on this machine's clock",
            (_pytest(python, "emulated and not guest", "emulated"),),
            900,
            LOGS / "emulated.xml",
        ),
        Step(
            "guests",
            "end-to-end tests in virtual time, and labs",
            (("env", "DOWNPOUR_TEST_LABS=1", *in_guests),),
            1200,
            LOGS / "guests.xml",
            needs="kernel",
        ),
        Step(
            "join-leave",
            "subscribers join and leave three feeds in virtual time",
            ((python, "-m", *leave, "--junit", str(LOGS / "join-leave.xml")),),
            60,
            LOGS / "join-leave.xml",
            needs="kernel",
        ),
        Step(
            "rest-fuzz",
            "random requests from the OpenAPI document, for longer",
            ((python, "-m", "controller.tests.rest_fuzz", str(FUZZ_REST_S)),),
            FUZZ_REST_S + 20,
        ),
    ]


def _packages(python: str) -> list[Step]:
    """Return the steps that install Downpour from scratch."""
    return [
        Step(
            "install",
            "locked packages, the wheel and make install, from scratch",
            (_pytest(python, "install", "install"),),
            400,
            LOGS / "install.xml",
        ),
        Step(
            "deb",
            "Debian packages in a fresh Debian",
            (("tests/deb.sh",),),
            500,
            skip_code=EXIT_NO_TOOL,
            root=True,
        ),
        Step(
            "offline",
            "set-up from the bundle, without network",
            (("tests/offline.sh",),),
            500,
            skip_code=EXIT_NO_TOOL,
            root=True,
        ),
    ]


def _other_frameworks(python: str) -> list[Step]:
    return [
        Step(
            f"framework-{f.name}",
            f"controller over Open vSwitch with {f.name}",
            (
                (
                    *(python, "-m", "tests.frameworks", f.name),
                    *("--junit", str(LOGS / f"framework-{f.name}.xml")),
                ),
            ),
            30,
            LOGS / f"framework-{f.name}.xml",
            skip_code=EXIT_NO_PACKAGE,
            root=True,
        )
        for f in FRAMEWORKS
    ]


def _other_machines(python: str) -> list[Step]:
    return [
        Step(
            f"cross-{a}",
            f"C unit tests on {a}: {what}",
            ((python, "-m", "tests.cross", a),),
            400,
            cross.WHERE / a / "build" / "meson-logs" / "testlog.junit.xml",
            skip_code=cross.EXIT_MISSING,
        )
        for a, what in (("s390x", "big-endian"), ("armhf", "32-bit words"))
    ]


QUALITY: Final = {
    "threads": ("C tests with threads under ThreadSanitizer", 60),
    "analyze": ("C programs under gcc -fanalyzer and clang-tidy", 180),
    "coverage": ("line coverage of the protocol cores and the product queue", 180),
}


def _quality(python: str) -> list[Step]:
    return [
        Step(name, title, ((python, "-m", "tests.quality", name),), typical_s)
        for name, (title, typical_s) in QUALITY.items()
    ]


def _rest(python: str) -> list[Step]:
    """Return the steps that only the last tier runs."""
    return [
        *_other_frameworks(python),
        *_networks(python),
        *_packages(python),
        *_other_machines(python),
        *_quality(python),
        Step(
            "fuzz",
            "clang's build, and libFuzzer on every parser of network bytes",
            (("make", "fuzz", "SECONDS_EACH=3"),),
            400,
            root=True,
        ),
    ]


def steps(python: str, tier: str) -> list[Step]:
    """Return the steps of a tier, in their order."""
    marks = "not emulated and not install and not alone"
    if tier != "all":
        marks += " and not long"
    if tier == "check":
        marks += " and not slow and not root"
    commands = (*_first_time(python), _python(python, "python", marks))
    found = _c(python, tier)
    found.append(
        Step(
            "python",
            "Python tests",
            commands,
            150,
            LOGS / "python.xml",
            long=tier == "all",
            track=PYTHON_TRACK,
        )
    )
    if tier != "check":
        mark = "alone" if tier == "all" else "alone and not long"
        alone = (python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", mark)
        files = (str(path) for path in files_with("alone"))
        found.append(
            Step(
                "alone",
                "Python tests that must run alone",
                ((*alone, f"--junitxml={LOGS / 'alone.xml'}", *files),),
                60,
                LOGS / "alone.xml",
                root=True,
            )
        )
        found += _regressions(python)
    if tier == "all":
        found += _rest(python)
    return found
