# SPDX-License-Identifier: Apache-2.0
"""The version of this program."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

from common.places import ROOT


def version() -> str:
    """Return the version: of the checkout by its tag, else of the installed package."""
    script = ROOT / "tools/version"
    if script.is_file():
        argv = [sys.executable, str(script)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    try:
        return metadata.version("downpour")
    except metadata.PackageNotFoundError:
        return "unknown"
