# SPDX-License-Identifier: Apache-2.0
"""`python -m parsers report RUN_DIR [--quiet] [--full] [--include-invalid]`: rewrite a report.

`downpour run` and `downpour report` start it as a separate process, which keeps the drawing library
out of the runner.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common.exit_codes import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from common.files import os_error_text
from common.terminal import columns, is_ascii_only, never_fail
from parsers.base.jsonfiles import BadFile
from parsers.report.brief import shown_brief

if TYPE_CHECKING:
    from parsers.report.publish import Written

FLAGS: Final = {"--quiet", "--full", "--include-invalid"}


def main(arguments: Sequence[str]) -> int:
    """Write the report and print it. Exit code: 0 done, 1 system error, 2 bad input."""
    flags = {word for word in arguments if word.startswith("--")}
    words = [word for word in arguments if word not in flags]
    if len(words) != 2 or words[0] != "report" or not flags <= FLAGS:
        print(f"parsers: found {' '.join(arguments)!r}; valid: downpour report", file=sys.stderr)
        return EXIT_USAGE
    never_fail(sys.stdout)
    try:
        from parsers.report.publish import write_report  # which imports the drawing library

        written = write_report(Path(words[1]), include_invalid="--include-invalid" in flags)
    except BadFile as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(os_error_text(error), file=sys.stderr)
        return EXIT_FAILED
    try:
        if "--quiet" not in flags:
            print(_shown(written, "--full" in flags), end="", flush=True)
    except BrokenPipeError:  # `head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_OK


def _shown(written: Written, full: bool) -> str:
    """Return the report, or its result, for the terminal's width and characters."""
    page = str(written.report_dir / "index.html")
    if not full:
        return shown_brief(written.brief, page)
    from parsers.report.document import render_text

    text = render_text(written.report, columns(), ascii_only=is_ascii_only(sys.stdout))
    return f"{text}\nReport: {page}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
