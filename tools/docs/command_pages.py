# SPDX-License-Identifier: Apache-2.0
"""Reference pages of commands: `downpour` from its own options, C programs from manual pages."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.core import TyperArgument, TyperOption


def manual_page(source: Path) -> tuple[str, str]:
    """Return (name, Markdown) of a manual page, e.g. ("pqcat.1", ...), made by mandoc."""
    command = ["mandoc", "-T", "markdown", str(source)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    _, _, body = text.partition("\n")
    title = f"{source.stem}({source.suffix[1:]})"
    return source.name, f"# {title}\n" + re.sub(r"^(#+) ", r"#\1 ", body, flags=re.MULTILINE)


def command_page(app: typer.Typer, program: str) -> str:
    """Return a Markdown page with every command below `app`, its arguments and options."""
    lines = [f"# All commands of {program}"]
    for words, command in commands_below(typer.main.get_command(app), [program]):
        lines += ["", f"## {' '.join(words)}", "", *_described(command)]
    return "\n".join(lines) + "\n"


def commands_below(command: object, words: list[str]) -> Iterator[tuple[list[str], object]]:
    """Yield (words, command) for each command of a group, without hidden ones."""
    below = getattr(command, "commands", None)  # None: a command, not a group
    if below is None:
        yield words, command
        return
    for name, one in below.items():
        if not one.hidden:
            yield from commands_below(one, [*words, name])


def _described(command: object) -> Iterator[str]:
    yield text_of(getattr(command, "help", None) or "")
    rows = [_row(one) for one in getattr(command, "params", ()) if not one.hidden]
    if rows:
        yield from ("", "| argument or option | meaning |", "|---|---|", *rows)


def _row(one: TyperArgument | TyperOption) -> str:
    meaning = text_of(one.help or "")
    if isinstance(one, TyperArgument):
        return f"| `{(one.name or '').upper()}` | {meaning} |"
    names = ", ".join(f"`{name}`" for name in [*one.opts, *one.secondary_opts])
    told = not one.is_flag and isinstance(one.default, str | int | float)
    return f"| {names} | {meaning}{f' (default {one.default})' if told else ''} |"


def text_of(text: str) -> str:
    """Return a help text as a line that a Markdown table can hold."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
