# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from virtual.kernel_build import Kernel, find_kernel


@pytest.fixture(scope="session")
def kernel() -> Kernel:
    """The built kernel; without one the test is skipped, and says so."""
    found = find_kernel()
    if found is None:
        pytest.skip("no guest kernel is built (make virtual-kernel): NOT tested in virtual time")
    return found
