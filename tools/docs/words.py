# SPDX-License-Identifier: Apache-2.0
"""Words to avoid (words.txt): `python -m tools.docs.words [FILE...]` lists them with the remedy.

Without files: every Markdown page that people write. Code in backticks and in blocks is left out.
`--count` prints how many words each page and all pages have (count.py says what counts).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.prose import prose_lines
from tools.docs.count import MOST_WORDS, table
from tools.docs.sentences import CODE, pages

LIST: Final = Path(__file__).with_name("words.txt")
FLAGS: Final = re.IGNORECASE | re.MULTILINE
# Between two words: a blank, or a line end and the mark of a comment.
GAP: Final = r"(?: |[ \t]*\n[ \t]*(?:[*#] )?[ \t]*)"


@cache
def words() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return (pattern, remedy) of each line of the list."""
    lines = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    pairs = [line.split("\t") for line in lines]
    return tuple((re.compile(text.replace(" ", GAP), FLAGS), remedy) for text, remedy in pairs)


def findings(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, what is wrong and what to write instead). Search a whole file at once: a
    hundred patterns, line by line, take ten times as long."""
    plain = "\n".join(CODE.sub("``", line) for line in text.splitlines())
    for pattern, remedy in words():
        for match in pattern.finditer(plain):
            number = plain.count("\n", 0, match.start()) + 1
            yield number, f'found "{re.sub(GAP, " ", match[0])}"; valid: {remedy}'


def main(files: list[str]) -> int:
    """Print each finding as FILE:LINE; return 1 if there is one."""
    if files == ["--count"]:
        rows = table()
        print("\n".join(f"{words:6,} {page}" for words, page in rows))
        print(f"{sum(words for words, _ in rows):6,} words; {MOST_WORDS:,} at most")
        return 0
    code = 0
    for page in [Path(file) for file in files] or pages():
        for number, line in prose_lines(page):
            for _, finding in findings(line):
                print(f"{page}:{number}: {finding}")
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
