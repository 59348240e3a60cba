# SPDX-License-Identifier: Apache-2.0
"""How often observers look. In virtual time an idle network costs nothing between two events, so
most events would be observers' looks: in a run of days they look rarely."""

from __future__ import annotations

import math
import os
from typing import Final

from common.shell import NetworkError

VARIABLE: Final = "DOWNPOUR_LOOK_S"
MOST_S: Final = 600.0


def every_s(usual_s: float) -> float:
    """Return the seconds between two looks: `usual_s`, or the environment's value if that is more.
    Raises NetworkError if that is not a number from 0 to 600."""
    text = os.environ.get(VARIABLE, "0")
    try:
        asked_s = float(text)
    except ValueError:
        asked_s = math.nan
    if not 0 <= asked_s <= MOST_S:
        raise NetworkError(f"{VARIABLE}: found '{text}'; valid: 0 to {MOST_S:g} (seconds)")
    return max(usual_s, asked_s)
