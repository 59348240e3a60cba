# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from controller.tests.rig import Rig


@pytest.fixture
def rig() -> Rig:
    """A service whose switches all answer; a file whose rigs differ overrides it."""
    return Rig()
