# SPDX-License-Identifier: Apache-2.0
"""Every command of every handout, as it is written there.

Without a guest: bash can read it, `make` and `downpour` know its goals, variables, options and
arguments, and measuring labs can plan what it asks for. In a guest: the commands of the network
labs run in the order of the handout. A command with `…` has a gap that the student fills, so it is
only read.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from downpour.cli import app
from labs import session
from labs.shell import whole_command
from labs.spec import Lab
from labs.tests.bundled import LABS, MEASURING, NETWORK
from labs.workdir import open_work
from tests.prose import ROOT
from tools import front_door
from virtual.kernel_build import Kernel

BLOCK: Final = re.compile(r"^( *)```\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
INLINE: Final = re.compile(r"`((?:make lab|\.venv/bin/downpour |downpour )[^`]*)`")
# Drawings and tables between the commands.
NOT_COMMANDS: Final = re.compile(r"-- |^fault cut .*ports", re.MULTILINE)
CASE: Final = re.compile(r"\blab case (\d+ \S+\.yaml) [a-c]$")
GAP: Final = "…"
DOWNPOUR: Final = (".venv/bin/downpour", "downpour")
# These commands fail unless the student has filled the gaps before them.
NEEDS_THE_GAPS: Final = {
    2: {"api paths/lesson/counters", "@pub ldm publisher.conf", "@$first ldm subscriber.conf"},
    3: {"@pub tc -s class show dev pub-nic1"},
}


def number(lab: Lab) -> str:
    return f"lab {lab.number}"


def blocks(lab: Lab) -> list[list[str]]:
    """Return the commands of each block of a handout; a command may have several lines."""
    found = []
    for indent, text in BLOCK.findall(lab.handout.read_text()):
        if not NOT_COMMANDS.search(text):
            lines = [line.removeprefix(indent) for line in text.splitlines()]
            found.append(list(grouped(lines)))
    return found


def grouped(lines: list[str]) -> Iterator[str]:
    rest = iter(lines)
    for line in rest:
        if line.strip():
            yield whole_command(line, lambda: next(rest))


def commands(lab: Lab) -> list[str]:
    inline = INLINE.findall(lab.handout.read_text())
    return [*(command for block in blocks(lab) for command in block), *inline]


@pytest.mark.parametrize("lab", LABS, ids=number)
def test_bash_reads_every_command(lab: Lab) -> None:
    assert len(commands(lab)) >= 6
    for command in commands(lab):
        read = subprocess.run(
            ["bash", "-n"], input=command, capture_output=True, text=True, check=False
        )
        assert read.returncode == 0 and not read.stderr, f"{command}\n{read.stderr}"


@pytest.mark.parametrize("lab", LABS, ids=number)
def test_make_and_downpour_know_every_command(lab: Lab) -> None:
    known = 0
    for command in commands(lab):
        for part in command.split("&&"):
            words = part.split("|")[0].split()
            if words[:1] == ["make"]:
                given = dict(word.split("=") for word in words[2:])
                front_door.check(sorted(given), [words[1]], given)
                known += 1
            elif words[:1] and words[0] in DOWNPOUR:
                parse(shlex.split(part.split("|")[0].replace("OTHER", "12"))[1:])
                known += 1
    assert known >= 2


def parse(words: list[str]) -> None:
    """Read a command line as `downpour` does, without running it."""
    command: Any = get_command(app)
    context: Any = None
    while True:
        context = command.make_context(words[0] if words else None, list(words), parent=context)
        if not isinstance(command, TyperGroup):
            return
        rest = [*context._protected_args, *context.args]
        name, found, words = command.resolve_command(context, rest)
        assert found is not None, name
        command = found


def test_a_wrong_option_is_found() -> None:
    parse(["lab", "check", "4", "--only", "lost"])
    with pytest.raises(Exception, match="No such option"):
        parse(["lab", "check", "4", "--onli", "lost"])
    with pytest.raises(Exception, match="No such command"):
        parse(["lab", "verify", "4"])


@pytest.mark.slow
@pytest.mark.parametrize("lab", MEASURING, ids=number)
def test_measuring_labs_plan_what_the_handout_asks_for(lab: Lab, tmp_path: Path) -> None:
    """Plan each `lab measure` in the work directory that the handout's first command makes; a case
    is planned like the experiment of its file."""
    environment = {**os.environ, "HOME": str(tmp_path), "CLOCK": "virtual"}
    directory = tmp_path / "downpour-labs" / str(lab.number)
    open_work(lab, directory, "yourname")
    values = {name: str(value) for name, value in lab.parameters("yourname").items()}
    planned = 0
    plain = [CASE.sub(r"lab measure \1", command) for command in commands(lab)]
    for command in dict.fromkeys(plain):
        if not re.match(r"\.venv/bin/downpour lab measure .*\.yaml", command) or "OTHER" in command:
            continue
        line = re.sub(r"\b[PQ]%", lambda match: percent(values, match[0][0]), command)
        done = subprocess.run(
            ["bash", "-c", f"{line} --dry-run"],
            capture_output=True, text=True, check=False, cwd=ROOT, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        assert re.search(r"\d+ cells?", done.stdout), done.stdout
        planned += 1
    assert planned >= 1


def percent(values: dict[str, str], letter: str) -> str:
    """Return a loss of the student that the handout calls P or Q."""
    losses = [value for name, value in sorted(values.items()) if "loss" in name]
    return f"{losses['PQ'.index(letter)]}%"


@pytest.mark.emulated
@pytest.mark.parametrize("lab", NETWORK, ids=number)
def test_network_labs_run_what_the_handout_says(lab: Lab, kernel: Kernel, tmp_path: Path) -> None:
    """Run all commands without a gap in one network, in order; named ones that follow a gap may
    fail."""
    del kernel
    work, _ = open_work(lab, tmp_path / "work", "test student")
    session.start(lab, work, "virtual", print)
    excused = NEEDS_THE_GAPS.get(lab.number, set())
    ran = 0
    try:
        connection = session.connect(lab, work)
        for command in (one for block in blocks(lab) for one in block):
            if GAP in command or command.startswith("make "):
                continue
            out = io.BytesIO()
            code = connection.run(command, out, out)
            text = out.getvalue().decode()
            assert "command not found" not in text and "syntax error" not in text, text
            if not any(command.startswith(start) for start in excused):
                assert code == 0, f"{command}\n{text}"
            ran += 1
    finally:
        session.stop(lab, work)
    assert ran >= 5
