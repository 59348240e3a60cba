# SPDX-License-Identifier: Apache-2.0
"""Every command of the measuring labs' handouts, run in guests in the order of the handout.


The student's values replace the words in capitals that the handout explains (P, RECEIVER, ADDRESS);
RUN RUN are the first two runs of the work directory. The programs that a student completes are
replaced by the instructor's; the answers stay empty.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from labs.spec import Lab
from labs.tests.bundled import MEASURING
from labs.tests.measuring import IN_GUESTS_IF_ASKED
from labs.tests.test_handout_commands import INLINE, blocks, number
from tests.prose import ROOT

pytestmark = IN_GUESTS_IF_ASKED

MARK: Final = "end-of-command"
MAKE_FAILED: Final = 2
UNANSWERED: Final = re.compile(r"^score: |nothing to check", re.MULTILINE)
# Not `LOSS_PERCENT=...`, nor a part of a path or of a variable's name.
EXPLAINED: Final = re.compile(
    r"(?<![A-Za-z_$])(?:P(?=%)|Q(?=%)|OTHER|RECEIVER|ADDRESS|FILE_BYTES|LOSS_PERCENT)(?![A-Za-z_=])"
    r"|(?<=-p)P\b|\bRUN RUN\b"
)


class Shell:
    """A bash in the checkout, which runs one command after another."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, cwd=ROOT, env=environment,
        )  # fmt: skip

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.close()
        self._bash.wait()

    def run(self, command: str) -> tuple[int, str]:
        """Return the exit code and what the command printed."""
        assert self._bash.stdin is not None and self._bash.stdout is not None
        # In braces, so that the command cannot read the lines that follow it.
        self._bash.stdin.write(f"{{ {command}\n}} </dev/null; printf '\\n{MARK} %d\\n' $?\n")
        self._bash.stdin.flush()
        lines: list[str] = []
        for line in self._bash.stdout:
            if line.startswith(MARK):
                return int(line.split()[1]), "".join(lines)
            lines.append(line)
        raise AssertionError(f"the shell ended: {command}\n{''.join(lines)}")


def with_values(command: str, values: Mapping[str, object], work: Path) -> str:
    """Return a command with the student's values for the words that the handout explains."""
    own = {name.upper(): str(value) for name, value in values.items()}
    own["P"] = own.get("LOSS_PERCENT", "")
    own["Q"] = own.get("MORE_LOSS_PERCENT", "")
    own["OTHER"] = own.get("OTHER_SEED", "")
    if "ADDRESS" in command:
        (network,) = work.glob("runs/nacks/latest/cells/*/network.json")
        hosts = json.loads(network.read_text())["hosts"]
        own["ADDRESS"] = next(h["nic1"]["ip"] for h in hosts if h["name"] == own["RECEIVER"])
    if "RUN RUN" in command:
        first, second = sorted(work.glob("runs/*/2*"))[:2]
        own["RUN RUN"] = f"{first} {second}"
    return EXPLAINED.sub(lambda match: own[match[0]], command)


def complete(lab: Lab, work: Path) -> None:
    """Replace the programs that the student completes by the instructor's."""
    for program in (ROOT / "labs/solutions" / lab.folder.name).glob("*.py"):
        if (work / program.name).exists():
            shutil.copy(program, work)


@pytest.mark.parametrize("lab", MEASURING, ids=number)
def test_measuring_labs_run_what_the_handout_says(lab: Lab, tmp_path: Path) -> None:
    work = tmp_path / "downpour-labs" / str(lab.number)
    values = lab.parameters("yourname")
    handout = lab.handout.read_text()
    inline = [one for one in INLINE.findall(handout) if "OTHER" in one or "RUN RUN" in one]
    ran = 0
    with Shell({**os.environ, "HOME": str(tmp_path), "CLOCK": "virtual"}) as shell:
        for command in [*(one for block in blocks(lab) for one in block), *inline]:
            code, text = shell.run(with_values(command, values, work))
            assert "command not found" not in text and "syntax error" not in text, text
            if command.startswith("make lab-check"):  # answers are missing
                assert code == MAKE_FAILED and UNANSWERED.search(text), f"{command}\n{text}"
            else:
                assert code == 0, f"{command}\n{text}"
            if "RUN RUN" in command:
                assert "2 cells of 2 runs" in " ".join(text.split()), text
            if command.startswith("make lab N="):
                complete(lab, work)
            ran += 1
    assert ran >= 7
