# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from virtual.kernel_build import Kernel, find_kernel


@pytest.fixture
def kernel() -> Kernel:
    """The built kernel; without one the test is skipped, and says so."""
    found = find_kernel()
    if found is None:
        pytest.skip("no guest kernel is built (make virtual-kernel): it was NOT tested")
    return found


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labs of the user who runs the tests are not touched."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.delenv("DOWNPOUR_LABS_KEY", raising=False)
