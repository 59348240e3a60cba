# SPDX-License-Identifier: Apache-2.0
"""What pyproject.toml cannot say: tools/version gives the version, and an sdist keeps it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent


def version() -> str:
    """Return what tools/version prints."""
    argv = [sys.executable, str(ROOT / "tools/version")]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


class Sdist(sdist):
    """Adds the file VERSION: an archive has no tags."""

    def make_release_tree(self, base_dir: str, files: Any) -> None:
        """Fill the directory that becomes the archive."""
        super().make_release_tree(base_dir, files)
        (Path(base_dir) / "VERSION").write_text(version() + "\n", encoding="utf-8")


# build/ is Meson's; what a build before left must not get into a wheel.
WORK = "build-python"
shutil.rmtree(ROOT / WORK, ignore_errors=True)
setup(version=version(), cmdclass={"sdist": Sdist}, options={"build": {"build_base": WORK}})
