# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from labs.spec import Lab
from labs.tests.measuring import copied
from labs.workdir import Work


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labs of the user who runs the tests stay untouched."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.delenv("DOWNPOUR_LABS_KEY", raising=False)


@pytest.fixture
def copy(solved: tuple[Lab, Work], tmp_path: Path) -> tuple[Lab, Work]:
    """Return a copy of a test module's solved work directory, to spoil."""
    lab, work = solved
    return lab, copied(work, tmp_path / "w")
