# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from controller.tests.rig import Rig


@pytest.fixture
def rig() -> Rig:
    """Return a service whose switches all answer; a file that needs another rig overrides it."""
    return Rig()
