# SPDX-License-Identifier: Apache-2.0
"""One sentence per line in Markdown: `python -m tools.docs.sentences [--check] [FILE...]`.

Tables, headings, code and comments stay as they are. Without files: every page of the repository
that people write.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.prose import ROOT, markdown_files

ABBREVIATIONS: Final = (
    "e.g",
    "i.e",
    "Fig",
    "Figs",
    "Exp",
    "eq",
    "vs",
    "cf",
    "No",
    "Sec",
    "etc",
    "U",
)
# A full stop, closing marks after it, spaces, and the beginning of a sentence.
END: Final = re.compile(r"([.?!][)\"*_]*) +(?=[(\"*_`\[]*[A-Z0-9\x00])")
ITEM: Final = re.compile(r"(\s*)([-*+]|\d+[.)]) +")
ALONE: Final = re.compile(r"\s*(\||#|<|!\[|---|===|\[[^\]]+\]: )")
CODE: Final = re.compile(r"(`+)(?:(?!\1).)+\1")


def pages() -> list[Path]:
    """Return the pages that people write: all but the reports of runs."""
    reports = set((ROOT / "docs/results").glob("*/report.md"))
    return [page for page in markdown_files() if page not in reports]


def sentences(paragraph: str) -> list[str]:
    """Split a paragraph without line breaks into its sentences."""
    spans: list[str] = []

    def hide(match: re.Match[str]) -> str:
        spans.append(match[0])
        return f"\0{len(spans) - 1}\0"

    text = CODE.sub(hide, paragraph)
    found = [""]
    last = 0
    for end in END.finditer(text):
        before = text[last : end.end(1)]
        word = re.split(r"[ (\[]", before.rstrip(')"*_').rstrip(".?!"))[-1]
        found[-1] += before
        known = word in ABBREVIATIONS or re.fullmatch(r"[A-Z]", word)
        if (end[1].startswith(".") and known) or re.fullmatch(r"[*_]*\d+\.", found[-1]):
            found[-1] += " "
        else:
            found.append("")
        last = end.end()
    found[-1] += text[last:]
    return [re.sub(r"\0(\d+)\0", lambda m: spans[int(m[1])], one) for one in found]


def reflow(text: str) -> str:
    """Return a page with each sentence of its paragraphs and list items on its own line."""
    return "\n".join(_lines(text.splitlines())) + "\n"


def _lines(lines: list[str]) -> Iterator[str]:
    paragraph: list[str] = []
    prefix = ""
    fence = ""

    def flush() -> Iterator[str]:
        nonlocal prefix
        if paragraph:
            indent = " " * len(prefix)
            first, *rest = sentences(" ".join(paragraph))
            yield prefix + first
            yield from (indent + line for line in rest)
        paragraph.clear()
        prefix = ""

    for line in lines:
        mark = line.strip()[:3]
        if fence or mark in ("```", "~~~"):
            yield from flush()
            yield line
            fence = ("" if mark == fence else fence) if fence else mark
        elif not line.strip() or ALONE.match(line) or line.startswith("    "):
            if line.startswith("    ") and paragraph:
                paragraph.append(line.strip())
                continue
            yield from flush()
            yield line
        elif item := ITEM.match(line):
            yield from flush()
            prefix = item[0]
            paragraph.append(line[item.end() :].strip())
        else:
            if not paragraph:
                prefix = line[: len(line) - len(line.lstrip())]
            paragraph.append(line.strip())
            if line.endswith("\\"):
                yield from flush()
    yield from flush()


def main(argv: list[str]) -> int:
    """Rewrite pages or, with --check, name those that would change; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs.sentences")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if one would")
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args(argv)
    code = 0
    for page in options.files or pages():
        text = page.read_text()
        wanted = reflow(text)
        if wanted == text:
            continue
        code = 1
        if options.check:
            print(f"{_where(page, text, wanted)}: found more or less than a sentence on the line")
        else:
            page.write_text(wanted)
            print(f"{page}: rewritten")
    return code


def _where(page: Path, text: str, wanted: str) -> str:
    pairs = zip(text.splitlines(), wanted.splitlines(), strict=False)
    number = next((n for n, (a, b) in enumerate(pairs, 1) if a != b), 1)
    name = page.relative_to(ROOT) if page.is_absolute() else page
    return f"{name}:{number}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
