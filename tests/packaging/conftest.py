# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_way_to_the_checkout() -> Iterator[None]:
    """Unset PYTHONPATH, which `tests.run` sets to the checkout, so that installed programs find
    their own modules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        yield
