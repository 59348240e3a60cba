# SPDX-License-Identifier: Apache-2.0
"""The version of this Downpour."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

from common.places import IN_CHECKOUT, ROOT


def version() -> str:
    """Return the version: from tools/version in a checkout, else the installed package's."""
    if not IN_CHECKOUT:
        return importlib.metadata.version("downpour")
    argv = [sys.executable, str(ROOT / "tools/version")]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
