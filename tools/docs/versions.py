# SPDX-License-Identifier: Apache-2.0
"""A folder with one documentation site per version, which a web server serves.

`versions.json` (in mike's form, which the theme's version menu reads) lists the sites: releases
before development versions, newest first. `index.html` redirects to the first of them.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Final

VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\.dev(\d+))?")
REDIRECT: Final = """<!doctype html>
<meta charset="utf-8">
<title>Downpour</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
<a href="{version}/index.html">Downpour {version}</a>
"""


def publish(site: Path, folder: Path, version: str) -> None:
    """Put a built site into `folder` as `version`, replacing an older site of that version."""
    if VERSION.fullmatch(version) is None:
        raise ValueError(f"found version '{version}'; valid: X.Y.Z or X.Y.Z.devN")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder / version, ignore_errors=True)
    shutil.copytree(site, folder / version)
    versions = listed(folder)
    latest = {"aliases": ["latest"]}
    rows = [
        {"version": one, "title": one, "aliases": []} | (latest if one == versions[0] else {})
        for one in versions
    ]
    (folder / "versions.json").write_text(json.dumps(rows, indent=1) + "\n")
    (folder / "index.html").write_text(REDIRECT.format(version=versions[0]))


def listed(folder: Path) -> list[str]:
    """Return the versions in `folder`: releases, then development versions, newest first."""
    found = [match for path in folder.iterdir() if (match := VERSION.fullmatch(path.name))]

    def rank(match: re.Match[str]) -> tuple[bool, list[int]]:
        return match[4] is None, [int(number or 0) for number in match.groups()]

    return [match[0] for match in sorted(found, key=rank, reverse=True)]
