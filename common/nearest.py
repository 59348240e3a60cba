# SPDX-License-Identifier: Apache-2.0
"""Find the name that was probably meant, for the end of an error."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'NAME'?)", or "" if no name is near."""
    near = difflib.get_close_matches(found, list(known), n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""
