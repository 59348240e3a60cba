# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_way_to_the_checkout() -> Iterator[None]:
    """What is installed finds its own modules: `tests.run` sets PYTHONPATH to the checkout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        yield
