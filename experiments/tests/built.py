# SPDX-License-Identifier: Apache-2.0
"""Marks for tests that run the built programs."""

from __future__ import annotations

from typing import Final

import pytest

from common.places import BUILD
from experiments.runs.preparation import PROGRAMS

NEEDS_PROGRAMS: Final = pytest.mark.skipif(
    not all((BUILD / p).exists() for p in PROGRAMS), reason="SKIPPED: run `make build` first"
)
IN_GUESTS: Final = [pytest.mark.emulated, NEEDS_PROGRAMS, pytest.mark.usefixtures("kernel")]
