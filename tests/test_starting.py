# SPDX-License-Identifier: Apache-2.0
"""Imports without looking for garbage: it is looked for again afterwards, also after an error."""

from __future__ import annotations

import subprocess
import sys

import pytest

from common.places import ROOT

SCRIPT = """
import gc
from common.starting import imports
before = gc.get_freeze_count()
try:
    with imports():
        print(gc.isenabled())
        import json
        {step}
except ImportError as error:
    print(error)
print(gc.isenabled(), gc.get_freeze_count() > before)
"""


@pytest.mark.parametrize(
    ("step", "said"), [("pass", []), ("raise ImportError('no framework')", ["no framework"])]
)
def test_garbage_is_left_alone_only_meanwhile(step: str, said: list[str]) -> None:
    argv = [sys.executable, "-c", SCRIPT.format(step=step)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False", *said, "True True"]
