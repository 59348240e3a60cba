# SPDX-License-Identifier: Apache-2.0
"""Check the types in the labs' checks: `python -m tests.lab_types`; the exit code is mypy's.

A lab's folder is not a package, and each has a `checks.py`. One run of mypy sees all of them under
different names; a run for each lab took eight times as long.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from common.places import ROOT


def main() -> int:
    """Run mypy on all labs; its messages name the files as in the repository."""
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
