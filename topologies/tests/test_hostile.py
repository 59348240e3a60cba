# SPDX-License-Identifier: Apache-2.0
"""Broken files end in TopologyErrors, never in another exception, whatever is wrong with them."""

import random
from pathlib import Path

import pytest

from topologies.model.load import (
    TopologyErrors,
    bundled,
    find,
    load,
)

WORDS = [
    "", "0", "-1", "1.5", "true", "null", "[]", "{}", "x", "host", "switch", "router", "static",
    "controller", "tor-wsu", "chic", "ctl", "al2s", "4095", "1e400", ".nan", ".inf", "'", "\"",
    "{ a: 1 }", "[1, 2]", "9999999999999999999999", "&a", "*a", "<<", "!!str", "10.0.0.0/8",
]  # fmt: skip


def mutate(text: str, rng: random.Random) -> str:
    """Make one random change to a file: drop, double, move or replace a line or a word."""
    lines = text.splitlines()
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    change = rng.randrange(5)
    if change == 0:
        del lines[i]
    elif change == 1:
        lines.insert(j, lines[i])
    elif change == 2:
        lines[i], lines[j] = lines[j], lines[i]
    else:
        words = lines[i].split(" ")
        k = rng.randrange(len(words))
        words[k] = rng.choice(WORDS) + ("," if words[k].endswith(",") else "")
        lines[i] = " ".join(words)
    return "\n".join(lines) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeds", [range(30), pytest.param(range(30, 150), marks=pytest.mark.long)], ids=["few", "many"]
)
@pytest.mark.parametrize("name", bundled())
def test_mutated_files(name: str, seeds: range, tmp_path: Path) -> None:
    # Comments would only waste changes.
    original = "\n".join(
        line
        for line in find(name).read_text().splitlines()
        if line.strip() and not line.lstrip().startswith("#")
    )
    path = tmp_path / "mutated.yaml"
    refused = 0
    for seed in seeds:
        rng = random.Random(seed)
        text = original
        for _ in range(rng.randint(1, 4)):
            text = mutate(text, rng)
        path.write_text(text)
        try:
            load(path)
        except TopologyErrors as caught:
            refused += 1
            assert caught.errors
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r} for:\n{text}") from error
    assert refused > len(seeds) / 2  # most random changes are mistakes
