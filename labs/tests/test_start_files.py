# SPDX-License-Identifier: Apache-2.0
"""The experiment files that students get can be read."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from common.places import ROOT
from experiments.design.spec import load

TEMPLATES = [
    p for p in sorted(ROOT.glob("labs/*/start/*.yaml.template")) if "factors:" in p.read_text()
]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_start_file_can_be_read(template: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    numbers = itertools.count(4)  # each parameter's, since levels must differ
    file.write_text(re.sub(r"\$\{\w+\}", lambda _: str(next(numbers)), template.read_text()))
    load(file)
