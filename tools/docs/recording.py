# SPDX-License-Identifier: Apache-2.0
"""Record a command: `python -m tools.docs.recording NAME COMMAND...` writes NAME.cast.

The cast is in asciinema's format (version 2), so asciinema's players show it. `make docs` draws it
for the page that links to it: the lines play with pauses of a second at most.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

COLUMNS: Final = 80
ROWS: Final = 24
CHARACTER_PX: Final = 8
LINE_PX: Final = 18
MARGIN_PX: Final = 12
MOST_PAUSE_S: Final = 1.0
REST_S: Final = 8.0  # how long the last line stays

Event = tuple[float, str]


def recorded(command: Sequence[str]) -> Iterator[Event]:
    """Run a command; yield the seconds since its start and each line that it prints."""
    environment = os.environ | {"COLUMNS": str(COLUMNS), "LINES": str(ROWS), "NO_COLOR": "1"}
    start = time.monotonic()
    yield 0.0, f"$ {shlex.join(command)}"
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    assert process.stdout is not None
    for line in process.stdout:
        yield time.monotonic() - start, line.rstrip("\n")
    if code := process.wait():
        raise SystemExit(code)


def cast(events: Sequence[Event]) -> str:
    """Return the events as an asciinema cast."""
    header = {"version": 2, "width": COLUMNS, "height": ROWS}
    rows = [[round(at, 3), "o", f"{line}\r\n"] for at, line in events]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in [header, *rows])


def events_of(text: str) -> list[Event]:
    """Return the events of a cast that `cast` wrote."""
    rows = [json.loads(line) for line in text.splitlines()[1:]]
    return [(at, line.removesuffix("\r\n")) for at, _, line in rows]


def wrapped(events: Sequence[Event]) -> list[Event]:
    """Return one row of the terminal for each event, and more rows for long lines. Pauses are
    shortened."""
    rows: list[Event] = []
    shown_s = was_s = 0.0
    for at, line in events:
        shown_s += min(at - was_s, MOST_PAUSE_S)
        was_s = at
        pieces = [line[i : i + COLUMNS] for i in range(0, len(line), COLUMNS)] or [""]
        rows += [(shown_s, piece) for piece in pieces]
    return rows


def drawn(events: Sequence[Event]) -> str:
    """Return the recording as an SVG that plays it in a loop."""
    rows = wrapped(events)
    whole_s = rows[-1][0] + REST_S
    width, height = COLUMNS * CHARACTER_PX + 2 * MARGIN_PX, ROWS * LINE_PX + 2 * MARGIN_PX
    scrolls = {0.0: 0}
    for index, (at, _) in enumerate(rows):
        scrolls[at] = max(0, index + 1 - ROWS) * LINE_PX
    values = ";".join(f"0 {-scroll}" for scroll in scrolls.values())
    times = ";".join(f"{at / whole_s:.4f}" for at in scrolls)
    texts = "\n".join(
        f'<text x="{MARGIN_PX}" y="{MARGIN_PX + (index + 1) * LINE_PX - 5}">{escape(line)}'
        f'<animate attributeName="opacity" values="0;1" keyTimes="0;{at / whole_s:.4f}"'
        f' calcMode="discrete" dur="{whole_s:.1f}s" repeatCount="indefinite"/></text>'
        for index, (at, line) in enumerate(rows)
        if line.strip()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">\n'
        f"<title>{escape(events[0][1])}</title>\n"
        f"<style>text {{ font: 13px monospace; fill: #e6e6e6; white-space: pre }}</style>\n"
        f'<rect width="{width}" height="{height}" rx="6" fill="#1e1e1e"/>\n'
        f'<svg y="{MARGIN_PX}" width="{width}" height="{ROWS * LINE_PX}">'
        f'<g transform="translate(0 {-max(scrolls.values())})">\n'
        f'<animateTransform attributeName="transform" type="translate" values="{values}"'
        f' keyTimes="{times}" calcMode="discrete" dur="{whole_s:.1f}s" repeatCount="indefinite"/>\n'
        f'<g transform="translate(0 {-MARGIN_PX})">\n{texts}\n</g></g></svg>\n</svg>\n'
    )


def shown(page: Path) -> None:
    """Draw the recordings that a page of the site's source links to, and show them in the page."""

    def picture(match: re.Match[str]) -> str:
        file = page.parent / match[2]
        file.with_suffix(".svg").write_text(drawn(events_of(file.read_text())))
        return f"![{match[1]}]({Path(match[2]).with_suffix('.svg')})"

    page.write_text(re.sub(r"\[([^\]]*)\]\(([\w./-]+\.cast)\)", picture, page.read_text()))


def main(words: Sequence[str]) -> int:
    """Record `words[1:]` as the cast `words[0]`; return 2 for bad input."""
    if len(words) < 2:
        print("recording: found no command; valid: NAME COMMAND...", file=sys.stderr)
        return 2
    events = []
    for at, line in recorded(words[1:]):
        print(line, flush=True)
        events.append((at, line))
    Path(words[0]).with_suffix(".cast").write_text(cast(events))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
