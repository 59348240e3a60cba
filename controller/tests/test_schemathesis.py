# SPDX-License-Identifier: Apache-2.0
"""The REST interface answers Schemathesis's requests as its OpenAPI document says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controller.tests.rest_fuzz import A_FEW, run

LEAST_REQUESTS = 50  # 3 for each of the 23 operations, less where there are fewer possible requests

pytestmark = pytest.mark.slow


def test_no_findings(tmp_path: Path) -> None:
    """`make test-all` makes more requests, for minutes."""
    done = run(A_FEW, 1, tmp_path)
    assert done.returncode == 0, done.stdout[-12_000:] + done.stderr[-2000:]
    counted = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert counted is not None and counted[1] == counted[2], done.stdout
    assert int(counted[1]) >= LEAST_REQUESTS
