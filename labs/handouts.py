# SPDX-License-Identifier: Apache-2.0
"""Render handouts as HTML: one page for each lab, which needs no other file."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt

from common.files import os_error_text
from labs.spec import ROOM, Lab, all_labs
from labs.workdir import LabError

SECTIONS: Final = ("Before you start", "Aim", "Background", "Steps", "Questions", "Next steps")
OTHER_HANDOUT: Final = re.compile(r"\]\(\.\./(\d+)-[\w-]+/handout\.md\)")
OF_CHECKOUT: Final = re.compile(r"\[([^\]]*)\]\(\.\./\.\./([\w./-]+)(?:#[\w-]+)?\)")
STYLE: Final = """
:root { color-scheme: light dark }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 46em; margin: 2em auto; padding: 0 1em;
  color: #1b1b1b; background: #fff }
h1, h2, h3 { line-height: 1.25 } h2 { margin-top: 2em; border-bottom: 1px solid #ccc }
pre { background: #f4f4f2; padding: .7em 1em; overflow-x: auto; border-left: 3px solid #8aa }
code { font: 14px/1.45 ui-monospace, monospace } p code, li code, td code { background: #f4f4f2 }
table { border-collapse: collapse } td, th { border: 1px solid #bbb; padding: .25em .6em;
  text-align: left } blockquote { margin-left: 0; padding-left: 1em; border-left: 3px solid #ccc }
@media screen and (prefers-color-scheme: dark) { body { color: #e4e4e4; background: #1b1b1b }
  pre, p code, li code, td code { background: #2b2b2b } a { color: #8ab4f8 }
  td, th { border-color: #666 } }
@media print { body { max-width: none; margin: 0 } pre { white-space: pre-wrap } }
"""


def page(title: str, markdown: str) -> str:
    """Return one HTML page. Raw HTML in the Markdown is shown, not interpreted. Links to other
    handouts lead to their pages; files of the checkout are only named, as the page stands alone."""
    linked = OTHER_HANDOUT.sub(r"](lab-\1.html)", OF_CHECKOUT.sub(_named, markdown))
    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(linked)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}</body>\n</html>\n"
    )


def _named(link: re.Match[str]) -> str:
    """Return the words of a link, followed by the name of the file of the checkout that it led
    to."""
    words, path = link[1], f"`{link[2]}`"
    return path if words == link[2] else f"{words} ({path})"


def notes_of(lab: Lab) -> Path:
    """Return the path of the instructor's notes, which may be missing where only the labs were
    handed out."""
    return ROOM / "solutions" / lab.folder.name / "notes.md"


def write_all(directory: Path, *, solutions: bool = False) -> list[Path]:
    """Write lab-N.html of each lab and, with `solutions`, notes-N.html; return them. Raises
    LabError."""
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for lab in all_labs():
            sources = [(f"lab-{lab.number}.html", lab.handout, f"Lab {lab.number}")]
            if solutions and notes_of(lab).is_file():
                name = f"notes-{lab.number}.html"
                sources.append((name, notes_of(lab), f"Notes on lab {lab.number}"))
            for name, source, title in sources:
                text = page(f"{title}: {lab.spec.title}", source.read_text(encoding="utf-8"))
                path = directory / name
                temporary = path.with_name(f".{name}.tmp")
                temporary.write_text(text, encoding="utf-8")
                temporary.replace(path)
                written.append(path)
    except OSError as error:
        raise LabError(
            f"{os_error_text(error)}; valid: a directory that you may write to"
        ) from None
    return written
