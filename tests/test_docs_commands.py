# SPDX-License-Identifier: Apache-2.0
"""The Markdown files use only options of `downpour` and targets and variables of `make` that exist.

These tests ignore values: pages name files and hosts that the reader has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from typer.core import TyperGroup

from downpour.cli import app
from tests.prose import ROOT, markdown_files
from tools import front_door

CODE: Final = re.compile(r"`([^`\n]+)`")
BLOCK: Final = re.compile(r"^ *```\w*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
DOWNPOUR: Final = re.compile(r"(?:^|[\s/])downpour((?: [^\n|#;&)]+)+)")
VARIABLE: Final = r"""[A-Z][A-Z_]*=(?:"[^"]*"|'[^']*'|[^\s`|)]*)"""
MAKE: Final = re.compile(rf"(?:^|\$ |&& )make((?: [a-z][\w-]*)+)((?: {VARIABLE})*)", re.MULTILINE)
PLACEHOLDER: Final = "experiment-NAME"


def written(page: Path) -> Iterator[str]:
    """Yield a page's command lines and words in backticks; join continued lines."""
    text = page.read_text()
    for block in BLOCK.findall(text):
        yield from block.replace("\\\n", " ").splitlines()
    yield from CODE.findall(BLOCK.sub("", text))


def options_of(command: Any) -> set[str]:
    """Return the options of a command."""
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


def unknown_options(line: str) -> list[str]:
    """Return the long options in a command line of `downpour` that its command does not have."""
    unknown = []
    for rest in DOWNPOUR.findall(line):
        command: Any = typer.main.get_command(app)
        words = rest.split()
        while words and isinstance(command, TyperGroup):
            word = words.pop(0)
            if word in command.commands:
                command = command.commands[word]
            elif word in options_of(command):  # a group's own option, and its value
                del words[:1]
            else:
                words.insert(0, word)
                break
        known = options_of(command)
        own = words[: words.index("--")] if "--" in words else words
        if not command.context_settings.get("allow_interspersed_args", True):
            # What follows the first operand is another program's.
            own = words[: next((n for n, w in enumerate(words) if w[0] != "-"), None)]
        options = [re.match(r"\[?(--[\w-]+)", word) for word in own]
        names = [found[1] for found in options if found]
        unknown += [name for name in names if name not in {*known, "--help"}]
    return unknown


def unknown_to_make(line: str) -> list[str]:
    """Return what is wrong with the targets and variables of a command line of make."""
    wrong = []
    for goals, given in MAKE.findall(line):
        try:
            targets = {goal: front_door.target_of(goal) for goal in goals.split()}
        except front_door.Wrong as error:
            wrong.append(str(error))
            continue
        known = {name for target in targets.values() for name in target.variables}
        known |= {"CLOCK"} if any(goal.startswith("lab") for goal in targets) else set()
        names = re.findall(rf" ({VARIABLE})", given)
        wrong += [name for one in names if (name := one.partition("=")[0]) not in known]
    return wrong


@pytest.mark.parametrize("page", markdown_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_options_and_variables_exist(page: Path) -> None:
    wrong = [
        f"{page.relative_to(ROOT)}: {line.strip()}: found {one}"
        for line in written(page)
        for one in (*unknown_options(line), *unknown_to_make(line))
    ]
    assert not wrong, "\n".join(wrong)


def test_what_does_not_exist_is_found() -> None:
    assert unknown_options(".venv/bin/downpour run lossy --clok virtual") == ["--clok"]
    assert unknown_options("downpour lab grade DIR --rerun --key FILE -o x.csv") == []
    assert unknown_options("downpour virtual run -- ls --fast") == []
    assert unknown_options("downpour shell uva ls --fast") == []
    assert unknown_options("downpour shell --fast uva ls") == ["--fast"]
    assert unknown_options("downpour paths --at FILE create tv --root a:1:2 --rat 1M") == ["--rat"]
    assert unknown_to_make("make experiment-lossy RECIEVERS=4") == ["RECIEVERS"]
    assert unknown_to_make("make experiment-lossy CLOCK=virtual ONLY='a=1 b=2'") == []
    assert unknown_to_make(f"make {PLACEHOLDER} CLOCK=virtual") == []
    assert unknown_to_make("make bild")[0].startswith("found target 'bild'")
