# SPDX-License-Identifier: Apache-2.0
"""Reports with their figures, drawn once for all tests: drawing takes most of the room's time."""

from __future__ import annotations

import pytest

from parsers.report.publish import Written, write_report
from parsers.tests.synthetic import write_synthetic_run, write_synthetic_sweep


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A run of both protocols. Tests only read it."""
    return write_report(
        write_synthetic_run(tmp_path_factory.mktemp("drawn") / "lossy" / "20261121T020000Z")
    )


@pytest.fixture(scope="session")
def drawn_sweep(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A run with a figure of each kind. Tests only read it."""
    return write_report(
        write_synthetic_sweep(tmp_path_factory.mktemp("drawn") / "synthetic" / "s1")
    )
