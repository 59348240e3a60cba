# SPDX-License-Identifier: Apache-2.0
"""The REST interface answers what Schemathesis makes up as its OpenAPI document says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controller.tests.rest_fuzz import run

SECONDS = 40

pytestmark = pytest.mark.slow


def test_no_findings(tmp_path: Path) -> None:
    """`make test-all` gives it more time."""
    done = run(SECONDS, 1, tmp_path)
    assert done.returncode == 0, done.stdout[-12_000:] + done.stderr[-2000:]
    assert re.search(r"\d{3,} generated, \d{3,} passed|(\d{3,}) passed", done.stdout), done.stdout
