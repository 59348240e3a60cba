# SPDX-License-Identifier: Apache-2.0
"""Tables of docs/ that `python -m tools.docs.command_tables` writes.

They are between `<!-- made: NAME -->` and `<!-- end -->`: every command with its make target, the
options of `downpour run` with make's variables, the factors of experiment files, the protocols'
settings and limits, and the tests' attempts to fool the verdict.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from typer.main import get_command

from common.command_line import PROGRAM
from downpour.cli import app
from experiments.design.parameters import Factors, Parameters
from experiments.design.spec import JoinLeaveFactors, JoinLeaveSpec, SubscriptionsSpec
from experiments.tests import test_fool, test_fool_hidden
from protocols import registry
from tools import front_door
from tools.docs.command_pages import commands_below, text_of

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGES: Final = (
    *(DOCS / "reference/commands.md", DOCS / "guide/add-your-own.md"),
    *(DOCS / "guide/verdict.md", DOCS / "results/peers.md"),
)
MADE: Final = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def commands() -> str:
    """Return a table of every command, the make target that calls it, and what it does."""
    targets: dict[tuple[str, ...], list[str]] = {("doctor",): ["doctor"]}  # make runs it itself
    for goal, target in front_door.TARGETS.items():
        targets.setdefault(target.command, []).append(goal)
    rows = ["| command | make | what it does |", "|---|---|---|"]
    for words, command in commands_below(get_command(app), [PROGRAM]):
        called = ", ".join(f"`make {goal}`" for goal in targets.get(tuple(words[1:]), ()))
        told = text_of(getattr(command, "help", "") or "").partition(". ")[0].rstrip(".")
        rows.append(f"| `{' '.join(words)}` | {called} | {told} |")
    return "\n".join(rows) + "\n"


def variables() -> str:
    """Return a table of the variables of `make experiment-NAME` and the options that they set."""
    below = commands_below(get_command(app), [PROGRAM])
    (run,) = (command for words, command in below if words == [PROGRAM, "run"])
    helps = {name: one.help for one in getattr(run, "params", ()) for name in one.opts}
    rows = ["| option | variable | meaning |", "|---|---|---|"]
    for name, variable in front_door.TARGETS["experiment-NAME"].variables.items():
        told = text_of(helps.get(variable.option) or "").partition(". ")[0].rstrip(".")
        rows.append(f"| `{variable.option}` | `{name}=` | {told} |")
    return "\n".join(rows) + "\n"


def factors() -> str:
    """Return a table of the factors of experiment files, described as in their schema."""
    rows = ["| factor | meaning |", "|---|---|"]
    for name, field in Factors.model_fields.items():
        parameter = Parameters.model_fields.get(name, field)
        rows.append(f"| `{name}` | {field.description or parameter.description} |")
    for name in JoinLeaveFactors.model_fields:
        field = {**JoinLeaveSpec.model_fields, **SubscriptionsSpec.model_fields}[name]
        rows.append(f"| `{name}` | join-leave: {field.description} |")
    return "\n".join(rows) + "\n"


def protocols() -> str:
    """Return a list of the protocols: their settings, and what they cannot do."""
    titles: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for one in registry.OWN.values():
        titles.setdefault((one.settings, one.limits), []).append(one.title)
    items = []
    for (settings, limits), names in titles.items():
        lines = [f"- **{'; '.join(names)}.**", f"Settings from {settings}", *limits]
        items.append("\n  ".join(lines))
    return "\n".join(items) + "\n"


def attempts() -> str:
    """Return a table of the tests' attempts to fool the verdict, and the checks that must fail."""
    rows = ["| attempt | checks that must fail |", "|---|---|"]
    for one in (*test_fool.ATTEMPTS, *test_fool_hidden.ATTEMPTS):
        rows.append(f"| {one.name} | {'; '.join(one.seen_by)} |")
    return "\n".join(rows) + "\n"


def drawn(page: str) -> str:
    """Return the page with new tables."""
    tables = {
        **{"attempts": attempts, "commands": commands, "factors": factors},
        **{"protocols": protocols, "variables": variables},
    }
    return MADE.sub(lambda match: match[1] + tables[match[2]]() + match[3], page)


if __name__ == "__main__":
    for one in PAGES:
        one.write_text(drawn(one.read_text()))
