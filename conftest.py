# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from virtual.kernel_build import Kernel, find_kernel

# How fast examples are made says how busy the machine is, not whether they pass.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def kernel() -> Kernel:
    """The built kernel; without one the test is skipped, and says so."""
    found = find_kernel()
    if found is None:
        pytest.skip("no guest kernel is built (make virtual-kernel): NOT tested in virtual time")
    return found


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs in guests. Put files with slow tests or networks first: a worker takes whole
    files, and a long file that starts last holds up the tier."""
    for item in items:
        if item.get_closest_marker("emulated") and "kernel" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.guest)
    long = {
        item.path
        for item in items
        if item.get_closest_marker("slow") or item.get_closest_marker("root")
    }
    items.sort(key=lambda item: item.path not in long)
