#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Check that `ninja programs` builds every file that `meson install` installs. Otherwise an
installation without another build, as in Dockerfile.ldm, stops at a missing file.

Usage: installed.py BUILD.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def not_built(build: Path) -> list[str]:
    """Return the installed files of the build that the target `programs` does not name."""
    query = ["ninja", "-C", str(build), "-t", "query", "programs"]
    said = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout
    named = {line.strip().removeprefix("| ") for line in said.splitlines()}
    targets = json.loads((build / "meson-info/intro-targets.json").read_text())
    installed = {
        os.path.relpath(target["filename"][0], build) for target in targets if target["installed"]
    }
    if not installed:
        return ["nothing is installed"]
    return sorted(installed - named)


def main() -> int:
    found = not_built(Path(sys.argv[1]))
    for one in found:
        print(f"{one}: installed, but not built by `ninja programs`")
    return 1 if found else 0


sys.exit(main())
