# SPDX-License-Identifier: Apache-2.0
"""Every source that code and documents cite by a key is in docs/references.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.prose import ROOT, repository_files

PAGE: Final = ROOT / "docs/references.md"
CITING: Final = ("c", "h", "md", "py", "yaml", "yml", "txt", "sh", "template", "build")
# The form of keys of papers and programs. SHA256 and similar names are not keys.
KEY: Final = re.compile(
    r"\b(?:MPUP\d+|DRFSM\d+|FCAST\d+|IDD\d+|M2C\d+|MSR-TR-\d+-\d+|LDM-6\.\d+\.\d+"
    r"|FMTPv3-\d{4}|RFC \d+)\b"
)
# Files and numbers that no reader has.
DANGLING: Final = re.compile(
    r"mpup-ldm7|drfsm\.txt|fcast\.txt|m2c-sequencer|seeds-check|science\.md|design card"
    r"|\breference \d|\bin the reference\b",
    re.IGNORECASE,
)


def known() -> set[str]:
    """Return the keys of the bibliography."""
    page = PAGE.read_text()
    rfcs = re.search(r"^These RFCs .*? are cited: ([\d, ]+)\.$", page, re.MULTILINE)
    assert rfcs is not None
    keys = re.findall(r"^\| ([\w. -]+?) \|", page, re.MULTILINE)
    return {*keys, *(f"RFC {number}" for number in rfcs[1].split(", "))} - {"key"}


def found(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield (place, text) of every match in a file that could cite, except this file."""
    for extension in CITING:
        for path in repository_files(extension):
            if path in (PAGE, Path(__file__).resolve()):
                continue
            text = path.read_text(errors="replace")
            for match in pattern.finditer(text):
                number = text.count("\n", 0, match.start()) + 1
                yield f"{path.relative_to(ROOT)}:{number}", match[0]


def test_every_key_is_in_the_bibliography() -> None:
    keys = known()
    assert {"MPUP16", "DRFSM21", "RFC 5531"} <= keys
    unknown = [f"{at}: {key}" for at, key in found(KEY) if key not in keys]
    assert not unknown, "\n".join(unknown)


def test_no_citation_of_what_is_not_there() -> None:
    dangling = [f"{at}: {text}" for at, text in found(DANGLING)]
    assert not dangling, "\n".join(dangling)


def test_the_patterns_find_what_they_are_for() -> None:
    assert KEY.findall("as MPUP16 V-F and RFC 5531 8 say, not SHA256") == ["MPUP16", "RFC 5531"]
    assert DANGLING.search("see reference 4.3") and not DANGLING.search("a reference to it")
