# SPDX-License-Identifier: Apache-2.0
"""Types of the labs' checks: `python -m tests.lab_types`; the exit code is mypy's.

A lab's folder is no package, and each has a `checks.py`: one run of mypy sees them under names of
their own. A run for each took eight times as long.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from common.places import ROOT


def main() -> int:
    """Check all of them; what mypy says names the files as they are in the repository."""
    found = sorted(ROOT.glob("labs/[0-9]*/checks.py"))
    with tempfile.TemporaryDirectory() as directory:
        links = {}
        for path in found:
            link = Path(directory) / f"checks_{path.parent.name.split('-')[0]}.py"
            link.symlink_to(path)
            links[str(link)] = str(path.relative_to(ROOT))
        argv = [sys.executable, "-m", "mypy", "--show-absolute-path", *links]
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    text = done.stdout + done.stderr
    for link_name, name in links.items():
        text = text.replace(link_name, name)
    print(text, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
