# SPDX-License-Identifier: Apache-2.0
"""Exit codes that commands of several rooms share."""

from __future__ import annotations

from typing import Final

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2  # bad input or a wrong option
EXIT_INVALID: Final = 3  # a cell's verdict is invalid
EXIT_INTERRUPTED: Final = 130
