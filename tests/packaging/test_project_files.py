# SPDX-License-Identifier: Apache-2.0
"""Files for other projects' tools are valid: the citation, the issue forms."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from common.places import ROOT

FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


def check(schema: str, path: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
def test_citation_is_valid_and_of_the_newest_release(tmp_path: Path) -> None:
    text = (ROOT / "CITATION.cff").read_text()
    # The schema needs JSON types, so dates become text.
    done = check("vendor.citation-file-format", ROOT / "CITATION.cff")
    assert done.returncode == 0, done.stdout
    broken = tmp_path / "CITATION.cff"
    broken.write_text(text.replace("authors:", "writers:"))
    assert check("vendor.citation-file-format", broken).returncode == 1
    newest = re.search(
        r"^## \[(\d\S+)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert newest is not None
    assert f"\nversion: {newest[1]}\n" in text and f'\ndate-released: "{newest[2]}"\n' in text


@pytest.mark.slow
@pytest.mark.parametrize("path", FORMS, ids=lambda p: p.name)
def test_issue_forms_are_valid(path: Path) -> None:
    kind = "issue-config" if path.name == "config.yml" else "issue-forms"
    done = check(f"vendor.github-{kind}", path)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_debian_lists_what_is_installed() -> None:
    """One package has each program and page that Meson installs."""
    lists = [path.read_text() for path in sorted((ROOT / "debian").glob("*.install"))]
    patterns = [line.split()[0] for text in lists for line in text.splitlines()]
    assert len(patterns) == len(set(patterns))
    for page in ROOT.glob("*/**/man/*.[1358]"):
        if "build" in page.relative_to(ROOT).parts[0]:
            continue
        wanted = f"usr/share/man/man{page.suffix[1]}/{page.name}"
        held = [p for p in patterns if Path(wanted).match(p) or wanted.startswith(p + "/")]
        assert len(held) == 1, f"{page.name}: {held}; valid: one entry in debian/*.install"
