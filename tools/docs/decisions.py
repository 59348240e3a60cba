# SPDX-License-Identifier: Apache-2.0
"""The list of decisions: `python -m tools.docs.decisions` writes it from the pages' titles."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs/develop/decisions"
PAGE: Final = FOLDER / "README.md"
HEAD: Final = """# Decisions

Each page gives one decision and its reason.
`python -m tools.docs.decisions` writes this list.
"""


def listed() -> str:
    """Return the page with a link to each decision, in the order of their numbers."""
    rows = []
    for page in sorted(FOLDER.glob("[0-9]*.md")):
        title = page.read_text().partition("\n")[0].removeprefix("# ")
        rows.append(f"- [{page.name[:3]} {title}]({page.name})")
    return f"{HEAD}\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(listed())
