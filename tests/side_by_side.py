# SPDX-License-Identifier: Apache-2.0
"""Let two checkouts bring networks up and take them down on one machine, many times.

    python -m tests.side_by_side [--rounds N] [--seed N]

The machine consists of namespaces, as in `tests.disturbances`; the second checkout is a copy of
this one. Each checks that its network works until its own `down`, which must not mention the
other's network. In between, each calls `down` at random moments with nothing up. Root.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from common.places import ROOT
from tests.disturbances import INSIDE, SCRATCH, environment, inside, left, prepared, snapshot

LIMIT_S: Final = 600.0
UP: Final = ("up", "geni5", "--receivers", "2")
PING: Final = ("shell", "wsu1", "--", "ping", "-n", "-q", "-c", "2", "-i", "0.2", "10.20.0.2")
NAMED: Final = re.compile(r"up-[0-9a-f]{6}")


class Checkout:
    """One of the two checkouts, and what went wrong in it."""

    def __init__(self, place: Path, seed: int, say: Callable[[str], None]) -> None:
        self.place, self._say = place, say
        self._dice = random.Random(f"{place.name} {seed}")
        self.done = 0
        self.problems: list[str] = []

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a command in this checkout; return its exit code and its output."""
        done = subprocess.run(
            [sys.executable, "-m", "downpour", *arguments],
            cwd=self.place, env={**os.environ, "PYTHONPATH": str(self.place)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def _expect(self, good: bool, what: str, said: str) -> None:
        if not good:
            text = f"{self.place.name}, round {self.done + 1}: {what}: {said[-1200:]}"
            self.problems.append(text)
            self._say(text)

    def _nothing(self) -> None:
        """Call `down` with nothing up, at any moment of the other checkout's round."""
        time.sleep(self._dice.uniform(0, 2))
        code, said = self.run("down")
        self._expect(code == 0 and "nothing was up" in said, f"idle down, code {code}", said)

    def rounds(self, number: int) -> None:
        """Bring a network up, check it, and take it down, `number` times."""
        for _ in range(number):
            code, said = self.run(*UP)
            self._expect(code == 0, f"up, code {code}", said)
            run_id = next(iter(NAMED.findall(said)), "none")
            code, said = self.run(*PING)
            self._expect(code == 0 and " 0% packet loss" in said, f"ping, code {code}", said)
            time.sleep(self._dice.uniform(0, 1))
            code, said = self.run("status")
            self._expect(f"{run_id}: up" in said and "trouble" not in said, "status", said)
            code, said = self.run("down")
            mine = set(NAMED.findall(said)) == {run_id}
            self._expect(code == 0 and mine, f"down of {run_id}, code {code}", said)
            for _ in range(self._dice.randrange(3)):
                self._nothing()
            self.done += 1
            if self.done % 10 == 0:
                self._say(f"{self.place.name}: {self.done} rounds")


def copy_of_checkout(place: Path) -> Path:
    """Make a second checkout: the versioned files, and links to .venv and build."""
    listed = subprocess.run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    for name in (".venv", "build"):
        (place / name).symlink_to((ROOT / name).resolve())
    return place


def both(number: int, seed: int, say: Callable[[str], None]) -> dict[str, object]:
    """Let both run; return the findings."""
    first = Checkout(ROOT, seed, say)
    second = Checkout(copy_of_checkout(SCRATCH / "second"), seed, say)
    before = snapshot()
    threads = [threading.Thread(target=c.rounds, args=(number,)) for c in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    problems = [*first.problems, *second.problems, *left(before, 10)]
    return {"rounds": [first.done, second.done], "seed": seed, "problems": problems}


def main() -> int:
    """Print the findings, as JSON in the last line. Exit code 1: one harmed the other."""
    parser = argparse.ArgumentParser(prog="python -m tests.side_by_side", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    options = parser.parse_args()
    if INSIDE not in os.environ:
        command = inside([sys.executable, "-m", "tests.side_by_side", *sys.argv[1:]])
        return subprocess.run(command, cwd=ROOT, env=environment(), check=False).returncode
    with prepared():
        found = both(options.rounds, options.seed, lambda text: print(text, flush=True))
    print(json.dumps(found))
    return 1 if found["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
