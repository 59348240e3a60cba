# SPDX-License-Identifier: Apache-2.0
"""What the Makefile's targets do. Their variables are checked before anything is installed.

python3 -B tools/front_door.py check NAMES GOAL...   refuse mistakes (NAMES: the variables given)
python3 -B tools/front_door.py run GOAL [ARGV...]    run the target's command of `downpour`
python3 -B tools/front_door.py help                  list the targets

Values come from the environment, where make puts them, so that blanks and quotes survive. Needs
only Python's standard library.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NoReturn

ROOT: Final = Path(__file__).resolve().parent.parent
PYTHON: Final = ROOT / ".venv/bin/python"
EXIT_USAGE: Final = 2
NO: Final = ("", "0", "no", "false", "off")
YES: Final = ("1", "yes", "true", "on")
MEANINGS: Final = {
    1: "a cell failed, products differ, or a metric is outside its band",
    3: "a verdict is invalid: do not trust the figures",
    130: "interrupted",
}
ROOT_OR_VIRTUAL: Final = (
    "found user id {uid}; valid: root, or virtual time: add --clock virtual (make: CLOCK=virtual)"
)
ROOT_ALWAYS: Final = "found user id {uid}; valid: root, which {goal} needs on this machine"


class Wrong(Exception):
    """What was requested is impossible. The text says what is valid."""


def nearest(found: str, valid: Sequence[str]) -> str:
    """Return " (nearest: NAME)", or "" if no name is near."""
    near = difflib.get_close_matches(found, valid, 1, 0.5)
    return f" (nearest: {near[0]})" if near else ""


def is_on(value: str) -> bool:
    """Return whether a switch such as DRY_RUN=1 is on."""
    return value.strip().lower() not in NO


# -- variables ----------------------------------------------------------------------------------
def _whole(value: str) -> str:
    return "" if value.isascii() and value.isdigit() else "a whole number"


def _count(value: str) -> str:
    return "" if value.isascii() and value.isdigit() and int(value) else "a whole number from 1"


def _number(value: str) -> str:
    try:
        float(value)
    except ValueError:
        return "a number"
    return ""


def _file(value: str) -> str:
    if value == "model" or Path(value).expanduser().exists():
        return ""
    return "a file that exists"


def _directory(value: str) -> str:
    return "" if Path(value).is_dir() else "a directory that exists"


def _one_of(*names: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        return "" if value in names else f"{', '.join(names)}{nearest(value, names)}"

    return check


def _some_of(names: Callable[[], Sequence[str]]) -> Callable[[str], str]:
    def check(value: str) -> str:
        valid = names()
        wrong = [name for name in value.replace(",", " ").split() if name not in valid]
        return f"{', '.join(valid)}{nearest(wrong[0], valid)}" if wrong else ""

    return check


def _any(_value: str) -> str:
    return ""


def _sections() -> Sequence[str]:
    from bench.jobs import SECTIONS

    return SECTIONS


def _tools() -> Sequence[str]:
    from bench.tools import BY_NAME

    return list(BY_NAME)


def _cells(value: str) -> str:
    from bench.jobs import SECTIONS, cells_of

    try:
        wanted = re.compile(value)
    except re.error as error:
        return f"a regular expression ({error})"
    clocks: tuple[Literal["native", "virtual"], ...] = ("native", "virtual")
    cells = [cell.cell for name in SECTIONS for clock in clocks for cell in cells_of(name, clock)]
    if any(map(wanted.search, cells)):
        return ""
    return f"a regular expression that fits a cell, e.g. '^{re.escape(cells[0])}'"


def labs() -> dict[str, str]:
    """Return number -> folder of all labs."""
    found = {p.parent.name.split("-")[0]: p.parent.name for p in ROOT.glob("labs/[0-9]*/lab.yaml")}
    return dict(sorted(found.items(), key=lambda item: int(item[0])))


def _lab(value: str) -> str:
    return "" if value in labs() else ", ".join(labs())


@dataclass(frozen=True)
class Variable:
    """`option`: the option it becomes ("": an argument); `many`: one for each word; `check`:
    returns what would be valid, or "" for a good value."""

    option: str
    check: Callable[[str], str] = _any
    flag: bool = False
    many: bool = False

    def valid_instead(self, value: str) -> str:
        """Return what would be valid instead of a value; "" for a good one."""
        if self.flag and not is_on(value):
            return ""
        if self.flag:
            return "" if value.strip().lower() in YES else f"{YES[0]} or {NO[1]}"
        return self.check(value)

    def words(self, value: str) -> list[str]:
        """Return the words that the variable adds to the command line."""
        if self.flag:
            return [self.option] if is_on(value) else []
        values = value.split() if self.many else [value]
        return [word for one in values for word in ([self.option] if self.option else []) + [one]]


CLOCK: Final = {"CLOCK": Variable("--clock", _one_of("native", "virtual"))}
JOBS: Final = {"JOBS": Variable("--jobs", _whole)}
DURATION: Final = {"DURATION": Variable("--duration", _number)}
RECEIVERS: Final = {"RECEIVERS": Variable("--receivers", _whole)}
EXPERIMENT: Final = {
    **CLOCK, **JOBS, **DURATION, **RECEIVERS,
    "DRY_RUN": Variable("--dry-run", flag=True),
    "LEVEL": Variable("--level"),
    "REPEATS": Variable("--repeats", _count),
    "ONLY": Variable("--only", many=True),
    "TRACE": Variable("--trace", _file),
    "SEED": Variable("--seed", _whole),
    "QUEUE_BYTES": Variable("--queue-bytes"),
    "ORDER": Variable("--order", _one_of("random", "file")),
    "CAPTURE": Variable("--capture", many=True),
    "SAMPLE": Variable("--sample", many=True),
    "MONITOR": Variable("--monitor", flag=True),
    "RESUME": Variable("--resume", flag=True),
    "UNTIL_DECIDED": Variable("--until-decided", flag=True),
    "BUDGET": Variable("--budget"),
    "PARTS": Variable("--parts"),
    "MACHINE": Variable("--machine", many=True),
    "AT": Variable("--at"),
    "MIXED": Variable("--mixed", flag=True),
}  # fmt: skip
PLACES: Final = {"PREFIX": Variable(""), "DESTDIR": Variable("")}
LAB: Final = {"N": Variable("", _lab), "DIR": Variable("--dir")}
# Variables for any target: C compilers and builds read them.
COMMON: Final = ("CC", "CXX", "CFLAGS", "LDFLAGS")


# -- targets --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Target:
    """`command`: of downpour ((): make runs the target itself); `root`: when it needs root: never,
    native (unless CLOCK=virtual), asked (if CLOCK=native), always; `need`: a variable that it
    requires."""

    group: str
    text: str
    command: tuple[str, ...] = ()
    variables: Mapping[str, Variable] = field(default_factory=dict)
    root: str = "never"
    need: str = ""


FIRST, NETWORKS, LABS, DEVELOPERS, INSTALL = (
    "First result", "Networks", "Labs", "Developers", "This machine",
)  # fmt: skip
GROUPS: Final = (FIRST, NETWORKS, LABS, INSTALL, DEVELOPERS)
TARGETS: Final[Mapping[str, Target]] = {
    "doctor": Target(FIRST, "say what works, and what is missing (installs nothing)"),
    "experiments": Target(FIRST, "list the experiments", ("experiments",)),
    "experiment-NAME": Target(
        FIRST, "run an experiment and print its report", ("run",), EXPERIMENT, "native"
    ),
    "regression": Target(
        FIRST, "check the 8-receiver run against its bands", ("regression",),
        {
            **CLOCK, **JOBS, **DURATION,
            "JUNIT": Variable("--junit"), "SUMMARY": Variable("--summary"),
        },
        "asked",
    ),
    "workers": Target(
        FIRST, "start workers, for experiments with AT=tcp://HOST:PORT", ("workers",),
        {
            "COUNT": Variable("--count", _whole), "JOIN": Variable("--join"),
            "HOST": Variable("--host"), "PORT": Variable("--port", _whole),
        },
    ),
    "report": Target(
        FIRST, "write and print the newest run's report again", ("report",),
        {"RUN": Variable("", _directory), "FULL": Variable("--full", flag=True)},
    ),
    "monitor": Target(
        FIRST, "show the current run in a browser", ("monitor", "serve"),
        {"PORT": Variable("--port", _whole)},
    ),
    "dashboard": Target(
        FIRST, "show a finished run in a browser", ("monitor", "serve"),
        {"RUN": Variable("", _directory), "PORT": Variable("--port", _whole)}, "never", "RUN",
    ),
    "up": Target(
        NETWORKS, "bring a network up to play with", ("up",),
        {
            "TOPOLOGY": Variable(""), **RECEIVERS,
            "CONTROLLER": Variable("--controller"), "ONOS": Variable("--onos"),
        },
        "always",
    ),
    "status": Target(NETWORKS, "list the networks that are up", ("status",)),
    "shell": Target(
        NETWORKS, "open a shell in a host of the network", ("shell",), {"HOST": Variable("")},
        "always", "HOST",
    ),
    "down": Target(
        NETWORKS, "end the network, and leftovers of dead runs", ("down",), {}, "always"
    ),
    "labs": Target(LABS, "list the labs", ("lab", "list")),
    "lab": Target(
        LABS, "start a lab", ("lab", "start"), {**LAB, **CLOCK, "STUDENT": Variable("--student")},
        "asked", "N",
    ),
    "lab-shell": Target(
        LABS, "open a prompt in the lab's network", ("lab", "shell"), LAB, "asked", "N"
    ),
    "lab-check": Target(
        LABS, "check your work: tried, expected, found", ("lab", "check"), LAB, "asked", "N"
    ),
    "lab-reset": Target(
        LABS, "go back to the start state; your files are kept", ("lab", "reset"), LAB, "asked", "N"
    ),
    "lab-stop": Target(
        LABS, "end the lab's network; your files stay", ("lab", "stop"), LAB, "asked", "N"
    ),
    "setup": Target(
        INSTALL, "install what is missing (returns at once if nothing is)", (),
        {"BUNDLE": Variable("", _directory), "RYU": Variable("", flag=True)},
    ),
    "build": Target(INSTALL, "build the C programs into build/"),
    "virtual-kernel": Target(
        INSTALL, "build the kernel of virtual time's guests, once", ("virtual", "kernel"),
        {
            "SOURCE": Variable("--source", _file), "FROM": Variable("--from", _file),
            "NO_DOWNLOAD": Variable("--no-download", flag=True), "EXPORT": Variable("--export"),
        },
    ),
    "virtual-selftest": Target(
        INSTALL, "compare a guest's timers and shapers with theory", ("virtual", "selftest"),
        {"JSON": Variable("--json")},
    ),
    "install": Target(
        INSTALL, "install programs and command below /usr/local", (),
        {**PLACES, "BUNDLE": Variable("", _directory)},
    ),
    "uninstall": Target(INSTALL, "remove what install put there", (), PLACES),
    "clean": Target(INSTALL, "remove what was built (runs/ and .venv/ stay)"),
    "distclean": Target(INSTALL, "clean, and remove .venv/"),
    "check": Target(DEVELOPERS, "run the quick tests, without root"),
    "test": Target(DEVELOPERS, "run the tests that CI runs", (), {}, "always"),
    "test-all": Target(DEVELOPERS, "run all tests", (), {}, "always"),
    "test-all-setup": Target(DEVELOPERS, "install what only test-all uses"),
    "test-setup": Target(DEVELOPERS, "install what only tests use (browser, tshark)"),
    "test-frameworks": Target(DEVELOPERS, "test the controller on os-ken variants, Ryu and c65of"),
    "test-container": Target(
        DEVELOPERS, "test docker-compose.yml (10 minutes)", (), {}, "always"
    ),
    "test-labs": Target(DEVELOPERS, "test every lab in guests (20 minutes)"),
    "docs": Target(
        DEVELOPERS, "build the site in build/docs; INTO=FOLDER: by version", (),
        {"INTO": Variable("")},
    ),
    "lint": Target(DEVELOPERS, "run ruff and mypy"),
    "analyze": Target(DEVELOPERS, "run gcc -fanalyzer and clang-tidy on the C programs"),
    "coverage": Target(DEVELOPERS, "measure the line coverage of the C programs"),
    "bench": Target(
        DEVELOPERS, "compare with UFTP, UDPcast, NORM, FLUTE, TCP, LMDB", ("bench", "run"),
        {
            **CLOCK, **JOBS,
            "ONLY": Variable("--only", _some_of(_sections)),
            "TOOLS": Variable("--tools", _some_of(_tools)), "CELLS": Variable("--cells", _cells),
            "REPEATS": Variable("--repeats", _count),
            "RESUME": Variable("--resume", flag=True),
            "UNSTEERED": Variable("--no-steering", flag=True),
        },
        "always",
    ),
    "bench-setup": Target(DEVELOPERS, "install the programs that bench compares"),
    "path-figures": Target(
        DEVELOPERS, "measure failures and guarantees of the path service", (), CLOCK, "native"
    ),
    "deb": Target(DEVELOPERS, "build the Debian packages in dist/"),
    "bundle": Target(DEVELOPERS, "pack what a machine without network needs"),
    "release": Target(DEVELOPERS, "build all files of a release in dist/"),
    "licences": Target(DEVELOPERS, "write the page of licences"),
    "fuzz": Target(
        DEVELOPERS, "run libFuzzer on every parser of bytes", (),
        {"SECONDS_EACH": Variable("", _whole), "TARGETS": Variable("")},
    ),
    "help": Target(DEVELOPERS, "print this list"),
}  # fmt: skip
PATTERN: Final = "experiment-"


def experiments() -> list[str]:
    """Return the names of the bundled experiments."""
    return sorted(path.stem for path in ROOT.glob("experiments/catalogue/*.yaml"))


def target_of(goal: str) -> Target:
    """Return a goal's target. Raises Wrong if there is none."""
    if goal.startswith(PATTERN) and goal != "experiment-NAME":
        name = goal.removeprefix(PATTERN)
        if name not in experiments():
            valid = experiments()
            raise Wrong(
                f"found experiment '{name}'; valid: {', '.join(valid)}{nearest(name, valid)}"
            )
        return TARGETS["experiment-NAME"]
    if goal not in TARGETS:
        names = [*TARGETS, *(PATTERN + name for name in experiments())]
        raise Wrong(f"found target '{goal}'; valid: see make help{nearest(goal, names)}")
    return TARGETS[goal]


def given(target: Target, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the target's variables that have a value."""
    return {name: value for name in target.variables if (value := environment.get(name, ""))}


def arguments(goal: str, environment: Mapping[str, str]) -> list[str]:
    """Return the words for `downpour`. Raises Wrong."""
    target = target_of(goal)
    words = list(target.command)
    values = given(target, environment)
    if goal == "up":
        values = {"TOPOLOGY": "geni5"} | values
    if goal.startswith(PATTERN):
        words.append(goal.removeprefix(PATTERN))
    # Arguments first: the words after the host of a shell are a command.
    for name in sorted(values, key=lambda name: target.variables[name].option != ""):
        words += target.variables[name].words(values[name])
    return words


def needs_root(goal: str, environment: Mapping[str, str]) -> bool:
    """Return whether the target needs root with these variables. Raises Wrong."""
    target, clock = target_of(goal), environment.get("CLOCK", "")
    if target.root == "native":
        return clock != "virtual" and not is_on(environment.get("DRY_RUN", ""))
    return target.root == "always" or (target.root == "asked" and clock == "native")


def check(names: Sequence[str], goals: Sequence[str], environment: Mapping[str, str]) -> None:
    """Check for unknown variables, impossible values, and missing root. Raises Wrong."""
    targets = {goal: target_of(goal) for goal in goals}
    known = [name for target in targets.values() for name in target.variables]
    if any(goal.startswith("lab") for goal in goals):
        known.append("CLOCK")
    for name in names:
        if name not in (*known, *COMMON):
            valid = ", ".join(dict.fromkeys(known)) or f"none for make {' '.join(goals)}"
            raise Wrong(f"found {name}; valid: {valid}{nearest(name, known)}")
    for goal, target in targets.items():
        values = given(target, environment)
        if target.need and target.need not in values:
            listed = {
                "N": "a number that `make labs` lists",
                "HOST": "a name that `make status` lists",
                "RUN": "a finished run's directory",
            }
            example = {"N": "1", "HOST": "name", "RUN": "runs/lossy/latest"}[target.need]
            raise Wrong(
                f"found no {target.need}; valid: make {goal} {target.need}={example}, with "
                f"{listed[target.need]}"
            )
        for name, value in values.items():
            if valid := target.variables[name].valid_instead(value):
                raise Wrong(f"{name}: found '{value}'; valid: {valid}")
        _refuse_without_root(goal, environment)


def _refuse_without_root(goal: str, environment: Mapping[str, str]) -> None:
    if os.geteuid() == 0 or not needs_root(goal, environment) or shutil.which("sudo"):
        return
    text = ROOT_OR_VIRTUAL if target_of(goal).root in ("native", "asked") else ROOT_ALWAYS
    raise Wrong(text.format(uid=os.geteuid(), goal=goal))


# -- running --------------------------------------------------------------------------------------
def run_to_end(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end and return its exit code. Ctrl-C also reaches it: it then removes
    what it made. `subprocess.run` would cut that short by SIGKILL after 0.25 s."""
    with subprocess.Popen(argv, env=dict(environment)) as process:
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                return process.wait()


def _as_root(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command with sudo, and give the user what it wrote to runs/."""
    kept = [f"{name}={environment[name]}" for name in ("PYTHONPATH", "PATH") if name in environment]
    code = run_to_end(["sudo", "-E", "env", *kept, *argv], environment)
    runs = ROOT / "runs"
    if runs.is_dir():
        subprocess.run(["sudo", "chown", "-R", f"{os.getuid()}:{os.getgid()}", str(runs)])
    return code


def run(goal: str, environment: Mapping[str, str], argv: Sequence[str] = ()) -> int:
    """Run the target's command, as root if needed. Return its exit code. Raises Wrong."""
    words = arguments(goal, environment)
    _refuse_without_root(goal, environment)
    argv = argv or [str(PYTHON), "-m", "downpour", *words]
    # Settings of make and the shell for make's targets are not for the program.
    environment = {**environment, "PYTHONPATH": str(ROOT)}
    if needs_root(goal, environment) and os.geteuid() != 0:
        code = _as_root(argv, environment)
    else:
        code = run_to_end(argv, environment)
    if code not in (0, EXIT_USAGE):
        target = target_of(goal)
        known = code in MEANINGS and target.command and (code != 1 or target.group == FIRST)
        meaning = f": {MEANINGS[code]}" if known else ""
        print(f"make {goal}: exit code {code}{meaning}", file=sys.stderr)
    return code


# -- help -----------------------------------------------------------------------------------------
def help_text() -> str:
    """Return the list of targets, at most 80 columns wide."""
    lines = ["Downpour: a testbed in a box for reliable multicast file-stream distribution"]
    for group in GROUPS:
        lines += ["", f"{group}:"]
        lines += [f"  make {name:17} {t.text}" for name, t in TARGETS.items() if t.group == group]
        if group == FIRST:
            lines += [
                "    CLOCK=virtual needs no root: virtual time, in guests (JOBS=2 at once)",
                "    LEVEL=quick|paper REPEATS=5 ONLY='receivers=8 protocol=ldm7' ORDER=file",
                "    DURATION=60 RECEIVERS=8 TRACE=FILE SEED=1 QUEUE_BYTES=5000000000",
                "    UNTIL_DECIDED=1 BUDGET=2h adds repeats until claims are decided",
                "    DRY_RUN=1 shows the plan; RESUME=1; CAPTURE=LINK; JUNIT=FILE SUMMARY=FILE",
                "    RUN=DIRECTORY FULL=1 for report",
            ]
        if group == NETWORKS:
            lines.append("    TOPOLOGY=geni5|drfsm8|bottleneck|twocores RECEIVERS=8; HOST=NAME")
        if group == INSTALL:
            lines.append(
                "    PREFIX=/usr/local DESTDIR=DIRECTORY BUNDLE=DIRECTORY (without network) RYU=1"
            )
        if group == LABS:
            lines.append("    N=3 STUDENT=NAME DIR=DIRECTORY CLOCK=native")
    lines += [
        "",
        "make exits with 2 for any error. The line \"exit code N\" has the program's code:",
        "1 a cell failed or a metric is outside its band, 2 bad input, 3 a verdict is",
        "invalid, 130 interrupted. `.venv/bin/downpour` itself exits with that code.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def main(words: Sequence[str]) -> int:
    """Run the command line; see the module's docstring."""
    sys.path.insert(0, str(ROOT))
    match words:
        case ["help"]:
            print(help_text(), end="")
            return 0
        case ["check", names, *goals]:
            check(names.split(), goals, os.environ)
            return 0
        case ["run", goal, *argv]:
            return run(goal, os.environ, argv)
    raise Wrong(f"front_door: found {' '.join(words)!r}; valid: check, run, help")


def _end(text: str) -> NoReturn:
    print(text, file=sys.stderr)
    sys.exit(EXIT_USAGE)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Wrong as wrong:
        _end(str(wrong))
    except KeyboardInterrupt:
        sys.exit(130)
